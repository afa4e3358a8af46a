"""OpenAI Chat Completions: the model's reasoning, both ways.

OpenAI's own server shows no reasoning. Other servers do, in one of these forms:

- a string on the message: `reasoning_content`, `reasoning` or `thinking`. One text under two names is one thought.
- `reasoning_details` (OpenRouter and servers that copy it): a list of texts, summaries and encrypted blobs. Some are
  signed and must come back unchanged. The string beside the list mostly repeats the same text.
- blocks of type `thinking` in the content (Mistral): see parts.py.

A Chat message has one string for all thoughts. It has no key for their places or their signatures. If a thought still
has a foreign signature here (reasoning_state mostly carries it in `reasoning_details`), replies to clients carry both
in the side field `dragoman`, and a client that sends its history back unchanged returns them to us:

    "dragoman": {"reasoning": [{"index": 0, "at": 2, "text": "...", "summary": true, "seal": {...}}], "seal": {...}}

`at` is the place among the parts of the turn. `index` is the place in this list: SDKs use it to merge stream deltas.
`text` repeats the thought. `summary` and `seal` are there only if they are set. A thought at the start of the turn
without a signature needs no entry. The outer `seal` belongs to the message's text.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from dragoman.dialects._seals import SIDE, note_seal_losses, take_seal, write_seal
from dragoman.dialects.openai_chat.words import NAME, REASONING_NAMES
from dragoman.fields import OMIT, add_extras, leftovers, note_spelling, spelled, take_word
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Opaque, Part, Reasoning, Seal
from dragoman.notes import At, Notes

DETAIL_KEYS = {"reasoning.text": "text", "reasoning.summary": "summary", "reasoning.encrypted": "data"}
OPAQUE_DETAIL = "reasoning_details"  # our type for a detail of an unknown kind: it says under which key it stood
RETOLD = "~retold"  # spelling: keys that repeat the text of the details, or have a text of their own

# ---------------------------------------------------------------- decode


def take_reasoning(message: JsonObject) -> list[Part]:
    """Take every thought of a message, each of them once."""
    details = take_details(message)
    detail_text = "".join(part.text for part in details if isinstance(part, Reasoning))
    names_of: dict[str, list[str]] = {}
    retold: dict[str, str | None] = {}
    for name in REASONING_NAMES:
        text = message.get(name)
        if type(text) is not str or not text:
            continue
        del message[name]
        if detail_text:
            retold[name] = None if text == detail_text else text
        else:
            names_of.setdefault(text, []).append(name)
    if retold:
        message[RETOLD] = retold
    plain: list[Part] = [Reasoning(text=text, extras=spell_names(names)) for text, names in names_of.items()]
    return plain + details


def spell_names(names: list[str]) -> dict[str, JsonObject]:
    return {} if names == [REASONING_NAMES[0]] else {NAME: {"~name": names}}


def take_details(message: JsonObject) -> list[Part]:
    details = message.get("reasoning_details")
    if type(details) is not list or not details or not all(type(detail) is dict for detail in details):
        return []
    del message["reasoning_details"]
    return [decode_detail(detail) for detail in details]


def decode_detail(detail: JsonObject) -> Reasoning | Opaque:
    kind = detail.get("type")
    key = DETAIL_KEYS.get(kind) if type(kind) is str else None
    if key is None:
        return Opaque(dialect=NAME, body={"type": OPAQUE_DETAIL, "detail": detail})
    del detail["type"]
    note_spelling(detail, "detail", kind)
    if type(detail.get("index")) is int:
        note_spelling(detail, "index", detail.pop("index"))
    seal = take_seal(detail)
    signature = detail.get("signature")
    if type(signature) is str and signature:
        seal = Seal(origin=NAME, value=detail.pop("signature"))
    elif signature == "":
        note_spelling(detail, "signature", detail.pop("signature"))
    value = take_word(detail, key)
    if value is None:
        nothing = {key: detail.pop(key)} if key in detail else {}
        detail[OMIT] = [key]
        detail.update(nothing)
    elif key == "data":
        seal = Seal(origin=NAME, value=value, form="encrypted")
    text = value if value is not None and key != "data" else ""
    return Reasoning(text=text, summary=key == "summary", seal=seal, extras=leftovers(detail, NAME))


def is_detail(part: Part) -> bool:
    """Whether a part belongs in `reasoning_details`."""
    if isinstance(part, Reasoning):
        sealed_here = part.seal is not None and part.seal.origin == NAME
        return sealed_here or spelled(part.extras, NAME, "~detail") is not None
    return isinstance(part, Opaque) and part.dialect == NAME and part.body.get("type") == OPAQUE_DETAIL


def is_worded_detail(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.text) and is_detail(part)


def has_sealed_thought(parts: Iterable[Part]) -> bool:
    """Whether the side field is needed. If `StateCarrier` wrote the answer, no thought has a seal."""
    return any(isinstance(part, Reasoning) and part.seal is not None and not is_detail(part) for part in parts)


class SideEntry:
    """One thought of the side field, with its place."""

    __slots__ = ("at", "part")

    def __init__(self, at: int, part: Reasoning) -> None:
        self.at = at
        self.part = part


def take_side(message: JsonObject) -> tuple[list[SideEntry], Seal | None]:
    """Take our side field that a client sent back. Any other value under that key stays in the extras."""
    side = message.get(SIDE)
    if type(side) is not dict or not side or not side.keys() <= {"reasoning", "seal"}:
        return [], None
    try:
        entries = [_decode_entry(entry) for entry in side.get("reasoning", ())]
        seal = convert(side["seal"], Seal) if "seal" in side else None
    except (ValidationError, AttributeError, KeyError, TypeError):
        return [], None
    del message[SIDE]
    return entries, seal


def _decode_entry(entry: JsonObject) -> SideEntry:
    seal = convert(entry["seal"], Seal) if entry.get("seal") is not None else None
    part = Reasoning(text=convert(entry["text"], str), summary=entry.get("summary") is True, seal=seal)
    return SideEntry(convert(entry["at"], int), part)


def put_back(parts: list[Part], entries: list[SideEntry]) -> list[Part]:
    """Put the thoughts back in their places, unless the client changed their text."""
    plain = [part for part in parts if isinstance(part, Reasoning) and not is_detail(part)]
    plain_text = "".join(part.text for part in plain)
    known = "".join(entry.part.text for entry in entries)
    if plain_text and not plain_text.endswith(known):
        return parts
    rest = plain_text[: len(plain_text) - len(known)]
    whole: list[Part] = [Reasoning(text=rest)] if rest else []
    whole += [part for part in parts if not (isinstance(part, Reasoning) and not is_detail(part))]
    for entry in sorted(entries, key=lambda entry: entry.at):
        whole.insert(entry.at, entry.part)
    return whole


# ---------------------------------------------------------------- encode


class Thought(NamedTuple):
    number: int  # its position among all parts of the turn
    place: int  # its position among the parts that are written
    part: Part


def encode_reasoning(message: JsonObject, thoughts: list[Thought], at: At, notes: Notes, *, to_client: bool) -> None:
    """Write all thoughts of a turn. If a detail has text, every thought becomes a detail, because a string beside
    such details only repeats them."""
    details: list[JsonObject] = []
    entries: list[JsonObject] = []
    worded = any(is_worded_detail(part) for _, _, part in thoughts)
    sided = to_client and has_sealed_thought(part for _, _, part in thoughts)
    for i, place, part in thoughts:
        if isinstance(part, Opaque):
            details.append(part.body["detail"])
        elif isinstance(part, Reasoning) and (is_detail(part) or (worded and part.text)):
            details.append(encode_detail(part, (at, i), notes, to_client=to_client))
        elif isinstance(part, Reasoning):
            _encode_plain(message, part, (at, i), notes, to_client=sided)
            if sided and (part.seal is not None or (part.text and (part.summary or place))):
                entries.append(side_entry(len(entries), place, part))
    if details:
        message["reasoning_details"] = details
    if entries:
        message.setdefault(SIDE, {})["reasoning"] = entries


def _encode_plain(message: JsonObject, part: Reasoning, at: At, notes: Notes, *, to_client: bool) -> None:
    if part.extras:
        add_extras({}, part.extras, NAME, at, notes)
    if not to_client and part.seal is not None and part.text:
        notes.dropped((at, "seal"), f"only {part.seal.origin} can read its {part.seal.form}")
    if not part.text:
        if part.seal is None or not to_client:
            notes.dropped(
                at, "a thought without words" if part.seal is None else f"only {part.seal.origin} can read it"
            )
        return
    if part.summary and not to_client:
        notes.altered((at, "summary"), "openai_chat does not distinguish a summary from the thought")
    for name in names_of(part):
        message[name] = message.get(name, "") + part.text


def names_of(part: Reasoning) -> list[str]:
    names = spelled(part.extras, NAME, "~name")
    return names if type(names) is list and names else [REASONING_NAMES[0]]


def side_entry(index: int, at: int, part: Reasoning) -> JsonObject:
    entry: JsonObject = {"index": index, "at": at, "text": part.text}
    if part.summary:
        entry["summary"] = True
    if part.seal is not None:
        entry["seal"] = to_builtins(part.seal)
    return entry


def retell(message: JsonObject, retold: dict[str, str | None] | None) -> None:
    """Restore the strings that stood beside `reasoning_details`, unless these were left out."""
    details = message.get("reasoning_details")
    if not retold or not details:
        return
    detail_text = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
    for name, text in retold.items():
        message[name] = detail_text if text is None else text


def detail_type(part: Reasoning) -> str:
    kind = spelled(part.extras, NAME, "~detail")
    if type(kind) is str:
        return kind
    if part.seal is not None and part.seal.form == "encrypted":
        return "reasoning.encrypted"
    return "reasoning.summary" if part.summary else "reasoning.text"


def encode_detail(part: Reasoning, at: At, notes: Notes, *, to_client: bool = True) -> JsonObject:
    body: JsonObject = {}
    if part.seal is not None and part.seal.origin != NAME:
        write_seal(body, part.seal, at, notes, to_client=to_client)
        part = replace(part, seal=None)
    elif part.seal is not None:
        note_seal_losses(part.seal, ("signature", "encrypted"), at, notes)
    kind = detail_type(part)
    body["type"] = kind
    if kind == "reasoning.encrypted":
        body["data"] = part.seal.value if part.seal is not None else ""
        if part.text:
            notes.altered((at, "text"), "an encrypted thought has no text here")
        if part.summary:
            notes.altered((at, "summary"), "an encrypted thought has no text here")
    else:
        body[DETAIL_KEYS[kind]] = part.text
        signature = part.seal.value if part.seal is not None else spelled(part.extras, NAME, "~signature")
        if signature is not None:
            body["signature"] = signature
    index = spelled(part.extras, NAME, "~index")
    if index is not None:
        body["index"] = index
    add_extras(body, part.extras, NAME, at, notes)
    return body
