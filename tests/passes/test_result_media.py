"""Media in tool results, moved behind them."""

from dragoman.model.messages import Document, Image, Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.media import move_result_media
from dragoman.passes.profile import Profile

SHOT = Image(data="iVBO", media_type="image/png")
PAPER = Document(data="JVBE", media_type="application/pdf", name="a.pdf")


def user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def result(call_id: str, *parts: Part) -> ToolResult:
    return ToolResult(call_id=call_id, parts=parts)


CALLS = Message(role="assistant", parts=tuple(ToolCall(id=c, name="f", arguments="{}") for c in "ab"))


def moved(*messages: Message) -> tuple[tuple[Message, ...], list[str]]:
    notes = Notes()
    request = move_result_media(Request(model="m", messages=messages), Profile(), notes)
    assert move_result_media(request, Profile(), Notes()) is request, "once is enough"
    return request.messages, [f"{note.kind} {note.where}" for note in notes]


def test_a_conversation_without_media_in_results_is_the_same_object() -> None:
    request = Request(model="m", messages=(user(SHOT), CALLS, user(result("a", Text(text="1")))))
    notes = Notes()
    assert move_result_media(request, Profile(), notes) is request
    assert not len(notes)


def test_a_picture_leaves_a_placeholder_and_follows_its_result() -> None:
    messages, notes = moved(CALLS, user(result("a", Text(text="here:"), SHOT)))
    assert [part for message in messages[1:] for part in message.parts] == [
        result("a", Text(text="here:"), Text(text="[image attached below]")),
        SHOT,
    ]
    assert notes == ["repaired /messages/1"]


def test_media_wait_behind_all_results_of_the_turn() -> None:
    messages, _ = moved(CALLS, user(result("a", SHOT)), user(result("b", PAPER)), user(Text(text="so?")))
    kinds = [type(part) for message in messages[1:] for part in message.parts]
    assert kinds == [ToolResult, ToolResult, Image, Document, Text]


def test_media_stand_before_the_text_that_follows_in_the_same_turn() -> None:
    messages, _ = moved(CALLS, user(result("a", SHOT), result("b", Text(text="2")), Text(text="so?")))
    (turn,) = messages[1:]
    assert [type(part) for part in turn.parts] == [ToolResult, ToolResult, Image, Text]


def test_media_come_before_the_next_answer() -> None:
    messages, _ = moved(CALLS, user(result("a", SHOT)), Message(role="assistant", parts=(Text(text="I see."),)))
    assert [type(part) for message in messages[1:] for part in message.parts] == [ToolResult, Image, Text]


def test_a_document_is_named() -> None:
    messages, _ = moved(user(result("a", PAPER)))
    first = messages[0].parts[0]
    assert isinstance(first, ToolResult)
    assert first.parts == (Text(text="[document attached below: a.pdf]"),)
