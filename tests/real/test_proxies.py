"""Real proxies before and behind the gateway: nginx, HAProxy, Caddy, and one that keeps an answer until it is whole.

They come from Debian's packages: `DRAGOMAN_REAL=1` lets the tests install what is missing (`apt-get install`, 20 MB);
without it, and where that fails, a test skips and says why.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import h11
import httpx2
import pytest

from dragoman.gateway.config.settings import RequestLimits
from dragoman.upstream.spec import Upstream
from tests.gateway.house import Faultline, Loop, Script, Seen, faultline, open_house, say, stream, upstream
from tests.gateway.test_abuse import CROOKED, FIRST_LINES, GOOD_BODY, START
from tests.gateway.test_second_parser import answers as read_answers
from tests.ports import free_port
from tests.waiting import NEVER_S, wait_until

PROXIES = ("nginx", "haproxy", "caddy", "buffering")
BIG = 6_000_000  # bytes of a request
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = json.dumps(
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}
).encode()
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

# Each listens on PORT and passes everything on to TO, as its documentation shows it for streams.
# Caddy 2.6 needs `buffer_requests`: without it one stream in five came out empty under status 200, before a plain
# asyncio server too, when the answer began before Caddy had noticed the end of the request ("use of closed network
# connection" in its log).
FILES = {
    "nginx": """
        user root; daemon off; pid FOLDER/pid; error_log FOLDER/log; worker_processes 1;
        events {}
        http {
            access_log off; client_max_body_size 64m;
            client_body_temp_path FOLDER/a; proxy_temp_path FOLDER/b; fastcgi_temp_path FOLDER/c;
            uwsgi_temp_path FOLDER/d; scgi_temp_path FOLDER/e;
            upstream there { server 127.0.0.1:TO; keepalive 8; }
            server {
                listen 127.0.0.1:PORT;
                client_header_timeout PATIENCE;
                location / {
                    proxy_pass http://there; proxy_http_version 1.1; proxy_set_header Connection "";
                    proxy_set_header Host $host; proxy_buffering BUFFERING; proxy_read_timeout 60s;
                    client_body_timeout PATIENCE; keepalive_timeout PATIENCE;
                }
            }
        }
    """,
    "haproxy": """
        defaults
            mode http
            timeout connect 5s
            timeout client PATIENCE
            timeout server 60s
            option abortonclose
        frontend here
            bind 127.0.0.1:PORT
            default_backend there
        backend there
            server one 127.0.0.1:TO
    """,
    "caddy": """
        {
            admin off
            auto_https off
            storage file_system FOLDER
            servers {
                timeouts {
                    read_header PATIENCE
                    read_body PATIENCE
                    idle PATIENCE
                }
            }
        }
        http://127.0.0.1:PORT, http://localhost:PORT {
            reverse_proxy 127.0.0.1:TO {
                buffer_requests
            }
        }
    """,
}
STARTS = {
    "nginx": ["nginx", "-c", "FILE", "-p", "FOLDER"],
    "haproxy": ["haproxy", "-f", "FILE", "-db", "-q"],
    "caddy": ["caddy", "run", "--config", "FILE", "--adapter", "caddyfile"],
}


@cache
def find(program: str) -> str:
    """Why it cannot be had; "" if it can."""
    if shutil.which(program):
        return ""
    if os.environ.get("DRAGOMAN_REAL") != "1":
        return f"{program} is not installed: set DRAGOMAN_REAL=1 to let the tests do it"
    package = "nginx-light" if program == "nginx" else program
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for words in (["update"], ["install", "--yes", "--no-install-recommends", package]):
            subprocess.run(
                ["apt-get", "-o", "DPkg::Lock::Timeout=200", *words],
                check=True,
                capture_output=True,
                env=quiet,
                timeout=NEVER_S,
            )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} cannot be installed here: {error}"
    return "" if shutil.which(program) else f"{package} brings no {program}"


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def run(program: str, text: str, port: int, folder: Path) -> Iterator[str]:
    if why := find(program):
        pytest.skip(why)
    file = folder / program
    for name, value in (("FOLDER", str(folder)), ("PORT", str(port))):
        text = text.replace(name, value)
    file.write_text(f"{text.strip()}\n")
    words = [word.replace("FILE", str(file)).replace("FOLDER", str(folder)) for word in STARTS[program]]
    env = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=env)
    try:
        wait_until(lambda: is_open(port) or process.poll() is not None, f"{program}'s start")
        assert process.poll() is None, (folder / "out").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(NEVER_S)


@contextmanager
def proxy(
    kind: str, url: str, folder: Path, *, buffering: bool = False, patience: str = f"{NEVER_S:.0f}s"
) -> Iterator[str]:
    """The address of a proxy before this one. Its patience is for clients that do not send what they began."""
    if kind == "buffering":
        with keep_until_whole(url) as found:
            yield found
        return
    text = FILES[kind].replace("TO", url.rpartition(":")[2]).replace("BUFFERING", "on" if buffering else "off")
    text = text.replace("PATIENCE", patience)
    with run(kind, text, free_port(), folder) as found:
        yield found


@contextmanager
def keep_until_whole(url: str) -> Iterator[str]:
    """A proxy that reads an answer to its end before it passes it on, with a length of its own."""
    loop = Loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *rest = head.decode("latin-1").strip().split("\r\n")
            headers = {k.lower(): v for k, v in (row.split(": ", 1) for row in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            left = {k: v for k, v in headers.items() if k not in ("content-length", "connection")}
            async with httpx2.AsyncClient(timeout=NEVER_S) as client:
                path = line.split(" ")[1]
                answer = await client.post(url + path, content=body, headers=left)
            kind = answer.headers.get("content-type", "")
            length = f"content-length: {len(answer.content)}\r\nconnection: close\r\n\r\n"
            writer.write(
                f"HTTP/1.1 {answer.status_code} X\r\ncontent-type: {kind}\r\n{length}".encode() + answer.content
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, httpx2.HTTPError):
            pass
        finally:
            writer.close()

    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0, limit=2 * BIG))
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.end(server)
        loop.stop()


def chat(url: str) -> Upstream:
    return upstream("up", "openai_chat", url, models=("m",))


@contextmanager
def chain(kind: str, place: str, folder: Path, *scripts: Script) -> Iterator[tuple[str, Faultline]]:
    """The address for clients. The proxy stands before the gateway, or between it and the upstream."""
    with faultline(*scripts, keep_alive=False) as line:
        if place == "before":
            with open_house(chat(line.url)) as house, proxy(kind, house.url, folder) as url:
                yield url, line
        else:
            with proxy(kind, line.url, folder) as url, open_house(chat(url)) as house:
                yield house.url, line


def delta(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


def texts(said: str) -> str:
    """What an Anthropic stream says."""
    return "".join(piece.split('"')[0] for piece in said.split('"text_delta","text":"')[1:])


def post(url: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/messages", json={**body, "max_tokens": 50}, timeout=NEVER_S)


async def either(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """A stream or a whole answer, as it was asked."""
    script = stream(delta("one"), delta("two"), END) if b'"stream":true' in seen.body else say(200, WHOLE)
    await script(seen, writer)


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("kind", PROXIES)
def test_answers_arrive_whole_through_a_proxy(kind: str, place: str, tmp_path: Path) -> None:
    """Whole and streamed in turn over the same connections, and a request of megabytes."""
    with chain(kind, place, tmp_path, either) as (url, line):
        for _ in range(4):
            got = post(url, {**ASK, "stream": True})
            assert texts(got.text) == "onetwo", (got.status_code, got.headers, got.text)
            assert post(url, ASK).json()["content"][0]["text"] == "fine"
        big = {**ASK, "messages": [{"role": "user", "content": "x" * BIG}]}
        assert post(url, big).json()["content"][0]["text"] == "fine"
        assert len(line.seen[-1].body) > BIG


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("kind", [kind for kind in PROXIES if kind != "buffering"])
def test_words_arrive_while_the_upstream_still_speaks(kind: str, place: str, tmp_path: Path) -> None:
    go_on = threading.Event()
    with (
        chain(kind, place, tmp_path, stream(delta("first"), go_on, delta("last"), END)) as (url, _),
        httpx2.stream(
            "POST", f"{url}/v1/messages", json={**ASK, "max_tokens": 5, "stream": True}, timeout=NEVER_S
        ) as answer,
    ):
        said = ""
        for piece in answer.iter_text():
            said += piece
            if texts(said) == "first":
                go_on.set()
    assert texts(said) == "firstlast"


def test_our_streams_ask_nginx_not_to_keep_them(tmp_path: Path) -> None:
    """`x-accel-buffering: no` is for an nginx that buffers, as it does unless it is told otherwise."""
    go_on = threading.Event()
    script = stream(delta("first"), go_on, END)
    with (
        faultline(script) as line,
        open_house(chat(line.url)) as house,
        proxy("nginx", house.url, tmp_path, buffering=True) as url,
        httpx2.stream(
            "POST", f"{url}/v1/messages", json={**ASK, "max_tokens": 5, "stream": True}, timeout=NEVER_S
        ) as answer,
    ):
        said = ""
        for piece in answer.iter_text():
            said += piece
            if texts(said) == "first":
                go_on.set()
    assert "message_stop" in said


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("kind", [kind for kind in PROXIES if kind != "buffering"])
def test_a_client_that_leaves_ends_the_upstream_through_a_proxy(kind: str, place: str, tmp_path: Path) -> None:
    never = threading.Event()
    with chain(kind, place, tmp_path, stream(delta("first"), never)) as (url, line):
        with httpx2.stream(
            "POST", f"{url}/v1/messages", json={**ASK, "max_tokens": 5, "stream": True}, timeout=NEVER_S
        ) as answer:
            next(answer.iter_text())
        assert line.seen[0].left.wait(NEVER_S)
        never.set()


def test_an_upstream_that_is_cut_behind_a_proxy_is_an_error_in_the_stream(tmp_path: Path) -> None:
    for kind in ("nginx", "haproxy", "caddy"):
        folder = tmp_path / kind
        folder.mkdir()
        with chain(kind, "behind", folder, stream(delta("first"), end="reset")) as (url, _):
            said = post(url, {**ASK, "stream": True}).text
        assert "event: error" in said, kind
        assert "message_stop" not in said, kind


# ---------------------------------------------------------------- requests within requests


@dataclass
class Wire:
    """What went over one connection between a proxy and the gateway."""

    there: bytearray = field(default_factory=bytearray)
    back: bytearray = field(default_factory=bytearray)
    ended: bool = False


@contextmanager
def tap(url: str) -> Iterator[tuple[str, list[Wire]]]:
    """A port that leads to this address and writes down what passes."""
    loop, wires = Loop(), list[Wire]()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                kept += piece
                writer.write(piece)
            writer.write_eof()
            return
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire()
        wires.append(wire)
        inner, out = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        await asyncio.gather(pass_on(reader, out, wire.there), pass_on(inner, writer, wire.back))
        writer.close()
        out.close()
        wire.ended = True

    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0))
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", wires
    finally:
        loop.end(server)
        loop.stop()


def count_requests(data: bytes) -> int:
    """How many there are, as h11 reads them; a last one that is none counts, too: it is owed a refusal."""
    found = 0
    while data:
        found += 1
        server = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
        server.receive_data(data)
        try:
            while not isinstance(event := server.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return found
        except h11.RemoteProtocolError:
            return found
        data = server.trailing_data[0]
    return found


@pytest.mark.parametrize("kind", ["nginx", "haproxy", "caddy"])
def test_t29_a_proxy_and_the_gateway_agree_where_a_request_ends(kind: str, tmp_path: Path) -> None:
    """If the gateway cut a request elsewhere than its proxy did, one client could speak in the name of the next."""
    limits = RequestLimits(head_s=1.0, body_s=1.0, keep_alive_s=1.0)
    with open_house(limits=limits) as house, tap(house.url) as (inside, wires):
        with proxy(kind, inside, tmp_path, patience="1s") as url:
            for name in (*CROOKED, *FIRST_LINES):
                start = FIRST_LINES.get(name) or START + CROOKED[name]
                send(url, start.encode("latin-1") + GOOD_BODY + INNER)
            assert httpx2.get(f"{url}/healthz").status_code == 200, "the proxy serves on"
        wait_until(lambda: all(wire.ended for wire in wires), "the end of all connections")
    asked = [(count_requests(bytes(wire.there)), len(read_answers(bytes(wire.back)))) for wire in wires]
    assert sum(requests for requests, _ in asked) > 1
    assert all(answers <= requests for requests, answers in asked), asked


INNER = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def send(url: str, data: bytes) -> None:
    """And reads until the proxy hangs up."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=NEVER_S) as client, suppress(ConnectionError):
        client.sendall(data)
        while client.recv(65536):
            pass


