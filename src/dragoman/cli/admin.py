"""What `keys`, `teams` and `usage` work on: this machine's state, or a gateway elsewhere by its admin API."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.gateway.key_store import KeyRow, KeyStore, KeyTable

URL, KEY = "DRAGOMAN_ADMIN_URL", "DRAGOMAN_ADMIN_KEY"


def find_folder() -> Path:
    from dragoman.gateway.config import state_folder

    return state_folder(os.environ)


def open_store() -> "KeyStore":
    from dragoman.gateway.key_store import open_key_store

    return open_key_store(find_folder())


def read_spent(row: "KeyRow", table: "KeyTable") -> list[str]:
    """How the budgets of a key and its team stand."""
    from dragoman.accounts.budgets import FILE, SqliteBudgets, make_lines
    from dragoman.accounts.grants import NO_GRANT, make_holder
    from dragoman.accounts.money import write_amount

    team = table.teams.get(row.team, NO_GRANT)
    accounts = make_holder(row.id, row.name, row.grant, team=row.team, team_grant=team).budgeted
    if not accounts:
        return []
    store = SqliteBudgets(find_folder() / FILE)
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
