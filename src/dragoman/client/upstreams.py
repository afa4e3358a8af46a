"""The upstreams of a client, and the choice of an upstream by the model's name.

A client made without arguments has every kind of server whose key is in the environment, the servers on this machine
(`ollama/qwen3`), and the demo model. An unknown model is an error that says what to do. It never becomes another model.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import CANONICAL, USUAL
from dragoman.dialects.canonical import NOT_OURS
from dragoman.errors import ConfigError, UpstreamError
from dragoman.failure import Failure
from dragoman.network import DIRECT, Network, find_proxy, is_usable
from dragoman.read_struct import suggest
from dragoman.upstream.discovery import (
    BASE_URL,
    DEFAULT_KIND,
    KIND_ALIASES,
    LOCAL,
    demo_upstream,
    find_key,
    find_url,
    make_upstream,
)
from dragoman.upstream.profiles import Kind, choose_dialect, find_kind, kind_of_model, load_rows
from dragoman.upstream.routing import is_legal_model
from dragoman.upstream.spec import DEMO, Target, Timeouts, Upstream
from dragoman.upstream.upstream_state import UpstreamState

GATEWAY = "gateway"
CONFIG_NAME = "Client"  # in a ConfigError, in place of a file's name
# A gateway takes everything and leaves out by itself what the provider rejects.
_GATEWAY_OVERRIDES = {"developer": True, "omit_neutral": False, "rejects": [], "lacks": []}


class NetworkOptions(Struct, frozen=True, kw_only=True):
    """What a caller says about the way to every server."""

    proxy: str | bool | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class ClientUpstreams(Struct, kw_only=True):
    """Upstreams by name. With `only`, every model goes to that upstream."""

    all: tuple[Upstream, ...]
    aliases: dict[str, tuple[str, ...]]
    only: str | None
    clock: Callable[[], float]
    upstream_states: dict[str, UpstreamState] = {}
    own_form: bool = True  # the server at `base_url` takes our own form: it is a gateway of ours

    def leave_own_form(self, failure: Failure) -> bool:
        """Whether a failure shows that the server at `base_url` is no gateway of ours, and this was not known yet."""
        found = self.own_form and failure.code == NOT_OURS and failure.status in (404, 405, 501)
        self.own_form = self.own_form and not found
        return found

    def state(self, upstream: Upstream) -> UpstreamState:
        found = self.upstream_states.get(upstream.name)
        if found is None or found.spec != upstream:
            found = self.upstream_states[upstream.name] = UpstreamState(upstream, self.clock)
        return found

    def targets(self, model: str) -> list[tuple[UpstreamState, Target]]:
        """Best first. Raises UpstreamError if no upstream serves the model."""
        found = [self._find(word) for word in self.aliases.get(model, (model,))]
        return [(self.state(target.upstream), target) for target in found]

    def _find(self, model: str) -> Target:
        name = model.removeprefix("models/")
        if not is_legal_model(name):
            raise UpstreamError(_no_model(model, "this is not a valid model name"))
        for upstream in self.all:
            if name in upstream.models:
                return Target(upstream, name)
        if self.only == GATEWAY:
            return Target(_at_gateway(self.all[0], name, own_form=self.own_form), name)
        first, _, rest = name.partition("/")
        for prefix in (first, KIND_ALIASES.get(first), first.removesuffix("_chat")):  # LiteLLM's ollama_chat
            for upstream in self.all:
                if rest and upstream.name == prefix:
                    return Target(upstream, rest)
        if self.only is not None:
            return Target(self.all[0], name)
        kind = kind_of_model(name)
        for upstream in self.all:
            if kind is not None and upstream.kind == kind:
                return Target(upstream, name)
        raise UpstreamError(self._explain_missing(name, kind))

    def _explain_missing(self, model: str, kind: str | None) -> Failure:
        kinds = load_rows().kinds
        prefix, _, rest = model.partition("/")
        row = (kinds.get(KIND_ALIASES.get(prefix, prefix)) if rest else None) or kinds.get(kind or "")
        if row is not None and "{" in row.base_url:
            return _no_model(model, f"{row.title} needs an address: Client({row.name!r}, api_key=..., base_url=...)")
        if row is not None and row.keys:
            message = f"{model} needs a key for {row.title}: set {row.keys[0]}, or Client(keys={{{row.name!r}: ...}})"
            return Failure(kind="unauthenticated", status=401, code="no_key", message=message)
        known = ", ".join(upstream.name for upstream in self.all)
        if rest:
            return _no_model(model, f"no upstream is called {prefix!r}; there are {known}")
        near = get_close_matches(model, [name for upstream in self.all for name in upstream.models], 1)
        hint = f"did you mean {near[0]}? If not, " if near else ""
        advice = f"put the upstream's name in front, for example ollama/{model}; there are {known}"
        return _no_model(model, hint + advice)


def choose_upstreams(
    provider: str | None,
    *,
    api_key: str | None,
    base_url: str | None,
    keys: Mapping[str, str],
    dialect: str | None,
    upstreams: Sequence[Upstream] | None,
    aliases: Mapping[str, str | Sequence[str]],
    headers: dict[str, str],
    env: Mapping[str, str],
    clock: Callable[[], float],
    timeouts: Timeouts,
    network: NetworkOptions,
) -> ClientUpstreams:
    found: tuple[Upstream, ...]
    only: str | None = None
    if provider is None and base_url is None:
        _check_no_owner_needed(api_key, headers)
    if upstreams is not None:
        found = tuple(upstreams)
        only = found[0].name if len(found) == 1 else None
    elif provider == DEMO:
        found, only = (demo_upstream(),), DEMO
    elif provider is None and base_url is not None:
        made = _gateway(base_url, api_key or env.get("DRAGOMAN_KEY"), dialect, timeouts)
        found, only = (replace(made, headers=headers),), GATEWAY
    elif provider is not None:
        kind = _kind(provider)
        key = api_key or keys.get(provider) or keys.get(kind.name) or find_key(kind, env)
        made = _upstream(provider, kind, key, base_url or find_url(kind, env), dialect, timeouts)
        found, only = (replace(made, headers=headers), demo_upstream()), provider
    else:
        found = discover(keys, env, timeouts)
    if upstreams is None:
        found = tuple(_with_network(upstream, network, env) for upstream in found)
    named = {name: (to,) if isinstance(to, str) else tuple(to) for name, to in aliases.items()}
    return ClientUpstreams(all=found, aliases=named, only=only, clock=clock)


def _check_no_owner_needed(api_key: str | None, headers: dict[str, str]) -> None:
    """A ConfigError for a key or headers, if the caller did not say which server they are for."""
    if headers:
        raise ConfigError(CONFIG_NAME, "headers", "they need a provider or a base_url")
    if api_key:
        raise ConfigError(
            CONFIG_NAME, "api_key", "say whose it is: Client('openai', api_key=...), or keys={'openai': ...}"
        )


def _with_network(upstream: Upstream, options: NetworkOptions, env: Mapping[str, str]) -> Upstream:
    """`proxy=False` is a direct connection; without a word the environment decides."""
    proxy = options.proxy if isinstance(options.proxy, str) else ""
    if proxy and not is_usable(proxy):
        raise ConfigError(CONFIG_NAME, "proxy", "expected http://[user:password@]host:port, or False")
    if options.proxy is None or options.proxy is True:
        proxy = find_proxy(upstream.base_url, env)
    way = Network(
        proxy=proxy,
        ca_file=options.ca_file or "",
        client_cert=options.client_cert or "",
        client_key=options.client_key or "",
    )
    return upstream if way == DIRECT else replace(upstream, network=way)


def discover(keys: Mapping[str, str], env: Mapping[str, str], timeouts: Timeouts) -> tuple[Upstream, ...]:
    known = {KIND_ALIASES.get(name, name): key for name, key in keys.items()}
    for name in known:
        _kind(name)
    found: list[Upstream] = []
    for kind in load_rows().kinds.values():
        key = known.get(kind.name) or find_key(kind, env)
        url = find_url(kind, env) or kind.base_url
        if "{" in url or not url or (key is None and kind.name not in LOCAL) or kind.name == DEFAULT_KIND:
            continue
        found.append(_upstream(kind.name, kind, key, url, None, timeouts))
    return (*found, demo_upstream())


def _kind(name: str) -> Kind:
    try:
        return find_kind(KIND_ALIASES.get(name, name))
    except ConfigError as error:
        near = suggest(name, load_rows().kinds)
        raise ConfigError(CONFIG_NAME, "provider", f"no such kind of server {name!r}; {near}") from error


def _upstream(
    name: str, kind: Kind, key: str | None, base_url: str | None, dialect: str | None, timeouts: Timeouts
) -> Upstream:
    dialects = (dialect.replace("-", "_"),) if dialect is not None else kind.dialects
    url = base_url or kind.url_of(dialects[0])
    if not BASE_URL.fullmatch(url) or "{" in url:
        found = f", found {base_url!r}" if base_url else f": {name} needs one"
        raise ConfigError(CONFIG_NAME, "base_url", f"expected http(s)://host[:port][/path]{found}")
    return make_upstream(name, kind, key=key, base_url=url, dialects=dialects, timeouts=timeouts)


def _gateway(base_url: str, key: str | None, dialect: str | None, timeouts: Timeouts) -> Upstream:
    url = base_url.rstrip("/")
    if not BASE_URL.fullmatch(url):
        raise ConfigError(CONFIG_NAME, "base_url", "expected http(s)://host[:port]")
    url = re.sub(r"/v1$", "", url)  # each dialect's path is added later
    kind = find_kind(DEFAULT_KIND)
    made = _upstream(GATEWAY, kind, key, url, dialect or USUAL, timeouts)
    return replace(made, overrides=_GATEWAY_OVERRIDES if dialect is None else {})


def _at_gateway(gateway: Upstream, model: str, *, own_form: bool) -> Upstream:
    """The gateway in our own form, which loses nothing. Any other server (LiteLLM, for example) in the dialect of the
    model's own provider, so that signatures may get through; if the name does not tell the provider, in OpenAI Chat."""
    if not gateway.overrides:  # the caller named a dialect
        return gateway
    if own_form:
        return replace(gateway, name=f"{GATEWAY}:{CANONICAL}", dialect=CANONICAL, dialects=(CANONICAL,), overrides={})
    kind = kind_of_model(model.rpartition("/")[2])
    if kind is None:
        return gateway
    dialect = choose_dialect(kind, model)
    if dialect == USUAL:
        return gateway
    name = f"{GATEWAY}:{dialect}"
    return replace(gateway, name=name, kind=kind, dialect=dialect, dialects=(dialect,), overrides={})


def _no_model(model: str, hint: str) -> Failure:
    message = f"there is no model {model[:200]!r} here: {hint}"
    return Failure(kind="not_found", status=404, code="model_not_found", param="model", message=message)
