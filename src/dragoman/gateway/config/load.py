"""Configuration: dragoman.toml or config.json, or none at all. schema.py has the keys and their types.

Both forms of seed 003 are read as they are (the legacy `api_key`, `models`, `rpm`, `http_port`, and `providers`).
`${NAME}` stands for an environment variable, in values read from the file only. A mistake is a ConfigError that
names the file, the line and the key.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict

from dragoman.errors import ConfigError
from dragoman.gateway import PORT
from dragoman.gateway.access.auth import weak_secret
from dragoman.gateway.config.discover import discover
from dragoman.gateway.config.mcp import read_mcp
from dragoman.gateway.config.provider_table import RouteKeys
from dragoman.gateway.config.providers import guess_provider, read_upstream
from dragoman.gateway.config.schema import ConfigFile
from dragoman.gateway.config.settings import GatewayKeys, Settings
from dragoman.gateway.config.source import find_line, parse, read_text
from dragoman.gateway.config.teams import TeamSettings, read_grant, read_key, read_model_price
from dragoman.network import without_proxies
from dragoman.read_struct import read_struct, texts
from dragoman.upstream.discovery import NO_PROBE, demo_upstream
from dragoman.upstream.profiles import Rows, add_rows, load_rows
from dragoman.upstream.routing import RouteCondition, RouteRule
from dragoman.upstream.spec import DEMO, Upstream

T = TypeVar("T")
ROWS = ("kind", "family")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    """From a file, or from what this machine offers."""
    if path is None:
        return discover(env)
    return _load(path, lambda data: read_settings(data, str(path), env))


def load_user_rows(path: Path | None, env: Mapping[str, str]) -> Rows | None:
    """The kinds of servers and model families of a file, with those of dragoman; None if it has none of its own."""
    if path is None:
        return None

    def read(data: dict[str, Any]) -> Rows | None:
        own = {key: data[key] for key in ROWS if key in data}
        return _read_rows(fill_in(own, str(path), env), str(path))

    return _load(path, read)


def _load(path: Path, read: Callable[[dict[str, Any]], T]) -> T:
    """A ConfigError names the line of its key."""
    text = read_text(path)
    try:
        return read(parse(text, path))
    except ConfigError as error:
        if error.file != str(path) or error.line is not None:
            raise
        raise ConfigError(error.file, error.key, error.why, find_line(text, error.key)) from error


def read_settings(data: Mapping[str, Any], file: str, env: Mapping[str, str]) -> Settings:
    values = fill_in(_merge_server(data, file), file, env)
    table = read_struct(values, ConfigFile, file)
    rows = _read_rows(values, file)
    providers = values.get("providers") or values.get("upstreams") or _legacy_provider(table)
    if not table.proxy:
        env = without_proxies(env)
    upstreams, found = _upstreams(table, providers, file, env, rows)
    ours = {name: getattr(table, name) for name in GatewayKeys.__struct_fields__}
    ports = (port for port in (table.port, table.http_port, PORT) if port is not None)
    return Settings(
        **ours,
        upstreams=upstreams,
        aliases={name: texts(models) for name, models in table.aliases.items()},
        rules=tuple(_rule(row) for row in table.route),
        fallback=_falls_back(table, file, one=len(providers) == 1 and not found),
        ask_models=table.ask_models and not env.get(NO_PROBE),
        rows=rows,
        port=next(ports),
        client_keys=_client_keys(table, file),
        hosts=texts(table.hosts),
        origins=texts(table.origins),
        xray_keep=table.xray,
        known_turns_bytes=table.known_turns_mb * 2**20,
        store_rows=table.store,
        shared_ids=texts(table.shared_ids),
        state_secret=table.state_secret.encode(),
        mcp=read_mcp(table.mcp, file),
        proxies=table.proxy,
        teams=_teams(table, file),
        source=file,
        found=found,
        says_providers=bool(providers) or table.demo is not None,
        says_keys=table.client_keys is not None or table.keys is not None or "key" in values,
    )


def _merge_server(data: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Moves the keys of `[server]` to the top of the file, where they mean the same."""
    server = data.get("server")
    return {**data, **(read_struct(server, dict[str, Any], file, "server") if server is not None else {})}


