"""Ollama: errors, both ways: `{"error": "text"}` and a status. Inside a stream there is only the line."""

from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects.ollama.words import NAME
from dragoman.failure import Failure, FailureKind, kind_of_status, status_of
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireReply

# A prompt that is too long has only status 400, so we read the message of Ollama (llm/llama_server.go) or llama.cpp.
_OVERFLOWS = ("exceeds the context length", "exceeds the available context size", "exceeds maximum context length")


def decode_failure(wire: WireReply) -> Failure:
    body = wire.body
    own: JsonObject = {}
    message = ""
    status = wire.status if wire.status >= 400 else None
    if type(body) is str:
        message = body.strip()  # `404 page not found`, or the text of a proxy
    elif type(body) is dict:
        own = body
        error = own.pop("error", None)
        if type(error) is str:
            message = error
        elif type(error) is dict:  # some gateways answer in OpenAI's form
            text = error.pop("message", None)
            message = text if type(text) is str else ""
            if error:
                own["error"] = error
        if status is None and type(own.get("status")) is int:
            status = own.pop("status")
    return Failure(
        kind=_kind(message, status),
        message=message,
        status=status,
        retry_after_s=read_retry_after(wire.headers),
        request_id=wire.headers.get("x-request-id"),
        extras=leftovers(own, NAME),
    )


def _kind(message: str, status: int | None) -> FailureKind:
    kind = kind_of_status(status)
    if kind in ("invalid_request", "unknown", "server_error") and any(words in message for words in _OVERFLOWS):
        return "too_long"
    return kind


def encode_failure(failure: Failure) -> WireReply:
    status = status_of(failure)
    if failure.kind == "overloaded":
        status = 503  # Ollama's status for it; its clients do not know Anthropic's 529
    return WireReply(body=encode_error(failure), status=status, headers=write_retry_after(failure))


def encode_error(failure: Failure) -> JsonObject:
    """The body of an error. The last line of a failed stream is the same."""
    own = failure.extras.get(NAME, {})
    error = own.get("error")
    if isinstance(error, dict):
        return own | {"error": {"message": failure.message, **error}}
    # Clients raise on any `error` that is not empty, and ignore an empty one.
    return {"error": failure.message or failure.kind.replace("_", " "), **own}
