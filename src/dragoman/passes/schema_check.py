"""Whether a JSON value fits a JSON Schema, and if not, where and why. `jsonschema-rs` checks, we choose the words.

Schemas come from clients, so none may stop us. `schema_clean` keeps what can be checked. A value that may take too long
is not checked. What is not checked fits: only what is surely wrong is reported. `format` restricts nothing.
https://json-schema.org/draft/2020-12 (read 2026-11-16)
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from dragoman.errors import pointer
from dragoman.jsontypes import Json, JsonObject, dump_json, dump_text, kind_of, load_json
from dragoman.passes.schema_clean import LISTED, NAMED, ONE, SAME_VALUE, clean, compile_schema, find_error, fits

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

LARGEST_SCHEMA = 100_000  # bytes
LARGE_SCHEMA = 20_000  # bytes: of these only a few are kept, since a compiled schema takes 30 times its size
MOST_STEPS = 2_000_000  # schemas applied to values: about 60 ns each
MOST_EXPLAINED = 10_000  # schemas in alternatives, applied to say why none fits: 20 to 100 µs each
MOST_SEARCHED = 100_000  # characters searched for patterns: at worst 4 µs each
DEEPEST_VALUE = 100
NEVER_ENDS = 10**12
SHOWN = 60  # characters of a value in words


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
    if size > LARGEST_SCHEMA:
        return _small(b"true", b"")
    return (_small if size < LARGE_SCHEMA else _large)(text, root_text)


def _compile(schema: bytes, root: bytes) -> "SchemaCheck":
    return SchemaCheck(load_json(schema), load_json(root) if root else None)


_small = lru_cache(128)(_compile)
_large = lru_cache(4)(_compile)


class SchemaCheck:
    """One schema, ready to check values."""

    def __init__(self, schema: Json, root: Json = None) -> None:
        self._given = (schema, root)
        cleaned = clean(schema, root)
        self.faults = cleaned.faults  # why it is no JSON Schema, in words
        self._schema = cleaned.schema
        self._validator = compile_schema(cleaned.schema)
        self._costs: dict[int, Cost] = {}  # by the depth of the value

    def find_violation(self, value: Json) -> SchemaViolation | None:
        size = measure(value)
        cost = self._cost(size.depth)
        if self._validator is None or cost.steps * size.values > MOST_STEPS:
            return None
        schema, validator = self._schema, self._validator
        if cost.searches * size.characters > MOST_SEARCHED:
            schema = clean(*self._given, patterns=False).schema
            validator = compile_schema(schema) or validator
        if fits(validator, value):
            return None
        if cost.explained * size.values > MOST_EXPLAINED:
            return SchemaViolation((), "it does not fit the schema")
        error = find_error(validator, value)
        return None if error is None else explain(error, schema)

    def _cost(self, depth: int) -> "Cost":
        if depth not in self._costs:
            self._costs[depth] = CostCount(self._schema).count(self._schema, depth)
        return self._costs[depth]


# ---------------------------------------------------------------- how long it may take


class Size(NamedTuple):
    values: int
    depth: int
    characters: int


def measure(value: Json) -> Size:
    values = depth = characters = 0
    level = [value]
    while level:
        values += len(level)
        depth += 1
        below: list[Json] = []
        for one in level:
            if isinstance(one, str):
                characters += len(one)
            elif isinstance(one, list):
                below += one
            elif isinstance(one, dict):
                below += one.values()
                characters += sum(map(len, one))
        level = below
    return Size(values, depth, characters)


class Cost(NamedTuple):
    """How often schemas are applied to a value of some depth, in the worst case and for each part of the value."""

    steps: int
    explained: int = 0  # of them in alternatives
    searches: int = 0  # of them with a pattern


class CostCount:
    """References multiply: 60 definitions, each of two references to the next, are 2**60 steps."""

    def __init__(self, schema: JsonObject) -> None:
        self._targets: JsonObject = schema.get("$defs", {})
        self._known: dict[tuple[int, int], Cost] = {}

    def count(self, schema: Json, depth: int) -> Cost:
        if depth > DEEPEST_VALUE:
            return Cost(NEVER_ENDS)
        try:
            return self._count(schema, depth)
        except RecursionError:
            return Cost(NEVER_ENDS)

    def _count(self, schema: Json, depth: int) -> Cost:
        if depth <= 0 or not isinstance(schema, dict):
            return Cost(1)
        known = self._known.get((id(schema), depth))
        if known is not None:
            return known
        self._known[id(schema), depth] = Cost(NEVER_ENDS)  # met again meanwhile: it contains itself without an end
        steps, explained, searches = 1, 0, int("pattern" in schema) + len(schema.get("patternProperties", ()))
        for keyword, inner in self._inner(schema):
            cost = self._count(inner, depth - (keyword not in SAME_VALUE))
            steps += cost.steps
            explained += cost.steps if keyword in ("anyOf", "oneOf") else cost.explained
            searches += cost.searches
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            steps *= 2  # what the other keywords have looked at is found out by looking again
        cost = Cost(min(steps, NEVER_ENDS), min(explained, NEVER_ENDS), min(searches, NEVER_ENDS))
        self._known[id(schema), depth] = cost
        return cost

    def _inner(self, schema: JsonObject) -> Iterator[tuple[str, Json]]:
        for keyword, value in schema.items():
            if keyword == "$ref":
                yield keyword, self._targets[value.rpartition("/")[2]]
            elif keyword in NAMED:
                yield from ((keyword, inner) for inner in value.values())
            elif keyword in LISTED or (keyword == "items" and isinstance(value, list)):
                yield from ((keyword, inner) for inner in value)
            elif keyword in ONE:
                yield keyword, value


# ---------------------------------------------------------------- words

_LIMITS = {
    "minimum": "is less than",
    "maximum": "is more than",
    "exclusiveMinimum": "is not more than",
    "exclusiveMaximum": "is not less than",
    "multipleOf": "is no multiple of",
}
_COUNTS = {
    "minLength": "characters, expected at least",
    "maxLength": "characters, expected at most",
    "minItems": "items, expected at least",
    "maxItems": "items, expected at most",
    "minProperties": "properties, expected at least",
    "maxProperties": "properties, expected at most",
}


def explain(error: "ValidationError", root: JsonObject) -> SchemaViolation:
    """The library's error in our words: short, and without the whole value."""
    path, told = tuple(error.instance_path), error.kind.value
    if error.kind.name in ("anyOf", "oneOf"):
        return _explain_alternatives(path, [[explain(first, root) for first in errors[:1]] for errors in told])
    return SchemaViolation(path, _words(error.kind.name, told, error.instance, _schema_of(error, root)))