def fill_in(table: Mapping[str, Any], file: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The table with environment variables in the place of `${NAME}`, without nulls of JSON, and with 15 for 15.0."""
    try:
        return {name: _fill_in(item, file, env, (name,)) for name, item in table.items() if item is not None}
    except RecursionError as error:
        raise ConfigError(file, "", "is nested too deeply") from error


def _fill_in(value: Any, file: str, env: Mapping[str, str], path: tuple[str, ...]) -> Any:
    def fill(found: re.Match[str]) -> str:
        if found[1] not in env:
            raise ConfigError(file, ".".join(path), f"the environment variable {found[1]} is not set")
        return env[found[1]]

    match value:
        case str():
            return _REFERENCE.sub(fill, value)
        case dict():
            nulls = path[0] in ROWS or "profile" in path  # there, a null takes a rule back
            items = ((name, item) for name, item in value.items() if nulls or item is not None)
            return {name: _fill_in(item, file, env, (*path, name)) for name, item in items}
        case list():
            return [_fill_in(item, file, env, (*path, str(i))) for i, item in enumerate(value)]
        case float():
            return int(value) if value.is_integer() else value
        case _:
            return value


# ---------------------------------------------------------------- what the types of the keys do not say


def _read_rows(values: Mapping[str, Any], file: str) -> Rows | None:
    """All kinds and families, if the file has some of its own."""
    own = {name: values[name] for name in ROWS if name in values}
    return add_rows(load_rows(), own, file) if own else None


def _legacy_provider(table: ConfigFile) -> dict[str, dict[str, Any]]:
    """One provider at the top of the file, as seed 003 has it."""
    if table.api_key is None and table.models is None:
        return {}
    row = {"api_key": table.api_key, "models": table.models, "rpm": table.rpm}
    present = {name: value for name, value in row.items() if value is not None}
    return {guess_provider(texts(table.models)): present}


def _upstreams(
    table: ConfigFile, providers: Mapping[str, Any], file: str, env: Mapping[str, str], rows: Rows | None
) -> tuple[tuple[Upstream, ...], tuple[str, ...]]:
    """All upstreams, and what was found besides those of the file."""
    upstreams = [read_upstream(name, row, file, env, rows) for name, row in providers.items()]
    found: tuple[str, ...] = ()
    quiet = bool(providers) or table.demo is not None
    if table.discover if table.discover is not None else not quiet:
        others = discover(env)
        named = {upstream.name for upstream in upstreams}
        upstreams += [one for one in others.upstreams if one.kind != DEMO and one.name not in named]
        found = others.found
    if table.demo if table.demo is not None else not upstreams:
        upstreams.append(demo_upstream())
    if not upstreams:
        raise ConfigError(file, "providers", "there is none")
    return tuple(upstreams), found


def _falls_back(table: ConfigFile, file: str, *, one: bool) -> bool:
    """Seed 003 sends a name that nothing knows to the first provider. Elsewhere that may be the wrong one."""
    seeded = table.http_port is not None or table.api_key is not None or file.endswith(".json")
    return table.fallback == "first" if table.fallback else seeded or one


def _rule(row: RouteKeys) -> RouteRule:
    when = RouteCondition(**{**asdict(row.when), "model": texts(row.when.model)})
    return RouteRule(when=when, to=texts(row.to))


def _client_keys(table: ConfigFile, file: str) -> tuple[str, ...]:
    keys = texts(table.client_keys) or texts(table.keys)
    named = [("client_keys", key) for key in keys] + [(f"key.{name}", key.secret) for name, key in table.key.items()]
    for at, key in named:
        if weak := weak_secret(key):
            raise ConfigError(file, at, f"a key {weak}")
    return keys


def _teams(table: ConfigFile, file: str) -> TeamSettings:
    return TeamSettings(
        keys=tuple(read_key(name, row, file) for name, row in table.key.items()),
        teams={name: read_grant(row, f"team.{name}", file) for name, row in table.team.items()},
        prices={model: read_model_price(model, row, file) for model, row in table.prices.items()},
        budgets=table.budgets,
        ledger=table.ledger,
    )
