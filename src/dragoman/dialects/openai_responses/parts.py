"""OpenAI Responses: the content of a message, both ways.

Users and tools have input parts (`input_text`, `input_image`, `input_file`). The model has output parts (`output_text`,
`refusal`): "assistant history must be output_text or refusal" (FIELD-CASES 133).
"""

from base64 import b64encode
from collections.abc import Iterable

from dragoman.dialects._seals import take_seal, write_seal
from dragoman.dialects._settings import encode_ttl, name_document
from dragoman.dialects.openai_responses.words import (
    CONTENT_PREFIXES,
    CONTENT_TYPES,
    NAME,
    TEXT_TYPES,
    TTLS,
)
from dragoman.fields import (
    OMIT,
    add_extras,
    decode_each,
    drop_constant,
    leftovers,
    listed,
    need_text,
    note_omitted,
    note_spelling,
    spelled,
    take_integer_or_none,
    take_list_or_none,
    take_number_or_none,
    take_one,
    take_text,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import (
    Cache,
    Citation,
    Document,
    Extras,
    Image,
    Opaque,
    Part,
    Refusal,
    Text,
    TokenLogprob,
)
from dragoman.notes import At, Notes

# Keys of an item that its first or last part keeps (see items.py). They are never keys of the part itself.
ITEM_KEYS = ("id", "status", "phase", "item")

# ---------------------------------------------------------------- decode


def is_content(block: object) -> bool:
    """Whether an object can only be a piece of content, not an item."""
    kind = block.get("type") if type(block) is dict else None
    return type(kind) is str and (kind.startswith(CONTENT_PREFIXES) or kind in CONTENT_TYPES)


def is_message_block(block: object) -> bool:
    """Whether an object is a text or a refusal: the parts of a model's message that we know."""
    if type(block) is not dict:
        return False
    kind = block.get("type")
    if kind == "refusal":
        return type(block.get("refusal")) is str
    return kind in TEXT_TYPES and type(block.get("text")) is str


def decode_content(blocks: list[JsonObject], key: str, text_type: str) -> tuple[Part, ...]:
    """Decode a list of content. `text_type` is the type that text has at this place."""

    def decode(block: JsonObject) -> Part:
        return decode_block(block, text_type)

    return decode_each(blocks, key, decode)


def decode_block(block: JsonObject, text_type: str) -> Part:
    kind = block.get("type")
    if kind in TEXT_TYPES:
        if type(block.get("text")) is str:
            return _decode_text(block, text_type)
        need_text(block.get("text"), "text")
    if kind == "input_image" and _has_one(block, "image_url", "file_id"):
        return _decode_image(block)
    if kind == "input_file" and _has_one(block, "file_data", "file_url", "file_id"):
        return _decode_document(block)
    if kind == "refusal" and type(block.get("refusal")) is str:
        return _decode_refusal(block)
    return Opaque(dialect=NAME, body=block)  # a new kind of content: carried whole, not refused


def _has_one(block: JsonObject, *keys: str) -> bool:
    values = [block[key] for key in keys if block.get(key) is not None]
    return len(values) == 1 and type(values[0]) is str


def _decode_text(block: JsonObject, text_type: str) -> Text:
    kind, text = block.pop("type"), block.pop("text")
    _set_clashes_apart(block)
    if kind != text_type:
        note_spelling(block, "type", kind)
    if kind != "output_text":
        if not block:  # fast path: responses text
            return Text(text=text)
        seal, cache = take_seal(block), take_cache(block)
        return Text(text=text, seal=seal, cache=cache, extras=leftovers(block, NAME))
    note_omitted(block, block, "annotations")
    citations = decode_each(take_list_or_none(block, "annotations") or [], "annotations", decode_citation)
    logprobs = take_list_or_none(block, "logprobs")
    if logprobs == []:
        note_spelling(block, "logprobs", "empty")
    return Text(
        text=text,
        citations=citations,
        logprobs=decode_each(logprobs, "logprobs", decode_logprob) if logprobs else None,
        seal=take_seal(block),
        extras=leftovers(block, NAME),
    )


def _decode_refusal(block: JsonObject) -> Refusal:
    del block["type"]
    text = block.pop("refusal")
    _set_clashes_apart(block)
    return Refusal(text=text, extras=leftovers(block, NAME))


def _set_clashes_apart(block: JsonObject) -> None:
    """Move keys of the part, such as `id` or `status`, that have the same name as keys of its item."""
    if block:
        clashes = {key: block.pop(key) for key in (*ITEM_KEYS, "part") if key in block}
        if clashes:
            block["part"] = clashes


def decode_citation(citation: JsonObject) -> Citation:
    """Decode a `url_citation`. Of other kinds we read only the span; the rest stays an extra."""
    if citation.get("type") == "url_citation":
        note_omitted(citation, citation, "url", "title", "start_index", "end_index")
        del citation["type"]
    else:
        note_spelling(citation, "kind", "other")
    return Citation(
        url=take_text_or_none(citation, "url"),
        title=take_text_or_none(citation, "title"),
        start=take_integer_or_none(citation, "start_index"),
        end=take_integer_or_none(citation, "end_index"),
        extras=leftovers(citation, NAME),
    )


def decode_logprob(token: JsonObject) -> TokenLogprob:
    note_omitted(token, token, "logprob", "bytes", "top_logprobs")
    return _decode_logprob(token)


def _decode_logprob(token: JsonObject) -> TokenLogprob:
    given, top = take_list_or_none(token, "bytes"), take_list_or_none(token, "top_logprobs")
    return TokenLogprob(
        token=take_text(token, "token"),
        logprob=take_number_or_none(token, "logprob") or 0.0,
        bytes=None if given is None else tuple(given),
        top=None if top is None else decode_each(top, "top_logprobs", _decode_top),
        extras=leftovers(token, NAME),
    )


def _decode_top(token: JsonObject) -> TokenLogprob:
    note_omitted(token, token, "logprob", "bytes")
    return _decode_logprob(token)


def _decode_image(block: JsonObject) -> Image:
    del block["type"]
    url, data, media_type = take_text_or_none(block, "image_url"), None, None
    inline = split_data_url(url) if url is not None else None
    if inline is not None:
        url, (media_type, data) = None, inline
    note_omitted(block, block, "detail")
    return Image(
        data=data,
        url=url,
        file_id=take_text_or_none(block, "file_id"),
        media_type=media_type,
        detail=take_text_or_none(block, "detail"),
        seal=take_seal(block),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _decode_document(block: JsonObject) -> Document:
    del block["type"]
    data, media_type = take_text_or_none(block, "file_data"), None
    if data is not None:
        inline = split_data_url(data)
        if inline is not None:
            media_type, data = inline
        else:
            note_spelling(block, "file_data", "bare")
        note_omitted(block, block, "filename")
    return Document(
        data=data,
        url=take_text_or_none(block, "file_url"),
        file_id=take_text_or_none(block, "file_id"),
        media_type=media_type,
        name=take_text_or_none(block, "filename"),
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def split_data_url(url: str) -> tuple[str, str] | None:
    """`data:image/png;base64,...` -> media type and base64; None for any other URL."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    media_type = head[5:-7] if head.endswith(";base64") else ""
    return (media_type, data) if comma and media_type and ";" not in media_type else None


def take_cache(block: JsonObject) -> Cache | None:
    if type(block.get("prompt_cache_breakpoint")) is not dict:
        return None
    return take_one(block, "prompt_cache_breakpoint", _decode_cache)


def _decode_cache(mark: JsonObject) -> Cache:
    note_omitted(mark, mark, "mode")
    drop_constant(mark, "mode", "explicit")
    return Cache(ttl=take_text_or_none(mark, "ttl"), extras=leftovers(mark, NAME))


# ---------------------------------------------------------------- encode: input parts


def encode_input(
    parts: Iterable[tuple[int, Part]], at: At, notes: Notes, *, demand_detail: bool = True
) -> list[JsonObject]:
    """Encode parts with their places as input content. A part without a form here is left out, with a note."""
    blocks = []
    for i, part in parts:
        block = _encode_input_part(part, (at, i), notes, demand_detail)
        if block is not None:
            blocks.append(block)
    return blocks


def _encode_input_part(part: Part, at: At, notes: Notes, demand_detail: bool) -> JsonObject | None:
    match part:
        case Text():
            return _encode_input_text(part, at, notes)
        case Image():
            return _encode_image(part, at, notes, demand_detail)
        case Document():
            return _encode_document(part, at, notes)
        case Refusal():
            notes.altered(at, "only the model has refusals in responses: said as text")
            block: JsonObject = {"type": "input_text", "text": part.text}
            if part.logprobs is not None:
                notes.dropped((at, "logprobs"), "responses' input has no logprobs")
            add_extras(block, part.extras, NAME, at, notes)
            return block
        case Opaque() if part.dialect == NAME and is_content(part.body):
            return part.body
        case _:
            notes.dropped(at, f"responses takes no {word_of(part)} here")
            return None


def word_of(part: Part) -> str:
    """The name of a part, for a note."""
    if isinstance(part, Opaque):
        kind = part.body.get("type")
        return f"{part.dialect} {kind}" if type(kind) is str else f"part of {part.dialect}"
    return type(part).__name__.lower()


def _encode_input_text(part: Text, at: At, notes: Notes) -> JsonObject:
    block: JsonObject = {"type": spelled(part.extras, NAME, "~type") or "input_text", "text": part.text}
    if part.cache is not None:
        block["prompt_cache_breakpoint"] = encode_cache(part.cache, (at, "cache"), notes)
    if block["type"] == "output_text":
        _add_output_fields(block, part, at, notes)
    else:
        if part.citations:
            notes.dropped((at, "citations"), "responses' input has no citations")
        if part.logprobs is not None:
            notes.dropped((at, "logprobs"), "responses' input has no logprobs")
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=False)
    if part.extras:
        add_part_extras(block, part.extras, at, notes)
    return block


def _encode_image(part: Image, at: At, notes: Notes, demand_detail: bool) -> JsonObject:
    block: JsonObject = {"type": "input_image"}
    if part.data is not None:
        if part.media_type is None:
            notes.invented((at, "media_type"), "a data URL has one: image/png")
        block["image_url"] = f"data:{part.media_type or 'image/png'};base64,{part.data}"
    else:
        if part.url is not None:
            block["image_url"] = part.url
        else:
            block["file_id"] = part.file_id
        if part.media_type is not None:
            notes.dropped((at, "media_type"), "responses takes no media type beside a url or file id")
    if part.detail is not None:
        block["detail"] = part.detail
    elif demand_detail and not is_omitted(part.extras, "detail"):
        block["detail"] = "auto"  # required here; "auto" is the default
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=False)
    if part.cache is not None:
        block["prompt_cache_breakpoint"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.extras:
        add_extras(block, part.extras, NAME, at, notes)
    return block


def _encode_document(part: Document, at: At, notes: Notes) -> JsonObject:
    block: JsonObject = {"type": "input_file"}
    if part.data is not None or part.text is not None:
        block["file_data"] = _encode_file(part, at, notes)
    else:
        if part.url is not None:
            block["file_url"] = part.url
        else:
            block["file_id"] = part.file_id
        if part.media_type is not None:
            notes.dropped((at, "media_type"), "responses takes no media type beside a url or file id")
    if part.name is not None:
        block["filename"] = part.name
    elif "file_data" in block and not is_omitted(part.extras, "filename"):
        block["filename"] = name_document(part.media_type)
        notes.invented((at, "name"), "responses wants a name beside a file's data")
    if part.cache is not None:
        block["prompt_cache_breakpoint"] = encode_cache(part.cache, (at, "cache"), notes)
    if part.extras:
        add_extras(block, part.extras, NAME, at, notes)
    return block


def _encode_file(part: Document, at: At, notes: Notes) -> str:
    if part.data is None:
        notes.altered(at, "responses has no plain text documents: said as a file")
        encoded = b64encode((part.text or "").encode()).decode()
        return f"data:{part.media_type or 'text/plain'};base64,{encoded}"
    if spelled(part.extras, NAME, "~file_data") == "bare":
        return part.data
    if part.media_type is None:
        notes.invented((at, "media_type"), "a data URL has one: application/pdf")
    return f"data:{part.media_type or 'application/pdf'};base64,{part.data}"


def is_omitted(extras: Extras, key: str) -> bool:
    """Whether a Responses body came without this key, or with null."""
    own = extras.get(NAME)
    return own is not None and (key in own or key in listed(own, OMIT))


def encode_cache(cache: Cache, at: At, notes: Notes, *, mode: str = "explicit") -> JsonObject:
    mark: JsonObject = {"mode": mode}
    ttl = encode_ttl(cache.ttl, TTLS, "openai", at, notes)
    if ttl is not None:
        mark["ttl"] = ttl
    if cache.extras:
        add_extras(mark, cache.extras, NAME, at, notes)
    return mark


# ---------------------------------------------------------------- encode: output parts


def encode_output(part: Text | Refusal, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    """Encode a part of an assistant message."""
    block: JsonObject
    match part:
        case Text():
            block = {"type": spelled(part.extras, NAME, "~type") or "output_text", "text": part.text}
            if block["type"] == "output_text":
                _add_output_fields(block, part, at, notes)
            if part.cache is not None:
                notes.dropped((at, "cache"), "responses has no cache marks on what the model said")
            if part.seal is not None:
                write_seal(block, part.seal, at, notes, to_client=to_client)
        case Refusal():
            block = {"type": "refusal", "refusal": part.text}
            if part.logprobs is not None:
                notes.dropped((at, "logprobs"), "responses' refusals have no logprobs")
    if part.extras:
        add_part_extras(block, part.extras, at, notes)
    return block


def _add_output_fields(block: JsonObject, part: Text, at: At, notes: Notes) -> None:
    if part.citations or not is_omitted(part.extras, "annotations"):
        block["annotations"] = encode_citations(part, at, notes)
    if part.logprobs:
        block["logprobs"] = encode_logprobs(part.logprobs, (at, "logprobs"), notes)
    elif part.logprobs is not None:
        block["logprobs"] = []
        notes.dropped((at, "logprobs"), "an empty list says nothing in responses")
    elif spelled(part.extras, NAME, "~logprobs") == "empty":
        block["logprobs"] = []


def encode_citations(part: Text, at: At, notes: Notes) -> list[JsonObject]:
    encoded = []
    for i, citation in enumerate(part.citations):
        body = _encode_citation(citation, len(part.text), ((at, "citations"), i), notes)
        if body is not None:
            encoded.append(body)
    if part.citations and not encoded:
        notes.dropped((at, "citations"), "openai_chat has no form for any of them")
    return encoded


CITED = ("url", "title", "start_index", "end_index")


def _encode_citation(citation: Citation, length: int, at: At, notes: Notes) -> JsonObject | None:
    if citation.quote is not None:
        notes.dropped((at, "quote"), "responses' citations have no quote")
    values = (citation.url, citation.title, citation.start, citation.end)
    body: JsonObject = {key: value for key, value in zip(CITED, values, strict=True) if value is not None}
    extras = citation.extras
    if spelled(extras, NAME, "~kind") is None:
        if citation.url is None and not is_omitted(extras, "url"):
            notes.dropped(at, "responses cites a url, and this names none")
            return None
        body["type"] = "url_citation"
        # A citation without a span is about the whole text.
        missing = {"title": "", "start_index": 0, "end_index": length}
        missing = {key: value for key, value in missing.items() if key not in body and not is_omitted(extras, key)}
        if missing:
            body |= missing
            notes.invented(at, "a span or title that responses demands")
    add_extras(body, extras, NAME, at, notes)
    return body


def encode_logprobs(tokens: tuple[TokenLogprob, ...], at: At, notes: Notes) -> list[JsonObject]:
    """Encode logprobs. Responses demands bytes and alternatives for every token; one note covers all tokens."""
    encoded, invented = [], False
    for i, token in enumerate(tokens):
        body = _encode_logprob(token, (at, i), notes)
        if "top_logprobs" not in body and not is_omitted(token.extras, "top_logprobs"):
            body["top_logprobs"], invented = [], True
        for ours, wire in ((token, body), *zip(token.top or (), body.get("top_logprobs") or (), strict=False)):
            if "bytes" not in wire and not is_omitted(ours.extras, "bytes"):
                wire["bytes"], invented = list(ours.token.encode()), True
        encoded.append(body)
    if invented:
        notes.invented(at, "bytes or alternatives that responses demands")
    return encoded


def _encode_logprob(token: TokenLogprob, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"token": token.token, "logprob": token.logprob}
    if token.bytes is not None:
        body["bytes"] = list(token.bytes)
    if token.top is not None:
        body["top_logprobs"] = [_encode_logprob(top, ((at, "top"), i), notes) for i, top in enumerate(token.top)]
    if token.extras:
        add_extras(body, token.extras, NAME, at, notes)
    return body


def add_part_extras(block: JsonObject, extras: Extras, at: At, notes: Notes) -> None:
    """Add a part's extras without the keys of its item, which items.py writes."""
    own = extras.get(NAME)
    if own is not None:
        kept = {key: value for key, value in own.items() if key not in ITEM_KEYS and key != "part"}
        extras = {**extras, NAME: {**kept, **own.get("part", {})}}
    add_extras(block, extras, NAME, at, notes)
