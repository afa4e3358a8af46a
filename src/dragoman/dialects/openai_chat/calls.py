"""OpenAI Chat Completions: tool calls and their results, both ways, `tools` and the older `functions` alike."""

import re
from contextlib import suppress

from msgspec.structs import replace

from dragoman.dialects._seals import note_seal_losses, take_seal, write_seal
from dragoman.dialects._tools import FAILED, is_plain, mark_failed, unmark_failed
from dragoman.dialects.openai_chat.parts import add_outer, decode_part, encode_part, keep_inner, note_absent
from dragoman.dialects.openai_chat.words import CALL_SEAL, NAME
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, decode_each, leftovers, note_spelling, spelled, take_word
from dragoman.jsontypes import JsonObject, dump_text, load_json
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

_ODD = re.compile("[^a-zA-Z0-9_-]")
OPAQUE_CALL = "tool_calls"  # our type for a call of an unknown kind: it says under which key the call stood


MADE_IDS = "call_legacy_"


class CallIds:
    """Makes ids for calls that came without one. The same conversation gets the same ids. Results are paired by
    position."""

    __slots__ = ("_count", "_prefix", "_waiting", "unpaired")

    def __init__(self, prefix: str = MADE_IDS) -> None:
        self._prefix = prefix
        self._count = 0
        self._waiting: list[tuple[str, str]] = []
        self.unpaired: set[str] = set()  # ids made for results that answer no call without an id

    def make(self, name: str) -> str:
        made = f"{self._prefix}{self._count}"
        self._count += 1
        self._waiting.append((name, made))
        return made

    def answer(self, name: str | None) -> str:
        """The id of the call that a result without an id answers: the first waiting call of that name, else the
        first waiting call."""
        for i, (called, made) in enumerate(self._waiting):
            if name is None or called == name:
                del self._waiting[i]
                return made
        if self._waiting:
            return self._waiting.pop(0)[1]
        made = self.make(name or "")
        self._waiting.pop()
        self.unpaired.add(made)
        return made


def ids_of_reply(reply_id: str) -> CallIds:
    """Ids that differ from reply to reply, in characters that every dialect accepts."""
    return CallIds(f"call_{_ODD.sub('', reply_id)[-24:]}_")


# ---------------------------------------------------------------- decode


def take_calls(message: JsonObject, ids: CallIds) -> list[Part]:
    calls: list[Part] = []
    given = message.get("tool_calls")
    if type(given) is list and given:
        del message["tool_calls"]
        calls.extend(decode_each(given, "tool_calls", lambda call: decode_call(call, ids)))
    legacy = message.get("function_call")
    if type(legacy) is dict and legacy.get("name"):
        del message["function_call"]
        calls.append(_decode_legacy(legacy, ids))
    return calls


def decode_call(call: JsonObject, ids: CallIds) -> Part:
    kind, call_id = call.get("type"), call.get("id")
    place, key = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = call.get(place)
    if len(call) == 3 and kind == "function" and type(inner) is dict and len(inner) == 2:  # fast path: chat call
        name, arguments = inner.get("name"), inner.get("arguments")
        if type(name) is str and type(arguments) is str and type(call_id) is str and call_id:
            return ToolCall(id=call_id, name=name, arguments=arguments)
    if type(inner) is not dict or type(inner.get("name")) is not str:
        return Opaque(dialect=NAME, body={"type": OPAQUE_CALL, "call": call})
    if kind == place:
        del call["type"]
    elif kind is None:
        note_absent(call, "type")
    del call[place]
    name = inner.pop("name")
    arguments = take_arguments(inner, key, call)
    if type(call_id) is str and call_id:
        del call["id"]
    else:
        note_spelling(call, "id", call.pop("id", "absent"))
        call_id = ids.make(name)
    keep_inner(call, place, inner)
    return ToolCall(
        id=call_id,
        name=name,
        arguments=arguments,
        freeform=place == "custom",
        seal=take_call_seal(call) or take_seal(call),
        extras=leftovers(call, NAME),
    )


def take_call_seal(call: JsonObject) -> Seal | None:
    """Take `extra_content.google.thought_signature`, which Google's Chat API and servers like it put on a call."""
    extra = call.get("extra_content")
    google = extra.get("google") if type(extra) is dict else None
    value = google.get(CALL_SEAL) if type(google) is dict else None
    if type(extra) is not dict or type(google) is not dict or type(value) is not str or not value:
        return None
    del google[CALL_SEAL]
    if not google:
        del extra["google"]
    if not extra:
        del call["extra_content"]
    return Seal(origin=NAME, value=value, form=CALL_SEAL)


