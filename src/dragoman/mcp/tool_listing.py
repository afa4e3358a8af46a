"""ListedTool: a tool as its server lists it. Hidden characters in its texts are found and made visible. (T21)"""

import hashlib
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, dump_json, dump_text, sort_keys
from dragoman.model.request import Tool

# Zero-width characters, bidirectional controls, variation selectors, Unicode tags: invisible, but models read them.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PROSE_KEYS = ("description", "title", "$comment")  # keys of a schema whose texts may be changed


class ListedTool(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None
    schema: JsonObject

    @property
    def digest(self) -> str:
        """A hash of everything that the model reads."""
        return hashlib.sha256(dump_json([self.name, self.description, sort_keys(self.schema)])).hexdigest()

    @property
    def size_bytes(self) -> int:
        return len(dump_json([self.name, self.description, self.schema]))

    @property
    def has_hidden_characters(self) -> bool:
        return has_hidden(self.name) or has_hidden(self.description or "") or has_hidden(dump_text(self.schema))

    def to_tool(self, name: str) -> Tool:
        return Tool(name=name, description=self.description, parameters=self.schema)

    def show_hidden_characters(self) -> "ListedTool":
        """The same tool with the hidden characters in its descriptions made visible."""
        if not self.has_hidden_characters:
            return self
        description = None if self.description is None else show_hidden(self.description)
        return replace(self, description=description, schema=_show_hidden_in_prose(self.schema))


def read_listed_tool(tool: Any) -> ListedTool:
    """`tool` is an object of the mcp package. Only its attributes are used."""
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    return ListedTool(name=tool.name, description=tool.description or tool.title, schema=schema or {"type": "object"})


def _show_hidden_in_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: show_hidden(item) if key in PROSE_KEYS and isinstance(item, str) else _show_hidden_in_prose(item)
            for key, item in value.items()
        }
    return [_show_hidden_in_prose(item) for item in value] if isinstance(value, list) else value


def has_hidden(text: str) -> bool:
    return bool(_HIDDEN.search(text) or _CONTROL.search(text))


def show_hidden(text: str) -> str:
    """The text with its hidden characters written as escapes."""
    return _CONTROL.sub(_escape_character, _HIDDEN.sub(_escape_character, text))


def _escape_character(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
