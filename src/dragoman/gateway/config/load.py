"""Configuration: dragoman.toml or config.json, or none at all.

Both forms of seed 003 are read as they are (the legacy `api_key`, `models`, `rpm`, `http_port`, and `providers`).
`${NAME}` stands for an environment variable, in values read from the file only. What is wrong is a ConfigError that
names the file and the key.
"""

import asyncio
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from dragoman.demo.model import MODELS as DEMO_MODELS
from dragoman.dialects import SPOKEN
from dragoman.errors import ConfigError
from dragoman.gateway.access.auth import weak_secret
from dragoman.gateway.config.mcp import read_mcp
from dragoman.gateway.config.schema import ConfigFile, ProviderTable
from dragoman.gateway.config.settings import PORT, OidcSettings, RequestLimits, Settings, TrafficSettings
from dragoman.gateway.config.teams import TABLES, read_teams
from dragoman.jsontypes import kind_of
from dragoman.known_turns import MOST_BYTES
from dragoman.network import (
    DIRECT,
    CertificateError,
    Network,
    find_network,
    find_proxy,
    is_usable,
    make_tls,
    without_proxies,
)
from dragoman.upstream.discovery import (
    BASE_URL,
    DEFAULT_KIND,
    KIND_ALIASES,
    NO_PROBE,
    demo_upstream,
    find_key,
    local_url,
    make_upstream,
    probe_local,
    remote_kinds,
    usual_timeouts,
)
from dragoman.upstream.keys import Secret, origin_of
from dragoman.upstream.profiles import Rows, add_rows, find_kind, load_rows, profile_for, read_struct
from dragoman.upstream.routing import RouteCondition, RouteRule
from dragoman.upstream.spec import DEMO, Caps, Timeouts, Upstream

T = TypeVar("T")
FILES = ("dragoman.toml", "config.json")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_TOP = {*ConfigFile.__struct_fields__, *TABLES}
_PROVIDER = set(ProviderTable.__struct_fields__)


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
        return _rows(_Reader(data, str(path), "", set(data), env))

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


def find_file(folder: Path, env: Mapping[str, str]) -> Path | None:
    said = env.get("DRAGOMAN_CONFIG")
    if said:
        return Path(said)
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


class _Reader:
    """Takes keys out of one table and complains about what is wrong or left."""

    def __init__(self, data: Any, file: str, at: str, known: set[str], env: Mapping[str, str]) -> None:
        if not isinstance(data, dict):
            raise ConfigError(file, at, f"expected a table, found {kind_of(data)}")
        self.data, self.file, self.at, self.env = data, file, at, env
        unknown = sorted(set(data) - known)
        if unknown:
            near = [word for word in known if word[:3] == unknown[0][:3]]
            hint = f"; did you mean {near[0]}?" if near else f"; expected some of {', '.join(sorted(known))}"
            raise ConfigError(file, self.key(unknown[0]), f"no such key{hint}")

    def key(self, name: str) -> str:
        return f"{self.at}.{name}" if self.at else name

    def wrong(self, name: str, what: str) -> ConfigError:
        value = self.data.get(name)
        return ConfigError(self.file, self.key(name), f"expected {what}, found {kind_of(value)}")

    def expand(self, value: str, name: str) -> str:
        def fill(found: re.Match[str]) -> str:
            if found[1] not in self.env:
                raise ConfigError(self.file, self.key(name), f"the environment variable {found[1]} is not set")
            return self.env[found[1]]

        return _REFERENCE.sub(fill, value)

    def text(self, name: str, default: str = "") -> str:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return self.expand(value, name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.data.get(name)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.wrong(name, "a list of texts")
        return tuple(self.expand(item, name) for item in items)

    def number(self, name: str, least: float = 0.0) -> float | None:
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number")
        if not least <= value <= 1e12:
            raise ConfigError(self.file, self.key(name), f"expected a number of at least {least:g}, found {value}")
        return value

    def count(self, name: str, least: int = 1) -> int | None:
        value = self.number(name, least)
        if value is not None and value != int(value):
            raise self.wrong(name, "a whole number")
        return None if value is None else int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "a table")
        return value


