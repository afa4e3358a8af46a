"""Gemini generateContent: `inlineData` and `fileData`, both ways."""

from base64 import b64encode

from dragoman.dialects.gemini.spelling import to_camel, write_extras
from dragoman.dialects.gemini.words import DETAIL_WORDS, DETAILS, NAME
from dragoman.fields import leftovers, note_spelling, spelled
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Audio, Document, Image, Media, Opaque, Video
from dragoman.notes import At, Notes

# Gemini demands a media type. If the client gives none, we use the ending of the URL, else the default of the kind.
ENDINGS: dict[str, str] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
}
DEFAULTS: dict[type[Media], str] = {
    Image: "image/jpeg",
    Audio: "audio/wav",
    Video: "video/mp4",
    Document: "application/pdf",
}

# ---------------------------------------------------------------- decode


def decode_media(part: JsonObject, key: str) -> Media | Opaque:
    """Decode a part with data or a URI. Its keys are already in camelCase. The media type decides the kind of part."""
    blob = part[key]
    if type(blob) is not dict:
        return Opaque(dialect=NAME, body=part)
    to_camel(blob, part, f"{key}.")
    slot = "data" if key == "inlineData" else "fileUri"
    content = blob.get(slot)
    if type(content) is not str:
        return Opaque(dialect=NAME, body=part)
    del blob[slot]
    media_type = blob.pop("mimeType", None)
    if type(media_type) is not str:
        note_spelling(part, "mimeType", "absent" if media_type is None else media_type)
        media_type = None
    kind = kind_of_type(media_type)
    name = blob.pop("displayName") if kind is Document and type(blob.get("displayName")) is str else None
    if not blob:
        del part[key]
    if part.get("thought") is False:
        note_spelling(part, "thought", part.pop("thought"))
    detail = _take_detail(part) if kind is Image else None
    data, url = (content, None) if slot == "data" else (None, content)
    extras = leftovers(part, NAME)
    if kind is Image:
        return Image(data=data, url=url, media_type=media_type, detail=detail, extras=extras)
    if kind is Document:
        return Document(data=data, url=url, media_type=media_type, name=name, extras=extras)
    if kind is Audio:
        return Audio(data=data, url=url, media_type=media_type, extras=extras)
    return Video(data=data, url=url, media_type=media_type, extras=extras)


def kind_of_type(media_type: str | None) -> type[Media]:
    match (media_type or "").partition("/")[0].lower():
        case "image":
            return Image
        case "audio":
            return Audio
        case "video":
            return Video
        case _:
            return Document


def _take_detail(part: JsonObject) -> str | None:
    given = part.get("mediaResolution")
    if type(given) is not dict or len(given) != 1 or type(given.get("level")) is not str:
        return None
    detail = DETAILS.get(given["level"])
    if detail is not None:
        del part["mediaResolution"]
    return detail


# ---------------------------------------------------------------- encode


def encode_media(part: Media, at: At, notes: Notes, *, in_result: bool = False) -> JsonObject | None:
    """Encode a part, or a piece of a result. Pieces of results have no resolution."""
    blob: JsonObject
    if part.data is not None:
        key, blob = "inlineData", {"data": part.data}
    elif part.url is not None:
        key, blob = "fileData", {"fileUri": part.url}
    elif isinstance(part, Document) and part.text is not None:
        notes.altered(at, "gemini has no plain-text documents: said as data")
        key, blob = "inlineData", {"data": b64encode(part.text.encode()).decode()}
    else:
        notes.dropped(at, "gemini cannot read another provider's file")
        return None
    absent = spelled(part.extras, NAME, "~mimeType") if part.extras else None
    if part.media_type is not None:
        blob["mimeType"] = part.media_type
        if kind_of_type(part.media_type) is not type(part):
            notes.altered(at, f"gemini tells media apart by their type, and this is {part.media_type}")
    elif absent is None:
        blob["mimeType"] = guess_type(part)
        notes.invented((at, "media_type"), f"gemini demands one: {blob['mimeType']}")
    elif absent != "absent":
        blob["mimeType"] = absent
    block: JsonObject = {key: blob}
    _note_lost(part, at, notes)
    if isinstance(part, Document) and part.name is not None:
        blob["displayName"] = part.name
    if isinstance(part, Image) and part.detail is not None:
        _encode_detail(block, None if in_result else DETAIL_WORDS.get(part.detail), part.detail, at, notes)
    if part.extras:
        if spelled(part.extras, NAME, "~thought") is False:
            block["thought"] = False
        write_extras(block, part.extras, at, notes, key)
    return block


def guess_type(part: Media) -> str:
    if isinstance(part, Document) and part.text is not None:
        return "text/plain"
    path = (part.url or "").partition("?")[0].partition("#")[0]
    found = ENDINGS.get(path.rpartition(".")[2].lower())
    return found if found is not None and kind_of_type(found) is type(part) else DEFAULTS[type(part)]


def _encode_detail(block: JsonObject, word: str | None, detail: str, at: At, notes: Notes) -> None:
    if word is None and detail == "auto":
        return
    if word is None:
        notes.dropped((at, "detail"), f"gemini has no image detail {detail} here")
    else:
        block["mediaResolution"] = {"level": word}


def _note_lost(part: Media, at: At, notes: Notes) -> None:
    if not isinstance(part, Video) and part.cache is not None:
        notes.dropped((at, "cache"), "gemini has no cache marks")
    if isinstance(part, Audio):
        for key, value in (("id", part.id), ("transcript", part.transcript)):
            if value is not None:
                notes.dropped((at, key), f"gemini's audio has no {key}")
    if part.file_id is not None:
        notes.dropped((at, "file_id"), "gemini cannot read another provider's file")
