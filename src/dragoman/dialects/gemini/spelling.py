"""Gemini generateContent: camelCase and snake_case, which the API accepts mixed in one body (CLIENTS 14).

We rename the keys that a decoder reads to camelCase in place. The renamed keys are remembered as spelling, as paths
from the value that has these extras: `["inlineData", "inlineData.mimeType"]`. All other keys stay unchanged.
"""

from typing import Any

from dragoman.dialects.gemini.words import NAME
from dragoman.fields import add_extras, listed, note_spelling
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Extras
from dragoman.notes import At, Notes

SNAKE_KEY = "~snake"

# fmt: off
_CAMEL = (
    "systemInstruction", "generationConfig", "toolConfig", "serviceTier", "generateContentRequest", "topP",
    "topK", "candidateCount", "maxOutputTokens", "stopSequences", "presencePenalty", "frequencyPenalty",
    "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "responseLogprobs",
    "thinkingConfig", "thinkingLevel", "thinkingBudget", "includeThoughts", "functionCallingConfig",
    "allowedFunctionNames", "functionDeclarations", "parametersJsonSchema", "inlineData", "fileData",
    "mimeType", "fileUri", "displayName", "functionCall", "functionResponse", "thoughtSignature",
    "mediaResolution",
)
# fmt: on


def snake(camel: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in camel)


SNAKE: dict[str, str] = {snake(camel): camel for camel in _CAMEL}


def to_camel(obj: JsonObject, holder: JsonObject | None = None, under: str = "") -> None:
    """Rename the known keys of one object. The holder, or else the object itself, remembers the renamed ones."""
    found = [key for key in obj if key in SNAKE and SNAKE[key] not in obj]
    if not found:
        return
    noted: list[str] = (obj if holder is None else holder).setdefault(SNAKE_KEY, [])
    for key in found:
        camel = SNAKE[key]
        obj[camel] = obj.pop(key)
        noted.append(under + camel)


def to_snake(body: JsonObject, own: JsonObject) -> None:
    """Write the keys back as the wire had them. Inner keys come first, while the outer keys are still in camelCase."""
    for path in reversed(listed(own, SNAKE_KEY)):
        *outer, key = path.split(".") if type(path) is str else ("",)
        holder: Any = body
        for step in outer:
            holder = holder.get(step) if type(holder) is dict else None
        if type(holder) is dict and key in holder:
            holder[snake(key)] = holder.pop(key)


def take_id(call: JsonObject, part: JsonObject) -> str | None:
    """Take the id if the wire has one. Else remember whether it was absent or empty."""
    if "id" not in call:
        note_spelling(part, "id", "absent")
        return None
    given = call["id"]
    if type(given) is str and given:
        del call["id"]
        return given
    note_spelling(part, "id", "unused")  # null or "" stays an extra
    return None


def write_extras(body: JsonObject, extras: Extras, at: At, notes: Notes, *nested: str) -> None:
    """Like `add_extras`, but extras of the nested objects are merged with what the encoder wrote there."""
    ours = {key: body[key] for key in nested if key in body}
    add_extras(body, extras, NAME, at, notes)
    own = extras.get(NAME)
    if own is None:
        return
    for key, value in ours.items():
        if body[key] is not value and type(value) is dict and type(body[key]) is dict:
            body[key] = join(value, body[key])
    if SNAKE_KEY in own:
        to_snake(body, own)


def join(ours: JsonObject, own: JsonObject) -> JsonObject:
    """Merge the encoder's keys with the wire's own. The wire's own win, unless they are null."""
    return ours | {key: value for key, value in own.items() if value is not None or key not in ours}