def _schema_of(error: "ValidationError", root: Json) -> JsonObject:
    """The schema with the keyword that does not fit."""
    found = root
    for step in error.schema_path[:-1]:
        found = found[int(step)] if isinstance(found, list) else found.get(str(step), {})
    return found if isinstance(found, dict) else {}


def _explain_alternatives(path: tuple[str | int, ...], branches: list[list[SchemaViolation]]) -> SchemaViolation:
    """The error that lies deepest: it belongs to the alternative that was meant."""
    if not all(branches):
        return SchemaViolation(path, "fits several alternatives of which only one may fit")
    found = [errors[0] for errors in branches]
    nearest = max(found, key=lambda violation: len(violation.path))
    if len(found) == 1 or len(nearest.path) > len(path):
        return nearest
    words = "; ".join(violation.words for violation in found[:3])
    return SchemaViolation(path, f"fits none of {len(found)} alternatives ({words})")


def _words(keyword: str, told: Json, value: Json, schema: JsonObject) -> str:
    match keyword:
        case "type":
            kinds = sorted(told, key="null".__eq__)  # null comes last
            return f"expected {' or '.join(kinds)}, found {kind_of(value)}"
        case "enum":
            return f"{_show(value)} is none of {_show(told)}"
        case "const":
            return f"expected {_show(told)}, found {_show(value)}"
        case "required":
            missing = [name for name in schema.get("required", ()) if name not in value]  # the library names one
            return f"{_enumerate(missing or [told])} missing"
        case "additionalProperties" if "patternProperties" not in schema:
            return (
                f"{_enumerate([name for name in value if name not in schema['properties']])} not among the properties"
            )
        case "additionalProperties" | "unevaluatedProperties":
            return f"{_enumerate(told)} not among the properties"
        case "pattern":
            return f"{_show(value)} does not match {told}"
        case "propertyNames":
            return f"the name {_show(told.instance)}: {explain(told, schema).words}"
        case "uniqueItems":
            return "an item stands there twice"
        case "contains":
            return "too few or too many items are what `contains` says"
        case "not" if told != {}:
            return f"is what it must not be: {_show(told)}"
        case "not" | "falseSchema":
            return "nothing is allowed here"
        case "additionalItems" | "unevaluatedItems":
            return "more items than are allowed"
        case _ if keyword in _LIMITS:
            return f"{_show(value)} {_LIMITS[keyword]} {_show(told)}"
        case _ if keyword in _COUNTS:
            return f"{len(value)} {_COUNTS[keyword]} {told}"
        case _:
            return f"does not fit `{keyword}`"


def _enumerate(names: list[str]) -> str:
    return f"{_cut(', '.join(names))} {'is' if len(names) == 1 else 'are'}"


def _show(value: Json) -> str:
    return _cut(dump_text(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
