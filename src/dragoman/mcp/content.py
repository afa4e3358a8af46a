"""What a tool answered, every content type, as the parts of a ToolResult.
https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result (read 2026-11-16)
"""

import base64
import binascii
from typing import Any

from dragoman.jsontypes import dump_text
from dragoman.model.messages import Part, Text, ToolCall, ToolResult
from dragoman.tools.results import make_part_from_bytes

TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


def make_result(call: ToolCall, answer: Any) -> ToolResult:
    """`answer` is a CallToolResult of the mcp package, read by its attributes alone."""
    parts = [part for block in answer.content or () for part in read_block(block)]
    structured = getattr(answer, "structured_content", None)
    if structured is not None and not any(isinstance(part, Text) for part in parts):
        parts.append(Text(text=dump_text(structured)))  # where both are said, they say the same: one is enough
    failed = True if getattr(answer, "is_error", False) else None
    return ToolResult(call_id=call.id, name=call.name, parts=tuple(parts) or (Text(text=""),), failed=failed)


def read_block(block: Any) -> list[Part]:
    kind = getattr(block, "type", "")
    match kind:
        case "text":
            return [Text(text=block.text)]
        case "image" | "audio":
            return [_read_data(block.data, block.mime_type, f"{kind} {block.mime_type}")]
        case "resource_link":
            about = [str(part) for part in (block.title, block.description, block.mime_type) if part]
            return [Text(text=f"[{block.name}: {block.uri}{' - ' + ', '.join(about) if about else ''}]")]
        case "resource":
            return read_contents(block.resource)
        case _:
            return [Text(text=f"[content of a kind nobody here knows: {str(kind)[:50]}]")]


def read_contents(resource: Any) -> list[Part]:
    uri, text = str(resource.uri), getattr(resource, "text", None)
    if text is not None:
        return [Text(text=f"[{uri}]\n{text}")]
    return [Text(text=f"[{uri}]"), _read_data(resource.blob, resource.mime_type, uri)]


def _read_data(data: str, media_type: str | None, what: str) -> Part:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(text=f"[{what}: not base64, so nobody can read it]")
    part = make_part_from_bytes(raw, media_type)
    if isinstance(part, Text) and media_type and not media_type.startswith(TEXTUAL):
        return Text(text=f"[{what}: {len(raw)} bytes of {media_type}]")
    return part
