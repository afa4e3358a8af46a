"""Places: waits at a Admission. The gate decides, the event loop's clock and futures do."""

import asyncio
from collections.abc import Callable

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.upstream.gate import Admission, Ticket


class AdmissionWaiter:
    """Everything that enters leaves exactly once, however its request ends."""

    def __init__(self, gate: Admission, name: str, clock: Callable[[], float]) -> None:
        self.gate = gate
        self._name = name
        self._clock = clock
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, ticket: Ticket, left_s: float) -> float:
        """Waits for a place and says how long that took; an UpstreamError when there is none in time."""
        now = self._clock()
        match self.gate.arrive(ticket, now):
            case "go":
                return 0.0
            case "full":
                raise UpstreamError(self._full(now))
            case "wait":
                pass
        future = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._arrange()
        try:
            async with asyncio.timeout(left_s):
                await future
        except TimeoutError:
            self.leave(ticket, sent=False)
            raise UpstreamError(self._late(self._clock() - now)) from None
        except BaseException:
            self.leave(ticket, sent=False)
            raise
        finally:
            self._waiting.pop(ticket, None)
        return self._clock() - now

    def stamp(self, ticket: Ticket) -> None:
        self.gate.stamp(ticket, self._clock())

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        self.gate.leave(ticket, sent=sent, tokens=tokens)
        if len(self.gate.line):
            self._arrange()

    def _arrange(self) -> None:
        """Let in whoever may go, and come back when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        going, wait = self.gate.admit(self._clock())
        for ticket in going:
            future = self._waiting.get(ticket)
            if future is None or future.done():  # it left in the same moment
                self.gate.leave(ticket, sent=False)
            else:
                future.set_result(None)
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._arrange)

    def _full(self, now: float) -> Failure:
        return Failure(
            kind="overloaded",
            status=503,
            code="queue_full",
            message=f"the queue of {self._name} is full ({self.gate.line.limit} requests wait)",
            retry_after_s=max(1.0, self.gate.wait_s(now)),
        )

    def _late(self, waited: float) -> Failure:
        """A limit by the minute is the client's to keep to; a full house is ours (F31)."""
        words = f"waited {waited:.1f} s for a place at {self._name}, in vain"
        wait = self.gate.wait_s(self._clock())
        if wait > 0:
            return Failure(
                kind="rate_limited", status=429, code="queue_timeout", message=words, retry_after_s=max(1.0, wait)
            )
        return Failure(kind="overloaded", status=503, code="queue_timeout", message=words, retry_after_s=1.0)
