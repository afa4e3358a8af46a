"""Where a place was before passes changed the conversation."""

import pytest
from msgspec.structs import replace

from dragoman.model.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.request import Request, Tool
from dragoman.note_places import Place, Stages


def text(word: str) -> Text:
    return Text(text=word)


def user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def model(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


def ask(*messages: Message) -> Request:
    return Request(model="m", messages=messages)


A, B, C, D = text("a"), text("b"), text("c"), text("d")
TALK = ask(user(A), model(B), user(C, D))
ONE, TWO, THREE = TALK.messages


def back(place: Place, *forms: Request) -> Place:
    return Stages([TALK, *forms]).trace(len(forms), place)


def turn(i: int, *rest: str | int) -> Place:
    return ("messages", i, *rest)


def part(i: int, j: int, *rest: str | int) -> Place:
    return ("messages", i, "parts", j, *rest)


@pytest.mark.parametrize("place", [(), ("seed",), turn(1), part(2, 1, "cache", "ttl"), ("tools",)])
def test_nothing_moves_while_nothing_is_changed(place: Place) -> None:
    assert back(place, replace(TALK, model="other")) == place


def test_a_turn_that_was_dropped_shifts_those_behind_it() -> None:
    after = ask(TWO, THREE)
    assert back(turn(0), after) == turn(1)
    assert back(part(1, 1), after) == part(2, 1)


def test_a_joined_turn_is_where_its_first_part_was_and_its_parts_are_where_they_were() -> None:
    after = ask(user(A, C, D))
    assert back(turn(0), after) == turn(0)
    assert back(part(0, 2), after) == part(2, 1)


def test_a_part_that_moved_to_another_turn_is_found_there() -> None:
    after = ask(user(A, D), TWO, user(C))
    assert back(part(0, 1), after) == part(2, 1)


def test_a_turn_that_was_made_up_stands_among_the_turns() -> None:
    after = ask(user(text("go on")), ONE, TWO, THREE)
    assert back(turn(0), after) == ("messages",)
    assert back(part(0, 0, "text"), after) == ("messages",)
    assert back(turn(3), after) == turn(2)


def test_a_part_that_was_replaced_is_found_between_its_neighbours() -> None:
    after = ask(user(text("A")), model(text("B")), user(C, text("D")))
    assert [back(turn(i), after) for i in range(3)] == [turn(0), turn(1), turn(2)]
    assert back(part(0, 0, "text"), after) == part(0, 0, "text")
    assert back(part(2, 1, "cache"), after) == part(2, 1, "cache")


def test_a_part_that_was_put_between_others_is_in_its_turn() -> None:
    after = ask(ONE, TWO, user(C, text("new"), D))
    assert back(part(2, 1), after) == turn(2, "parts")
    assert back(part(2, 2), after) == part(2, 1)


def test_a_part_that_was_replaced_is_one_of_its_kind() -> None:
    call = ToolCall(id="x", name="f", arguments="{}")
    before, after = ask(model(Reasoning(text="hm"), A, call)), ask(model(text("a!"), replace(call, name="g")))
    assert Stages([before, after]).trace(1, part(0, 0)) == part(0, 1)
    assert Stages([before, after]).trace(1, part(0, 1)) == part(0, 2)


def test_texts_that_became_one_are_where_the_first_was() -> None:
    after = ask(ONE, TWO, user(text("c d")))
    assert back(part(2, 0), after) == part(2, 0)


def test_inside_a_result_that_was_replaced_parts_are_found_too() -> None:
    first = ask(user(ToolResult(call_id="x", parts=(A, B, C))))
    second = ask(user(ToolResult(call_id="x", parts=(B, C))))
    assert Stages([first, second]).trace(1, part(0, 0, "parts", 0, "cache")) == part(0, 0, "parts", 1, "cache")


def test_what_moved_out_of_a_result_is_found_in_it() -> None:
    first = ask(user(ToolResult(call_id="x", parts=(A, B))))
    second = ask(user(ToolResult(call_id="x", parts=(A,))), user(B))
    assert Stages([first, second]).trace(1, part(1, 0, "cache")) == part(0, 0, "parts", 1, "cache")
    assert Stages([first, second]).trace(1, part(0, 0, "parts", 0)) == part(0, 0, "parts", 0)


def test_every_form_is_walked_back_through() -> None:
    assert back(part(0, 0), ask(TWO, THREE), ask(THREE), ask(user(D))) == part(2, 1)


def test_tools_are_found_by_themselves_and_replaced_ones_by_their_neighbours() -> None:
    a, b, c = (Tool(name=name) for name in "abc")
    forms = [Request(model="m", tools=tools) for tools in ((a, b, c), (b, c), (replace(b, name="x"), replace(c)))]
    assert Stages(list(forms)).trace(2, ("tools", 0, "name")) == ("tools", 1, "name")
    assert Stages(list(forms)).trace(2, ("tools", 1)) == ("tools", 2)


def test_equal_parts_are_told_apart() -> None:
    same = [model(ToolCall(id="c", name="f", arguments="{}")) for _ in range(3)]
    assert Stages([ask(*same), ask(*same[1:])]).trace(1, part(1, 0)) == part(2, 0)


def test_what_a_replaced_turn_says_beside_its_words_is_found_by_its_extras() -> None:
    """Seen: the system text was put in front of the user's words, and a note about the user's turn named that of the
    system."""
    first = replace(user(A), extras={"openai_chat": {"cache_control": 1}})
    second = replace(user(B), extras={"openai_chat": {"cache_control": 2}})
    joined = ask(replace(second, parts=(text("a b"),)))
    place = ("extras", "openai_chat", "cache_control")
    assert Stages([ask(first, second), joined]).trace(1, turn(0, *place)) == turn(1, *place)
