"""Calls and results: seed 004's eight tests, its three open questions, FIELD-CASES 1-5, and the wild."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import LossError
from dragoman.model.messages import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes import pairing
from dragoman.passes.pairing import INTERRUPTED
from dragoman.passes.profile import Profile
from tests.examples import examples
from tests.passes.short_forms import assistant, call, parts_of, result, system, talk, user


def pair_calls(request: Request, notes: Notes, *, mend: bool = False, ordered: bool = True) -> Request:
    profile = Profile(pairing="mend" if mend else "remove", results_in_order=ordered)
    return pairing.pair_calls(request, profile, notes)


def name_results(request: Request, notes: Notes) -> Request:
    return pairing.name_results(request, Profile(), notes)


def paired(request: Request, *, mend: bool = False, ordered: bool = True) -> tuple[Message, ...]:
    return pair_calls(request, Notes(), mend=mend, ordered=ordered).messages


# ---------------------------------------------------------------- the eight tests of seed 004 (mission E1-E4)


def test_e1_seed_004_1_valid_pairs_are_preserved() -> None:
    request = talk(assistant(call("call_1", "test")), user(result("call_1", "result")))
    assert pair_calls(request, Notes()) is request


def test_e1_seed_004_2_an_orphaned_result_is_removed() -> None:
    request = talk(assistant("response"), user(result("call_999", "result")))
    notes = Notes()
    assert pair_calls(request, notes).messages == (assistant("response"),)
    assert [(n.kind, n.where) for n in notes] == [("repaired", "/messages/1/parts/0")]


def test_e1_seed_004_3_a_partly_answered_turn_keeps_its_complete_pairs() -> None:
    request = talk(assistant(call("call_1", "test1"), call("call_2", "test2")), user(result("call_1", "result1")))
    notes = Notes()
    first, second = pair_calls(request, notes).messages
    assert first == assistant(call("call_1", "test1"))
    assert second is request.messages[1]
    assert [(n.kind, n.where) for n in notes] == [("repaired", "/messages/0/parts/1")]


def test_e1_seed_004_4_when_no_call_is_left_the_text_stays() -> None:
    request = talk(assistant("I will call functions", call("call_1", "test")))
    assert paired(request) == (assistant("I will call functions"),)


def test_e3_seed_004_5_other_messages_come_back_the_same_objects() -> None:
    request = talk(user("Hello"), assistant("Hi"), system("You are helpful"), user(result("x")))
    kept = paired(request)
    assert len(kept) == 3
    assert all(a is b for a, b in zip(kept, request.messages, strict=False))


def test_e1_seed_004_6_a_conversation_never_starts_with_a_result() -> None:
    assert paired(talk(user(result("call_orphan", "orphan")), user("Hello"))) == (user("Hello"),)


def test_e2_seed_004_7_anthropic_gets_the_same_strength() -> None:
    # mission E2: "the same strength for Anthropic and Gemini, with their own rules"; a bare call says nothing
    assert paired(talk(assistant(call("call_1", "test"))), ordered=False) == ()


def test_e1_seed_004_8_groq_too_a_lone_orphan_leaves_nothing() -> None:
    assert paired(talk(user(result("call_999", "orphan")))) == ()


# ---------------------------------------------------------------- its three open questions (mission E5)


def test_e5_open_question_1_ollama_gets_paired_results_in_call_order_with_names() -> None:
    """Ollama has no ids in its templates: a result belongs to a call by order and name, so both must be right."""
    request = talk(assistant(call("a", "one"), call("b", "two")), user(result("b", "B")), user(result("a", "A")))
    named = name_results(pair_calls(request, Notes()), Notes())
    assert [(p.call_id, p.name) for m in named.messages[1:] for p in m.parts if isinstance(p, ToolResult)] == [
        ("a", "one"),
        ("b", "two"),
    ]


def test_e5_open_question_2_a_result_before_its_call_is_moved_behind_it() -> None:
    """OpenAI minds the order. Matching by id alone is not safe either: an id may be an older call's."""
    request = talk(user("hi"), user(result("a", "A")), assistant(call("a")), user("go on"))
    assert paired(request) == (user("hi"), assistant(call("a")), user(result("a", "A")), user("go on"))


