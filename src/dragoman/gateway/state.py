"""Gateway: what a running process holds. The doors are functions on it (app.py lists them)."""

import random
import time
from collections.abc import Callable

from msgspec import Struct

from dragoman.gateway.auth import Doorman
from dragoman.gateway.log import Log
from dragoman.gateway.metrics import Metrics
from dragoman.gateway.settings import Settings
from dragoman.gateway.store import ResponseStore
from dragoman.gateway.xray import XrayRing
from dragoman.upstream.routing import Routes, find_targets, is_legal_model, list_models
from dragoman.upstream.send import Sender
from dragoman.upstream.spec import Target
from dragoman.upstream.station import Station
from dragoman.upstream.transport import Transport


class Generation(Struct, kw_only=True):
    """Everything that comes from one configuration. A reload makes a new one; what runs keeps its own."""

    number: int
    settings: Settings
    routes: Routes
    stations: dict[str, Station]
    doorman: Doorman
    models: dict[str, str]

    def targets(self, model: str, dice: Callable[[], float]) -> list[tuple[Station, Target]]:
        """Best first; empty when no upstream may be asked for such a name."""
        if model and not is_legal_model(model):
            return []
        found = find_targets(self.routes, model, dice)
        return [(self.stations[target.upstream.name], target) for target in found]


class Gateway:
    def __init__(self, settings: Settings, doorman: Doorman, *, log: Log, share: int = 1) -> None:
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
        self.draining = False
        self.now: Generation = self.build(settings, doorman, 1)
        self.live: set[Callable[[], None]] = set()  # how to end each running stream

    def build(self, settings: Settings, doorman: Doorman, number: int) -> Generation:
        routes = Routes(upstreams=settings.upstreams, aliases=settings.aliases)
        return Generation(
            number=number,
            settings=settings,
            routes=routes,
            stations={u.name: Station(u, self.clock, self.share) for u in settings.upstreams},
            doorman=doorman,
            models=list_models(routes),
        )

    def replace(self, settings: Settings, doorman: Doorman) -> None:
        """Another configuration; an upstream that did not change keeps its windows, keys and breakers."""
        new = self.build(settings, doorman, self.now.number + 1)
        for name, station in self.now.stations.items():
            if name in new.stations and new.stations[name].spec == station.spec:
                new.stations[name] = station
        self.now = new

    def drain(self) -> None:
        """No new work from here on."""
        self.draining = True

    def end_streams(self) -> None:
        """The grace time is over: what still runs ends with an error in its own dialect."""
        for end in list(self.live):
            end()

    async def close(self) -> None:
        await self.transport.close()
        self.store.close()
