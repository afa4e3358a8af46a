"""Small JSON files that keep what a process has found out over a restart.

Losing one costs a question to a server, never a request.
"""

import logging
import os
from pathlib import Path
from typing import Any, TypeVar

from msgspec import ValidationError, convert

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_json, load_json
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
MAX_BYTES = 16 * 1024 * 1024
T = TypeVar("T")


def read_kept(path: Path, kind: type[T]) -> list[T]:
    """The rows of a file; none if it is not there or of another version."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return []
        return convert(load_json(path.read_bytes()), list[kind])  # type: ignore[valid-type]
    except (OSError, DecodeError, ValidationError):
        return []


def write_kept(path: Path, rows: list[Any]) -> None:
    """Writes a new file and puts it in the old one's place: other processes never read half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_bytes(dump_json(rows))
        new.replace(path)
    except OSError as error:
        log.warning(LogLine("not_kept", {"file": str(path), "why": error.strerror or str(error)}))
