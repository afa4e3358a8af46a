"""One exchange: what is sent for a client's request, what is sent after a refusal, and the way back of the answer."""

import asyncio
import json

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import UpstreamError
from dragoman.exchange import (
    HOP,
    MOST_CORRECTIONS,
    ClientRequest,
    Destination,
    UpstreamCall,
    put_model,
    send_corrected,
    write_call,
)
from dragoman.failure import Failure
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.fold import unfold
from dragoman.model.messages import Reasoning, Text
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import OutputFormat, Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.way_back import INVALID_ANSWER, InvalidAnswer, StreamWayBack
from tests.passes.short_forms import talk, user

CHAT = find_dialect("openai_chat")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
JSON_ANSWER = OutputFormat(type="json_schema", name="r", schema=SCHEMA)
WORDED = Profile(kind="x", dialect="openai_chat", lacks=("json", "json_schema", "tool_choice"))  # JSON in words only
NAMES = ("temperature", "top_p", "seed", "presence_penalty")


def write(request: Request, profile: Profile, notes: Notes | None = None, *, stream: bool = False) -> UpstreamCall:
    client_request = ClientRequest(dialect=find_dialect("canonical"), request=request, hops=1)
    to = Destination(dialect=CHAT, model="m", profile=profile)
    return write_call(client_request, to, notes if notes is not None else Notes(), stream=stream)


def refusal(name: str) -> UpstreamError:
    words = f"Unsupported parameter: '{name}' is not supported with this model."
    return UpstreamError(Failure(kind="invalid_request", status=400, message=words))


def reply(text: str) -> Reply:
    choice = Choice(parts=(Text(text=text),), finish=Finish(reason="stop"))
    return Reply(id="r", model="m", choices=(choice,), usage=Usage(input=3, output=2))


def corrected(call: UpstreamCall, error: UpstreamError) -> UpstreamCall:
    found = call.correct(error)
    assert found is not None
    return found


def invalid(call: UpstreamCall, text: str) -> InvalidAnswer:
    assert call.way_back is not None
    with pytest.raises(InvalidAnswer) as caught:
        call.way_back.reply(reply(text))
    return caught.value


# ---------------------------------------------------------------- the way there


def test_a_call_counts_the_gateways_on_its_way() -> None:
    assert write(talk(user("q")), CHAT.profile).headers[HOP] == "2"


def test_a_call_is_corrected_as_often_as_it_may_be() -> None:
    call = write(talk(user("q"), temperature=0.5, top_p=0.5, seed=1, presence_penalty=0.5), CHAT.profile)
    for i, name in enumerate(NAMES[:MOST_CORRECTIONS]):
        assert name in json.loads(call.body)
        call = corrected(call, refusal(name))
        assert call.learned == {"rejects": tuple(NAMES[: i + 1])}  # all of it is remembered when the call is answered
        assert name not in json.loads(call.body)
    assert call.correct(refusal(NAMES[MOST_CORRECTIONS])) is None


def test_an_ordinary_failure_corrects_nothing() -> None:
    call = write(talk(user("q"), temperature=0.5), CHAT.profile)
    assert call.correct(UpstreamError(Failure(kind="server_error", status=500, message="temperature"))) is None


def test_sending_ends_with_the_first_error_that_teaches_nothing() -> None:
    sent: list[bytes] = []

    async def send(call: UpstreamCall) -> Reply:
        sent.append(call.body)
        raise refusal("temperature")

    with pytest.raises(UpstreamError, match="temperature"):
        asyncio.run(send_corrected(write(talk(user("q"), temperature=0.5), CHAT.profile), send, UpstreamCall.accept))
    assert ["temperature" in json.loads(body) for body in sent] == [True, False]


def test_only_the_models_name_is_another() -> None:
    data = b'{ "metadata": {"model":"m"}, "model" : "m" ,"x":1.0}'
    assert put_model(data, "n", "m") == b'{ "metadata": {"model":"m"}, "model" : "n" ,"x":1.0}'
    assert put_model(data, "m", "m") is data
    assert put_model(b'{"x":"model"}', "n", "m") == b'{"x":"model"}'
    assert put_model(b'{"model":"models/m"}', "n", "m") == b'{"model":"models/n"}'
    assert put_model(b'{"model":"other-m"}', "n", "m") == b'{"model":"other-m"}'


