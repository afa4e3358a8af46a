"""Where a connection to a server may go (T12, F65).

A name is resolved once, every address it has is judged, and the connection goes to one of those addresses: asking
again could bring another answer. Addresses are judged as what they lead to: an IPv6 address may be an IPv4 one in
disguise, and `getaddrinfo` reads `127.1` and `0x7f.1` as people do not.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from dragoman.errors import DragomanError

Kind: TypeAlias = Literal["public", "private", "never"]
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# Nobody's server, or only the cloud's own: link-local, multicast, reserved, metadata services that live elsewhere.
_NEVER = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "100.100.100.200/32", "168.63.129.16/32",
        "::/128", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::254/128", "fd20:ce::254/128",
    )
)  # fmt: skip
_NAMES = ("metadata", "metadata.google.internal", "metadata.goog", "instance-data")
_TRANSLATED = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")


class ForbiddenAddressError(DragomanError):
    """Nobody may connect there."""


class UnknownHostError(DragomanError):
    """Nobody is called so."""


def weigh(text: str) -> Kind:
    """What an address is. Private: this machine, its own network, and whatever else is not the internet."""
    address = _unwrap(ipaddress.ip_address(text.partition("%")[0]))
    if any(address.version == net.version and address in net for net in _NEVER):
        return "never"
    return "public" if address.is_global else "private"


def _unwrap(address: Address) -> Address:
    """The IPv4 address an IPv6 one leads to, if it does."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    low = int(address) & 0xFFFFFFFF
    if inner is None and (any(address in net for net in _TRANSLATED) or (address in _COMPATIBLE and low > 0xFFFF)):
        inner = ipaddress.IPv4Address(low)
    return inner or address


def weigh_literal(host: str) -> Kind | None:
    """The same for a host as a URL has it; None for a name, which has to be resolved."""
    if host.lower().rstrip(".") in _NAMES:
        return "never"
    try:
        return weigh(host.strip("[]"))
    except ValueError:
        return None


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a name, each once."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHostError(f"{host[:100]}: there is no such host") from error
    return list(dict.fromkeys(str(row[4][0]) for row in found))


class NetworkPolicy:
    """For one server. `private`: it may be on this machine or its network. Whom its server sends us to (to log in)
    may be there only if the server itself is."""

    def __init__(self, own: str, *, private: bool, resolve: Resolve = resolve) -> None:
        self._own = own.lower()
        self._private = private
        self._own_private = False
        self._resolve = resolve
        self._known: dict[tuple[str, int], list[str]] = {}

    async def find(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, all of them judged; the same ones until they are forgotten."""
        known = self._known.get((host, port))
        if known is not None:
            return known
        if weigh_literal(host) == "never":
            raise ForbiddenAddressError("this address is no server's")
        addresses = await self._resolve(host, port)
        kinds = {weigh(address) for address in addresses}
        if "never" in kinds or not addresses:
            raise ForbiddenAddressError("this address is no server's")
        own = host.lower() == self._own
        if "private" in kinds and not (self._private and (own or self._own_private)):
            raise ForbiddenAddressError("this address is private, and not allowed here")
        if own:
            self._own_private = "private" in kinds
        self._known[host, port] = addresses
        return addresses

    def forget(self, host: str, port: int) -> None:
        """Nobody answered there: the next time the name is resolved anew, and judged anew."""
        self._known.pop((host, port), None)