def test_e5_open_question_2_a_stale_result_does_not_answer_a_later_call_of_the_same_id() -> None:
    request = talk(
        assistant(call("call_0", "one")),
        user(result("call_0", "first"), result("call_0", "first again")),
        assistant(call("call_0", "two")),
        user("continue"),
    )
    again = "[result of an earlier tool call call_0] first again"
    assert paired(request) == (
        assistant(call("call_0", "one")),
        user(result("call_0", "first"), again),  # it says something else: it is kept as text
        user("continue"),
    )


def test_e5_the_same_result_said_twice_is_said_once() -> None:
    request = talk(assistant(call("a")), user(result("a", "x"), result("a", "x")), assistant("ok"))
    assert paired(request) == (assistant(call("a")), user(result("a", "x")), assistant("ok"))


def test_e5_open_question_2_a_result_far_before_its_call_is_an_orphan() -> None:
    request = talk(user(result("call_0", "cut by compaction")), assistant("ok"), user("x"), assistant(call("call_0")))
    assert paired(request) == (assistant("ok"), user("x"))


# The third, how Groq, Cerebras and Fireworks behave, is answered by their profiles: tests/passes/test_cases.py.


# ---------------------------------------------------------------- mending instead


def test_case_1_mend_answers_each_missing_call_in_call_order() -> None:
    request = talk(assistant(call("t1"), call("t2")), user(result("t2", "B"), "continue"))
    notes = Notes()
    error = result("t1", INTERRUPTED, failed=True)
    mended = pair_calls(request, notes, mend=True)
    assert [p for m in mended.messages[1:] for p in m.parts] == [error, result("t2", "B"), Text(text="continue")]
    assert ("invented", "/messages/0/parts/0") in [(n.kind, n.where) for n in notes]
    assert pair_calls(mended, Notes(), mend=True) is mended


def test_case_1_a_mended_freeform_call_gets_a_freeform_result() -> None:
    (_, answer) = paired(talk(assistant(call("t1", freeform=True))), mend=True)
    assert isinstance(answer.parts[0], ToolResult)
    assert answer.parts[0].freeform


def test_case_2_mend_keeps_an_orphan_as_user_text() -> None:
    request = talk(user("hi"), user(result("call_9", "42")))
    notes = Notes()
    assert pair_calls(request, notes, mend=True).messages == (
        user("hi"),
        user("[result of an earlier tool call call_9] 42"),
    )
    assert [(n.kind, n.where) for n in notes] == [("altered", "/messages/1/parts/0")]


def test_case_2_an_empty_orphan_is_dropped_even_then() -> None:
    assert paired(talk(user("hi"), user(result("call_9", ""))), mend=True) == (user("hi"),)


# ---------------------------------------------------------------- field cases


def test_case_3_results_split_over_turns_with_text_between_come_together() -> None:
    request = talk(assistant(call("A"), call("B")), user(result("A"), "note"), user(result("B")))
    assert [p for m in paired(request)[1:] for p in m.parts] == [result("A"), result("B"), Text(text="note")]


def test_case_3_no_placeholder_is_invented_for_a_result_that_is_there() -> None:
    request = talk(assistant(call("A"), call("B")), user(result("A"), "note"), user(result("B")))
    notes = Notes()
    pair_calls(request, notes, mend=True)
    assert {n.kind for n in notes} == {"repaired"}


def test_case_4_calls_in_neighbouring_turns_are_one_turn() -> None:
    request = talk(assistant(call("c1")), assistant(call("c2")), user(result("c1")), user(result("c2")))
    assert pair_calls(request, Notes()) is request


def test_case_5_a_reused_id_pairs_by_position_and_multiplicity() -> None:
    request = talk(assistant(call("b9", "x")), user(result("b9")), assistant(call("b9", "y")), user("..."))
    assert paired(request) == (assistant(call("b9", "x")), user(result("b9")), user("..."))


def test_case_5_two_calls_of_one_id_in_one_turn_take_two_results_in_order() -> None:
    request = talk(assistant(call("0", "x"), call("0", "y")), user(result("0", "X"), result("0", "Y")))
    assert pair_calls(request, Notes()) is request


def test_case_5_an_interrupted_call_does_not_take_the_result_of_a_later_one() -> None:
    request = talk(assistant("a", call("0", "x")), user("continue"), assistant(call("0", "y")), user(result("0", "Y")))
    assert paired(request) == (assistant("a"), user("continue"), assistant(call("0", "y")), user(result("0", "Y")))


