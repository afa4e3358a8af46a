"""Upstream: one configured server, as data."""

from typing import Annotated

from msgspec import Struct

from dragoman.network import DIRECT, Network
from dragoman.read_struct import OneOrMore, Seconds, about
from dragoman.upstream.keys import Auth, Secret
from dragoman.upstream.profiles import Rows

DEMO = "demo"


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connect_s: Annotated[Seconds, about("to connect")] = 5.0
    headers_s: Annotated[
        Seconds,
        about("until the head of a stream (300 for a server on this machine or in a private network)"),
    ] = 60.0  # an unstreamed answer has until the deadline
    first_s: Annotated[Seconds, about("of silence until the first words, while a server reads a long prompt")] = 300.0
    idle_s: Annotated[Seconds, about("of silence after the first words")] = 120.0
    stream_s: Annotated[Seconds, about("for a whole stream")] = 3600.0


class Caps(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the answers of an upstream may be."""

    reply_bytes: Annotated[OneOrMore, about("of an answer in one piece")] = 64 * 1024 * 1024
    stream_bytes: Annotated[OneOrMore, about("of a whole stream")] = 256 * 1024 * 1024


class Upstream(Struct, frozen=True, kw_only=True):
    name: str
    dialect: str  # the preferred one
    dialects: tuple[str, ...] = ()  # all it speaks; () means only the preferred one
    base_url: str = ""
    kind: str = ""  # a row of profiles.toml or of the user's file; `demo` is answered in this process
    keys: tuple[Secret, ...] = ()
    auth: Auth = "bearer"
    models: tuple[str, ...] = ()
    lists_own: bool = True  # the server's own list of models is served, not only `models`
    headers: dict[str, str] = {}
    rpm: int | None = None
    tpm: int | None = None
    at_once: int | None = None
    queue: int = 100
    timeouts: Timeouts = Timeouts()
    caps: Caps = Caps()
    stream_usage: bool = True  # it may be asked to tell the usage of a Chat stream
    weight: float = 1.0
    overrides: dict[str, object] = {}  # fields of its profile
    network: Network = DIRECT  # proxy and certificates
    rows: Rows | None = None  # the rows of its kind, if the user's file adds or changes them


class Target(Struct, frozen=True):
    """A model at an upstream, by its name there."""

    upstream: Upstream
    model: str
    effort: str | None = None  # the effort, if the requested name contains one
