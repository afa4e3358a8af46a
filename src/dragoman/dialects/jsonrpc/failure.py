"""JSON-RPC: errors, both ways. The error object has a code, and `data` has the details for programs."""

from dragoman.dialects._retry import write_retry_after
from dragoman.dialects.jsonrpc.calls import make_error
from dragoman.dialects.jsonrpc.words import BAD_UPSTREAM, CODES, INTERNAL_ERROR, KINDS, MESSAGES, NAME
from dragoman.failure import KINDS as ALL_KINDS
from dragoman.failure import Failure, FailureKind, status_of
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireReply

_DETAILS = ("code", "param", "retry_after_s", "request_id")


def encode_failure(failure: Failure) -> WireReply:
    """The error object of a response. The HTTP status is 200, because the JSON-RPC body reports the failure."""
    return WireReply(body=encode_error_object(failure), headers=write_retry_after(failure))


def encode_error_object(failure: Failure) -> JsonObject:
    own = failure.extras.get(NAME, {})
    data: JsonObject = {"kind": failure.kind, "status": status_of(failure)}
    for key in _DETAILS:
        value = getattr(failure, key)
        if value is not None:
            data[key] = value
    given = own.get("data")
    if isinstance(given, dict):
        data |= given
    code = own.get("code", _code(failure))
    # For the specification's own codes, its words come before our message.
    text = failure.message
    words = MESSAGES.get(code)
    if words is not None and text.startswith(words):
        text = text[len(words) :].removeprefix(": ")
    return make_error(code, text, data)


def _code(failure: Failure) -> int:
    if failure.kind == "server_error" and failure.status == 502:
        return BAD_UPSTREAM
    return CODES[failure.kind]


def decode_failure(wire: WireReply) -> Failure:
    """Decode a response with an error, or the error object alone."""
    body = wire.body if type(wire.body) is dict else {}
    error = body.get("error", body)
    if type(error) is not dict:
        error = {}
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    own: JsonObject = {}
    details: JsonObject = dict(data) if type(data) is dict else {}
    kind = _kind(details.pop("kind", None), code)
    status = details.pop("status", None)
    if type(code) is int and code != CODES[kind] and not (code == BAD_UPSTREAM and status == 502):
        own["code"] = code
    found = {key: details.pop(key) for key in _DETAILS if _fits(key, details.get(key))}
    if details:
        own["data"] = details
    return Failure(
        kind=kind,
        message=message if type(message) is str else "",
        status=status if type(status) is int else (wire.status if wire.status >= 400 else None),
        extras=leftovers(own, NAME),
        **found,
    )


def _kind(word: object, code: object) -> FailureKind:
    for kind in ALL_KINDS:
        if kind == word:
            return kind
    return KINDS.get(code if type(code) is int else INTERNAL_ERROR, "unknown")


def _fits(key: str, value: object) -> bool:
    return type(value) in ((int, float) if key == "retry_after_s" else (str,))
