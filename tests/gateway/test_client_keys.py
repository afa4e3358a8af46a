"""Whether a key is good, while the store changes, vanishes or breaks. The last good copy holds, and never opens."""

import itertools
import logging
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.waiting import NEVER_S

A, B = "the-first-key-of-all", "the-second-key-of-all"
GRANTED = ("team", "granted", "expires", "old_until")
MEMORY = "/dev/shm"  # noqa: S108  # no disk to wait for


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


def test_a_store_that_is_back_is_seen_without_a_request(store: SqliteKeyStore, tmp_path: Path) -> None:
    """A worker without requests said for ever that its keys cannot be read."""
    store.new("ada")
    keys = ClientKeys(store, clock=Clock())
    assert keys.look() == ""
    (tmp_path / "keys.db").rename(tmp_path / "elsewhere.db")
    assert keys.look() == "it has vanished"
    (tmp_path / "elsewhere.db").rename(tmp_path / "keys.db")
    assert keys.look() == ""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.now += 1.0  # every look is a second after the last
        return self.now


BREAKS: dict[str, Callable[[Path], object]] = {
    "vanished": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "garbage": lambda path: path.write_bytes(b"x" * 5000),
    "another database": lambda path: drop_the_table(path),
    "a folder": lambda path: put_a_folder(path),
}


def drop_the_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("drop table keys")


