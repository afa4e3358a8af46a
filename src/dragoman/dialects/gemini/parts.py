"""Gemini generateContent: parts, both ways."""

from typing import Any, assert_never

from dragoman.dialects._seals import note_seal_losses, take_seal, write_seal
from dragoman.dialects._tools import arguments_as_object
from dragoman.dialects.gemini.calls import Calls
from dragoman.dialects.gemini.media import decode_media, encode_media
from dragoman.dialects.gemini.results import decode_result, encode_result
from dragoman.dialects.gemini.spelling import take_id, to_camel, write_extras
from dragoman.dialects.gemini.words import NAME, SIGNATURE
from dragoman.errors import DecodeError
from dragoman.fields import leftovers, need_text, note_spelling, spelled
from dragoman.jsontypes import JsonObject, dump_text, kind_of
from dragoman.model.messages import (
    Audio,
    Document,
    Extras,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

# A part has exactly one of these keys. Its other keys describe it.
KINDS: dict[str, str] = {
    "text": "text",
    "inlineData": "inlineData",
    "inline_data": "inlineData",
    "fileData": "fileData",
    "file_data": "fileData",
    "functionCall": "functionCall",
    "function_call": "functionCall",
    "functionResponse": "functionResponse",
    "function_response": "functionResponse",
    "executableCode": "opaque",
    "executable_code": "opaque",
    "codeExecutionResult": "opaque",
    "code_execution_result": "opaque",
    "toolCall": "opaque",
    "tool_call": "opaque",
    "toolResponse": "opaque",
    "tool_response": "opaque",
}
THOUGHT: Extras = {NAME: {"~thought": True}}  # Gemini's own thought: it may be sent back even without a signature
EMPTY: Extras = {NAME: {"~text": "empty"}}

# ---------------------------------------------------------------- decode


def decode_parts(items: list[Any], calls: Calls) -> tuple[Part, ...]:
    done: list[Part] = []
    try:
        for item in items:
            if type(item) is not dict:
                raise DecodeError(f"expected object, found {kind_of(item)}")
            done.append(decode_part(item, calls))
    except DecodeError as error:
        raise error.under("parts", len(done)) from None
    return tuple(done)


def decode_part(part: JsonObject, calls: Calls) -> Part:
    text = part.get("text")
    if len(part) == 1:  # fast path: gemini part
        if type(text) is str:
            return Text(text=text) if text else Text(text="", extras=EMPTY)
        frequent = _decode_fast(part, calls)
        if frequent is not None:
            return frequent
    kinds = [KINDS[key] for key, value in part.items() if key in KINDS and value is not None]
    match kinds:
        case ["text"]:
            need_text(text, "text")
            return _decode_text(part)
        case ["functionCall"]:
            return _decode_call(part, calls)
        case ["functionResponse"]:
            return decode_result(part, calls)
        case ["inlineData" | "fileData" as key]:
            to_camel(part)
            return _take_image_seal(decode_media(part, key))
        case [] if "text" not in part and ("thoughtSignature" in part or "thought_signature" in part):
            return _decode_text(part)  # only a signature (FIELD-CASES 12)
        case _:
            return Opaque(dialect=NAME, body=part)  # code, server tools, new kinds of parts


def _decode_fast(part: JsonObject, calls: Calls) -> ToolCall | ToolResult | None:  # fast path: gemini part
    """Decode the most frequent calls and results in few steps. None for any other part."""
    call = part.get("functionCall")
    if type(call) is dict and len(call) == 3:
        call_id, name, given = call.get("id"), call.get("name"), call.get("args")
        if type(call_id) is str and call_id and type(name) is str and type(given) is dict:
            arguments = dump_text(given)
            return ToolCall(id=calls.call(call_id, name, arguments), name=name, arguments=arguments)
    result = part.get("functionResponse")
    if type(result) is dict and len(result) == 3:
        call_id, name, response = result.get("id"), result.get("name"), result.get("response")
        if type(call_id) is str and call_id and type(name) is str and type(response) is dict and len(response) == 1:
            output = response.get("output")
            if type(output) is str:
                return ToolResult(call_id=calls.result(call_id, name), name=name, parts=(Text(text=output),))
    return None


def _decode_text(part: JsonObject) -> Text | Reasoning:
    to_camel(part)
    text = part.pop("text", None)
    if text is None:
        note_spelling(part, "text", "absent")
    thought = part.pop("thought") if type(part.get("thought")) is bool else None
    seal = take_signature(part)
    if thought is True:
        extras = {NAME: part | THOUGHT[NAME]} if part else THOUGHT
        return Reasoning(text=text or "", summary=True, seal=seal, extras=extras)
    if thought is not None:
        note_spelling(part, "thought", thought)
    if text == "" and seal is None:
        note_spelling(part, "text", "empty")
    return Text(text=text or "", seal=seal, extras=leftovers(part, NAME))


def take_signature(part: JsonObject) -> Seal | None:
    """Take Gemini's own signature, or the seal of another dialect that a client sent back beside the part."""
    value = part.get("thoughtSignature")
    if type(value) is str and value:
        del part["thoughtSignature"]
        return Seal(origin=NAME, value=value, form=SIGNATURE)
    return take_seal(part)


def _take_image_seal(part: Part) -> Part:
    """Take the seal of an image. Other media have no seal field, so their signature stays an extra."""
    if not isinstance(part, Image) or NAME not in part.extras:
        return part
    own = part.extras[NAME]
    seal = take_signature(own)
    if seal is None:
        return part
    return Image(
        data=part.data,
        url=part.url,
        media_type=part.media_type,
        detail=part.detail,
        seal=seal,
        extras=leftovers(own, NAME),
    )


def _decode_call(part: JsonObject, calls: Calls) -> ToolCall | Opaque:
    call = part.get("functionCall") or part.get("function_call")
    if type(call) is not dict or type(call.get("name")) is not str:
        return Opaque(dialect=NAME, body=part)  # a piece of a call: `partialArgs` outside their stream
    to_camel(part)
    name, arguments = call.pop("name"), _take_arguments(call, part)
    call_id = calls.call(take_id(call, part), name, arguments)
    if not call:
        del part["functionCall"]
    if part.get("thought") is False:
        note_spelling(part, "thought", part.pop("thought"))
    seal = take_signature(part)
    return ToolCall(id=call_id, name=name, arguments=arguments, seal=seal, extras=leftovers(part, NAME))


def _take_arguments(call: JsonObject, part: JsonObject) -> str:
    if "args" not in call:
        note_spelling(part, "args", "absent")
        return "{}"
    given = call.pop("args")
    if given is None:
        note_spelling(part, "args", "null")
        return "{}"
    if type(given) is not dict:
        raise DecodeError(f"expected object, found {kind_of(given)}", "functionCall", "args")
    return dump_text(given)


# ---------------------------------------------------------------- encode


def _is_own(extras: Extras, key: str) -> bool:
    return bool(extras) and spelled(extras, NAME, key) is not None


def _may_go_back(part: Reasoning) -> bool:
    """Only Gemini's own thoughts are sent back to it, signed or not (docs: thoughts "need not be replayed")."""
    if part.seal is not None:
        return part.seal.origin == NAME
    return _is_own(part.extras, "~thought")


def encode_part(
    part: Part, at: At, notes: Notes, *, names: dict[str, str] | None = None, to_client: bool = False
) -> JsonObject | None:
    match part:
        case Text():
            return _encode_text(part, at, notes, to_client=to_client)
        case ToolCall():
            return _encode_call(part, at, notes, to_client=to_client)
        case ToolResult():
            return encode_result(part, at, notes, names or {})
        case Reasoning():
            return _encode_reasoning(part, at, notes, to_client=to_client)
        case Image() | Document() | Audio() | Video():
            block = encode_media(part, at, notes)
            if block is not None and isinstance(part, Image) and part.seal is not None:
                write_signature(block, part.seal, at, notes, to_client=to_client)
            return block
        case Opaque() if part.dialect == NAME:
            return part.body
        case Refusal():
            return _encode_refusal(part, at, notes, to_client=to_client)
        case Opaque():
            word = part.body.get("type")
            notes.dropped(at, f"only {part.dialect} has {word if type(word) is str else 'this part'}")
            return None
        case _:
            assert_never(part)


def _encode_text(part: Text, at: At, notes: Notes, *, to_client: bool) -> JsonObject | None:
    block: JsonObject = {"text": part.text}
    if part.cache is not None:
        notes.dropped((at, "cache"), "gemini has no cache marks")
    if not to_client:  # in a reply they belong to the candidate
        if part.citations:
            notes.dropped((at, "citations"), "gemini takes no citations back")
        if part.logprobs is not None:
            notes.dropped((at, "logprobs"), "gemini takes no logprobs back")
    if part.seal is not None:
        write_signature(block, part.seal, at, notes, to_client=to_client)
    if part.extras:
        _respell_text(block, part.extras)
        write_extras(block, part.extras, at, notes)
    if not part.text and len(block) == 1 and not _is_own(part.extras, "~text"):
        notes.dropped(at, "gemini takes no empty text")
        return None
    return block


def _respell_text(block: JsonObject, extras: Extras) -> None:
    own = extras.get(NAME)
    if own is None:
        return
    if own.get("~text") == "absent" and not block["text"]:
        del block["text"]
    if own.get("~thought") is False:
        block["thought"] = False


def _encode_refusal(part: Refusal, at: At, notes: Notes, *, to_client: bool) -> JsonObject | None:
    if part.logprobs is not None and not to_client:
        notes.dropped((at, "logprobs"), "gemini takes no logprobs back")
    if not part.text:
        notes.dropped(at, "gemini takes no empty text")
        return None
    notes.altered(at, "gemini has no refusal part: said as text")
    block: JsonObject = {"text": part.text}
    write_extras(block, part.extras, at, notes)
    return block


def _encode_reasoning(part: Reasoning, at: At, notes: Notes, *, to_client: bool) -> JsonObject | None:
    if not to_client and not _may_go_back(part):
        who = "another model's" if part.seal is None else f"sealed by {part.seal.origin}"
        notes.dropped(at, f"gemini takes back only thoughts of its own; this is {who}")
        return None
    if not part.text and part.seal is None and not _is_own(part.extras, "~thought"):
        notes.dropped(at, "gemini takes no empty text")
        return None
    block: JsonObject = {"text": part.text, "thought": True}
    if not part.summary:
        notes.altered((at, "summary"), "gemini does not distinguish a summary from the thought")
    if part.seal is not None:
        write_signature(block, part.seal, at, notes, to_client=to_client)
    if part.extras:
        _respell_text(block, part.extras)
        write_extras(block, part.extras, at, notes)
    return block


def write_signature(block: JsonObject, seal: Seal, at: At, notes: Notes, *, to_client: bool) -> None:
    if seal.origin != NAME:
        write_seal(block, seal, at, notes, to_client=to_client)
        return
    block["thoughtSignature"] = seal.value
    note_seal_losses(seal, (SIGNATURE,), at, notes)


def _encode_call(part: ToolCall, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    call: JsonObject = {"id": part.id, "name": part.name, "args": arguments_as_object(part, NAME, at, notes)}
    block: JsonObject = {"functionCall": call}
    if part.cache is not None:
        notes.dropped((at, "cache"), "gemini has no cache marks")
    if part.seal is not None:
        write_signature(block, part.seal, at, notes, to_client=to_client)
    if part.extras:
        _respell_call(call, block, part.extras.get(NAME, {}))
        write_extras(block, part.extras, at, notes, "functionCall")
    return block


def _respell_call(call: JsonObject, block: JsonObject, own: JsonObject) -> None:
    if "~id" in own:
        del call["id"]
    if "~args" in own and not call["args"]:
        del call["args"]
        if own["~args"] == "null":
            call["args"] = None
    if "~thought" in own:
        block["thought"] = own["~thought"]
