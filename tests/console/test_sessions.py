"""Logging in: an admin key for a cookie that scripts cannot read, that ends, and that ends with its key."""

from pathlib import Path

import pytest

from dragoman.gateway.access.sessions import COOKIE, LAST_S, Sessions
from dragoman.gateway.stores.keys import SqliteKeyStore
from tests.gateway.house import House, open_house
from tests.gateway.web import Got, get, post


def test_a_session_is_found_until_it_ends() -> None:
    now = 1000.0
    sessions = Sessions(b"secret", lambda: now)
    cookie = sessions.open("abcd1234", secure=False)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert sessions.find(f"other=1; {cookie}") == "abcd1234"
    assert Sessions(b"another", lambda: now).find(cookie) is None
    now += LAST_S
    assert sessions.find(cookie) is None


@pytest.mark.parametrize("bend", [("abcd1234", "zzzz9999"), (".4", ".9"), ("=", "=x"), (COOKIE, "other")])
def test_a_changed_cookie_is_no_session(bend: tuple[str, str]) -> None:
    sessions = Sessions(b"secret", lambda: 1.0)
    cookie = sessions.open("abcd1234", secure=True)
    assert sessions.find(cookie.replace(*bend, 1)) is None


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
        foreign = {**cookie, "origin": "http://evil.example"}
        assert post(house.url, "/v1/chat/completions", asked, foreign).status == 403
        store.revoke(admin.split("-")[1])
        house.gateway.now.access.keys._looked = -10.0  # the copy is looked at once a second
        assert get(house.url, "/admin/v1/traffic", cookie).status == 401
