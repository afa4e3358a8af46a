"""The breaker, event by event: it opens for what the upstream is to blame for, and for nothing else."""

import random

import pytest
from msgspec.structs import replace

from dragoman.failure import Failure, FailureKind
from dragoman.gateway import stream_writer
from dragoman.upstream import breaker, retry, upstream_state
from dragoman.upstream.breaker import Breaker, How, how_failed
from dragoman.upstream.http import dial
from dragoman.upstream.retry import RetryBudget
from dragoman.upstream.upstream_state import UpstreamState
from tests.gateway.house import upstream

Step = tuple[str, str, int]  # away, silent, wrong or good; who asked; which request


def play(steps: list[Step], known: Breaker | None = None) -> Breaker:
    one = known or Breaker()
    for moment, (what, who, about) in enumerate(steps):
        if what == "good":
            one.succeeded(moment * 0.1, who)
        else:
            one.failed(moment * 0.1, 0.5, what, who, about)  # type: ignore[arg-type]
    return one


def many(what: str, count: int, who: str = "a", first: int = 0) -> list[Step]:
    return [(what, who, first + i) for i in range(count)]


def mixed(good: str, bad: list[Step]) -> list[Step]:
    return [step for failing in bad for step in (failing, ("good", good, 0))]


ROWS: list[tuple[str, list[Step], str]] = [
    ("five times away, one request tried again and again", [("away", "a", 1)] * 5, "open"),
    ("four times away", [("away", "a", 1)] * 4, "closed"),
    ("a success between", [*many("away", 4), ("good", "a", 0), *many("away", 4)], "closed"),
    ("five requests of one asker without an answer", many("silent", 5), "open"),
    ("one request without an answer, five times", [("silent", "a", 1)] * 5, "closed"),
    ("one request that breaks the server, a hundred times", [("wrong", "a", 1)] * 100, "closed"),
    ("five different requests answered 500", many("wrong", 5), "closed"),
    ("twenty different requests answered 500, nobody else there", many("wrong", 20), "open"),
    ("twenty of one asker's while another is served", [("good", "b", 0), *many("wrong", 20)], "closed"),
    ("the same, and the asker was served itself", [("good", "b", 0), ("good", "a", 0), *many("wrong", 20)], "closed"),
    ("a hundred of one asker's between another's good ones", mixed("b", many("wrong", 100)), "closed"),
    ("five of one asker's silent while another is served", [("good", "b", 0), *many("silent", 5)], "closed"),
    ("five of two askers' silent", [*many("silent", 3), *many("silent", 2, "b", 10)], "open"),
    ("twenty of two askers' wrong", [*many("wrong", 10), *many("wrong", 10, "b", 10)], "open"),
    ("away is nobody's fault but its own", [("good", "b", 0), *many("away", 5)], "open"),
    ("half of twenty", mixed("b", [*many("wrong", 5), *many("wrong", 6, "b", 10)]), "open"),
    (
        "less than half of many",
        [s for n in range(20) for s in (("wrong", "ab"[n % 2], n), ("good", "a", 0), ("good", "b", 0))],
        "closed",
    ),
]


