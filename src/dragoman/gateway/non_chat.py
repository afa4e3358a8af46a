"""Requests that are no conversation (embeddings, speech): the same queue, keys, retries and fallbacks, any body."""

from collections.abc import Callable

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.exchange import UpstreamCall
from dragoman.gateway.bodies import load_body, read_body
from dragoman.gateway.conversation import no_model
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.scope import Scope
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.notes import Notes
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import Job
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

Form = Callable[[Dialect, str], WireRequest]  # what to send for a dialect and a model


async def read_object(gateway: Gateway, http: HttpRequest) -> JsonObject:
    raw = await read_body(http, gateway.now.settings)
    return load_body(raw, gateway.now.settings.limits)


async def ask(
    gateway: Gateway, http: HttpRequest, door: str, dialect: Dialect, model: str, form: Form
) -> UpstreamAnswer:
    """The answer of the first upstream that gives one; its body is in `raw`."""
    scope = http.scope = Scope(gateway, http, dialect, door)
    scope.model = model
    targets = gateway.now.targets(model, gateway.dice)
    if not targets:
        raise UpstreamError(no_model(model))

    def render(state: UpstreamState, target: Target) -> UpstreamCall:
        spoken = state.spec.dialects or (state.spec.dialect,)
        own = find_dialect(spoken[0])
        wire = form(own, target.model)
        return UpstreamCall(
            dialect=own, path=wire.path, body=dump_json(wire.body), headers={}, notes=Notes(), opaque=True
        )

    job = Job(
        targets=targets,
        render=render,
        stream=False,
        deadline=scope.started + gateway.now.settings.deadline_s,
        client=http.key_id or http.client,
        attempts=scope.attempts,
    )
    scope.answer = answer = await gateway.sender.ask(job)
    scope.status = 200
    return answer
