"""Logs: one summary line a request, for people or as JSON. No secret, no body, no control character gets in."""

import asyncio
import logging
import re
import sys
from typing import Any

from dragoman.jsontypes import dump_json

LOGGER = "dragoman"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MAX_FIELD = 2048
FLUSH_S = 0.05
MOST_LINES = 10_000


def plain(value: object) -> str:
    """A value on one line: control characters are shown, not obeyed (T40)."""
    text = str(value)
    if not text.isprintable():
        text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if len(text) <= MAX_FIELD else text[:MAX_FIELD] + "..."


class Sink(logging.Handler):
    """Lines to standard error, many at once and in another thread: a reader that sleeps holds nobody up (F49)."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._writing = False
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.put(record.getMessage())

    def put(self, line: str) -> None:
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._writing:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
                return
            self._writing = True
            loop.call_later(FLUSH_S, self._hand_over, loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_in_executor(None, self._write, self._take()).add_done_callback(lambda _: self._written(loop))

    def _written(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writing = False
        if self._lines and not loop.is_closed():
            self._writing = True
            loop.call_later(FLUSH_S, self._hand_over, loop)

    def flush(self) -> None:
        """What is left, at the end."""
        if self._lines:
            self._write(self._take())

    def _take(self) -> str:
        if self._dropped:
            self._lines.append(f"log_dropped lines={self._dropped}")
            self._dropped = 0
        lines, self._lines = self._lines, []
        return "\n".join([*lines, ""])

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._dropped += text.count("\n")


class Log:
    def __init__(self, form: str = "human", *, verbose: bool = False) -> None:
        self.form = form
        self.logger = logging.getLogger(LOGGER)
        self.logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        self._sink: Sink | None = None

    def to_stderr(self) -> None:
        """Where a server's log goes."""
        self._sink = Sink()
        self.logger.handlers = [self._sink]
        self.logger.propagate = False

    def flush(self) -> None:
        if self._sink is not None:
            self._sink.flush()

    def say(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def debug(self, event: str, **fields: Any) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        said = {key: value for key, value in fields.items() if value not in (None, "", 0, (), [])}
        if self.form == "json":
            clean = {key: plain(v) if isinstance(v, str) else v for key, v in said.items()}
            line = dump_json({"level": logging.getLevelName(level).lower(), "event": event, **clean}).decode()
        else:
            line = " ".join([event, *(f"{key}={plain(value)}" for key, value in said.items())])
        if self._sink is not None:
            self._sink.put(line)  # what logging would do, without its cost
        else:
            self.logger.log(level, "%s", line)
