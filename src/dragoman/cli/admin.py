"""What `keys`, `teams` and `usage` work on: this machine's state, or a gateway elsewhere by its admin API."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.gateway.key_store import KeyRow, KeyStore, KeyTable
    from dragoman.postgres.database import Database

URL, KEY = "DRAGOMAN_ADMIN_URL", "DRAGOMAN_ADMIN_KEY"


def find_folder() -> Path:
    from dragoman.gateway.config import state_folder

    return state_folder(os.environ)


def open_store() -> "KeyStore":
    from dragoman.gateway.engines import find_database, find_key_store
    from dragoman.gateway.settings import Settings

    return find_key_store(Settings(database=find_database(os.environ)), find_folder())


def open_database() -> "Database | None":
    """PostgreSQL, if that is where this installation keeps its keys."""
    from dragoman.gateway.engines import find_database

    if not (url := find_database(os.environ)):
        return None
    from dragoman.postgres.database import Database

    return Database(url)


def read_spent(row: "KeyRow", table: "KeyTable") -> list[str]:
    """How the budgets of a key and its team stand."""
    from dragoman.accounts.budgets import make_lines
    from dragoman.accounts.grants import NO_GRANT, make_holder
    from dragoman.accounts.money import write_amount
    from dragoman.gateway.engines import open_budgets

    team = table.teams.get(row.team, NO_GRANT)
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
