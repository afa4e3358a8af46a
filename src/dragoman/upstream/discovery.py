"""Which upstreams this machine offers: providers by their keys, servers on local ports, and the demo model.

The gateway and the client share it. The gateway asks local ports whether a server answers; the client lists local
servers without asking, because a name such as `ollama/qwen3` says which one is meant.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from dragoman.demo import MODELS as DEMO_MODELS
from dragoman.dialects import CANONICAL, find_dialect
from dragoman.errors import DecodeError
from dragoman.jsontypes import load_json
from dragoman.upstream.keys import Secret, origin_of
from dragoman.upstream.profiles import Kind, find_kind, load_rows
from dragoman.upstream.spec import DEMO, Timeouts, Upstream

DEFAULT_KIND = "compatible"
KIND_ALIASES = {
    "google": "gemini",
    "openai-compatible": DEFAULT_KIND,
    "llama.cpp": "llamacpp",
    "grok": "xai",
    # as LiteLLM spells them
    "fireworks_ai": "fireworks",
    "hosted_vllm": "vllm",
    "lm_studio": "lmstudio",
    "together_ai": "together",
    "vertex_ai": "vertex",
}
PORTS = {"ollama": 11434, "lmstudio": 1234, "vllm": 8000, "llamacpp": 8080}  # of servers on this machine
LOCAL = tuple(PORTS)
BASE_URL = re.compile(r"https?://[^\s/@?#]+[^\s#@]*")
PROBE_S = 0.25
NO_PROBE = "DRAGOMAN_NO_PROBE"  # set: no server is asked anything before a client asks


def find_key(kind: Kind, env: Mapping[str, str]) -> str | None:
    """The key of a kind of server, from the first of its variables that is set."""
    return next((env[name] for name in kind.keys if env.get(name)), None)


def find_url(kind: Kind, env: Mapping[str, str]) -> str | None:
    """OPENAI_BASE_URL and the like, as the vendors' own clients read them.

    For clients only: on a gateway's machine such a variable may point at the gateway itself.
    """
    return _ollama_host(kind.name, env) or env.get(f"{kind.name.upper()}_BASE_URL") or None


def local_url(name: str, env: Mapping[str, str]) -> str:
    return _ollama_host(name, env) or f"http://127.0.0.1:{PORTS[name]}"


def _ollama_host(name: str, env: Mapping[str, str]) -> str | None:
    host = env.get("OLLAMA_HOST", "") if name == "ollama" else ""
    if not host or host.startswith("0."):  # an address that a server listens on, such as 0.0.0.0, cannot be called
        return None
    return host if host.startswith("http") else f"http://{host}"


def usual_timeouts(base_url: str) -> Timeouts:
    """A server of one's own may read a long prompt for minutes before it sends even the head of its answer."""
    host = urlsplit(base_url).hostname or ""
    try:
        near = ip_address(host).is_private
    except ValueError:
        near = host == "localhost"
    return Timeouts(headers_s=Timeouts().first_s) if near else Timeouts()


def make_upstream(
    name: str,
    kind: Kind,
    *,
    key: str | None = None,
    base_url: str | None = None,
    dialects: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    timeouts: Timeouts | None = None,
) -> Upstream:
    dialects = dialects or kind.dialects
    url = base_url or kind.url_of(dialects[0])
    return Upstream(
        name=name,
        kind=kind.name,
        dialect=dialects[0],
        dialects=dialects,
        base_url=url,
        keys=() if key is None else (Secret(key, origin_of(url)),),
        auth="bearer" if kind.auth == "none" and key is not None else kind.auth,
        models=models,
        timeouts=timeouts or usual_timeouts(url),
    )


def demo_upstream(name: str = DEMO, models: tuple[str, ...] = DEMO_MODELS) -> Upstream:
    return Upstream(name=name, kind=DEMO, dialect=CANONICAL, models=models)


def remote_kinds() -> Iterator[Kind]:
    """Kinds of servers at a known address beyond this machine."""
    for kind in load_rows().kinds.values():
        if kind.base_url and "{" not in kind.base_url and kind.name not in LOCAL:
            yield kind


async def probe_local(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Which local servers answer, and with which models; all at once and quickly."""
    if env.get(NO_PROBE):
        return {}
    results = await asyncio.gather(*(_probe(name, local_url(name, env)) for name in LOCAL))
    return {name: models for name, models in zip(LOCAL, results, strict=True) if models is not None}


async def _probe(name: str, url: str) -> tuple[str, ...] | None:
    parts = urlsplit(url)
    codec = find_dialect(find_kind(name).dialects[0]).models
    if codec is None:
        return None
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                head = f"GET {codec.path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
                writer.write(head.encode())
                data = await reader.read(1024 * 1024)
                while more := await reader.read(1024 * 1024):
                    data += more
            finally:
                writer.close()
        status, _, rest = data.partition(b"\r\n")
        if b" 200" not in status:
            return None
        return tuple(model.name for model in codec.decode(load_json(rest.partition(b"\r\n\r\n")[2])))
    except (OSError, TimeoutError, DecodeError):
        return None
