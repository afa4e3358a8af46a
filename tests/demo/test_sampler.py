"""Sampled values, judged by the independent package jsonschema."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker, SchemaError

from dragoman.demo.patterns import matches_pattern, sample_pattern
from dragoman.demo.sampler import Hints, sample
from dragoman.json_schema.check import find_violation
from tests.recorded import cases, needs_corpus

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["name", "next"],
    "additionalProperties": False,
}

SCHEMAS: dict[str, Any] = {
    "anything": {},
    "true": True,
    "no parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    "every type": {
        "type": "object",
        "properties": {
            "s": {"type": "string"},
            "i": {"type": "integer"},
            "n": {"type": "number"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "a": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["s", "i", "n", "b", "z", "a"],
    },
    "only what is optional": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    "const": {"const": {"a": [1, None]}},
    "enum without a type": {"enum": [None, "a", 3]},
    "a list of types": {"type": ["null", "integer"]},
    "nested": {
        "type": "object",
        "properties": {
            "where": {
                "type": "object",
                "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}, "tags": {"type": "array"}},
                "required": ["lat", "tags"],
            }
        },
        "required": ["where"],
    },
    "bounds": {"type": "integer", "exclusiveMinimum": 10, "maximum": 12},
    "narrow numbers": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 15},
    "lengths": {"type": "string", "minLength": 20, "maxLength": 22},
    "short": {"type": "string", "maxLength": 3},
    "items": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 3},
    "unique items": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "uniqueItems": True},
    "a tuple": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    },
    "no items": {"type": "array", "maxItems": 0},
    "any of": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["x"]}]},
    "one of, which overlap": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    "all of with references": {
        "$defs": {"a": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/a"}, {"required": ["b"]}],
    },
    "any of beside properties": {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "anyOf": [
            {"properties": {"kind": {"const": "file"}, "path": {"type": "string"}}, "required": ["kind", "path"]},
            {"properties": {"kind": {"const": "url"}}, "required": ["kind"]},
        ],
    },
    "not": {"type": "integer", "not": {"const": 1}},
    "if then": {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["size"]},
    },
    "a reference": {"$defs": {"city": {"type": "string", "minLength": 2}}, "$ref": "#/$defs/city"},
    "a reference to a property": {
        "type": "object",
        "properties": {"h": {"type": "array", "items": {"type": "boolean"}}, "i": {"$ref": "#/properties/h"}},
        "required": ["i"],
    },
    "a schema in itself": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "a tree": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name", "children"],
    },
    "least properties": {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    "a pattern": {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"},
    **{f"format {name}": {"type": "string", "format": name} for name in ("date", "date-time", "email", "uuid", "ipv6")},
}


def problems(value: Any, schema: Any) -> list[str]:
    checker = Draft202012Validator(schema, format_checker=FormatChecker())
    return [error.message for error in checker.iter_errors(value)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_sample_is_valid(name: str) -> None:
    assert problems(sample(SCHEMAS[name]), SCHEMAS[name]) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_fits_agrees_with_jsonschema(name: str) -> None:
    referee = Draft202012Validator(SCHEMAS[name])
    for value in (None, True, 1, 11, "ab", "file", [], [1, 2], {}, {"a": 1, "b": 2}, {"kind": "b"}, {"x": 1}):
        assert (find_violation(value, SCHEMAS[name]) is None) == referee.is_valid(value), value


@pytest.mark.parametrize(
    "pattern",
    [
        "^a+b*c?$",
        "^\\d{3}-\\d{4}$",
        "^(foo|bar)baz$",
        "^[^a-z]+$",
        "^[a-zA-Z_][a-zA-Z0-9_]*$",
        "^#[0-9a-fA-F]{6}$",
        "^https?://.+$",
        "^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$",
        "^\\S+@\\S+\\.\\S+$",
        "^[\\w.-]+/[\\w.-]+$",
        "^v\\d+\\.\\d+(\\.\\d+)?$",
        "^\\x41$",
        "^$",
        "x{2,}",
        "^(?=.*\\d).+$",
    ],
)
def test_a_pattern_gets_a_text_that_it_matches(pattern: str) -> None:
    assert re.search(pattern, sample_pattern(pattern))


def test_patterns_are_searched_without_backtracking() -> None:
    assert not matches_pattern("^(a+)+$", "a" * 50 + "!")
    assert matches_pattern("^(?=a)b", "a" * 50 + "!")
    assert not matches_pattern("^(?=a)b", "a" * 50 + "!", if_unsure=False)
    assert len(sample_pattern("((a{4000}){4000}){4000}")) < 5000


def test_a_schema_that_explodes_gets_an_answer() -> None:
    wide = {"anyOf": [{"$ref": "#"} for _ in range(20)], "allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    sample(wide)
    two = {"type": "object", "properties": {k: {"$ref": "#"} for k in "abcd"}, "required": list("abcd")}
    sample(two)


def test_hints_are_used_up_in_order() -> None:
    schema = {
        "type": "object",
        "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["from", "to", "n"],
    }
    assert sample(schema, Hints(("Oslo", "Rome"), (3,))) == {"from": "Oslo", "to": "Rome", "n": 3}


def test_a_number_that_does_not_fit_is_not_used() -> None:
    assert sample({"type": "integer", "maximum": 5}, Hints((), (70,))) == 1


def test_an_enum_prefers_a_value_that_the_prompt_mentions() -> None:
    assert sample({"enum": ["celsius", "fahrenheit"]}, Hints(prompt="in Fahrenheit please")) == "fahrenheit"


@needs_corpus
def test_every_recorded_tool_gets_valid_arguments() -> None:
    schemas = [tool["input_schema"] for case in cases("anthropic") for tool in _tools(case.request())]
    bad = {}
    for schema in schemas:
        if type(schema) is not dict or "$ref" in schema:  # references to the world outside
            continue
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError:
            continue
        found = problems(sample(schema), schema)
        if found:
            bad[str(schema)[:300]] = found
    assert len(schemas) > 100
    assert bad == {}


def _tools(wire: Any) -> list[Any]:
    return [tool for tool in (wire.body.get("tools") or () if wire else ()) if "input_schema" in tool]
