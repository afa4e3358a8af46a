"""What stands in files and what is asked of them: no key in a query, no code from data, no network at the start."""

import ast
import json
import re
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman.gateway.access import client_keys
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, settle
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores import sqlite_keys as key_store
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.gateway.telemetry.log import Log
from dragoman.upstream.spec import Timeouts
from tests.gateway.house import faultline, open_house, state, stream, upstream
from tests.gateway.test_faults import DONE, GOOD, chunk
from tests.gateway.test_threats import CHAT, DOORS
from tests.gateway.web import get, post
from tests.waiting import NEVER_S, wait_until

SOURCE = Path(dragoman.__file__).parent
A, B = "the-first-key-of-all", "the-second-key-of-all"


# ---------------------------------------------------------------- T02: keys and queries

ODD_KEYS = ("' OR 1=1;--", "sk-'||pg_sleep(5)||'", "x" * 7000, "dk-aaaaaaaa-" + "'" * 43, "dk-%00-", "\xff\xfe")
HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


def test_t02_an_odd_key_is_a_wrong_key_and_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    store.new("a", admin=False)
    asked: list[str] = []
    connect = sqlite3.connect

    def counted(*args: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*args, **more)
        db.set_trace_callback(asked.append)
        return db

    monkeypatch.setattr(key_store, "SETTLED_S", -1.0)  # else a store this young is read again
    with open_house(keys=store) as house:
        get(house.url, "/v1/models", {"x-api-key": "first"})
        monkeypatch.setattr(sqlite3, "connect", counted)
        bodies = set()
        for door, body in DOORS.items():
            for header in HEADERS:
                for key in ODD_KEYS:
                    house.gateway.now.access._failures.clear()
                    value = f"Bearer {key}" if header == "authorization" else key
                    got = post(house.url, door, body, {header: value, "x-request-id": "r"})
                    assert got.status == 401, (door, header, key)
                    bodies.add((door, got.body))
        assert len(bodies) == len(DOORS), "the same words for each"
    assert asked == []


@given(st.text(st.characters(codec=None), max_size=80))
def test_t02_no_text_is_an_error_of_ours(text: str) -> None:
    assert ClientKeys(None, (A,)).check(text) is None or text == A


def calls_in(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            function = node.func
            yield node, function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def constants_of(path: Path) -> set[str]:
    """Names that stand for one text and nothing else."""
    texts: dict[str, bool] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Assign):
            fixed = isinstance(node.value, ast.Constant)
            for name in (n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)):
                texts[name.id] = texts.get(name.id, True) and fixed
    return {name for name, fixed in texts.items() if fixed}


# Queries put together from names of columns, which come from closed lists. What a client says is never part of one:
# tests/accounts/test_ledger.py, test_a_name_that_is_none_is_refused.
# What a search of traffic composes are constants, too, and columns that its patterns name: `read_search`.
COMPOSED = {
    "ledger.py": {"_SCHEMA", "_SUM", "_INSERT", "_INSERT_MANY", "statement"},
    "traffic_store.py": {"_SCHEMA", "_INSERT", "_INSERT_MANY", "statement"},
}


def test_t02_every_query_is_a_constant() -> None:
    found = 0
    for path in SOURCE.rglob("*.py"):
        if "sqlite3" not in path.read_text("utf-8"):
            continue
        constants = constants_of(path) | COMPOSED.get(path.name, set())
        for call, name in calls_in(path):
            if name in ("execute", "executemany", "executescript"):
                found += 1
                query = call.args[0]
                fixed = isinstance(query, ast.Constant) or (isinstance(query, ast.Name) and query.id in constants)
                assert fixed, f"{path}:{call.lineno}"
    assert found > 10


# ---------------------------------------------------------------- T15, T17: what belongs to whom