# ---------------------------------------------------------------- the way back


def test_an_answer_that_nothing_was_changed_for_stays_as_it_is() -> None:
    assert write(talk(user("q")), CHAT.profile).way_back is None


def test_a_wrong_json_answer_is_asked_for_once_more_and_costs_what_both_cost() -> None:
    first = write(talk(user("q"), output=JSON_ANSWER), WORDED)
    second = corrected(first, invalid(first, '{"a":1}'))
    assert [turn["role"] for turn in json.loads(second.body)["messages"]][-2:] == ["assistant", "user"]
    assert second.way_back is not None
    answer = second.way_back.reply(reply('{"a":"b"}'))
    assert answer.choices[0].parts == (Text(text='{"a":"b"}'),)
    assert answer.usage == Usage(input=6, output=4)


def test_thoughts_are_found_in_a_second_answer_too() -> None:
    tagged = Profile(kind="x", dialect="openai_chat", lacks=WORDED.lacks, think_tags=("think",))
    first = write(talk(user("q"), output=JSON_ANSWER), tagged)
    second = corrected(first, invalid(first, '<think>hm</think>{"a":1}'))
    assert second.way_back is not None
    answer = second.way_back.reply(reply('<think>oh</think>{"a":"b"}'))
    assert answer.choices[0].parts == (Reasoning(text="oh"), Text(text='{"a":"b"}'))


def test_a_second_wrong_answer_is_noted() -> None:
    notes = Notes()
    first = write(talk(user("q"), output=JSON_ANSWER), WORDED, notes)
    second = corrected(first, invalid(first, '{"a":1}'))
    assert second.way_back is not None
    assert second.way_back.reply(reply('{"a":2}')).choices[0].parts == (Text(text='{"a":2}'),)
    assert (
        "the answer is not in the form that was asked for" in [note for note in notes if note.kind == "dropped"][-1].why
    )


def test_a_wrong_answer_stands_when_asking_once_more_fails() -> None:
    notes = Notes()
    first = write(talk(user("q"), output=JSON_ANSWER), WORDED, notes)
    sent: list[UpstreamCall] = []

    async def send(call: UpstreamCall) -> Reply:
        sent.append(call)
        if len(sent) > 1:
            raise refusal("the conversation must alternate")
        assert call.way_back is not None
        return call.way_back.reply(reply('{"a":1}'))

    answer = asyncio.run(send_corrected(first, send, UpstreamCall.accept))
    assert answer.choices[0].parts == (Text(text='{"a":1}'),)
    assert len(sent) == 2
    assert (
        "the answer is not in the form that was asked for" in [note for note in notes if note.kind == "dropped"][-1].why
    )


def test_a_wrong_answer_after_the_last_correction_is_noted() -> None:
    notes = Notes()
    call = write(talk(user("q"), temperature=0.5, top_p=0.5, seed=1, output=JSON_ANSWER), WORDED, notes)
    for name in NAMES[:MOST_CORRECTIONS]:
        call = corrected(call, refusal(name))
    assert call.way_back is not None
    call.way_back.reply(reply('{"a":1}'))
    assert (
        "the answer is not in the form that was asked for" in [note for note in notes if note.kind == "dropped"][-1].why
    )


def test_a_wrong_answer_that_the_client_refuses_is_an_error() -> None:
    call = write(talk(user("q"), output=JSON_ANSWER), WORDED, Notes({"dropped"}))
    second = corrected(call, invalid(call, '{"a":1}'))
    assert second.way_back is not None
    with pytest.raises(UpstreamError) as caught:
        second.way_back.reply(reply('{"a":2}'))
    assert caught.value.failure.code == INVALID_ANSWER


def test_a_wrong_streamed_answer_that_the_client_refuses_ends_in_a_failure() -> None:
    call = write(talk(user("q"), output=JSON_ANSWER), WORDED, Notes({"dropped"}), stream=True)
    assert call.way_back is not None
    stream = StreamWayBack(call.way_back)
    events: list[Event] = [out for event in unfold(reply('{"a":1}')) for out in stream.feed([event])]
    assert isinstance(events[-1], ReplyFailed)
    assert events[-1].failure.code == INVALID_ANSWER
