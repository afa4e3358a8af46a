"""Names and ids: legal, unique, the same in every turn, and the client's own on the way back."""

import re
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.answers.undo import StreamRenamer
from dragoman.model.events import PartDelta, PartStart
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import ServerTool, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.profile import Spelling
from dragoman.passes.rename import alias_of, rename, undo_reply_names
from tests.examples import examples
from tests.passes.short_forms import assistant, call, parts_of, result, talk, tool, user

OPENAI = Spelling()
ANTHROPIC = Spelling(longest=128)
GEMINI = Spelling(letters="a-zA-Z0-9_.:-", first="a-zA-Z_", longest=64)
KIMI = Spelling(first="a-zA-Z")
MISTRAL = Spelling(letters="a-zA-Z0-9", shortest=9, longest=9)
LONG = "mcp__mcp-router__mcp-router__mcp-shrimp-task-manager__analyze_task"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "rule", "alias"),
    [
        ("immich.assets.list", OPENAI, "immich_assets_list_" + digest("immich.assets.list")[:8]),
        ("2fa", GEMINI, "t_2fa_" + digest("2fa")[:8]),
        ("2fa", KIMI, "t_2fa_" + digest("2fa")[:8]),
        ("搜索", OPENAI, "t_" + digest("搜索")[:8]),
        (LONG, OPENAI, LONG[:55] + "_" + digest(LONG)[:8]),
        ("call_1", MISTRAL, digest("call_1")[:9]),
    ],
    ids=["61 dots", "61 digit first", "61 kimi", "61 no latin letter", "62 too long", "60 mistral"],
)
def test_case_60_61_62_an_alias_is_readable_and_stable(name: str, rule: Spelling, alias: str) -> None:
    assert alias_of(name, rule) == alias
    assert len(alias) <= rule.longest
    assert re.fullmatch(f"[{rule.first or rule.letters}][{rule.letters}]*", alias)


def test_case_61_a_name_is_changed_everywhere_and_changed_back() -> None:
    request = talk(
        user("q"),
        assistant(call("c1", "a.b")),
        user(result("c1", name="a.b")),
        tools=(tool("a.b"), tool("plain")),
        tool_choice=ToolChoice(mode="required", names=("a.b",)),
    )
    notes = Notes()
    renamed, renames = rename(request, OPENAI, OPENAI, notes)
    alias = alias_of("a.b", OPENAI)
    assert renamed.tools is not None
    assert [t.name for t in renamed.tools] == [alias, "plain"]  # type: ignore[union-attr]
    assert renamed.tool_choice == ToolChoice(mode="required", names=(alias,))
    assert renamed.messages[1] == assistant(call("c1", alias))
    assert renamed.messages[2] == user(result("c1", name=alias))
    assert renamed.messages[0] is request.messages[0]
    assert [(n.kind, n.where) for n in notes] == [("altered", "/tools/0/name")]

    fresh = ToolCall(id="c2", name=alias, arguments="{}")
    reply = Reply(id="r", model="m", choices=(Choice(parts=(fresh,)),))
    assert undo_reply_names(reply, renames).choices[0].parts == (call("c2", "a.b"),)
    start = PartStart(index=0, part=fresh)
    assert StreamRenamer(renames).feed_all([start]) == [PartStart(index=0, part=call("c2", "a.b"))]
    delta = PartDelta(index=0, text="{")
    assert StreamRenamer(renames).feed_all([delta])[0] is delta


def test_case_60_illegal_ids_are_changed_in_call_and_result() -> None:
    request = talk(assistant(call("functions.web_fetch:0")), user(result("functions.web_fetch:0")))
    renamed, renames = rename(request, OPENAI, OPENAI, Notes())
    new = parts_of(renamed, ToolCall)[0].id
    assert new.startswith("functions_web_fetch_0_")
    assert parts_of(renamed, ToolResult)[0].call_id == new
    assert renames.ids == {new: "functions.web_fetch:0"}


def test_case_13_state_smuggled_in_an_id_does_not_reach_the_target() -> None:
    long = "call_abc__thought__" + "A" * 930
    renamed, _ = rename(talk(assistant(call(long)), user(result(long))), OPENAI, OPENAI, Notes())
    assert len(parts_of(renamed, ToolCall)[0].id) == 64


def test_case_5_the_first_occurrence_keeps_its_id_and_later_ones_count() -> None:
    request = talk(
        assistant(call("b9", "x")),
        user(result("b9")),
        assistant(call("b9", "y"), call("b9", "z")),
        user(result("b9", "Y"), result("b9", "Z")),
    )
    renamed, _ = rename(request, OPENAI, OPENAI, Notes())
    assert renamed.messages[0] is request.messages[0]
    assert renamed.messages[2] == assistant(call("b9_2", "y"), call("b9_3", "z"))
    assert renamed.messages[3] == user(result("b9_2", "Y"), result("b9_3", "Z"))


def test_case_5_a_fresh_call_does_not_bear_an_id_of_the_history() -> None:
    _, renames = rename(talk(assistant(call("call_0")), user(result("call_0"))), OPENAI, OPENAI, Notes())
    reply = Reply(id="r", model="m", choices=(Choice(parts=(call("call_0", "a"), call("call_0", "b"))),))
    ids = [p.id for p in undo_reply_names(reply, renames).choices[0].parts if isinstance(p, ToolCall)]
    assert ids == ["call_0_2", "call_0_3"]


def test_a_tool_said_twice_is_said_once() -> None:
    request = talk(user("q"), tools=(tool("f"), tool("f"), ServerTool(dialect="x", body={"type": "y"})))
    notes = Notes()
    renamed, _ = rename(request, OPENAI, OPENAI, notes)
    assert renamed.tools == (tool("f"), ServerTool(dialect="x", body={"type": "y"}))
    assert [(n.kind, n.where) for n in notes] == [("dropped", "/tools/1")]


def test_legal_names_and_ids_come_back_the_same_object() -> None:
    request = talk(assistant(call("c1")), user(result("c1")), tools=(tool("look"),))
    assert rename(request, OPENAI, OPENAI, Notes())[0] is request


words = st.text(alphabet="ab._:é0 ", max_size=80)


@settings(max_examples=examples(200), deadline=None)
@given(names=st.lists(words, unique=True, max_size=6), rule=st.sampled_from([OPENAI, ANTHROPIC, GEMINI, KIMI]))
def test_any_names_come_out_legal_unique_and_reversible(names: list[str], rule: Spelling) -> None:
    request = talk(tools=tuple(tool(name) for name in names))
    renamed, renames = rename(request, rule, rule, Notes())
    new = [t.name for t in renamed.tools or ()]  # type: ignore[union-attr]
    assert len(set(new)) == len(names)
    assert [renames.names.get(name, name) for name in new] == names
    assert rename(renamed, rule, rule, Notes())[0] is renamed


@settings(max_examples=examples(200), deadline=None)
@given(ids=st.lists(st.text(alphabet="ab.:", max_size=12), max_size=8), rule=st.sampled_from([OPENAI, MISTRAL]))
def test_any_ids_come_out_legal_unique_and_paired(ids: list[str], rule: Spelling) -> None:
    request = talk(*(m for i in ids for m in (assistant(call(i)), user(result(i)))))
    renamed, renames = rename(request, None, rule, Notes())
    new = [c.id for c in parts_of(renamed, ToolCall)]
    assert len(set(new)) == len(ids)
    assert [r.call_id for r in parts_of(renamed, ToolResult)] == new
    assert [renames.ids.get(i, i) for i in new] == ids
    assert rename(renamed, None, rule, Notes())[0] is renamed
