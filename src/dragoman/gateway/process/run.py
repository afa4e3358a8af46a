"""Starts the gateway: settings, keys, socket, workers, reload."""

import asyncio
import gc
import os
import signal
import socket as socket_module
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from errno import EADDRINUSE
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

from msgspec.structs import replace

from dragoman.errors import ConfigError, DragomanError
from dragoman.gateway.access.auth import Access
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import LOOPBACK, Settings
from dragoman.gateway.process.banner import banner
from dragoman.gateway.process.certificate import Certificate, open_certificate
from dragoman.gateway.process.control import Control
from dragoman.gateway.process.peers import Peers
from dragoman.gateway.process.reload import LastGood, read_again, reload, watch
from dragoman.gateway.process.server import Server, bind, run_loop, take_over
from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, open_secrets, settle
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.engines import name_replica, open_database, open_limits, open_traces
from dragoman.gateway.telemetry.log import Log

if TYPE_CHECKING:
    from dragoman.gateway.process.accept import Share
    from dragoman.upstream.admission import LimitStore

MISCONFIGURED = 78  # EX_CONFIG of sysexits.h
SWITCH_S = 0.0001  # how long a thread that converts a large request may run while the loop has something to do


class CannotListen(DragomanError):
    """The address is taken, or not ours."""


