"""Any value a tool may return, as the parts of a ToolResult, and never more of it than a model can take."""

import base64
import mimetypes
import re
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.model.messages import Audio, Document, Image, Media, Opaque, Part, Text, ToolCall, ToolResult, Video

RESULT_BYTES = 256 * 1024  # RELIABILITY 2.2: of text
MEDIA_BYTES = 4 * 1024 * 1024  # of all pictures and files of a result: the strictest provider takes 5 MB each

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
)
_CUT = re.compile(r"\n\[cut: the result has \d+ bytes, \d+ are shown\]\Z")
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_PARTS = (Text, Image, Document, Audio, Video)


class File(Struct, frozen=True):
    """A file to show to the model. A bare path is only its name: nothing is read that was not meant to be."""

    path: str | PathLike[str]
    media_type: str | None = None


def make_result(call: ToolCall, value: Any) -> ToolResult:
    """DragomanError when there is no way to say the value."""
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, freeform=call.freeform)
    return ToolResult(call_id=call.id, parts=make_parts(value), freeform=call.freeform)


def fail(call: ToolCall, words: str) -> ToolResult:
    """An error result: the model reads it and may try again."""
    return ToolResult(call_id=call.id, parts=(Text(text=words),), failed=True, freeform=call.freeform)


def make_parts(value: Any) -> tuple[Part, ...]:
    one = _one_part(value)
    if one is not None:
        return (one,)
    if isinstance(value, list | tuple) and any(_is_media(item) for item in value):
        return tuple(part for item in value for part in make_parts(item))
    return (Text(text=dump(value)),)


def _is_media(value: Any) -> bool:
    return isinstance(value, (*_PARTS, bytes, bytearray, memoryview, File)) or _is_picture(value)


def _one_part(value: Any) -> Part | None:
    match value:
        case str():
            return Text(text=value)
        case Text() | Image() | Document() | Audio() | Video():
            return value
        case bytes() | bytearray() | memoryview():
            return part_of_bytes(bytes(value))
        case File():
            return read_file(value)
        case _ if _is_picture(value):
            return part_of_bytes(_draw(value))
        case _:
            return None


def dump(value: Any) -> str:
    """JSON, with what is not JSON in the words it has for itself."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except RecursionError as error:
        raise DragomanError("the result holds itself or is nested too deeply") from error
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise DragomanError(f"the result cannot be said as JSON: {error}") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PathLike | complex | BaseException):
        return fspath(value) if isinstance(value, PathLike) else str(value)
    if hasattr(value, "tolist"):  # numpy and its kin: arrays and scalars
        return value.tolist()
    if hasattr(value, "__iter__") and not isinstance(value, type):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")


def _is_picture(value: Any) -> bool:
    """A PIL image, without importing PIL."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "save")


def _draw(picture: Any) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def sniff(data: bytes) -> str | None:
    """The media type the first bytes tell."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return next((kind for start, kind in _MAGIC if data.startswith(start)), None)


def part_of_bytes(data: bytes, media_type: str | None = None, name: str | None = None) -> Part:
    """A picture, a sound, a document or text, as its bytes or its name tell."""
    kind = media_type or sniff(data) or (mimetypes.guess_type(name)[0] if name else None)
    main = (kind or "").partition("/")[0]
    if main in ("image", "audio", "video") and kind != "image/svg+xml":
        encoded = base64.b64encode(data).decode()
        match main:
            case "image":
                return Image(data=encoded, media_type=kind)
            case "audio":
                return Audio(data=encoded, media_type=kind)
            case _:
                return Video(data=encoded, media_type=kind)
    if kind != "application/pdf":
        try:
            return Text(text=data.decode())
        except UnicodeDecodeError as error:
            if len(data) > MEDIA_BYTES and error.start > MEDIA_BYTES - 4:  # read_file cut it in a character
                return Text(text=data[: error.start].decode())
    encoded = base64.b64encode(data).decode()
    return Document(data=encoded, media_type=kind or "application/octet-stream", name=name)


def read_file(file: File) -> Part:
    path = Path(file.path)
    try:
        with path.open("rb") as handle:
            data = handle.read(MEDIA_BYTES + 1)
    except OSError as error:
        raise DragomanError(f"the file {path.name} cannot be read: {error.strerror}") from error
    return part_of_bytes(data, file.media_type, path.name)


# ---------------------------------------------------------------- never more than a model can take


def limit(result: ToolResult, text_bytes: int = RESULT_BYTES, media_bytes: int = MEDIA_BYTES) -> ToolResult:
    """The same result, its text cut and its pictures left out where they are more than allowed, and saying so."""
    text_left, media_left = text_bytes, media_bytes
    parts: list[Part] = []
    for part in result.parts:
        if isinstance(part, Text):
            kept, text_left = _cut(part, text_left)
            parts.append(kept)
        elif isinstance(part, Media):
            size = _size(part)
            if size <= media_left:
                media_left -= size
                parts.append(part)
            else:
                parts.append(Text(text=f"[left out: {part.media_type or 'a file'} of {size} bytes, too large to show]"))
        elif not isinstance(part, Opaque):
            parts.append(part)
    if len(parts) == len(result.parts) and all(a is b for a, b in zip(parts, result.parts, strict=True)):
        return result
    return replace(result, parts=tuple(parts))


def _cut(part: Text, left: int) -> tuple[Text, int]:
    text = part.text
    data = text.encode("utf-8", "replace") if not text.isascii() or len(text) > left else b""
    size = len(data) or len(text)
    if size <= left:
        return part, left - size
    done = _CUT.search(text)
    if done is not None and size - len(done[0]) <= left:
        return part, 0  # the tool has cut it already, and says from what
    shown = data[: max(left, 0)].decode("utf-8", "ignore")
    return Text(text=f"{shown}\n[cut: the result has {size} bytes, {max(left, 0)} are shown]"), 0


def _size(part: Media) -> int:
    data = part.data or ""
    return len(data) * 3 // 4 + len(getattr(part, "text", None) or "")
