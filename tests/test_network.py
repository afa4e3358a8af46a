"""Proxies and certificates: the environment, a real proxy (proxy.py) on loopback, and TLS on our own socket."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from dragoman import Client, ConnectionFailedError, UpstreamError
from dragoman.errors import ConfigError
from dragoman.gateway import client_connection
from dragoman.gateway.config.load import read_settings
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.process import server
from dragoman.gateway.process.banner import banner
from dragoman.gateway.process.certificate import open_certificate
from dragoman.gateway.process.reload import LastGood
from dragoman.gateway.process.startup import ServeOptions, make_access, settle
from dragoman.network import Network, find_proxy, find_unused_variable
from tests.gateway.house import House, faultline, open_house, state, upstream
from tests.gateway.test_faults import GOOD, ask
from tests.gateway.test_unreachable import Authority, Vault
from tests.gateway.web import head_of
from tests.mcp.servers import House as McpHouse
from tests.mcp.servers import spec, words
from tests.mcp.web_server import TOOL, mcp, site
from tests.ports import free_port
from tests.waiting import NEVER_S, wait_until

COMPANY = {
    "HTTPS_PROXY": "http://u:p@proxy.test:3128",
    "http_proxy": "proxy.test:3129",
    "NO_PROXY": "in.test,10.0.0.0/8",
}


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://api.openai.com/v1", "http://u:p@proxy.test:3128"),
        ("http://far.test", "http://proxy.test:3129"),
        ("https://vllm.in.test", ""),
        ("https://in.test:8443", ""),
        ("https://notin.test", "http://u:p@proxy.test:3128"),
        ("http://10.1.2.3:11434", ""),
        ("http://127.0.0.1:11434", ""),
        ("http://localhost:11434", ""),
        ("http://[::1]:11434", ""),
    ],
)
def test_the_environment_says_which_proxy(url: str, proxy: str) -> None:
    assert find_proxy(url, COMPANY) == proxy


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        ({"ALL_PROXY": "http://a.test:1"}, "http://a.test:1"),
        ({"ALL_PROXY": "socks5://a.test:1"}, ""),
        ({"https_proxy": "http://a.test:x"}, ""),
        ({"https_proxy": "http://a.test:1", "no_proxy": "*"}, ""),
        ({"https_proxy": "http://a.test:1", "no_proxy": "far.test:8443"}, "http://a.test:1"),
        ({"https_proxy": "http://a.test:1", "no_proxy": ".test"}, ""),
        ({}, ""),
    ],
)
def test_odd_variables(env: dict[str, str], proxy: str) -> None:
    assert find_proxy("https://far.test", env) == proxy


def test_a_proxy_that_is_not_used_is_in_the_message() -> None:
    socks = {"ALL_PROXY": "socks5://a.test:1", "NO_PROXY": "near.test"}
    assert find_unused_variable("https://far.test", socks) == "ALL_PROXY"
    assert find_unused_variable("https://near.test", socks) == ""
    assert find_unused_variable("http://127.0.0.1:1", socks) == ""
    assert find_unused_variable("https://far.test", COMPANY) == ""


def test_a_cgi_programs_http_proxy_is_a_header_of_its_client() -> None:
    assert find_proxy("http://far.test", {"HTTP_PROXY": "http://evil.test:1", "REQUEST_METHOD": "GET"}) == ""


def networks(more: dict[str, Any], provider: dict[str, Any]) -> Network:
    settings = read_settings({"providers": {"openai": {"models": ["m"], **provider}}, **more}, "f.toml", COMPANY)
    return settings.upstreams[0].network


def test_the_configuration_decides_over_the_environment(tmp_path: Path) -> None:
    assert networks({}, {}).proxy == COMPANY["HTTPS_PROXY"]
    assert networks({"proxy": False}, {}) == Network()
    assert networks({}, {"proxy": False}) == Network()
    assert networks({}, {"proxy": "http://other.test:1"}).proxy == "http://other.test:1"
    with pytest.raises(ConfigError, match=r"providers\.openai\.proxy: expected http://"):
        networks({}, {"proxy": "socks5://other.test:1"})
    with pytest.raises(ConfigError, match="ca_file"):
        networks({}, {"ca_file": str(tmp_path / "none.pem")})


def test_the_start_up_names_the_proxy_without_its_password(tmp_path: Path) -> None:
    settings = read_settings({"providers": {"openai": {"models": ["m"]}}}, "f.toml", COMPANY)
    text = banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))
    assert "proxy          http://proxy.test:3128 for openai (`proxy = false` switches it off)" in text
    assert "u:p" not in text + repr(settings)


# ---------------------------------------------------------------- a real proxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("proxy", reason="proxy.py is not installed")
    folder = tmp_path_factory.mktemp("proxy")
    words = f"--hostname 127.0.0.1 --port 0 --port-file {folder}/port --basic-auth user:pass%word --num-workers 1"
    command = [sys.executable, "-m", "proxy", *words.split(), "--num-acceptors", "1", "--log-level", "ERROR"]
    process = subprocess.Popen([*command, "--data-dir", str(folder)], env={**os.environ, "HOME": str(folder)})
    try:
        wait_until(lambda: (folder / "port").is_file() and (folder / "port").read_text().strip(), "the proxy's port")
        yield f"http://user:pass%25word@127.0.0.1:{(folder / 'port').read_text().strip()}"
    finally:
        process.terminate()
        process.wait(NEVER_S)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def trusted(authority: Authority, folder: Path) -> str:
    path = folder / "authority.pem"
    path.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    return str(path)


def test_the_gateway_goes_through_the_proxy_with_and_without_tls(
    proxy: str, authority: Authority, tmp_path: Path
) -> None:
    vault = Vault(authority.issue(tmp_path, "server"))
    way = Network(proxy=proxy, ca_file=trusted(authority, tmp_path))
    try:
        with open_house(upstream("one", "openai_chat", vault.url, models=("m",), network=way)) as house:
            assert ask(house).status == 200
    finally:
        vault.close()
    assert b"proxy-authorization" not in vault.heard.lower()
    with (
        faultline(GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), network=way)) as house,
    ):
        assert ask(house).status == 200
        assert "via" in line.seen[0].headers
        assert "proxy-authorization" not in line.seen[0].headers


@pytest.mark.parametrize("url", ["https://127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_proxy_that_refuses_is_named_as_the_reason(url: str, proxy: str) -> None:
    """Without TLS its 407 was taken for the server's own answer: "the request is wrong"."""
    way = Network(proxy=proxy.replace("user:", "stranger:"))
    with open_house(upstream("one", "openai_chat", url, models=("m",), network=way)) as house:
        got = ask(house)
    assert got.status == 502
    assert "the proxy answers 407: it wants a user name and a password" in got.text


