"""Closes the SQLite stores that a test has opened: Python 3.13 and newer warn about connections that are left open."""

from collections.abc import Iterator

import pytest

from dragoman.accounts.budgets import SqliteBudgets
from dragoman.accounts.ledger import SqliteLedger


@pytest.fixture(autouse=True)
def close_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[SqliteBudgets | SqliteLedger] = []
    for kind in (SqliteBudgets, SqliteLedger):
        make = kind.__init__

        def remember(self: SqliteBudgets | SqliteLedger, *args: object, made: object = make, **options: object) -> None:
            made(self, *args, **options)  # type: ignore[operator]
            opened.append(self)

        monkeypatch.setattr(kind, "__init__", remember)
    yield
    for store in opened:
        store.close()