def put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("how", BREAKS)
def test_the_last_good_copy_holds_when_the_store_breaks(
    how: str, store: SqliteKeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    good, gone = store.new("a", admin=False), store.new("b", admin=False)
    store.revoke(gone.split("-")[1])
    whole = store.path.read_bytes()
    known = ClientKeys(store, clock=Clock())
    with caplog.at_level(logging.INFO):
        BREAKS[how](store.path)
        assert [bool(known.check(good)) for _ in range(5)] == [True] * 5
        assert not known.check(gone)
        assert known.needed
        assert caplog.text.count("keys_not_read") == 1, "it is said once"
        assert known.renew(()).check(good), "a reload keeps the copy"
        assert known.renew((), forget=True).check(good) is None, "a new process has none"
        assert known.renew((), forget=True).needed
        if store.path.is_dir():
            store.path.rmdir()
        store.path.write_bytes(whole)
        assert known.check(good)
        assert "keys_read_again" in caplog.text


def test_revoking_the_last_key_opens_nothing(store: SqliteKeyStore) -> None:
    assert ClientKeys(store).needed is False, "no key was ever made"
    key = store.new("a", admin=False)
    known = ClientKeys(store, clock=Clock())
    assert known.check(key)
    store.revoke(key.split("-")[1])
    assert known.needed
    assert known.check(key) is None
    assert not known.any_good
    assert ClientKeys(store).needed, "nor does a restart"


def test_what_one_worker_has_seen_holds_for_all(store: SqliteKeyStore) -> None:
    parent = ClientKeys(store, clock=Clock())
    assert parent.needed is False
    key = store.new("a", admin=False)
    worker = multiprocessing.get_context("fork").Process(target=lambda: parent.renew((), forget=True).check(key))
    worker.start()
    worker.join(NEVER_S)
    store.path.unlink()
    assert parent.renew((), forget=True).needed, "a worker that starts when the store is gone"


def let_it_rest(path: Path) -> None:
    """The last write seems to be long ago: then the times of the files are relied on."""
    for file in path.parent.glob(f"{path.name}*"):
        if not file.name.endswith("-shm"):
            os.utime(file, ns=(10**18 - next(AGES), 10**18 - next(AGES)))


AGES = itertools.count(step=10**9)


def test_who_lists_the_keys_does_not_read_them_for_the_door(store: SqliteKeyStore) -> None:
    """The admin API reads the same store: after `keys list`, a new key was unknown there, and a revoked one good."""
    keys, elsewhere = ClientKeys(store, clock=Clock()), SqliteKeyStore(store.path)
    key = elsewhere.new("a")
    let_it_rest(store.path)
    store.read()
    assert keys.check(key) is not None
    elsewhere.revoke(key.split("-")[1])
    let_it_rest(store.path)
    store.read()
    assert keys.check(key) is None


def test_a_key_seen_revoked_stays_so_when_an_old_copy_of_the_file_returns(store: SqliteKeyStore) -> None:
    key = store.new("a", admin=False)
    before = store.path.read_bytes()
    known = ClientKeys(store, clock=Clock())
    assert known.check(key)
    store.revoke(key.split("-")[1])
    assert known.check(key) is None
    store.path.write_bytes(before)
    assert known.check(key) is None
    assert known.renew((A,)).check(key) is None


def test_an_owner_is_the_key_and_not_its_place(store: SqliteKeyStore) -> None:
    store.prepare()
    both, second, turned = (ClientKeys(store, keys) for keys in ((A, B), (B,), (B, A)))
    owners = [both.check(A), both.check(B)]
    assert owners[0] != owners[1]
    assert second.check(B) == turned.check(B) == owners[1]
    assert turned.check(A) == owners[0]
    assert second.check(A) is None
    elsewhere = SqliteKeyStore(store.path.with_name("other.db"))
    elsewhere.prepare()
    assert ClientKeys(elsewhere, (A,)).check(A) != owners[0], "an owner tells nothing about the key"


def test_a_key_of_the_configuration_is_no_admin(store: SqliteKeyStore) -> None:
    found = ClientKeys(store, (A,)).check(A)
    assert found is not None
    assert found.admin is False


# ---------------------------------------------------------------- any bytes


@cache
def whole_file() -> tuple[str, bytes]:
    with TemporaryDirectory() as folder:
        store = SqliteKeyStore(Path(folder) / "keys.db")
        key, gone = store.new("a", admin=False), store.new("b", admin=True)
        store.revoke(gone.split("-")[1])
        return key, store.path.read_bytes()


edits = st.lists(st.tuples(st.integers(0, 12287), st.binary(max_size=40)), max_size=6)
ODD_VALUES = ("null", "x'00ff'", "1e400", "''", "-1", "cast(x'ff' as text)")


@settings(max_examples=60)
@given(edits, st.integers(0, 12288))
def test_no_bytes_in_the_file_are_an_error_of_ours(edits: list[tuple[int, bytes]], size: int) -> None:
    key, data = whole_file()
    changed = bytearray(data)
    for at, piece in edits:
        changed[at : at + len(piece)] = piece
    with TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder:
        path = Path(folder) / "keys.db"
        path.write_bytes(data)
        running = ClientKeys(SqliteKeyStore(path), clock=Clock())
        path.write_bytes(bytes(changed)[:size])
        for known in (running, ClientKeys(SqliteKeyStore(path), needed=True, clock=Clock())):
            found = known.check(key)
            assert found is None or found.id == key.split("-")[1]
            assert known.check("dk-aaaaaaaa-" + "A" * 43) is None
            assert known.needed


@pytest.mark.parametrize("value", ODD_VALUES)
@pytest.mark.parametrize(
    "column", ["digest", "name", "admin", "created", "revoked", "team", "granted", "expires", "old_until"]
)
def test_no_value_in_the_table_is_an_error_of_ours(column: str, value: str, store: SqliteKeyStore) -> None:
    key = store.new("a", admin=False)
    with closing(sqlite3.connect(store.path)) as db:
        try:
            db.execute(f"update keys set {column} = {value}")  # noqa: S608  # of this test
        except sqlite3.IntegrityError:
            return
        db.commit()
    known = ClientKeys(store, clock=Clock())
    found = known.check(key)
    assert found is None or found.id == key.split("-")[1]


@pytest.mark.parametrize(
    "change", ["delete from install", "update install set pepper = ''", "insert into install values (1)"]
)
def test_a_store_without_its_pepper_is_none(change: str, store: SqliteKeyStore) -> None:
    key = store.new("a", admin=False)
    running = ClientKeys(store, clock=Clock())
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(change)
        db.commit()
    assert running.check(key), "the last good copy holds"
    assert "the pepper is missing" in ClientKeys(store).away
