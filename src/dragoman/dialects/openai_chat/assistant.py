"""OpenAI Chat Completions: the assistant's turn, both ways. The message of a reply has the same form."""

from itertools import pairwise
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.dialects._seals import SIDE
from dragoman.dialects._tools import is_plain, opaque_word
from dragoman.dialects.openai_chat.annotations import encode_annotations, encode_logprobs
from dragoman.dialects.openai_chat.calls import (
    OPAQUE_CALL,
    CallIds,
    encode_call,
    encode_legacy,
    is_legacy,
    take_calls,
)
from dragoman.dialects.openai_chat.parts import decode_image, decode_part, encode_image, encode_text, encode_thinking
from dragoman.dialects.openai_chat.reasoning import (
    RETOLD,
    Thought,
    encode_reasoning,
    has_sealed_thought,
    is_detail,
    is_worded_detail,
    put_back,
    retell,
    take_reasoning,
    take_side,
)
from dragoman.dialects.openai_chat.words import NAME, REASONING_NAMES
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, decode_each, drop_constant, leftovers, note_spelling, spelled, take_word
from dragoman.jsontypes import JsonObject, dump_text, load_json
from dragoman.model.messages import BLANK, Audio, Extras, Image, Opaque, Part, Reasoning, Refusal, Seal, Text, ToolCall
from dragoman.notes import At, Notes

_BLANKS = (
    *REASONING_NAMES,
    "annotations",
    "audio",
    "function_call",
    "images",
    "reasoning_details",
    "refusal",
    "tool_calls",
)

# ---------------------------------------------------------------- decode


def decode_list(message: JsonObject, content: list[Any]) -> tuple[Part, ...]:
    parts = decode_each(content, "content", decode_part)
    if not parts or (len(parts) == 1 and is_plain(parts[0])):
        note_spelling(message, "content", "list")
    return parts


def decode_assistant(message: JsonObject, ids: CallIds) -> tuple[Part, ...]:
    """The parts of a message: thoughts, content, refusal, sound, pictures, calls. The caller has taken the role."""
    content = message.get("content")
    if len(message) == 1 and type(content) is str and content:  # fast path: chat answer
        del message["content"]
        return (Text(text=content),)
    entries, seal = take_side(message)
    parts = take_reasoning(message)
    parts.extend(_take_said(message, seal))
    refusal = message.get("refusal")
    if type(refusal) is str and refusal:
        del message["refusal"]
        parts.append(Refusal(text=refusal))
    audio = message.get("audio")
    if type(audio) is dict and is_spoken(audio):
        del message["audio"]
        parts.append(decode_spoken(audio))
    images = message.get("images")
    if type(images) is list and images and all(is_drawn(image) for image in images):
        del message["images"]
        parts.extend(decode_drawn(image) for image in images)
    parts.extend(take_calls(message, ids))
    _stash_blanks(message)
    return tuple(put_back(parts, entries) if entries else parts)


def _take_said(message: JsonObject, seal: Seal | None) -> tuple[Part, ...]:
    content = message.get("content")
    if type(content) is str:
        del message["content"]
        if content or seal is not None:
            return (Text(text=content, seal=seal),)
        note_spelling(message, "content", "empty")  # null, "" and absent mean the same (57)
        return ()
    if type(content) is list:
        del message["content"]
        return decode_list(message, content)
    if type(content) is dict:  # Cloudflare answers a json_schema with the object itself
        note_spelling(message, "content", "object")
        return (Text(text=dump_text(message.pop("content"))),)
    if content is None:
        if "content" not in message:
            note_spelling(message, "content", "absent")
        elif len(message) == 1:
            note_spelling(message, "content", "null")  # an empty turn, which we keep
        message.pop("content", None)
    return ()


def is_spoken(audio: JsonObject) -> bool:
    return any(type(audio.get(key)) is str and audio[key] for key in ("id", "data", "transcript"))


