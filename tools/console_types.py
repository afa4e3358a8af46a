"""The types of the admin API for the console's scripts, made of the gateway's Structs: src/dragoman/console/types.js.

They are comments in the form of JSDoc. An editor that reads them knows what each call answers; a browser skips them.
"""

from typing import Any

import msgspec

from dragoman.gateway.routes.admin import api_types
from dragoman.gateway.routes.console import Session

HEAD = "// Made by `make docs` of the gateway's own types. Do not edit: change the Structs.\n"
WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def console_types() -> str:
    _, found = msgspec.json.schema_components([*api_types(), Session], ref_template="{name}")
    rows = [f"/** @typedef {{{write_type(row)}}} {name} */" for name, row in sorted(found.items())]
    return "\n".join([HEAD, *rows, "", "export {};", ""])


def write_type(row: Any) -> str:
    if not row:
        return "unknown"
    if "$ref" in row:
        return str(row["$ref"])
    if "anyOf" in row:
        return "|".join(dict.fromkeys(write_type(one) for one in row["anyOf"]))
    if "enum" in row:
        return "|".join(msgspec.json.encode(word).decode() for word in row["enum"])
    kind = row.get("type")
    if kind == "array":
        if "prefixItems" in row:
            return "[" + ", ".join(write_type(one) for one in row["prefixItems"]) + "]"
        inner = write_type(row.get("items"))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        return write_object(row)
    return WORDS.get(kind, "unknown")


def write_object(row: dict[str, Any]) -> str:
    if "properties" not in row:
        return f"Object<string, {write_type(row.get('additionalProperties'))}>"
    needed = row.get("required", ())
    fields = [
        f"{name}{'' if name in needed else '?'}: {write_type(field)}" for name, field in row["properties"].items()
    ]
    return "{" + ", ".join(fields) + "}"
