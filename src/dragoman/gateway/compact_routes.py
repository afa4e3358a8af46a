"""/v1/responses/compact: Codex asks the server to shorten a conversation (FIELD-CASES 148).

A Responses upstream is asked as it is: what it seals, only it can open. Elsewhere there is no such thing, and Codex,
told so plainly, shortens it itself.
"""

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.conversation import no_model
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse
from dragoman.gateway.non_chat import ask, read_object
from dragoman.gateway.routes import Match
from dragoman.gateway.state import Gateway
from dragoman.upstream.render import choose_dialect
from dragoman.wire import WireRequest


async def serve_compact(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    dialect, path = match.route.dialect, match.path(http.query)
    body = await read_object(gateway, http)
    model = body.get("model")
    if type(model) is not str:
        raise DecodeError("expected the name of a model", "model")
    targets = gateway.now.targets(model, lambda: 0.0)
    if not targets:
        raise UpstreamError(no_model(model))
    spec, name = targets[0][0].spec, targets[0][1].model
    if choose_dialect(spec, dialect.name, name) != dialect.name:
        words_ = f"remote compaction ({path}) is not offered by {spec.name}: compact on your side"
        raise UpstreamError(Failure(kind="not_found", status=404, code="compaction_unsupported", message=words_))

    def form(there: Dialect, model: str) -> WireRequest:
        return WireRequest(path=path, body={**body, "model": model})

    answer = await ask(gateway, http, "compact", dialect, model, form)
    try:
        return HttpResponse(200, answer.raw, headers={"content-type": JSON_TYPE})
    finally:
        if http.scope is not None:
            http.scope.finish()
