"""Calls in dialects whose arguments are an object on the wire. For us they are the model's own JSON text."""

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, load_json
from dragoman.model.messages import ToolCall
from dragoman.notes import At, Notes

RAW = "_raw"  # where arguments that are no object are kept as text: never handed on as an empty call


def arguments_as_object(part: ToolCall, dialect: str, at: At, notes: Notes) -> JsonObject:
    """The arguments of a call as the object its dialect demands."""
    text = part.arguments
    if part.freeform:
        notes.altered((at, "freeform"), f"{dialect} has no freeform calls: said as a function's")
        notes.altered((at, "arguments"), "free text, said as the one argument input")
        return {"input": text}
    if not text:
        return {}  # a call without arguments, as many models write it
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
