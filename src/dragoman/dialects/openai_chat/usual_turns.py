"""OpenAI Chat Completions: the turns that agents send, read in one step. None if one of them is unusual: then all are
read key by key, by `decode_message`."""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.dialects._fast_turns import TurnReader
from dragoman.dialects._tools import FAILED
from dragoman.dialects.openai_chat.words import NAME, SPEAKERS
from dragoman.model.messages import Extras, Message, Text, ToolCall, ToolResult

LISTED: Extras = {NAME: {"~content": "list"}}  # of a turn whose only text stands in a list


class _Text(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    id: str
    type: Literal["function"]
    function: _Function


class _Turn(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text] | UnsetType | None = UNSET
    tool_calls: list[_Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


_reader = TurnReader(_Turn)


def read_turns(data: bytes | Raw, *, packed: bool = False) -> tuple[Message, ...] | None:
    """The turns of a list of messages. `packed`: it is MessagePack, not JSON."""
    turns = _reader.read(data, packed=packed)
    if turns is None:
        return None
    messages: list[Message] = []
    for turn in turns:
        role, content, calls, call_id = turn.role, turn.content, turn.tool_calls, turn.tool_call_id
        if type(content) is str and content and calls is UNSET:  # the most frequent forms: a text, and a result
            if role != "tool" and call_id is UNSET:
                messages.append(Message(role=SPEAKERS[role], parts=(Text(text=content),)))
                continue
            if role == "tool" and call_id and not content.startswith(FAILED):
                result = ToolResult(call_id=call_id, parts=(Text(text=content),))
                messages.append(Message(role="user", parts=(result,)))
                continue
            return None
        made = _read_other(turn)
        if made is None:
            return None
        messages.append(made)
    return tuple(messages)


def _read_other(turn: _Turn) -> Message | None:
    """A turn with calls, or with a list of texts."""
    role, content, calls = turn.role, turn.content, turn.tool_calls
    if turn.tool_call_id is not UNSET or role == "tool":
        return None
    if calls is not UNSET:
        texts = (Text(text=content),) if type(content) is str and content else ()
        if role != "assistant" or not calls or (not texts and content is not None):
            return None
        made = [ToolCall(id=one.id, name=one.function.name, arguments=one.function.arguments) for one in calls]
        return Message(role="assistant", parts=(*texts, *made)) if all(call.id for call in made) else None
    if type(content) is list and content and role != "assistant":
        parts = tuple([Text(text=one.text) for one in content])
        return Message(role=SPEAKERS[role], parts=parts, extras=LISTED if len(parts) == 1 else {})
    return None
