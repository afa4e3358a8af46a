"""Where connections go: T12 and the addresses of RELIABILITY 2.4."""

import asyncio

import httpx2
import pytest

from dragoman.mcp.http_client import make_client
from dragoman.mcp.network_policy import (
    AddressKind,
    ForbiddenAddressError,
    NetworkPolicy,
    classify_address,
    classify_host,
    resolve,
)
from tests.mcp.servers import spec
from tests.mcp.web_server import Said, site

ADDRESSES: list[tuple[str, AddressKind]] = [
    ("93.184.216.34", "public"), ("2606:2800:220:1::1", "public"), ("::ffff:93.184.216.34", "public"),
    ("127.0.0.1", "private"), ("127.9.9.9", "private"), ("10.1.2.3", "private"), ("172.16.0.1", "private"),
    ("192.168.1.1", "private"), ("100.64.0.1", "private"), ("::1", "private"), ("fd00::1", "private"),
    ("::ffff:127.0.0.1", "private"), ("64:ff9b::7f00:1", "private"), ("2002:7f00:1::", "private"),
    ("::127.0.0.1", "private"), ("64:ff9b:1::7f00:1", "private"), ("198.51.100.7", "private"),
    ("169.254.169.254", "forbidden"), ("::ffff:169.254.169.254", "forbidden"), ("::ffff:a9fe:a9fe", "forbidden"),
    ("64:ff9b::a9fe:a9fe", "forbidden"), ("2002:a9fe:a9fe::", "forbidden"), ("::169.254.169.254", "forbidden"),
    ("fe80::1", "forbidden"), ("fe80::1%eth0", "forbidden"), ("fec0::1", "forbidden"), ("ff02::1", "forbidden"),
    ("224.0.0.1", "forbidden"), ("0.0.0.0", "forbidden"), ("0.1.2.3", "forbidden"),  # noqa: S104
    ("::", "forbidden"), ("255.255.255.255", "forbidden"),
    ("100.100.100.200", "forbidden"), ("168.63.129.16", "forbidden"), ("192.0.0.192", "forbidden"),
    ("fd00:ec2::254", "forbidden"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "kind"), ADDRESSES)
def test_an_address_is_classified_by_where_it_leads(address: str, kind: AddressKind) -> None:
    assert classify_address(address) == kind


@pytest.mark.parametrize("host", ["metadata.google.internal", "METADATA.", "[fe80::1]", "169.254.169.254"])
def test_a_forbidden_host_is_not_resolved(host: str) -> None:
    assert classify_host(host) == "forbidden"


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.⓪.⓪.①", "localhost"])
def test_unusual_spellings_are_checked_after_resolving(host: str) -> None:
    """RELIABILITY 2.4: never check the string."""

    async def run() -> None:
        assert classify_host(host) is None
        assert {classify_address(address) for address in await resolve(host, 80)} == {"private"}
        with pytest.raises(ForbiddenAddressError):
            await NetworkPolicy(host, allow_private=False).find_addresses(host, 80)
        assert await NetworkPolicy(host, allow_private=True).find_addresses(host, 80)

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
        guard = NetworkPolicy("rebind.test", allow_private=False, resolve=names)
        assert await guard.find_addresses("rebind.test", 443) == ["93.184.216.34"]
        assert await guard.find_addresses("rebind.test", 443) == ["93.184.216.34"]
        assert names.asked == 1
        guard.forget("rebind.test", 443)
        with pytest.raises(ForbiddenAddressError, match="private"):
            await guard.find_addresses("rebind.test", 443)

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
def test_every_resolved_address_is_checked(answers: list[str], private: bool, allowed: bool) -> None:
    async def run() -> None:
        guard = NetworkPolicy("mixed.test", allow_private=private, resolve=Names(answers))
        if allowed:
            assert await guard.find_addresses("mixed.test", 80) == answers
        else:
            with pytest.raises(ForbiddenAddressError):
                await guard.find_addresses("mixed.test", 80)

    asyncio.run(run())


def test_the_connection_goes_to_the_checked_address_and_keeps_the_name() -> None:
    """The system's own resolver does not know this name, so the policy's addresses were used."""

    async def run(port: int) -> None:
        ours = spec("ours", url=f"http://server.test:{port}/mcp", headers={"x-own": "yes"})
        names = Names(["127.0.0.1"], ["127.0.0.1"])
        async with make_client(ours, NetworkPolicy("server.test", allow_private=True, resolve=names)) as client:
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
        guard = NetworkPolicy("server.test", allow_private=True, resolve=Names(["127.0.0.1"], ["127.0.0.1"]))
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


def test_after_an_address_that_does_not_answer_the_next_is_tried_and_the_name_is_resolved_again() -> None:
    async def run(port: int) -> None:
        ours = spec("ours", url=f"http://server.test:{port}/mcp")
        names = Names(["127.0.0.2", "127.0.0.1"], ["127.0.0.2"], ["169.254.169.254"])
        guard = NetworkPolicy("server.test", allow_private=True, resolve=names)
        async with make_client(ours, guard) as client:
            assert (await client.get(str(ours.url))).status_code == 200
            guard.forget("server.test", port)
            with pytest.raises(httpx2.ConnectError):
                await client.get(str(ours.url))
            with pytest.raises(httpx2.ConnectError, match="forbidden"):  # it was resolved and checked again
                await client.get(str(ours.url))

    with site(lambda seen: Said(200, {"ok": True})) as server:
        asyncio.run(run(int(server.url.rpartition(":")[2])))


def test_a_public_server_cannot_send_us_into_our_network() -> None:
    """Where to log in is said by the server: its word leads to private addresses only if it is there itself."""

    async def run() -> None:
        guard = NetworkPolicy("server.test", allow_private=True, resolve=Names(["93.184.216.34"], ["10.0.0.1"]))
        await guard.find_addresses("server.test", 443)
        with pytest.raises(ForbiddenAddressError):
            await guard.find_addresses("login.test", 443)
        guard = NetworkPolicy("server.test", allow_private=True, resolve=Names(["10.0.0.2"], ["10.0.0.1"]))
        await guard.find_addresses("server.test", 443)
        assert await guard.find_addresses("login.test", 443) == ["10.0.0.1"]

    asyncio.run(run())
