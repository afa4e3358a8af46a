"""Upstreams one does not get through to: black holes, names, certificates, full houses, stale connections
(F02, F14, F29-F32)."""

import asyncio
import datetime
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dragoman.upstream import transport
from dragoman.upstream.http import dial
from dragoman.upstream.http.dial import Resolver
from dragoman.upstream.spec import Timeouts, Upstream
from tests.gateway.house import (
    CANARY,
    House,
    Loop,
    Script,
    Seen,
    faultline,
    open_house,
    reset,
    say,
    set_deadline,
    stream,
    upstream,
)
from tests.gateway.skipped_pauses import held_time
from tests.gateway.test_faults import DONE, GOOD, WHOLE, ask, chunk, dice, hang_up, together
from tests.waiting import NEVER_S, until, wait_until


def one(url: str, **more: Any) -> Upstream:
    return upstream("one", "openai_chat", url, models=("m",), **more)


def two(url: str, **more: Any) -> Upstream:
    return upstream("two", "openai_chat", url, models=("m",), **more)


# ---------------------------------------------------------------- F02: nobody takes the connection


@contextmanager
def black_hole() -> Iterator[str]:
    """A port whose line of waiting connections is full: whoever calls now gets no answer at all."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        callers = []
        for _ in range(3):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
            callers.append(caller)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            for caller in callers:
                caller.close()


def test_f02_a_connection_that_is_not_taken_ends_in_time_and_the_next_is_asked() -> None:
    quick = Timeouts(connect_s=0.2, headers_s=100, idle_s=100)
    with (
        black_hole() as hole,
        faultline(GOOD) as second,
        open_house(one(hole, timeouts=quick), two(second.url)) as house,
    ):
        began = time.monotonic()
        got = ask(house)
        assert got.headers["x-dragoman-upstream"] == "two/m"
        assert time.monotonic() - began > 0.15


def test_f02_a_connection_that_is_not_taken_is_a_504_and_is_not_tried_again_there() -> None:
    with black_hole() as hole, open_house(one(hole, timeouts=Timeouts(connect_s=0.2))) as house:
        got = ask(house)
        assert got.status == 504
        assert sum(count for _, count in house.gateway.metrics.dump().attempts) == 1
        wait_until(lambda: house.gateway.now.upstream_states["one"].admission.running == 0)


# ---------------------------------------------------------------- F29: names


@contextmanager
def names(house: House, monkeypatch: pytest.MonkeyPatch, lookup_s: float = 20.0) -> Iterator[dict[str, Any]]:
    """A resolver of our own: name -> address, an exception, or an Event to wait for."""
    table: dict[str, Any] = {}

    def look_up(host: str, port: int) -> list[Any]:
        answer = table[host]
        if isinstance(answer, threading.Event):
            answer.wait(NEVER_S)
            answer = OSError("late")
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port))]

    monkeypatch.setattr(dial, "look_up", look_up)
    house.gateway.transport._resolver = Resolver(lookup_s=lookup_s)
    yield table
    for answer in table.values():
        if isinstance(answer, threading.Event):
            answer.set()


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


@pytest.mark.parametrize("fault", [socket.gaierror(socket.EAI_NONAME, "no such name"), OSError("no resolver")])
def test_f29_an_unknown_name_goes_to_the_next(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        faultline(GOOD) as second,
        open_house(one("http://gone.test:1"), two(second.url)) as house,
        names(house, monkeypatch) as table,
    ):
        table["gone.test"] = fault
        assert ask(house).headers["x-dragoman-upstream"] == "two/m"


def test_f29_an_unknown_name_is_a_503_that_does_not_tell_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_house(one("http://gone.test:1")) as house, names(house, monkeypatch) as table, dice(house, 0.0):
        table["gone.test"] = socket.gaierror(socket.EAI_NONAME, "no such name")
        got = ask(house)
        assert got.status == 503
        assert "gone.test" not in got.text
        assert int(got.headers["retry-after"]) >= 1


def test_f29_a_slow_resolver_ends_in_time_and_others_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with faultline(GOOD) as good, ThreadPoolExecutor(12) as pool:
        slow = [upstream(f"slow{n}", "openai_chat", f"http://slow{n}.test:1", models=(f"slow{n}",)) for n in range(12)]
        with (
            open_house(one(f"http://good.test:{port_of(good.url)}"), *slow) as house,
            names(house, monkeypatch, lookup_s=0.6) as table,
            dice(house, 0.0),
        ):
            table |= {f"slow{n}.test": threading.Event() for n in range(12)} | {"good.test": "127.0.0.1"}
            stuck = [pool.submit(ask, house, model=f"slow{n}") for n in range(12)]
            wait_until(lambda: house.gateway.metrics.running >= 12)
            assert [ask(house).status for _ in range(5)] == [200] * 5, "twelve slow names are in nobody's way"
            assert {future.result().status for future in stuck} <= {503, 504}


def test_f29_the_last_good_answer_serves_when_the_resolver_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "FRESH_S", 0.0)
    with (
        faultline(GOOD) as good,
        open_house(one(f"http://good.test:{port_of(good.url)}")) as house,
        names(house, monkeypatch) as table,
    ):
        table["good.test"] = "127.0.0.1"
        assert ask(house).status == 200
        table["good.test"] = OSError("no resolver")
        assert ask(house).status == 200


# ---------------------------------------------------------------- F30: certificates

DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority for one test run."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])
        self.certificate = self._sign(self.name, self.key.public_key(), [], authority=True)

    def _sign(
        self, subject: x509.Name, public: Any, names_: list[x509.GeneralName], *, authority: bool = False,
        age: datetime.timedelta = datetime.timedelta(0),
    ) -> x509.Certificate:  # fmt: skip
        start = datetime.datetime.now(datetime.UTC) - DAY - age
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + 2 * DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Python 3.13 demands these (RFC 5280, 4.2.1)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if authority:
            uses = dict.fromkeys(
                ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
            )
            use = x509.KeyUsage(
                **uses,
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(use, critical=True)
        if names_:
            builder = builder.add_extension(x509.SubjectAlternativeName(names_), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, folder: Path, name: str, *, host: str = "127.0.0.1", age: datetime.timedelta = DAY * 0) -> Path:
        """A file with a key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        known: x509.GeneralName = (
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        )
        certificate = self._sign(subject, key.public_key(), [known], age=age)
        path = folder / f"{name}.pem"
        pem = serialization.Encoding.PEM
        path.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + certificate.public_bytes(pem)
        )
        return path

    def trust(self) -> ssl.SSLContext:
        pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)


