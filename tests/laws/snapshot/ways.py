"""What is written for a recorded exchange, for every target. Only this file of the snapshot knows dragoman's names.

A refactoring that renames them changes this file: four functions of the library, and `_call` for the gateway.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache

from msgspec import Struct

from dragoman.convert import Converted, convert, convert_failure, convert_reply, convert_stream
from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.model.fold import unfold
from dragoman.model.reply import Reply
from dragoman.notes import Note, Notes
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.render import render, split
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.way_back import StreamWayBack
from dragoman.wire import WireRequest
from tests.recorded import Case, cases

DIALECTS = ("anthropic", "gemini", "ollama", "openai_chat", "openai_responses")
DOORS = {
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
}
PIECE = 1024  # bytes of a stream that arrive together

# The models asked for at each kind of server: one, or one for each family that has rows of its own.
MODELS: dict[str, tuple[str, ...]] = {
    "openai": ("gpt-4o", "o3", "gpt-5.4"),
    "azure": ("gpt-5",),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-7", "claude-opus-5-5"),
    "gemini": ("gemini-2.5-flash", "gemini-3-pro", "gemma-3"),
    "vertex": ("gemini-2.5-pro",),
    "xai": ("grok-4", "grok-3"),
    "deepseek": ("deepseek-chat", "deepseek-r1"),
    "mistral": ("mistral-medium", "magistral-small"),
    "moonshot": ("kimi-k2", "kimi-k3"),
    "zai": ("glm-5.3",),
    "minimax": ("minimax-m2",),
}
ANY = ("llama-3",)
TALK = ("messages", "chat", "responses", "generate")  # endpoints of the conversation itself


class Written(Struct, frozen=True):
    """What goes over the wire, and what was noted about it."""

    sent: bytes
    notes: bytes


def talks(dialect: str) -> list[Case]:
    return [case for case in cases(dialect) if case.meta["endpoint"] in TALK]


@cache
def request_targets() -> tuple[str, ...]:
    """Every dialect by its name; every kind of server as `kind/model`, where the gateway chooses how to speak to it;
    and `kind:dialect/model` for every other dialect that the kind has rows for."""
    found = list(DIALECTS)
    for kind, row in load_rows().kinds.items():
        models = MODELS.get(kind, ANY)
        found += [f"{kind}/{model}" for model in models]
        found += [f"{kind}:{dialect}/{models[0]}" for dialect in row.by_dialect if dialect != row.dialects[0]]
    return tuple(found)


def write_requests(case: Case, targets: Iterable[str]) -> dict[str, Written]:
    """The recorded request for each target; nothing where no request was recorded."""
    raw = case.read("request.json")
    if raw is None:
        return {}
    asked = cache(lambda: read_request(case.dialect, raw, path_of(case), headers_of(case)))
    return _each(targets, lambda to: send_request(asked(), to) if "/" in to else _convert(case, raw, to))


def write_replies(case: Case, targets: Iterable[str]) -> dict[str, Written]:
    """The recorded answer, whole or streamed, or the recorded error for clients of each dialect."""
    stream, body, source = case.stream(), case.read("reply.json"), case.dialect
    if stream is not None and not case.failed:
        return _each(targets, lambda to: _stream(source, stream, to))
    if body is None:
        return {}
    if case.failed or _says_error(body):
        status = case.meta.get("status") or 200
        return _each(targets, lambda to: _written(convert_failure(body, to=to, source=source, status=status)))
    return _each(targets, lambda to: _written(convert_reply(body, to=to, source=source)))


def _each(targets: Iterable[str], write: Callable[[str], Written]) -> dict[str, Written]:
    return {target: _guard(write, target) for target in targets}


def _guard(write: Callable[[str], Written], target: str) -> Written:
    """A refusal is a result too; its words belong to the notes."""
    try:
        return write(target)
    except DragomanError as error:
        return Written(b"refused", f"{type(error).__name__}: {error}".encode())


def _convert(case: Case, raw: bytes, to: str) -> Written:
    return _written(convert(raw, to=to, source=case.dialect, path=path_of(case), headers=headers_of(case)))


def _stream(source: str, data: bytes, to: str) -> Written:
    notes = Notes()
    pieces = (data[i : i + PIECE] for i in range(0, len(data), PIECE))
    sent = b"".join(convert_stream(pieces, to=to, source=source, notes=notes))
    return Written(sent, _spell(notes))


def read_request(name: str, raw: bytes, path: str = "", headers: dict[str, str] | None = None) -> ClientRequest:
    """A request as the gateway has it once it is read."""
    notes, dialect, headers = Notes(), find_dialect(name), headers or {}
    return ClientRequest(
        dialect=dialect,
        request=dialect.decode_request(WireRequest(body=json.loads(raw), path=path, headers=headers), notes),
        raw=raw,
        headers=headers,
        notes=tuple(notes),
        path=path,
    )


def send_request(asked: ClientRequest, target: str) -> Written:
    """What the gateway sends to a server, however often."""
    made, copies = _call(asked, target)
    return Written(_lines(f"{copies} x {made.path}", made.headers, made.body), _spell(made.notes))


def answer_request(asked: ClientRequest, target: str, reply: Reply) -> tuple[object, ...]:
    """A server's answer as the client gets it, whole and streamed."""
    made, _ = _call(asked, target)
    way, events = made.way_back, list(unfold(reply))
    if way is None:
        return reply, events
    made.notes.begin("reply", find_dialect("canonical").locate_reply, reply)
    return way.reply(reply), StreamWayBack(way).feed(events), _spell(made.notes)


