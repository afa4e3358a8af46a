"""Values and their schemas: the same verdict as `jsonschema`, our words for what is wrong, and hostile schemas."""

from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dragoman.json_schema.check import check_for, find_violation
from dragoman.json_schema.clean import LISTED, NAMED, ONE, PLAIN
from tests.examples import examples

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

VIOLATIONS: list[tuple[str, Any, Any, str]] = [
    ("a value of another type", 1, {"type": "string"}, "/: expected string, found number"),
    ("true is no number", True, {"type": ["number", "null"]}, "/: expected number or null, found boolean"),
    ("half is no integer", 0.5, {"type": "integer"}, "/: expected integer, found number"),
    ("a missing property", {"name": "A"}, PERSON, "/: age is missing"),
    ("two missing properties", {}, PERSON, "/: name, age are missing"),
    ("a property too many", {"name": "A", "age": 1, "x": 2}, PERSON, "/: x is not among the properties"),
    (
        "two properties too many",
        {"x": 2, "y": 3},
        {"additionalProperties": False},
        "/: x, y are not among the properties",
    ),
    (
        "a property's name",
        {"abc": 1},
        {"propertyNames": {"maxLength": 2}},
        '/: the name "abc": 3 characters, expected at most 2',
    ),
    ("a long value", "x" * 99, {"enum": ["y"]}, f'/: "{"x" * 79}… is none of ["y"]'),
    (
        "too many of an item",
        [1, 2],
        {"contains": True, "maxContains": 1},
        "/: too few or too many items match `contains`",
    ),
    (
        "what no keyword looked at",
        {"a": 1, "b": 2},
        {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        "/: b is not among the properties",
    ),
    ("not null", 1, {"type": "STRING", "nullable": True}, "/: expected string or null, found number"),
    ("an empty string", {"name": "", "age": 1}, PERSON, "/name: 0 characters, expected at least 1"),
    ("below the minimum", {"name": "A", "age": -1}, PERSON, "/age: -1 is less than 0"),
    ("the wrong item", {"name": "A", "age": 1, "tags": ["a", 2]}, PERSON, "/tags/1: expected string, found number"),
    ("the same item twice", {"name": "A", "age": 1, "tags": ["a", "a"]}, PERSON, "/tags: two items are the same"),
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
    ("what it must not be", 5, {"not": {"type": "integer"}}, '/: the schema forbids it: {"type":"integer"}'),
    ("nothing at all", 5, False, "/: nothing is allowed here"),
    ("a pattern", "b", {"pattern": "^a$"}, '/: "b" does not match "^a$"'),
    ("an older tuple", [1, 2], {"items": [{}, {"type": "string"}]}, "/1: expected string, found number"),
    ("more than an older tuple", [1], {"items": [], "additionalItems": False}, "/0: nothing is allowed here"),
    ("a name that needs escaping", {"a/b": 1}, {"properties": {"a/b": False}}, "/a~1b: nothing is allowed here"),
    ("what a property needs beside it", {"a": 1}, {"dependentRequired": {"a": ["b"]}}, "/: b is missing"),
    ("if, then", 5, {"if": {"type": "integer"}, "then": {"minimum": 9}}, "/: 5 is less than 9"),
]


@pytest.mark.parametrize(("value", "schema", "words"), [v[1:] for v in VIOLATIONS], ids=[v[0] for v in VIOLATIONS])
def test_a_violation_says_where_and_why(value: Any, schema: Any, words: str) -> None:
    assert str(find_violation(value, schema)) == words


def test_what_fits_has_no_violation() -> None:
    assert find_violation({"name": "A", "age": 1.0, "tags": ["x"], "pet": {"lives": 9}}, PERSON) is None
    assert find_violation({"name": "A", "age": 1, "pet": None}, PERSON) is None
    for schema in ({"type": "STRING"}, {"enum": ["a"]}, {"const": "a"}, {"allOf": [{"type": "string"}]}):
        assert find_violation(None, {**schema, "nullable": True}) is None
        assert find_violation(None, schema) is not None


UNKNOWABLE: list[tuple[str, Any, Any]] = [
    ("a schema elsewhere", 1, {"$ref": "https://example.org/s.json"}),
    ("a schema that is not there", 1, {"$ref": "#/$defs/none"}),
    ("a pattern that is none", "x", {"pattern": "("}),
    ("not: a pattern that is none", "x", {"not": {"pattern": "("}}),
    ("one of: patterns that are none", "x", {"oneOf": [{"pattern": "("}, {"pattern": "["}]}),
    ("contains: at most none of what is unknown", ["x"], {"contains": {"pattern": "("}, "maxContains": 0}),
    ("not: behind a reference", "x", {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"pattern": "("}}}),
    (
        "the rest beside a pattern that is none",
        {"x": 1},
        {"patternProperties": {"(": {}}, "additionalProperties": False},
    ),
    ("a file", 1, {"$ref": "file:///etc/hostname"}),
    ("an anchor", 1, {"$ref": "#name", "$defs": {"a": {"$anchor": "name", "type": "string"}}}),
    ("a pattern that looks ahead", "b", {"pattern": "^(?=a)"}),
    ("text that is no Unicode", "\ud800", {"type": "integer"}),
    ("a schema that is only itself", 1, {"$ref": "#"}),
    ("not itself", 1, {"not": {"$ref": "#"}}),
    ("a format", "nonsense", {"format": "date-time"}),
    ("a keyword of tomorrow", 1, {"sometimes": {"type": "string"}}),
    ("an unknown type", 1, {"type": "any"}),
    ("keywords of the wrong type", {"a": 1}, {"properties": [], "required": 5, "minimum": "x", "enum": 3, "items": 7}),
]