def decode_spoken(audio: JsonObject) -> Audio:
    """Sound that the model made. A reply has it whole; later requests have only its id."""
    whole = "data" in audio
    drop_constant(audio, "expires_at", 0)
    sound_id, data, transcript = (take_word(audio, key) for key in ("id", "data", "transcript"))
    if whole:
        note_spelling(audio, "form", "whole")
    return Audio(id=sound_id or None, data=data or None, transcript=transcript or None, extras=leftovers(audio, NAME))


def is_drawn(image: object) -> bool:
    return isinstance(image, dict) and image.get("type") == "image_url" and isinstance(image.get("image_url"), dict)


def decode_drawn(image: JsonObject) -> Image:
    """A picture that the model made, in OpenRouter's `images`. Other servers copy that key."""
    note_spelling(image, "place", "images")
    return decode_image(image)


def is_blank(value: object) -> bool:
    match value:
        case "" | [] | 0 | None:
            return True
        case dict():
            return all(is_blank(inner) for inner in value.values())
        case _:
            return False


def _stash_blanks(message: JsonObject) -> None:
    blanks = {key: message.pop(key) for key in _BLANKS if message.get(key) is not None and is_blank(message[key])}
    if blanks:
        message[BLANK] = blanks


# ---------------------------------------------------------------- encode


class _Sorted:
    """An assistant's parts, sorted by the key of the message they go to."""

    __slots__ = ("audio", "calls", "content", "images", "ranks", "refusals", "thoughts")

    def __init__(self) -> None:
        self.thoughts: list[Thought] = []
        self.content: list[tuple[int, Part]] = []
        self.refusals: list[tuple[int, Refusal]] = []
        self.audio: list[tuple[int, Audio]] = []
        self.images: list[tuple[int, Image]] = []
        self.calls: list[tuple[int, Part]] = []
        self.ranks: list[int] = []


def _sort(parts: tuple[Part, ...], at: At, notes: Notes, *, to_client: bool) -> _Sorted:
    places = _Sorted()
    kept = 0  # parts written so far: the side field counts them to place a thought
    placed = to_client and has_sealed_thought(parts) and not any(is_worded_detail(part) for part in parts)
    for i, part in enumerate(parts):
        match part:
            case Text():
                places.content.append((i, part))
                places.ranks.append(1)
            case ToolCall():
                places.calls.append((i, part))
                places.ranks.append(5)
            case Reasoning() if spelled(part.extras, NAME, "~name") == "content":
                places.content.append((i, part))
                places.ranks.append(1)
            case Reasoning():
                places.thoughts.append(Thought(i, kept, part))
                if not placed or is_detail(part):
                    places.ranks.append(0)
            case Refusal() if spelled(part.extras, NAME, "~place") == "content":
                places.content.append((i, part))
                places.ranks.append(1)
            case Refusal():
                places.refusals.append((i, part))
                places.ranks.append(2)
            case Audio() if not places.audio and (part.id is not None or (to_client and part.data is not None)):
                places.audio.append((i, part))
                places.ranks.append(3)
            case Image() if to_client or spelled(part.extras, NAME, "~place") == "images":
                places.images.append((i, part))
                places.ranks.append(4)
            case Opaque() if part.dialect == NAME:
                _place_opaque(places, i, part)
            case Opaque():
                notes.dropped((at, i), f"only {part.dialect} has {opaque_word(part)}")
                continue
            case _:
                notes.dropped((at, i), f"openai_chat has no {type(part).__name__.lower()} in a turn of the assistant")
                continue
        kept += not isinstance(part, Text | Refusal | Reasoning) or bool(part.text or getattr(part, "seal", None))
    return places


def _place_opaque(places: _Sorted, i: int, part: Opaque) -> None:
    if is_detail(part):
        places.thoughts.append(Thought(i, 0, part))
        places.ranks.append(0)
    elif part.body.get("type") == OPAQUE_CALL:
        places.calls.append((i, part))
        places.ranks.append(5)
    else:
        places.content.append((i, part))
        places.ranks.append(1)


