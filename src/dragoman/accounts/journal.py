"""The journal: rows of the ledger on their way to the database, one line each, in a file of this process.

A row is in its file before the client has read the end of its answer. It then survives the end of the process, even by
`kill -9`. A power cut may lose what was written in the last half second. Each file is locked by its process; the next
process that starts, or that looks, takes over what a dead one has left.
"""

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from dragoman.accounts.ledger import LedgerRow, read_line, write_line

FOLDER = "journal"
YOUNG_S = 60.0  # an empty file this young may belong to a process that has not locked it yet
MOST_IN_MEMORY = 200_000  # rows, while the database is away; the files hold them all


def has_files(folder: Path) -> bool:
    """Whether processes have left rows, or write some now."""
    return folder.is_dir() and any(folder.glob("*.jsonl"))


class Segment:
    """One file, and its rows as long as memory allows."""

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file = path, file
        self.rows: list[LedgerRow] = []
        self.lines: list[bytes] = []  # the same rows, until they are given to the database for the first time
        self.size = 0

    def read(self) -> list[LedgerRow]:
        return self.rows or read_rows(self.path)

    def take_lines(self) -> list[bytes]:
        """The lines of all rows, the first time. Later the database may know some of the rows."""
        lines, self.lines = self.lines, []
        return lines

    def end(self) -> None:
        """Deletes the file: its rows are in the database now."""
        with suppress(OSError):
            self.path.unlink()
        self.close()

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


class Journal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._now: Segment | None = None
        self.waiting: list[Segment] = []  # written, and not in the database yet
        self.trouble = ""  # why rows are only in memory; "" if files can be written

    def write(self, row: LedgerRow) -> None:
        """Writes one row, in a few microseconds. If the disk is full, the row is in memory only."""
        line = write_line(row)
        with self._lock:
            segment = self._now
            if segment is None:
                segment = self._now = self._open()
            segment.rows.append(row)
            segment.lines.append(line)
            if segment.file < 0:
                return
            try:
                written = os.write(segment.file, line)
            except OSError as error:
                self.trouble = error.strerror or "cannot be written"
                return
            if written < len(line):
                self.trouble = "the disk is full"
                with suppress(OSError):
                    os.ftruncate(segment.file, segment.size)
                return
            segment.size += written

    def turn(self) -> list[Segment]:
        """Closes the current file. Returns all files that wait for the database, the oldest first."""
        with self._lock:
            if self._now is not None and self._now.rows:
                self.waiting.append(self._now)
                self._now = None
        return self.waiting

    def is_done(self, segment: Segment) -> None:
        segment.end()
        self.waiting.remove(segment)
        if not self.waiting:
            self.trouble = ""

    def spare_memory(self) -> None:
        """Forgets rows that do not fit in memory. They are in the files, too, and are read again later."""
        kept = 0
        for segment in reversed(self.waiting):
            kept += len(segment.rows)
            if kept > MOST_IN_MEMORY and segment.size:
                segment.rows = []

    def take_over(self) -> Iterator[Segment]:
        """The files of dead processes. The caller writes their rows to the database and then ends the files."""
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else []:
            own = {segment.path for segment in self.waiting} | ({self._now.path} if self._now else set())
            if path not in own and (segment := _lock_left(path)) is not None:
                yield segment

    def close(self) -> None:
        with self._lock:
            for segment in (*self.waiting, *([self._now] if self._now else [])):
                if segment.rows or segment.size:
                    segment.close()
                else:
                    segment.end()
            self._now, self.waiting = None, []

    def _open(self) -> Segment:
        """A new segment. If no file can be made, it is in memory only."""
        path = self._folder
        for _ in range(3):
            path = self._folder / f"{time.time_ns()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            except OSError as error:
                self.trouble = error.strerror or "cannot be made"
                return Segment(path, -1)
            if _lock(file):
                return Segment(path, file)
            os.close(file)  # another process is just looking at it
        return Segment(path, -1)


def _lock(file: int) -> bool:
    """On Windows there is one process, which takes over what is there when it starts."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lock_left(path: Path) -> Segment | None:
    """The file of a dead process, locked for us; None if its process lives."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    stat = os.fstat(file)
    young = not stat.st_size and time.time() - stat.st_mtime < YOUNG_S
    if young or not stat.st_nlink or not _lock(file):
        os.close(file)
        return None
    segment = Segment(path, file)
    segment.size = stat.st_size
    return segment


def read_rows(path: Path) -> list[LedgerRow]:
    """Every complete line. A process that was killed while it wrote may leave an incomplete one."""
    rows: list[LedgerRow] = []
    with suppress(OSError), path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                with suppress(msgspec.DecodeError):
                    rows.append(read_line(line))
    return rows
