"""More of the threat rows of RELIABILITY.md, each as its concrete test says: destinations, identities, limits nobody
gets around, crooked requests, hostile upstreams."""

import asyncio
import json
import logging
import os
import socket
import statistics
import string
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import UpstreamError
from dragoman.gateway import state
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.bodies import inflate
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.process.startup import open_secrets
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.stores.responses import SqliteResponseStore, StoredResponse
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.gateway.telemetry import metrics
from dragoman.upstream import upstream_state
from dragoman.upstream.spec import Timeouts
from tests.gateway.house import CANARY, Seen, faultline, open_house, say, stream, upstream
from tests.gateway.stalls import PROMISE_S, Meter
from tests.gateway.test_faults import ASK, DONE, GOOD, WHOLE, ask, chunk, dice, hang_up, stall
from tests.gateway.test_threats import CHAT, DOORS
from tests.gateway.web import get, head_of, post, raw, send
from tests.waiting import NEVER_S, wait_until

URL_WORDS = (
    "api_base",
    "base_url",
    "apiBase",
    "baseURL",
    "endpoint",
    "custom_host",
    "x-portkey-custom-host",
    "x-base-url",
)


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


def one(url: str, **more: Any) -> Any:
    return upstream("one", "openai_chat", url, models=("m",), **more)


# ---------------------------------------------------------------- T04: a client does not say where its request goes


def test_t04_no_field_header_or_query_leads_a_key_elsewhere() -> None:
    made_up = [f"{first}_{second}" for first in ("target", "upstream", "host") for second in ("url", "base", "uri")]
    with faultline(GOOD) as canary, faultline(GOOD) as line, open_house(one(line.url)) as house:
        for word in (*URL_WORDS, *made_up):
            for body in ({word: canary.url}, {"extra_body": {word: canary.url}}, {"metadata": {word: canary.url}}):
                status = post(house.url, CHAT, {**ASK, **body}).status
                assert status == (400 if word in URL_WORDS[:6] and word in body else 200), (word, body)
            assert post(house.url, CHAT, ASK, {word.replace("_", "-"): canary.url}).status == 200
            assert post(house.url, f"{CHAT}?{word}={canary.url}", ASK).status == 200
        assert not canary.seen
        assert {seen.headers["host"] for seen in line.seen} == {line.url.removeprefix("http://")}


# ---------------------------------------------------------------- T06: routes are matched, never guessed from a URL

LINES = {
    "a path in the host": "GET /metrics HTTP/1.1\r\nhost: x/v1/models?\r\n",
    "a fragment in the host": "GET /metrics HTTP/1.1\r\nhost: a#\r\n",
    "no host": "GET /metrics HTTP/1.1\r\n",
    "two hosts": "GET /metrics HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n",
    "an absolute target": "GET http://evil.test/metrics HTTP/1.1\r\nhost: localhost\r\n",
    "an absolute target and host": "GET http://evil.test/metrics HTTP/1.1\r\nhost: evil.test\r\n",
    "two slashes": "GET //metrics HTTP/1.1\r\nhost: localhost\r\n",
    "steps up": "GET /v1/../metrics HTTP/1.1\r\nhost: localhost\r\n",
    "steps up, quoted": "GET /v1/%2e%2e/metrics HTTP/1.1\r\nhost: localhost\r\n",
    "a quoted slash": "GET /v1%2f..%2fmetrics HTTP/1.1\r\nhost: localhost\r\n",
    "a semicolon": "GET /v1/models;/../metrics HTTP/1.1\r\nhost: localhost\r\n",
    "a NUL": "GET /metrics%00 HTTP/1.1\r\nhost: localhost\r\n",
}


