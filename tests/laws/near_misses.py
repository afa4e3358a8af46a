"""Values that a fast path takes, and every one that just misses it: the same value with one thing changed.

Bodies and frames are changed as JSON: a value of another kind, a key less, a key more, an entry twice. Conversations
and events are changed as values: each field of each Struct in turn. A new field of a Struct needs a line in `OTHERS`.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from dragoman.convert import convert_stream
from dragoman.jsontypes import dump_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.messages import (
    Audio,
    Cache,
    Citation,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import CustomTool, Request, ServerTool, Tool

DIALECTS = ("anthropic", "gemini", "ollama", "openai_chat", "openai_responses")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}

# ---------------------------------------------------------------- JSON

SEAL: dict[str, Any] = {"seal": {"origin": "parrot", "value": "x"}}
ODD: tuple[Any, ...] = (None, True, 0, 1.5, "", "x", "[ERROR] x", [], {}, ["x"], [{}], {"type": "text", "text": "y"})
MORE: dict[str, Any] = {
    "extra": 1,
    "nothing": None,
    "type": "text",
    "id": "x1",
    "name": "n",
    "role": "user",
    "content": "c",
    "text": "t",
    "index": 0,
    "strict": True,
    "status": "completed",
    "cache_control": {"type": "ephemeral"},
    "prompt_cache_breakpoint": {"mode": "explicit"},
    "is_error": True,
    "thought": True,
    "thoughtSignature": "s",
    "thinking": "t",
    "reasoning_content": "t",
    "refusal": "no",
    "images": ["aGk="],
    "annotations": [],
    "logprobs": [],
    "tool_name": "n",
    "namespace": "n",
    "dragoman": SEAL,
}
TURNED = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "parametersJsonSchema": "parameters",
}


SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema")  # fast paths do not look into them
KEYED: dict[str, tuple[Any, ...]] = {
    "usage": ({"prompt_tokens": 1, "completion_tokens": 3},),
    "logprobs": ({"content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}]},),
}


def bend_each(value: Any, odd: tuple[Any, ...] = ODD) -> Iterator[Any]:
    """Every copy with one thing changed."""
    yield from odd
    if isinstance(value, dict):
        for key, inner in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield rest
            yield rest | {"extra": 1}  # as many keys as before
            yield rest | {"usage": {"completion_tokens": 3}}
            if key in TURNED:
                yield {TURNED.get(k, k): v for k, v in value.items()}
            inside = odd if key in SCHEMAS else (*bend_each(inner, odd), *KEYED.get(key, ()))
            for bent in inside:
                yield {k: bent if k == key else v for k, v in value.items()}
        for key, more in MORE.items():
            if key not in value:
                yield value | {key: more}
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield value[: i + 1] + value[i:]
            for bent in bend_each(inner, odd):
                yield [*value[:i], bent, *value[i + 1 :]]


def dump(value: Any) -> bytes:
    """As our encoders write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
_REQUESTS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "r"},
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "r"}]},
                ],
            },
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "a"}, {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "f", "response": {"output": "r"}}}],
            },
            {"role": "user", "parts": [{"text": "hi"}, {"text": "there"}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}]}],
    },
    "ollama": {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}},
                    {"function": {"name": "g", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "r", "tool_name": "f", "tool_call_id": "c1"},
            {"role": "tool", "content": "r", "tool_name": "g", "tool_call_id": "c2"},
        ],
    },
    "openai_chat": {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "a", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "assistant", "content": "a"},
        ],
    },
    "openai_responses": {
        "input": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": "b"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "c", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "r"},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_text", "text": "b"}]},
        ],
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}],
    },
}
CHAT_ANSWER: dict[str, Any] = {"role": "assistant", "content": "a", "refusal": None}
_REPLIES: dict[str, dict[str, Any]] = {
    "anthropic": {
        "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": "a"}, {"functionCall": {"id": "c", "name": "f", "args": {}}}]}, "index": 0}
        ]
    },
    "ollama": {
        "message": {
            "role": "assistant",
            "content": "a",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}],
        },
        "done": True,
    },
    "openai_chat": {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": None, "tool_calls": [CALL]}},
            {"index": 2, "message": CHAT_ANSWER, "logprobs": None, "finish_reason": "stop"},
            {"index": 3, "message": CHAT_ANSWER | {"annotations": []}, "logprobs": None, "finish_reason": "length"},
        ]
    },
    "openai_responses": {
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        ]
    },
}
HEADS: dict[str, dict[str, Any]] = {
    "anthropic": {"id": "r", "type": "message", "role": "assistant", "model": "m", "max_tokens": 9},
    "gemini": {"responseId": "r", "modelVersion": "m"},
    "ollama": {"model": "m", "created_at": "2026-01-01T00:00:00Z"},
    "openai_chat": {"id": "r", "model": "m"},
    "openai_responses": {"id": "r", "model": "m", "status": "completed"},
}


