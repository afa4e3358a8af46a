"""The MCP registry over HTTP (mission D8) and generation with MCP tools (mission D9).

POST   /mcp/add     {"name": ..., "url": ...}
DELETE /mcp/remove  {"name": ...}
GET    /mcp/list
POST   /generate_with_mcp   JSON-RPC as at /generate; params also `mcp_servers`, `max_iterations`, `mode`
"""

import logging
from urllib.parse import parse_qs

from msgspec.structs import replace

from dragoman.agent.steps import Limits
from dragoman.dialects.jsonrpc import Fault, decode_calls, dialect_for, encode_answers
from dragoman.dialects.jsonrpc.words import METHOD
from dragoman.errors import ConfigError, DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.bodies import inflate
from dragoman.gateway.failing import refuse
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse, json_response
from dragoman.gateway.mcp_loop import MODES, LoopAnswer, Wish, answer_in_loop
from dragoman.gateway.mcp_state import servers_of
from dragoman.gateway.plain import read_object
from dragoman.gateway.relay import Scope, take_in
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import Json, JsonObject, dump_json, kind_of, load_object
from dragoman.lines import Line
from dragoman.mcp.react import ERROR
from dragoman.mcp.servers import MissingPackageError, UnknownServerError
from dragoman.mcp.spec import BadServerError

log = logging.getLogger(__name__)
METHODS = (METHOD, "generate_with_mcp")
ITERATIONS = 5
STDIO_KEYS = ("command", "args", "env", "cwd")


async def serve_mcp_add(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    body = await read_object(gateway, http)
    if any(key in body for key in STDIO_KEYS) or str(body.get("transport", "")).lower() == "stdio":
        # a program's name from the network is remote code execution (T03)
        return deny(403, "programs to start are named in the configuration file only", "stdio_servers_are_config_only")
    servers = servers_of(gateway)
    try:
        await servers.prepare()
        replaced = servers.add(body.get("name"), body.get("url"))
        await servers.look(0.0)  # so that the next list has something to say
    except BadServerError as error:
        return deny(400, str(error), "invalid_mcp_server")
    except (ConfigError, MissingPackageError) as error:
        return deny(500, str(error), "mcp_registry")
    log.info(Line("mcp_added", {"server": body["name"], "url": body["url"], "key": http.key_id}))
    return json_response({"status": "ok", "name": body["name"], "url": body["url"], "replaced": replaced})


async def serve_mcp_remove(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
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
    log.info(Line("mcp_removed", {"server": name, "key": http.key_id}))
    return json_response({"status": "ok", "name": name})


async def serve_mcp_list(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    servers = servers_of(gateway)
    try:
        await servers.look()
        return json_response({"servers": servers.describe()})
    except (ConfigError, MissingPackageError) as error:
        return deny(500, str(error), "mcp_registry")


def deny(status: int, words: str, code: str) -> HttpResponse:
    """These routes are ours, no vendor's: errors are said plainly."""
    return json_response({"error": {"message": words, "type": "mcp_error", "code": code}}, status)


# ---------------------------------------------------------------- generate_with_mcp


async def serve_generate_with_mcp(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    raw = inflate(await http.read(), http.headers.get("content-encoding", ""), gateway.now.settings.max_body_bytes)
    batch = decode_calls(raw, METHODS)
    if not batch.single:
        raise UpstreamError(Failure(kind="invalid_request", status=400, message="one call at a time here, no batch"))
    call = batch.calls[0]
    if isinstance(call, Fault):
        body = encode_answers(batch, [None])
        return HttpResponse(204) if body is None else HttpResponse(200, body, headers={"content-type": JSON_TYPE})
    dialect = dialect_for(call.id)
    try:
        wish = take_wish(call.params, gateway)
        scope = http.scope = Scope(gateway, http, dialect, "generate_with_mcp")
        await take_in(scope, "/generate", dump_json(call.params))
        response = await answer_in_loop(scope, wish)
    except Exception as error:
        return refuse(gateway, http, dialect, error)
    answer = scope.answer
    if isinstance(answer, LoopAnswer) and response.stream is None:
        response.body = tell(response.body, answer)
    return response


def take_wish(params: JsonObject, gateway: Gateway) -> Wish:
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
    return Wish(names=chosen, mode=MODES[mode or ""], show="nothing", limits=limits)


def tell(data: bytes, answer: LoopAnswer) -> bytes:
    """What the loop did, beside the answer; a loop that ended without one says why."""
    body = load_object(data)
    result, stopped = body.get("result"), answer.stopped
    if not isinstance(result, dict) or stopped is None:
        return data
    if not result.get("generated_text") and stopped.reason not in ("done", "caller"):
        result["generated_text"] = f"{ERROR}no answer after {stopped.turns} iterations ({stopped.reason})"
    result["iterations"] = stopped.turns
    result["mcp_calls"] = [
        {
            "tool": answer.label(step.call.name),
            "arguments": step.call.arguments,
            "failed": bool(step.result.failed),
            "seconds": round(step.seconds, 3),
        }
        for step in answer.calls
    ]
    return dump_json(body)
