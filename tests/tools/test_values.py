"""A function accepts every value that its schema accepts: for every kind of hint, alone and inside others, with values
made from its schema, and with similar values that the package jsonschema accepts."""

import dataclasses
import datetime
import decimal
import enum
import pathlib
import types
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import attrs
import jsonschema
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.tools.hints import read_hint
from dragoman.tools.records import is_record, is_typed_dict
from dragoman.tools.schemas import write_schemas
from dragoman.tools.values import WrongValueError, make_value

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
    HALF = 0.5


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Place:
    x: int
    y: int
    name: str


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Cat(msgspec.Struct):
    lives: int
    toys: list[str] = []


class Dog(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    is_good: bool


class Circle(msgspec.Struct, tag="circle"):
    r: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, ge=1)
    parts: "list[Order]" = []


@attrs.define
class Car:
    wheels: int
    name: str = "car"
    seats: list[str] = attrs.Factory(list)


class Pair(typing.NamedTuple):
    left: int
    right: str = "r"


@dataclasses.dataclass
class Holder:
    """Holds.

    Attributes:
        one: the first
        all: the others
    """

    one: Cat | Dog
    all: list[Point | Person | str] = dataclasses.field(default_factory=list)
    when: datetime.datetime | None = None


@dataclasses.dataclass
class Node:
    value: "Point | Person"
    kids: "list[Node | pathlib.Path]" = dataclasses.field(default_factory=list)


class Shelf(msgspec.Struct, tag=True):
    items: dict[str, Cat | Point]


@dataclasses.dataclass
class Boxed(Generic[T]):
    inside: T
    more: list[T]


@dataclasses.dataclass
class BoxedMixed(Boxed[Cat | Dog]):
    label: str = ""


class Options(TypedDict, Generic[T], total=False):
    value: T


class Later(typing_extensions.TypedDict):
    at: typing_extensions.ReadOnly[datetime.datetime]
    by: typing_extensions.NotRequired[Cat | Dog]


Json = str | int | None | list["Json"] | dict[str, "Json"]
Nested = typing_extensions.TypeAliasType("Nested", int | list["Nested"])  # type: ignore[misc]


HINTS: list[Any] = [
    str, int, float, bool, None, Any, list, dict, tuple, set, bytes,
    list[int], set[str], frozenset[int], tuple[int, str], tuple[int, ...], dict[str, float], dict[int, str],
    Sequence[int], Iterable[str], Mapping[str, bool],
    int | None, int | str, int | float, list[int] | str | None, str | bytes,
    Literal["a", "b"], Literal[1, "one", None], Colour, Mixed, list[Mixed], Mixed | None, dict[str, Colour],
    datetime.datetime, datetime.date, datetime.time, uuid.UUID, decimal.Decimal, pathlib.Path,
    datetime.date | int, list[pathlib.Path | int], pathlib.Path | None,
    Annotated[int, msgspec.Meta(ge=1, le=9)], Annotated[str, pydantic.Field(min_length=2, max_length=4)],
    Annotated[int | Cat | Dog, pydantic.Field(ge=3, description="a number or an animal")],
    list[Annotated[float, msgspec.Meta(gt=0)]], Annotated[list[int], msgspec.Meta(max_length=2)],
    Point, Person, Cat, Dog, Circle, Order, Car, Pair, Holder, Node, Shelf,
    Boxed[int], Boxed[Cat | Dog], BoxedMixed, Options[str], Options[Point | Person],
    Cat | Dog, list[Cat | Dog], dict[str, Cat | Dog], tuple[Cat | Dog, int], list[int | str | Point],
    Point | Person, list[Point | Person | None], Point | Place, Circle | Square, list[Circle | Square | Cat],
    Order | str, list[Order | Point], Car | Point, Pair | Cat, list[Pair], Holder | Node, list[Node | None],
    Later, Json, list[Json | Cat], Nested, list[list[Cat | Dog]], dict[str, list[Point | Person]] | None,
]  # fmt: skip


def schema_of(hint: Any) -> dict[str, Any]:
    (schema,), definitions = write_schemas([read_hint(hint, globals())])
    return {**schema, "$defs": definitions} if definitions else schema


def name(hint: Any) -> str:
    return str(hint).replace("typing.", "").replace(f"{__name__}.", "") if not isinstance(hint, type) else hint.__name__


# ---------------------------------------------------------------- values made from a schema

TEXTS = {
    "date": st.dates().map(str),
    "date-time": st.datetimes().map(lambda when: when.isoformat() + "Z"),
    "time": st.times().map(str),
    "uuid": st.uuids().map(str),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False).map(str),
    "path": st.text("abc/.", min_size=1),
}
ANYTHING: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3) | st.just([]) | st.just({})
)


