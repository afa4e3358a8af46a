"""The admin API: providers, the configuration, `verify` and MCP servers."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from dragoman.errors import ConfigError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.routes.admin_types import (
    AdminRequest,
    ConfigVerdict,
    ConfigVersion,
    ConfigView,
    Done,
    NewMcpServer,
    Providers,
    VerifyView,
    missing,
)
from dragoman.gateway.routes.status import describe_provider
from dragoman.jsontypes import JsonObject
from dragoman.mcp.spec import BadServerError

T = TypeVar("T")
HOUR_MS = 3_600_000


def list_providers(request: AdminRequest) -> Providers:
    states, now = request.gateway.now.upstream_states, request.gateway.clock()
    rows = {name: describe_provider(state, now) for name, state in states.items()}
    since = round(request.gateway.wall() * 1000) - HOUR_MS
    return Providers(providers=rows, latencies=request.gateway.traffic.store.latencies(since))


def check_config(request: AdminRequest) -> ConfigVerdict:
    """Whether a text would be a good configuration. Nothing changes."""
    from dragoman.gateway.config.book import ConfigBook

    book = request.gateway.open_config() or ConfigBook(Path("dragoman.toml"), None)
    try:
        book.check(request.body.text)
    except ConfigError as error:
        return _verdict(error)
    return ConfigVerdict(good=True)


def _verdict(error: ConfigError) -> ConfigVerdict:
    return ConfigVerdict(good=False, why=error.why, key=error.key, line=error.line)


def show_config(request: AdminRequest) -> ConfigView:
    from dragoman.gateway.config.book import digest_text

    book, generation = request.gateway.open_config(), request.gateway.now.number
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


def show_config_schema(request: AdminRequest) -> JsonObject:
    from dragoman.gateway.config.schema import config_schema

    return config_schema()


def save_config(request: AdminRequest) -> ConfigVerdict:
    """Writes the file and uses it. If the gateway cannot use it, the old text is written back."""
    gateway, book = request.gateway, request.gateway.open_config()
    if book is None:
        words = "this gateway runs without a configuration file: make one with `dragoman init`, then start it again"
        return ConfigVerdict(good=False, why=words)
    try:
        old = book.read()
        book.save(request.body.text, request.who, request.body.digest)
    except ConfigError as error:
        return _verdict(error)
    why = gateway.apply_config()
    if why:
        book.write(old)
    request.note("config save", gateway.now.settings.source, why or "good")
    return ConfigVerdict(good=not why, why=why)


def apply_config(request: AdminRequest) -> ConfigVerdict:
    """Reads the configuration file again, in all workers. A bad one changes nothing."""
    why = request.gateway.apply_config()
    request.note("config apply", request.gateway.now.settings.source, why or "good")
    return ConfigVerdict(good=not why, why=why)


def show_verify(request: AdminRequest) -> VerifyView:
    """The scenarios, the providers, and the runs of the console."""
    gateway = request.gateway
    runs = gateway.verify_book.runs()
    if gateway.open_verifier is None:
        return VerifyView(available=False, scenarios=[], targets=[], runs=runs)
    verifier = gateway.open_verifier()
    targets = verifier.list_targets(gateway.now.settings.upstreams)
    return VerifyView(available=True, scenarios=verifier.list_scenarios(), targets=targets, runs=runs)


async def start_verify(request: AdminRequest) -> JsonObject:
    """Asks providers the scenarios of `verify`. This costs what requests cost."""
    gateway, body = request.gateway, request.body
    if gateway.open_verifier is None:
        raise ValueError("this gateway was started without the scenarios of `dragoman verify`")
    verifier = gateway.open_verifier()
    chosen = [u for u in gateway.now.settings.upstreams if not body.providers or u.name in body.providers]
    scenarios = [s.name for s in verifier.list_scenarios() if not body.groups or s.group in body.groups]
    if not scenarios or not verifier.list_targets(chosen):
        raise ValueError("there is no provider to verify; the demo model needs no check")
    run = gateway.verify_book.start(verifier, chosen, scenarios, request.who)
    request.note("verify", ", ".join(u.name for u in chosen), run)
    return {"id": run}


async def stop_verify(request: AdminRequest) -> JsonObject:
    request.gateway.verify_book.stop()
    return {"done": True}


async def add_mcp(request: AdminRequest) -> Done:
    """A server at an address. Programs are named in the configuration file only."""
    from dragoman.gateway.mcp_loop import servers_of  # most gateways have no MCP servers

    body: NewMcpServer = request.body
    servers = servers_of(request.gateway)
    more = {"transport": body.transport} if body.transport else None
    await _of_registry(servers.load_package())
    try:
        await servers.check_address(body.url)
        servers.add(body.name, body.url, more)
    except BadServerError as error:
        raise ValueError(str(error)) from error
    await _of_registry(servers.list_new_servers(0.0))
    await _note(request, "mcp add", body.name, {"url": servers.list_specs()[body.name].address})
    return Done(done=True)


async def remove_mcp(request: AdminRequest) -> Done:
    from dragoman.gateway.mcp_loop import servers_of
    from dragoman.mcp.servers import UnknownServerError

    name = request.groups["name"]
    try:
        servers_of(request.gateway).remove(name)
    except BadServerError as error:
        raise ValueError(str(error)) from error
    except UnknownServerError:
        missing("MCP server", name)
    await _note(request, "mcp remove", name, None)
    return Done(done=True)


async def _of_registry(work: Awaitable[T]) -> T:
    from dragoman.mcp.servers import MissingPackageError

    try:
        return await work
    except MissingPackageError as error:
        raise UpstreamError(Failure(kind="server_error", status=501, message=str(error))) from error


async def _note(request: AdminRequest, what: str, subject: str, after: object) -> None:
    """In the audit log, if there is a store to keep it in."""
    store = request.gateway.now.access.keys.store
    if store is not None:
        await asyncio.to_thread(store.note, request.who, what, subject, None, after)