def read_settings(data: Mapping[str, Any], file: str, env: Mapping[str, str]) -> Settings:
    if not isinstance(data.get("server", {}), dict):
        raise ConfigError(file, "server", f"expected a table, found {kind_of(data['server'])}")
    merged = {**data, **data.get("server", {})}
    top = _Reader(merged, file, "", _TOP, env)
    providers = top.table("providers") or top.table("upstreams")
    if not providers and ("api_key" in merged or "models" in merged):
        legacy = {key: merged[key] for key in ("api_key", "models", "rpm") if key in merged}
        providers = {_guess_provider(merged.get("models")): legacy}  # one provider, as seed 003 has it
    rows = _rows(top)
    if not top.flag("proxy", default=True):
        env = without_proxies(env)
    upstreams = [read_upstream(name, row, file, env, rows) for name, row in providers.items()]
    seeded = "http_port" in merged or "api_key" in merged or file.endswith(".json")  # the forms of seed 003
    found: tuple[str, ...] = ()
    if top.flag("discover", default=not providers and "demo" not in merged):
        others = discover(env)
        named = {upstream.name for upstream in upstreams}
        upstreams += [one for one in others.upstreams if one.kind != DEMO and one.name not in named]
        found = others.found
    if top.flag("demo", default=not upstreams):
        upstreams.append(demo_upstream())
    if not upstreams:
        raise ConfigError(file, "providers", "there is none")
    keys = top.texts("client_keys") or top.texts("keys")
    teams = read_teams(merged, file, top.expand)
    for at, key in [*(("client_keys", key) for key in keys), *((f"key.{key.name}", key.secret) for key in teams.keys)]:
        if weak := weak_secret(key):
            raise ConfigError(file, at, f"a key {weak}")
    settings = Settings(
        upstreams=tuple(upstreams),
        aliases=_aliases(top),
        rules=_rules(top),
        fallback=_fallback(top, seeded=seeded, one=len(providers) == 1 and not found),
        default_model=top.text("default_model"),
        ask_models=top.flag("ask_models", default=True) and not env.get(NO_PROBE),
        rows=rows,
        host=top.text("host", "127.0.0.1"),
        port=_port(top),
        client_keys=keys,
        hosts=top.texts("hosts"),
        origins=top.texts("origins"),
        max_body_bytes=top.count("max_body_bytes", 1024) or 32 * 1024 * 1024,
        limits=_limits(top),
        deadline_s=top.number("deadline_s", 1) or 600.0,
        grace_s=grace if (grace := top.number("grace_s")) is not None else 30.0,
        log=top.text("log", "human"),
        xray_keep=top.count("xray", 0) or 0,
        traffic=_traffic(top),
        known_turns_bytes=_known_turns(top),
        store_rows=_store_rows(top),
        state_secret=top.text("state_secret").encode(),
        database=top.text("database"),
        oidc=_oidc(top),
        otel=top.text("otel"),
        otel_content=top.flag("otel_content", default=False),
        state=top.text("state"),
        state_prefix=top.text("state_prefix", "dragoman"),
        on_state_loss=top.text("on_state_loss", "local_share"),
        mcp=read_mcp(merged.get("mcp"), file, top.expand),
        proxies=top.flag("proxy", default=True),
        tls_cert=top.text("tls_cert"),
        tls_key=top.text("tls_key"),
        teams=teams,
        admin_port=top.count("admin_port", 1),
        source=file,
        found=found,
        says_providers=bool(providers) or "demo" in merged,
        says_keys="client_keys" in merged or "keys" in merged or "key" in merged,
    )
    if settings.log not in ("human", "json"):
        raise ConfigError(file, "log", f"expected human or json, found {settings.log!r}")
    if settings.on_state_loss not in ("local_share", "refuse"):
        raise ConfigError(file, "on_state_loss", f"expected local_share or refuse, found {settings.on_state_loss!r}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,50}", settings.state_prefix):
        raise ConfigError(file, "state_prefix", "expected letters, digits, _ . and -")
    return settings


def _traffic(top: _Reader) -> TrafficSettings:
    inner = _Reader(top.table("traffic"), top.file, "traffic", set(TrafficSettings.__struct_fields__), top.env)
    days, rows = inner.count("keep_days", 0), inner.count("rows", 100)
    usual = TrafficSettings()
    return TrafficSettings(
        keep_days=usual.keep_days if days is None else days, rows=usual.rows if rows is None else rows
    )


def _known_turns(top: _Reader) -> int:
    said = top.count("known_turns_mb", 0)
    return MOST_BYTES if said is None else said * 1024 * 1024