def values(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return values(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth)
    if "anyOf" in schema:
        return st.one_of([later(one, root, depth) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return objects(schema, root, depth)
        case "array":
            return arrays(schema, root, depth)
        case kind:
            return scalars(kind, schema)


def later(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    """Types may contain themselves."""
    return st.deferred(lambda: values(schema, root, depth))


def scalars(kind: Any, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    match kind:
        case "string" if "format" in schema:
            return TEXTS[schema["format"]]
        case "string" if schema.get("contentEncoding") == "base64":
            return st.sampled_from(["", "aGk=", "AAAA"])
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 8))
        case "integer":
            return st.integers(low, high) | st.integers(low, high).map(float) if low is None else st.integers(low, high)
        case "number":
            above = schema.get("exclusiveMinimum")
            return st.floats(above, None, exclude_min=above is not None, allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case _:
            return ANYTHING


def objects(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    known = {key: later(one, root, depth + 1) for key, one in schema.get("properties", {}).items()}
    must = {key: known[key] for key in schema.get("required", [])}
    may = {} if depth > 2 else {key: one for key, one in known.items() if key not in must}
    fixed = st.fixed_dictionaries(must, optional=may)
    more = schema.get("additionalProperties", not known)
    if more is False or known:
        return fixed
    inner = ANYTHING if more is True else values(more, root, depth + 1)
    return st.dictionaries(st.integers(0, 99).map(str), inner, max_size=2)


def arrays(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(values(one, root, depth + 1) for one in schema["prefixItems"])).map(list)
    most = min(schema.get("maxItems", 3), 0 if depth > 2 else 3)
    inner = values(schema["items"], root, depth + 1) if schema.get("items") else ANYTHING
    if schema.get("uniqueItems"):
        inner = inner.filter(lambda item: not isinstance(item, list | dict))
        return st.lists(inner, max_size=most, unique_by=repr)
    return st.lists(inner, min_size=schema.get("minItems", 0), max_size=most)


def judge(schema: dict[str, Any]) -> Any:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


READ = [(read_hint(hint, globals()), schema_of(hint), judge(schema_of(hint))) for hint in HINTS]
each_hint = pytest.mark.parametrize("number", range(len(HINTS)), ids=[name(hint) for hint in HINTS])


@each_hint
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_function_accepts_the_values_that_its_schema_accepts(number: int, data: st.DataObject) -> None:
    hint, (read, schema, judge) = HINTS[number], READ[number]
    value = data.draw(values(schema, schema))
    assert judge.is_valid(value), "the test's own values"
    made = make_value(value, read)
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [typing.get_origin(one) or one for one in members]
    if all(is_record(kind) and not is_typed_dict(kind) for kind in kinds):
        assert isinstance(made, tuple(kinds))


ODD = st.sampled_from([None, True, 0, 1, 1.0, 2.5, "x", "1", [], [1], {}, {"x": 1}, {"name": "n"}, {"lives": 9}])


@each_hint
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=ODD | st.lists(ODD, max_size=2) | st.dictionaries(st.sampled_from(["x", "name", "items", "1"]), ODD))
def test_a_function_accepts_other_values_that_jsonschema_accepts(number: int, value: Any) -> None:
    read, schema, judge = READ[number]
    if FORMATS.intersection(_formats(schema)):
        return  # what is text to the judge may still be no date
    try:
        make_value(value, read)
    except WrongValueError:
        assert not judge.is_valid(value)


FORMATS = {"date", "date-time", "time", "uuid", "decimal", "base64"}


def _formats(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {word for one in schema for word in _formats(one)}
    if not isinstance(schema, dict):
        return set()
    said = {word for key in ("format", "contentEncoding") if isinstance(word := schema.get(key), str)}
    return said | {word for one in schema.values() for word in _formats(one)}


# ---------------------------------------------------------------- what comes of it, by table

MADE: list[tuple[Any, Any, Any]] = [
    (list[Cat | Dog], [{"lives": 9}, {"isGood": True}], [Cat(9), Dog(True)]),
    (dict[str, Point | Person], {"a": {"name": "n"}, "b": {"x": 1}}, {"a": {"name": "n"}, "b": Point(1)}),
    (Point | Place, {"x": 1, "y": 2, "name": "n"}, Place(1, 2, "n")),  # Point would fit, and lose the name
    (Place | Point, {"x": 1, "y": 2}, Point(1, 2)),
    (list[int | str | Point], [1, "1", {"x": 1}], [1, "1", Point(1)]),
    (tuple[Cat | Dog, int], [{"lives": 1}, "5"], (Cat(1), 5)),
    (Holder, {"one": {"isGood": True}, "all": ["a", {"x": "3"}]}, Holder(Dog(True), ["a", Point(3)])),
    (Node, {"value": {"x": 1}, "kids": [{"value": {"name": "n"}}, "/a"]},
     Node(Point(1), [Node({"name": "n"}), pathlib.Path("/a")])),
    (Shelf, {"type": "Shelf", "items": {"a": {"lives": 1}}}, Shelf({"a": Cat(1)})),
    (Boxed[Cat | Dog], {"inside": {"lives": 1}, "more": []}, Boxed(Cat(1), [])),
    (BoxedMixed, {"inside": {"isGood": False}, "more": [{"lives": 1}]}, BoxedMixed(Dog(False), [Cat(1)])),
    (list[Order | Point], [{"item": "a"}, {"x": 1}], [Order(item="a"), Point(1)]),
    (list[Cat | Dog], '[{"lives": "9"}]', [Cat(9)]),  # JSON in a string, and a number in another
    (Mixed, "two", Mixed.TWO),
    (list[Mixed | Cat], [1, {"lives": 1}], [Mixed.ONE, Cat(1)]),
    (Car | Point, {"wheels": 4}, Car(4)),
    (list[Pair | Cat], [{"left": 1}, [2, "b"], {"lives": 3}], [Pair(1), Pair(2, "b"), Cat(3)]),
    (Later, {"at": "2026-01-02T03:04:05Z", "by": {"lives": 1}},
     {"at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "by": Cat(1)}),
    (Json, {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    (Nested, [1, [2, ["3"]]], [1, [2, [3]]]),
    (list[pathlib.Path | int], ["/a", 5], [pathlib.Path("/a"), 5]),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value", "made"), MADE, ids=[f"{name(case[0])} {case[1]}" for case in MADE])
def test_unions_at_any_depth_give_the_member_that_fits_best(hint: Any, value: Any, made: Any) -> None:
    got = make_value(value, read_hint(hint, globals()))
    assert got == made
    assert type(got) is type(made)


WRONG: list[tuple[Any, Any, str]] = [
    (list[Cat | Dog], [{"lives": 1}, {"z": 1}], "missing required field lives; or .* unknown field z .*value.1"),
    (list[Cat | Dog], [1, 2], r"Expected object, got int.*\(in value\[0\]\)"),
    (Holder, {"one": {"isGood": True}, "all": [5]}, r"\(in value.all\[0\]\)"),
    (Node, {"value": {"x": 1}, "kids": [{"value": 5}]}, r"\(in value.kids\[0\]\)"),
    (Shelf, {"type": "Drawer", "items": {}}, r"Expected Shelf \(in value.type\)"),
    (Mixed, 2, "Expected one of 1, 'two', 0.5"),
    (list[Mixed], [True], r"Expected one of 1.* \(in value\[0\]\)"),
    (Circle | Square, {"type": "oval"}, "Invalid value 'oval'"),
    (Json, {"a": [1.5]}, r"Expected .* got float"),
]


@pytest.mark.parametrize(("hint", "value", "words"), WRONG, ids=[f"{name(case[0])} {case[1]}" for case in WRONG])
def test_a_value_that_fits_no_member_says_why_and_where(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(WrongValueError, match=words):
        make_value(value, read_hint(hint, globals()), "value")


def test_the_docstring_of_a_class_describes_its_fields() -> None:
    held = schema_of(Holder)["$defs"]["Holder"]
    assert held["description"] == "Holds."
    assert held["properties"]["one"]["description"] == "the first"
    assert held["properties"]["when"] == {
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
    }
    assert held["required"] == ["one"]


def test_two_classes_with_the_same_name_are_kept_apart() -> None:
    class Item(pydantic.BaseModel):
        price: float

    class Basket(pydantic.BaseModel):
        items: list[Item]

    first = Item

    class Item(msgspec.Struct):  # type: ignore[no-redef]
        weight: int

    schema = schema_of(dict[str, Basket | Item | Cat])
    (basket, item, _) = schema["additionalProperties"]["anyOf"]
    price = schema["$defs"][basket["properties"]["items"]["items"]["$ref"].rpartition("/")[2]]
    weight = schema["$defs"][item["$ref"].rpartition("/")[2]]
    assert ("price" in price["properties"], "weight" in weight["properties"]) == (True, True)
    assert first is not Item


REFUSED: list[tuple[Any, str]] = [
    (complex, "complex cannot be described as JSON: use str, or another type that JSON has, and make the complex"),
    (list[Cat | complex], "complex cannot be described"),
    (typing.Callable[[int], int], "a model cannot write a function: take its name"),
    (type[int], "a model cannot write a type"),
    (typing.Iterator[int], r"write list\[...\]"),
    (dataclasses.make_dataclass("Odd", [("a", int | Cat | Dog), ("b", complex)]), "Odd.b: complex cannot be described"),
    (enum.Enum("Pairs", {"A": (1, 2)}), "use text or numbers as the values of its members"),
    (dict[str, list[type]], "a model cannot write a type"),
    (msgspec.defstruct("Row", [("a", Cat | Dog)], array_like=True), "remove array_like"),
    (Annotated[bool, msgspec.Meta(ge=1)], "does not apply to bool"),
    (list["Nowhere"], "the type 'Nowhere' is not defined here: write the type itself"),  # type: ignore[name-defined]  # noqa: F821
    (set[Point], r"Point cannot be in a set: write list\[Point\]"),
]


@pytest.mark.parametrize(("hint", "words"), REFUSED, ids=[name(case[0]) for case in REFUSED])
def test_a_type_that_json_cannot_express_is_refused_with_advice(hint: Any, words: str) -> None:
    with pytest.raises(DragomanError, match=words):
        read_hint(hint)