# ---------------------------------------------------------------- an upstream that speaks HTTP/2 only

NGINX_HTTP2 = """
    user root; daemon off; pid FOLDER/pid; error_log FOLDER/log; events {}
    http { access_log off; server { listen 127.0.0.1:PORT http2; location / { return 200; } } }
"""
NODE_HTTP2 = """
const [key, cert] = process.argv.slice(1, 3).map((file) => require("fs").readFileSync(file));
const server = require("http2").createSecureServer({ key, cert }, (_, answer) => answer.end("{}"));
server.listen(+process.argv[3], "127.0.0.1");
"""


def test_an_upstream_that_speaks_only_http2_is_named(tmp_path: Path) -> None:
    with run("nginx", NGINX_HTTP2, free_port(), tmp_path) as url, open_house(chat(url)) as house:
        answer = post(house.url, ASK)
    assert (answer.status_code, "HTTP/2 only" in answer.text) == (502, True)


def test_a_server_that_refuses_every_other_protocol_in_its_handshake_is_named(tmp_path: Path) -> None:
    node, openssl, port = shutil.which("node"), shutil.which("openssl"), free_port()
    if node is None or openssl is None:
        pytest.skip("node or openssl is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", key]
    subprocess.run([openssl, *words, "-out", certificate], check=True, capture_output=True)
    process = subprocess.Popen([node, "-e", NODE_HTTP2, key, certificate, str(port)])
    try:
        wait_until(lambda: is_open(port), "node's start")
        with open_house(chat(f"https://localhost:{port}/v1")) as house:
            answer = post(house.url, ASK)
    finally:
        process.kill()
        process.wait()
    assert (answer.status_code, "HTTP/2 only" in answer.text) == (502, True)
