"""`dragoman doctor`: looks for what commonly goes wrong, and says the fix in one line. It never prints a secret."""

import argparse
import asyncio
import importlib.util
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from dragoman import __version__
from dragoman.cli.arguments import add_config
from dragoman.cli.style import Style, paint
from dragoman.errors import ConfigError, UpstreamError

if TYPE_CHECKING:
    from dragoman.gateway.config.settings import Settings
    from dragoman.upstream.spec import Upstream

NAME = "doctor"
HELP = "check keys, servers, ports and versions, and say how to fix what is wrong"
CheckState = Literal["ok", "note", "wrong"]
STYLES: dict[CheckState, Style] = {"ok": "green", "note": "yellow", "wrong": "red"}
ASK_S = 10.0
SKEW_S = 120.0


class Finding(Struct, frozen=True):
    state: CheckState
    about: str
    words: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit code 1: something is wrong. Each provider is asked for its models, which costs nothing."
    add_config(parser)
    parser.add_argument("--offline", action="store_true", help="ask no server")


def run(args: argparse.Namespace) -> int:
    found: list[Finding] = []
    for finding in look(args):
        found.append(finding)
        print(f"{paint(f'{finding.state:<5}', STYLES[finding.state], sys.stdout)}  {finding.about}: {finding.words}")
        if finding.fix:
            print(f"       {finding.fix}")
    return 1 if any(finding.state == "wrong" for finding in found) else 0


def look(args: argparse.Namespace) -> Iterator[Finding]:
    yield from look_at_versions()
    try:
        settings, engines = load(args.config, offline=args.offline)
        yield Finding("ok", "configuration", settings.source or "none: dragoman serves what it finds on this machine")
    except ConfigError as error:
        yield Finding("wrong", "configuration", str(error), "mend the file, or write a new one: dragoman init NEW.toml")
        return
    yield from map(judge_engine, engines)
    yield look_at_port(settings)
    yield from look_at_network(settings)
    yield from look_at_addresses(settings)
    yield from asyncio.run(look_at_providers(settings, offline=args.offline))


def look_at_addresses(settings: "Settings") -> Iterator[Finding]:
    """A variable such as OLLAMA_HOST that names an address where nothing was found."""
    from dragoman.upstream.discovery import LOCAL, local_url

    found = {upstream.kind for upstream in settings.upstreams}
    for name in LOCAL:
        url = local_url(name, os.environ)
        if url != local_url(name, {}) and name not in found and not settings.source:
            yield Finding("note", f"{name.upper()}_HOST", f"nothing answers at {url}", "start that server, or unset it")


def load(config: Path | None, *, offline: bool) -> tuple["Settings", list[tuple[str, str]]]:
    """The configuration, and its engines as `probe_engines` has them."""
    from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, settle
    from dragoman.gateway.stores.engines import probe_engines

    settings = settle(ServeOptions(config=config), os.environ)
    engines = [] if offline else asyncio.run(probe_engines(settings))
    if not settings.database or (engines and not any(away for _, away in engines)):  # else keys cannot be read now
        check_exposure(settings, make_access(settings, os.environ))
    return settings, engines


def judge_engine(engine: tuple[str, str]) -> Finding:
    """Valkey or PostgreSQL: its address, and why it cannot be used."""
    place, away = engine
    if not away:
        return Finding("ok", place, "answers")
    fix = "start it, or change its address in the configuration" if away.startswith("does not answer") else ""
    return Finding("wrong", place, away, fix)


def look_at_versions() -> Iterator[Finding]:
    yield Finding("ok", "versions", f"dragoman {__version__}, Python {platform.python_version()}, {platform.system()}")
    for package, extra, what in (("mcp", "mcp", "MCP servers"), ("uvloop", "fast", "a faster gateway")):
        if importlib.util.find_spec(package) is None and not (package == "uvloop" and os.name == "nt"):
            yield Finding("note", package, f"not installed; it is for {what}", f"pip install 'dragoman[{extra}]'")


def look_at_network(settings: "Settings") -> Iterator[Finding]:
    from dragoman.network import find_unused_variable

    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        if (path := os.environ.get(name)) and not os.path.exists(path):
            yield Finding("wrong", name, f"there is no {path}", "name your company's certificates, or unset it")
    direct = [upstream.base_url for upstream in settings.upstreams if not upstream.network.proxy]
    for name in sorted({find_unused_variable(url, os.environ) for url in direct} - {""}):
        fix = f"set {name}=http://host:port, or `proxy = false` if none is needed"
        yield Finding("note", name, "is not used: dragoman speaks only to http:// proxies", fix)


