"""How much of a request is too much."""

from dragoman.errors import DecodeError
from dragoman.gateway.config.settings import RequestLimits
from dragoman.model.request import Request

PARTS_PER_ENTRY = 3
MOST_STOPS = 100  # sequences: each piece of an answer is searched for those that the upstream does not take


def check_size(request: Request, limits: RequestLimits) -> None:
    """A request in too many pieces is refused: passes look at each of them, and at its neighbours."""
    if request.choices is not None and request.choices > limits.choices:
        raise DecodeError(f"more answers than {limits.choices} to one request")
    if request.tools is not None and len(request.tools) > limits.entries:
        raise DecodeError(f"more than {limits.entries} tools")
    if request.stop is not None and len(request.stop) > MOST_STOPS:
        raise DecodeError(f"more than {MOST_STOPS} stop sequences")
    most = limits.entries * PARTS_PER_ENTRY
    if sum([len(message.parts) for message in request.messages]) > most:
        raise DecodeError(f"more than {most} parts in all messages")
