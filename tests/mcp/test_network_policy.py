"""Where connections go: T12 and the addresses of RELIABILITY 2.4."""

import asyncio

import httpx2
import pytest

from dragoman.mcp.http_client import make_client
from dragoman.mcp.network_policy import ForbiddenAddressError, Kind, NetworkPolicy, resolve, weigh, weigh_literal
from tests.mcp.servers import spec
from tests.mcp.web_server import Said, site

ADDRESSES: list[tuple[str, Kind]] = [
    ("93.184.216.34", "public"), ("2606:2800:220:1::1", "public"), ("::ffff:93.184.216.34", "public"),
    ("127.0.0.1", "private"), ("127.9.9.9", "private"), ("10.1.2.3", "private"), ("172.16.0.1", "private"),
    ("192.168.1.1", "private"), ("100.64.0.1", "private"), ("::1", "private"), ("fd00::1", "private"),
    ("::ffff:127.0.0.1", "private"), ("64:ff9b::7f00:1", "private"), ("2002:7f00:1::", "private"),
    ("::127.0.0.1", "private"), ("64:ff9b:1::7f00:1", "private"), ("198.51.100.7", "private"),
    ("169.254.169.254", "never"), ("::ffff:169.254.169.254", "never"), ("::ffff:a9fe:a9fe", "never"),
    ("64:ff9b::a9fe:a9fe", "never"), ("2002:a9fe:a9fe::", "never"), ("::169.254.169.254", "never"),
    ("fe80::1", "never"), ("fe80::1%eth0", "never"), ("fec0::1", "never"), ("ff02::1", "never"),
    ("224.0.0.1", "never"), ("0.0.0.0", "never"), ("0.1.2.3", "never"), ("::", "never"), ("255.255.255.255", "never"),  # noqa: S104
    ("100.100.100.200", "never"), ("168.63.129.16", "never"), ("192.0.0.192", "never"), ("fd00:ec2::254", "never"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "kind"), ADDRESSES)
def test_an_address_is_what_it_leads_to(address: str, kind: Kind) -> None:
    assert weigh(address) == kind


@pytest.mark.parametrize("host", ["metadata.google.internal", "METADATA.", "[fe80::1]", "169.254.169.254"])
def test_a_host_that_is_never_a_server_needs_no_resolving(host: str) -> None:
    assert weigh_literal(host) == "never"


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.⓪.⓪.①", "localhost"])
def test_odd_spellings_are_judged_by_what_they_resolve_to(host: str) -> None:
    """RELIABILITY 2.4: never check the string."""

    async def run() -> None:
        assert weigh_literal(host) is None
        assert {weigh(address) for address in await resolve(host, 80)} == {"private"}
        with pytest.raises(ForbiddenAddressError):
            await NetworkPolicy(host, private=False).find(host, 80)
        assert await NetworkPolicy(host, private=True).find(host, 80)

    asyncio.run(run())


class Names:
    """A resolver that answers from a script."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0)


def test_a_name_is_resolved_once_and_keeps_its_address() -> None:
    """T12: first a public answer, then one of this machine."""

    async def run() -> None:
        names = Names(["93.184.216.34"], ["127.0.0.1"])
        guard = NetworkPolicy("rebind.test", private=False, resolve=names)
        assert await guard.find("rebind.test", 443) == ["93.184.216.34"]
        assert await guard.find("rebind.test", 443) == ["93.184.216.34"]
        assert names.asked == 1
        guard.forget("rebind.test", 443)
        with pytest.raises(ForbiddenAddressError, match="private"):
            await guard.find("rebind.test", 443)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answers", "private", "allowed"),
    [
        (["93.184.216.34", "127.0.0.1"], False, False),
        (["93.184.216.34", "169.254.169.254"], True, False),
        (["10.0.0.1", "::1"], True, True),
        (["10.0.0.1"], False, False),
        ([], True, False),
    ],
)
def test_every_answer_is_judged(answers: list[str], private: bool, allowed: bool) -> None:
    async def run() -> None:
        guard = NetworkPolicy("mixed.test", private=private, resolve=Names(answers))
        if allowed:
            assert await guard.find("mixed.test", 80) == answers
        else:
            with pytest.raises(ForbiddenAddressError):
                await guard.find("mixed.test", 80)

    asyncio.run(run())


def test_the_connection_goes_to_the_judged_address_and_keeps_the_name() -> None:
    """The system's own resolver knows no such name, so nobody can have asked it."""

    async def run(port: int) -> None:
        ours = spec("ours", url=f"http://server.test:{port}/mcp", headers={"x-own": "yes"})
        names = Names(["127.0.0.1"], ["127.0.0.1"])
        async with make_client(ours, NetworkPolicy("server.test", private=True, resolve=names)) as client:
            for _ in range(3):
                assert (await client.get(str(ours.url))).status_code == 200
        assert names.asked == 1

    with site(lambda seen: Said(200, {"ok": True})) as server:
        port = int(server.url.rpartition(":")[2])
        asyncio.run(run(port))
        assert {seen.headers["host"] for seen in server.seen} == {f"server.test:{port}"}


def test_two_names_of_one_address_share_no_connection() -> None:
    async def run(port: int) -> None:
        ours = spec("ours", url=f"http://server.test:{port}/mcp")
        guard = NetworkPolicy("server.test", private=True, resolve=Names(["127.0.0.1"], ["127.0.0.1"]))
        async with make_client(ours, guard) as client:
            for name in ("server.test", "login.test", "server.test", "login.test"):
                assert (await client.get(f"http://{name}:{port}/")).status_code == 200

    with site(lambda seen: Said(200, {"ok": True})) as server:
        asyncio.run(run(int(server.url.rpartition(":")[2])))
        names = {
            name: {s.peer for s in server.seen if s.headers["host"].startswith(name)} for name in ("server", "login")
        }
        assert len(names["server"]) == len(names["login"]) == 1
        assert not names["server"] & names["login"]


def test_an_address_that_does_not_answer_is_followed_by_the_next_and_all_are_asked_for_anew() -> None:
    async def run(port: int) -> None:
        ours = spec("ours", url=f"http://server.test:{port}/mcp")
        names = Names(["127.0.0.2", "127.0.0.1"], ["127.0.0.2"], ["169.254.169.254"])
        guard = NetworkPolicy("server.test", private=True, resolve=names)
        async with make_client(ours, guard) as client:
            assert (await client.get(str(ours.url))).status_code == 200
            guard.forget("server.test", port)
            with pytest.raises(httpx2.ConnectError):
                await client.get(str(ours.url))
            with pytest.raises(httpx2.ConnectError, match="no server's"):  # it was resolved anew, and judged anew
                await client.get(str(ours.url))

    with site(lambda seen: Said(200, {"ok": True})) as server:
        asyncio.run(run(int(server.url.rpartition(":")[2])))


def test_a_public_server_sends_nobody_into_our_network() -> None:
    """Where to log in is said by the server: its word leads to private addresses only if it is there itself."""

    async def run() -> None:
        guard = NetworkPolicy("server.test", private=True, resolve=Names(["93.184.216.34"], ["10.0.0.1"]))
        await guard.find("server.test", 443)
        with pytest.raises(ForbiddenAddressError):
            await guard.find("login.test", 443)
        guard = NetworkPolicy("server.test", private=True, resolve=Names(["10.0.0.2"], ["10.0.0.1"]))
        await guard.find("server.test", 443)
        assert await guard.find("login.test", 443) == ["10.0.0.1"]

    asyncio.run(run())
