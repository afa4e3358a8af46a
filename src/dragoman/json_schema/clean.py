"""A foreign JSON Schema reduced to what can be checked, and compiled with `jsonschema-rs`.

This is the only module that imports `jsonschema_rs`, on first use: a conversion that checks nothing does not load it.

A reference to another document and a pattern that needs backtracking are left out. Then the schema allows more than it
says. A keyword that turns that around (`not`, `if`, `oneOf` ...) would refuse values that fit, so such keywords are
left out or loosened too.

The keywords are those of draft 2020-12, or of the draft from 6 on that `$schema` names. Old ways to write a schema are
understood too: OpenAPI's `nullable`, types in capitals, and `exclusiveMinimum` and `items` as draft 4 has them.
"""

from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

from dragoman.errors import pointer
from dragoman.jsontypes import Json, JsonObject, SchemaPath

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_SCHEMAS = 20_000  # schemas within one schema
MAX_REFS = 500  # different references
MAX_PATTERNS = 50
MAX_PATTERN_CHARS = 1_000
MAX_PATTERN_BYTES = 300_000  # compiled: `^.{1,255}$` needs 260,000
MAX_DEPTH = 60  # schemas within schemas

# Keywords that hold one schema, a list of schemas, or schemas by name.
ONE = {"not", "if", "then", "else", "items", "additionalItems", "contains", "propertyNames"}
ONE |= {"additionalProperties", "unevaluatedItems", "unevaluatedProperties"}
LISTED = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
NAMED = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
# Of those, the keywords whose schemas apply to the same value, not to a part of it.
SAME_VALUE = {"$ref", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}
# Of those, the keywords that refuse more values when a schema in them allows more.
TURNING = {"not", "if", "then", "else", "contains", "minContains", "maxContains"}
TURNING |= {"unevaluatedItems", "unevaluatedProperties"}
# Keywords that hold no schema.
PLAIN = {
    "type",
    "enum",
    "const",
    "required",
    "dependentRequired",
    "minLength",
    "maxLength",
    "uniqueItems",
    "multipleOf",
}
PLAIN |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
PLAIN |= {"minContains", "maxContains", "minProperties", "maxProperties"}

DRAFTS = {f"json-schema.org/{draft}/schema" for draft in ("draft-06", "draft-07", "draft/2019-09", "draft/2020-12")}
NEWEST = "https://json-schema.org/draft/2020-12/schema"


def clean(schema: Json, root: Json = None, *, patterns: bool = True) -> "Cleaner":
    """The schema as far as it can be checked. References are to the root; without one, to the schema itself."""
    cleaner = Cleaner(schema if root is None else root, patterns=patterns, loosen=False)
    cleaner.read(schema)
    if cleaner.left_out:
        cleaner = Cleaner(schema if root is None else root, patterns=patterns, loosen=True)
        cleaner.read(schema)
    return cleaner


