"""Parrot Chat: errors, both ways."""

from dragoman.dialects.parrot.words import FAILURE_WORDS, FAILURES, NAME
from dragoman.failure import Failure, kind_of_status, status_of
from dragoman.fields import leftovers
from dragoman.wire import WireReply


def decode_failure(wire: WireReply) -> Failure:
    body = wire.body if type(wire.body) is dict else {}
    status = wire.status if wire.status >= 400 else None
    kind = FAILURES.get(str(body.pop("trouble", "")), kind_of_status(status))
    return Failure(kind=kind, message=str(body.pop("words", "")), status=status, extras=leftovers(body, NAME))


def encode_failure(failure: Failure) -> WireReply:
    word = FAILURE_WORDS.get(failure.kind, "feathers")
    body = {"trouble": word, "words": failure.message, **failure.extras.get(NAME, {})}
    return WireReply(body=body, status=status_of(failure))
