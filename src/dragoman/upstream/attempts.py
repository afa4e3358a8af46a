"""One request while it is sent: what is to be sent (Job), each try (Attempt), where it may still go (Attempts)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from dragoman.exchange import UpstreamCall
from dragoman.failure import Failure
from dragoman.jsontypes import has_more
from dragoman.log_line import LogLine
from dragoman.upstream.admission import Ticket
from dragoman.upstream.failures import hide_refused_key
from dragoman.upstream.keys import Key
from dragoman.upstream.retry import MOST_ATTEMPTS, RetryBudget
from dragoman.upstream.spec import Target
from dragoman.upstream.transport import SentRequest
from dragoman.upstream.upstream_state import UpstreamState

if TYPE_CHECKING:
    from dragoman.upstream.answer import UpstreamAnswer

log = logging.getLogger(__name__)
MOST_KEPT = 256 * 1024  # bytes of a stream that are kept for X-ray

Pair = tuple[UpstreamState, Target]
NO_KEYS: frozenset[int] = frozenset()
BIG_BYTES = 512 * 1024
MANY_BRACES = 1500  # about as many objects, which take some 5 ms
MANY_COMMAS = 10_000  # about as many values that are no objects
MANY_REFERENCES = 8  # of schemas: a few that lead to each other become thousands of nodes where they are written out
T = TypeVar("T")


def is_large(raw: bytes) -> bool:
    """Whether a body is so large, or in so many pieces, that it must not be worked on between two others. Signs are
    counted instead of values: some stand in texts, and that does no harm."""
    size = len(raw)
    if size < MANY_BRACES and b"$" not in raw:
        return False
    if size > BIG_BYTES or (size > 3 * MANY_BRACES and has_more(raw, b"{", MANY_BRACES)):  # `{},` has three bytes
        return True
    if size > 2 * MANY_COMMAS and has_more(raw, b",", MANY_COMMAS):
        return True
    return has_more(raw, b"$", MANY_REFERENCES) and raw.count(b'"$ref"') > MANY_REFERENCES


async def off_loop(large: bool, work: Callable[..., T], *args: Any, **named: Any) -> T:
    """Does work in a thread if it is about something large: other requests must not wait for it."""
    return await asyncio.to_thread(work, *args, **named) if large else work(*args, **named)


class WireTimes(Struct, kw_only=True):
    """The times of one try, by the sender's clock, and its pieces with their times. Only for X-ray."""

    began: float
    dialect: str
    sent: float | None = None  # when the connection was open
    heard: float | None = None  # when the head of the answer came
    ended: float | None = None
    pieces: list[tuple[float, bytes]] = []  # of a stream
    size: int = 0  # of all pieces, also of those that were too many to be kept

    def keep_piece(self, now: float, raw: bytes) -> None:
        """Once the answer has become too long, all pieces are forgotten."""
        self.size += len(raw)
        if self.size > MOST_KEPT:
            self.pieces.clear()
        else:
            self.pieces.append((now, raw))


class Attempt(Struct, kw_only=True):
    """One try, for logs and X-ray."""

    upstream: str
    model: str
    key: str = ""
    waited_s: float = 0.0
    seconds: float | None = None  # until it failed; None if it was answered
    status: int | None = None
    failure: str | None = None
    abandoned: bool = False  # its client left while the upstream worked on it
    body: bytes = b""  # what was sent
    reply: bytes = b""  # what came back, as far as it was kept
    times: WireTimes | None = None


class Begun(Struct):
    """A first attempt that was sent before there was a Job: see plain_call.py."""

    state: UpstreamState
    target: Target
    key: Key
    ticket: Ticket
    asked: SentRequest
    began: float
    stream: "UpstreamAnswer | None" = None  # if some of it has arrived

    def give_back(self) -> None:
        """Leaves it without waiting for its answer."""
        self.asked.connection.close()
        self.state.breaker(self.key, self.target.model).abandoned()
        self.state.admission_waiter.leave(self.ticket, sent=True)
        self.state.budget.in_flight -= 1


