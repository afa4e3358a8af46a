"""MCP servers that the provider itself connects to: three dialects have them, each in its own words.

Anthropic lists the servers beside the tools (`mcp_servers`) and has one `mcp_toolset` for each among the tools.
Responses has a tool `mcp` with all of it, Gemini a tool `mcpServers`. A server is handed on only if the target can keep
to what the client allowed: no call that the client wants to approve runs without that, and no tool that it switched
off runs. The token of a server goes to the provider that answers, as the client's words do.

Read 2026-11-18: types of the SDKs anthropic 2.8.0 and openai (installed), digests mcp, gemini 5, openai-responses.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Message, Opaque
from dragoman.model.request import AnyTool, Request, ServerTool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile
from dragoman.passes.server_tools.mcp_calls import ANTHROPIC, RESPONSES, McpTranslator, translates

GEMINI = "gemini"
SERVERS, TOOLSET = "mcp_servers", "mcp_toolset"
GEMINI_SERVERS, TRANSPORT = "mcpServers", "streamableHttpTransport"
BETA_KEY, BETA = "header:anthropic-beta", "mcp-client-2025-11-20"
BEARER = "Bearer "
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")  # of a Responses server
_WRONG_LETTERS = re.compile(r"[^A-Za-z0-9_-]+")


class McpServer(Struct, frozen=True, kw_only=True):
    """The settings of a server that several providers have. `why_not`: why no other provider may connect to it."""

    name: str
    url: str = ""
    token: str | None = None
    headers: dict[str, str] = {}
    only: tuple[str, ...] | None = None  # the only tools that may be called
    never: tuple[str, ...] = ()  # tools that may not
    lost: tuple[str, ...] = ()  # settings that only its own provider knows
    why_not: str = ""


class McpReturn(Struct, frozen=True, kw_only=True):
    """Needed for the answer: the client's dialect, and the client's name of each server that we renamed."""

    dialect: str
    names: dict[str, str] = {}


def lists_servers(request: Request) -> bool:
    """Whether the request names MCP servers beside its tools."""
    own = request.extras.get(ANTHROPIC)
    return own is not None and SERVERS in own


def hand_on_servers(request: Request, profile: Profile, notes: Notes) -> tuple[Request, McpReturn | None]:
    """Writes the client's MCP servers in the form of the target. A server that the target cannot have stays where it
    is: `tell_server_tools` then leaves it out, as it does with all tools of another provider."""
    if not profile.mcp:
        return request, None
    found = [server for server in _read_servers(request) if server[1] != profile.dialect]
    if not found:
        return request, None
    kept: list[tuple[McpServer, str]] = []
    gone: set[int] = set()  # tools whose server is handed on
    listed: set[str] = set()
    functions = any(not isinstance(tool, ServerTool) for tool in request.tools or ())
    beside = (
        "the target takes no tools of its own beside functions" if functions and profile.searches == "alone" else ""
    )
    for at, dialect, server, tools in found:
        why = server.why_not or beside or _refused_by(server, profile.dialect)
        if why:
            notes.dropped(at, f"the MCP server {server.name} is left out: {why}")
        else:
            notes.altered(at, f"the MCP server {server.name}, in the words of {profile.dialect}")
            if server.lost:
                notes.dropped(at, f"{profile.dialect} has no settings of an MCP server for: {', '.join(server.lost)}")
            kept.append((server, dialect))
        gone |= tools
        listed.add(server.name)
    rest = tuple(tool for i, tool in enumerate(request.tools or ()) if i not in gone)
    request = replace(request, tools=rest or None, extras=_without_listed(request, listed, profile))
    if not kept:
        return request, None
    names = {_label(server.name): server.name for server, _ in kept if _label(server.name) != server.name}
    return _write_servers(request, [server for server, _ in kept], profile), McpReturn(dialect=kept[0][1], names=names)


def _without_listed(request: Request, listed: set[str], profile: Profile) -> dict[str, dict[str, Any]]:
    own = request.extras.get(ANTHROPIC)
    if own is None or SERVERS not in own or profile.dialect == ANTHROPIC:
        return request.extras
    rest = {key: value for key, value in own.items() if key != SERVERS}
    return {**request.extras, ANTHROPIC: rest}


# ---------------------------------------------------------------- read

Found = tuple[At, str, McpServer, set[int]]  # its place, its dialect, and the tools that speak of it


def _read_servers(request: Request) -> Iterator[Found]:
    tools = list(enumerate(request.tools or ()))
    yield from _read_anthropic(request, tools)
    for i, tool in tools:
        if not isinstance(tool, ServerTool):
            continue
        at: At = ((ROOT, "tools"), i)
        if tool.dialect == RESPONSES and tool.body.get("type") == "mcp":
            yield at, RESPONSES, _read_responses(tool.body), {i}
        elif tool.dialect == GEMINI and isinstance(tool.body.get(GEMINI_SERVERS), list):
            for server in tool.body[GEMINI_SERVERS]:
                yield at, GEMINI, _read_gemini(server if isinstance(server, dict) else {}), {i}


def _read_anthropic(request: Request, tools: list[tuple[int, AnyTool]]) -> Iterator[Found]:
    listed = request.extras.get(ANTHROPIC, {}).get(SERVERS)
    for number, body in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(body, dict):
            continue
        name = str(body.get("name"))
        sets = {
            i: tool.body
            for i, tool in tools
            if isinstance(tool, ServerTool)
            and tool.body.get("type") == TOOLSET
            and tool.body.get("mcp_server_name") == name
        }
        at: At = ((((ROOT, "extras"), ANTHROPIC), SERVERS), number)
        yield at, ANTHROPIC, _read_listed(body, name, next(iter(sets.values()), {})), set(sets)


def _read_listed(body: JsonObject, name: str, toolset: JsonObject) -> McpServer:
    old = _object(body, "tool_configuration")
    default, configs, pinned = _object(toolset, "default_config"), _object(toolset, "configs"), toolset.get("tools")
    on = {tool: config.get("enabled") for tool, config in configs.items() if isinstance(config, dict)}
    only: tuple[str, ...] | None = None
    never = tuple(tool for tool, enabled in on.items() if enabled is False)
    if default.get("enabled") is False:
        only, never = tuple(tool for tool, enabled in on.items() if enabled), ()
    elif isinstance(old.get("allowed_tools"), list):
        only = tuple(map(str, old["allowed_tools"]))
    elif never and isinstance(pinned, list):
        listed = (str(tool.get("name")) for tool in pinned if isinstance(tool, dict))
        only, never = tuple(tool for tool in listed if tool not in never), ()
    deferred = any(isinstance(c, dict) and c.get("defer_loading") for c in (default, *configs.values()))
    return McpServer(
        name=name,
        url=_text(body, "url"),
        token=_text(body, "authorization_token") or None,
        only=only,
        never=never,
        lost=(*(("defer_loading",) if deferred else ()), *(("cache_control",) if toolset.get("cache_control") else ())),
        why_not="it is switched off" if old.get("enabled") is False or only == () else "",
    )


def _read_responses(body: JsonObject) -> McpServer:
    token, headers = _read_headers(body.get("headers"), _text(body, "authorization") or None)
    only, why = _read_allowed(body.get("allowed_tools"))
    approved, asks = _read_approval(body.get("require_approval"))
    if approved is not None:
        only = tuple(tool for tool in approved if only is None or tool in only)
    known = {"type", "server_label", "server_url", "authorization", "headers", "allowed_tools", "require_approval"}
    other = tuple(key for key, value in body.items() if key not in known and value not in (None, False))
    url = _text(body, "server_url")
    return McpServer(
        name=str(body.get("server_label")),
        url=url,
        token=token,
        headers=headers,
        only=only,
        lost=other,
        why_not=why or asks or ("" if url else "only its own provider knows the way to it"),
    )


def _read_headers(given: object, token: str | None) -> tuple[str | None, dict[str, str]]:
    """The token and the other headers."""
    if not isinstance(given, dict):
        return token, {}
    headers = {str(key): str(value) for key, value in given.items()}
    name = next((key for key in headers if key.lower() == "authorization"), None)
    if name is not None and headers[name].startswith(BEARER):
        bearer = headers.pop(name).removeprefix(BEARER)
        token = token or bearer
    return token, headers


def _read_allowed(given: object) -> tuple[tuple[str, ...] | None, str]:
    if isinstance(given, dict):
        if given.get("read_only") is not None:
            return None, "a choice by what tools do (read_only) cannot be handed on"
        given = given.get("tool_names")
    return (tuple(map(str, given)), "") if isinstance(given, list) else (None, "")


def _read_approval(given: object) -> tuple[tuple[str, ...] | None, str]:
    """The only tools that run without an approval, and the reason if the server cannot be handed on. Without this
    setting the client approves each call."""
    if given == "never":
        return None, ""
    if isinstance(given, dict) and isinstance(free := given.get("never"), dict) and free.get("read_only") is None:
        names = free.get("tool_names")
        if isinstance(names, list) and names:
            return tuple(map(str, names)), ""
    return None, "its calls are to be approved one by one (require_approval), which the target cannot ask"


def _read_gemini(body: JsonObject) -> McpServer:
    transport = _object(body, TRANSPORT)
    token, headers = _read_headers(transport.get("headers"), None)
    other = tuple(key for key, value in transport.items() if key not in ("url", "headers") and value is not None)
    return McpServer(
        name=str(body.get("name")),
        url=_text(transport, "url"),
        token=token,
        headers=headers,
        lost=other,
        why_not=("" if _text(transport, "url") else "it has no address"),
    )


def _object(body: JsonObject, key: str) -> JsonObject:
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def _text(body: JsonObject, key: str) -> str:
    found = body.get(key)
    return found if isinstance(found, str) else ""


# ---------------------------------------------------------------- write


def _refused_by(server: McpServer, dialect: str) -> str:
    """Why the target cannot obey the client's settings; "" if it can."""
    if server.headers and dialect == ANTHROPIC:
        return f"{dialect} sends no headers of the client's: {', '.join(server.headers)}"
    if server.never and dialect == RESPONSES:
        return f"{dialect} cannot switch off single tools: {', '.join(server.never)}"
    if dialect == GEMINI and (server.only is not None or server.never):
        return f"{dialect} cannot be told which of its tools may be called"
    return ""


