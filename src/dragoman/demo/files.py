"""How the demo model reads a file: with whatever an agent's program offers for it.

A tool that reads (`Read`, `read_file`), else a shell (`{"cmd": "cat ..."}`), else a tool that runs code which can reach
a shell (Codex's `exec`). Only what such a tool demands is filled in: made-up options would make the call fail.
"""

import re
import shlex
from collections.abc import Sequence

from dragoman.demo.sampler import sample
from dragoman.jsontypes import Json, JsonObject, dump_text
from dragoman.model.request import CustomTool, Tool

_WISH = re.compile(r"\b(?:read|open|show|print|summari[sz]e|look (?:at|into)|what(?:'s| is) in)\b|읽|보여", re.I)
_READERS = re.compile(r"(?:^|_)(?:read|open|cat|view)(?:_|$)", re.I)
_PATHS = re.compile(r"^(?:absolute_?|file_?|target_?)*(?:path|file|filename|paths|files)$", re.I)
_COMMANDS = ("cmd", "command", "commands")
PATCH_BEGIN = "*** Begin Patch"
PATCH = f"{PATCH_BEGIN}\n*** Add File: demo.txt\n+hello\n*** End Patch\n"
_CODE = "tools.exec_command("  # how Codex tells its models to reach a shell


def wants_file(asked: str, values: Sequence[str]) -> str | None:
    """The path of the file that is to be read, if one is."""
    if not _WISH.search(asked):
        return None
    return next((value for value in values if re.search(r"^[~.]{0,2}/|\w\.\w{1,5}$", value) and " " not in value), None)


def read_with(offered: Sequence[Tool | CustomTool], path: str) -> tuple[Tool | CustomTool, str] | None:
    """The tool to read a file with, and its arguments."""
    for make in (_arguments_of_reader, _arguments_of_shell, _arguments_of_code):
        for tool in offered:
            arguments = make(tool, path)
            if arguments is not None:
                return tool, arguments
    return None


def patch_with(tool: Tool) -> str | None:
    """The arguments of a function that stands for a tool of free text which takes patches, told so in words."""
    if PATCH_BEGIN not in (tool.description or ""):
        return None
    strings = [key for key, schema in _properties(tool).items() if _kind(schema) == "string"]
    return dump_text({strings[0]: PATCH}) if len(strings) == len(_properties(tool)) == 1 else None


def _arguments_of_reader(tool: Tool | CustomTool, path: str) -> str | None:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[-.]", "_", tool.name)
    if isinstance(tool, CustomTool) or not _READERS.search(name) or "image" in name.lower():
        return None
    key = next((key for key in _properties(tool) if _PATHS.match(key)), None)
    return _fill(tool, key, path, [path]) if key is not None else None


def _arguments_of_shell(tool: Tool | CustomTool, path: str) -> str | None:
    if isinstance(tool, CustomTool):
        return None
    key = next((key for key in _COMMANDS if key in _properties(tool)), None)
    return _fill(tool, key, f"cat {shlex.quote(path)}", ["cat", path]) if key is not None else None


def _arguments_of_code(tool: Tool | CustomTool, path: str) -> str | None:
    if _CODE not in (tool.description or ""):
        return None
    command = dump_text({"cmd": f"cat {shlex.quote(path)}"})
    code = f"const r = await tools.exec_command({command});\ntext(r.output);\n"
    if isinstance(tool, CustomTool):
        return code
    key = next((key for key, schema in _properties(tool).items() if _kind(schema) == "string"), None)
    return _fill(tool, key, code, [code]) if key is not None else None


def _properties(tool: Tool) -> JsonObject:
    found = (tool.parameters or {}).get("properties")
    return found if type(found) is dict else {}


def _kind(schema: Json) -> Json:
    return schema.get("type") if isinstance(schema, dict) else None


def _fill(tool: Tool, key: str, text: str, items: list[str]) -> str:
    """What is demanded, and the one argument that matters."""
    properties = _properties(tool)
    demanded = (tool.parameters or {}).get("required")
    names = [name for name in (demanded if type(demanded) is list else []) if name in properties and name != key]
    made: JsonObject = {name: sample(properties[name]) for name in names}
    wanted: Json = [*items] if _kind(properties[key]) == "array" else text
    return dump_text({key: wanted, **made})
