"""Tools, as every dialect says them: its own as they came, functions, and freeform tools as it can."""

from collections.abc import Callable
from typing import TypeVar, assert_never

from dragoman.jsontypes import JsonObject
from dragoman.model.request import AnyTool, CustomTool, ServerTool, Tool
from dragoman.notes import At, Notes

T = TypeVar("T", bound=Tool | CustomTool)
Encode = Callable[[T, At, Notes], JsonObject]


def encode_any_tool(
    tool: AnyTool, dialect: str, function: Encode[Tool], freeform: Encode[CustomTool], at: At, notes: Notes
) -> JsonObject | None:
    """One tool by its kind; None for one that only another dialect's provider runs."""
    match tool:
        case Tool():
            return function(tool, at, notes)
        case CustomTool():
            return freeform(tool, at, notes)
        case ServerTool() if tool.dialect == dialect:
            return tool.body
        case ServerTool():
            notes.dropped(at, f"only {tool.dialect} has the tool {tool.body.get('type', tool.body.get('name'))}")
            return None
        case _:
            assert_never(tool)


def freeform_as_function(tool: CustomTool, dialect: str, at: At, notes: Notes) -> Tool:
    """A freeform tool as a function with one string (FIELD-CASES 39); the grammar is told to the model."""
    notes.altered(at, f"{dialect} has no freeform tools: said as a function with one string, input")
    description = tool.description or ""
    if tool.grammar is not None:
        description += f"\n\nThe input must match this {tool.syntax or 'grammar'} grammar:\n{tool.grammar}"
    return Tool(
        name=tool.name,
        description=description.strip(),
        parameters={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        extras=tool.extras,
    )
