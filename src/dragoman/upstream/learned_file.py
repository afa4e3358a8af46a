"""What refusals have taught, kept over a restart: a small JSON file, read at the start and written with each lesson.

A lesson that cannot be written or read costs one more refusal, never a request. Lessons are forgotten after a while,
because servers and models change.
"""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, ValidationError, convert

from dragoman.passes.profile import Profile
from dragoman.upstream.kept_file import read_kept, write_kept
from dragoman.upstream.spec import Upstream

NAME = "learned.json"
KEPT_S = 30 * 24 * 3600.0
MOST_LESSONS = 1_000


class LessonRow(Struct, frozen=True, kw_only=True):
    """Fields of the profile of one model at one server."""

    server: str  # kind and address: another server under the same name has other rules
    dialect: str
    model: str
    fields: dict[str, object]
    learned_at: float


class LearnedFile:
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
        return [one for one in found if self._wall() - one.learned_at < KEPT_S and _fits(one.fields)]


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
