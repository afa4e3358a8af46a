"""OpenAI Responses: namespaces, which no other dialect has.

Codex puts its tools into groups, with the newest models all of them: `{"type": "namespace", "name": "clock", "tools":
[{"name": "sleep", ...}]}`, and a call then says `"name": "sleep", "namespace": "clock"`. Elsewhere such a tool is
called `clock__sleep`. The namespace is spelling, `~namespace`, so that here it is what it was.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.dialects.openai_responses.words import NAME
from dragoman.fields import spelled
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Part, ToolCall, ToolResult
from dragoman.model.request import Request, ServerTool

JOINT = "__"
SPACE = "~namespace"


def flat_name(space: str, name: str) -> str:
    """What a tool of a namespace is called elsewhere. A function that was loaded late is its own namespace."""
    return name if space == name else f"{space}{JOINT}{name}"


def flatten_name(item: JsonObject) -> None:
    """Makes one name of the two an item has, and spelling of the namespace. A null namespace stays where it is."""
    space, name = item.get("namespace"), item.get("name")
    if type(space) is str and type(name) is str and space != name:
        del item["namespace"]
        item["name"], item[SPACE] = flat_name(space, name), space


def write_name(item: JsonObject, part: ToolCall | ToolResult) -> None:
    """The name of a call or a result, in its namespace."""
    name, space = part.name or "", spelled(part.extras, NAME, SPACE)
    if type(space) is str and (name == space or name.startswith(space + JOINT)):
        item["namespace"] = space
        name = name if name == space else name[len(space) + len(JOINT) :]
    item["name"] = name


def find_spaces(request: Request | None) -> dict[str, str]:
    """Name of a tool -> its namespace, for the tools of a request that have one."""
    if request is None:
        return {}
    return {
        tool.name: space
        for tool in request.tools or ()
        if not isinstance(tool, ServerTool) and type(space := spelled(tool.extras, NAME, SPACE)) is str
    }


def put_in_space(part: Part, spaces: Mapping[str, str]) -> Part:
    """A call as the client's own tools are called, whoever made it."""
    if not isinstance(part, ToolCall) or part.name not in spaces:
        return part
    own = part.extras.get(NAME, {})
    if SPACE in own or "namespace" in own:
        return part
    return replace(part, extras={**part.extras, NAME: {**own, SPACE: spaces[part.name]}})
