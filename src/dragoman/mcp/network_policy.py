"""The addresses that a connection to a server may go to. (T12, F65)

A host name is resolved once, all its addresses are checked, and the connection goes to one of them: a second lookup
could give other addresses. An IPv6 address that leads to an IPv4 address is checked as that address. `getaddrinfo` also
resolves unusual spellings such as `127.1` and `0x7f.1`, so the check comes after it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from dragoman.errors import DragomanError

AddressKind: TypeAlias = Literal["public", "private", "forbidden"]
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# No MCP server has these addresses: link-local, multicast, reserved, and metadata services of clouds.
_FORBIDDEN_NETWORKS = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "100.100.100.200/32", "168.63.129.16/32",
        "::/128", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::254/128", "fd20:ce::254/128",
    )
)  # fmt: skip
_FORBIDDEN_HOSTS = ("metadata", "metadata.google.internal", "metadata.goog", "instance-data")
_NAT64_NETWORKS = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48"))
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")


class ForbiddenAddressError(DragomanError):
    """Connections to this address are not allowed."""


class UnknownHostError(DragomanError):
    """The host name has no address."""


def classify_address(text: str) -> AddressKind:
    """The kind of an address. Private: this machine, its network, and all other addresses outside of the internet."""
    address = _find_ipv4(ipaddress.ip_address(text.partition("%")[0]))
    if any(address.version == net.version and address in net for net in _FORBIDDEN_NETWORKS):
        return "forbidden"
    return "public" if address.is_global else "private"


def _find_ipv4(address: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 address leads to, else the address itself."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    low = int(address) & 0xFFFFFFFF
    if inner is None and (
        any(address in net for net in _NAT64_NETWORKS) or (address in _IPV4_COMPATIBLE and low > 0xFFFF)
    ):
        inner = ipaddress.IPv4Address(low)
    return inner or address


def classify_host(host: str) -> AddressKind | None:
    """The kind of a host in a URL; None for a name that has to be resolved first."""
    if host.lower().rstrip(".") in _FORBIDDEN_HOSTS:
        return "forbidden"
    try:
        return classify_address(host.strip("[]"))
    except ValueError:
        return None


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host name, without duplicates."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHostError(f"{host[:100]}: there is no such host") from error
    return list(dict.fromkeys(str(row[4][0]) for row in found))


class NetworkPolicy:
    """For one server. `allow_private`: the server may be on this machine or its network. Another host that the server
    sends us to for a login may be there only if the server itself is."""

    def __init__(self, own_host: str, *, allow_private: bool, resolve: Resolve = resolve) -> None:
        self._own_host = own_host.lower()
        self._allow_private = allow_private
        self._own_is_private = False
        self._resolve = resolve
        self._resolved: dict[tuple[str, int], list[str]] = {}

    async def find_addresses(self, host: str, port: int) -> list[str]:
        """The allowed addresses of a host. They stay the same until `forget`."""
        resolved = self._resolved.get((host, port))
        if resolved is not None:
            return resolved
        if classify_host(host) == "forbidden":
            raise ForbiddenAddressError("this address is forbidden (link-local, multicast, reserved or cloud metadata)")
        addresses = await self._resolve(host, port)
        kinds = {classify_address(address) for address in addresses}
        if "forbidden" in kinds or not addresses:
            raise ForbiddenAddressError("this address is forbidden (link-local, multicast, reserved or cloud metadata)")
        is_own_host = host.lower() == self._own_host
        if "private" in kinds and not (self._allow_private and (is_own_host or self._own_is_private)):
            raise ForbiddenAddressError("this address is private, and private addresses are not allowed here")
        if is_own_host:
            self._own_is_private = "private" in kinds
        self._resolved[host, port] = addresses
        return addresses

    def forget(self, host: str, port: int) -> None:
        """Drops the addresses of a host that does not answer, so that the next call resolves and checks it again."""
        self._resolved.pop((host, port), None)