def take_arguments(inner: JsonObject, key: str, holder: JsonObject) -> str:
    """The arguments as JSON text. Some servers write the object itself, or nothing."""
    value = inner.pop(key, None)
    if type(value) is str:
        return value
    note_spelling(holder, "arguments", "absent" if value is None else "value")
    return "" if value is None else dump_text(value)


def _decode_legacy(call: JsonObject, ids: CallIds) -> ToolCall:
    holder: JsonObject = {"~form": "function_call"}
    name = call.pop("name")
    arguments = take_arguments(call, "arguments", holder)
    keep_inner(holder, "function", call)
    return ToolCall(id=ids.make(name), name=name, arguments=arguments, extras={NAME: holder})


def decode_result(message: JsonObject, ids: CallIds) -> Message:
    """Decode a message of role `tool` or `function`. The caller has taken the role."""
    name, call_id = take_word(message, "name"), message.get("tool_call_id")
    if type(call_id) is str and call_id:
        del message["tool_call_id"]
    else:
        if "tool_call_id" in message:
            note_spelling(message, "call_id", message.pop("tool_call_id"))
        else:
            note_spelling(message, "call_id", "absent")
        call_id = ids.answer(name)
    if name is not None:
        note_spelling(message, "name", "told")
    parts = _take_result_content(message)
    parts, failed = _unmark(parts)
    result = ToolResult(call_id=call_id, parts=parts, name=name, failed=failed, extras=leftovers(message, NAME))
    return Message(role="user", parts=(result,))


def pair_by_position(messages: tuple[Message, ...], unpaired: set[str]) -> tuple[Message, ...]:
    """A result without an id answers the first call that has no result yet. Z.ai accepts such a history."""
    waiting: list[str] = []
    paired: list[Message] = []
    for message in messages:
        for part in message.parts:
            if type(part) is ToolCall:
                waiting.append(part.id)
            elif type(part) is ToolResult and waiting:
                if part.call_id in unpaired:
                    part = replace(part, call_id=waiting[0])
                    message = replace(message, parts=(part,))  # a message of role `tool` is one result
                if part.call_id in waiting:
                    waiting.remove(part.call_id)
        paired.append(message)
    return tuple(paired)


def _take_result_content(message: JsonObject) -> tuple[Part, ...]:
    content = message.get("content")
    if type(content) is str:
        del message["content"]
        return (Text(text=content),) if content else ()
    if type(content) is list:
        del message["content"]
        parts = decode_each(content, "content", decode_part)
        if not parts or (len(parts) == 1 and is_plain(parts[0])):
            note_spelling(message, "content", "list")
        return parts
    if content is None:
        note_spelling(message, "content", "null" if "content" in message else "absent")
        message.pop("content", None)
    return ()


def _unmark(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], bool | None]:
    first = parts[0] if parts else None
    text = unmark_failed(first.text) if isinstance(first, Text) else None
    if text is None or not isinstance(first, Text):
        return parts, None
    rest = parts[1:]
    return ((replace(first, text=text), *rest) if text else rest), True


# ---------------------------------------------------------------- encode