class Job(Struct, kw_only=True):
    """A request to be sent: what `Sender.ask` needs to know."""

    targets: Sequence[Pair]
    render: Callable[[UpstreamState, Target], UpstreamCall]
    stream: bool
    deadline: float
    client: str = ""  # its key or its address
    raw: bytes = b""  # the client's body: its hash tells one request from another
    tokens: int = 0
    attempts: list[Attempt] = []
    trace: Callable[[Attempt], dict[str, str]] | None = None  # headers that tell an upstream of our trace
    keep_wire: bool = False  # for X-ray
    large: bool = False  # writing it takes long: it is done off the loop
    call: UpstreamCall | None = None  # for the first target, if it was written before there was a Job
    begun: Begun | None = None  # its first attempt, until that is taken over
    most: int = MOST_ATTEMPTS  # 1: the upstream is a gateway, which retries by itself
    report: Callable[[Failure, str], Failure] = hide_refused_key  # the last failure and its upstream, for the asker

    @property
    def request_hash(self) -> int | None:
        return hash(self.raw) if self.raw else None


class Attempts:
    """Where one request has been and where it may still go. It decides nothing; `Sender.ask` asks it."""

    __slots__ = ("_budget", "_failed", "_targets", "_tried", "first", "left", "made")

    def __init__(self, targets: Sequence[Pair]) -> None:
        self._targets = targets
        self.left = list(targets)
        self.made = 0  # requests sent, without those that a refusal corrected
        self.first: tuple[Target, Failure, str] | None = None  # the first failure: where, which, the upstream's name
        self._tried: dict[tuple[str, str], set[int]] = {}  # keys by upstream and model
        self._failed: set[tuple[str, str, int]] = set()  # upstream, model and key that have failed this request
        self._budget: RetryBudget | None = None

    def fails_first(self, state: UpstreamState, target: Target, key: Key) -> bool:
        """Whether this request fails there for the first time: for the breaker it counts once."""
        at = (state.spec.name, target.model, key.number)
        first = at not in self._failed
        self._failed.add(at)
        return first

    def count_resend(self) -> bool:
        """Whether a request may be sent again because its idle connection was closed. It counts as an attempt (P6)."""
        if self.made > 1:
            return False
        self.made += 1
        return True

    def tried(self, state: UpstreamState, target: Target) -> AbstractSet[int]:
        return self._tried.get((state.spec.name, target.model), NO_KEYS) if self._tried else NO_KEYS

    def to_report(self, target: Target, failure: Failure, name: str) -> tuple[Failure, str]:
        """The failure that the client hears in the end, and the name of its upstream.

        When a fallback only says that the request is too long for it, the client hears of the first failure instead:
        that one tells how to go on (FIELD-CASES 149)."""
        if self.first is None:
            self.first = (target, failure, name)
        first_target, first_failure, first_name = self.first
        if failure.kind == "too_long" and first_target is not target:
            return first_failure, first_name
        return failure, name

    def others(self, target: Target) -> list[Pair]:
        return [pair for pair in self.left if pair[1] is not target]

    def has_other_key(self, state: UpstreamState, target: Target, key: Key) -> bool:
        usable = [known for known in state.keys.keys if not known.disabled]
        return len(usable) > len(self.tried(state, target) | {key.number})

    def go_elsewhere(self, state: UpstreamState, target: Target, key: Key, now: float) -> None:
        """To another key of this upstream if there is one, else to the other targets."""
        here = self._tried.setdefault((state.spec.name, target.model), set())
        here.add(key.number)
        others = self.others(target)
        if others and state.pick(target.model, now, here) is None:
            self.left = others

    def start_again(self, budget: RetryBudget) -> None:
        """All targets were asked: the first that may be asked again is asked once more."""
        self.left = list(self._targets)
        self._tried = {}
        self.count_retry(budget)

    def add_limited(self, now: float) -> None:
        """Every target that is left sits out a limit. One that was asked and has a limit, too, may be free sooner."""
        limited = [
            (state, target)
            for state, target in self._targets
            if (state, target) in self.left or state.keys.wait_s(now, target.model) > 0
        ]
        if len(limited) > len(self.left):
            self.left = limited
            self._tried = {}

    def count_retry(self, budget: RetryBudget) -> None:
        """The same request goes to the same upstream again. It counts until it is over, the wait before it included
        (P6)."""
        self._budget = budget
        budget.retrying += 1

    def end_retry(self) -> None:
        if self._budget is not None:
            self._budget.retrying -= 1
            self._budget = None


def log_attempt(attempt: Attempt, why: str = "") -> None:
    if not log.isEnabledFor(logging.DEBUG):
        return
    fields = {"upstream": attempt.upstream, "model": attempt.model, "key": attempt.key, "status": attempt.status}
    times = {"waited_ms": round(attempt.waited_s * 1000), "failure": attempt.failure, "why": why}
    log.debug(LogLine("attempt", fields | times))
