"""Approved tool texts: a file that is lost or cut short approves nothing that was not approved before (T21)."""

from pathlib import Path

import pytest

from dragoman.mcp.approvals import MAX_APPROVALS, Approvals
from dragoman.mcp.spec import ServerSpec
from dragoman.mcp.tool_listing import ListedTool

SERVER, OTHER = ServerSpec(name="s", url="http://s.test", changed="withhold"), ServerSpec(name="o", url="http://o.test")


def tools(text: str) -> dict[str, ListedTool]:
    return {"work": ListedTool(name="work", description=text, schema={})}


@pytest.mark.parametrize("broken", [b"", b'{"s ', b"[]", b'{"s": 1}'])
def test_t21_a_file_that_was_cut_short_approves_nothing_new(broken: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mcp-tools.json"
    running = Approvals(path)
    assert running.check(SERVER, tools("good"))[0] == set(), "the first list is approved"
    whole = path.read_bytes()
    path.write_bytes(broken)
    assert running.check(SERVER, tools("good"))[0] == set(), "the last good copy holds"
    assert running.check(SERVER, tools("evil"))[0] == {"work"}
    started = Approvals(path)
    assert started.check(SERVER, tools("evil"))[0] == {"work"}, "it may have been approved with another text"
    started.approve(OTHER, tools("other"))
    assert path.read_bytes() == broken, "a person has to repair it"
    path.write_bytes(whole)
    assert started.check(SERVER, tools("good"))[0] == set()
    assert started.check(SERVER, tools("evil"))[0] == {"work"}


def test_a_file_that_vanished_approves_nothing_new_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "mcp-tools.json"
    running = Approvals(path)
    running.check(SERVER, tools("good"))
    path.unlink()
    assert running.check(SERVER, tools("evil"))[0] == {"work"}


def test_a_server_that_makes_up_names_without_end_fills_no_file(tmp_path: Path) -> None:
    running = Approvals(tmp_path / "mcp-tools.json")
    running.check(SERVER, tools("good"))
    for round_ in range(10):
        names = [f"tool{round_}-{number}" for number in range(500)]
        listed = {name: ListedTool(name=name, description="", schema={}) for name in names}
        running.check(SERVER, {**tools("good"), **listed})
    kept = running._approved
    assert all(len(rows) <= MAX_APPROVALS for rows in kept.values())
    assert running.check(SERVER, tools("evil"))[0] == {"work"}, "what was approved stays"
