"""The workers of a gateway answer for each other: sums never fall, and a dead worker's counts stay."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from dragoman.accounts.prices import Cost
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.process.peers import Peers
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.log import Log
from dragoman.gateway.telemetry.xray import Xray
from dragoman.jsontypes import load_json
from dragoman.upstream.discovery import demo_upstream


class Worker:
    def __init__(self, folder: Path, number: int) -> None:
        self.gateway = Gateway(Settings(upstreams=(demo_upstream(),)), Access(ClientKeys()), log=Log())
        self.app, self.peers = App(self.gateway), Peers(folder, number, 2)
        self.gateway.metrics.running = 1  # the request that asks

    async def start(self) -> "Worker":
        await self.peers.start(self.app.handle, self.gateway.metrics)
        self.gateway.peers = self.peers
        return self

    def count(self, times: int) -> None:
        for _ in range(times):
            self.gateway.metrics.request("chat", "demo", 200, 0.1)
            self.gateway.metrics.cost("demo", "m", "web", Cost(250_000, "USD"))

    async def get(self, path: str, accept: str = "*/*") -> bytes:
        headers = {"host": "localhost", "accept": accept}
        port = self.gateway.admin_port
        response = await self.app.handle(HttpRequest("GET", path, headers=headers, client="127.0.0.1", port=port))
        assert response.status == 200, response.body
        return response.body

    async def requests(self) -> int:
        text = (await self.get("/metrics")).decode()
        found = re.search(r'requests_total\{door="chat",upstream="demo",status="200"\} (\d+)', text)
        return int(found[1]) if found else 0

    async def end(self) -> None:
        await self.gateway.close()
        await self.peers.close()


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[tuple[Worker, Worker]]:
    workers = (await Worker(folder, 0).start(), await Worker(folder, 1).start())
    try:
        yield workers
    finally:
        for worker in workers:
            await worker.end()


def run(work: Callable[[], "asyncio.Future[None] | object"]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


def test_every_worker_tells_the_sum(tmp_path: Path) -> None:
    async def work() -> None:
        async with two_workers(tmp_path) as (one, two):
            one.count(8)
            two.count(4)
            assert [await one.requests(), await two.requests(), await one.requests()] == [12, 12, 12]
            text = (await one.get("/metrics")).decode()
            assert 'dragoman_cost_total{upstream="demo",model="m",team="web",currency="USD"} 3\n' in text
            assert "\ndragoman_running 1\n" in text, "one of the two asks, the other one is at work"

    run(work)


def test_every_worker_tells_the_sum_at_a_port_for_admins(tmp_path: Path) -> None:
    async def work() -> None:
        async with two_workers(tmp_path) as (one, two):
            for worker in (one, two):
                worker.gateway.admin_port = 20007
            one.count(3)
            two.count(4)
            assert [await one.requests(), await two.requests()] == [7, 7]

    run(work)


def test_counts_of_a_dead_worker_stay_and_the_next_one_counts_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with two_workers(tmp_path) as (one, two):
            one.count(2)
            two.count(3)
            assert await one.requests() == 5
            two.count(100)  # never told: lost with it
            two.peers.save = lambda: None  # type: ignore[method-assign]  # it is killed
            await two.peers.close()
            (tmp_path / "1.sock").unlink(missing_ok=True)
            assert await one.requests() == 5
            again = await Worker(tmp_path, 1).start()
            again.count(1)
            assert [await one.requests(), await again.requests()] == [6, 6]
            await again.end()

    run(work)


def test_xray_and_health_are_those_of_all_workers(tmp_path: Path) -> None:
    async def work() -> None:
        async with two_workers(tmp_path) as (one, two):
            two.gateway.xray.put(Xray(id="kept", door="chat", path="/v1/chat/completions", model="m", status=200))
            listed = load_json(await one.get("/xray"))["requests"]
            assert [row["id"] for row in listed] == ["kept"]
            assert load_json(await one.get("/xray/kept"))["model"] == "m"
            assert b"kept" in await one.get("/xray", "text/html")
            assert b"<h1>X-ray kept" in await one.get("/xray/kept", "text/html")
            health = load_json(await one.get("/health"))
            assert health["workers"] == {"count": 2, "answering": 2}
            assert health["running"] == 1

    run(work)


def test_every_worker_says_what_is_wrong_with_another_one(tmp_path: Path) -> None:
    """/health said "off", "away" or "ok", whichever worker it came to."""

    async def work() -> None:
        async with two_workers(tmp_path) as (one, two):
            healthy = load_json(await one.get("/health"))
            (state,) = two.gateway.now.upstream_states.values()
            state.worst_state = lambda: "open"  # type: ignore[method-assign]
            two.gateway.limits = SimpleNamespace(kept="valkey", parts=2, away="no route")
            two.gateway.now.access.keys.away = "keys.db: the disk is gone"
            two.gateway.books = SimpleNamespace(away="the disk is full", in_hand=0, close=list)  # type: ignore[assignment]
            for worker in (one, two):
                health = load_json(await worker.get("/health"))
                assert health["state"]["status"] == "away"
                assert health["keys"]["store"] == "keys.db: the disk is gone"
                assert health["ledger"] == "the disk is full"
                assert health["providers"]["demo"]["breaker"] == "open"
            assert healthy["ledger"] == "off"
            assert healthy["state"]["status"] == healthy["keys"]["store"] == "ok"

    run(work)
