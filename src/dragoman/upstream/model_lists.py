"""Which models an upstream has, and what is known about each of them.

The upstream is asked for its list: at the start, every few minutes, and when a client looks for a model that is not
known. No request waits for it longer than a moment. The last list is kept for the next start.

What is known about a model comes from the first of these that says it: the configuration, the upstream's own list, the
rows of profiles.toml, known_models.json. The rest is not known, and nothing is made up.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._services import ListedModel, ModelsCodec
from dragoman.errors import DecodeError, UpstreamError
from dragoman.jsontypes import Json, dump_json, load_json
from dragoman.log_line import LogLine
from dragoman.network import is_this_machine
from dragoman.upstream.http.request import build_headers, join_url
from dragoman.upstream.kept_files import read_kept, write_kept
from dragoman.upstream.profiles import find_kind, find_known, kinds_of_model
from dragoman.upstream.render import choose_dialect, find_profile
from dragoman.upstream.spec import DEMO, Upstream
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState

log = logging.getLogger(__name__)
NAME = "models.json"
REFRESH_S = 300.0
REMOTE_S = 60.0  # a provider's list that is younger than this is not asked for again
AGAIN_S = 30.0  # after a failure
LOOK_S = 5.0  # how often we check which lists are due
ASK_S = 10.0  # for the list and the details of its models
KEPT_S = 7 * 24 * 3600.0
MOST_BYTES = 8 * 1024 * 1024
MOST_MODELS = 2_000
MOST_DETAILS = 100
AT_ONCE = 4  # questions about single models at the same time


class KeptList(Struct, frozen=True, kw_only=True):
    """The list of one server, as it is kept over a restart."""

    server: str
    models: list[ListedModel]
    asked_at: float  # seconds since 1970


class ModelLists:
    """The lists of all upstreams of a process. They are kept in the upstreams' states."""

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        path: Path | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._transport, self._clock, self._wall, self._path = transport, clock, wall, path
        self._on_change = on_change
        self._asking: dict[str, asyncio.Task[None]] = {}  # by the upstream's name

    def recall(self, states: Iterable[UpstreamState]) -> None:
        """Takes the lists of the last run, until the upstreams have answered."""
        kept = {one.server: one for one in self._load()}
        for state in states:
            found = kept.get(_server(state.spec))
            if found is not None and not state.listed and _asks(state.spec):
                state.take_list({model.name: model for model in found.models})

    async def refresh(self, states: Iterable[UpstreamState], older_s: float, within_s: float) -> None:
        """Asks each upstream whose list is older than `older_s`, and waits at most `within_s`. Questions go on after
        that."""
        now = self._clock()
        due = [state for state in states if _asks(state.spec) and now - state.listed_at >= _age(state.spec, older_s)]
        tasks = [self._start(state) for state in due]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    async def keep_fresh(self, states: Callable[[], Iterable[UpstreamState]]) -> None:
        """Runs as long as the process."""
        while True:
            now = self._clock()
            await self.refresh([state for state in states() if state.list_due <= now], 0.0, ASK_S)
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, state: UpstreamState) -> "asyncio.Task[None]":
        name = state.spec.name
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(self._ask(state))
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        return task

    async def _ask(self, state: UpstreamState) -> None:
        state.listed_at = now = self._clock()
        try:
            async with asyncio.timeout(ASK_S):
                models = await fetch_models(state, self._transport, now)
        except (UpstreamError, DecodeError, TimeoutError) as error:
            state.list_due = self._clock() + AGAIN_S
            why = "it took too long" if isinstance(error, TimeoutError) else str(error)
            if why != state.list_failure:
                state.list_failure = why
                log.info(LogLine("models_not_listed", {"upstream": state.spec.name, "why": why[:200]}))
            return
        state.list_failure, state.list_due = "", self._clock() + REFRESH_S
        found = {model.name: model for model in models[:MOST_MODELS]}
        if found != state.listed:
            state.take_list(found)
            self._keep(state)
            self._on_change()

    def _keep(self, state: UpstreamState) -> None:
        if self._path is None:
            return
        server = _server(state.spec)
        fresh = KeptList(server=server, models=list(state.listed.values()), asked_at=self._wall())
        write_kept(self._path, [*(one for one in self._load() if one.server != server), fresh])

    def _load(self) -> list[KeptList]:
        if self._path is None:
            return []
        return [one for one in read_kept(self._path, KeptList) if self._wall() - one.asked_at < KEPT_S]


def _asks(upstream: Upstream) -> bool:
    return upstream.kind != DEMO and bool(upstream.base_url) and find_kind(upstream.kind, upstream.rows).lists


def _age(upstream: Upstream, older_s: float) -> float:
    """The least age at which a list is asked for again: providers change theirs seldom."""
    near = is_this_machine(urlsplit(upstream.base_url).hostname or "")
    return older_s if near or not older_s else max(older_s, REMOTE_S)


