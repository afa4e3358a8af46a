"""Which upstreams a model name means, in which order. The dice are an argument.

an alias           the models it stands for: fast = "gemini/gemini-2.5-flash"
a listed model     the upstreams that list it, in order, or by weight
upstream/model     that upstream
a known prefix     upstreams of that kind; profiles.toml has the prefixes (gpt- means openai)
any other name     the first upstream
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from dragoman.upstream.profiles import Rows, kinds_of_model
from dragoman.upstream.spec import DEMO, Target, Upstream

_LEGAL = re.compile(r"[A-Za-z0-9._:@/+\-]{1,200}")


class Routes(Struct, frozen=True, kw_only=True):
    """The model table of one configuration."""

    upstreams: tuple[Upstream, ...]
    aliases: dict[str, tuple[str, ...]] = {}  # a name -> model names, tried in order
    listed: Mapping[str, Collection[str]] = {}  # upstream -> its models by its own list, if it has told them
    rows: Rows | None = None

    def models_of(self, upstream: Upstream) -> Collection[str]:
        return self.listed.get(upstream.name, upstream.models)

    def serving(self, model: str) -> list[Upstream]:
        """The upstreams that list a model. A server's list may have names such as `openai/gpt-5.5`: where an upstream
        is called so, the name means that upstream."""
        first, _, rest = model.partition("/")
        if rest and any(upstream.name == first for upstream in self.upstreams):
            return [upstream for upstream in self.upstreams if model in upstream.models]
        return [upstream for upstream in self.upstreams if model in self.models_of(upstream)]


def is_legal_model(name: str) -> bool:
    """Whether a name is safe to send: it may become part of a URL (T38)."""
    return _LEGAL.fullmatch(name) is not None and not {"..", "."} & set(name.split("/"))


def find_targets(routes: Routes, model: str, dice: Callable[[], float]) -> list[Target]:
    """Every target for a model, best first. Empty only when there is no upstream at all."""
    name = plain_name(model, routes)
    found: list[Target] = []
    for word in routes.aliases.get(name, (name,)):
        found += [target for target in _find(routes, word, dice) if target not in found]
    return found


def list_models(routes: Routes) -> dict[str, str]:
    """Every name a client may ask for -> the upstream it goes to first."""
    names: dict[str, str] = {}
    for upstream in routes.upstreams:
        for model in routes.models_of(upstream):
            found = routes.serving(model)
            names.setdefault(model if found else f"{upstream.name}/{model}", upstream.name)
    for alias, meant in routes.aliases.items():
        first = _find(routes, meant[0], lambda: 0.0) if meant else []
        names.setdefault(alias, first[0].upstream.name if first else "")
    return names


def plain_name(model: str, routes: Routes) -> str:
    """Without what dialects add: Gemini says models/x, Ollama x:latest."""
    name = model.removeprefix("models/")
    if not name:
        return next((m for upstream in routes.upstreams for m in routes.models_of(upstream)), "")
    short = name.removesuffix(":latest")
    known = name in routes.aliases or routes.serving(name)
    return name if known else short


def _find(routes: Routes, name: str, dice: Callable[[], float]) -> list[Target]:
    exact = routes.serving(name)
    if exact:
        return [Target(upstream, name) for upstream in weigh(exact, dice)]
    first, _, rest = name.partition("/")
    if rest:
        for upstream in routes.upstreams:
            if upstream.name == first:
                return [Target(upstream, rest)]
    by_prefix = _by_prefix(routes, name)
    chosen = by_prefix or routes.upstreams[:1]
    return [Target(upstream, _own_model(upstream, name)) for upstream in chosen]


def _by_prefix(routes: Routes, name: str) -> list[Upstream]:
    for kind in kinds_of_model(name, routes.rows):
        found = [upstream for upstream in routes.upstreams if kind in (upstream.name, upstream.kind)]
        if found:
            return found
    return []


def _own_model(upstream: Upstream, name: str) -> str:
    """The demo model answers to every name and has one of its own."""
    return upstream.models[0] if upstream.kind == DEMO and upstream.models else name


def weigh(upstreams: Sequence[Upstream], dice: Callable[[], float]) -> list[Upstream]:
    """Equal weights keep the configured order. Unequal weights choose the first; the others follow in order."""
    weights: Mapping[float, None] = dict.fromkeys(upstream.weight for upstream in upstreams)
    if len(weights) < 2:
        return list(upstreams)
    total = sum(upstream.weight for upstream in upstreams)
    point = dice() * total
    for upstream in upstreams:
        point -= upstream.weight
        if point < 0:
            return [upstream, *(other for other in upstreams if other is not upstream)]
    return list(upstreams)
