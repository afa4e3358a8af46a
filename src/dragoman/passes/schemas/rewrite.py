"""Rewrites one JSON Schema in the schema language of a target.

A keyword that the target lacks is rewritten, put into the description, or left out with a note.
"""

from typing import Any

from msgspec import Struct

from dragoman.jsontypes import JsonObject, SchemaPath, dump_json, dump_text
from dragoman.passes.rename import alias_of, is_legal
from dragoman.passes.schemas.targets import (
    ARRAY,
    META,
    NOTES,
    NUMBER,
    OBJECT,
    REFS,
    STRING,
    UNIONS,
    SchemaTarget,
    is_null,
    is_recursive,
    json_type,
    may_be,
    object_in,
    required_by,
    tell,
    type_of_enum,
)

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
UNROLLED = 2  # how often a schema that contains itself is written out
BUDGET = 4_000  # nodes of one written-out schema: references can multiply without end

Lost = tuple[SchemaPath, str, bool]  # where in the schema, why, and whether it is gone (or only reworded)


class Adapted(Struct, frozen=True):
    schema: JsonObject | None  # None: say nothing
    lost: tuple[Lost, ...] = ()
    strict: bool = True  # the schema keeps what strict promises in its language
    names: dict[str, str] = {}  # properties that had to be renamed: the target's word -> the schema's own
    written_out: int = 0  # nodes that stand where references stood