def usual_request(dialect: str) -> dict[str, Any]:
    """A copy for each caller: a decoder takes the keys out of the objects that it reads."""
    return deepcopy(_REQUESTS[dialect])


def bent_requests(dialect: str) -> list[bytes]:
    """Our own head is not bent: no fast path looks at it."""
    usual = _REQUESTS[dialect]
    head = {"model": "m", "max_tokens": 9} if dialect == "anthropic" else {"model": "m"}
    return [dump(head | bent) for bent in (usual, *bend_each(usual)) if isinstance(bent, dict)]


def bent_replies(dialect: str) -> list[bytes]:
    usual = _REPLIES[dialect]
    return [dump(HEADS[dialect] | bent) for bent in (usual, *bend_each(usual)) if isinstance(bent, dict)]


# ---------------------------------------------------------------- values

ARGUMENTS = ("", "{}", "null", "[]", "{", '{"a": 1}', "free text")
EXTRAS: tuple[dict[str, dict[str, Any]], ...] = (
    *({name: {"x": 1}} for name in (*DIALECTS, "parrot")),
    *({name: {"x": None}} for name in DIALECTS),
    *({name: {"~content": how}} for name in DIALECTS for how in ("list", "absent", "empty")),
    {"parrot": {"x": 1, "~silent": ["x"]}},
    {"parrot": {}},
)
TOKENS = (TokenLogprob(token="a", logprob=-1.0),)
OTHERS: dict[str, tuple[Any, ...]] = {
    "text": ("", " ", "[ERROR] x", "é\n", "x-anthropic-billing-header: a"),
    "citations": ((Citation(url="https://example.org/"),),),
    "logprobs": ((), TOKENS),
    "seal": tuple(Seal(origin=name, value="s") for name in (*DIALECTS, "parrot")),
    "cache": (Cache(), Cache(ttl="1h")),
    "extras": EXTRAS,
    "id": ("", "c9", "with space", "x" * 80),
    "call_id": ("", "c9"),
    "name": (None, "", "f", "g", "odd name"),
    "arguments": ARGUMENTS,
    "freeform": (True,),
    "failed": (True, False),
    "summary": (True,),
    "role": ("user", "assistant", "system", "developer"),
    "description": (None, ""),
    "parameters": (None, {}, {"type": "object", "properties": {"odd name": {"format": "date"}}}),
    "strict": (True, False),
    "index": (0, 1, 2),
    "choice": (1,),
    "part": (),
    "parts": ((),),
    "messages": (),
    "tools": (None, ()),
}
PARTS: tuple[Part, ...] = (
    Text(text="t"),
    Text(text=""),
    Reasoning(text="hm"),
    Reasoning(text="", seal=Seal(origin="anthropic", value="s")),
    Refusal(text="no"),
    Refusal(text=" "),
    ToolCall(id="c8", name="h", arguments="{}"),
    ToolResult(call_id="c1", parts=(Text(text="r"),)),
    ToolResult(call_id="c1", parts=(Text(text="r"),), name="other"),
    ToolResult(call_id="c8", parts=(Image(data="iVBORw0KGgo=", media_type="image/png"),)),
    ToolResult(call_id="c8", parts=(Opaque(dialect="parrot", body={"type": "squawk"}), Refusal(text=" "))),
    Image(data="iVBORw0KGgo=", media_type="image/jpeg"),
    Image(data="iVBORw0KGgo", media_type="image/png"),
    Image(data="iVBORw0KGg-_", media_type="image/png"),
    Document(text="d", name="n"),
    Audio(data="UklGRg==", media_type="audio/wav"),
    Video(url="https://example.org/v"),
    Opaque(dialect="parrot", body={"type": "squawk"}),
    Opaque(dialect="anthropic", body={"type": "server_tool_use", "name": "web_search", "input": {"query": "q"}}),
    *(Opaque(dialect=name, body={"type": "x"}) for name in DIALECTS),
)
TOOL = Tool(name="f", description="d", parameters=SCHEMA)
TOOLS = (TOOL, CustomTool(name="f"), CustomTool(name="g"), ServerTool(dialect="parrot", body={"name": "f"}))
TALK = Request(
    model="m",
    messages=(
        Message(role="system", parts=(Text(text="s"),)),
        Message(role="user", parts=(Text(text="hi"),)),
        Message(
            role="assistant",
            parts=(
                Text(text="a"),
                ToolCall(id="c1", name="f", arguments='{"a":1}'),
                ToolCall(id="c2", name="f", arguments="{}"),
            ),
        ),
        Message(role="user", parts=(ToolResult(call_id="c1", parts=(Text(text="r"),)),)),
        Message(role="user", parts=(ToolResult(call_id="c2", parts=(Text(text="r"),)),)),
        Message(role="assistant", parts=(ToolCall(id="c3", name="f", arguments="{}"),)),
        Message(role="user", parts=(ToolResult(call_id="c3", parts=(Text(text="r"),)),)),
        Message(role="user", parts=(Text(text="and?"),)),
        Message(role="assistant", parts=(Text(text="b"),)),
    ),
    tools=(TOOL,),
)
ANSWER = Reply(
    id="r",
    model="m",
    choices=(
        Choice(
            parts=(Reasoning(text="hm"), Text(text="a"), ToolCall(id="c1", name="f", arguments="{}")),
            finish=Finish(reason="tool_call"),
        ),
        Choice(parts=(Text(text="b"),), finish=Finish(reason="stop")),
    ),
    usage=Usage(input=1, output=1),
)


