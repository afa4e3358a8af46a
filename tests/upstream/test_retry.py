"""What follows a failure, line by line."""

import pytest

from dragoman.failure import Failure, FailureKind
from dragoman.upstream.breaker import Breaker
from dragoman.upstream.keys import KeyRing, Secret
from dragoman.upstream.read_reply import read_hint, read_words
from dragoman.upstream.retry import Again, Decision, GiveUp, Next, RetryBudget, backoff_s, decide


def ask(
    kind: FailureKind,
    *,
    attempts: int = 1,
    other: bool = False,
    other_key: bool = False,
    left_s: float = 600,
    hint: float | None = None,
    budget: bool = True,
) -> Decision:
    failure = Failure(kind=kind, message="", retry_after_s=hint)
    return decide(failure, attempts=attempts, other=other, other_key=other_key, left_s=left_s, dice=0.5, budget=budget)


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("invalid_request", {"other": True}, GiveUp()),
        ("too_long", {"other": True}, GiveUp()),
        ("not_found", {"other": True}, GiveUp()),
        ("too_large", {"other": True}, GiveUp()),
        ("refused", {"other": True}, GiveUp()),
        ("server_error", {}, Again(0.25)),
        ("server_error", {"attempts": 2}, Again(0.5)),
        ("server_error", {"attempts": 3, "other": True}, GiveUp()),
        ("server_error", {"other": True}, Next()),
        ("server_error", {"budget": False}, GiveUp()),
        ("server_error", {"left_s": 0.1}, GiveUp()),
        ("overloaded", {}, Again(0.25)),
        ("timed_out", {}, GiveUp()),
        ("timed_out", {"other": True}, Next()),
        ("cut_off", {}, Again(0.25)),
        ("rate_limited", {"hint": 4.0}, Again(4.2)),
        ("rate_limited", {"hint": 61.0}, GiveUp()),
        ("rate_limited", {"hint": 61.0, "other": True}, Next()),
        ("rate_limited", {"hint": 30.0, "left_s": 20.0}, GiveUp()),
        ("rate_limited", {"hint": 4.0, "other_key": True}, Next()),
        ("unauthenticated", {}, GiveUp()),
        ("unauthenticated", {"other_key": True}, Next()),
        ("forbidden", {"other": True}, Next()),
        ("no_credit", {}, GiveUp()),
        ("no_credit", {"other": True}, Next()),
    ],
)
def test_a_failure_is_followed_by(kind: FailureKind, options: dict[str, object], expected: Decision) -> None:
    assert ask(kind, **options) == expected  # type: ignore[arg-type]


def test_backoff_is_jittered_and_capped() -> None:
    assert [backoff_s(n, 1.0) for n in (1, 2, 3, 9)] == [0.5, 1.0, 2.0, 8.0]
    assert backoff_s(5, 0.0) == 0.0


def test_retries_are_a_fifth_of_what_is_in_flight_and_at_least_three() -> None:
    budget = RetryBudget()
    budget.retrying = 2
    assert budget.allows()
    budget.retrying = 3
    assert not budget.allows()
    budget.in_flight = 100
    budget.retrying = 19
    assert budget.allows()
    budget.retrying = 20
    assert not budget.allows()


# ---------------------------------------------------------------- the breaker


def test_five_failures_in_a_row_open_the_breaker_and_one_probe_closes_it() -> None:
    breaker = Breaker()
    for moment in range(5):
        assert breaker.allows(moment)
        breaker.failed(moment, 0.5)
    assert breaker.state == "open"
    assert not breaker.allows(20.0)
    assert breaker.allows(35.0)
    breaker.begin(35.0)
    assert not breaker.allows(35.0), "one probe at a time"
    breaker.succeeded(36.0)
    assert breaker.allows(36.0)


def test_a_failed_probe_opens_it_again_for_as_long() -> None:
    breaker = Breaker()
    for moment in range(5):
        breaker.failed(moment, 0.5)
    breaker.begin(40.0)
    breaker.failed(40.0, 0.5)
    assert not breaker.allows(69.0)
    assert breaker.allows(71.0)


