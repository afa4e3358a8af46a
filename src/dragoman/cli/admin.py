"""The data behind `keys`, `teams` and `usage`: a running gateway with its admin API, or the files of this machine.

The gateway is the one of DRAGOMAN_ADMIN_URL, else one that runs with this state folder. It knows where its keys are,
also if it was started with another configuration than a command would find here.
"""

import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote, urlencode

from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.accounts.grants import Account, Grant, GrantChange
    from dragoman.accounts.ledger import Ledger, LedgerRow, Page, Sums
    from dragoman.gateway.config.settings import Settings
    from dragoman.gateway.routes.admin_types import KeyView
    from dragoman.gateway.stores.keys import AuditRow, KeyChange, KeyRow, KeyStore, KeyTable
    from dragoman.postgres.database import Database

T = TypeVar("T")
ASK_S = 30.0
URL, KEY = "DRAGOMAN_ADMIN_URL", "DRAGOMAN_ADMIN_KEY"
SOCKET = "unix:"  # a running gateway of this machine


def find_folder() -> Path:
    from dragoman.gateway.config.source import state_folder

    return state_folder(os.environ)


def find_gateway() -> str:
    """The address of a gateway's admin API; "" if the files are to be used."""
    if url := os.environ.get(URL):
        return url
    if os.name == "nt" or not (find_folder() / "running").is_dir():
        return ""
    from dragoman.gateway.process.control import find_running

    found = find_running(find_folder())
    return f"{SOCKET}{found}" if found is not None else ""


def open_store() -> "KeyStore":
    from dragoman.gateway.config.settings import Settings
    from dragoman.gateway.stores.engines import find_database, find_key_store

    if url := find_gateway():
        return RemoteStore(url)
    return find_key_store(Settings(database=find_database(os.environ)), find_folder())


def list_file_keys(store: "KeyStore") -> "list[KeyView]":
    """The keys of the configuration file."""
    from dragoman.gateway.access.client_keys import ClientKeys
    from dragoman.gateway.routes.admin_keys import view_file_keys

    if isinstance(store, RemoteStore):
        return store.list_file_keys()
    settings = load_file()
    return view_file_keys(ClientKeys(store, settings.all_keys)) if settings.all_keys else []


def read_teams(store: "KeyStore") -> "dict[str, Grant]":
    """All teams. A team of the configuration file replaces one of the store with the same name."""
    table = store.read()
    stored = table.teams if table is not None else {}
    return stored if isinstance(store, RemoteStore) else {**stored, **load_file().teams.teams}


def load_file() -> "Settings":
    """The configuration that `serve` would use."""
    from dragoman.gateway.config.load import load_settings
    from dragoman.gateway.config.settings import Settings
    from dragoman.gateway.config.source import find_file

    file = find_file(Path.cwd(), os.environ)
    return load_settings(file, os.environ) if file is not None else Settings()


def open_reports() -> "Ledger":
    """The ledger, to be read."""
    from dragoman.gateway.stores.engines import open_ledger

    if url := find_gateway():
        return RemoteLedger(url)
    return open_ledger(find_folder(), open_database(), read_only=True)


def open_database() -> "Database | None":
    """PostgreSQL, if that is where this installation keeps its keys."""
    from dragoman.gateway.stores.engines import find_database

    if not (url := find_database(os.environ)):
        return None
    from dragoman.postgres.database import Database

    return Database(url)


