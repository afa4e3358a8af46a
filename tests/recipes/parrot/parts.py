"""Parrot Chat: what a turn says and the tools in it, both ways."""

from dragoman.dialects._losses import add_rest, encode_each
from dragoman.dialects.parrot.words import NAME
from dragoman.fields import leftovers, take_each, take_flag_or_none, take_object_or_none, take_text, take_text_or_none
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Opaque, Part, Text, ToolCall, ToolResult
from dragoman.model.request import AnyTool, Tool
from dragoman.notes import At, Notes


def decode_part(block: JsonObject) -> Part:
    match block.pop("kind", None):
        case "words":
            return Text(text=take_text(block, "words"), extras=leftovers(block, NAME))
        case "fetch":
            call_id, name, arguments = (take_text(block, key) for key in ("id", "tool", "with"))
            return ToolCall(id=call_id, name=name, arguments=arguments, extras=leftovers(block, NAME))
        case "fetched":
            call_id, failed = take_text(block, "id"), take_flag_or_none(block, "failed")
            says = take_each(block, "says", decode_part)
            return ToolResult(call_id=call_id, parts=says, failed=failed, extras=leftovers(block, NAME))
        case kind:
            return Opaque(dialect=NAME, body={"kind": kind, **block})  # tomorrow's block: carried whole, not refused


def encode_part(part: Part, at: At, notes: Notes) -> JsonObject | None:
    block: JsonObject
    match part:
        case Text():
            block = {"kind": "words", "words": part.text}
        case ToolCall():
            block = {"kind": "fetch", "id": part.id, "tool": part.name, "with": part.arguments}
        case ToolResult():
            says = encode_each(part.parts, (at, "parts"), notes, encode_part)
            block = {"kind": "fetched", "id": part.call_id, "says": says}
            if part.failed is not None:
                block["failed"] = part.failed
        case Opaque() if part.dialect == NAME:
            return part.body
        case _:
            notes.dropped(at, f"{NAME} cannot say this")
            return None
    return add_rest(block, part, ("parts", "failed"), NAME, at, notes)


def decode_tool(tool: JsonObject) -> Tool:
    name, about, takes = take_text(tool, "name"), take_text_or_none(tool, "about"), take_object_or_none(tool, "takes")
    return Tool(name=name, description=about, parameters=takes, extras=leftovers(tool, NAME))


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    match tool:
        case Tool():
            body = {"name": tool.name, "about": tool.description, "takes": tool.parameters}
            body = {key: value for key, value in body.items() if value is not None}
            return add_rest(body, tool, ("description", "parameters"), NAME, at, notes)
        case _:
            notes.dropped(at, f"{NAME} fetches with functions only")
            return None