class Rewriter:
    def __init__(self, root: JsonObject, language: SchemaTarget, *, write_out: bool = True) -> None:
        self.root, self.language = root, language
        self.write_out = write_out  # False: references are cut off where the target has none
        self.written_out = 0
        self.lost: list[Lost] = []
        self.strict = True
        self.nodes = 0
        self.names: dict[str, str] = {}

    def run(self, root: str) -> Adapted:
        schema = dict(self.root)
        if root == "tool":
            schema = self._object_root(schema)
            if schema.get("properties") in (None, {}) and self._says_nothing(schema):
                return self._empty(schema)
        adapted = self.node(schema, (), (), 0)
        if root == "tool" and "properties" not in adapted and self.language.empty != "bare":
            adapted["properties"] = {}
        if root == "tool" and not adapted.get("properties") and self._says_nothing(adapted):
            return self._empty(adapted)
        if self.language.all_required and adapted.get("type") != "object":
            self.strict = False  # "schema must be a JSON Schema of 'type: \"object\"'"
        if not self.language.recursion and is_recursive(self.root):
            self.strict = False
        return Adapted(adapted, tuple(self.lost), self.strict, self.names, self.written_out)

    # ------------------------------------------------------------ roots

    def _object_root(self, schema: JsonObject) -> JsonObject:
        """Parameters must be one object. Unions at the top are merged, and another type becomes `object`."""
        if "$ref" in schema:
            schema = {**self._resolve(schema["$ref"]), **{k: v for k, v in schema.items() if k != "$ref"}}
        for union in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(union)
            if isinstance(branches, list):
                schema = self._merge_root(schema, union, branches)
        kind = schema.get("type")
        if kind != "object":
            if kind is not None:
                self._lose((), f"parameters are an object, not {kind}", gone=False)
            schema = {"type": "object"} | {k: v for k, v in schema.items() if k != "type"}
        for key in ("enum", "const", "not", "if", "then", "else"):
            if key in schema:
                self._lose((key,), f"{key} at the top of parameters", gone=True)
                schema = {k: v for k, v in schema.items() if k != key}
        return schema

    def _merge_root(self, schema: JsonObject, union: str, branches: list[Any]) -> JsonObject:
        """`{anyOf: [{a}, {b}]}` as one object with a and b. Only what all branches require is required."""
        merged = {k: v for k, v in schema.items() if k != union}
        properties = dict(object_in(merged, "properties"))
        required = [required_by(merged)]
        alternatives = []
        for branch in branches:
            inner = self._resolve(branch["$ref"]) if isinstance(branch, dict) and "$ref" in branch else branch
            if not isinstance(inner, dict):
                continue
            for name, schema_of in object_in(inner, "properties").items():
                properties.setdefault(name, schema_of)
            alternatives.append(required_by(inner))
        if alternatives:
            required.append(set.union(*alternatives) if union == "allOf" else set.intersection(*alternatives))
        names = set.union(*required)
        if union != "allOf":
            ways = " or ".join("+".join(sorted(way)) for way in alternatives if way)
            merged["description"] = tell(merged.get("description"), [f"needs {ways}"] if ways else [])
            self._lose((union,), f"{union} at the top of parameters: merged into one object", gone=False)
        merged["properties"] = properties
        if names:
            merged["required"] = [name for name in properties if name in names]
        return merged

    def _says_nothing(self, schema: JsonObject) -> bool:
        return not any(key not in META and key not in ("type", "properties", "required") for key in schema) or (
            schema.get("additionalProperties") in (None, False, True, {})
            and not any(
                k not in META | NOTES | {"type", "properties", "required", "additionalProperties"} for k in schema
            )
        )

    def _empty(self, schema: JsonObject) -> Adapted:
        """No parameters, in the form each target demands (mission B5)."""
        if self.language.empty == "absent":
            if schema.get("additionalProperties") not in (None, False):
                self._lose(("additionalProperties",), "parameters that are not named", gone=True)
            return Adapted(None, tuple(self.lost))
        kept = {k: v for k, v in schema.items() if v is not None and k != "additionalProperties"}
        empty: JsonObject = {"type": "object"}
        if kept.get("properties") is not None or self.language.empty == "properties":
            empty["properties"] = {}
        empty |= {k: v for k, v in kept.items() if self._knows(k) and (k != "required" or v == [])}
        extra = schema.get("additionalProperties")
        if not self.language.open_objects:
            empty["additionalProperties"] = False
        elif extra is not None and self._knows("additionalProperties"):
            self._additional(empty, extra, ("additionalProperties",), (), 0)
        return Adapted(empty, tuple(self.lost))

    # ------------------------------------------------------------ one node

    def node(self, schema: object, path: SchemaPath, trail: tuple[str, ...], depth: int) -> JsonObject:
        self.nodes += 1
        if trail:
            self.written_out += 1
        if schema is True or schema == {}:
            return self._anything()
        if not isinstance(schema, dict):
            self._lose(path, "no schema", gone=schema is not False)
            return self._anything()
        if depth > self.language.depth or self.nodes > BUDGET:
            self._lose(path, "nested too deeply", gone=True)
            return self._anything()
        if not self.language.refs and "$ref" in schema:
            return self._inline(schema, path, trail, depth)
        if self.language.alone and "$ref" in schema and len(schema) > 1:
            self._lose(path, "the target takes nothing beside $ref", gone=False)
            schema = {"$ref": schema["$ref"]}
        hints: list[str] = []
        schema = self._normal(schema, path, hints)
        kinds = schema.get("type")
        if isinstance(kinds, list) and self.language.null != "type":
            return self._split(schema, kinds, path, trail, depth)
        made: JsonObject = {}
        for key, value in schema.items():
            self._keyword(made, schema, key, value, path, trail, depth, hints)
        self._complete(made, schema)
        if self.language.alone:
            _say_type_once(made)
        if hints:
            made["description"] = tell(made.get("description"), hints)
        return made

    def _keyword(
        self,
        made: JsonObject,
        schema: JsonObject,
        key: str,
        value: Any,
        path: SchemaPath,
        trail: tuple[str, ...],
        depth: int,
        hints: list[str],
    ) -> None:
        here = (*path, key)
        known = self._knows(key)
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, dict):
            if known and (self.language.refs or key == "properties"):
                made[key] = self._each(value, here, trail, depth, named=key == "properties")
            elif key == "patternProperties":
                self._reword(key, value, here, hints)
        elif key in ("items", "contains", "not", "propertyNames", "if", "then", "else") and known:
            made[key] = self._items(value, here, trail, depth)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and known and isinstance(value, list):
            made[key] = [self.node(v, (*here, i), trail, depth + 1) for i, v in enumerate(value)]
        elif key == "additionalProperties" and known:
            self._additional(made, value, here, trail, depth)
        elif key in ("required", "propertyOrdering") and known and isinstance(value, list):
            made[key] = [self._name(name) for name in value]
        elif key == "dependentRequired" and known and isinstance(value, dict):
            made[key] = {
                self._name(name): [self._name(n) for n in needed] if isinstance(needed, list) else needed
                for name, needed in value.items()
            }
        elif key == "format" and known and self.language.formats is not None:
            if value in self.language.formats.get(str(schema.get("type")), frozenset()):
                made[key] = value
            else:
                self._reword(key, value, here, hints)
        elif known and (self.language.limits or key not in NUMBER | STRING - {"format"} | {"minItems", "maxItems"}):
            made[key] = value
        elif key not in META and key not in REFS:
            self._reword(key, value, here, hints)

    def _items(self, value: object, here: SchemaPath, trail: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, list):  # a tuple, as drafts before 2020-12 wrote it
            self._lose(here, "one schema for all items", gone=False)
            return self.node(
                {"anyOf": value} if len(value) > 1 else (value[0] if value else {}), here, trail, depth + 1
            )
        if value is False and self.language.keywords is None:
            return False
        return self.node(value, here, trail, depth + 1)

    def _each(
        self, schemas: JsonObject, here: SchemaPath, trail: tuple[str, ...], depth: int, *, named: bool
    ) -> JsonObject:
        made = {}
        for name, schema in schemas.items():
            alias = self._name(name) if named else name
            made[alias] = self.node(schema, (*here, name), trail, depth + 1)
            if alias != name:
                self._lose((*here, name), f"called {alias} at the target, which refuses its name", gone=False)
                made[alias]["description"] = tell(made[alias].get("description"), [f"named {dump_text(name)}"])
        return made

    def _name(self, name: Any) -> Any:
        """The name of a property, legal at the target. It is the same in every schema and every turn."""
        rule = self.language.property_names
        if rule is None or not isinstance(name, str) or is_legal(name, rule):
            return name
        alias = alias_of(name, rule)
        self.names[alias] = name
        return alias

    def _additional(
        self, made: JsonObject, value: object, here: SchemaPath, trail: tuple[str, ...], depth: int
    ) -> None:
        if value is False:
            if self.language.closed_objects:
                made["additionalProperties"] = False
            else:
                self._lose(here, "the target refuses a closed object", gone=True)
        elif not self.language.open_objects:
            if value is not True and value != {}:
                self.strict = False
            self._lose(here, "strict objects are closed", gone=True)
        elif value is True:
            made["additionalProperties"] = True
        else:
            made["additionalProperties"] = self.node(value, here, trail, depth + 1)

    def _complete(self, made: JsonObject, schema: JsonObject) -> None:
        """Adds keywords that the target demands and the schema lacks."""
        language = self.language
        kind = made.get("type")
        is_object = kind == "object" or "properties" in made
        if is_object:
            made.setdefault("type", "object")
            required, properties = made.get("required"), made.get("properties")
            if isinstance(required, list):
                named = [r for r in required if isinstance(r, str) and r in object_in(made, "properties")]
                if named != required and (language.keywords is not None or language.property_names):
                    made["required"] = named
                if not made["required"] and required:
                    del made["required"]
            if language.empty == "absent" and properties == {}:
                del made["properties"]  # "should be non-empty for OBJECT type"
            if not language.open_objects:
                made["additionalProperties"] = False
            if language.all_required and set(object_in(made, "properties")) - required_by(made):
                self.strict = False  # "'required' is required to be supplied and to be an array including every key"
        elif "items" in made and kind is None:
            made["type"] = "array"
        if language.items and "items" not in made and "prefixItems" not in made and may_be(made, "array"):
            made["items"] = {"type": "string"} if language.empty == "absent" else {}
        if language.null == "nullable" and "type" not in made and "anyOf" not in made:
            made["type"] = type_of_enum(made) or "string"

    # ------------------------------------------------------------ forms

    def _normal(self, schema: JsonObject, path: SchemaPath, hints: list[str]) -> JsonObject:
        """The same schema in fewer forms: const, null unions, enums and exclusive limits as this language says them."""
        made = {k: v for k, v in schema.items() if v is not None or k in ("const", "default")}
        known = self.language.keywords
        if "const" in made and known is not None and "const" not in known:
            made.setdefault("enum", [made["const"]])
            del made["const"]
        if known is not None:
            self._merge_all_of(made, path)
            if "oneOf" in made and "oneOf" not in known and "anyOf" not in made:
                made["anyOf"] = made.pop("oneOf")
            self._exclusive(made, "exclusiveMinimum", "minimum", 1)
            self._exclusive(made, "exclusiveMaximum", "maximum", -1)
        kinds = made.get("type")
        if isinstance(kinds, str) and kinds not in TYPES:
            lower = kinds.lower()
            if lower in TYPES:
                made["type"] = lower  # Gemini's own schemas have types in capitals
            else:
                del made["type"]
                self._lose((*path, "type"), f"no type {kinds}", gone=True)
        elif isinstance(kinds, list):
            made["type"] = kinds[0] if len(kinds) == 1 else kinds
            if not kinds:
                del made["type"]
        self._null_union(made)
        if "enum" in made:
            self._enum(made, path, hints)
        return made

    def _merge_all_of(self, made: JsonObject, path: SchemaPath) -> None:
        branches = made.get("allOf")
        if not isinstance(branches, list) or "allOf" in (self.language.keywords or ()):
            return
        del made["allOf"]
        for branch in branches:
            if isinstance(branch, dict) and "$ref" in branch:
                branch = self._resolve(branch["$ref"])
            for key, value in branch.items() if isinstance(branch, dict) else ():
                if key == "properties" and isinstance(value, dict):
                    made[key] = {**value, **made.get(key, {})}
                elif key == "required" and isinstance(value, list):
                    made[key] = [*made.get(key, []), *(v for v in value if v not in made.get(key, []))]
                elif value is not None or key in ("const", "default"):
                    made.setdefault(key, value)
        self._lose((*path, "allOf"), "allOf merged", gone=False)

    def _exclusive(self, made: JsonObject, key: str, plain: str, step: int) -> None:
        known = self.language.keywords
        if key not in made or known is None or key in known or plain not in known:
            return
        limit = made[key]
        whole = may_be(made, "integer") and not may_be(made, "number")
        if limit is True and whole and isinstance(made.get(plain), int):  # draft 4
            made[plain] += step
            del made[key]
        elif type(limit) is int and whole and plain not in made:
            made[plain] = limit + step
            del made[key]

    def _null_union(self, made: JsonObject) -> None:
        """`anyOf: [T, null]` as a nullable T, if the language has a keyword for that."""
        if self.language.null == "type":
            return
        branches = made.get("anyOf")
        if isinstance(branches, list):
            others = [b for b in branches if not is_null(b)]
            if len(others) < len(branches) and self.language.null == "nullable":
                made["nullable"] = True
                del made["anyOf"]
                if len(others) == 1 and isinstance(others[0], dict):
                    made.update({k: v for k, v in others[0].items() if k not in made or k == "type"})
                elif others:
                    made["anyOf"] = others
        kinds = made.get("type")
        if isinstance(kinds, list) and "null" in kinds:
            left = [kind for kind in kinds if kind != "null"]
            made["nullable"] = True
            if not left:
                del made["type"]
            else:
                made["type"] = left[0] if len(left) == 1 else left
        elif kinds == "null":
            made["type"] = "string"
            made["nullable"] = True

    def _enum(self, made: JsonObject, path: SchemaPath, hints: list[str]) -> None:
        values = made["enum"]
        if not isinstance(values, list) or not values:
            del made["enum"]
            self._lose((*path, "enum"), "an enum without values", gone=isinstance(values, list) and not values)
            return
        found: dict[tuple[type, bytes], Any] = {}
        for value in values:
            found.setdefault((type(value), dump_json(value)), value)
        unique = list(found.values())
        if len(unique) < len(values):
            made["enum"] = unique
        if None in unique and not self.language.null_in_enum:
            made["enum"] = unique = [value for value in unique if value is not None]
            if self.language.null == "nullable":
                made["nullable"] = True
            else:
                hints.append("or null")
                self._lose((*path, "enum"), "null among the values", gone=False)
        if not self.language.strings_only:
            if not unique:
                del made["enum"]
            return
        words = [value for value in unique if isinstance(value, str) and value]
        if len(words) < len(unique) or made.get("type") not in (None, "string"):
            self._lose((*path, "enum"), "values that the target cannot list: put into the description", gone=False)
            hints.append(f"one of: {', '.join(dump_text(v) for v in unique)}")
            made["enum"] = words if words and made.get("type") in (None, "string") and "" in unique else None
        if not made["enum"]:
            del made["enum"]
            made.setdefault("type", type_of_enum({"enum": unique}) or "string")
        else:
            made.setdefault("type", "string")

    def _split(
        self,
        schema: JsonObject,
        kinds: list[Any],
        path: SchemaPath,
        trail: tuple[str, ...],
        depth: int,
    ) -> JsonObject:
        """`type: [array, string]` as a union in which each branch has the keywords of its type and no others."""
        shared = {k: v for k, v in schema.items() if k in NOTES or k in ("nullable", "anyOf")}
        branches = []
        for kind in kinds:
            owned = {"array": ARRAY, "object": OBJECT, "string": STRING, "number": NUMBER, "integer": NUMBER}
            branch: JsonObject = {"type": kind}
            branch |= {k: v for k, v in schema.items() if k in owned.get(kind, frozenset())}
            if "enum" in schema:
                fitting = [v for v in schema["enum"] if json_type(v) == kind]
                if not fitting:
                    continue
                branch["enum"] = fitting
            branches.append(branch)
        self._lose((*path, "type"), "several types: said as a union", gone=False)
        if len(branches) == 1:
            return self.node({**shared, **branches[0]}, path, trail, depth)
        shared["anyOf"] = branches
        return self.node(shared, path, trail, depth)

    # ------------------------------------------------------------ references

    def _inline(self, schema: JsonObject, path: SchemaPath, trail: tuple[str, ...], depth: int) -> JsonObject:
        ref = schema["$ref"]
        beside = {k: v for k, v in schema.items() if k != "$ref"}
        if not isinstance(ref, str) or trail.count(ref) >= UNROLLED or not self.write_out:
            why = "a schema that contains itself" if self.write_out else "too many references in all these tools"
            self._lose(path, f"{why}: cut off", gone=False)
            made = {"type": "object"} if self.language.null == "nullable" or "type" not in beside else {}
            return made | {k: v for k, v in beside.items() if k == "description"}
        target = self._resolve(ref)
        if not target:
            self._lose(path, f"refers to {ref}, which is not there", gone=True)
        return self.node({**target, **beside}, path, (*trail, ref), depth + 1)

    def _resolve(self, ref: object, hops: int = 0) -> JsonObject:
        """The schema that a local reference names: any JSON pointer into the root."""
        if not isinstance(ref, str) or not ref.startswith("#") or hops > 8:
            return {}
        found: Any = self.root
        for step in ref[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~").replace("%24", "$")
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return {}
        if isinstance(found, dict) and set(found) == {"$ref"}:
            return self._resolve(found["$ref"], hops + 1)
        return found if isinstance(found, dict) else {}

    # ------------------------------------------------------------ words

    def _knows(self, key: str) -> bool:
        return self.language.keywords is None or key in self.language.keywords

    def _anything(self) -> JsonObject:
        return {"type": "string"} if self.language.null == "nullable" else {}

    def _reword(self, key: str, value: object, here: SchemaPath, hints: list[str]) -> None:
        """Puts a keyword that the language lacks into the description, if it restricts values, and makes a note."""
        if key in ("title", "examples", "example", "deprecated", "readOnly", "writeOnly") or value in (None, {}, []):
            self._lose(here, f"the target's schemas have no {key}", gone=True)
            return
        text = dump_text(value)
        if key in UNIONS or len(text) > 300:
            self._lose(here, f"the target's schemas have no {key}", gone=True)
            return
        hints.append(f"{key}: {text}")
        self._lose(here, f"the target's schemas have no {key}: put into the description", gone=False)

    def _lose(self, path: SchemaPath, why: str, *, gone: bool) -> None:
        self.lost.append((path, why, gone))


def _say_type_once(made: JsonObject) -> None:
    """The type of a union in those of its branches that say none, and that of values beside them."""
    typed = ("type", "$ref", "anyOf")
    if "anyOf" in made and "type" in made:
        kind = made.pop("type")
        made["anyOf"] = [b if any(key in b for key in typed) else {"type": kind, **b} for b in made["anyOf"]]
    kind = json_type(made["const"]) if "const" in made else type_of_enum(made) if "enum" in made else None
    if kind is not None and not any(key in made for key in typed):
        made["type"] = kind
