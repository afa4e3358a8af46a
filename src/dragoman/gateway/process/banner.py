"""The text a person sees when the gateway starts: address, upstreams, keys, and one command to try."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from dragoman.gateway import PORT
from dragoman.gateway.access.auth import Access
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.config.source import state_folder
from dragoman.gateway.stores.sqlite_keys import FILE
from dragoman.network import find_unused_variable, is_this_machine
from dragoman.upstream.discovery import PORTS
from dragoman.upstream.keys import show_url
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.routing import find_default
from dragoman.upstream.spec import Upstream


def banner(settings: Settings, access: Access, env: Mapping[str, str]) -> str:
    base = f"{'https' if settings.tls_cert else 'http'}://{_host(settings.host)}:{settings.port}"
    here = f"{'https' if settings.tls_cert else 'http'}://{_host(_reachable(settings.host))}:{settings.port}"
    model = example_model(settings)
    needed = access.public or access.keys.needed
    key = ' -H "Authorization: Bearer $DRAGOMAN_KEY"' if needed else ""
    kept = access.keys.store.name if access.keys.store is not None else str(state_folder(env) / FILE)
    where = f"needed: one of {kept}, or of the configuration" if needed else "not needed on this machine"
    lines = [
        f"dragoman listens on {base}",
        "",
        "  addresses for programs",
        f"    OpenAI       {base}/v1          chat/completions, responses, embeddings, models",
        f"    Anthropic    {base}             /v1/messages",
        f"    Gemini       {base}             /v1beta/models/MODEL:generateContent",
        f"    Ollama       {base}             /api/chat, /api/generate, /api/tags",
        f"    JSON-RPC     {base}/generate",
        f"    see also     {base}/health, /metrics",
        f"  console        {base}/console{'' if settings.xray_keep else ' (with bodies if you start with --xray 50)'}",
        f"  providers      {settings.source or 'found without a configuration file'}",
        *(_row(upstream) for upstream in settings.upstreams),
        *_aliases(settings),
        *_proxies(settings),
        f"  client key     {where}",
        *(["                 `dragoman keys new` makes one; put it into DRAGOMAN_KEY"] if needed else []),
        "",
        "  try",
        f"    dragoman launch claude --model {model}{_port(settings)}    # also codex, gemini, opencode, qwen",
        f"    curl {here}/v1/chat/completions{key} -H 'content-type: application/json' \\",
        f"""      -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "hello"}}]}}'""",
        "",
    ]
    return "\n".join(lines) + "\n"


def _reachable(host: str) -> str:
    """0.0.0.0 and :: are addresses to listen on. Not every system can connect to them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host)  # noqa: S104


def example_model(settings: Settings) -> str:
    """A model that this gateway serves, by the rule of all commands; an alias, which is the user's own, comes first.
    MODEL where no list is known yet."""
    alias = next((name for name in settings.aliases if "*" not in name), "")
    return find_default(settings.routes(), settings.default_model or alias) or "MODEL"


def _port(settings: Settings) -> str:
    return "" if settings.port == PORT else f" --port {settings.port}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _row(upstream: Upstream) -> str:
    count = len(upstream.models)
    models = f"{count:>3} model{'s' if count != 1 else ' '}" if count else "any model "
    row = f"    {upstream.name:<12} {models}  {show_url(upstream.base_url) or 'built in, needs nothing'}"
    missing = missing_key(upstream)
    return f"{row}  ({missing})" if missing else row


def _aliases(settings: Settings) -> list[str]:
    if not settings.aliases:
        return []
    names = list(settings.aliases)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [f"  aliases        {', '.join(names[:5])}{more}"]


def _proxies(settings: Settings) -> list[str]:
    """Lists which provider is reached through which proxy, because people forget such variables of the environment."""
    by_proxy: dict[str, list[str]] = {}
    unused = {find_unused_variable(u.base_url, os.environ) for u in settings.upstreams if not u.network.proxy} - {""}
    for upstream in settings.upstreams:
        if shown := upstream.network.shown_proxy:
            by_proxy.setdefault(shown, []).append(upstream.name)
    return [
        f"  proxy          {proxy} for {', '.join(names)} (`proxy = false` switches it off)"
        for proxy, names in by_proxy.items()
    ] + [f"  proxy          {name} is not used: dragoman speaks only to http:// proxies" for name in sorted(unused)]


def missing_key(upstream: Upstream) -> str | None:
    """Advice for an upstream that probably needs a key and has none."""
    kind = (upstream.rows or load_rows()).kinds.get(upstream.kind)
    if upstream.keys or upstream.auth == "none" or kind is None or not kind.keys:
        return None
    if upstream.kind in PORTS or is_this_machine(urlsplit(upstream.base_url).hostname or ""):
        return None  # a server on the user's own machine mostly needs none
    return f"no key: set {kind.keys[0]} or api_key"
