"""The threat rows of RELIABILITY.md for auth, headers, secrets, sizes, JSON abuse, smuggling and slow clients."""

import gzip
import json
import logging
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Door
from dragoman.errors import ConfigError, DragomanError
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import HANDLERS
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.process.startup import ServeOptions, settle
from dragoman.gateway.routes import admin
from dragoman.gateway.routes.table import Route, RouteTable, all_routes
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import CANARY, faultline, open_house, say, state, stream, upstream
from tests.gateway.test_faults import ASK, GOOD, chunk
from tests.gateway.web import get, head_of, post, raw, send, status_of
from tests.waiting import NEVER_S, wait_until

CHAT = "/v1/chat/completions"
ROUTES = (*all_routes(), *admin.make_routes())
DOORS = {
    CHAT: ASK,
    "/v1/messages": {**ASK, "max_tokens": 5},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/api/chat": {**ASK, "stream": False},
    "/generate": {"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": ASK},
}


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


# ---------------------------------------------------------------- T01, T07, T08, T35: keys


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "header", ["authorization: Bearer {}", "x-api-key: {}", "x-goog-api-key: {}", "api-key: {}", "?key={}"]
)
def test_every_door_takes_every_clients_header(door: str, header: str, keys: KeyStore) -> None:
    key = keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        if header[0] == "?":
            assert post(house.url, door + header.format(key), DOORS[door]).status == 200
        else:
            name, _, value = header.format(key).partition(": ")
            assert post(house.url, door, DOORS[door], {name: value}).status == 200


