"""Gemini generateContent: its Schema message as JSON Schema, and back. https://ai.google.dev/api/caching#Schema

Gemini's Schema has upper-case types and `nullable`. We keep JSON Schema, and remember the form of the wire as spelling:
"plain" (it was JSON Schema), "schema" (it was Gemini's Schema) or, if neither gives back the same bytes, the original.
"""

from typing import Any

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject
from dragoman.note_places import Place

TYPES: dict[str, str] = {
    "STRING": "string",
    "NUMBER": "number",
    "INTEGER": "integer",
    "BOOLEAN": "boolean",
    "ARRAY": "array",
    "OBJECT": "object",
    "NULL": "null",
}
TYPE_WORDS: dict[str, str] = {ours: word for word, ours in TYPES.items()}
TYPE_NUMBERS: dict[int, str] = dict(enumerate(TYPE_WORDS, start=1))

_SNAKE: dict[str, str] = {
    "any_of": "anyOf",
    "additional_properties": "additionalProperties",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "property_ordering": "propertyOrdering",
}
_COUNTS = frozenset({"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"})
NULL: JsonObject = {"type": "null"}


def read_schema(original: JsonObject) -> tuple[JsonObject, str | JsonObject]:
    """Return a wire schema as JSON Schema, and its spelling."""
    try:
        schema = to_json_schema(original)
        if schema == original:
            return original, "plain"
        return schema, "schema" if from_json_schema(schema) == original else original
    except RecursionError:
        raise DecodeError("a schema nested too deeply") from None


def write_schema(schema: JsonObject, spelling: object) -> JsonObject | None:
    """The wire schema in its original spelling. None without a spelling, or if the schema has changed since."""
    match spelling:
        case "plain":
            return schema
        case "schema":
            return from_json_schema(schema)
        case dict() if to_json_schema(spelling) == schema:
            return spelling
        case _:
            return None


def to_json_schema(node: JsonObject) -> JsonObject:
    out: JsonObject = {}
    for key, value in node.items():
        name = _SNAKE.get(key, key)
        match name:
            case "type":
                out["type"] = _read_type(value)
            case "properties" | "$defs":
                out[name] = _each_value(value, to_json_schema)
            case "defs":
                out["$defs"] = _each_value(value, to_json_schema)
            case "ref":
                out["$ref"] = value.replace("#/defs/", "#/$defs/", 1) if type(value) is str else value
            case "items" | "additionalProperties":
                out[name] = to_json_schema(value) if type(value) is dict else value
            case "anyOf":
                out[name] = _each_item(value, to_json_schema)
            case _ if name in _COUNTS and type(value) is str and value.isdecimal():
                out[name] = int(value)  # protobuf writes its 64-bit numbers as strings
            case _:
                out[name] = value
    if out.get("nullable") is True:
        _read_nullable(out)
    return out


def _read_type(value: Any) -> Any:
    if type(value) is str:
        return TYPES.get(value, value)
    return TYPE_NUMBERS.get(value, value) if type(value) is int else value


def _read_nullable(out: JsonObject) -> None:
    if type(out.get("type")) is str:
        del out["nullable"]
        out["type"] = [out["type"], "null"]
    elif type(out.get("anyOf")) is list:
        del out["nullable"]
        out["anyOf"] = [*out["anyOf"], NULL]


def from_json_schema(node: JsonObject) -> JsonObject:
    out: JsonObject = {}
    for key, value in node.items():
        match key:
            case "type":
                _write_type(out, value)
            case "properties":
                out[key] = _each_value(value, from_json_schema)
            case "$defs":
                out["defs"] = _each_value(value, from_json_schema)
            case "$ref":
                out["ref"] = value.replace("#/$defs/", "#/defs/", 1) if type(value) is str else value
            case "items" | "additionalProperties":
                out[key] = from_json_schema(value) if type(value) is dict else value
            case "anyOf" if type(value) is list and value[-1:] == [NULL] and "type" not in node:
                out["nullable"] = True
                out[key] = _each_item(value[:-1], from_json_schema)
            case "anyOf":
                out[key] = _each_item(value, from_json_schema)
            case _:
                out[key] = value
    return out


def _write_type(out: JsonObject, value: Any) -> None:
    if type(value) is list and len(value) == 2 and value[1] == "null":
        out["nullable"] = True
        value = value[0]
    out["type"] = TYPE_WORDS.get(value, value) if type(value) is str else value


_WORDS = {"$defs": "defs", "$ref": "ref"} | {camel: snake for snake, camel in _SNAKE.items()}


def find_in_schema(place: Place, spelling: object) -> Place:
    """A place in the JSON Schema, as the wire schema has it, as far as it can be followed."""
    if spelling is None or spelling == "plain":
        return place
    if type(spelling) is not dict:
        return tuple(_WORDS[step] if step in ("$defs", "$ref") else step for step in place)
    found: list[str | int] = []
    here: Any = spelling
    for step in place:
        key = step if type(here) is not dict or step in here else _WORDS.get(str(step), step)
        if not (key in here if type(here) is dict else type(here) is list and type(key) is int and key < len(here)):
            break
        found.append(key)
        here = here[key]
    return tuple(found)


def _each_value(value: Any, change: Any) -> Any:
    if type(value) is not dict:
        return value
    return {name: change(item) if type(item) is dict else item for name, item in value.items()}


def _each_item(value: Any, change: Any) -> Any:
    if type(value) is not list:
        return value
    return [change(item) if type(item) is dict else item for item in value]
