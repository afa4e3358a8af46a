"""A client's request for one running upstream: the dialect it goes over, and the profile as it is known now."""

from typing import Literal

from msgspec.structs import replace

from dragoman.dialects import CANONICAL, USUAL, find_dialect
from dragoman.dialects._services import ListedModel
from dragoman.exchange import ClientRequest, Destination, UpstreamCall, make_destination, write_call
from dragoman.model.request import ReasoningSetting
from dragoman.notes import Note, Notes
from dragoman.passes.emulate import split_choices
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import choose_dialect as dialect_of_model
from dragoman.upstream.profiles import load_rows, merge, profile_for
from dragoman.upstream.spec import DEMO, Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState

MOST_DESTINATIONS = 1_000


def render(
    client_request: ClientRequest, state: UpstreamState, target: Target, *, stream: bool, refuse: frozenset[str]
) -> UpstreamCall:
    """The call for one attempt. It is made anew from the canonical request each time (FIELD-CASES 102)."""
    notes = Notes(refuse)  # type: ignore[arg-type]  # checked where it was read
    if client_request.notes:
        notes.extend(client_request.notes)
    if state.spec.kind == DEMO:  # it reads the canonical request
        request = replace(client_request.request, model=target.model, stream=stream or client_request.request.stream)
        canonical = find_dialect(CANONICAL)
        return UpstreamCall(dialect=canonical, path="", body=b"", headers={}, notes=notes, request=request)
    if target.effort is not None:
        client_request = _with_effort(client_request, target.effort, notes)
    destination = find_destination(state, client_request.dialect.name, target.model)
    return write_call(client_request, destination, notes, stream=stream)


def _with_effort(client_request: ClientRequest, effort: str, notes: Notes) -> ClientRequest:
    """A name such as gpt-5.5-low says how much to think, whatever the client says for every model."""
    asked = client_request.request.reasoning or ReasoningSetting()
    if asked.effort not in (None, effort) or asked.budget is not None:
        notes.extend([Note("altered", "/model", f"the model's name asks for effort {effort}")])
    mode: Literal["on", "off"] = "off" if effort == "none" else "on"
    setting = replace(asked, mode=mode, effort=None if effort == "none" else effort, budget=None)
    request = replace(client_request.request, reasoning=setting)
    return replace(client_request, request=request, same_wire=False)


def find_destination(state: UpstreamState, client: str, model: str) -> Destination:
    """For clients of one dialect. The profile comes from the rows, the configuration, and what refusals have taught
    this process."""
    known = state.destinations.get((client, model))  # fast path: known profile
    if known is not None:
        return known
    spec, name = state.spec, choose_dialect(state.spec, client, model)
    destination = make_destination(
        find_dialect(name),
        model,
        find_profile(state, name, model),
        upstream=spec.name,
        native=name == client,
        stream_usage=spec.stream_usage,
    )
    if len(state.destinations) >= MOST_DESTINATIONS:  # model names come from clients
        state.destinations.clear()
    state.destinations[client, model] = destination
    return destination


def find_profile(state: UpstreamState, dialect: str, model: str) -> Profile:
    spec = state.spec
    overrides = merge(listed_fields(state.listed.get(model)), spec.overrides)
    overrides = {**overrides, **state.learned.get((dialect, model), {})}
    return profile_for(spec.kind, model, dialect, overrides, spec.rows)


def listed_fields(model: ListedModel | None) -> dict[str, object]:
    """The fields of a profile that the upstream's own list of models says."""
    if model is None:
        return {}
    fields: dict[str, object] = {"window": model.window, "most_output": model.max_output}
    if model.vision is False:
        fields["media"] = {"images": ()}
    if model.thinking is False:
        fields["thinking"] = {"says": "nothing"}
    return {name: value for name, value in fields.items() if value is not None}


def split(
    client_request: ClientRequest, state: UpstreamState, target: Target, *, refuse: frozenset[str]
) -> tuple[ClientRequest, int]:
    """The request to send, and how often: several times if the client wants several answers and the target gives
    one."""
    upstream = state.spec
    if upstream.kind == DEMO:  # it can give several answers itself
        return client_request, 1
    name = choose_dialect(upstream, client_request.dialect.name, target.model)
    profile = profile_for(upstream.kind, target.model, name, upstream.overrides, upstream.rows)
    notes = Notes(refuse)  # type: ignore[arg-type]  # checked where it was read
    client_request.begin_notes(notes)
    request, copies = split_choices(client_request.request, profile, notes)
    if copies == 1:
        return client_request, 1
    return replace(client_request, request=request, same_wire=False, notes=(*client_request.notes, *notes)), copies


def choose_dialect(upstream: Upstream, client: str, model: str) -> str:
    """The API path follows the model (mission B6). A client keeps its own dialect where models of that kind go over
    it. What a server emulates beside its own dialect we convert better ourselves (BACKENDS.md: llama.cpp's
    Responses)."""
    spoken = upstream.dialects or (upstream.dialect,)
    if len(spoken) == 1:
        return spoken[0]
    if client in spoken and client != USUAL and _is_native(upstream, client):
        return client
    wanted = dialect_of_model(upstream.kind, model, upstream.rows)
    return wanted if wanted in spoken else upstream.dialect


def _is_native(upstream: Upstream, dialect: str) -> bool:
    """Whether some of its models go over this dialect."""
    families = (upstream.rows or load_rows()).families
    return any(family.dialect == dialect and upstream.kind in (family.kinds or ()) for family in families)