def _oidc(top: _Reader) -> OidcSettings | None:
    said = top.table("oidc")
    if not said:
        return None
    reader = _Reader(said, top.file, "oidc", set(OidcSettings.__struct_fields__), top.env)
    words = {name: reader.text(name) for name in said}
    for name in ("issuer", "audience"):
        if not words.get(name):
            raise ConfigError(top.file, f"oidc.{name}", "is needed")
    for name in ("issuer", "jwks_url"):
        url = words.get(name, "")
        if url and not re.match(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/]", url):
            raise ConfigError(top.file, f"oidc.{name}", "expected https://...")
    return OidcSettings(**words)


def _store_rows(top: _Reader) -> int:
    rows = top.count("store", 0)
    return 10_000 if rows is None else rows


def _port(top: _Reader) -> int:
    port = top.count("port", 0)
    port = top.count("http_port", 0) if port is None else port
    if port is not None and port > 65535:
        raise ConfigError(top.file, "http_port", f"expected a port, found {port}")
    return PORT if port is None else port


def _rows(top: _Reader) -> Rows | None:
    """All kinds and families, if the file has some of its own."""
    if "kind" not in top.data and "family" not in top.data:
        return None
    said = {name: _expand_all(top.data[name], name, top) for name in ("kind", "family") if name in top.data}
    return add_rows(load_rows(), said, top.file)


def _expand_all(value: Any, key: str, top: _Reader) -> Any:
    """`${NAME}` in any text of a table."""
    match value:
        case str():
            return top.expand(value, key)
        case dict():
            return {name: _expand_all(item, f"{key}.{name}", top) for name, item in value.items()}
        case list():
            return [_expand_all(item, f"{key}.{i}", top) for i, item in enumerate(value)]
        case _:
            return value


def _fallback(top: _Reader, *, seeded: bool, one: bool) -> bool:
    """Seed 003 sends a name that nothing knows to the first provider. Elsewhere that may be the wrong one."""
    said = top.text("fallback", "first" if seeded or one else "none")
    if said not in ("first", "none"):
        raise ConfigError(top.file, "fallback", f"expected first or none, found {said!r}")
    return said == "first"


def _rules(top: _Reader) -> tuple[RouteRule, ...]:
    rows = top.data.get("route", [])
    if not isinstance(rows, list):
        raise top.wrong("route", "tables [[route]]")
    return tuple(_rule(row, top, f"route.{i}") for i, row in enumerate(rows))


def _rule(row: Any, top: _Reader, at: str) -> RouteRule:
    reader = _Reader(row, top.file, at, {"when", "to"}, top.env)
    when = dict(reader.table("when"))
    if isinstance(when.get("model"), str):
        when["model"] = [when["model"]]
    if not reader.texts("to"):
        raise ConfigError(top.file, reader.key("to"), "is needed: a model, or several that are tried in turn")
    return RouteRule(when=read_struct(when, RouteCondition, top.file, f"{at}.when"), to=reader.texts("to"))


def _aliases(top: _Reader) -> dict[str, tuple[str, ...]]:
    rows = top.table("aliases")
    reader = _Reader(rows, top.file, "aliases", set(rows), top.env)
    return {name: reader.texts(name) for name in rows}


def _guess_provider(models: Any) -> str:
    names = models if isinstance(models, list) else []
    from dragoman.upstream.profiles import kind_of_model

    found = next((kind for name in names if isinstance(name, str) and (kind := kind_of_model(name))), None)
    return found or "gemini"


