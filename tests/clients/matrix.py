"""The matrix: every official client and framework x five upstream dialects x scenarios.

    make matrix      runs it and writes docs/sdk-matrix.md

`Cell.why` is empty where the client got what it should. known.toml has the reason of each cell that does not pass.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, product
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias
from zlib import crc32

from msgspec import Struct, convert

from dragoman.dialects import find_dialect
from dragoman.model.messages import Reasoning, ToolCall
from dragoman.notes import Notes
from dragoman.testing.seals import SENTINEL
from dragoman.wire import WireRequest
from tests.clients.matrix_providers import CITIES, HELLO, ODD, REFUSED, UPSTREAMS, MatrixProviders
from tests.gateway.sdks import CLOCK, PIXEL, SCHEMA, WEATHER

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# the program that runs them -> the clients, each with the package that brings it
CLIENTS: dict[str, dict[str, str]] = {
    "official": {
        "openai chat": "openai",
        "openai responses": "openai",
        "anthropic": "anthropic",
        "google-genai": "google-genai",
        "ollama": "ollama",
    },
    "frameworks": {
        "langchain-openai": "langchain-openai",
        "langchain-openai responses": "langchain-openai",
        "langchain-anthropic": "langchain-anthropic",
        "langchain-google-genai": "langchain-google-genai",
        "langchain-ollama": "langchain-ollama",
        "pydantic-ai chat": "pydantic-ai-slim",
        "pydantic-ai responses": "pydantic-ai-slim",
        "pydantic-ai anthropic": "pydantic-ai-slim",
        "pydantic-ai google": "pydantic-ai-slim",
        "llm chat": "llm",
        "llm responses": "llm",
    },
    "npm": {
        "npm openai chat": "openai",
        "npm openai responses": "openai",
        "npm @anthropic-ai/sdk": "@anthropic-ai/sdk",
        "npm @google/genai": "@google/genai",
        "npm ollama": "ollama",
        "AI SDK openai-compatible": "@ai-sdk/openai-compatible",
        "AI SDK openai": "@ai-sdk/openai",
        "AI SDK anthropic": "@ai-sdk/anthropic",
        "AI SDK google": "@ai-sdk/google",
        "AI SDK ollama": "ollama-ai-provider-v2",
    },
}
CALL_1: list[Any] = ["call_1", "get_weather", {"city": "Bergen"}]
CALL_2: list[Any] = ["call_2", "get_time", {"city": "Lima"}]
RESULT_1, RESULT_2 = ["call_1", "get_weather", "rain"], ["call_2", "get_time", "noon"]
ASKED = {"user": "Tell me."}
_AGAIN: list[dict[str, Any]] = [{"assistant": "", "calls": [CALL_1]}, {"results": [RESULT_1]}]
# Histories as real programs send them after a crash, a cut or an edit.
BROKEN: dict[str, list[dict[str, Any]]] = {
    "call_without_result": [ASKED, {"assistant": "", "calls": [CALL_1]}],
    "result_without_call": [ASKED, {"results": [RESULT_1]}],
    "one_result_of_two": [ASKED, {"assistant": "", "calls": [CALL_1, CALL_2]}, {"results": [RESULT_1]}],
    "results_in_other_order": [ASKED, {"assistant": "", "calls": [CALL_1, CALL_2]}, {"results": [RESULT_2, RESULT_1]}],
    "one_id_twice": [ASKED, *_AGAIN, *_AGAIN],
    "user_after_user": [ASKED, ASKED],
    "empty_assistant": [ASKED, {"assistant": ""}],
    "assistant_first": [{"assistant": "Hello."}],
}


@dataclass(frozen=True)
class Cell:
    client: str
    upstream: str
    scenario: str
    why: str  # it failed; empty: it passed
    asked: int  # requests that reached the provider

    @property
    def own(self) -> bool:
        """The client itself refused to ask."""
        return bool(self.why) and not self.asked


class Row(Struct, frozen=True):
    """Why some cells do not pass."""

    client: str
    upstream: str
    scenario: str
    whose: Literal["client", "gateway"]
    why: str

    def fits(self, cell: Cell) -> bool:
        given = (cell.client, cell.upstream, cell.scenario)
        return all(map(fnmatchcase, given, (self.client, self.upstream, self.scenario)))


def load_rows() -> list[Row]:
    return convert(tomllib.loads((HERE / "known.toml").read_text())["row"], list[Row])


def is_sampled(*cell: object) -> bool:
    """A fifth of all cells, always the same."""
    return crc32(repr(cell).encode()) % 5 == 0


Ask: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
Takes: TypeAlias = Callable[..., bool] | None


@dataclass
class Play:
    """One cell while it runs."""

    ask: Ask
    stage: MatrixProviders
    client: str
    dialect: str
    scenario: str
    number: int
    role: str = "plain"

    def say(self, text: str = "", **wish: Any) -> dict[str, Any]:
        if "results" not in wish:
            wish = {"turns": [], "text": f"#{self.number}:{self.scenario} {text}".strip()} | wish
        return self.ask({"client": self.client, "model": f"{self.role}-{self.dialect}", **wish})


def complain(said: dict[str, Any], **wanted: Any) -> str:
    """What is not as it should be."""
    if "error" in said:
        return f"{said['error']} {said['status'] or ''}: {said['message']}"
    for name, value in wanted.items():
        found = said[name].strip() if isinstance(said[name], str) else said[name]
        if found != value and not (name == "finish" and found == ""):
            return f"{name} is {found!r}, not {value!r}"
    return ""


def plays_text(play: Play, stream: bool) -> str:
    said = play.say(stream=stream)
    why = complain(said, text=HELLO, finish="stop", calls=[])
    if why or said.get("tokens") is None:
        return why
    return "" if all(said["tokens"]) else f"tokens are {said['tokens']}"


def plays_tool(play: Play, stream: bool) -> str:
    return _tools(play, stream, ["Seoul"])


def plays_parallel(play: Play, stream: bool) -> str:
    return _tools(play, stream, ["Bergen", "Lima"])


def _tools(play: Play, stream: bool, cities: list[str]) -> str:
    said = play.say(tools=True, stream=stream)
    why = complain(said, calls=[["get_weather", {"city": city}] for city in cities], finish="tool")
    if why:
        return why
    results = [f"{city.lower()}-weather" for city in cities]
    after = play.say(tools=True, results=results, stream=stream)
    why = complain(after, calls=[])
    if why:
        return why
    # some clients wrap a result: {"name": ..., "content": ...}
    found = [re.search(f"{city}=[^=]*{text}", after["text"]) for city, text in zip(cities, results, strict=True)]
    return "" if all(found) else f"text is {after['text']!r}"


def plays_schema(play: Play, stream: bool) -> str:
    said = play.say(schema=True, stream=stream)
    why = complain(said)
    return why or ("" if json.loads(said["text"]) == {"name": "Ada", "age": 36} else f"text is {said['text']!r}")


def plays_image(play: Play, stream: bool) -> str:
    return complain(play.say("What is this?", image=True, stream=stream), text="I see a dot.")


def plays_limit(play: Play, stream: bool) -> str:
    return complain(play.say(limit=2000, stream=stream), text="one two three", finish="length")


def plays_refused(play: Play, stream: bool) -> str:
    return _refused(play, stream, 400)


def plays_busy(play: Play, stream: bool) -> str:
    return _refused(play, stream, 429)


def _refused(play: Play, stream: bool, status: int) -> str:
    said = play.say(stream=stream)
    if "error" not in said:
        return f"the client knows of no error: {said}"
    if said["status"] not in (status, None):
        return f"status {said['status']}: {said['message']}"
    return "" if REFUSED in said["message"] or "may be used" in said["message"] else f"its words are lost: {said}"


def plays_cut(play: Play, stream: bool) -> str:
    said = play.say(stream=stream)
    whole = said.get("finish") in ("stop", "tool")
    return f"half an answer passed for a whole one: {said}" if whole else ""


def plays_think(play: Play, stream: bool, asked: bool = True) -> str:
    """Three turns with tools: the provider gets all its thoughts back, as the client itself brings them."""
    said = play.say(tools=True, think=asked, stream=stream)
    for city in CITIES:
        why = complain(said, calls=[["get_weather", {"city": city}]])
        if why:
            return why
        said = play.say(tools=True, think=asked, stream=stream, results=["rain"])
    why = complain(said, text="Rain.", calls=[])
    if why:
        return why
    counts = [len(sent) for sent in thoughts_sent(play)]
    if counts != [0, 1, 2, 3]:
        return f"thoughts that came back with each request: {counts}"
    return ""


def plays_unasked(play: Play, stream: bool) -> str:
    """The model thinks by itself, and its vendor wants the thoughts of earlier turns back."""
    return plays_think(play, stream, asked=False)


def plays_shown(play: Play, stream: bool) -> str:
    said = play.say(tools=True, think=True, stream=stream)
    return complain(said) or ("" if "Thought 0" in said["thought"] else "the client shows no thought")


def thoughts_sent(play: Play) -> list[list[Any]]:
    sent: list[list[Any]] = []
    for seen in play.stage.seen(play.dialect, play.number):
        request = find_dialect(play.dialect).decode_request(WireRequest(body=seen.json, path=seen.path), Notes())
        parts = [part for message in request.messages if message.role == "assistant" for part in message.parts]
        if play.dialect == "gemini":
            sent.append([p for p in parts if isinstance(p, ToolCall) and p.seal and SENTINEL not in str(p.seal)])
        else:
            sent.append([part for part in parts if isinstance(part, Reasoning)])
    return sent


def plays_odd(play: Play, stream: bool) -> str:
    said = play.say(tools=True, stream=stream)
    calls = [["get_weather", {"city": "Bergen"}], ["get_time", {"city": "Lima"}]]
    return complain(said, text="Let me look.", calls=calls, finish="tool")


def plays_broken(play: Play, stream: bool) -> str:
    turns = BROKEN[play.scenario.removeprefix("broken_")]
    said = play.say("Go on.", turns=turns, tools=True, stream=stream)
    return complain(said, text="Fine.")


BOTH, WHOLE, STREAM = (False, True), (False,), (True,)
# what is played -> streamed, whole or both; and by which of a dialect's providers
SCENARIOS: dict[str, tuple[Callable[[Play, bool], str], tuple[bool, ...], str]] = {
    "text": (plays_text, BOTH, "plain"),
    "tool": (plays_tool, BOTH, "plain"),
    "parallel": (plays_parallel, BOTH, "plain"),
    "schema": (plays_schema, WHOLE, "plain"),
    "image": (plays_image, WHOLE, "plain"),
    "limit": (plays_limit, WHOLE, "plain"),
    "think": (plays_think, BOTH, "thinker"),
    "think_unasked": (plays_unasked, WHOLE, "thinker"),
    "think_shown": (plays_shown, BOTH, "thinker"),
    "refused": (plays_refused, BOTH, "failing"),
    "busy": (plays_busy, WHOLE, "busy"),
    "cut": (plays_cut, STREAM, "failing"),
    "odd": (plays_odd, STREAM, "plain"),
    "broken": (plays_broken, WHOLE, "plain"),
}
MAY_REFUSE = ("refused", "busy", "cut")  # scenarios in which the provider says no on purpose


def variants(scenario: str, dialect: str) -> Iterator[str]:
    """`odd` and `broken` stand for several."""
    if scenario == "odd":
        yield from (f"odd_{name}" for name in ODD[dialect])
    elif scenario == "broken":
        yield from (f"broken_{name}" for name in BROKEN)
    else:
        yield scenario


def run_cell(play: Play, scenario: str, stream: bool) -> Cell:
    act, _, play.role = SCENARIOS[scenario]
    if play.role in ("failing", "busy"):
        play.stage.forgive()
    why = act(play, stream)
    seen = play.stage.seen(play.dialect, play.number)
    refusals = [words.refused for words in seen if words.refused]
    if not why and refusals and scenario not in MAY_REFUSE:
        why = f"the provider refused first: {refusals[0]}"
    name = f"{play.scenario} ({'stream' if stream else 'whole'})" if len(SCENARIOS[scenario][1]) > 1 else play.scenario
    return Cell(play.client, play.dialect, name, why, len(seen))


def run_clients(
    ask: Ask, clients: Iterable[str], stage: MatrixProviders, numbers: Iterator[int], takes: Takes
) -> list[Cell]:
    cells = []
    for client, dialect, scenario in product(clients, UPSTREAMS, SCENARIOS):
        for name, stream in product(variants(scenario, dialect), SCENARIOS[scenario][1]):
            if takes is None or takes(client, dialect, name, stream):
                play = Play(ask, stage, client, dialect, name, next(numbers))
                cells.append(run_cell(play, scenario, stream))
    return cells


@contextmanager
def driver(command: list[str]) -> Iterator[Ask]:
    """A program that asks; see driver.py and driver.mjs."""
    env = {"PATH": os.environ.get("PATH", ""), "NO_PROXY": "*", "PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"]}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    to, back = process.stdin, process.stdout
    assert to is not None
    assert back is not None
    try:
        yield lambda wish: _exchange(to, back, wish)
    finally:
        process.kill()
        process.wait()
        to.close()
        back.close()


def _exchange(to: IO[str], back: IO[str], wish: dict[str, Any]) -> dict[str, Any]:
    to.write(json.dumps(wish) + "\n")
    to.flush()
    line = back.readline()
    assert line, f"the client's program ended at {wish}"
    said: dict[str, Any] = json.loads(line)
    return said


def run_matrix(stage: MatrixProviders, commands: dict[str, list[str]], takes: Takes = None) -> list[Cell]:
    """All cells that `takes` takes, or all."""
    numbers = count(1)

    def run(group: str) -> list[Cell]:
        with driver(commands[group]) as ask:
            return run_clients(ask, CLIENTS[group], stage, numbers, takes)

    with ThreadPoolExecutor(len(commands)) as pool:
        return [cell for cells in pool.map(run, commands) for cell in cells]


def commands(gateway: str, python: Path | None, packages: Path | None) -> dict[str, list[str]]:
    """How each group is run, where it can be."""
    samples = json.dumps({"tools": [WEATHER, CLOCK], "schema": SCHEMA, "pixel": PIXEL})
    found = {"official": [sys.executable, "-m", "tests.clients.driver", gateway]}
    if python is not None:
        found["frameworks"] = [str(python), "-m", "tests.clients.driver", gateway]
    if packages is not None:
        found["npm"] = ["node", str(HERE / "driver.mjs"), str(packages), gateway, samples]
    return found