def serve(options: ServeOptions, env: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Runs the gateway until it is told to stop. Returns the exit code."""
    if hasattr(signal, "SIGHUP"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # it would end a process that does not handle it yet
    try:
        check_system(options)
        settings = settle(options, env)
        if (database := open_database(settings)) is not None:
            database.close()
        check_exposure(settings, make_access(settings, env))
        certificate = open_certificate(settings)
        listener, access = _listen(settings, options, env)
        admin = _bind(LOOPBACK[0], settings.admin_port, options) if settings.admin_port else None
    except ConfigError as error:
        print(f"dragoman serve: {error}", file=err)
        return MISCONFIGURED
    except CannotListen as error:
        print(f"dragoman serve: {error}", file=err)
        return 1
    if warning := open_secrets(settings.source):
        print(f"dragoman serve: {warning}", file=err)
    journal = Log(settings.log, verbose=options.verbose or bool(env.get("DRAGOMAN_VERBOSE")))
    journal.to_stderr()
    port = listener.getsockname()[1]
    out.write(banner(replace(settings, port=port), access, env))
    out.flush()

    if options.workers > 1:
        last_good = LastGood(options, env, settings, access, certificate)
        return _serve_with_workers(options, env, last_good, journal, listener, admin)
    run_loop(_main(options, settings, access, journal, env, listener, admin=admin, certificate=certificate))
    return 0


def _serve_with_workers(
    options: ServeOptions,
    env: Mapping[str, str],
    last_good: LastGood,
    journal: Log,
    listener: socket,
    admin: socket | None,
) -> int:
    # Imported here: these modules need a system with fork.
    from dragoman.gateway.process.accept import OpenCounts
    from dragoman.gateway.process.shared_limits import SharedLimits, SharedMemory
    from dragoman.gateway.process.workers import supervise

    memory, open_counts = SharedMemory(options.workers), OpenCounts(options.workers)
    with TemporaryDirectory(prefix="dragoman-") as folder:

        def work(number: int, tell_supervisor: Callable[[], None]) -> None:
            fresh, own = last_good.for_new_process()
            limits, peers = SharedLimits(memory, number), Peers(Path(folder), number, options.workers)
            shown = last_good.certificate
            main = _main(
                *(options, fresh, own, journal, env, listener, limits, tell_supervisor, number, peers, admin, shown),
                share=open_counts.of(number),
            )
            run_loop(main)

        def stop_listening() -> None:
            """While a socket of ours is open, clients get connections that no worker accepts."""
            for one in (listener, admin):
                if one is not None:
                    one.close()

        return supervise(options.workers, work, last_good.follow, stop_listening)


def check_system(options: ServeOptions) -> None:
    """Windows has no fork and no shared port: one process serves there."""
    if options.workers > 1 and not hasattr(os, "fork"):
        raise ConfigError("--workers", "", "this system cannot start workers: leave the option out")
    if options.reuse_port and not hasattr(socket_module, "SO_REUSEPORT"):
        raise ConfigError("--reuse-port", "", "this system cannot share a port: leave the option out")


def apply(gateway: Gateway, options: ServeOptions, env: Mapping[str, str], spread: Callable[[], object]) -> str:
    """Reads the configuration again, if it is good. Returns "", or why it is not good."""
    try:
        read_again(options, env, gateway.now.settings, gateway.now.access)
    except ConfigError as error:
        return str(error)
    spread()
    return ""


def hang_up_supervisor() -> None:
    """Tells the supervisor to reload; it tells all its workers."""
    os.kill(os.getppid(), signal.SIGHUP)


def _bind(host: str, port: int, options: ServeOptions) -> socket:
    try:
        return bind(host, port, shared=options.reuse_port)
    except OSError as error:
        hint = f"; does a gateway run already? --port {port + 1} chooses another" if error.errno == EADDRINUSE else ""
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from error


def _listen(settings: Settings, options: ServeOptions, env: Mapping[str, str]) -> tuple[socket, Access]:
    """The socket, and the access for its real address: a name may stand for one that other machines can reach."""
    listener = _bind(settings.host, settings.port, options)
    access = make_access(settings, env, listener.getsockname()[0])
    check_exposure(settings, access)
    return listener, access


async def _open_gateway(
    settings: Settings, access: Access, journal: Log, limits: "LimitStore | None", replica: str
) -> Gateway:
    """A gateway with its stores. `replica`: the name of this process among those that share limits."""
    shared = None
    if settings.state:
        limits = shared = open_limits(settings, replica, time.monotonic)
    gateway = Gateway(settings, access, log=journal, limits=limits, database=open_database(settings))
    gateway.traces = open_traces(settings)
    gateway.remember_config("start")
    gateway.take_over_rows()
    if shared is not None:
        await shared.start()
        gateway.closers.append(shared.close)
    return gateway


async def _join_peers(gateway: Gateway, app: App, peers: Peers) -> None:
    """Connects this worker with the other worker processes of its gateway."""
    await peers.start(app.handle, gateway.metrics)
    gateway.peers = peers
    gateway.traffic.shared = True
    gateway.closers.append(peers.close)


async def _open_control(gateway: Gateway, app: App, folder: Path) -> None:
    """Lets commands of this machine's user talk to this process."""
    control = Control(folder)
    await control.start(app.handle)
    gateway.closers.append(control.close)


def _tune_interpreter() -> None:
    gc.collect()
    gc.freeze()  # these objects live as long as the process: the collector need not look at them
    gc.set_threshold(10_000, 10, 10)
    sys.setswitchinterval(SWITCH_S)


async def _main(
    options: ServeOptions,
    settings: Settings,
    access: Access,
    journal: Log,
    env: Mapping[str, str],
    listener: socket,
    limits: "LimitStore | None" = None,
    on_reload: Callable[[], None] = lambda: None,
    worker: int = 0,
    peers: Peers | None = None,
    admin: socket | None = None,
    certificate: Certificate | None = None,
    share: "Share | None" = None,
) -> None:
    replica = name_replica(listener.getsockname()[1], worker)
    gateway = await _open_gateway(settings, access, journal, limits, replica)
    gateway.open_verifier = options.open_verifier

    def load() -> None:
        if reload(gateway, options, env):
            if certificate is not None:
                certificate.load(gateway.now.settings)
            on_reload()

    app = App(gateway)
    if peers is not None:
        await _join_peers(gateway, app, peers)
    if settings.store_path is not None:
        await _open_control(gateway, app, settings.store_path.parent)
    gateway.admin_port = admin.getsockname()[1] if admin is not None else 0
    loop = asyncio.get_running_loop()
    spread = (lambda: loop.call_soon_threadsafe(load)) if peers is None else hang_up_supervisor
    gateway.apply_config = lambda: apply(gateway, options, env, spread)
    server = Server(gateway, app, load, certificate, share)
    _tune_interpreter()
    if options.reuse_port:
        take_over(listener)
    watching = [watch(gateway, load)] if options.watch else []
    try:
        await _serve(gateway, server, [listener] if admin is None else [listener, admin], watching)
    finally:
        journal.flush()


async def _serve(
    gateway: Gateway, server: Server, listeners: list[socket], watching: list[Coroutine[Any, Any, None]]
) -> None:
    """Answers requests until the server is told to stop."""
    try:
        async with _in_background(gateway.keep_models(), *watching):
            await server.serve(listeners)
    finally:
        await gateway.close()


@asynccontextmanager
async def _in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs tasks beside the block, and cancels them at its end."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
