"""Gateway: the state of a running process. Routes are functions on it (app.py lists them)."""

import asyncio
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.accounts import journal
from dragoman.accounts.bookkeeper import BUSY_HERE_S, Bookkeeper
from dragoman.accounts.budgets import Passed
from dragoman.accounts.grants import Holder
from dragoman.accounts.prices import ModelPrice, PriceTable
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.key_limits import KeyLimits
from dragoman.gateway.access.sessions import Sessions
from dragoman.gateway.access.webhook import tell_webhook
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.process.peers import Peers
from dragoman.gateway.stores.engines import open_budgets, open_kept, open_ledger, open_remote_budgets
from dragoman.gateway.stores.verify import Verifier, VerifyBook
from dragoman.gateway.telemetry import traffic_store
from dragoman.gateway.telemetry.log import Log
from dragoman.gateway.telemetry.metrics import Metrics
from dragoman.gateway.telemetry.traffic import Traffic
from dragoman.gateway.telemetry.xray import XrayRing
from dragoman.known_turns.history import KnownTurns
from dragoman.known_turns.settings import KnownSettings
from dragoman.known_turns.tools import MOST_BYTES, KnownTools
from dragoman.model.messages import Text
from dragoman.model.request import Request
from dragoman.upstream import kept_files, model_lists
from dragoman.upstream.admission import LimitedQueue, LimitStore, ProcessLimits
from dragoman.upstream.kept_files import LearnedFile
from dragoman.upstream.model_lists import ModelLists
from dragoman.upstream.routing import (
    Routes,
    choose_by_rule,
    find_rule,
    find_targets,
    is_legal_model,
    list_models,
    plain_name,
)
from dragoman.upstream.send import Sender
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState, open_queue

if TYPE_CHECKING:
    from dragoman.gateway.config.book import ConfigBook
    from dragoman.otel.traces import Traces
    from dragoman.postgres.database import Database

MOST_KNOWN = 1000  # model names come from clients
MOST_CONVERSATIONS = 10_000
LOOK_S = 2.0  # how long a request waits for lists of models


class Generation:
    """Everything made from one configuration. A reload makes a new one; running requests keep theirs."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        routes: Routes,
        upstream_states: dict[str, UpstreamState],
        access: Access,
    ) -> None:
        self.number = number
        self.settings = settings
        self.routes = routes
        self.upstream_states = upstream_states
        self.access = access
        self.models: dict[str, str] = {}
        self.prices = PriceTable(settings.teams.prices)
        self._weighted = (
            len({upstream.weight for upstream in routes.upstreams}) > 1
        )  # then each request chooses at random
        self._known: dict[str, list[tuple[UpstreamState, Target]]] = {}
        # by conversation: the rule that chose its model, and the upstream it went to first
        self._conversations: OrderedDict[int, tuple[int | None, str | None]] = OrderedDict()
        self.take_lists()

    def speaks(self, dialect: str) -> bool:
        """Whether one of the upstreams speaks this dialect."""
        return any(dialect in (one.dialects or (one.dialect,)) for one in self.settings.upstreams)

    def take_lists(self) -> None:
        """Takes the upstreams' own lists of models into the routes."""
        listed = {u.name: self.upstream_states[u.name].listed for u in self.routes.upstreams if u.lists_own}
        listed = {name: models for name, models in listed.items() if models}
        self.routes = replace(self.routes, listed=listed)
        self.models = list_models(self.routes)
        self._known = {}

    @property
    def chooses_by_more_than_the_model(self) -> bool:
        """Whether a rule, a weight or an earlier request of the conversation may choose the targets of a request."""
        return bool(self.routes.rules) or self._weighted

    def route(self, request: Request, client: str, dice: Callable[[], float]) -> list[tuple[UpstreamState, Target]]:
        """Targets for a request: by the rules of the configuration, else by its model's name. A conversation stays
        where it was, so that the upstream's prompt cache stays warm; only a rule before its own can move it."""
        if not self.chooses_by_more_than_the_model:
            return self.targets(request.model, dice)
        key = _conversation_key(request, client)
        rule, last = find_rule(self.routes, request), None
        if key in self._conversations and any(message.role == "assistant" for message in request.messages):
            known, last = self._conversations[key]
            rule = known if rule is None else rule if known is None else min(rule, known)
        if rule is None:
            found = self.targets(request.model, dice)
        else:
            found = self._pair(choose_by_rule(self.routes, rule, dice).targets)
        found = sorted(found, key=lambda pair: pair[0].spec.name != last)
        self._conversations[key] = (rule, found[0][0].spec.name if found else None)
        if len(self._conversations) > MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)
        return found

    def _pair(self, targets: list[Target]) -> list[tuple[UpstreamState, Target]]:
        return [(self.upstream_states[target.upstream.name], target) for target in targets]

    def targets(self, model: str, dice: Callable[[], float]) -> list[tuple[UpstreamState, Target]]:
        """Targets for a model, best first; empty if no upstream serves it."""
        known = self._known.get(model)
        if known is not None:
            return known
        if model and not is_legal_model(model):
            return []
        found = find_targets(self.routes, model, dice)
        pairs = self._pair(found)
        if not self._weighted and len(self._known) < MOST_KNOWN:
            self._known[model] = pairs
        return pairs

    def plain_name(self, model: str) -> str:
        """The model's name as the configuration has it: Gemini says models/x, Ollama x:latest."""
        return plain_name(model, self.routes)

    def price_of(self, model: str) -> ModelPrice | None:
        """The price where a model is asked for first; None if it is unknown."""
        targets = self.targets(model, lambda: 0.0)
        if not targets:
            return None
        target = targets[0][1]
        return self.prices.find(target.upstream.name, target.upstream.kind, target.model)


