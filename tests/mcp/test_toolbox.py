import re

import pytest

from dragoman.mcp.toolbox import find_tool, name_tools

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")

ODD = [
    ("time", "now"),
    ("a", "read_file"),
    ("b", "read_file"),
    ("files", "read/file"),
    ("files", "read.file"),
    ("files", "read file"),
    ("날씨", "오늘"),
    ("날씨", "내일"),
    ("x" * 60, "tool"),
    ("x" * 60, "tool2"),
    ("s", "t" * 128),
    ("s", ""),
]


def test_every_name_is_legal_and_unique() -> None:
    named = name_tools(ODD)
    assert len(named) == len(ODD)
    assert all(LEGAL.fullmatch(name) for name in named)
    assert set(named.values()) == set(ODD)


def test_a_name_does_not_depend_on_other_tools() -> None:
    assert name_tools([("a", "x")]) == {"a__x": ("a", "x")}
    assert name_tools([("b", "y"), ("a", "x")])["a__x"] == ("a", "x")


def test_two_names_that_clash_both_get_a_digest() -> None:
    clash = [("files", "read/file"), ("files", "read file")]
    names = list(name_tools(clash))
    assert "files__read_file" not in names
    assert name_tools(reversed(clash)) == name_tools(clash)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("time__now", ("time", "now")),
        ("time.now", ("time", "now")),
        ("now", ("time", "now")),
        ("time_now", ("time", "now")),
        ("read_file", None),  # two servers have one
        ("a.read_file", ("a", "read_file")),
        ("unknown", None),
        ("날씨.오늘", ("날씨", "오늘")),
    ],
)
def test_a_model_may_name_a_tool_in_several_ways(said: str, meant: tuple[str, str] | None) -> None:
    assert find_tool(said, name_tools(ODD)) == meant
