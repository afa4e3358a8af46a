"""Which upstreams a request means, in which order. The dice are an argument.

a rule             [[route]] over what the request shows: see RouteRule
an alias           the models it stands for: fast = "gemini/gemini-2.5-flash"
a wildcard alias   "claude-*" = "gpt-5.5"; of several that fit, the one with most letters of its own
a listed model     the upstreams that list it, in order, or by weight
upstream/model     that upstream
model-effort       gpt-5.5-low is gpt-5.5 thinking a little, if no model of that whole name is known
a known prefix     upstreams of that kind; profiles.toml has the prefixes (gpt- means openai)
a dated name       the same model with another date, or without one, if an upstream lists that
any other name     nothing, or the first upstream where the configuration says so (seed 003)
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from dragoman.model.effort import EFFORTS
from dragoman.model.messages import Image, Part, ToolResult
from dragoman.model.request import Request, ServerTool
from dragoman.passes.parameters import estimate
from dragoman.passes.server_tools.tools import read_search
from dragoman.upstream.profiles import Rows, find_kind, find_known, kind_of_model, kinds_of_model
from dragoman.upstream.spec import DEMO, Target, Upstream

_LEGAL = re.compile(r"[A-Za-z0-9._:@/+\-]{1,200}")
_EFFORT = re.compile(rf"(.+)-(none|{'|'.join(EFFORTS)})")
_DATE = re.compile(r"(.+?)[-@](?:\d{8}|\d{4}-\d{2}-\d{2})")


class RouteCondition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request must have. None: the condition is not checked."""

    model: tuple[str, ...] = ()  # names with * and ?; agents call their small model for work in the background
    thinking: bool | None = None
    images: bool | None = None
    web_search: bool | None = None
    tools: bool | None = None
    tokens_over: int | None = None  # of the prompt, estimated

    def fits(self, request: Request) -> bool:
        return (
            (not self.model or any(fnmatchcase(request.model, pattern) for pattern in self.model))
            and self.thinking in (None, _thinks(request))
            and self.tools in (None, bool(request.tools))
            and (self.web_search is None or self.web_search is _searches(request))
            and (self.images is None or self.images is _shows_images(request))
            and (self.tokens_over is None or estimate(request) > self.tokens_over)
        )


class RouteRule(Struct, frozen=True, kw_only=True):
    """[[route]] of the configuration. The first rule that fits a request chooses its models."""

    when: RouteCondition
    to: tuple[str, ...]


def _thinks(request: Request) -> bool:
    setting = request.reasoning
    return (
        setting is not None
        and setting.mode != "off"
        and (setting.mode, setting.effort, setting.budget) != (None, None, None)
    )


def _shows_images(request: Request) -> bool:
    return any(_has_image(message.parts) for message in request.messages)


def _has_image(parts: Iterable[Part]) -> bool:
    return any(isinstance(part, Image) or (isinstance(part, ToolResult) and _has_image(part.parts)) for part in parts)


def _searches(request: Request) -> bool:
    return any(isinstance(tool, ServerTool) and read_search(tool) is not None for tool in request.tools or ())


class Routes(Struct, frozen=True, kw_only=True):
    """The model table of one configuration."""

    upstreams: tuple[Upstream, ...]
    aliases: dict[str, tuple[str, ...]] = {}  # a name, perhaps with *, -> model names, tried in order
    listed: Mapping[str, Collection[str]] = {}  # upstream -> the models in its own list, if it sent one
    rules: tuple[RouteRule, ...] = ()
    fallback: bool = True  # a name that nothing knows goes to the first upstream
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


class RouteChoice(Struct, frozen=True):
    targets: list[Target]  # best first
    why: str


def is_legal_model(name: str) -> bool:
    """Whether a name is safe to send: it may become part of a URL (T38)."""
    return _LEGAL.fullmatch(name) is not None and not {"..", "."} & set(name.split("/"))


def find_rule(routes: Routes, request: Request) -> int | None:
    """The number of the first rule that fits."""
    return next((i for i, rule in enumerate(routes.rules) if rule.when.fits(request)), None)


def find_targets(routes: Routes, model: str, dice: Callable[[], float]) -> list[Target]:
    """Every target for a model, best first. Empty if no upstream serves it."""
    return choose(routes, model, dice).targets


def choose(routes: Routes, model: str, dice: Callable[[], float]) -> RouteChoice:
    meant, why = _resolve_alias(routes, plain_name(model, routes))
    found = {name: _find(routes, name, dice) for name in meant}
    return _join(why, [RouteChoice(one.targets, f"{name} {one.why}") for name, one in found.items()])


def choose_by_rule(routes: Routes, rule: int, dice: Callable[[], float]) -> RouteChoice:
    return _join(f"rule {rule + 1}: ", [choose(routes, name, dice) for name in routes.rules[rule].to])


def _join(why: str, choices: Sequence[RouteChoice]) -> RouteChoice:
    targets: list[Target] = []
    for one in choices:
        targets += [target for target in one.targets if target not in targets]
    return RouteChoice(targets, why + "; ".join(one.why for one in choices))


def _resolve_alias(routes: Routes, name: str) -> tuple[tuple[str, ...], str]:
    if name in routes.aliases:
        return routes.aliases[name], f"alias {name}: "
    fitting = [pattern for pattern in routes.aliases if "*" in pattern and fnmatchcase(name, pattern)]
    if not fitting:
        return (name,), ""
    pattern = max(fitting, key=lambda known: len(known.replace("*", "")))
    start, _, end = pattern.partition("*")
    rest = name[len(start) : len(name) - len(end)] if "*" not in end else name
    return tuple(word.replace("*", rest) for word in routes.aliases[pattern]), f"alias {pattern}: "


