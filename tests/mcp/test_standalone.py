import asyncio
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.tools.toolbox import Toolbox
from tests.mcp.servers import HERE, gone, running, time_server

QUESTION = 'Use convert_time with "UTC" "12:00" "Asia/Tokyo"'


def fine(mark: str) -> dict[str, object]:
    return {"command": sys.executable, "args": ["-S", str(HERE / "bad_server.py"), "fine", mark]}


def test_a_client_without_await_uses_a_real_server() -> None:
    servers = {"time": {"command": time_server().command}}
    with dragoman.Client() as client, dragoman.McpServers(servers) as tools:
        assert isinstance(tools, Toolbox)
        answer = client.run("demo", QUESTION, tools=tools)
        assert [row["health"] for row in tools.describe()] == ["up"]
    assert "T21:00:00+09:00" in answer.text


def test_functions_and_servers_go_together_and_programs_end_with_the_block(tmp_path: Path) -> None:
    mark = str(tmp_path)

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    async def run() -> None:
        async with dragoman.AsyncClient() as client, dragoman.McpServers({"fine": fine(mark)}) as tools:
            answer = await client.run("demo", "please use add with 2 and 3, and also fine work", tools=[add, tools])
            assert "5" in answer.text
            assert "done" in answer.text
            assert running(mark)
        assert not await gone(mark)

    asyncio.run(run())


def test_a_bad_entry_is_said_at_once() -> None:
    with pytest.raises(dragoman.ConfigError, match="url"):
        dragoman.McpServers({"a": {}})


def test_unused_servers_are_not_started() -> None:
    with dragoman.McpServers({"a": "http://127.0.0.1:9/mcp"}) as tools:
        assert tools.describe()[0]["health"] == "unasked"


def test_a_folder_keeps_approvals(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    row = {"command": sys.executable, "args": ["-S", str(HERE / "bad_server.py"), "rug", str(changed)]}

    async def offered(**more: Path) -> int:
        async with dragoman.McpServers({"rug": row}, **more) as tools:
            return len(await tools.list_tools())

    assert asyncio.run(offered(folder=tmp_path / "kept")) == 1
    changed.touch()
    assert asyncio.run(offered(folder=tmp_path / "kept")) == 0
    assert asyncio.run(offered()) == 1
