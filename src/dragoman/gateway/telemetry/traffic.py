"""Traffic: every request as a row that is kept, and a live stream of new rows for consoles.

A request only puts its row into a list. Rows are written together, in a thread. A slow reader loses rows, and no
request waits for one. The rows of the other workers come from the file that all share.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from dragoman.gateway.stores.sqlite import BROKEN
from dragoman.gateway.telemetry.ended import Ended
from dragoman.gateway.telemetry.traffic_store import Minute, Search, TrafficRow, TrafficStore
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
FLUSH_S = 0.4
LOOK_S = 0.5  # for rows of other workers, while a console is open
MOST_UNWRITTEN = 20_000  # rows in memory, while the file cannot be written
MOST_AT_ONCE = 2000  # rows in one message to a console
MOST_WAITING = 20  # messages that wait for a slow reader
STRIP_MS = 30 * 60_000  # the time that the charts show


class Traffic:
    def __init__(self, store: TrafficStore, wall: Callable[[], float], *, shared: bool = False) -> None:
        """`shared`: other processes write rows too."""
        self.store = store
        self.shared = shared
        self._wall = wall
        self._unwritten: deque[Ended] = deque(maxlen=MOST_UNWRITTEN)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        self._messages: deque[bytes] = deque()  # of rows that were written, for the readers
        self._news = asyncio.Event()
        self._readers: set[Reader] = set()
        self._follower: asyncio.Task[None] | None = None
        self._away = ""

    # ---------------------------------------------------------------- on the way of a request

    def put(self, ended: Ended) -> None:
        self._unwritten.append(ended)
        if self._timer is None:
            with suppress(RuntimeError):  # no loop runs: the next page or the end writes it
                self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    # ---------------------------------------------------------------- writing

    def _flush(self) -> None:
        self._timer = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(asyncio.to_thread(self.write))
            self._writing.add_done_callback(lambda done: self._after_write())

    def _after_write(self) -> None:
        self._deliver()
        if self._unwritten and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def write(self) -> None:
        """Writes the rows to the store. Runs in a thread."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        rows: list[Ended] = []
        with suppress(IndexError):
            while True:
                rows.append(self._unwritten.popleft())
        if not rows:
            return
        try:
            last = self.store.add_values([row.values() for row in rows], round(self._wall() * 1000))
            self._away = ""
            if self._readers and not self.shared:
                shown = [row.make_row() for row in rows]
                self._messages.append(write_message(last - len(rows), shown, counted=False))
        except BROKEN as error:  # these rows are lost: traffic is for people to look at, the ledger keeps accounts
            if str(error) != self._away:
                log.warning(LogLine("traffic_not_written", {"why": str(error)}))
            self._away = str(error)

    def _deliver(self) -> None:
        """Gives readers the messages of rows that were written. Other workers' rows come from the store."""
        if self.shared and self._readers:
            self._news.set()
        while self._messages:
            message = self._messages.popleft()
            for reader in self._readers:
                reader.put(message)

    async def close(self) -> None:
        for task in (self._timer, self._follower):
            if task is not None:
                task.cancel()
        await asyncio.to_thread(self.write)
        self.store.close()

    # ---------------------------------------------------------------- reading

    async def read(self, search: Search, before: int | None, most: int) -> "TrafficPage":
        """In a thread. The first page has the charts and the count."""

        def work() -> TrafficPage:
            self.write()
            rows, following = self.store.page(search, before, most)
            if before is not None:
                return TrafficPage(rows=rows, next=following)
            now = round(self._wall() * 1000)
            found = self.store.minutes(search, now - STRIP_MS)
            return TrafficPage(
                rows=rows,
                next=following,
                total=self.store.count(search),
                last=self.store.last(),
                now=now,
                minutes=found,
            )

        page = await asyncio.to_thread(work)
        self._deliver()
        return page

    def follow(self) -> "Reader":
        """A reader of the rows that come from now on. `leave` ends it."""
        reader = Reader()
        self._readers.add(reader)
        if self.shared and (self._follower is None or self._follower.done()):
            self._follower = asyncio.ensure_future(self._tell_readers())
        return reader

    async def read_missed(self, after: int) -> bytes:
        """A message with the rows that came between a page and now."""
        rows = await asyncio.to_thread(self.store.after, after, MOST_AT_ONCE)
        return write_message(after, rows) if rows else b": hello\n\n"

    def leave(self, reader: "Reader") -> None:
        self._readers.discard(reader)
        if not self._readers and self._follower is not None:
            self._follower.cancel()
            self._follower = None

    async def _tell_readers(self) -> None:
        """With several workers: reads and writes new rows once for all consoles of this one."""
        last = await asyncio.to_thread(self.store.last)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_S)
            self._news.clear()
            try:
                rows = await asyncio.to_thread(self.store.after, last, MOST_AT_ONCE)
            except BROKEN:
                continue
            if rows:
                message = write_message(last, rows)
                last = rows[-1].seq
                for reader in self._readers:
                    reader.put(message)


def write_message(after: int, rows: list[TrafficRow], *, counted: bool = True) -> bytes:
    """Rows as an event. Without `counted`, they have the numbers after `after`, and the page numbers them itself."""
    body = {"after": after, "rows": rows, **({} if counted else {"counted": False})}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


class TrafficPage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Rows, the newest first. The first page of a view also has the charts."""

    rows: list[TrafficRow]
    next: int | None  # the cursor of the next page; null at the end
    total: int | None = None  # rows that the search finds
    last: int | None = None  # the newest row of all
    now: int | None = None  # the gateway's clock, in milliseconds
    minutes: list[Minute] | None = None


class Reader:
    """The messages for one console. Of too many the oldest are lost; the page sees that by `after`."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._news = asyncio.Event()

    def put(self, message: bytes) -> None:
        self._messages.append(message)
        self._news.set()

    async def take(self, patience_s: float) -> bytes:
        """The rows since the last call, as bytes; b"" if none came for a while."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), patience_s)
        self._news.clear()
        found = b"".join(self._messages)
        self._messages.clear()
        return found