def read_upstream(name: str, row: Any, file: str, env: Mapping[str, str], rows: Rows | None = None) -> Upstream:
    at = f"providers.{name}"
    if not re.fullmatch(r"[^\s/]+", name) or not name.isprintable():
        raise ConfigError(file, at, "a name without spaces and slashes is needed: models are asked for as name/model")
    reader = _Reader(row, file, at, _PROVIDER, env)
    kinds = (rows or load_rows()).kinds
    said = reader.text("kind") or KIND_ALIASES.get(name, name)
    if said == DEMO:
        return demo_upstream(name, reader.texts("models") or DEMO_MODELS)
    if reader.data.get("kind") is not None and said not in kinds:
        raise ConfigError(file, reader.key("kind"), f"no such kind {said!r}; there are {', '.join(kinds)}")
    kind = kinds.get(said, kinds[DEFAULT_KIND])
    dialects = reader.texts("dialects") or reader.texts("dialect") or kind.dialects
    dialects = tuple(word.replace("-", "_") for word in dialects)
    base_url = reader.text("base_url", "" if kind.name == DEFAULT_KIND else kind.url_of((*dialects, "")[0]))
    if not base_url or "{" in base_url:
        raise ConfigError(
            file, reader.key("base_url"), f"is needed for {name}" + (f" ({base_url})" if base_url else "")
        )
    if not BASE_URL.fullmatch(base_url):
        raise ConfigError(file, reader.key("base_url"), "expected http(s)://host[:port][/path]")
    if wrong := [word for word in dialects if word not in SPOKEN]:
        raise ConfigError(file, reader.key("dialect"), f"no such dialect {wrong[0]!r}")
    auth = reader.text("auth", kind.auth)
    keys = reader.texts("api_keys") or reader.texts("keys") or reader.texts("api_key")
    if not keys and (found := find_key(kind, env)):
        keys = (found,)
    if any(not key.strip() for key in keys):
        raise ConfigError(file, reader.key("api_key"), "is empty")
    if auth == "none" and keys:
        auth = "bearer"
    if auth not in ("bearer", "x-api-key", "x-goog-api-key", "api-key", "none"):
        raise ConfigError(file, reader.key("auth"), "expected bearer, x-api-key, x-goog-api-key, api-key or none")
    own_rows = rows.only(kind.name) if rows is not None else None
    if own_rows == load_rows().only(kind.name):
        own_rows = None
    overrides = reader.table("profile")
    for dialect in dialects:
        try:
            profile_for(kind.name, "", dialect, overrides, own_rows)  # now rather than when a request comes
        except ConfigError as error:
            raise ConfigError(file, reader.key("profile"), error.why) from error
    headers = _headers(reader)
    return Upstream(
        name=name,
        kind=kind.name,
        dialect=dialects[0],
        dialects=dialects,
        base_url=base_url,
        keys=tuple(Secret(key, origin_of(base_url)) for key in keys),
        auth=auth,  # type: ignore[arg-type]  # one of them, as was just checked
        models=reader.texts("models"),
        lists_own=not reader.texts("models"),
        headers=headers,
        rpm=reader.count("rpm"),
        tpm=reader.count("tpm"),
        at_once=reader.count("at_once") or reader.count("concurrency"),
        queue=queue if (queue := reader.count("queue", 0)) is not None else 100,
        timeouts=_timeouts(reader, base_url),
        caps=_caps(reader),
        network=_network(reader, base_url),
        stream_usage=reader.flag("stream_usage", default=True),
        weight=reader.number("weight") or 1.0,
        overrides=overrides,
        rows=own_rows,
    )


def _network(reader: _Reader, base_url: str) -> Network:
    """`proxy = false` is a direct connection; without the key the environment decides."""
    said = reader.data.get("proxy")
    proxy = find_proxy(base_url, reader.env) if said is None or said is True else ""
    if said not in (None, True, False):
        proxy = reader.text("proxy")
        if not is_usable(proxy):
            raise ConfigError(reader.file, reader.key("proxy"), "expected http://[user:password@]host:port, or false")
    files = {name: reader.text(name) for name in ("ca_file", "client_cert", "client_key")}
    network = Network(proxy=proxy, **files)
    if network == DIRECT:
        return DIRECT
    try:
        make_tls(network)  # now rather than when a request comes
    except CertificateError as error:
        name = next(name for name, value in files.items() if value)
        raise ConfigError(reader.file, reader.key(name), str(error)) from error
    return network


def _headers(reader: _Reader) -> dict[str, str]:
    headers = {}
    for name, value in reader.table("headers").items():
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9-]+", name) or not value.isprintable():
            raise ConfigError(reader.file, reader.key(f"headers.{name}"), "expected a header and its text")
        headers[name.lower()] = reader.expand(value, f"headers.{name}")
    return headers


def _timeouts(reader: _Reader, base_url: str) -> Timeouts:
    rows = reader.table("timeouts")
    known = set(Timeouts.__struct_fields__)
    inner = _Reader(rows, reader.file, reader.key("timeouts"), known, reader.env)
    said = {name: value for name in rows if (value := inner.number(name, 0.01)) is not None}
    return replace(usual_timeouts(base_url), **said)


def _limits(top: _Reader) -> RequestLimits:
    rows = top.table("limits")
    inner = _Reader(rows, top.file, "limits", set(RequestLimits.__struct_fields__), top.env)
    return RequestLimits(**{name: _sized(inner, name, RequestLimits()) for name in rows})


def _caps(reader: _Reader) -> Caps:
    rows = reader.table("caps")
    inner = _Reader(rows, reader.file, reader.key("caps"), set(Caps.__struct_fields__), reader.env)
    return Caps(**{name: _sized(inner, name, Caps()) for name in rows})


