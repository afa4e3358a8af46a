"""Checks that several vendors share: schemas, names, and the real type of a picture."""

import re
from collections.abc import Iterator
from typing import Any

from dragoman.passes.media import respell_base64, sniff

Complaints = list[str]


def objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def blocks(content: object) -> list[dict[str, Any]]:
    """Content as blocks; a string is one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def walk(schema: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in ("properties", "$defs", "definitions"):
        for name, inner in (schema.get(key) or {}).items():
            yield from walk(inner, (*path, key, name))
    for key in ("items", "additionalProperties", "not"):
        yield from walk(schema.get(key), (*path, key))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for i, inner in enumerate(schema.get(key) or ()):
            yield from walk(inner, (*path, key, str(i)))


def matches(pattern: str, text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(pattern, text) is not None


def repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def odd_base64(data: object) -> bool:
    """Whether base64 has the URL-safe alphabet or other letters, lacks its padding or holds white space."""
    return isinstance(data, str) and (respell_base64(data) != data or not matches(r"[A-Za-z0-9+/]*={0,2}", data))


def wrong_type(media_type: object, data: object) -> str | None:
    """The real type of base64 image data, if it is not the declared one."""
    found = sniff(data) if isinstance(data, str) else None
    return found if found and found.startswith("image/") and found != media_type else None