@pytest.mark.parametrize("name", LINES)
def test_t06_no_spelling_of_a_request_gets_past_the_door(name: str, keys: KeyStore) -> None:
    key = keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        got = raw(house.url, f"{LINES[name]}x-api-key: {key}\r\nconnection: close\r\n\r\n".encode())
        status = int(got.split(b" ", 2)[1])
        assert status in (400, 401, 403, 404, 421)
        assert b"dragoman_" not in got


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/healthz", "localhost", 200),
        ("HTTP://LocalHost/healthz?x=/", "localhost", 200),
        ("http://evil.test/healthz", "localhost", 400),
        ("http://localhost:81/healthz", "localhost", 400),
        ("http://localhost@evil.test/healthz", "localhost", 400),
        ("http://evil.test?http://localhost/healthz", "localhost", 400),
        ("http://evil.test/healthz", "evil.test", 421),
    ],
)
def test_t06_an_absolute_target_names_the_host_that_is_judged(target: str, host: str, status: int) -> None:
    with open_house() as house:
        got = raw(house.url, f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        assert int(got.split(b" ", 2)[1]) == status


# ---------------------------------------------------------------- T07, T08: who may do what


def test_t07_t08_bad_and_revoked_keys_open_nothing_and_neither_kind_of_key_is_the_other(keys: KeyStore) -> None:
    client, admin, gone = (keys.new(name, admin=name == "admin") for name in ("client", "admin", "gone"))
    keys.revoke(gone.split("-")[1])
    matrix = {
        ("/v1/models", client): 200,
        ("/v1/models", admin): 401,
        ("/v1/models", gone): 401,
        ("/v1/models", "nonsense"): 401,
        ("/metrics", client): 403,
        ("/metrics", admin): 200,
        ("/metrics", gone): 401,
        ("/metrics", "nonsense"): 401,
        ("/xray", client): 403,
        ("/xray", admin): 200,
        ("/nowhere", client): 404,
        ("/nowhere", "nonsense"): 404,
        ("/healthz", "nonsense"): 200,
    }
    with open_house(keys=keys) as house:
        seen = {(path, key): get(house.url, path, {"x-api-key": key}).status for path, key in matrix}
    assert seen == matrix


# ---------------------------------------------------------------- T09: no secret gets out


def test_t09_no_way_of_failing_shows_a_secret(caplog: pytest.LogCaptureFixture, keys: KeyStore) -> None:
    key, admin = keys.new("a", admin=False), keys.new("x", admin=True)
    echo = f'{{"error":{{"message":"bad {CANARY}","code":"{CANARY}","param":"{CANARY}"}}}}'.encode()
    broken = f'{{"id": "{CANARY}"'.encode()
    frame = f'data: {{"error":{{"message":"your key {CANARY}"}}}}\n\n'.encode()
    scripts = {
        **{
            f"status {n}": say(n, echo, retry_after="90")
            for n in (400, 401, 402, 403, 404, 409, 413, 418, 422, 429, 500, 501, 503, 529)
        },
        "malformed": say(200, broken),
        "a page": say(200, f"<html>{CANARY}</html>".encode(), "text/html"),
        "a page with 502": say(502, f"<html>{CANARY}</html>".encode(), "text/html"),
        "redirect": say(302, b"", location=f"http://127.0.0.1:1/{CANARY}"),
        "hang up": hang_up,
        "an error first": stream(frame),
        "an error in mid-stream": stream(chunk("fi"), 0.01, frame),
        "half a frame": stream(chunk("fi"), 0.01, f'data: {{"id": "{CANARY}'.encode()),
        "unreadable": stream(chunk("fi"), 0.01, f"data: {{{CANARY}}}\n\n".encode()),
        "headers": say(500, echo, x_ratelimit_remaining=CANARY, x_request_id=CANARY, www_authenticate=CANARY),
    }
    shown: list[str] = []
    asked = 0
    with caplog.at_level(logging.DEBUG), ExitStack() as stack:
        lines = [stack.enter_context(faultline(script)) for script in scripts.values()]
        specs = [
            upstream(f"up{n}", "openai_chat", line.url, models=(f"m{n}",), queue=0) for n, line in enumerate(lines)
        ]
        house = stack.enter_context(open_house(*specs, keys=keys, xray_keep=200))
        stack.enter_context(dice(house, 0.0))
        for n, name in enumerate(scripts):
            for door in (CHAT, "/v1/messages"):
                for streamed in (False, True):
                    body = {**ASK, "model": f"m{n}", "max_tokens": 5, "stream": streamed}
                    got = post(house.url, door, body, {"x-api-key": key})
                    shown.append(f"{name}: {got.text} {got.headers}")
                    asked += 1
                    house.gateway.now.upstream_states[f"up{n}"]._breakers.clear()
                    house.gateway.now.upstream_states[f"up{n}"].keys.keys[0].rests.clear()
        shown.append(get(house.url, "/metrics", {"x-api-key": admin}).text)
        rows = get(house.url, "/xray", {"x-api-key": admin}).json["requests"]
        shown += [get(house.url, f"/xray/{row['id']}", {"x-api-key": admin}).text for row in rows]
        assert len(rows) == asked
    assert asked >= 80
    for secret in (CANARY, key, admin):
        assert [text for text in (*shown, caplog.text) if secret in text] == []


# ---------------------------------------------------------------- T10: headers, in both directions


@pytest.mark.parametrize("door", ["/v1/messages", CHAT])
def test_t10_of_an_upstreams_headers_its_own_clients_see_the_rate_limits_and_nothing_else(door: str) -> None:
    reply = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "x"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    limits = {"anthropic_ratelimit_requests_remaining": "7", "x_ratelimit_limit_tokens": "9"}
    odd = {
        "anthropic_ratelimit_odd": "a\x7fb",
        "request_id": "req_theirs",
        "x_request_id": "req_theirs",
        "cf_ray": "1",
        "set_cookie": "a=b",
        "anthropic_organization_id": "org",
        "strict_transport_security": "x",
    }
    with (
        faultline(say(200, json.dumps(reply).encode(), **limits, **odd)) as line,
        open_house(upstream("one", "anthropic", line.url, models=("m",))) as house,
    ):
        got = post(house.url, door, {**ASK, "max_tokens": 5}, {"x-request-id": "mine"})
    assert got.status == 200
    expected = {"content-type", "content-length", "x-request-id", "x-dragoman-upstream"}
    if door == "/v1/messages":
        expected |= {"request-id", "anthropic-ratelimit-requests-remaining", "x-ratelimit-limit-tokens"}
    assert set(got.headers) - {"x-dragoman-notes"} == expected
    assert got.headers["x-request-id"] == "mine"


def test_t10_rate_limits_are_a_few_short_headers() -> None:
    many = {f"x_ratelimit_{i}": "1" for i in range(190)} | {"x_ratelimit_long": "1" * 5000, "x_ratelimit_o": "\xe9"}
    with faultline(say(200, WHOLE, **many)) as line, open_house(one(line.url)) as house:
        got = ask(house)
    found = {name: value for name, value in got.headers.items() if name.startswith("x-ratelimit")}
    assert len(found) == 32
    assert set(found.values()) == {"1"}


@pytest.mark.parametrize("kind", ["image/svg+xml", "text/html-ish; x", "a\x01b", "text/event-stream\x7f"])
def test_t10_an_upstreams_content_type_is_not_passed_on(kind: str) -> None:
    data = chunk("hi") + chunk(None, "stop") + DONE
    with faultline(stream(data, kind=kind)) as line, open_house(one(line.url)) as house:
        got = ask(house, streamed=True)
    assert got.status in (200, 502), got.text  # a control character is no HTTP
    assert got.headers["content-type"].partition(";")[0] in ("text/event-stream", "application/json")


# ---------------------------------------------------------------- T16, T34, T35: keys


@given(st.integers(0, 54), st.sampled_from(string.ascii_letters + string.digits + "-_"))
def test_t16_a_key_that_differs_anywhere_is_another(place: int, letter: str) -> None:
    key, known = made_key()
    place %= len(key)
    other = key[:place] + letter + key[place + 1 :]
    assert (known.check(other) is not None) == (other == key)
    assert known.check(key[:-1]) is None
    assert known.check(key + "A") is None


@cache
def made_key() -> tuple[str, ClientKeys]:
    with TemporaryDirectory() as folder:
        store = SqliteKeyStore(Path(folder) / "keys.db")
        key, known = store.new("a", admin=False), ClientKeys(store)
    known.store = None  # it keeps the copy
    return key, known


def test_t35_an_unknown_id_takes_as_long_as_a_wrong_secret(keys: KeyStore) -> None:
    key, known = keys.new("a", admin=False), ClientKeys(keys)
    wrong = {"secret": key[:-4] + "AAAA", "id": "dk-zzzzzzzz-" + key.split("-", 2)[2]}
    times: dict[str, list[int]] = {"secret": [], "id": []}
    for _ in range(1000):
        for name, candidate in wrong.items():
            began = time.thread_time_ns()
            assert known.check(candidate) is None
            times[name].append(time.thread_time_ns() - began)
    assert abs(statistics.median(times["secret"]) - statistics.median(times["id"])) < 50_000


def test_a_key_that_was_revoked_elsewhere_opens_nothing_a_second_later(tmp_path: Path) -> None:
    now = [100.0]
    elsewhere = SqliteKeyStore(tmp_path / "keys.db")
    here = ClientKeys(SqliteKeyStore(tmp_path / "keys.db"), clock=lambda: now[0])
    key = elsewhere.new("a", admin=False)
    assert here.check(key) is not None, "a new key is good at once"
    elsewhere.revoke(key.split("-")[1])
    now[0] += 1.0
    assert here.check(key) is None


# ---------------------------------------------------------------- T17, T33: what is stored


def test_t17_no_key_writes_over_the_response_of_another(keys: KeyStore) -> None:
    mine, other = ({"x-api-key": keys.new(n, admin=False), "x-request-id": "same"} for n in "ab")
    with open_house(keys=keys) as house:
        first = post(house.url, "/v1/responses", {"model": "demo", "input": "say mine"}, mine).json["id"]
        post(house.url, "/v1/responses", {"model": "demo", "input": "say other"}, other)
        assert "mine" in get(house.url, f"/v1/responses/{first}", mine).text
        for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
            strange = {**other, "x-api-key": keys.new("c", admin=False)}
            assert send(house.url, method, f"/v1/responses/{first}{path}", None, strange).status == 404


def test_t33_what_is_kept_is_the_owners_alone_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "state" / "responses.db"
    store = SqliteResponseStore(path, 10)
    store.put("a", StoredResponse(id="resp_1", messages=(), wire=b"{}"))
    store.close()
    assert path.stat().st_mode & 0o077 == 0
    with faultline(GOOD) as line, open_house(one(line.url), store_path=path) as house:
        assert post(house.url, "/v1/responses", {"model": "m", "input": "hi"}).status == 200
    assert all(CANARY.encode() not in file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize(
    ("name", "text", "mode", "warned"),
    [
        ("a.toml", '[providers.x]\napi_key = "sk-literal"\n', 0o644, True),
        ("a.toml", '[providers.x]\napi_keys = [\n  "sk-literal"]\n', 0o640, True),
        ("a.toml", 'client_keys = ["a-key-of-some-length"]\n', 0o604, True),
        ("a.json", '{"api_key": "sk-literal"}', 0o644, True),
        ("a.toml", '[key.ada]\nsecret = "sk-literal-of-ada"\n', 0o644, True),
        ("a.toml", '[providers.x]\napi_key = "sk-literal"\n', 0o600, False),
        ("a.toml", '[providers.x]\napi_key = "${KEY}"\n', 0o644, False),
        ("a.toml", '[providers.x]\nmodels = ["m"]\n', 0o644, False),
        ("a.toml", 'tls_cert = "/etc/ssl/gateway.pem"\ntls_key = "/etc/ssl/gateway.key"\n', 0o644, False),
        ("a.toml", '[providers.x]\nclient_key = "client.pem"\n', 0o644, False),
    ],
)
def test_t33_a_file_with_keys_that_others_can_read_is_warned_of(
    name: str, text: str, mode: int, warned: bool, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    file.chmod(mode)
    said = open_secrets(str(file))
    assert bool(said) is warned
    assert said is None or "sk-literal" not in said


# ---------------------------------------------------------------- T18: nobody gets around a limit


def test_t18_aliases_doors_and_forwarded_addresses_change_nothing_about_a_limit() -> None:
    with faultline(GOOD) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), rpm=7, queue=0)
        aliases = {"nick": ("one/m",), "nack": ("m",)}
        with open_house(spec, aliases=aliases) as house, ThreadPoolExecutor(16) as pool:

            def go(number: int) -> int:
                door = list(DOORS)[number % 5]
                name = ("m", "nick", "nack", "one/m")[number % 4]
                body = json.loads(json.dumps(DOORS[door]).replace('"m"', json.dumps(name)))
                path = door.replace("/m:", f"/{name}:")
                return post(house.url, path, body, {"x-forwarded-for": f"10.0.0.{number}"}).status

            statuses = [future.result() for future in [pool.submit(go, n) for n in range(32)]]
            assert len(line.seen) == 7
            assert statuses.count(200) == 7


def test_t18_every_attempt_counts() -> None:
    with (
        faultline(say(500, b"{}")) as line,
        open_house(one(line.url, rpm=4, queue=0)) as house,
        dice(house, 0.0),
    ):
        assert [ask(house, user=str(n)).status for n in range(3)] == [500, 503, 503]
        assert len(line.seen) == 4


# ---------------------------------------------------------------- T24, T25: bodies that are more than they seem


def test_t24_a_bomb_is_refused_in_little_memory_and_time() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b" " * 1024 * 1024) for _ in range(60)) + packer.flush()
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(UpstreamError):
        inflate(bomb, "gzip", 32 * 1024 * 1024, 10)
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 1024 * 1024
    assert seconds < 0.5


