"""Starts the gateway: settings, keys, socket, workers, reload."""

import asyncio
import gc
import logging
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket
from typing import TextIO

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import ConfigError
from dragoman.gateway.app import App
from dragoman.gateway.auth import Access, KeyStore
from dragoman.gateway.banner import banner
from dragoman.gateway.config import find_file, load_settings, state_folder
from dragoman.gateway.log import Log
from dragoman.gateway.server import bind, make_server, run_loop, take_over
from dragoman.gateway.settings import LOOPBACK, Settings
from dragoman.gateway.state import Gateway
from dragoman.gateway.workers import supervise
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
_LITERAL_KEY = re.compile(r"""(?:keys?)["']?\s*[=:]\s*\[?\s*["'](?!\$\{)[^"']""")
MISCONFIGURED = 78  # EX_CONFIG of sysexits.h
WATCH_S = 0.5
SETTLE_S = 0.2  # half of a file that is being written may be valid: wait until it stops changing
# Settings that are read only when a process starts.
FIXED = ("host", "port", "log", "grace_s", "store_path", "store_rows", "xray_keep")


class ServeOptions(Struct, kw_only=True):
    """What the command line says; None is "not said"."""

    config: Path | None = None
    host: str | None = None
    port: int | None = None
    workers: int = 1
    reuse_port: bool = False
    watch: bool = False
    verbose: bool = False
    log: str | None = None
    xray: int | None = None


def settle(options: ServeOptions, env: Mapping[str, str]) -> Settings:
    """The settings to run with: the command line wins over the file."""
    path = options.config or find_file(Path.cwd(), env)
    settings = load_settings(path, env)
    said = {"host": options.host, "port": options.port, "log": options.log, "xray_keep": options.xray}
    changes = {name: value for name, value in said.items() if value is not None}
    settings = replace(settings, store_path=state_folder(env) / "responses.db", **changes)
    for upstream in settings.upstreams:
        if _is_self(upstream.base_url, settings):
            raise ConfigError(settings.source or "settings", upstream.name, "its base_url is this gateway itself")
    return settings


def _is_self(url: str, settings: Settings) -> bool:
    return any(url.startswith(f"http://{host}:{settings.port}") for host in {*LOOPBACK, settings.host})


def make_access(settings: Settings, env: Mapping[str, str]) -> Access:
    keys = KeyStore(state_folder(env) / "keys.json", settings.client_keys)
    hosts = [*settings.hosts]
    if settings.host not in LOOPBACK:
        hosts += ["*"] if not settings.hosts else [settings.host]  # with a key, any host name is fine
    return Access(keys, hosts, settings.origins, settings.limits.wrong_keys)


def check_exposure(settings: Settings, access: Access) -> None:
    """Refuses to listen beyond this machine without client keys (T01)."""
    if settings.host not in LOOPBACK and not access.keys.configured:
        words = f"refusing to listen on {settings.host} without client keys: make one with `dragoman keys new`"
        raise ConfigError(settings.source or "--host", "", words)


def open_secrets(source: str) -> str | None:
    """A warning if the file holds keys and other users of this machine can read it (T33)."""
    path = Path(source)
    if not source or not path.is_file() or not path.stat().st_mode & 0o077:
        return None
    if not _LITERAL_KEY.search(path.read_text("utf-8")):
        return None
    return f"{source} has keys in it and others can read it: chmod 600, or name environment variables in it"


def serve(options: ServeOptions, env: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Runs until it is told to stop; the exit code."""
    if hasattr(signal, "SIGHUP"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # it would end a process that does not handle it yet
    try:
        settings = settle(options, env)
        access = make_access(settings, env)
        check_exposure(settings, access)
    except ConfigError as error:
        print(f"dragoman serve: {error}", file=err)
        return MISCONFIGURED
    try:
        listener = bind(settings.host, settings.port, shared=options.reuse_port)
    except OSError as error:
        print(f"dragoman serve: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=err)
        return 1
    if warning := open_secrets(settings.source):
        print(f"dragoman serve: {warning}", file=err)
    journal = Log(settings.log, verbose=options.verbose or bool(env.get("DRAGOMAN_VERBOSE")))
    journal.to_stderr()
    port = listener.getsockname()[1]
    out.write(banner(replace(settings, port=port), access, env))
    out.flush()

    def work(number: int) -> None:
        fresh, own = _read_again(options, settings, access, env) if options.workers > 1 else (settings, access)
        run_loop(_main(options, fresh, own, journal, env, listener))

    if options.workers > 1:
        return supervise(options.workers, work)
    work(0)
    return 0


def _read_again(
    options: ServeOptions, settings: Settings, access: Access, env: Mapping[str, str]
) -> tuple[Settings, Access]:
    """For a worker that replaces another one: the configuration that the others have loaded by now."""
    if not settings.source:
        return settings, access
    try:
        fresh = settle(options, env)
        own = make_access(fresh, env)
        check_exposure(fresh, own)
    except ConfigError:
        return settings, access
    return fresh, own


async def _main(
    options: ServeOptions, settings: Settings, access: Access, journal: Log, env: Mapping[str, str], listener: socket
) -> None:
    gateway = Gateway(settings, access, log=journal, share=max(1, options.workers))
    server = make_server(gateway, App(gateway), lambda: reload(gateway, options, env))
    gc.collect()
    gc.freeze()  # these objects live as long as the process: the collector need not look at them
    gc.set_threshold(10_000, 10, 10)
    watcher = asyncio.ensure_future(watch(gateway, options, env)) if options.watch else None
    if options.reuse_port:
        take_over(listener)
    try:
        await server.serve(sockets=[listener])
    finally:
        if watcher is not None:
            watcher.cancel()
        await gateway.close()
        journal.flush()


def reload(gateway: Gateway, options: ServeOptions, env: Mapping[str, str]) -> bool:
    """Loads the configuration again. If it is bad, the old one stays (P10)."""
    try:
        if not gateway.now.settings.source:
            return False
        settings = settle(options, env)
        access = make_access(settings, env)
        check_exposure(settings, access)
    except ConfigError as error:
        return _reject(gateway, str(error))
    except Exception as error:  # a file must not be able to stop a running gateway
        return _reject(gateway, f"{options.config}: cannot be read ({type(error).__name__})")
    old = gateway.now.settings
    late = [name for name in FIXED if getattr(settings, name) != getattr(old, name)]
    gateway.replace(settings, access)
    log.info(LogLine("config_loaded", {"generation": gateway.now.number, "source": settings.source}))
    if late:
        log.warning(LogLine("config_needs_a_restart", {"keys": ", ".join(late)}))
    return True


def _reject(gateway: Gateway, why: str) -> bool:
    gateway.rejected += 1
    log.warning(LogLine("config_rejected", {"why": why, "generation": gateway.now.number}))
    return False


async def watch(
    gateway: Gateway, options: ServeOptions, env: Mapping[str, str], load: Callable[..., bool] = reload
) -> None:
    """Reloads when the file has changed and is no longer being written."""
    path = Path(gateway.now.settings.source) if gateway.now.settings.source else None
    if path is None:
        log.warning(LogLine("nothing_to_watch", {"why": "there is no configuration file"}))
        return
    seen = _stamp(path)
    while True:
        await asyncio.sleep(WATCH_S)
        stamp = _stamp(path)
        if stamp is None or stamp == seen:
            continue  # without a file, the old configuration stays
        while True:
            await asyncio.sleep(SETTLE_S)
            later = _stamp(path)
            if later == stamp:
                break
            stamp = later
        if stamp is not None:
            seen = stamp
            load(gateway, options, env)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
    except OSError:
        return None