WRONG = {
    "none": {},
    "empty": {"authorization": "Bearer "},
    "sql": {"authorization": "Bearer ' OR 1=1;--"},
    "long": {"authorization": "Bearer " + "x" * 5000},
    "unknown": {"x-api-key": "dk-aaaaaaaa-" + "A" * 43},
    "not ascii": {"x-api-key": "dk-\xff\xfe"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_key_is_401_in_the_doors_own_words(wrong: str, keys: KeyStore) -> None:
    keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        for door, body in DOORS.items():
            house.gateway.now.access._failures.clear()
            got = post(house.url, door, body, WRONG[wrong])
            assert got.status == 401, door
            assert got.json["error"], door


def test_unknown_wrong_and_revoked_keys_look_the_same(keys: KeyStore) -> None:
    good, other = keys.new("a", admin=False), keys.new("b", admin=False)
    keys.revoke(other.split("-")[1])
    with open_house(keys=keys) as house:
        table = keys.read()
        assert table is not None
        wrong = [other, good[:-4] + "AAAA", "dk-zzzzzzzz-" + "B" * 43, table.rows[0].digest]
        bodies = {post(house.url, CHAT, ASK, {"x-api-key": key, "x-request-id": "r"}).body for key in wrong}
        assert len(bodies) == 1
        assert post(house.url, CHAT, ASK, {"x-api-key": good, "authorization": f"Bearer {other}"}).status == 401


def test_the_twenty_first_wrong_key_in_a_minute_is_429(keys: KeyStore) -> None:
    keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        seen = [get(house.url, "/v1/models", {"x-api-key": "nope"}).status for _ in range(21)]
        assert seen == [401] * 20 + [429]


def test_every_route_lets_in_whom_it_should(keys: KeyStore) -> None:
    client, admin = {"x-api-key": keys.new("c", admin=False)}, {"x-api-key": keys.new("a", admin=True)}
    expected = {"public": (True, True, True), "client": (False, True, False), "admin": (False, False, True)}
    with open_house(keys=keys) as house:
        for route in ROUTES:
            path = _example(route)
            body = b"{}" if route.method == "POST" else None
            house.gateway.now.access._failures.clear()
            seen = tuple(
                status_of(house.url, route.method, path, body, who) not in (401, 403) for who in ({}, client, admin)
            )
            assert seen == expected[route.access], route


def _example(route: Route) -> str:
    """A path that matches the route's pattern."""
    path = route.door.path.replace("(?:projects/.+/)?", "").replace("(?:beta|alpha|beta1|alpha1)", "beta")
    path = path.replace("?", "")
    path = path.replace("[a-z0-9]{8}", "abcd1234|")  # the id of a key
    for group, inside in re.findall(r"(\(P<\w+>([^)]*)\))", path):
        path = path.replace(group, "demo" if re.fullmatch(inside, "demo") else inside.partition("|")[0])
    assert RouteTable(ROUTES).find(route.method, path) is not None
    return path


def test_every_route_has_a_handler_and_a_class() -> None:
    assert {route.door.serves for route in ROUTES} == set(HANDLERS)
    with pytest.raises(DragomanError, match="who may come in"):
        RouteTable((Route(method="GET", door=Door(path="/x"), dialect=find_dialect("ollama"), access="anybody"),))  # type: ignore[arg-type]


def test_a_key_is_stored_as_a_digest_and_two_installations_differ(tmp_path: Path) -> None:
    one, two = SqliteKeyStore(tmp_path / "1.db"), SqliteKeyStore(tmp_path / "2.db")
    key, _ = one.new("a", admin=False), two.new("b", admin=False)
    assert all(key.encode() not in file.read_bytes() for file in tmp_path.iterdir())
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())
    found = ClientKeys(one).check(key)
    assert found is not None
    assert found.id == key.split("-")[1]
    assert ClientKeys(two).check(key) is None
    stolen, digest = one.read(), two.read()
    assert stolen is not None
    assert digest is not None
    assert stolen.digest(key) != digest.digest(key)


def test_health_and_metrics_tell_strangers_nothing(keys: KeyStore) -> None:
    key = keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        assert get(house.url, "/healthz").json == {"status": "ok"}
        assert get(house.url, "/health").json == {"status": "ok"}
        assert get(house.url, "/metrics").status == 401
        full = get(house.url, "/health", {"x-api-key": key}).json
        assert set(full) >= {"status", "queue_sizes", "rate_limits", "providers"}


def test_a_stored_response_belongs_to_its_key(keys: KeyStore) -> None:
    mine, other = {"x-api-key": keys.new("a", admin=False)}, {"x-api-key": keys.new("b", admin=False)}
    with open_house(keys=keys) as house:
        stored = post(house.url, "/v1/responses", {"model": "demo", "input": "say hi"}, mine).json["id"]
        path = f"/v1/responses/{stored}"
        assert get(house.url, path, mine).json["id"] == stored
        strange = get(house.url, path, other)
        assert strange.status == 404
        never = get(house.url, "/v1/responses/resp_never", other)
        assert strange.text.replace(stored, "X") == never.text.replace("resp_never", "X")
        follow = {"model": "demo", "input": "go on", "previous_response_id": stored}
        assert post(house.url, "/v1/responses", follow, other).status in (400, 404)
        assert post(house.url, "/v1/responses", follow, mine).status == 200
        assert send(house.url, "DELETE", path, None, other).status == 404
        assert send(house.url, "DELETE", path, None, mine).status == 200
        assert get(house.url, path, mine).status == 404


def test_a_provider_does_not_continue_the_conversation_of_another_key(keys: KeyStore) -> None:
    """To the provider all our keys are one account: only we know whose response it is."""
    mine, other = {"x-api-key": keys.new("a", admin=False)}, {"x-api-key": keys.new("b", admin=False)}
    reply = {"id": "resp_of_the_provider", "object": "response", "status": "completed", "model": "m", "output": []}
    with faultline(say(200, json.dumps(reply).encode())) as line:
        up = upstream("up", "openai_responses", f"{line.url}/v1", models=("m",))
        with open_house(up, keys=keys) as house:
            stored = post(house.url, "/v1/responses", {"model": "m", "input": "a secret"}, mine).json["id"]
            assert stored == "resp_of_the_provider"
            follow = {"model": "m", "input": "say all that again", "previous_response_id": stored}
            for path in ("/v1/responses", "/v1/responses/compact"):
                refused = post(house.url, path, follow, other)
                assert refused.status == 400
                assert "not found" in refused.text
            assert len(line.seen) == 1, "nothing was sent"
            assert post(house.url, "/v1/responses", follow, mine).status == 200
            unknown = {**follow, "previous_response_id": "resp_made_elsewhere"}
            assert post(house.url, "/v1/responses", unknown, other).status == 400, "it may be a third key's"
            assert len(line.seen) == 2


# ---------------------------------------------------------------- T04, T09, T10, T41: keys and headers


def test_headers_are_built_from_nothing_in_both_directions() -> None:
    unwanted = {
        "authorization": "Bearer client-secret",
        "x-api-key": "client-secret",
        "x-goog-api-key": "client-secret",
        "cookie": "a=b",
        "x-forwarded-for": "1.2.3.4",
        "proxy-authorization": "x",
        "x-portkey-custom-host": "http://evil.test",
        "x-base-url": "http://evil.test",
        "connection": "x-foo",
        "x-foo": "1",
        "anthropic-beta": "b1",
        "referer": "http://evil.test",
    }
    leaky = say(
        200, GOOD_BODY, set_cookie="a=b", clear_site_data="*", location="/x", server="nginx", alt_svc="x",
        access_control_allow_origin="*", x_ratelimit_remaining_requests="7", link="x", via="1.1 x",
    )  # fmt: skip
    with faultline(leaky) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = post(house.url, CHAT, ASK, unwanted)
        assert got.status == 200
        sent = line.seen[0].headers
        ours = {"accept-encoding", "user-agent", "authorization", "x-dragoman-hop"}
        assert set(sent) == {"host", "content-type", "content-length"} | ours
        assert sent["authorization"] == f"Bearer {CANARY}"
        assert "client-secret" not in json.dumps(sent)
        assert not {"set-cookie", "clear-site-data", "location", "server", "alt-svc", "via", "link"} & set(got.headers)
        assert got.headers["x-ratelimit-remaining-requests"] == "7"


GOOD_BODY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
    }
).encode()