VARIED = (Message, Text, Reasoning, ToolCall, ToolResult, Tool, PartStart, PartDelta, PartEnd)  # others are left whole


def vary(value: Any) -> Iterator[Any]:
    """Every copy with one field, one part or one turn changed."""
    for field in value.__struct_fields__:
        old = getattr(value, field)
        for new in OTHERS[field]:
            yield replace(value, **{field: new})
        if isinstance(old, VARIED):
            for inner in vary(old):
                yield replace(value, **{field: inner})
        elif isinstance(old, tuple):
            for some in _vary_items(old, field):
                yield replace(value, **{field: some})


def _vary_items(items: tuple[Any, ...], field: str) -> Iterator[tuple[Any, ...]]:
    new: tuple[Any, ...] = {"parts": PARTS, "tools": TOOLS, "messages": TALK.messages}.get(field, ())
    for i, item in enumerate(items):
        yield (*items[:i], *items[i + 1 :])
        yield (*items[:i], item, *items[i:])
        yield (*items[:i], *items[i + 1 : i + 2], item, *items[i + 2 :])
        for one in new:
            yield (*items[:i], one, *items[i + 1 :])
            yield (*items[:i], one, *items[i:])
        for one in vary(item) if isinstance(item, VARIED) else ():
            yield (*items[:i], one, *items[i + 1 :])
    for one in new:
        yield (*items, one)


def talks() -> list[Request]:
    """Conversations around a usual one; only turns and tools are changed."""
    found = [TALK]
    for field in ("messages", "tools"):
        found += [replace(TALK, **{field: some}) for some in _vary_items(getattr(TALK, field), field)]
        found += [replace(TALK, **{field: new}) for new in OTHERS[field]]
    return [talk for talk in found if _is_whole(talk)]