@pytest.mark.parametrize(("steps", "state"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_breaker_counts_what_the_upstream_is_to_blame_for(steps: list[Step], state: str) -> None:
    assert play(steps).state == state


@pytest.mark.parametrize(
    ("kind", "status", "code", "how"),
    [
        ("overloaded", 503, "upstream_unreachable", "away"),
        ("timed_out", 504, "upstream_connect", "away"),
        ("server_error", 502, "upstream_tls", "away"),
        ("server_error", 502, "upstream_redirect", "away"),
        ("overloaded", 503, None, "away"),
        ("overloaded", 529, None, "away"),
        ("overloaded", None, None, "away"),  # in a stream
        ("server_error", 502, None, "away"),  # a proxy in front of it
        ("timed_out", 504, None, "away"),
        ("server_error", 502, "upstream_disconnected", "silent"),
        ("timed_out", 504, "upstream_timeout", "silent"),
        ("cut_off", 502, "upstream_truncated", "silent"),
        ("server_error", 500, None, "wrong"),
        ("server_error", 501, "internal_error", "wrong"),
        ("server_error", None, None, "wrong"),
        ("server_error", 502, "upstream_malformed", "wrong"),
        ("server_error", 502, "upstream_response_too_large", "wrong"),
        ("unknown", None, None, "wrong"),
    ],
)
def test_a_failure_says_how_the_upstream_failed(
    kind: FailureKind, status: int | None, code: str | None, how: How
) -> None:
    assert how_failed(Failure(kind=kind, status=status, code=code, message="")) == how


def test_failures_of_requests_from_before_it_opened_do_not_keep_it_open_longer() -> None:
    one = play(many("away", 50))
    assert not one.allows(29.0)
    assert one.allows(31.0)


def test_a_probe_that_is_known_to_fail_does_not_count_and_a_new_one_does() -> None:
    one = play(many("wrong", 20))
    one.begin(35.0)
    one.failed(35.0, 0.5, "wrong", "a", 3)
    assert one.allows(35.0), "the next may try"
    one.begin(36.0)
    one.failed(36.0, 0.5, "wrong", "a", 99)
    assert not one.allows(37.0)
    assert one.state == "open"


def test_a_request_that_failed_long_ago_counts_again() -> None:
    one = Breaker()
    for moment in range(0, 600, 60):
        one.failed(float(moment), 0.5, "silent", "a", 1)
    assert one.state == "open"


def test_a_breaker_is_for_one_key_and_one_model_of_an_upstream() -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x.test", keys=("k1-secret", "k2-secret")), lambda: 0.0)
    first, second = here.keys.keys
    gone = Failure(kind="overloaded", status=503, message="")
    for _ in range(5):
        here.take_failure(first, "m", gone, 0.0, 0.5)
    states = {(k, m): here.breaker(here.keys.keys[k], m).state for k in (0, 1) for m in ("m", "n")}
    assert states == {(0, "m"): "open", (0, "n"): "closed", (1, "m"): "closed", (1, "n"): "closed"}
    picked = here.pick("m", 0.0, set())
    assert picked is second


def test_a_rate_limit_rests_a_key_for_its_model_and_a_used_up_balance_for_all() -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x.test"), lambda: 0.0)
    key = here.keys.keys[0]
    here.take_failure(key, "m", Failure(kind="rate_limited", message="", retry_after_s=20.0), 0.0, 0.5)
    assert here.pick("m", 19.0, set()) is None
    assert here.wait_s("m", 5.0) == 15.0
    assert here.pick("n", 1.0, set()) is key
    assert here.breaker(key, "m").state == "closed"
    here.take_failure(key, "n", Failure(kind="no_credit", message=""), 0.0, 0.5)
    assert here.pick("o", 1.0, set()) is None


def test_when_every_way_is_closed_one_request_a_second_still_tries() -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x.test"), lambda: 0.0)
    key = here.keys.keys[0]
    for _ in range(5):
        here.take_failure(key, "m", Failure(kind="overloaded", status=503, message=""), 10.0, 0.5)
    assert here.pick("m", 10.0, set()) is None
    tried = [moment for moment in (10.0, 10.2, 10.9, 11.1, 11.5, 12.2) if here.probe("m", moment) is key]
    assert tried == [10.0, 11.1, 12.2]


def test_one_request_tries_first_and_the_others_wait_for_what_it_meets() -> None:
    """All clients come back at once when the pause is over. (F57)"""
    one, later = Breaker(), 1000.0
    for _ in range(breaker.IN_A_ROW):
        one.failed(10.0, 0.5)
    assert not one.allows(10.0)
    assert one.allows(later)
    one.begin(later)
    assert [one.allows(later + second) for second in (0.0, 1.0, 100.0)] == [False] * 3
    one.succeeded(later + 100.0)
    assert one.allows(later + 100.0)


def test_the_wait_that_a_client_is_told_is_the_one_until_the_next_request_may_go() -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x.test"), lambda: 0.0)
    for _ in range(5):
        here.take_failure(here.keys.keys[0], "m", Failure(kind="overloaded", status=503, message=""), 10.0, 0.5)
    told = []
    for step in range(30):  # a second between two probes, and a request every 0.3 s
        now = 10.0 + step * 0.3
        if here.probe("m", now) is not None:
            here.breaker(here.keys.keys[0], "m").begin(now)
            here.take_failure(here.keys.keys[0], "m", Failure(kind="overloaded", status=503, message=""), now, 0.5)
        else:
            told.append(here.wait_s("m", now))
    assert 0 < min(told) <= max(told) <= 1.0


WRONG = Failure(kind="server_error", status=500, message="cannot read this")


@pytest.mark.parametrize(
    ("between", "words", "blamed"),
    [
        ("another is served", "cannot read this", True),
        ("nothing", "cannot read this", False),
        ("another is served", "something else", False),
        ("the same is served", "cannot read this", False),
        ("eleven minutes", "cannot read this", False),
    ],
)
def test_an_error_that_one_request_meets_again_and_others_do_not_is_the_requests(
    between: str, words: str, blamed: bool
) -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x.test"), lambda: 0.0)
    key = here.keys.keys[0]
    assert here.take_failure(key, "m", WRONG, 1.0, 0.5, "a", 7) is WRONG
    later = 700.0 if between == "eleven minutes" else 3.0
    if between != "nothing":
        here.take_success(key, "m", later - 1.0, "b")
    if between == "the same is served":
        here.suspects.pop(7)
    again = here.take_failure(key, "m", replace(WRONG, message=words), later, 0.5, "a", 7)
    assert (again.status, again.kind) == ((400, "invalid_request") if blamed else (500, "server_error"))
    assert not blamed or "cannot read this" in again.message


def test_the_policy_is_what_is_written_down() -> None:
    """RELIABILITY.md 3.2, value by value."""
    assert (breaker.IN_A_ROW, breaker.AT_LEAST, breaker.SHARE, breaker.LOOK_BACK_S) == (5, 20, 0.5, 30)
    assert breaker.OPEN_S == 30
    assert (retry.MOST_ATTEMPTS, retry.BASE_S, retry.CAP_S, retry.LONGEST_HINT_S) == (3, 0.5, 8, 60)
    assert (RetryBudget().share, RetryBudget().least) == (0.2, 3)
    assert (dial.LOOKUP_S, dial.KEPT_S) == (3, 300)
    assert (upstream_state.PROBE_EVERY_S, stream_writer.PING_S) == (1, 15)


@pytest.mark.parametrize("trips", [1, 2, 20])
def test_a_failed_probe_does_not_make_the_next_wait_longer(trips: int) -> None:
    for dice, length in ((0.0, 24), (1.0, 36)):
        one, now = Breaker(), 0.0
        for _ in range(trips):
            now = one._until
            one.begin(now)
            for _ in range(5):
                one.failed(now, dice)
        assert one.wait_s(now) == pytest.approx(length)


def test_a_probe_before_its_time_makes_the_wait_no_longer() -> None:
    one = Breaker()
    for second in range(breaker.IN_A_ROW):
        one.failed(float(second), 0.5, request_hash=second)
    wait = one.wait_s(10.0)
    one.begin(10.0)
    one.failed(10.0, 0.5, request_hash=99)
    assert (one.state, one.wait_s(10.0)) == ("open", wait)
    one.begin(10.0)
    one.succeeded(10.0)
    assert one.state == "closed"


def test_a_used_up_balance_is_looked_at_now_and_then_when_there_is_no_other_key() -> None:
    here = UpstreamState(upstream("one", "openai_chat", "http://x"), lambda: 0.0)
    (key,) = here.keys.keys
    here.take_failure(key, "dear", Failure(kind="no_credit", message=""), 100.0, 0.5)
    assert here.pick("cheap", 101.0, set()) is None
    assert here.probe_balance("cheap", 101.0) is None
    assert here.probe_balance("cheap", 111.0) is key
    assert here.probe_balance("cheap", 112.0) is None
    here.take_success(key, "cheap", 113.0, "")
    assert here.pick("cheap", 113.0, set()) is key


@pytest.mark.parametrize("seed", range(30))
def test_an_only_key_is_picked_as_one_of_many(seed: int) -> None:
    dice, found = random.Random(seed), []  # noqa: S311
    steps = [(dice.random(), dice.randrange(3), dice.choice("mn")) for _ in range(60)]
    for short in (True, False):
        here = UpstreamState(upstream("one", "openai_chat", "http://x.test"), lambda: 0.0)
        key = here.keys.keys[0]
        if not short:
            here.keys.only = None
        picked: list[object] = []
        for step, (share, what, model) in enumerate(steps):
            now = step * 5.0
            tried = {0} if share < 0.1 else set()
            picked.append((one := here.pick(model, now, tried)) and one.number)
            if what == 0:
                here.take_success(key, model, now, "a")
            elif what == 1:
                here.take_failure(key, model, Failure(kind="overloaded", status=503, message=""), now, share)
            elif share < 0.3:
                here.take_failure(key, model, Failure(kind="rate_limited", message="", retry_after_s=9.0), now, share)
        found.append(picked)
    assert found[0] == found[1]
    assert {None, 0} <= set(found[0])
