"""What `keys`, `teams` and `usage` work on: this machine's state, or a gateway elsewhere by its admin API."""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.accounts.grants import Grant, GrantChange
    from dragoman.accounts.ledger import Ledger, LedgerRow, Page, Sums
    from dragoman.gateway.stores.keys import AuditRow, KeyChange, KeyRow, KeyStore, KeyTable
    from dragoman.postgres.database import Database

T = TypeVar("T")
ASK_S = 30.0
URL, KEY = "DRAGOMAN_ADMIN_URL", "DRAGOMAN_ADMIN_KEY"


def find_folder() -> Path:
    from dragoman.gateway.config.load import state_folder

    return state_folder(os.environ)


def open_store() -> "KeyStore":
    from dragoman.gateway.config.settings import Settings
    from dragoman.gateway.stores.engines import find_database, find_key_store

    if url := os.environ.get(URL):
        return RemoteStore(url)
    return find_key_store(Settings(database=find_database(os.environ)), find_folder())


def open_reports() -> "Ledger":
    """The ledger, to be read."""
    from dragoman.gateway.stores.engines import open_ledger

    if url := os.environ.get(URL):
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
    """What the admin API answers; None for a 404."""
    import msgspec

    if not url.startswith(("http://", "https://")):
        raise ConfigError(URL, "", "expected http(s)://host:port")
    headers = {"authorization": f"Bearer {os.environ.get(KEY, '')}", "content-type": "application/json"}
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(f"{url.rstrip('/')}/admin/v1{path}", data, headers, method=method)  # noqa: S310  # checked
    try:
        with urllib.request.urlopen(request, timeout=ASK_S) as response:  # noqa: S310  # checked
            return msgspec.json.decode(response.read(), type=kind)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise ConfigError(url, "", f"{error.code}: {_words(error.read())}") from error
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(url, "", f"does not answer as an admin API: {error}") from error


def _words(body: bytes) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


class RemoteStore:
    """The keys of a gateway elsewhere, as a KeyStore."""

    def __init__(self, url: str) -> None:
        self.name = self._url = url

    def read(self) -> "KeyTable | None":
        from dragoman.gateway.routes.admin import Keys, Teams
        from dragoman.gateway.stores.keys import KeyRow, KeyTable

        keys, teams = ask(self._url, "GET", "/keys", Keys), ask(self._url, "GET", "/teams", Teams)
        fields = ("id", "name", "admin", "team", "created", "revoked", "expires", "grant")
        rows = [KeyRow(digest="", **{name: getattr(key, name) for name in fields}) for key in keys.keys] if keys else []
        return KeyTable(
            pepper="", rows=tuple(rows), teams={team.name: team.grant for team in teams.teams} if teams else {}
        )

    def may_have_changed(self) -> bool:
        return True

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
        from dragoman.gateway.routes.admin import KeyMade, NewKey

        body = NewKey(name=name, admin=admin, team=team, grant=grant or NO_GRANT, expires=expires)
        made = ask(self._url, "POST", "/keys", KeyMade, body)
        if made is None:
            raise ConfigError(self._url, "", "has no admin API")
        return made.key

    def edit(self, key_id: str, change: "KeyChange", who: str = "") -> "KeyRow | None":
        from dragoman.gateway.routes.admin import EditKey, KeyView
        from dragoman.gateway.stores.keys import KeyRow

        body = EditKey(name=change.name, team=change.team, expires=change.expires, grant=change.grant)
        found = ask(self._url, "PATCH", f"/keys/{key_id}", KeyView, body)
        names = KeyView.__struct_fields__
        return KeyRow(digest="", **{name: getattr(found, name) for name in names}) if found is not None else None

    def rotate(self, key_id: str, grace_s: float = 0.0, who: str = "") -> str | None:
        from dragoman.gateway.routes.admin import KeyMade, Rotate

        made = ask(self._url, "POST", f"/keys/{key_id}/rotate", KeyMade, Rotate(grace_s=grace_s))
        return made.key if made is not None else None

    def revoke(self, key_id: str, who: str = "") -> bool:
        return ask(self._url, "DELETE", f"/keys/{key_id}", dict) is not None

    def set_team(self, name: str, change: "GrantChange", who: str = "") -> "Grant":
        from dragoman.gateway.routes.admin import TeamView

        found = ask(self._url, "PATCH", f"/teams/{quote(name, safe='')}", TeamView, change)
        if found is None:
            raise ConfigError(self._url, "", "has no admin API")
        return found.grant

    def drop_team(self, name: str, who: str = "") -> bool:
        return ask(self._url, "DELETE", f"/teams/{quote(name, safe='')}", dict) is not None

    def note(self, who: str, what: str, subject: str, before: object = None, after: object = None) -> None:
        raise ConfigError(self._url, "", "writes its audit log by itself")

    def read_audit(self, most: int = 100, before: int | None = None) -> "list[AuditRow]":
        from dragoman.gateway.routes.admin import Audit

        found = ask(self._url, "GET", f"/audit?limit={most}" + (f"&before={before}" if before else ""), Audit)
        return found.audit if found is not None else []


class RemoteLedger:
    """The ledger of a gateway elsewhere, to be read."""

    def __init__(self, url: str) -> None:
        self._url = url

    def add(self, rows: "Sequence[LedgerRow]") -> None:
        raise OSError(f"{self._url}: its ledger is only read")

    def sum(self, by: "Sequence[str]", since: float, until: float, where: dict[str, str]) -> "list[Sums]":
        from dragoman.gateway.routes.admin import UsageReport

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

        said = {"key_name" if name == "key" else name: value for name, value in where.items()}
        return urlencode({"since": write_time(since), "until": write_time(until + 1), **said, **more})


def read_spent(row: "KeyRow", table: "KeyTable") -> list[str]:
    """How the budgets of a key and its team stand."""
    from dragoman.accounts.budgets import make_lines
    from dragoman.accounts.grants import NO_GRANT, make_holder
    from dragoman.accounts.money import write_amount
    from dragoman.gateway.stores.engines import open_budgets

    team = table.teams.get(row.team, NO_GRANT)
    if os.environ.get(URL):
        return []  # `/admin/v1/budgets` has them
    accounts = make_holder(row.id, row.name, row.grant, team=row.team, team_grant=team).budgeted
    if not accounts:
        return []
    store = open_budgets(find_folder(), open_database())
    try:
        found = store.read(make_lines(accounts, time.time()))
    finally:
        store.close()
    words = "{label}: {spent} of {budget} spent, {reserved} reserved"
    return [
        words.format(
            label=account.label,
            budget=account.budget,
            spent=write_amount(spent.micros),
            reserved=write_amount(spent.reserved),
        )
        for account, spent in zip(accounts, found, strict=True)
    ]
