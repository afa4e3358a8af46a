"""The MCP servers of a running gateway: made when first asked for, in step with the configuration, ended with it."""

import os
from pathlib import Path
from weakref import WeakKeyDictionary

from dragoman.gateway.config.load import state_folder
from dragoman.gateway.state import Gateway
from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import ServerPool, find_registry_path
from dragoman.network import without_proxies

_servers: WeakKeyDictionary[Gateway, ServerPool] = WeakKeyDictionary()


def servers_of(gateway: Gateway) -> ServerPool:
    settings = gateway.now.settings
    found = _servers.get(gateway)
    if found is None:
        folder = settings.mcp.folder or (
            settings.store_path.parent if settings.store_path else state_folder(os.environ)
        )
        env = os.environ if settings.proxies else without_proxies(os.environ)
        path = settings.mcp.file or find_registry_path(settings.source, folder)
        found = _servers[gateway] = ServerPool(Registry(Path(path)), folder=folder, env=env)
        gateway.closers.append(found.close)
    found.configured = settings.mcp.servers  # a reload may have changed them
    # only a gateway that others cannot reach may connect to servers of this machine (T12)
    found.allow_private = not gateway.now.access.public if settings.mcp.private is None else settings.mcp.private
    return found
