"""Replies say how much is left of the limits of the client's key, in headers of the client's own dialect."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman.accounts.grants import Grant, GrantChange, make_holder
from dragoman.dialects import find_dialect
from dragoman.gateway.access.key_limits import KeyLimits
from dragoman.gateway.process.shared_limits import SharedLimits, SharedMemory
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.upstream.admission import LimitStore, ProcessLimits
from tests.gateway.house import Script, faultline, open_house, say, stream, upstream
from tests.gateway.test_faults import DONE, chunk
from tests.gateway.test_teams import ANSWER
from tests.gateway.web import Got, post

HI = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
SAID = json.dumps(ANSWER).encode()
OF_PROVIDER = say(200, SAID, x_ratelimit_limit_requests="9999", x_ratelimit_remaining_tokens="77")


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


@contextmanager
def serve(store: SqliteKeyStore, *scripts: Script) -> Iterator[str]:
    with faultline(*(scripts or (say(200, SAID),) * 20)) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        with open_house(up, keys=store) as house:
            yield house.url


def chat(url: str, key: str, **more: Any) -> Got:
    return post(url, "/v1/chat/completions", {**HI, **more}, {"authorization": f"Bearer {key}"})


def quota(got: Got) -> dict[str, str]:
    return {name: value for name, value in got.headers.items() if "ratelimit" in name}


def test_a_chat_client_hears_what_is_left_of_its_limits(store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(rpm=3, tpm=1000))
    with serve(store) as url:
        got = [chat(url, key) for _ in range(4)]
    assert [one.status for one in got] == [200, 200, 200, 429]
    assert [one.headers["x-ratelimit-remaining-requests"] for one in got] == ["2", "1", "0", "0"]
    assert all(one.headers["x-ratelimit-limit-requests"] == "3" for one in got)
    assert all(one.headers["x-ratelimit-reset-requests"] == "1m0s" for one in got)
    assert all(one.headers["x-ratelimit-limit-tokens"] == "1000" for one in got)
    left = [int(one.headers["x-ratelimit-remaining-tokens"]) for one in got]
    assert 1000 > left[0] > left[1] > left[2] >= 900, "each request took some"
    assert "retry-after" in got[3].headers
    assert "retry-after" not in got[2].headers


def test_an_anthropic_client_hears_it_in_its_own_words(store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(rpm=1, tpm=1000))
    with serve(store) as url:
        first, second = (post(url, "/v1/messages", HI, {"x-api-key": key}) for _ in range(2))
    assert (first.status, second.status) == (200, 429)
    assert quota(first).keys() == {
        f"anthropic-ratelimit-{what}-{part}"
        for what in ("requests", "tokens")
        for part in ("limit", "remaining", "reset")
    }
    assert first.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert quota(second).keys() == quota(first).keys()
    reset = datetime.fromisoformat(first.headers["anthropic-ratelimit-requests-reset"])
    assert 0 < (reset - datetime.now(UTC)).total_seconds() <= 62


@pytest.mark.parametrize("path", ["/v1beta/models/m:generateContent", "/api/chat", "/v1/responses"])
def test_clients_of_other_dialects_hear_it_too(store: SqliteKeyStore, path: str) -> None:
    key = store.new("ada", grant=Grant(rpm=10))
    body = {**HI, "input": "hi", "contents": [{"parts": [{"text": "hi"}]}], "stream": False}
    with serve(store) as url:
        got = post(url, path, body, {"authorization": f"Bearer {key}"})
    assert got.status == 200, got.text
    assert quota(got) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "1m0s",
    }


def test_a_stream_says_it_before_its_first_word(store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(rpm=10))
    with serve(store, stream(chunk("a"), DONE)) as url:
        got = chat(url, key, stream=True)
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["x-ratelimit-remaining-requests"] == "9"


def test_what_its_team_has_left_counts_if_that_is_less(store: SqliteKeyStore) -> None:
    ada, bob = (store.new(name, team="web", grant=Grant(rpm=9)) for name in ("ada", "bob"))
    store.set_team("web", GrantChange(rpm=10))
    with serve(store) as url:
        for _ in range(4):
            chat(url, bob)
        got = chat(url, ada)
    assert quota(got)["x-ratelimit-limit-requests"] == "10"
    assert quota(got)["x-ratelimit-remaining-requests"] == "5", "of the team; the key itself has eight"


def test_a_key_hears_of_its_own_limits_not_of_the_providers_account(store: SqliteKeyStore) -> None:
    limited, free = store.new("ada", grant=Grant(rpm=10)), store.new("bob")
    with serve(store, OF_PROVIDER, OF_PROVIDER) as url:
        own, passed = quota(chat(url, limited)), quota(chat(url, free))
    assert own["x-ratelimit-limit-requests"] == "10"
    assert "x-ratelimit-remaining-tokens" not in own
    assert passed == {"x-ratelimit-limit-requests": "9999", "x-ratelimit-remaining-tokens": "77"}


def test_a_key_without_limits_by_the_minute_hears_nothing(store: SqliteKeyStore) -> None:
    keys = store.new("ada"), store.new("bob", grant=Grant(at_once=5))
    with serve(store) as url:
        assert [quota(chat(url, key)) for key in keys] == [{}, {}]


@pytest.mark.parametrize("kept", ["process", "workers"])
def test_the_figures_come_from_where_the_limits_are_kept(kept: str) -> None:
    memory, holder = SharedMemory(2), make_holder("x", "ada", Grant(rpm=5))
    stores: list[LimitStore] = [ProcessLimits(time.monotonic)] * 2
    if kept == "workers":
        stores = [SharedLimits(memory, number) for number in range(2)]
    first, second = (KeyLimits(store, time.monotonic) for store in stores)
    assert first.enter_at_once(holder, 10) is not None
    assert second.enter_at_once(holder, 10) is not None
    said = [limits.find_quota(holder, find_dialect("openai_chat")).write(time.time()) for limits in (first, second)]
    assert [one["x-ratelimit-remaining-requests"] for one in said] == ["3", "3"]
