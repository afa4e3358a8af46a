"""The side field `dragoman`: carries seals to clients whose dialect has no field for them.

A seal is a signature or encrypted text that its upstream wants back unchanged. A reply to a client may have
`"dragoman": {"seal": {...}}` beside a part. Clients that send their history back unchanged send it too, and the decoder
puts the seal back on its part. Requests to upstreams never have this field: the seal of another dialect is left out
with a note. The gateway writes this field for no client: `reasoning_state` carries or keeps all seals before the
encoder sees them. In a stream, a seal may come after the client has finished its part. Then it comes in an empty part
of its own, `"dragoman": {"seal": {...}, "late": true}`, and belongs to the part before.
"""

from collections.abc import Collection

from msgspec import ValidationError, convert, to_builtins

from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.messages import Seal
from dragoman.notes import At, Notes
from dragoman.reasoning_state.envelope import has_mark, is_wrapped

SIDE = "dragoman"
WORD = b'"dragoman"'
OPAQUE_KEYS = ("signature", "data", "encrypted_content", "thoughtSignature", "thought_signature")
_LISTS = ("messages", "input", "contents", "content", "parts", "tool_calls", "summary", "output")  # of turns and parts


def write_seal(block: JsonObject, seal: Seal, at: At, notes: Notes, *, to_client: bool) -> None:
    """Write the seal of another dialect beside the part for a client. For an upstream, only note its loss."""
    if to_client:
        block[SIDE] = {"seal": to_builtins(seal)}
    else:
        notes.dropped((at, "seal"), f"only {seal.origin} can read its {seal.form}")


def note_seal_losses(seal: Seal, forms: Collection[str], at: At, notes: Notes) -> None:
    """Note what is lost when a dialect writes its own seal, because only the value has a field there."""
    for key in ("model", "upstream"):
        if getattr(seal, key) is not None:
            notes.dropped(((at, "seal"), key), f"{seal.origin}'s seals do not say who issued them")
    if seal.form not in forms:
        notes.altered(((at, "seal"), "form"), f"{seal.origin} has no {seal.form} here")


def late_side(seal: Seal) -> JsonObject:
    """The side field of an empty part that has the seal of the part before it."""
    return {"seal": to_builtins(seal), "late": True}


def is_late(block: JsonObject) -> bool:
    side = block.get(SIDE)
    return type(side) is dict and side.get("late") is True and "seal" in side


def take_seal(block: JsonObject) -> Seal | None:
    """Take the seal that a client sent back. Any other value under that key stays an extra."""
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
    """Remove the side field from every turn and part of a request's body, and return whether there was one. Schemas,
    arguments and results are left alone: there the key belongs to the client."""
    found = False
    for name in _LISTS:
        inner = body.get(name) if type(body) is dict else None
        for item in inner if type(inner) is list else ():
            if type(item) is dict:
                found = item.pop(SIDE, None) is not None or found
                found = strip_side(item) or found
    return found


def without_side(body: bytes) -> bytes:
    """No provider sees our side field, nor an opaque value of ours; a body without them keeps every byte."""
    if WORD not in body and not has_mark(body):  # fast path: no side field
        return body
    value = load_json(body)
    changed = strip_side(value)
    return dump_json(value) if strip_envelopes(value) or changed else body


def strip_envelopes(value: object) -> bool:
    """Removes opaque values of ours wherever a client put them (CLIENTS 16: a signature on a result). True: some."""
    found = False
    if type(value) is dict:
        for key in [key for key in OPAQUE_KEYS if type(value.get(key)) is str and is_wrapped(value[key])]:
            del value[key]
            found = True
    for inner in value.values() if type(value) is dict else value if type(value) is list else ():
        if type(inner) in (dict, list):
            found = strip_envelopes(inner) or found
    return found