@pytest.mark.parametrize("depth", [64, 128, 200, 400, 700, 900, 950, 1000, 5000])
def test_t25_no_depth_is_an_error_of_ours(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    deep = "[" * depth + "]" * depth
    schema = '{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth
    with caplog.at_level(logging.WARNING), open_house() as house:
        for value in (
            f'{{"model":"demo","messages":[{{"role":"user","content":"hi"}}],"x":{deep}}}',
            f'{{"model":"demo","max_tokens":5,"messages":[{{"role":"user","content":"hi","x":{deep}}}]}}',
            f'{{"model":"demo","messages":[],"tools":[{{"type":"function","function":{{"parameters":{schema}}}}}]}}',
        ):
            for door in (CHAT, "/v1/messages", "/api/chat"):
                assert post(house.url, door, value.encode()).status in (200, 400)
    assert "internal_error" not in caplog.text


@pytest.mark.parametrize("number", ["9223372036854775808", "-1", "1e400", "1.5", '"5"', "true"])
def test_t25_a_number_that_is_none_is_said_so_or_told_by_the_model(number: str) -> None:
    body = f'{{"model":"demo","max_tokens":{number},"messages":[{{"role":"user","content":"hi"}}]}}'.encode()
    with open_house() as house:
        for door in (CHAT, "/v1/messages"):
            got = post(house.url, door, body)
            assert got.status in (200, 400), (door, got.text)


# ---------------------------------------------------------------- T27, T28: slow clients, many of them


def test_t27_many_slow_clients_delay_no_other_and_leave_nothing_behind() -> None:
    with open_house(limits=RequestLimits(head_s=0.5, body_s=0.5)) as house:
        before = len(os.listdir("/proc/self/fd"))
        slow = []
        for n in range(90):
            client = socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S)
            start = (b"", b"GET / HTTP/1.1\r\nhos", head_of(CHAT, b"x" * 50) + b"{")[n % 3]
            client.sendall(start)
            slow.append(client)
        began = time.process_time()
        assert [get(house.url, "/healthz").status for _ in range(20)] == [200] * 20
        assert (time.process_time() - began) / 20 < 0.05
        for client in slow:
            while client.recv(1000):
                pass
            client.close()
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)


