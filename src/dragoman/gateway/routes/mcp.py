"""The MCP registry over HTTP (mission D8) and generation with MCP tools (mission D9).

POST   /mcp/add     {"name": ..., "url": ...}
DELETE /mcp/remove  {"name": ...}
GET    /mcp/list
POST   /generate_with_mcp   JSON-RPC as at /generate; params also `mcp_servers`, `max_iterations`, `mode`
"""

import logging
from urllib.parse import parse_qs

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.agent.steps import Limits
from dragoman.dialects.jsonrpc import RpcCall, dialect_for
from dragoman.dialects.jsonrpc.words import METHOD
from dragoman.errors import ConfigError, DecodeError
from dragoman.gateway.access.audit import note_change
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.mcp_loop import MODES, LoopOptions, answer_in_loop, servers_of
from dragoman.gateway.routes.jsonrpc import PATH, refuse_call, serve_calls
from dragoman.gateway.routes.non_chat import read_object
from dragoman.gateway.routes.table import Match
from dragoman.gateway.scope import Scope
from dragoman.gateway.state import Gateway
from dragoman.gateway.take_in import take_in
from dragoman.jsontypes import Json, JsonObject, dump_json, dump_text, kind_of
from dragoman.log_line import LogLine
from dragoman.mcp.servers import MissingPackageError, UnknownServerError
from dragoman.mcp.spec import TRANSPORTS, BadServerError
from dragoman.model.messages import ToolCall

log = logging.getLogger(__name__)
METHODS = (METHOD, "generate_with_mcp")
ITERATIONS = 5
STDIO_KEYS = ("command", "args", "env", "cwd")
ADD_KEYS = {"name", "url", "transport"}


