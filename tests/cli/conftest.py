"""A gateway, and a home of one's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.gateway.config.mcp import McpSettings
from tests.gateway.house import House, open_house
from tests.mcp.servers import time_server

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GROQ_API_KEY")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("people")
    with open_house(mcp=McpSettings(folder=folder, servers={"time": time_server()})) as house:
        yield house


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DRAGOMAN_NO_PROBE", "1")
    for name in (*KEYS, "DRAGOMAN_KEY", "DRAGOMAN_ADMIN_KEY", "DRAGOMAN_CONFIG", "DRAGOMAN_MODEL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