def test_t28_what_a_client_does_not_read_is_not_taken_from_the_upstream() -> None:
    sent = 0

    async def pour(seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        while sent < 200_000_000:
            piece = chunk("x" * 50_000)
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    with faultline(pour) as line, open_house(one(line.url), limits=RequestLimits(write_s=0.5)) as house:
        body = json.dumps({**ASK, "stream": True}).encode()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", house.port))
            client.sendall(head_of(CHAT, body) + body)
            wait_until(lambda: bool(line.seen))
            assert line.seen[0].left.wait(NEVER_S)
        assert sent < 20_000_000, "it was held back, not piled up"
        wait_until(lambda: house.gateway.metrics.running == 0)


# ---------------------------------------------------------------- T29, F37: requests within requests

GOOD_BODY = json.dumps({**ASK, "model": "demo"}).encode()
START = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
N = len(GOOD_BODY)
CROOKED = {
    "length and chunked": f"content-length: {N}\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunked and length": f"transfer-encoding: chunked\r\ncontent-length: {N}\r\n\r\n",
    "two lengths": f"content-length: {N}\r\ncontent-length: {N + 1}\r\n\r\n",
    "a list of lengths": f"content-length: {N}, {N}\r\n\r\n",
    "a negative length": "content-length: -1\r\n\r\n",
    "a signed length": f"content-length: +{N}\r\n\r\n",
    "a hexadecimal length": "content-length: 0x10\r\n\r\n",
    "a length with words": f"content-length: {N}abc\r\n\r\n",
    "a length that is none": "content-length: \r\n\r\n",
    "a huge length": "content-length: 99999999999999999999999\r\n\r\n",
    "an unknown coding": "transfer-encoding: xchunked\r\n\r\n",
    "chunked, not last": "transfer-encoding: chunked, gzip\r\n\r\n",
    "identity after chunked": "transfer-encoding: chunked, identity\r\n\r\n",
    "chunked twice": "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunked with a tab": "transfer-encoding:\tchunked\r\ncontent-length: 5\r\n\r\n",
    "chunked with odd case and length": f"Transfer-Encoding: cHuNkEd\r\ncontent-length: {N}\r\n\r\n",
    "chunked by vertical tab": "transfer-encoding: \x0bchunked\r\n\r\n",
    "a space before the colon": f"content-length : {N}\r\n\r\n",
    "a name with a space": f"content length: {N}\r\n\r\n",
    "a name with a control": f"content\x01-length: {N}\r\n\r\n",
    "a value with a NUL": "x-a: a\x00b\r\ncontent-length: 5\r\n\r\n",
    "a folded header": "x-a: 1\r\n folded\r\ncontent-length: 5\r\n\r\n",
    "a header before all": " x-a: 1\r\ncontent-length: 5\r\n\r\n",
    "no colon": "nonsense\r\ncontent-length: 5\r\n\r\n",
    "no name": ": nonsense\r\ncontent-length: 5\r\n\r\n",
    "a bare line feed": "x-a: 1\ncontent-length: 5\r\n\r\n",
    "a bare carriage return": "x-a: 1\rcontent-length: 5\r\n\r\n",
    "a chunk size with words": "transfer-encoding: chunked\r\n\r\nzz\r\n",
    "a negative chunk": "transfer-encoding: chunked\r\n\r\n-5\r\n",
    "a signed chunk": "transfer-encoding: chunked\r\n\r\n+5\r\n",
    "a huge chunk": "transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "a chunk without its end": "transfer-encoding: chunked\r\n\r\n5\r\nabcdeXX0\r\n\r\n",
    "a chunk ended by a line feed": "transfer-encoding: chunked\r\n\r\n5\nabcde\n0\n\n",
}
FIRST_LINES = {
    "no version": f"POST {CHAT}\r\nhost: localhost\r\n\r\n",
    "an odd version": f"POST {CHAT} HTTP/9.9\r\nhost: localhost\r\n\r\n",
    "two spaces and words": f"POST {CHAT} x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an unknown method": f"P@ST {CHAT} HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", [*CROOKED, *FIRST_LINES])
def test_t29_a_crooked_request_is_one_refusal_and_the_end(name: str) -> None:
    head = FIRST_LINES[name] if name in FIRST_LINES else START + CROOKED[name]
    inner = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-smuggled: 1\r\n\r\n"
    with open_house(limits=RequestLimits(body_s=0.3, head_s=0.3)) as house:
        got = raw(house.url, head.encode("latin-1") + GOOD_BODY + inner)
        assert got.count(b"HTTP/1.1 ") <= 1, got
        assert got == b"" or got[9:12] in (b"400", b"413", b"431", b"501", b"505", b"408"), got
        assert got == b"" or b"x-request-id: " in got, "every answer has an id"
        wait_until(lambda: house.gateway.metrics.running == 0)


def test_f37_what_follows_a_refused_body_is_not_read_as_a_request() -> None:
    inner = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with open_house(max_body_bytes=1000) as house:
        got = raw(house.url, f"{START}content-length: 5000\r\n\r\n".encode() + inner)
        assert got.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in got
        assert got.count(b"HTTP/1.1 ") == 1


def test_f37_requests_sent_ahead_are_answered_in_their_order() -> None:
    asked = b"".join(
        f"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-request-id: n{n}\r\n\r\n".encode() for n in range(5)
    )
    last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-request-id: last\r\nconnection: close\r\n\r\n"
    with open_house() as house:
        got = raw(house.url, asked + last).decode()
        found = [line.partition(": ")[2] for line in got.splitlines() if line.startswith("x-request-id")]
        assert found == ["n0", "n1", "n2", "n3", "n4", "last"]


def test_f35_a_client_that_closes_its_half_has_left() -> None:
    slow = Timeouts(headers_s=3600, idle_s=3600)
    with faultline(stall) as line, open_house(one(line.url, timeouts=slow)) as house:
        body = json.dumps(ASK).encode()
        with socket.create_connection(("127.0.0.1", house.port)) as client:
            client.sendall(head_of(CHAT, body) + body)
            wait_until(lambda: bool(line.seen))
            client.shutdown(socket.SHUT_WR)
            assert line.seen[0].left.wait(NEVER_S)
        wait_until(lambda: house.gateway.metrics.running == 0)


# ---------------------------------------------------------------- T30: nothing can end a frame or a header

EVIL = '\n\ndata: {"choices":[]}\n\ndata: [DONE]\r\r\u2028\u0085event: error\n'


@pytest.mark.parametrize("door", [CHAT, "/v1/messages", "/v1/responses", "/api/chat"])
def test_t30_a_models_words_stay_words(door: str) -> None:
    pieces = [chunk(EVIL), chunk("end"), chunk(finish="stop"), DONE]
    with faultline(stream(*pieces)) as line, open_house(one(line.url)) as house:
        got = post(house.url, door, dict(DOORS[door].items(), stream=True))  # type: ignore[attr-defined]
        lines = got.frames.split("\n")
        assert got.text.count("[DONE]\n") == (1 if door == CHAT else 0)
        assert "\r" not in got.text
        assert "\u2028" not in got.text or all(line.startswith(("data:", "event:", "{")) for line in lines if line)
        frames = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: {", "{"))]
        assert any(EVIL in text for frame in frames for text in _texts(frame))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


# ---------------------------------------------------------------- T32, T33, T36: configuration


def test_t32_a_variable_that_is_not_set_is_named_and_its_neighbours_are_not(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[providers.openai]\napi_keys = ["${SET_ONE}", "${UNSET_ONE}"]\n')
    with pytest.raises(Exception, match="UNSET_ONE") as found:
        load_settings(file, {"SET_ONE": "sk-very-secret-value"})
    assert "very-secret" not in str(found.value)
    assert "sk-" not in str(found.value)


def test_t32_a_reference_in_a_request_stays_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET_THING", "opened")
    words = "${DRAGOMAN_SECRET_THING} os.environ/DRAGOMAN_SECRET_THING {{7*7}} {0.__class__} %(x)s"
    with faultline(GOOD) as line, open_house(one(line.url)) as house:
        assert ask(house, messages=[{"role": "user", "content": words}]).status == 200
        assert json.loads(line.seen[0].body)["messages"][0]["content"] == words


# ---------------------------------------------------------------- T37, T38: paths


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "gopher://x", "http://127.0.0.1:1/secret"])
@pytest.mark.parametrize("behind", ["anthropic", "gemini", "ollama", "openai_chat"])
def test_t37_nothing_is_read_or_fetched_for_a_client(url: str, behind: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, picture]}]}
    with (
        faultline(say(400, b'{"error":{"message":"no"}}')) as line,
        open_house(upstream("one", behind, line.url, models=("m",))) as house,
    ):
        assert post(house.url, CHAT, body).status == 400
    assert all(b"root:" not in seen.body for seen in line.seen)


