"""A gateway with providers, keys, tools and traffic, for the stories and the pictures of the console."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.accounts.grants import Grant
from dragoman.accounts.prices import ModelPrice
from dragoman.conformance.runner import LiveVerifier
from dragoman.gateway.config.mcp import McpSettings
from dragoman.gateway.config.teams import TeamSettings
from dragoman.gateway.process.reload import reload
from dragoman.gateway.process.startup import ServeOptions
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.testing import serve
from tests.gateway.house import CANARY, House, faultline, open_house, say, state, upstream
from tests.gateway.web import post
from tests.mcp.servers import time_server

MODELS = ("far-model", "cloud-model", "shaky-model", "safe")
PRICES = TeamSettings(prices={name: ModelPrice(input=3_000_000, output=15_000_000, currency="USD") for name in MODELS})
READ = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
# As Claude Code sends it: a stream, tools, a cache mark, and a setting that OpenAI's dialect does not have.
AGENT: dict[str, Any] = {
    "model": "far-model",
    "max_tokens": 200,
    "top_k": 7,
    "stream": True,
    "system": [{"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}],
    "tools": [READ],
    "messages": [
        {"role": "user", "content": "Read src/app.py"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "src/app.py"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "print('hello')"},
                {"type": "text", "text": "What is the weather in Seoul?"},
            ],
        },
    ],
}
FILE = """# dragoman.toml
xray = 100

[providers.far]
kind = "compatible"
base_url = "{url}"
api_key = "{key}"
models = ["far-model"]
rpm = 60

[aliases]
fast = "far-model"
"""


@dataclass
class SampleGateway:
    house: House
    admin: str  # an admin key
    key: str  # of a client
    file: Path  # the configuration

    @property
    def url(self) -> str:
        return self.house.url

    def send(self, request_id: str = "", agent: str = "claude-cli/2.1.0", **more: Any) -> int:
        headers = {"authorization": f"Bearer {self.key}", "user-agent": agent}
        headers |= {"x-request-id": request_id} if request_id else {}
        return post(self.url, "/v1/messages", {**AGENT, **more}, headers).status


@contextmanager
def open_sample_gateway(folder: Path) -> Iterator[SampleGateway]:
    """Three providers, of which one always fails, so that the alias `safe` needs its fallback."""
    with ExitStack() as stack:
        store = SqliteKeyStore(folder / "keys.db")
        admin, key = store.new("root", admin=True), store.new("ada", team="web", grant=Grant(budget="20 USD/month"))
        chat = stack.enter_context(serve("openai_chat", key=CANARY))
        gemini = stack.enter_context(serve("gemini", key=CANARY))
        broken = stack.enter_context(faultline(say(500, b'{"error": {"message": "overloaded"}}')))
        file = folder / "dragoman.toml"
        file.write_text(FILE.format(url=chat.base_url, key=CANARY))
        house = stack.enter_context(
            open_house(
                upstream("far", "openai_chat", chat.base_url, rpm=600, at_once=20),
                upstream("cloud", "gemini", gemini.base_url, at_once=8),
                upstream("shaky", "openai_chat", broken.url),
                aliases={"safe": ("shaky-model", "far-model")},
                keys=store,
                store_path=folder / "responses.db",
                xray_keep=200,
                teams=PRICES,
                mcp=McpSettings(folder=folder, servers={"time": time_server()}),
                source=str(file),
            )
        )
        house.gateway.open_verifier = LiveVerifier
        house.gateway.remember_config("start")
        let_apply(house, file, folder)
        yield SampleGateway(house, admin, key, file)


def let_apply(house: House, file: Path, folder: Path) -> None:
    """The configuration is read again as `dragoman serve` does it."""
    options = ServeOptions(config=file, port=house.port)

    def apply() -> str:
        async def load() -> bool:
            return reload(house.gateway, options, state(folder))

        return "" if house.loop.run(load()) else "the gateway refuses it"

    house.gateway.apply_config = apply
