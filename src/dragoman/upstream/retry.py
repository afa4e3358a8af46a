"""What to do after a failure: send it again, try the next upstream, or tell the client. Time and dice are arguments.

- There are at most 3 attempts in all, retries and fallbacks together, and none once the client has got a byte.
- The wait is random up to a bound that doubles (0.5 s to 8 s). A provider's hint is the least wait. We do not wait if
  the hint is over 60 s or longer than the deadline leaves.
- At one upstream, at most a fifth of the requests in flight may be retries (and 3 always may). A request that goes to
  another upstream is no retry there.
"""

from msgspec import Struct

from dragoman.failure import Failure, FailureKind

MOST_ATTEMPTS = 3
BASE_S = 0.5
CAP_S = 8.0
LONGEST_HINT_S = 60.0

# The caller's fault: the same request fails again, here and elsewhere.
FINAL: frozenset[FailureKind] = frozenset(
    {"invalid_request", "too_long", "not_found", "conflict", "too_large", "refused"}
)
# The key's fault: another key or another upstream may work.
KEY: frozenset[FailureKind] = frozenset({"unauthenticated", "forbidden", "no_credit"})
# The model wrote a broken call, and the server reports it as a 400. The next try may succeed (FIELD-CASES 135, Groq).
SLIPS = frozenset({"tool_use_failed"})
# The address is wrong: sending to it again is useless (F20, F30).
PLACE = frozenset({"upstream_tls", "upstream_redirect", "upstream_url", "upstream_http2_only"})
# The upstream has worked on the request for a while: it is not sent there again, for it may cost as much again.
WORKED = frozenset({"upstream_gave_up", "upstream_unfinished"})
# A second try may help, a third does not (F21).
ODD = frozenset({"upstream_malformed", "upstream_response_too_large"})
# The upstream's own fault.
BROKEN: frozenset[FailureKind] = frozenset({"server_error", "overloaded", "timed_out", "cut_off", "unknown"})


class Next(Struct, frozen=True):
    """Another upstream or another key, at once."""


class Again(Struct, frozen=True):
    """The same upstream, after a wait."""

    wait_s: float


class GiveUp(Struct, frozen=True):
    """Tell the client."""


Decision = Next | Again | GiveUp


def decide(
    failure: Failure,
    *,
    attempts: int,
    other: bool,
    other_key: bool,
    left_s: float,
    dice: float,
    budget: bool,
    most: int = MOST_ATTEMPTS,
) -> Decision:
    """`other`: another upstream is left to try; `other_key`: a key is left here; `left_s`: until the deadline;
    `budget`: another retry may go to this upstream."""
    if failure.code in SLIPS and attempts == 1 and left_s > 0 and budget:
        return Again(0.0)
    if failure.kind in FINAL or attempts >= most or left_s <= 0:
        return GiveUp()
    if failure.kind in KEY:
        return Next() if other or other_key else GiveUp()
    if other or (failure.kind == "rate_limited" and other_key):
        return Next()
    if failure.kind == "timed_out" or failure.code in WORKED or not budget:  # another try would take as long again
        return GiveUp()
    if failure.code in PLACE or (failure.code in ODD and attempts > 1):
        return GiveUp()
    wait = backoff_s(attempts, dice)
    if failure.retry_after_s is not None:
        wait = failure.retry_after_s + 0.1 * failure.retry_after_s * dice if failure.retry_after_s > 0 else wait
        if failure.retry_after_s > LONGEST_HINT_S:
            return GiveUp()
    return Again(wait) if wait < left_s else GiveUp()


def backoff_s(attempt: int, dice: float) -> float:
    """Full jitter: anything from 0 to the exponential bound."""
    return float(min(CAP_S, BASE_S * 2 ** (attempt - 1))) * dice


class RetryBudget:
    """Bounds retries to a fifth of the requests in flight; three are always allowed."""

    __slots__ = ("in_flight", "least", "retrying", "share")

    def __init__(self, share: float = 0.2, least: int = 3) -> None:
        self.share = share
        self.least = least
        self.in_flight = 0
        self.retrying = 0

    def allows(self) -> bool:
        return self.retrying < max(self.least, self.share * self.in_flight)
