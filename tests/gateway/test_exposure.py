"""A gateway that other machines can reach lets nobody in without a good key, whatever happens to its keys and files."""

import json
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.mcp_loop import servers_of
from dragoman.gateway.process import reload as reload_module
from dragoman.gateway.process.reload import LastGood, reload
from dragoman.gateway.process.startup import ServeOptions, check_exposure, is_public, make_access, settle
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.sqlite_keys import FILE, open_key_store
from dragoman.gateway.telemetry.log import Log
from tests.gateway.house import open_house, state
from tests.gateway.test_reload import CHAT, GOOD, HI, Process
from tests.gateway.test_reload import gateway as running_gateway
from tests.gateway.web import get, post
from tests.waiting import wait_until

A, B = "the-first-key-of-all", "the-second-key-of-all"
ANYWHERE = "0.0.0.0"  # noqa: S104
KEYED = f'client_keys = ["{A}"]\n' + GOOD.format("one")


def ask(process: Process, key: str = "") -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return post(process.url, CHAT, {"model": "a/one", "messages": HI}, headers).status


def test_revoking_the_last_key_and_losing_the_file_opens_nothing(tmp_path: Path) -> None:
    store = open_key_store(tmp_path)
    key = store.new("a", admin=False)
    with running_gateway(tmp_path, "--host", ANYWHERE) as process:
        assert (ask(process, key), ask(process)) == (200, 401)
        store.revoke(key.split("-")[1])
        wait_until(lambda: ask(process, key) in (401, 429))
        assert ask(process) in (401, 429)
        (tmp_path / FILE).unlink()
        wait_until(lambda: ask(process, key) in (401, 429) and bool(process.events("keys_not_read")))
        assert {ask(process), ask(process, key)} <= {401, 429}
        assert post(process.url, "/v1/responses", {"model": "a/one", "input": "hi"}).status in (401, 429)
        again = open_key_store(tmp_path).new("b", admin=False)
        wait_until(lambda: ask(process, again) == 200)


def test_a_reload_does_not_open_a_socket_that_others_can_reach(tmp_path: Path) -> None:
    with running_gateway(tmp_path, text=f'host = "{ANYWHERE}"\n' + KEYED) as process:
        assert (ask(process, A), ask(process)) == (200, 401)
        for number, text in enumerate(("", "client_keys = []\n"), 1):
            process.file.write_text('host = "127.0.0.1"\n' + text + GOOD.format("one"))
            process.hang_up()
            wait_until(lambda number=number: len(process.events("config_rejected")) == number)  # type: ignore[misc]
            assert (ask(process, A), ask(process)) == (200, 401)
        other = open_key_store(tmp_path).new("b", admin=False)
        process.hang_up()
        wait_until(lambda: bool(process.events("config_loaded")))
        assert (ask(process, other), ask(process), ask(process, A)) == (200, 401, 401)


# ---------------------------------------------------------------- without a server


class Reloading:
    """A gateway without a socket, and the file it reads again."""

    def __init__(self, folder: Path, text: str, bound: str = "127.0.0.1") -> None:
        self.file, self.env = folder / "dragoman.toml", state(folder)
        self.file.write_text(text)
        self.options = ServeOptions(config=self.file)
        settings = settle(self.options, self.env)
        self.gateway = Gateway(settings, make_access(settings, self.env, bound), log=Log())
        self.app = App(self.gateway)

    def reload(self, text: str) -> bool:
        self.file.write_text(text)
        return reload(self.gateway, self.options, self.env)


SAYS_NOTHING = {
    "a comment": "# later\n",
    "no provider": "[providers]\n",
    "another setting": "grace_s = 5\n",
    "only keys": f'client_keys = ["{A}"]\n',
}


@pytest.mark.parametrize("what", SAYS_NOTHING)
def test_a_file_that_says_nothing_replaces_no_providers(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = Reloading(tmp_path, KEYED)
    assert not house.reload(SAYS_NOTHING[what])
    assert "providers: none is left; if that is intended, write `demo = true`" in caplog.text
    assert list(house.gateway.now.models) == ["one"]
    assert house.reload(f'demo = true\nclient_keys = ["{A}"]\n'), "a file may say so itself"


def test_a_file_without_keys_replaces_none_with_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = Reloading(tmp_path, KEYED)
    assert not house.reload(GOOD.format("two"))
    assert "client_keys: none is left; if that is intended, write `client_keys = []`" in caplog.text
    assert house.gateway.now.access.keys.check(A)
    assert house.reload("client_keys = []\n" + GOOD.format("two"))
    assert house.gateway.now.access.keys.needed, "while it runs, keys stay needed"
    assert house.gateway.now.access.keys.check(A) is None
    assert "config_needs_a_restart" in caplog.text


def test_a_file_that_vanished_is_not_replaced_by_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = Reloading(tmp_path, KEYED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"providers": {"b": {"kind": "demo"}}, "client_keys": [B]}))
    house.options.config = None  # it was found, not named
    house.file.unlink()
    assert not reload(house.gateway, house.options, house.env)
    assert list(house.gateway.now.models) == ["one"]


