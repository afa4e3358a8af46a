"""Whether a JSON value fits a JSON Schema, and if not, where and why. `jsonschema-rs` checks, we choose the words.

Schemas come from clients, so a bad one must not stop us. `clean.py` keeps the keywords that can be checked. A value
that may take too long is not checked, and counts as one that fits: we report only what is surely wrong. `format` is not
checked.
https://json-schema.org/draft/2020-12 (read 2026-11-16)
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import pointer
from dragoman.json_schema.clean import (
    LISTED,
    NAMED,
    ONE,
    SAME_VALUE,
    clean,
    compile_schema,
    find_error,
    fits,
    is_library_error,
)
from dragoman.jsontypes import Json, JsonObject, dump_json, dump_text, kind_of, load_json

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_SCHEMA_BYTES = 100_000
LARGE_SCHEMA_BYTES = 20_000  # of these only a few are kept, since a compiled schema takes 30 times its size
MAX_STEPS = 2_000_000  # schemas applied to values: about 60 ns each
MAX_EXPLAINED = 10_000  # schemas in alternatives, applied to say why none fits: 20 to 100 µs each
MAX_SEARCHED_CHARS = 100_000  # searched for patterns: at worst 4 µs each
MAX_VALUE_DEPTH = 100
NEVER_ENDS = 10**12
MAX_SHOWN_CHARS = 80  # of a value in words


class SchemaViolation(Struct, frozen=True):
    path: tuple[str | int, ...]  # in the value
    words: str

    def __str__(self) -> str:
        return f"{pointer(self.path) or '/'}: {self.words}"


def find_violation(value: Json, schema: Json, root: Json = None) -> SchemaViolation | None:
    """The first place where a value is not what its schema says; None if it fits. References are to the root."""
    return check_for(schema, root).find_violation(value)


def check_for(schema: Json, root: Json = None) -> "SchemaCheck":
    text = dump_json(schema)
    root_text = dump_json(root) if root is not None and b'"$ref"' in text else b""
    size = len(text) + len(root_text)
    if size > MAX_SCHEMA_BYTES:
        return _small(b"true", b"")
    return (_small if size < LARGE_SCHEMA_BYTES else _large)(text, root_text)


def _compile(schema: bytes, root: bytes) -> "SchemaCheck":
    return SchemaCheck(load_json(schema), load_json(root) if root else None)


_small = lru_cache(128)(_compile)
_large = lru_cache(4)(_compile)


class SchemaCheck:
    """One schema, ready to check values."""

    def __init__(self, schema: Json, root: Json = None) -> None:
        self._given = (schema, root)
        cleaned = clean(schema, root)
        self._schema = cleaned.schema
        self._validator: Validator | None = None
        self._costs: dict[int, CheckCost] = {}  # by the depth of the value
        self.faults = cleaned.bad_refs  # why it is no JSON Schema, in words
        try:
            self._validator = compile_schema(cleaned.schema)
        except ValueError as error:
            found = explain(error, {}) if is_library_error(error) else SchemaViolation((), str(error))
            self.faults.append(str(replace(found, path=cleaned.original_path(found.path))))

    def find_violation(self, value: Json) -> SchemaViolation | None:
        if self._validator is None:
            return None
        size = measure(value)
        cost = self._cost(size.depth)
        if cost.steps * size.values > MAX_STEPS:
            return None
        schema, validator = self._schema, self._validator
        if cost.searches * size.chars > MAX_SEARCHED_CHARS:
            schema = clean(*self._given, patterns=False).schema
            validator = compile_schema(schema)
        if fits(validator, value):
            return None
        if cost.explained * size.values > MAX_EXPLAINED:
            return SchemaViolation((), "it does not fit the schema")
        error = find_error(validator, value)
        return None if error is None else explain(error, schema)

    def _cost(self, depth: int) -> "CheckCost":
        if depth not in self._costs:
            self._costs[depth] = CostCount(self._schema).count(depth)
        return self._costs[depth]


# ---------------------------------------------------------------- how long it may take


class Size(NamedTuple):
    values: int
    depth: int
    chars: int


def measure(value: Json) -> Size:
    values = depth = chars = 0
    level = [value]
    while level:
        values += len(level)
        depth += 1
        below: list[Json] = []
        for one in level:
            if isinstance(one, str):
                chars += len(one)
            elif isinstance(one, list):
                below += one
            elif isinstance(one, dict):
                below += one.values()
                chars += sum(map(len, one))
        level = below
    return Size(values, depth, chars)


class CheckCost(NamedTuple):
    """How often schemas are applied to each part of a value, in the worst case."""

    steps: int
    explained: int = 0  # of them in alternatives
    searches: int = 0  # of them with a pattern


class CostCount:
    """Counts the steps of a check. References multiply them: 60 definitions, each with two references to the next, are
    2**60 steps."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[tuple[int, int], CheckCost] = {}

    def count(self, depth: int) -> CheckCost:
        """The cost for values of this depth."""
        try:
            return self._count(self._root, depth) if depth <= MAX_VALUE_DEPTH else CheckCost(NEVER_ENDS)
        except RecursionError:
            return CheckCost(NEVER_ENDS)

    def _count(self, schema: Json, depth: int) -> CheckCost:
        if depth <= 0 or not isinstance(schema, dict):
            return CheckCost(1)
        known = self._known.get((id(schema), depth))
        if known is not None:
            return known
        self._known[id(schema), depth] = CheckCost(NEVER_ENDS)  # for a schema that leads back to itself
        steps, explained, searches = 1, 0, int("pattern" in schema) + len(schema.get("patternProperties", ()))
        for keyword, inner in self._inner(schema):
            cost = self._count(inner, depth - (keyword not in SAME_VALUE))
            steps += cost.steps
            explained += cost.steps if keyword in ("anyOf", "oneOf") else cost.explained
            searches += cost.searches
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            steps *= 2  # the other keywords are looked at again
        cost = CheckCost(min(steps, NEVER_ENDS), min(explained, NEVER_ENDS), min(searches, NEVER_ENDS))
        self._known[id(schema), depth] = cost
        return cost

    def _inner(self, schema: JsonObject) -> Iterator[tuple[str, Json]]:
        for keyword, value in schema.items():
            if keyword == "$ref":
                yield keyword, self._root["$defs"][value.rpartition("/")[2]]
            elif keyword in NAMED:
                yield from ((keyword, inner) for inner in value.values())
            elif keyword in LISTED and isinstance(value, list):
                yield from ((keyword, inner) for inner in value)
            elif keyword in ONE:
                yield keyword, value


