"""Logging in: an admin key for a cookie that scripts cannot read, that ends, and that ends with its key."""

from pathlib import Path

import httpx2
import pytest

from dragoman.accounts.grants import Grant
from dragoman.gateway.access.sessions import COOKIE, LAST_S, Sessions
from dragoman.gateway.routes import console
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import House, open_house
from tests.gateway.web import Got, get, post, send
from tests.waiting import NEVER_S


def test_a_session_is_found_until_it_ends() -> None:
    now = 1000.0
    sessions = Sessions(b"secret", lambda: now)
    cookie = sessions.open("abcd1234", "d1", secure=False)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert sessions.find(f"other=1; {cookie}", lambda _: ["d1"]) == "abcd1234"
    assert Sessions(b"another", lambda: now).find(cookie, lambda _: ["d1"]) is None
    now += LAST_S
    assert sessions.find(cookie, lambda _: ["d1"]) is None


@pytest.mark.parametrize(("digests", "found"), [(["d1"], True), (["d2", "d1"], True), (["d2"], False), ([], False)])
def test_a_session_ends_with_the_secret_that_opened_it(digests: list[str], found: bool) -> None:
    sessions = Sessions(b"secret", lambda: 1.0)
    cookie = sessions.open("abcd1234", "d1", secure=False)
    assert (sessions.find(cookie, lambda _: digests) is not None) == found


@pytest.mark.parametrize("bend", [("abcd1234", "zzzz9999"), (".4", ".9"), ("=", "=x"), (COOKIE, "other")])
def test_a_changed_cookie_is_no_session(bend: tuple[str, str]) -> None:
    sessions = Sessions(b"secret", lambda: 1.0)
    cookie = sessions.open("abcd1234", "d1", secure=True)
    assert sessions.find(cookie.replace(*bend, 1), lambda _: ["d1"]) is None


def test_a_second_cookie_with_our_name_hides_no_session() -> None:
    """Cookies know no ports: another program of this host can set one for a longer path, which comes first."""
    sessions = Sessions(b"secret", lambda: 1.0)
    cookie = sessions.open("abcd1234", "d1", secure=False).partition(";")[0]
    for first in (f"{COOKIE}=x", f"{COOKIE}=x.1.2; a=b", f"{COOKIE}={'y' * 200};{COOKIE}=z"):
        assert sessions.find(f"{first}; {cookie}", lambda _: ["d1"]) == "abcd1234"
    assert sessions.find(f"{COOKIE}=x; " * 100_000 + cookie, lambda _: ["d1"]) is None


def login(house: House, key: str) -> Got:
    return post(house.url, "/console/session", {"key": key})


