"""Calls and results of another provider's own tools in the history, as text for a target that cannot read them.

"results history (encrypted_content, toolCall/toolResponse, item ids) is provider-bound: in foreign history turn it into
plain text" (crosswalk, "Server tools"; FIELD-CASES 70). The text has the question, and the titles, addresses, text and
output of the result. It has nothing that is encrypted. The client keeps the original parts, so the provider that made
them gets them back byte for byte. Content blocks that only one dialect has (search results, documents in pieces) are
written as whole texts.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, dump_text
from dragoman.model.messages import Message, Opaque, Part, Text, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile
from dragoman.passes.server_tools.mcp_servers import restore_calls

LONGEST = 4_000  # characters of one call or result


def tell_server_history(request: Request, profile: Profile, notes: Notes) -> Request:
    if "server_tools" not in profile.lacks or profile.policy_of("server_tools") == "drop":
        return request
    if not _any_foreign(request, profile.dialect):  # fast path: nothing foreign
        return request
    if profile.mcp:
        request = restore_calls(request, profile.dialect)
    messages = [_tell_message(message, i, profile.dialect, notes) for i, message in enumerate(request.messages)]
    if all(a is b for a, b in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=tuple(messages))


def _any_foreign(request: Request, dialect: str) -> bool:  # fast path: nothing foreign
    for message in request.messages:
        for part in message.parts:
            if type(part) is Opaque and part.dialect != dialect:
                return True
            if type(part) is ToolResult and any(type(inner) is Opaque for inner in part.parts):
                return True
    return False


def _tell_message(message: Message, i: int, dialect: str, notes: Notes) -> Message:
    parts = _tell_parts(message.parts, (((ROOT, "messages"), i), "parts"), dialect, notes)
    return message if parts is message.parts else replace(message, parts=parts)


def _tell_parts(parts: tuple[Part, ...], at: At, dialect: str, notes: Notes) -> tuple[Part, ...]:
    changed: list[Part] = []
    for j, part in enumerate(parts):
        if type(part) is Opaque and part.dialect != dialect:
            changed.append(_tell(part, (at, j), notes))
        elif type(part) is ToolResult:
            inner = _tell_parts(part.parts, ((at, j), "parts"), dialect, notes)
            changed.append(part if inner is part.parts else replace(part, parts=inner))
        else:
            changed.append(part)
    return parts if all(a is b for a, b in zip(changed, parts, strict=True)) else tuple(changed)


def _tell(part: Opaque, at: At, notes: Notes) -> Part:
    content = _tell_content(part)
    if content is not None:
        notes.altered(at, f"only {part.dialect} has a block for it: sent as text")
        return Text(text=content)
    text = tell_part(part)
    if text is None:
        return part
    words = f"only {part.dialect} reads the results of its own tools: sent as text"
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… [{len(text) - LONGEST} more characters left out]"
        words += ", the first of it"
    notes.altered(at, words)
    return Text(text=text)


def _tell_content(part: Opaque) -> str | None:
    """The text of content that the client itself gave the model to read. Only Anthropic has such blocks."""
    body = part.body
    match body.get("type"):
        case "search_result":
            head = " ".join(filter(None, (_text(body, "title"), f"<{_text(body, 'source')}>")))
            return "\n".join((f"[search result: {head}]", *_lines(body.get("content"))))
        case "document" if isinstance(body.get("source"), dict):
            head = _text(body, "title")
            lines = list(_lines(body["source"].get("content")))
            if not lines:
                return None
            context = [text] if (text := _text(body, "context")) else []
            return "\n".join((f"[document: {head}]" if head else "[document]", *context, *lines))
        case "compaction":
            return _text(body, "content") or None
        case _:
            return None


def tell_part(part: Opaque) -> str | None:
    """A call or result of a provider's own tool, as text. None for any other part, and for an empty one."""
    body = part.body
    match part.dialect:
        case "anthropic":
            return _tell_anthropic(body, str(body.get("type")))
        case "openai_responses":
            teller = _RESPONSES.get(str(body.get("type")))
            return teller(body) if teller is not None else None
        case "gemini":
            return _tell_gemini(body)
        case _:
            return None


# ---------------------------------------------------------------- words


def _call(name: object, question: object) -> str:
    """`[web_search: weather in Bergen]`"""
    if isinstance(question, dict) and len(question) == 1:
        (question,) = question.values()
    text = question if isinstance(question, str) else dump_text(question) if question else ""
    return f"[{name}: {text}]" if text else f"[{name}]"


def _result(name: object, found: object) -> str | None:
    text = "\n".join(line.rstrip() for line in _lines(found) if line.strip())
    return f"[result of {name}]\n{text}" if text else None


