"""Servers that want a key: static ones, tokens in a file, OAuth; each goes to its own server and nowhere else (T22)."""

import asyncio
import contextlib
import http.client
import json
import logging
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman.errors import ConfigError
from dragoman.mcp.oauth import TokenFile
from dragoman.mcp.spec import ServerSpec, read_spec
from tests.mcp.servers import House, spec, words
from tests.mcp.web_server import Authority, Site, authority, mcp, site, wants
from tests.ports import free_port
from tests.waiting import NEVER_S, until_said


class Browser:
    """A person who agrees to everything: opens the page and follows where it leads."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.answers: list[int] = []

    def say(self, url: str) -> None:
        self.opened.append(url)
        threading.Thread(target=self._open, args=(url,), daemon=True).start()

    def _open(self, url: str) -> None:
        status, there = self._get(url)
        assert status == 302
        origin = there.partition("?")[0]
        self.answers.append(self._get(origin + "?code=stolen&state=wrong")[0])  # another caller comes first
        self.answers.append(self._get(there)[0])

    def _get(self, url: str) -> tuple[int, str]:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=NEVER_S)
        with contextlib.closing(connection):
            connection.request("GET", f"{place.path}?{place.query}")
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader("location") or ""


@pytest.fixture
def court() -> Iterator[tuple[Authority, Site]]:
    """An authorization server and a server that believes it."""
    with ExitStack() as stack:
        judge = stack.enter_context(authority())
        server = stack.enter_context(site())
        server.scripts = [judge.protects(server.url), wants(judge.accepts), mcp]
        yield judge, server


def login(house: House, name: str, port: int) -> tuple[str, Browser]:
    from dragoman.mcp.oauth import BrowserLogin

    browser = Browser()

    async def run() -> str:
        async with BrowserLogin(port, browser.say) as person:
            return await house.servers.login(name, person.show_page, person.await_code, 5.0)

    return asyncio.run(run()), browser


class Called:
    """What came of a call of `ours.work`, in a process of its own so to speak."""

    def __init__(self, folder: Path, *specs: ServerSpec) -> None:
        asyncio.run(self._run(folder, specs))

    async def _run(self, folder: Path, specs: tuple[ServerSpec, ...]) -> None:
        async with House(folder, *specs) as house:
            self.said = words(await house.call("ours.work"))
            self.errors = {row["name"]: row["last_error"] or "" for row in house.servers.describe()}
            self.reports = house.reports


async def call_until_done(house: House) -> str:
    """A server that failed is tried again after a pause, and is not waited for."""
    return words(await until_said(lambda: house.call("ours.work"), lambda result: words(result) == "done"))


def keys_seen(server: Site) -> set[str]:
    return {seen.headers["authorization"] for seen in server.seen if "authorization" in seen.headers}


# ---------------------------------------------------------------- keys that are given


KEYS: list[dict[str, Any]] = [
    {"headers": {"Authorization": "Bearer k-canary"}},
    {"headers": {"authorization": "Bearer ${OUR_KEY}"}},
    {"bearer": "k-canary"},
    {"bearer": "${OUR_KEY}"},
    {"token_file": "FILE"},
]
OTHERS = [{"bearer": "${env:OUR_KEY}"}, {"bearer": "${NO_SUCH_KEY:-k-canary}"}]  # as mcp.json of other programs has it


@pytest.mark.parametrize(
    ("place", "row"), [*(("file", row) for row in KEYS), *(("registry", row) for row in (*KEYS, *OTHERS))]
)
def test_a_key_of_its_own_goes_with_every_request(
    row: dict[str, Any], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "k-canary")
    (tmp_path / "token").write_text("k-canary\n")
    row = {key: str(tmp_path / "token") if value == "FILE" else value for key, value in row.items()}
    with site(wants(lambda header: header == "Bearer k-canary"), mcp) as server:
        entry = {"url": f"{server.url}/mcp", **row}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"ours": entry}}))
        if place == "registry":
            called = Called(tmp_path)
        else:
            (tmp_path / "dragoman.toml").write_text("demo = true\n" + write_toml(entry))
            from dragoman.gateway.config.load import load_settings

            settings = load_settings(tmp_path / "dragoman.toml", {"OUR_KEY": "k-canary"})
            (tmp_path / "mcp.json").unlink()
            called = Called(tmp_path, settings.mcp.servers["ours"])
        assert called.said == "done"
        assert keys_seen(server) == {"Bearer k-canary"}


def write_toml(entry: dict[str, Any]) -> str:
    rows = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if isinstance(value, str)]
    tables = [
        f"{key} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
        for key, value in entry.items()
        if isinstance(value, dict)
    ]
    return "\n".join(["[mcp.servers.ours]", *rows, *tables])


def test_a_variable_that_is_not_set_disables_one_server_only(tmp_path: Path) -> None:
    with site(mcp) as server:
        rows = {"ours": {"url": f"{server.url}/mcp"}, "odd": {"url": f"{server.url}/mcp", "bearer": "${NO_SUCH_KEY}"}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": rows}))
        called = Called(tmp_path)
        assert called.said == "done"
        assert called.errors["odd"] == "${NO_SUCH_KEY} is not set"


def test_a_variable_in_an_address_is_never_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that adds an address must not be able to read our environment. (T32)"""
    monkeypatch.setenv("OUR_KEY", "k-canary")
    with site() as server:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"ours": {"url": server.url + "/${OUR_KEY}"}}}))
        Called(tmp_path)
        assert server.seen
        assert not [seen for seen in server.seen if "canary" in seen.path]


