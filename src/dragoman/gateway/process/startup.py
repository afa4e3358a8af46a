"""Steps that a start and a reload share: make the settings and the access, and refuse an unsafe configuration."""

import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import ConfigError
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.settings import LOOPBACK, Settings
from dragoman.gateway.config.source import find_file, state_folder
from dragoman.gateway.process.certificate import read_certificate
from dragoman.gateway.stores.engines import (
    DATABASE_VARIABLE,
    STATE_VARIABLE,
    check_engines,
    find_key_store,
    open_tokens,
)
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.stores.verify import Verifier

SECRET_VARIABLE = "DRAGOMAN_STATE_SECRET"  # noqa: S105 - the name of a variable
SHORTEST_SECRET = 16
_SECRET_BYTES = 32
# `tls_key` and `client_key` name files.
_LITERAL_KEY = re.compile(r"""(?:(?<!tls_)(?<!client_)key|keys|secret)["']?\s*[=:]\s*\[?\s*["'](?!\$\{)[^"']""")


class ServeOptions(Struct, kw_only=True):
    """What the command line says; None is "not said"."""

    config: Path | None = None
    host: str | None = None
    port: int | None = None
    workers: int = 1
    reuse_port: bool = False
    watch: bool = False
    verbose: bool = False
    log: str | None = None
    xray: int | None = None
    open_verifier: Callable[[], Verifier] | None = None


def settle(options: ServeOptions, env: Mapping[str, str], source: str = "") -> Settings:
    """The settings to run with: the command line wins over the file. A reload names the file it began with."""
    path = options.config or (Path(source) if source else find_file(Path.cwd(), env))
    if source and path is not None and path.exists() and not path.is_file():
        raise ConfigError(str(path), "", "is not a file")  # opening a pipe could wait for ever
    stamp = None if path is None else stamp_file(path)
    settings = load_settings(path, env)
    options_set = {"host": options.host, "port": options.port, "log": options.log, "xray_keep": options.xray}
    changes = {name: value for name, value in options_set.items() if value is not None}
    folder = state_folder(env)
    secret = read_secret(settings.state_secret.decode(), folder, env)
    settings = replace(settings, store_path=folder / "responses.db", state_secret=secret, stamp=stamp, **changes)
    state, database = settings.state or env.get(STATE_VARIABLE, ""), settings.database or env.get(DATABASE_VARIABLE, "")
    otel = settings.otel or env.get("DRAGOMAN_OTEL", "")
    settings = replace(settings, state=state, database=database, otel=otel)
    check_engines(settings)
    if settings.tls_cert:
        read_certificate(settings)
    for upstream in settings.upstreams:
        if upstream.base_url and _is_self(upstream.base_url, settings):
            raise ConfigError(
                settings.source or "settings", upstream.name, "its base_url is this gateway's own address"
            )
    return settings


def stamp_file(path: Path) -> tuple[int, int, int, int] | None:
    """Both times, size and inode number of a file: they show whether it has changed. None: there is no file.

    A program can set the first time back, as `cp -p` does, and not the second."""
    try:
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
    except OSError:
        return None


def _is_self(url: str, settings: Settings) -> bool:
    parts = urlsplit(url)
    own = {host.strip("[]") for host in (*LOOPBACK, settings.host)}
    port = parts.port if parts.port is not None else 443 if settings.tls_cert else 80
    scheme = "https" if settings.tls_cert else "http"
    return parts.scheme == scheme and parts.hostname in own and port == settings.port


# ---------------------------------------------------------------- the secret of reasoning state (decision 3)


def read_secret(configured: str, folder: Path, env: Mapping[str, str]) -> bytes:
    """Authenticates the reasoning state that clients keep for the gateway. It outlives a restart, and all processes and
    machines that serve the same clients need the same one.

    From the configuration or the environment, else from a file of the state folder, which is made if it is missing."""
    secret = configured or env.get(SECRET_VARIABLE, "")
    if secret:
        if len(secret) < SHORTEST_SECRET:
            raise ConfigError(SECRET_VARIABLE, "state_secret", f"is shorter than {SHORTEST_SECRET} characters")
        return secret.encode()
    return _read_secret_file(folder / "state.key")


def _read_secret_file(path: Path) -> bytes:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _make_secret_file(path)
        found = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read or made: {error.strerror}") from error
    if len(found) < SHORTEST_SECRET:
        raise ConfigError(str(path), "", "holds no valid secret: delete it, and the next start makes a new one")
    return found


def _make_secret_file(path: Path) -> None:
    """Writes the whole file at once, because another process may read it at the same moment."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_SECRET_BYTES))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret counts
    finally:
        draft.unlink()


# ---------------------------------------------------------------- who may come in


def is_public(host: str) -> bool:
    """Whether other machines can reach an address. A name that is not this machine's own may be any address."""
    if host in LOOPBACK:
        return False
    try:
        return not ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True


def make_access(settings: Settings, env: Mapping[str, str], bound: str = "") -> Access:
    """For a process that starts. `bound` is the address of its socket, once it has one."""
    public = is_public(settings.host) or (bool(bound) and is_public(bound))
    store = find_key_store(settings, state_folder(env))
    if bound:
        _keep_pepper(store, settings)
    keys = ClientKeys(store, settings.all_keys, teams=settings.teams.teams, needed=public or settings.oidc is not None)
    if keys.away:
        raise ConfigError(store.name, "", keys.away)
    return _fill_access(settings, keys, public=public)


def renew_access(old: Access, settings: Settings, *, forget: bool = False) -> Access:
    """For a new configuration. The socket stays what it is, whatever the configuration says now."""
    if old.keys.store is not None and not old.keys.has_read:  # one that vanished is not made anew
        _keep_pepper(old.keys.store, settings)
    keys = old.keys.renew(settings.all_keys, teams=settings.teams.teams, forget=forget)
    access = _fill_access(settings, keys, public=old.public)
    access.count_on(old)
    if old.tokens is not None and access.tokens is not None:
        access.tokens.take_keys(old.tokens)
    return access


def _keep_pepper(store: KeyStore, settings: Settings) -> None:
    """Stored responses of a key of the configuration are found again after a restart only if the pepper is kept."""
    if settings.all_keys:
        with suppress(ConfigError):  # without a place for it nothing is stored either
            store.prepare()


def _fill_access(settings: Settings, keys: ClientKeys, *, public: bool) -> Access:
    hosts = [*settings.hosts, settings.host]
    if public and not settings.hosts:
        hosts.append("*")  # with a key, any host name is fine
    access = Access(keys, hosts, settings.origins, settings.limits.wrong_keys, public=public)
    access.tokens = open_tokens(settings, keys.find_known_team)
    return access


def check_exposure(settings: Settings, access: Access) -> None:
    """Refuses to serve other machines without client keys (T01)."""
    if access.keys.any_good or access.tokens is not None or not (access.public or is_public(settings.host)):
        return
    where = settings.host if is_public(settings.host) else "a socket that other machines can reach"
    words = f"refusing to listen on {where} without client keys: make one with `dragoman keys new`"
    raise ConfigError(settings.source or "--host", "", words)


def open_secrets(source: str) -> str | None:
    """A warning if the file holds keys and other users of this machine can read it (T33)."""
    path = Path(source)
    if os.name == "nt" or not source or not path.is_file() or not path.stat().st_mode & 0o077:
        return None
    if not _LITERAL_KEY.search(path.read_text("utf-8")):
        return None
    return f"{source} has keys in it and others can read it: chmod 600, or name environment variables in it"
