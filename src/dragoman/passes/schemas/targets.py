"""The schema languages of the targets: which JSON Schema keywords each one takes.

They are lists of what is allowed. A list of what is forbidden would lack each new keyword (FIELD-CASES 17).
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import Spelling

NOTES = frozenset({"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"})
META = frozenset({"$schema", "$id", "id", "$comment", "$anchor", "$vocabulary", "$dynamicAnchor"})
NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
STRING = frozenset({"minLength", "maxLength", "pattern", "format"})
ARRAY = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "additionalItems"})
OBJECT = frozenset(
    {"properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"}
    | {"propertyNames", "propertyOrdering", "dependentRequired", "unevaluatedProperties"}
)
REFS = frozenset({"$ref", "$defs", "definitions"})
UNIONS = frozenset({"anyOf", "oneOf", "allOf"})
CORE = frozenset({"type", "description", "enum", "properties", "required", "items"})


class SchemaTarget(Struct, frozen=True, kw_only=True):
    keywords: frozenset[str] | None = None  # None: all of JSON Schema
    refs: bool = True  # takes $ref; otherwise the definition is written in its place
    alone: bool = False  # nothing may stand beside $ref, and no type beside anyOf
    null: Literal["type", "nullable", "any_of"] = "type"  # its form of "or null"
    strings_only: bool = False  # an enum's values must be strings
    null_in_enum: bool = True
    formats: dict[str, frozenset[str]] | None = None  # per type; None: any
    items: bool = False  # an array must say what of
    open_objects: bool = True  # additionalProperties: false may be missing
    closed_objects: bool = True  # takes additionalProperties: false
    all_required: bool = False
    limits: bool = True  # numbers, lengths and counts may be limited
    empty: Literal["properties", "bare", "absent"] = "properties"  # a tool without parameters
    property_names: Spelling | None = None
    depth: int = 32
    recursion: bool = True
    tolerant: bool = False  # ignores keywords that it does not know


_GEMINI_FORMATS = {
    "string": frozenset({"enum", "date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}

_ANTHROPIC_NAMES = Spelling(letters="a-zA-Z0-9_.-", longest=64)
_GEMINI_NAMES = Spelling(letters="A-Za-z0-9_", first="A-Za-z_", longest=64)

LANGUAGES: dict[str, SchemaTarget] = {
    # Any schema passes unchanged; only values that are no schema are repaired.
    "any": SchemaTarget(empty="bare"),
    # OpenAI: "object schema missing properties", "array schema missing items" (FIELD-CASES 63)
    "openai": SchemaTarget(items=True),
    # Structured outputs: protocols/openai-chat.md section 7, read 2026-11-15
    "openai_strict": SchemaTarget(
        keywords=CORE
        | NUMBER
        | REFS
        | {"const", "anyOf", "pattern", "format", "minItems", "maxItems", "additionalProperties", "title"}
        | {"$schema", "default"},  # default: recorded traffic, read 2026-11-17
        items=True,
        open_objects=False,
        all_required=True,
        depth=10,
    ),
    # "input_schema does not support oneOf, allOf, or anyOf at the top level"; no parameters is {"type": "object"} (B5)
    "anthropic": SchemaTarget(empty="bare", property_names=_ANTHROPIC_NAMES),
    # protocols/anthropic-messages.md section 7, read 2026-11-15
    "anthropic_strict": SchemaTarget(
        keywords=CORE
        | REFS
        | {"const", "anyOf", "allOf", "format", "additionalProperties", "title", "default"}
        # takes minItems 0 or 1 only; others go into the description
        | {"$schema"},
        items=True,
        open_objects=False,
        limits=False,
        empty="bare",
        recursion=False,
        property_names=_ANTHROPIC_NAMES,
    ),
    # Strict Rust types: no null (protocols/provider-quirks.md, xAI). Closed objects are taken (recorded traffic).
    "xai": SchemaTarget(items=True, null_in_enum=False),
    # The Schema message of generateContent (`parameters`, `responseSchema`): protocols/gemini.md section 7
    "gemini": SchemaTarget(
        keywords=CORE
        | {"format", "title", "nullable", "minItems", "maxItems", "minimum", "maximum", "anyOf", "propertyOrdering"}
        | {"minLength", "maxLength", "pattern", "minProperties", "maxProperties"},
        refs=False,
        null="nullable",
        strings_only=True,
        null_in_enum=False,
        formats=_GEMINI_FORMATS,
        items=True,
        empty="absent",
        property_names=_GEMINI_NAMES,
    ),
    # `parametersJsonSchema`, `responseJsonSchema`: protocols/gemini.md section 7
    "gemini_json": SchemaTarget(
        keywords=CORE
        | {"format", "title", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf"}
        | {"additionalProperties", "propertyOrdering"},
        refs=False,
        items=True,
        empty="absent",
        property_names=_GEMINI_NAMES,
        tolerant=True,
    ),
    # The same after a refusal as too many states: neither limits nor patterns, and for Google's own clients, too.
    "gemini_plain": SchemaTarget(
        keywords=CORE | {"title", "anyOf", "additionalProperties", "propertyOrdering"},
        refs=False,
        items=True,
        limits=False,
        empty="absent",
        property_names=_GEMINI_NAMES,
    ),
    # Any other server that refuses keywords: "Unsupported JSON schema fields: {'minItems', 'items'}" (Cerebras)
    "plain": SchemaTarget(
        keywords=CORE | REFS | {"const", "anyOf", "additionalProperties", "title", "default"}, items=True, limits=False
    ),
    # "is not a valid moonshot flavored json schema": kimi-code #2661, kimi-cli #2061, pi #5822 (2026)
    "mfjs": SchemaTarget(items=True, alone=True),
    # What the server's struct keeps: protocols/ollama.md section 5
    "ollama": SchemaTarget(keywords=CORE | {"anyOf"}, refs=False, items=True, tolerant=True),
    # "failed to parse grammar": no patterns, formats or long repetitions (FIELD-CASES 128)
    "gbnf": SchemaTarget(
        keywords=CORE
        | REFS
        | {"const", "anyOf", "oneOf", "allOf", "additionalProperties", "title", "default", "prefixItems"}
        | {"minimum", "maximum"},
        items=True,
    ),
}


# -------------------------------------------------------- facts about a schema
# Facts about a JSON Schema, and words for its description.


def tell(description: object, hints: list[str]) -> str:
    text = description if isinstance(description, str) else ""
    if not hints:
        return text
    return f"{text} ({'; '.join(hints)})".strip()


def object_in(schema: JsonObject, key: str) -> JsonObject:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}


def required_by(schema: JsonObject) -> set[str]:
    found = schema.get("required")
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def is_null(schema: object) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("enum") == [None])


def json_type(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "array"
        case _:
            return "object"


def type_of_enum(schema: JsonObject) -> str | None:
    kinds = {json_type(value) for value in schema.get("enum") or ()}
    return kinds.pop() if len(kinds) == 1 else None


def may_be(schema: JsonObject, kind: str) -> bool:
    kinds = schema.get("type")
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def is_recursive(root: JsonObject) -> bool:
    """Whether a schema contains itself, through its references."""
    bodies = {
        f"#/{key}/{name}": body for key in ("$defs", "definitions") for name, body in object_in(root, key).items()
    }
    leads = {ref: set(find_refs(body)) for ref, body in bodies.items()}
    if "#" in set(find_refs(root)):
        return True
    for start in leads:
        seen, next_ones = set[str](), leads[start]
        while next_ones:
            if start in next_ones:
                return True
            seen |= next_ones
            next_ones = {ref for at in next_ones for ref in leads.get(at, ())} - seen
    return False


def find_refs(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from find_refs(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from find_refs(value)