@pytest.mark.parametrize("url", ["https://127.0.0.1:9", "http://127.0.0.1:9"])
@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("http://127.0.0.1:9", "the proxy accepts no connection"),
        ("http://proxy.invalid:3128", "the proxy's name cannot be resolved"),
    ],
)
def test_a_proxy_that_is_away_is_named_as_the_reason(url: str, proxy: str, words: str) -> None:
    """The server was named, which may well be there."""
    with (
        Client("compatible", api_key="k", base_url=url, env={}, proxy=proxy, max_retries=0) as client,
        pytest.raises(ConnectionFailedError, match=words),
    ):
        client.chat("m", "hi")


def test_the_client_goes_through_the_proxy(proxy: str, authority: Authority, tmp_path: Path) -> None:
    vault = Vault(authority.issue(tmp_path, "server"))
    options: Any = {"api_key": "k", "base_url": vault.url, "env": {}}
    try:
        with Client("compatible", proxy=proxy, ca_file=trusted(authority, tmp_path), **options) as client:
            assert client.chat("m", "hi").text
        with Client("compatible", **options) as client, pytest.raises(UpstreamError, match="TLS"):
            client.chat("m", "hi")
    finally:
        vault.close()


def test_an_mcp_server_is_reached_through_the_proxy(proxy: str, tmp_path: Path) -> None:
    async def call(url: str, proxy: str | bool) -> str:
        async with McpHouse(tmp_path, spec("far", url=f"{url}/mcp", proxy=proxy)) as house:
            return words(await house.call(f"far__{TOOL['name']}"))

    with site(mcp) as server:
        assert asyncio.run(call(server.url, proxy)) == "done"
        assert "via" in server.seen[0].headers  # proxy.py adds it to the first request of a connection
        server.seen.clear()
        assert asyncio.run(call(server.url, False)) == "done"
        assert not any("via" in seen.headers for seen in server.seen)


