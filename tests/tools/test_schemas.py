"""Schemas from type hints, and the values that a function gets."""

import datetime
import decimal
import enum
import pathlib
import subprocess
import sys
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import jsonschema
import msgspec
import pytest
from pydantic import BaseModel, Field

from dragoman.errors import DragomanError
from dragoman.jsontypes import dump_text
from dragoman.model.messages import ToolCall
from dragoman.tools import FunctionTool
from dragoman.tools.signature import read_signature
from tests.waiting import NEVER_S


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Tree:
    name: str
    kids: "list[Tree]" = field(default_factory=list)


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Box(msgspec.Struct):
    size: Point
    tags: set[str] = set()


class Order(BaseModel):
    item: str
    count: int = Field(default=1, ge=1, description="how many")
    parts: "list[Order]" = []


class Pair(typing.NamedTuple):
    left: int
    right: str


NewId = typing.NewType("NewId", int)

# hint, JSON that fits, what the function gets, JSON that does not fit
FITTING: list[tuple[Any, Any, Any, Any]] = [
    (str, "a", "a", 5),
    (int, 5, 5, "five"),
    (float, 5, 5.0, "x"),
    (bool, True, True, "maybe"),
    (None, None, None, 1),
    (Any, {"a": [1]}, {"a": [1]}, ...),
    (object, [1], [1], ...),
    (list, [1, "a"], [1, "a"], {"a": 1}),
    (list[int], [1, 2], [1, 2], ["x"]),
    (Sequence[int], [1], [1], ["x"]),
    (Iterable[str], ["a"], ["a"], [1]),
    (set[int], [1, 2], {1, 2}, ["x"]),
    (frozenset[str], ["a"], frozenset("a"), [1]),
    (tuple[int, str], [1, "a"], (1, "a"), [1]),
    (tuple[int, ...], [1, 2, 3], (1, 2, 3), ["a"]),
    (dict[str, int], {"a": 1}, {"a": 1}, {"a": "x"}),
    (Mapping[str, bool], {"a": True}, {"a": True}, [1]),
    (dict[int, str], {"1": "a"}, {1: "a"}, {"x": "a"}),
    (str | None, None, None, 5),
    (Optional[int], 5, 5, "x"),  # noqa: UP045  # people write it
    (int | str, "5", "5", [1]),
    (Literal["a", "b"], "a", "a", "c"),
    (Literal[1, 2], 2, 2, 3),
    (Colour, "red", Colour.RED, "green"),
    (Level, 2, Level.HIGH, 3),
    (Point, {"x": 1}, Point(1), {"y": 1}),
    (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)], [{"x": "a"}]),
    (Point | None, {"x": 1}, Point(1), {"x": None}),
    (Tree, {"name": "a", "kids": [{"name": "b"}]}, Tree("a", [Tree("b")]), {"name": "a", "kids": [{}]}),
    (Person, {"name": "a"}, {"name": "a"}, {"age": 1}),
    (Box, {"size": {"x": 1}, "tags": ["a"]}, Box(Point(1), {"a"}), {"size": 1}),
    (Pair, {"left": 1, "right": "a"}, Pair(1, "a"), {"left": 1}),
    (Order, {"item": "a", "count": 2}, Order(item="a", count=2), {"item": "a", "count": "x"}),
    (list[Order], [{"item": "a"}], [Order(item="a")], [{}]),
    (Order | None, None, None, {"count": 1}),
    (datetime.datetime, "2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "soon"),
    (datetime.date, "2026-01-02", datetime.date(2026, 1, 2), "soon"),
    (datetime.time, "03:04:05", datetime.time(3, 4, 5), "soon"),
    (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90), "soon"),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678"), "x"),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50"), "x"),
    (pathlib.Path, "/a/b", pathlib.Path("/a/b"), 5),
    (list[pathlib.Path], ["/a"], [pathlib.Path("/a")], [5]),
    (bytes, "aGk=", b"hi", 5),
    (NewId, 5, 5, "x"),
    (Annotated[int, msgspec.Meta(ge=1, le=3)], 3, 3, 4),
    (Annotated[int, Field(ge=1)], 1, 1, 0),
    (Annotated[str, Field(min_length=2, pattern="^a")], "ab", "ab", "b"),
    (Annotated[list[int], msgspec.Meta(max_length=1)], [1], [1], [1, 2]),
    # unions msgspec refuses: tried one by one
    (Point | Order, {"item": "a"}, Order(item="a"), {"z": 1}),
    (str | datetime.date, "2026-01-02", "2026-01-02", 5),
    (datetime.date | str, "2026-01-02", datetime.date(2026, 1, 2), [5]),
    (Point | Tree | None, {"name": "a"}, Tree("a"), {}),
]


def make(hint: Any) -> FunctionTool:
    def take(value: Any) -> Any:
        """Takes it."""
        return value

    take.__annotations__ = {"value": hint}
    return FunctionTool(take)


