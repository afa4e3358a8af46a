"""The servers that gateways of many machines share: Valkey for limits, PostgreSQL for all that is kept.

Each is an extra, and is loaded when it is configured.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.accounts import budgets, ledger
from dragoman.accounts.budgets import BudgetStore, RemoteBudgets, SqliteBudgets
from dragoman.accounts.grants import Grant
from dragoman.accounts.ledger import Ledger, SqliteLedger
from dragoman.errors import ConfigError
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.config.source import find_file
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.stores.reasoning_state import SqliteStateStore, StateStore
from dragoman.gateway.stores.responses import ResponseStore, SqliteResponseStore
from dragoman.gateway.stores.sqlite_keys import open_key_store

if TYPE_CHECKING:
    from dragoman.oidc.tokens import TokenChecker
    from dragoman.otel.traces import Traces
    from dragoman.postgres.database import Database
    from dragoman.valkey.limits import ValkeyLimits

PROBE_S = 5.0  # a person who asks whether an engine answers has more time than a request
STATE_VARIABLE = "DRAGOMAN_STATE"
DATABASE_VARIABLE = "DRAGOMAN_DATABASE"
DATABASE_SCHEMES = ("postgresql", "postgres")
STATE_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")


def check_engines(settings: Settings) -> None:
    """A ConfigError if an engine is configured that cannot be used."""
    if settings.state:
        _check(settings, "state", settings.state, STATE_SCHEMES, "redis", "valkey")
    if settings.database:
        _check(settings, "database", settings.database, DATABASE_SCHEMES, "asyncpg", "postgres")
    if settings.oidc is not None and not (_is_installed("jwt") and _is_installed("cryptography")):
        words = "needs packages that are not installed: pip install 'dragoman[oidc]'"
        raise ConfigError(settings.source, "oidc", words)
    if settings.otel:
        _check(settings, "otel", settings.otel, ("http", "https"), "opentelemetry.sdk", "otel")


def _check(settings: Settings, key: str, url: str, schemes: tuple[str, ...], package: str, extra: str) -> None:
    file = settings.source or f"DRAGOMAN_{key.upper()}"
    parts = urlsplit(url)
    if parts.scheme not in schemes or not (parts.hostname or parts.path):
        raise ConfigError(file, key, f"expected {schemes[0]}://host:port/..., found {parts.scheme[:20]!r}")
    if not _is_installed(package):
        raise ConfigError(file, key, f"needs a package that is not installed: pip install 'dragoman[{extra}]'")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def open_tokens(settings: Settings, find_team: Callable[[str], Grant | None]) -> "TokenChecker | None":
    if settings.oidc is None:
        return None
    from dragoman.oidc.tokens import TokenChecker

    return TokenChecker(settings.oidc, find_team)


def open_traces(settings: Settings) -> "Traces | None":
    if not settings.otel:
        return None
    from dragoman.otel.traces import Traces

    scheme = "https" if settings.tls_cert else "http"
    return Traces(settings.otel, content=settings.otel_content, scheme=scheme)


def find_database(env: Mapping[str, str]) -> str:
    """The address of the database that `serve` would use; "" if there is none."""
    file = find_file(Path.cwd(), env)
    configured = load_settings(file, env).database if file is not None else ""
    return configured or env.get(DATABASE_VARIABLE, "")


def open_database(settings: Settings) -> "Database | None":
    """A ConfigError if its tables are not those of this version. One that does not answer may come back."""
    if not settings.database:
        return None
    from dragoman.postgres.database import Database, DatabaseAwayError, find_mismatch, read_applied

    database = Database(settings.database)
    try:
        wrong = find_mismatch(read_applied(database))
    except DatabaseAwayError:
        return database
    if wrong:
        database.close()
        raise ConfigError(show_url(settings.database), "", wrong)
    return database


def open_kept(settings: Settings, database: "Database | None") -> tuple[ResponseStore, StateStore]:
    """Where responses and reasoning state are kept."""
    if database is None:
        path, rows = settings.store_path, settings.store_rows
        return SqliteResponseStore(path, rows), SqliteStateStore(path, rows)
    from dragoman.postgres.kept import PostgresResponseStore, PostgresStateStore

    return PostgresResponseStore(database, settings.store_rows), PostgresStateStore(database, settings.store_rows)


def find_key_store(settings: Settings, folder: Path) -> KeyStore:
    """Where keys and teams are kept."""
    if not settings.database:
        return open_key_store(folder)
    from dragoman.postgres.database import Database
    from dragoman.postgres.key_store import PostgresKeyStore

    return PostgresKeyStore(Database(settings.database), show_url(settings.database), folder)


def open_ledger(folder: Path, database: "Database | None", *, read_only: bool = False) -> Ledger:
    if database is None:
        return SqliteLedger(folder / ledger.FILE, read_only)
    from dragoman.postgres.books import PostgresLedger

    return PostgresLedger(database)


def open_budgets(folder: Path, database: "Database | None", busy_s: float = budgets.BUSY_S) -> BudgetStore:
    if database is None:
        return SqliteBudgets(folder / budgets.FILE, busy_s)
    return open_remote_budgets(database)


def open_remote_budgets(database: "Database") -> RemoteBudgets:
    from dragoman.postgres.books import PostgresBudgets

    return PostgresBudgets(database)


def name_replica(port: int, worker: int) -> str:
    """A name that stays the same after a restart, so that the new process gets the share of the killed one."""
    return f"{socket.gethostname()}:{port}:{worker}"


def open_limits(settings: Settings, replica: str, clock: Callable[[], float]) -> "ValkeyLimits":
    from dragoman.valkey.limits import OnLoss, ValkeyLimits
    from dragoman.valkey.server import ValkeyServer

    on_loss: OnLoss = "refuse" if settings.on_state_loss == "refuse" else "local_share"
    return ValkeyLimits(ValkeyServer(settings.state), replica, clock, prefix=settings.state_prefix, on_loss=on_loss)


def show_url(url: str) -> str:
    """The address of an engine, without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


async def probe_engines(settings: Settings) -> list[tuple[str, str]]:
    """Each configured engine's place, and why it cannot be used; "" if it can."""
    found = []
    if settings.state:
        from dragoman.valkey.server import AwayError, ValkeyServer

        server = ValkeyServer(settings.state, PROBE_S)
        try:
            await server.reach()
        except AwayError:
            pass
        finally:
            await server.close()
        found.append((show_url(settings.state), f"does not answer: {server.away}" if server.away else ""))
    if settings.database:
        found.append((show_url(settings.database), await asyncio.to_thread(_probe_database, settings.database)))
    return found


def _probe_database(url: str) -> str:
    from dragoman.postgres.database import Database, DatabaseAwayError, find_mismatch, read_applied

    database = Database(url, PROBE_S)
    try:
        return find_mismatch(read_applied(database))
    except DatabaseAwayError as error:
        return f"does not answer: {error}"
    finally:
        database.close()
