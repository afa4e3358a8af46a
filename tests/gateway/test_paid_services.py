"""Embeddings and speech: who answered, what it cost, and that a budget pays for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.accounts.grants import Grant
from dragoman.accounts.ledger import LedgerRow, SqliteLedger
from dragoman.accounts.prices import ModelPrice, read_price
from dragoman.gateway.config.teams import TeamSettings
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import Script, faultline, open_house, say, upstream
from tests.gateway.web import Got, post
from tests.waiting import wait_until

PRICES: dict[str, ModelPrice | None] = {"*": read_price({"input": 1000, "output": 1000, "output_audio": 2000})}
SPOKEN = say(200, b"ID3\x03\x00\x00\x00\x00\x00\x00" + bytes(400), content_type="audio/mpeg")
TEXT = "Good morning, this is the news of today."  # forty letters, ten tokens


def vectors(**more: object) -> Script:
    return say(200, json.dumps({"data": [{"index": 0, "embedding": [0.5]}], "model": "m", **more}).encode())


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


@contextmanager
def serve(store: SqliteKeyStore, folder: Path, *scripts: Script) -> Iterator[str]:
    with faultline(*scripts) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        teams = TeamSettings(prices=PRICES)
        with open_house(up, keys=store, store_path=folder / "responses.db", teams=teams) as house:
            yield house.url


def embed(url: str, key: str, text: str = "x") -> Got:
    return post(url, "/v1/embeddings", {"model": "m", "input": text}, {"authorization": f"Bearer {key}"})


def speak(url: str, key: str) -> Got:
    body = {"model": "m", "input": TEXT, "voice": "a"}
    return post(url, "/v1/audio/speech", body, {"authorization": f"Bearer {key}"})


def read_rows(folder: Path, count: int) -> tuple[LedgerRow, ...]:
    ledger = SqliteLedger(folder / "ledger.db")
    wait_until(lambda: len(ledger.page(0, 1e11, {}, "", 10).rows) >= count, "rows in the ledger")
    return ledger.page(0, 1e11, {}, "", 10).rows


def test_embeddings_and_speech_say_who_answered_what_it_cost_and_what_is_left(
    store: SqliteKeyStore, tmp_path: Path
) -> None:
    key = store.new("ada", grant=Grant(rpm=10))
    with serve(store, tmp_path, vectors(usage={"prompt_tokens": 7}), SPOKEN) as url:
        embedded, spoken = embed(url, key), speak(url, key)
        rows = {row.door: row for row in read_rows(tmp_path, 2)}
    assert (embedded.status, spoken.status) == (200, 200)
    assert embedded.headers["x-dragoman-cost"] == "0.007 USD"
    for got, left in ((embedded, "9"), (spoken, "8")):
        assert got.headers["x-dragoman-upstream"] == "up/m"
        assert got.headers["x-ratelimit-remaining-requests"] == left
        assert got.headers["x-dragoman-cost"].endswith(" USD")
    assert (rows["embeddings"].cost, rows["embeddings"].estimated) == (7000, False)
    assert rows["speech"].cost is not None


def test_speech_says_no_usage_so_its_cost_is_estimated_by_the_length_of_the_text(
    store: SqliteKeyStore, tmp_path: Path
) -> None:
    key = store.new("ada")
    with serve(store, tmp_path, SPOKEN) as url:
        speak(url, key)
        (row,) = read_rows(tmp_path, 1)
    assert row.estimated
    assert row.input is not None
    assert row.output is not None
    assert 10 <= row.input <= 20
    assert row.output == 7 * row.input, "a minute of speech is some 225 tokens of text and 1,500 of sound"
    assert row.cost == row.input * 1000 + row.output * 2000


def test_a_budget_pays_for_speech_and_for_embeddings_without_usage(store: SqliteKeyStore, tmp_path: Path) -> None:
    """They were free: no usage was no cost."""
    ada, bob = (store.new(name, grant=Grant(budget="0.02 USD/day")) for name in ("ada", "bob"))
    with serve(store, tmp_path, *[vectors()] * 3, *[SPOKEN] * 3) as url:
        found = [embed(url, ada, "x" * 40).status for _ in range(3)]
        assert found[0] == 200
        assert found[-1] == 429
        spoken = [speak(url, bob).status for _ in range(2)]
        assert spoken == [200, 429]


def test_a_service_without_a_price_has_no_cost(store: SqliteKeyStore, tmp_path: Path) -> None:
    key = store.new("ada")
    with faultline(vectors(), SPOKEN) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        with open_house(up, keys=store) as house:
            got = embed(house.url, key), speak(house.url, key)
    assert ["x-dragoman-cost" in one.headers for one in got] == [False, False]