def bind(tool: FunctionTool, **arguments: Any) -> Any:
    call = ToolCall(id="c", name=tool.name, arguments=dump_text(arguments))
    return read_signature(tool.function).bind(call)


def name_hint(case: Any) -> str:
    return str(case) if not isinstance(case, type) else case.__name__


@pytest.mark.parametrize(("hint", "good", "made", "bad"), FITTING, ids=[name_hint(case[0]) for case in FITTING])
def test_a_hint_becomes_a_schema_and_its_values(hint: Any, good: Any, made: Any, bad: Any) -> None:
    tool = make(hint)
    judge = jsonschema.Draft202012Validator(tool.parameters)
    judge.check_schema(tool.parameters)
    assert tool.parameters["type"] == "object"
    assert judge.is_valid({"value": good})
    _, named = bind(tool, value=good)
    assert named == {"value": made}
    assert type(named["value"]) is type(made)
    if bad is not ...:
        with pytest.raises(DragomanError, match="value: "):
            bind(tool, value=bad)


# What models write instead of what was asked for, and what they meant.
LENIENT: list[tuple[Any, Any, Any]] = [
    (int, "5", 5),
    (int, 5.0, 5),
    (float, "1.5", 1.5),
    (bool, "true", True),
    (int | None, "null", None),
    (list[int], "[1, 2]", [1, 2]),
    (list[int], ["1", 2], [1, 2]),
    (Point, '{"x": 1}', Point(1)),
    (Point, {"x": 1.0}, Point(1)),
    (Pair, [1, "a"], Pair(1, "a")),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (str, "5", "5"),  # what is text stays text
    (str, '{"x": 1}', '{"x": 1}'),
    (int | str, "5", "5"),
    (Point | Order, '{"x": 1}', Point(1)),
]


@pytest.mark.parametrize(("hint", "said", "meant"), LENIENT, ids=str)
def test_near_misses_of_a_model_are_accepted(hint: Any, said: Any, meant: Any) -> None:
    assert bind(make(hint), value=said)[1] == {"value": meant}


@pytest.mark.parametrize("hint", [typing.Callable, type, complex, list[complex]], ids=str)
def test_a_type_that_json_cannot_express_is_refused_when_the_tool_is_made(hint: Any) -> None:
    with pytest.raises(DragomanError, match=r"take: argument value: .* cannot be described as JSON"):
        make(hint)


def test_a_function_without_arguments_has_an_empty_object() -> None:
    """Anthropic requires `type`, OpenAI also requires `properties`. (seed 001)"""
    assert FunctionTool(lambda: 1, name="now").parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_defaults_are_in_the_schema_and_not_required() -> None:
    def book(city: str, when: datetime.date = datetime.date(2026, 1, 2), colour: Colour = Colour.RED, n: int | None = None) -> None:  # fmt: skip # noqa: E501
        """Books."""

    parameters = FunctionTool(book).parameters
    assert parameters["required"] == ["city"]
    assert parameters["properties"]["when"]["default"] == "2026-01-02"
    assert parameters["properties"]["colour"]["default"] == "red"
    assert "default" not in parameters["properties"]["n"]


def test_a_default_of_none_makes_the_type_optional() -> None:
    def find(name: str = None, at: Point = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """Finds."""

    assert bind(FunctionTool(find), name=None, at=None)[1] == {"name": None, "at": None}


def test_an_argument_without_a_hint_takes_its_type_from_the_default() -> None:
    def find(name, limit=5, deep=False):  # type: ignore[no-untyped-def]
        """Finds."""

    properties = FunctionTool(find).parameters["properties"]
    assert properties["name"] == {}
    assert properties["limit"] == {"type": "integer", "default": 5}
    assert properties["deep"] == {"type": "boolean", "default": False}


def test_hints_as_strings_are_resolved_in_the_scope_of_the_function() -> None:
    @dataclass
    class Here:
        x: int

    def take(value: "Here") -> int:
        return Here(value.x).x

    assert bind(FunctionTool(take), value={"x": 1})[1] == {"value": Here(1)}


def test_an_unknown_type_name_is_refused() -> None:
    def take(value: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        """Takes."""

    with pytest.raises(DragomanError, match="Nowhere"):
        FunctionTool(take)


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[int, "how many"],
        Annotated[int, msgspec.Meta(description="how many")],
        Annotated[int, Field(description="how many")],
    ],
    ids=["text", "msgspec", "pydantic"],
)
def test_text_in_annotated_describes_the_argument(hint: Any) -> None:
    assert make(hint).parameters["properties"]["value"]["description"] == "how many"


def test_pydantic_is_not_needed() -> None:
    program = """
import sys
sys.modules["pydantic"] = None
from dataclasses import dataclass
from dragoman.tools import FunctionTool

@dataclass
class Point:
    x: int

def f(point: Point | None, name: str = "a") -> Point | None:
    return point

assert FunctionTool(f).parameters["required"] == ["point"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=NEVER_S)
