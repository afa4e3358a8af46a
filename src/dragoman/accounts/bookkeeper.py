"""Bookkeeper: takes the row of each request and brings it to the ledger and the budgets, in a thread of its own.

A request waits for one short write to the journal, and with a budget for one short transaction. Everything else runs in
batches: budgets are settled after 50 ms, rows reach the database after half a second. A second thread renews the leases
of reservations: a slow write must not let them end.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.accounts.budgets import BudgetStore, BusyError, Line, Passed, Refused, RemoteBudgets, Settlement, Spent
from dragoman.accounts.journal import Journal
from dragoman.accounts.ledger import Ledger, LedgerRow
from dragoman.accounts.standby import Standby
from dragoman.log_line import LogLine, own_error

log = logging.getLogger(__name__)
SETTLE_S = 0.05
BUSY_HERE_S = 0.02  # a call on the event loop waits no longer: all requests would wait with it
LOCKED_S = 5.0  # a request waits so long for a file of budgets that another process holds
SETTLE_WAITS = (1, 2, 3)  # times SETTLE_S, before a request that found no room in a budget asks again
WRITE_S = 0.5
STANDBY_S = 2.0
RENEWALS = 4  # of a lease, before it would end
CLOSE_S = 10.0  # for calls of a store that run
LOOK_S = 60.0  # how often we look for files of dead processes
FORGET_S = 3600.0
DAY_S = 86_400.0
TOO_LARGE = OverflowError  # a number that no store can hold; none should come so far


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
        remote: RemoteBudgets | None = None,
        standby: bool = True,
        keep_days: int = 0,
        lease_s: float = 60.0,
        tell: Tell = lambda passed: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`settling`: the same budgets, for the thread. `remote`: the same, if they are a server's. `standby`: a small
        part is in hand, for most requests and for the time when the server is away. `ledger` None: rows only settle
        budgets."""
        self._journal, self._ledger, self._budgets, self._settling = journal, ledger, budgets, settling
        self._keep_days, self._lease_s, self._tell, self._wall = keep_days, lease_s, tell, wall
        self._remote = remote
        self.owner = secrets.token_hex(8)
        self._standby = Standby(settling, self.owner, lease_s) if standby else None
        self._reserved: set[str] = set()
        self._settlements: deque[Settlement] = deque()
        self._threads: list[threading.Thread] = []
        self._writing = threading.RLock()  # a batch is settled and written by one thread at a time
        self._woken, self._stopping = threading.Event(), threading.Event()
        self.away = ""  # why rows cannot be written now; "" if they can
        self._recorded = self._written = 0  # rows; each is counted by one thread only

    @property
    def waiting(self) -> int:
        """Rows that are not in the ledger yet."""
        return self._recorded - self._written

    @property
    def in_hand(self) -> int | None:
        """The number of budgets that can be used for a while without their server; None if they have no server."""
        return self._standby.in_hand if self._standby is not None else None

    # ---------------------------------------------------------------- on the way of a request

    async def reserve(self, request: str, lines: Sequence[Line], estimate: int, *, cap: bool) -> list[Spent] | Refused:
        """Reserves an amount. After an OSError we do not know whether it is reserved: the row of the request settles
        it.

        A request that has just ended holds its part of a budget until it is settled, here or in another process. So a
        refusal waits for a moment: a client that sends one request after the other is not refused for its last one."""
        in_hand = self.reserve_in_hand(request, lines, estimate)
        if in_hand is not None:
            return in_hand
        now, standby = self._wall(), self._standby
        self._reserved.add(request)
        try:
            found = await self._ask(request, lines, estimate, now, cap=cap)
            for times in SETTLE_WAITS:
                if not isinstance(found, Refused) or not found.spent.may_come_back:
                    break
                await asyncio.sleep(times * SETTLE_S)
                found = await self._ask(request, lines, estimate, now, cap=cap)
        except OSError:
            alone = standby.use_alone(request, lines, estimate, now, cap=cap) if standby is not None else None
            if alone is None:
                raise
            return alone
        if isinstance(found, Refused):
            self._reserved.discard(request)
            if standby is not None:
                standby.note_refusal(found.spent)
        return found

    def reserve_in_hand(self, request: str, lines: Sequence[Line], estimate: int) -> list[Spent] | None:
        """Reserves from what this process has in hand. None: it does not fit, and nothing was taken."""
        self._start()
        standby = self._standby
        if standby is None:
            return None
        now = self._wall()
        standby.want(lines, now)
        return standby.use(request, lines, estimate, now)

    async def _ask(
        self, request: str, lines: Sequence[Line], estimate: int, now: float, *, cap: bool
    ) -> list[Spent] | Refused:
        """Asks the server. The call goes on to its end even if the client leaves."""
        until = now + self._lease_s
        if self._remote is None:
            return await self._ask_here(request, lines, estimate, now=now, until=until, cap=cap)
        asked = self._remote.ask(request, self.owner, lines, estimate, now=now, until=until, cap=cap)
        return await asyncio.shield(asked)

    async def _ask_here(
        self, request: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        """Asks the file of this machine. While another process holds it, this request waits, and no other one."""
        end = time.monotonic() + LOCKED_S
        while True:
            try:
                return self._budgets.reserve(request, self.owner, lines, estimate, now=now, until=until, cap=cap)
            except BusyError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(SETTLE_S)

    def record(self, row: LedgerRow) -> None:
        if row.charged:
            self._settlements.append(Settlement(row.id, row.charged, row.debit))
        if self._ledger is not None:
            self._journal.write(row)
            self._recorded += 1
        if not self._woken.is_set():
            self._woken.set()
            self._start()

    def give_back(self, request: str, lines: tuple[Line, ...]) -> None:
        """Ends a reservation that has no row of its own."""
        self._settlements.append(Settlement(request, lines, 0))
        self._woken.set()

    # ---------------------------------------------------------------- in the thread

    def start(self) -> None:
        """Starts the thread now, not with the first request: it takes over the rows of dead processes."""
        self._start()

    def close(self) -> None:
        """Writes everything to the ledger and the budgets. The rest waits in the journal."""
        self._stopping.set()
        self._woken.set()
        end = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        if not any(thread.is_alive() for thread in self._threads):  # else a store is late: the journal keeps the rows
            self._attempt(self._settle)
            self._attempt(self._write)
            self._attempt(self._give_back_standby)
        self._journal.close()
        for store in (self._ledger, self._budgets, self._settling):
            if store is not None:
                store.close()

    def _start(self) -> None:
        if not self._threads:  # late: a thread does not survive the fork of a worker
            for name, work in (("bookkeeper", self._work), ("leases", self._keep_leases)):
                self._threads.append(threading.Thread(target=work, name=name, daemon=True))
                self._threads[-1].start()

    def _work(self) -> None:
        looked = forgot = -FORGET_S
        wrote = stood = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                self._attempt(self._take_over)
            if self._keep_days and now - forgot > FORGET_S:
                forgot = now
                self._attempt(self._forget)
            self._attempt(self._settle)
            if self._standby is not None and now - stood > STANDBY_S:
                stood = now
                self._attempt(self._renew_standby)
            if now - wrote > WRITE_S:
                wrote = now
                self._attempt(self._write)
            self._rest()

    def _keep_leases(self) -> None:
        while not self._stopping.wait(self._lease_s / RENEWALS):
            self._attempt(self._renew)

    def _renew(self) -> None:
        if reserved := list(self._reserved):
            self._settling.renew(reserved, self._wall() + self._lease_s)
        if self._standby is not None:
            self._standby.prolong(self._wall())

    def _renew_standby(self) -> None:
        if self._standby is not None:
            self._standby.renew(self._wall())

    def _rest(self) -> None:
        """Sleeps until there is something to do, and then for a moment more: batches are cheaper."""
        idle_s = STANDBY_S if self._standby is not None and self._standby.wanted else self._lease_s / RENEWALS
        if self._woken.wait(WRITE_S if self.waiting else idle_s) and not self._stopping.is_set():
            self._woken.clear()
            time.sleep(SETTLE_S)

    def _settle(self) -> None:
        with self._writing:
            self._settle_batch()

    def _settle_batch(self) -> None:
        batch: list[Settlement] = []
        while self._settlements:
            batch.append(self._settlements.popleft())
        if not batch:
            return
        try:
            passed = self._settle_each(batch)
        except BaseException:
            self._settlements.extendleft(reversed(batch))
            raise
        self._reserved -= {one.id for one in batch}
        if self._standby is not None:
            self._standby.end(batch)
        if passed:
            self._attempt(lambda: self._tell(passed))

    def _settle_each(self, batch: Sequence[Settlement]) -> Sequence[Passed]:
        """Settles one by one: a settlement that no store can hold must not stop the others."""
        try:
            return self._settling.settle(batch, self._wall())
        except TOO_LARGE as error:
            log.warning(own_error("row_not_settled", batch[0].id, error))
            if len(batch) == 1:
                return []
        return [found for one in batch for found in self._settle_each([one])]

    def _add_each(self, ledger: Ledger, rows: Sequence[LedgerRow], lines: Sequence[bytes] = ()) -> None:
        try:
            ledger.add(rows, lines)
        except TOO_LARGE as error:
            log.warning(own_error("row_not_written", rows[0].id, error))
            for row in rows if len(rows) > 1 else ():
                self._add_each(ledger, [row])

    def _write(self) -> None:
        if self._ledger is not None:
            with self._writing:
                self._write_segments(self._ledger)

    def _write_segments(self, ledger: Ledger) -> None:
        segments = list(self._journal.turn())
        try:
            self._settle()  # before a row leaves the journal: after `kill -9` only the journal knows what it has cost
            if self.away and not segments:  # nothing to write, which says nothing about the store: ask it
                self._settling.expire(self._wall())
            for segment in segments:
                rows = segment.read()
                self._add_each(ledger, rows, segment.take_lines())
                self._written += len(rows)
                self._journal.is_done(segment)
        except OSError as error:
            self._be_away(error)
            self._journal.spare_memory()
            return
        if self.away:
            log.info(LogLine("ledger_written_again", {}))
        self.away = ""

    def _give_back_standby(self) -> None:
        if self._standby is not None:
            self._standby.close(self._wall())

    def _take_over(self) -> None:
        for segment in self._journal.take_over():
            try:
                rows = segment.read()
                charged = [Settlement(row.id, row.charged, row.debit) for row in rows if row.charged]
                if charged:
                    self._tell(self._settle_each(charged))
                if self._ledger is not None:
                    self._add_each(self._ledger, rows)
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
        except Exception as error:  # a bug of ours: the thread must go on, or no row would be written any more
            log.warning(own_error("bookkeeper_failed", "", error))

    def _be_away(self, error: OSError) -> None:
        why = str(error)
        if why != self.away:
            log.warning(LogLine("ledger_not_written", {"why": why, "waiting": self.waiting}))
        self.away = why
