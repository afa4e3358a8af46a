"""The admin API at /admin/v1: keys, teams, budgets, usage, the ledger, the audit log, providers, the configuration.

Every call is one row of `CALLS`. The OpenAPI document is made of these rows and of the Structs that they name. A
call that changes something is written to the audit log, with the name of the admin's key.
"""

import asyncio
import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from dragoman.accounts.grants import GrantChange
from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._base import Door
from dragoman.errors import ConfigError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.audit import name_admin
from dragoman.gateway.bodies import read_body
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.routes.admin_gateway import (
    add_mcp,
    apply_config,
    check_config,
    list_providers,
    remove_mcp,
    save_config,
    show_config,
    show_config_schema,
    show_verify,
    start_verify,
    stop_verify,
)
from dragoman.gateway.routes.admin_keys import (
    SPAN,
    drop_team,
    edit_key,
    list_budgets,
    list_keys,
    list_teams,
    new_key,
    read_audit,
    read_ledger,
    read_usage,
    revoke_key,
    rotate_key,
    set_team,
    show_key,
)
from dragoman.gateway.routes.admin_types import (
    AdminRequest,
    ConfigSave,
    ConfigText,
    EditKey,
    NewKey,
    NewMcpServer,
    Rotate,
    StartVerify,
)
from dragoman.gateway.routes.console import DESCRIBED, Described
from dragoman.gateway.routes.table import Match, Route
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject
from dragoman.upstream.attempts import is_large, off_loop

BASE = "/admin/v1"


async def show_openapi(request: AdminRequest) -> JsonObject:
    return openapi()


class Call(Struct, frozen=True, kw_only=True):
    method: str
    path: str  # with {name} for what is taken out of it
    work: Callable[[AdminRequest], Any]
    says: str
    body: Any = None  # the type of what is sent
    query: tuple[str, ...] = ()

    @property
    def reply(self) -> Any:
        return inspect.signature(self.work).return_annotation


CALLS = (
    Call(method="GET", path="/keys", work=list_keys, says="list keys"),
    Call(method="POST", path="/keys", work=new_key, says="make a key", body=NewKey),
    Call(method="GET", path="/keys/{id}", work=show_key, says="show a key"),
    Call(method="PATCH", path="/keys/{id}", work=edit_key, says="change a key", body=EditKey),
    Call(method="POST", path="/keys/{id}/rotate", work=rotate_key, says="make a new secret for a key", body=Rotate),
    Call(method="DELETE", path="/keys/{id}", work=revoke_key, says="revoke a key"),
    Call(method="GET", path="/teams", work=list_teams, says="list teams"),
    Call(method="PATCH", path="/teams/{name}", work=set_team, says="make or change a team", body=GrantChange),
    Call(method="DELETE", path="/teams/{name}", work=drop_team, says="delete a team", query=("force",)),
    Call(method="GET", path="/budgets", work=list_budgets, says="how budgets stand"),
    Call(method="GET", path="/usage", work=read_usage, says="sums of the ledger", query=("by", *SPAN)),
    Call(method="GET", path="/ledger", work=read_ledger, says="single requests", query=("cursor", "limit", *SPAN)),
    Call(method="GET", path="/audit", work=read_audit, says="changes and their authors", query=("before", "limit")),
    Call(method="GET", path="/providers", work=list_providers, says="providers and how they are"),
    Call(method="GET", path="/config", work=show_config, says="the configuration file, without secrets"),
    Call(method="POST", path="/config", work=save_config, says="save the configuration file", body=ConfigSave),
    Call(method="GET", path="/config/schema", work=show_config_schema, says="the keys of the file, as JSON Schema"),
    Call(method="POST", path="/config/check", work=check_config, says="check a configuration", body=ConfigText),
    Call(method="POST", path="/config/apply", work=apply_config, says="read the configuration file again"),
    Call(method="GET", path="/verify", work=show_verify, says="scenarios, and the runs of verify"),
    Call(method="POST", path="/verify", work=start_verify, says="verify providers now", body=StartVerify),
    Call(method="DELETE", path="/verify", work=stop_verify, says="stop verifying"),
    Call(method="POST", path="/mcp", work=add_mcp, says="add an MCP server", body=NewMcpServer),
    Call(method="DELETE", path="/mcp/{name}", work=remove_mcp, says="remove an MCP server"),
    Call(method="GET", path="/openapi.json", work=show_openapi, says="this API, as OpenAPI 3.1"),
)
_WORDS = {"{id}": r"(?P<id>[^/]{1,100})", "{name}": r"(?P<name>.{1,100})"}  # a team may have a name with `/`