def look_at_port(settings: "Settings") -> Finding:
    from dragoman.cli.local_gateway import base_url, is_answering

    about = f"port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            if os.name != "nt":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host.strip("[]"), settings.port))
            return Finding("ok", about, "free")
        except OSError as error:
            if is_answering(base_url(settings.host, settings.port)):
                return Finding("ok", about, "a gateway answers there")
            return Finding(
                "wrong",
                about,
                error.strerror or str(error),
                f"serve --port {settings.port + 1}, or end the other program",
            )


async def look_at_providers(settings: "Settings", *, offline: bool) -> list[Finding]:
    from dragoman.gateway.process.banner import missing_key
    from dragoman.upstream.spec import DEMO

    real = [upstream for upstream in settings.upstreams if upstream.kind != DEMO]
    if not real:
        words = "none; only the demo model is served"
        return [
            Finding(
                "note", "providers", words, "set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, or start Ollama"
            )
        ]
    found = [
        Finding("wrong", upstream.name, "no key", missing.removeprefix("no key: "))
        for upstream in real
        if (missing := missing_key(upstream))
    ]
    reachable = [upstream for upstream in real if not missing_key(upstream)]
    if offline:
        return found + [Finding("note", upstream.name, "not asked (--offline)") for upstream in reachable]
    return found + [one for each in await asyncio.gather(*(ask(upstream) for upstream in reachable)) for one in each]


async def ask(upstream: "Upstream") -> list[Finding]:
    """Asks for the list of models: it needs the key and costs nothing."""
    from dragoman.dialects import find_dialect
    from dragoman.upstream.http.request import build_headers, join_url
    from dragoman.upstream.keys import Key, origin_of
    from dragoman.upstream.spec import Timeouts
    from dragoman.upstream.transport import Transport

    dialect = find_dialect(upstream.dialect)
    if dialect.models is None:
        return [Finding("note", upstream.name, f"{dialect.name} has no list of models to ask for")]
    key = Key(0, upstream.keys[0] if upstream.keys else None)
    origin = origin_of(upstream.base_url)
    headers = build_headers(dialect.default_headers, upstream.headers, upstream.auth, key, origin)
    transport = Transport()
    began = time.monotonic()
    try:
        opened = await transport.open(
            join_url(upstream.base_url, dialect.models.path),
            headers,
            b"",
            timeouts=Timeouts(),
            head_s=ASK_S,
            on_sent=lambda: None,
            method="GET",
            network=upstream.network,
        )
        status, date = opened.status, opened.headers.get("date", "")
        opened.close()
    except UpstreamError as error:
        way = f" through {upstream.network.shown_proxy}" if upstream.network.proxy else ""
        fix = f"is {origin} right, and reachable from here{way}? Behind a company's proxy set HTTPS_PROXY and ca_file"
        return [Finding("wrong", upstream.name, str(error), fix)]
    finally:
        await transport.close()
    took = f"{(time.monotonic() - began) * 1000:.0f} ms"
    return [judge_status(upstream, status, took), *judge_clock(upstream, date)]


def judge_status(upstream: "Upstream", status: int, took: str) -> Finding:
    if status in (401, 403):
        variable = "its key in the configuration, or the variable of its kind (`dragoman providers`)"
        return Finding("wrong", upstream.name, f"refuses the key ({status})", f"change {variable}")
    if status == 429:
        return Finding("note", upstream.name, f"answers 429: its limit is reached ({took})")
    if status >= 500:
        return Finding("wrong", upstream.name, f"answers {status}", "look at the provider's status page")
    keyed = "accepts the key, " if upstream.keys and status == 200 else ""
    return Finding("ok", upstream.name, f"{keyed}answers in {took}")


def judge_clock(upstream: "Upstream", date: str) -> Iterator[Finding]:
    """A wrong clock breaks TLS and signed tokens."""
    try:
        skew = time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(skew) > SKEW_S:
        words = f"differs by {skew:.0f} s from that of {upstream.name}"
        yield Finding("wrong", "clock", words, "set the time of this machine (timedatectl set-ntp true)")