def ask(url: str, method: str, path: str, kind: type[T], body: object = None) -> T | None:
    """Asks the admin API. Returns its answer, or None for a 404."""
    import msgspec

    data = b"" if body is None else msgspec.json.encode(body)
    try:
        status, answer = (_ask_running if url.startswith(SOCKET) else _ask_url)(url, method, f"/admin/v1{path}", data)
        if status == 404:
            return None
        if status >= 400:
            raise ConfigError(name_gateway(url), "", f"{status}: {_words(answer)}")
        return msgspec.json.decode(answer, type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(name_gateway(url), "", f"does not answer as an admin API: {error}") from error


def _ask_url(url: str, method: str, path: str, data: bytes) -> tuple[int, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(URL, "", "expected http(s)://host:port")
    headers = {"authorization": f"Bearer {os.environ.get(KEY, '')}", "content-type": "application/json"}
    request = urllib.request.Request(url.rstrip("/") + path, data or None, headers, method=method)  # noqa: S310  # checked
    try:
        with urllib.request.urlopen(request, timeout=ASK_S) as response:  # noqa: S310  # checked
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _ask_running(url: str, method: str, path: str, data: bytes) -> tuple[int, bytes]:
    from dragoman.gateway.process.control import ask_running
    from dragoman.gateway.process.peers import Question

    address, _, query = path.partition("?")
    found = ask_running(Path(url.removeprefix(SOCKET)), Question(method, unquote(address), query, {}, data))
    return found.status, found.body


def name_gateway(url: str) -> str:
    """The name of a gateway for messages."""
    return "the running gateway" if url.startswith(SOCKET) else url


def _words(body: bytes) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


class RemoteStore:
    """The keys of a gateway elsewhere, as a KeyStore."""

    def __init__(self, url: str) -> None:
        self.name, self._url = name_gateway(url), url

    def read(self) -> "KeyTable | None":
        from dragoman.gateway.routes.admin_types import Keys, Teams
        from dragoman.gateway.stores.keys import KeyRow, KeyTable

        keys, teams = ask(self._url, "GET", "/keys", Keys), ask(self._url, "GET", "/teams", Teams)
        fields = ("id", "name", "admin", "team", "created", "revoked", "expires", "grant")
        stored = [key for key in keys.keys if not key.in_file] if keys else []
        rows = [KeyRow(digest="", **{name: getattr(key, name) for name in fields}) for key in stored]
        return KeyTable(
            pepper="", rows=tuple(rows), teams={team.name: team.grant for team in teams.teams} if teams else {}
        )

    def list_file_keys(self) -> "list[KeyView]":
        from dragoman.gateway.routes.admin_types import Keys

        found = ask(self._url, "GET", "/keys", Keys)
        return [key for key in found.keys if key.in_file] if found is not None else []

    def stamp(self) -> object:
        return None

    def prepare(self) -> None:
        pass

    def new(
        self,
        name: str,
        *,
        admin: bool = False,
        team: str = "",
        grant: "Grant | None" = None,
        expires: float | None = None,
        who: str = "",
    ) -> str:
        from dragoman.accounts.grants import NO_GRANT
        from dragoman.gateway.routes.admin_types import KeyMade, NewKey

        body = NewKey(name=name, admin=admin, team=team, grant=grant or NO_GRANT, expires=expires)
        made = ask(self._url, "POST", "/keys", KeyMade, body)
        if made is None:
            raise ConfigError(self.name, "", "has no admin API")
        return made.key

    def edit(self, key_id: str, change: "KeyChange", who: str = "") -> "KeyRow | None":
        from dragoman.gateway.routes.admin_types import EditKey, KeyView
        from dragoman.gateway.stores.keys import KeyRow

        body = EditKey(name=change.name, team=change.team, expires=change.expires, grant=change.grant)
        found = ask(self._url, "PATCH", f"/keys/{quote(key_id, safe='')}", KeyView, body)
        names = [name for name in KeyView.__struct_fields__ if name != "in_file"]
        return KeyRow(digest="", **{name: getattr(found, name) for name in names}) if found is not None else None

    def rotate(self, key_id: str, grace_s: float = 0.0, who: str = "") -> str | None:
        from dragoman.gateway.routes.admin_types import KeyMade, Rotate

        made = ask(self._url, "POST", f"/keys/{quote(key_id, safe='')}/rotate", KeyMade, Rotate(grace_s=grace_s))
        return made.key if made is not None else None

    def revoke(self, key_id: str, who: str = "") -> bool:
        return ask(self._url, "DELETE", f"/keys/{quote(key_id, safe='')}", dict) is not None

    def set_team(self, name: str, change: "GrantChange", who: str = "") -> "Grant":
        from dragoman.gateway.routes.admin_types import TeamView

        found = ask(self._url, "PATCH", f"/teams/{quote(name, safe='')}", TeamView, change)
        if found is None:
            raise ConfigError(self.name, "", "has no admin API")
        return found.grant

    def drop_team(self, name: str, who: str = "") -> bool:
        return ask(self._url, "DELETE", f"/teams/{quote(name, safe='')}?force=true", dict) is not None

    def note(self, who: str, what: str, subject: str, before: object = None, after: object = None) -> None:
        raise ConfigError(self.name, "", "writes its audit log by itself")

    def read_audit(self, most: int = 100, before: int | None = None) -> "list[AuditRow]":
        from dragoman.gateway.routes.admin_types import Audit

        found = ask(self._url, "GET", f"/audit?limit={most}" + (f"&before={before}" if before else ""), Audit)
        return found.audit if found is not None else []


class RemoteLedger:
    """The ledger of a gateway elsewhere, to be read."""

    def __init__(self, url: str) -> None:
        self._url = url

    def add(self, rows: "Sequence[LedgerRow]", lines: "Sequence[bytes]" = ()) -> None:
        raise OSError(f"{self._url}: its ledger is only read")

    def sum(self, by: "Sequence[str]", since: float, until: float, where: dict[str, str]) -> "list[Sums]":
        from dragoman.gateway.routes.admin_types import UsageReport

        found = ask(self._url, "GET", "/usage?" + self._query(since, until, where, by=",".join(by)), UsageReport)
        return found.usage if found is not None else []

    def page(self, since: float, until: float, where: dict[str, str], cursor: str, most: int) -> "Page":
        from dragoman.accounts.ledger import Page

        query = self._query(since, until, where, cursor=cursor, limit=str(most))
        return ask(self._url, "GET", f"/ledger?{query}", Page) or Page(rows=())

    def forget(self, before: float) -> int:
        raise OSError(f"{self._url}: its ledger is only read")

    def close(self) -> None:
        pass

    def _query(self, since: float, until: float, where: dict[str, str], **more: str) -> str:
        from dragoman.accounts.money import write_time

        filters = {"key_name" if name == "key" else name: value for name, value in where.items()}
        return urlencode({"since": write_time(since), "until": write_time(math.ceil(until)), **filters, **more})


def read_spent(row: "KeyRow | KeyView", teams: "dict[str, Grant]") -> list[str]:
    """How much of the budgets of a key and its team is spent."""
    from dragoman.accounts.grants import NO_GRANT, make_holder

    team = teams.get(row.team, NO_GRANT)
    return say_spent(make_holder(row.id, row.name, row.grant, team=row.team, team_grant=team).budgeted)


def say_spent(accounts: "Sequence[Account]") -> list[str]:
    from dragoman.accounts.budgets import make_lines
    from dragoman.accounts.money import write_amount
    from dragoman.gateway.routes.admin_types import Budgets
    from dragoman.gateway.stores.engines import open_budgets

    if not accounts:
        return []
    if url := find_gateway():
        budgets = ask(url, "GET", "/budgets", Budgets)
        rows = {one.account: (one.spent, one.reserved) for one in budgets.budgets} if budgets is not None else {}
    else:
        with closing(open_budgets(find_folder(), open_database())) as store:
            found = store.read(make_lines(accounts, time.time()))
        rows = {
            account.name: (write_amount(spent.micros), write_amount(spent.reserved))
            for account, spent in zip(accounts, found, strict=True)
        }
    return [
        f"{account.label}: {rows[account.name][0]} of {account.budget} spent, {rows[account.name][1]} reserved"
        for account in accounts
        if account.name in rows
    ]
