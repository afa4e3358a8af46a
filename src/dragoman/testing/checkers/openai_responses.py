"""OpenAI Responses, as strict as api.openai.com, in its own words. Rules: protocols digest of November 2026."""

from typing import Any

from dragoman.testing.checkers.openai_chat import check_parameters_schema
from dragoman.testing.checkers.shared import Complaints, matches, objects, odd_base64, repeated

_NO_SUCH = ("stop", "n", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "messages", "max_tokens")
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def check_openai_responses(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = [f"Unknown parameter: '{key}'." for key in _NO_SUCH if key in body]
    items = objects(body.get("input"))
    if not {"previous_response_id", "conversation"} & {key for key, value in body.items() if value}:
        complaints += _check_calls(items)  # otherwise the call may be in the conversation that the server keeps
    complaints += _check_reasoning(items)
    for i, item in enumerate(items):
        complaints += _check_item(item, i)
    limit = body.get("max_output_tokens")
    if limit is not None and limit < 16:
        complaints.append("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16")
    return complaints + _check_tools(body)


def _check_calls(items: list[dict[str, Any]]) -> Complaints:
    calls: list[str] = []
    complaints: Complaints = []
    outputs: list[str] = []
    for item in items:
        call = str(item.get("call_id"))
        if item.get("type") in _CALLS:
            calls.append(call)
        elif item.get("type") in _OUTPUTS:
            outputs.append(call)
            if call not in calls:
                complaints.append(f"No tool call found for function call output with call_id {call}.")
    complaints += [f"No tool output found for function call {call}." for call in calls if call not in outputs]
    complaints += [f"Duplicate function_call_output for call_id {call}" for call in repeated(outputs)]
    complaints += [f"Duplicate item found with call_id {call}" for call in repeated(calls)]
    complaints += [f"Invalid 'input[0].call_id': string too long: {len(c)} > 64" for c in calls if len(c) > 64]
    return complaints


def _check_reasoning(items: list[dict[str, Any]]) -> Complaints:
    complaints: Complaints = []
    for i, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        after = next((other for other in items[i + 1 :] if other.get("type") != "reasoning"), {})
        if after.get("type") not in (*_CALLS, "message", None) and after:
            continue  # a built-in tool's item
        follows = after.get("type") in _CALLS or after.get("role") == "assistant"
        if not follows:
            name = item.get("id", "rs_")
            complaints.append(f"Item '{name}' of type 'reasoning' was provided without its required following item.")
        if not item.get("encrypted_content") and not item.get("id"):
            complaints.append(f"Missing required parameter: 'input[{i}].id'.")
    return complaints


def _check_item(item: dict[str, Any], i: int) -> Complaints:
    kind, role = item.get("type"), item.get("role")
    if kind in _OUTPUTS and item.get("output") == []:
        return [f"Missing required parameter: 'input[{i}].content[0]'."]
    if kind in _CALLS:
        if not matches(r"[a-zA-Z0-9_-]{1,128}", item.get("name")):
            return [f"Invalid 'input[{i}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'"]
        return []
    if kind in (None, "message") and role is not None:
        parts = objects(item.get("content"))
        wanted = ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
        return (
            [
                f"Invalid value: '{part.get('type')}'. Supported values are: {', '.join(wanted)}."
                for part in parts
                if part.get("type") not in wanted
            ]
            + ([f"Invalid 'input[{i}].content': empty array"] if item.get("content") == [] else [])
            + _check_data(parts)
            + [
                f"Invalid type for 'input[{i}].content[{j}].image_url': expected an image URL, but got an object."
                for j, part in enumerate(parts)
                if isinstance(part.get("image_url"), dict)
            ]
        )
    return []


def _check_data(parts: list[dict[str, Any]]) -> Complaints:
    urls = [str(part.get(key)) for part in parts for key in ("image_url", "file_data") if part.get(key)]
    odd = [url for url in urls if url.startswith("data:") and odd_base64(url.partition(",")[2])]
    return ["Invalid base64 image_url." for _ in odd]


def _check_tools(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = []
    names: list[str] = []
    for tool in objects(body.get("tools")):
        if tool.get("type") not in ("function", "custom"):
            continue
        names.append(str(tool.get("name")))
        if not matches(r"[a-zA-Z0-9_-]{1,128}", tool.get("name")):
            complaints.append("Invalid 'tools[0].name': string does not match pattern '^[a-zA-Z0-9_-]+$'")
        if tool.get("type") == "function" and "function" not in tool:  # recorded: Chat's form is taken, unread
            complaints += check_parameters_schema(str(tool.get("name")), tool.get("parameters"), tool.get("strict"))
    return complaints + [f"Tool names must be unique: {name}" for name in repeated(names)]
