"""OpenAI Responses: results of tools, both ways. There is no flag for failure, so we write the mark `[ERROR] `."""

from msgspec.structs import replace

from dragoman.dialects._tools import FAILED, is_plain, mark_failed, unmark_failed
from dragoman.dialects.openai_responses.parts import decode_content, encode_input, is_content
from dragoman.dialects.openai_responses.tools import flatten_name, write_name
from dragoman.dialects.openai_responses.words import NAME, RESULTS
from dragoman.fields import add_extras, leftovers, note_spelling, spelled, take_text, take_text_or_none
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Part, Text, ToolResult
from dragoman.notes import At, Notes


def is_result(item: JsonObject) -> bool:
    """Whether an item is a result that we can read. Without the optional `call_id` it cannot be paired."""
    kind, output = item.get("type"), item.get("output")
    return (
        type(kind) is str
        and kind in RESULTS
        and type(item.get("call_id")) is str
        and (type(output) is str or (type(output) is list and all(map(is_content, output))))
    )


def decode_result(item: JsonObject) -> ToolResult:
    freeform = RESULTS[item.pop("type")]
    output = item.pop("output")
    failed: bool | None = None
    parts: tuple[Part, ...]
    if type(output) is str:
        text = unmark_failed(output)
        if text is not None:
            failed, output = True, text
        parts = (Text(text=output),) if output else ()
    else:
        parts = decode_content(output, "output", "input_text")
        failed, parts = _unmark(parts)
        if not parts or (len(parts) == 1 and is_plain(parts[0])):
            note_spelling(item, "output", "list")
    if not freeform:
        flatten_name(item)
    return ToolResult(
        call_id=take_text(item, "call_id"),
        parts=parts,
        name=None if freeform else take_text_or_none(item, "name"),
        failed=failed,
        freeform=freeform,
        extras=leftovers(item, NAME),
    )


def _unmark(parts: tuple[Part, ...]) -> tuple[bool | None, tuple[Part, ...]]:
    first = parts[0] if parts else None
    text = unmark_failed(first.text) if isinstance(first, Text) else None
    if text is None or not isinstance(first, Text):
        return None, parts
    return True, (replace(first, text=text), *parts[1:]) if text else parts[1:]


def encode_result(part: ToolResult, at: At, notes: Notes) -> JsonObject:
    kind = "custom_tool_call_output" if part.freeform else "function_call_output"
    item: JsonObject = {"type": kind, "call_id": part.call_id, "output": _encode_output(part, at, notes)}
    if part.name is not None:
        if part.freeform:
            notes.dropped((at, "name"), "responses names only the results of functions")
        else:
            write_name(item, part)
    if part.cache is not None:
        notes.dropped((at, "cache"), "responses has no cache marks on results")
    if part.extras:
        add_extras(item, part.extras, NAME, at, notes)
    return item


def _encode_output(part: ToolResult, at: At, notes: Notes) -> str | list[JsonObject]:
    parts, failed = part.parts, part.failed is True
    if not failed and parts and isinstance(parts[0], Text) and unmark_failed(parts[0].text) is not None:
        notes.altered(at, "its text begins with our mark for failed results, so it will be read as one")
    if spelled(part.extras, NAME, "~output") != "list":
        if not parts:
            return FAILED if failed else ""
        if len(parts) == 1:
            (only,) = parts
            if isinstance(only, Text) and is_plain(only) and only.text:
                return mark_failed(only.text) if failed else only.text
    # An image's `detail` is required in messages and in results of custom tools, but not in results of functions.
    blocks = encode_input(enumerate(parts), (at, "parts"), notes, demand_detail=part.freeform)
    if parts and not blocks:
        notes.dropped((at, "parts"), "responses has no form for any part of it")
        return FAILED if failed else ""
    if failed:
        first = blocks[0] if blocks else {}
        if first.get("type") == "input_text" and first["text"] and parts and isinstance(parts[0], Text):
            first["text"] = mark_failed(first["text"])
        else:
            blocks.insert(0, {"type": "input_text", "text": FAILED})
    return blocks