# ---------------------------------------------------------------- words

_WORDS = {
    "enum": "{value} is none of {limit}",
    "const": "expected {limit}, found {value}",
    "pattern": "{value} does not match {limit}",
    "not": "the schema forbids it: {limit}",
    "falseSchema": "nothing is allowed here",
    "uniqueItems": "two items are the same",
    "contains": "too few or too many items match `contains`",
    "additionalItems": "more items than are allowed",
    "unevaluatedItems": "more items than are allowed",
    "minimum": "{value} is less than {limit}",
    "maximum": "{value} is more than {limit}",
    "exclusiveMinimum": "{value} is not more than {limit}",
    "exclusiveMaximum": "{value} is not less than {limit}",
    "multipleOf": "{value} is no multiple of {limit}",
    "minLength": "{size} characters, expected at least {limit}",
    "maxLength": "{size} characters, expected at most {limit}",
    "minItems": "{size} items, expected at least {limit}",
    "maxItems": "{size} items, expected at most {limit}",
    "minProperties": "{size} properties, expected at least {limit}",
    "maxProperties": "{size} properties, expected at most {limit}",
}


def explain(error: "ValidationError", root: JsonObject) -> SchemaViolation:
    """The library's error in our words: short, and without the whole value."""
    path, limit = tuple(error.instance_path), error.kind.value
    if error.kind.name in ("anyOf", "oneOf"):
        return _explain_alternatives(path, [[explain(first, root) for first in errors[:1]] for errors in limit])
    return SchemaViolation(path, _words(error.kind.name, limit, error.instance, _schema_of(error, root)))


def _explain_alternatives(path: tuple[str | int, ...], branches: list[list[SchemaViolation]]) -> SchemaViolation:
    """The deepest error. It most likely belongs to the alternative that the model meant."""
    if not all(branches):
        return SchemaViolation(path, "fits several alternatives of which only one may fit")
    found = [errors[0] for errors in branches]
    nearest = max(found, key=lambda violation: len(violation.path))
    if len(found) == 1 or len(nearest.path) > len(path):
        return nearest
    words = "; ".join(violation.words for violation in found[:3])
    return SchemaViolation(path, f"fits none of {len(found)} alternatives ({_cut(words, 3 * MAX_SHOWN_CHARS)})")


def _schema_of(error: "ValidationError", root: Json) -> JsonObject:
    """The schema with the keyword that does not fit."""
    found = root
    for step in error.schema_path[:-1]:
        found = found[int(step)] if isinstance(found, list) else found.get(str(step), {})
    return found if isinstance(found, dict) else {}


def _words(keyword: str, limit: Json, value: Json, schema: JsonObject) -> str:
    match keyword:
        case "type":
            kinds = sorted(limit, key="null".__eq__)  # null comes last
            return f"expected {' or '.join(kinds)}, found {kind_of(value)}"
        case "required":
            missing = [name for name in schema.get("required", ()) if name not in value]  # the library names one
            return f"{_enumerate(missing or [limit])} missing"
        case "additionalProperties" if "patternProperties" not in schema:
            extra = [name for name in value if name not in schema["properties"]]  # the library names one here too
            return f"{_enumerate(extra)} not among the properties"
        case "additionalProperties" | "unevaluatedProperties":
            return f"{_enumerate(limit)} not among the properties"
        case "propertyNames":
            return f"the name {_show(limit.instance)}: {explain(limit, schema).words}"
        case _:
            size = len(value) if isinstance(value, str | list | dict) else 0
            words = _WORDS.get(keyword, f"does not fit `{keyword}`")
            return words.format(value=_show(value), limit=_show(limit), size=size)


def _enumerate(names: list[str]) -> str:
    return f"{_cut(', '.join(names))} {'is' if len(names) == 1 else 'are'}"


def _show(value: Json) -> str:
    return _cut(dump_text(value))


def _cut(text: str, chars: int = MAX_SHOWN_CHARS) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"