def list_models(routes: Routes) -> dict[str, str]:
    """Every name a client may ask for -> the upstream it goes to first. A wildcard is no name."""
    names: dict[str, str] = {}
    for upstream in routes.upstreams:
        for model in routes.models_of(upstream):
            found = routes.serving(model)
            names.setdefault(model if found else f"{upstream.name}/{model}", upstream.name)
    for alias in routes.aliases:
        targets = choose(routes, alias, lambda: 0.0).targets if "*" not in alias else []
        if targets:
            names.setdefault(alias, targets[0].upstream.name)
    return names


def find_default(routes: Routes, named: str = "") -> str | None:
    """The model of a command that is told none: the configured one, else one of the first real upstream that has any,
    and the demo model only where there is nothing else. None: no model of the real upstreams is known."""
    if named:
        return named
    real = [upstream for upstream in routes.upstreams if upstream.kind != DEMO]
    found = next((name for upstream in real if (name := _first_model(routes, upstream))), None)
    return next((m for upstream in routes.upstreams for m in upstream.models), None) if not real else found


def _first_model(routes: Routes, upstream: Upstream) -> str | None:
    usual = find_kind(upstream.kind, routes.rows).default_model if upstream.kind else ""
    known = routes.models_of(upstream)
    if usual and (not known or usual in known):
        name: str | None = usual
    else:
        name = next((model for model in known if "embed" not in model), None)
    if name is None:
        return None
    first = find_targets(routes, name, lambda: 0.0)[:1]
    return name if first and first[0].upstream.name == upstream.name else f"{upstream.name}/{name}"


def find_nearest(routes: Routes, name: str) -> list[str]:
    """Names that look like one that is not known: for an error that helps."""
    from difflib import get_close_matches  # after a mistake only

    known = [*list_models(routes)]
    lower = {model.lower(): model for model in known}
    close = [lower[near] for near in get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    family = re.split(r"[:@]", name)[0]
    return list(dict.fromkeys([*close, *(model for model in known if family and model.startswith(family))]))[:3]


def hint_key(routes: Routes, name: str) -> str:
    """Which key to set for a model whose vendor is known by its name; "" if that is not known, or is served here."""
    kind = kind_of_model(name, routes.rows)
    if kind is None or any(upstream.kind == kind for upstream in routes.upstreams):
        return ""
    row = find_kind(kind, routes.rows)
    return f"for {row.title}, set {row.keys[0]} and start the gateway again" if row.keys else ""


def plain_name(model: str, routes: Routes) -> str:
    """The name of a model without the additions of a dialect: Gemini says models/x, Ollama x:latest."""
    name = model.removeprefix("models/")
    if not name:
        return next((m for upstream in routes.upstreams for m in routes.models_of(upstream)), "")
    short = name.removesuffix(":latest")
    known = name in routes.aliases or routes.serving(name)
    return name if known else short


def _find(routes: Routes, name: str, dice: Callable[[], float]) -> RouteChoice:
    exact = routes.serving(name)
    if exact:
        return RouteChoice([Target(upstream, name) for upstream in weigh(exact, dice)], "is in the model list")
    first, _, rest = name.partition("/")
    for upstream in routes.upstreams:
        if rest and upstream.name == first:
            return RouteChoice([Target(upstream, rest)], "begins with the name of its upstream")
    found = _with_effort(routes, name, dice)
    if found is not None:
        return found
    by_prefix = _by_prefix(routes, name)
    listed = all(routes.models_of(upstream) for upstream in by_prefix)  # none of them has it under this name
    same = _other_date(routes, name) if listed else None
    dated = routes.serving(same) if same else []
    if same and not any(upstream in by_prefix for upstream in dated):
        return RouteChoice([Target(upstream, same) for upstream in dated], f"is served with another date: {same}")
    if by_prefix:
        return RouteChoice([Target(upstream, name) for upstream in by_prefix], "begins as this provider's models do")
    if routes.upstreams and routes.fallback:
        upstream = routes.upstreams[0]
        return RouteChoice(
            [Target(upstream, _own_model(upstream, name))], "is not known; it goes to the first upstream (fallback)"
        )
    return RouteChoice([], "is not a model that is served here")


def _with_effort(routes: Routes, name: str, dice: Callable[[], float]) -> RouteChoice | None:
    split = _EFFORT.fullmatch(name)
    if split is None or _is_known(routes, name) or not _is_known(routes, split[1]):
        return None
    found = _find(routes, split[1], dice)
    targets = [Target(target.upstream, target.model, split[2]) for target in found.targets]
    return RouteChoice(targets, f"is {split[1]} with effort {split[2]}, which {found.why}") if targets else None


def _is_known(routes: Routes, name: str) -> bool:
    """Whether there is such a model, here or at the vendor whose models have such names."""
    return bool(routes.serving(name)) or any(
        find_known(kind, name, routes.rows) is not None for kind in kinds_of_model(name, routes.rows)
    )


def _other_date(routes: Routes, name: str) -> str | None:
    dated = _DATE.fullmatch(name)
    if dated is not None and routes.serving(dated[1]):
        return dated[1]
    every = {model for upstream in routes.upstreams for model in routes.models_of(upstream) if model.startswith(name)}
    return max((model for model in every if (match := _DATE.fullmatch(model)) and match[1] == name), default=None)


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
