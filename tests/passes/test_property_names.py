"""Property names a target refuses: its own there, the client's again on the way back, in whole replies and streams."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.answers.undo import StreamUndo, undo_reply
from dragoman.json_schema.check import find_violation
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.events import Event, PartDelta
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import OutputFormat, Tool
from dragoman.notes import Notes
from dragoman.passes.emulate import JSON_TOOL, Undo
from dragoman.passes.prepare import legalise, prepare
from dragoman.passes.rename import is_legal, rename_keys
from dragoman.passes.schemas.fit import adapt_schema
from dragoman.passes.schemas.targets import LANGUAGES
from dragoman.upstream.profiles import profile_for
from tests.passes.short_forms import assistant, call, parts_of, result, talk, tool, user
from tests.passes.wires import complain, write

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$filter": {"type": "string"},
        "größe (cm)": {"type": "integer"},
        "ok": {"type": "object", "properties": {"a/b": {"type": "array", "items": {"$ref": "#/$defs/row"}}}},
    },
    "required": ["$filter", "ok"],
    "$defs": {"row": {"type": "object", "properties": {"x y": {"type": "string"}}, "required": ["x y"]}},
}
ARGUMENTS: dict[str, Any] = {"$filter": "f", "größe (cm)": 3, "ok": {"a/b": [{"x y": "z"}]}}
TARGETS = [("anthropic", "claude-opus-5-5"), ("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-3-pro")]


def reply(*parts: Any, reason: Any = "tool_call") -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),))


def piecewise(answer: Reply, undo: Undo) -> Any:
    events: list[Event] = []
    for event in unfold(answer):
        text = event.text if isinstance(event, PartDelta) else ""
        events += [PartDelta(index=0, text=char) for char in text] if text else [event]
    restorer = StreamUndo(undo, Notes())
    return fold([out for event in events for out in restorer.feed(event)])


@pytest.mark.parametrize(("kind", "model"), TARGETS)
def test_a_refused_name_is_renamed_there_and_back(kind: str, model: str) -> None:
    history = talk(
        user("q"),
        assistant(call("c1", "find", dump_text(ARGUMENTS))),
        user(result("c1")),
        model=model,
        tools=(tool("find", SCHEMA), tool("other", {"type": "object", "properties": {"p": {}}})),
    )
    notes = Notes()
    profile = profile_for(kind, model)
    prepared = prepare(history, profile, notes)
    (made,) = [t for t in prepared.request.tools or () if isinstance(t, Tool) and t.name == "find"]
    assert made.parameters is not None
    assert "$filter" not in made.parameters["properties"]
    assert len(made.parameters["properties"]) == 3  # none is lost
    assert len(made.parameters["required"]) == 2
    assert not [note for note in notes if note.kind == "dropped" and "parameters" in note.where]

    (said,) = parts_of(prepared.request, ToolCall)
    there = load_json(said.arguments)
    assert find_violation(there, made.parameters) is None
    assert rename_keys(said.arguments, prepared.undo.renames.properties["find"]) == dump_text(ARGUMENTS)

    fresh = reply(ToolCall(id="c2", name="find", arguments=dump_text(there)))
    back = undo_reply(fresh, prepared.undo, Notes())
    assert back.choices[0].parts == (call("c2", "find", dump_text(ARGUMENTS)),)
    assert piecewise(fresh, prepared.undo) == back


@pytest.mark.parametrize(("kind", "model"), TARGETS)
def test_the_target_takes_it_and_the_second_time_nothing_changes(kind: str, model: str) -> None:
    profile = profile_for(kind, model)
    request = talk(user("q"), model=model, tools=(tool("find", SCHEMA),))
    assert complain(write(request, profile), profile, model) == []
    once = legalise(request, profile, Notes())
    assert legalise(once, profile, Notes()) is once
    assert legalise(request, profile, Notes()) == once


def test_the_model_gets_the_name() -> None:
    made = legalise(talk(user("q"), tools=(tool("find", SCHEMA),)), profile_for("gemini", "gemini-3-pro"), Notes())
    assert 'named \\"größe (cm)\\"' in dump_text(made.tools[0].parameters)  # type: ignore[index, union-attr]


def test_another_tools_arguments_are_left_alone() -> None:
    profile = profile_for("anthropic", "claude-opus-5-5")
    request = talk(user("q"), tools=(tool("find", SCHEMA), tool("other", {"type": "object", "properties": {"p": {}}})))
    undo = prepare(request, profile, Notes()).undo
    alias = next(iter(undo.renames.properties["find"]))
    called = reply(ToolCall(id="c", name="other", arguments=dump_text({alias: 1})))
    assert undo_reply(called, undo, Notes()) is called


@pytest.mark.parametrize("text", ['{"a": ', "", "[1]", "null", '{"ok": 1}'])
def test_arguments_with_nothing_to_rename_stay_byte_for_byte(text: str) -> None:
    assert rename_keys(text, {"x_1": "x!"}) == text


def test_an_answer_held_to_a_schema_comes_back_in_the_clients_names() -> None:
    profile = profile_for("anthropic", "claude-opus-5-5")
    output = OutputFormat(type="json_schema", schema=SCHEMA)
    prepared = prepare(talk(user("q"), model="claude-opus-5-5", output=output), profile, Notes())
    own = {name: alias for alias, name in prepared.undo.renames.answer.items()}
    assert own
    there = rename_keys(dump_text(ARGUMENTS), own)
    answer = reply(Text(text=there), reason="stop")
    back = undo_reply(answer, prepared.undo, Notes())
    assert back.choices[0].parts == (Text(text=dump_text(ARGUMENTS)),)
    assert piecewise(answer, prepared.undo) == back


def test_an_answer_through_a_forced_tool_is_judged_in_the_clients_names() -> None:
    profile = profile_for("anthropic", "claude-sonnet-4-5", overrides={"lacks": ["json", "json_schema"]})
    output = OutputFormat(type="json_schema", schema=SCHEMA)
    prepared = prepare(talk(user("q"), model="claude-sonnet-4-5", output=output), profile, Notes())
    own = {name: alias for alias, name in prepared.undo.renames.properties[JSON_TOOL].items()}
    notes = Notes()
    answer = reply(ToolCall(id="c", name=JSON_TOOL, arguments=rename_keys(dump_text(ARGUMENTS), own)))
    back = undo_reply(answer, prepared.undo, notes)
    assert back.choices[0].parts == (Text(text=dump_text(ARGUMENTS)),)
    assert not notes.items


texts = st.text(alphabet="ab$ ö/.", max_size=4)
values = st.recursive(st.integers() | texts, lambda v: st.lists(v, max_size=3) | st.dictionaries(texts, v, max_size=3))


@settings(max_examples=60, deadline=None)
@given(value=st.dictionaries(texts, values, max_size=3), names=st.lists(texts, max_size=4, unique=True))
@pytest.mark.parametrize("language", ["anthropic", "gemini"])
def test_whatever_is_called_otherwise_comes_back_as_it_was(language: str, value: Any, names: list[str]) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    adapted = adapt_schema(schema, language)
    rule = LANGUAGES[language].property_names
    assert rule is not None
    assert all(is_legal(name, rule) for name in (adapted.schema or {}).get("properties", ()))
    assert len((adapted.schema or {}).get("properties", ())) == len(names)
    own = {name: alias for alias, name in adapted.names.items()}
    text = dump_text(value)
    assert rename_keys(rename_keys(text, own), adapted.names) == text
