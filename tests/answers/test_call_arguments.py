"""Arguments of fresh calls: repaired where only one reading is possible, else a call that no client runs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import convert_reply
from dragoman.answers import call_arguments as rules
from dragoman.answers.call_arguments import CallMender, CallText, mend_calls
from dragoman.convert import StreamConverter
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import StartedParts, fold
from dragoman.model.messages import Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.notes import Notes

# what the model wrote -> what is handed on, why, and whether a client may run it
TABLE: dict[str, tuple[str, str | None, bool]] = {
    "": ("{}", rules.EMPTY, True),
    "{}": ("{}", None, True),
    '{"a": "}{\\""}': ('{"a": "}{\\""}', None, True),
    '{"a": 1} \n': ('{"a": 1} \n', None, True),
    "null": ("{}", rules.NULL, True),
    '{"body": "x"': ('{"body": "x"}', rules.CLOSED, True),
    '{"a": [{"b": true': ('{"a": [{"b": true}]}', rules.CLOSED, True),
    '{"a": 1}{"a": 1}': ('{"a": 1}', rules.TWICE, True),
    '{"a": 1}{"a"': ('{"a": 1}', rules.TWICE, True),
    '"{\\"a\\": 1}"': ('{"a": 1}', rules.WRAPPED, True),
    '```json\n{"a": 1}\n```': ('{"a": 1}', rules.FENCED, True),
    '{"n": 1': ('{"n": 1', rules.BROKEN, False),  # it may have been 12
    '{"path":"a': ('{"path":"a', rules.BROKEN, False),
    '{"a": 1,': ('{"a": 1,', rules.BROKEN, False),
    "{'a': 1}": ("{", rules.BROKEN, False),  # Anthropic's SDK raises at the first quote
    '{"a": 1}{"b": 2}': ('{"a": 1}', rules.MORE, False),
    "hello": ('{"_raw":"hello"}', rules.NOT_OBJECT, False),
    "[1]": ('{"_raw":"[1]"}', rules.NOT_OBJECT, False),
    '"hello"': ('{"_raw":"\\"hello\\""}', rules.NOT_OBJECT, False),
}


@pytest.mark.parametrize("written", TABLE)
def test_arguments_are_one_object_or_marked(written: str) -> None:
    text = CallText()
    made = text.feed(written) + text.close()
    assert (made, text.why, text.whole) == TABLE[written]


def reply(arguments: str, reason: str = "tool_call") -> Reply:
    call = ToolCall(id="c1", name="write", arguments=arguments)
    finish = Finish(reason=reason)  # type: ignore[arg-type]
    return Reply(id="r", model="m", choices=(Choice(parts=(Text(text="Well."), call), finish=finish),))


@pytest.mark.parametrize("written", TABLE)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_stream_comes_out_as_the_whole_answer_does(written: str, size: int) -> None:
    whole_notes, stream_notes = Notes(), Notes()
    whole = mend_calls(reply(written), whole_notes)
    events: list[Event] = [
        ReplyStart(id="r", model="m"),
        PartStart(index=0, part=Text(text="Well.")),
        PartEnd(index=0),
        PartStart(index=1, part=ToolCall(id="c1", name="write", arguments="")),
        *(PartDelta(index=1, text=written[i : i + size]) for i in range(0, len(written), size)),
        PartEnd(index=1),
        ReplyEnd(finishes=(Finish(reason="tool_call"),)),
    ]
    mender = CallMender(stream_notes, StartedParts())
    assert fold([out for event in events for out in mender.feed([event])]) == whole
    assert [(n.kind, n.canonical, n.why) for n in stream_notes] == [(n.kind, n.canonical, n.why) for n in whole_notes]
    assert (whole.choices[0].finish == Finish(reason="tool_call")) is TABLE[written][2]


def test_an_answer_that_was_cut_off_stays_cut_off() -> None:
    made = mend_calls(reply('{"path":"a', "length"), Notes())
    assert made.choices[0].finish == Finish(reason="length")


def test_an_answer_in_order_is_the_same_object() -> None:
    notes, whole = Notes(), reply('{"a": 1}')
    assert mend_calls(whole, notes) is whole
    assert list(notes) == []


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text() | st.none())), st.integers(1, 7))
def test_an_object_is_never_touched(value: dict[str, object], size: int) -> None:
    written = json.dumps(value)
    text = CallText()
    made = "".join(text.feed(written[i : i + size]) for i in range(0, len(written), size)) + text.close()
    assert (made, text.why) == (written, None)


CUT = {
    "anthropic": "max_tokens",
    "gemini": "MALFORMED_FUNCTION_CALL",
    "ollama": "length",
    "openai_responses": "incomplete",
}


def chat(arguments: str) -> dict[str, object]:
    call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chat_stream(arguments: str) -> bytes:
    def chunk(delta: object, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        body = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write", "arguments": ""}}
    pieces = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": a}}]}) for a in arguments]
    return chunk({"tool_calls": [first]}) + b"".join(pieces) + chunk({}, "tool_calls") + b"data: [DONE]\n\n"


@pytest.mark.parametrize("to", CUT)
def test_no_door_shows_a_broken_call_as_whole(to: str) -> None:
    """vLLM stream that ends `{"path":"a`: said as cut off at every door, streamed or not, with a note."""
    body = convert_reply(chat('{"path":"a'), source="openai_chat", to=to)
    assert CUT[to] in json.dumps(body.body)
    assert any("malformed" in note.why for note in body.notes)
    stream = StreamConverter("openai_chat", to)
    sent = stream.feed(chat_stream('{"path":"a')) + stream.close()
    assert CUT[to].encode() in sent
    assert any("malformed" in note.why for note in stream.notes)


@pytest.mark.parametrize("to", ["anthropic", "gemini", "ollama", "openai_responses", "openai_chat"])
def test_a_missing_brace_is_put_back_at_every_door(to: str) -> None:
    expected = json.dumps(convert_reply(chat('{"body": "x"}'), source="openai_chat", to=to).body)
    made = convert_reply(chat('{"body": "x"'), source="openai_chat", to=to)
    assert json.dumps(made.body) == expected
    assert [note.kind for note in made.notes if "brackets" in note.why] == ["repaired"]
