"""OpenAI Chat Completions and its compatible servers, each as strict as it was seen, in its own words.

`server` names a kind of upstream/profiles.toml. Rules: protocols digests and FIELD-CASES appendix A, November 2026.
"""

import json
from itertools import pairwise
from typing import Any

from dragoman.testing.checkers.makers import check_maker
from dragoman.testing.checkers.shared import Complaints, matches, objects, odd_base64, repeated, walk, wrong_type

_NO_DEVELOPER = {"deepseek", "mistral", "fireworks", "moonshot", "groq", "xai", "lmstudio", "llamacpp"}
_ALTERNATING = {"mistral", "lmstudio", "llamacpp"}
_REFUSED: dict[str, tuple[str, ...]] = {
    "groq": ("logprobs", "top_logprobs", "logit_bias"),
    "cerebras": ("store",),
    "xai": ("presence_penalty", "frequency_penalty", "stop"),  # its reasoning models
    "fireworks": ("verbosity", "store", "prompt_cache_retention"),
    "mistral": (
        "max_completion_tokens",
        "logprobs",
        "metadata",
        "store",
        "user",
        "seed",
        "stream_options",
        "verbosity",
    ),
}
_OWN_PARTS: dict[str, tuple[str, ...]] = {
    "openrouter": ("video_url",),
    "sglang": ("video_url", "audio_url"),
    "mistral": ("thinking", "reference", "document_url"),
}
_OLLAMA = "ollama"
_FETCH_NOTHING = (_OLLAMA, "lmstudio")
_STRICT = frozenset(
    {"type", "enum", "const", "anyOf", "$ref", "$defs", "description", "title", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "properties", "required"}
    | {"items", "additionalProperties", "definitions", "$schema", "default"}
)


def check_openai_chat(body: dict[str, Any], server: str = "openai") -> Complaints:
    messages = objects(body.get("messages"))
    complaints: Complaints = []
    if not messages:
        complaints.append("[] is too short - 'messages'")
    complaints += _check_pairs(messages, server)
    for i, message in enumerate(messages):
        complaints += _check_message(message, i, server, str(body.get("model", "")))
    if server in _ALTERNATING:
        complaints += _check_order(messages, server)
    complaints += _check_tools(body, server)
    complaints += _check_parameters(body, server)
    if server == "deepseek":
        complaints += _check_deepseek(body, messages)
    if server == "litellm" and not body.get("tools") and any(message.get("tool_calls") for message in messages):
        complaints.append("Bedrock doesn't support tool calling without `tools=` param specified.")  # FIELD-CASES 66
    return complaints + check_maker(body, messages, server)


def _check_pairs(messages: list[dict[str, Any]], server: str) -> Complaints:
    complaints: Complaints = []
    pending: list[str] = []
    for i, message in enumerate(messages):
        if message.get("role") == "tool":
            call = message.get("tool_call_id")
            if call is None and server == "zai" and pending:  # it takes the next call's result so (recorded)
                del pending[0]
            elif call not in pending:
                complaints.append(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. ({i})"
                )
            else:
                pending.remove(call)
            continue
        if pending:
            complaints.append(_unanswered(pending))
        pending = [str(call.get("id")) for call in objects(message.get("tool_calls"))]
        if repeated(pending):
            complaints.append(f"messages.[{i}].tool_calls: duplicate ids {repeated(pending)}")
    return complaints + ([_unanswered(pending)] if pending else [])


