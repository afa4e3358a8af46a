"""Makes an Upstream of `[providers.NAME]`, and checks what the types of its keys cannot express."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dragoman.demo import MODELS as DEMO_MODELS
from dragoman.dialects import SPOKEN
from dragoman.errors import ConfigError
from dragoman.gateway.config.provider_table import ProviderTable
from dragoman.network import DIRECT, CertificateError, Network, find_proxy, is_usable, make_tls
from dragoman.passes.profile import Profile
from dragoman.read_struct import read_struct, suggest, texts
from dragoman.upstream.discovery import BASE_URL, DEFAULT_KIND, KIND_ALIASES, demo_upstream, find_key, usual_timeouts
from dragoman.upstream.keys import Secret, origin_of
from dragoman.upstream.profiles import Kind, Rows, kind_of_model, load_rows
from dragoman.upstream.spec import DEMO, Timeouts, Upstream


def read_upstream(
    name: str, row: Mapping[str, Any], file: str, env: Mapping[str, str], rows: Rows | None = None
) -> Upstream:
    """`row` with its variables filled in. `rows`: kinds of servers, if the file has some of its own."""
    at = f"providers.{name}"
    if not re.fullmatch(r"[^\s/]+", name) or not name.isprintable():
        raise ConfigError(file, at, "a name without spaces and slashes is needed: models are asked for as name/model")
    table = read_struct(row, ProviderTable, file, at)
    if (table.kind or name) == DEMO:
        return demo_upstream(name, texts(table.models) or DEMO_MODELS)
    kind = _find_kind(name, table, file, at, rows)
    dialects = tuple(word.replace("-", "_") for word in texts(table.dialects) or texts(table.dialect) or kind.dialects)
    if wrong := [word for word in dialects if word not in SPOKEN]:
        raise ConfigError(file, f"{at}.dialect", f"no such dialect {wrong[0]!r}; {suggest(wrong[0], SPOKEN)}")
    base_url, keys = _base_url(name, table, kind, dialects[0], file), _keys(table, kind, file, at, env)
    auth = table.auth or kind.auth
    read_struct(table.profile, Profile, file, f"{at}.profile")  # now rather than when a request comes
    return Upstream(
        name=name,
        kind=kind.name,
        dialect=dialects[0],
        dialects=dialects,
        base_url=base_url,
        keys=tuple(Secret(key, origin_of(base_url)) for key in keys),
        auth="bearer" if auth == "none" and keys else auth,
        models=texts(table.models),
        lists_own=not table.models,
        headers=_headers(table, file, at),
        rpm=table.rpm,
        tpm=table.tpm,
        at_once=table.at_once or table.concurrency,
        queue=table.queue,
        timeouts=_timeouts(table, row, base_url),
        caps=table.caps,
        network=_network(table, base_url, file, at, env),
        stream_usage=table.stream_usage,
        weight=table.weight or 1.0,
        overrides=table.profile,
        rows=_own_rows(rows, kind),
    )


def _timeouts(table: ProviderTable, row: Mapping[str, Any], base_url: str) -> Timeouts:
    """The usual timeouts, with those that the file names."""
    named = {key: getattr(table.timeouts, key) for key in row.get("timeouts", {})}
    return replace(usual_timeouts(base_url), **named)


def _own_rows(rows: Rows | None, kind: Kind) -> Rows | None:
    """The rows of this kind, if the user's file changes them."""
    own = rows.only(kind.name) if rows is not None else None
    return None if own == load_rows().only(kind.name) else own


def guess_provider(models: tuple[str, ...]) -> str:
    """The name of a provider that seed 003 does not name."""
    return next((kind for name in models if (kind := kind_of_model(name))), "gemini")


def _find_kind(name: str, table: ProviderTable, file: str, at: str, rows: Rows | None) -> Kind:
    kinds = (rows or load_rows()).kinds
    if table.kind and table.kind not in kinds:
        raise ConfigError(file, f"{at}.kind", f"no such kind {table.kind!r}; {suggest(table.kind, kinds)}")
    return kinds.get(table.kind or KIND_ALIASES.get(name, name), kinds[DEFAULT_KIND])


def _base_url(name: str, table: ProviderTable, kind: Kind, dialect: str, file: str) -> str:
    usual = "" if kind.name == DEFAULT_KIND else kind.url_of(dialect)
    url = usual if table.base_url is None else table.base_url
    at = f"providers.{name}.base_url"
    if not url:
        near = suggest(name, load_rows().kinds, "`dragoman providers` lists the names that need none")
        raise ConfigError(file, at, f"is needed for {name}; {near}")
    if "{" in url:
        raise ConfigError(file, at, f"is needed for {name} ({url})")
    if not BASE_URL.fullmatch(url):
        raise ConfigError(file, at, "expected http(s)://host[:port][/path]")
    return url


def _keys(table: ProviderTable, kind: Kind, file: str, at: str, env: Mapping[str, str]) -> tuple[str, ...]:
    keys = texts(table.api_keys) or texts(table.keys) or texts(table.api_key)
    if not keys and (found := find_key(kind, env)):
        keys = (found,)
    if any(not key.strip() for key in keys):
        raise ConfigError(file, f"{at}.api_key", "is empty")
    return keys


def _headers(table: ProviderTable, file: str, at: str) -> dict[str, str]:
    for name, value in table.headers.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not value.isprintable():
            raise ConfigError(file, f"{at}.headers.{name}", "expected a header and its text")
    return {name.lower(): value for name, value in table.headers.items()}


def _network(table: ProviderTable, base_url: str, file: str, at: str, env: Mapping[str, str]) -> Network:
    """`proxy = false` is a direct connection; without the key the environment decides."""
    if isinstance(table.proxy, str) and not is_usable(table.proxy):
        raise ConfigError(file, f"{at}.proxy", "expected http://[user:password@]host:port, or false")
    proxy = table.proxy if isinstance(table.proxy, str) else find_proxy(base_url, env) if table.proxy else ""
    files = {name: getattr(table, name) for name in ("ca_file", "client_cert", "client_key")}
    network = Network(proxy=proxy, **files)
    if network == DIRECT:
        return DIRECT
    try:
        make_tls(network)  # now rather than when a request comes
    except CertificateError as error:
        name = next(name for name, value in files.items() if value)
        raise ConfigError(file, f"{at}.{name}", str(error)) from error
    return network
