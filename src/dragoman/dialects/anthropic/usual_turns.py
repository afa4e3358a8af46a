"""Anthropic Messages: the turns that agents send, read in one step. None if one of them is unusual: then all are read
block by block, by `decode_message`."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.dialects._fast_turns import TurnReader
from dragoman.dialects._tools import is_plain
from dragoman.dialects.anthropic.words import LISTED, NAME
from dragoman.jsontypes import dump_text
from dragoman.model.messages import Cache, Message, Part, Reasoning, Seal, Text, ToolCall, ToolResult


class _Mark(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["ephemeral"]
    ttl: str | UnsetType = UNSET


class _Text(Struct, forbid_unknown_fields=True, tag_field="type", tag="text", gc=False):
    text: str
    cache_control: _Mark | UnsetType = UNSET


class _ResultText(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]  # msgspec checks a tag only where several classes are possible
    text: str
    cache_control: _Mark | UnsetType = UNSET


class _Call(Struct, forbid_unknown_fields=True, tag_field="type", tag="tool_use", gc=False):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: _Mark | UnsetType = UNSET


class _Result(Struct, forbid_unknown_fields=True, tag_field="type", tag="tool_result", gc=False):
    tool_use_id: str
    content: str | list[_ResultText] | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    cache_control: _Mark | UnsetType = UNSET


class _Thought(Struct, forbid_unknown_fields=True, tag_field="type", tag="thinking", gc=False):
    thinking: str
    signature: str


_Block: TypeAlias = _Text | _Call | _Result | _Thought


class _Turn(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant"]
    content: str | list[_Block]


_reader = TurnReader(_Turn)


def read_turns(data: bytes | Raw, *, packed: bool = False) -> tuple[Message, ...] | None:
    """The turns of a list of messages. `packed`: it is MessagePack, not JSON."""
    turns = _reader.read(data, packed=packed)
    if turns is None:
        return None
    messages: list[Message] = []
    for turn in turns:
        content = turn.content
        if type(content) is str:
            messages.append(Message(role=turn.role, parts=(Text(text=content),)))
            continue
        parts: list[Part] = []
        for block in content:
            kind = type(block)
            if kind is _Text:
                mark = block.cache_control  # type: ignore[union-attr]
                text = block.text  # type: ignore[union-attr]
                parts.append(Text(text=text) if mark is UNSET else Text(text=text, cache=_cache(mark)))
            elif kind is _Call:
                parts.append(_call(block))  # type: ignore[arg-type]
            elif kind is _Result:
                given = block.content  # type: ignore[union-attr]
                if type(given) is str and block.is_error is UNSET and block.cache_control is UNSET:  # type: ignore[union-attr]
                    parts.append(ToolResult(call_id=block.tool_use_id, parts=(Text(text=given),)))  # type: ignore[union-attr]
                else:
                    parts.append(_result(block))  # type: ignore[arg-type]
            else:
                seal = Seal(origin=NAME, value=block.signature)  # type: ignore[union-attr]
                parts.append(Reasoning(text=block.thinking, seal=seal))  # type: ignore[union-attr]
        if not parts or (len(parts) == 1 and type(parts[0]) is Text and parts[0].cache is None):
            messages.append(Message(role=turn.role, parts=tuple(parts), extras=LISTED))
        else:
            messages.append(Message(role=turn.role, parts=tuple(parts)))
    return tuple(messages)


def _call(block: _Call) -> ToolCall:
    arguments = dump_text(block.input) if block.input else "{}"
    if block.cache_control is UNSET:
        return ToolCall(id=block.id, name=block.name, arguments=arguments)
    return ToolCall(id=block.id, name=block.name, arguments=arguments, cache=_cache(block.cache_control))


def _result(block: _Result) -> ToolResult:
    content, failed, mark = block.content, block.is_error, block.cache_control
    parts: tuple[Text, ...] = ()
    if type(content) is str:
        parts = (Text(text=content),)
    elif content is not UNSET:
        parts = tuple([Text(text=inner.text, cache=_cache(inner.cache_control)) for inner in content])  # type: ignore[union-attr]
    listed = type(content) is list and len(parts) < 2 and all(map(is_plain, parts))
    return ToolResult(
        call_id=block.tool_use_id,
        parts=parts,
        failed=None if failed is UNSET else failed,
        cache=_cache(mark),
        extras=LISTED if listed else {},
    )


def _cache(mark: _Mark | UnsetType) -> Cache | None:
    if mark is UNSET:
        return None
    return Cache() if mark.ttl is UNSET else Cache(ttl=mark.ttl)
