"""Gemini generateContent: `functionResponse`, both ways.

Its `response` must be an object (FIELD-CASES 68). By Google's convention it is `{"output": text}` or
`{"error": text}`, but a client may use any other keys. Media are beside it, in `parts`.
"""

from typing import Any

from dragoman.dialects.gemini.calls import Calls
from dragoman.dialects.gemini.media import decode_media, encode_media
from dragoman.dialects.gemini.spelling import take_id, to_camel, write_extras
from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import leftovers, note_spelling, spelled
from dragoman.jsontypes import JsonObject, dump_text, load_json
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- decode


def decode_result(part: JsonObject, calls: Calls) -> ToolResult | Opaque:
    result = part.get("functionResponse") or part.get("function_response")
    if type(result) is not dict or not isinstance(result.get("response"), dict | None):
        return Opaque(dialect=NAME, body=part)
    to_camel(part)
    name = result.pop("name") if type(result.get("name")) is str else None
    if name is None and "name" not in result:
        note_spelling(part, "name", "absent")
    call_id = calls.result(take_id(result, part), name)
    texts, failed = _take_response(result, part)
    media = _take_media(result)
    if not result:
        del part["functionResponse"]
    if part.get("thought") is False:
        note_spelling(part, "thought", part.pop("thought"))
    return ToolResult(call_id=call_id, parts=(*texts, *media), name=name, failed=failed, extras=leftovers(part, NAME))


def _take_response(result: JsonObject, part: JsonObject) -> tuple[tuple[Part, ...], bool | None]:
    response = result.get("response")
    if response is None:
        note_spelling(part, "response", "null" if "response" in result else "absent")
        result.pop("response", None)
        return (), None
    del result["response"]
    if not response:
        return (), None
    if len(response) == 1:
        (key, value), *_ = response.items()
        if key == "error":
            return _read_error(value, part), True
        if type(value) is str and key in ("output", "result"):
            if key == "result":
                note_spelling(part, "response", "result")
            return (Text(text=value),), None
    note_spelling(part, "response", "object")
    return (Text(text=dump_text(response)),), None


def _read_error(value: Any, part: JsonObject) -> tuple[Part, ...]:
    if type(value) is str:
        return (Text(text=value),) if value else ()
    note_spelling(part, "response", "error")
    return (Text(text=dump_text(value)),)


def _take_media(result: JsonObject) -> list[Part]:
    items = result.get("parts")
    if type(items) is not list or not items or not all(type(item) is dict for item in items):
        return []
    del result["parts"]
    return [_decode_inner(item) for item in items]


def _decode_inner(item: JsonObject) -> Part:
    for key, wire in (("inlineData", "inline_data"), ("fileData", "file_data")):
        if type(item.get(key)) is dict or type(item.get(wire)) is dict:
            to_camel(item)
            return decode_media(item, key)
    return Opaque(dialect=NAME, body=item)


# ---------------------------------------------------------------- encode


def encode_result(part: ToolResult, at: At, notes: Notes, names: dict[str, str]) -> JsonObject:
    own = part.extras.get(NAME, {})
    result: JsonObject = {}
    if "~id" not in own:
        result["id"] = part.call_id
    write_name(result, part, at, notes, names)
    text, media = _gather(part, at, notes)
    response = _encode_response(part, text, at, notes)
    if response or own.get("~response") not in ("absent", "null"):
        result["response"] = response
    elif own["~response"] == "null":
        result["response"] = None
    if media:
        result["parts"] = media
    if part.cache is not None:
        notes.dropped((at, "cache"), "gemini has no cache marks")
    if part.freeform:
        notes.altered((at, "freeform"), "gemini has no freeform calls: said as a function's result")
    block: JsonObject = {"functionResponse": result}
    if part.extras:
        if "~thought" in own:
            block["thought"] = own["~thought"]
        write_extras(block, part.extras, at, notes, "functionResponse")
    return block


def write_name(result: JsonObject, part: ToolResult, at: At, notes: Notes, names: dict[str, str]) -> None:
    """Write the name of the function, from the call if need be (mission A7). Gemini demands it (FIELD-CASES 67)."""
    if part.name is not None:
        result["name"] = part.name
        return
    own = part.extras.get(NAME, {})
    if "~name" in own or "name" in own.get("functionResponse", {}):
        return
    found = names.get(part.call_id)
    result["name"] = part.call_id if found is None else found
    if found is None:
        notes.invented((at, "name"), "gemini demands a name, and no call has it: the id of the call")


def _gather(part: ToolResult, at: At, notes: Notes) -> tuple[str | None, list[JsonObject]]:
    """Collect one text, then media. Gemini's results have no other order."""
    texts: list[str] = []
    media: list[JsonObject] = []
    moved = False
    if part.parts and not any(_is_held(inner) for inner in part.parts):
        notes.dropped((at, "parts"), "gemini's results hold text and media")
        return None, []
    for i, inner in enumerate(part.parts):
        here: At = ((at, "parts"), i)
        match inner:
            case Text() | Refusal():
                _note_text(inner, here, notes)
                moved = moved or bool(texts) or bool(media)
                texts.append(inner.text)
            case Image() | Document() | Audio() | Video():
                block = encode_media(inner, here, notes, in_result=True)
                if block is not None:
                    media.append(block)
                if isinstance(inner, Image) and inner.seal is not None:
                    notes.dropped((here, "seal"), "gemini's results carry no signatures")
            case Opaque(dialect=dialect) if dialect == NAME:
                media.append(inner.body)
            case Opaque() | Reasoning() | ToolCall() | ToolResult():
                notes.dropped(here, "gemini's results hold text and media")
    if moved:
        notes.altered((at, "parts"), "gemini's results hold one text, before the media")
    return "\n".join(texts) if texts else None, media


def _is_held(inner: Part) -> bool:
    match inner:
        case Text() | Refusal():
            return True
        case Image() | Audio() | Video():
            return inner.data is not None or inner.url is not None
        case Document():
            return inner.data is not None or inner.url is not None or inner.text is not None
        case Opaque():
            return inner.dialect == NAME
        case _:
            return False


def _note_text(inner: Text | Refusal, at: At, notes: Notes) -> None:
    if isinstance(inner, Refusal):
        notes.altered(at, "gemini has no refusal part: said as text")
    else:
        if inner.citations:
            notes.dropped((at, "citations"), "gemini's results have no citations")
        if inner.cache is not None:
            notes.dropped((at, "cache"), "gemini has no cache marks")
        if inner.seal is not None:
            notes.dropped((at, "seal"), "gemini's results carry no signatures")
    if inner.logprobs is not None:
        notes.dropped((at, "logprobs"), "gemini's results have no logprobs")
    if inner.extras:
        write_extras({}, inner.extras, at, notes)


def _encode_response(part: ToolResult, text: str | None, at: At, notes: Notes) -> JsonObject:
    spelling = spelled(part.extras, NAME, "~response") if part.extras else None
    if part.failed:
        if text == "":
            notes.altered((at, "parts"), "gemini writes its own words for an error without a text")
        return {"error": _loaded(text or "") if spelling == "error" else text or ""}
    if text is None:
        return {}
    if spelling == "object":
        value = _loaded(text)
        if type(value) is dict:
            return value
    return {"result" if spelling == "result" else "output": text}


def _loaded(text: str) -> Any:
    try:
        return load_json(text)
    except DecodeError:
        return text
