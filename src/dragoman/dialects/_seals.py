"""The side field `dragoman`: opaque state in replies to clients whose dialect has no place for it.

A reply to a client may carry `"dragoman": {"seal": {...}}` beside the part it belongs to. Clients that send their
history back unchanged send it too, and the decoder puts the seal back on its part. Requests to providers never carry
it: there a foreign seal is left out with a note. A seal that a stream tells when its part is over, where the client
would no longer add it to the part, comes in an empty part of its own, `"dragoman": {"seal": {...}, "late": true}`: it
belongs to the part before.
"""

from collections.abc import Collection

from msgspec import ValidationError, convert, to_builtins

from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Seal
from dragoman.notes import At, Notes

SIDE = "dragoman"
WORD = b'"dragoman"'
_LISTS = ("messages", "input", "contents", "content", "parts", "tool_calls", "summary", "output")  # of turns and parts


def write_seal(block: JsonObject, seal: Seal, at: At, notes: Notes, *, to_client: bool) -> None:
    """A foreign seal: beside the part for a client, a note for a provider."""
    if to_client:
        block[SIDE] = {"seal": to_builtins(seal)}
    else:
        notes.dropped((at, "seal"), f"only {seal.origin} can read its {seal.form}")


def note_unsaid(seal: Seal, forms: Collection[str], at: At, notes: Notes) -> None:
    """A seal in the slot of its own dialect, which holds its value and nothing else."""
    for key in ("model", "upstream"):
        if getattr(seal, key) is not None:
            notes.dropped(((at, "seal"), key), f"{seal.origin}'s seals do not say who issued them")
    if seal.form not in forms:
        notes.altered(((at, "seal"), "form"), f"{seal.origin} has no {seal.form} here")


def late_side(seal: Seal) -> JsonObject:
    """The side field of an empty part that brings the seal of the part before it."""
    return {"seal": to_builtins(seal), "late": True}


def is_late(block: JsonObject) -> bool:
    side = block.get(SIDE)
    return type(side) is dict and side.get("late") is True and "seal" in side


def take_seal(block: JsonObject) -> Seal | None:
    """The seal a client sent back, if it is one; anything else stays for the extras."""
    side = block.get(SIDE)
    if type(side) is not dict or "seal" not in side:
        return None
    try:
        seal = convert(side["seal"], Seal)
    except ValidationError:
        return None
    del block[SIDE]
    return seal


def strip_side(body: object) -> bool:
    """Takes the side field off every turn and part of a request's body; whether there was one. Schemas, arguments and
    results are the client's own: there the same word is no word of ours."""
    found = False
    for name in _LISTS:
        inner = body.get(name) if type(body) is dict else None
        for item in inner if type(inner) is list else ():
            if type(item) is dict:
                found = item.pop(SIDE, None) is not None or found
                found = strip_side(item) or found
    return found
