"""The size of a picture, read from its first bytes, and which pictures of a conversation a target still takes.

Anthropic takes 8,000 pixels a side, and only 2,000 if a request has more than 20 pictures. An agent that takes
screenshots meets this limit in the middle of its work. The large picture stays in the history, so every later request
would be refused too (docs/provider-rules.md, I-1 and I-2).
"""

import base64
import binascii
import struct

from msgspec.structs import replace

from dragoman.model.messages import Image, Message, Part, Text, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile

HEAD = 64 * 1024  # base64 characters that are read: the size of a JPEG stands behind its thumbnails and profiles
PicturePlace = tuple[int, int, int | None]  # message, part, and part of a result


def measure(data: str) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG; None where they cannot be read."""
    head = data[:HEAD]
    try:
        raw = base64.b64decode(head[: len(head) // 4 * 4], validate=False)
        if raw[:8] == b"\x89PNG\r\n\x1a\n":
            return struct.unpack(">II", raw[16:24])
        if raw[:4] == b"GIF8":
            return struct.unpack("<HH", raw[6:10])
        if raw[8:16] == b"WEBPVP8X":
            return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
        return _measure_jpeg(raw) if raw[:2] == b"\xff\xd8" else None
    except (binascii.Error, ValueError, struct.error, IndexError):
        return None


def _measure_jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(raw) and raw[at] == 0xFF:
        mark = raw[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):  # a frame's head: precision, height, width
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None


def fit_pictures(request: Request, profile: Profile, notes: Notes) -> Request:
    """Replaces pictures over the limits by words: first those that are too large in any request. If there are still
    many, then those that are too large among many, the oldest first."""
    media = profile.media
    places = _find_pictures(request)
    sides = {place: max(measure(picture.data or "") or (0, 0)) for place, picture in places.items()}
    gone: dict[PicturePlace, str] = {}
    if media.most_characters is not None:
        for place, picture in places.items():
            size = len(picture.data or "")
            if size > media.most_characters:
                gone[place] = f"{size / 1_048_576:.1f} MB of base64, {media.most_characters / 1_048_576:.1f} are taken"
    if media.most_pixels is not None:
        for place, side in sides.items():
            if place not in gone and side > media.most_pixels:
                gone[place] = f"a side of {side} pixels, {media.most_pixels} are taken"
    many, most = media.many_pictures, media.most_pixels_of_many
    if many is not None and most is not None:
        large = [place for place in places if place not in gone and sides[place] > most]
        over = len(places) - len(gone) - many
        for place in large[: max(over, 0)]:
            gone[place] = f"a side of {sides[place]} pixels, {most} are taken where there are more than {many} pictures"
    return _tell(request, gone, notes) if gone else request


def _find_pictures(request: Request) -> dict[PicturePlace, Image]:
    found: dict[PicturePlace, Image] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if type(part) is Image:
                found[i, j, None] = part
            elif type(part) is ToolResult:
                found.update({(i, j, k): inner for k, inner in enumerate(part.parts) if type(inner) is Image})
    return found


def _tell(request: Request, gone: dict[PicturePlace, str], notes: Notes) -> Request:
    messages = list(request.messages)
    for (i, j, k), why in gone.items():
        at: At = ((((ROOT, "messages"), i), "parts"), j)
        notes.altered(at if k is None else ((at, "parts"), k), f"{why}: a line of text takes its place")
        words = Text(text=f"[image left out: {why}]")
        part: Part = messages[i].parts[j]
        if isinstance(part, ToolResult) and k is not None:
            replaced: Part = replace(part, parts=(*part.parts[:k], words, *part.parts[k + 1 :]))
        else:
            replaced = words
        parts = (*messages[i].parts[:j], replaced, *messages[i].parts[j + 1 :])
        messages[i] = Message(role=messages[i].role, parts=parts, extras=messages[i].extras)
    return replace(request, messages=tuple(messages))
