"""Checks extras at the door of our own client, which takes the canonical form with extras of any dialect.

An extra is a key that only one dialect knows. An extra must not replace a key that the dialect writes from the
canonical form: with `extras.openai_chat.model` a client could use another model than the one that was checked and
priced.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.dialects import NAMES, find_dialect
from dragoman.dialects.canonical import NAME
from dragoman.errors import DecodeError
from dragoman.fields import SPELLING
from dragoman.gateway.bodies import refuse_other_models
from dragoman.jsontypes import Json, dump_json, load_json
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

PLAIN = Request(model="m", messages=(Message(role="user", parts=(Text(text="x"),)),))
HEADER = "header:"


def check_extras(request: Request) -> None:
    """A DecodeError names a key of the extras that is none."""
    for dialect, own in request.extras.items():
        refuse_other_models(own)
        false = find_false(dialect, own)
        if false:
            raise DecodeError(f"{dialect} writes it from the canonical form: it is no extra", "extras", dialect, false)
        spellings = {key: value for key, value in own.items() if key.startswith((SPELLING, HEADER))}
        if spellings and not _are_sound(dialect, spellings):
            raise DecodeError("these spellings are none of this dialect: it is no extra", "extras", dialect)


def _are_sound(name: str, spellings: dict[str, Json]) -> bool:
    """Whether the dialect can write a request with them, for the same model."""
    if name not in NAMES:
        return True
    dialect = find_dialect(name)
    try:
        written = dialect.encode_request(replace(PLAIN, extras={name: spellings}), Notes()).body
    except (TypeError, AttributeError, KeyError, ValueError, IndexError):
        return False
    plain = dialect.encode_request(PLAIN, Notes()).body
    return bool(written.get("model") == plain.get("model"))


def find_false(name: str, own: Mapping[str, Json]) -> str | None:
    """The first key that the dialect does not leave when it reads a request."""
    keys = [key for key in own if not key.startswith((SPELLING, HEADER))]
    if name == NAME:
        return next((key for key in keys if key in Request.__struct_fields__), None)
    if name not in NAMES or not keys:
        return None
    dialect = find_dialect(name)
    wire = dialect.encode_request(PLAIN, Notes())
    written = next((key for key in keys if key in wire.body), None)
    if written is not None:
        return written
    body = load_json(dump_json({**wire.body, **{key: own[key] for key in keys}}))
    left = dialect.decode_request(WireRequest(body=body, path=wire.path), Notes()).extras.get(name, {})
    return next((key for key in keys if key not in left), None)