def _label(name: str) -> str:
    """The name of a server as Responses takes it."""
    if _LABEL.match(name):
        return name
    letters = _WRONG_LETTERS.sub("_", name)
    return letters if _LABEL.match(letters) else f"mcp_{letters}"


def _write_servers(request: Request, servers: list[McpServer], profile: Profile) -> Request:
    tools = request.tools or ()
    if profile.dialect == ANTHROPIC:
        own = request.extras.get(ANTHROPIC, {})
        betas = [own[BETA_KEY]] if isinstance(own.get(BETA_KEY), str) else []
        extras = {**own, SERVERS: [_listed(server) for server in servers], BETA_KEY: ",".join((*betas, BETA))}
        sets = tuple(ServerTool(dialect=ANTHROPIC, body=_toolset(server)) for server in servers)
        return replace(request, tools=(*tools, *sets), extras={**request.extras, ANTHROPIC: extras})
    if profile.dialect == RESPONSES:
        own_tools = tuple(ServerTool(dialect=RESPONSES, body=_responses_tool(server)) for server in servers)
        return replace(request, tools=(*tools, *own_tools))
    body: JsonObject = {GEMINI_SERVERS: [_gemini_server(server) for server in servers]}
    return replace(request, tools=(*tools, ServerTool(dialect=GEMINI, body=body)))


