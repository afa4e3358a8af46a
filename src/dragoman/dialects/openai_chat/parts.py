"""OpenAI Chat Completions: content parts, both ways."""

from typing import assert_never

from dragoman.dialects._seals import take_seal, write_seal
from dragoman.dialects._settings import encode_ttl, name_document
from dragoman.dialects._tools import is_plain, opaque_word
from dragoman.dialects.openai_chat.words import AUDIO_FORMATS, AUDIO_WORDS, NAME, OWN_TTLS, TTLS
from dragoman.fields import OMIT, add_extras, leftovers, need_text, note_spelling, spelled, take_word
from dragoman.jsontypes import JsonObject
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
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- objects inside objects


def note_absent(holder: JsonObject, *keys: str) -> None:
    """Remember which keys are missing or null here, because the encoder always writes them."""
    absent = [key for key in keys if holder.get(key) is None]
    if absent:
        nulls = [key for key in absent if key in holder]
        for key in nulls:
            del holder[key]
        holder[OMIT] = absent
        for key in nulls:  # after OMIT, so that they are written again
            holder[key] = None


def keep_inner(holder: JsonObject, key: str, inner: JsonObject) -> None:
    """Keep the rest of an inner object. Its nulls are spelling; the other keys are extras of the outer object."""
    if not inner:
        return
    nulls = [name for name, value in inner.items() if value is None]
    for name in nulls:
        del inner[name]
    if nulls:
        note_spelling(holder, f"{key}.null", nulls)
    if inner:
        holder[key] = inner


def add_outer(body: JsonObject, extras: Extras, key: str, at: At, notes: Notes) -> None:
    """Add a value's extras. The extras under `key` are merged into the object that we wrote there."""
    inner = body.get(key)
    add_extras(body, extras, NAME, at, notes)
    own = extras.get(NAME)
    if own is None or type(inner) is not dict:
        return
    if key in own and type(own[key]) is dict:
        body[key] = {**inner, **own[key]}
    for name in own.get(f"~{key}.null", ()):
        body[key].setdefault(name, None)


# ---------------------------------------------------------------- decode


def decode_part(block: JsonObject) -> Part:
    match block.get("type"):
        case "text" if type(block.get("text")) is str:
            return _decode_text(block)
        case "image_url" if _holds(block, "image_url", "url"):
            return decode_image(block)
        case "refusal" if type(block.get("refusal")) is str:
            del block["type"]
            note_spelling(block, "place", "content")
            return Refusal(text=block.pop("refusal"), extras=leftovers(block, NAME))
        case "thinking" if type(block.get("thinking")) is list:
            return decode_thinking(block)
        case "input_audio" if _holds(block, "input_audio", "data"):
            return _decode_audio(block)
        case "file" if type(block.get("file")) is dict:
            return _decode_file(block)
        case "video_url" if type(block.get("video_url")) is dict and _holds(block, "video_url", "url"):
            return _decode_video(block)
        case kind:
            if kind == "text":
                need_text(block.get("text"), "text")
            return Opaque(dialect=NAME, body=block)  # a new kind of part, or one server's own: carried whole


def _holds(block: JsonObject, place: str, key: str) -> bool:
    """Whether the part has its URL or data. Mistral writes a string in place of the object."""
    inner = block.get(place)
    return type(inner.get(key) if type(inner) is dict else inner) is str


