"""The key store: parallel writers, killed writers, a stale process, a full disk. Nothing that was said is lost."""

import json
import multiprocessing
import os
import pwd
import resource
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import cli
from dragoman.accounts.grants import Grant
from dragoman.errors import ConfigError
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.stores.sqlite_keys import FILE, OLD_FILE, SqliteKeyStore, open_key_store

FORK = multiprocessing.get_context("fork")
WAIT_S = 30
OLD_FIELDS = ("id", "digest", "name", "admin", "created", "revoked")


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeyStore:
    return SqliteKeyStore(tmp_path / "state" / FILE)


def id_of(key: str) -> str:
    return key.split("-")[1]


def ids(store: SqliteKeyStore) -> set[str]:
    table = store.read()
    return set() if table is None else {row.id for row in table.rows}


def revoked(store: SqliteKeyStore) -> set[str]:
    table = store.read()
    return set() if table is None else {row.id for row in table.rows if row.revoked}


def test_the_audit_log_names_the_user_of_the_process_not_one_a_variable_names(
    store: SqliteKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "mallory")
    store.new(name="ada")
    (row,) = store.read_audit()
    assert row.who == pwd.getpwuid(os.getuid()).pw_name


def in_processes(count: int, work: Callable[[int], str]) -> list[str]:
    """What `work` returns in so many processes that all begin at once."""
    gate = FORK.Barrier(count)
    results: multiprocessing.SimpleQueue[str] = FORK.SimpleQueue()

    def run(number: int) -> None:
        gate.wait(WAIT_S)
        results.put(work(number))

    children = [FORK.Process(target=run, args=(number,)) for number in range(count)]
    for child in children:
        child.start()
    got = [results.get() for _ in children]
    for child in children:
        child.join(WAIT_S)
    return got


def test_twelve_new_keys_at_once_are_twelve_keys(store: SqliteKeyStore) -> None:
    keys = in_processes(12, lambda number: store.new(f"n{number}", admin=False))
    assert ids(store) == {id_of(key) for key in keys}
    known = ClientKeys(store)
    assert all(known.check(key) for key in keys)
    assert [path.name for path in store.path.parent.iterdir()] == [FILE], "no drafts are left"


def test_a_revoked_key_does_not_come_back_with_any_writer(store: SqliteKeyStore) -> None:
    stale = SqliteKeyStore(store.path)
    old = [store.new(str(number), admin=False) for number in range(6)]
    stale.read()

    def work(number: int) -> str:
        if number % 2:
            return str(store.revoke(id_of(old[number // 2])))
        return stale.new("more", admin=False)

    in_processes(6, work)
    assert revoked(store) == {id_of(key) for key in old[:3]}
    assert len(ids(store)) == 9
    assert not store.revoke(id_of(old[0])), "once is enough"
    stale.new("again", admin=False)
    assert revoked(stale) == {id_of(key) for key in old[:3]}


def test_a_killed_writer_loses_nothing_it_has_said(store: SqliteKeyStore) -> None:
    reading, writing = os.pipe()

    def write_for_ever() -> None:
        while True:
            os.write(writing, store.new("a", admin=False).encode() + b"\n")

    child = FORK.Process(target=write_for_ever)
    child.start()
    said = b""
    while said.count(b"\n") < 5:
        said += os.read(reading, 4096)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(WAIT_S)
    os.close(writing)
    while more := os.read(reading, 4096):
        said += more
    os.close(reading)
    printed = {id_of(line.decode()) for line in said.split(b"\n")[:-1]}
    assert printed <= ids(store)
    assert store.new("after", admin=False)


def test_a_disk_that_is_full_says_so_and_keeps_what_was_there(store: SqliteKeyStore) -> None:
    first = store.new("a", admin=False)

    def work(_: int) -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size, resource.RLIM_INFINITY))
        try:
            while True:
                store.new("x" * 100, grant=Grant(models=("m" * 200,) * 25))
        except ConfigError as error:
            return error.why

    assert "cannot be read or written now" in in_processes(1, work)[0]
    assert id_of(first) in ids(store)
    assert id_of(store.new("b", admin=False)) in ids(store)


def test_only_the_owner_can_read_it_and_it_holds_no_key(store: SqliteKeyStore) -> None:
    key = store.new("a", admin=True)
    holder = sqlite3.connect(store.path)
    holder.execute("select * from keys").fetchall()  # while it is open, the log of changes stays beside the file
    store.new("b", admin=False)
    files = list(store.path.parent.iterdir())
    assert len(files) == 3
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []
    assert [file.name for file in files if key.encode() in file.read_bytes()] == []
    assert store.path.parent.stat().st_mode & 0o077 == 0
    holder.close()


# ---------------------------------------------------------------- the file of before


def test_an_old_key_file_is_taken_over_once(tmp_path: Path) -> None:
    source = SqliteKeyStore(tmp_path / "made" / FILE)
    good, gone = source.new("good", admin=False), source.new("gone", admin=True)
    source.revoke(id_of(gone))
    table = source.read()
    assert table is not None
    rows = [{name: getattr(row, name) for name in OLD_FIELDS} for row in table.rows]
    (tmp_path / OLD_FILE).write_text(json.dumps({"pepper": table.pepper, "keys": rows}))

    known = ClientKeys(open_key_store(tmp_path))
    found = known.check(good)
    assert found is not None
    assert found.id == id_of(good)
    assert known.check(gone) is None
    assert not (tmp_path / OLD_FILE).exists()
    assert (tmp_path / f"{OLD_FILE}.imported").exists()
    (tmp_path / OLD_FILE).write_text(json.dumps({"pepper": "other", "keys": []}))
    assert ids(open_key_store(tmp_path)) == {id_of(good), id_of(gone)}, "a second one is not"


def test_an_old_key_file_that_is_none_is_said_and_kept(tmp_path: Path) -> None:
    (tmp_path / OLD_FILE).write_text('{"pepper": "x", "ke')
    with pytest.raises(ConfigError, match=r"keys\.json: is no key file"):
        open_key_store(tmp_path)
    assert (tmp_path / OLD_FILE).exists()


# ---------------------------------------------------------------- on the command line


def test_a_folder_that_cannot_be_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "file" / "state"))
    assert cli.main(["keys", "new"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "cannot be made" in printed.err
    assert cli.main(["keys", "list"]) == 0
    assert cli.main(["keys", "revoke", "x"]) == 1


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"no database at all, but longer than a header" * 50])
def test_a_file_that_is_no_store_is_said_and_never_written_over(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    (tmp_path / FILE).write_bytes(content)
    for words in (["new"], ["list"], ["revoke", "x"]):
        assert cli.main(["keys", *words]) == 1, words
        printed = capsys.readouterr()
        assert printed.out == ""
        assert str(tmp_path / FILE) in printed.err
    assert (tmp_path / FILE).read_bytes() == content
