"""The committed table: one line per recorded exchange, digests only. Recorded traffic itself is never committed.

A line is `key bytes strip notes strip`. The key is the end of the recording's name. `bytes` and `notes` are digests
over all targets. A strip has one character per target, in the order of the first line: it tells which target changed.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from tests.laws.snapshot.ways import DIALECTS, Written, request_targets, talks, write_replies, write_requests
from tests.recorded import Case

Direction: TypeAlias = Literal["requests", "replies"]
DIRECTIONS: tuple[Direction, ...] = ("requests", "replies")
FOLDER = Path(__file__).parent
WRITE: dict[Direction, Callable[[Case, Iterable[str]], dict[str, Written]]] = {
    "requests": write_requests,
    "replies": write_replies,
}


class Row(Struct, frozen=True):
    """The digests of one exchange."""

    sent: str
    sent_strip: str
    notes: str
    notes_strip: str


class Table(Struct, frozen=True):
    targets: tuple[str, ...]
    rows: dict[str, Row]


class Change(Struct, frozen=True):
    """An exchange that is not written as it was, and for which targets."""

    case: Case
    sent: tuple[str, ...]  # targets that get other bytes
    notes: tuple[str, ...]  # targets with other notes
    written: dict[str, Written]


class Comparison(Struct, frozen=True):
    changes: list[Change]
    targets: list[str]  # targets that only the table has, or only the code; an exchange may be in one of them only


def targets_of(direction: Direction) -> tuple[str, ...]:
    return request_targets() if direction == "requests" else DIALECTS


def key_of(case: Case) -> str:
    return case.name[-8:]


def write_row(written: dict[str, Written]) -> Row:
    sent, notes = [one.sent for one in written.values()], [one.notes for one in written.values()]
    return Row(_fold(sent), _strip(sent), _fold(notes), _strip(notes))


def _fold(values: list[bytes]) -> str:
    return blake2b(b"".join(_digest(value) for value in values), digest_size=4).hexdigest()


def _strip(values: list[bytes]) -> str:
    return "".join(urlsafe_b64encode(_digest(value))[:1].decode() for value in values)


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()


def file_of(direction: Direction, dialect: str) -> Path:
    return FOLDER / direction / f"{dialect}.txt"


def read_table(direction: Direction, dialect: str) -> Table:
    head, *lines = file_of(direction, dialect).read_text("utf-8").splitlines()
    cells = (line.split(" ") for line in lines)
    return Table(tuple(head.split(" ")), {key: Row(*row) for key, *row in cells})


def save_table(direction: Direction, dialect: str) -> None:
    targets = targets_of(direction)
    lines = [" ".join(targets)]
    for case in talks(dialect):
        if written := WRITE[direction](case, targets):
            row = write_row(written)
            lines.append(f"{key_of(case)} {row.sent} {row.sent_strip} {row.notes} {row.notes_strip}")
    path = file_of(direction, dialect)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def compare(direction: Direction, dialect: str) -> Comparison:
    """What is written now, beside the table."""
    table, changes = read_table(direction, dialect), []
    for case in talks(dialect):
        written = WRITE[direction](case, table.targets)
        if not written:
            continue
        known, row = table.rows.get(key_of(case)), write_row(written)
        if known is not None and row != known:
            sent = _differing(written, known.sent_strip, row.sent_strip) if row.sent != known.sent else ()
            notes = _differing(written, known.notes_strip, row.notes_strip) if row.notes != known.notes else ()
            changes.append(Change(case, sent, notes, written))
    return Comparison(changes, sorted(set(table.targets) ^ set(targets_of(direction))))


def _differing(written: dict[str, Written], before: str, after: str) -> tuple[str, ...]:
    """All targets where the strips are equal: two texts share a character once in 64 times."""
    found = [target for target, old, new in zip(written, before, after, strict=True) if old != new]
    return tuple(found or written)