def test_a_system_turn_between_call_and_result_comes_after_the_result() -> None:
    request = talk(assistant(call("A")), system("note"), user(result("A"), "more"))
    assert paired(request) == (assistant(call("A")), user(result("A")), system("note"), user("more"))


def test_results_in_another_order_stay_where_the_target_does_not_mind() -> None:
    request = talk(assistant(call("A"), call("B")), user(result("B"), result("A")))
    assert pair_calls(request, Notes(), ordered=False) is request
    assert paired(request)[1:] == (user(result("A")), user(result("B")))


def test_reasoning_goes_with_the_call_it_led_to() -> None:
    request = talk(user("q"), assistant(Reasoning(text="hm"), call("A")), user("never mind"))
    assert paired(request) == (user("q"), user("never mind"))


def test_server_tools_are_left_alone() -> None:
    ran = Opaque(dialect="anthropic", body={"type": "server_tool_use", "id": "srvtoolu_1"})
    request = talk(user("q"), assistant(ran, "found"), user("thanks"))
    assert pair_calls(request, Notes()) is request


@pytest.mark.parametrize("mend", [False, True])
def test_e4_malformed_histories_degrade_gracefully(mend: bool) -> None:
    request = talk(
        user(call("stray")),
        assistant(result("inside")),
        Message(role="user", parts=()),
        assistant(call("")),
        user(result("")),
        system(result("inside")),
    )
    fixed = pair_calls(request, Notes(), mend=mend)
    assert pair_calls(fixed, Notes(), mend=mend) is fixed
    assert assistant(call("")) in fixed.messages


def test_a_strict_caller_is_refused_instead() -> None:
    with pytest.raises(LossError, match="/messages/0/parts/0"):
        pair_calls(talk(user(result("x"))), Notes(refuse={"repaired"}))


# ---------------------------------------------------------------- A7


def test_a7_a_result_gets_its_functions_name_from_the_call() -> None:
    request = talk(assistant(call("c1", "get_weather")), user(result("c1")), user("thanks"))
    named = name_results(request, Notes())
    assert named.messages[1] == user(result("c1", name="get_weather"))
    assert named.messages[2] is request.messages[2]


def test_a7_a_name_that_is_not_the_calls_is_corrected() -> None:
    request = talk(assistant(call("c1", "get_weather")), user(result("c1", name="8f14e45f-uuid")))
    notes = Notes()
    assert name_results(request, notes).messages[1] == user(result("c1", name="get_weather"))
    assert [n.kind for n in notes] == ["repaired"]


def test_a7_a_reused_id_gets_each_calls_own_name() -> None:
    request = talk(assistant(call("0", "x")), user(result("0")), assistant(call("0", "y")), user(result("0")))
    named = name_results(request, Notes())
    assert [p.name for p in parts_of(named, ToolResult)] == ["x", "y"]


# ---------------------------------------------------------------- laws

ids = st.sampled_from("abc")
parts = st.one_of(
    ids.map(lambda i: ToolCall(id=i, name="f" + i, arguments="{}")),
    ids.map(lambda i: ToolResult(call_id=i, parts=(Text(text="r"),))),
    st.just(Text(text="t")),
    st.just(Reasoning(text="hm")),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "user", "system"]),
    parts=st.lists(parts).map(tuple),
)
histories = st.lists(messages, max_size=8).map(lambda m: talk(*m))


@settings(max_examples=examples(400), deadline=None)
@given(request=histories, mend=st.booleans(), ordered=st.booleans())
def test_any_history_comes_out_paired_and_stays_so(request: Request, mend: bool, ordered: bool) -> None:
    fixed = pair_calls(request, Notes(), mend=mend, ordered=ordered)
    assert pair_calls(fixed, Notes(), mend=mend, ordered=ordered) is fixed
    said = [p for m in request.messages for p in m.parts if isinstance(p, Text)]
    left = [p for m in fixed.messages for p in m.parts if isinstance(p, Text)]
    assert len(left) >= len(said)  # no text is ever lost
    if not mend:
        assert left == said


@settings(max_examples=examples(200), deadline=None)
@given(request=histories)
def test_e4_every_removal_is_noted_and_only_removals(request: Request) -> None:
    notes = Notes()
    fixed = pair_calls(request, notes)
    before = sum(len(m.parts) for m in request.messages)
    after = sum(len(m.parts) for m in fixed.messages)
    removals = ("answers no tool call", "has no result")
    assert before - after == sum(n.kind == "repaired" and any(word in n.why for word in removals) for n in notes)
