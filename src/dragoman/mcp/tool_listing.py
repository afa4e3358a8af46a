"""Offer: a tool as its server says it, and what hides in its texts (T21)."""

import hashlib
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, dump_json, dump_text
from dragoman.model.request import Tool

# Zero-width, bidirectional controls, variation selectors and Unicode tags: a person sees nothing, a model reads them.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PROSE = ("description", "title", "$comment")  # of a schema: what may be shown in another spelling


class ListedTool(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None
    schema: JsonObject

    @property
    def digest(self) -> str:
        """Of all a model reads."""
        return hashlib.sha256(dump_json([self.name, self.description, _sorted(self.schema)])).hexdigest()

    @property
    def hides(self) -> bool:
        return has_hidden(self.name) or has_hidden(self.description or "") or has_hidden(dump_text(self.schema))

    def to_tool(self, name: str) -> Tool:
        return Tool(name=name, description=self.description, parameters=self.schema)

    def in_the_open(self) -> "ListedTool":
        """The same with its descriptions as they are, and not as they look."""
        if not self.hides:
            return self
        words = None if self.description is None else show_hidden(self.description)
        return replace(self, description=words, schema=_show_prose(self.schema))


def read_listed_tool(tool: Any) -> ListedTool:
    """`tool` is one of the mcp package's, read by its attributes alone."""
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    return ListedTool(name=tool.name, description=tool.description or tool.title, schema=schema or {"type": "object"})


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _show_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: show_hidden(item) if key in PROSE and isinstance(item, str) else _show_prose(item)
            for key, item in value.items()
        }
    return [_show_prose(item) for item in value] if isinstance(value, list) else value


def has_hidden(text: str) -> bool:
    return bool(_HIDDEN.search(text) or _CONTROL.search(text))


def show_hidden(text: str) -> str:
    """The same text with what hides in it made visible."""
    return _CONTROL.sub(_name, _HIDDEN.sub(_name, text))


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
