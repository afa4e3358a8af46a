"""Our JSON Schema checker beside the field's own (`jsonschema`), and the words it has for a misfit."""

from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dragoman.passes.safe_regex import search
from dragoman.passes.schema_check import RULES, find_violation, is_same

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "pet": {"anyOf": [{"$ref": "#/$defs/cat"}, {"type": "null"}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"cat": {"type": "object", "properties": {"lives": {"enum": [7, 9]}}, "required": ["lives"]}},
}

MISFITS: list[tuple[str, Any, Any, str]] = [
    ("a value of another type", 1, {"type": "string"}, "/: expected string, found number"),
    ("true is no number", True, {"type": ["number", "null"]}, "/: expected number or null, found boolean"),
    ("half is no integer", 0.5, {"type": "integer"}, "/: expected integer, found number"),
    ("a missing property", {"name": "A"}, PERSON, "/: age is missing"),
    ("a property too many", {"name": "A", "age": 1, "x": 2}, PERSON, "/: x is not among the properties"),
    ("an empty string", {"name": "", "age": 1}, PERSON, "/name: 0 characters, expected at least 1"),
    ("below the minimum", {"name": "A", "age": -1}, PERSON, "/age: -1 is less than 0"),
    ("the wrong item", {"name": "A", "age": 1, "tags": ["a", 2]}, PERSON, "/tags/1: expected string, found number"),
    ("the same item twice", {"name": "A", "age": 1, "tags": ["a", "a"]}, PERSON, "/tags/1: stands there twice"),
    (
        "deep in the alternative that was meant",
        {"name": "A", "age": 1, "pet": {"lives": 8}},
        PERSON,
        "/pet/lives: 8 is none of [7,9]",
    ),
    (
        "no alternative",
        "x",
        {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "/: fits none of 2 alternatives (expected number, found string; expected null, found string)",
    ),
    (
        "two alternatives of which one may fit",
        5,
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        "/: fits several alternatives of which only one may fit",
    ),
    ("what it must not be", 5, {"not": {"type": "integer"}}, '/: is what it must not be: {"type":"integer"}'),
    ("nothing at all", 5, False, "/: nothing is allowed here"),
    ("a pattern", "b", {"pattern": "^a$"}, '/: "b" does not match ^a$'),
    ("an older tuple", [1, 2], {"items": [{}, {"type": "string"}]}, "/1: expected string, found number"),
    ("more than an older tuple", [1], {"items": [], "additionalItems": False}, "/0: nothing is allowed here"),
    ("a name that needs escaping", {"a/b": 1}, {"properties": {"a/b": False}}, "/a~1b: nothing is allowed here"),
    ("what a property needs beside it", {"a": 1}, {"dependentRequired": {"a": ["b"]}}, "/: with a, b is missing"),
    ("if, then", 5, {"if": {"type": "integer"}, "then": {"minimum": 9}}, "/: 5 is less than 9"),
]


@pytest.mark.parametrize(("value", "schema", "words"), [m[1:] for m in MISFITS], ids=[m[0] for m in MISFITS])
def test_a_misfit_says_where_and_why(value: Any, schema: Any, words: str) -> None:
    assert str(find_violation(value, schema)) == words


def test_what_fits_has_no_misfit() -> None:
    assert find_violation({"name": "A", "age": 1.0, "tags": ["x"], "pet": {"lives": 9}}, PERSON) is None
    assert find_violation({"name": "A", "age": 1, "pet": None}, PERSON) is None
    assert find_violation(None, {"type": "string", "nullable": True}) is None


UNKNOWABLE: list[tuple[str, Any, Any]] = [
    ("a schema elsewhere", 1, {"$ref": "https://example.org/s.json"}),
    ("a schema that is not there", 1, {"$ref": "#/$defs/none"}),
    ("a pattern that is none", "x", {"pattern": "("}),
    ("not: a pattern that is none", "x", {"not": {"pattern": "("}}),
    ("one of: patterns that are none", "x", {"oneOf": [{"pattern": "("}, {"pattern": "["}]}),
    ("contains: at most none of what nobody knows", ["x"], {"contains": {"pattern": "("}, "maxContains": 0}),
    ("a schema that is only itself", 1, {"$ref": "#"}),
    ("not itself", 1, {"not": {"$ref": "#"}}),
    ("a format", "nonsense", {"format": "date-time"}),
    ("a keyword of tomorrow", 1, {"sometimes": {"type": "string"}}),
    ("a type nobody knows", 1, {"type": "any"}),
    ("keywords of the wrong type", {"a": 1}, {"properties": [], "required": 5, "minimum": "x", "enum": 3, "items": 7}),
]


@pytest.mark.parametrize(("value", "schema"), [u[1:] for u in UNKNOWABLE], ids=[u[0] for u in UNKNOWABLE])
def test_what_cannot_be_checked_is_no_misfit(value: Any, schema: Any) -> None:
    assert find_violation(value, schema) is None


# ---------------------------------------------------------------- the referee

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.0])
    | st.sampled_from(["", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
counts = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    each: dict[str, st.SearchStrategy[Any]] = {
        "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "properties": named,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=2),
        "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        "additionalProperties": inner,
        "propertyNames": inner,
        "minProperties": counts,
        "maxProperties": counts,
        "dependentRequired": st.just({"a": ["b"]}),
        "dependentSchemas": st.builds(lambda s: {"a": s}, inner),
        "items": inner,
        "prefixItems": some,
        "contains": inner,
        "minContains": counts,
        "maxContains": counts,
        "minItems": counts,
        "maxItems": counts,
        "uniqueItems": st.booleans(),
        "minimum": st.integers(-3, 3),
        "maximum": st.integers(-3, 3),
        "exclusiveMinimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": counts,
        "maxLength": counts,
        "pattern": st.sampled_from(["^a", "b+$", "^(a|b)*$", "[ab]{2}"]),
        "anyOf": some,
        "oneOf": some,
        "allOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }
    chosen = st.lists(st.sampled_from(sorted(each)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: each[name] for name in names}))


schemas = st.recursive(st.booleans() | keywords(st.booleans()), keywords, max_leaves=4)


@settings(max_examples=200, deadline=None)
@given(value=values, schema=schemas, one=schemas)
def test_we_judge_as_the_fields_own_checker_does(value: Any, schema: Any, one: Any) -> None:
    root = {"$defs": {"one": _without_refs(one), "two": {"type": "array", "items": {"$ref": "#"}}}, "allOf": [schema]}
    assert (find_violation(value, root) is None) == Draft202012Validator(root).is_valid(value)


def _without_refs(schema: Any) -> Any:
    """A definition that refers to itself at once has no meaning, and the other checker no end."""
    if isinstance(schema, dict):
        return {key: _without_refs(value) for key, value in schema.items() if key != "$ref"}
    return [_without_refs(item) for item in schema] if isinstance(schema, list) else schema


@settings(max_examples=60, deadline=None)
@given(one=values, other=values)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    assert is_same(one, other) == Draft202012Validator({"const": one}).is_valid(other)


# ---------------------------------------------------------------- patterns and size


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "^(a|aa)+$", "(.*a){12}", "a*a*a*a*a*a*b", "(a?){40}a{40}"])
def test_a_pattern_that_may_take_for_ever_is_not_tried(pattern: str) -> None:
    started = perf_counter()
    assert search(pattern, "a" * 60 + "c") in (None, False)
    assert perf_counter() - started < 5


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", "123e4567-e89b-12d3-a456-426614174000", True),
        (r"^(\d{1,3}\.){3}\d{1,3}$", "192.168.100.200", True),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-16", True),
        (r"^\d{4}-\d{2}-\d{2}$", "16.11.2026", False),
        (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "someone@example.org", True),
        (r"^[a-z]+(-[a-z]+)*$", "a-slug", True),
        (r"^a$", "a\n", False),
        (r"^[\w.(+*]+$", "a" * 500, True),
        ("(", "x", None),
        (r"\p{L}", "x", None),
        (5, "x", None),
    ],
)
def test_patterns_people_write_are_tried(pattern: object, text: str, found: bool | None) -> None:
    assert search(pattern, text) is found


def test_a_schema_that_multiplies_without_end_is_given_up() -> None:
    root: dict[str, Any] = {"$defs": {}, "$ref": "#/$defs/d0"}
    for i in range(60):
        root["$defs"][f"d{i}"] = {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2}
    root["$defs"]["d60"] = False
    started = perf_counter()
    find_violation(1, root)
    assert perf_counter() - started < 5


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "#", "#/a", "string", "(", 1e400, -0.5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*sorted(RULES), "then", "minContains", "$defs"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(value=values, schema=odd)
def test_no_schema_is_too_odd(value: Any, schema: Any) -> None:
    find_violation(value, schema)