def encode_assistant(
    parts: tuple[Part, ...], extras: Extras, at: At, notes: Notes, *, to_client: bool = False, legacy: bool = False
) -> tuple[JsonObject, JsonObject]:
    """Return the message without its extras, and its logprobs. `legacy` writes calls as `function_call`."""
    at = (at, "parts")
    message: JsonObject = {"role": "assistant", "content": None}
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text) and is_plain(only) and not extras and only.text:  # fast path: chat answer, written
        message["content"] = only.text
        return message, {}
    places = _sort(parts, at, notes, to_client=to_client)
    logprobs: JsonObject = {}
    _encode_said(message, places.content, extras, logprobs, at, notes, to_client=to_client)
    if places.thoughts:
        encode_reasoning(message, places.thoughts, at, notes, to_client=to_client)
        if not (to_client and has_sealed_thought(parts)) and _count_plain(message, places.thoughts) > 1:
            notes.altered(at, "several thoughts said as one")
    if places.refusals:
        _encode_refusals(message, places.refusals, logprobs, at, notes, to_client=to_client)
    for i, sound in places.audio:
        message["audio"] = encode_spoken(sound, (at, i), notes, to_client=to_client)
    if places.images:
        drawn = [encode_image(image, (at, i), notes, to_client=to_client) for i, image in places.images]
        message["images"] = [image for image in drawn if image is not None]
    if places.calls:
        _encode_calls(message, places.calls, at, notes, to_client=to_client, legacy=legacy)
    if any(b < a for a, b in pairwise(places.ranks)):
        notes.altered(at, "openai_chat says thoughts, text and calls in this order only")
    return message, logprobs


def _count_plain(message: JsonObject, thoughts: list[Thought]) -> int:
    if not any(name in message for name in REASONING_NAMES):
        return 0
    return sum(1 for _, _, part in thoughts if isinstance(part, Reasoning) and part.text and not is_detail(part))


def _encode_said(
    message: JsonObject,
    content: list[tuple[int, Part]],
    extras: Extras,
    logprobs: JsonObject,
    at: At,
    notes: Notes,
    *,
    to_client: bool,
) -> None:
    """Write `content`. A request uses a list unless there is just one plain text. A reply has one string."""
    how = spelled(extras, NAME, "~content")
    texts = [(i, part) for i, part in content if isinstance(part, Text)]
    if not content:
        match how:
            case "empty":
                message["content"] = ""
            case "list":
                message["content"] = []
            case "absent":
                del message["content"]
            case _:
                pass
    elif len(texts) != len(content) or how == "list" or (not to_client and not _is_lone(content)):
        message["content"] = [_encode_listed(part, (at, i), notes, to_client=to_client) for i, part in content]
    else:
        message["content"] = _join(message, texts, logprobs, at, notes)
        if how == "object":
            message["content"] = _as_object(message["content"])


def _is_lone(content: list[tuple[int, Part]]) -> bool:
    """Whether a string says it all: it does not matter how another dialect spells the text."""
    if len(content) != 1:
        return False
    part = content[0][1]
    if type(part) is not Text or NAME in part.extras:
        return False
    return is_plain(replace(part, extras={})) and all(key[:1] == "~" for own in part.extras.values() for key in own)


