"""Anthropic Messages, as strict as api.anthropic.com, in its own words. Rules: protocols digest of November 2026."""

import re
from fnmatch import fnmatchcase
from typing import Any

from dragoman.passes.media import measure
from dragoman.testing.checkers.shared import (
    Complaints,
    blocks,
    matches,
    objects,
    odd_base64,
    repeated,
    walk,
    wrong_type,
)

_TOP = frozenset(
    {"model", "max_tokens", "messages", "system", "cache_control", "container", "diagnostics", "inference_geo"}
    | {"metadata", "output_config", "service_tier", "speed", "stop_sequences", "stream", "thinking", "tools"}
    | {"tool_choice", "temperature", "top_p", "top_k", "context_management", "mcp_servers", "output_format"}
    | {"compaction", "fallbacks", "thread"}
)
_OLD = ("claude-2*", "claude-3*", "claude-*-4-0*", "claude-*-4-1*", "claude-*-4-5*", "claude-*-4-2025*")
_ADAPTIVE_ONLY = ("claude-opus-4-7*", "claude-opus-4-8*", "claude-*-5*")
_NO_FORCING = ("claude-opus-5-5*", "claude-sonnet-5-5*", "claude-fable-5-1*", "claude-fable-5-2*")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NOT_IN_ANSWERS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems"}
    | {"uniqueItems", "oneOf", "not", "patternProperties", "propertyNames", "minProperties", "maxProperties"}
)


def _is(model: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns) and not (
        patterns is _ADAPTIVE_ONLY and _is(model, _OLD)
    )


def check_anthropic(body: dict[str, Any]) -> Complaints:
    cloud = "anthropic_version" in body  # Vertex and Bedrock: the body has the version, the path has the model
    known = _TOP | {"anthropic_version", "anthropic_beta"} if cloud else _TOP
    complaints: Complaints = [f"{key}: Extra inputs are not permitted" for key in body if key not in known]
    required = ("max_tokens", "messages") if cloud else ("model", "max_tokens", "messages")
    complaints += [f"{key}: Field required" for key in required if key not in body]
    model = str(body.get("model", ""))
    turns = _merged(body.get("messages"))
    complaints += _check_turns(turns, model)
    complaints += _check_pairs(turns, whole=body.get("thread") is None)
    complaints += _check_blocks(turns)
    complaints += _check_pictures(turns)
    complaints += _check_tools(body)
    complaints += _check_thinking(body, model, turns)
    complaints += _check_parameters(body, model)
    complaints += _check_output(body)
    complaints += _check_marks(body, turns)
    for i, block in enumerate(blocks(body.get("system"))):
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            complaints.append(f"system.{i}: text content blocks must contain non-whitespace text")
    return complaints


def _merged(messages: object) -> list[tuple[str, list[dict[str, Any]]]]:
    """Turns: "consecutive messages of one role are merged"."""
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in objects(messages):
        role = str(message.get("role"))
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks(message.get("content")))
        else:
            turns.append((role, list(blocks(message.get("content")))))
    return turns


def _check_turns(turns: list[tuple[str, list[dict[str, Any]]]], model: str) -> Complaints:
    if not turns:
        return ["messages: at least one message is required"]
    complaints: Complaints = []
    if turns[0][0] == "system":
        complaints.append("messages.0: use the top-level 'system' parameter for the initial system prompt")
    elif turns[0][0] != "user" and not _is(model, ("claude-haiku-4-5*",)):  # recorded: Haiku 4.5 takes it
        complaints.append('messages: first message must use the "user" role')
    for i, (role, content) in enumerate(turns):
        if role not in ("user", "assistant", "system"):
            complaints.append(f"messages.{i}.role: Input should be 'user' or 'assistant'")
        if not content:
            complaints.append(f"messages.{i}: all messages must have non-empty content")
        if role == "system" and i:
            if _is(model, (*_OLD, "claude-*-4-6*", "claude-*-4-7*")):
                complaints.append("role 'system' is not supported on this model")
            before, after = turns[i - 1], turns[i + 1] if i + 1 < len(turns) else None
            if before[0] != "user" and not str(before[1][-1].get("type", "")).endswith("_tool_result"):
                complaints.append(f"messages.{i}: system messages must follow a user turn")
            if after is not None and after[0] != "assistant":
                complaints.append(f"messages.{i}: system messages must come before an assistant turn")
    role, content = turns[-1]
    if role == "assistant" and content:
        last = content[-1]
        server = str(last.get("type", "")).startswith("server_tool") or str(last.get("type")).endswith("_tool_result")
        if not _is(model, _OLD) and not server:
            complaints.append("This model does not support assistant message prefill.")
        elif last.get("type") == "text" and str(last["text"]) != str(last["text"]).rstrip():
            complaints.append("messages: final assistant content cannot end with trailing whitespace")
    return complaints