def make_routes() -> tuple[Route, ...]:
    return tuple(
        Route(
            method=call.method,
            door=Door(path=_pattern(call.path), methods=(call.method,), serves="admin"),
            dialect=find_dialect(USUAL),
            access="admin",
        )
        for call in CALLS
    )


def _pattern(path: str) -> str:
    for word, pattern in _WORDS.items():
        path = path.replace(word, pattern)
    return BASE + path


@cache
def _by_pattern() -> dict[tuple[str, str], Call]:
    return {(call.method, _pattern(call.path)): call for call in CALLS}


async def serve_admin(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    call = _by_pattern()[http.method, match.route.door.path]
    try:
        body = await _read(gateway, http, call)
        query = {name: values[-1] for name, values in parse_qs(http.query).items() if name != "key"}
        if (unknown := next((name for name in query if name not in call.query), None)) is not None:
            known = f"expected some of {', '.join(call.query)}" if call.query else "this call takes none"
            raise ValueError(f"the query's {unknown[:50]!r}: {known}")
        asked = AdminRequest(gateway=gateway, groups=match.groups, query=query, body=body, who=name_admin(http))
        if inspect.iscoroutinefunction(call.work):
            found = await call.work(asked)
        else:
            found = await asyncio.to_thread(call.work, asked)  # a store may be busy or far away
    except (ValueError, msgspec.ValidationError) as error:
        raise UpstreamError(Failure(kind="invalid_request", status=400, message=str(error))) from error
    except (ConfigError, OSError) as error:
        raise UpstreamError(Failure(kind="overloaded", status=503, message=str(error), retry_after_s=1.0)) from error
    if call.method != "GET":
        gateway.now.access.keys.look_again()
    return HttpResponse(200, msgspec.json.encode(found), headers={"content-type": "application/json"})


async def _read(gateway: Gateway, http: HttpRequest, call: Call) -> Any:
    if call.body is None:
        return None
    raw = await read_body(http, gateway.now.settings)
    return await off_loop(is_large(raw), partial(msgspec.json.decode, type=call.body), raw or b"{}")


def api_types() -> list[Any]:
    """Every type that is sent or comes back."""
    calls = (*CALLS, *DESCRIBED)
    found = [*(call.body for call in calls), *(call.reply for call in calls)]
    return list(dict.fromkeys(kind for kind in found if kind is not None and kind is not JsonObject))


@cache
def openapi() -> JsonObject:
    """https://spec.openapis.org/oas/v3.1.1.html (read 2026-11-16)"""
    types = api_types()
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs = dict(zip(types, schemas, strict=True))
    paths: JsonObject = {}
    for call in (*CALLS, *DESCRIBED):
        paths.setdefault(BASE + call.path, {})[call.method.lower()] = _describe(call, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dragoman admin", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer", "description": "an admin key, dka-..."}},
        },
        "security": [{"admin": []}],
    }


def _describe(call: Call | Described, refs: dict[Any, Any]) -> JsonObject:
    inside = [word for word in ("id", "name") if f"{{{word}}}" in call.path]
    parameters = [{"name": word, "in": "path", "required": True, "schema": {"type": "string"}} for word in inside]
    parameters += [{"name": word, "in": "query", "schema": {"type": "string"}} for word in call.query]
    media_type = call.media_type if isinstance(call, Described) else "application/json"
    reply = refs.get(call.reply, {"type": "object"} if media_type == "application/json" else {"type": "string"})
    row: JsonObject = {
        "summary": call.says,
        "operationId": call.work.__name__ if isinstance(call, Call) else f"{call.method.lower()}{call.path}",
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": {media_type: {"schema": reply}}},
            "default": {"description": "an error in OpenAI's shape"},
        },
    }
    if call.body is not None:
        row["requestBody"] = {"content": {"application/json": {"schema": refs[call.body]}}}
    return row
