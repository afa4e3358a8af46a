"""Gateway: what a running process holds. The doors are functions on it (app.py lists them)."""

import random
import time
from collections.abc import Awaitable, Callable

from dragoman.gateway.auth import Access
from dragoman.gateway.log import Log
from dragoman.gateway.metrics import Metrics
from dragoman.gateway.response_store import ResponseStore
from dragoman.gateway.settings import Settings
from dragoman.gateway.xray import XrayRing
from dragoman.upstream.routing import Routes, find_targets, is_legal_model, list_models
from dragoman.upstream.send import Sender
from dragoman.upstream.spec import Target
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState

MOST_KNOWN = 1000  # model names come from clients


class Generation:
    """Everything that comes from one configuration. A reload makes a new one; what runs keeps its own."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        routes: Routes,
        upstream_states: dict[str, UpstreamState],
        doorman: Access,
    ) -> None:
        self.number = number
        self.settings = settings
        self.routes = routes
        self.upstream_states = upstream_states
        self.doorman = doorman
        self.models = list_models(routes)
        self._weighted = len({upstream.weight for upstream in routes.upstreams}) > 1  # then dice decide each time
        self._known: dict[str, list[tuple[UpstreamState, Target]]] = {}

    def targets(self, model: str, dice: Callable[[], float]) -> list[tuple[UpstreamState, Target]]:
        """Best first; empty when no upstream may be asked for such a name."""
        known = self._known.get(model)
        if known is not None:
            return known
        if model and not is_legal_model(model):
            return []
        found = find_targets(self.routes, model, dice)
        pairs = [(self.upstream_states[target.upstream.name], target) for target in found]
        if not self._weighted and len(self._known) < MOST_KNOWN:
            self._known[model] = pairs
        return pairs


class Gateway:
    def __init__(self, settings: Settings, doorman: Access, *, log: Log, share: int = 1) -> None:
        self.clock = time.monotonic
        self.wall = time.time
        self.dice = random.random
        self.log = log
        self.share = share
        self.transport = Transport()
        self.sender = Sender(self.transport)
        self.metrics = Metrics()
        self.store = ResponseStore(settings.store_path, settings.store_rows)
        self.xray = XrayRing(settings.xray_keep)
        self.started = self.wall()
        self.rejected = 0  # configurations that were no good
        self.leaving = False  # somebody else should be asked from now on
        self.draining = False  # and nobody is served any more who is not served yet
        self.now: Generation = self.build(settings, doorman, 1)
        self.live: set[Callable[[], None]] = set()  # how to end each running stream
        self.closers: list[Callable[[], Awaitable[None]]] = []  # what else must be ended

    def build(self, settings: Settings, doorman: Access, number: int) -> Generation:
        routes = Routes(upstreams=settings.upstreams, aliases=settings.aliases)
        upstream_states = {u.name: UpstreamState(u, self.clock, self.share) for u in settings.upstreams}
        return Generation(number, settings, routes, upstream_states, doorman)

    def replace(self, settings: Settings, doorman: Access) -> None:
        """Another configuration; an upstream that did not change keeps its windows, keys and breakers."""
        new = self.build(settings, doorman, self.now.number + 1)
        for name, state in self.now.upstream_states.items():
            if name in new.upstream_states and new.upstream_states[name].spec == state.spec:
                new.upstream_states[name] = state
        self.now = new

    def leave(self) -> None:
        """Not ready any more: who looks goes elsewhere, who has connected is still served."""
        self.leaving = True

    def drain(self) -> None:
        """No new work from here on."""
        self.leaving = self.draining = True

    def end_streams(self) -> None:
        """The grace time is over: what still runs ends with an error in its own dialect."""
        for end in list(self.live):
            end()

    async def close(self) -> None:
        while self.closers:
            await self.closers.pop()()
        await self.transport.close()
        self.store.close()
