from typing import Any

from dragoman.answers.call_ids import FreshIds
from dragoman.model.events import PartStart
from dragoman.model.messages import Message, ToolCall, ToolResult
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes

MINTED: Any = {"ollama": {"~id": "absent"}}
ASKED = Request(
    model="m",
    messages=(
        Message(role="assistant", parts=(ToolCall(id="call_0", name="f", arguments="{}"),)),
        Message(role="user", parts=(ToolResult(call_id="call_0", parts=()),)),
    ),
)


def call(call_id: str = "call_0", **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments="{}", **more)


def answer(*parts: Any, salt: str = "", notes: Notes | None = None) -> list[Any]:
    """The ids of an answer, the same streamed and whole."""
    notes = Notes() if notes is None else notes
    whole = Reply(id="", model="m", choices=(Choice(parts=parts),))
    fresh = FreshIds(ASKED, "ollama", salt, notes).reply(whole).choices[0].parts
    events = FreshIds(ASKED, "ollama", salt, Notes()).feed([PartStart(index=i, part=p) for i, p in enumerate(parts)])
    assert tuple(event.part for event in events if isinstance(event, PartStart)) == fresh
    return [getattr(part, "id", getattr(part, "call_id", "")) for part in fresh]


def test_an_id_of_an_earlier_turn_is_not_given_twice() -> None:
    notes = Notes()
    (fresh,) = answer(call(), notes=notes)
    assert fresh.startswith("call_")
    assert fresh != "call_0"
    assert [(note.kind, note.where) for note in notes] == [("repaired", "/choices/0/parts/0/id")]


def test_two_calls_of_one_answer_have_two_ids() -> None:
    first, second = answer(call("same"), call("same"))
    assert first == "same" != second


def test_an_id_that_the_server_gave_stays() -> None:
    assert answer(call("a"), call("b")) == ["a", "b"]


def test_ids_that_we_made_depend_on_the_answer_and_on_no_clock() -> None:
    notes = Notes()
    assert answer(call("x", extras=MINTED), salt="1", notes=notes) != answer(call("x", extras=MINTED), salt="2")
    assert not list(notes)
    assert answer(call("x", extras=MINTED)) == ["x"]  # where nothing may depend on chance


def test_a_servers_own_result_follows_its_call() -> None:
    called, result = answer(call(), ToolResult(call_id="call_0", parts=()))
    assert called == result != "call_0"
