"""Settings: a configuration that has been read and found good. config.py makes it."""

from pathlib import Path

from msgspec import Struct

from dragoman.gateway.mcp_settings import McpSettings
from dragoman.upstream.spec import Upstream

PORT = 20006
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


class Settings(Struct, frozen=True, kw_only=True):
    upstreams: tuple[Upstream, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    host: str = "127.0.0.1"
    port: int = PORT
    client_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names this gateway answers to, besides this machine's own
    origins: tuple[str, ...] = ()  # web pages that may call it
    max_body_bytes: int = 32 * 1024 * 1024
    deadline_s: float = 600.0
    grace_s: float = 30.0
    log: str = "human"  # or json
    xray_keep: int = 0  # requests kept for X-ray; 0: only those that ask for it
    store_path: Path | None = None  # of stored responses; None: in memory
    store_rows: int = 10_000
    mcp: McpSettings = McpSettings()
    source: str = ""  # the file it comes from
    found: tuple[str, ...] = ()  # what was found without a file
