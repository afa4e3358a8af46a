"""MCP calls that a provider made itself, with their results: in answers, and later in the history.

Anthropic has two blocks for a call (`mcp_tool_use`, `mcp_tool_result`), Responses has one item (`mcp_call`). A client
of the other dialect gets the call in its own form. The id is then the provider's id behind a prefix of the client's
dialect. In the next request the id shows which provider made the call. That provider gets the call back in its own
form; every other provider gets it as text.
"""

from collections.abc import Iterator

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, dump_text, load_json
from dragoman.model.messages import Opaque, Part

USE, RESULT, ITEM = "mcp_tool_use", "mcp_tool_result", "mcp_call"
EXECUTION = "mcp_tool_execution_error"  # the usual kind of error
ANTHROPIC, RESPONSES = "anthropic", "openai_responses"
PREFIXES = {ANTHROPIC: "mcptoolu_", RESPONSES: "mcp_"}  # of ids


class McpCall(Struct, frozen=True, kw_only=True):
    id: str
    server: str
    name: str
    arguments: str  # JSON
    output: str | None = None  # None: there is no result
    failed: bool = False


class McpTranslator:
    """Writes MCP calls in the form of one dialect and passes all other parts on. `names`: the name to write for a
    server. `returned`: change only calls that the provider of this dialect made."""

    def __init__(self, dialect: str, names: dict[str, str] | None = None, *, returned: bool = False) -> None:
        self._dialect, self._names, self._returned = dialect, names or {}, returned
        self._open: dict[str, McpCall] = {}  # without their results

    def feed(self, part: Part) -> list[Part]:
        if type(part) is not Opaque or part.dialect == self._dialect or part.dialect not in PREFIXES:
            return [part]
        body = part.body
        match body.get("type"):
            case "mcp_call" if self._takes(body.get("id")):
                return self._write(_read_item(body))
            case "mcp_tool_use" if self._takes(body.get("id")):
                call = _read_use(body)
                self._open[call.id] = call
                return []
            case "mcp_tool_result" if body.get("tool_use_id") in self._open:
                return self._write(_add_result(self._open.pop(body["tool_use_id"]), body))
            case _:
                return [part]

    def close(self) -> list[Part]:
        """The calls that are still without a result."""
        calls, self._open = self._open, {}
        return [part for call in calls.values() for part in self._write(call)]

    def _takes(self, call_id: object) -> bool:
        return type(call_id) is str and (not self._returned or _own_id(call_id, self._dialect) is not None)

    def _write(self, call: McpCall) -> list[Part]:
        server = self._names.get(call.server, call.server)
        call_id = _own_id(call.id, self._dialect) or PREFIXES[self._dialect] + call.id
        bodies = _write_blocks(call, call_id, server) if self._dialect == ANTHROPIC else [_item(call, call_id, server)]
        return [Opaque(dialect=self._dialect, body=body) for body in bodies]


def translates(part: Part, dialect: str) -> bool:
    """Whether a part may be an MCP call in the form of another dialect."""
    return (
        type(part) is Opaque
        and part.dialect != dialect
        and dialect in PREFIXES
        and part.body.get("type") in (USE, RESULT, ITEM)
    )


def _own_id(call_id: str, dialect: str) -> str | None:
    """The id that the provider of this dialect gave the call, if the id of the other dialect contains it."""
    for other, prefix in PREFIXES.items():
        inside = call_id.removeprefix(prefix)
        if other != dialect and inside != call_id and inside.startswith(PREFIXES[dialect]):
            return inside
    return None


# ---------------------------------------------------------------- read


def _read_item(body: JsonObject) -> McpCall:
    error, output = body.get("error"), body.get("output")
    if error:
        output = _tell_error(error)
    return McpCall(
        id=str(body.get("id")),
        server=str(body.get("server_label")),
        name=str(body.get("name")),
        arguments=body["arguments"] if type(body.get("arguments")) is str else "{}",
        output=output if type(output) is str else None,
        failed=bool(error),
    )


def _tell_error(error: object) -> str:
    """The words of an error, behind its kind and its number: `http_error 500: ...`"""
    words = "\n".join(_words(error))
    if not words or type(error) is not dict:
        return words or dump_text(error)
    kinds = [str(error[key]) for key in ("type", "code") if error.get(key) not in (None, EXECUTION)]
    return f"{' '.join(kinds)}: {words}" if kinds else words


def _read_use(body: JsonObject) -> McpCall:
    return McpCall(
        id=str(body.get("id")),
        server=str(body.get("server_name")),
        name=str(body.get("name")),
        arguments=dump_text(body.get("input") or {}),
    )


def _add_result(call: McpCall, body: JsonObject) -> McpCall:
    return McpCall(
        id=call.id,
        server=call.server,
        name=call.name,
        arguments=call.arguments,
        output="\n".join(_words(body.get("content"))),
        failed=body.get("is_error") is True,
    )


def _words(value: object) -> Iterator[str]:
    """All texts in a result or an error."""
    if type(value) is str:
        yield value
    elif type(value) is list:
        for item in value:
            yield from _words(item)
    elif type(value) is dict:
        for key in ("text", "message", "content"):
            yield from _words(value.get(key))


# ---------------------------------------------------------------- write


def _write_blocks(call: McpCall, call_id: str, server: str) -> list[JsonObject]:
    use: JsonObject = {"type": USE, "id": call_id, "name": call.name, "server_name": server}
    use["input"] = _load_arguments(call.arguments)
    if call.output is None:
        return [use]
    content = [{"type": "text", "text": call.output}] if call.output else []
    return [use, {"type": RESULT, "tool_use_id": call_id, "is_error": call.failed, "content": content}]


def _load_arguments(arguments: str) -> JsonObject:
    try:
        value = load_json(arguments)
    except DecodeError:
        value = None
    return value if type(value) is dict else {"_raw": arguments} if arguments else {}


def _item(call: McpCall, call_id: str, server: str) -> JsonObject:
    status = "failed" if call.failed else "incomplete" if call.output is None else "completed"
    item: JsonObject = {"type": ITEM, "id": call_id, "server_label": server, "name": call.name}
    item |= {"arguments": call.arguments, "approval_request_id": None, "status": status}
    error = {"type": EXECUTION, "content": [{"type": "text", "text": call.output}]}
    return item | {"output": None if call.failed else call.output, "error": error if call.failed else None}
