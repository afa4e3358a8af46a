"""The admin API at /admin/v1: keys, teams, budgets, usage, the ledger, the audit log, providers, the configuration.

Every call is one row of `CALLS`. The OpenAPI document is made of these rows and of the Structs that they name. What
changes something is in the audit log with the name of the admin's key.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from dragoman.accounts import budgets, usage
from dragoman.accounts.grants import NO_GRANT, Account, Grant, GrantChange, make_holder
from dragoman.accounts.ledger import Ledger, Page, Sums
from dragoman.accounts.money import write_amount, write_time
from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._base import Door
from dragoman.errors import ConfigError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.bodies import read_body
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.mcp_loop import servers_of
from dragoman.gateway.routes.console import DESCRIBED, Described
from dragoman.gateway.routes.status import describe_provider
from dragoman.gateway.routes.table import Match, Route
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.engines import open_budgets, open_ledger
from dragoman.gateway.stores.keys import AuditRow, KeyChange, KeyRow, KeyStore
from dragoman.gateway.stores.verify import ScenarioView, VerifyRunView, VerifyTargetView
from dragoman.gateway.telemetry.traffic_store import Latency
from dragoman.jsontypes import JsonObject
from dragoman.mcp.servers import MissingPackageError, UnknownServerError
from dragoman.mcp.spec import BadServerError
from dragoman.upstream.attempts import is_large, off_loop

T = TypeVar("T")
BASE = "/admin/v1"
USUAL_ROWS = 100
MOST_ROWS = 1000  # in one answer
HOUR_MS = 3_600_000


class NewKey(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    admin: bool = False
    team: str = ""
    grant: Grant = NO_GRANT
    expires: float | None = None  # seconds since 1970


class EditKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is. `expires` 0: never."""

    name: str | None = None
    team: str | None = None
    expires: float | None = None
    grant: GrantChange = GrantChange()


class Rotate(Struct, kw_only=True, forbid_unknown_fields=True):
    grace_s: float = 0.0  # how long the old secret stays good


class KeyMade(Struct, kw_only=True):
    id: str
    key: str  # this is the only time that it can be read


class KeyView(Struct, kw_only=True):
    """Without its digest."""

    id: str
    name: str
    admin: bool
    team: str
    created: float
    revoked: float | None
    expires: float | None
    grant: Grant


class Keys(Struct, kw_only=True):
    keys: list[KeyView]


class TeamView(Struct, kw_only=True):
    name: str
    grant: Grant
    keys: int = 0


class Teams(Struct, kw_only=True):
    teams: list[TeamView]


class BudgetView(Struct, kw_only=True):
    account: str
    budget: str
    spent: str
    reserved: str
    left: str
    percent: int
    resets: str | None


class Budgets(Struct, kw_only=True):
    budgets: list[BudgetView]


class UsageReport(Struct, kw_only=True):
    usage: list[Sums]


class Audit(Struct, kw_only=True):
    audit: list[AuditRow]