def _server(upstream: Upstream) -> str:
    return f"{upstream.kind} {upstream.base_url}"


# ---------------------------------------------------------------- asking


async def fetch_models(state: UpstreamState, transport: Transport, now: float) -> list[ListedModel]:
    """Asks an upstream for its models. An UpstreamError or a DecodeError if it does not tell."""
    spec = state.spec
    codec = find_dialect(spec.dialect).models or find_dialect(USUAL).models
    if codec is None:
        return []
    own = find_kind(spec.kind, spec.rows).models_path
    if own:
        try:
            return codec.decode(await _fetch(state, transport, put_at_root(spec.base_url, own), None, now))
        except (UpstreamError, DecodeError):
            pass  # an older version: its usual list follows
    models = codec.decode(await _fetch(state, transport, join_url(spec.base_url, codec.path), None, now))
    return await _add_details(state, transport, codec, models, now)


async def _add_details(
    state: UpstreamState, transport: Transport, codec: ModelsCodec, models: list[ListedModel], now: float
) -> list[ListedModel]:
    """A model that has not changed since it was asked about is not asked about again."""
    details = codec.details
    if details is None:
        return models
    free = asyncio.Semaphore(AT_ONCE)

    async def add(model: ListedModel) -> ListedModel:
        known = state.listed.get(model.name)
        if known is not None and model.digest and known.digest == model.digest:
            return known
        body = None if details.encode is None else dump_json(details.encode(model.name))
        async with free:
            try:
                found = await _fetch(state, transport, put_at_root(state.spec.base_url, details.path), body, now)
                return details.decode(found, model)
            except (UpstreamError, DecodeError):
                return model

    unknown = [model for model in models[:MOST_DETAILS] if details.wanted(model)]
    answers = dict(zip((model.name for model in unknown), await asyncio.gather(*map(add, unknown)), strict=True))
    return [answers.get(model.name, model) for model in models]


def put_at_root(base_url: str, path: str) -> str:
    """The address of something that stands beside the API and not below its version."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


async def _fetch(state: UpstreamState, transport: Transport, url: str, body: bytes | None, now: float) -> Json:
    """The JSON at an address of the upstream, asked with its key."""
    key = state.keys.pick(now)
    if key is None:
        raise DecodeError("all its keys rest")
    spec = state.spec
    own = find_dialect(spec.dialect).default_headers
    opened = await transport.open(
        url,
        build_headers(own, spec.headers, spec.auth, key, state.origin),
        body or b"",
        timeouts=spec.timeouts,
        head_s=ASK_S,
        on_sent=lambda: None,
        method="GET" if body is None else "POST",
        network=spec.network,
    )
    whole = False
    try:
        data = await opened.read(MOST_BYTES)
        whole = True
    finally:
        opened.close(whole=whole)
    if opened.status != 200:
        raise DecodeError(f"it answered {opened.status}")
    return load_json(data)


# ---------------------------------------------------------------- what is known about a model


def describe(state: UpstreamState, model: str) -> ListedModel:
    """What is known about a model at an upstream."""
    found = state.cards.get(model)
    if found is None:
        found = _describe(state, model)
        if len(state.cards) < MOST_MODELS:  # names come from clients
            state.cards[model] = found
    return found


def _describe(state: UpstreamState, model: str) -> ListedModel:
    spec = state.spec
    listed = state.listed.get(model) or ListedModel(name=model)
    if spec.kind == DEMO:
        return replace(listed, vision=True, thinking=True, tools=True)
    # The profile has what the configuration, the list and the rows say, and what was learned.
    profile = find_profile(state, choose_dialect(spec, USUAL, model), model)
    most = profile.most_output or profile.ranges.get("max_output", (None, None))[1]
    card = replace(
        listed,
        window=profile.window,
        max_input=None if "window" in spec.overrides else listed.max_input or profile.context,
        max_output=None if most is None else int(most),
    )
    cannot = ListedModel(
        name=model,
        thinking=False if profile.thinking is not None and profile.thinking.says == "nothing" else None,
        vision=None if profile.media.images else False,
    )
    # The rows tell that a vendor's own model sees pictures. On other servers a model of the same name may be blind.
    can = ListedModel(
        name=model,
        thinking=True if profile.thinking is not None else None,
        vision=True if kinds_of_model(model, spec.rows) else None,
    )
    return _fill(_fill(_fill(card, cannot), find_known(spec.kind, model, spec.rows)), can)


def _fill(card: ListedModel, other: ListedModel | None) -> ListedModel:
    """`card` with what only the other one says."""
    if other is None:
        return card
    missing = {name: value for name, value in asdict(other).items() if getattr(card, name) in (None, "")}
    if card.reads is not None:  # one number is enough: two sources may mean different things by theirs
        missing = {name: value for name, value in missing.items() if name not in ("window", "max_input")}
    return replace(card, **missing)