@pytest.mark.parametrize(
    "name", ["../../v1/files?key=x", "a%2f..%2fb", "x:y?alt=sse#", "a b", "a\\b", "..", "a//b", "a/../b"]
)
def test_t38_a_models_name_never_changes_the_path(name: str) -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "gemini", line.url)) as house:
        got = post(house.url, CHAT, {**ASK, "model": name})
        assert got.status in (404, 200, 502)
        for seen in line.seen:
            assert seen.path.startswith("/v1beta/models/")
            assert seen.path.removeprefix("/v1beta/models/").partition(":")[0].count("/") == 0
            assert "?" not in seen.path.removesuffix("?alt=sse")


# ---------------------------------------------------------------- T40, T41, T45


def test_t40_a_field_of_the_log_is_bounded_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), open_house() as house:
        get(house.url, "/nowhere/" + "x" * 5000 + "%0a%1b[2Jforged")
        post(house.url, CHAT, {**ASK, "model": "x\n\x1b]0;forged\x07" + "y" * 5000}, {"user-agent": "\x1b[2J"})
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 5000


def test_t41_a_gateway_behind_itself_ends_after_few_rounds() -> None:
    with open_house(upstream("self", "openai_chat", "http://127.0.0.1:9", models=("m",))) as house:
        settings = house.gateway.now.settings
        spec = upstream(
            "self",
            "openai_chat",
            house.url,
            models=("m",),
        )
        house.gateway.replace(type(settings)(upstreams=(spec,), port=0), house.gateway.now.access)
        with dice(house, 0.0):
            got = ask(house)
        assert got.status == 508
        assert got.json["error"]["code"] == "loop_detected"
        served = sum(count for _, count in house.gateway.metrics.dump().requests)
        assert served <= 40