def test_a_client_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(tmp_path, "server"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(trusted(authority, tmp_path))
    vault = Vault(context)
    options: Any = {"base_url": vault.url, "ca_file": trusted(authority, tmp_path), "env": {}}
    try:
        with Client("compatible", client_cert=str(authority.issue(tmp_path, "me")), **options) as client:
            assert client.chat("m", "hi").text
        with Client("compatible", **options) as client, pytest.raises(UpstreamError, match="client_cert"):
            client.chat("m", "hi")
    finally:
        vault.close()


# ---------------------------------------------------------------- TLS on our own socket


def fetch(url: str, authority: Authority) -> tuple[Any, bytes]:
    """The answer of /healthz, and the certificate that was shown."""
    host, port = url.removeprefix("https://").split(":")

    async def ask_once() -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=authority.trust())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        data = await reader.read()
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return data, shown

    data, shown = asyncio.run(ask_once())
    return json.loads(data.partition(b"\r\n\r\n")[2]), shown


def load_again(house: House) -> None:
    """As a reload does, after it has found the configuration good."""
    assert house.server.certificate is not None
    house.server.certificate.load(house.gateway.now.settings)


def test_the_gateway_speaks_https_and_takes_a_new_certificate(authority: Authority, tmp_path: Path) -> None:
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path)) as house:
        url = house.url.replace("http://", "https://")
        said, before = fetch(url, authority)
        assert said == {"status": "ok"}
        authority.issue(tmp_path, "own")
        load_again(house)
        assert fetch(url, authority)[1] != before


@pytest.mark.parametrize("secure", [False, True])
def test_the_health_check_of_the_image_knows_both_schemes(secure: bool, authority: Authority, tmp_path: Path) -> None:
    check = [sys.executable, str(Path(__file__).parent.parent / "deploy" / "healthcheck.py")]
    with open_house(tls_cert=str(authority.issue(tmp_path, "own")) if secure else "") as house:
        asked = [*check, f"127.0.0.1:{house.port}"]  # it waits for a second, as Docker asks again
        wait_until(lambda: subprocess.run(asked, timeout=NEVER_S, capture_output=True).returncode == 0)
    done = subprocess.run([*check, f"127.0.0.1:{free_port()}"], timeout=NEVER_S, capture_output=True)
    assert done.returncode == 1


def damage(path: Path, how: str, authority: Authority, tmp_path: Path) -> None:
    good = path.read_bytes()
    key, begins, certificate = good.partition(b"-----BEGIN CERTIFICATE")
    match how:
        case "empty":
            path.write_bytes(b"")
        case "half":
            path.write_bytes(good[: len(good) * 2 // 3])
        case "no key":
            path.write_bytes(begins + certificate)
        case "no certificate":
            path.write_bytes(key)
        case "another key":
            other = authority.issue(tmp_path, "other").read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]
            path.write_bytes(other + begins + certificate)
        case "a key with a password":
            loaded = load_pem_private_key(key, None)
            locked = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
            path.write_bytes(locked + begins + certificate)
        case "vanished":
            path.unlink()
        case _:
            path.unlink()
            path.mkdir()


DAMAGES = (
    "empty", "half", "no key", "no certificate", "another key", "a key with a password", "vanished", "a folder"
)  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
def test_a_new_certificate_that_cannot_be_used_leaves_the_old_one(
    how: str, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reload has looked at the files a moment before; they can change in between."""
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path)) as house:
        url = house.url.replace("http://", "https://")
        before = fetch(url, authority)[1]
        damage(path, how, authority, tmp_path)
        load_again(house)
        assert fetch(url, authority)[1] == before
        assert "certificate_rejected" in caplog.text


@pytest.mark.parametrize("how", ["half", "another key"])
def test_a_worker_that_starts_beside_a_broken_certificate_shows_the_last_good_one(
    how: str, authority: Authority, tmp_path: Path
) -> None:
    path = authority.issue(tmp_path, "own")
    file = tmp_path / "dragoman.toml"
    file.write_text(f'demo = true\ntls_cert = "{path}"\n')
    options, env = ServeOptions(config=file), state(tmp_path)
    settings = settle(options, env)
    last_good = LastGood(options, env, settings, make_access(settings, env), open_certificate(settings))
    assert last_good.certificate is not None
    first = last_good.certificate._newest
    last_good.follow()
    second = last_good.certificate._newest
    assert first is not second
    damage(path, how, authority, tmp_path)
    last_good.follow()
    assert last_good.for_new_process()[0].tls_cert == str(path)
    assert last_good.certificate._newest is second


def test_a_client_that_never_begins_to_speak_tls_is_ended(authority: Authority, tmp_path: Path) -> None:
    """asyncio gives it a minute."""
    path, sooner_s = authority.issue(tmp_path, "own"), 40.0
    with (
        open_house(tls_cert=str(path), limits=RequestLimits(head_s=0.1)) as house,
        socket.create_connection(("127.0.0.1", house.port), timeout=sooner_s) as client,
    ):
        assert client.recv(1) == b""


PATIENT = RequestLimits(head_s=2 * NEVER_S)


def connect(house: House) -> socket.socket:
    return socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S)


def ask_over_tls(client: socket.socket, authority: Authority) -> bytes:
    with authority.trust().wrap_socket(client, server_hostname="127.0.0.1") as connection:
        body = b'{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'
        connection.sendall(head_of("/v1/chat/completions", body) + body)
        return connection.recv(100)


def test_a_handshake_that_runs_as_the_server_ends_is_served(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reset, or its request got a 503: a rolling restart lost it."""
    monkeypatch.setattr(server, "LINGER_S", NEVER_S)
    monkeypatch.setattr(client_connection, "LINGER_S", NEVER_S)
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path), limits=PATIENT) as house, connect(house) as client:
        wait_until(lambda: house.server.open.opening)
        house.server.end()
        wait_until(lambda: house.gateway.leaving)
        assert ask_over_tls(client, authority).startswith(b"HTTP/1.1 200")


