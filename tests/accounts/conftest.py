"""Closes the SQLite stores that a test has opened: Python 3.13 and newer warn about connections that are left open."""

from collections.abc import Iterator

import pytest

from dragoman.accounts.budgets import SqliteBudgets
from dragoman.accounts.ledger import SqliteLedger
from dragoman.gateway.stores.responses import SqliteResponseStore

SqliteStore = SqliteBudgets | SqliteLedger | SqliteResponseStore


@pytest.fixture(autouse=True)
def close_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[SqliteStore] = []
    for kind in (SqliteBudgets, SqliteLedger, SqliteResponseStore):
        make = kind.__init__

        def remember(self: SqliteStore, *args: object, made: object = make, **options: object) -> None:
            made(self, *args, **options)  # type: ignore[operator]
            opened.append(self)

        monkeypatch.setattr(kind, "__init__", remember)
    yield
    for store in opened:
        store.close()