def _decode_text(block: JsonObject) -> Text:
    del block["type"]
    text = block.pop("text")
    if not block:  # fast path: chat text block
        return Text(text=text)
    return Text(text=text, seal=take_seal(block), cache=take_cache(block), extras=leftovers(block, NAME))


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and data of a base64 data URL that we would write back the same. None for any other URL."""
    if url[:5] != "data:":
        return None
    head, comma, data = url[5:].partition(",")
    media_type, mark, rest = head.partition(";base64")
    if not comma or not media_type or not mark or rest or ";" in media_type:
        return None
    return media_type, data


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def _take_url(holder: JsonObject, key: str) -> tuple[str | None, str | None, str | None]:
    """Take a URL or data URL as data, url and media type."""
    url = take_word(holder, key)
    split = split_data_url(url) if url is not None else None
    return (None, url, None) if split is None else (split[1], None, split[0])


def decode_image(block: JsonObject) -> Image:
    del block["type"]
    inner = block.pop("image_url")
    if type(inner) is str:  # Mistral
        note_spelling(block, "image_url", "string")
        inner = {"url": inner}
    data, url, media_type = _take_url(inner, "url")
    detail = take_word(inner, "detail")
    keep_inner(block, "image_url", inner)
    return Image(
        data=data,
        url=url,
        media_type=media_type,
        detail=detail,
        seal=take_seal(block) if block else None,
        cache=take_cache(block) if block else None,
        extras=leftovers(block, NAME),
    )


def _decode_audio(block: JsonObject) -> Audio:
    del block["type"]
    inner = block.pop("input_audio")
    if type(inner) is str:  # Mistral
        note_spelling(block, "input_audio", "string")
        return Audio(data=inner, cache=take_cache(block), extras=leftovers(block, NAME))
    data, form = take_word(inner, "data"), take_word(inner, "format")
    media_type = None
    if form is not None:
        media_type = AUDIO_FORMATS.get(form)
        if media_type is None:
            media_type = f"audio/{form}"
            note_spelling(block, "format", form)
    keep_inner(block, "input_audio", inner)
    return Audio(data=data, media_type=media_type, cache=take_cache(block), extras=leftovers(block, NAME))


def _decode_file(block: JsonObject) -> Document:
    del block["type"]
    inner = block.pop("file")
    data, url, media_type = _take_url(inner, "file_data")
    if url is not None:
        if url.startswith(("http://", "https://")):  # OpenRouter
            note_spelling(block, "file_data", "url")
        else:
            note_spelling(block, "file_data", "raw")
            data, url = url, None
    name = take_word(inner, "filename")
    file_id = take_word(inner, "file_id")
    if name is None:
        note_spelling(block, "filename", "absent")
    keep_inner(block, "file", inner)
    return Document(
        data=data,
        url=url,
        file_id=file_id,
        media_type=media_type,
        name=name,
        cache=take_cache(block),
        extras=leftovers(block, NAME),
    )


def _decode_video(block: JsonObject) -> Video:
    """OpenAI has no video parts; vLLM, OpenRouter and others do."""
    del block["type"]
    inner = block.pop("video_url")
    data, url, media_type = _take_url(inner, "url")
    note_spelling(block, "form", "video_url")
    keep_inner(block, "video_url", inner)
    return Video(data=data, url=url, media_type=media_type, extras=leftovers(block, NAME))


def decode_thinking(block: JsonObject) -> Reasoning:
    """Mistral puts its thinking into the content, as a list of texts."""
    del block["type"]
    pieces = block.pop("thinking")
    text = thinking_text(pieces)
    if pieces != [{"type": "text", "text": text}]:
        note_spelling(block, "thinking", pieces)
    note_spelling(block, "name", "content")
    return Reasoning(text=text, extras=leftovers(block, NAME))


def thinking_text(pieces: list[object]) -> str:
    texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def take_cache(holder: JsonObject) -> Cache | None:
    """Take `prompt_cache_breakpoint`, or the `cache_control` of OpenRouter and others."""
    key, constant = "prompt_cache_breakpoint", ("mode", "explicit")
    mark = holder.get(key)
    if mark is None:
        key, constant = "cache_control", ("type", "ephemeral")
        mark = holder.get(key)
    if type(mark) is not dict or mark.get(constant[0]) != constant[1]:
        return None
    del holder[key], mark[constant[0]]
    if key == "cache_control":
        note_spelling(mark, "key", key)
        ttl = take_word(mark, "ttl")
    else:  # a ttl we do not know stays an extra
        ttl = take_word(mark, "ttl") if mark.get("ttl") in OWN_TTLS else None
    return Cache(ttl=ttl, extras=leftovers(mark, NAME))


# ---------------------------------------------------------------- encode


def encode_part(part: Part, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject | None:
    """One part of a content list. None if Chat has no such part there."""
    match part:
        case Text():
            return encode_text(part, at, notes, to_client=to_client)
        case Image():
            return encode_image(part, at, notes, to_client=to_client)
        case Document():
            return _encode_document(part, at, notes)
        case Audio():
            return _encode_audio(part, at, notes)
        case Video():
            return _encode_video(part, at, notes)
        case Opaque() if part.dialect == NAME:
            return part.body
        case Refusal():
            block: JsonObject = {"type": "text", "text": part.text}
            notes.altered(at, "only the assistant has refusals: said as text")
            add_extras(block, part.extras, NAME, at, notes)
            return block
        case Opaque():
            notes.dropped(at, f"only {part.dialect} has {opaque_word(part)}")
            return None
        case Reasoning() | ToolCall() | ToolResult():
            notes.dropped(at, "openai_chat has no place for it in this turn")
            return None
        case _:
            assert_never(part)


def encode_text(part: Text, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject:
    block: JsonObject = {"type": "text", "text": part.text}
    if is_plain(part):
        return block
    if part.citations:
        notes.dropped((at, "citations"), "openai_chat has annotations in replies only")
    if part.logprobs is not None:
        notes.dropped((at, "logprobs"), "openai_chat has logprobs in replies only")
    finish_block(block, part, at, notes, to_client=to_client)
    add_extras(block, part.extras, NAME, at, notes)
    return block


def finish_block(block: JsonObject, part: Text | Image, at: At, notes: Notes, *, to_client: bool) -> None:
    if part.cache is not None:
        add_cache(block, part.cache, (at, "cache"), notes)
    if part.seal is not None:
        write_seal(block, part.seal, at, notes, to_client=to_client)


def encode_image(part: Image, at: At, notes: Notes, *, to_client: bool = False) -> JsonObject | None:
    if part.data is not None:
        media_type = part.media_type
        if media_type is None:
            media_type = "image/png"
            notes.invented((at, "media_type"), "a data URL has one: image/png")
        url = data_url(media_type, part.data)
    elif part.url is not None:
        url = part.url
        if part.media_type is not None:
            notes.dropped((at, "media_type"), "openai_chat takes no media type beside a url")
    else:
        notes.dropped(at, "openai_chat takes images by url or data, not by file id")
        return None
    inner: JsonObject = {"url": url}
    if part.detail is not None:
        inner["detail"] = part.detail
    block: JsonObject = {"type": "image_url", "image_url": inner}
    finish_block(block, part, at, notes, to_client=to_client)
    if part.extras:
        add_outer(block, part.extras, "image_url", at, notes)
        if spelled(part.extras, NAME, "~image_url") == "string":
            block["image_url"] = url
    return block


def _encode_document(part: Document, at: At, notes: Notes) -> JsonObject | None:
    if part.text is not None:
        return _encode_text_document(part, part.text, at, notes)
    inner: JsonObject = {}
    if part.data is not None:
        if spelled(part.extras, NAME, "~file_data") == "raw":
            inner["file_data"] = part.data
        else:
            media_type = part.media_type
            if media_type is None:
                media_type = "application/pdf"
                notes.invented((at, "media_type"), "a data URL has one: application/pdf")
            inner["file_data"] = data_url(media_type, part.data)
    elif part.url is not None:
        if spelled(part.extras, NAME, "~file_data") != "url":
            notes.dropped(at, "openai_chat takes files by data or id, not by url")
            return None
        inner["file_data"] = part.url
    if part.file_id is not None:
        inner["file_id"] = part.file_id
    if part.media_type is not None and part.data is None:
        notes.dropped((at, "media_type"), "openai_chat takes no media type beside a file id")
    if part.name is not None:
        inner["filename"] = part.name
    elif part.data is not None and spelled(part.extras, NAME, "~filename") is None:
        inner["filename"] = name_document(part.media_type)
        notes.invented((at, "name"), "openai_chat demands a file name beside the data")
    block: JsonObject = {"type": "file", "file": inner}
    if part.cache is not None:
        add_cache(block, part.cache, (at, "cache"), notes)
    if part.extras:
        add_outer(block, part.extras, "file", at, notes)
    return block


def _encode_text_document(part: Document, text: str, at: At, notes: Notes) -> JsonObject:
    notes.altered(at, "openai_chat has no plain text documents: said as text")
    block: JsonObject = {"type": "text", "text": text if part.name is None else f"{part.name}:\n\n{text}"}
    if part.cache is not None:
        add_cache(block, part.cache, (at, "cache"), notes)
    add_extras(block, part.extras, NAME, at, notes)
    return block


def _encode_audio(part: Audio, at: At, notes: Notes) -> JsonObject | None:
    if part.data is None:
        notes.dropped(at, "openai_chat takes audio by data only")
        return None
    for key in ("id", "transcript"):
        if getattr(part, key) is not None:
            notes.dropped((at, key), f"openai_chat's spoken input has no {key}")
    block: JsonObject
    if spelled(part.extras, NAME, "~input_audio") == "string":
        block = {"type": "input_audio", "input_audio": part.data}
    else:
        form = _audio_format(part, at, notes)
        if form is None:
            return None
        block = {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}
    if part.cache is not None:
        add_cache(block, part.cache, (at, "cache"), notes)
    add_outer(block, part.extras, "input_audio", at, notes)
    return block


def _audio_format(part: Audio, at: At, notes: Notes) -> str | None:
    own = spelled(part.extras, NAME, "~format")
    if type(own) is str:
        return own
    if part.media_type is None:
        notes.invented((at, "media_type"), "openai_chat demands a format: wav")
        return "wav"
    form = AUDIO_WORDS.get(part.media_type)
    if form is None:
        notes.dropped(at, f"openai_chat takes wav and mp3, not {part.media_type}")
    elif AUDIO_FORMATS[form] != part.media_type:
        notes.altered((at, "media_type"), f"openai_chat calls it {form}")
    return form


def _encode_video(part: Video, at: At, notes: Notes) -> JsonObject | None:
    if spelled(part.extras, NAME, "~form") != "video_url":
        notes.dropped(at, "openai_chat takes no video")
        return None
    inner: JsonObject = {}
    if part.data is not None:
        inner["url"] = data_url(part.media_type or "video/mp4", part.data)
    elif part.url is not None:
        inner["url"] = part.url
    block: JsonObject = {"type": "video_url", "video_url": inner}
    add_outer(block, part.extras, "video_url", at, notes)
    return block


def encode_thinking(part: Reasoning, at: At, notes: Notes) -> JsonObject:
    pieces = spelled(part.extras, NAME, "~thinking")
    if pieces is None or thinking_text(pieces) != part.text:
        pieces = [{"type": "text", "text": part.text}]
    block: JsonObject = {"type": "thinking", "thinking": pieces}
    add_extras(block, part.extras, NAME, at, notes)
    return block


def add_cache(block: JsonObject, cache: Cache, at: At, notes: Notes) -> None:
    key, mark = "prompt_cache_breakpoint", {"mode": "explicit"}
    if spelled(cache.extras, NAME, "~key") == "cache_control":
        key, mark = "cache_control", {"type": "ephemeral"}
    ttl = encode_ttl(cache.ttl, TTLS, NAME, at, notes) if key != "cache_control" else cache.ttl
    if ttl is not None:
        mark["ttl"] = ttl
    if cache.extras:
        add_extras(mark, cache.extras, NAME, at, notes)
    block[key] = mark