def encode_call(part: ToolCall, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject:
    place, key = ("custom", "input") if part.freeform else ("function", "arguments")
    inner: JsonObject = {"name": part.name, key: part.arguments}
    call: JsonObject = {"id": part.id, "type": place, place: inner}
    if part.seal is not None and part.seal.origin != NAME:
        write_seal(call, part.seal, at, notes, to_client=to_client)
    if part.cache is not None:
        notes.dropped((at, "cache"), "openai_chat has no cache mark on calls")
    if part.extras:
        add_outer(call, part.extras, place, at, notes)
        _spell_call(call, inner if call[place] is inner else call[place], key, part)
    if part.seal is not None and part.seal.origin == NAME:
        note_seal_losses(part.seal, (CALL_SEAL,), at, notes)
        call["extra_content"] = encode_call_seal(part.seal, call.get("extra_content"))
    return call


def encode_call_seal(seal: Seal, extra: object = None) -> JsonObject:
    """`extra_content`, with what else stands there."""
    kept = extra if type(extra) is dict else {}
    google = kept.get("google")
    return {**kept, "google": {**(google if type(google) is dict else {}), CALL_SEAL: seal.value}}


def _spell_call(call: JsonObject, inner: JsonObject, key: str, part: ToolCall) -> None:
    spell_arguments(inner, key, part)
    was = spelled(part.extras, NAME, "~id")
    if was == "absent":
        del call["id"]
    elif "~id" in part.extras.get(NAME, {}):
        call["id"] = was


def spell_arguments(inner: JsonObject, key: str, part: ToolCall) -> None:
    match spelled(part.extras, NAME, "~arguments"):
        case "absent" if not part.arguments:
            inner.pop(key, None)
        case "value":
            with suppress(DecodeError):
                inner[key] = load_json(part.arguments)
        case _:
            pass


def is_legacy(part: ToolCall) -> bool:
    return bool(spelled(part.extras, NAME, "~form") == "function_call")


def encode_legacy(part: ToolCall, at: At, notes: Notes) -> JsonObject:
    """Write the call as `function_call`. It has no id, so its result is paired by position."""
    call: JsonObject = {"function": {"name": part.name, "arguments": part.arguments}}
    if part.seal is not None:
        notes.dropped((at, "seal"), f"only {part.seal.origin} can read its {part.seal.form}")
    if part.cache is not None:
        notes.dropped((at, "cache"), "openai_chat has no cache mark on calls")
    if part.freeform:
        notes.altered((at, "freeform"), "function_call has no freeform calls")
    add_outer(call, part.extras, "function", at, notes)
    inner: JsonObject = call["function"]
    spell_arguments(inner, "arguments", part)
    if not is_legacy(part):
        notes.altered((at, "id"), "function_call has no id")
    return inner


def encode_result(part: ToolResult, at: At, notes: Notes) -> JsonObject:
    parts = _move_cache(part, at, notes)
    if part.failed is not None:
        parts = _mark(part, parts, at, notes)
    blocks = [
        block for i, inner in enumerate(parts) if (block := _encode_inner(inner, ((at, "parts"), i), notes)) is not None
    ]
    body: JsonObject = {"role": "tool", "tool_call_id": part.call_id, "content": blocks}
    if not blocks and spelled(part.extras, NAME, "~content") != "list":
        body["content"] = ""
        if parts:
            notes.altered((at, "parts"), "openai_chat has no form for any part of it")
    elif len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and spelled(part.extras, NAME, "~content") != "list":
        body["content"] = blocks[0]["text"]
        if not body["content"]:
            notes.altered((at, "parts"), "an empty text is said as nothing")
    _spell_result(body, part, at, notes)
    return body


def _spell_result(body: JsonObject, part: ToolResult, at: At, notes: Notes) -> None:
    own = part.extras.get(NAME, {})
    if part.name is not None and "~name" in own:
        body["name"] = part.name
    if part.extras:
        add_extras(body, part.extras, NAME, at, notes)
    if not own:
        return
    if "~role" in own:
        body["role"] = own["~role"]
    if not part.parts and not part.failed and own.get("~content") == "null":
        body["content"] = None
    elif not part.parts and not part.failed and own.get("~content") == "absent":
        del body["content"]
    if own.get("~call_id") == "absent":
        del body["tool_call_id"]
    elif "~call_id" in own:
        body["tool_call_id"] = own["~call_id"]


def _encode_inner(part: Part, at: At, notes: Notes) -> JsonObject | None:
    if isinstance(part, Image | Document | Audio | Video):
        # Conversions through `convert` never get here: `move_result_media` has put the media into its own turn.
        notes.dropped(at, "openai_chat's results hold text only")
        return None
    return encode_part(part, at, notes)


def _move_cache(part: ToolResult, at: At, notes: Notes) -> tuple[Part, ...]:
    """Move a result's cache mark to its last text, because only content parts can have one."""
    if part.cache is None:
        return part.parts
    place = max((i for i, inner in enumerate(part.parts) if isinstance(inner, Text)), default=None)
    inner = part.parts[place] if place is not None else None
    if place is None or not isinstance(inner, Text) or not inner.text:
        notes.dropped((at, "cache"), "openai_chat has cache marks on content only")
        return part.parts
    notes.altered((at, "cache"), "moved to the last text of the result")
    notes.altered((((at, "parts"), place), "cache"), "moved here from the result")
    return (*part.parts[:place], replace(inner, cache=inner.cache or part.cache), *part.parts[place + 1 :])


def _mark(part: ToolResult, parts: tuple[Part, ...], at: At, notes: Notes) -> tuple[Part, ...]:
    if not part.failed:
        return parts
    first = parts[0] if parts else None
    if isinstance(first, Text):
        if not first.text:
            notes.altered((at, "parts"), "an empty text is said as nothing")
        return (replace(first, text=mark_failed(first.text)), *parts[1:])
    return (Text(text=FAILED), *parts)
