"""Stored responses: bounded, each its owner's, and never a reason for a request to fail."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.gateway.stores import responses as store_module
from dragoman.gateway.stores.responses import SqliteResponseStore, StoredResponse, StoreUnavailable
from dragoman.model.messages import Message, Text
from tests.gateway.house import open_house
from tests.gateway.web import get, post


def row(number: int, size: int = 10) -> StoredResponse:
    return StoredResponse(id=f"r{number}", messages=(), wire=b"x" * size, created=float(number))


@pytest.mark.parametrize("kept", [True, False], ids=["in a file", "in memory"])
def test_only_the_youngest_stay(kept: bool, tmp_path: Path) -> None:
    store = SqliteResponseStore(tmp_path / "x.db" if kept else None, 5)
    for number in range(20):
        assert store.put("me", row(number))
    found = [number for number in range(20) if store.get("me", f"r{number}")]
    assert found == [15, 16, 17, 18, 19]
    assert store.list_ids("me", "r", 2) == ["r19", "r18"]
    assert store.get("you", "r19") is None
    assert store.list_ids("you", "r", 9) == []
    assert not store.delete("you", "r19")
    assert store.delete("me", "r19")
    store.close()


def test_another_process_reads_what_one_wrote(tmp_path: Path) -> None:
    one, two = (SqliteResponseStore(tmp_path / "x.db", 5) for _ in range(2))
    one.put("me", row(1))
    assert two.get("me", "r1") is not None
    one.close()
    two.close()


def test_f47_a_locked_database_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BUSY_S", 0.2)
    path = tmp_path / "x.db"
    store = SqliteResponseStore(path, 5)
    assert store.put("me", row(1))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    with pytest.raises(StoreUnavailable):
        store.put("me", row(2))
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
        store = house.gateway.store
        assert isinstance(store, SqliteResponseStore)
        db = store._open()
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
    store = SqliteResponseStore(tmp_path / "x.db", 5)
    assert not store.put("me", row(1, store_module.MAX_ROW_BYTES))
    store.close()


@pytest.mark.parametrize(
    ("said", "found"),
    [({"n": 10**30}, {"n": 10**30}), ({"n": -(2**70)}, {"n": -(2**70)}), ({"half": "a\ud83d"}, {"half": "a\ufffd"})],
    ids=["a large number", "a small number", "half an emoji"],
)
def test_what_no_other_format_can_say_is_kept(said: dict[str, Any], found: dict[str, Any]) -> None:
    store = SqliteResponseStore(None, 5)
    message = Message(role="user", parts=(Text(text="hi"),), extras={"openai_responses": said})
    assert store.put("me", StoredResponse(id="r", messages=(message,), wire=b"\xff{}"))
    back = store.get("me", "r")
    assert back is not None
    assert back.wire == b"\xff{}"
    assert back.messages[0].extras == {"openai_responses": found}
    store.close()


def test_a_row_of_another_version_is_as_if_it_never_was(tmp_path: Path) -> None:
    store = SqliteResponseStore(tmp_path / "x.db", 5)
    assert store.put("me", row(1))
    store._open().execute("update responses set row = ?", (b"\x81\xa2id\xa2r1",))
    assert store.get("me", "r1") is None
    assert store.list_ids("me", "r", 5) == ["r1"]
    store.close()


# ---------------------------------------------------------------- a place where nothing can be kept


def cannot_be_made(path: Path) -> Callable[[], object]:
    path.parent.write_text("a file where the folder should be")
    return path.parent.unlink


def full_at_first(path: Path) -> Callable[[], object]:
    """A disk that is full when the database is opened: the header fits, the tables do not."""
    path.parent.mkdir()
    real = sqlite3.connect

    def connect(*args: Any, **more: Any) -> sqlite3.Connection:
        db = real(*args, **more)
        db.execute("pragma max_page_count = 1")
        return db

    patch = pytest.MonkeyPatch()
    patch.setattr(sqlite3, "connect", connect)
    return patch.undo


def cut_short(path: Path) -> Callable[[], object]:
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    return path.unlink


HOMES: dict[str, Callable[[Path], Callable[[], object]]] = {
    "cannot be made": cannot_be_made,
    "is full at first": full_at_first,
    "is cut short": cut_short,
}


@pytest.mark.parametrize("how", HOMES)
def test_f48_a_home_that_keeps_nothing_costs_the_row_and_heals(how: str, tmp_path: Path) -> None:
    path = tmp_path / "home" / "responses.db"
    mend = HOMES[how](path)
    ask = {"model": "demo", "input": "say hi"}
    try:
        with open_house(store_path=path) as house:
            for streamed in (False, True):
                got = post(house.url, "/v1/responses", {**ask, "stream": streamed})
                assert got.status == 200
                assert "hi" in got.text
            for path_ in ("/v1/responses/resp_1", "/v1beta/cachedContents"):
                got = get(house.url, path_)
                assert (got.status, "cannot be read or written now" in got.text) == (503, True), path_
            continued = post(house.url, "/v1/responses", {**ask, "previous_response_id": "resp_1"})
            assert (continued.status, continued.headers["retry-after"]) == (503, "5"), "before anything is paid"
            mend()
            kept = post(house.url, "/v1/responses", ask).json["id"]
            assert get(house.url, f"/v1/responses/{kept}").status == 200
    finally:
        if how == "is full at first":
            mend()


def test_a_file_that_breaks_while_it_runs_costs_the_rows_and_not_the_requests(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    ask = {"model": "demo", "input": "say hi"}
    with open_house(store_path=path) as house:
        kept = post(house.url, "/v1/responses", ask).json["id"]
        for name in ("responses.db", "responses.db-wal"):
            (tmp_path / name).write_bytes(b"")
        for _ in range(3):
            assert post(house.url, "/v1/responses", ask).status == 200
            assert get(house.url, f"/v1/responses/{kept}").status in (200, 404, 503)
        last = post(house.url, "/v1/responses", ask).json["id"]
        assert get(house.url, f"/v1/responses/{last}").status == 200
