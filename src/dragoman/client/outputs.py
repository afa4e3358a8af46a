"""Structured answers: a type becomes the schema that the provider gets, and the answer a value of the type."""

import re
from collections.abc import Mapping
from typing import Any

from dragoman.errors import ArgumentError, DecodeError
from dragoman.json_schema.check import check_for, find_violation
from dragoman.jsontypes import Json, JsonObject, dump_json, load_json
from dragoman.model.request import OutputFormat
from dragoman.tools.hints import get_type_name, read_hint
from dragoman.tools.schemas import write_schemas
from dragoman.tools.values import WrongValueError, make_value

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(?P<inside>.*?)\n\s*```\s*", re.S)
_WRAPPED = "value"  # some providers take only objects, so another type is wrapped under this key
_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def output_format(output: Any) -> OutputFormat:
    if output == "json" or output is dict:
        return OutputFormat(type="json")
    if isinstance(output, OutputFormat):
        return output
    if isinstance(output, Mapping):
        for fault in check_for(output).faults:
            raise ArgumentError(f"this is no JSON Schema: {fault}")
        title = output.get("title")
        return OutputFormat(type="json_schema", schema=dict(output), name=_word(title if title else "answer"))
    if isinstance(output, str | bytes | int | float | list | tuple | set):
        raise ArgumentError(f"output: expected a type, a JSON Schema or 'json', found {output!r}")
    schema, wrapped = schema_of(output)
    name = "answer" if wrapped else _word(get_type_name(output))
    return OutputFormat(type="json_schema", schema=schema, name=name, strict=True)


def schema_of(kind: Any) -> tuple[JsonObject, bool]:
    """A type's schema with an object at its root, and whether the type was wrapped in an object."""
    (schema,), definitions = write_schemas([read_hint(kind)])
    reference = schema.get("$ref", "")
    root = definitions.get(reference.rpartition("/")[2]) if reference else schema
    if isinstance(root, dict) and root.get("type") == "object":
        schema, wrapped = dict(root), False
    else:
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
        wrapped = True
    schema.setdefault("additionalProperties", False)
    return ({**schema, "$defs": definitions} if definitions and _refers(schema, definitions) else schema), wrapped


def _refers(schema: Json, definitions: JsonObject) -> bool:
    return b'"$ref"' in dump_json(schema) or len(definitions) > 1


def parse(output: Any, text: str) -> Any:
    """The answer as a value of `output`. Raises DecodeError if it does not fit."""
    fenced = _FENCED.fullmatch(text)
    value = load_json(fenced["inside"] if fenced else text)
    if output == "json" or output is dict:
        return value
    if isinstance(output, Mapping | OutputFormat):
        schema = output.schema if isinstance(output, OutputFormat) else dict(output)
        violation = find_violation(value, schema) if schema is not None else None
        if violation is not None:
            raise DecodeError(f"the answer does not match its schema: {violation}")
        return value
    wrapped = schema_of(output)[1]
    if wrapped and isinstance(value, dict) and set(value) == {_WRAPPED}:
        value = value[_WRAPPED]
    try:
        return make_value(value, read_hint(output))
    except WrongValueError as error:
        raise DecodeError(f"the answer is not {get_type_name(output)}: {error}") from error


def _word(text: str) -> str:
    return _NAME.sub("_", text).strip("_")[:64] or "answer"
