"""Thoughts between tags in the text (FIELD-CASES 73): found however they are cut, left alone where they are prose."""

import pytest

from dragoman.answers.think_tags import ThoughtFinder, find_thoughts
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold
from dragoman.model.messages import Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply

TAGS = ("think", "mm:think")
TABLE: list[tuple[str, str, bool, list[Part]]] = [
    ("a thought and an answer", "<think>hm</think>ok", False, [Reasoning(text="hm"), Text(text="ok")]),
    ("blank lines around", "\n<think>\nhm\n</think>\n\nok", False, [Reasoning(text="\nhm\n"), Text(text="ok")]),
    ("another tag", "<mm:think>hm</mm:think>ok", False, [Reasoning(text="hm"), Text(text="ok")]),
    ("a tag in prose", "Write `<think>` first.", False, [Text(text="Write `<think>` first.")]),
    ("a tag of another name", "<thing>x</thing>", False, [Text(text="<thing>x</thing>")]),
    ("no closing tag", "<think>hm", False, [Reasoning(text="hm")]),
    ("a thought alone", "<think>hm</think>", False, [Reasoning(text="hm")]),
    (
        "a tag later on",
        "<think>a</think>b <think>c</think>",
        False,
        [Reasoning(text="a"), Text(text="b <think>c</think>")],
    ),
    ("almost a closing tag", "<think>a</thin b</think>c", False, [Reasoning(text="a</thin b"), Text(text="c")]),
    (
        "the prompt has opened it",
        "internal reasoning</think>answer",
        True,
        [Reasoning(text="internal reasoning"), Text(text="answer")],
    ),
    ("nothing at all", "", False, [Text(text="")]),
    ("almost a tag", "<thi", False, [Text(text="<thi")]),
]


def reply(*parts: Part) -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason="stop")),))


@pytest.mark.parametrize(("name", "text", "opened", "parts"), TABLE, ids=[row[0] for row in TABLE])
def test_case_73_a_thought_is_told_from_the_answer(name: str, text: str, opened: bool, parts: list[Part]) -> None:
    assert find_thoughts(reply(Text(text=text)), TAGS, opened=opened).choices[0].parts == tuple(parts)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(("name", "text", "opened", "parts"), TABLE, ids=[row[0] for row in TABLE])
def test_case_73_a_tag_in_pieces_is_a_tag(name: str, text: str, opened: bool, parts: list[Part], size: int) -> None:
    events: list[Event] = [ReplyStart(id="r", model="m"), PartStart(index=5, part=Text(text=""))]
    events += [PartDelta(index=5, text=text[i : i + size]) for i in range(0, len(text), size)]
    events += [PartEnd(index=5), ReplyEnd(finishes=(Finish(reason="stop"),))]
    finder = ThoughtFinder(TAGS, opened=opened)
    folded = fold([out for event in events for out in finder.feed(event)])
    assert isinstance(folded, Reply)
    assert folded.choices[0].parts == tuple(parts)


def test_case_73_only_the_first_words_may_be_a_thought_and_calls_stay() -> None:
    call = ToolCall(id="c", name="f", arguments="{}")
    given = reply(Text(text="<think>a</think>b"), call, Text(text="<think>c</think>"))
    found = find_thoughts(given, TAGS).choices[0].parts
    assert found == (Reasoning(text="a"), Text(text="b"), call, Text(text="<think>c</think>"))


def test_case_73_a_thought_told_properly_is_not_looked_for_again() -> None:
    given = reply(Reasoning(text="hm"), Text(text="<think>x</think>"))
    assert find_thoughts(given, TAGS) == given
