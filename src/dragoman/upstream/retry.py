"""What to do after a failure: the same again, the next upstream, or tell the client. Time and dice are arguments.

attempts <= 3 in all, over retries and fallbacks, and none once the client has seen a byte
full jitter, base 0.5 s, cap 8 s; a provider's hint is a minimum; a hint over 60 s or over what is left of the
deadline is no reason to wait
the same again at the same upstream never exceeds a fifth of what is in flight there (at least 3); elsewhere it is that
upstream's first
"""

from msgspec import Struct

from dragoman.failure import Failure, FailureKind

MOST_ATTEMPTS = 3
BASE_S = 0.5
CAP_S = 8.0
LONGEST_HINT_S = 60.0

# The caller's own fault: the same again fails again, here and elsewhere.
FINAL: frozenset[FailureKind] = frozenset(
    {"invalid_request", "too_long", "not_found", "conflict", "too_large", "refused"}
)
# The key's fault: another key or another upstream may do.
KEY: frozenset[FailureKind] = frozenset({"unauthenticated", "forbidden", "no_credit"})
# The model's own slip, told as a 400: the call it wrote is none. The next try may do better (FIELD-CASES 135, Groq).
SLIPS = frozenset({"tool_use_failed"})
# The same again at the same place is useless: it is the place that is wrong (F20, F30).
PLACE = frozenset({"upstream_tls", "upstream_redirect", "upstream_url"})
# Once more may help, a third time does not (F21).
ODD = frozenset({"upstream_malformed", "upstream_response_too_large"})
# What counts against the upstream itself.
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
    """`other`: an upstream not yet tried; `other_key`: an untried key here; `left_s`: of the deadline."""
    if failure.code in SLIPS and attempts == 1 and left_s > 0 and budget:
        return Again(0.0)
    if failure.kind in FINAL or attempts >= most or left_s <= 0:
        return GiveUp()
    if failure.kind in KEY:
        return Next() if other or other_key else GiveUp()
    if other or (failure.kind == "rate_limited" and other_key):
        return Next()
    if failure.kind == "timed_out" or not budget:  # it had its time: the same again would take as long
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
    """Full jitter: anything between nothing and the exponential bound."""
    return float(min(CAP_S, BASE_S * 2 ** (attempt - 1))) * dice


class RetryBudget:
    """At most a fifth of what is in flight may be retries, and always three."""

    __slots__ = ("in_flight", "least", "retrying", "share")

    def __init__(self, share: float = 0.2, least: int = 3) -> None:
        self.share = share
        self.least = least
        self.in_flight = 0
        self.retrying = 0

    def allows(self) -> bool:
        return self.retrying < max(self.least, self.share * self.in_flight)
