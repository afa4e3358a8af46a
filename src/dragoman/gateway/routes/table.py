"""The one route table: path, method, dialect and access class. A route without an access class stops the start.

The doors of the dialects come from their records; the gateway's own routes stand here.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from dragoman.dialects import CLIENT_ONLY, NAMES, USUAL, find_dialect
from dragoman.dialects._base import Dialect, Door
from dragoman.errors import DragomanError
from dragoman.gateway.http import HttpRequest

AccessClass: TypeAlias = Literal["public", "client", "admin"]
VERSION = r"v1(?:beta|alpha|beta1|alpha1)?"
MOST_STEPS = 50  # of a path: every route has far fewer
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
_READ = ("GET", "HEAD")
# Bytes of a body at routes that hold no conversation. Before a key is shown, next to nothing is read.
_BODY_BYTES: dict[AccessClass, int] = {"public": 16 * 1024, "admin": 1024 * 1024}
_LONG_TEXT_BYTES = 8 * 1024 * 1024


class Route(Struct, frozen=True, kw_only=True):
    method: str
    door: Door
    dialect: Dialect  # its form is used for errors
    access: AccessClass

    @property
    def name(self) -> str:
        """In logs and metrics."""
        return self.door.name or self.dialect.name

    @property
    def most_bytes(self) -> int | None:
        """How large a body may be; None: as large as the configuration allows."""
        return _LONG_TEXT_BYTES if self.door.serves == "translate" else _BODY_BYTES.get(self.access)


class Match(Struct, frozen=True):
    route: Route
    groups: dict[str, str]  # named parts of the path; absent parts are left out

    def path(self, query: str) -> str:
        """The path as the dialect's decoders read it, whatever the client's own spelling is."""
        door = self.route.door
        return door.path if door.write_path is None else door.write_path(self.groups, query)


# Errors at these routes, and errors for clients of an unknown dialect, have the form of the usual dialect.
OWN: tuple[tuple[AccessClass, Door], ...] = (
    ("admin", Door(path="/mcp/add", serves="mcp_add")),
    ("admin", Door(path="/mcp/remove", methods=("DELETE",), serves="mcp_remove")),
    ("admin", Door(path="/mcp/list", methods=("GET",), serves="mcp_list")),
    ("public", Door(path="/healthz", methods=_READ, serves="alive")),
    ("public", Door(path="/readyz", methods=_READ, serves="ready")),
    ("public", Door(path="/health", methods=_READ, serves="health")),
    ("admin", Door(path="/metrics", methods=_READ, serves="metrics")),
    ("admin", Door(path="/xray", methods=("GET",), serves="xray_list")),
    ("admin", Door(path=r"/xray/(?P<id>[\w.-]+)", methods=("GET",), serves="xray")),
    ("public", Door(path="/console", methods=_READ, serves="console")),
    ("public", Door(path=r"/console/(?P<file>[\w.-]+)", methods=_READ, serves="console")),
    ("public", Door(path="/console/session", methods=("GET",), serves="session")),
    ("public", Door(path="/console/session", serves="login")),
    ("public", Door(path="/console/session", methods=("DELETE",), serves="logout")),
    ("admin", Door(path="/admin/v1/xray", methods=("GET",), serves="xray_list")),
    ("admin", Door(path=r"/admin/v1/xray/(?P<id>[\w.-]+)", methods=("GET",), serves="xray")),
    ("admin", Door(path=r"/admin/v1/xray/(?P<id>[\w.-]+)/scenario", methods=("GET",), serves="scenario")),
    ("admin", Door(path="/admin/v1/models", methods=("GET",), serves="model_names")),
    ("admin", Door(path="/admin/v1/translate", serves="translate")),
    ("admin", Door(path="/admin/v1/replay", serves="replay")),
    ("admin", Door(path="/admin/v1/mcp", methods=("GET",), serves="mcp_servers")),
    ("admin", Door(path="/admin/v1/mcp/approve", serves="mcp_approve")),
    ("admin", Door(path="/admin/v1/mcp/call", serves="mcp_call")),
    ("admin", Door(path="/admin/v1/traffic", methods=("GET",), serves="traffic")),
    ("admin", Door(path="/admin/v1/traffic/live", methods=("GET",), serves="live_traffic")),
)


@cache
def all_dialects() -> tuple[Dialect, ...]:
    """Every dialect whose clients may come."""
    return tuple(find_dialect(name) for name in (*NAMES, *CLIENT_ONLY))


@cache
def all_routes() -> tuple[Route, ...]:
    served = [
        Route(method=method, door=door, dialect=dialect, access="public" if door.public else "client")
        for dialect in all_dialects()
        for door in dialect.doors
        for method in door.methods
    ]
    own = [
        Route(method=method, door=door, dialect=find_dialect(USUAL), access=access)
        for access, door in OWN
        for method in door.methods
    ]
    return (*served, *own)


def tell_client(http: HttpRequest, usual: Dialect) -> Dialect:
    """The dialect of a client at a path that several dialects share, by what only its clients send."""
    headers = http.headers
    return next((d for d in all_dialects() if any(name in headers for name in d.client_headers)), usual)


def guess_client(http: HttpRequest) -> Dialect:
    """The dialect of a client that asks for an unknown path, as far as we can guess it."""
    path = http.path
    known = (d for d in all_dialects() if any(piece in path for piece in d.client_paths))
    return tell_client(http, next(known, find_dialect(USUAL)))


def _found(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}


MOST_GUESSED = 60  # characters of an unknown path for which a near one is looked for


class RouteTable:
    def __init__(self, routes: Sequence[Route] | None = None) -> None:
        self._plain: dict[tuple[str, str], Match] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        routes = all_routes() if routes is None else routes
        for route in routes:
            path = route.door.path
            if route.access not in get_args(AccessClass):
                raise DragomanError(f"route {route.method} {path} does not say who may come in")
            if "(" in path:
                self._patterns.append((re.compile(path), route))
            else:
                self._plain[route.method, path] = Match(route, {})
        # Clients that leave the version out still arrive (FIELD-CASES 85).
        self._unversioned = {steps[2] for route in routes if (steps := route.door.path.split("/"))[1:2] == ["v1"]}
        # So do clients that keep the path of the server they were written for.
        self._bases = [tuple(base.split("/")[1:]) for dialect in all_dialects() for base in dialect.other_bases]

    def find(self, method: str, path: str) -> Match | None:
        """The route a request means, or None. Odd spellings of a path are read as what they stand for."""
        found = self._plain.get((method, path))
        if found is not None:
            return found
        # An upstream may be called as a base is: /v1beta/openai/MODEL:generateContent.
        return self._find_plain(method, self.plain_path(path)) or self._find_plain(
            method, self.plain_path(path, keep_base=True)
        )

    def _find_plain(self, method: str, plain: str | None) -> Match | None:
        if plain is None:
            return None
        found = self._plain.get((method, plain))
        if found is not None:
            return found
        for pattern, route in self._patterns:
            if route.method == method and (match := pattern.fullmatch(plain)):
                return Match(route, _found(match))
        return None

    def methods(self, path: str) -> list[str]:
        """The allowed methods of a path; empty if there is no such path."""
        return [method for method in METHODS if self.find(method, path)]

    def find_near(self, path: str) -> str:
        """The path of a client's route that looks most like this one, or an empty text."""
        if len(path) > MOST_GUESSED:
            return ""
        from difflib import get_close_matches  # after a mistake only

        known = {route: None for (_, route), match in self._plain.items() if match.route.access != "admin"}
        return next(iter(get_close_matches(path, known, n=1, cutoff=0.75)), "")

    def plain_path(self, path: str, *, keep_base: bool = False) -> str | None:
        """No doubled or trailing slash, exactly one version; None for a path with `..`, many steps and the like."""
        if path.count("/") > MOST_STEPS:
            return None
        steps = [step for step in path.split("/") if step]
        if any(step in (".", "..") or "\x00" in step or "\\" in step for step in steps):
            return None
        while len(steps) > 1 and steps[0] == steps[1] and re.fullmatch(VERSION, steps[0]):
            del steps[0]
        for base in () if keep_base else self._bases:
            if tuple(steps[: len(base)]) == base and steps[len(base) : len(base) + 1] not in ([], ["deployments"]):
                del steps[: len(base)]
                break
        if steps[:2] == ["openai", "deployments"] and len(steps) > 3:  # Azure's: the body names the model too
            del steps[:3]
        if steps and steps[0] in self._unversioned:
            steps.insert(0, "v1")
        return "/" + "/".join(steps)
