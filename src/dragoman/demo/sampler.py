"""A value for a JSON Schema: small, deterministic and, wherever we can manage it, valid.

Alternatives (`anyOf`, enums, optional parts) give candidates; the first that fits the schema is taken. What a person
said may colour the value: `Hints` holds the strings and numbers of a prompt in their order, used up one by one.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dragoman.demo.patterns import FORMATS, finds, sample_pattern
from dragoman.jsontypes import Json, JsonObject
from dragoman.passes.schema_check import find_violation

_DEEPEST = 8  # a schema that refers to itself is cut here
_MOST_STEPS = 10_000  # schemas are strangers' text: one that explodes is given up
_OPTIONAL_DEPTH = 3  # below this only what is required is filled in
_MOST_CANDIDATES = 48
_LONGEST = 4096  # a minLength or minItems beyond it is not met


class Hints:
    """Words and numbers of a prompt that arguments are made of."""

    def __init__(self, texts: tuple[str, ...] = (), numbers: tuple[float, ...] = (), said: str = "") -> None:
        self._texts = list(texts)
        self._numbers = list(numbers)
        self.said = said.lower()  # an enum's value that occurs in it is preferred

    def next_text(self) -> str | None:
        return self._texts.pop(0) if self._texts else None

    def next_number(self) -> float | None:
        return self._numbers.pop(0) if self._numbers else None


class _TooMuchError(Exception):
    """The schema takes more steps than it is worth."""


def sample(schema: Json, hints: Hints | None = None) -> Json:
    """A value for the schema; the nearest we can make where the schema asks for more than we know."""
    try:
        return _Sampler(schema, hints or Hints()).value(schema, "value", 0)
    except (_TooMuchError, RecursionError):
        return {}


def fits(value: Json, schema: Json) -> bool:
    """Whether a value obeys the keywords we know."""
    return find_violation(value, schema) is None


class _Sampler:
    def __init__(self, root: Json, hints: Hints) -> None:
        self._root = root
        self._hints = hints
        self._steps = 0

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _TooMuchError

    # -- making

    def value(self, schema: Json, name: str, depth: int) -> Json:
        if depth > _DEEPEST:
            return None
        first: list[Json] = []
        for candidate in islice(self._candidates(schema, name, depth), _MOST_CANDIDATES):
            if self._fits(candidate, schema):
                return candidate
            first.append(candidate)
        return first[0] if first else None

    def _candidates(self, schema: Json, name: str, depth: int) -> Iterator[Json]:
        if type(schema) is not dict:  # true, or something that is no schema
            yield self._text({}, name)
            return
        for plain in self._branches(schema, depth, 0):
            if "const" in plain:
                yield plain["const"]
            elif type(plain.get("enum")) is list and plain["enum"]:
                yield from self._prefer_said(plain["enum"])
            else:
                for kind in _kinds(plain):
                    yield from self._typed(kind, plain, name, depth)

    def _branches(self, schema: JsonObject, depth: int, hops: int) -> Iterator[JsonObject]:
        """The schema as schemas without `$ref`, `allOf`, `anyOf`, `oneOf` and `if`: one for each way through them."""
        self._spend(1)
        if hops > 2 * _DEEPEST:
            return
        if "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            target = self._resolve(schema["$ref"])
            if type(target) is dict:
                yield from self._branches(_merge(target, rest), depth, hops + 1)
            elif rest:
                yield from self._branches(rest, depth, hops + 1)
            return
        for key in ("allOf", "anyOf", "oneOf"):
            options = schema.get(key)
            if type(options) is list and options:
                self._spend(len(options))
                rest = {k: v for k, v in schema.items() if k != key}
                ways = [_merge_all(self._solid(rest, options))] if key == "allOf" else _ways(rest, options, depth)
                for way in ways:
                    yield from self._branches(way, depth, hops + 1)
                return
        if "if" in schema:
            rest = {k: v for k, v in schema.items() if k not in ("if", "then", "else")}
            yield from self._branches(_merge_all([rest, schema["if"], schema.get("then", True)]), depth, hops + 1)
            yield from self._branches(_merge(rest, schema.get("else", True)), depth, hops + 1)
            return
        yield schema

    def _solid(self, rest: JsonObject, options: list[Json]) -> list[Json]:
        """The parts of an allOf with their references followed, so that they can be merged."""
        parts: list[Json] = [rest]
        for option in options:
            target: Json = option
            for _ in range(_DEEPEST):
                if type(target) is not dict or "$ref" not in target:
                    break
                aside = {k: v for k, v in target.items() if k != "$ref"}
                target = _merge(self._resolve(target["$ref"]), aside)
            parts.append(target)
        return parts

    def _resolve(self, ref: Json) -> Json:
        if type(ref) is not str or not ref.startswith("#"):
            return True
        found: Any = self._root
        for step in ref[1:].split("/")[1:]:
            word = step.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            if type(found) is dict and word in found:
                found = found[word]
            elif type(found) is list and word.isdigit() and int(word) < len(found):
                found = found[int(word)]
            else:
                return True
        return found

    def _prefer_said(self, values: list[Json]) -> Iterator[Json]:
        said = [v for v in values if type(v) is str and v and v.lower() in self._hints.said]
        yield from said
        yield from values

    def _typed(self, kind: str, schema: JsonObject, name: str, depth: int) -> Iterator[Json]:
        match kind:
            case "object":
                yield self._object(schema, depth)
            case "array":
                yield from self._arrays(schema, name, depth)
            case "string":
                yield self._text(schema, name)
                if "default" in schema:
                    yield schema["default"]
            case "integer" | "number":
                yield from self._numbers(schema, kind)
            case "boolean":
                yield True
                yield False
            case _:
                yield None

    def _object(self, schema: JsonObject, depth: int) -> JsonObject:
        properties = _dict(schema.get("properties"))
        required = [key for key in _list(schema.get("required")) if type(key) is str]
        wanted = required or ([] if depth >= _OPTIONAL_DEPTH else list(properties))
        made: JsonObject = {}
        for key in wanted:
            made[key] = self.value(properties.get(key, schema.get("additionalProperties", True)), key, depth + 1)
        if not required:  # what is optional and cannot be said well is left out
            made = {k: v for k, v in made.items() if self._fits(v, properties.get(k, True))}
        least = schema.get("minProperties")
        if type(least) is int:
            spare = [key for key in properties if key not in made]
            for key in [*spare, *(f"key{i}" for i in range(1, min(least, 64) + 1))]:
                if len(made) >= least:
                    break
                made[key] = self.value(properties.get(key, schema.get("additionalProperties", True)), key, depth + 1)
        return made

    def _arrays(self, schema: JsonObject, name: str, depth: int) -> Iterator[Json]:
        prefix = schema.get("prefixItems")
        items = schema.get("items", True)
        if type(items) is list:  # the older form of prefixItems
            prefix, items = items, schema.get("additionalItems", True)
        least, most = _whole(schema.get("minItems"), 0), _whole(schema.get("maxItems"), _LONGEST)
        heads = prefix if type(prefix) is list else []
        usual = max(least, len(heads), 1 if depth < _OPTIONAL_DEPTH and items is not False else 0)
        for count in (min(usual, most), least):
            kinds = [heads[i] if i < len(heads) else items for i in range(min(count, _LONGEST))]
            row = [self.value(kind, name, depth + 1) for kind in kinds]
            yield _distinct(row) if schema.get("uniqueItems") else row

    def _text(self, schema: JsonObject, name: str) -> str:
        pattern, shape = schema.get("pattern"), schema.get("format")
        if type(pattern) is str:
            hint = self._hints.next_text()
            if hint is not None and finds(pattern, hint, unsure=False):
                return hint
            return sample_pattern(pattern)
        if type(shape) is str and shape in FORMATS:
            return FORMATS[shape]
        text = self._hints.next_text()
        if text is None:
            text = f"sample {name}"
        least, most = _whole(schema.get("minLength"), 0), _whole(schema.get("maxLength"), _LONGEST)
        text = text[:most]
        return text + "x" * min(least - len(text), _LONGEST) if len(text) < least else text

    def _numbers(self, schema: JsonObject, kind: str) -> Iterator[Json]:
        step = _number(schema.get("multipleOf"))
        low, high = _bound(schema, "minimum", "exclusiveMinimum"), _bound(schema, "maximum", "exclusiveMaximum")
        tries: list[float | None] = [self._hints.next_number(), 1, low, high, 0, 0.5]
        if low is not None:
            tries += [low + 1, low + 0.5]
        if high is not None:
            tries += [high - 1, high - 0.5]
        if low is not None and high is not None:
            tries.append((low + high) / 2)
        if step is not None and step > 0:
            tries += [step, *(n * step for n in ((low or 0) // step + 1, (high or 0) // step - 1, (high or 0) // step))]
        for number in tries:
            if number is None:
                continue
            if float(number).is_integer():
                yield int(number)
            elif kind == "number":
                yield number
            else:
                yield int(number // 1)

    def _fits(self, value: Json, schema: Json) -> bool:
        self._spend(1)
        return find_violation(value, schema, self._root) is None


def _ways(rest: JsonObject, options: list[Json], depth: int) -> list[JsonObject]:
    # null is legal but says nothing: it comes last, unless we are deep in a schema that refers to itself
    nulls = [option for option in options if option == {"type": "null"}]
    others = [option for option in options if option != {"type": "null"}]
    ordered = [*nulls, *others] if depth >= _OPTIONAL_DEPTH else [*others, *nulls]
    return [_merge(rest, option) for option in ordered]


def _kinds(schema: JsonObject) -> list[str]:
    """The types to try, the saying ones first."""
    kinds = schema.get("type")
    if type(kinds) is str:
        return [kinds.lower()]  # Gemini writes them in capitals
    if type(kinds) is list and kinds:
        words = [str(kind).lower() for kind in kinds]
        return [w for w in words if w != "null"] + [w for w in words if w == "null"]
    if "properties" in schema or "required" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    if any(key in schema for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")):
        return ["number"]
    return ["string", "object", "number", "boolean", "array", "null"]


def _merge_all(schemas: list[Json]) -> JsonObject:
    merged: JsonObject = {}
    for schema in schemas:
        merged = _merge(merged, schema)
    return merged


def _merge(first: Json, second: Json) -> JsonObject:
    """Both at once, as well as one schema can say it."""
    if type(first) is not dict:
        first = {}
    if type(second) is not dict:
        return dict(first)
    merged = dict(first)
    for key, value in second.items():
        if key not in merged:
            merged[key] = value
        elif key in ("properties", "patternProperties", "$defs", "definitions") and type(value) is dict:
            mine = merged[key]
            merged[key] = {**mine, **{k: _merge(mine[k], v) if k in mine else v for k, v in value.items()}}
        elif key == "required":
            merged[key] = [*merged[key], *(word for word in value if word not in merged[key])]
        elif key in ("allOf", "anyOf", "oneOf"):
            # two lists of alternatives: the second waits inside an allOf
            merged["allOf"] = [*_list(merged.get("allOf")), *(value if key == "allOf" else [{key: value}])]
        elif key == "enum":
            merged[key] = [word for word in merged[key] if any(_same(word, other) for other in value)]
        elif key in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
            merged[key] = max(merged[key], value)
        elif key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
            merged[key] = min(merged[key], value)
        elif key == "type":
            merged[key] = _meet_types(merged[key], value)
        else:
            merged[key] = value
    return merged


def _meet_types(first: Json, second: Json) -> Json:
    one = first if type(first) is list else [first]
    other = second if type(second) is list else [second]
    both = [kind for kind in one if kind in other]
    if not both and "number" in one and "integer" in other:
        both = ["integer"]
    return both[0] if len(both) == 1 else both or second


def _bound(schema: JsonObject, key: str, exclusive: str) -> float | None:
    found = [n for n in (_number(schema.get(key)), _number(schema.get(exclusive))) if n is not None]
    return (max(found) if key == "minimum" else min(found)) if found else None


def _number(value: Json) -> float | None:
    return value if type(value) is int or type(value) is float else None


def _is_kind(value: Json, kind: str) -> bool:
    match kind:
        case "integer":
            return type(value) is int or (type(value) is float and value.is_integer())
        case "number":
            return _number(value) is not None
        case "string":
            return type(value) is str
        case "boolean":
            return type(value) is bool
        case "object":
            return type(value) is dict
        case "array":
            return type(value) is list
        case _:
            return value is None


def _same(one: Json, other: Json) -> bool:
    """Equal as JSON: 1 is not true."""
    return bool(one == other) and (type(one) is bool) == (type(other) is bool)


def _list(value: Json) -> list[Json]:
    return value if type(value) is list else []


def _dict(value: Json) -> JsonObject:
    return value if type(value) is dict else {}


def _whole(value: Json, otherwise: int) -> int:
    number = _number(value)
    return otherwise if number is None else int(number)


def _distinct(row: list[Json]) -> list[Json]:
    """Equal neighbours made different, where text and numbers allow it."""
    made: list[Json] = []
    for item in row:
        count = 1
        fresh = item
        while any(_same(fresh, other) for other in made) and count < _LONGEST:
            count += 1
            fresh = f"{item} {count}" if type(item) is str else item + count - 1 if _number(item) is not None else item
            if fresh is item:
                break
        made.append(fresh)
    return made