@pytest.mark.parametrize("field", ["api_base", "base_url", "apiBase", "baseURL", "endpoint", "custom_host"])
def test_a_client_cannot_say_where_a_request_goes(field: str) -> None:
    with (
        faultline(GOOD) as canary,
        faultline(GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        assert post(house.url, CHAT, {**ASK, field: canary.url}).status == 400
        assert not canary.seen
        assert not line.seen


def test_no_secret_reaches_a_log_an_error_or_a_metric(caplog: pytest.LogCaptureFixture, keys: KeyStore) -> None:
    key = keys.new("a", admin=False)
    echo = f'{{"error":{{"message":"your key {CANARY} and header Bearer {CANARY} are bad"}}}}'.encode()
    shown = []
    with caplog.at_level(logging.DEBUG):
        for status in (400, 401, 403, 404, 429, 500, 503):
            with faultline(say(status, echo, retry_after="99")) as line:  # nobody waits so long
                spec = upstream("one", "openai_chat", line.url, models=("m",))
                with open_house(spec, keys=keys, xray_keep=10) as house:
                    for door, body in DOORS.items():
                        got = post(house.url, f"{door}?key={key}", body)
                        shown.append(got.text + str(got.headers))
                    admin = {"x-api-key": keys.new("x", admin=True)}
                    shown.append(get(house.url, "/metrics", admin).text)
                    rows = get(house.url, "/xray", admin).json["requests"]
                    shown += [get(house.url, f"/xray/{row['id']}", admin).text for row in rows]
    everything = "\n".join([*shown, caplog.text])
    assert CANARY not in everything
    assert key not in everything
    assert "[redacted]" in everything


def test_a_gateway_behind_itself_notices() -> None:
    with open_house() as house:
        assert post(house.url, CHAT, ASK, {"x-dragoman-hop": "3"}).status == 508
        assert post(house.url, CHAT, ASK, {"x-dragoman-hop": "1"}).status == 200


def test_an_upstream_that_is_this_gateway_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('port = 20099\n[providers.x]\nkind = "vllm"\nbase_url = "http://localhost:20099/v1"\n')
    with pytest.raises(ConfigError, match="this gateway's own address"):
        settle(ServeOptions(config=file), state(tmp_path))
    file.write_text('port = 2009\n[providers.x]\nkind = "vllm"\nbase_url = "http://localhost:20099/v1"\n')
    settle(ServeOptions(config=file), state(tmp_path))  # another port that begins alike


# ---------------------------------------------------------------- T06, T13: Host and Origin


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.test"}, 421),
        ({"host": "evil.test:20006"}, 421),
        ({"host": "localhost:1234"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:20006"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "x/v1/models?"}, 421),
        ({"host": "a#"}, 421),
        ({"origin": "https://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "vscode-webview://abc"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_web_pages_do_not_come_in(headers: dict[str, str], status: int) -> None:
    with open_house() as house:
        assert get(house.url, "/v1/models", headers).status == status


PAGES = ("https://my.app", "http://localhost:3000", "app://obsidian.md", "vscode-webview://abc", "tauri://localhost")
CHANGES = {
    ("GET", "/admin/v1/config"): None,
    ("GET", "/xray"): None,
    ("POST", "/admin/v1/keys"): {"name": "mine", "admin": True},
    ("POST", "/admin/v1/mcp"): {"name": "x", "url": "http://127.0.0.1:9/"},
    ("POST", "/admin/v1/verify"): {},
    ("DELETE", "/admin/v1/verify"): None,
    ("POST", "/mcp/add"): {"name": "x", "url": "http://127.0.0.1:9/"},
}


@pytest.mark.parametrize("page", PAGES)
def test_t13_a_page_that_may_ask_models_may_not_administer(page: str, keys: KeyStore, tmp_path: Path) -> None:
    """Not where no key is needed, and not with the session of the console: browsers send its cookie for every port."""
    allowed: dict[str, Any] = {"origins": PAGES[:2], "store_path": tmp_path / "responses.db"}
    with open_house(**allowed) as house:
        assert get(house.url, "/v1/models", {"origin": page}).status == 200
        for (method, path), body in CHANGES.items():
            assert send(house.url, method, path, body, {"origin": page}).status == 403, path
            assert send(house.url, method, path, body, {"origin": house.url}).status != 403, path
    boss = keys.new("boss", admin=True)
    with open_house(keys=keys, **allowed) as house:
        login = post(house.url, "/console/session", {"key": boss}, {"origin": house.url})
        cookie = {"cookie": login.headers["set-cookie"].partition(";")[0]}
        assert get(house.url, "/admin/v1/keys", {**cookie, "origin": house.url}).status == 200
        assert not get(house.url, "/console/session", {**cookie, "origin": page}).json["open"]
        for (method, path), body in CHANGES.items():
            house.gateway.now.access._failures.clear()
            assert send(house.url, method, path, body, {**cookie, "origin": page}).status == 401, path
        assert get(house.url, "/admin/v1/keys", {"x-api-key": boss, "origin": page}).status == 200, "its own key"


def test_an_allowed_page_comes_in_and_a_preflight_of_others_does_not() -> None:
    page = {"origin": "https://my.app", "access-control-request-method": "POST"}
    with open_house(origins=("https://my.app",)) as house:
        assert send(house.url, "OPTIONS", CHAT, None, page).headers["access-control-allow-origin"] == "https://my.app"
        got = post(house.url, CHAT, {**ASK, "model": "demo"}, {"origin": "https://my.app"})
        assert got.headers["access-control-allow-origin"] == "https://my.app"
        evil = send(house.url, "OPTIONS", CHAT, None, {**page, "origin": "https://evil.test"})
        assert evil.status == 403
        assert not any(name.startswith("access-control") for name in evil.headers)


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    ],
)
def test_a_request_needs_exactly_one_host(line: bytes) -> None:
    with open_house() as house:
        assert raw(house.url, line).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "path", ["/v1/../metrics", "/v1/%2e%2e/metrics", "/./metrics", "/v1/..%5cx", "/admin", "//admin"]
)
def test_a_path_that_climbs_is_404(path: str) -> None:
    with open_house() as house:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        assert raw(house.url, head.encode()).startswith(b"HTTP/1.1 404")


def test_a_form_is_415() -> None:
    with open_house() as house:
        assert post(house.url, CHAT, json.dumps(ASK).encode(), {"content-type": "text/plain"}).status == 415


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_a_form_is_taken_at_ollamas_door_from_a_program_and_not_from_a_page(kind: str) -> None:
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "say hi"}], "stream": False}).encode()
    with open_house() as house:
        assert post(house.url, "/api/chat", body, {"content-type": kind}).json["message"]["content"]
        assert post(house.url, "/api/show", b'{"model": "demo"}', {"content-type": kind}).status == 200
        for name, value in (
            ("origin", house.url),
            ("origin", "null"),
            ("origin", "https://evil.test"),
            ("referer", "https://evil.test/"),
            ("cookie", "a=b"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "no-cors"),
        ):
            assert post(house.url, "/api/chat", body, {"content-type": kind, name: value}).status in (403, 415)


