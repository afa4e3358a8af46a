"""Content of a server as canonical parts: tool results, resources and prompts.
https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result (read 2026-11-16)
https://modelcontextprotocol.io/specification/2025-11-25/server/resources (read 2026-11-16)

Objects of the mcp package are read by their attributes.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from mcp import Client, MCPError

from dragoman.jsontypes import JsonObject, dump_text
from dragoman.mcp.tool_listing import ListedTool, show_hidden
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.tools.results import make_failed_result, make_part_from_bytes

TEXT_MEDIA_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")
MAX_PAGES, MAX_ROWS = 20, 500
LIST_TOOL, READ_TOOL = "list_resources", "read_resource"
_URI_SCHEMA = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
RESOURCE_TOOLS = {
    LIST_TOOL: ListedTool(
        name=LIST_TOOL,
        description="Lists the resources of this server: their addresses, names and descriptions.",
        schema={"type": "object", "properties": {}},
    ),
    READ_TOOL: ListedTool(
        name=READ_TOOL, description="Reads a resource of this server by its address (uri).", schema=_URI_SCHEMA
    ),
}
_LIST_METHODS = {
    "resources": ("list_resources", "resources"),
    "templates": ("list_resource_templates", "resource_templates"),
    "prompts": ("list_prompts", "prompts"),
}


def read_tool_result(call: ToolCall, answer: Any) -> ToolResult:
    """`answer` is a CallToolResult of the mcp package."""
    parts = [part for block in answer.content or () for part in read_content(block)]
    structured = getattr(answer, "structured_content", None)
    if structured is not None and not any(isinstance(part, Text) for part in parts):
        parts.append(Text(text=dump_text(structured)))  # if there is text too, it says the same
    failed = True if getattr(answer, "is_error", False) else None
    return ToolResult(call_id=call.id, name=call.name, parts=tuple(parts) or (Text(text=""),), failed=failed)


def read_content(block: Any) -> list[Part]:
    kind = getattr(block, "type", "")
    match kind:
        case "text":
            return [Text(text=block.text)]
        case "image" | "audio":
            return [_decode_data(block.data, block.mime_type, f"{kind} {block.mime_type}")]
        case "resource_link":
            details = [str(part) for part in (block.title, block.description, block.mime_type) if part]
            return [Text(text=f"[{block.name}: {block.uri}{' - ' + ', '.join(details) if details else ''}]")]
        case "resource":
            return read_resource(block.resource)
        case _:
            return [Text(text=f"[content of an unknown kind: {str(kind)[:50]}]")]


def read_resource(resource: Any) -> list[Part]:
    uri, text = str(resource.uri), getattr(resource, "text", None)
    if text is not None:
        return [Text(text=f"[{uri}]\n{text}")]
    return [Text(text=f"[{uri}]"), _decode_data(resource.blob, resource.mime_type, uri)]


def _decode_data(data: str, media_type: str | None, label: str) -> Part:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(text=f"[{label}: unreadable, because it is not base64]")
    part = make_part_from_bytes(raw, media_type)
    if isinstance(part, Text) and media_type and not media_type.startswith(TEXT_MEDIA_TYPES):
        return Text(text=f"[{label}: {len(raw)} bytes of {media_type}]")
    return part


# ---------------------------------------------------------------- resources and prompts


async def make_resource_tools(
    client: Client, listed: Mapping[str, ListedTool], *, linked: bool
) -> dict[str, ListedTool]:
    """The tools to list and read resources, for a server that has resources or has sent a link to one. Many servers
    announce resources and have none. A tool of the server with the same name wins."""
    try:
        if not linked and not await list_all(client, "resources") and not await list_all(client, "templates"):
            return {}
    except MCPError:
        return {}  # the server announces resources but has none
    return {name: tool for name, tool in RESOURCE_TOOLS.items() if name not in listed}


def has_resource_link(answer: Any) -> bool:
    return any(getattr(block, "type", "") == "resource_link" for block in answer.content or ())


async def run_resource_tool(client: Client, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
    if tool == LIST_TOOL:
        rows = [*await list_all(client, "resources"), *await list_all(client, "templates")]
        text = "\n".join(describe_row(row) for row in rows) or "there are no resources"
        return ToolResult(call_id=call.id, name=call.name, parts=(Text(text=text),))
    uri = arguments.get("uri")
    if type(uri) is not str or not uri:
        return make_failed_result(call, f"{tool} was not called: uri must be a text")
    answer = await client.read_resource(uri)
    parts = tuple(part for resource in answer.contents for part in read_resource(resource))
    return ToolResult(call_id=call.id, name=call.name, parts=parts or (Text(text="the resource is empty"),))


async def list_all(client: Client, kind: str) -> list[Any]:
    """The rows of all pages, up to a limit. `kind`: resources, templates or prompts."""
    capabilities = client.server_capabilities
    if (capabilities.prompts if kind == "prompts" else capabilities.resources) is None:
        return []
    method, key = _LIST_METHODS[kind]
    rows: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await getattr(client, method)(cursor=cursor)
        rows.extend(getattr(page, key))
        if not page.next_cursor or page.next_cursor == cursor or len(rows) >= MAX_ROWS:
            break
        cursor = page.next_cursor
    return rows[:MAX_ROWS]


def describe_row(row: Any) -> str:
    """One line about a resource, a template or a prompt, with hidden characters made visible."""
    address = getattr(row, "uri", None) or getattr(row, "uri_template", None) or row.name
    details = [str(part) for part in (row.title or row.name, row.description, getattr(row, "mime_type", None)) if part]
    return show_hidden(" ".join(f"{address} - {', '.join(details)}".split()))


async def get_prompt_messages(client: Client, name: str, arguments: dict[str, str]) -> tuple[Message, ...]:
    """The messages of a prompt."""
    answer = await client.get_prompt(name, arguments)
    return tuple(
        Message(role="assistant" if message.role == "assistant" else "user", parts=tuple(read_content(message.content)))
        for message in answer.messages
    )
