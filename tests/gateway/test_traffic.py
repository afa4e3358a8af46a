"""Traffic: rows that are kept over a restart, found by a search, paged by a cursor, and told live."""

import asyncio
import json
import threading
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import pytest

from dragoman.gateway.config.settings import TrafficSettings
from dragoman.gateway.telemetry.traffic import MOST_WAITING, Reader
from dragoman.gateway.telemetry.traffic_store import Search, TrafficRow, TrafficStore, read_search
from tests.gateway.house import open_house
from tests.gateway.web import get, post
from tests.waiting import NEVER_S, wait_until

ASKED = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
ROW = TrafficRow(
    seq=0,
    id="a1",
    time=1_000_000,
    key="ada",
    program="claude-cli",
    door="messages",
    asked="fast",
    upstream="far",
    model="far-model",
    status=200,
    failure="",
    first_ms=20,
    ms=100,
    input=10,
    output=5,
    cost="0.1 USD",
    lost=0,
    changed=1,
    harmless=0,
    tries=1,
    kept=False,
)


def make_rows(count: int) -> list[TrafficRow]:
    return [msgspec.structs.replace(ROW, id=f"r{n}", time=1_000_000 + n * 1000) for n in range(count)]


def ask(url: str, request_id: str, model: str = "demo") -> None:
    post(url, "/v1/chat/completions", {**ASKED, "model": model}, {"x-request-id": request_id})


def test_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    with open_house(store_path=tmp_path / "responses.db") as house:
        ask(house.url, "before")
    with open_house(store_path=tmp_path / "responses.db") as house:
        ask(house.url, "after")
        page = get(house.url, "/admin/v1/traffic").json
    assert [row["id"] for row in page["rows"]] == ["after", "before"]
    assert (tmp_path / "traffic.db").stat().st_mode & 0o077 == 0


def test_one_answer_has_the_rows_the_count_and_the_charts() -> None:
    with open_house() as house:
        for number in range(3):
            ask(house.url, f"r{number}")
        ask(house.url, "wrong", model="nothing")
        page = get(house.url, "/admin/v1/traffic?limit=2").json
        assert (len(page["rows"]), page["total"], page["next"]) == (2, 4, page["rows"][1]["seq"])
        assert sum(minute["requests"] for minute in page["minutes"]) == 4
        rest = get(house.url, f"/admin/v1/traffic?limit=9&before={page['next']}").json
        assert [row["id"] for row in rest["rows"]] == ["r1", "r0"]
        assert "minutes" not in rest
        assert rest["next"] is None


def test_the_newest_rows_of_the_last_days_stay() -> None:
    store = TrafficStore(None, keep_days=1, most=600)
    store.add(make_rows(1000), now_ms=1_000_000)
    assert store.count(Search()) == 600
    store.add(make_rows(1), now_ms=1_000_000)
    day_later = [msgspec.structs.replace(ROW, time=90_000_000)]
    store.add(day_later * 500, now_ms=90_000_000)
    assert store.count(Search()) == 500
    store.close()


def test_rows_in_packs_and_single_rows_are_counted_on(tmp_path: Path) -> None:
    one, other = [TrafficStore(tmp_path / "traffic.db", keep_days=0, most=1000) for _ in range(2)]
    lasts = [
        store.add(make_rows(count), now_ms=0) for store, count in ((one, 200), (other, 3), (one, 150), (other, 30))
    ]
    assert lasts == [200, 203, 353, 383]
    assert other.last() == 383
    rows, _ = other.page(Search(), None, 1000)
    assert [row.seq for row in rows] == list(range(383, 0, -1))
    assert [row.id for row in rows[::-1][200:204]] == ["r0", "r1", "r2", "r0"]
    assert one.page(Search(), None, 1000) == (rows, None)
    one.close()
    other.close()


def test_packs_become_rows_when_there_is_little_to_do() -> None:
    store = TrafficStore(None, keep_days=0, most=100_000)
    for _ in range(30):
        store.add(make_rows(100), now_ms=0)
    assert store._run(lambda db: db.execute("select count(*) from traffic").fetchone()[0]) == 0
    store.add(make_rows(1), now_ms=0)
    store.add(make_rows(1), now_ms=0)
    assert store._run(lambda db: db.execute("select count(*) from packs").fetchone()[0]) == 0
    assert store.count(Search()) == 3002
    store.close()


