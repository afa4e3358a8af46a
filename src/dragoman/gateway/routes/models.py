"""The list of models, in each dialect's own shape, with aliases (FIELD-CASES 89)."""

import asyncio

from msgspec.structs import replace

from dragoman.dialects._services import ListedModel, ModelsCodec
from dragoman.dialects.ollama.services import SERVER_VERSION, encode_running, encode_shown
from dragoman.errors import DecodeError, UpstreamError
from dragoman.gateway import DEFAULT_MODEL
from dragoman.gateway.access.charge import may_use
from dragoman.gateway.conversation import FRESH_S, no_model
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.non_chat import read_object
from dragoman.gateway.routes.table import Match, tell_client
from dragoman.gateway.state import Gateway
from dragoman.upstream.model_lists import describe
from dragoman.upstream.routing import find_default, is_legal_model

RUNNING_S = 300.0  # how long Ollama's clients are told that a model stays in memory


async def serve_models(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    await gateway.look_for_models(FRESH_S)
    rows = []
    for name in gateway.now.models:
        if may_use(gateway.now, http.holder, name):
            rows.append(_describe(name, gateway))
        if not len(rows) % 100:
            await asyncio.sleep(0)  # lists are long at first, and others are served too
    default = find_default(gateway.now.routes, gateway.now.settings.default_model)
    usable = default is not None and is_legal_model(default) and may_use(gateway.now, http.holder, default)
    headers = {DEFAULT_MODEL: default} if default is not None and usable else {}
    return json_response(_codec(http, match).encode(rows, http.query), headers=headers)


async def serve_model(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    name = await _find(gateway, http, match.groups["model"])
    return json_response(_codec(http, match).encode_one(_describe(name, gateway)))


def _codec(http: HttpRequest, match: Match) -> ModelsCodec:
    """The form of the list. Clients of several dialects use OpenAI's path; their headers tell them apart."""
    found = tell_client(http, match.route.dialect).models
    if found is None:
        raise DecodeError(f"{match.route.dialect.name} has no list of models")
    return found


async def serve_running(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    busy = {name for name, state in gateway.now.upstream_states.items() if state.admission.running}
    known = [name for name, upstream in gateway.now.models.items() if upstream in busy]
    rows = [_describe(name, gateway) for name in known if may_use(gateway.now, http.holder, name)]
    return json_response(encode_running(rows, gateway.wall() + RUNNING_S))


async def serve_show(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    asked = body.get("model") or body.get("name") or ""
    name = await _find(gateway, http, asked if isinstance(asked, str) else "")
    return json_response(encode_shown(_describe(name, gateway)))


async def serve_version(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return json_response({"version": SERVER_VERSION})


def _describe(name: str, gateway: Gateway) -> ListedModel:
    """What is known about the model behind a name."""
    owner = gateway.now.models.get(name, "dragoman")
    targets = gateway.now.targets(name, lambda: 0.0)
    if not targets:
        return ListedModel(name=name, owner=owner, created=gateway.started)
    state, target = targets[0]
    card = describe(state, target.model)
    return replace(card, name=name, owner=owner, created=card.created or gateway.started)


async def _find(gateway: Gateway, http: HttpRequest, asked: str) -> str:
    try:
        return _known(gateway, http, asked)
    except UpstreamError:
        await gateway.look_for_models(FRESH_S)
        return _known(gateway, http, asked)


def _known(gateway: Gateway, http: HttpRequest, asked: str) -> str:
    """The name of a model that exists for this key."""
    if not may_use(gateway.now, http.holder, asked):
        raise UpstreamError(no_model(gateway.now, asked, http.holder))
    plain = asked.removeprefix("models/")
    for name in (plain, plain.removesuffix(":latest")):
        if name in gateway.now.models:
            return name
    # an explicit upstream/model is served though it is not listed
    first = plain.partition("/")[0]
    if "/" in plain and first in gateway.now.upstream_states and gateway.now.targets(plain, lambda: 0.0):
        return plain
    raise UpstreamError(no_model(gateway.now, asked, http.holder))
