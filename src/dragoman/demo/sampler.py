"""A value for a JSON Schema: small, deterministic and, wherever possible, valid.

Alternatives (`anyOf`, enums, optional parts) give several candidates. The first one that fits the schema is the value.
`Hints` are the strings and numbers of a prompt. A value uses them in their order, each once.
"""

from collections.abc import Iterator
from itertools import islice

from dragoman.demo.patterns import FORMAT_SAMPLES, matches_pattern, sample_pattern
from dragoman.json_schema.check import find_violation
from dragoman.json_schema.clean import resolve
from dragoman.jsontypes import Json, JsonObject

_MAX_DEPTH = 8  # for schemas that refer to themselves
_MAX_STEPS = 10_000  # a client wrote the schema: it may be made to explode
_OPTIONAL_DEPTH = 3  # deeper than this only required properties are filled in
_MAX_CANDIDATES = 48
_MAX_LENGTH = 4096  # a longer minLength or minItems is not met


class Hints:
    """Texts and numbers of a prompt, to make values from."""

    def __init__(self, texts: tuple[str, ...] = (), numbers: tuple[float, ...] = (), prompt: str = "") -> None:
        self._texts = list(texts)
        self._numbers = list(numbers)
        self.prompt = prompt.lower()  # enum values that occur in it are preferred

    def next_text(self) -> str | None:
        return self._texts.pop(0) if self._texts else None

    def next_number(self) -> float | None:
        return self._numbers.pop(0) if self._numbers else None


class _SchemaTooLargeError(Exception):
    """The schema takes more steps than allowed."""


def sample(schema: Json, hints: Hints | None = None) -> Json:
    """A value for the schema. If no candidate fits the schema, the first candidate."""
    try:
        return _Sampler(schema, hints or Hints()).make_value(schema, "value", 0)
    except (_SchemaTooLargeError, RecursionError):
        return {}


