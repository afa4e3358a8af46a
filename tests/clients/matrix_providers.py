"""What stands behind the gateway in the matrix: strict scripted providers of five dialects that follow a cell's script.

A cell writes its number and scenario into the question (`#17:tool`). The provider finds it in the request and plays
that scenario, so one gateway serves all clients at once.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeAlias

from msgspec import Struct

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, ReplyFailed
from dragoman.model.fold import unfold
from dragoman.model.messages import Image, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.testing import Provider, faults, serve
from dragoman.testing.provider import cut_frames
from dragoman.testing.sending import Recorded
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.gateway.sdks import PIXEL

HELLO = "안녕 🌍 שלום"
REFUSED = "no, and here is why"
CITIES = ("Bergen", "Seoul", "Lima")
MARK = re.compile(r"#(\d+):(\w+)")
Script: TypeAlias = Callable[[Request, str], Reply | list[Event] | bytes]
Json = dict[str, Any]


class Behind(Struct, frozen=True):
    """An upstream of one dialect, and one of a model that thinks."""

    kind: str
    model: str
    thinker_kind: str
    thinker: str


UPSTREAMS = {
    "openai_chat": Behind("openai", "gpt-4.1", "openrouter", "google/gemini-3-pro"),
    "openai_responses": Behind("openai", "gpt-5.1", "openai", "gpt-5"),
    "anthropic": Behind("anthropic", "claude-haiku-4-5", "anthropic", "claude-sonnet-4-6"),
    "gemini": Behind("gemini", "gemini-2.5-flash", "gemini", "gemini-3-pro"),
    "ollama": Behind("ollama", "llama3.2-vision", "ollama", "qwen3"),
}


@dataclass
class MatrixProviders:
    house: House
    providers: dict[tuple[str, str], Provider]  # by dialect and role

    def forgive(self) -> None:
        """Forgets the failures so far: the next cell's are its own."""
        for state in self.house.gateway.now.upstream_states.values():
            state._breakers.clear()
            for key in state.keys.keys:
                key.rests.clear()

    def seen(self, dialect: str, number: int) -> list[Recorded]:
        """The requests of one cell."""
        mark, own = f"#{number}:".encode(), [p for (name, _), p in self.providers.items() if name == dialect]
        return [seen for provider in own for seen in provider.requests if mark in seen.body]


ROLES = ("plain", "thinker", "failing", "busy")
BUSY = faults.failing(429, REFUSED, headers={"retry-after": "99"})  # too long to wait for


@contextmanager
def serve_matrix_providers() -> Iterator[MatrixProviders]:
    """Each model is known by an alias, so that its name does not tell a client what stands behind it."""
    with ExitStack() as stack:
        providers, specs, aliases = {}, [], {}
        for dialect, role in product(UPSTREAMS, ROLES):
            behind, name = UPSTREAMS[dialect], f"{role}-{dialect}"
            kind, model = (behind.thinker_kind, behind.thinker) if role == "thinker" else (behind.kind, behind.model)
            asked_for = kind if kind == "openrouter" else dialect  # a kind with one dialect, or the dialect itself
            provider = stack.enter_context(serve(asked_for, key=CANARY, brain=partial(play, dialect=dialect)))
            provider.always(BUSY if role == "busy" else None)
            providers[dialect, role] = provider
            specs.append(upstream(name, dialect, provider.base_url, kind=kind, models=(model,)))
            aliases[name] = (f"{name}/{model}",)
        yield MatrixProviders(stack.enter_context(open_house(*specs, aliases=aliases)), providers)


def play(request: Request, dialect: str) -> Reply | list[Event] | bytes:
    found = MARK.search(" ".join(_texts(request)))
    assert found is not None, "a request without its cell's number"
    scenario = found[2]
    for start, script in SCRIPTS.items():
        if scenario.startswith(start):
            return script(request, f"{dialect} {scenario}")
    return reply(Text(text="Fine."))


def _texts(request: Request) -> Iterator[str]:
    for message in request.messages:
        yield from (part.text for part in message.parts if isinstance(part, Text))


