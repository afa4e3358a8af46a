"""Tools whose schema a vendor has written and whose calls the client runs: elsewhere they are plain functions.

Claude was trained on them, so Anthropic's wire names only their type. Another model must be told what they take; the
client runs the call either way, for it comes back under the same name and with the same arguments. Arguments as
documented for bash_20250124 and text_editor_20250728 (read 2026-11-16), and as in the SDK's BetaMemoryTool20250818.
"""

from msgspec import Struct

from dragoman.jsontypes import JsonObject
from dragoman.model.request import ServerTool, Tool


class ClientTool(Struct, frozen=True):
    name: str
    description: str
    parameters: JsonObject


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _object(properties: JsonObject, *required: str) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required)}


_EDITS: JsonObject = {
    "path": _text("The file or directory."),
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "view: the first and the last line, counted from 1; -1 is the end of the file.",
    },
    "file_text": _text("create: the content of the new file."),
    "old_str": _text("str_replace: the text to replace; it must stand in the file exactly once."),
    "new_str": _text("str_replace: the text to put in its place."),
    "insert_line": {"type": "integer", "description": "insert: the line to insert behind; 0 is the beginning."},
}


def _commands(*names: str) -> JsonObject:
    return {"type": "string", "enum": list(names)}


_BASH = ClientTool(
    name="bash",
    description="Run a command in a bash session that keeps its state between calls.",
    parameters=_object(
        {"command": _text("The command."), "restart": {"type": "boolean", "description": "Start the session anew."}}
    ),
)
_EDITOR = ClientTool(
    name="str_replace_based_edit_tool",
    description="View, create and edit text files.",
    parameters=_object(
        {
            "command": _commands("view", "create", "str_replace", "insert"),
            **_EDITS,
            "new_str": _text("str_replace: the text to put in its place; insert: the text to insert."),
        },
        "command",
        "path",
    ),
)
_MEMORY = ClientTool(
    name="memory",
    description="Notes in files under /memories: look there before you begin, write down what must not be forgotten.",
    parameters=_object(
        {
            "command": _commands("view", "create", "str_replace", "insert", "delete", "rename"),
            **_EDITS,
            "insert_text": _text("insert: the text to insert."),
            "old_path": _text("rename: the name it has."),
            "new_path": _text("rename: the name it gets."),
        },
        "command",
    ),
)

# By dialect and the type without its date: a new date changes a limit here and there, not the calls.
CLIENT_TOOLS: dict[tuple[str, str], ClientTool] = {
    ("anthropic", "bash"): _BASH,
    ("anthropic", "text_editor"): _EDITOR,
    ("anthropic", "memory"): _MEMORY,
}


def read_client_tool(tool: ServerTool) -> Tool | None:
    """The function this tool is, or None: its provider runs it itself, or nobody here knows what it takes."""
    kind = tool.body.get("type")
    known = CLIENT_TOOLS.get((tool.dialect, kind.rpartition("_")[0])) if isinstance(kind, str) else None
    if known is None:
        return None
    name = tool.body.get("name")
    return Tool(
        name=name if isinstance(name, str) else known.name,
        description=known.description,
        parameters=known.parameters,
    )
