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


def list_providers(asked: AdminRequest) -> Providers:
    states, now = asked.gateway.now.upstream_states, asked.gateway.clock()
    rows = {name: describe_provider(state, now) for name, state in states.items()}
    since = round(asked.gateway.wall() * 1000) - HOUR_MS
    return Providers(providers=rows, latencies=asked.gateway.traffic.store.latencies(since))


def check_config(asked: AdminRequest) -> ConfigVerdict:
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


def show_config(asked: AdminRequest) -> ConfigView:
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


def show_config_schema(asked: AdminRequest) -> JsonObject:
    from dragoman.gateway.config.schema import config_schema

    return config_schema()


def save_config(asked: AdminRequest) -> ConfigVerdict:
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


def apply_config(asked: AdminRequest) -> ConfigVerdict:
    """Reads the configuration file again, in all workers. A bad one changes nothing."""
    why = asked.gateway.apply_config()
    asked.note("config apply", asked.gateway.now.settings.source, why or "good")
    return ConfigVerdict(good=not why, why=why)


def show_verify(asked: AdminRequest) -> VerifyView:
    """The scenarios, the providers, and the runs of the console."""
    gateway = asked.gateway
    runs = gateway.verify_book.runs()
    if gateway.open_verifier is None:
        return VerifyView(available=False, scenarios=[], targets=[], runs=runs)
    verifier = gateway.open_verifier()
    targets = verifier.list_targets(gateway.now.settings.upstreams)
    return VerifyView(available=True, scenarios=verifier.list_scenarios(), targets=targets, runs=runs)


async def start_verify(asked: AdminRequest) -> JsonObject:
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


async def stop_verify(asked: AdminRequest) -> JsonObject:
    asked.gateway.verify_book.stop()
    return {"done": True}


async def add_mcp(asked: AdminRequest) -> Done:
    """A server at an address. Programs are named in the configuration file only."""
    from dragoman.gateway.mcp_loop import servers_of  # most gateways have no MCP servers

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


async def remove_mcp(asked: AdminRequest) -> Done:
    from dragoman.gateway.mcp_loop import servers_of
    from dragoman.mcp.servers import UnknownServerError

    name = asked.groups["name"]
    try:
        servers_of(asked.gateway).remove(name)
    except BadServerError as error:
        raise ValueError(str(error)) from error
    except UnknownServerError:
        missing("MCP server", name)
    await _note(asked, "mcp remove", name, None)
    return Done(done=True)


async def _of_registry(work: Awaitable[T]) -> T:
    from dragoman.mcp.servers import MissingPackageError

    try:
        return await work
    except MissingPackageError as error:
        raise UpstreamError(Failure(kind="server_error", status=501, message=str(error))) from error


async def _note(asked: AdminRequest, what: str, subject: str, after: object) -> None:
    """In the audit log, if there is a store to keep it in."""
    store = asked.gateway.now.access.keys.store
    if store is not None:
        await asyncio.to_thread(store.note, asked.who, what, subject, None, after)
