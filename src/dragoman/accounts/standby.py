"""Standby: a small part of each budget in use, reserved in advance for the time when the store is away.

A gateway that cannot ask the store goes on with its own part, and with nothing else: what it lets pass is reserved, so
that no other gateway can spend it too. It ends with its lease.
"""

import secrets
import threading
from collections.abc import Sequence

from msgspec import Struct

from dragoman.accounts.budgets import BudgetStore, Line, Refused, Settlement, Spent

PART = 100  # a hundredth of a budget for each gateway
LEAST_LEFT = 5  # and only while a fifth of it is left: the last of a budget is for those that ask
MARGIN_S = 2.0  # clocks of gateways differ

At = tuple[str, int]  # account and period


class InHand(Struct):
    """What is in hand of one budget."""

    id: str
    line: Line
    micros: int
    left: int
    until: float
    users: int = 0


class Standby:
    """Requests use it on one thread, the bookkeeper renews it on another."""

    def __init__(self, store: BudgetStore, owner: str, lease_s: float) -> None:
        self._store, self._owner, self._lease_s = store, owner, lease_s
        self._lock = threading.Lock()
        self._wanted: dict[At, tuple[Line, float]] = {}  # budgets in use, and when they were asked for last
        self._parts: dict[At, InHand] = {}
        self._used: dict[str, list[tuple[InHand, int]]] = {}  # by request
        self._spent: dict[At, Spent] = {}  # budgets of which nothing was left

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

    def use(
        self, request: str, lines: Sequence[Line], estimate: int, now: float, *, cap: bool
    ) -> list[Spent] | Refused | None:
        """Takes an estimate of what is in hand; None if there is not enough. What was spent before is spent."""
        for line in lines:
            known = self._spent.get((line.account, line.period))
            if known is not None and known.micros >= line.limit:
                return Refused(known)
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
            Spent(account=line.account, period=line.period, limit=line.limit, reserved=part.micros - part.left)
            for line, (part, _) in zip(lines, taken, strict=True)
        ]

    def end(self, request: str, cost: int) -> None:
        """A request that used it has ended. What it did not cost can be used again."""
        with self._lock:
            for part, micros in self._used.pop(request, ()):
                part.left += micros - cost
                part.users -= 1

    def renew(self, now: float) -> None:
        """In the bookkeeper's thread, when all settlements are written. An OSError: the store is away."""
        for at, (_, asked) in list(self._wanted.items()):
            if now - asked > self._lease_s:
                self._wanted.pop(at, None)
                self._spent.pop(at, None)
                self._drop(at, now)
        lines = [line for line, _ in self._wanted.values()]
        old = [part for part in self._parts.values() if part.until - now < self._lease_s * 2 / 3]
        if old:
            self._store.renew([part.id for part in old], now + self._lease_s)
            for part in old:
                part.until = now + self._lease_s
        for line, spent in zip(lines, self._store.read(lines) if lines else (), strict=True):
            self._renew_part(line, spent, now)

    def close(self, now: float) -> None:
        for at in list(self._parts):
            self._drop(at, now)

    def _renew_part(self, line: Line, spent: Spent, now: float) -> None:
        at, part = (line.account, line.period), self._parts.get((line.account, line.period))
        scarce = spent.left * LEAST_LEFT < line.limit
        if spent.micros >= line.limit:
            self._spent[at] = spent
        if part is not None and (scarce or part.line != line or part.left != part.micros):
            self._drop(at, now)
        micros = line.limit // PART
        if scarce or micros < 1 or at in self._parts:
            return
        fresh = InHand(f"standby-{self._owner}-{secrets.token_hex(6)}", line, micros, micros, now + self._lease_s)
        found = self._store.reserve(fresh.id, self._owner, [line], micros, now=now, until=fresh.until, cap=False)
        if not isinstance(found, Refused):
            self._parts[at] = fresh

    def _drop(self, at: At, now: float) -> None:
        """Gives a part back, unless a request still uses it."""
        with self._lock:
            part = self._parts.get(at)
            if part is None or part.users:
                return
            del self._parts[at]
        self._store.settle([Settlement(part.id, (), 0)], now)
