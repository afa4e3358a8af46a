"""There is one way to be legal: `convert`, the gateway, the client and `verify` write the same request for a target.

They may differ in this, and in nothing else:

- where a client speaks the target's dialect and no pass changed anything, the gateway sends the client's own bytes;
  `convert` writes the same JSON anew, so key order and spaces may differ;
- the gateway says how often a request was passed on (one header), and which version of Anthropic's API it speaks;
- the client and `verify` have no wire of their own: they are compared for targets of another dialect only.

Nothing else is left out: the upstream here is not asked for usage, takes the model's name as it is, and has the
profile of a conversion (the dialect's default; stop sequences and several answers are not made up for, because a
conversion has no way back).
"""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.client import AsyncClient
from dragoman.conformance import runner_play
from dragoman.conformance.runner_play import Player
from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.conformance.runner_wire import WireExchange, WireRequestToSend
from dragoman.conformance.scenario import Scenario, ScenarioTurn
from dragoman.convert import conversion_profile, convert, make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DragomanError
from dragoman.exchange import HOP, ClientRequest, Destination, UpstreamCall
from dragoman.failure import Failure
from dragoman.model.messages import Audio, Part
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.upstream.attempts import Job
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState
from tests.examples import examples
from tests.laws import odd_values, strategies
from tests.laws.snapshot.ways import DIALECTS, headers_of, path_of, read_request, talks
from tests.passes.test_prepare import requests as odd_requests
from tests.recorded import Case, needs_corpus

EXAMPLES = int(os.environ.get("DRAGOMAN_EXAMPLES", "60"))
EVERY = 5  # the client and `verify` are asked with every fifth recording: they run an event loop for each


