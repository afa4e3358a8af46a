"""A foreign JSON Schema reduced to the keywords that can be checked, and compiled with `jsonschema-rs`.

This is the only module that imports `jsonschema_rs`, and it does so on first use: a plain install converts without it.

A keyword that cannot be checked is left out: a reference to another document, a pattern that needs backtracking, a
value of the wrong type. Then the schema allows more than it says. A keyword that turns that around (`not`, `if`,
`oneOf` ...) would refuse values that fit, so those keywords are left out or loosened too.

The keywords are those of draft 2020-12, or of the draft from 6 on that `$schema` names. Old ways to write a schema are
understood too: OpenAPI's `nullable`, types in capitals, and `exclusiveMinimum` and `items` as draft 4 has them.
"""

from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError, pointer
from dragoman.jsontypes import Json, JsonObject, dump_json, kind_of, load_json

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MOST_SCHEMAS = 20_000  # schemas within one schema
MOST_REFS = 500  # different references
MOST_PATTERNS = 50
DEEPEST = 60  # schemas within schemas
LONGEST_REMEMBERED = 200  # bytes of a keyword's value
LARGEST_PATTERN = 300_000  # bytes of a compiled pattern: `^.{1,255}$` needs 260,000

# Keywords that hold one schema, a list of schemas, or schemas by name.
ONE = {"not", "if", "then", "else", "items", "additionalItems", "contains", "propertyNames"}
ONE |= {"additionalProperties", "unevaluatedItems", "unevaluatedProperties"}
LISTED = {"allOf", "anyOf", "oneOf", "prefixItems"}
NAMED = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
# Of those, the keywords whose schemas apply to the same value, not to a part of it.
SAME_VALUE = {"$ref", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}
LIMITS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
COUNTS |= {"minContains", "maxContains"}
PLAIN = LIMITS | COUNTS | {"type", "enum", "const", "required", "dependentRequired", "pattern", "uniqueItems"}
# Keywords that refuse more when a schema in them allows more.
TURNING = {"not", "if", "then", "else", "contains", "minContains", "maxContains"}
TURNING |= {"unevaluatedItems", "unevaluatedProperties"}

EXPECTED = {
    "type": "one of string, number, integer, boolean, object, array, null",
    "required": "a list of names",
    "enum": "a list",
    "pattern": "a string",
    "uniqueItems": "true or false",
    **dict.fromkeys(LIMITS, "a number"),
    **dict.fromkeys(COUNTS, "a whole number"),
}

DRAFTS = {f"json-schema.org/{draft}/schema" for draft in ("draft-06", "draft-07", "draft/2019-09", "draft/2020-12")}
NEWEST = "https://json-schema.org/draft/2020-12/schema"

Path = tuple[str | int, ...]


def clean(schema: Json, root: Json = None, *, patterns: bool = True) -> "Cleaner":
    """The schema as far as it can be checked. References are to the root; without one, to the schema itself."""
    root = schema if root is None else root
    cleaner = Cleaner(root, patterns=patterns, complete=True)
    cleaner.read(schema)
    if cleaner.left_out:
        faults = cleaner.faults
        cleaner = Cleaner(root, patterns=patterns, complete=False)
        cleaner.read(schema)
        cleaner.faults = faults
    return cleaner


