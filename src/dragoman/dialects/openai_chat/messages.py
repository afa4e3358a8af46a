"""OpenAI Chat Completions: turns, both ways."""

from typing import Any

from dragoman.dialects._fast_turns import fast_result, fast_text
from dragoman.dialects._tools import FAILED, is_plain
from dragoman.dialects.openai_chat.assistant import decode_assistant, decode_list, encode_assistant, finish_assistant
from dragoman.dialects.openai_chat.calls import (
    CallIds,
    decode_call,
    decode_result,
    encode_result,
)
from dragoman.dialects.openai_chat.parts import encode_part
from dragoman.dialects.openai_chat.words import NAME, ROLES, SPEAKERS
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, decode_each, expected, is_silent, leftovers, note_spelling, spelled, take_text
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import (
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- decode


def decode_message(message: JsonObject, ids: CallIds) -> Message:
    frequent = _decode_fast(message, ids)  # fast path: chat turn
    if frequent is not None:
        return frequent
    role = take_text(message, "role")
    if role == "assistant":
        return Message(role="assistant", parts=decode_assistant(message, ids), extras=leftovers(message, NAME))
    if role == "tool":
        return decode_result(message, ids)
    if role == "function":
        note_spelling(message, "role", role)
        return decode_result(message, ids)
    if role not in ROLES:
        raise DecodeError(f"expected one of {', '.join(ROLES)}, found {role!r}", "role")
    return Message(role=ROLES[role], parts=_take_content(message), extras=leftovers(message, NAME))


def _decode_fast(message: JsonObject, ids: CallIds) -> Message | None:  # fast path: chat turn
    """Decode the most frequent turns (a text; a text and calls; a result) in few steps. None for any other turn."""
    role, content = message.get("role"), message.get("content")
    text = content if type(content) is str and content else None
    if len(message) == 2 and text is not None and type(role) is str and role in SPEAKERS:
        return Message(role=SPEAKERS[role], parts=(Text(text=text),))
    if len(message) != 3:
        return None
    if role == "tool" and text is not None and not text.startswith(FAILED):
        call_id = message.get("tool_call_id")
        if type(call_id) is str and call_id:
            return Message(role="user", parts=(ToolResult(call_id=call_id, parts=(Text(text=text),)),))
    calls = message.get("tool_calls")
    silent = content is None and "content" in message
    if role == "assistant" and type(calls) is list and calls and (silent or text is not None):
        made = decode_each(calls, "tool_calls", lambda call: decode_call(call, ids))
        return Message(role="assistant", parts=made if text is None else (Text(text=text), *made))
    return None


def _take_content(message: JsonObject) -> tuple[Part, ...]:
    given = "content" in message
    content = message.pop("content", None)
    if type(content) is str:
        return (Text(text=content),)
    if type(content) is list:
        return decode_list(message, content)
    if content is not None:
        raise expected("string or array", content, "content")
    note_spelling(message, "content", "null" if given else "absent")
    return ()


# ---------------------------------------------------------------- encode


def encode_message(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    """One turn can become several messages: one for each result, and one for the parts between two results."""
    if message.role == "assistant":
        turn, _ = encode_assistant(message.parts, message.extras, at, notes)
        if message.extras:
            add_extras(turn, message.extras, NAME, at, notes)
            finish_assistant(turn, message.extras)
        if says_nothing(turn) and not message.extras.get(NAME):
            notes.dropped(at, "openai_chat has no form for any part of this turn")
            return []
        return [turn]
    if message.role == "user" and any(isinstance(part, ToolResult) for part in message.parts):
        return _encode_mixed(message, at, notes)
    content = _encode_content(message, enumerate(message.parts), at, notes)
    if content is None and NAME not in message.extras:
        notes.dropped(at, "openai_chat has no form for any part of this turn")
        return []
    turn = {"role": message.role, "content": content}
    if content is None and spelled(message.extras, NAME, "~content") == "absent":
        del turn["content"]
    if message.extras:
        add_extras(turn, message.extras, NAME, at, notes)
    return [turn]


def encode_fast(message: Message, at: At, notes: Notes) -> JsonObject | None:  # fast path: frequent turn
    parts = message.parts
    if not parts:
        return None
    first, text = parts[0], None
    if type(first) is Text:  # the code of `fast_text`, repeated here to save a call
        text = first.text
        if not text or first.extras or first.cache or first.citations or first.seal or first.logprobs is not None:
            return None
        if len(parts) == 1:
            return {"role": message.role, "content": text}
    if message.role == "assistant":
        calls: list[JsonObject] = []
        for part in parts if text is None else parts[1:]:  # the code of `fast_calls`, for the same reason
            if type(part) is not ToolCall or part.freeform or part.seal or part.cache:
                return None
            if part.extras and not is_silent(part.extras, NAME):
                return None
            function = {"name": part.name, "arguments": part.arguments}
            calls.append({"id": part.id, "type": "function", "function": function})
        return {"role": "assistant", "content": text, "tool_calls": calls}
    if text is not None:
        texts = [fast_text(part) for part in parts]
        if None in texts:
            return None
        return {"role": message.role, "content": [{"type": "text", "text": text} for text in texts]}
    if len(parts) == 1 and message.role == "user" and type(first) is ToolResult and first.name is None:
        text = fast_result(first, NAME)
        if text is not None:
            return {"role": "tool", "tool_call_id": first.call_id, "content": text}
    return None


def _encode_mixed(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    turns: list[JsonObject] = []
    run: list[tuple[int, Part]] = []
    for i, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            _flush(turns, message, run, at, notes)
            turns.append(encode_result(part, ((at, "parts"), i), notes))
        else:
            run.append((i, part))
    _flush(turns, message, run, at, notes)
    if message.extras:
        spoken = next((turn for turn in turns if turn["role"] == "user"), turns[0])
        add_extras(spoken, message.extras, NAME, at, notes)
    return turns


def _flush(turns: list[JsonObject], message: Message, run: list[tuple[int, Part]], at: At, notes: Notes) -> None:
    if run:
        content = _encode_content(message, run, at, notes)
        if content is not None:
            turns.append({"role": "user", "content": content})
        run.clear()


def _encode_content(message: Message, parts: Any, at: At, notes: Notes) -> str | list[JsonObject] | None:
    """One plain text becomes a string, unless the wire had a list. None if no part can be written."""
    how = spelled(message.extras, NAME, "~content")
    blocks: list[JsonObject] = []
    plain = how != "list"
    for i, part in parts:
        plain = plain and is_plain(part)
        block = encode_part(part, ((at, "parts"), i), notes)
        if block is not None:
            blocks.append(block)
    if plain and len(blocks) == 1:
        text: str = blocks[0]["text"]
        return text
    if blocks or how == "list":
        return blocks
    return None


def says_nothing(turn: JsonObject) -> bool:
    return turn.keys() <= {"role", "content"} and turn.get("content") is None
