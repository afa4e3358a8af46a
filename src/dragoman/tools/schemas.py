"""Type hints as JSON Schema. msgspec writes all schemas at once. Those of hooked types are put in afterwards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec

from dragoman.jsontypes import Json, JsonObject
from dragoman.tools.hints import (
    PATH_TYPES,
    Hint,
    HookedType,
    MixedEnum,
    OneOf,
    Record,
    RecursiveType,
    is_hooked,
    is_pydantic,
)
from dragoman.tools.records import NO_DEFAULT, Field, RecordShape

_REFERENCE = "#/$defs/{name}"
_PENDING = "~"  # starts a reference to a hooked type; its schema is put in afterwards


def write_schemas(hints: Sequence[Hint]) -> tuple[list[JsonObject], JsonObject]:
    """A schema for each hint, and the definitions that they share."""
    return SchemaWriter([hint.kind for hint in hints]).write()


class SchemaWriter:
    """Writes the schemas of some types. Hooked types and pydantic models have numbers until their names are known."""

    def __init__(self, kinds: list[Any]) -> None:
        self._hooked_types: list[Any] = []
        self._definitions: JsonObject = {}
        self._names: dict[int, str] = {}
        self._kinds = kinds
        parts = [*kinds]
        self._offsets: dict[Any, int] = {}  # hooked type -> index of the schema of its first part
        for kind in _find_hooked_types(kinds):
            self._offsets[kind] = len(parts)
            parts.extend(_get_parts(kind))
        self._schemas, self._shared_definitions = msgspec.json.schema_components(
            parts, schema_hook=self._hook_schema, ref_template=_REFERENCE
        )

    def _hook_schema(self, kind: Any) -> JsonObject:
        if kind in PATH_TYPES:
            return {"type": "string", "format": "path"}
        if not is_pydantic(kind) and not is_hooked(kind):
            raise TypeError(f"there is no JSON Schema for {kind!r}")
        if kind not in self._hooked_types:
            self._hooked_types.append(kind)
        return {"$ref": f"{_PENDING}{self._hooked_types.index(kind)}"}

    def write(self) -> tuple[list[JsonObject], JsonObject]:
        self._definitions.update(dict.fromkeys(self._shared_definitions))  # these names are taken
        written = [self._resolve(schema) for schema in self._schemas[: len(self._kinds)]]
        for name, schema in self._shared_definitions.items():
            self._definitions[name] = self._resolve(schema)
        return written, self._definitions

    def _resolve(self, schema: Any) -> Any:
        """The schema with the hooked types put in."""
        if isinstance(schema, list | tuple):
            return [self._resolve(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        resolved = {key: self._resolve(value) for key, value in schema.items()}
        reference = resolved.get("$ref")
        if isinstance(reference, str) and reference.startswith(_PENDING):
            number = int(reference.removeprefix(_PENDING))
            del resolved["$ref"]
            return {**self._write_hooked(number, self._hooked_types[number]), **resolved}
        return _flatten(resolved)

    def _write_hooked(self, number: int, kind: Any) -> JsonObject:
        if is_hooked(kind, OneOf):
            offset = self._offsets[kind]
            members = [self._resolve(schema) for schema in self._schemas[offset : offset + len(kind.members)]]
            return _flatten({"anyOf": members})
        if is_hooked(kind, MixedEnum):
            return {"enum": [member.value for member in kind.values]}
        if is_pydantic(kind):
            return self._write_pydantic(kind)
        if number not in self._names:
            is_recursive = is_hooked(kind, RecursiveType)
            name = self._names[number] = self._find_free_name(kind.__name__ if is_recursive else kind.shape.title)
            self._definitions[name] = None
            if is_recursive:
                self._definitions[name] = self._resolve(self._schemas[self._offsets[kind]])
            else:
                self._definitions[name] = self._write_record(kind)
        return {"$ref": _REFERENCE.format(name=self._names[number])}

    def _write_record(self, kind: type[Record]) -> JsonObject:
        shape = kind.shape
        offset = self._offsets[kind]
        schema: JsonObject = {"title": shape.title, "type": "object"}
        if shape.doc.description:
            schema["description"] = shape.doc.description
        properties: JsonObject = {} if shape.tag is None else {shape.tag[0]: {"enum": [shape.tag[1]]}}
        for field, field_schema in zip(shape.fields, self._schemas[offset:], strict=False):
            properties[field.key] = self._write_property(shape, field, self._resolve(field_schema))
        required = [field.key for field in shape.fields if field.required]
        required = [*([] if shape.tag is None else [shape.tag[0]]), *required]
        closed = {"additionalProperties": False} if shape.closed else {}
        return {**schema, "properties": properties, **({"required": required} if required else {}), **closed}

    def _write_property(self, shape: RecordShape, field: Field, schema: JsonObject) -> JsonObject:
        if (text := shape.doc.arguments.get(field.name)) and "description" not in schema:
            schema = {**schema, "description": text}
        return add_default(schema, field.default)

    def _write_pydantic(self, model: Any) -> JsonObject:
        """The schema that pydantic writes. Its definitions join the others, under free names."""
        schema: JsonObject = model.model_json_schema(ref_template=_REFERENCE.format(name="{model}"))
        definitions: JsonObject = schema.pop("$defs", {})
        names = {name: self._find_free_name(name, definition) for name, definition in definitions.items()}
        for name, definition in definitions.items():
            self._definitions[names[name]] = _rename_references(definition, names)
        return _rename_references(schema, names)  # type: ignore[no-any-return]

    def _find_free_name(self, title: str, schema: JsonObject | None = None) -> str:
        number = 1
        name = title
        while name in self._definitions and (schema is None or self._definitions[name] != schema):
            number += 1
            name = f"{title}_{number}"
        return name


def add_default(schema: JsonObject, default: Any) -> JsonObject:
    """Adds the default if JSON can express it. The default None is left out, because the type already allows it."""
    if default is NO_DEFAULT or default is None:
        return schema
    try:
        builtin = msgspec.to_builtins(default, enc_hook=_make_jsonable)
        survives_json = msgspec.json.decode(msgspec.json.encode(builtin)) == builtin  # NaN does not
    except (TypeError, ValueError, RecursionError):
        return schema
    return {**schema, "default": builtin} if survives_json else schema


def _make_jsonable(value: Any) -> Any:
    if isinstance(value, PATH_TYPES):
        return str(value)
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError


def _find_hooked_types(kinds: list[Any]) -> Iterator[type[HookedType]]:
    """All hooked types in these types, at any depth."""
    found: list[Any] = []
    pending = list(kinds)
    while pending:
        kind = pending.pop(0)
        if is_hooked(kind) and kind not in found:
            found.append(kind)
            yield kind
            pending.extend(_get_parts(kind))
        else:
            pending.extend(get_args(kind))


def _get_parts(kind: Any) -> list[Any]:
    if is_hooked(kind, OneOf):
        return list(kind.members)
    if is_hooked(kind, RecursiveType):
        return [kind.kind]
    return [field.hint for field in kind.shape.fields] if is_hooked(kind, Record) else []


def _flatten(schema: JsonObject) -> JsonObject:
    """Merges nested `anyOf` into one."""
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list):
        return schema
    flat: list[Json] = []
    for option in alternatives:
        flat.extend(option["anyOf"] if isinstance(option, dict) and set(option) == {"anyOf"} else [option])
    return {**schema, "anyOf": flat}


def _rename_references(schema: Any, names: dict[str, str]) -> Any:
    rename: Callable[[Any], Any] = lambda value: _rename_references(value, names)  # noqa: E731
    if isinstance(schema, list):
        return [rename(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: rename(value) for key, value in schema.items()}
    reference = renamed.get("$ref")
    if isinstance(reference, str):
        renamed["$ref"] = _REFERENCE.format(name=names.get(reference.rpartition("/")[2], reference.rpartition("/")[2]))
    return renamed