class Vault:
    """A TLS server that answers everything and counts what it heard in the clear."""

    def __init__(self, certificate: Path | ssl.SSLContext | None) -> None:
        self.heard = b""
        self._loop = Loop()
        context = certificate if isinstance(certificate, ssl.SSLContext) else None
        if isinstance(certificate, Path):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        self._server = self._loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context))
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._stalls = certificate is None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._stalls:  # takes the connection and says nothing
                await asyncio.sleep(3600)
            self.heard += await reader.readuntil(b"\r\n\r\n")
            await GOOD(Seen("POST", "/", {}, b""), writer)
            await writer.drain()
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.end(self._server)

        async def end() -> None:
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)  # what was closed goes in the loop's next turn

        self._loop.run(end())
        self._loop.stop()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@contextmanager
def vault(authority: Authority, folder: Path, what: str) -> Iterator[Vault]:
    match what:
        case "good":
            certificate: Path | None = authority.issue(folder, what)
        case "expired":
            certificate = authority.issue(folder, what, age=10 * DAY)
        case "for another host":
            certificate = authority.issue(folder, "other", host="other.test")
        case "of another authority":
            certificate = Authority().issue(folder, "stranger")
        case _:
            certificate = None
    server = Vault(certificate)
    try:
        yield server
    finally:
        server.close()


TOLD = {
    "expired": "not trusted: it has expired",
    "for another host": "not trusted: it is for another host",
    "of another authority": "not trusted: its authority is not known here; name it in ca_file or SSL_CERT_FILE",
    "a stalled handshake": "in time",
}
BAD = list(TOLD)


@pytest.mark.parametrize("what", ["good", *BAD])
def test_f30_a_certificate_is_checked_before_anything_is_said(what: str, authority: Authority, tmp_path: Path) -> None:
    short = Timeouts(connect_s=0.3 if what == "a stalled handshake" else 100, headers_s=100, idle_s=100)
    with vault(authority, tmp_path, what) as server, open_house(one(server.url, timeouts=short)) as house:
        house.gateway.transport._ssl = authority.trust()
        got = ask(house)
        if what == "good":
            assert got.status == 200
            assert CANARY.encode() in server.heard
            return
        code, status = ("timeout", 504) if what == "a stalled handshake" else ("upstream_tls", 502)
        assert (got.status, got.json["error"]["code"]) == (status, code)
        assert TOLD[what] in got.json["error"]["message"]
        assert server.heard == b"", "the key was not sent"
        tried = sum(count for _, count in house.gateway.metrics.dump().attempts)
        assert tried == 1, "not tried again at the same place"


