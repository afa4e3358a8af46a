"""Gemini generateContent, as strict as Google's server, in its own words. Rules: protocols digest of November 2026."""

import re
from typing import Any

from dragoman.testing.checkers.shared import Complaints, matches, objects, repeated, walk

_TOP = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent", "labels", "serviceTier"}
    | {"store", "continuationToken", "modelArmorConfig", "outputConfig", "generationConfig", "model"}
)
_CONFIG = frozenset(
    {"temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "presencePenalty", "seed"}
    | {"frequencyPenalty", "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities"}
    | {"responseLogprobs", "logprobs", "mediaResolution", "speechConfig", "thinkingConfig", "imageConfig"}
    | {"audioTranscriptionConfig", "enableEnhancedCivicAnswers", "routingConfig", "modelConfig", "audioTimestamp"}
)
_SCHEMA = frozenset(
    {"type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties"}
    | {"required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf"}
    | {"propertyOrdering", "default", "minimum", "maximum"}
)
_PARTS = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse", "videoMetadata"}
)


_DATA = frozenset({"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"})


def _to_camel(value: Any) -> Any:
    """Google reads both spellings of a key (recorded). Keys inside arguments and schemas stay as they are."""
    if isinstance(value, list):
        return [_to_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        head, *rest = key.split("_")
        name = head + "".join(word.capitalize() for word in rest) if head else key
        found[name] = item if name in _DATA else _to_camel(item)
    return found


def check_gemini(body: dict[str, Any], model: str = "") -> Complaints:
    body = _to_camel(body)
    complaints: Complaints = [
        f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.' for key in body if key not in _TOP
    ]
    config = body.get("generationConfig") or {}
    complaints += [
        f"Unknown name \"{key}\" at 'generation_config': Cannot find field." for key in config if key not in _CONFIG
    ]
    contents = objects(body.get("contents"))
    if not contents:
        complaints.append("* GenerateContentRequest.contents: contents is not specified")
    complaints += _check_order(contents, model)
    for i, content in enumerate(contents):
        complaints += _check_content(content, i)
    if re.match(r"(models/)?gemini-[3-9]", model):
        complaints += _check_signatures(contents)
    if "responseSchema" in config and config.get("responseMimeType") in (None, "text/plain"):
        complaints.append("generation_config.response_schema: requires response_mime_type application/json")
    thinking = config.get("thinkingConfig") or {}
    if "thinkingLevel" in thinking and "thinkingBudget" in thinking:
        complaints.append("You can only set only one of thinking budget and thinking level.")
    if "gemma" in model and body.get("systemInstruction"):
        complaints.append(f"Developer instruction is not enabled for models/{model}")
    return complaints + _check_tools(body)


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(content.get("parts"))


def _count(content: dict[str, Any], key: str) -> int:
    return sum(key in part for part in _parts(content))


def _role(content: dict[str, Any]) -> object:
    """The role of a content. It may be missing ("can be left blank or unset", ai.google.dev/api/caching#Content, read
    2026-11-18)."""
    return content.get("role") or "user"


def _check_order(contents: list[dict[str, Any]], model: str) -> Complaints:
    complaints: Complaints = []
    old = re.search(r"gemini-[12]", model) is not None
    for i, content in enumerate(contents):
        role, before = _role(content), contents[i - 1] if i else {}
        if role not in ("user", "model"):
            complaints.append("Please use a valid role: user, model.")
        if _count(content, "functionCall") and (not i or _role(before) != "user"):
            complaints.append(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        answered, asked = _count(content, "functionResponse"), _count(before, "functionCall")
        if answered != asked and (answered or role == "user"):
            complaints.append(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        if answered and answered != len(_parts(content)) and not old:
            complaints.append("function response turn must hold only function responses")
    if contents and _role(contents[0]) != "user":
        complaints.append("Please ensure that multiturn requests begin with a user role.")
    last = contents[-1] if contents else {}
    if last.get("role") == "model":
        if _count(last, "functionCall"):
            complaints.append("Please ensure that function call turn is followed by a function response turn.")
        if not old:
            complaints.append("Please ensure that multiturn requests end with a user role or a function response.")
    return complaints


_REFUSED_PICTURES = ("image/gif", "image/bmp", "image/tiff")


def _check_content(content: dict[str, Any], i: int) -> Complaints:
    complaints: Complaints = []
    parts = _parts(content)
    if not parts:
        complaints.append(f"* GenerateContentRequest.contents[{i}].parts: contents.parts must not be empty.")
    for j, part in enumerate(parts):
        at = f"GenerateContentRequest.contents[{i}].parts[{j}]"
        if not part.keys() & _PARTS:
            complaints.append(f"* {at}.data: required oneof field 'data' must have one initialized field")
        kind = (part.get("inlineData") or {}).get("mimeType")
        if kind is not None and "/" not in str(kind):
            complaints.append(f"Unsupported MIME type: {kind}")
        if part.get("text") == "" and _role(content) == "user":  # recorded: a model's turn may hold one
            complaints.append(f"* {at}.text: must not be empty")
        kind = (part.get("inlineData") or {}).get("mimeType")
        if kind in _REFUSED_PICTURES:
            complaints.append(f"Unsupported MIME type: {kind}")
        response, call = part.get("functionResponse"), part.get("functionCall")
        if isinstance(response, dict):
            if not response.get("name"):
                complaints.append(f"* {at}.function_response.name: Name cannot be empty.")
            if not isinstance(response.get("response"), dict):
                complaints.append(f"Invalid value at '{at}.function_response.response' (Struct)")
        if isinstance(call, dict):
            if not isinstance(call.get("args", {}), dict):
                complaints.append(f"Invalid value at '{at}.function_call.args' (Struct)")
            if not matches(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", call.get("name")):
                complaints.append(f"* {at}.function_call.name: Invalid function name.")
    return complaints


def _check_signatures(contents: list[dict[str, Any]]) -> Complaints:
    """For each step of the current turn, which begins after the last message of the user."""
    user_turns = [i for i, c in enumerate(contents) if _role(c) == "user" and not _count(c, "functionResponse")]
    for content in contents[(user_turns[-1] if user_turns else 0) :]:
        calls = [part for part in _parts(content) if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"].get("name")
            return [f"Function call is missing a thought_signature in functionCall parts. Function call `{name}`"]
    return []


def _check_tools(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = []
    tools = body.get("tools")
    names: list[str] = []
    for tool in objects(tools):
        for function in objects(tool.get("functionDeclarations")):
            name = function.get("name")
            names.append(str(name))
            if not matches(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", name):
                complaints.append("Invalid function name. Must start with a letter or an underscore.")
            if "parameters" in function:
                complaints += check_schema(function["parameters"])
            schema = function.get("parametersJsonSchema")
            if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
                complaints.append("parameters_json_schema: schema must be of type object")
            for _, node in walk(schema):
                for key in node.get("properties") or {}:
                    if not matches(r"[A-Za-z_][A-Za-z0-9_]{0,63}", key):
                        complaints.append(
                            f"properties: parameter name {key} must match ^[A-Za-z_][A-Za-z0-9_]{{0,63}}$"
                        )
    return complaints + [f"Duplicate function declaration found: {name}" for name in repeated(names)]


def check_schema(schema: object) -> Complaints:
    """Google's own Schema message, as in `parameters` and `responseSchema`."""
    complaints: Complaints = []
    for path, node in walk(schema):
        at = "".join(f".{step}" for step in path)
        complaints += [
            f"Unknown name \"{key}\" at 'parameters{at}': Cannot find field." for key in node if key not in _SCHEMA
        ]
        kind = str(node.get("type", "")).lower()
        if isinstance(node.get("type"), list):
            complaints.append(f"Proto field is not repeating, cannot start list. (parameters{at}.type)")
        if kind == "array" and "items" not in node:
            complaints.append(f"* parameters{at}.items: missing field.")
        if kind == "object" and path and node.get("properties") == {}:  # recorded: at the root it is taken
            complaints.append(f"* parameters{at}.properties: should be non-empty for OBJECT type")
        if kind != "array" and "items" in node:
            complaints.append(f"* parameters{at}.items: field predicate failed: $type == Type.ARRAY")
        for name in node.get("required") or ():
            if name not in (node.get("properties") or {}):
                complaints.append(f"* parameters{at}.required[0]: property is not defined")
        for value in node.get("enum") or ():
            if not isinstance(value, str) or not value:
                complaints.append(f"* parameters{at}.enum[0]: cannot be empty (TYPE_STRING)")
        if kind == "string" and node.get("format") not in (None, "enum", "date-time"):
            complaints.append(f"* parameters{at}.format: only 'enum' and 'date-time' are supported for STRING type")
    return complaints