def test_t15_two_keys_share_no_answer(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with faultline(GOOD) as line:
        with open_house(upstream("one", "openai_chat", line.url, models=("m",)), client_keys=(A, B)) as house:
            for key in (A, B, A):
                assert post(house.url, CHAT, body, {"x-api-key": key}).status == 200
        assert len(line.seen) == 3


def test_t17_a_key_that_moves_up_in_the_list_reads_nothing_of_the_one_before_it(tmp_path: Path) -> None:
    path, store = tmp_path / "responses.db", SqliteKeyStore(tmp_path / "keys.db")
    store.prepare()
    with open_house(keys=store, client_keys=(A, B), store_path=path) as house:
        ask = {"model": "demo", "input": "say secret"}
        first, second = (post(house.url, "/v1/responses", ask, {"x-api-key": key}).json["id"] for key in (A, B))
    with open_house(keys=store, client_keys=(B,), store_path=path) as house:
        assert get(house.url, f"/v1/responses/{first}", {"x-api-key": B}).status == 404
        assert get(house.url, f"/v1/responses/{second}", {"x-api-key": B}).status == 200, "its own stays its own"
        went_on = post(house.url, "/v1/responses", {**ask, "previous_response_id": first}, {"x-api-key": B})
        assert (went_on.status, went_on.json["error"]["code"]) == (400, "previous_response_not_found")
    with open_house(keys=store, client_keys=(B, A), store_path=path) as house:
        assert get(house.url, f"/v1/responses/{first}", {"x-api-key": A}).status == 200


# ---------------------------------------------------------------- T46, T48: nothing runs, nobody is asked

RUNS_DATA = re.compile(
    r"(?<![.\w])(?:eval|exec|compile|__import__)\("
    r"|^\s*(?:import|from)\s+(?:pickle|marshal|shelve|yaml|dill|jsonpickle)\b",
    re.M,
)


def test_t46_nothing_that_is_read_becomes_code() -> None:
    assert RUNS_DATA.search("import pickle\n")
    assert RUNS_DATA.search("x = eval(text)")
    assert RUNS_DATA.search("re.compile(x)") is None
    assert [path for path in SOURCE.rglob("*.py") if RUNS_DATA.search(path.read_text("utf-8"))] == []


def test_t48_a_start_sends_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("the network is asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    providers = {"openai": {"api_key": "k", "models": ["m"]}, "near": {"base_url": "http://near.test:1"}}
    servers = {"far": {"url": "http://far.test/mcp"}}
    (tmp_path / "c.json").write_text(json.dumps({"providers": providers, "mcp": {"servers": servers}}))
    env = state(tmp_path)
    settings = settle(ServeOptions(config=tmp_path / "c.json"), env)
    access = make_access(settings, env, "127.0.0.1")
    check_exposure(settings, access)
    assert App(Gateway(settings, access, log=Log())).gateway.now.models


# ---------------------------------------------------------------- T47: a key that ends


def test_t47_a_stream_that_runs_when_its_key_is_revoked_ends_whole_and_the_next_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, revoked = SqliteKeyStore(tmp_path / "keys.db"), threading.Event()
    key = store.new("a", admin=False)

    script = stream(chunk("fi"), revoked, chunk("ne"), chunk(finish="stop"), DONE)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    monkeypatch.setattr(client_keys, "REFRESH_S", 0.0)
    got: list[str] = []
    with faultline(script) as line:
        one = upstream("one", "openai_chat", line.url, models=("m",), timeouts=Timeouts())
        with open_house(one, keys=store) as house:
            thread = threading.Thread(target=lambda: got.append(post(house.url, CHAT, body, {"x-api-key": key}).text))
            thread.start()
            wait_until(lambda: len(line.seen) == 1)
            store.revoke(key.split("-")[1])
            assert post(house.url, CHAT, body, {"x-api-key": key}).status == 401
            revoked.set()
            thread.join(NEVER_S)
    assert got[0].endswith("data: [DONE]\n\n")
    assert "ne" in got[0]


# ---------------------------------------------------------------- F47: a locked store


def test_f47_a_key_store_that_another_process_holds_is_not_waited_for(tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    key = store.new("a", admin=False)
    known = ClientKeys(store, clock=iter(range(1000)).__next__)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    assert all(known.check(key) for _ in range(3))
    assert known.away
    holder.execute("rollback")
    holder.close()
    assert known.check(key)
    assert not known.away
