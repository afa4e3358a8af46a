"""Hints as JSON Schema. msgspec writes all of it at once; what it asks about is put in afterwards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec

from dragoman.jsontypes import Json, JsonObject
from dragoman.tools.hints import PATHS, Hint, Knot, OneOf, Record, StandIn, Values, is_pydantic, is_stand_in
from dragoman.tools.records import NOTHING, Field, Shape

_REFERENCE = "#/$defs/{name}"
_PLACE = "~"  # a reference to what is put in afterwards


def describe(hints: Sequence[Hint]) -> tuple[list[JsonObject], JsonObject]:
    """A schema for each, and the definitions they share."""
    return Sheet([hint.kind for hint in hints]).write()


class Sheet:
    """One writing of schemas: stand-ins and pydantic models have numbers until their names are known."""

    def __init__(self, kinds: list[Any]) -> None:
        self._asked: list[Any] = []
        self._definitions: JsonObject = {}
        self._names: dict[int, str] = {}
        self._kinds = kinds
        parts = [*kinds]
        self._first: dict[Any, int] = {}  # stand-in -> where the schemas of its parts begin
        for kind in _stand_ins(kinds):
            self._first[kind] = len(parts)
            parts.extend(_parts(kind))
        self._made, self._shared = msgspec.json.schema_components(parts, schema_hook=self._ask, ref_template=_REFERENCE)

    def _ask(self, kind: Any) -> JsonObject:
        if kind in PATHS:
            return {"type": "string", "format": "path"}
        if not is_pydantic(kind) and not is_stand_in(kind):
            raise TypeError(f"JSON has no word for {kind!r}")
        if kind not in self._asked:
            self._asked.append(kind)
        return {"$ref": f"{_PLACE}{self._asked.index(kind)}"}

    def write(self) -> tuple[list[JsonObject], JsonObject]:
        self._definitions.update(dict.fromkeys(self._shared))  # names that are taken
        written = [self._fill(schema) for schema in self._made[: len(self._kinds)]]
        for name, schema in self._shared.items():
            self._definitions[name] = self._fill(schema)
        return written, self._definitions

    def _fill(self, schema: Any) -> Any:
        """The same, with what was asked about in it."""
        if isinstance(schema, list | tuple):
            return [self._fill(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        filled = {key: self._fill(value) for key, value in schema.items()}
        place = filled.get("$ref")
        if isinstance(place, str) and place.startswith(_PLACE):
            number = int(place.removeprefix(_PLACE))
            del filled["$ref"]
            return {**self._answer(number, self._asked[number]), **filled}
        return _flatten(filled)

    def _answer(self, number: int, kind: Any) -> JsonObject:
        if is_stand_in(kind, OneOf):
            first = self._first[kind]
            members = [self._fill(schema) for schema in self._made[first : first + len(kind.members)]]
            return _flatten({"anyOf": members})
        if is_stand_in(kind, Values):
            return {"enum": [member.value for member in kind.values]}
        if is_pydantic(kind):
            return self._bring(kind)
        if number not in self._names:
            knot = is_stand_in(kind, Knot)
            name = self._names[number] = self._free_name(kind.__name__ if knot else kind.shape.title)
            self._definitions[name] = None
            self._definitions[name] = self._fill(self._made[self._first[kind]]) if knot else self._object(kind)
        return {"$ref": _REFERENCE.format(name=self._names[number])}

    def _object(self, kind: type[Record]) -> JsonObject:
        shape = kind.shape
        first = self._first[kind]
        schema: JsonObject = {"title": shape.title, "type": "object"}
        if shape.doc.description:
            schema["description"] = shape.doc.description
        properties: JsonObject = {} if shape.tag is None else {shape.tag[0]: {"enum": [shape.tag[1]]}}
        for field, made in zip(shape.fields, self._made[first:], strict=False):
            properties[field.key] = self._property(shape, field, self._fill(made))
        required = [field.key for field in shape.fields if field.required]
        required = [*([] if shape.tag is None else [shape.tag[0]]), *required]
        closed = {"additionalProperties": False} if shape.closed else {}
        return {**schema, "properties": properties, **({"required": required} if required else {}), **closed}

    def _property(self, shape: Shape, field: Field, schema: JsonObject) -> JsonObject:
        if (text := shape.doc.arguments.get(field.name)) and "description" not in schema:
            schema = {**schema, "description": text}
        return with_default(schema, field.default)

    def _bring(self, model: Any) -> JsonObject:
        """A pydantic model's own schema; its definitions come to where all of them are, under names that are free."""
        schema: JsonObject = model.model_json_schema(ref_template=_REFERENCE.format(name="{model}"))
        own: JsonObject = schema.pop("$defs", {})
        names = {name: self._free_name(name, inner) for name, inner in own.items()}
        for name, inner in own.items():
            self._definitions[names[name]] = _renamed(inner, names)
        return _renamed(schema, names)  # type: ignore[no-any-return]

    def _free_name(self, title: str, schema: JsonObject | None = None) -> str:
        number = 1
        name = title
        while name in self._definitions and (schema is None or self._definitions[name] != schema):
            number += 1
            name = f"{title}_{number}"
        return name


def with_default(schema: JsonObject, default: Any) -> JsonObject:
    """The default is told where JSON can say it; None says nothing that the type does not."""
    if default is NOTHING or default is None:
        return schema
    try:
        said = msgspec.to_builtins(default, enc_hook=_plain)
        whole = msgspec.json.decode(msgspec.json.encode(said)) == said  # NaN is not
    except (TypeError, ValueError, RecursionError):
        return schema
    return {**schema, "default": said} if whole else schema


def _plain(value: Any) -> Any:
    if isinstance(value, PATHS):
        return str(value)
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError


def _stand_ins(kinds: list[Any]) -> Iterator[type[StandIn]]:
    """All there are, in and below these types."""
    found: list[Any] = []
    left = list(kinds)
    while left:
        kind = left.pop(0)
        if is_stand_in(kind) and kind not in found:
            found.append(kind)
            yield kind
            left.extend(_parts(kind))
        else:
            left.extend(get_args(kind))


def _parts(kind: Any) -> list[Any]:
    if is_stand_in(kind, OneOf):
        return list(kind.members)
    if is_stand_in(kind, Knot):
        return [kind.kind]
    return [field.hint for field in kind.shape.fields] if is_stand_in(kind, Record) else []


def _flatten(schema: JsonObject) -> JsonObject:
    """A choice among choices is one choice."""
    inner = schema.get("anyOf")
    if not isinstance(inner, list):
        return schema
    flat: list[Json] = []
    for one in inner:
        flat.extend(one["anyOf"] if isinstance(one, dict) and set(one) == {"anyOf"} else [one])
    return {**schema, "anyOf": flat}


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    rename: Callable[[Any], Any] = lambda value: _renamed(value, names)  # noqa: E731
    if isinstance(schema, list):
        return [rename(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: rename(value) for key, value in schema.items()}
    reference = made.get("$ref")
    if isinstance(reference, str):
        made["$ref"] = _REFERENCE.format(name=names.get(reference.rpartition("/")[2], reference.rpartition("/")[2]))
    return made
