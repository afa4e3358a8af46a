"""Facts about a JSON Schema, and words for its description."""

from collections.abc import Iterator

from dragoman.jsontypes import JsonObject


def tell(description: object, told: list[str]) -> str:
    said = description if isinstance(description, str) else ""
    if not told:
        return said
    return f"{said} ({'; '.join(told)})".strip()


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
    """Whether following references can come back to where it began."""
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
