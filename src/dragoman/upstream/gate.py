"""Admission: who may go to an upstream now, who waits, who is turned away. It decides; `places.py` waits.

Three limits stand at one gate: requests at once, requests a minute, tokens a minute. A failing request gives its
place back and never stops the others.
"""

from math import inf
from typing import Literal

from dragoman.upstream.limits import Window, WindowEntry
from dragoman.upstream.queue import FairQueue

Verdict = Literal["go", "wait", "full"]


class Ticket:
    """One request at one gate."""

    __slots__ = ("inside", "rpm", "tokens", "tpm", "who")

    def __init__(self, who: str, tokens: int) -> None:
        self.who = who
        self.tokens = tokens  # what it may cost at most, until it is known
        self.inside = False
        self.rpm: WindowEntry | None = None
        self.tpm: WindowEntry | None = None


class Admission:
    def __init__(
        self, *, at_once: int | None = None, rpm: int | None = None, tpm: int | None = None, queue: int = 100
    ) -> None:
        self.at_once = at_once
        self.inside = 0
        self.rpm = None if rpm is None else Window(rpm)
        self.tpm = None if tpm is None else Window(tpm)
        self.line: FairQueue[Ticket] = FairQueue(queue)

    def arrive(self, ticket: Ticket, now: float) -> Verdict:
        if not len(self.line) and self._wait_s(ticket, now) == 0:
            self._enter(ticket, now)
            return "go"
        return "wait" if self.line.push(ticket.who, ticket) else "full"

    def admit(self, now: float) -> tuple[list[Ticket], float | None]:
        """Those whose turn it is, and when to ask again (None: when somebody leaves)."""
        going: list[Ticket] = []
        while (ticket := self.line.peek()) is not None:
            wait = self._wait_s(ticket, now)
            if wait > 0:
                return going, None if wait == inf else wait
            self.line.pop()
            self._enter(ticket, now)
            going.append(ticket)
        return going, None

    def stamp(self, ticket: Ticket, now: float) -> None:
        """The request is on its way: the windows count from here."""
        if self.rpm is not None and ticket.rpm is not None:
            self.rpm.stamp(ticket.rpm, now)
        if self.tpm is not None and ticket.tpm is not None:
            self.tpm.stamp(ticket.tpm, now)

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        """Out of the line or out of the gate. What was never sent is given back; tokens are settled."""
        if not ticket.inside:
            self.line.remove(ticket.who, ticket)
            return
        ticket.inside = False
        self.inside -= 1
        if not sent:
            if self.rpm is not None and ticket.rpm is not None:
                self.rpm.give_back(ticket.rpm)
            if self.tpm is not None and ticket.tpm is not None:
                self.tpm.give_back(ticket.tpm)
        elif self.tpm is not None and ticket.tpm is not None and tokens is not None:
            self.tpm.settle(ticket.tpm, tokens)

    def wait_s(self, now: float) -> float:
        """How long a newcomer would wait, as far as the windows tell."""
        waits = [w.wait_s(now) for w in (self.rpm, self.tpm) if w is not None]
        return max(waits, default=0.0)

    def _wait_s(self, ticket: Ticket, now: float) -> float:
        if self.at_once is not None and self.inside >= self.at_once:
            return inf
        wait = 0.0 if self.rpm is None else self.rpm.wait_s(now)
        return wait if self.tpm is None else max(wait, self.tpm.wait_s(now, ticket.tokens))

    def _enter(self, ticket: Ticket, now: float) -> None:
        self.inside += 1
        ticket.inside = True
        if self.rpm is not None:
            ticket.rpm = self.rpm.take(now)
        if self.tpm is not None:
            ticket.tpm = self.tpm.take(now, ticket.tokens)
