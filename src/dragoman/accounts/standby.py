"""Standby: a small part of each budget in use, reserved in advance by each process.

A request that fits into this part need not ask the store. While the store is away, a process spends only its own part.
The part is reserved in the store, so that no other process can spend it too. The reservation ends with its lease.
"""

import secrets
import threading
from collections.abc import Sequence

from msgspec import Struct

from dragoman.accounts.budgets import BudgetStore, Line, Refused, Settlement, Spent

PART = 100  # each process reserves one hundredth of a budget
LEAST_LEFT = 5  # only while a fifth of the budget is left; then each request asks the store
MARGIN_S = 2.0  # clocks of gateways differ

AccountPeriod = tuple[str, int]  # account and period


class InHand(Struct):
    """The part of one budget that this process has reserved in advance."""

    id: str
    line: Line
    micros: int
    left: int
    until: float
    spent: int = 0  # of the whole budget, when it was looked at last
    users: int = 0


class Standby:
    """Requests use it on one thread, the bookkeeper renews it on two others."""

    def __init__(self, store: BudgetStore, owner: str, lease_s: float) -> None:
        self._store, self._owner, self._lease_s = store, owner, lease_s
        self._lock = threading.Lock()
        self._wanted: dict[AccountPeriod, tuple[Line, float]] = {}  # budgets in use, and when they were asked for last
        self._parts: dict[AccountPeriod, InHand] = {}
        self._retired: list[InHand] = []  # old parts that requests still use
        self._used: dict[str, list[tuple[InHand, int]]] = {}  # by request
        self._spent: dict[AccountPeriod, Spent] = {}  # used-up budgets

    @property
    def wanted(self) -> bool:
        return bool(self._wanted)

    @property
    def in_hand(self) -> int:
        """Budgets of which it has a part."""
        return len(self._parts)

    def want(self, lines: Sequence[Line], now: float) -> None:
        for line in lines:
            self._wanted[line.account, line.period] = (line, now)

    def note_refusal(self, spent: Spent) -> None:
        self._spent[spent.account, spent.period] = spent

    def use(self, request: str, lines: Sequence[Line], estimate: int, now: float) -> list[Spent] | None:
        """Takes an estimate from the parts that this process has reserved; None if it does not fit."""
        return self._take(request, lines, estimate, now, cap=False)

    def use_alone(
        self, request: str, lines: Sequence[Line], estimate: int, now: float, *, cap: bool
    ) -> list[Spent] | Refused | None:
        """The same while the store is away. With `cap`, a smaller rest is enough too."""
        for line in lines:
            known = self._spent.get((line.account, line.period))
            if known is not None and known.micros >= line.limit:
                return Refused(known)
        return self._take(request, lines, estimate, now, cap=cap)

    def _take(self, request: str, lines: Sequence[Line], estimate: int, now: float, *, cap: bool) -> list[Spent] | None:
        with self._lock:
            taken: list[tuple[InHand, int]] = []
            for line in lines:
                part = self._parts.get((line.account, line.period))
                micros = min(estimate, part.left) if cap and part is not None else estimate
                if part is None or micros < 1 or part.left < micros or now > part.until - MARGIN_S:
                    return None
                taken.append((part, micros))
            for part, micros in taken:
                part.left -= micros
                part.users += 1
            self._used[request] = taken
        return [
            Spent(account=line.account, period=line.period, limit=line.limit, micros=part.spent, reserved=part.micros)
            for line, (part, _) in zip(lines, taken, strict=True)
        ]

    def end(self, settled: Sequence[Settlement]) -> None:
        """Takes back what settled requests did not need, so that others can use it."""
        with self._lock:
            for one in settled:
                for part, micros in self._used.pop(one.id, ()):
                    part.left += micros - one.micros
                    part.users -= 1

    def renew(self, now: float) -> None:
        """Renews all parts. Called in the bookkeeper's thread. OSError: the store is away."""
        for at, (_, asked) in list(self._wanted.items()):
            if now - asked > self._lease_s:
                self._wanted.pop(at, None)
                self._spent.pop(at, None)
                self._retire(at)
        for at, part in list(self._parts.items()):
            if part.until < now:
                self._retire(at)  # the store was away for too long, and has given this part to others
        self._give_back(now)
        self.prolong(now)
        lines = [line for line, _ in list(self._wanted.values())]  # a request may add one meanwhile
        for line, spent in zip(lines, self._store.read(lines) if lines else (), strict=True):
            self._renew_part(line, spent, now)

    def prolong(self, now: float) -> None:
        """Renews the leases of all parts, also of those that requests still use."""
        parts = [*self._parts.values(), *self._retired]
        old = [part for part in parts if now <= part.until < now + self._lease_s * 2 / 3]
        if old:
            kept = self._store.renew([part.id for part in old], now + self._lease_s)
            for part in old:
                # a part that the store does not know any more is not used: others may have it
                part.until = now + self._lease_s if part.id in kept else now

    def close(self, now: float) -> None:
        for at in list(self._parts):
            self._retire(at)
        self._give_back(now)

    def _renew_part(self, line: Line, spent: Spent, now: float) -> None:
        at, part = (line.account, line.period), self._parts.get((line.account, line.period))
        scarce = spent.left * LEAST_LEFT < line.limit
        if spent.micros >= line.limit:
            self._spent[at] = spent
        if part is not None:
            part.spent = spent.micros
            if scarce or part.line != line or part.left * 2 < part.micros:
                self._retire(at)
                self._give_back(now)
        micros = line.limit // PART
        if scarce or micros < 1 or at in self._parts:
            return
        name = f"standby-{self._owner}-{secrets.token_hex(6)}"
        fresh = InHand(name, line, micros, micros, now + self._lease_s, spent.micros)
        found = self._store.reserve(fresh.id, self._owner, [line], micros, now=now, until=fresh.until, cap=False)
        if not isinstance(found, Refused):
            self._parts[at] = fresh

    def _retire(self, at: AccountPeriod) -> None:
        with self._lock:
            part = self._parts.pop(at, None)
            if part is not None:
                self._retired.append(part)

    def _give_back(self, now: float) -> None:
        """Gives back the parts that no request uses any more."""
        with self._lock:
            over = [part for part in self._retired if not part.users]
        if over:
            self._store.settle([Settlement(part.id, (), 0) for part in over], now)
            self._retired = [part for part in self._retired if part not in over]
