"""Any value that a tool returns, as the parts of a ToolResult. Too large results are cut."""

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

RESULT_BYTES = 256 * 1024  # of text (RELIABILITY 2.2)
MEDIA_BYTES = 4 * 1024 * 1024  # of all pictures and files in a result: the strictest provider accepts 5 MB for each

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
_CUT_NOTE = re.compile(r"\n\[cut: the result has \d+ bytes, \d+ are shown\]\Z")
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_PART_TYPES = (Text, Image, Document, Audio, Video)


class File(Struct, frozen=True):
    """A file to show to the model. Return it explicitly: a plain path is only text, and the file is not read."""

    path: str | PathLike[str]
    media_type: str | None = None


def make_result(call: ToolCall, value: Any) -> ToolResult:
    """DragomanError if the value cannot be expressed as JSON."""
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, freeform=call.freeform)
    return ToolResult(call_id=call.id, parts=make_parts(value), freeform=call.freeform)


def make_failed_result(call: ToolCall, text: str) -> ToolResult:
    """A result that tells the model what went wrong, so that it can try again."""
    return ToolResult(call_id=call.id, parts=(Text(text=text),), failed=True, freeform=call.freeform)


def make_parts(value: Any) -> tuple[Part, ...]:
    single = _make_single_part(value)
    if single is not None:
        return (single,)
    if isinstance(value, list | tuple) and any(_is_media(item) for item in value):
        return tuple(part for item in value for part in make_parts(item))
    return (Text(text=dump_value(value)),)


def _is_media(value: Any) -> bool:
    return isinstance(value, (*_PART_TYPES, bytes, bytearray, memoryview, File)) or _is_pil_image(value)


def _make_single_part(value: Any) -> Part | None:
    match value:
        case str():
            return Text(text=value)
        case Text() | Image() | Document() | Audio() | Video():
            return value
        case bytes() | bytearray() | memoryview():
            return make_part_from_bytes(bytes(value))
        case File():
            return read_file(value)
        case _ if _is_pil_image(value):
            return make_part_from_bytes(_encode_png(value))
        case _:
            return None


def dump_value(value: Any) -> str:
    """The value as JSON text. Other types are converted by their own methods (pydantic, numpy, mappings, iterables)."""
    try:
        return msgspec.json.encode(value, enc_hook=_make_jsonable).decode()
    except RecursionError as error:
        raise DragomanError("the result contains itself or is nested too deeply") from error
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise DragomanError(f"the result cannot be written as JSON: {error}") from error


def _make_jsonable(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PathLike | complex | BaseException):
        return fspath(value) if isinstance(value, PathLike) else str(value)
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and similar packages
        return value.tolist()
    if hasattr(value, "__iter__") and not isinstance(value, type):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _is_pil_image(value: Any) -> bool:
    """A PIL image, without importing PIL."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "save")


def _encode_png(picture: Any) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def sniff_media_type(data: bytes) -> str | None:
    """The media type, judged by the first bytes."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return next((kind for start, kind in _MAGIC if data.startswith(start)), None)


def make_part_from_bytes(data: bytes, media_type: str | None = None, name: str | None = None) -> Part:
    """A picture, a sound, a document or text, judged by the media type, the bytes or the file name."""
    kind = media_type or sniff_media_type(data) or (mimetypes.guess_type(name)[0] if name else None)
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
            if len(data) > MEDIA_BYTES and error.start > MEDIA_BYTES - 4:  # read_file cut the text inside a character
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
    return make_part_from_bytes(data, file.media_type, path.name)


# ---------------------------------------------------------------- size limits


def limit_result(result: ToolResult, text_bytes: int = RESULT_BYTES, media_bytes: int = MEDIA_BYTES) -> ToolResult:
    """The result within the limits: its text is cut and media are left out, and a note in the text says so."""
    remaining_text, remaining_media = text_bytes, media_bytes
    parts: list[Part] = []
    for part in result.parts:
        if isinstance(part, Text):
            kept, remaining_text = _cut_text(part, remaining_text)
            parts.append(kept)
        elif isinstance(part, Media):
            size = _count_media_bytes(part)
            if size <= remaining_media:
                remaining_media -= size
                parts.append(part)
            else:
                parts.append(Text(text=f"[left out: {part.media_type or 'a file'} of {size} bytes, too large to show]"))
        elif not isinstance(part, Opaque):
            parts.append(part)
    if len(parts) == len(result.parts) and all(a is b for a, b in zip(parts, result.parts, strict=True)):
        return result
    return replace(result, parts=tuple(parts))


def _cut_text(part: Text, remaining: int) -> tuple[Text, int]:
    text = part.text
    data = text.encode("utf-8", "replace") if not text.isascii() or len(text) > remaining else b""
    size = len(data) or len(text)
    if size <= remaining:
        return part, remaining - size
    earlier_cut = _CUT_NOTE.search(text)
    if earlier_cut is not None and size - len(earlier_cut[0]) <= remaining:
        return part, 0  # the tool has already cut it, and the note says so
    shown = data[: max(remaining, 0)].decode("utf-8", "ignore")
    return Text(text=f"{shown}\n[cut: the result has {size} bytes, {max(remaining, 0)} are shown]"), 0


def _count_media_bytes(part: Media) -> int:
    data = part.data or ""
    return len(data) * 3 // 4 + len(getattr(part, "text", None) or "")