class Written(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: bytes
    notes: tuple[Note, ...]


def recorded(dialect: str) -> Iterator[tuple[Case, bytes]]:
    for case in talks(dialect):
        raw = case.read("request.json")
        if raw is not None:
            yield case, raw


def upstream_for(dialect: str) -> Upstream:
    return Upstream(name="there", kind="compatible", dialect=dialect, stream_usage=False)


def state_for(upstream: Upstream, model: str) -> UpstreamState:
    """A server that takes what its dialect takes, and no more is known of it."""
    state, dialect = UpstreamState(upstream, lambda: 0.0), find_dialect(upstream.dialect)
    for client in NAMES:
        profile = conversion_profile(dialect, native=client == dialect.name)
        state.destinations[client, model] = Destination(dialect=dialect, model=model, profile=profile)
    return state


def plain(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in (HOP, "anthropic-version")}


def of_call(call: UpstreamCall) -> Written:
    return Written(call.path, plain(call.headers), call.body, tuple(call.notes))


def by_gateway(asked: ClientRequest, to: str) -> tuple[Written, bool]:
    """What is sent, and whether it is the client's own bytes."""
    model = asked.request.model
    upstream = upstream_for(to)
    call = render(asked, state_for(upstream, model), Target(upstream, model), stream=False, refuse=frozenset())
    return of_call(call), call.as_is


def by_convert(raw: bytes | dict[str, Any], source: str, to: str, path: str = "", headers: Any = None) -> Written:
    made = convert(raw, to=to, source=source, path=path, headers=headers)
    return Written(made.path, plain(made.headers), made.json(), made.notes)


def canonical(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = to_builtins(request)
    return body


def read_again(request: Request) -> Request:
    """With the numbers that the canonical wire reads: 0 is 0.0 there where a fraction may stand."""
    return msgspec.convert(canonical(request), Request)


@needs_corpus
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_the_gateway_writes_what_a_conversion_writes(source: str, to: str) -> None:
    for case, raw in recorded(source):
        try:
            converted = by_convert(raw, source, to, path_of(case), headers_of(case))
        except DragomanError as refusal:
            with pytest.raises(type(refusal)):
                by_gateway(read_request(source, raw, path_of(case), headers_of(case)), to)
            continue
        sent, as_is = by_gateway(read_request(source, raw, path_of(case), headers_of(case)), to)
        if as_is:
            assert json.loads(sent.body) == json.loads(converted.body), case.name
        else:
            assert sent == converted, case.name


@pytest.mark.parametrize("to", DIALECTS)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(request_=strategies.requests | odd_values.requests | odd_requests())
def test_the_gateway_writes_what_a_conversion_writes_for_any_conversation(to: str, request_: Request) -> None:
    asked = ClientRequest(
        dialect=find_dialect("canonical"),
        request=read_again(replace(request_, stream=False)),
        raw=b"",
        headers={},
        notes=(),
        same_wire=False,
    )
    try:
        converted = by_convert(canonical(asked.request), "canonical", to)
    except DragomanError as refusal:
        with pytest.raises(type(refusal)):
            by_gateway(asked, to)
        return
    assert by_gateway(asked, to)[0] == converted


# ---------------------------------------------------------------- the client and verify


class Silent(AsyncClient):
    """A client that renders a request and sends nothing."""

    def __init__(self, to: str, model: str) -> None:
        upstream = upstream_for(to)
        super().__init__(upstreams=(upstream,), env={})
        self.upstreams.upstream_states[upstream.name] = state_for(upstream, model)
        self.calls: list[UpstreamCall] = []

    async def ask(self, job: Job, copies: int = 1) -> Any:
        ((station, target),) = job.targets
        self.calls.append(job.render(station, target))


def by_client(request: Request, to: str) -> Written:
    async def send() -> UpstreamCall:
        client = Silent(to, request.model)
        await client.send(request, stream=bool(request.stream))
        return client.calls[0]

    return of_call(asyncio.run(send()))


class Deaf:
    """A line that keeps what it is given and never gets an answer."""

    offline = True

    def __init__(self) -> None:
        self.sent: list[WireRequestToSend] = []

    async def send(self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float) -> WireExchange:
        self.sent.append(ask)
        return WireExchange(method=ask.method, path=ask.path, failure=Failure(kind="unknown", message="no answer"))

    async def close(self) -> None: ...


def by_verify(request: Request, to: str, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(runner_play, "build_request", lambda scenario, model, said: request)
    monkeypatch.setattr(VerifyTarget, "profile", lambda *_: conversion_profile(find_dialect(to)))
    line, scenario = Deaf(), Scenario(name="recorded", turn=(ScenarioTurn(user="?"),))
    target = VerifyTarget(name="there", dialect=to, model=request.model, stream_usage=False)
    mode: Any = "streamed" if request.stream else "whole"
    done = asyncio.run(Player(scenario, target, mode, line, meaning=False, timeout_s=30).play())
    assert line.sent, done.words
    (sent,) = line.sent
    return Written(sent.path, plain(sent.headers), sent.body, tuple(done.notes))


@needs_corpus
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_the_client_and_verify_write_what_a_conversion_writes(
    source: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == to:
        return
    for case, raw in list(recorded(source))[::EVERY]:
        request = read_request(source, raw, path_of(case), headers_of(case)).request
        request = read_again(replace(request, model="m", stream=bool(request.stream), choices=None))
        try:
            converted = by_convert(canonical(request), "canonical", to)
        except DragomanError as refusal:
            with pytest.raises(type(refusal)):
                by_client(request, to)
            continue
        assert by_client(request, to) == converted, case.name
        told = by_verify(request, to, monkeypatch)
        assert replace(told, notes=()) == replace(converted, notes=()), case.name
        assert set(told.notes) == set(converted.notes), case.name  # `verify` lists equal notes once


# ---------------------------------------------------------------- what an encoder is given


@pytest.mark.parametrize("to", DIALECTS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(request_=strategies.requests | odd_values.requests | odd_requests())
def test_after_the_passes_an_encoder_leaves_out_no_turn_and_no_part(to: str, request_: Request) -> None:
    """An empty turn is refused, and its neighbours meet: so a pass leaves it out, never an encoder.

    Empty text may go. So may sound for Ollama: only its bytes tell whether Ollama reads it. And the second sound of an
    assistant's turn for Chat, which has a place for one: the first stays, so the turn is not empty.
    """
    there, notes = find_dialect(to), Notes()
    try:
        legal = make_legal(request_, there, Notes())
    except DragomanError:
        return
    there.encode_request(legal, notes)
    gone = {note.where for note in notes if note.kind == "dropped"}
    for i, message in enumerate(legal.messages):
        silent = [may_go(part, to) for part in message.parts]
        assert f"/messages/{i}" not in gone or all(silent)
        assert [j for j, empty in enumerate(silent) if f"/messages/{i}/parts/{j}" in gone and not empty] == []


def may_go(part: Part, to: str) -> bool:
    return not getattr(part, "text", "?") or (to in ("ollama", "openai_chat") and type(part) is Audio)
