"""Stored responses: bounded, each its owner's, and never a reason for a request to fail."""

import sqlite3
import time
from pathlib import Path

import pytest

from dragoman.gateway import response_store as store_module
from dragoman.gateway.response_store import ResponseStore, StoredResponse
from tests.gateway.house import open_house
from tests.gateway.web import get, post


def row(number: int, size: int = 10) -> StoredResponse:
    return StoredResponse(id=f"r{number}", messages=(), wire=b"x" * size, created=float(number))


@pytest.mark.parametrize("kept", [True, False], ids=["in a file", "in memory"])
def test_only_the_youngest_stay(kept: bool, tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "x.db" if kept else None, 5)
    for number in range(20):
        assert store.put("me", row(number))
    found = [number for number in range(20) if store.get("me", f"r{number}")]
    assert found == [15, 16, 17, 18, 19]
    assert [stored.id for stored in store.list("me", "r", 2)] == ["r19", "r18"]
    assert store.get("you", "r19") is None
    assert store.list("you", "r", 9) == []
    assert not store.delete("you", "r19")
    assert store.delete("me", "r19")
    store.close()


def test_another_process_reads_what_one_wrote(tmp_path: Path) -> None:
    one, two = (ResponseStore(tmp_path / "x.db", 5) for _ in range(2))
    one.put("me", row(1))
    assert two.get("me", "r1") is not None
    one.close()
    two.close()


def test_f47_a_database_somebody_holds_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BUSY_S", 0.2)
    path = tmp_path / "x.db"
    store = ResponseStore(path, 5)
    assert store.put("me", row(1))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    began = time.monotonic()
    assert not store.put("me", row(2))
    assert time.monotonic() - began < 2
    assert store.get("me", "r1") is not None, "who only reads is not held up"
    holder.execute("rollback")
    holder.close()
    assert store.put("me", row(3)), "and it goes on afterwards"
    store.close()


def test_f48_a_disk_that_is_full_costs_the_row_not_the_request(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with open_house(store_path=path) as house:
        ask = {"model": "demo", "input": "say hi"}
        kept = post(house.url, "/v1/responses", ask).json["id"]
        db = house.gateway.store._open()
        (pages,) = db.execute("pragma page_count").fetchone()
        db.execute(f"pragma max_page_count = {pages}")
        for streamed in (False, True):
            got = post(house.url, "/v1/responses", {**ask, "input": "say " + "x" * 50_000, "stream": streamed})
            assert got.status == 200
            assert "xxx" in got.text
            assert "error" not in got.text.partition('"error":null')[0] or not streamed
        assert get(house.url, f"/v1/responses/{kept}").status == 200
        db.execute("pragma max_page_count = 1000000")
        again = post(house.url, "/v1/responses", ask).json["id"]
        assert get(house.url, f"/v1/responses/{again}").status == 200


def test_what_is_too_much_is_not_kept(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "x.db", 5)
    assert not store.put("me", row(1, store_module.MAX_ROW_BYTES))
    store.close()