def test_a_page_begins_where_the_one_before_ended() -> None:
    store = TrafficStore(None, keep_days=0, most=10_000)
    store.add(make_rows(2500), now_ms=0)
    seen: list[int] = []
    cursor: int | None = None
    while True:
        rows, cursor = store.page(Search(), cursor, 1000)
        seen += [row.seq for row in rows]
        if cursor is None:
            break
    assert seen == list(range(2500, 0, -1))
    store.close()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", {"a", "b", "c"}),
        ("ADA", {"a"}),
        ("key:bob", {"b"}),
        ("status:5", {"b"}),
        ("is:error", {"b"}),
        ("is:ok", {"a", "c"}),
        ("is:lossy", {"c"}),
        ("ms>1500", {"b"}),
        ("ms<=100 is:ok", {"a", "c"}),
        ("model:far claude", {"a", "c"}),
        ("%' or 1=1 --", set()),
        ("id:c", {"c"}),
        ("unknown:word", set()),
    ],
)
def test_every_word_of_a_search_must_fit(words: str, found: set[str]) -> None:
    store = TrafficStore(None, keep_days=0, most=1000)
    change = msgspec.structs.replace
    rows = [
        change(ROW, id="a"),
        change(ROW, id="b", key="bob", program="codex", status=502, failure="timed_out", ms=2000),
        change(ROW, id="c", key="eve", lost=2),
    ]
    store.add(rows, now_ms=0)
    assert {row.id for row in store.page(read_search(words), None, 100)[0]} == found
    assert store.count(read_search(words)) == len(found)
    store.close()


def test_minutes_have_a_histogram_of_first_bytes() -> None:
    store = TrafficStore(None, keep_days=0, most=1000)
    store.add([msgspec.structs.replace(ROW, first_ms=ms) for ms in (1, 100, 100)], now_ms=0)
    (minute,) = store.minutes(Search(), 0)
    assert (minute.minute, minute.requests, minute.errors, minute.tokens) == (16, 3, 0, 45)
    assert sorted(minute.firsts.values()) == [1, 2]
    assert 95 < 1.1 ** max(minute.firsts) < 105
    assert store.latencies(0)["far"].median_ms == 100
    store.close()


def test_new_rows_are_sent_as_they_come() -> None:
    with open_house() as house:
        ask(house.url, "old")
        last = get(house.url, "/admin/v1/traffic").json["last"]
        live = HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
        live.request("GET", f"/admin/v1/traffic/live?after={last}")
        response = live.getresponse()
        assert response.readline() == b": hello\n"
        wait_until(lambda: bool(house.gateway.traffic._readers))
        ask(house.url, "new")
        line = b""
        while not line.startswith(b"data:"):
            line = response.readline()
        told = json.loads(line[5:])
        assert told["after"] == last
        assert [row["id"] for row in told["rows"]] == ["new"]
        live.close()
        wait_until(lambda: not house.gateway.traffic._readers)


def test_rows_of_other_workers_are_sent_too() -> None:
    with open_house() as house:
        house.gateway.traffic.shared = True
        live = HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
        live.request("GET", "/admin/v1/traffic/live")
        response = live.getresponse()
        response.readline()
        wait_until(lambda: bool(house.gateway.traffic._follower))
        ask(house.url, "first")  # by this worker: then the follower has begun
        told = b""
        while b'"id":"first"' not in told:
            told = response.readline()
        house.gateway.traffic.store.add([msgspec.structs.replace(ROW, id="foreign")], 0)
        while b'"id":"foreign"' not in told:
            told = response.readline()
        live.close()


def test_rows_between_a_page_and_the_stream_are_sent_first() -> None:
    with open_house() as house:
        ask(house.url, "one")
        ask(house.url, "two")
        get(house.url, "/admin/v1/traffic")
        live = HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
        live.request("GET", "/admin/v1/traffic/live?after=1")
        assert b'"id":"two"' in live.getresponse().readline()
        live.close()


def test_a_slow_reader_loses_the_oldest_messages() -> None:
    async def work() -> bytes:
        reader = Reader()
        for number in range(MOST_WAITING + 5):
            reader.put(b"%d," % number)
        return await reader.take(1.0)

    assert asyncio.run(work()).split(b",")[0] == b"5"


def test_a_file_that_cannot_be_written_stops_no_request(tmp_path: Path) -> None:
    (tmp_path / "traffic.db").mkdir()
    with open_house(store_path=tmp_path / "responses.db") as house:
        assert post(house.url, "/v1/chat/completions", ASKED).status == 200
        wait_until(lambda: bool(house.gateway.traffic._away))
        assert post(house.url, "/v1/chat/completions", ASKED).status == 200


def test_many_threads_may_read_and_write() -> None:
    store = TrafficStore(None, keep_days=0, most=100_000)
    threads = [threading.Thread(target=store.add, args=(make_rows(200), 0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count(Search()) == 1600
    store.close()


def test_the_configuration_says_how_much_is_kept() -> None:
    assert TrafficSettings() == TrafficSettings(keep_days=7, rows=100_000)
    with open_house(traffic=TrafficSettings(rows=100)) as house:
        assert house.gateway.traffic.store._most == 100