def test_a_token_file_is_read_for_every_request_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    valid = {"one"}
    with site(wants(lambda header: header.removeprefix("Bearer ") in valid), mcp) as server:
        ours = spec("ours", url=f"{server.url}/mcp", token_file=str(tmp_path / "token"))

        async def run() -> None:
            async with House(tmp_path, ours) as house:
                assert "cannot be read" in words(await house.call("ours.work"))
                (tmp_path / "token").write_text("one")
                assert await call_until_done(house) == "done"
                (tmp_path / "token").write_text("two")
                valid.clear()
                valid.add("two")
                assert words(await house.call("ours.work")) == "done"

        asyncio.run(run())


def test_a_server_that_needs_a_key_says_so(tmp_path: Path) -> None:
    with site(wants(lambda header: False), mcp) as server:
        called = Called(tmp_path, spec("ours", url=f"{server.url}/mcp"))
        assert "401" in called.errors["ours"]


# ---------------------------------------------------------------- as a program: client credentials


def credentials(judge: Authority, server: Site, **more: Any) -> ServerSpec:
    oauth = {"grant": "client_credentials", "client_id": "fixed", "client_secret": "s3cret-canary", "issuer": judge.url}
    return spec("ours", url=f"{server.url}/mcp", oauth={**oauth, **more})


