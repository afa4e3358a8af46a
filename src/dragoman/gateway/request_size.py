"""How much of a request is too much, and how much is worked on off the loop."""

from dragoman.errors import DecodeError
from dragoman.gateway.settings import RequestLimits
from dragoman.model.request import Request
from dragoman.upstream.attempts import BIG_BYTES

MANY_BRACES = 2000  # about as many objects: more are worked on off the loop
PARTS_PER_ENTRY = 3


def is_large(raw: bytes) -> bool:
    """Whether a request is so large, or in so many pieces, that it must not be worked on between two others. The braces
    are counted instead of the objects: some stand in texts, and that does no harm."""
    return len(raw) > BIG_BYTES or (len(raw) > MANY_BRACES and raw.count(b"{") > MANY_BRACES)


def check_size(request: Request, limits: RequestLimits) -> None:
    """A request in too many pieces is refused: passes look at each of them, and at its neighbours."""
    if request.choices is not None and request.choices > limits.choices:
        raise DecodeError(f"more answers than {limits.choices} to one request")
    if request.tools is not None and len(request.tools) > limits.entries:
        raise DecodeError(f"more than {limits.entries} tools")
    most = limits.entries * PARTS_PER_ENTRY
    if sum([len(message.parts) for message in request.messages]) > most:
        raise DecodeError(f"more than {most} parts in all messages")
