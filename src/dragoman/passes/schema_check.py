"""Whether a JSON value fits a JSON Schema, and if not, where and why: for answers no provider held to their schema.

JSON Schema 2020-12, and what older drafts wrote in its place (`definitions`, `items` as a list). `format` and keywords
nobody knows restrict nothing. What cannot be checked here (a schema elsewhere, a pattern that is none, or one that may
take for ever) fits: only what surely does not fit is called a misfit. https://json-schema.org/draft/2020-12 (read
2026-11-16)
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

from msgspec import Struct

from dragoman.errors import pointer
from dragoman.jsontypes import JsonObject, dump_text, kind_of
from dragoman.passes.safe_regex import search

DEEPEST = 100  # schemas within schemas: one that contains itself without reading on would never end
MOST_STEPS = 200_000  # schemas looked at for one value: references and unions multiply
SHOWN = 60  # characters of a value in words

Path: TypeAlias = tuple[str | int, ...]


class SchemaViolation(Struct, frozen=True):
    path: Path  # in the value
    words: str

    def __str__(self) -> str:
        return f"{pointer(self.path) or '/'}: {self.words}"


def find_violation(value: object, schema: object, root: object = None) -> SchemaViolation | None:
    """The first place where a value is not what its schema says; None if it fits. References are to the root."""
    return _Checker(schema if root is None else root).check(value, schema, (), 0)


class _Checker:
    def __init__(self, root: object) -> None:
        self.root = root
        self.steps = 0
        self.unknown = 0  # how often something could not be checked

    def check(self, value: Any, schema: object, path: Path, depth: int) -> SchemaViolation | None:
        if schema is False:
            return SchemaViolation(path, "nothing is allowed here")
        self.steps += 1
        if not isinstance(schema, dict) or depth > DEEPEST or self.steps > MOST_STEPS:
            self.unknown += schema is not True
            return None
        if value is None and schema.get("nullable") is True:  # OpenAPI's word, which many schemas use
            return None
        for keyword in schema:
            rule = RULES.get(keyword)
            if rule is not None:
                found = rule(self, value, schema, path, depth + 1)
                if found is not None:
                    return found
        return None

    def fits(self, value: object, schema: object, depth: int) -> bool | None:
        """None: perhaps."""
        before = self.unknown
        if self.check(value, schema, (), depth) is not None:
            return False
        return True if self.unknown == before else None

    def _search(self, pattern: object, text: str) -> bool | None:
        found = search(pattern, text)
        self.unknown += found is None
        return found

    # ------------------------------------------------------------ any value

    def type(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        said = schema["type"]
        kinds = [str(kind).lower() for kind in (said if isinstance(said, list) else [said])]  # Gemini writes STRING
        if any(kind not in IS or IS[kind](value) for kind in kinds):
            return None
        return SchemaViolation(path, f"expected {' or '.join(kinds)}, found {kind_of(value)}")

    def enum(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        values = schema["enum"]
        if not isinstance(values, list) or any(is_same(value, other) for other in values):
            return None
        return SchemaViolation(path, f"{_show(value)} is none of {_show(values)}")

    def const(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if is_same(value, schema["const"]):
            return None
        return SchemaViolation(path, f"expected {_show(schema['const'])}, found {_show(value)}")

    def ref(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        return self.check(value, resolve(self.root, schema["$ref"]), path, depth)

    def all_of(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        for branch in _list(schema["allOf"]):
            found = self.check(value, branch, path, depth)
            if found is not None:
                return found
        return None

    def any_of(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        return self._some(value, _list(schema["anyOf"]), path, depth)

    def one_of(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        branches = _list(schema["oneOf"])
        if sum(self.fits(value, branch, depth) is True for branch in branches) > 1:
            return SchemaViolation(path, "fits several alternatives of which only one may fit")
        return self._some(value, branches, path, depth)

    def _some(self, value: object, branches: list[Any], path: Path, depth: int) -> SchemaViolation | None:
        """The misfit that got furthest: of alternatives the one that was meant."""
        found: list[SchemaViolation] = []
        for branch in branches:
            misfit = self.check(value, branch, path, depth)
            if misfit is None:
                return None
            found.append(misfit)
        if not found:
            return None
        nearest = max(found, key=lambda misfit: len(misfit.path))
        if len(found) == 1 or len(nearest.path) > len(path):
            return nearest
        return SchemaViolation(
            path, f"fits none of {len(found)} alternatives ({'; '.join(m.words for m in found[:3])})"
        )

    def not_(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if isinstance(schema["not"], bool | dict) and self.fits(value, schema["not"], depth):
            return SchemaViolation(path, f"is what it must not be: {_show(schema['not'])}")
        return None

    def if_(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        fits = self.fits(value, schema["if"], depth)
        if fits is None:
            return None
        return self.check(value, schema.get("then" if fits else "else", True), path, depth)

    # ------------------------------------------------------------ objects

    def properties(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        known = schema["properties"]
        if not isinstance(value, dict) or not isinstance(known, dict):
            return None
        return self._first(((value[name], known[name], name) for name in known if name in value), path, depth)

    def required(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, dict):
            return None
        missing = _missing(schema["required"], value)
        return SchemaViolation(path, f"{', '.join(missing)} is missing") if missing else None

    def pattern_properties(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        patterns = schema["patternProperties"]
        if not isinstance(value, dict) or not isinstance(patterns, dict):
            return None
        found = ((name, inner) for pattern, inner in patterns.items() for name in value if self._search(pattern, name))
        return self._first(((value[name], inner, name) for name, inner in found), path, depth)

    def additional_properties(
        self, value: object, schema: JsonObject, path: Path, depth: int
    ) -> SchemaViolation | None:
        if not isinstance(value, dict):
            return None
        known, patterns = _dict(schema.get("properties")), _dict(schema.get("patternProperties"))
        others = [
            name
            for name in value
            if name not in known and not any(self._search(pattern, name) is not False for pattern in patterns)
        ]
        if others and schema["additionalProperties"] is False:
            return SchemaViolation(path, f"{', '.join(others)} is not among the properties")
        return self._first(((value[name], schema["additionalProperties"], name) for name in others), path, depth)

    def property_names(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, dict):
            return None
        return self._first(((name, schema["propertyNames"], name) for name in value), path, depth)

    def dependent_required(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, dict):
            return None
        for name, needed in _dict(schema["dependentRequired"]).items():
            missing = _missing(needed, value)
            if name in value and missing:
                return SchemaViolation(path, f"with {name}, {', '.join(missing)} is missing")
        return None

    def dependent_schemas(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if isinstance(value, dict):
            for name, inner in _dict(schema["dependentSchemas"]).items():
                found = self.check(value, inner, path, depth) if name in value else None
                if found is not None:
                    return found
        return None

    # ------------------------------------------------------------ arrays

    def items(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, list):
            return None
        inner = schema["items"]
        if isinstance(inner, list):  # a tuple, as drafts before 2020-12 wrote it
            rest = schema.get("additionalItems", True)
            return self._tuple(value, inner, path, depth) or self._rest(value, len(inner), rest, path, depth)
        return self._rest(value, len(_list(schema.get("prefixItems"))), inner, path, depth)

    def prefix_items(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        return self._tuple(value, _list(schema["prefixItems"]), path, depth) if isinstance(value, list) else None

    def _tuple(self, value: list[Any], schemas: list[Any], path: Path, depth: int) -> SchemaViolation | None:
        pairs = enumerate(zip(value, schemas, strict=False))
        return self._first(((item, inner, i) for i, (item, inner) in pairs), path, depth)

    def _rest(self, value: list[Any], start: int, schema: object, path: Path, depth: int) -> SchemaViolation | None:
        return self._first(((value[i], schema, i) for i in range(start, len(value))), path, depth)

    def contains(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, list):
            return None
        found = [self.fits(item, schema["contains"], depth) for item in value]
        least, most = _number(schema.get("minContains"), 1), _number(schema.get("maxContains"), len(value))
        if found.count(True) <= most and len(found) - found.count(False) >= least:
            return None
        return SchemaViolation(
            path, f"{found.count(True)} items are as one of them should be, expected {least:g} to {most:g}"
        )

    def unique_items(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if schema["uniqueItems"] is not True or not isinstance(value, list):
            return None
        seen: dict[str, list[Any]] = {}  # by kind and length of their text: few comparisons each
        for i, item in enumerate(value):
            alike = seen.setdefault(_rough(item), [])
            if any(is_same(item, other) for other in alike):
                return SchemaViolation((*path, i), "stands there twice")
            alike.append(item)
        return None

    def _first(self, checks: Iterator[tuple[Any, object, str | int]], path: Path, depth: int) -> SchemaViolation | None:
        """The first misfit of several values, each with its schema and its step."""
        for value, schema, step in checks:
            found = self.check(value, schema, (*path, step), depth)
            if found is not None:
                return found
        return None

    # ------------------------------------------------------------ strings

    def pattern(self, value: object, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        if not isinstance(value, str) or self._search(schema["pattern"], value) is not False:
            return None
        return SchemaViolation(path, f"{_show(value)} does not match {schema['pattern']}")


Rule: TypeAlias = Callable[[_Checker, Any, JsonObject, Path, int], SchemaViolation | None]


def _limit(keyword: str, of: Callable[[Any], Any], breaks: Callable[[Any, Any], bool], words: str) -> Rule:
    """A limit of a number, or of how many there are of something. `of` is None where it says nothing."""

    def rule(checker: _Checker, value: Any, schema: JsonObject, path: Path, depth: int) -> SchemaViolation | None:
        limit, found = schema[keyword], of(value)
        if found is None or not _is_number(limit) or not breaks(found, limit):
            return None
        return SchemaViolation(path, f"{_show(found)} {words} {limit}")

    return rule


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


IS: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_whole,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _as_number(value: object) -> object:
    return value if _is_number(value) else None


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return len(value) if isinstance(value, list) else None


def _size(value: object) -> int | None:
    return len(value) if isinstance(value, dict) else None


def _is_uneven(value: float, step: float) -> bool:
    return 0 < step < inf and Fraction(repr(value)) % Fraction(repr(step)) != 0


RULES: dict[str, Rule] = {
    "type": _Checker.type,
    "enum": _Checker.enum,
    "const": _Checker.const,
    "$ref": _Checker.ref,
    "allOf": _Checker.all_of,
    "anyOf": _Checker.any_of,
    "oneOf": _Checker.one_of,
    "not": _Checker.not_,
    "if": _Checker.if_,
    "properties": _Checker.properties,
    "required": _Checker.required,
    "patternProperties": _Checker.pattern_properties,
    "additionalProperties": _Checker.additional_properties,
    "propertyNames": _Checker.property_names,
    "dependentRequired": _Checker.dependent_required,
    "dependentSchemas": _Checker.dependent_schemas,
    "items": _Checker.items,
    "prefixItems": _Checker.prefix_items,
    "contains": _Checker.contains,
    "uniqueItems": _Checker.unique_items,
    "pattern": _Checker.pattern,
    "minimum": _limit("minimum", _as_number, lambda found, limit: found < limit, "is less than"),
    "maximum": _limit("maximum", _as_number, lambda found, limit: found > limit, "is more than"),
    "exclusiveMinimum": _limit("exclusiveMinimum", _as_number, lambda found, limit: found <= limit, "is not more than"),
    "exclusiveMaximum": _limit("exclusiveMaximum", _as_number, lambda found, limit: found >= limit, "is not less than"),
    "multipleOf": _limit("multipleOf", _as_number, _is_uneven, "is no multiple of"),
    "minLength": _limit("minLength", _length, lambda found, limit: found < limit, "characters, expected at least"),
    "maxLength": _limit("maxLength", _length, lambda found, limit: found > limit, "characters, expected at most"),
    "minItems": _limit("minItems", _count, lambda found, limit: found < limit, "items, expected at least"),
    "maxItems": _limit("maxItems", _count, lambda found, limit: found > limit, "items, expected at most"),
    "minProperties": _limit(
        "minProperties", _size, lambda found, limit: found < limit, "properties, expected at least"
    ),
    "maxProperties": _limit("maxProperties", _size, lambda found, limit: found > limit, "properties, expected at most"),
}


def resolve(root: object, ref: object) -> object:
    """What a local reference points at; None if that is elsewhere or nowhere."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    found = root
    for step in ref[1:].split("/")[1:]:
        step = step.replace("%24", "$").replace("%25", "%").replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found if "/" in ref or ref == "#" else None


def is_same(one: object, other: object) -> bool:
    """Equal as JSON: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(is_same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def _rough(value: object) -> str:
    if isinstance(value, str):
        return value
    return kind_of(value) + (str(len(value)) if isinstance(value, list | dict) else str(hash(value)))


def _missing(names: object, value: JsonObject) -> list[str]:
    return [name for name in _list(names) if isinstance(name, str) and name not in value]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _number(value: object, otherwise: float) -> float:
    return value if isinstance(value, int | float) else otherwise


def _show(value: object) -> str:
    text = dump_text(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
