"""What holds for Parrot Chat once it is a dialect. test_dialect.py runs this file over a copy of the source.

Nothing here and nothing in the source knows parrot but its folder and its line.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import dragoman
from dragoman.convert import convert, convert_failure, convert_reply, convert_stream, recognise
from dragoman.dialects import SPOKEN, find_dialect
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.testing import serve
from dragoman.upstream.spec import Upstream
from tests.gateway.house import CANARY, open_house, upstream
from tests.gateway.web import get, post
from tests.laws import strategies
from tests.laws.round_trip import reply_differences, request_differences, stream_differences
from tests.laws.test_generated import interleaved_differences, late_seal_differences

PARROT = find_dialect("parrot")
OTHERS = [name for name in SPOKEN if name != "parrot"]
WORDS = {"kind": "words", "words": "Is it raining in Bergen?"}
CALL = {"kind": "fetch", "id": "call_1", "tool": "weather", "with": '{"city":"Bergen"}'}
RESULT = {"kind": "fetched", "id": "call_1", "says": [{"kind": "words", "words": "rain"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
REQUEST: dict[str, Any] = {
    "model": "m",
    "turns": [
        {"who": "owner", "says": [{"kind": "words", "words": "Answer as a sailor would."}]},
        {"who": "human", "says": [WORDS]},
        {"who": "bird", "says": [CALL]},
        {"who": "human", "says": [RESULT]},
    ],
    "tools": [{"name": "weather", "about": "Tells the weather.", "takes": SCHEMA}],
    "stream": True,
    "limit": 100,
}
REPLY: dict[str, Any] = {
    "id": "r1",
    "model": "m",
    "says": [{"kind": "words", "words": "Let me look."}, CALL],
    "end": {"because": "fetching"},
    "crackers": {"eaten": 7, "given": 5},
}
ANSWER = Reply(
    id="r1",
    model="m",
    choices=(
        Choice(
            parts=(Text(text="Let me look."), ToolCall(id="call_1", name="weather", arguments='{"city":"Bergen"}')),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=7, output=5),
)
often = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def test_the_dialect_comes_from_the_copy() -> None:
    assert Path(dragoman.__file__).is_relative_to(os.environ["DRAGOMAN_RECIPE"])


# ---------------------------------------------------------------- conversions


@pytest.mark.parametrize("other", OTHERS)
def test_a_request_goes_to_every_dialect_and_comes_back(other: str) -> None:
    there = convert(REQUEST, source="parrot", to=other)
    back = convert(there.json(), source=other, to="parrot", path=there.path, headers=there.headers)
    assert back.body == REQUEST
    assert back.path == "/v1/squawk"


@pytest.mark.parametrize("other", OTHERS)
def test_a_reply_goes_to_every_dialect_and_comes_back(other: str) -> None:
    there = convert_reply(REPLY, source="parrot", to=other)
    back = convert_reply(there.json(), source=other, to="parrot")
    assert _said(back.body) == _said(REPLY)


@pytest.mark.parametrize("other", OTHERS)
def test_a_stream_with_a_tool_call_goes_to_every_dialect_and_comes_back(other: str) -> None:
    encoder = PARROT.stream_encoder(Notes())
    data = encoder.feed(unfold(ANSWER)) + encoder.close()
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    there = list(convert_stream(pieces, source="parrot", to=other))
    decoder = PARROT.stream_decoder(Notes())
    back = b"".join(convert_stream(there, source=other, to="parrot"))
    reply = fold([*decoder.feed(back), *decoder.close()])
    assert isinstance(reply, Reply)
    assert _said(PARROT.encode_reply(reply, Notes()).body) == _said(REPLY)


def _said(body: Any) -> Any:
    """What an answer says: servers have ids of their own, and Gemini's and Ollama's calls have none."""
    says = [{key: value for key, value in block.items() if key != "id"} for block in body["says"]]
    return {"says": says, "end": body["end"]["because"], "crackers": body["crackers"]}


@pytest.mark.parametrize("other", OTHERS)
def test_a_failure_goes_to_every_dialect_and_comes_back(other: str) -> None:
    said = {"trouble": "too_fast", "words": "one at a time"}
    there = convert_failure(said, source="parrot", to=other, status=429)
    back = convert_failure(there.json(), source=other, to="parrot", status=there.status)
    assert (there.status, back.status, back.body) == (429, 429, said)


def test_a_cut_stream_ends_in_trouble() -> None:
    encoder = PARROT.stream_encoder(Notes())
    data = encoder.feed(list(unfold(ANSWER))[:3])
    assert b"event: trouble" in b"".join(convert_stream([data], source="parrot", to="parrot"))


def test_bodies_are_recognised() -> None:
    assert recognise(REQUEST, "request") is recognise(REPLY, "reply") is PARROT


# ---------------------------------------------------------------- laws


@often
@given(strategies.requests)
def test_no_request_loses_anything_in_silence(request_: Request) -> None:
    assert request_differences(request_, PARROT) == []


@often
@given(strategies.replies(2))
def test_no_answer_loses_anything_in_silence(reply: Reply) -> None:
    assert reply_differences(reply, PARROT) == []
    assert stream_differences(reply, PARROT) == []
    assert interleaved_differences(reply, PARROT) == []
    assert late_seal_differences(reply, PARROT) == []


# ---------------------------------------------------------------- the gateway

ASKED = {"turns": [{"who": "human", "says": [WORDS]}], "limit": 50}


def test_the_gateway_serves_its_door_with_the_demo_model() -> None:
    with open_house() as house:
        whole = post(house.url, "/v1/squawk", {**ASKED, "model": "demo"})
        assert (whole.status, whole.json["end"]) == (200, {"because": "done"})
        assert whole.json["says"][0]["kind"] == "words"
        streamed = post(house.url, "/squawk", {**ASKED, "model": "demo", "stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert _fold(streamed.body)["says"] == whole.json["says"]
        assert 'door="parrot"' in get(house.url, "/metrics").text


def test_errors_are_said_in_its_words() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("far", "anthropic", provider.base_url)) as house,
    ):
        unknown = post(house.url, "/v1/squawk", {**ASKED, "model": "no-such-model"})
        assert (unknown.status, unknown.json) == (404, {"trouble": "feathers", "words": "model: no-such-model"})
        wrong = post(house.url, "/v1/squawk", {"model": "m", "turns": [{"who": "cat", "says": []}]})
        assert (wrong.status, wrong.json["trouble"]) == (400, "gibberish")
        assert "/turns/0/who" in wrong.json["words"]


def test_a_strict_anthropic_provider_answers_its_clients() -> None:
    with serve("anthropic", key=CANARY) as provider:
        spec = upstream("far", "anthropic", provider.base_url)
        with open_house(spec) as house:
            provider.say(ANSWER, ANSWER)
            asked = {**REQUEST, "model": "far-model", "stream": False}
            whole = post(house.url, "/v1/squawk", asked)
            assert (whole.status, _said(whole.json)) == (200, _said(REPLY))
            streamed = post(house.url, "/v1/squawk", {**asked, "stream": True})
            assert _said(_fold(streamed.body)) == _said(REPLY)
        assert provider.refusals == []
        sent = provider.requests[0].json
        assert sent["system"] == "Answer as a sailor would."
        assert [block["type"] for turn in sent["messages"][1:] for block in turn["content"]] == [
            "tool_use",
            "tool_result",
        ]


def test_a_provider_of_it_answers_clients_of_other_dialects() -> None:
    """The provider is a second gateway: its door of this dialect."""
    with open_house() as far:
        spec = Upstream(
            name="bird",
            dialect="parrot",
            kind="compatible",
            base_url=far.url,
            auth="none",
            models=("demo",),
        )
        with open_house(spec) as house:
            body = {"model": "demo", "messages": [{"role": "user", "content": "Say hello."}]}
            whole = post(house.url, "/v1/chat/completions", body)
            assert whole.status == 200, whole.text
            said = whole.json["choices"][0]["message"]["content"]
            streamed = post(house.url, "/v1/chat/completions", {**body, "stream": True})
            assert streamed.status == 200
            assert said.split()[0] in streamed.text
            same = post(house.url, "/v1/squawk", {**ASKED, "model": "demo"})
            assert same.json["says"][0]["kind"] == "words"


def _fold(stream: bytes) -> Any:
    decoder = PARROT.stream_decoder(Notes())
    reply = fold([*decoder.feed(stream), *decoder.close()])
    assert isinstance(reply, Reply), reply
    return PARROT.encode_reply(reply, Notes()).body