def _listed(server: McpServer) -> JsonObject:
    body: JsonObject = {"type": "url", "name": server.name, "url": server.url}
    return body | ({"authorization_token": server.token} if server.token else {})


def _toolset(server: McpServer) -> JsonObject:
    body: JsonObject = {"type": TOOLSET, "mcp_server_name": server.name}
    if server.only is not None:
        body["default_config"] = {"enabled": False}
        body["configs"] = {tool: {"enabled": True} for tool in server.only}
    elif server.never:
        body["configs"] = {tool: {"enabled": False} for tool in server.never}
    return body


def _responses_tool(server: McpServer) -> JsonObject:
    body: JsonObject = {"type": "mcp", "server_label": _label(server.name), "server_url": server.url}
    if server.token:
        body["authorization"] = server.token
    if server.headers:
        body["headers"] = server.headers
    if server.only is not None:
        body["allowed_tools"] = list(server.only)
    return body | {"require_approval": "never"}  # without it each call would wait for an approval


def _gemini_server(server: McpServer) -> JsonObject:
    headers = {**server.headers, **({"Authorization": BEARER + server.token} if server.token else {})}
    transport: JsonObject = {"url": server.url, **({"headers": headers} if headers else {})}
    return {"name": server.name, TRANSPORT: transport}


# ---------------------------------------------------------------- calls in the history


def has_servers(request: Request, dialect: str) -> bool:
    """Whether the request names MCP servers in the words of this dialect."""
    own = request.extras.get(dialect)
    if own is not None and own.get(SERVERS):
        return True
    return any(type(tool) is ServerTool and tool.dialect == dialect and _is_mcp(tool) for tool in request.tools or ())


def _is_mcp(tool: ServerTool) -> bool:
    return tool.body.get("type") in ("mcp", TOOLSET) or GEMINI_SERVERS in tool.body


def restore_calls(request: Request, dialect: str) -> Request:
    """MCP calls in the history that the target made itself, in its own form."""
    if not has_servers(request, dialect):
        return request
    messages = [_restore(message, dialect) for message in request.messages]
    return replace(request, messages=tuple(messages))


def _restore(message: Message, dialect: str) -> Message:
    if not any(translates(part, dialect) for part in message.parts):
        return message
    called = {str(part.body.get("server_name")) for part in message.parts if type(part) is Opaque}
    names = {name: _label(name) for name in called} if dialect == RESPONSES else {}
    translator = McpTranslator(dialect, names, returned=True)
    parts = [new for part in message.parts for new in translator.feed(part)]
    return replace(message, parts=(*parts, *translator.close()))
