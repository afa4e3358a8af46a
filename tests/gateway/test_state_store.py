"""State that the gateway keeps: over a restart, for its owner only, and no more than there is room for."""

import os
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.process.startup import SECRET_VARIABLE, read_secret
from dragoman.gateway.stores.reasoning_state import SqliteStateStore


def test_it_outlives_a_restart_and_knows_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state" / "responses.db"
    store = SqliteStateStore(path, 10)
    assert store.is_empty()
    store.put("alice", "k", b"state")
    store.close()
    again = SqliteStateStore(path, 10)
    assert not again.is_empty()
    assert again.get("alice", ["k", "other"]) == {"k": b"state"}
    assert again.get("bob", ["k"]) == {}
    again.close()
    assert path.stat().st_mode & 0o077 == 0


def test_another_process_is_noticed(tmp_path: Path) -> None:
    now = [0.0]
    here, there = (SqliteStateStore(tmp_path / "s.db", 10, clock=lambda: now[0]) for _ in range(2))
    assert here.is_empty()
    there.put("alice", "k", b"state")
    now[0] = 2.0
    assert not here.is_empty()
    here.close()
    there.close()


def test_the_oldest_go_first_when_there_is_no_room() -> None:
    store = SqliteStateStore(None, 2)
    for key in ("a", "b", "c"):
        store.put("alice", key, b"state")
    assert len(store.get("alice", ["a", "b", "c"])) == 2
    store.close()


def test_a_folder_that_cannot_be_made_costs_the_state_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SqliteStateStore(tmp_path / "file" / "s.db", 10)
    store.put("alice", "k", b"state")
    assert store.get("alice", ["k"]) == {}


def test_the_secret_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = read_secret("", tmp_path / "home", {})
    assert read_secret("", tmp_path / "home", {}) == first
    assert (tmp_path / "home" / "state.key").stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path / "home") == ["state.key"]


def test_a_secret_that_is_said_is_shared_by_all_machines(tmp_path: Path) -> None:
    assert read_secret("", tmp_path, {SECRET_VARIABLE: "sixteen letters."}) == b"sixteen letters."
    assert read_secret("the one of the file", tmp_path, {SECRET_VARIABLE: "sixteen letters."}) == b"the one of the file"
    with pytest.raises(ConfigError):
        read_secret("short", tmp_path, {})