def test_half_of_many_failing_opens_it() -> None:
    breaker = Breaker()
    for step in range(20):
        breaker.failed(step, 0.5)
        if step < 19:
            breaker.succeeded(step)
    assert breaker.state == "open"


def test_a_probe_whose_client_left_frees_the_way_for_another() -> None:
    breaker = Breaker()
    for moment in range(5):
        breaker.failed(moment, 0.5)
    breaker.begin(50.0)
    breaker.abandoned()
    assert breaker.allows(50.0)


# ---------------------------------------------------------------- keys


def ring(count: int) -> KeyRing:
    return KeyRing([Secret(f"key-{i}", "o") for i in range(count)])


def test_keys_are_used_in_turn() -> None:
    keys = ring(3)
    assert [(keys.pick(0.0) or keys.keys[0]).number for _ in range(4)] == [0, 1, 2, 0]


def test_a_resting_key_is_passed_over_and_a_rest_never_gets_shorter() -> None:
    keys = ring(2)
    keys.rest(keys.keys[0], 10.0, "rate limited")
    keys.rest(keys.keys[0], 5.0, "rate limited")
    assert [k.number for k in (keys.pick(9.0), keys.pick(9.0)) if k] == [1, 1]
    keys.rest(keys.keys[1], 30.0, "rate limited")
    assert keys.pick(9.0) is None
    assert keys.wait_s(9.0) == 1.0


def test_a_disabled_key_stays_away_and_tried_ones_are_left_out() -> None:
    keys = ring(2)
    keys.disable(keys.keys[0], "refused")
    picked = keys.pick(0.0)
    assert picked is not None
    assert picked.number == 1
    assert keys.pick(0.0, (1,)) is None


def test_an_upstream_without_keys_has_one_way_in() -> None:
    picked = ring(0).pick(0.0)
    assert picked is not None
    assert picked.secret is None


def test_a_secret_shows_itself_to_its_own_host_only() -> None:
    secret = Secret("sk-canary-7f3", "https://a.example:443")
    assert "canary" not in f"{secret} {secret!r}"
    assert secret.reveal("https://a.example:443") == "sk-canary-7f3"
    with pytest.raises(PermissionError):
        secret.reveal("https://b.example:443")
    assert secret.redact(b"bad key sk-canary-7f3!") == b"bad key [redacted]!"


# ---------------------------------------------------------------- hints

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def test_case_135_a_call_the_model_failed_to_write_is_asked_for_once_more() -> None:
    slip = Failure(kind="invalid_request", status=400, code="tool_use_failed", message="")
    told = [
        decide(slip, attempts=n, other=True, other_key=False, left_s=left, dice=0.5, budget=True)
        for n, left in ((1, 600.0), (2, 600.0), (1, 0.0))
    ]
    assert told == [Again(0.0), GiveUp(), GiveUp()]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "90000"}, None),
        ({"retry-after": "3, 4"}, None),
        ({"retry-after": "soon"}, None),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "20ms", "x-ratelimit-remaining-tokens": "0"}, 0.02),
        ({"x-ratelimit-reset-requests": "1h2m3.5s", "x-ratelimit-remaining-requests": "0"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "900"}, None),
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:40Z", "anthropic-ratelimit-tokens-remaining": "0"}, 20),
        ({}, None),
    ],
)
def test_a_hint_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert read_hint(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("You exceeded your current quota. Please retry in 47.43s.", 47.43),
        ("Rate limit reached. Please try again in 6m0s. Visit us.", 360.0),
        ("Rate limit reached. Please try again in 20ms.", 0.02),
        ("Try again in 1h2m3s", 3723.0),
        ("Please retry in a while.", None),
        ("Please retry in 99999999s.", None),
        ("no 5s hint", None),
    ],
)
def test_a_hint_in_words_is_read(words: str, seconds: float | None) -> None:
    assert read_words(words) == seconds