def test_client_credentials_get_a_token_by_themselves(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    assert Called(tmp_path, credentials(judge, server)).said == "done"
    assert judge.grants == ["client_credentials"]
    assert all("s3cret" not in str(seen) for seen in server.seen)


def test_the_secret_goes_to_its_issuer_only(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    with authority() as thief:
        server.scripts[0] = thief.protects(server.url)
        called = Called(tmp_path, credentials(judge, server))
        assert called.errors["ours"]
        assert thief.grants == []
        assert all("s3cret" not in str(seen) for seen in thief.site.seen)


def test_an_echoed_secret_is_not_repeated_in_the_error(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    called = Called(tmp_path, credentials(judge, server, client_secret="s3cret-canary-wrong"))
    error = called.errors["ours"]
    assert "401" in error
    assert "canary" not in error
    assert "canary" not in str(called.reports)


# ---------------------------------------------------------------- as a person


def person(server: Site, **more: Any) -> ServerSpec:
    return spec("ours", url=f"{server.url}/mcp", oauth={"redirect_port": free_port(), **more})


def test_a_gateway_without_a_person_asks_for_a_login(court: tuple[Authority, Site], tmp_path: Path) -> None:
    _, server = court
    called = Called(tmp_path, person(server))
    assert called.errors["ours"] == "it needs a login: dragoman mcp login ours"


def test_a_person_logs_in_once_and_the_token_lasts(
    court: tuple[Authority, Site], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    judge, server = court
    ours = person(server)
    assert ours.oauth is not None
    failed, browser = login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
    assert failed == ""
    assert browser.answers == [400, 200]
    assert Called(tmp_path, ours).said == "done"
    assert judge.grants == ["authorization_code"]
    kept = TokenFile(tmp_path, ours)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700
    assert "canary" in kept.path.read_text()
    assert "canary" not in caplog.text
    elsewhere = read_spec("ours", {"url": "http://127.0.0.1:9/mcp", "oauth": True}, "f", "a")
    assert TokenFile(tmp_path, elsewhere).read() == {}


def test_a_client_id_of_our_own_needs_no_registration(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    ours = person(server, clientId="fixed", scopes=["read", "write"])
    assert ours.oauth is not None
    failed, browser = login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
    assert failed == ""
    assert "client_id=fixed" in browser.opened[0]
    assert not [seen for seen in judge.site.seen if seen.path == "/register"]


@pytest.mark.parametrize("known_end", [True, False], ids=["a known expiry", "an unknown expiry"])
def test_an_expired_token_is_renewed_after_a_restart_at_its_own_server(
    court: tuple[Authority, Site], tmp_path: Path, known_end: bool
) -> None:
    judge, server = court
    judge.expires_in = 3600 if known_end else None
    ours = person(server)
    assert ours.oauth is not None
    login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
    if known_end:
        TokenFile(tmp_path, ours).update(expires_at=1.0)
    judge.valid.clear()
    server.seen.clear()
    assert Called(tmp_path, ours).said == "done"
    assert judge.grants[-1] == "refresh_token"
    if known_end:  # what is known to have ended is not even tried
        assert all(judge.accepts(key) for key in keys_seen(server))
    assert not [seen for seen in server.seen if "refresh-canary" in str(seen)]


def test_a_login_that_has_expired_is_reported(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    ours = person(server)
    assert ours.oauth is not None
    login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
    judge.valid.clear()
    judge.refreshing.clear()
    called = Called(tmp_path, ours)
    error = called.errors["ours"]
    assert "dragoman mcp login ours" in error
    assert "canary" not in error


def test_a_refused_login_is_reported(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    judge.refuse = "access_denied"
    ours = person(server)
    assert ours.oauth is not None
    failed, _ = login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
    assert failed == "the login was refused: access_denied"


def test_a_server_cannot_choose_another_issuer(court: tuple[Authority, Site], tmp_path: Path) -> None:
    judge, server = court
    with authority() as thief:
        server.scripts[0] = thief.protects(server.url)
        ours = person(server, issuer=judge.url)
        assert ours.oauth is not None
        failed, browser = login(House(tmp_path, ours), "ours", ours.oauth.redirect_port)
        assert failed
        assert browser.opened == []


def test_a_running_gateway_uses_new_tokens(court: tuple[Authority, Site], tmp_path: Path) -> None:
    _, server = court
    ours = person(server)
    assert ours.oauth is not None

    async def run() -> None:
        async with House(tmp_path, ours) as house:
            assert "login" in words(await house.call("ours.work"))
            await asyncio.to_thread(login, House(tmp_path, ours), "ours", ours.oauth.redirect_port if ours.oauth else 0)
            assert await call_until_done(house) == "done"
            assert house.servers.logout("ours") is True
            assert house.servers.logout("ours") is False

    asyncio.run(run())


# ---------------------------------------------------------------- the configuration


@pytest.mark.parametrize(
    ("oauth", "key"),
    [
        (3, "oauth"),
        ({"grant": "password"}, "oauth.grant"),
        ({"client_id": 3}, "oauth.client_id"),
        ({"redirect_port": 0}, "oauth.redirect_port"),
        ({"grant": "client_credentials", "client_id": "a", "client_secret": "b"}, "oauth.issuer"),
        ({"grant": "client_credentials", "client_id": "a", "issuer": "https://i"}, "oauth.client_secret"),
        ({"client_auth": "none"}, "oauth.client_auth"),
    ],
)
def test_an_invalid_oauth_entry_names_its_key(oauth: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec("a", {"url": "https://h/mcp", "oauth": oauth}, "mcp.json", "a")
    assert caught.value.key == f"a.{key}"


def test_a_spec_does_not_show_its_secrets() -> None:
    row = {"url": "https://h/mcp", "bearer": "canary", "env": {"A": "canary"}, "oauth": {"client_secret": "canary"}}
    assert "canary" not in repr(read_spec("a", row, "f", "a"))