def _encode_listed(part: Part, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    match part:
        case Text():
            return encode_text(part, at, notes, to_client=to_client)
        case Reasoning():
            return encode_thinking(part, at, notes)
        case Refusal():
            block: JsonObject = {"type": "refusal", "refusal": part.text}
            if part.logprobs is not None:
                notes.dropped((at, "logprobs"), "openai_chat has no logprobs in a list of parts")
            add_extras(block, part.extras, NAME, at, notes)
            return block
        case Opaque():
            return part.body
        case _:
            raise AssertionError(f"{type(part).__name__} is no content")


def _as_object(text: str) -> Any:
    try:
        return load_json(text)
    except DecodeError:
        return text


def _join(message: JsonObject, texts: list[tuple[int, Text]], logprobs: JsonObject, at: At, notes: Notes) -> str:
    """Join all texts into the one string of a reply."""
    whole = ""
    annotations: list[JsonObject] = []
    for i, part in texts:
        place: At = (at, i)
        if not part.text and part.seal is None:
            notes.dropped(place, "an empty text is said as nothing")
        if part.citations:
            annotations.extend(encode_annotations(part, len(whole), place, notes))
        whole += part.text
        if part.logprobs is not None:
            logprobs.setdefault("content", []).extend(encode_logprobs(part.logprobs, (place, "logprobs"), notes))
        if part.cache is not None:
            notes.dropped((place, "cache"), "openai_chat's replies have no cache marks")
        if part.seal is not None:
            _encode_text_seal(message, part, len(texts) == 1, place, notes)
        if part.extras:
            add_extras({}, part.extras, NAME, place, notes)
    if len(texts) > 1:
        notes.altered(at, "openai_chat's replies have one text: joined")
    if annotations:
        message["annotations"] = annotations
    return whole


def _encode_text_seal(message: JsonObject, part: Text, lone: bool, at: At, notes: Notes) -> None:
    if lone:
        message.setdefault(SIDE, {})["seal"] = to_builtins(part.seal)
    elif part.seal is not None:
        notes.dropped((at, "seal"), f"{part.seal.origin} sealed one text of several that are joined here")


def _encode_refusals(
    message: JsonObject,
    refusals: list[tuple[int, Refusal]],
    logprobs: JsonObject,
    at: At,
    notes: Notes,
    *,
    to_client: bool,
) -> None:
    message["refusal"] = "".join(part.text for _, part in refusals)
    if len(refusals) > 1:
        notes.altered(at, "openai_chat has one refusal: joined")
    for i, part in refusals:
        if not part.text:
            notes.dropped((at, i), "an empty refusal is said as nothing")
        if part.logprobs is not None:
            if to_client:
                logprobs.setdefault("refusal", []).extend(encode_logprobs(part.logprobs, ((at, i), "logprobs"), notes))
            else:
                notes.dropped(((at, i), "logprobs"), "openai_chat has logprobs in replies only")
        if part.extras:
            add_extras({}, part.extras, NAME, (at, i), notes)


def encode_spoken(part: Audio, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    whole = to_client or spelled(part.extras, NAME, "~form") == "whole"
    lost = [("url", part.url), ("file_id", part.file_id), ("media_type", part.media_type), ("cache", part.cache)]
    if not whole:
        lost += [("data", part.data), ("transcript", part.transcript)]
    for key, value in lost:
        if value is not None:
            notes.dropped((at, key), f"openai_chat's spoken answers have no {key}")
    body: JsonObject = {"id": part.id or ""}
    if whole:
        body |= {"data": part.data or "", "expires_at": 0, "transcript": part.transcript or ""}
    add_extras(body, part.extras, NAME, at, notes)
    return body


def _encode_calls(
    message: JsonObject, calls: list[tuple[int, Part]], at: At, notes: Notes, *, to_client: bool, legacy: bool
) -> None:
    encoded: list[JsonObject] = []
    for i, part in calls:
        if isinstance(part, Opaque):
            encoded.append(part.body["call"])
        elif isinstance(part, ToolCall):
            if not legacy and not is_legacy(part):
                encoded.append(encode_call(part, (at, i), notes, to_client=to_client))
            elif "function_call" not in message:
                message["function_call"] = encode_legacy(part, (at, i), notes)
            else:
                notes.dropped((at, i), "function_call says one call only")
    if encoded:
        message["tool_calls"] = encoded


def finish_assistant(message: JsonObject, extras: Extras) -> None:
    """Restore the original spelling: keys with an empty value, and text that the wire had twice."""
    own = extras.get(NAME, {})
    blank = own.get(BLANK)
    for key, value in blank.items() if type(blank) is dict else ():
        message.setdefault(key, value)
        if message[key] is None:
            message[key] = value
    retell(message, own.get(RETOLD))