@pytest.mark.parametrize(("value", "schema"), [u[1:] for u in UNKNOWABLE], ids=[u[0] for u in UNKNOWABLE])
def test_what_cannot_be_checked_fits(value: Any, schema: Any) -> None:
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


@settings(max_examples=examples(200), deadline=None)
@given(value=values, schema=schemas, one=schemas)
def test_we_judge_as_the_fields_own_checker_does(value: Any, schema: Any, one: Any) -> None:
    root = {"$defs": {"one": _without_refs(one), "two": {"type": "array", "items": {"$ref": "#"}}}, "allOf": [schema]}
    assert (find_violation(value, root) is None) == Draft202012Validator(root).is_valid(value)


def _without_refs(schema: Any) -> Any:
    """A definition that refers to itself at once has no meaning, and the other checker no end."""
    if isinstance(schema, dict):
        return {key: _without_refs(value) for key, value in schema.items() if key != "$ref"}
    return [_without_refs(item) for item in schema] if isinstance(schema, list) else schema


# ---------------------------------------------------------------- drafts

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        (1, {"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, False),
        (1, {"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": False}, True),
        (9, {"maximum": 9, "exclusiveMaximum": True}, False),
        ({"a": 1}, {"$schema": DRAFT_4, "properties": {"a": {}}, "additionalProperties": False}, True),
        ([1, "x"], {"$schema": DRAFT_7, "items": [{}, {"type": "integer"}]}, False),
        ({"a": 1}, {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, False),
        (1, {"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}, False),
        ("x", {"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {}}, "type": "integer"}, True),
        (1, {"$schema": "https://example.org/tomorrow", "type": "string"}, False),
    ],
)
def test_the_draft_that_a_schema_names_is_followed(value: Any, schema: Any, fits: bool) -> None:
    assert (find_violation(value, schema) is None) is fits


def test_a_reference_may_point_anywhere_in_the_schema() -> None:
    schema = {"properties": {"a": {"items": [{"type": "string"}]}, "b": {"$ref": "#/properties/a/items/0"}}}
    assert str(find_violation({"b": 1}, schema)) == "/b: expected string, found number"
    part = {"type": "array", "items": {"$ref": "#/properties/b"}}
    assert str(find_violation([1], part, schema)) == "/0: expected string, found number"


TYPES = '["array","boolean","integer","null","number","object","string"]'


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"type": "strin"},
            f'/type: fits none of 2 alternatives ("strin" is none of {TYPES}; expected array, found string)',
        ),
        ({"properties": {"a": {"required": "b"}}}, "/properties/a/required: expected array, found string"),
        ({"items": {"$ref": "#/$defs/a"}}, "/items/$ref: there is nothing at #/$defs/a"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [5]}}},
            "/$defs/a/anyOf/0: expected boolean or object, found number",
        ),
        ({"$ref": "a.json"}, "/$ref: a.json is another document, and is not read"),
        ({"minimum": "x"}, "/minimum: expected number, found string"),
    ],
)
def test_a_broken_schema_says_what_is_wrong_with_it(schema: Any, words: str) -> None:
    assert check_for(schema).faults == [words]


