"""The side field `dragoman`: opaque state in replies to clients whose dialect has no place for it.

A reply to a client may carry `"dragoman": {"seal": {...}}` beside the part it belongs to. Clients that send their
history back unchanged send it too, and the decoder puts the seal back on its part. Requests to providers never carry
it: there a foreign seal is left out with a note.
"""

from msgspec import ValidationError, convert, to_builtins

from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Seal
from dragoman.notes import At, Notes

SIDE = "dragoman"


def write_seal(block: JsonObject, seal: Seal, at: At, notes: Notes, *, to_client: bool) -> None:
    """A foreign seal: beside the part for a client, a note for a provider."""
    if to_client:
        block[SIDE] = {"seal": to_builtins(seal)}
    else:
        notes.dropped((at, "seal"), f"only {seal.origin} can read its {seal.form}")


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
