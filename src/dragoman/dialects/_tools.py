"""Tools, calls and results: code that several dialects share."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, assert_never

from msgspec import Raw

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json, pack_json, unpack_json
from dragoman.model.messages import RAW, Message, Opaque, Part, Text, ToolCall, ToolResult
from dragoman.model.request import AnyTool, CustomTool, ServerTool, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.server_tools.tools import name_server_tool
from dragoman.passes.tool_lists import is_kept

T = TypeVar("T")
B = TypeVar("B", bound=Tool | CustomTool)
Encode = Callable[[B, At, Notes], JsonObject]


def encode_any_tool(
    tool: AnyTool, dialect: str, function: Encode[Tool], freeform: Encode[CustomTool], at: At, notes: Notes
) -> JsonObject | None:
    """Encode one tool by its kind. None for a server tool of another dialect."""
    match tool:
        case Tool():
            return function(tool, at, notes)
        case CustomTool():
            return freeform(tool, at, notes)
        case ServerTool() if tool.dialect == dialect:
            return tool.body
        case ServerTool():
            notes.dropped(at, f"only {tool.dialect} has the tool {name_server_tool(tool.body)}")
            return None
        case _:
            assert_never(tool)


MOST_LISTS = 50
EncodeTool: TypeAlias = Callable[[AnyTool, At, Notes], T | None]
_Key: TypeAlias = tuple[Callable[..., Any], int]  # an encoder, and the identity of a list of tools
_seen: dict[_Key, int] = {}  # with the length of the list
_written: dict[_Key, tuple[tuple[AnyTool, ...], list[Any]]] = {}  # for requests that are sent
_packed: dict[_Key, tuple[tuple[AnyTool, ...], bytes]] = {}  # for requests that a caller gets


def encode_each_tool(tools: tuple[AnyTool, ...], encode: EncodeTool[T], notes: Notes) -> list[T]:
    """Encode all tools that the dialect can say. A list that comes again as the same object, because an agent sends the
    same tools with every turn, is remembered if it has no notes. Where the result is sent at once, objects may be JSON
    already (`Raw`); where a caller gets it, it is a copy."""
    key = (encode, id(tools))
    if notes.sends:
        known = _written.get(key)
        if known is not None and known[0] is tools:  # fast path: tools again
            return list(known[1])
    elif notes.copies_tools:
        packed = _packed.get(key)
        if packed is not None and packed[0] is tools:  # fast path: tools again, copied
            return unpack_json(packed[1])  # type: ignore[no-any-return]
    before, at = len(notes), (ROOT, "tools")
    encoded = [encode(tool, (at, i), notes) for i, tool in enumerate(tools)]
    kept = [tool for tool in encoded if tool is not None]
    if (notes.sends or notes.copies_tools) and tools and len(notes) == before:
        _remember(key, tools, kept, copied=notes.copies_tools)
    return copy_json(kept) if notes.copies_tools else kept


def _remember(key: _Key, tools: tuple[AnyTool, ...], encoded: list[Any], *, copied: bool) -> None:
    """From the second time on: most lists never come again as the same object."""
    if _seen.get(key) != len(tools):
        if len(_seen) >= 10 * MOST_LISTS:
            _seen.clear()
        _seen[key] = len(tools)
        return
    if not is_kept(tools):
        return
    for table in (_written, _packed):
        if len(table) >= MOST_LISTS:
            table.clear()
    data = pack_json(encoded) if copied else None
    if data is not None:
        _packed[key] = (tools, data)
    elif not copied:
        _written[key] = (tools, [Raw(dump_json(one)) if type(one) is dict else one for one in encoded])


def freeform_as_function(tool: CustomTool, dialect: str, at: At, notes: Notes) -> Tool:
    """Write a freeform tool as a function with one string. The description tells the grammar (FIELD-CASES 39)."""
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


# ---------------------------------------------------------------- calls
#
# Some dialects write arguments as an object. Ours are the model's own JSON text.


def arguments_as_object(part: ToolCall, dialect: str, at: At, notes: Notes) -> JsonObject:
    """The arguments of a call as an object, for dialects that demand one."""
    text = part.arguments
    if part.freeform:
        notes.altered((at, "freeform"), f"{dialect} has no freeform calls: said as a function's")
        notes.altered((at, "arguments"), "free text, said as the one argument input")
        return {"input": text}
    if not text:
        return {}  # many models write a call without arguments like this
    try:
        value = load_json(text)
    except DecodeError:
        notes.altered((at, "arguments"), f"not valid JSON: kept as text under {RAW}")
        return {RAW: text}
    if type(value) is dict:
        return value
    if value is None:
        notes.altered((at, "arguments"), "no arguments: said as {}")
        return {}
    notes.altered((at, "arguments"), f"not an object: kept as text under {RAW}")
    return {RAW: text}


# ---------------------------------------------------------------- results

FAILED = "[ERROR] "  # marks a failed result in dialects without a flag for it (mission D9)


def mark_failed(text: str) -> str:
    return FAILED + text


def unmark_failed(text: str) -> str | None:
    """The text after the mark. None without the mark."""
    return text[len(FAILED) :] if text.startswith(FAILED) else None


def note_lost_names(messages: tuple[Message, ...], dialect: str, notes: Notes) -> None:
    """Note lost names, for dialects whose results have no name. A name that the call has too is not lost."""
    if not has_names(messages):  # fast path: results without names
        return
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        for j, part in enumerate(message.parts):
            if type(part) is ToolCall:
                names[part.id] = part.name
            elif type(part) is ToolResult and part.name is not None and part.name != names.get(part.call_id):
                if "~name" in part.extras.get(dialect, ()):
                    continue  # this dialect's own request had the name, so it is written
                at = ((((ROOT, "messages"), i), "parts"), j)
                notes.dropped((at, "name"), f"{dialect}'s results have no name, only the id of their call")


def has_names(messages: Iterable[Message]) -> bool:  # fast path: results without names
    """A fast check whether any result has a name."""
    for message in messages:
        for part in message.parts:
            if type(part) is ToolResult and part.name is not None:
                return True
    return False


# ---------------------------------------------------------------- parts


def is_plain(part: Part) -> bool:
    """Whether a part is only a text, so that a string can replace it."""
    return type(part) is Text and not (
        part.extras or part.cache or part.citations or part.seal or part.logprobs is not None
    )


def opaque_word(part: Opaque) -> str:
    """The type of another dialect's part, for a note."""
    word = part.body.get("type")
    return word if type(word) is str else "this part"
