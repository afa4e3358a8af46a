"""Where the log goes: one line for each request, for people or as JSON, without secrets, bodies or control characters.

Each module has a logger of its own name (mission D11) and gives it a LogLine. A running server has one sink for all of
them. The sink is bounded and writes batches in a thread of its own: if the log reader stalls, lines are dropped and
requests are never delayed (F49).
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from queue import SimpleQueue
from typing import Protocol

from msgspec import Struct

from dragoman.jsontypes import dump_json
from dragoman.log_line import LogLine, hide_secrets, plain

ROOT = "dragoman"
FLUSH_S = 0.05
MOST_LINES = 10_000
FLUSH_AT_END_S = 1.0
INFO, WARNING = logging.INFO, logging.WARNING


class AnyLine(Protocol):
    """A LogLine, or what becomes one when it is written."""

    @property
    def event(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, object]: ...


class AnyEntry(Protocol):
    """One line that is not written yet."""

    @property
    def at(self) -> float: ...
    @property
    def level(self) -> int: ...
    @property
    def logger(self) -> str: ...
    @property
    def line(self) -> AnyLine: ...


class Entry(Struct, frozen=True, gc=False):
    """The entry of a LogLine."""

    at: float
    level: int
    logger: str
    line: AnyLine


class Sink(logging.Handler):
    """Lines to standard error."""

    def __init__(self, form: str, file: int, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._form = write_json if form == "json" else write_human
        self._file = file
        self._clock = clock
        self._lines: list[AnyEntry] = []
        self._batches: SimpleQueue[list[AnyEntry]] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._lock = threading.Lock()  # threads without an event loop hand over their lines at once
        self._handing = False
        self._handed = self._written = 0  # lines; each is counted by one thread only
        self._full = self._failed = self._told = 0  # lines dropped, and how many of them the log has reported

    @property
    def dropped(self) -> int:
        """Lines that were not written: the log reader stalled or is gone."""
        return self._full + self._failed

    def emit(self, record: logging.LogRecord) -> None:
        line = record.msg if isinstance(record.msg, LogLine) else foreign_line(record)
        self.put(record.levelno, record.name, line)

    def put(self, level: int, logger: str, line: AnyLine) -> None:
        self.put_entry(Entry(self._clock(), level, logger, line))

    def put_entry(self, entry: AnyEntry) -> None:
        if len(self._lines) + self._handed - self._written >= MOST_LINES:
            self._full += 1
            return
        self._lines.append(entry)
        if not self._handing:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._hand_over()
                return
            self._handing = True
            loop.call_later(FLUSH_S, self._hand_over)

    def flush(self) -> None:
        """Writes the rest at the end, for a bounded time."""
        self._hand_over()
        until = time.monotonic() + FLUSH_AT_END_S
        while self._written < self._handed and time.monotonic() < until:
            time.sleep(0.005)

    def _hand_over(self) -> None:
        with self._lock:
            self._hand_lines()

    def _hand_lines(self) -> None:
        self._handing = False
        if self._lines and (untold := self.dropped - self._told):
            self._lines.append(Entry(self._clock(), WARNING, __name__, LogLine("log_dropped", {"lines": untold})))
            self._told += untold
        if not self._lines:
            return
        batch, self._lines = self._lines, []
        self._handed += len(batch)
        if self._writer is None:  # started late: a thread does not survive the fork of a worker
            self._writer = threading.Thread(target=self._write, name="log", daemon=True)
            self._writer.start()
        self._batches.put(batch)

    def _write(self) -> None:
        while True:
            batch = self._batches.get()
            data = "".join(self._form(entry) for entry in batch).encode("utf-8", "backslashreplace")
            try:
                while data:  # not through sys.stderr, which is locked while its reader stalls
                    data = data[os.write(self._file, data) :]
            except OSError:
                self._failed += len(batch)
            self._written += len(batch)


@lru_cache(maxsize=2)
def _clock_time(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def write_human(entry: AnyEntry) -> str:
    at = _clock_time(int(entry.at))
    level = "" if entry.level == INFO else f"{logging.getLevelName(entry.level)} "
    name = "" if entry.level == INFO else f"{entry.logger.removeprefix('dragoman.')} "
    return f"{at} {level}{name}{entry.line}\n"


@lru_cache(maxsize=2)
def _day_time(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def write_json(entry: AnyEntry) -> str:
    at = f"{_day_time(int(entry.at))}.{int(entry.at * 1000) % 1000:03d}Z"
    level = "info" if entry.level == INFO else logging.getLevelName(entry.level).lower()
    row: dict[str, object] = {"time": at, "level": level, "logger": entry.logger, "event": plain(entry.line.event)}
    for name, value in entry.line.fields.items():
        if value:  # numbers stay numbers; everything else is text on one line
            row[name] = value if isinstance(value, (int, float)) else plain(value)
    return dump_json(row).decode("utf-8", "replace") + "\n"


def foreign_line(record: logging.LogRecord) -> LogLine:
    """A line of another package: its message without secrets, and only the name of an exception."""
    fields: dict[str, object] = {"said": hide_secrets(record.getMessage())}
    if record.exc_info and record.exc_info[0] is not None:
        fields["error"] = record.exc_info[0].__name__
    return LogLine("log", fields)


class Log:
    """The log of a gateway. Without a sink, lines go where the program that holds it has sent its own logging."""

    def __init__(self, form: str = "human", *, verbose: bool = False) -> None:
        self.form = form
        self.sink: Sink | None = None
        logging.getLogger(ROOT).setLevel(logging.DEBUG if verbose else logging.INFO)

    def to_stderr(self) -> None:
        """Sends our lines, and the warnings of other packages, to standard error."""
        self.sink = Sink(self.form, sys.stderr.fileno())
        root = logging.getLogger()
        root.handlers = [self.sink]
        root.setLevel(logging.WARNING)

    def flush(self) -> None:
        if self.sink is not None:
            self.sink.flush()

    def say(self, logger: logging.Logger, entry: AnyEntry) -> None:
        """Logs the line of a request, if the level is on. Cheaper than `logger.info`, which looks up the caller."""
        if self.sink is not None:
            self.sink.put_entry(entry)
        else:
            logger.info(LogLine(entry.line.event, entry.line.fields))