# ---------------------------------------------------------------- patterns and size


SOON = 20  # seconds: these take less than one, and without a bound they take hours


def time_of(value: Any, schema: Any) -> float:
    started = process_time()
    find_violation(value, schema)
    return process_time() - started


HOSTILE = ["(a+)+$", "(a|a)*$", "^(a|aa)+$", "(.*a){12}", "a*a*a*a*a*a*b", "(a?){40}a{40}", "(?x) ( a + ) + $"]
atoms = st.sampled_from(["a", ".", "[ab]", "(a)", r"\w", "a?", "(?:)", "(?i:A)", "(?x: a b )", "(?=a)", r"(a)\1", "é"])
hostile = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "{2,}", "{0,30}", "*?", "++", "{9}"])),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_backtracks_for_ever_elsewhere_is_answered_here(pattern: str) -> None:
    assert time_of("a" * 50_000 + "c", {"pattern": pattern}) < SOON


@settings(max_examples=examples(200), deadline=None)
@given(pattern=hostile, text=st.sampled_from(["a" * 5_000 + "!", "ab" * 3_000, "é" * 4_000]))
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    assert time_of(text, {"pattern": f"^{pattern}$", "patternProperties": {pattern: False}}) < SOON


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
        (r"^.{1,255}$", "a" * 256, False),
        (r"^\p{L}$", "1", False),
    ],
)
def test_patterns_people_write_are_tried(pattern: str, text: str, found: bool) -> None:
    assert (find_violation(text, {"pattern": pattern}) is None) is found


def test_a_text_too_long_to_search_is_checked_but_for_its_patterns() -> None:
    schema = {"properties": {"a": {"pattern": "^b$"}, "n": {"type": "integer"}}}
    assert find_violation({"a": "c" * 200_000, "n": 1}, schema) is None
    assert str(find_violation({"a": "c" * 200_000, "n": "1"}, schema)) == "/n: expected integer, found string"


def fan(levels: int, keyword: str, last: Any) -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    defs = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": last}}


@pytest.mark.parametrize("levels", [10, 15, 18, 60, 400])
@pytest.mark.parametrize(("keyword", "last"), [("anyOf", {"type": "string"}), ("allOf", True), ("oneOf", False)])
def test_a_schema_that_multiplies_without_end_is_given_up(levels: int, keyword: str, last: Any) -> None:
    assert time_of(1, fan(levels, keyword, last)) < SOON


@pytest.mark.parametrize("depth", [3, 10, 20, 90, 900])
def test_a_deep_value_of_a_recursive_union_is_given_up(depth: int) -> None:
    branch = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    assert time_of(value, {"anyOf": [{"type": "string"}, branch, {**branch, "maxProperties": 1}]}) < SOON


def test_large_schemas_and_values_take_no_longer_than_they_may() -> None:
    names = {f"property{i}": {"type": "string", "maxLength": i} for i in range(1_500)}
    assert time_of({"property1": 1}, {"properties": names}) < SOON
    assert time_of({"property1": 1}, {"properties": names, "$defs": {"x": "y" * 200_000}}) < SOON
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2_000)}
    assert time_of(1, {"$ref": "#/$defs/d0", "$defs": {**chain, "d2000": {}}}) < SOON
    assert time_of(list(range(50_000)), {"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]}) < SOON
    assert find_violation([1] * 20_000, {"type": "array", "items": {"type": "string"}}) is not None


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "#", "#/a", "string", "(", 1e400, -0.5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*sorted(ONE | LISTED | NAMED | PLAIN), "$ref", "$defs"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=examples(300), deadline=None)
@given(value=values, schema=odd)
def test_no_schema_is_too_odd(value: Any, schema: Any) -> None:
    find_violation(value, schema)