def _conversation_key(request: Request, client: str) -> int:
    """What identifies a conversation: its instructions and its first question, which stay the same."""
    words: list[str] = []
    for message in request.messages:
        words += [part.text[:1000] for part in message.parts if isinstance(part, Text)]
        if message.role == "user":
            break
    return hash((client, request.model, *words))


class Gateway:
    def __init__(
        self,
        settings: Settings,
        access: Access,
        *,
        log: Log,
        limits: LimitStore | None = None,
        database: "Database | None" = None,
    ) -> None:
        self.clock = time.monotonic
        self.wall = time.time
        self.dice = random.random
        self.log = log
        self._own_limits = ProcessLimits(self.clock)
        self.limits: LimitStore = limits or self._own_limits
        self.key_limits = KeyLimits(self.limits, self.clock)
        self.books: Bookkeeper | None = None  # made when a request needs it
        self.peers: Peers | None = None  # the other workers
        self.admin_port = 0  # where the routes of admins are; 0: at the port of clients
        self.apply_config: Callable[[], str] = lambda: "there is no configuration file"  # "" if it is good
        self.transport = Transport()
        self.sender = Sender(self.transport)
        self.metrics = Metrics()
        self.database = database
        self.traces: Traces | None = None  # set when the process has started, if it sends any
        self.store, self.state_store = open_kept(settings, database)
        self.state_secret = settings.state_secret or secrets.token_bytes(32)
        self.xray = XrayRing(settings.xray_keep)
        kept = settings.traffic
        rows = traffic_store.TrafficStore(self._file(settings, traffic_store.FILE), kept.keep_days, kept.rows)
        self.traffic = Traffic(rows, lambda: self.wall())
        self.open_verifier: Callable[[], Verifier] | None = None  # set by the program that starts the gateway
        self.verify_book = VerifyBook(self._folder(settings))
        self.known_turns = KnownTurns(settings.known_turns_bytes)
        most = min(settings.known_turns_bytes, MOST_BYTES)
        self.known_tools = KnownTools(most, threading.Lock())
        self.known_settings = KnownSettings(most, threading.Lock())
        self.started = self.wall()
        self.rejected = 0  # bad configurations that were refused
        self.leaving = False  # not ready: load balancers should choose another process
        self.draining = False  # no new requests either
        self.model_lists = ModelLists(
            self.transport, self.clock, self.wall, self._file(settings, model_lists.NAME), self._take_lists
        )
        self.now: Generation = self.build(settings, access, 1)
        self.live: set[Callable[[], None]] = set()  # functions that end each running stream
        self.closers: list[Callable[[], Awaitable[None]]] = []  # called when the gateway ends

    def build(self, settings: Settings, access: Access, number: int) -> Generation:
        routes = settings.routes()
        path = self._file(settings, kept_files.LEARNED)
        lessons = LearnedFile(path, self.wall) if path is not None else None
        upstream_states = {
            u.name: UpstreamState(u, self.clock, self._open_queue(u), lessons) for u in settings.upstreams
        }
        if settings.ask_models:
            self.model_lists.recall(upstream_states.values())
        access.sessions = Sessions(self.state_secret, self.wall)
        return Generation(number, settings, routes, upstream_states, access)

    @staticmethod
    def _folder(settings: Settings) -> Path | None:
        return None if settings.store_path is None else settings.store_path.parent

    @staticmethod
    def _file(settings: Settings, name: str) -> Path | None:
        return None if settings.store_path is None else settings.store_path.parent / name

    def _take_lists(self) -> None:
        self.now.take_lists()

    async def look_for_models(self, older_s: float) -> None:
        """Asks upstreams for their models if their lists are older than this, and waits a moment for the answers."""
        if self.now.settings.ask_models:
            await self.model_lists.refresh(self.now.upstream_states.values(), older_s, LOOK_S)

    async def keep_models(self) -> None:
        """Runs as long as the process, so that a model that is added later is found."""
        if self.now.settings.ask_models:
            await self.model_lists.keep_fresh(lambda: self.now.upstream_states.values())

    def _open_queue(self, upstream: Upstream) -> LimitedQueue:
        """An upstream without limits has nothing to ask other processes for."""
        limited = (upstream.at_once, upstream.rpm, upstream.tpm) != (None, None, None)
        return open_queue(upstream, self.limits if limited else self._own_limits)

    def find_books(self, holder: Holder | None) -> Bookkeeper | None:
        """The bookkeeper for the requests of a key; None if they are not recorded."""
        settings = self.now.settings
        wanted = settings.teams.ledger.on
        if wanted is None:
            wanted = holder is not None
        if not wanted and (holder is None or not holder.budgeted):
            return None
        if self.books is None and settings.store_path is not None:
            self.books = self._open_books(settings)
        return self.books

    def take_over_rows(self) -> None:
        """Starts the bookkeeper now if a process that was killed has left rows."""
        settings = self.now.settings
        if settings.store_path is not None and journal.has_files(settings.store_path.parent / journal.FOLDER):
            self.books = self.books or self._open_books(settings)
            self.books.start()

    def _open_books(self, settings: Settings) -> Bookkeeper:
        folder = settings.store_path.parent if settings.store_path is not None else Path()
        rules = settings.teams
        remote = open_remote_budgets(self.database) if self.database is not None else None
        return Bookkeeper(
            journal.Journal(folder / journal.FOLDER),
            open_ledger(folder, self.database) if rules.ledger.on is not False else None,
            open_budgets(folder, self.database, BUSY_HERE_S),
            open_budgets(folder, self.database),
            remote=remote,
            standby=settings.on_state_loss != "refuse",
            keep_days=rules.ledger.keep_days,
            lease_s=rules.budgets.lease_s,
            tell=self._tell_webhook,
            wall=self.wall,
        )

    def _tell_webhook(self, passed: Sequence[Passed]) -> None:
        now = self.now
        tell_webhook(now.settings.teams.budgets.webhook, passed, now.access.keys.find_account)

    def replace(self, settings: Settings, access: Access) -> None:
        """Takes a new configuration. Upstreams that did not change keep their limits, keys and breakers."""
        new = self.build(settings, access, self.now.number + 1)
        for name, state in self.now.upstream_states.items():
            if name in new.upstream_states and new.upstream_states[name].spec == state.spec:
                new.upstream_states[name] = state
        new.take_lists()
        self.now = new

    def open_config(self) -> "ConfigBook | None":
        """The configuration file and its earlier versions; None without a file."""
        from dragoman.gateway.config.book import ConfigBook

        settings = self.now.settings
        if not settings.source:
            return None
        return ConfigBook(Path(settings.source), self._folder(settings), secret=self.state_secret)

    def remember_config(self, who: str) -> None:
        book = self.open_config()
        if book is not None:
            book.remember(who)

    def leave(self) -> None:
        """Stops being ready. Open connections are still served."""
        self.leaving = True

    def drain(self) -> None:
        """Takes no new requests from here on."""
        self.leaving = self.draining = True

    def end_streams(self) -> None:
        """Ends the streams that still run after the grace time, with an error in their dialect."""
        for end in list(self.live):
            end()

    async def close(self) -> None:
        while self.closers:
            await self.closers.pop()()
        await self.verify_book.close()
        await self.model_lists.close()
        await self.transport.close()
        if self.books is not None:
            await asyncio.to_thread(self.books.close)
        await self.traffic.close()
        self.store.close()
        self.state_store.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        if self.database is not None:
            self.database.close()
