"""JSON that was only asked for: found in what a model said around it, judged by its schema, asked for once more."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.answers.json_answers import JsonText, ask_again, judge
from dragoman.answers.undo import StreamUndo, undo_reply
from dragoman.errors import LossError
from dragoman.jsontypes import dump_text
from dragoman.model.events import Event, PartDelta
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Part, Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import OutputFormat
from dragoman.notes import Notes
from dragoman.passes.emulate import JSON_TOOL, Expected, Undo, emulate
from dragoman.passes.prepare import prepare
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import profile_for
from tests.examples import examples
from tests.passes.short_forms import assistant, call, talk, user

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
WORDS = Undo(expected=Expected(schema=SCHEMA, loose=True))
GOOD = '{"a":"b {\\"c\\"} [d"}'


def reply(*parts: Part, reason: Any = "stop") -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),))


def read(text: str, size: int) -> tuple[str, bool]:
    reader = JsonText()
    pieces = [reader.feed(text[i : i + size]) for i in range(0, len(text), size)]
    return "".join(pieces) + reader.close(), reader.around


FOUND: list[tuple[str, str, str, bool]] = [
    ("alone", GOOD, GOOD, False),
    ("with space around", f" \n{GOOD}\n ", GOOD, False),
    ("in a fence", f"```json\n{GOOD}\n```", GOOD, True),
    ("in a fence without a language", f"```\n{GOOD}\n```\n", GOOD, True),
    ("after a sentence", f"Here you are: {GOOD}", GOOD, True),
    ("before a sentence", f"{GOOD}\nAnything else?", GOOD, True),
    ("in a fence after a sentence", f"Sure [1]!\n```json\n{GOOD}\n```\nDone.", GOOD, True),
    ("a list", '[1, {"a": 2}]', '[1, {"a": 2}]', False),
    ("a list after a bracketed word", "[Note] [1]", "[1]", True),
    ("a scalar", ' "yes" ', '"yes"', False),
    ("a number in a fence", "It is\n```json\n42\n```", "42", True),
    ("none at all", "I cannot [do] that {here}.", "I cannot [do] that {here}.", False),
    ("cut off", '{"a": "b', '{"a": "b', False),
    ("escapes at the end", '{"a":"\\\\"} x', '{"a":"\\\\"}', True),
    ("nothing", "", "", False),
]


@pytest.mark.parametrize(("text", "found", "around"), [case[1:] for case in FOUND], ids=[case[0] for case in FOUND])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_json_is_found_however_it_comes(text: str, found: str, around: bool, size: int) -> None:
    assert read(text, size) == (found, around)


def test_json_that_begins_at_once_is_not_held_back() -> None:
    reader = JsonText()
    assert [reader.feed(piece) for piece in ('{"a"', ': "b', '"}', " bye")] == ['{"a"', ': "b', '"}', ""]
    fenced = JsonText()
    assert [fenced.feed(piece) for piece in ("```js", "on\n", '{"a"', ": 1}", "\n```")] == ["", "", '{"a"', ": 1}", ""]


@given(text=st.text(alphabet='{}[]"\\ab`\n 1', max_size=20), size=st.integers(1, 5))
@settings(max_examples=examples(300), deadline=None)
def test_any_split_finds_the_same(text: str, size: int) -> None:
    assert read(text, size) == read(text, 1000)


@given(value=st.recursive(st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=5))
@settings(max_examples=60, deadline=None)
def test_json_alone_is_never_changed(value: Any) -> None:
    assert read(dump_text(value), 3) == (dump_text(value), False)


def test_an_answer_is_judged_in_words() -> None:
    assert judge(GOOD, Expected(schema=SCHEMA)) is None
    assert judge('{"a":1}', Expected(schema=SCHEMA)) == "/a: expected string, found number"
    assert judge("no", Expected(schema=SCHEMA)) == "it is not JSON"
    assert judge("[1]", Expected()) is None


# ---------------------------------------------------------------- on the way back

INVALID_ANSWER = "the answer is not in the form that was asked for"
JUDGED: list[tuple[str, Undo, Reply, list[tuple[str, str]]]] = [
    ("it fits", WORDS, reply(Text(text=GOOD)), []),
    (
        "it fits, with words around",
        WORDS,
        reply(Text(text=f"Sure: {GOOD}")),
        [("altered", "the text around the JSON is left out")],
    ),
    (
        "another type",
        WORDS,
        reply(Text(text='{"a":1}')),
        [("dropped", f"{INVALID_ANSWER}: /a: expected string, found number")],
    ),
    ("no JSON", WORDS, reply(Text(text="no")), [("dropped", f"{INVALID_ANSWER}: it is not JSON")]),
    ("nothing at all", WORDS, reply(), [("dropped", f"{INVALID_ANSWER}: it is not JSON")]),
    ("thoughts are no answer", WORDS, reply(Reasoning(text="hm"), Text(text=GOOD)), []),
    ("cut off", WORDS, reply(Text(text='{"a":'), reason="length"), []),
    ("a refusal", WORDS, reply(Refusal(text="no")), []),
    ("filtered", WORDS, reply(Text(text="x"), reason="filter"), []),
    ("tools first", WORDS, reply(Text(text="let me see"), call("c"), reason="tool_call"), []),
    (
        "a forced tool without a property",
        Undo(json_tool=JSON_TOOL, expected=Expected(schema=SCHEMA)),
        reply(call("c", JSON_TOOL, '{"b":1}'), reason="tool_call"),
        [("dropped", f"{INVALID_ANSWER}: /: a is missing")],
    ),
    (
        "a forced tool's answer",
        Undo(json_tool=JSON_TOOL, expected=Expected(schema=SCHEMA)),
        reply(call("c", JSON_TOOL, GOOD), reason="tool_call"),
        [],
    ),
]


@pytest.mark.parametrize(("undo", "answer", "told"), [case[1:] for case in JUDGED], ids=[case[0] for case in JUDGED])
def test_an_answer_that_does_not_fit_has_a_note(undo: Undo, answer: Reply, told: list[tuple[str, str]]) -> None:
    notes, streamed = Notes(), Notes()
    back = undo_reply(answer, undo, notes)
    assert [(note.kind, note.why) for note in notes] == told
    assert {note.where for note in notes} <= {"/choices/0"}
    restorer = StreamUndo(undo, streamed)
    assert fold([out for event in unfold(answer) for out in restorer.feed(event)]) == back
    assert streamed.items == notes.items


def test_with_refuse_an_answer_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(LossError, match="/a: expected string"):
        undo_reply(reply(Text(text='{"a":1}')), WORDS, Notes({"dropped"}))


def test_what_is_left_is_the_json() -> None:
    back = undo_reply(reply(Text(text=f"Sure:\n```json\n{GOOD}\n```")), WORDS, Notes())
    assert back.choices[0].parts == (Text(text=GOOD),)


texts = st.text(alphabet='{}[]"a1 E', max_size=10)
replies = st.lists(
    st.one_of(
        st.builds(Text, text=texts),
        st.builds(Reasoning, text=texts),
        st.builds(ToolCall, id=st.just("c"), name=st.sampled_from(["f", JSON_TOOL]), arguments=texts),
    ),
    max_size=3,
).map(lambda parts: reply(*parts))
undos = st.builds(
    Undo,
    expected=st.builds(Expected, schema=st.sampled_from([None, SCHEMA]), loose=st.booleans()),
    json_tool=st.sampled_from([None, JSON_TOOL]),
    stops=st.sampled_from([(), ("E",), ("1E", "}")]),
)


@settings(max_examples=examples(200), deadline=None)
@given(answer=replies, undo=undos, size=st.integers(1, 4))
def test_a_stream_is_restored_and_judged_as_the_whole(answer: Reply, undo: Undo, size: int) -> None:
    events: list[Event] = []
    for event in unfold(answer):
        if isinstance(event, PartDelta):
            text = event.text
            events += [PartDelta(index=event.index, text=text[i : i + size]) for i in range(0, len(text), size)]
        else:
            events.append(event)
    whole, streamed = Notes(), Notes()
    restorer = StreamUndo(undo, streamed)
    assert fold([out for event in events for out in restorer.feed(event)]) == undo_reply(answer, undo, whole)
    assert streamed.items == whole.items


# ---------------------------------------------------------------- asked for once more


def test_the_answer_and_what_is_wrong_with_it_are_said_in_the_second_request() -> None:
    again = ask_again(talk(user("q")), reply(Reasoning(text="hm"), Text(text='{"a":1}\n')), "/a: expected string")
    told = "/a: expected string. Give the whole answer again, right this time."
    assert again == talk(user("q"), assistant('{"a":1}'), user(told))


def test_an_empty_answer_is_asked_for_in_the_same_words() -> None:
    assert ask_again(talk(user("q")), reply(Text(text=" ")), "x") == talk(user("q"))


def test_nothing_is_asked_again_where_the_answer_was_begun_for_the_model() -> None:
    assert ask_again(talk(user("q"), assistant("{")), reply(Text(text="x")), "x") is None


# ---------------------------------------------------------------- who is held to what


@pytest.mark.parametrize(
    ("lacks", "output", "expected", "forced"),
    [
        (
            ("json", "json_schema"),
            OutputFormat(type="json_schema", schema=SCHEMA),
            Expected(schema=SCHEMA, loose=True),
            True,
        ),
        (("json", "json_schema"), OutputFormat(type="json"), Expected(loose=True), False),
        (("json_schema",), OutputFormat(type="json_schema", schema=SCHEMA), Expected(schema=SCHEMA), False),
        (
            ("json", "json_schema"),
            OutputFormat(type="json_schema", schema={"type": "array"}),
            Expected(schema={"type": "array"}, loose=True),
            False,
        ),
        ((), OutputFormat(type="json_schema", schema=SCHEMA), None, False),
    ],
    ids=["forced tool", "in words", "JSON mode and words", "a list is no arguments", "the target's own"],
)
def test_only_what_is_emulated_is_judged(
    lacks: Any, output: OutputFormat, expected: Expected | None, forced: bool
) -> None:
    profile = Profile(kind="x", dialect="openai_chat", lacks=lacks)
    _, undo = emulate(talk(user("q"), output=output), profile, Notes())
    assert undo.expected == expected
    assert (undo.json_tool is not None) == forced


def test_an_answer_the_target_holds_to_less_is_judged_by_all_that_was_asked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "additionalProperties": False}
    request = talk(user("q"), model="claude-opus-5-5", output=OutputFormat(type="json_schema", schema=schema))
    prepared = prepare(request, profile_for("anthropic", "claude-opus-5-5"), Notes())
    assert prepared.request.output is not None
    assert "minimum" not in str(prepared.request.output.schema["properties"]["n"].keys())  # type: ignore[index]
    notes = Notes()
    undo_reply(reply(Text(text='{"n":2}')), prepared.undo, notes)
    assert [note.why for note in notes] == [f"{INVALID_ANSWER}: /n: 2 is less than 3"]


def test_an_answer_the_target_holds_to_all_of_it_is_not_judged_again() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    request = talk(user("q"), model="gpt-4o", output=OutputFormat(type="json_schema", schema=schema, strict=True))
    assert prepare(request, profile_for("openai", "gpt-4o"), Notes()).undo.expected is None
