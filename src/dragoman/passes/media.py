"""Pictures, documents and sound in a form and a size that the target takes. Nothing is fetched from a URL.

A wrong media type is corrected by the first bytes. A part that the target cannot take is described in words, left out,
or refused (FIELD-CASES 30, 83, 101, 136).
"""

import base64
import binascii
import re
import struct
from functools import partial
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from dragoman.model.messages import Audio, Document, Image, Media, Message, Opaque, Part, Text, ToolResult, Video
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import MediaForms, Profile
from dragoman.passes.server_tools.tools import is_tool_group

# The first bytes of a file, and what it is. https://mimesniff.spec.whatwg.org (read 2026-11-15)
MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"BM", "image/bmp"),
    (0, b"%PDF-", "application/pdf"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftyp", "video/mp4"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
SNIFFED = 64  # base64 characters: more than any of the above needs


_PROPER = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}  # old programs' labels


def sniff(data: str) -> str | None:
    """The media type that base64 data shows by its first bytes."""
    head = data[:SNIFFED]
    try:
        raw = base64.b64decode(head[: len(head) // 4 * 4], validate=False)
    except (binascii.Error, ValueError):
        return None
    return next((kind for at, magic, kind in MAGIC if raw[at : at + len(magic)] == magic), None)


_ODD = ("-", "_", "\n", "\r", " ", "\t")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_USUAL = str.maketrans("-_", "+/")


def respell_base64(data: str) -> str:
    """Base64 in the usual alphabet, padded and without white space, which every server reads. Text that is no base64
    stays as it is."""
    if len(data) % 4 == 0 and not any(odd in data for odd in _ODD):  # fast path: legal base64
        return data
    bare = "".join(data.split()).translate(_USUAL).rstrip("=")
    if len(bare) % 4 == 1 or _BASE64.fullmatch(bare) is None:
        return data
    return bare + "=" * (-len(bare) % 4)


def fit_media(request: Request, profile: Profile, notes: Notes) -> Request:
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if not _is_concerned(message.parts):  # fast path: no media
            continue
        shown = profile.assistant_media if message.role == "assistant" else None
        parts = _fit_parts(message.parts, profile, shown, (((ROOT, "messages"), i), "parts"), notes)
        if parts is not message.parts:
            changed[i] = replace(message, parts=parts)
    if not changed:
        return request
    messages = enumerate(changed.get(i, m) for i, m in enumerate(request.messages))
    return replace(request, messages=tuple(m for i, m in messages if m.parts or i not in changed))


_CONCERNED = frozenset({Image, Document, Audio, Video, Opaque})


def _is_concerned(parts: tuple[Part, ...]) -> bool:  # fast path: no media
    """Whether there are parts other than texts and calls, in tool results too. It is quick, because most turns have
    none."""
    for part in parts:
        kind = type(part)
        if kind in _CONCERNED:
            return True
        if kind is ToolResult and _is_concerned(part.parts):  # type: ignore[union-attr]
            return True
    return False


def _fit_parts(
    parts: tuple[Part, ...], profile: Profile, shown: MediaForms | None, at: At, notes: Notes
) -> tuple[Part, ...]:
    kept: list[Part] = []
    same = True
    for j, part in enumerate(parts):
        fitted: Part | None = part
        if isinstance(part, (Image, Document, Audio, Video)):
            fit = _fit if shown is None else partial(_fit_shown, shown)
            fitted = fit(part, profile, (at, j), notes)
        elif isinstance(part, ToolResult):
            inner = _fit_parts(part.parts, profile, None, ((at, j), "parts"), notes)
            fitted = part if inner is part.parts else replace(part, parts=inner)
        elif isinstance(part, Opaque) and part.dialect != profile.dialect:
            if is_tool_group(part.body):
                notes.altered((at, j), "tools in the middle of a conversation are listed with the others")
            else:
                notes.dropped((at, j), f"only {part.dialect} has {part.body.get('type', 'this part')}")
            fitted = None
        same = same and fitted is part
        if fitted is not None:
            kept.append(fitted)
    return parts if same else tuple(kept)


def _fit_shown(shown: MediaForms, part: Media, profile: Profile, at: At, notes: Notes) -> Part | None:
    """Media in a turn of the assistant. Media that the target itself made go back unchanged."""
    forms, _ = _takes(part, shown)
    if profile.dialect in part.extras or any(getattr(part, form, None) is not None for form in forms):
        return part
    fitted = _fit(part, profile, at, notes)
    if fitted is None or isinstance(fitted, Text):
        return fitted
    notes.dropped(at, f"{profile.dialect} has no {type(part).__name__.lower()} in a turn of the assistant")
    return None


# Files that only their provider's own key can read: uploaded to Gemini, or in Google's storage.
PRIVATE_URLS = ("https://generativelanguage.googleapis.com/", "gs://")


def _form_of(part: Media, profile: Profile) -> str:
    form = next((f for f in ("data", "text", "url", "file_id", "id") if getattr(part, f, None) is not None), "nothing")
    if form == "url" and str(part.url).startswith(PRIVATE_URLS):
        return form if str(part.url).startswith(profile.media.own_urls) else "another provider's file"
    return form


_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?)(;base64)?,(.*)", re.DOTALL | re.IGNORECASE)


def _with_data_of_url(part: Media, at: At, notes: Notes) -> Media:
    """The data of a data URL that its decoder did not read: the URL has parameters, or no base64."""
    match = _DATA_URL.fullmatch(part.url or "")
    if match is None:
        return part
    media_type, parameters, coded, data = match.groups()
    if coded is None:
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    if parameters:
        notes.altered((at, "url"), f"a data URL without its parameters {parameters[1:]}")
    return replace(part, url=None, data=data, media_type=media_type.lower() or part.media_type or "text/plain")


def _fit(part: Media, profile: Profile, at: At, notes: Notes) -> Media | Text | None:
    if part.url is not None and not profile.native and part.url[:5].lower() == "data:":
        part = _with_data_of_url(part, at, notes)
    forms, types = _takes(part, profile.media)
    form = _form_of(part, profile)
    if form in forms and part.media_type is None and profile.dialect in part.extras:
        return part  # the target's own form may have no place for a type (Mistral's sound)
    if part.data is not None and not profile.media.loose_base64:
        part = _with_usual_data(part, part.data, at, notes)
    part = _with_true_type(part, at, notes)
    word = type(part).__name__.lower()
    kind = part.media_type
    if form in forms and not (types and form == "data" and kind is not None and kind not in types):
        return part
    if isinstance(part, Document) and part.text is not None:
        notes.altered(at, f"{profile.kind} takes no documents: said as text")
        head = f"[document {part.name}]\n" if part.name else ""
        return Text(text=head + part.text, cache=part.cache)
    why = f"{profile.kind} takes no {word}" + (f" of type {kind}" if form in forms else f" as {form}" if forms else "")
    match profile.policy_of("media"):
        case "refuse":
            raise notes.refuse(at, why)
        case "drop":
            notes.dropped(at, why)
            return None
        case "emulate":
            notes.altered(at, f"{why}: a line of text takes its place")
            return Text(text=f"[{word} left out: {_tell(part)}]")


def _takes(part: Media, media: MediaForms) -> tuple[tuple[str, ...], tuple[str, ...]]:
    match part:
        case Image():
            return media.images, media.image_types
        case Document():
            return media.documents, media.document_types
        case Audio():
            return media.audio, ()
        case Video():
            return media.video, ()


def _tell(part: Media) -> str:
    """The words that replace a picture the target cannot see."""
    if isinstance(part, Audio) and part.transcript:
        return part.transcript
    if part.url is not None and not part.url.startswith("data:"):
        return part.url
    name = part.name if isinstance(part, Document) else None
    return name or part.media_type or "not supported here"


def _with_usual_data(part: Media, data: str, at: At, notes: Notes) -> Media:
    """google-genai for Python sends the URL-safe alphabet, which Gemini reads and others refuse."""
    usual = respell_base64(data)
    if usual == data:
        return part
    notes.repaired((at, "data"), "base64 in the usual alphabet, with its padding and without white space")
    return replace(part, data=usual)


def _with_true_type(part: Media, at: At, notes: Notes) -> Media:
    """Corrects the media type by the first bytes. Some clients send image/png for every file, and providers check."""
    if part.data is None:
        return part
    found = sniff(part.data) or _PROPER.get(part.media_type or "")
    if found is None or found == part.media_type or not _is_kind(part, found):
        return part
    if part.media_type is not None and _same_family(part.media_type, found):
        return part
    if part.media_type is None:
        notes.invented((at, "media_type"), f"its bytes are {found}")
    else:
        notes.repaired((at, "media_type"), f"its bytes are {found}")
    return replace(part, media_type=found)


def _is_kind(part: Media, found: str) -> bool:
    match part:
        case Image():
            return found.startswith("image/")
        case Document():
            return found == "application/pdf"
        case Audio():
            return found.startswith("audio/")
        case Video():
            return found.startswith("video/")


def _same_family(declared: str, found: str) -> bool:
    """Whether both are names of one format, so that nothing has to be corrected."""
    bare = declared.split(";")[0].strip().lower()
    return {bare, found} in ({"audio/x-wav", "audio/wav"}, {"audio/mp3", "audio/mpeg"}) or (bare == found)


# ------------------------------------------------------------ media in results
# Pictures and files in tool results, for a target whose results hold text only: they move to a user turn.


def move_result_media(request: Request, profile: Profile, notes: Notes) -> Request:
    """Leaves a placeholder in the result and puts the picture or file into a user turn behind ALL results. A user turn
    between two results would separate the second one from its call (FIELD-CASES 3, 30)."""
    if not _any_media(request):  # fast path: no media in results
        return request
    messages: list[Message] = []
    waiting: list[Part] = []
    for i, message in enumerate(request.messages):
        if waiting and not _goes_on(message):
            messages.append(Message(role="user", parts=tuple(waiting)))
            waiting = []
        moved: list[Part] = []
        parts = tuple(_strip(part, moved) for part in message.parts)
        if moved:
            notes.repaired(((ROOT, "messages"), i), "media of tool results moved behind the results")
            message = replace(message, parts=parts)
        messages.append(message)
        waiting.extend(moved)
        if waiting and not isinstance(message.parts[-1], ToolResult):
            messages[-1] = _put_behind_results(message, waiting)
            waiting = []
    if waiting:
        messages.append(Message(role="user", parts=tuple(waiting)))
    return replace(request, messages=tuple(messages))


MEDIA = (Image, Document, Audio, Video)


def _any_media(request: Request) -> bool:  # fast path: no media in results
    for message in request.messages:
        if message.role == "user":  # results stand in user turns
            for part in message.parts:
                if type(part) is ToolResult:
                    for inner in part.parts:
                        if type(inner) is not Text and isinstance(inner, MEDIA):
                            return True
    return False


def _has_media(part: ToolResult) -> bool:
    for inner in part.parts:  # noqa: SIM110  # a loop, because this runs for every result of every request
        if type(inner) is not Text and isinstance(inner, MEDIA):
            return True
    return False


def _goes_on(message: Message) -> bool:
    """Whether a turn still holds results of the same calls."""
    return message.role == "user" and any(isinstance(part, ToolResult) for part in message.parts)


def _strip(part: Part, moved: list[Part]) -> Part:
    if not isinstance(part, ToolResult) or not _has_media(part):
        return part
    kept: list[Part] = []
    for inner in part.parts:
        if isinstance(inner, Image | Document | Audio | Video):
            kept.append(Text(text=_placeholder(inner)))
            moved.append(inner)
        else:
            kept.append(inner)
    return replace(part, parts=tuple(kept))


def _placeholder(media: Media) -> str:
    word = type(media).__name__.lower()
    name = media.name if isinstance(media, Document) else None
    return f"[{word} attached below]" if name is None else f"[{word} attached below: {name}]"


def _put_behind_results(message: Message, moved: list[Part]) -> Message:
    last = max(i for i, part in enumerate(message.parts) if isinstance(part, ToolResult))
    return replace(message, parts=(*message.parts[: last + 1], *moved, *message.parts[last + 1 :]))


# ---------------------------------------------------------------- the size of pictures

# Anthropic takes 8,000 pixels a side, and only 2,000 if a request has more than 20 pictures. An agent that takes
# screenshots meets this limit in the middle of its work. The large picture stays in the history, so every later request
# would be refused too (docs/provider-rules.md, I-1 and I-2).

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
    return _say_instead(request, gone, notes) if gone else request


def _find_pictures(request: Request) -> dict[PicturePlace, Image]:
    found: dict[PicturePlace, Image] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if type(part) is Image:
                found[i, j, None] = part
            elif type(part) is ToolResult:
                found.update({(i, j, k): inner for k, inner in enumerate(part.parts) if type(inner) is Image})
    return found


def _say_instead(request: Request, gone: dict[PicturePlace, str], notes: Notes) -> Request:
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