def _is_whole(value: Request | Reply) -> bool:
    """No part lacks what it must have: only a result may be without a name."""
    try:
        convert(to_builtins(value), type(value))
    except ValidationError:
        return False
    return True


def answers() -> list[Reply]:
    found = [ANSWER]
    for i, choice in enumerate(ANSWER.choices):
        for parts in _vary_items(choice.parts, "parts"):
            changed = replace(choice, parts=parts)
            found.append(replace(ANSWER, choices=(*ANSWER.choices[:i], changed, *ANSWER.choices[i + 1 :])))
        found += [replace(ANSWER, choices=(replace(choice, extras=extras),)) for extras in EXTRAS]
    return [answer for answer in found if _is_whole(answer)]


# ---------------------------------------------------------------- streams


def grow(index: int, *texts: str) -> list[Event]:
    return [PartDelta(index=index, text=text) for text in texts]


LABELS: dict[str, dict[str, Any]] = {"openai_chat": {"system_fingerprint": "fp"}}
STORY: tuple[Event, ...] = (
    ReplyStart(id="r", model="m", service_tier="default", extras=LABELS),
    PartStart(index=0, part=Reasoning(text="")),
    *grow(0, "h", "m", "!"),
    PartEnd(index=0),
    PartStart(index=1, part=Text(text="")),
    *grow(1, "a", "b", 'q"\\', "", "d", "e"),
    PartEnd(index=1),
    PartStart(index=2, part=ToolCall(id="c1", name="f", arguments="")),
    *grow(2, '{"a"', ":1}"),
    PartEnd(index=2),
    ReplyEnd(finishes=(Finish(reason="stop"),), usage=Usage(input=1, output=2)),
)
FRAMES: tuple[Event, ...] = (
    PartDelta(index=0, text="late"),
    PartDelta(index=1, text="late"),
    PartStart(index=7, part=Text(text="x")),
    PartStart(index=7, part=Text(text="x"), choice=1),
    PartEnd(index=1),
    Aside(dialect="parrot", body={"type": "squawk"}),
    *(Aside(dialect=name, body={"type": "ping"}) for name in DIALECTS),
)


def stories() -> list[tuple[Event, ...]]:
    """Events around a usual answer. Some are no legal stream any more: both ways must write the same of those too."""
    found = [STORY]
    for i, event in enumerate(STORY[1:], 1):
        found.append((*STORY[:i], *STORY[i + 1 :]))
        found.append((*STORY[:i], event, *STORY[i:]))
        found.append((*STORY[:i], *STORY[i + 1 : i + 2], event, *STORY[i + 2 :]))
        found += [(*STORY[:i], one, *STORY[i:]) for one in FRAMES]
        found += [(*STORY[:i], one, *STORY[i + 1 :]) for one in (vary(event) if isinstance(event, VARIED) else ())]
    opened = [event for event in STORY if isinstance(event, PartStart)]
    ended = [event for event in STORY if isinstance(event, PartEnd)]
    deltas = [event for event in STORY if isinstance(event, PartDelta)]
    for start in (1, 2, 3):  # parts that grow side by side
        found.append((STORY[0], *opened, *deltas[::start], *deltas[1::start], *ended, STORY[-1]))
    return found


TEXTS = ('"', "\\", '"},"x":{"y":"', "\n\n", "é", '"sequence_number":1,')
FEW: tuple[Any, ...] = (None, 0, 1, "", "x", [], {}, [{}])


# Frames of servers, beside those that our own encoders write: (what stands in our frame, what stands there instead)
SPELLINGS: dict[str, tuple[tuple[bytes, bytes], ...]] = {
    "openai_chat": (
        (b',"choices":', b',"usage":null,"choices":'),
        (b'"reasoning_content":"m"', b'"reasoning_details":[{"type":"reasoning.text","text":"m","index":0}]'),
        (b'"function":{"name":"f","arguments":""}', b'"custom":{"name":"f","input":""}'),
    ),
    "gemini": ((b'"index":0', b'"index":0,"tokenCount":1'),),
}


