"""Every official client through every door to every upstream dialect: strict scripted providers judge what we send,
the vendors' own types judge what we answer.
"""

import contextlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dragoman.testing import Provider, faults, serve
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.gateway.sdks import CLOCK, DOORS, SCHEMA, WEATHER

UPSTREAMS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}


class Court:
    """One gateway in front of one provider per dialect."""

    def __init__(self, house: House, providers: dict[str, Provider]) -> None:
        self.house = house
        self.providers = providers
        self.doors: dict[str, Any] = {name: door(house.url) for name, door in DOORS.items()}


@pytest.fixture(scope="module")
def court() -> Iterator[Court]:
    with ExitStack() as stack:
        providers = {name: stack.enter_context(serve(name, key=CANARY)) for name in UPSTREAMS}
        specs = [
            upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=(f"{name}-model",))
            for name, provider in providers.items()
        ]
        house = stack.enter_context(open_house(*specs))
        court = Court(house, providers)
        yield court
        for door in court.doors.values():
            door.close()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, court: Court) -> Any:
    return court.doors[request.param]


@pytest.fixture(params=UPSTREAMS)
def provider(request: pytest.FixtureRequest, court: Court) -> Iterator[Provider]:
    found = court.providers[request.param]
    found.reset()
    found._pace_s = 0.0
    for state in court.house.gateway.now.upstream_states.values():
        state._breakers.clear()
        for key in state.keys.keys:
            key.rests.clear()
    found.name = f"{request.param}-model"  # type: ignore[attr-defined]
    yield found
    assert found.refusals == []


def model_of(provider: Provider) -> str:
    return str(provider.name)  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_question_is_answered(door: Any, provider: Provider, stream: bool) -> None:
    said = door.ask(model_of(provider), "say 안녕 🌍 שלום", stream=stream)
    assert said.text.strip() == "안녕 🌍 שלום"
    assert said.finish == "stop"
    assert said.tokens is not None
    assert all(count > 0 for count in said.tokens)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_is_called_and_its_result_answered_from(door: Any, provider: Provider, stream: bool) -> None:
    asked = "use get_weather for `Seoul`"
    called = door.ask(model_of(provider), asked, tools=[WEATHER, CLOCK], stream=stream)
    assert [name for name, _ in called.calls] == ["get_weather"]
    assert called.calls[0][1]["city"] == "Seoul"
    assert called.finish == "tool"
    said = door.ask(
        model_of(provider), "", tools=[WEATHER, CLOCK], after=called.raw, results=["sunny, 21 degrees"], stream=stream
    )
    assert "sunny, 21 degrees" in said.text
    assert said.finish == "stop"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_two_tools_are_called_at_once(door: Any, provider: Provider, stream: bool) -> None:
    asked = "in parallel use get_weather and get_time for `Seoul`"
    called = door.ask(model_of(provider), asked, tools=[WEATHER, CLOCK], stream=stream)
    assert sorted(name for name, _ in called.calls) == ["get_time", "get_weather"]
    said = door.ask(model_of(provider), "", tools=[WEATHER, CLOCK], after=called.raw, results=["one", "two"])
    assert "one" in said.text
    assert "two" in said.text


def test_an_answer_keeps_to_a_schema(door: Any, provider: Provider) -> None:
    said = door.ask(model_of(provider), "who is `Ada`, 36?", schema=True)
    value = json.loads(said.text)
    assert set(value) == set(SCHEMA["required"])  # type: ignore[call-overload]
    assert isinstance(value["age"], int)


def test_a_picture_arrives(door: Any, provider: Provider) -> None:
    said = door.ask(model_of(provider), "what is in this picture?", image=True)
    assert said.text
    assert b"iVBORw0KGgo" in provider.requests[-1].body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_thoughts_come_and_go_back(door: Any, provider: Provider, stream: bool) -> None:
    said = door.ask(model_of(provider), "use get_weather for `Seoul`", tools=[WEATHER], think=True, stream=stream)
    assert [name for name, _ in said.calls] == ["get_weather"]
    after = door.ask(
        model_of(provider), "", tools=[WEATHER], after=said.raw, results=["rain"], think=True, stream=stream
    )
    assert "rain" in after.text


def test_the_limit_is_kept_and_said(door: Any, provider: Provider) -> None:
    said = door.ask(model_of(provider), "count to 200", limit=16)
    assert said.finish == "length"


@pytest.mark.parametrize("status", [400, 404, 429, 500, 529])
def test_an_error_has_its_status_in_the_clients_own_exception(door: Any, provider: Provider, status: int) -> None:
    provider.always(faults.failing(status, "no, and here is why", headers={"retry-after": "99"}))
    with pytest.raises(door.Error) as caught:
        door.ask(model_of(provider), "say hi")
    seen = getattr(caught.value, "status_code", None) or getattr(caught.value, "code", None)
    expected = {529: {529, 503}, 500: {500, 502}}.get(status, {status})
    if status == 529 and provider.kind != "anthropic":
        expected |= {500}  # nobody else has that status: the words of the body say what it is
    assert seen in expected
    assert "no, and here is why" in str(caught.value)
    assert CANARY not in str(caught.value)
    assert len(provider.requests) <= 3
    provider.reset()


def test_a_refused_key_is_never_the_clients_401(door: Any, provider: Provider) -> None:
    provider.always(faults.failing(401, f"bad key {CANARY}"))
    with pytest.raises(door.Error) as caught:
        door.ask(model_of(provider), "say hi")
    seen = getattr(caught.value, "status_code", None) or getattr(caught.value, "code", None)
    assert seen == 502
    assert CANARY not in str(caught.value)
    assert len(provider.requests) == 1
    provider.reset()


@pytest.mark.parametrize("how", ["error_in_stream", "cut"])
def test_a_stream_that_breaks_is_an_exception_not_an_answer(door: Any, provider: Provider, how: str) -> None:
    fault = faults.error_in_stream(after=20) if how == "error_in_stream" else faults.cut(after=20)
    provider.next(fault)
    provider._pace_s = 0.002  # what comes together with the failure is not yet said to the client, and tried again
    finish = ""
    with contextlib.suppress(Exception):  # each client has its own
        finish = door.ask(model_of(provider), "count to 50", stream=True).finish
    assert finish == "", "half an answer passed for a whole one"
    assert len(provider.requests) == 1
    provider.reset()


def test_every_model_is_listed(door: Any, court: Court) -> None:
    assert sorted(door.models()) == sorted(f"{name}-model" for name in UPSTREAMS)


@pytest.mark.parametrize("door_name", ["openai_responses", "anthropic", "gemini"])
def test_tokens_are_counted(court: Court, provider: Provider, door_name: str) -> None:
    assert court.doors[door_name].count(model_of(provider), "how many tokens are these?") > 0