def test_an_admin_key_opens_the_console_until_it_is_revoked(tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    admin, client = store.new("root", admin=True), store.new("ada")
    with open_house(keys=store) as house:
        assert login(house, client).status == 403
        assert login(house, "dka-wrong").status == 401
        got = login(house, admin)
        cookie = {"cookie": got.headers["set-cookie"].partition(";")[0]}
        assert got.status == 200
        assert admin not in got.headers["set-cookie"]
        assert get(house.url, "/admin/v1/traffic", cookie).status == 200
        asked = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
        assert post(house.url, "/v1/chat/completions", asked, cookie).status == 200, "for the playground"
        neighbour = {**cookie, "sec-fetch-site": "same-site"}
        assert get(house.url, "/admin/v1/traffic", neighbour).status == 401, "a page of another port of this host"
        assert get(house.url, "/admin/v1/traffic", {**cookie, "sec-fetch-site": "same-origin"}).status == 200
        foreign = {**cookie, "origin": "http://evil.example"}
        assert post(house.url, "/v1/chat/completions", asked, foreign).status == 403
        store.revoke(admin.split("-")[1])
        house.gateway.now.access.keys._looked = -10.0  # the copy is looked at once a second
        assert get(house.url, "/admin/v1/traffic", cookie).status == 401


@pytest.mark.parametrize("grace_s", [0.0, 3600.0])
def test_a_new_secret_ends_the_sessions_of_the_old_one(tmp_path: Path, grace_s: float) -> None:
    """A key is rotated because it may be known to others: a browser that showed it is one of them."""
    store = SqliteKeyStore(tmp_path / "keys.db")
    admin = store.new("root", admin=True)
    with open_house(keys=store) as house:
        cookie = {"cookie": login(house, admin).headers["set-cookie"].partition(";")[0]}
        fresh = store.rotate(admin.split("-")[1], grace_s)
        house.gateway.now.access.keys.look_again()
        assert get(house.url, "/admin/v1/traffic", cookie).status == (200 if grace_s else 401)
        cookie = {"cookie": login(house, fresh or "").headers["set-cookie"].partition(";")[0]}
        assert get(house.url, "/admin/v1/traffic", cookie).status == 200


@pytest.mark.parametrize("way", ["key", "session"])
def test_live_traffic_ends_with_the_key(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has no end of its own: it would tell about every request for as long as the process runs."""
    monkeypatch.setattr(console, "SILENCE_S", 0.02)
    store = SqliteKeyStore(tmp_path / "keys.db")
    admin = store.new("root", admin=True)
    with open_house(keys=store) as house:
        headers = {"authorization": f"Bearer {admin}"}
        if way == "session":
            headers = {"cookie": login(house, admin).headers["set-cookie"].partition(";")[0]}
        with httpx2.stream("GET", f"{house.url}/admin/v1/traffic/live", headers=headers, timeout=NEVER_S) as live:
            lines = live.iter_lines()
            assert next(lines) == ": hello"
            store.revoke(admin.split("-")[1])
            house.gateway.now.access.keys.look_again()
            for _ in lines:
                pass  # to its end


def test_the_login_reads_only_a_few_bytes(tmp_path: Path) -> None:
    """Login is the one route that reads a body before it has seen a key."""
    store = SqliteKeyStore(tmp_path / "keys.db")
    store.new("root", admin=True)
    with open_house(keys=store) as house:
        assert login(house, "x" * 10_000).status == 401
        assert login(house, "x" * 20_000).status == 413


def test_a_read_only_key_sees_everything_and_changes_nothing(tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    viewer = store.new("eve", admin=True, grant=Grant(read_only=True))
    with open_house(keys=store, store_path=tmp_path / "responses.db", xray_keep=5) as house:
        cookie = {"cookie": login(house, viewer).headers["set-cookie"].partition(";")[0]}
        for who in (cookie, {"authorization": f"Bearer {viewer}"}):
            for path in ("/admin/v1/traffic", "/admin/v1/keys", "/admin/v1/config", "/admin/v1/xray", "/metrics"):
                assert get(house.url, path, who).status == 200, path
            assert post(house.url, "/admin/v1/translate", {"text": "x"}, who).status == 400, "it may ask"
            assert post(house.url, "/admin/v1/keys", {"name": "more"}, who).status == 403
            assert post(house.url, "/admin/v1/config", {"text": "", "digest": ""}, who).status == 403
            assert post(house.url, "/admin/v1/replay", {"id": "x", "model": "demo"}, who).status == 403
            assert post(house.url, "/admin/v1/verify", {}, who).status == 403
            assert send(house.url, "DELETE", f"/admin/v1/keys/{viewer.split('-')[1]}", headers=who).status == 403
        asked = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
        assert post(house.url, "/v1/chat/completions", asked, cookie).status == 403
        me = get(house.url, "/console/session", cookie).json
        assert (me["open"], me["name"], me["read_only"]) == (True, "eve", True)


def test_the_page_can_ask_who_it_is_without_an_error(tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    store.new("root", admin=True)
    with open_house(keys=store) as house:
        for _ in range(50):
            assert get(house.url, "/console/session").json["open"] is False
        assert login(house, "dka-wrong").status == 401, "asking does not count as a wrong key"
    with open_house() as house:
        assert get(house.url, "/console/session").json["open"] is True
