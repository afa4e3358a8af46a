"""The configuration of a gateway without a file: keys in the environment, servers on this machine, the demo model."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from dragoman.gateway.config.settings import Settings
from dragoman.network import find_network
from dragoman.upstream.discovery import (
    NO_PROBE,
    demo_upstream,
    find_key,
    local_url,
    make_upstream,
    probe_local,
    remote_kinds,
)
from dragoman.upstream.profiles import find_kind
from dragoman.upstream.spec import Upstream


def discover(env: Mapping[str, str]) -> Settings:
    """Every provider whose key is in the environment, every local server that answers, and the demo model."""
    upstreams: list[Upstream] = []
    found: list[str] = []
    for kind in remote_kinds():
        if key := find_key(kind, env):
            made = make_upstream(kind.name, kind, key=key, base_url=kind.base_url)
            upstreams.append(replace(made, network=find_network(made.base_url, env)))
            found.append(f"{kind.name}: key in the environment")
    for name, models in _probe(env).items():
        local = make_upstream(name, find_kind(name), base_url=local_url(name, env), models=models)
        upstreams.append(replace(local, auth="none"))  # it answered without a key
        found.append(f"{name}: answers on this machine")
    upstreams.append(demo_upstream())
    return Settings(upstreams=tuple(upstreams), found=tuple(found), ask_models=not env.get(NO_PROBE), fallback=False)


def _probe(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """In a thread of its own: a reload happens in a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, probe_local(env)).result()
