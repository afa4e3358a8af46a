"""Resources and prompts of a server: two tools for the model, so that a link in a result is no dead end, and lists for
people. https://modelcontextprotocol.io/specification/2025-11-25/server/resources (read 2026-11-16)
"""

from collections.abc import Mapping
from typing import Any

from mcp import Client, MCPError

from dragoman.jsontypes import JsonObject
from dragoman.mcp.content import read_block, read_contents
from dragoman.mcp.tool_listing import ListedTool, show_hidden
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.tools.results import make_failed_result

MOST_PAGES, MOST_ROWS = 20, 500
LIST, READ = "list_resources", "read_resource"
_URI = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
TOOLS = {
    LIST: ListedTool(
        name=LIST,
        description="Lists the resources of this server: their addresses, names and descriptions.",
        schema={"type": "object", "properties": {}},
    ),
    READ: ListedTool(name=READ, description="Reads a resource of this server by its address (uri).", schema=_URI),
}
_LISTS = {
    "resources": ("list_resources", "resources"),
    "templates": ("list_resource_templates", "resource_templates"),
    "prompts": ("list_prompts", "prompts"),
}


async def offer_tools(client: Client, offers: Mapping[str, ListedTool], *, linked: bool) -> dict[str, ListedTool]:
    """For a server that has resources, or has sent a link to one. Many say they have some and have none. A tool of its
    own by that name goes first."""
    try:
        if not linked and not await list_all(client, "resources") and not await list_all(client, "templates"):
            return {}
    except MCPError:
        return {}  # it only says so
    return {name: offer for name, offer in TOOLS.items() if name not in offers}


def has_link(answer: Any) -> bool:
    return any(getattr(block, "type", "") == "resource_link" for block in answer.content or ())


async def run_tool(client: Client, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
    if tool == LIST:
        rows = [*await list_all(client, "resources"), *await list_all(client, "templates")]
        text = "\n".join(write_row(row) for row in rows) or "there are none"
        return ToolResult(call_id=call.id, name=call.name, parts=(Text(text=text),))
    uri = arguments.get("uri")
    if type(uri) is not str or not uri:
        return make_failed_result(call, f"{tool} was not called: uri: expected text")
    answer = await client.read_resource(uri)
    parts = tuple(part for one in answer.contents for part in read_contents(one))
    return ToolResult(call_id=call.id, name=call.name, parts=parts or (Text(text="it is empty"),))


async def list_all(client: Client, what: str) -> list[Any]:
    """All pages, within reason."""
    said = client.server_capabilities
    if (said.prompts if what == "prompts" else said.resources) is None:
        return []
    ask, key = _LISTS[what]
    rows: list[Any] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await getattr(client, ask)(cursor=cursor)
        rows.extend(getattr(page, key))
        if not page.next_cursor or page.next_cursor == cursor or len(rows) >= MOST_ROWS:
            break
        cursor = page.next_cursor
    return rows[:MOST_ROWS]


def write_row(row: Any) -> str:
    """One line, with whatever hides in it made visible."""
    where = getattr(row, "uri", None) or getattr(row, "uri_template", None) or row.name
    about = [str(part) for part in (row.title or row.name, row.description, getattr(row, "mime_type", None)) if part]
    return show_hidden(" ".join(f"{where} - {', '.join(about)}".split()))


async def write_prompt(client: Client, name: str, arguments: dict[str, str]) -> tuple[Message, ...]:
    """The messages a prompt of the server stands for."""
    answer = await client.get_prompt(name, arguments)
    return tuple(
        Message(role="assistant" if one.role == "assistant" else "user", parts=tuple(read_block(one.content)))
        for one in answer.messages
    )