def test_f30_a_server_without_tls_is_not_said_to_have_a_bad_certificate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer_in_plain() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")

        pool.submit(answer_in_plain)
        with open_house(one(f"https://127.0.0.1:{listener.getsockname()[1]}")) as house:
            got = ask(house)
    assert (got.status, got.json["error"]["code"]) == (502, "upstream_tls")
    assert "does not speak TLS: should its address begin with http://?" in got.json["error"]["message"]


@pytest.mark.parametrize("what", BAD)
def test_f30_a_bad_certificate_goes_to_the_next(what: str, authority: Authority, tmp_path: Path) -> None:
    short = Timeouts(connect_s=0.3 if what == "a stalled handshake" else 100, headers_s=100, idle_s=100)
    with (
        vault(authority, tmp_path, what) as server,
        faultline(GOOD) as second,
        open_house(one(server.url, timeouts=short), two(second.url)) as house,
    ):
        house.gateway.transport._ssl = authority.trust()
        assert ask(house).headers["x-dragoman-upstream"] == "two/m"
        assert server.heard == b""


# ---------------------------------------------------------------- F31: every place is taken


def test_f31_a_full_house_waits_or_says_so_and_nothing_is_lost() -> None:
    release = threading.Event()
    with (
        faultline(stream(chunk("fi"), release, chunk("ne"), chunk(finish="stop"), DONE)) as line,
        open_house(one(line.url, at_once=5, queue=10)) as house,
        ThreadPoolExecutor(15) as pool,
    ):
        admission = house.gateway.now.upstream_states["one"].admission
        running = [pool.submit(ask, house, streamed=True) for _ in range(15)]
        wait_until(lambda: len(line.seen) == 5 and len(admission.queue) == 10)
        turned_away = [ask(house, streamed=True) for _ in range(10)]
        assert {(got.status, got.headers["retry-after"]) for got in turned_away} == {(503, "1")}
        assert len(line.seen) == 5
        assert not any(future.done() for future in running), "they were told at once"
        release.set()
        assert [future.result().status for future in running] == [200] * 15
        wait_until(lambda: (admission.running, len(admission.queue)) == (0, 0))
        assert [ask(house, streamed=True).status for _ in range(6)] == [200] * 6


