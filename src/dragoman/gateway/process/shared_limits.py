"""Limits that several processes of one machine keep together, in memory that they share.

The supervisor makes the memory, its workers inherit it. A minute is kept as buckets of half a second: a bucket counts
until its last moment is a minute old, so that no true window is ever exceeded. A killed process leaves no lock behind.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from math import floor, inf
from mmap import mmap

from dragoman.upstream.admission import MARGIN_S, SPAN_S, Admission, AdmissionWaiter, Tick

BUCKET_S = 0.5
BUCKETS = 128  # in a ring: more than a minute has
PLACES = 4096  # upstreams, keys and teams with a limit; beyond that, two share a place, which is only stricter
KINDS = ("rpm", "tpm")
FLOOR, TOTAL = 2 * BUCKETS, 2 * BUCKETS + 1  # cells behind the buckets: the oldest that counts, and the sum from it on
RING = 2 * BUCKETS + 2  # a number and a count for each bucket, then FLOOR and TOTAL


class SharedMemory:
    """Made before the workers are forked: the names of all places, then the places.

    A place is of one upstream: the running requests of each worker, and two windows.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._place_cells = workers + len(KINDS) * RING
        size = PLACES * (1 + self._place_cells) * 8
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("dragoman-limits")
            os.ftruncate(self.file, size)
        else:
            with tempfile.TemporaryFile() as file:
                file.write(bytes(size))  # written now: on a full disk a later write would kill the process
                file.flush()
                self.file = os.dup(file.fileno())
        cells = memoryview(mmap(self.file, size)).cast("q")
        self.names, self._places = cells[:PLACES], cells[PLACES:]

    def place(self, number: int) -> memoryview:
        return self._places[number * self._place_cells : (number + 1) * self._place_cells]


class SharedLimits:
    """The shared limits as one worker uses them."""

    kept, away, losses = "workers", "", 0

    def __init__(self, memory: SharedMemory, worker: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory, self._worker, self._clock = memory, worker, clock
        self.parts = memory.workers
        self._known: dict[str, SharedLimit] = {}
        for number in range(PLACES):
            if memory.names[number]:
                memory.place(number)[worker] = 0  # the worker before this one died with its requests

    def open_queue(
        self, name: str, label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> AdmissionWaiter:
        admission = Admission(at_once=at_once, rpm=rpm, tpm=tpm, queue=queue, keeper=self.of(name))
        return AdmissionWaiter(admission, label, self._clock)

    def of(self, upstream: str) -> "SharedLimit":
        found = self._known.get(upstream)
        if found is None:
            found = self._known[upstream] = SharedLimit(self._memory, self._find(upstream), self._worker)
        return found

    def _find(self, upstream: str) -> int:
        """The number of an upstream's place, which it gets when it is first asked for."""
        name: int = int.from_bytes(hashlib.sha256(upstream.encode()).digest()[:8], "big", signed=True) or 1
        names = self._memory.names
        first: int = name % PLACES
        fcntl.lockf(self._memory.file, fcntl.LOCK_EX, 1, PLACES)
        try:
            for step in range(PLACES):
                number = (first + step) % PLACES
                if names[number] in (0, name):
                    names[number] = name
                    return number
        finally:
            fcntl.lockf(self._memory.file, fcntl.LOCK_UN, 1, PLACES)
        return first


class SharedLimit:
    """The limits of one upstream. `with` holds its lock."""

    def __init__(self, memory: SharedMemory, number: int, worker: int) -> None:
        self._file, self._number, self._worker = memory.file, number, worker
        self._depth = 0  # of `with` in `with`
        place = memory.place(number)
        self._running, rings = place[: memory.workers], place[memory.workers :]
        self._rings = {kind: rings[i * RING : (i + 1) * RING] for i, kind in enumerate(KINDS)}

    def __enter__(self) -> None:
        if not self._depth:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self._number)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._number)

    @property
    def running(self) -> int:
        return int(sum(self._running))

    def add_running(self, change: int) -> None:
        self._running[self._worker] += change

    def window(self, kind: str, limit: int) -> "SharedWindow":
        return SharedWindow(self, self._rings[kind], limit)


class SharedWindow:
    """A Window in shared memory: pairs of a bucket's number and its content."""

    __slots__ = ("_lock", "_ring", "limit")

    def __init__(self, lock: SharedLimit, ring: memoryview, limit: int) -> None:
        self._lock, self._ring, self.limit = lock, ring, limit

    def wait_s(self, now: float, weight: int = 1) -> float:
        with self._lock:
            over = self._count(now) + min(weight, self.limit) - self.limit
            full = self._full_buckets() if over > 0 else []
        if over <= 0:
            return 0.0
        for bucket, used in sorted(full):
            over -= used
            if over <= 0:
                return max((bucket + 1) * BUCKET_S + SPAN_S + MARGIN_S - now, 0.001)
        return inf  # not reached: every bucket leaves the window in the end

    def fits(self, now: float, weight: int) -> bool:
        with self._lock:
            return self._count(now) + min(weight, self.limit) <= self.limit

    def take(self, now: float, weight: int = 1) -> Tick:
        self._add(now, weight)
        return Tick(now, now, weight)

    def stamp(self, tick: Tick, weight: int, now: float) -> Tick:
        if now <= tick.at:
            return tick
        with self._lock:
            self._add(tick.at, -weight)
            return self.take(now, weight)

    def change(self, tick: Tick, weight: int) -> None:
        self._add(tick.at, weight)

    def used(self, now: float) -> int:
        with self._lock:
            return self._count(now)

    @property
    def left(self) -> int:
        return max(self.limit - int(self._ring[TOTAL]), 0)

    def _count(self, now: float) -> int:
        """The sum of the window. Buckets that have left it since the last call are subtracted first."""
        ring = self._ring
        floor_, oldest = ring[FLOOR], floor((now - SPAN_S - MARGIN_S) / BUCKET_S)
        if oldest > floor_:
            for bucket in range(max(floor_, oldest - BUCKETS), oldest):
                cell = bucket % BUCKETS * 2
                if ring[cell] == bucket:
                    ring[TOTAL] -= ring[cell + 1]
                    ring[cell + 1] = 0
            ring[FLOOR] = oldest
        return int(ring[TOTAL])

    def _full_buckets(self) -> list[tuple[int, int]]:
        cells, oldest = self._ring[: 2 * BUCKETS].tolist(), self._ring[FLOOR]
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return [pair for pair in pairs if pair[1] and pair[0] >= oldest]

    def _add(self, at: float, weight: int) -> None:
        """A bucket that has left the window counts no more."""
        bucket = int(at / BUCKET_S)
        cell = bucket % BUCKETS * 2
        ring = self._ring
        with self._lock:
            if bucket < ring[FLOOR]:
                return
            if ring[cell] < bucket:
                if ring[cell] >= ring[FLOOR]:
                    ring[TOTAL] -= ring[cell + 1]  # it is older than the ring is long
                ring[cell], ring[cell + 1] = bucket, 0
            if ring[cell] == bucket:
                ring[cell + 1] += weight
                ring[TOTAL] += weight
