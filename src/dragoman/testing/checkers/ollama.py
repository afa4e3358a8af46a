"""Ollama's /api/chat, as strict as its server. Rules: protocols digest (server source, August 2026)."""

from typing import Any

from dragoman.testing.checkers.shared import Complaints, objects, odd_base64

_KEEPS = frozenset({"type", "$defs", "items", "required", "properties", "description", "enum", "anyOf"})


def check_ollama(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = []
    if not body.get("model"):
        complaints.append("model is required")
    calls: list[str] = []
    for i, message in enumerate(objects(body.get("messages"))):
        role = str(message.get("role", "")).lower()
        if role not in ("system", "user", "assistant", "tool"):
            complaints.append(f"invalid role: {role}, must be one of [system, user, assistant, tool]")
        if not isinstance(message.get("content", ""), str):
            complaints.append(
                "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
            )
        for image in message.get("images") or ():
            if not isinstance(image, str) or odd_base64(image.replace("\r", "").replace("\n", "")):
                complaints.append("illegal base64 data at input byte 4")
        if role == "tool":
            if not calls:
                complaints.append(f"messages[{i}]: a tool message without a call")
            elif message.get("tool_name") not in (None, calls[0]):
                complaints.append(f"messages[{i}]: answers {message.get('tool_name')}, but {calls[0]} is next")
            calls = calls[1:]
            continue
        if calls:
            complaints.append(f"messages[{i}]: {len(calls)} calls have no result")
        calls = []
        for call in objects(message.get("tool_calls")):
            function = call.get("function") or {}
            calls.append(str(function.get("name")))
            if not isinstance(function.get("arguments"), dict):
                complaints.append("json: cannot unmarshal string into Go struct field .function.arguments of type map")
    if calls:
        complaints.append(f"{len(calls)} calls have no result")
    return complaints + _check_rest(body)


def _check_rest(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = []
    think = body.get("think")
    if think is not None and not isinstance(think, bool) and think not in ("low", "medium", "high", "max"):
        complaints.append(f"invalid think value: {think}")
    for tool in objects(body.get("tools")):
        function = tool.get("function") or {}
        if tool.get("type") != "function" or not function.get("name"):
            complaints.append("invalid tool")
        schema = function.get("parameters")
        if not isinstance(schema, dict):
            complaints.append("json: cannot unmarshal into Go struct field ToolFunction.parameters")
            continue
        lost = [key for key in schema if key not in _KEEPS]
        complaints += [f"parameters: {key} is dropped by the server without a word" for key in lost]
    if isinstance(body.get("format"), str) and body["format"] not in ("", "json"):
        complaints.append(f'invalid format: "{body["format"]}"; expected "json" or a JSON schema')
    return complaints