def _unanswered(ids: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def _check_message(message: dict[str, Any], i: int, server: str, model: str = "") -> Complaints:
    role, content = message.get("role"), message.get("content")
    complaints: Complaints = []
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        complaints.append(
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool'"
        )
    if role in ("developer", "system") and server == "openai" and model.startswith(("o1-mini", "o1-preview")):
        complaints.append(f"Unsupported value: 'messages[{i}].role' does not support '{role}' with this model.")
    if role == "developer" and server in _NO_DEVELOPER:
        complaints.append("unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`")
    if (content == [] and not objects(message.get("tool_calls"))) or (content is None and role != "assistant"):
        complaints.append(f"Invalid value for 'content': expected a string, got null. (messages[{i}])")
    calls = objects(message.get("tool_calls"))
    if (
        role == "assistant"
        and content is None
        and not (calls or {"audio", "refusal", "function_call"} & message.keys())
    ):
        complaints.append(f"messages[{i}]: assistant message must have content or tool_calls")
    if message.get("tool_calls") is not None and not calls and server != "mistral":
        complaints.append(f"[] is too short - 'messages.{i}.tool_calls'")
    for call in calls:
        complaints += _check_call(call, i, server)
    for part in objects(content):
        complaints += _check_part(part, i, str(role), server)
    if server in ("groq", "mistral") and ({"reasoning_content", "reasoning"} & message.keys()):
        complaints.append(f"'messages.{i}' : for 'role:assistant' property 'reasoning_content' is unsupported")
    if server in ("openai", "azure") and "reasoning_content" in message:
        complaints.append(f"Unknown parameter: 'messages[{i}].reasoning_content'.")
    if server == "cerebras" and "reasoning_content" in message:
        complaints.append("body.messages.assistant.reasoning_content: property is unsupported")
    return complaints


def _check_call(call: dict[str, Any], i: int, server: str) -> Complaints:
    complaints: Complaints = []
    function = call.get("function") or call.get("custom") or {}
    if not matches(r"[a-zA-Z0-9_-]{1,64}", function.get("name")):
        complaints.append(f"Invalid 'messages[{i}].tool_calls[0].function.name': string does not match pattern")
    if len(str(call.get("id"))) > 64:
        complaints.append(f"Invalid 'messages[{i}].tool_calls[0].id': string too long")
    if server == "mistral" and not matches(r"[a-zA-Z0-9]{9}", call.get("id")):
        complaints.append(f"Tool call id was {call.get('id')} but must be a-z, A-Z, 0-9, with a length of 9.")
    if server == "moonshot" and not matches(r"[a-zA-Z].*", function.get("name")):
        complaints.append("Invalid request: function name is invalid, must start with a letter")
    return complaints


def _check_part(part: dict[str, Any], i: int, role: str, server: str) -> Complaints:
    kind = part.get("type")
    if role == "tool" and kind != "text":
        return [f"Invalid content type. image_url is only supported by certain models. (messages[{i}])"]
    if server == "deepseek" and kind != "text":
        return [f"unknown variant `{kind}`, expected `text`"]
    if kind in _OWN_PARTS.get(server, ()):
        return []
    if kind not in ("text", "image_url", "input_audio", "file", "refusal"):
        return [f"Invalid value: '{kind}'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', 'file'"]
    if kind == "image_url":
        url = str((part.get("image_url") or {}).get("url", ""))
        if server in _FETCH_NOTHING and not url.startswith("data:"):
            return ["invalid image input"]
        head, comma, data = url.partition(",")
        if comma and url.startswith("data:"):
            if odd_base64(data):
                return ["Invalid base64 image_url."]
            real = wrong_type(head[5:].split(";")[0], data)
            if real:
                return [f"You uploaded an unsupported image: it appears to be {real}"]
    return []


def _check_order(messages: list[dict[str, Any]], server: str) -> Complaints:
    complaints: Complaints = []
    roles = [str(message.get("role")) for message in messages]
    for i, role in enumerate(roles):
        if role == "system" and i:
            complaints.append("System message must be at the beginning.")
        if i and role == roles[i - 1] and role in ("user", "assistant"):
            complaints.append("After the optional system message, conversation roles must alternate user/assistant/...")
    if server == "mistral" and ("tool", "user") in pairwise(roles):
        complaints.append("Unexpected role 'user' after role 'tool'")  # code 3230
    if server == "mistral" and roles and roles[-1] == "assistant":
        complaints.append(
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        )
    return complaints


def _check_tools(body: dict[str, Any], server: str) -> Complaints:
    complaints: Complaints = []
    tools = objects(body.get("tools"))
    if body.get("tools") is not None and not tools:
        complaints.append("[] is too short - 'tools'")
    names: list[str] = []
    for tool in tools:
        if tool.get("type") not in ("function", "custom") and server == "openrouter":
            continue  # the server runs these tools itself
        function = tool.get("function") or tool.get("custom") or {}
        name = function.get("name")
        names.append(str(name))
        if not matches(r"[a-zA-Z0-9_-]{1,64}", name):
            complaints.append("Invalid 'tools[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'")
        if tool.get("type") == "custom" and server not in ("openai", "azure"):
            complaints.append("tools: unknown variant `custom`, expected `function`")
        if tool.get("type") == "function":
            complaints += check_parameters_schema(str(name), function.get("parameters"), function.get("strict"), server)
    complaints += [f"Tool names must be unique: {name}" for name in repeated(names)]
    if body.get("tool_choice") is not None and not tools and server != "mistral":
        complaints.append("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
    choice = body.get("tool_choice")
    if (
        isinstance(choice, dict)
        and choice.get("type") == "allowed_tools"
        and server not in ("openai", "azure", "openrouter")
    ):
        complaints.append("tool_choice: unknown variant `allowed_tools`, expected `function`")
    if server == "lmstudio" and isinstance(body.get("tool_choice"), dict):
        complaints.append("Invalid tool_choice type: 'object'. Supported string values: none, auto, required")
    return complaints


def check_parameters_schema(name: str, schema: object, strict: object, server: str = "openai") -> Complaints:
    head = f"Invalid schema for function '{name}': "
    if schema == {} and server == _OLLAMA:
        return []  # recorded
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return [head + "schema must be a JSON Schema of 'type: \"object\"'"]
    complaints: Complaints = []
    if "properties" not in schema:
        complaints.append(head + "In context=(), object schema missing properties.")
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        complaints.append(head + "must not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.")
    for path, node in walk(schema):
        kinds = node.get("type")
        if "array" in (kinds if isinstance(kinds, list) else [kinds]) and not {"items", "prefixItems"} & node.keys():
            complaints.append(head + f"In context={path}, array schema missing items.")
        if "type" in node and kinds is None:
            complaints.append(head + f"In context={path}, None is not valid under any of the given schemas.")
        if strict:
            complaints += [head + f"In context={path}, '{key}' is not permitted." for key in node if key not in _STRICT]
            if kinds == "object" or "properties" in node:
                if node.get("additionalProperties") is not False:
                    complaints.append(head + "'additionalProperties' is required to be supplied and to be false.")
                if set(node.get("properties") or ()) - set(node.get("required") or ()):
                    complaints.append(
                        head + "'required' is required to be supplied and to include every key in properties."
                    )
        if server == "xai" and None in (node.get("enum") or ()):
            complaints.append("Failed to deserialize the JSON body into the target type: tools[0]")
        if server in ("llamacpp", "lmstudio") and {"pattern", "format"} & node.keys():
            complaints.append("Failed to initialize samplers: failed to parse grammar")
    return complaints


def _check_parameters(body: dict[str, Any], server: str) -> Complaints:
    found = [f"Unsupported parameter: '{key}' is not supported" for key in _REFUSED.get(server, ()) if key in body]
    model = str(body.get("model", ""))
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > 4:
        found.append("Invalid 'stop': array too long. Expected an array with maximum length 4")
    if server == "openai" and model.startswith(("o1", "o3", "o4", "gpt-5")):
        if body.get("stop") is not None:
            found.append("Unsupported parameter: 'stop' is not supported with this model.")
        if "max_tokens" in body:
            found.append("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    form = body.get("response_format") or {}
    kind = form.get("type")
    if server in ("openai", "azure"):
        if kind == "json_schema" and not (form.get("json_schema") or {}).get("name"):
            found.append("Missing required parameter: 'response_format.json_schema.name'.")
        if kind == "json_object" and "json" not in json.dumps(body.get("messages"), ensure_ascii=False).lower():
            found.append(
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            )
    if server == "lmstudio" and kind == "json_object":
        found.append("'response_format.type' must be 'json_schema' or 'text'")
    if server == "deepseek" and kind == "json_schema":
        found.append("This response_format type is unavailable now")
    if server in ("groq", "cerebras") and body.get("n") not in (None, 1):
        found.append("'n' : number must be at most 1")
    if server == "mistral" and body.get("tool_choice") == "required":
        found.append("tool_choice: Input should be 'auto', 'none' or 'any'")
    return found


def _check_deepseek(body: dict[str, Any], messages: list[dict[str, Any]]) -> Complaints:
    if (body.get("thinking") or {}).get("type") == "disabled" or "deepseek-chat" in str(body.get("model")):
        return []  # recorded: deepseek-chat does not think
    complaints: Complaints = []
    for message in messages:
        if message.get("tool_calls") and message.get("reasoning_content") is None:  # recorded: "" is taken
            complaints.append("The `reasoning_content` in the thinking mode must be passed back to the API.")
    if body.get("tool_choice") not in (None, "auto", "none"):
        complaints.append("deepseek-reasoner does not support this tool_choice")
    return complaints