def _lines(value: object) -> Iterator[str]:
    """The readable lines of a result. Only keys that we know are read: others may be encrypted, or very long."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _lines(item)
    elif isinstance(value, dict):
        yield from _fields(value)


def _text(value: JsonObject, *keys: str) -> str:
    """The first of the keys that holds a text; others may hold anything."""
    return next((found for key in keys if isinstance(found := value.get(key), str) and found), "")


def _fields(value: JsonObject) -> Iterator[str]:
    title, url = _text(value, "title", "filename"), _text(value, "url", "uri")
    if title or url:
        yield " ".join(("-", *((title,) if title else ()), *((f"<{url}>",) if url else ())))
    for key in ("error_code", "error", "error_message"):
        if isinstance(value.get(key), str):
            yield f"failed: {value[key]}"
    for key in ("text", "stdout", "stderr", "output", "logs", "tool_name", "snippet"):
        if isinstance(value.get(key), str):
            yield value[key]
    source = value.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        yield from _lines(source.get("data"))
    for key in ("content", "tool_references", "results", "sources"):
        yield from _lines(value.get(key))


# ---------------------------------------------------------------- dialects


def _tell_anthropic(body: JsonObject, kind: str) -> str | None:
    if kind == "server_tool_use":
        return _call(body.get("name"), body.get("input"))
    if kind == "mcp_tool_use":
        return _call(f"{body.get('server_name')}/{body.get('name')}", body.get("input"))
    if kind.endswith("_tool_result"):
        return _result(kind.removesuffix("_tool_result"), body.get("content"))
    return None


def _tell_web_search(body: JsonObject) -> str:
    action = body.get("action")
    if not isinstance(action, dict):
        return _call("web_search", None)
    queries = action.get("queries")  # all of them; "query" is the first
    question = ", ".join(map(str, queries)) if isinstance(queries, list) else None
    question = question or action.get("query") or action.get("url") or action.get("pattern")
    return _both(_call("web_search", question), _result("web_search", action.get("sources")))


def _tell_file_search(body: JsonObject) -> str:
    queries = body.get("queries")
    question = ", ".join(map(str, queries)) if isinstance(queries, list) else None
    return _both(_call("file_search", question), _result("file_search", body.get("results")))


def _tell_code(body: JsonObject) -> str:
    return _both(_call("code_interpreter", body.get("code")), _result("code_interpreter", body.get("outputs")))


def _tell_mcp(body: JsonObject) -> str:
    name = f"{body.get('server_label')}/{body.get('name')}"
    failed = body.get("error")
    found = {"error": failed if isinstance(failed, str) else dump_text(failed)} if failed else body.get("output")
    return _both(_call(name, body.get("arguments")), _result(name, found))


def _tell_shell(body: JsonObject) -> str:
    action = body.get("action")
    commands = action.get("command") or action.get("commands") if isinstance(action, dict) else None
    command = " ".join(map(str, commands)) if isinstance(commands, list) else commands
    return _call("shell", command)


def _tell_shell_output(body: JsonObject) -> str:
    return _result("shell", body.get("output")) or "[result of shell]"


def _tell_patch(body: JsonObject) -> str:
    return _call("apply_patch", body.get("operation"))


def _tell_patch_output(body: JsonObject) -> str:
    return _result("apply_patch", [body.get("status"), body.get("output")]) or "[result of apply_patch]"


def _both(call: str, result: str | None) -> str:
    return call if result is None else f"{call}\n{result}"


_RESPONSES: dict[str, Callable[[JsonObject], str]] = {
    "web_search_call": _tell_web_search,
    "file_search_call": _tell_file_search,
    "code_interpreter_call": _tell_code,
    "mcp_call": _tell_mcp,
    "local_shell_call": _tell_shell,
    "local_shell_call_output": _tell_shell_output,
    "shell_call": _tell_shell,
    "shell_call_output": _tell_shell_output,
    "apply_patch_call": _tell_patch,
    "apply_patch_call_output": _tell_patch_output,
}


def _tell_gemini(body: JsonObject) -> str | None:
    for key, value in body.items():
        if not isinstance(value, dict):
            continue
        if key == "executableCode":
            return _call("code_execution", value.get("code"))
        if key == "codeExecutionResult":
            return _result("code_execution", value)
        if key == "toolCall":
            return _call(_tool_type(value), value.get("args"))
        if key == "toolResponse":
            return _result(_tool_type(value), value.get("response"))
    return None


def _tool_type(value: JsonObject) -> str:
    return str(value.get("toolType", "tool")).lower()
