"""Refuses a configuration that came over HTTP if it moves a secret to another server, or starts a program.

`${NAME}` and `[kept:...]` stand for values that the console never shows. If the writer could put one beside another
address, the next request would send the secret to that address. So a provider's key may go only to the servers to which
it went before, or to the vendor whose variable holds it. All other moves can be made in the file itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from dragoman.errors import ConfigError
from dragoman.gateway.config.load import read_settings
from dragoman.jsontypes import dump_text
from dragoman.network import find_proxy
from dragoman.upstream.discovery import NO_PROBE, find_key
from dragoman.upstream.keys import origin_of
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.spec import Upstream

SHORTEST = 6
PROVIDERS = ("providers", "upstreams", "kind")
SENT = ("api_key", "api_keys", "keys", "base_url", "proxy", "headers")  # by a provider; `refuse_new_places` looks at it
WHERE = ("url", "base_url", "issuer", "jwks_url", "proxy")
SIGNS = ("${", "[kept:")
PROGRAM = "programs to start are named in the file itself, on the gateway's machine, and not in the console"
MOVED = "a variable or a kept secret stays where it is: put it elsewhere in the file itself, on the gateway's machine"
Path: TypeAlias = tuple[str | int, ...]


def merge_server(data: dict[str, Any]) -> dict[str, Any]:
    """The tables with the keys of `[server]` at the top, as the configuration is read."""
    inner = data.get("server")
    return {**data, **inner} if isinstance(inner, dict) else data


# ---------------------------------------------------------------- programs


def refuse_programs(old: dict[str, Any], new: dict[str, Any], file: str) -> None:
    """A program's name from the network is remote code execution (T03)."""
    was, will = merge_server(old), merge_server(new)
    names = [table.get("file") if isinstance(table := data.get("mcp"), dict) else None for data in (was, will)]
    if set(_programs(will)) - set(_programs(was)) or (names[1] and names[0] != names[1]):
        raise ConfigError(file, "mcp", PROGRAM)


def _programs(value: Any) -> Iterator[str]:
    match value:
        case dict():
            if "command" in value:
                yield dump_text(value)
            for item in value.values():
                yield from _programs(item)
        case list():
            for item in value:
                yield from _programs(item)
        case _:
            pass


# ---------------------------------------------------------------- secrets


def refuse_moved(before: Iterable[dict[str, Any]], new: dict[str, Any], file: str) -> None:
    """All texts are as their writer sees them, with signs in the place of secrets. `before`: the text of the file now,
    and its earlier versions."""
    known = {
        (path, text, _places(was, path))
        for data in before
        for was in [merge_server(data)]
        for path, text in _leaves(was)
    }
    will = merge_server(new)
    for path, text in _leaves(will):
        signed = any(sign in text for sign in SIGNS)
        if signed and not _is_sent(path) and (path, text, _places(will, path)) not in known:
            raise ConfigError(file, ".".join(map(str, path)), MOVED)


def _is_sent(path: Path) -> bool:
    return path[0] == "api_key" or (path[0] in PROVIDERS and len(path) > 2 and path[2] in SENT)


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, item in value.items():
                yield from _leaves(item, (*path, name))
        case list():
            for i, item in enumerate(value):
                yield from _leaves(item, (*path, i))
        case _:
            pass


def _places(data: Any, path: Path) -> str:
    """The addresses that stand in the tables around a text."""
    found: list[object] = []
    for step in path:
        found.append([data.get(name) for name in WHERE] if isinstance(data, dict) else None)
        data = data[step]
    return repr(found)


def refuse_new_places(
    before: Iterable[dict[str, Any]],
    new: dict[str, Any],
    typed: str,
    hidden: set[str],
    file: str,
    env: Mapping[str, str],
) -> None:
    """Both tables have their secrets filled in. `typed`: the new text as it came. `hidden`: the secrets of the file."""
    quiet = {**env, NO_PROBE: "1"}
    values = {value for value in (*hidden, *env.values()) if len(value) >= SHORTEST and value not in typed}
    known: set[tuple[str, str]] = set()
    for data in before:
        with suppress(ConfigError):  # an earlier version may be none that is good today
            known.update(pair for upstream in _read(data, file, quiet) for pair in _find_shown(upstream, values))
    for upstream in _read(new, file, quiet):
        for value, place in _find_shown(upstream, values):
            if (value, place) not in known and not _is_meant_for(value, upstream, quiet):
                raise ConfigError(file, f"providers.{upstream.name}", MOVED)


def _read(data: dict[str, Any], file: str, env: Mapping[str, str]) -> tuple[Upstream, ...]:
    return read_settings(data, file, env).upstreams


def _find_shown(upstream: Upstream, values: set[str]) -> Iterator[tuple[str, str]]:
    """Those of the values that a request to this upstream would contain, each with the upstream's address."""
    origin = origin_of(upstream.base_url)
    keys = [key.reveal(origin) for key in upstream.keys]
    keys += [upstream.base_url, upstream.network.proxy, *upstream.headers.values()]
    place = f"{origin} {upstream.network.proxy}"
    for value in values:
        if any(value in text for text in keys):
            yield value, place


def _is_meant_for(value: str, upstream: Upstream, env: Mapping[str, str]) -> bool:
    """Whether the value is the key in the vendor's own variable, and goes to that vendor at its usual address."""
    origin, proxy = origin_of(upstream.base_url), upstream.network.proxy
    own = [kind for kind in load_rows().kinds.values() if kind.base_url and origin_of(kind.base_url) == origin]
    if proxy != find_proxy(upstream.base_url, env) or any(value in text for text in upstream.headers.values()):
        return False
    return any(find_key(kind, env) == value for kind in own) and value not in upstream.base_url