def reply(*parts: Part, finish: FinishReason = "stop") -> Reply:
    usage = Usage(input=11, output=7)
    return Reply(id="r-1", model="m", choices=(Choice(parts=parts, finish=Finish(reason=finish)),), usage=usage)


def call(number: int, name: str, city: str) -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=json.dumps({"city": city}))


def results_of(request: Request) -> list[tuple[str, str]]:
    """Each call's city with the text that came back for it."""
    parts = [part for message in request.messages for part in message.parts]
    said = {part.call_id: "".join(_words(part)) for part in parts if isinstance(part, ToolResult)}
    return [
        (json.loads(part.arguments)["city"], said[part.id])
        for part in parts
        if isinstance(part, ToolCall) and part.id in said
    ]


def _words(result: ToolResult) -> Iterator[str]:
    for part in result.parts:
        if isinstance(part, Text):
            yield part.text


def use_tools(*cities: str) -> Script:
    """Calls for all cities at once, then an answer that says which result belongs to which city."""

    def script(request: Request, _: str) -> Reply:
        results = results_of(request)
        if results:
            return reply(Text(text=" ".join(f"{city}={text}" for city, text in results)))
        return reply(*(call(i, "get_weather", city) for i, city in enumerate(cities)), finish="tool_call")

    return script


def think(request: Request, _: str) -> Reply:
    """A thought and a call for each city, one after the other, then a thought and the answer."""
    done = len(results_of(request))
    thought = Reasoning(text=f"Thought {done} about the weather.", summary=True)
    if done == len(CITIES):
        return reply(thought, Text(text="Rain."))
    return reply(thought, call(done, "get_weather", CITIES[done]), finish="tool_call")


def see(request: Request, _: str) -> Reply:
    parts = [part for message in request.messages for part in message.parts]
    seen = any(isinstance(part, Image) and part.data == PIXEL for part in parts)
    return reply(Text(text="I see a dot." if seen else "I see no picture."))


def refuse(_: Request, __: str) -> list[Event]:
    return [ReplyFailed(failure=Failure(kind="invalid_request", status=400, message=REFUSED))]


# -- streams as no documentation describes them


def frames_of(request: Request, dialect: str, *parts: Part, finish: FinishReason = "stop") -> list[bytes]:
    encoder = find_dialect(dialect).stream_encoder(Notes(), request)
    return cut_frames(encoder.feed(unfold(reply(*parts, finish=finish))) + encoder.close(), dialect)


