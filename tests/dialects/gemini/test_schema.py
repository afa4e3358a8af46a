"""Gemini's Schema as JSON Schema, and back."""

import pytest

from dragoman.dialects.gemini.schema import read_schema, write_schema
from dragoman.jsontypes import JsonObject

CASES: list[tuple[JsonObject, JsonObject, str | None]] = [
    ({"type": "STRING"}, {"type": "string"}, "schema"),
    ({"type": "string"}, {"type": "string"}, "plain"),
    ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}, "schema"),
    ({"type": "STRING", "nullable": False}, {"type": "string", "nullable": False}, "schema"),
    (
        {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        "schema",
    ),
    (
        {
            "type": "OBJECT",
            "properties": {"type": {"type": "STRING"}, "any_of": {"type": "ARRAY", "items": {"type": "NUMBER"}}},
        },
        {
            "type": "object",
            "properties": {"type": {"type": "string"}, "any_of": {"type": "array", "items": {"type": "number"}}},
        },
        "schema",
    ),
    (
        {"type": "OBJECT", "defs": {"a": {"type": "STRING"}}, "properties": {"x": {"ref": "#/defs/a"}}},
        {"type": "object", "$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
        "schema",
    ),
    # what neither form gives back exactly is kept beside its meaning
    ({"type": "ARRAY", "minItems": "3"}, {"type": "array", "minItems": 3}, None),
    (
        {"type": "OBJECT", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        None,
    ),
    ({"type": 6, "any_of": [{"type": 1}]}, {"type": "object", "anyOf": [{"type": "string"}]}, None),
    ({"type": ["STRING"]}, {"type": ["STRING"]}, "plain"),
]


@pytest.mark.parametrize(("wire", "schema", "spelling"), CASES)
def test_a_schema_means_the_same_and_comes_back_as_it_was(
    wire: JsonObject, schema: JsonObject, spelling: str | None
) -> None:
    read, how = read_schema(wire)
    assert read == schema
    assert how == (wire if spelling is None else spelling)
    assert write_schema(read, how) == wire


def test_a_schema_that_was_changed_is_not_written_as_it_was() -> None:
    _, how = read_schema({"type": "ARRAY", "minItems": "3"})
    assert write_schema({"type": "array"}, how) is None


def test_a_schema_without_a_spelling_is_json_schema() -> None:
    assert write_schema({"type": "object"}, None) is None
