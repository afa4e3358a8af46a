"""Admission: which requests may go to an upstream now, which wait, and which are refused.

An upstream has three limits: requests at the same time, requests per minute, tokens per minute. `Window`, `FairQueue`
and `Admission` decide, with the time as an argument. `AdmissionWaiter` waits on the event loop for what they decide.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, Literal, Protocol, TypeVar

from dragoman.errors import UpstreamError
from dragoman.upstream.failures import queue_full, queue_timeout

SPAN_S = 60.0
MARGIN_S = 0.05  # covers the way to the provider
TICK_S = 0.01  # requests that are taken within it are counted together
POLL_S = 0.05  # how often to look: we are not told when requests of other processes or of an old configuration end
T = TypeVar("T")
Verdict = Literal["go", "wait", "full"]


# ---------------------------------------------------------------- a limit by the minute


class Tick:
    """What was taken within a hundredth of a second. It counts as if all of it had been taken last."""

    __slots__ = ("at", "counted", "until", "weight")  # which are written faster than the fields of a Struct

    def __init__(self, at: float, until: float, weight: int) -> None:
        self.at = at  # when the last of it was taken
        self.until = until  # from then on a new tick begins
        self.weight = weight
        self.counted = True


NO_TICK = Tick(-inf, -inf, 0)
NO_TICK.counted = False


class Window:
    """A sliding limit: no stretch of time of its length ever holds more than the limit.

    A request counts from the moment it is taken. `stamp` moves it to the moment it was really sent, so that a slow
    connect cannot squeeze two windows' worth into one. Every call costs the same, however many requests there are.
    """

    __slots__ = ("_last", "_span", "_ticks", "due", "left", "limit")

    def __init__(self, limit: int, span_s: float = SPAN_S, margin_s: float = MARGIN_S) -> None:
        self.limit = limit  # `change_limit` changes it: `left` depends on it
        self._span = span_s + margin_s
        self._ticks: deque[Tick] = deque()  # by time
        self._last = NO_TICK  # of those that count here alone
        self.due = inf  # nothing leaves before
        self.left = limit  # at the last look; below 0 if more was used than was taken

    def wait_s(self, now: float, weight: int = 1) -> float:
        """0 when `weight` fits now, else how long until it does."""
        self.forget(now)
        # A request heavier than the whole limit goes when the window is empty: it could never go otherwise.
        over = min(weight, self.limit) - self.left
        if over <= 0:
            return 0.0
        for tick in self._ticks:
            over -= tick.weight
            if over <= 0:
                return max(tick.at + self._span - now, 0.001)
        return inf  # not reached: every tick leaves the window in the end

    def fits(self, now: float, weight: int) -> bool:
        if now >= self.due:
            self.forget(now)
        return (weight if weight < self.limit else self.limit) <= self.left

    def take(self, now: float, weight: int = 1) -> Tick:
        """Returns where it is counted."""
        tick = self._last
        if now < tick.until:
            self.left -= weight
            tick.weight += weight
            if now > tick.at:
                tick.at = now
        else:
            tick = self._last = Tick(now, now + TICK_S, weight)
            self.add(tick)
        return tick

    def add(self, tick: Tick) -> None:
        """From now on a tick counts here, maybe also in other windows."""
        if not self._ticks:
            self.due = tick.at + self._span
        self._ticks.append(tick)
        self.left -= tick.weight

    def stamp(self, tick: Tick, weight: int, now: float) -> Tick:
        """Moves what was taken to the moment when it was sent. Returns where it is counted now."""
        if not tick.counted or now <= tick.at:
            return tick
        self.change(tick, -weight)
        return self.take(now, weight)

    def change(self, tick: Tick, weight: int) -> None:
        """More was used than was taken, or less."""
        if tick.counted:
            tick.weight += weight
            self.left -= weight

    def change_limit(self, limit: int) -> None:
        self.left += limit - self.limit
        self.limit = limit

    def used(self, now: float) -> int:
        self.forget(now)
        return self.limit - self.left

    def forget(self, now: float) -> None:
        """Gives back what is older than the window."""
        ticks = self._ticks
        while ticks and ticks[0].at + self._span <= now:
            tick = ticks.popleft()
            tick.counted = False
            self.left += tick.weight
        self.due = ticks[0].at + self._span if ticks else inf


def take_all(windows: Sequence[Window], last: Tick, now: float, weight: int) -> Tick:
    """Takes the same of each. They share their ticks; `last` is the newest one."""
    if now < last.until:
        last.weight += weight
        if now > last.at:
            last.at = now
        for window in windows:
            window.left -= weight
        return last
    tick = Tick(now, now + TICK_S, weight)
    for window in windows:
        window.add(tick)
    return tick


def change_all(windows: Sequence[Window], tick: Tick, weight: int) -> None:
    """More was used than was taken of each, or less. They have the same length: what one of them has forgotten counts
    in none."""
    if tick.counted:
        tick.weight += weight
        for window in windows:
            window.left -= weight


class AnyWindow(Protocol):
    limit: int

    @property
    def left(self) -> int: ...
    def wait_s(self, now: float, weight: int = 1) -> float: ...
    def fits(self, now: float, weight: int) -> bool: ...
    def take(self, now: float, weight: int = 1) -> Tick: ...
    def stamp(self, tick: Tick, weight: int, now: float) -> Tick: ...
    def change(self, tick: Tick, weight: int) -> None: ...
    def used(self, now: float) -> int: ...


class LimitKeeper(Protocol):
    """Where the limits of one upstream are kept. What is decided within `with` holds for all that share it."""

    @property
    def running(self) -> int: ...
    def add_running(self, change: int) -> None: ...
    def window(self, kind: str, limit: int) -> AnyWindow: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class LimitView(Protocol):
    """What /health and /metrics show of the limits of one name."""

    at_once: int | None
    running: int  # of this process
    queue: "FairQueue[Ticket]"

    @property
    def rpm(self) -> "ShownWindow | None": ...
    @property
    def tpm(self) -> "ShownWindow | None": ...
    @property
    def running_anywhere(self) -> int: ...


class ShownWindow(Protocol):
    @property
    def limit(self) -> int: ...
    @property
    def left(self) -> int:
        """What was free at the last look, which may be below 0. It costs no look of its own."""

    def used(self, now: float) -> int: ...
    def wait_s(self, now: float, weight: int = 1) -> float: ...


class LimitedQueue(Protocol):
    """The requests of this process that want a place under one limit. Each one that enters leaves exactly once."""

    @property
    def admission(self) -> LimitView: ...
    async def enter(self, ticket: "Ticket", left_s: float) -> float:
        """Waits until the request may go and returns how long that took; an UpstreamError when it may not in time."""

    def enter_now(self, ticket: "Ticket", now: float) -> bool:
        """Enters if that needs no waiting, for a place or for a server."""

    def stamp(self, ticket: "Ticket") -> None:
        """The request is on its way: the windows count from here."""

    def leave(self, ticket: "Ticket", *, sent: bool, tokens: int | None = None) -> None:
        """A request leaves the queue, or it has ended. An unsent one is given back; tokens are settled."""


class LimitStore(Protocol):
    """Where limits are kept: in this process, in memory that workers share, or in Valkey."""

    @property
    def kept(self) -> str:
        """Where the limits are kept, in one word."""

    @property
    def parts(self) -> int:
        """How many processes share them."""

    @property
    def away(self) -> str:
        """Why the others cannot be asked now; "" if they can."""

    @property
    def losses(self) -> int:
        """How often they could not be asked any more."""

    def open_queue(
        self, name: str, label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> LimitedQueue:
        """`name`: what all processes call this limit; `label`: what clients are told. Its counts outlive a reload."""


class OwnLimits:
    """Limits of this process alone. They outlive a reload: a new limit counts what was sent under the old one."""

    def __init__(self) -> None:
        self.running = 0
        self._windows: dict[str, Window] = {}

    def add_running(self, change: int) -> None:
        self.running += change

    def window(self, kind: str, limit: int) -> Window:
        found = self._windows.setdefault(kind, Window(limit))
        found.change_limit(limit)
        return found

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class ProcessLimits:
    """The limits that this process keeps alone."""

    kept, parts, away, losses = "process", 1, "", 0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.keepers: dict[str, OwnLimits] = {}

    def open_queue(
        self, name: str, label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> "AdmissionWaiter":
        keeper = self.keepers.setdefault(name, OwnLimits())
        return AdmissionWaiter(
            Admission(at_once=at_once, rpm=rpm, tpm=tpm, queue=queue, keeper=keeper), label, self._clock
        )


# ---------------------------------------------------------------- the queue


class FairQueue(Generic[T]):
    """A bounded queue: first come, first served for one client, and turn by turn between clients."""

    __slots__ = ("_by_client", "limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._by_client: OrderedDict[str, deque[T]] = OrderedDict()  # the first client is next
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def push(self, client: str, item: T) -> bool:
        """False when the queue is full."""
        if self.size >= self.limit:
            return False
        self._by_client.setdefault(client, deque()).append(item)
        self.size += 1
        return True

    def peek(self) -> T | None:
        for items in self._by_client.values():
            return items[0]
        return None

    def pop(self) -> T:
        """The next item. Its client then waits for its next turn."""
        client, items = self._by_client.popitem(last=False)
        item = items.popleft()
        self.size -= 1
        if items:
            self._by_client[client] = items
        return item

    def remove(self, client: str, item: T) -> bool:
        items = self._by_client.get(client)
        if items is None or item not in items:
            return False
        items.remove(item)
        self.size -= 1
        if not items:
            del self._by_client[client]
        return True


# ---------------------------------------------------------------- the decision


class Ticket:
    """One request at one upstream."""

    __slots__ = ("admitted", "client", "rpm", "tokens", "tpm")

    def __init__(self, client: str, tokens: int) -> None:
        self.client = client
        self.tokens = tokens  # the most it may cost, until the real number is known
        self.admitted = False
        self.rpm: Tick | None = None
        self.tpm: Tick | None = None


class Admission:
    """The decision. A failing request gives its place back and never stops the others."""

    def __init__(
        self,
        *,
        at_once: int | None = None,
        rpm: int | None = None,
        tpm: int | None = None,
        queue: int = 100,
        keeper: LimitKeeper | None = None,
    ) -> None:
        self.at_once = at_once
        self.running = 0  # running requests that entered here
        self.keeper = keeper or OwnLimits()
        # Without a limit there is nothing to decide, and alone no other process decides at the same time.
        self._needs_lock = type(self.keeper) is not OwnLimits and (at_once, rpm, tpm) != (None, None, None)
        self.unlimited = type(self.keeper) is OwnLimits and (at_once, rpm, tpm) == (None, None, None)
        self.rpm = None if rpm is None else self.keeper.window("rpm", rpm)
        self.tpm = None if tpm is None else self.keeper.window("tpm", tpm)
        self.queue: FairQueue[Ticket] = FairQueue(queue)

    @property
    def running_anywhere(self) -> int:
        """Running requests, including those of other processes and of the previous configuration."""
        return self.keeper.running

    def enter_now(self, ticket: Ticket, now: float) -> bool:
        """Enters if no request waits and every limit has room."""
        if self.unlimited:  # fast path: no limits
            self.running += 1
            self.keeper.add_running(1)
            ticket.admitted = True
            return True
        if self.queue.size:
            return False
        if not self._needs_lock:
            return self._enter(ticket, now)
        with self.keeper:
            return self._enter(ticket, now)

    def arrive(self, ticket: Ticket, now: float) -> Verdict:
        if self.enter_now(ticket, now):
            return "go"
        return "wait" if self.queue.push(ticket.client, ticket) else "full"

    def admit(self, now: float) -> tuple[list[Ticket], float | None]:
        """The tickets whose turn it is, and when to ask again (None: when a request leaves)."""
        going: list[Ticket] = []
        while (ticket := self.queue.peek()) is not None:
            wait = self._try_enter(ticket, now)
            if wait > 0:
                return going, None if wait == inf else wait
            self.queue.pop()
            going.append(ticket)
        return going, None

    def stamp(self, ticket: Ticket, now: float) -> None:
        """The request is on its way: the windows count from here."""
        if self.rpm is not None and ticket.rpm is not None:
            ticket.rpm = self.rpm.stamp(ticket.rpm, 1, now)
        if self.tpm is not None and ticket.tpm is not None:
            ticket.tpm = self.tpm.stamp(ticket.tpm, ticket.tokens, now)

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        """A request leaves the queue, or it has ended. An unsent one is given back; tokens are settled."""
        if not ticket.admitted:
            self.queue.remove(ticket.client, ticket)
            return
        ticket.admitted = False
        self.running -= 1
        self.keeper.add_running(-1)
        if not sent:
            if self.rpm is not None and ticket.rpm is not None:
                self.rpm.change(ticket.rpm, -1)
            if self.tpm is not None and ticket.tpm is not None:
                self.tpm.change(ticket.tpm, -ticket.tokens)
        elif self.tpm is not None and ticket.tpm is not None and tokens is not None:
            self.tpm.change(ticket.tpm, tokens - ticket.tokens)

    def wait_s(self, now: float) -> float:
        """How long a new request would wait, as far as the windows tell."""
        waits = [window.wait_s(now) for window in (self.rpm, self.tpm) if window is not None]
        return max(waits, default=0.0)

    def _try_enter(self, ticket: Ticket, now: float) -> float:
        """0 if the request has entered, else how long to wait before the next try."""
        if not self._needs_lock:
            return 0.0 if self._enter(ticket, now) else self._wait_s(ticket, now)
        with self.keeper:
            return 0.0 if self._enter(ticket, now) else self._wait_s(ticket, now)

    def _wait_s(self, ticket: Ticket, now: float) -> float:
        if self.at_once is not None and self.keeper.running >= self.at_once:
            return inf if self.keeper.running == self.running else POLL_S
        wait = 0.0 if self.rpm is None else self.rpm.wait_s(now)
        return wait if self.tpm is None else max(wait, self.tpm.wait_s(now, ticket.tokens))

    def _enter(self, ticket: Ticket, now: float) -> bool:
        """Takes a place at every limit, or at none."""
        keeper, rpm, tpm = self.keeper, self.rpm, self.tpm
        if self.at_once is not None and keeper.running >= self.at_once:
            return False
        if (rpm is not None and not rpm.fits(now, 1)) or (tpm is not None and not tpm.fits(now, ticket.tokens)):
            return False
        if rpm is not None:
            ticket.rpm = rpm.take(now)
        if tpm is not None:
            ticket.tpm = tpm.take(now, ticket.tokens)
        self.running += 1
        keeper.add_running(1)
        ticket.admitted = True
        return True


class AdmissionRow:
    """Limits of this process that a request needs all of, and does not wait for: those of a key and of its team.

    Does for all in one step what each Admission does. What it takes is counted once for all windows of a kind."""

    __slots__ = ("_admissions", "_last_rpm", "_last_tpm", "_rpm", "_tpm")

    def __init__(self, admissions: Sequence[tuple[Admission, OwnLimits]]) -> None:
        self._admissions = admissions
        self._rpm = [one.rpm for one, _ in admissions if isinstance(one.rpm, Window)]
        self._tpm = [one.tpm for one, _ in admissions if isinstance(one.tpm, Window)]
        self._last_rpm = self._last_tpm = NO_TICK

    def enter_now(self, ticket: Ticket, now: float) -> bool:
        """Takes a place at every limit, or at none."""
        tokens = ticket.tokens
        for one, keeper in self._admissions:
            if one.at_once is not None and keeper.running >= one.at_once:
                return False
        for window in self._rpm:  # as Window.fits
            if now >= window.due:
                window.forget(now)
            if window.left < 1 and window.left < window.limit:
                return False
        for window in self._tpm:
            if now >= window.due:
                window.forget(now)
            if window.left < tokens and window.left < window.limit:
                return False
        for one, keeper in self._admissions:
            one.running += 1
            keeper.running += 1
        ticket.rpm = self._last_rpm = take_all(self._rpm, self._last_rpm, now, 1)
        ticket.tpm = self._last_tpm = take_all(self._tpm, self._last_tpm, now, tokens)
        ticket.admitted = True
        return True

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        if not ticket.admitted:
            return
        ticket.admitted = False
        for one, keeper in self._admissions:
            one.running -= 1
            keeper.running -= 1
        if not sent:
            change_all(self._rpm, ticket.rpm or NO_TICK, -1)
            tokens = 0
        if tokens is not None:
            change_all(self._tpm, ticket.tpm or NO_TICK, tokens - ticket.tokens)


def put_in_row(queues: Sequence[LimitedQueue]) -> AdmissionRow | None:
    """None if other processes share one of these limits: then each is entered by itself."""
    admissions: list[tuple[Admission, OwnLimits]] = []
    for queue in queues:
        found = queue.admission
        if not isinstance(found, Admission) or not isinstance(found.keeper, OwnLimits):
            return None
        admissions.append((found, found.keeper))
    return AdmissionRow(admissions)


# ---------------------------------------------------------------- the wait


class AdmissionWaiter:
    """Waits for what Admission decides. Each ticket that enters leaves exactly once, however its request ends."""

    def __init__(self, admission: Admission, name: str, clock: Callable[[], float]) -> None:
        self.admission = admission
        self._name = name
        self._clock = clock
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, ticket: Ticket, left_s: float) -> float:
        """Waits until the request may go and returns how long that took; an UpstreamError when it may not in time."""
        now = self._clock()
        match self.admission.arrive(ticket, now):
            case "go":
                return 0.0
            case "full":
                raise UpstreamError(queue_full(self._name, self.admission.queue.limit, self.admission.wait_s(now)))
            case "wait":
                pass
        future = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._wake()
        try:
            async with asyncio.timeout(left_s):
                await future
        except TimeoutError:
            self.leave(ticket, sent=False)
            late = self._clock()
            at_once, wait_s = self.admission.at_once, self.admission.wait_s(late)
            raise UpstreamError(queue_timeout(self._name, late - now, wait_s, at_once)) from None
        except BaseException:
            self.leave(ticket, sent=False)
            raise
        finally:
            self._waiting.pop(ticket, None)
        return self._clock() - now

    def enter_now(self, ticket: Ticket, now: float) -> bool:
        return self.admission.enter_now(ticket, now)

    def stamp(self, ticket: Ticket) -> None:
        if not self.admission.unlimited:
            self.admission.stamp(ticket, self._clock())

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        self.admission.leave(ticket, sent=sent, tokens=tokens)
        if self.admission.queue.size:
            self._wake()

    def _wake(self) -> None:
        """Wakes the requests that may go, and sets a timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        going, wait = self.admission.admit(self._clock())
        for ticket in going:
            future = self._waiting.get(ticket)
            if future is None or future.done():  # its client left at this moment
                self.admission.leave(ticket, sent=False)
            else:
                future.set_result(None)
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._wake)
