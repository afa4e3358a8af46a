"""Pictures, documents and sound in the form a target takes. Nothing is fetched here: that is the gateway's, if allowed.

A wrong media type is put right from the first bytes; what a target cannot take is said in words, left out, or refused
(FIELD-CASES 30, 83, 101, 136).
"""

import base64
import binascii
from functools import partial

from msgspec.structs import replace

from dragoman.model.messages import Audio, Document, Image, Media, Message, Opaque, Part, Text, ToolResult, Video
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Media as MediaForms
from dragoman.passes.profile import Profile

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


def sniff(data: str) -> str | None:
    """The media type that base64 data shows by its first bytes."""
    head = data[:SNIFFED]
    try:
        raw = base64.b64decode(head[: len(head) // 4 * 4], validate=False)
    except (binascii.Error, ValueError):
        return None
    return next((kind for at, magic, kind in MAGIC if raw[at : at + len(magic)] == magic), None)


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
_RARE_IN_RESULTS = _CONCERNED | {ToolResult}  # a result in a result is not looked into


def holds_rare(messages: tuple[Message, ...]) -> bool:
    """Whether there is anything but words, thoughts and calls anywhere."""
    for message in messages:
        for part in message.parts:
            kind = type(part)
            if kind is ToolResult:
                for inner in part.parts:  # type: ignore[union-attr]
                    if type(inner) in _RARE_IN_RESULTS:
                        return True
            elif kind in _CONCERNED:
                return True
    return False


def _is_concerned(parts: tuple[Part, ...]) -> bool:
    """Whether there is anything but words and calls, in the results too: nearly never, so this is quick."""
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
            notes.dropped((at, j), f"only {part.dialect} has {part.body.get('type', 'this part')}")
            fitted = None
        same = same and fitted is part
        if fitted is not None:
            kept.append(fitted)
    return parts if same else tuple(kept)


def _fit_shown(shown: MediaForms, part: Media, profile: Profile, at: At, notes: Notes) -> Part | None:
    """What an assistant showed. What the target's own assistant made comes back as it was."""
    forms, _ = _takes(part, shown)
    if profile.dialect in part.extras or any(getattr(part, form, None) is not None for form in forms):
        return part
    fitted = _fit(part, profile, at, notes)
    if fitted is None or isinstance(fitted, Text):
        return fitted
    notes.dropped(at, f"{profile.dialect}'s assistant says no {type(part).__name__.lower()}")
    return None


def _fit(part: Media, profile: Profile, at: At, notes: Notes) -> Media | Text | None:
    forms, types = _takes(part, profile.media)
    form = next((f for f in ("data", "text", "url", "file_id", "id") if getattr(part, f, None) is not None), "nothing")
    if form in forms and part.media_type is None and profile.dialect in part.extras:
        return part  # the target's own form may have no place for a type (Mistral's sound)
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
            notes.altered(at, f"{why}: only its absence is told")
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
    """What is left of a picture nobody can look at."""
    if isinstance(part, Audio) and part.transcript:
        return part.transcript
    if part.url is not None and not part.url.startswith("data:"):
        return part.url
    name = part.name if isinstance(part, Document) else None
    return name or part.media_type or "not supported here"


def _with_true_type(part: Media, at: At, notes: Notes) -> Media:
    """The type its bytes show: clients say image/png for everything, and providers check."""
    if part.data is None:
        return part
    found = sniff(part.data)
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


def _same_family(said: str, found: str) -> bool:
    """Two names of one thing: nothing to put right."""
    bare = said.split(";")[0].strip().lower()
    return {bare, found} in (
        {"image/jpg", "image/jpeg"},
        {"audio/x-wav", "audio/wav"},
        {"audio/mp3", "audio/mpeg"},
    ) or (bare == found)