def test_t45_what_clients_and_upstreams_call_things_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_state, "MAX_BREAKERS", 50)
    monkeypatch.setattr(state, "MOST_KNOWN", 50)
    monkeypatch.setattr(metrics, "MOST_SERIES", 50)

    async def odd_codes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        code = json.loads(seen.body)["model"]
        await say(400, json.dumps({"error": {"message": "no", "code": f"code-{code}"}}).encode())(seen, writer)

    with (
        faultline(odd_codes, keep_alive=True) as line,
        open_house(upstream("one", "openai_chat", line.url, models=())) as house,
    ):
        for n in range(120):
            assert post(house.url, CHAT, {**ASK, "model": f"name-{n}", "user": f"u{n}"}).status == 400
        here = house.gateway.now.upstream_states["one"]
        assert len(here._breakers) == 50
        assert len(house.gateway.now._known) == 50
        assert len(here.learned) <= 50
        assert len(house.gateway.metrics.dump().attempts) <= 51
        assert get(house.url, "/metrics").text.count("code-name") <= 50


# ---------------------------------------------------------------- T42: hostile upstreams


@pytest.mark.parametrize("streamed", [True, False], ids=["comments for ever", "spaces for ever"])
def test_t42_an_upstream_that_never_comes_to_the_point_is_left_at_the_deadline(streamed: bool) -> None:
    async def drip(seen: Seen, writer: asyncio.StreamWriter) -> None:
        kind = b"text/event-stream" if streamed else b"application/json"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\nconnection: close\r\n\r\n")
        while True:
            writer.write(b": wait\n\n" if streamed else b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    with faultline(drip) as line, open_house(one(line.url), deadline_s=1.0) as house:
        got = ask(house, streamed=streamed)
        assert got.status == 504
        assert line.seen[0].left.wait(NEVER_S)


@pytest.mark.parametrize("filler", [b": wait\n\n", b" ", b"\n"], ids=["comments", "spaces", "lines"])
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "gemini"])
def test_t42_a_flood_before_the_first_words_is_bounded(dialect: str, filler: bytes) -> None:
    """It was kept up to the limit of a stream (256 MB), and all of it was looked at after each piece."""
    written = [0]

    async def flood(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        while True:
            writer.write(filler * (65536 // len(filler)))
            await writer.drain()
            written[0] += 65536

    with (
        faultline(flood) as line,
        open_house(upstream("one", dialect, line.url, models=("m",))) as house,
    ):
        meter = Meter()
        with meter.watch(house):
            got = ask(house, streamed=True)
        assert got.status == 502
        assert line.seen[0].left.wait(NEVER_S)
        assert written[0] < 80 * 1024 * 1024  # three tries
        assert meter.worst_s < 3 * PROMISE_S


@pytest.mark.parametrize("count", [-5, 10**12, 10**30])
def test_t42_counts_that_are_nonsense_change_no_limit_and_no_metric(count: int) -> None:
    body = json.loads(WHOLE)
    body["usage"] = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
    with faultline(say(200, json.dumps(body).encode())) as line, open_house(one(line.url, tpm=1000)) as house:
        got = ask(house, max_tokens=100)
        assert got.status == 200
        window = house.gateway.now.upstream_states["one"].admission.tpm
        assert window is not None
        used = window.used(house.gateway.clock())
        assert 100 <= used <= 300, "what was reserved stays reserved"
        assert all(0 <= tokens < 10**7 for _, tokens in house.gateway.metrics.dump().tokens)
