"""JSON-RPC `generate_content`: messages and their parts.

{"role": "user", "content": "text"}            {"role": "user", "parts": ["text", {"text": "text"}, {"image": …}]}
{"role": "assistant", "content": "text", "tool_calls": [{"id": "…", "name": "…", "arguments": {}}]}
{"role": "tool", "tool_call_id": "…", "content": "text"}
"""

from collections.abc import Iterable

from dragoman.dialects._seals import take_seal, write_seal
from dragoman.dialects._tools import unmark_failed
from dragoman.dialects.jsonrpc.words import NAME, ROLES
from dragoman.errors import DecodeError
from dragoman.fields import (
    add_extras,
    leftovers,
    need_object,
    note_spelling,
    take_choice,
    take_each,
    take_flag_or_none,
    take_text,
    take_text_or_none,
)
from dragoman.jsontypes import Json, JsonObject, dump_text, kind_of, load_json
from dragoman.model.messages import Image, Message, Part, Text, ToolCall, ToolResult
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- decode


def decode_message(message: JsonObject) -> Message:
    if message.get("role") == "tool":
        return Message(role="user", parts=(_decode_result(message),))
    role = take_choice(message, "role", ROLES)
    calls = take_each(message, "tool_calls", decode_call)
    parts = _take_parts(message, needed=not calls)
    return Message(role=role, parts=(*parts, *calls), extras=leftovers(message, NAME))


def _take_parts(message: JsonObject, *, needed: bool) -> tuple[Part, ...]:
    """Take `content` or `parts`, whichever is present. Each is a text or a list."""
    key = "content" if message.get("content") is not None or message.get("parts") is None else "parts"
    given = message.pop(key, None)
    if type(given) is str and key == "parts":
        note_spelling(message, "string", key)
    if type(given) is str:
        return (Text(text=given),) if given or needed else ()
    if type(given) is list:
        note_spelling(message, "list", key)
        return tuple(_decode_each(given, key))
    if given is None and not needed:
        return ()
    raise DecodeError(f"expected string or array, found {kind_of(given)}", key)


def _decode_each(items: list[object], key: str) -> Iterable[Part]:
    for i, item in enumerate(items):
        try:
            yield _decode_part(item)
        except DecodeError as error:
            raise error.under(key, i) from None


def _decode_part(item: object) -> Part:
    if type(item) is str:
        return Text(text=item)
    part = need_object(item)
    if "image" in part:
        try:
            image = need_object(part.pop("image"))
            return decode_image(image)
        except DecodeError as error:
            raise error.under("image") from None
    for key in ("inline_data", "inlineData"):
        if type(part.get(key)) is dict:
            return _decode_inline(part[key], key)
    text = take_text(part, "text")
    if part.get("type") == "text":  # the form of OpenAI and Anthropic
        del part["type"]
    return Text(text=text, extras=leftovers(part, NAME))


def decode_image(image: JsonObject) -> Image:
    data, url = take_text_or_none(image, "data"), take_text_or_none(image, "url")
    if (data is None) == (url is None):
        raise DecodeError("expected either data or url")
    media_type = take_text_or_none(image, "media_type")
    return Image(data=data, url=url, media_type=media_type, extras=leftovers(image, NAME))


def _decode_inline(given: JsonObject, key: str) -> Image:
    """Decode Gemini's form of a part, because clients of this method come from Gemini."""
    media_type = given.get("mime_type", given.get("mimeType"))
    if type(given.get("data")) is not str or type(media_type) is not str:
        raise DecodeError("expected data and mime_type", key)
    return Image(data=given["data"], media_type=media_type)


def decode_call(call: JsonObject) -> ToolCall:
    """Take the arguments, an object or its JSON text."""
    given = call.pop("arguments", None)
    if given is not None and type(given) not in (dict, str):
        raise DecodeError(f"expected object or string, found {kind_of(given)}", "arguments")
    return ToolCall(
        id=take_text(call, "id"),
        name=take_text(call, "name"),
        arguments=given if type(given) is str else dump_text(given or {}),
        seal=take_seal(call),
        extras=leftovers(call, NAME),
    )


def _decode_result(message: JsonObject) -> ToolResult:
    del message["role"]
    parts = _take_parts(message, needed=True)
    failed = take_flag_or_none(message, "failed")
    first = parts[0] if parts else None
    if failed is None and isinstance(first, Text):
        behind = unmark_failed(first.text)  # MCP tools of this method mark failures like this
        if behind is not None:
            failed, parts = True, (Text(text=behind, extras=first.extras), *parts[1:])
    return ToolResult(
        call_id=take_text(message, "tool_call_id"),
        parts=parts,
        name=take_text_or_none(message, "name"),
        failed=failed,
        extras=leftovers(message, NAME),
    )


# ---------------------------------------------------------------- encode


def encode_call(part: ToolCall, at: At, notes: Notes) -> JsonObject:
    call: JsonObject = {"id": part.id, "name": part.name, "arguments": _encode_arguments(part.arguments)}
    if part.freeform:
        notes.altered((at, "freeform"), "a call of a freeform tool looks like any other: its text is the arguments")
    if part.seal is not None:
        write_seal(call, part.seal, at, notes, to_client=True)
    if part.cache is not None:
        notes.dropped((at, "cache"), "an answer has no cache marks")
    add_extras(call, part.extras, NAME, at, notes)
    return call


def _encode_arguments(text: str) -> Json:
    """The arguments as an object, if the text is one. Any other text stays text, so that no call becomes empty."""
    try:
        value = load_json(text)
    except DecodeError:
        return text
    return value if type(value) is dict else text


def encode_image(part: Image, at: At, notes: Notes) -> JsonObject | None:
    if part.data is None and part.url is None:
        notes.dropped(at, "a client here cannot fetch a file id")
        return None
    image: JsonObject = {"data": part.data} if part.data is not None else {"url": part.url}
    if part.media_type is not None:
        image["media_type"] = part.media_type
    for key, value in (("detail", part.detail), ("seal", part.seal), ("cache", part.cache)):
        if value is not None:
            notes.dropped((at, key), f"an image in an answer has no {key}")
    add_extras(image, part.extras, NAME, at, notes)
    return image