def _call(asked: ClientRequest, target: str) -> tuple[UpstreamCall, int]:
    server, _, model = target.partition("/")
    kind, _, dialect = server.partition(":")
    spoken = (dialect,) if dialect else load_rows().kinds[kind].dialects
    state, copies = _state(kind, spoken), 1
    at = Target(state.spec, model)
    if (asked.request.choices or 1) > 1:
        asked, copies = split(asked, state, at, refuse=frozenset())
    return render(asked, state, at, stream=bool(asked.request.stream), refuse=frozenset()), copies


@cache
def _state(kind: str, spoken: tuple[str, ...]) -> UpstreamState:
    """One for all requests, as in a gateway."""
    return UpstreamState(Upstream(name=kind, kind=kind, dialect=spoken[0], dialects=spoken), lambda: 0.0)


def _written(made: Converted) -> Written:
    return Written(_lines(f"{made.status} {made.path}", made.headers, made.json()), _spell(made.notes))


def _lines(first: str, headers: dict[str, str], body: bytes) -> bytes:
    heads = "".join(f"{name}: {value}\n" for name, value in sorted(headers.items()))
    return f"{first}\n{heads}\n".encode() + body


def _spell(notes: Iterable[Note]) -> bytes:
    return "".join(f"{note.kind} {note.where}: {note.why}\n" for note in notes).encode()


def headers_of(case: Case) -> dict[str, str]:
    return {name.lower(): value for name, value in (case.meta.get("request_headers") or {}).items()}


def path_of(case: Case) -> str:
    """The path at our door; Gemini's says the model and whether to stream."""
    recorded = case.meta.get("url_path") or ""
    if case.dialect == "gemini":
        found = re.search(r"/(models/[^?]*:\w+)(?:.*[?&](alt=sse))?", recorded)
        return f"/v1beta/{found[1]}{'?' + found[2] if found[2] else ''}" if found else recorded
    return "/api/generate" if recorded.endswith("/api/generate") else DOORS[case.dialect]


def _says_error(body: bytes) -> bool:
    """An error under status 200."""
    value = json.loads(body)
    return isinstance(value, dict) and bool(value.get("error"))
