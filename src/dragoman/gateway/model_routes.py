"""The models there are, in each dialect's own shape, aliases included (FIELD-CASES 89)."""

from collections.abc import Iterator

from msgspec.structs import replace

from dragoman.dialects import USUAL
from dragoman.dialects._services import ListedModel, ModelsCodec
from dragoman.dialects.ollama.services import SERVER_VERSION, encode_running, encode_shown
from dragoman.errors import DecodeError, UpstreamError
from dragoman.gateway.conversation import no_model
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.non_chat_routes import read_object
from dragoman.gateway.routes import Match, tell_client
from dragoman.gateway.state import Gateway
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import Rows, kinds_of_model
from dragoman.upstream.render import find_destination
from dragoman.upstream.spec import DEMO

RUNNING_S = 300.0  # how long a model is said to stay in memory


async def serve_models(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    rows = [_describe(name, gateway) for name in gateway.now.models]
    return json_response(_codec(http, match).encode(rows, http.query))


async def serve_model(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    name = _known(gateway, match.groups["model"])
    return json_response(_codec(http, match).encode_one(_describe(name, gateway)))


def _codec(http: HttpRequest, match: Match) -> ModelsCodec:
    """OpenAI's path is also that of clients of other dialects: what only they send tells them."""
    found = tell_client(http, match.route.dialect).models
    if found is None:
        raise DecodeError(f"{match.route.dialect.name} has no list of models")
    return found


async def serve_running(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    busy = {name for name, state in gateway.now.upstream_states.items() if state.admission.running}
    rows = [_describe(name, gateway) for name, upstream in gateway.now.models.items() if upstream in busy]
    return json_response(encode_running(rows, gateway.wall() + RUNNING_S))


async def serve_show(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    asked = body.get("model") or body.get("name") or ""
    name = _known(gateway, asked if isinstance(asked, str) else "")
    return json_response(encode_shown(_describe(name, gateway)))


async def serve_version(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return json_response({"version": SERVER_VERSION})


def _describe(name: str, gateway: Gateway) -> ListedModel:
    """What the rows, the configuration and refusals say of the model behind a name. The rest is not known."""
    card = ListedModel(name=name, owner=gateway.now.models.get(name, "dragoman"), created=gateway.started)
    targets = gateway.now.targets(name, lambda: 0.0)
    if not targets:
        return card
    state, target = targets[0]
    if state.spec.kind == DEMO:
        return replace(card, abilities=("vision", "thinking"))
    profile = find_destination(state, USUAL, target.model).profile
    most = profile.ranges.get("max_output", (None, None))[1]
    return replace(
        card,
        max_input=profile.window or profile.context,
        max_output=None if most is None else int(most),
        abilities=tuple(_find_abilities(profile, target.model, state.spec.rows)),
    )


def _find_abilities(profile: Profile, model: str, rows: Rows | None) -> Iterator[str]:
    """Of a vendor's own model its row says what it takes. A model of any name on any server may be blind."""
    if profile.media.images and kinds_of_model(model, rows):
        yield "vision"
    if profile.thinking is not None and profile.thinking.says != "nothing":
        yield "thinking"


def _known(gateway: Gateway, asked: str) -> str:
    plain = asked.removeprefix("models/")
    for name in (plain, plain.removesuffix(":latest")):
        if name in gateway.now.models:
            return name
    # an explicit upstream/model is served though it is not listed
    first = plain.partition("/")[0]
    if "/" in plain and first in gateway.now.upstream_states and gateway.now.targets(plain, lambda: 0.0):
        return plain
    raise UpstreamError(no_model(asked))
