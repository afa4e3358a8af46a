"""Small JSON files that keep over a restart what a process found out: lists of models, and what refusals taught.

If one is lost, a server is asked once more or refuses once more. No request fails because of it.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_json, load_json
from dragoman.log_line import LogLine
from dragoman.passes.profile import Profile
from dragoman.upstream.spec import Upstream

log = logging.getLogger(__name__)
MAX_BYTES = 16 * 1024 * 1024
LEARNED = "learned.json"
LEARNED_KEPT_S = 30 * 24 * 3600.0  # servers and models change
MOST_LESSONS = 1_000
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


# ---------------------------------------------------------------- what refusals have taught


class LessonRow(Struct, frozen=True, kw_only=True):
    """Fields of the profile of one model at one server."""

    server: str  # kind and address: another server under the same name has other rules
    dialect: str
    model: str
    fields: dict[str, object]
    learned_at: float


class LearnedFile:
    """Read at the start, and written with each lesson."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._path, self._wall = path, wall

    def read(self, upstream: Upstream) -> dict[tuple[str, str], dict[str, object]]:
        """What is known about the models of one server."""
        server = _server(upstream)
        return {(one.dialect, one.model): _tuples(one.fields) for one in self._load() if one.server == server}

    def write(self, upstream: Upstream, dialect: str, model: str, fields: dict[str, object]) -> None:
        at = (_server(upstream), dialect, model)
        others = [one for one in self._load() if (one.server, one.dialect, one.model) != at]
        fresh = LessonRow(server=at[0], dialect=dialect, model=model, fields=fields, learned_at=self._wall())
        write_kept(self._path, [*others[-MOST_LESSONS:], fresh])

    def _load(self) -> list[LessonRow]:
        found = read_kept(self._path, LessonRow)
        return [one for one in found if self._wall() - one.learned_at < LEARNED_KEPT_S and _fits(one.fields)]


def _server(upstream: Upstream) -> str:
    return f"{upstream.kind} {upstream.base_url}"


def _fits(fields: dict[str, object]) -> bool:
    """Whether a profile still has these fields: the file may be of another version."""
    try:
        convert(fields, Profile)
    except ValidationError:
        return False
    return True


def _tuples(fields: dict[str, object]) -> dict[str, object]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
