"""No request costs more than its length: a pass that compares all with all takes seconds for what is long."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import DecodeError
from dragoman.exchange import ClientRequest, read_request
from dragoman.notes import MOST_PLACES, Notes
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest
from tests.gateway.house import upstream

N = 2000
HI = {"role": "user", "content": "hi"}
TARGETS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")


def call(number: int | str) -> Any:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def tool(name: str, **properties: Any) -> Any:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def calling(*calls: Any) -> Any:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(number: int | str) -> Any:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"}


LONG: dict[str, Callable[[], Any]] = {
    "unanswered calls": lambda: [HI, calling(*map(call, range(N))), HI],
    "calls of one id": lambda: [HI, calling(*[call("x")] * N), *[result("x")] * N],
    "calls, each answered": lambda: [m for i in range(N) for m in (calling(call(i)), result(i))],
    "results of no call": lambda: [HI, *[result(i) for i in range(N)]],
    "parts": lambda: [{"role": "user", "content": [{"type": "text", "text": "x"}] * N}],
    "pictures": lambda: [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}] * N}],
    "parts of the future": lambda: [{"role": "user", "content": [{"type": "odd"}] * N}],
    "turns of one role": lambda: [HI] * N,
    "system texts": lambda: [{"role": "system", "content": "x"}, HI] * N,
    "unknown keys": lambda: [{**HI, f"x{i}": i} for i in range(N)],
}
LONG_TOOLS: dict[str, Callable[[], Any]] = {
    "tools": lambda: [tool(f"t{i}") for i in range(N)],
    "tools of one name": lambda: [tool("t")] * N,
    "tools with odd names": lambda: [tool(f"t !{i}") for i in range(N)],
    "properties": lambda: [tool("t", **{f"p{i}": {"type": "string"} for i in range(N)})],
    "values of an enum": lambda: [tool("t", p={"enum": [str(i) for i in range(N)]})],
    "ways of an anyOf": lambda: [tool("t", p={"anyOf": [{"const": i} for i in range(N)]})],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", [*LONG, *LONG_TOOLS])
def test_a_long_request_is_read_and_written_in_time(what: str, target: str) -> None:
    body: Any = {"model": "m", "messages": LONG[what]()} if what in LONG else {"model": "m", "messages": [HI]}
    if what in LONG_TOOLS:
        body["tools"] = LONG_TOOLS[what]()
    raw = json.dumps(body).encode()
    here = upstream("it", target, "http://x")
    began = time.process_time()
    notes = Notes()
    request = read_request(find_dialect("openai_chat"), WireRequest(body=body, path="/v1/chat/completions"), notes)
    asked = ClientRequest(
        dialect=find_dialect("openai_chat"), request=request, raw=raw, notes=tuple(notes.read(MOST_PLACES))
    )
    state = UpstreamState(here, lambda: 0.0)
    written = render(asked, state, Target(upstream=here, model="m"), stream=False, refuse=frozenset())
    written.notes.read(MOST_PLACES)
    assert time.process_time() - began < 1.5  # what is quadratic took 5 to 20 s


LONG_FRAMES = {
    "an event": b'data: {"a":"' + b"x" * 1_000_000,
    "an event of lines": b"data: x\n" * 125_000,
    "an event of lines that end in CR LF": b"data: xxxxx\r\n" * 80_000,
    "an array": b'[{"a":"' + b"x" * 1_000_000,
}


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("what", LONG_FRAMES)
def test_a_long_frame_in_small_pieces_is_read_in_time(what: str, dialect: str) -> None:
    """A hostile provider writes it so. To look at all of it after each piece took minutes (issue 12)."""
    data, decoder = LONG_FRAMES[what], find_dialect(dialect).stream_decoder(Notes())
    began = time.process_time()
    with suppress(DecodeError):
        for at in range(0, len(data), 20):
            decoder.feed(data[at : at + 20])
    assert time.process_time() - began < 1.5  # what is quadratic took 5 to 20 s