def _check_pairs(turns: list[tuple[str, list[dict[str, Any]]]], *, whole: bool) -> Complaints:
    """`whole`: the request has the whole conversation. Else its first turn may answer calls that the server keeps."""
    complaints: Complaints = []
    ids: list[str] = []
    for i, (role, content) in enumerate(turns):
        calls = [str(b.get("id")) for b in content if b.get("type") == "tool_use"]
        if role == "assistant":
            ids += calls
            answered = [b.get("tool_use_id") for b in (turns[i + 1][1] if i + 1 < len(turns) else [])]
            if i + 1 < len(turns) and turns[i + 1][0] != "user":
                answered = []
            missing = [call for call in calls if call not in answered]
            if missing:
                complaints.append(
                    f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                    f"{', '.join(missing)}."
                )
        before = [str(b.get("id")) for b in turns[i - 1][1] if b.get("type") == "tool_use"] if i else []
        given = [str(b.get("tool_use_id")) for b in content if b.get("type") == "tool_result"]
        for call in given if i or whole else ():
            if call not in before:
                complaints.append(f"messages.{i}: unexpected `tool_use_id` found in `tool_result` blocks: {call}.")
        for call in repeated(given):
            complaints.append(f"messages.{i}: each tool_use must have a single result. Found multiple for {call}")
        kinds = [b.get("type") for b in content]
        if "tool_result" in kinds and any(k != "tool_result" for k in kinds[: len(given)]):
            complaints.append(f"messages.{i}: `tool_result` blocks must come first in the user message")
    return complaints + [f"messages: `tool_use` ids must be unique: {call}" for call in repeated(ids)]


def _check_blocks(turns: list[tuple[str, list[dict[str, Any]]]]) -> Complaints:
    complaints: Complaints = []
    for i, (role, content) in enumerate(turns):
        for j, block in enumerate(content):
            at = f"messages.{i}.content.{j}"
            complaints += _check_block(block, role, at)
            if block.get("type") == "tool_result":
                inner = block.get("content")
                for k, piece in enumerate(objects(inner)):
                    complaints += _check_block(piece, "user", f"{at}.content.{k}")
        if role == "assistant" and content and content[-1].get("type") in ("thinking", "redacted_thinking"):
            complaints.append(f"messages.{i}: The final block in an assistant message cannot be `thinking`.")
    return complaints