def test_clients_that_say_nothing_as_the_server_ends_keep_no_other_client_waiting(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited to be accepted had their handshakes one after the other: each could last ten seconds."""
    monkeypatch.setattr(server, "LINGER_S", NEVER_S)
    monkeypatch.setattr(client_connection, "LINGER_S", NEVER_S)
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path), limits=PATIENT) as house, ExitStack() as clients:

        async def come_at_once() -> socket.socket:
            house.server.end()
            await asyncio.sleep(0)  # it knows, and does not see the clients that come now
            for _ in range(5):
                clients.enter_context(connect(house))
            return clients.enter_context(connect(house))

        assert ask_over_tls(house.loop.run(come_at_once()), authority).startswith(b"HTTP/1.1 200")


def test_a_client_that_never_begins_to_speak_tls_does_not_keep_a_server_from_its_end(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LINGER_S", 0.01)
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path), limits=PATIENT) as house, connect(house) as client:
        wait_until(lambda: house.server.open.opening)
        house.server.end()
        assert client.recv(1) == b""


def test_clients_that_never_begin_to_speak_tls_count_as_connections(authority: Authority, tmp_path: Path) -> None:
    """They were no connections yet, and took all files that a process may open: others got a 500 or a reset."""
    path, limits = authority.issue(tmp_path, "own"), RequestLimits(head_s=2 * NEVER_S, connections=20)
    with open_house(tls_cert=str(path), limits=limits) as house, ExitStack() as clients:
        silent = [clients.enter_context(connect(house)) for _ in range(25)]
        assert [client.recv(1) for client in silent[:5]] == [b""] * 5
        assert ask_over_tls(clients.enter_context(connect(house)), authority).startswith(b"HTTP/1.1 200")
        assert len(house.server.open.opening) <= 20


def test_a_client_that_speaks_no_tls_is_no_error(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = authority.issue(tmp_path, "own")
    with open_house(tls_cert=str(path)) as house:
        with connect(house) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while client.recv(100):
                pass
        wait_until(lambda: not house.server.open.opening)
        assert fetch(house.url.replace("http://", "https://"), authority)[0] == {"status": "ok"}
    assert "exception" not in caplog.text


def test_a_certificate_that_is_none_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("none")
    (tmp_path / "dragoman.toml").write_text(f'demo = true\ntls_cert = "{tmp_path}/own.pem"\n')
    with pytest.raises(ConfigError, match="tls_cert: the certificate or its key cannot be used"):
        settle(ServeOptions(config=tmp_path / "dragoman.toml"), state(tmp_path))
