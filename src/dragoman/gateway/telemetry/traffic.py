"""Traffic: the last requests as rows, and a live stream of new ones for the console.

A slow reader loses rows, and no request waits for one.
"""

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.gateway.access.charge import read_program
from dragoman.notes import Note

if TYPE_CHECKING:
    from dragoman.gateway.scope import Scope

KEEP = 5000  # rows in memory
MOST_ROWS = 5000  # in one answer
MOST_WAITING = 1000  # rows that wait for a slow reader


class TrafficRow(Struct, frozen=True, kw_only=True):
    seq: int  # 1, 2, 3, ... in this process
    id: str
    time: int  # when it ended, in milliseconds
    key: str
    program: str  # the client's, as it calls itself
    door: str
    asked: str  # the model, as the client named it
    upstream: str
    model: str
    status: int  # 0: the client left
    failure: str
    first_ms: int | None
    ms: int
    input: int | None
    output: int | None
    cost: str | None
    notes: dict[str, int]  # how many of each rank


class Traffic:
    def __init__(self) -> None:
        self._rows: deque[TrafficRow] = deque(maxlen=KEEP)
        self._seq = 0
        self._readers: set[Reader] = set()

    def put(self, scope: "Scope", notes: tuple[Note, ...], seconds: float) -> None:
        self._seq += 1
        row = make_row(self._seq, scope, notes, seconds)
        self._rows.append(row)
        for reader in self._readers:
            reader.put(row)

    def page(self, before: int | None, limit: int) -> tuple[list[TrafficRow], int | None]:
        """Rows from the newest to the oldest, and where the next page begins."""
        newest_first = reversed(self._rows)
        wanted = (row for row in newest_first if before is None or row.seq < before)
        found = list(islice(wanted, min(max(limit, 1), MOST_ROWS)))
        more = bool(found) and found[-1].seq > self._rows[0].seq
        return found, found[-1].seq if more else None

    def follow(self, after: int) -> "Reader":
        """A reader of the rows after one. `leave` ends it."""
        reader = Reader([row for row in self._rows if row.seq > after])
        self._readers.add(reader)
        return reader

    def leave(self, reader: "Reader") -> None:
        self._readers.discard(reader)


class Reader:
    def __init__(self, rows: list[TrafficRow]) -> None:
        self._rows: deque[TrafficRow] = deque(rows, maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        if rows:
            self._news.set()

    def put(self, row: TrafficRow) -> None:
        self._rows.append(row)
        self._news.set()

    async def take(self, patience_s: float) -> list[TrafficRow]:
        """The rows that came since the last call. After a while, none."""
        try:
            await asyncio.wait_for(self._news.wait(), patience_s)
        except TimeoutError:
            return []
        self._news.clear()
        rows = list(self._rows)
        self._rows.clear()
        return rows


def make_row(seq: int, scope: "Scope", notes: tuple[Note, ...], seconds: float) -> TrafficRow:
    last = scope.attempts[-1] if scope.attempts else None
    ranks: dict[str, int] = {}
    for note in notes:
        ranks[note.rank] = ranks.get(note.rank, 0) + 1
    usage, failure = scope.usage, scope.failure
    return TrafficRow(
        seq=seq,
        id=scope.http.id,
        time=round(scope.gateway.wall() * 1000),
        key=(scope.http.holder.name if scope.http.holder is not None else "") or scope.http.key_id,
        program=read_program(scope.http.headers.get("user-agent", "")),
        door=scope.door,
        asked=scope.model,
        upstream=last.upstream if last else "",
        model=last.model if last else "",
        status=scope.status,
        failure=(failure.code or failure.kind) if failure else "",
        first_ms=None if scope.first_s is None else round(scope.first_s * 1000),
        ms=round(seconds * 1000),
        input=_sum(usage.input, usage.cache_read, usage.cache_write) if usage else None,
        output=_sum(usage.output, usage.reasoning) if usage else None,
        cost=str(cost) if scope.answer is not None and (cost := scope.cost) is not None else None,
        notes=ranks,
    )


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