class _Sampler:
    def __init__(self, root: Json, hints: Hints) -> None:
        self._root = root
        self._hints = hints
        self._steps = 0

    def _count_steps(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise _SchemaTooLargeError

    # -- making

    def make_value(self, schema: Json, name: str, depth: int) -> Json:
        if depth > _MAX_DEPTH:
            return None
        rejected: list[Json] = []
        for candidate in islice(self._make_candidates(schema, name, depth), _MAX_CANDIDATES):
            if self._fits(candidate, schema):
                return candidate
            rejected.append(candidate)
        return rejected[0] if rejected else None

    def _make_candidates(self, schema: Json, name: str, depth: int) -> Iterator[Json]:
        if type(schema) is not dict:  # true, or not a schema at all
            yield self._make_text({}, name)
            return
        for branch in self._expand(schema, depth, 0):
            if "const" in branch:
                yield branch["const"]
            elif type(branch.get("enum")) is list and branch["enum"]:
                yield from self._prefer_mentioned(branch["enum"])
            else:
                for json_type in _list_types(branch):
                    yield from self._make_typed(json_type, branch, name, depth)

    def _expand(self, schema: JsonObject, depth: int, hops: int) -> Iterator[JsonObject]:
        """Schemas without `$ref`, `allOf`, `anyOf`, `oneOf` and `if`: one for each combination of alternatives."""
        self._count_steps(1)
        if hops > 2 * _MAX_DEPTH:
            return
        if "$ref" in schema:
            others = {key: value for key, value in schema.items() if key != "$ref"}
            target = self._resolve(schema["$ref"])
            if type(target) is dict:
                yield from self._expand(_merge(target, others), depth, hops + 1)
            elif others:
                yield from self._expand(others, depth, hops + 1)
            return
        for key in ("allOf", "anyOf", "oneOf"):
            options = schema.get(key)
            if type(options) is list and options:
                self._count_steps(len(options))
                others = {k: v for k, v in schema.items() if k != key}
                if key == "allOf":
                    branches = [_merge_all(self._resolve_all(others, options))]
                else:
                    branches = _merge_each(others, options, depth)
                for branch in branches:
                    yield from self._expand(branch, depth, hops + 1)
                return
        if "if" in schema:
            others = {k: v for k, v in schema.items() if k not in ("if", "then", "else")}
            yield from self._expand(_merge_all([others, schema["if"], schema.get("then", True)]), depth, hops + 1)
            yield from self._expand(_merge(others, schema.get("else", True)), depth, hops + 1)
            return
        yield schema

    def _resolve_all(self, others: JsonObject, options: list[Json]) -> list[Json]:
        """The schemas of an allOf with their references resolved, so that they can be merged."""
        parts: list[Json] = [others]
        for option in options:
            target: Json = option
            for _ in range(_MAX_DEPTH):
                if type(target) is not dict or "$ref" not in target:
                    break
                siblings = {k: v for k, v in target.items() if k != "$ref"}
                target = _merge(self._resolve(target["$ref"]), siblings)
            parts.append(target)
        return parts

    def _resolve(self, ref: Json) -> Json:
        found = resolve(self._root, ref) if type(ref) is str else None
        return True if found is None else found

    def _prefer_mentioned(self, values: list[Json]) -> Iterator[Json]:
        mentioned = [v for v in values if type(v) is str and v and v.lower() in self._hints.prompt]
        yield from mentioned
        yield from values

    def _make_typed(self, json_type: str, schema: JsonObject, name: str, depth: int) -> Iterator[Json]:
        match json_type:
            case "object":
                yield self._make_object(schema, depth)
            case "array":
                yield from self._make_arrays(schema, name, depth)
            case "string":
                yield self._make_text(schema, name)
                if "default" in schema:
                    yield schema["default"]
            case "integer" | "number":
                yield from self._make_numbers(schema, json_type)
            case "boolean":
                yield True
                yield False
            case _:
                yield None

    def _make_object(self, schema: JsonObject, depth: int) -> JsonObject:
        properties, others = _get_dict(schema.get("properties")), schema.get("additionalProperties", True)
        required = [key for key in _get_list(schema.get("required")) if type(key) is str]
        keys = required or ([] if depth >= _OPTIONAL_DEPTH else list(properties))
        value: JsonObject = {}
        for key in keys:
            value[key] = self.make_value(properties.get(key, others), key, depth + 1)
        if not required:  # leave out optional properties without a valid value
            value = {k: v for k, v in value.items() if self._fits(v, properties.get(k, True))}
        minimum = schema.get("minProperties")
        if type(minimum) is int:
            unused = [key for key in properties if key not in value]
            for key in [*unused, *(f"key{i}" for i in range(1, min(minimum, 64) + 1))]:
                if len(value) >= minimum:
                    break
                value[key] = self.make_value(properties.get(key, others), key, depth + 1)
        return value

    def _make_arrays(self, schema: JsonObject, name: str, depth: int) -> Iterator[Json]:
        prefix = schema.get("prefixItems")
        items = schema.get("items", True)
        if type(items) is list:  # the older spelling of prefixItems
            prefix, items = items, schema.get("additionalItems", True)
        minimum, maximum = _get_int(schema.get("minItems"), 0), _get_int(schema.get("maxItems"), _MAX_LENGTH)
        prefix_items = prefix if type(prefix) is list else []
        usual = max(minimum, len(prefix_items), 1 if depth < _OPTIONAL_DEPTH and items is not False else 0)
        for count in (min(usual, maximum), minimum):
            schemas = [prefix_items[i] if i < len(prefix_items) else items for i in range(min(count, _MAX_LENGTH))]
            values = [self.make_value(item_schema, name, depth + 1) for item_schema in schemas]
            yield _make_distinct(values) if schema.get("uniqueItems") else values

    def _make_text(self, schema: JsonObject, name: str) -> str:
        pattern, format_name = schema.get("pattern"), schema.get("format")
        if type(pattern) is str:
            hint = self._hints.next_text()
            if hint is not None and matches_pattern(pattern, hint, if_unsure=False):
                return hint
            return sample_pattern(pattern)
        if type(format_name) is str and format_name in FORMAT_SAMPLES:
            return FORMAT_SAMPLES[format_name]
        text = self._hints.next_text()
        if text is None:
            text = f"sample {name}"
        minimum, maximum = _get_int(schema.get("minLength"), 0), _get_int(schema.get("maxLength"), _MAX_LENGTH)
        text = text[:maximum]
        return text + "x" * min(minimum - len(text), _MAX_LENGTH) if len(text) < minimum else text

    def _make_numbers(self, schema: JsonObject, json_type: str) -> Iterator[Json]:
        step = _get_number(schema.get("multipleOf"))
        low = _find_bound(schema, "minimum", "exclusiveMinimum")
        high = _find_bound(schema, "maximum", "exclusiveMaximum")
        candidates: list[float | None] = [self._hints.next_number(), 1, low, high, 0, 0.5]
        if low is not None:
            candidates += [low + 1, low + 0.5]
        if high is not None:
            candidates += [high - 1, high - 0.5]
        if low is not None and high is not None:
            candidates.append((low + high) / 2)
        if step is not None and step > 0:
            multiples = ((low or 0) // step + 1, (high or 0) // step - 1, (high or 0) // step)
            candidates += [step, *(n * step for n in multiples)]
        for number in candidates:
            if number is None:
                continue
            if float(number).is_integer():
                yield int(number)
            elif json_type == "number":
                yield number
            else:
                yield int(number // 1)

    def _fits(self, value: Json, schema: Json) -> bool:
        self._count_steps(1)
        return find_violation(value, schema, self._root) is None


def _merge_each(base: JsonObject, options: list[Json], depth: int) -> list[JsonObject]:
    # null is legal but useless, so it comes last. Deep in a schema that refers to itself it comes first and ends it.
    nulls = [option for option in options if option == {"type": "null"}]
    others = [option for option in options if option != {"type": "null"}]
    ordered = [*nulls, *others] if depth >= _OPTIONAL_DEPTH else [*others, *nulls]
    return [_merge(base, option) for option in ordered]


def _list_types(schema: JsonObject) -> list[str]:
    """The JSON types to try, null last."""
    types = schema.get("type")
    if type(types) is str:
        return [types.lower()]  # Gemini writes types in capitals
    if type(types) is list and types:
        names = [str(name).lower() for name in types]
        return [name for name in names if name != "null"] + [name for name in names if name == "null"]
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
    """One schema that demands both, as far as one schema can."""
    if type(first) is not dict:
        first = {}
    if type(second) is not dict:
        return dict(first)
    merged = dict(first)
    for key, value in second.items():
        if key not in merged:
            merged[key] = value
        elif key in ("properties", "patternProperties", "$defs", "definitions") and type(value) is dict:
            own = merged[key]
            merged[key] = {**own, **{k: _merge(own[k], v) if k in own else v for k, v in value.items()}}
        elif key == "required":
            merged[key] = [*merged[key], *(word for word in value if word not in merged[key])]
        elif key in ("allOf", "anyOf", "oneOf"):
            # a second list of alternatives goes into an allOf
            merged["allOf"] = [*_get_list(merged.get("allOf")), *(value if key == "allOf" else [{key: value}])]
        elif key == "enum":
            merged[key] = [word for word in merged[key] if any(_is_same(word, other) for other in value)]
        elif key in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
            merged[key] = max(merged[key], value)
        elif key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
            merged[key] = min(merged[key], value)
        elif key == "type":
            merged[key] = _intersect_types(merged[key], value)
        else:
            merged[key] = value
    return merged


def _intersect_types(first: Json, second: Json) -> Json:
    first_types = first if type(first) is list else [first]
    second_types = second if type(second) is list else [second]
    both = [kind for kind in first_types if kind in second_types]
    if not both and "number" in first_types and "integer" in second_types:
        both = ["integer"]
    return both[0] if len(both) == 1 else both or second


def _find_bound(schema: JsonObject, key: str, exclusive: str) -> float | None:
    found = [n for n in (_get_number(schema.get(key)), _get_number(schema.get(exclusive))) if n is not None]
    return (max(found) if key == "minimum" else min(found)) if found else None


def _get_number(value: Json) -> float | None:
    return value if type(value) is int or type(value) is float else None


def _is_same(first: Json, second: Json) -> bool:
    """Equal as JSON, where 1 is not true."""
    return bool(first == second) and (type(first) is bool) == (type(second) is bool)


def _get_list(value: Json) -> list[Json]:
    return value if type(value) is list else []


def _get_dict(value: Json) -> JsonObject:
    return value if type(value) is dict else {}


def _get_int(value: Json, default: int) -> int:
    number = _get_number(value)
    return default if number is None else int(number)


def _make_distinct(values: list[Json]) -> list[Json]:
    """The values with repeated texts and numbers made different."""
    distinct: list[Json] = []
    for item in values:
        count = 1
        changed = item
        while any(_is_same(changed, other) for other in distinct) and count < _MAX_LENGTH:
            count += 1
            if type(item) is str:
                changed = f"{item} {count}"
            elif _get_number(item) is not None:
                changed = item + count - 1
            else:
                break
        distinct.append(changed)
    return distinct