@cache
def base_streams(dialect: str) -> tuple[tuple[tuple[bytes, ...], ...], bytes]:
    """Usual streams of a dialect, frame by frame, and what ends a frame."""
    lines = [dump_json(event) + b"\n" for event in STORY]
    data = b"".join(convert_stream(lines, to=dialect, source="canonical")).replace(b"\r\n", b"\n")
    end = b"\n\n" if b"data: " in data else b"\n"
    spelled = [data.replace(*spelling) for spelling in SPELLINGS.get(dialect, ())]
    assert data not in spelled
    return tuple(tuple(one.split(end)[:-1]) for one in (data, *spelled)), end


def bent_streams(dialect: str) -> Iterator[list[bytes]]:
    """Whole streams with one frame bent, doubled, moved, left out, spelled in another way."""
    streams, end = base_streams(dialect)
    for frames in streams:
        whole = b"".join(frame + end for frame in frames)
        yield [whole]
        yield [whole[i : i + 1] for i in range(len(whole))]
        yield [whole.replace(b"\n", b"\r\n")]
        for some in _bend_frames(frames):
            yield [b"".join(frame + end for frame in some)]


def _bend_frames(frames: tuple[bytes, ...]) -> Iterator[tuple[bytes, ...]]:
    last_text = max(i for i, frame in enumerate(frames) if b'"e"' in frame)
    for i, frame in enumerate(frames):
        yield from _around(frames, i)
        for bent in _bend_frame(frame):
            yield (*frames[:i], bent, *frames[i + 1 :])
            if i == last_text:
                yield (*frames[:i], bent, frames[-1])  # the end comes at once


def _around(frames: tuple[bytes, ...], i: int) -> Iterator[tuple[bytes, ...]]:
    yield frames[:i] + frames[i + 1 :]
    yield (*frames[:i], *frames[i + 1 : i + 2], frames[i], *frames[i + 2 :])
    for other in frames:
        yield (*frames[:i], other, *frames[i:])


def _bend_frame(frame: bytes) -> Iterator[bytes]:
    head, brace, rest = frame.partition(b"{")
    yield head.replace(b"data: ", b"data:") + brace + rest
    yield b": comment\n" + frame
    yield frame + b"\nid: 1"
    yield head.replace(b"event: ", b"event: x") + brace + rest
    if not brace:
        return
    value = json.loads(brace + rest)
    yield head + json.dumps(value).encode()
    yield head + brace + rest.replace(b'"a"', b'"\\u0061"')
    for bent in bend_each(value, FEW):
        yield head + dump(bent)
    for text in TEXTS:
        yield head + brace + rest.replace(b'"b"', dump(text))


def bent_blocks() -> Iterator[bytes]:
    """Blocks of lines as servers write them, and as they could."""
    lines = (
        b"data: a",
        b"data:a",
        b"data: ",
        b"data",
        b"event: e",
        b"event:e",
        b"event:  e ",
        b": c",
        b"id: 1",
        b"{}",
        b"error: x",
        b"",
    )
    for first in lines:
        for second in lines:
            for third in lines:
                yield b"\n".join((first, second, third)) + b"\n\ndata: end\n\n"


def doubled_bodies() -> Iterator[bytes]:
    """Bodies in which a key may be there twice, in several spellings of JSON."""
    keys, values = ('"a"', '"b"', '"\\u0061"', '"a\\"b"', '"é"'), ("1", '"a"', '{"a":1,"a":2}', "[1, 2]")
    for comma, colon in ((",", ":"), (", ", ": "), (" ,", " :"), (",\n", ": ")):
        for first in keys:
            for second in keys:
                for value in values:
                    yield f"{{{first}{colon}{value}{comma}{second}{colon}{value}}}".encode()
    yield from (b"{}", b"{ }", b'{"a":1} ', b' {"a":1}')