class ConfigText(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str  # TOML; a secret of the file may stand as [kept:...]


class ConfigSave(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str
    digest: str  # of the text that was edited


class ConfigVerdict(Struct, kw_only=True):
    good: bool
    why: str = ""
    key: str = ""
    line: int | None = None  # where


class ConfigVersion(Struct, kw_only=True):
    number: int  # when it was seen first, in milliseconds
    who: str
    text: str  # without secrets


class ConfigView(Struct, kw_only=True):
    source: str  # the file; "" without one
    text: str  # without secrets: each stands as [kept:...]
    digest: str
    generation: int
    versions: list[ConfigVersion]


class StartVerify(Struct, kw_only=True, forbid_unknown_fields=True):
    providers: list[str] = []  # none: all
    groups: list[str] = []  # of scenarios; none: all


class VerifyView(Struct, kw_only=True):
    available: bool
    scenarios: list[ScenarioView]
    targets: list[VerifyTargetView]
    runs: list[VerifyRunView]  # the newest first


class Done(Struct, kw_only=True):
    done: bool


class NewMcpServer(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    url: str
    transport: Literal["", "auto", "http", "sse"] = ""


class Providers(Struct, kw_only=True):
    providers: dict[str, Any]
    latencies: dict[str, Latency]  # of the last hour, by provider


class Asked(Struct, kw_only=True):
    """One call, with what its path, its query and its body say."""

    gateway: Gateway
    groups: dict[str, str]
    query: dict[str, str]
    body: Any
    who: str

    @property
    def store(self) -> KeyStore:
        store = self.gateway.now.access.keys.store
        if store is None:
            raise UpstreamError(Failure(kind="server_error", status=501, message="this gateway has no key store"))
        return store

    def note(self, what: str, subject: str, after: object) -> None:
        """Into the audit log, if there is one."""
        if self.gateway.now.access.keys.store is not None:
            self.store.note(self.who, what, subject, None, after)

    @property
    def folder(self) -> Path:
        path = self.gateway.now.settings.store_path
        if path is None:
            raise UpstreamError(Failure(kind="server_error", status=501, message="this gateway keeps nothing on disk"))
        return path.parent


# ---------------------------------------------------------------- keys and teams


def list_keys(asked: Asked) -> Keys:
    table = asked.store.read()
    return Keys(keys=[_view(row) for row in table.rows] if table is not None else [])


def show_key(asked: Asked) -> KeyView:
    found = next((key for key in list_keys(asked).keys if key.id == asked.groups["id"]), None)
    return found or _missing("key", asked.groups["id"])


def new_key(asked: Asked) -> KeyMade:
    said: NewKey = asked.body
    more = {"admin": said.admin, "team": said.team, "grant": said.grant, "expires": said.expires}
    key = asked.store.new(said.name, **more, who=asked.who)  # type: ignore[arg-type]  # as NewKey has them
    return KeyMade(id=key.split("-")[1], key=key)


def edit_key(asked: Asked) -> KeyView:
    said: EditKey = asked.body
    change = KeyChange(name=said.name, team=said.team, expires=said.expires, grant=said.grant)
    row = asked.store.edit(asked.groups["id"], change, asked.who)
    return _view(row) if row is not None else _missing("key", asked.groups["id"])


def rotate_key(asked: Asked) -> KeyMade:
    key = asked.store.rotate(asked.groups["id"], asked.body.grace_s, asked.who)
    return KeyMade(id=asked.groups["id"], key=key) if key is not None else _missing("key", asked.groups["id"])


def revoke_key(asked: Asked) -> Done:
    done = asked.store.revoke(asked.groups["id"], asked.who)
    return Done(done=True) if done else _missing("key", asked.groups["id"])


def list_teams(asked: Asked) -> Teams:
    table = asked.store.read()
    file = asked.gateway.now.settings.teams.teams
    rows = table.rows if table is not None else ()
    grants = {**(table.teams if table is not None else {}), **file}
    counts = {name: sum(row.team == name and not row.revoked for row in rows) for name in grants}
    return Teams(teams=[TeamView(name=name, grant=grant, keys=counts[name]) for name, grant in grants.items()])


def set_team(asked: Asked) -> TeamView:
    name = asked.groups["name"]
    return TeamView(name=name, grant=asked.store.set_team(name, asked.body, asked.who))


def drop_team(asked: Asked) -> Done:
    done = asked.store.drop_team(asked.groups["name"], asked.who)
    return Done(done=True) if done else _missing("team", asked.groups["name"])


def read_audit(asked: Asked) -> Audit:
    before = _number(asked, "before", 0)
    return Audit(audit=asked.store.read_audit(_limit(asked), before or None))


def _view(row: KeyRow) -> KeyView:
    return KeyView(**{name: getattr(row, name) for name in KeyView.__struct_fields__})


def _missing(kind: str, name: str) -> Any:
    raise UpstreamError(Failure(kind="not_found", status=404, message=f"there is no {kind} {name[:100]!r}"))


# ---------------------------------------------------------------- money


def list_budgets(asked: Asked) -> Budgets:
    accounts = list(_accounts(asked).values())
    now = asked.gateway.wall()
    with closing(open_budgets(asked.folder, asked.gateway.database)) as store:
        found = store.read(budgets.make_lines(accounts, now))
    return Budgets(budgets=[_budget(account, spent, now) for account, spent in zip(accounts, found, strict=True)])


def _accounts(asked: Asked) -> dict[str, Account]:
    """Every key and team with a budget."""
    table = asked.store.read()
    teams = {team.name: team.grant for team in list_teams(asked).teams}
    rows = [row for row in (table.rows if table is not None else ()) if row.revoked is None]
    holders = [make_holder(row.id, row.name, row.grant) for row in rows]
    holders += [make_holder("", "", NO_GRANT, team=name, team_grant=grant) for name, grant in teams.items()]
    return {account.name: account for holder in holders for account in holder.budgeted}


def _budget(account: Account, spent: budgets.Spent, now: float) -> BudgetView:
    reset = budgets.find_reset(account.budget, now) if account.budget is not None else None
    return BudgetView(
        account=account.name,
        budget=str(account.budget),
        spent=write_amount(spent.micros),
        reserved=write_amount(spent.reserved),
        left=write_amount(spent.left),
        percent=spent.percent,
        resets=write_time(reset) if reset is not None else None,
    )


def read_usage(asked: Asked) -> UsageReport:
    by = [word.strip() for word in asked.query.get("by", "team,model").split(",") if word.strip()]
    since, until, where = _span(asked)
    with _ledger(asked) as store:
        return UsageReport(usage=[line.sums for line in usage.make_report(store, by, since, until, where)])


def read_ledger(asked: Asked) -> Page:
    since, until, where = _span(asked)
    with _ledger(asked) as store:
        return store.page(since, until, where, asked.query.get("cursor", ""), _limit(asked))


def _ledger(asked: Asked) -> closing[Ledger]:
    return closing(open_ledger(asked.folder, asked.gateway.database))


def _span(asked: Asked) -> tuple[float, float, dict[str, str]]:
    now = asked.gateway.wall()
    since = usage.read_since(asked.query.get("since", "7d"), now)
    until = usage.read_since(asked.query["until"], now) if "until" in asked.query else now
    where = {name: asked.query[name] for name in _SPAN[2:] if name in asked.query}
    if "key_name" in where:  # `key` would be a client's secret
        where["key"] = where.pop("key_name")
    return since, until, where


def _limit(asked: Asked) -> int:
    return min(_number(asked, "limit", USUAL_ROWS), MOST_ROWS)


def _number(asked: Asked, name: str, usual: int) -> int:
    said = asked.query.get(name)
    if said is not None and not (said.isdecimal() and len(said) < 16):
        raise ValueError(f"{name}: expected a whole number")
    return usual if said is None else int(said)


# ---------------------------------------------------------------- the gateway


def list_providers(asked: Asked) -> Providers:
    states, now = asked.gateway.now.upstream_states, asked.gateway.clock()
    rows = {name: describe_provider(state, now) for name, state in states.items()}
    since = round(asked.gateway.wall() * 1000) - HOUR_MS
    return Providers(providers=rows, latencies=asked.gateway.traffic.store.latencies(since))


def check_config(asked: Asked) -> ConfigVerdict:
    """Whether a text would be a good configuration. Nothing changes."""
    from dragoman.gateway.config.book import ConfigBook

    book = asked.gateway.open_config() or ConfigBook(Path("dragoman.toml"), None)
    try:
        book.check(asked.body.text)
    except ConfigError as error:
        return _verdict(error)
    return ConfigVerdict(good=True)


def _verdict(error: ConfigError) -> ConfigVerdict:
    return ConfigVerdict(good=False, why=error.why, key=error.key, line=error.line)


def show_config(asked: Asked) -> ConfigView:
    from dragoman.gateway.config.book import digest_text

    book, generation = asked.gateway.open_config(), asked.gateway.now.number
    if book is None:
        return ConfigView(source="", text="", digest="", generation=generation, versions=[])
    text = book.read()
    versions = [ConfigVersion(number=v.number, who=v.who, text=book.hide(v.text)) for v in book.versions()]
    return ConfigView(
        source=str(book.source),
        text=book.hide(text),
        digest=digest_text(text),
        generation=generation,
        versions=versions,
    )


def show_config_schema(asked: Asked) -> JsonObject:
    from dragoman.gateway.config.schema import config_schema
    from dragoman.gateway.config.teams import TABLES

    return config_schema(tuple(sorted(TABLES)))


def save_config(asked: Asked) -> ConfigVerdict:
    """Writes the file and uses it. If the gateway cannot use it, the old text is written back."""
    gateway, book = asked.gateway, asked.gateway.open_config()
    if book is None:
        words = "this gateway runs without a configuration file: make one with `dragoman init`, then start it again"
        return ConfigVerdict(good=False, why=words)
    try:
        old = book.read()
        book.save(asked.body.text, asked.who, asked.body.digest)
    except ConfigError as error:
        return _verdict(error)
    why = gateway.apply_config()
    if why:
        book.write(old)
    asked.note("config save", gateway.now.settings.source, why or "good")
    return ConfigVerdict(good=not why, why=why)


def apply_config(asked: Asked) -> ConfigVerdict:
    """Reads the configuration file again, in all workers. A bad one changes nothing."""
    why = asked.gateway.apply_config()
    asked.note("config apply", asked.gateway.now.settings.source, why or "good")
    return ConfigVerdict(good=not why, why=why)


def show_verify(asked: Asked) -> VerifyView:
    """The scenarios, the providers, and the runs of the console."""
    gateway = asked.gateway
    runs = gateway.verify_book.runs()
    if gateway.open_verifier is None:
        return VerifyView(available=False, scenarios=[], targets=[], runs=runs)
    verifier = gateway.open_verifier()
    targets = verifier.list_targets(gateway.now.settings.upstreams)
    return VerifyView(available=True, scenarios=verifier.list_scenarios(), targets=targets, runs=runs)


async def start_verify(asked: Asked) -> JsonObject:
    """Asks providers the scenarios of `verify`. This costs what requests cost."""
    gateway, said = asked.gateway, asked.body
    if gateway.open_verifier is None:
        raise ValueError("this gateway was started without the scenarios of `dragoman verify`")
    verifier = gateway.open_verifier()
    chosen = [u for u in gateway.now.settings.upstreams if not said.providers or u.name in said.providers]
    scenarios = [s.name for s in verifier.list_scenarios() if not said.groups or s.group in said.groups]
    if not scenarios or not verifier.list_targets(chosen):
        raise ValueError("there is no provider to verify; the demo model needs no check")
    run = gateway.verify_book.start(verifier, chosen, scenarios, asked.who)
    asked.note("verify", ", ".join(u.name for u in chosen), run)
    return {"id": run}


async def stop_verify(asked: Asked) -> JsonObject:
    asked.gateway.verify_book.stop()
    return {"done": True}


# ---------------------------------------------------------------- MCP servers


async def add_mcp(asked: Asked) -> Done:
    """A server at an address. Programs are named in the configuration file only."""
    said: NewMcpServer = asked.body
    servers = servers_of(asked.gateway)
    more = {"transport": said.transport} if said.transport else None
    await _of_registry(servers.load_package())
    try:
        await servers.check_address(said.url)
        servers.add(said.name, said.url, more)
    except BadServerError as error:
        raise ValueError(str(error)) from error
    await _of_registry(servers.list_new_servers(0.0))
    await _note(asked, "mcp add", said.name, {"url": servers.list_specs()[said.name].address})
    return Done(done=True)


async def remove_mcp(asked: Asked) -> Done:
    name = asked.groups["name"]
    try:
        servers_of(asked.gateway).remove(name)
    except BadServerError as error:
        raise ValueError(str(error)) from error
    except UnknownServerError:
        _missing("MCP server", name)
    await _note(asked, "mcp remove", name, None)
    return Done(done=True)


async def _of_registry(work: Awaitable[T]) -> T:
    try:
        return await work
    except MissingPackageError as error:
        raise UpstreamError(Failure(kind="server_error", status=501, message=str(error))) from error


async def _note(asked: Asked, what: str, subject: str, after: object) -> None:
    """In the audit log, if there is a store to keep it in."""
    store = asked.gateway.now.access.keys.store
    if store is not None:
        await asyncio.to_thread(store.note, asked.who, what, subject, None, after)


async def show_openapi(asked: Asked) -> JsonObject:
    return openapi()


# ---------------------------------------------------------------- the table


class Call(Struct, frozen=True, kw_only=True):
    method: str
    path: str  # with {name} for what is taken out of it
    work: Callable[[Asked], Any]
    says: str
    body: Any = None  # the type of what is sent
    query: tuple[str, ...] = ()

    @property
    def reply(self) -> Any:
        return inspect.signature(self.work).return_annotation


_SPAN = ("since", "until", "team", "key_name", "model", "upstream", "door")
CALLS = (
    Call(method="GET", path="/keys", work=list_keys, says="list keys"),
    Call(method="POST", path="/keys", work=new_key, says="make a key", body=NewKey),
    Call(method="GET", path="/keys/{id}", work=show_key, says="show a key"),
    Call(method="PATCH", path="/keys/{id}", work=edit_key, says="change a key", body=EditKey),
    Call(method="POST", path="/keys/{id}/rotate", work=rotate_key, says="make a new secret for a key", body=Rotate),
    Call(method="DELETE", path="/keys/{id}", work=revoke_key, says="revoke a key"),
    Call(method="GET", path="/teams", work=list_teams, says="list teams"),
    Call(method="PATCH", path="/teams/{name}", work=set_team, says="make or change a team", body=GrantChange),
    Call(method="DELETE", path="/teams/{name}", work=drop_team, says="delete a team"),
    Call(method="GET", path="/budgets", work=list_budgets, says="how budgets stand"),
    Call(method="GET", path="/usage", work=read_usage, says="sums of the ledger", query=("by", *_SPAN)),
    Call(method="GET", path="/ledger", work=read_ledger, says="single requests", query=("cursor", "limit", *_SPAN)),
    Call(method="GET", path="/audit", work=read_audit, says="who changed what", query=("before", "limit")),
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
_WORDS = {"{id}": r"(?P<id>[a-z0-9]{8})", "{name}": r"(?P<name>[^/]{1,100})"}


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
        query = {name: values[-1] for name, values in parse_qs(http.query).items()}
        who = (http.holder.name if http.holder is not None else "") or http.key_id or "local"
        asked = Asked(gateway=gateway, groups=match.groups, query=query, body=body, who=who)
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


# ---------------------------------------------------------------- OpenAPI 3.1


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
    reply = refs.get(call.reply, {"type": "object"})
    row: JsonObject = {
        "summary": call.says,
        "operationId": call.work.__name__ if isinstance(call, Call) else f"{call.method.lower()}{call.path}",
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": {"application/json": {"schema": reply}}},
            "default": {"description": "an error in OpenAI's shape"},
        },
    }
    if call.body is not None:
        row["requestBody"] = {"content": {"application/json": {"schema": refs[call.body]}}}
    return row
