"""Keys, files, reloads and restarts in any order: no request without a good key passes on a public socket.

The machine runs the real key store, the real reload and the real check of a request, without a socket. The last test
puts back what was wrong once, and the machine must notice.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dragoman.accounts.grants import NO_GRANT, make_holder
from dragoman.errors import ConfigError, UpstreamError
from dragoman.gateway.access import client_keys
from dragoman.gateway.access.auth import Access, find_key
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.process import reload, startup
from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, settle
from dragoman.gateway.routes.table import AccessClass
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores import sqlite_keys as key_store
from dragoman.gateway.stores.keys import KeyTable
from dragoman.gateway.stores.sqlite_keys import FILE, SqliteKeyStore, open_key_store
from dragoman.gateway.telemetry.log import Log
from tests.gateway.house import state

LITERALS = ("the-first-key-of-all", "the-second-key-of-all")
ANYWHERE, HERE = "0.0.0.0", "127.0.0.1"  # noqa: S104
PROVIDER = '[providers.a]\nkind = "demo"\nmodels = ["one"]\n'
MEMORY = "/dev/shm"  # noqa: S108  # no disk to wait for
PATH = "/v1/chat/completions"

hosts = st.sampled_from(["", f'host = "{HERE}"\n', f'host = "{ANYWHERE}"\n'])
key_lists = st.sampled_from([None, (), LITERALS[:1], LITERALS[1:], LITERALS, LITERALS[::-1]])
providers = st.sampled_from([PROVIDER, PROVIDER, PROVIDER, "", "[providers]\n", "demo = true\n"])
damages = st.sampled_from(["vanish", "empty", "cut", "garbage"])


def write_config(host: str, keys: tuple[str, ...] | None, provider: str) -> str:
    said = "" if keys is None else f"client_keys = {list(keys)}\n".replace("'", '"')
    return "# a file\n" + host + said + provider


def id_of(key: str) -> str:
    return key.split("-")[1]


class AccessModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(dir=MEMORY if os.path.isdir(MEMORY) else None))
        self.file, self.env = self.folder / "dragoman.toml", state(self.folder)
        self.options = ServeOptions(config=self.file)
        self.good: set[str] = set()  # keys of the store that must pass
        self.dead: set[str] = set()  # all other keys that ever were in it
        self.literal: set[str] = set()  # keys of the configuration that was taken last
        self.on_disk: set[str] = set()  # keys of the file as it is
        self.strict = False  # whether a request was ever turned away
        self.whole = b""  # the store before it was damaged; b"" while it is whole
        self.owners: dict[str, str] = {}  # owner -> key
        self.changes = 0  # of the store

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def store(self) -> SqliteKeyStore:
        return open_key_store(self.folder)

    def changed(self) -> None:
        """Gives the store a time of its own: two changes in one tick of the disk's clock would look the same."""
        self.changes += 1
        if (self.folder / FILE).exists():
            os.utime(self.folder / FILE, ns=(self.changes, self.changes))

    # ---- the process

    @initialize(public=st.booleans(), keys=key_lists, stored=st.integers(0, 2))
    def start(self, public: bool, keys: tuple[str, ...] | None, stored: int) -> None:
        self.public = public
        for _ in range(stored):
            self.make_key()
        self.file.write_text(write_config("", keys, PROVIDER))
        self.literal = self.on_disk = set(keys or ())
        if public and not stored and not keys:
            with pytest.raises(ConfigError, match="without client keys"):
                self._start()
            self.make_key()
        self._start()

    def _start(self) -> None:
        said = settle(self.options, self.env)
        access = make_access(said, self.env, ANYWHERE if self.public else HERE)
        check_exposure(said, access)
        self._serve(said, access)
        self.parent = reload.LastGood(self.options, self.env, said, access)

    def _serve(self, said: Settings, access: Access) -> None:
        self.gateway = Gateway(said, access, log=Log())
        self.app = App(self.gateway)

    @rule(host=hosts, keys=key_lists, provider=providers)
    def read_again(self, host: str, keys: tuple[str, ...] | None, provider: str) -> None:
        self.file.write_text(write_config(host, keys, provider))
        self.on_disk = set(keys or ())
        if reload.reload(self.gateway, self.options, self.env):
            assert "demo" in provider, "it was taken, so it says what it serves"
            assert keys is not None or not self.literal, "it was taken, so it says that it has no keys"
            self.literal = self.on_disk
            self.parent.follow()

    @rule(text=st.sampled_from(["", "[providers", "# nothing\n", None]))
    def read_junk(self, text: str | None) -> None:
        if text is None:
            self.file.unlink(missing_ok=True)
        else:
            self.file.write_text(text)
        self.on_disk = self.literal
        assert not reload.reload(self.gateway, self.options, self.env)

    @rule()
    def replace_worker(self) -> None:
        self._serve(*self.parent.for_new_process())
        found = set(self.gateway.now.settings.client_keys)
        assert found in (self.literal, self.on_disk), "what another worker has dropped does not come back"
        self.literal = found
        if self.whole:  # it cannot know which keys are still good
            self.dead, self.good = self.dead | self.good, set()

    # ---- the store

    @precondition(lambda self: not self.whole or not (self.folder / FILE).exists())
    @rule()
    def make_key(self) -> None:
        if self.whole:  # the old store is gone: this makes another one
            self.dead, self.good, self.whole = self.dead | self.good, set(), b""
        self.good.add(self.store.new("a", admin=False))
        self.changed()

    @precondition(lambda self: self.good and not self.whole)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.good)))
        assert self.store.revoke(id_of(key))
        self.good.remove(key)
        self.dead.add(key)
        self.changed()

    @precondition(lambda self: not self.whole and (self.folder / FILE).exists())
    @rule(how=damages)
    def damage(self, how: str) -> None:
        path = self.folder / FILE
        self.whole = path.read_bytes()
        if how == "vanish":
            path.unlink()
        else:
            path.write_bytes({"empty": b"", "cut": self.whole[:5000], "garbage": b"x" * 9000}[how])
        self.changed()

    @precondition(lambda self: self.whole)
    @rule()
    def mend(self) -> None:
        (self.folder / FILE).write_bytes(self.whole)
        self.whole = b""
        table = self.store.read()
        assert table is not None
        alive = {row.id for row in table.rows if not row.revoked}
        self.good = {key for key in self.dead | self.good if id_of(key) in alive}
        self.dead -= self.good
        self.changed()

    # ---- what must hold

    def ask(self, key: str | None) -> str | None:
        """The owner that a request passes as; None if it is turned away."""
        headers = {"host": "localhost"} | ({"x-api-key": key} if key is not None else {})
        http = HttpRequest("POST", PATH, headers=headers, client="10.1.2.3")
        try:
            self.app._judge(http, self.app.table.find("POST", PATH))
        except UpstreamError as refusal:
            return None if refusal.failure.status in (401, 429) else "an error"
        return http.key_id

    @invariant()
    def without_a_key_nothing_passes_on_a_public_socket(self) -> None:
        passed = self.ask(None) is not None
        assert not (passed and self.public)
        assert not (passed and self.strict), "it becomes no less strict"
        self.strict = not passed

    @invariant()
    def no_bad_key_passes(self) -> None:
        bad = [*self.dead, *(set(LITERALS) - self.literal), "dk-aaaaaaaa-" + "A" * 43, "", "x" * 40]
        assert not self.strict or [key for key in bad if self.ask(key) is not None] == []

    @invariant()
    def every_good_key_passes_as_itself(self) -> None:
        for key in self.good | self.literal:
            owner = self.ask(key)
            assert owner is not None, "also while the store is damaged"
            assert not owner or self.owners.setdefault(owner, key) == key, "and not as another one"