def test_f31_who_waited_in_vain_for_a_place_hears_503() -> None:
    release = threading.Event()
    with (
        faultline(stream(chunk("fi"), release)) as line,
        open_house(one(line.url, at_once=1)) as house,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(ask, house, streamed=True)
        wait_until(lambda: len(line.seen) == 1)
        set_deadline(house.gateway, 0.5)
        late = ask(house)
        assert late.status == 503
        assert re.search(r"waited \d+\.", late.json["error"]["message"])
        release.set()
        first.result()


# ---------------------------------------------------------------- F32: idle connections the server has closed


def test_f32_a_retry_never_meets_a_second_stale_connection() -> None:
    """Each connection answers once; the second question on it finds it closed, as an idle one is found."""
    answered: set[int] = set()

    async def once(seen: Seen, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        if port in answered:
            writer.close()
            raise ConnectionError
        answered.add(port)
        await until(lambda: len(answered) >= 12, "twelve connections")
        await GOOD(seen, writer)

    with faultline(once, keep_alive=True) as line, open_house(one(line.url)) as house:
        assert {got.status for got in together(12, lambda: ask(house))} == {200}
        assert len(answered) == 12, "twelve connections to choose from"
        before = len(line.seen)
        assert ask(house).status == 200
        assert len(line.seen) == before + 2, "a stale one, and then a fresh one"
        assert [ask(house).status for _ in range(149)] == [200] * 149
        state = house.gateway.now.upstream_states["one"]
        assert state.failed == 0, "not counted as a failure"
        wait_until(lambda: house.gateway.metrics.dump().attempts == [(("one", "ok"), 162)])
        assert len(line.seen) > 162 + 100


# ---------------------------------------------------------------- F14: everybody says 429


def limited(over: threading.Event | None = None, **headers: str) -> Script:
    """429 until it is over, and from then on a good answer."""
    refuse = say(429, b'{"error":{"message":"slow down"}}', **headers)

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await (GOOD if over is not None and over.is_set() else refuse)(seen, writer)

    return script


def test_f14_when_all_are_limited_the_client_gets_the_smallest_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        faultline(limited(retry_after="50")) as first,
        faultline(limited(retry_after="30")) as second,
        open_house(one(first.url, queue=0), two(second.url, queue=0)) as house,
        held_time(house, monkeypatch) as held,
    ):
        told = [ask(house) for _ in range(20)]
        assert {got.status for got in told} == {429}
        assert all(20 < int(got.headers["retry-after"]) <= 31 for got in told)
        assert (len(first.seen), len(second.seen)) == (1, 1), "nobody asks before the time is up"
        assert held.waits == []


def test_f14_who_was_limited_waits_for_that_upstream_when_it_is_free_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has a limit, too, which another request has met, and it lasts longer."""
    over = threading.Event()
    with (
        faultline(limited(over, retry_after="20")) as first,
        faultline(GOOD) as second,
        open_house(one(first.url), two(second.url)) as house,
        held_time(house, monkeypatch) as held,
        ThreadPoolExecutor(1) as pool,
    ):
        other = house.gateway.now.upstream_states["two"]
        other.keys.rest(other.keys.keys[0], held.clock() + 50, "rate limited", "m")
        held.hold()
        asked = pool.submit(ask, house)
        wait_until(lambda: held.waits)
        over.set()
        held.go()
        assert asked.result().headers["x-dragoman-upstream"] == "one/m"
        assert [wait <= 22 for wait in held.waits] == [True]


def test_f14_only_as_many_sit_out_a_limit_as_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    with (
        faultline(limited(over, retry_after="20")) as first,
        faultline(limited(retry_after="50")) as second,
        open_house(one(first.url, queue=3), two(second.url, queue=3)) as house,
        held_time(house, monkeypatch) as held,
        ThreadPoolExecutor(8) as pool,
    ):
        state = house.gateway.now.upstream_states["one"]
        held.hold()
        waiting = [pool.submit(ask, house) for _ in range(3)]
        wait_until(lambda: state.waiting_for_cooldown == 3)
        told = [ask(house) for _ in range(5)]
        assert all(got.status == 429 and 1 <= int(got.headers["retry-after"]) <= 21 for got in told)
        assert not any(future.done() for future in waiting), "the others were told at once"
        over.set()
        held.go()
        assert [future.result().status for future in waiting] == [200] * 3
        assert max(held.waits) <= 22, "they waited for the first to be free, not for the last"
        assert 4 <= len(first.seen) <= 6, "each at most once before all knew, each once after"
        assert 1 <= len(second.seen) <= 3
        assert state.waiting_for_cooldown == 0


@pytest.mark.parametrize("kept", [1, 6])
def test_p6_a_request_is_posted_three_times_at_most_also_when_kept_connections_die(kept: int) -> None:
    """Each of three attempts took a kept connection, which the server had read from and closed: six posts."""

    async def slowly(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await until(lambda: len(line.seen) >= kept, "as many connections at once")
        await say(200, WHOLE)(seen, writer)

    with faultline(slowly, keep_alive=True) as line, open_house(one(line.url)) as house, dice(house, 0.0):
        together(kept, lambda: ask(house))
        line.scripts, before = [hang_up], len(line.seen)
        assert ask(house).status == 502
        assert len(line.seen) - before == 3


def test_p6_a_request_that_was_worked_on_is_not_posted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "WORKED_S", 0.2)

    async def work_and_hang_up(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.4)
        reset(writer)

    with faultline(work_and_hang_up) as line, open_house(one(line.url)) as house:
        assert ask(house).json["error"]["code"] == "upstream_gave_up"
        assert len(line.seen) == 1
    monkeypatch.setattr(transport, "STALE_S", 0.2)
    with faultline(GOOD, work_and_hang_up, keep_alive=True) as line, open_house(one(line.url)) as house:
        assert ask(house).status == 200
        assert ask(house).json["error"]["code"] == "upstream_gave_up"
        assert len(line.seen) == 2


async def speak_http2(seen: Seen, writer: asyncio.StreamWriter) -> None:
    settings, goaway = bytes.fromhex("000000040000000000"), bytes.fromhex("0000080700000000000000000000000001")
    writer.write(settings + goaway)


def test_an_upstream_that_speaks_http2_only_is_said_so_and_asked_once() -> None:
    with faultline(speak_http2) as line, open_house(one(line.url)) as house:
        got = ask(house)
        assert (got.status, got.json["error"]["code"]) == (502, "upstream_http2_only")
        assert "HTTP/2" in got.text
        assert len(line.seen) == 1
    refused = ssl.SSLError(1, "[SSL: TLSV1_ALERT_NO_APPLICATION_PROTOCOL] tlsv1 alert no application protocol")
    refused.reason = "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"
    assert transport.unreached(refused).code == "upstream_http2_only"
