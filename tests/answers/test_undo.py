"""What was emulated on the way there is undone on the way back, in whole replies and in streams alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.answers.undo import StreamRenamer, StreamUndo, find_stop, held_back, undo_reply, unwrap_input
from dragoman.errors import LossError
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import CustomTool, OutputFormat, Request, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.emulate import JSON_TOOL, Undo, emulate, split_choices
from dragoman.passes.prepare import prepare
from dragoman.passes.profile import Feature, Policy, Profile
from dragoman.passes.rename import Renames
from dragoman.upstream.profiles import profile_for
from tests.examples import examples
from tests.passes.short_forms import assistant, call, result, talk, tool, user

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def reply(*parts: Text | ToolCall, reason: str = "stop") -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),))  # type: ignore[arg-type]


def streamed(events: list[Event], undo: Undo) -> Reply | Failure:
    restorer = StreamUndo(undo, Notes())
    return fold([out for event in events for out in restorer.feed(event)])


# ---------------------------------------------------------------- policy per feature

LACKING: list[tuple[Feature, Request, str]] = [
    ("choices", talk(user("q"), choices=2), "/choices"),
    ("json_schema", talk(user("q"), output=OutputFormat(type="json_schema", schema=SCHEMA)), "/output"),
    ("json", talk(user("q"), output=OutputFormat(type="json")), "/output"),
    ("tool_choice", talk(user("q"), tools=(tool("f"),), tool_choice=ToolChoice(mode="required")), "/tool_choice"),
    (
        "named_choice",
        talk(user("q"), tools=(tool("f"),), tool_choice=ToolChoice(mode="auto", names=("f",))),
        "/tool_choice",
    ),
    ("parallel_off", talk(user("q"), tools=(tool("f"),), parallel_calls=False), "/parallel_calls"),
    ("stop", talk(user("q"), stop=("END",)), "/stop"),
    ("custom_tools", talk(user("q"), tools=(CustomTool(name="p"),)), "/tools"),
]


@pytest.mark.parametrize(("feature", "request_", "where"), LACKING, ids=[case[0] for case in LACKING])
@pytest.mark.parametrize("policy", ["emulate", "drop", "refuse"])
def test_each_feature_is_emulated_dropped_or_refused(
    feature: Feature, request_: Request, where: str, policy: Policy
) -> None:
    profile = Profile(kind="x", dialect="openai_chat", lacks=(feature,), policy={feature: policy})
    notes = Notes()
    if policy == "refuse":
        with pytest.raises(LossError, match=where):
            emulate(request_, profile, notes)
        return
    changed, _ = emulate(request_, profile, notes)
    assert changed != request_
    kinds = {note.kind for note in notes}
    if policy == "drop":
        assert kinds == {"dropped"}
    elif feature != "parallel_off":  # that cannot be emulated, only told
        assert "dropped" not in kinds
    assert emulate(changed, profile, Notes())[0] == changed


# ---------------------------------------------------------------- freeform tools (case 39)


def test_case_39_a_freeform_tool_goes_there_and_comes_back() -> None:
    profile = profile_for("compatible", "m")
    request = talk(
        user("q"),
        assistant(call("c1", "apply_patch", "*** Begin", freeform=True)),
        user(result("c1", freeform=True)),
        tools=(CustomTool(name="apply_patch", syntax="lark", grammar="start: /x/"),),
    )
    prepared = prepare(request, profile, Notes())
    assert prepared.request.messages[1] == assistant(call("c1", "apply_patch", '{"input":"*** Begin"}'))
    assert prepared.request.messages[2] == user(result("c1"))
    assert prepared.request.tools is not None
    assert isinstance(prepared.request.tools[0], Tool)

    fresh = ToolCall(id="c2", name="apply_patch", arguments='{"input":"*** End\\n"}')
    back = undo_reply(reply(fresh, reason="tool_call"), prepared.undo, Notes())
    assert back.choices[0].parts == (call("c2", "apply_patch", "*** End\n", freeform=True),)
    assert streamed(list(unfold(reply(fresh, reason="tool_call"))), prepared.undo) == back


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"input":"a"}', "a"), ('{"inp', '{"inp'), ('{"other":1}', '{"other":1}'), ("", "")]
)
def test_case_39_what_a_model_did_not_wrap_is_left(arguments: str, text: str) -> None:
    assert unwrap_input(arguments) == text


# ---------------------------------------------------------------- JSON through a forced tool (case 71)


def test_case_71_a_forced_tools_arguments_are_the_answer() -> None:
    profile = profile_for("anthropic", "claude-3-5-haiku-20241022", overrides={"lacks": ["json", "json_schema"]})
    request = talk(user("q"), output=OutputFormat(type="json_schema", schema=SCHEMA))
    prepared = prepare(request, profile, Notes())
    assert prepared.request.output is None
    assert prepared.request.tool_choice == ToolChoice(mode="required", names=(JSON_TOOL,))
    answered = reply(ToolCall(id="c", name=JSON_TOOL, arguments='{"a":"b"}'), reason="tool_call")
    back = undo_reply(answered, prepared.undo, Notes())
    assert back.choices[0] == Choice(parts=(Text(text='{"a":"b"}'),), finish=Finish(reason="stop"))
    assert streamed(list(unfold(answered)), prepared.undo) == back


def test_case_71_real_calls_stay_untouched() -> None:
    undo = Undo(json_tool=JSON_TOOL)
    called = reply(call("c", "lookup"), reason="tool_call")
    assert undo_reply(called, undo, Notes()) is called


def test_case_71_nothing_is_forced_when_the_caller_has_tools() -> None:
    profile = Profile(kind="x", dialect="openai_chat", lacks=("json", "json_schema"))
    output = OutputFormat(type="json_schema", schema=SCHEMA)
    changed, undo = emulate(talk(user("q"), tools=(tool("f"),), output=output), profile, Notes())
    assert changed.tool_choice is None
    assert undo.json_tool is None
    assert changed.messages[0].role == "system"


# ---------------------------------------------------------------- stop sequences cut on our side (case 65)


def test_case_65_the_text_is_cut_and_the_finish_says_why() -> None:
    undo = Undo(stops=("END", "STOP"))
    back = undo_reply(reply(Text(text="one two END three"), call("c")), undo, Notes())
    assert back.choices[0] == Choice(parts=(Text(text="one two "),), finish=Finish(reason="sequence", sequence="END"))


def test_case_65_a_sequence_split_over_deltas_is_found_and_the_rest_is_silent() -> None:
    restorer = StreamUndo(Undo(stops=("END",)), Notes())
    events: list[Event] = [ReplyStart(id="r", model="m"), PartStart(index=0, part=Text(text=""))]
    events += [PartDelta(index=0, text=text) for text in ("a E", "N", "D b", "c")]
    events += [PartEnd(index=0), PartStart(index=1, part=call("c")), PartEnd(index=1)]
    events += [ReplyEnd(finishes=(Finish(reason="tool_call"),))]
    out = [o for event in events for o in restorer.feed(event)]
    assert "".join(o.text for o in out if isinstance(o, PartDelta)) == "a "
    assert restorer.stopped
    folded = fold(out)
    assert isinstance(folded, Reply)
    assert folded.choices[0].finish == Finish(reason="sequence", sequence="END")


def test_case_65_more_sequences_than_the_target_takes_are_cut_here() -> None:
    prepared = prepare(talk(user("q"), stop=("a", "b", "c", "d", "e")), profile_for("openai", "gpt-4o"), Notes())
    assert prepared.request.stop == ("a", "b", "c", "d")
    assert prepared.undo.stops == ("e",)


def test_what_may_begin_a_sequence_is_held_back() -> None:
    assert held_back("abE", ("END",)) == 1
    assert held_back("abEN", ("END",)) == 2
    assert held_back("ab", ("END",)) == 0
    assert find_stop("xENDSTOP", ("STOP", "END")) == (1, "END")


# ---------------------------------------------------------------- the law

texts = st.text(alphabet="abEND", max_size=12)
replied = st.lists(
    st.one_of(
        st.builds(Text, text=texts),
        st.builds(
            ToolCall,
            id=st.sampled_from(["c", "d"]),
            name=st.sampled_from(["alias", "patch", JSON_TOOL]),
            arguments=st.sampled_from(['{"input":"x"}', "{}", ""]),
        ),
    ),
    max_size=4,
).map(lambda parts: reply(*parts, reason="tool_call"))
undos = st.builds(
    Undo,
    renames=st.just(Renames(names={"alias": "a.b"}, taken=frozenset({"c"}))),
    custom=st.sampled_from([frozenset(), frozenset({"patch"})]),
    json_tool=st.sampled_from([None, JSON_TOOL]),
    stops=st.sampled_from([(), ("END",), ("bE", "END")]),
)


@settings(max_examples=examples(300), deadline=None)
@given(answer=replied, undo=undos, size=st.integers(1, 4))
def test_a_restored_stream_folds_to_the_restored_reply(answer: Reply, undo: Undo, size: int) -> None:
    events: list[Event] = []
    for event in unfold(answer):
        if isinstance(event, PartDelta) and event.text:
            text = event.text
            events += [PartDelta(index=event.index, text=text[i : i + size]) for i in range(0, len(text), size)]
        else:
            events.append(event)
    assert streamed(events, undo) == undo_reply(answer, undo, Notes())


@pytest.mark.parametrize(
    ("choices", "policy", "copies", "told"),
    [
        (3, "emulate", 3, "asked 3 times"),
        (100, "emulate", 8, "asked 8 times, not 100: that is the limit"),
        (1, "emulate", 1, None),
        (None, "emulate", 1, None),
        (3, "drop", 1, None),
        (3, "refuse", 1, None),
    ],
)
def test_several_answers_are_split_where_a_target_gives_one(
    choices: int | None, policy: Policy, copies: int, told: str | None
) -> None:
    profile = Profile(kind="x", dialect="openai_chat", lacks=("choices",), policy={"choices": policy})
    request, notes = talk(user("q"), choices=choices), Notes()
    one, count = split_choices(request, profile, notes)
    assert count == copies
    assert [note.why for note in notes] == ([told] if told else [])
    assert one == (talk(user("q")) if copies > 1 else request)
    assert split_choices(request, replace(profile, lacks=()), Notes()) == (request, 1)


@settings(max_examples=examples(100), deadline=None)
@given(answer=replied)
def test_the_quick_way_for_names_is_the_long_one(answer: Reply) -> None:
    undo = Undo(renames=Renames(names={"alias": "a.b"}, taken=frozenset({"c"})))
    assert undo.is_only_names()
    quick = fold(StreamRenamer(undo.renames).feed_all(list(unfold(answer))))
    assert quick == streamed(list(unfold(answer)), undo) == undo_reply(answer, undo, Notes())


def test_a_stop_sequence_of_white_space_is_cut_where_it_is_not_taken() -> None:
    request = talk(user("q"), stop=("\n", "END"))
    prepared = prepare(request, profile_for("anthropic", "claude-opus-4-5"), Notes())
    assert prepared.request.stop == ("END",)
    assert prepared.undo.stops == ("\n",)
    assert prepare(request, profile_for("openai", "gpt-4o"), Notes()).undo.stops == ()