def test_wrong_keys_are_counted_on_after_a_reload(tmp_path: Path) -> None:
    house = Reloading(tmp_path, KEYED)
    for _ in range(20):
        house.gateway.now.access._too_many("1.2.3.4")
    assert house.reload(KEYED + "\n")
    assert house.gateway.now.access._too_many("1.2.3.4")


PUBLIC: dict[str, bool] = {
    "127.0.0.1": False,
    "127.0.0.2": False,
    "localhost": False,
    "::1": False,
    "[::1]": False,
    ANYWHERE: True,
    "::": True,
    "": True,
    "10.0.0.5": True,
    "fe80::1%eth0": True,
    "gateway.example": True,
}


@pytest.mark.parametrize("host", PUBLIC)
def test_which_addresses_others_can_reach(host: str) -> None:
    assert is_public(host) is PUBLIC[host]


def test_what_is_bound_counts_and_not_what_is_said(tmp_path: Path) -> None:
    env = state(tmp_path)
    for said, bound in (("localhost", "10.0.0.5"), (ANYWHERE, "127.0.0.1")):
        access = make_access(Settings(host=said), env, bound)
        assert access.public
        assert access.keys.needed
        with pytest.raises(ConfigError, match="without client keys"):
            check_exposure(Settings(host=said), access)
    assert not make_access(Settings(), env, "127.0.0.1").public


def test_servers_of_this_machine_stay_closed_to_a_public_gateway(tmp_path: Path) -> None:
    house = Reloading(tmp_path, f'host = "{ANYWHERE}"\n' + KEYED, bound=ANYWHERE)
    assert house.reload('host = "127.0.0.1"\n' + KEYED)
    assert servers_of(house.gateway).allow_private is False


def test_health_and_metrics_say_that_the_keys_are_a_copy(tmp_path: Path) -> None:
    store = open_key_store(tmp_path)
    key, admin = store.new("a", admin=False), store.new("b", admin=True)
    with open_house(keys=store) as house:
        assert get(house.url, "/health", {"x-api-key": key}).json["keys"] == {"needed": True, "store": "ok"}
        assert "dragoman_keys_not_read 0" in get(house.url, "/metrics", {"x-api-key": admin}).text
        store.path.unlink()
        house.gateway.now.access.keys._read()
        assert get(house.url, "/health", {"x-api-key": key}).json["keys"]["store"] == "it has vanished"
        assert "dragoman_keys_not_read 1" in get(house.url, "/metrics", {"x-api-key": admin}).text


def test_a_file_with_an_error_of_any_kind_stops_no_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = Reloading(tmp_path, KEYED)
    now = house.gateway.now
    parent = LastGood(house.options, house.env, now.settings, now.access)
    monkeypatch.setattr(reload_module, "settle", lambda *_: 1 / 0)
    parent.follow()
    assert parent.for_new_process()[0] is now.settings


def test_a_worker_that_replaces_another_is_no_more_open(tmp_path: Path) -> None:
    store = open_key_store(tmp_path)
    key = store.new("a", admin=False)
    house = Reloading(tmp_path, KEYED, bound=ANYWHERE)
    parent = LastGood(house.options, house.env, house.gateway.now.settings, house.gateway.now.access)
    assert parent.for_new_process()[1].keys.check(key)
    house.file.write_text(f'client_keys = ["{B}"]\n' + GOOD.format("two"))
    parent.follow()
    store.revoke(key.split("-")[1])
    (tmp_path / FILE).unlink()
    house.file.write_text("# nothing\n")
    settings, access = parent.for_new_process()
    assert access.public
    assert access.keys.check(key) is None, "a new process cannot know that it is still good"
    assert access.keys.check(A) is None, "it was taken out by a reload"
    assert access.keys.check(B)
    assert settings.upstreams[0].models == ("two",)
