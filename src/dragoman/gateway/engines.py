"""The servers that gateways of many machines share: Valkey for limits. Each is an extra, loaded when configured."""

import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.errors import ConfigError
from dragoman.gateway.settings import Settings

if TYPE_CHECKING:
    from dragoman.valkey.limits import ValkeyLimits

STATE_VARIABLE = "DRAGOMAN_STATE"
STATE_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")


def check_engines(settings: Settings) -> None:
    """A ConfigError if an engine is configured that cannot be used."""
    if settings.state:
        _check(settings, "state", settings.state, STATE_SCHEMES, "redis", "valkey")


def _check(settings: Settings, key: str, url: str, schemes: tuple[str, ...], package: str, extra: str) -> None:
    file = settings.source or f"DRAGOMAN_{key.upper()}"
    parts = urlsplit(url)
    if parts.scheme not in schemes or not (parts.hostname or parts.path):
        raise ConfigError(file, key, f"expected {schemes[0]}://host:port/..., found {parts.scheme[:20]!r}")
    if find_spec(package) is None:
        raise ConfigError(file, key, f"needs a package that is not installed: pip install 'dragoman[{extra}]'")


def name_replica(port: int, worker: int) -> str:
    """The same after a restart, so that the share of a process that was killed is taken up again."""
    return f"{socket.gethostname()}:{port}:{worker}"


def open_limits(settings: Settings, replica: str, clock: Callable[[], float]) -> "ValkeyLimits":
    from dragoman.valkey.limits import OnLoss, ValkeyLimits
    from dragoman.valkey.server import ValkeyServer

    on_loss: OnLoss = "refuse" if settings.on_state_loss == "refuse" else "local_share"
    return ValkeyLimits(ValkeyServer(settings.state), replica, clock, prefix=settings.state_prefix, on_loss=on_loss)


def show_url(url: str) -> str:
    """Where an engine is, without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


async def probe_engines(settings: Settings) -> list[tuple[str, str]]:
    """Each configured engine's place, and why it cannot be used; "" if it can."""
    found = []
    if settings.state:
        from dragoman.valkey.server import AwayError, ValkeyServer

        server = ValkeyServer(settings.state)
        try:
            await server.reach()
        except AwayError:
            pass
        finally:
            await server.close()
        found.append((show_url(settings.state), server.away))
    return found
