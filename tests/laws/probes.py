"""What is tried with and without the fast paths: near misses through every conversion."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from random import Random
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.convert import Converted, convert, convert_reply, convert_stream
from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import check_keys, dump_json, load_object
from dragoman.model.messages import ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import CustomTool, Tool
from dragoman.notes import Notes
from dragoman.reasoning_state.envelope import DEFAULT_KEY, CarriedState, wrap_state
from dragoman.wire import WireRequest
from tests.laws import near_misses
from tests.laws.near_misses import DIALECTS
from tests.laws.snapshot.ways import DOORS, answer_request, read_request, send_request

Try: TypeAlias = Callable[[], object]
SERVERS = (
    *(
        "openai/gpt-4o",
        "openai/o3",
        "anthropic/claude-sonnet-4-5",
        "gemini/gemini-3-pro",
        "gemini/gemma-3",
        "xai/grok-4",
    ),
    *("ollama/llama-3", "vllm/llama-3", "deepseek/deepseek-chat", "mistral/mistral-medium", "moonshot/kimi-k2"),
)
CALL = ToolCall(id="call_1", name="f", arguments='{"input":"free text"}')
FREEFORM = Reply(id="r", model="m", choices=(Choice(parts=(CALL,), finish=Finish(reason="tool_call")),))
# A client put an opaque value of ours where none belongs (CLIENTS 16).
SEALED = wrap_state(CarriedState(), DEFAULT_KEY)
CALLED = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
RESULT = {"functionResponse": {"name": "f", "response": {}}, "thoughtSignature": SEALED}
ODD_PLACE = {"contents": [{"role": "user", "parts": [{"text": "q"}]}, CALLED, {"role": "user", "parts": [RESULT]}]}
# A schema for the answer, with what most servers refuse in one, and no tools.
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "$defs": {}, "minProperties": 1}
SCHEMA_ALONE = {
    "model": "m",
    "messages": [{"role": "user", "content": "q"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
}
ID_AGAIN = {  # as some servers count the calls of each answer anew
    "model": "m",
    "messages": [
        {"role": "user", "content": "go"},
        *[
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
        ]
        * 2,
    ],
}
# A tool that has tools.
_FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
_GROUP = {"type": "namespace", "name": "n", "tools": [_FUNCTION]}
GROUPED = {"openai_responses": [dump_json({"model": "m", "input": "hi", "tools": [_GROUP]})]}
PATHS = {**DOORS, "gemini": "/v1beta/models/m:generateContent"}


def outcome(run: Try, raises: type[Exception] = DragomanError) -> str:
    """What comes out, or what is raised. Our own code raises errors of its own kind; a mutant may raise anything."""
    try:
        return repr(run())
    except raises as error:
        return f"{type(error).__name__}: {error}"


def probes() -> list[str]:
    return [f"{what} {name}" for what in MAKERS for name in (DIALECTS if what in BY_DIALECT else ("any",))]


@cache
def tries_of(probe: str) -> tuple[Try, ...]:
    what, _, name = probe.rpartition(" ")
    found = list(MAKERS[what](name))
    Random(probe).shuffle(found)  # noqa: S311  # the same order in every run, so that a mutant is seen soon
    return tuple(found)


def show(made: Converted) -> tuple[object, ...]:
    return made.json(), made.path, made.headers, [(note.kind, note.where, note.why) for note in made.notes]


def read_requests(name: str) -> Iterator[Try]:
    for body in (*near_misses.bent_requests(name), *GROUPED.get(name, ())):
        for target in ("canonical", name):
            yield lambda b=body, to=target: show(  # type: ignore[misc]
                convert(b, to=to, source=name, path=PATHS[name], mend=to == name)
            )
        if find_dialect(name).read_turns is not None:
            yield partial(read_each_block, body, name)


def read_each_block(body: bytes, name: str) -> object:
    """As `decode_request` reads turns that were not read in one step."""
    notes = Notes()
    wire = WireRequest(body=load_object(body), path=PATHS[name])
    return find_dialect(name).decode_request(wire, notes), list(notes)


def write_requests(name: str) -> Iterator[Try]:
    for talk in near_misses.talks():
        body = dump_json(talk)
        for mend in (False, True):
            yield lambda b=body, m=mend: show(convert(b, to=name, source="canonical", mend=m))  # type: ignore[misc]


def send_requests(name: str) -> Iterator[Try]:
    asked = [read_request("canonical", dump_json(talk)) for talk in near_misses.talks()]
    several = near_misses.dump({"model": "m", "n": 2} | near_misses.usual_request("openai_chat"))
    own = [read_request(name, body, PATHS[name]) for name in DIALECTS for body in marked(name)]
    own.append(read_request("openai_chat", several))
    own.append(read_request("gemini", near_misses.dump(ODD_PLACE), PATHS["gemini"]))
    own += [read_request("openai_chat", near_misses.dump(body)) for body in (SCHEMA_ALONE, ID_AGAIN)]
    for i, server in enumerate(SERVERS):
        yield from (partial(send_request, one, server) for one in (*asked[i % 3 :: 3], *own))


def marked(name: str) -> list[bytes]:
    """Requests in which a client brings back a field of ours, with a seal or with something else in it."""
    found = [body for body in near_misses.bent_requests(name) if b'"dragoman"' in body]
    return found + [body.replace(b'"seal"', b'"other"') for body in found]


def read_replies(name: str) -> Iterator[Try]:
    for body in near_misses.bent_replies(name):
        yield lambda b=body: show(convert_reply(b, to="canonical", source=name))  # type: ignore[misc]


def write_replies(name: str) -> Iterator[Try]:
    for body in map(dump_json, near_misses.answers()):
        yield lambda b=body: show(convert_reply(b, to=name, source="canonical"))  # type: ignore[misc]


def write_streams(name: str) -> Iterator[Try]:
    for story in near_misses.stories():
        lines = [dump_json(event) + b"\n" for event in story]
        for pieces in (lines, [b"".join(lines)]):
            yield partial(through, pieces, "canonical", name)


def read_streams(name: str) -> Iterator[Try]:
    for pieces in near_misses.bent_streams(name):
        yield partial(through, pieces, name, "canonical")


def through(pieces: Iterable[bytes], source: str, to: str) -> tuple[object, ...]:
    """What was written until it ended or failed."""
    notes, out = Notes(), b""
    try:
        for piece in convert_stream(pieces, to=to, source=source, notes=notes):
            out += piece
    except Exception as error:
        return out, notes.items, f"{type(error).__name__}: {error}"
    return out, notes.items


def cut_frames(name: str) -> Iterator[Try]:
    two_names = b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n"
    for data in (two_names, *near_misses.bent_blocks()):
        yield lambda d=data: SseDecoder().feed(d)  # type: ignore[misc]


def undo_answers(name: str) -> Iterator[Try]:
    """A server that takes the tools as they are, one that knows them by other names, one that has no freeform tools."""
    usual = near_misses.TALK
    odd = tuple(replace(tool, name="odd name") for tool in usual.tools or () if isinstance(tool, Tool))
    for talk in (usual, replace(usual, tools=odd), replace(usual, tools=(CustomTool(name="f"),))):
        asked = read_request("canonical", dump_json(talk))
        for server in ("openai/gpt-4o", "mistral/mistral-medium"):
            yield from (partial(answer_request, asked, server, answer) for answer in (*near_misses.answers(), FREEFORM))


def check_bodies(name: str) -> Iterator[Try]:
    for body in near_misses.doubled_bodies():
        yield partial(check_keys, body)


MAKERS: dict[str, Callable[[str], Iterator[Try]]] = {
    "read requests": read_requests,
    "write requests": write_requests,
    "send requests": send_requests,
    "read replies": read_replies,
    "write replies": write_replies,
    "read streams": read_streams,
    "write streams": write_streams,
    "cut frames": cut_frames,
    "undo answers": undo_answers,
    "check bodies": check_bodies,
}
BY_DIALECT = frozenset(name for name in MAKERS if name.startswith(("read", "write")))