# ---------------------------------------------------------------- T24, T25, T26, T38: sizes and JSON


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 1_000_000, ""),
        (b'{"model":"m","messages":' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
        (b'{"model":"m","messages":[],"temperature":NaN}', ""),
        (b'{"model":"m","messages":[],"temperature":1e999}', ""),
        (b'{"model":"m","messages":[],"max_tokens":' + b"9" * 4301 + b"}", ""),
        (b'{"model":"a","messages":[{"role":"user","content":"x"}],"model":"b"}', "duplicate key"),
        (b"[1,2]", "expected object"),
        (b"", ""),
        (b'{"model":"m","messages":{}}', "/messages"),
        (b'{"model":"m","messages":[' + b"1," * 10_000 + b"1]}", "10000"),
    ],
)
@pytest.mark.parametrize("door", [CHAT, "/v1/messages", "/api/chat"])
def test_abused_json_is_400(door: str, body: bytes, words: str) -> None:
    with open_house() as house:
        began = time.process_time()
        got = post(house.url, door, body)
        assert got.status == 400
        assert words in got.text
        assert time.process_time() - began < 2.0


def test_a_nul_passes_unchanged() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        asked = {"model": "m", "messages": [{"role": "user", "content": "a\u0000b\u2028c"}]}
        assert post(house.url, CHAT, asked).status == 200
        assert json.loads(line.seen[0].body)["messages"] == asked["messages"]