class Cleaner:
    def __init__(self, root: Json, *, patterns: bool, loosen: bool) -> None:
        self._root, self._patterns, self._loosen = root, patterns, loosen
        self._draft = _draft_of(root)
        self.schema: JsonObject = {}
        self.left_out = False
        self.bad_refs: list[str] = []  # in words
        self._names: dict[str, str] = {}  # reference -> its name in the cleaned schema
        self._schemas = 0
        self._searches = 0

    def read(self, schema: Json) -> None:
        made = self._node(schema, (), 0)
        targets: JsonObject = {}
        while len(targets) < len(self._names):
            ref, name = list(self._names.items())[len(targets)]
            targets[name] = self._node(resolve(self._root, ref), _path_of(ref), 0)
        self.schema = {"$schema": self._draft, **made} if isinstance(made, dict) else {"allOf": [made]}
        if targets:
            self.schema["$defs"] = targets

    def original_path(self, path: SchemaPath) -> SchemaPath:
        """A place in the cleaned schema as a place in the given one."""
        refs = {name: ref for ref, name in self._names.items()}
        return _path_of(refs[str(path[1])]) + path[2:] if path[:1] == ("$defs",) else path

    def _node(self, schema: Json, path: SchemaPath, depth: int) -> Json:
        self._schemas += 1
        if not isinstance(schema, dict):
            return schema  # true or false; if it is something else, the library says so
        if depth > MAX_DEPTH or self._schemas > MAX_SCHEMAS:
            self.left_out = True
            return True
        made: JsonObject = {}
        for keyword, value in self._modern(schema).items():
            if not self._loosen or keyword not in TURNING:
                self._keyword(made, keyword, value, (*path, keyword), depth + 1)
        if self._loosen:
            _loosen(made)
        if made.get("additionalProperties") is False:
            made.setdefault("properties", {})  # the library then names the properties that are too many
        return _with_null(made) if schema.get("nullable") is True else made

    def _modern(self, schema: JsonObject) -> JsonObject:
        """The keywords as newer drafts write them."""
        made = dict(schema)
        if self._draft == NEWEST and isinstance(made.get("items"), list):
            made["prefixItems"], made["items"] = made["items"], made.pop("additionalItems", True)
            if not made["prefixItems"]:
                del made["prefixItems"]
        for limit in ("Minimum", "Maximum"):
            if isinstance(made.get(f"exclusive{limit}"), bool):
                exclusive = made.pop(f"exclusive{limit}")
                if exclusive and limit.lower() in made:
                    made[f"exclusive{limit}"] = made.pop(limit.lower())
        kinds = made.get("type")
        if isinstance(kinds, str):
            made["type"] = kinds.lower()  # Gemini writes STRING
        elif isinstance(kinds, list):
            made["type"] = [str(kind).lower() for kind in kinds]
        return made

    def _keyword(self, made: JsonObject, keyword: str, value: Json, path: SchemaPath, depth: int) -> None:
        if keyword == "$ref":
            self._reference(made, value, path)
        elif keyword == "pattern":
            if self._can_search(value):
                made[keyword] = value
        elif keyword in LISTED and isinstance(value, list):
            made[keyword] = [self._node(one, (*path, i), depth) for i, one in enumerate(value)]
        elif keyword in NAMED and isinstance(value, dict):
            names = [n for n in value if keyword != "patternProperties" or self._can_search(n)]
            made[keyword] = {name: self._node(value[name], (*path, name), depth) for name in names}
        elif keyword in ONE | LISTED | NAMED:
            made[keyword] = self._node(value, path, depth)
        elif keyword in PLAIN:
            made[keyword] = value

    def _reference(self, made: JsonObject, ref: Json, path: SchemaPath) -> None:
        if not isinstance(ref, str):
            made["$ref"] = ref
        elif resolve(self._root, ref) is not None and (ref in self._names or len(self._names) < MAX_REFS):
            made["$ref"] = "#/$defs/" + self._names.setdefault(ref, f"ref{len(self._names)}")
        else:
            self.left_out = True
            why = f"there is nothing at {ref}" if ref.startswith("#") else f"{ref} is another document, and is not read"
            self.bad_refs.append(f"{pointer(path)}: {why}")

    def _can_search(self, pattern: Json) -> bool:
        self._searches += 1
        can = not isinstance(pattern, str) or (
            self._searches <= MAX_PATTERNS and self._patterns and is_pattern(pattern)
        )
        self.left_out = self.left_out or not can
        return can


def _loosen(made: JsonObject) -> None:
    if "oneOf" in made:
        made.setdefault("allOf", []).append({"anyOf": made.pop("oneOf")})
    if "patternProperties" in made:
        made.pop("additionalProperties", None)


def _with_null(made: JsonObject) -> JsonObject:
    """The same schema, and null fits too."""
    if made.keys() & SAME_VALUE or "const" in made or not isinstance(made.get("enum", []), list):
        return {"anyOf": [made, {"type": "null"}]}
    if "type" in made:
        kinds = made["type"] if isinstance(made["type"], list) else [made["type"]]
        made["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _draft_of(root: Json) -> str:
    """The draft that `$schema` names; 2020-12 if it names none, or one that we do not know."""
    draft = root.get("$schema") if isinstance(root, dict) else None
    return draft if isinstance(draft, str) and draft.rstrip("#").partition("://")[2] in DRAFTS else NEWEST


def _path_of(ref: str) -> SchemaPath:
    return tuple(ref.split("/")[1:])


def resolve(root: Json, ref: str) -> Json:
    """The schema that a reference within the root names; None if there is none."""
    if ref != "#" and not ref.startswith("#/"):
        return None  # another document, or an anchor
    found = root
    for step in ref[1:].split("/")[1:]:
        step = step.replace("%24", "$").replace("%25", "%").replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


# ---------------------------------------------------------------- the library


@lru_cache(1_024)
def is_pattern(pattern: str) -> bool:
    """Whether the engine that never backtracks can search for it."""
    try:
        compile_schema({"pattern": pattern[:MAX_PATTERN_CHARS]})
    except ValueError:
        return False
    return len(pattern) <= MAX_PATTERN_CHARS


def compile_schema(schema: JsonObject) -> "Validator":
    """Raises ValueError, of which ValidationError is a kind, if the library does not take the schema."""
    library = load_library()
    options = library.RegexOptions(size_limit=MAX_PATTERN_BYTES)
    validator: Validator = library.validator_for(schema, pattern_options=options, validate_formats=False, offline=True)
    return validator


def fits(validator: "Validator", value: Json) -> bool:
    try:
        return validator.is_valid(value)
    except ValueError:  # the value has text that is no Unicode
        return True


def find_error(validator: "Validator", value: Json) -> "ValidationError | None":
    """The first thing that is wrong. This takes much longer than to ask whether the value fits."""
    try:
        validator.validate(value)
    except load_library().ValidationError as error:
        found: ValidationError = error
        return found
    return None


def is_library_error(error: Exception) -> "TypeGuard[ValidationError]":
    return isinstance(error, load_library().ValidationError)


@lru_cache(1)
def load_library() -> ModuleType:
    import jsonschema_rs

    return jsonschema_rs