async def serve_mcp_add(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    if any(key in body for key in STDIO_KEYS) or str(body.get("transport", "")).lower() == "stdio":
        # a program's name from the network is remote code execution (T03)
        return deny(403, "programs to start are named in the configuration file only", "stdio_servers_are_config_only")
    if unknown := sorted(set(body) - ADD_KEYS):
        words_said = f"{unknown[0][:100]}: expected name, url and transport; the rest of an entry is written in a file"
        return deny(400, words_said, "invalid_mcp_server")
    if str(body.get("transport", "auto")) not in TRANSPORTS:
        return deny(400, "transport: expected auto, http or sse", "invalid_mcp_server")
    servers = servers_of(gateway)
    try:
        await servers.load_package()
        await servers.check_address(body.get("url"))
        more = {"transport": body["transport"]} if "transport" in body else None
        replaced = servers.add(body.get("name"), body.get("url"), more)
        await servers.list_new_servers(0.0)  # so that the next list shows its tools
    except BadServerError as error:
        return deny(400, str(error), "invalid_mcp_server")
    except (ConfigError, MissingPackageError) as error:
        return deny(500, str(error), "mcp_registry")
    address = servers.list_specs()[str(body["name"])].address  # without what a query may hold
    await note_change(gateway, http, "mcp add", str(body["name"]), {"url": address})
    log.info(LogLine("mcp_added", {"server": body["name"], "url": address, "key": http.key_id}))
    return json_response({"status": "ok", "name": body["name"], "url": body["url"], "replaced": replaced})


async def serve_mcp_remove(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    asked = parse_qs(http.query).get("name")
    name: Json = asked[0] if asked else (await read_object(gateway, http)).get("name")
    try:
        servers_of(gateway).remove(name)
    except BadServerError as error:
        return deny(400, str(error), "invalid_mcp_server")
    except UnknownServerError as error:
        return deny(404, str(error), "mcp_server_not_found")
    except ConfigError as error:
        return deny(500, str(error), "mcp_registry")
    await note_change(gateway, http, "mcp remove", str(name))
    log.info(LogLine("mcp_removed", {"server": name, "key": http.key_id}))
    return json_response({"status": "ok", "name": name})


async def serve_mcp_list(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    servers = servers_of(gateway)
    try:
        await servers.list_new_servers()
        return json_response({"servers": servers.describe()})
    except (ConfigError, MissingPackageError) as error:
        return deny(500, str(error), "mcp_registry")


def deny(status: int, words: str, code: str) -> HttpResponse:
    """An error in a plain form: these routes belong to no vendor."""
    return json_response({"error": {"message": words, "type": "mcp_error", "code": code}}, status)


# ---------------------------------------------------------------- for the console


async def serve_mcp_servers(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """Servers with their tools, and the texts that differ from the approved ones."""
    servers = servers_of(gateway)
    try:
        await servers.list_new_servers()
    except (ConfigError, MissingPackageError) as error:
        return deny(500, str(error), "mcp_registry")
    rows = []
    for row in servers.describe():
        found = servers.find_connection(row["name"])
        listed = found.listed_tools.values() if found is not None else ()
        tools = [{"name": tool.name, "description": tool.description, "schema": tool.schema} for tool in listed]
        changed = servers.describe_changes(found) if found is not None else []
        rows.append({**row, "listed": tools, "changed": changed})
    return json_response({"servers": rows})


async def serve_mcp_approve(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    name = (await read_object(gateway, http)).get("name")
    found = servers_of(gateway).find_connection(str(name))
    if found is None:
        return deny(404, f"no server {str(name)[:100]!r} has been asked yet", "mcp_server_not_found")
    changes = len(found.changes)
    found.approve()
    await found.list_tools()  # so that the next look shows what is approved
    await note_change(gateway, http, "mcp approve", str(name), {"changes": changes})
    log.info(LogLine("mcp_approved", {"server": name, "changes": changes, "key": http.key_id}))
    return json_response({"status": "ok", "name": name, "changes": changes})


async def serve_mcp_call(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    server, tool, arguments = (body.get(name) for name in ("server", "tool", "arguments"))
    if not (isinstance(server, str) and isinstance(tool, str) and isinstance(arguments, dict)):
        raise DecodeError("expected an object with server, tool and arguments")
    call = ToolCall(id="console", name=f"{server}.{tool}", arguments=dump_text(arguments))
    try:
        result = await servers_of(gateway).make_toolbox([server]).run(call)
    except (ConfigError, MissingPackageError, UnknownServerError) as error:
        return deny(404, str(error), "mcp_server_not_found")
    await note_change(gateway, http, "mcp call", call.name, {"failed": bool(result.failed)})
    log.info(LogLine("mcp_called", {"server": server, "tool": tool, "failed": result.failed, "key": http.key_id}))
    return json_response({"failed": bool(result.failed), "parts": [to_builtins(part) for part in result.parts]})


# ---------------------------------------------------------------- generate_with_mcp


async def serve_generate_with_mcp(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return await serve_calls(gateway, http, answer_call, METHODS)


async def answer_call(gateway: Gateway, http: HttpRequest, call: RpcCall) -> HttpResponse:
    dialect = dialect_for(call.id)
    try:
        options = take_loop_options(call.params, gateway)
        scope = http.scope = Scope(gateway, http, dialect, "generate_with_mcp")
        await take_in(scope, PATH, dump_json(call.params))
        return await answer_in_loop(scope, options)
    except Exception as error:
        return refuse_call(gateway, http, dialect, error)


def take_loop_options(params: JsonObject, gateway: Gateway) -> LoopOptions:
    """Takes what is ours out of the params; the rest is a call of /generate."""
    settings = gateway.now.settings.mcp
    names = params.pop("mcp_servers", None)
    if isinstance(names, str):
        names = [names]
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DecodeError(f"expected a list of names, found {kind_of(names)}", "mcp_servers")
    turns = params.pop("max_iterations", ITERATIONS)
    if type(turns) is not int or not 1 <= turns <= 100:
        raise DecodeError("expected a whole number from 1 to 100", "max_iterations")
    mode = params.pop("mode", None)
    if mode is not None and mode not in MODES:
        raise DecodeError(f"expected one of {', '.join(word for word in MODES if word)}", "mode")
    limits: Limits = replace(settings.limits, turns=turns)
    chosen = tuple(names) if names is not None else settings.default
    return LoopOptions(names=chosen, mode=MODES[mode or ""], show="nothing", limits=limits, calls=True)