QUICK = settings(
    max_examples=20, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the store is a second after the last, and file times are exact."""
    monkeypatch.setattr(client_keys, "REFRESH_S", 0.0)
    monkeypatch.setattr(key_store, "SETTLED_S", -1.0)


def test_no_order_of_events_lets_a_request_pass_without_a_good_key() -> None:
    run_state_machine_as_test(AccessModel, settings=QUICK)


# ---------------------------------------------------------------- what was wrong once


def count_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys are needed as long as there are some."""

    def admit(self: Access, http: HttpRequest, access: AccessClass) -> tuple[int, str] | None:
        found = self.keys.check(find_key(http) or "")
        return None if found or not self.keys.any_good else (401, "no valid key")

    patch.setattr(Access, "admit", admit)


def believe_the_words(patch: pytest.MonkeyPatch) -> None:
    """A reload judges the new configuration, not the socket."""

    def renew(old: Access, new: Settings, *, forget: bool = False) -> Access:
        public = startup.is_public(new.host)
        return startup._fill_access(new, ClientKeys(old.keys.store, new.client_keys, needed=public), public=public)

    patch.setattr(reload, "renew_access", renew)


def own_by_place(patch: pytest.MonkeyPatch) -> None:
    """A key of the configuration is known by its place."""
    take = ClientKeys._take

    def number(self: ClientKeys, table: KeyTable) -> None:
        take(self, table)
        holders = [make_holder(f"config-{i}", "", NO_GRANT) for i, _ in enumerate(self._literal)]
        self._owners = {table.digest(key.secret): (holders[i], None) for i, key in enumerate(self._literal)}

    patch.setattr(ClientKeys, "_take", number)


def take_everything(patch: pytest.MonkeyPatch) -> None:
    """A file that says nothing replaces one that says something."""
    patch.setattr(reload, "check_drops", lambda old, new: None)


def lose_the_copy(patch: pytest.MonkeyPatch) -> None:
    """A store that cannot be read is one without keys."""

    def forget(self: ClientKeys, store: Any, why: str) -> None:
        self._take(KeyTable(pepper=self._table.pepper))

    patch.setattr(ClientKeys, "_be_without", forget)


def stay_at_the_start(patch: pytest.MonkeyPatch) -> None:
    """A new worker falls back to the configuration of the start."""
    patch.setattr(reload.LastGood, "follow", lambda self: None)


FAULTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    count_keys,
    believe_the_words,
    own_by_place,
    take_everything,
    lose_the_copy,
    stay_at_the_start,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_notices(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    found = settings(QUICK, max_examples=200, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(AccessModel, settings=found)