def cut(request: Request, at: str) -> bytes:
    """The first half of an answer of many small pieces."""
    start, opened, _, *end = unfold(reply(Text(text="word")))
    pieces = [PartDelta(index=0, text="word ") for _ in range(40)]
    encoder = find_dialect(at.split()[0]).stream_encoder(Notes(), request)
    frames = cut_frames(encoder.feed([start, opened, *pieces, *end]) + encoder.close(), at.split()[0])
    return b"".join(frames[: len(frames) // 2])


def odd(request: Request, at: str) -> bytes:
    dialect, name = at.split()
    frames = frames_of(
        request, dialect, Text(text="Let me look."), call(1, "get_weather", "Bergen"), call(2, "get_time", "Lima"),
        finish="tool_call",
    )  # fmt: skip
    return b"".join(ODD[dialect][name.removeprefix("odd_")](frames))


def edit(change: Callable[[Json], Json | None]) -> Callable[[list[bytes]], list[bytes]]:
    """Changes each object of a stream, or leaves it out."""

    def apply(frames: list[bytes]) -> list[bytes]:
        made = []
        for frame in frames:
            head, brace, rest = frame.partition(b"{")
            body = change(json.loads(brace + rest)) if brace else None
            if not brace:
                made.append(frame)
            elif body is not None:
                end = frame[len(frame.rstrip()) :]
                made.append(head + json.dumps(body).encode() + end)
        return made

    return apply


def _calls_of_chat(body: Json) -> list[Json]:
    deltas = [choice.get("delta") or {} for choice in body.get("choices") or ()]
    return [one for delta in deltas for one in delta.get("tool_calls") or ()]


def _chat_no_index(body: Json) -> Json:
    for one in _calls_of_chat(body):
        del one["index"]
    return body


def _chat_zero_index(body: Json) -> Json:
    for one in _calls_of_chat(body):
        one["index"] = 0
    return body


def _chat_same_id(body: Json) -> Json:
    for one in _calls_of_chat(body):
        if "id" in one:
            one["id"] = "call_1"
    return body


def _chat_stop(body: Json) -> Json:
    for choice in body.get("choices") or ():
        if choice.get("finish_reason"):
            choice["finish_reason"] = "stop"
    return body


def _first(extra: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [extra, *frames]


def _between(extra: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [piece for frame in frames for piece in (frame, extra)][:-1]


def _without(*words: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [frame for frame in frames if not any(word in frame for word in words)]


def _responses_empty_end(body: Json) -> Json:
    if body.get("type") == "response.completed":
        body["response"]["output"] = []
    return body


def _responses_no_numbers(body: Json) -> Json:
    body.pop("sequence_number", None)
    return body


def _anthropic_end_turn(body: Json) -> Json:
    if body.get("type") == "message_delta":
        body["delta"]["stop_reason"] = "end_turn"
    return body


def _anthropic_no_usage(body: Json) -> Json:
    if body.get("type") == "message_delta":
        body.pop("usage", None)
    return body


def _bare_data(frames: list[bytes]) -> list[bytes]:
    """Without the names of the events."""
    return [frame[frame.index(b"data:") :] for frame in frames]


def _gemini_always_stop(body: Json) -> Json:
    for candidate in body.get("candidates") or ():
        candidate["finishReason"] = "STOP"
    return body


def _gemini_bare(body: Json) -> Json:
    for candidate in body.get("candidates") or ():
        candidate.pop("index", None)
        (candidate.get("content") or {}).pop("role", None)
    body.pop("responseId", None)
    body.pop("modelVersion", None)
    return body


def _ollama_bare(body: Json) -> Json:
    for key in ("total_duration", "load_duration", "eval_duration", "prompt_eval_duration", "created_at"):
        body.pop(key, None)
    return body


def _ollama_no_reason(body: Json) -> Json:
    body.pop("done_reason", None)
    return body


_COMMENT = b": keep-alive\n\n"
_AZURE = b'data: {"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[]}\n\n'
_STRANGE = b'event: response.strange\ndata: {"type":"response.strange","sequence_number":999}\n\n'
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
ODD: dict[str, dict[str, Callable[[list[bytes]], list[bytes]]]] = {
    "openai_chat": {
        "zero_index": edit(_chat_zero_index),
        "same_id": edit(_chat_same_id),
        "stop_with_calls": edit(_chat_stop),
        "no_end": _without(b"[DONE]"),
        "comments": _between(_COMMENT),
        "azure": _first(_AZURE),
    },
    "openai_responses": {
        "strange_event": _between(_STRANGE),
        "comments": _between(_COMMENT),
        "empty_end": edit(_responses_empty_end),
        "no_numbers": edit(_responses_no_numbers),
        "no_event_names": _bare_data,
        "deltas_only": _without(b"function_call_arguments.done", b"output_text.done", b"content_part.done"),
    },
    "anthropic": {
        "pings": _between(_PING),
        "comments": _between(_COMMENT),
        "end_turn_with_calls": edit(_anthropic_end_turn),
        "no_usage": edit(_anthropic_no_usage),
        "no_event_names": _bare_data,
        "no_stop_event": _without(b"message_stop"),
    },
    "gemini": {
        "always_stop": edit(_gemini_always_stop),
        "bare": edit(_gemini_bare),
        "comments": _between(_COMMENT),
    },
    "ollama": {
        "bare": edit(_ollama_bare),
        "no_reason": edit(_ollama_no_reason),
        "empty_lines": _between(b"\n"),
    },
}
SCRIPTS: dict[str, Script] = {
    "text": lambda _, __: reply(Text(text=HELLO)),
    "tool": use_tools("Seoul"),
    "parallel": use_tools("Bergen", "Lima"),
    "schema": lambda _, __: reply(Text(text='{"name": "Ada", "age": 36}')),
    "image": see,
    "think": think,
    "limit": lambda _, __: reply(Text(text="one two three"), finish="length"),
    "refused": refuse,
    "cut": cut,
    "odd": odd,
}