class Cleaner:
    """Reads a schema once. `complete`: nothing is left out, so every keyword means what it says."""

    def __init__(self, root: Json, *, patterns: bool, complete: bool) -> None:
        self._root, self._patterns, self._complete = root, patterns, complete
        self.draft = _draft_of(root)
        self.schema: JsonObject = {}
        self.left_out = False
        self.faults: list[str] = []  # why this is no JSON Schema
        self._names: dict[str, str] = {}  # reference -> its name in the cleaned schema
        self._schemas = 0
        self._searches = 0

    def read(self, schema: Json) -> None:
        made = self._node(schema, (), 0)
        targets: JsonObject = {}
        while len(targets) < len(self._names):
            ref, name = list(self._names.items())[len(targets)]
            targets[name] = self._node(resolve(self._root, ref), tuple(ref.split("/")[1:]), 0)
        self.schema = {"$schema": self.draft, **made}
        if targets:
            self.schema["$defs"] = targets

    def _node(self, schema: Json, path: Path, depth: int) -> JsonObject:
        self._schemas += 1
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            self._fault(path, f"expected an object, found {kind_of(schema)}")
            return {}
        if depth > DEEPEST or self._schemas > MOST_SCHEMAS:
            self.left_out = True
            return {}
        made: JsonObject = {}
        for keyword, value in self._renamed(schema).items():
            if self._complete or keyword not in TURNING:
                self._keyword(made, keyword, value, (*path, keyword), depth + 1)
        if not self._complete:
            _loosen(made)
        if made.get("additionalProperties") is False:
            made.setdefault("properties", {})  # the library then names the properties that are too many
        return _with_null(made) if schema.get("nullable") is True else made

    def _renamed(self, schema: JsonObject) -> JsonObject:
        """The keywords as newer drafts write them."""
        made = dict(schema)
        if self.draft == NEWEST and isinstance(made.get("items"), list):
            made["prefixItems"], made["items"] = made["items"], made.pop("additionalItems", True)
        for limit in ("Minimum", "Maximum"):
            if isinstance(made.get(f"exclusive{limit}"), bool):
                exclusive = made.pop(f"exclusive{limit}")
                if exclusive and limit.lower() in made:
                    made[f"exclusive{limit}"] = made.pop(limit.lower())
        if "type" in made:
            kinds = made["type"]
            made["type"] = list({_lower(kind): 1 for kind in kinds}) if isinstance(kinds, list) else _lower(kinds)
        return made

    def _keyword(self, made: JsonObject, keyword: str, value: Json, path: Path, depth: int) -> None:
        if keyword == "$ref":
            self._reference(made, value, path)
        elif keyword in PLAIN:
            self._plain(made, keyword, value, path)
        elif keyword == "additionalProperties" and value is False:
            made[keyword] = False
        elif keyword in LISTED or (keyword == "items" and isinstance(value, list)):
            if isinstance(value, list) and value:
                made[keyword] = [self._node(one, (*path, i), depth) for i, one in enumerate(value)]
            elif value != []:
                self._fault(path, f"expected a list of schemas, found {kind_of(value)}")
        elif keyword in NAMED:
            self._named(made, keyword, value, path, depth)
        elif keyword in ONE:
            made[keyword] = self._node(value, path, depth)

    def _named(self, made: JsonObject, keyword: str, value: Json, path: Path, depth: int) -> None:
        if not isinstance(value, dict):
            self._fault(path, f"expected an object, found {kind_of(value)}")
            return
        schemas = made[keyword] = {}
        for name, schema in value.items():
            if keyword == "patternProperties" and not self._is_pattern(name):
                self.left_out = True
            elif keyword == "dependencies" and isinstance(schema, list):
                self._plain(schemas, name, schema, (*path, name), rule="required")
            else:
                schemas[name] = self._node(schema, (*path, name), depth)

    def _reference(self, made: JsonObject, ref: Json, path: Path) -> None:
        if not isinstance(ref, str):
            self._fault(path, f"expected a string, found {kind_of(ref)}")
        elif not ref.startswith("#"):
            self._fault(path, f"{ref} is another document: only references within the schema are followed")
        elif resolve(self._root, ref) is None:
            self._fault(path, f"there is nothing at {ref}")
        elif ref in self._names or len(self._names) < MOST_REFS:
            made["$ref"] = "#/$defs/" + self._names.setdefault(ref, f"ref{len(self._names)}")
        else:
            self.left_out = True

    def _plain(self, made: JsonObject, keyword: str, value: Json, path: Path, rule: str = "") -> None:
        if keyword == "pattern" and isinstance(value, str):
            if self._is_pattern(value):
                made[keyword] = value
            else:
                self.left_out = True
        elif is_sound(rule or keyword, value, self.draft):
            made[keyword] = value
        else:
            self._fault(path, f"expected {EXPECTED.get(rule or keyword, 'lists of names')}, found {_show(value)}")

    def _is_pattern(self, pattern: str) -> bool:
        """Whether the engine without backtracking can search for it."""
        self._searches += 1
        return self._patterns and self._searches <= MOST_PATTERNS and is_sound("pattern", pattern)

    def _fault(self, path: Path, words: str) -> None:
        self.left_out = True
        self.faults.append(f"{pointer(path) or '/'}: {words}")


def _loosen(made: JsonObject) -> None:
    if "oneOf" in made:
        made.setdefault("allOf", []).append({"anyOf": made.pop("oneOf")})
    if "patternProperties" in made:
        made.pop("additionalProperties", None)


def _with_null(made: JsonObject) -> JsonObject:
    """The same schema, and null fits too."""
    if made.keys() & SAME_VALUE or "const" in made:
        return {"anyOf": [made, {"type": "null"}]}
    if "type" in made:
        kinds = made["type"] if isinstance(made["type"], list) else [made["type"]]
        made["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _lower(kind: Json) -> str:
    return str(kind).lower()  # Gemini writes STRING


def _draft_of(root: Json) -> str:
    """The draft that `$schema` names; 2020-12 if it names none, or one that we do not know."""
    said = root.get("$schema") if isinstance(root, dict) else None
    known = isinstance(said, str) and said.rstrip("#").partition("://")[2] in DRAFTS
    return said if isinstance(said, str) and known else NEWEST


def resolve(root: Json, ref: str) -> Json:
    """What a reference within the root points at; None if there is nothing."""
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


def is_sound(keyword: str, value: Json, draft: str = NEWEST) -> bool:
    """Whether a keyword of a schema may have this value."""
    text = dump_json(value)
    if len(text) > LONGEST_REMEMBERED:
        return compile_schema({"$schema": draft, keyword: value}) is not None
    return _is_sound(keyword, text, draft)


@lru_cache(4_096)
def _is_sound(keyword: str, value: bytes, draft: str) -> bool:
    return compile_schema({"$schema": draft, keyword: load_json(value)}) is not None


def compile_schema(schema: JsonObject) -> "Validator | None":
    """None if the library does not take it. Patterns run in linear time; nothing is fetched."""
    library = load_library()
    try:
        validator: Validator = library.validator_for(
            schema,
            pattern_options=library.RegexOptions(size_limit=LARGEST_PATTERN),
            validate_formats=False,
            offline=True,
        )
    except ValueError:  # of which the library's own error is a kind
        return None
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


@lru_cache(1)
def load_library() -> ModuleType:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise DragomanError(
            "checking JSON by its schema needs jsonschema-rs: pip install 'dragoman[client]'"
        ) from error
    return jsonschema_rs


def _show(value: Json, longest: int = 60) -> str:
    text = dump_json(value).decode()
    return text if len(text) <= longest else f"{text[:longest]}…"
