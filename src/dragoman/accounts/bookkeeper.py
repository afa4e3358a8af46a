"""Bookkeeper: takes the row of each request and brings it to the ledger and the budgets, in a thread of its own.

A request waits for one short write to the journal, and with a budget for one short transaction. All else is done in
batches: budgets are settled after 50 ms, rows reach the database after half a second.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.accounts.budgets import BudgetStore, Line, Passed, Refused, Settlement, Spent
from dragoman.accounts.journal import Journal
from dragoman.accounts.ledger import Ledger, LedgerRow
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
SETTLE_S = 0.05
WRITE_S = 0.5
LOOK_S = 60.0  # how often the files of dead processes are looked for
FORGET_S = 3600.0
DAY_S = 86_400.0


class Tell(Protocol):
    def __call__(self, passed: Sequence[Passed]) -> None: ...


class Bookkeeper:
    def __init__(
        self,
        journal: Journal,
        ledger: Ledger | None,
        budgets: BudgetStore,
        settling: BudgetStore,
        *,
        remote: bool = False,
        keep_days: int = 0,
        lease_s: float = 60.0,
        tell: Tell = lambda passed: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`settling`: the same budgets, for the thread. `ledger` None: rows only settle budgets."""
        self._journal, self._ledger, self._budgets, self._settling = journal, ledger, budgets, settling
        self._keep_days, self._lease_s, self._tell, self._wall = keep_days, lease_s, tell, wall
        self.remote = remote  # the budgets are a server's: no call of theirs may be made on the event loop
        self.owner = secrets.token_hex(8)
        self._reserved: set[str] = set()
        self._settlements: deque[Settlement] = deque()
        self._thread: threading.Thread | None = None
        self._woken, self._stopping = threading.Event(), False
        self.away = ""  # why rows wait
        self._recorded = self._written = 0  # rows; each is counted by one thread only

    @property
    def waiting(self) -> int:
        """Rows that are not in the ledger yet."""
        return self._recorded - self._written

    # ---------------------------------------------------------------- on the way of a request

    def reserve(self, request: str, lines: Sequence[Line], estimate: int, *, cap: bool) -> list[Spent] | Refused:
        now = self._wall()
        until = now + self._lease_s
        found = self._budgets.reserve(request, self.owner, lines, estimate, now=now, until=until, cap=cap)
        if not isinstance(found, Refused):
            self._reserved.add(request)
            self._start()
        return found

    def record(self, row: LedgerRow) -> None:
        if row.charged:
            self._settlements.append(Settlement(row.id, row.charged, row.cost or 0))
        if self._ledger is not None:
            self._journal.write(row)
            self._recorded += 1
        if not self._woken.is_set():
            self._woken.set()
            self._start()

    # ---------------------------------------------------------------- in the thread

    def start(self) -> None:
        """Now, and not with the first request: what dead processes have left is taken over."""
        self._start()

    def close(self) -> None:
        """Brings everything to its place. What cannot be brought waits in the journal."""
        self._stopping = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(10.0)
        self._settle()
        self._write()
        self._journal.close()
        for store in (self._ledger, self._budgets, self._settling):
            if store is not None:
                store.close()

    def _start(self) -> None:
        if self._thread is None:  # late: a thread does not survive the fork of a worker
            self._thread = threading.Thread(target=self._work, name="bookkeeper", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        looked = forgot = -FORGET_S
        wrote = renewed = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                self._attempt(self._take_over)
            if self._keep_days and now - forgot > FORGET_S:
                forgot = now
                self._attempt(self._forget)
            if self._reserved and now - renewed > self._lease_s / 3:
                renewed = now
                self._attempt(lambda: self._settling.renew(self.owner, self._wall() + self._lease_s))
            self._settle()
            if now - wrote > WRITE_S:
                wrote = now
                self._write()
            self._rest()

    def _rest(self) -> None:
        """Sleeps until there is something to do, and then for a moment more: batches are cheaper."""
        if self._woken.wait(WRITE_S if self.waiting else self._lease_s / 3) and not self._stopping:
            self._woken.clear()
            time.sleep(SETTLE_S)

    def _settle(self) -> None:
        batch: list[Settlement] = []
        while self._settlements:
            batch.append(self._settlements.popleft())
        if not batch:
            return
        try:
            passed = self._settling.settle(batch, self._wall())
        except OSError as error:
            self._settlements.extendleft(reversed(batch))
            self._be_away(error)
            return
        self._reserved -= {one.id for one in batch}
        if passed:
            self._attempt(lambda: self._tell(passed))

    def _write(self) -> None:
        if self._ledger is None:
            return
        for segment in list(self._journal.turn()):
            rows = segment.read()
            try:
                self._ledger.add(rows)
            except OSError as error:
                self._be_away(error)
                self._journal.spare_memory()
                return
            self._written += len(rows)
            self._journal.is_done(segment)
        if self.away:
            log.info(LogLine("ledger_written_again", {}))
        self.away = ""

    def _take_over(self) -> None:
        for segment in self._journal.take_over():
            try:
                rows = segment.read()
                charged = [Settlement(row.id, row.charged, row.cost or 0) for row in rows if row.charged]
                if charged:
                    self._tell(self._settling.settle(charged, self._wall()))
                if self._ledger is not None:
                    self._ledger.add(rows)
            except BaseException:
                segment.close()
                raise
            segment.end()
        self._settling.expire(self._wall())

    def _forget(self) -> None:
        if self._ledger is not None:
            self._ledger.forget(self._wall() - self._keep_days * DAY_S)

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            self._be_away(error)

    def _be_away(self, error: OSError) -> None:
        why = str(error)
        if why != self.away:
            log.warning(LogLine("ledger_not_written", {"why": why, "waiting": self.waiting}))
        self.away = why
