"""Logs: one summary line a request, for people or as JSON. No secret, no body, no control character gets in."""

import logging
import re
import sys
from typing import Any

from dragoman.jsontypes import dump_json

LOGGER = "dragoman"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MAX_FIELD = 2048


def plain(value: object) -> str:
    """A value on one line: control characters are shown, not obeyed (T40)."""
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", str(value))
    return text if len(text) <= MAX_FIELD else text[:MAX_FIELD] + "..."


class Log:
    def __init__(self, form: str = "human", *, verbose: bool = False) -> None:
        self.form = form
        self.logger = logging.getLogger(LOGGER)
        self.logger.setLevel(logging.DEBUG if verbose else logging.INFO)

    def to_stderr(self) -> None:
        """Where a server's log goes. A reader that is gone is no reason to fail."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        self.logger.handlers = [handler]
        self.logger.propagate = False
        logging.raiseExceptions = False

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
        self.logger.log(level, "%s", line)
