"""SQLite in WAL mode: one writer and many readers at a time, of any number of processes."""

import sqlite3
import time

RETRY_S = 0.002


def use_wal(db: sqlite3.Connection, wait_s: float) -> None:
    """Switches a database to WAL mode. SQLite waits for a lock, but not while it changes the journal mode. If two
    processes open a new file at the same moment, one of them gets "database is locked" at once. So we try again, as
    long as any other call would wait."""
    end = time.monotonic() + wait_s
    while True:
        try:
            db.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(RETRY_S)