def _sized(reader: _Reader, name: str, usual: object) -> Any:
    """A number of the kind that is there by default."""
    usual = getattr(usual, name)
    value = reader.number(name, 0.01) if isinstance(usual, float) else reader.count(name, 1 if usual else 0)
    return usual if value is None else value


# ---------------------------------------------------------------- without a file


def discover(env: Mapping[str, str]) -> Settings:
    """Every provider whose key is in the environment, every local server that answers, and the demo model."""
    upstreams: list[Upstream] = []
    found: list[str] = []
    for kind in remote_kinds():
        if key := find_key(kind, env):
            made = make_upstream(kind.name, kind, key=key, base_url=kind.base_url)
            upstreams.append(replace(made, network=find_network(made.base_url, env)))
            found.append(f"{kind.name}: key in the environment")
    for name, models in _probe(env).items():
        local = make_upstream(name, find_kind(name), base_url=local_url(name, env), models=models)
        upstreams.append(replace(local, auth="none"))  # it answered without a key
        found.append(f"{name}: answers on this machine")
    upstreams.append(demo_upstream())
    return Settings(upstreams=tuple(upstreams), found=tuple(found), ask_models=not env.get(NO_PROBE), fallback=False)


def _probe(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """In a thread of its own: a reload happens in a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, probe_local(env)).result()


def state_folder(env: Mapping[str, str]) -> Path:
    """Where keys and stored responses live."""
    if said := env.get("DRAGOMAN_HOME"):
        return Path(said)
    home = str(Path(os.path.expanduser("~")) / ".local" / "state")
    base = env.get("XDG_STATE_HOME") or env.get("LOCALAPPDATA") or home  # the second one is Windows'
    return Path(base) / "dragoman"


# ---------------------------------------------------------------- the file as text

MAX_BYTES = 1024 * 1024
_TABLE = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)|: line (\d+) column \d+ \(char \d+\)")


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(str(path), "", "is not UTF-8 text", line) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(str(path), "", f"is larger than {MAX_BYTES} bytes")
    return text


def parse(text: str, path: Path) -> dict[str, Any]:
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    if not text.strip():
        raise ConfigError(str(path), "", "is empty")
    try:
        data = tomllib.loads(text) if kind == "TOML" else json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ConfigError(str(path), "", "is nested too deeply") from error
    except ValueError as error:
        words = f"is not {kind}: {_LINE.sub('', str(error)).strip()}"
        raise ConfigError(str(path), "", words, _line_of(error, text)) from error
    if not isinstance(data, dict):
        raise ConfigError(str(path), "", f"expected an object, found {kind_of(data)}")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"{twice!r} stands there twice")
    return made


def _line_of(error: ValueError, text: str) -> int | None:
    if isinstance(error, json.JSONDecodeError):
        return error.lineno
    found = _LINE.search(str(error))
    if found is None:
        return None
    return int(found[1]) if found[1] else text.rstrip().count("\n") + 1


def find_line(text: str, key: str) -> int | None:
    """The line of `providers.openai.rpm` or `family.0.models`; None if the file does not have it."""
    if not key:
        return None
    lines = text.splitlines()
    words = [word for word in key.split(".") if not word.isdigit()]
    number = next((int(word) for word in key.split(".") if word.isdigit()), 0)  # of an entry like [[family]]
    at, known = _find_table(lines, words, number)
    found = at + 1 if known == len(words) else None
    for word in words[known:]:
        name = re.compile(rf"""(?:^|[\[.{{,\s])["']?{re.escape(word)}["']?\s*(?:[=:.\]]|$)""")
        here = next((i for i in range(at, len(lines)) if _says(lines[i], name)), None)
        if here is None:
            return None
        at, found = here, here + 1
    return found


def _find_table(lines: list[str], words: list[str], number: int) -> tuple[int, int]:
    """The line of the innermost table of TOML that a key stands in, and how many words of the key it says."""
    at, known, entries = 0, 0, 0
    for i, line in enumerate(lines):
        found = _TABLE.match(line)
        names = [name.strip(" \t\"'") for name in found[2].split(".")] if found else []
        if found is None or names != words[: len(names)] or len(names) < known:
            continue
        if found[1] == "[[":
            entries += 1
            if entries != number + 1:
                continue
        elif entries and entries != number + 1:
            continue
        at, known = i, len(names)
    return at, known


def _says(line: str, name: re.Pattern[str]) -> bool:
    return not line.lstrip().startswith("#") and name.search(line) is not None
