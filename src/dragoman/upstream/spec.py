"""Upstream: one configured server, as data."""

from msgspec import Struct

from dragoman.upstream.keys import Auth, Secret
from dragoman.upstream.profiles import Rows

DEMO = "demo"


class Timeouts(Struct, frozen=True, kw_only=True):
    connect_s: float = 5.0
    headers_s: float = 60.0  # of a stream; an unstreamed answer has until the deadline
    idle_s: float = 120.0
    stream_s: float = 3600.0


class Caps(Struct, frozen=True, kw_only=True):
    """How much an upstream may say."""

    reply_bytes: int = 64 * 1024 * 1024  # in one piece
    stream_bytes: int = 256 * 1024 * 1024


class Upstream(Struct, frozen=True, kw_only=True):
    name: str
    dialect: str  # the one to prefer
    dialects: tuple[str, ...] = ()  # every one it speaks; () is only that one
    base_url: str = ""
    kind: str = ""  # the row of profiles.toml; `demo` answers by itself
    keys: tuple[Secret, ...] = ()
    auth: Auth = "bearer"
    models: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    rpm: int | None = None
    tpm: int | None = None
    at_once: int | None = None
    queue: int = 100
    timeouts: Timeouts = Timeouts()
    caps: Caps = Caps()
    stream_usage: bool = True  # a Chat stream may be asked for its usage
    weight: float = 1.0
    overrides: dict[str, object] = {}  # fields of its profile
    rows: Rows | None = None  # those of its kind, if the user's file changes them


class Target(Struct, frozen=True):
    """A model at an upstream, by the name it has there."""

    upstream: Upstream
    model: str
