"""Anthropic Messages: content blocks, both ways."""

from collections.abc import Callable
from typing import Any, assert_never

from msgspec.structs import replace

from dragoman.dialects._seals import is_late, note_seal_losses, take_seal, write_seal
from dragoman.dialects._settings import encode_ttl
from dragoman.dialects._tools import arguments_as_object, is_plain, opaque_word
from dragoman.dialects.anthropic.citations import decode_citation, encode_citation
from dragoman.dialects.anthropic.words import NAME, TTLS
from dragoman.errors import DecodeError
from dragoman.fields import (
    add_extras,
    decode_each,
    drop_constant,
    leftovers,
    need_object,
    note_omitted,
    note_spelling,
    spelled,
    take_flag_or_none,
    take_list_or_none,
    take_one,
    take_text,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, dump_text, kind_of
from dragoman.model.messages import (
    Audio,
    Cache,
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

LATE = "~late"  # spelling: the seal of this thought came in a block of its own, behind it

# ---------------------------------------------------------------- decode


def decode_content(holder: JsonObject, key: str = "content") -> tuple[Part, ...]:
    """Decode `content`, a string or a list of blocks. The form is kept as spelling."""
    content = holder.pop(key, None)
    if type(content) is str:
        return (Text(text=content),)
    if type(content) is not list:
        raise DecodeError(f"expected string or array, found {kind_of(content)}", key)
    parts = decode_blocks(content, key)
    if len(parts) < 2 and (not parts or is_plain(parts[0])):
        holder["~content"] = "list"
    return parts


def decode_blocks(blocks: list[Any], key: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    late = 0
    try:
        for block in blocks:
            try:
                kind = block["type"]
                if kind == "text" and len(block) == 2 and type(block["text"]) is str:  # fast path: anthropic text
                    parts.append(Text(text=block["text"]))
                    continue
                if kind == "thinking" and parts and _add_late_seal(parts, block):
                    late += 1
                    continue
                decode = _DECODERS[kind]
            except (KeyError, TypeError):  # an unknown block, or not a block
                decode = decode_part
            parts.append(decode(block))
    except DecodeError as error:
        raise error.under(key, len(parts) + late) from None
    return tuple(parts)


def _add_late_seal(parts: list[Part], block: JsonObject) -> bool:
    """Whether a block only has the seal of the thought before it (see _seals)."""
    thought = parts[-1]
    if type(thought) is not Reasoning or not is_late(block):
        return False
    seal = take_seal(block)
    if seal is None:
        return False
    own = {**thought.extras.get(NAME, {}), LATE: True}
    parts[-1] = replace(thought, seal=seal, extras={**thought.extras, NAME: own})
    return True


def decode_part(block: JsonObject) -> Part:
    kind = need_object(block).get("type")
    decode = _DECODERS.get(kind) if type(kind) is str else None
    if decode is not None:
        return decode(block)
    if type(kind) is str:
        return Opaque(dialect=NAME, body=block)  # a block of a new kind: carried whole, not refused
    raise DecodeError(f"expected string, found {kind_of(kind)}", "type")


def _decode_text(block: JsonObject) -> Text:
    text = block.get("text")
    if len(block) == 2 and type(text) is str:  # fast path: anthropic text
        return Text(text=text)
    del block["type"]
    text = take_text(block, "text")
    seal, cache = take_seal(block), take_cache(block)
    citations = take_list_or_none(block, "citations")
    if citations == []:
        note_spelling(block, "citations", "empty")
    return Text(
        text=text,
        citations=decode_each(citations or [], "citations", decode_citation),
        seal=seal,
        cache=cache,
        extras=leftovers(block, NAME),
    )


def decode_tool_call(block: JsonObject) -> ToolCall:
    given, call_id, name = block.get("input"), block.get("id"), block.get("name")
    if (
        len(block) == 4 and type(given) is dict and type(call_id) is str and type(name) is str
    ):  # fast path: anthropic call
        return ToolCall(id=call_id, name=name, arguments=dump_text(given) if given else "{}")
    del block["type"]
    given = block.pop("input", None)
    if given is None:
        note_omitted(block, block, "input")
    elif type(given) is not dict:
        raise DecodeError(f"expected object, found {kind_of(given)}", "input")
    return ToolCall(
        id=take_text(block, "id"),
        name=take_text(block, "name"),
        arguments=dump_text(given) if given else "{}",
        seal=take_seal(block),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _decode_tool_result(block: JsonObject) -> ToolResult:
    content, call_id = block.get("content"), block.get("tool_use_id")
    if len(block) == 3 and type(content) is str and type(call_id) is str:  # fast path: anthropic result
        return ToolResult(call_id=call_id, parts=(Text(text=content),))
    del block["type"]
    call_id = take_text(block, "tool_use_id")
    parts: tuple[Part, ...] = ()
    if content is not None:
        parts = decode_content(block)
    return ToolResult(
        call_id=call_id,
        parts=parts,
        failed=take_flag_or_none(block, "is_error"),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _decode_image(block: JsonObject) -> Image | Opaque:
    source = need_object(block.get("source"), "source")
    if source.get("type") not in ("base64", "url", "file"):
        return Opaque(dialect=NAME, body=block)
    del block["type"], block["source"]
    del source["type"]
    try:
        data, url, file_id, media_type = _take_source(source)
    except DecodeError as error:
        raise error.under("source") from None
    if source:
        block["source"] = source
    return Image(
        data=data,
        url=url,
        file_id=file_id,
        media_type=media_type,
        seal=take_seal(block),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _decode_document(block: JsonObject) -> Document | Opaque:
    source = need_object(block.get("source"), "source")
    kind = source.get("type")
    if kind not in ("base64", "url", "file", "text"):
        return Opaque(dialect=NAME, body=block)  # a document made of blocks
    del block["type"], block["source"]
    del source["type"]
    try:
        text = take_text(source, "data") if kind == "text" else None
        data, url, file_id, media_type = _take_source(source)
    except DecodeError as error:
        raise error.under("source") from None
    if source:
        block["source"] = source
    return Document(
        data=data,
        text=text,
        url=url,
        file_id=file_id,
        media_type=media_type,
        name=take_text_or_none(block, "title"),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _take_source(source: JsonObject) -> tuple[str | None, str | None, str | None, str | None]:
    return (
        take_text_or_none(source, "data"),
        take_text_or_none(source, "url"),
        take_text_or_none(source, "file_id"),
        take_text_or_none(source, "media_type"),
    )


def _decode_reasoning(block: JsonObject) -> Reasoning:
    del block["type"]
    seal = take_seal(block)
    signature = take_text_or_none(block, "signature")
    if signature is None:
        note_spelling(block, "signature", "none")  # llama.cpp and others sign nothing
    elif seal is None:
        seal = Seal(origin=NAME, value=signature)
    return Reasoning(text=take_text(block, "thinking"), seal=seal, extras=leftovers(block, NAME))


def _decode_redacted(block: JsonObject) -> Reasoning:
    del block["type"]
    seal = Seal(origin=NAME, value=take_text(block, "data"), form="redacted")
    return Reasoning(text="", seal=seal, extras=leftovers(block, NAME))


_DECODERS: dict[str, Callable[[JsonObject], Part]] = {
    "text": _decode_text,
    "tool_use": decode_tool_call,
    "tool_result": _decode_tool_result,
    "image": _decode_image,
    "document": _decode_document,
    "thinking": _decode_reasoning,
    "redacted_thinking": _decode_redacted,
}


def take_cache(holder: JsonObject) -> Cache | None:
    return take_one(holder, "cache_control", _decode_cache) if "cache_control" in holder else None


def _decode_cache(mark: JsonObject) -> Cache:
    drop_constant(mark, "type", "ephemeral")
    return Cache(ttl=take_text_or_none(mark, "ttl"), extras=leftovers(mark, NAME))


# ---------------------------------------------------------------- encode

DEFAULT_MEDIA_TYPES: dict[type[Part], str] = {Image: "image/png", Document: "application/pdf"}


def encode_content(parts: tuple[Part, ...], extras: Extras, at: At, notes: Notes) -> str | list[JsonObject]:
    """One plain text becomes a string, unless the wire had a list. Anything else becomes blocks."""
    if len(parts) == 1 and not (extras and spelled(extras, NAME, "~content") == "list"):
        (only,) = parts
        if type(only) is Text and is_plain(only):
            return only.text
    return encode_parts(parts, (at, "parts"), notes)


def encode_parts(parts: tuple[Part, ...], at: At, notes: Notes, *, to_client: bool = False) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    for i, part in enumerate(parts):
        if (
            type(part) is Text
            and not part.extras
            and part.cache is None
            and not part.citations
            and part.seal is None
            and part.logprobs is None
        ):  # fast path: anthropic text, written
            blocks.append({"type": "text", "text": part.text})
            continue
        block = encode_part(part, (at, i), notes, to_client=to_client)
        if block is not None:
            blocks.append(block)
    return blocks


def encode_part(part: Part, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject | None:
    block: JsonObject
    match part:
        case ToolCall():
            return encode_tool_call(part, at, notes, to_client=to_client)
        case ToolResult():
            return _encode_tool_result(part, at, notes)
        case Text():
            return _encode_text(part, at, notes, to_client=to_client)
        case Reasoning():
            return _encode_reasoning(part, at, notes, to_client=to_client)
        case Image() | Document() if to_client:
            notes.dropped(at, f"anthropic's answers hold no {type(part).__name__.lower()}")
            return None
        case Image():
            return _encode_image(part, at, notes)
        case Document():
            return _encode_document(part, at, notes)
        case Opaque() if part.dialect == NAME:
            return part.body
        case Refusal():
            notes.altered(at, "anthropic has no refusal part: said as text")
            block = {"type": "text", "text": part.text}
            if part.logprobs is not None:
                notes.dropped((at, "logprobs"), "anthropic has no logprobs")
            add_extras(block, part.extras, NAME, at, notes)
            return block
        case Audio() | Video():
            notes.dropped(at, f"anthropic takes no {type(part).__name__.lower()}")
            return None
        case Opaque():
            notes.dropped(at, f"only {part.dialect} has {opaque_word(part)}")
            return None
        case _:
            assert_never(part)


def _encode_text(part: Text, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    block: JsonObject = {"type": "text", "text": part.text}
    if part.citations:
        block["citations"] = [
            encoded
            for i, citation in enumerate(part.citations)
            if (encoded := encode_citation(citation, ((at, "citations"), i), notes)) is not None
        ]
        if not block["citations"]:
            del block["citations"]
            notes.dropped((at, "citations"), "none of them names a place that anthropic can cite")
    elif part.extras and spelled(part.extras, NAME, "~citations") == "empty":
        block["citations"] = []
    if part.logprobs is not None:
        notes.dropped((at, "logprobs"), "anthropic has no logprobs")
    if part.cache is not None:
        block["cache_control"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=to_client)
    if part.extras:
        add_extras(block, part.extras, NAME, at, notes)
    return block


def encode_tool_call(part: ToolCall, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject:
    given = arguments_as_object(part, NAME, at, notes)
    block: JsonObject = {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=to_client)
    if part.cache is not None:
        block["cache_control"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.extras:
        add_extras(block, part.extras, NAME, at, notes)
    return block


def _encode_tool_result(part: ToolResult, at: At, notes: Notes) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.parts or (part.extras and spelled(part.extras, NAME, "~content") == "list"):
        block["content"] = encode_content(part.parts, part.extras, at, notes)
    if part.failed is not None:
        block["is_error"] = part.failed
    if part.freeform:
        notes.altered((at, "freeform"), "anthropic has no freeform calls: said as a function's result")
    if part.cache is not None:
        block["cache_control"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.extras:
        add_extras(block, part.extras, NAME, at, notes)
    return block


FORMS = ("signature", "redacted")  # of our own seals


def _encode_reasoning(part: Reasoning, at: At, notes: Notes, *, to_client: bool) -> JsonObject | None:
    """For a client, the seal of another dialect goes beside the block. For an upstream, the whole part is left out,
    because the upstream checks signatures (FIELD-CASES 9)."""
    seal = part.seal
    block: JsonObject
    if part.summary:
        notes.altered((at, "summary"), "anthropic does not distinguish a summary from the thought")
    if seal is not None and seal.origin == NAME:
        note_seal_losses(seal, FORMS, at, notes)
        if seal.form == "redacted":
            block = {"type": "redacted_thinking", "data": seal.value}
            if part.text:
                notes.altered((at, "text"), "anthropic's redacted thinking has no words")
        else:
            block = {"type": "thinking", "thinking": part.text, "signature": seal.value}
    elif seal is None and spelled(part.extras, NAME, "~signature") == "none":
        block = {"type": "thinking", "thinking": part.text}
    elif to_client:
        block = {"type": "thinking", "thinking": part.text, "signature": ""}
        if seal is not None:
            write_seal(block, seal, at, notes, to_client=True)
        else:
            notes.invented((at, "seal"), "an empty signature: anthropic's blocks have one")
    else:
        who = "unsigned" if seal is None else f"sealed by {seal.origin}"
        notes.dropped(at, f"anthropic takes back only reasoning it signed itself; this is {who}")
        return None
    add_extras(block, part.extras, NAME, at, notes)
    return block


def _encode_image(part: Image, at: At, notes: Notes) -> JsonObject:
    block: JsonObject = {"type": "image", "source": _encode_source(part, at, notes)}
    if part.detail is not None and part.detail != "auto":
        notes.dropped((at, "detail"), "anthropic has no image detail")
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=False)
    _finish_media(block, part, at, notes)
    return block


def _encode_document(part: Document, at: At, notes: Notes) -> JsonObject:
    block: JsonObject = {"type": "document", "source": _encode_source(part, at, notes)}
    if part.name is not None:
        block["title"] = part.name
    _finish_media(block, part, at, notes)
    return block


def _finish_media(block: JsonObject, part: Image | Document, at: At, notes: Notes) -> None:
    if part.cache is not None:
        block["cache_control"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.extras:
        source = block["source"]
        add_extras(block, part.extras, NAME, at, notes)
        if block["source"] is not source:  # keys of the source that only Anthropic knows
            block["source"] = source | block["source"]


def _encode_source(part: Image | Document, at: At, notes: Notes) -> JsonObject:
    source: JsonObject
    if part.data is not None:
        source = {"type": "base64", "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.file_id is not None:
        source = {"type": "file", "file_id": part.file_id}
    else:
        text = part.text if isinstance(part, Document) else None
        source = {"type": "text", "data": text or ""}
    if source["type"] in ("base64", "text"):
        if part.media_type is not None:
            source["media_type"] = part.media_type
        else:
            source["media_type"] = DEFAULT_MEDIA_TYPES[type(part)]
            notes.invented((at, "media_type"), f"anthropic demands one: {source['media_type']}")
    elif part.media_type is not None:
        notes.dropped((at, "media_type"), "anthropic takes no media type beside a url or file id")
    return source


def encode_cache(cache: Cache, at: At, notes: Notes) -> JsonObject:
    mark: JsonObject = {"type": "ephemeral"}
    ttl = encode_ttl(cache.ttl, TTLS, NAME, at, notes)
    if ttl is not None:
        mark["ttl"] = ttl
    if cache.extras:
        add_extras(mark, cache.extras, NAME, at, notes)
    return mark