def _check_block(block: dict[str, Any], role: str, at: str) -> Complaints:
    match block.get("type"):
        case "text":
            if not str(block.get("text", "")).strip():
                return ["messages: text content blocks must contain non-whitespace text"]
        case "tool_use":
            if not matches(r"[a-zA-Z0-9_-]+", block.get("id")):
                return [f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"]
            if not isinstance(block.get("input"), dict):
                return [f"{at}.tool_use.input: Input should be a valid dictionary"]
            if role != "assistant":
                return [f"{at}: `tool_use` blocks can only be in assistant messages"]
        case "tool_result":
            if role != "user":
                return [f"{at}: `tool_result` blocks can only be in user messages"]
            if block.get("is_error") and not block.get("content"):
                return [f"{at}: content cannot be empty if `is_error` is true"]
        case "thinking":
            if not isinstance(block.get("signature"), str) or not block["signature"]:
                return [f"{at}.thinking.signature: Field required"]
            if block["signature"].startswith("foreign"):
                return [f"{at}: Invalid `signature` in `thinking` block"]
        case "image":
            source = block.get("source") or {}
            if source.get("type") == "base64":
                if source.get("media_type") not in _IMAGES:
                    return [f"{at}.image.source.base64.media_type: Input should be {', '.join(_IMAGES)}"]
                if odd_base64(source.get("data")):
                    return [f"{at}.image.source.base64: invalid base64 data"]
                real = wrong_type(source.get("media_type"), source.get("data"))
                if real:
                    declared = source.get("media_type")
                    return [f"{at}: image was specified using the {declared} media type, but appears to be {real}"]
        case None:
            return [f"{at}: Input tag is missing"]
        case _:
            pass
    return []


def _check_pictures(turns: list[tuple[str, list[dict[str, Any]]]]) -> Complaints:
    """Pictures in results count too (charmbracelet/crush #3810, claude-code #4778, #49537)."""
    blocks_of_turns = [block for _, content in turns for block in content]
    inner = [piece for block in blocks_of_turns for piece in objects(block.get("content"))]
    pictures = [block for block in (*blocks_of_turns, *inner) if block.get("type") == "image"]
    sides = [max(measure(str((block.get("source") or {}).get("data") or "")) or (0, 0)) for block in pictures]
    if any(side > 8000 for side in sides):
        return ["messages: At least one of the image dimensions exceed max allowed size: 8000 pixels"]
    if len(pictures) > 20 and any(side > 2000 for side in sides):
        words = "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels"
        return [f"messages: {words}"]
    return []


def _check_tools(body: dict[str, Any]) -> Complaints:
    complaints: Complaints = []
    tools = objects(body.get("tools"))
    for i, tool in enumerate(tools):
        if tool.get("type") not in (None, "custom"):
            continue
        at = f"tools.{i}.custom"
        if not matches(r"[a-zA-Z0-9_-]{1,128}", tool.get("name")):
            complaints.append(f"{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            complaints.append(f"{at}.input_schema.type: Input should be 'object'")
            continue
        if schema.keys() & {"oneOf", "allOf", "anyOf"}:
            complaints.append(f"{at}.input_schema: does not support oneOf, allOf, or anyOf at the top level")
        for name in schema.get("properties") or {}:
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
                complaints.append(
                    f"{at}.input_schema.properties: Property keys should match '^[a-zA-Z0-9_.-]{{1,64}}$'"
                )
        if tool.get("strict") and schema.get("additionalProperties") is not False:
            complaints.append(
                f"{at}.input_schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
    for name in repeated([str(tool.get("name")) for tool in tools]):
        complaints.append(f"tools: Tool names must be unique: {name}")
    choice = body.get("tool_choice") or {}
    if choice and not tools:
        complaints.append("tool_choice: may only be specified while providing tools")
    if choice.get("type") == "none" and "disable_parallel_tool_use" in choice:
        complaints.append("tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
    return complaints


def _check_thinking(body: dict[str, Any], model: str, turns: list[tuple[str, list[dict[str, Any]]]]) -> Complaints:
    thinking = body.get("thinking") or {}
    kind = thinking.get("type")
    effort = (body.get("output_config") or {}).get("effort")
    complaints: Complaints = []
    if effort is not None and effort not in _EFFORTS:
        complaints.append(f"output_config.effort: Input should be {', '.join(_EFFORTS)}")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if _is(model, _ADAPTIVE_ONLY):
            complaints.append('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"')
        if not isinstance(budget, int) or budget < 1024:
            complaints.append("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        elif budget >= body.get("max_tokens", 0):
            complaints.append("`max_tokens` must be greater than `thinking.budget_tokens`.")
        complaints += _check_loop(turns)
    if kind == "adaptive" and _is(model, _OLD):
        complaints.append("adaptive thinking is not supported on this model")
    forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    if forced and kind in ("enabled", "adaptive"):
        complaints.append("Thinking may not be enabled when tool_choice forces tool use.")
    if forced and _is(model, _NO_FORCING):
        complaints.append("tool_choice: forced tool use is not supported on this model")
    edits = objects((body.get("context_management") or {}).get("edits"))
    if kind == "disabled" and any(str(e.get("type")).startswith("clear_thinking") for e in edits):
        complaints.append("clear_thinking_20251015 strategy requires thinking to be enabled or adaptive")
    return complaints


def _check_loop(turns: list[tuple[str, list[dict[str, Any]]]]) -> Complaints:
    last = max((i for i, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    if last < 0 or not any(b.get("type") == "tool_use" for b in turns[last][1]):
        return []
    first = last
    while first >= 2 and any(b.get("type") == "tool_result" for b in turns[first - 1][1]):
        first -= 2
    kind = turns[first][1][0].get("type") if turns[first][1] else None
    if kind in ("thinking", "redacted_thinking"):
        return []
    return [f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`."]


def _check_parameters(body: dict[str, Any], model: str) -> Complaints:
    complaints: Complaints = []
    on = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    temperature = body.get("temperature")
    complaints += [
        f"metadata.{key}: Extra inputs are not permitted" for key in body.get("metadata") or () if key != "user_id"
    ]
    if temperature is not None and not 0 <= temperature <= 1:
        complaints.append("temperature: range: 0..1")
    if on and temperature not in (None, 1):
        complaints.append("`temperature` may only be set to 1 when thinking is enabled.")
    if on and body.get("top_k") is not None:
        complaints.append("`top_k` must be unset when thinking is enabled.")
    for key in ("temperature", "top_p", "top_k"):
        if body.get(key) is not None and _is(model, _ADAPTIVE_ONLY):
            complaints.append(f"{key}: Extra inputs are not permitted")
    for i, stop in enumerate(body.get("stop_sequences") or ()):
        if not str(stop).strip():
            complaints.append(f"stop_sequences: each stop sequence must contain non-whitespace ({i})")
    return complaints


def _check_output(body: dict[str, Any]) -> Complaints:
    """The schema of an answer: "For 'integer' type, property 'minimum' is not supported" (recorded)."""
    wanted = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    complaints: Complaints = []
    for _, node in walk(wanted.get("schema")):
        kind = node.get("type")
        refused = [key for key in node if key in _NOT_IN_ANSWERS]
        complaints += [f"output_format.schema: For '{kind}' type, property '{key}' is not supported" for key in refused]
    return complaints


def _check_marks(body: dict[str, Any], turns: list[tuple[str, list[dict[str, Any]]]]) -> Complaints:
    complaints: Complaints = []
    marks = _count_marks(body)
    if marks > 4:
        complaints.append(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    for tool in objects(body.get("tools")):
        if tool.get("defer_loading") and tool.get("cache_control"):
            complaints.append("Tools with defer_loading cannot use prompt caching")
    content = [block for _, blocks_of_turn in turns for block in blocks_of_turn]
    for block in content:
        if any("cache_control" in inner for inner in objects(block.get("content"))):
            complaints.append(
                "cache_control may not be specified within `tool_result.content`. Instead, place it directly on "
                "`tool_result`"
            )
    ttls = [
        block["cache_control"].get("ttl", "5m")
        for block in (*objects(body.get("tools")), *objects(body.get("system")), *content)
        if isinstance(block.get("cache_control"), dict)
    ]
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        words = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
        complaints.append(f"messages: cache_control.ttl: {words}")
    own = (body.get("cache_control") or {}).get("ttl", "5m")
    if body.get("cache_control") and content and isinstance(content[-1].get("cache_control"), dict):
        other = content[-1]["cache_control"].get("ttl", "5m")
        if other != own:
            complaints.append(
                f"Top-level cache_control has ttl='{own}' but the target block already has cache_control with "
                f"ttl='{other}'"
            )
    return complaints


def _count_marks(value: object) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(_count_marks(v) for k, v in value.items() if k != "input_schema")
    return sum(_count_marks(v) for v in value) if isinstance(value, list) else 0
