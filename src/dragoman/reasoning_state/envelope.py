"""StateEnvelope: opaque state of one vendor, as a value that the client of another dialect keeps for us.

Every client returns its own dialect's opaque values (`signature`, `encrypted_content`, `thoughtSignature`) byte for
byte, and drops members it does not know. So the state of a foreign model travels in such a value. It begins with a
mark, so that we recognise it and never send it to a vendor as the vendor's own. It is authenticated with a secret and
bound to the client's key, so that no client can forge it or bring the state of another client.

The value is base64, because Google's clients decode and encode it again, in the alphabet for URLs.
"""

import base64
import hmac
from binascii import Error as Base64Error

import msgspec
from msgspec import Struct

from dragoman.jsontypes import dump_json, has_word
from dragoman.model.messages import Reasoning, Seal

_MAGIC = b"dragoman1"  # nine bytes are twelve characters, whatever follows
MARK = base64.b64encode(_MAGIC).decode()
MARK_BYTES = MARK.encode()
_MAC_BYTES = 16
_STANDARD = str.maketrans("-_", "+/")


def has_mark(body: bytes) -> bool:
    """Whether an opaque value of ours may be in a body."""
    return has_word(body, MARK_BYTES, b"Z")


class StateKey(Struct, frozen=True):
    """The secret and the client's name that authenticate the state of one client."""

    secret: bytes = b"dragoman"  # for a program that converts its own conversations; a gateway has its own secret
    owner: str = ""


DEFAULT_KEY = StateKey()


class CarriedState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The opaque state of one turn of a foreign model, which the model needs back with the turn.

    The number of a thought says how many parts of the turn stand before it, without thoughts; neighbouring texts count
    as one, because clients join and split them."""

    thoughts: tuple[tuple[int, Reasoning], ...] = ()
    seal: Seal | None = None  # of the part that carries this; if that is a thought: of `call`, else of the turn's text
    call: str | None = None  # the id of the call that has the seal
    calls: tuple[tuple[int, Seal], ...] = ()  # seals of the turn's calls, counted from 0


def wrap_state(state: CarriedState, key: StateKey) -> str:
    payload = dump_state(state)
    return base64.b64encode(_MAGIC + _sign(payload, key) + payload).decode()


def is_wrapped(value: str) -> bool:
    return value.startswith(MARK)


def unwrap_state(value: str, key: StateKey) -> CarriedState | None:
    """The state in a value. None if it is damaged, or was made for another client or by another gateway."""
    try:
        data = base64.b64decode(value.translate(_STANDARD) + "=" * (-len(value) % 4))
    except (Base64Error, ValueError):
        return None
    signature, payload = data[len(_MAGIC) : len(_MAGIC) + _MAC_BYTES], data[len(_MAGIC) + _MAC_BYTES :]
    if not hmac.compare_digest(signature, _sign(payload, key)):
        return None
    return load_state(payload)


def dump_state(state: CarriedState) -> bytes:
    """The state as bytes without signature and mark, for a store of our own."""
    return dump_json(state)  # JSON, because what a server wrote may hold numbers of any size


def load_state(data: bytes) -> CarriedState | None:
    """The state in these bytes; None if another version of dragoman wrote it."""
    try:
        return msgspec.json.decode(data, type=CarriedState)
    except msgspec.MsgspecError:
        return None


def _sign(payload: bytes, key: StateKey) -> bytes:
    return hmac.digest(key.secret, key.owner.encode() + b"\0" + payload, "sha256")[:_MAC_BYTES]
