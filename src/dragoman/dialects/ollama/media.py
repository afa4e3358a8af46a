"""Ollama: pictures and sound, as plain base64 beside the text of a message.

The wire has no media type. The server reads the kind from the first bytes, and accepts audio (WAV, MP3) in `images` too
(llm/media.go at fb30760). We read the media type from the first bytes in the same way.
"""

from base64 import b64decode

from dragoman.dialects.ollama.words import NAME
from dragoman.fields import add_extras
from dragoman.model.messages import Audio, Image
from dragoman.notes import At, Notes

_MAGIC = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("SUQz", "audio/mpeg"),
    ("//", "audio/mpeg"),  # ff e0 to ff ff: an MPEG frame
    ("/+", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def sniff(data: str) -> str | None:
    """The media type, from the beginning of the base64 text."""
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    if data.startswith("UklGR") and len(data) >= 16:
        try:
            return _RIFF.get(b64decode(data[:16])[8:12])
        except ValueError:
            return None
    return None


def decode_media(value: str) -> Image | Audio:
    """Decode an entry of `images`. Ollama refuses data URLs and links here, but their meaning is clear."""
    if value.startswith(("https://", "http://")):
        return Image(url=value)
    media_type = None
    if value.startswith("data:"):
        head, _, value = value.partition(",")
        media_type = head[5:].split(";")[0] or None
    media_type = media_type or sniff(value)
    if media_type is not None and media_type.startswith("audio/"):
        return Audio(data=value, media_type=media_type)
    return Image(data=value, media_type=media_type)


def encode_media(part: Image | Audio, at: At, notes: Notes) -> str | None:
    """The base64 of a part, or None with a note. Ollama calls a link `illegal base64 data` (FIELD-CASES 83)."""
    data = part.data
    if data is None:
        notes.dropped(at, "ollama takes images as base64 only")
        return None
    found = sniff(data)
    is_audio = found is not None and found.startswith("audio/")
    if isinstance(part, Audio):
        if not is_audio:
            notes.dropped(at, "ollama takes WAV and MP3; these bytes are neither")
            return None
        for key, value in (("transcript", part.transcript), ("id", part.id)):
            if value is not None:
                notes.dropped((at, key), f"ollama's audio has no {key}")
    elif is_audio:
        notes.altered(at, f"not an image but {found}")
    elif part.detail is not None and part.detail != "auto":
        notes.dropped((at, "detail"), "ollama has no image detail")
    if part.media_type != found:
        _note_type(part.media_type, found, at, notes)
    _note_rest(part, at, notes)
    return data


def _note_type(declared: str | None, found: str | None, at: At, notes: Notes) -> None:
    at = (at, "media_type")
    if declared is None:
        notes.invented(at, f"read from the data: {found}")
    elif found is None:
        notes.dropped(at, "ollama's images have no media type, and the data does not tell")
    else:
        notes.altered(at, f"ollama's images have no media type, and the data says {found}")


def _note_rest(part: Image | Audio, at: At, notes: Notes) -> None:
    if isinstance(part, Image) and part.seal is not None:
        notes.dropped((at, "seal"), "ollama's images have no signature")
    if part.cache is not None:
        notes.dropped((at, "cache"), "ollama has no cache marks")
    if part.extras:
        add_extras({}, part.extras, NAME, at, notes)
