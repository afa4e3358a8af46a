"""Errors on their way to a client: classified once, written in the client's dialect."""

import logging

from msgspec.structs import replace

from dragoman.dialects._base import Dialect
from dragoman.dialects.jsonrpc import NAME
from dragoman.errors import DecodeError, LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import dump_json
from dragoman.log_line import LogLine, own_error

log = logging.getLogger(__name__)

OWN_STATUSES = (401, 403, 405, 413, 415, 421, 431, 502, 508)  # the dialect does not change these
# The last attempt reached no server. A server that restarts is soon back, so clients may try again.
AWAY = ("upstream_unreachable", "upstream_closed")
OWN_ERROR = Failure(kind="server_error", status=500, code="internal", message="an internal error of the gateway")
SOON_S = 1.0  # Retry-After, if the upstream gave no hint


def refuse(gateway: Gateway, http: HttpRequest, dialect: Dialect, error: Exception) -> HttpResponse:
    """The response for an error. Everything that the request used is given back."""
    failure = classify(error)
    if failure.code == "internal":
        log.warning(own_error("internal_error", http.id, error))
    response = fail(dialect, failure)
    scope = http.scope
    if scope is not None:
        response.headers.update(scope.write_quota())
        if response.status >= 500 and len(scope.attempts) > 1 and failure.code not in AWAY:
            response.headers["x-should-retry"] = "false"  # we did: retries must not multiply (FIELD-CASES 106)
        scope.status, scope.failure = response.status, failure
        if scope.keep:
            scope.keep_sent(response.body)
        scope.finish()
    else:
        gateway.metrics.request("other", "", response.status, 0.0)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(LogLine("refused", {"id": http.id, "status": response.status, "why": failure.message}))
    return response


def classify(error: Exception) -> Failure:
    """Decides whose fault an error is. A body that we cannot read is the client's fault."""
    match error:
        case UpstreamError():
            return error.failure
        case LossError():
            words = f"refused rather than lost: {error}"
            return Failure(kind="invalid_request", status=400, code="loss_refused", param=error.where, message=words)
        case DecodeError():
            return Failure(kind="invalid_request", status=400, param=error.where or None, message=str(error))
        case RecursionError():
            return Failure(kind="invalid_request", status=400, message="nested too deeply")
        case _:
            return OWN_ERROR


def fail(dialect: Dialect, failure: Failure) -> HttpResponse:
    """A failure in the form of the client's dialect."""
    if failure.kind in ("rate_limited", "overloaded") and failure.retry_after_s is None:
        failure = replace(failure, retry_after_s=SOON_S)
    wire = dialect.encode_failure(failure)
    status = failure.status if failure.status in OWN_STATUSES else wire.status
    if dialect.name == NAME and failure.status == 502:
        status = 200  # an answer of JSON-RPC, which says so in its body
    headers = {"content-type": "application/json", **wire.headers}
    if failure.kind in ("invalid_request", "too_long", "not_found", "too_large", "refused", "no_credit"):
        headers["x-should-retry"] = "false"
    return HttpResponse(status, dump_json(wire.body), headers=headers)


def turned_away(status: int, words: str) -> Failure:
    match status:
        case 401:
            return Failure(kind="unauthenticated", status=401, code="invalid_api_key", message=words)
        case 403:
            return Failure(kind="forbidden", status=403, message=words)
        case 429:
            return Failure(kind="rate_limited", status=429, message=words, retry_after_s=60.0)
        case _:
            return Failure(kind="invalid_request", status=status, message=words)