@pytest.mark.parametrize("name", ["../../v1/files?key=", "a%2f..", "x:y?alt=sse#", "a\r\nb", "é"])
def test_a_model_that_is_no_name_is_404(name: str) -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url)) as house:
        got = post(house.url, CHAT, {**ASK, "model": name})
        assert got.status == 404
        assert got.json["error"]["code"] == "model_not_found"
        assert not line.seen


def test_a_body_over_the_limit_is_413_before_it_is_read() -> None:
    with open_house(max_body_bytes=10_000) as house:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        got = raw(house.url, f"{head}content-length: 40000000\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in got
        chunked = (
            f"{head}transfer-encoding: chunked\r\n\r\n".encode()
            + b"2710\r\n"
            + b"x" * 10_000
            + b"\r\n"
            + b"5\r\nxxxxx\r\n"
        )
        assert raw(house.url, chunked).startswith(b"HTTP/1.1 413")


def test_a_compressed_body_is_read_and_a_bomb_is_not() -> None:
    good = gzip.compress(json.dumps(DOORS["/v1/messages"]).encode())
    with open_house() as house:
        assert post(house.url, "/v1/messages", good, {"content-encoding": "gzip"}).status == 200
        bomb = gzip.compress(b" " * 200_000_000, 9)
        began = time.process_time()
        assert post(house.url, "/v1/messages", bomb, {"content-encoding": "gzip"}).status == 413
        assert time.process_time() - began < 2
        assert post(house.url, "/v1/messages", good[:-9], {"content-encoding": "gzip"}).status == 400
        assert post(house.url, "/v1/messages", b"x", {"content-encoding": "br"}).status == 415


@pytest.mark.parametrize(
    "head",
    [
        "x-big: " + "x" * 33_000 + "\r\n",
        "".join(f"x-{i}: 1\r\n" for i in range(101)),
    ],
    ids=["33 KiB", "101 headers"],
)
def test_too_much_head_is_431(head: str) -> None:
    with open_house() as house:
        got = raw(house.url, f"GET / HTTP/1.1\r\nhost: localhost\r\n{head}\r\n".encode())
        assert got.startswith(b"HTTP/1.1 431")


# ---------------------------------------------------------------- T27, T28, T29, T30: slow and crooked clients

BODY = json.dumps(ASK).encode()
SMUGGLED = {
    "both lengths": f"content-length: {len(BODY)}\r\ntransfer-encoding: chunked\r\n",
    "two lengths": "content-length: 5\r\ncontent-length: 6\r\n",
    "negative length": "content-length: -1\r\n",
    "plus length": "content-length: +5\r\n",
    "odd coding": "transfer-encoding: xchunked\r\n",
    "folded": "x-a: 1\r\n folded\r\ncontent-length: 5\r\n",
    "space before colon": "content-length : 5\r\n",
    "bare line feed": "x-a: 1\ncontent-length: 5\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_smuggled_request_is_400_and_the_connection_ends(name: str) -> None:
    with open_house() as house:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{SMUGGLED[name]}\r\n"
        got = raw(house.url, head.encode() + BODY + b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")) or got == b""
        assert got.count(b"HTTP/1.1") <= 1


def test_a_slow_client_is_shown_the_door() -> None:
    heads = {
        "nothing": b"",
        "half a head": b"GET / HTTP/1.1\r\nhost: loc",
        "half a body": f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n".encode() + b'{"mod',
    }
    with open_house(limits=RequestLimits(head_s=0.3, body_s=0.3)) as house:
        for name, head in heads.items():
            got = raw(house.url, head)
            assert got == b"" or got.startswith(b"HTTP/1.1 408"), name
        assert get(house.url, "/healthz").status == 200


def test_a_client_that_does_not_read_is_ended() -> None:
    pieces: list[bytes | float] = [chunk("x" * 50_000)] * 400
    with (
        faultline(stream(*pieces)) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",)), limits=RequestLimits(write_s=0.3)) as house,
    ):
        body = json.dumps({**ASK, "stream": True}).encode()
        head = head_of(CHAT, body)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", house.port))
            client.sendall(head + body)
            wait_until(lambda: line.seen)
            assert line.seen[0].left.wait(NEVER_S)
            wait_until(lambda: house.gateway.metrics.running == 0)


def test_a_models_words_cannot_end_a_frame() -> None:
    evil = '\n\ndata: {"choices":[]}\n\ndata: [DONE]\r\r\u2028'
    with open_house() as house:
        got = post(
            house.url, CHAT, {"model": "demo", "stream": True, "messages": [{"role": "user", "content": f"say {evil}"}]}
        )
        assert got.text.count("data: [DONE]") == 1
        assert "\r" not in got.text


@pytest.mark.parametrize("given", ["a\tb", "x" * 65, "<script>", "ü"])
def test_a_request_id_that_is_none_is_replaced(given: str) -> None:
    with open_house() as house:
        assert get(house.url, "/healthz", {"x-request-id": given}).headers["x-request-id"] != given
        assert get(house.url, "/healthz", {"x-request-id": "mine-1.2"}).headers["x-request-id"] == "mine-1.2"


def test_a_log_line_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), open_house() as house:
        post(house.url, CHAT, {**ASK, "model": "demo\x1b[2J\nforged"})
        assert all("\n" not in record.getMessage() and "\x1b" not in record.getMessage() for record in caplog.records)


def test_metrics_do_not_grow_with_what_clients_say() -> None:
    with open_house() as house:
        for i in range(50):
            post(house.url, CHAT, {**ASK, "model": f"made-up-{i}"})
        assert "made-up" not in get(house.url, "/metrics").text


def test_wrong_addresses_are_forgotten(keys: KeyStore) -> None:
    access = Access(ClientKeys(keys))
    for i in range(20_000):
        access._too_many(f"10.0.{i // 256}.{i % 256}")
    assert len(access._failures) <= 10_000
