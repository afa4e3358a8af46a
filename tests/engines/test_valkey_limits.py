"""Limits in a real Valkey: they hold over processes, and when it goes away requests go on under a share."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dragoman.errors import UpstreamError
from dragoman.upstream.admission import LimitedQueue, Ticket
from tests.engines.servers import Engine
from tests.waiting import NEVER_S, until, until_said

pytest.importorskip("redis", reason="the extra `valkey` is not installed")

from redis.asyncio import Redis

from dragoman.valkey.limits import LAG_S, OnLoss, ValkeyLimits
from dragoman.valkey.server import ANSWER_S, AwayError, ValkeyServer

NAMES = iter(range(10_000))


class Clock:
    """The time, or a moment at which it stands still."""

    held: float | None = None

    def __call__(self) -> float:
        return time.monotonic() if self.held is None else self.held


@asynccontextmanager
async def replica(
    engine: Engine, name: str, prefix: str, on_loss: OnLoss, recover_s: float
) -> AsyncIterator[ValkeyLimits]:
    server = ValkeyServer(engine.url, answer_s=NEVER_S)  # on a busy machine Valkey is late and not away
    limits = ValkeyLimits(server, name, Clock(), prefix=prefix, on_loss=on_loss, recover_s=recover_s)
    await limits.start()
    try:
        yield limits
    finally:
        await limits.close()


def play(
    engine: Engine,
    count: int,
    script: Callable[..., Awaitable[None]],
    on_loss: OnLoss = "local_share",
    recover_s: float = 0.3,
) -> None:
    """Runs a script with so many replicas, under a prefix of its own."""

    async def run() -> None:
        prefix = f"test{next(NAMES)}"
        async with AsyncExitStack() as stack:
            names = [f"r{n}" for n in range(count)]
            opened = [replica(engine, name, prefix, on_loss, recover_s) for name in names]
            found = [await stack.enter_async_context(one) for one in opened]
            await asyncio.gather(*[limits._stay() for limits in found])  # each has heard of all
            async with asyncio.timeout(NEVER_S), Redis.from_url(engine.url.replace("valkey", "redis")) as client:
                await until(lambda: all(limits.parts == count for limits in found))
                await _recovered(client, prefix)
                await script(*found)

    asyncio.run(run())


async def _recovered(client: Redis, prefix: str) -> None:
    """A new server grants nothing at first, until all have said what they know."""
    end = int(await client.get(f"{{{prefix}}}:epoch") or 0)
    while (await client.time())[0] * 1000 <= end:
        await asyncio.sleep(0.01)


def open_queue(limits: ValkeyLimits, **numbers: int) -> LimitedQueue:
    said = {"at_once": None, "rpm": None, "tpm": None} | numbers
    return limits.open_queue("far", "far", **{"queue": 1000, **said})  # type: ignore[arg-type]


async def freeze(engine: Engine, *replicas: ValkeyLimits) -> None:
    """From now on Valkey does not answer, and all of them know."""
    for limits in replicas:
        limits.server._answer_s = ANSWER_S
    await asyncio.gather(*[limits._stay() for limits in replicas])  # what was asked before has its answer
    engine.send(signal.SIGSTOP)
    for limits in replicas:
        await limits._stay()
    assert all(limits.away for limits in replicas)


async def thaw(engine: Engine, *replicas: ValkeyLimits) -> None:
    engine.send(signal.SIGCONT)
    for limits in replicas:
        limits.server._answer_s = NEVER_S
    await until(lambda: not any(limits.away for limits in replicas))


def cut_off(limits: ValkeyLimits) -> None:
    """As if Valkey had gone away and stayed so: the next hello would find it again."""

    async def stay_away() -> None:
        raise AwayError(limits.away)

    limits.server.reach = stay_away  # type: ignore[method-assign]
    limits.server.away = "a test says so"
    limits._be_without()


async def enters(queue: LimitedQueue, tokens: int = 1, left_s: float = 0.2) -> Ticket | None:
    """The ticket, if the request may go in time."""
    ticket = Ticket("a", tokens)
    try:
        await queue.enter(ticket, left_s)
    except UpstreamError:
        return None
    return ticket


def test_a_limit_smaller_than_the_number_of_replicas_holds(valkey: Engine) -> None:
    async def script(*replicas: ValkeyLimits) -> None:
        queues = [open_queue(limits, rpm=3) for limits in replicas]
        found = await asyncio.gather(*[enters(queue) for queue in queues for _ in range(20)])
        assert sum(ticket is not None for ticket in found) == 3
        assert {queue.admission.rpm.used(0.0) for queue in queues if queue.admission.rpm} == {3}

    play(valkey, 4, script)


def test_a_request_costs_one_round_trip_and_what_follows_travels_with_others(valkey: Engine) -> None:
    async def script(limits: ValkeyLimits) -> None:
        queue, server = open_queue(limits, rpm=1000, tpm=100_000, at_once=50), limits.server
        limits._tasks[0].cancel()  # no hello between
        before = server.round_trips
        tickets = await asyncio.gather(*[enters(queue) for _ in range(40)])
        assert server.round_trips - before <= 3, "requests of one turn travel together"
        for ticket in tickets:
            assert ticket is not None
            queue.leave(ticket, sent=True, tokens=5)
        assert (await enters(queue)) is not None
        assert server.round_trips - before <= 6
        await until(lambda: queue.admission.running_anywhere == 1)

    play(valkey, 1, script)


async def load(queue: LimitedQueue, enough: Callable[[], bool]) -> int:
    """Requests, eight at once, until it is enough; the number of those that have entered."""
    entered = 0
    while not enough():
        for ticket in await asyncio.gather(*[enters(queue, 100) for _ in range(8)]):
            if ticket is not None:
                entered += 1
                queue.leave(ticket, sent=True, tokens=10)
        await asyncio.sleep(0)
    return entered


async def read_used(client: Redis, limits: ValkeyLimits) -> list[int]:
    keys = limits.limit("far").keys
    return [sum(int(used) for used in await client.hvals(key)) for key in keys[1:3]]


def test_under_load_most_requests_ask_nothing_and_what_was_not_used_is_given_back(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        numbers = {"rpm": 1_000_000, "tpm": 100_000_000, "at_once": 1000}
        queues = [open_queue(limits, **numbers) for limits in (one, two)]
        seen, entered, asked = one.limit("far").seen["rpm"], 0, 8
        while asked > 2:  # a hello, and more in advance
            entered += await load(queues[0], lambda: seen.in_hand > 8)
            before = one.server.round_trips
            for _ in range(8):
                ticket = await enters(queues[0], 100)
                assert ticket is not None
                queues[0].leave(ticket, sent=True, tokens=10)
            entered += 8
            asked = one.server.round_trips - before
        entered += await load(queues[1], lambda: two.limit("far").seen["rpm"].in_hand > 0)
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:

            async def is_settled() -> bool:
                found = await read_used(client, one)
                return found == [entered, 10 * entered] and not await client.zcard(one.limit("far").keys[0])

            await until_said(is_settled, bool)

    play(valkey, 2, script)


def test_a_process_that_stops_gives_back_what_it_has_in_hand(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        queue = open_queue(one, rpm=1_000_000, tpm=100_000_000, at_once=1000)
        open_queue(two, rpm=1_000_000, tpm=100_000_000, at_once=1000)
        limit = one.limit("far")
        entered = await load(queue, lambda: limit.seen["rpm"].in_hand > 0)
        limit.give_up()
        assert limit.seen["rpm"].in_hand == limit.seen["tpm"].in_hand == len(limit.places.ids) == 0
        await one.server.call(limit.keys, ("leave", one.replica))
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            assert await read_used(client, two) == [entered, 10 * entered]

    play(valkey, 2, script)


def test_a_small_limit_is_asked_for_each_request(valkey: Engine) -> None:
    """Nothing of it is in the hand of a process while another one needs it."""

    async def script(*replicas: ValkeyLimits) -> None:
        queues = [open_queue(limits, rpm=12, at_once=6) for limits in replicas]
        for n in range(12):
            ticket = await enters(queues[n % 4])
            assert ticket is not None
            queues[n % 4].leave(ticket, sent=True)
        assert await enters(queues[0], left_s=0.01) is None
        assert all(limits.limit("far").ahead.bucket == 0 for limits in replicas)

    play(valkey, 4, script)


def test_a_place_that_becomes_free_wakes_the_process_that_waited_longest(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits, three: ValkeyLimits) -> None:
        queues = [open_queue(limits, at_once=1) for limits in (one, two, three)]
        first = await enters(queues[0])
        assert first is not None
        order: list[int] = []

        async def wait_in(number: int) -> None:
            ticket = await enters(queues[number], left_s=NEVER_S)
            assert ticket is not None
            order.append(number)
            queues[number].leave(ticket, sent=True)

        waiting = [asyncio.create_task(wait_in(2))]
        await until(lambda: len(queues[2].admission.queue) == 1)
        await asyncio.sleep(0.05)  # its place in the line is a moment of Valkey's clock
        waiting.append(asyncio.create_task(wait_in(1)))
        await until(lambda: len(queues[1].admission.queue) == 1)
        before, began = two.server.round_trips + three.server.round_trips, time.monotonic()
        await asyncio.sleep(0.1)
        most = 4 + 8 * (time.monotonic() - began)  # each says hello twice a second, and looks once
        assert two.server.round_trips + three.server.round_trips - before <= most, "waiting processes do not poll"
        queues[0].leave(first, sent=True)
        await asyncio.gather(*waiting)
        assert order == [2, 1]

    play(valkey, 3, script)


def test_tokens_that_were_not_used_let_others_in(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        here, there = open_queue(one, tpm=100), open_queue(two, tpm=100)
        big = await enters(here, 90)
        assert big is not None
        assert await enters(there, 20) is None
        waiting = asyncio.create_task(enters(there, 20, left_s=NEVER_S))
        await until(lambda: len(there.admission.queue) == 1)
        here.leave(big, sent=True, tokens=10)
        assert await waiting is not None
        assert await enters(here, 71) is None
        assert await enters(here, 70) is not None

    play(valkey, 2, script)


def test_a_second_counts_until_its_last_moment_is_a_minute_old(valkey: Engine) -> None:
    async def script(limits: ValkeyLimits) -> None:
        queue = open_queue(limits, rpm=2)
        key = limits.limit("far").keys[1]
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            seconds, _ = await client.time()
            await client.hset(key, mapping={str(seconds - 62): "1", str(seconds - 40): "1"})
            assert await enters(queue) is not None, "what is 61 seconds old is forgotten"
            assert await enters(queue) is None
            ticket = Ticket("a", 1)
            wait = await queue._try(ticket)  # type: ignore[attr-defined]
            assert 1.0 < wait <= 21.1
            assert not await client.hexists(key, str(seconds - 62))

    play(valkey, 1, script)


def test_a_client_that_leaves_while_valkey_is_asked_holds_no_place(valkey: Engine) -> None:
    async def script(limits: ValkeyLimits) -> None:
        queue = open_queue(limits, rpm=100, at_once=1)
        for _ in range(50):
            asking = asyncio.create_task(queue.enter(Ticket("a", 1), 1.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        ticket = await enters(queue, left_s=NEVER_S)
        assert ticket is not None
        assert queue.admission.running == 1

    play(valkey, 1, script)


def test_without_valkey_requests_go_on_under_a_share_and_are_counted_when_it_is_back(valkey: Engine) -> None:
    async def script(*replicas: ValkeyLimits) -> None:
        queues = [open_queue(limits, rpm=7) for limits in replicas]
        assert await enters(queues[0]) is not None
        await asyncio.gather(*[limits._stay() for limits in replicas])
        try:
            await freeze(valkey, *replicas)
            found = await asyncio.gather(*[enters(queue, left_s=0.01) for queue in queues for _ in range(10)])
            # one was sent, one more is kept for what may have been sent since: five are left for three
            assert sum(ticket is not None for ticket in found) == 5
        finally:
            await thaw(valkey, *replicas)
        await asyncio.gather(*[limits._stay() for limits in replicas])
        assert [queue.admission.rpm.used(0.0) for queue in queues if queue.admission.rpm] == [6, 6, 6]
        assert await enters(queues[0]) is not None
        assert await enters(queues[1]) is None

    play(valkey, 3, script)


def test_a_full_window_stays_full_when_valkey_goes_and_opens_as_it_empties(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        queue = open_queue(one, rpm=4)
        open_queue(two, rpm=4)
        for _ in range(4):
            assert await enters(queue) is not None
        seconds, clock = sorted(one.limit("far").seen["rpm"].buckets), one.clock
        assert isinstance(clock, Clock)
        ours = clock() - one.server_s()  # our time minus Valkey's
        cut_off(one)
        clock.held = ours + seconds[0] + 61 + LAG_S - 0.01
        assert await enters(queue, left_s=0.01) is None, "until it is sure that the others know"
        clock.held = ours + seconds[-1] + 61 + LAG_S + 0.01
        assert await enters(queue) is not None
        assert await enters(queue) is not None
        assert await enters(queue, left_s=0.01) is None, "half of four is its share"

    play(valkey, 2, script)


def test_the_others_leave_its_share_to_a_replica_that_is_cut_off(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        queue = open_queue(one, rpm=6, at_once=6)
        two._tasks[0].cancel()
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            seconds, _ = await client.time()
            await client.zadd(f"{two.tag}:replicas", {"r1": (seconds - 5) * 1000})
            found = [await enters(queue, left_s=0.01) for _ in range(6)]
            assert sum(ticket is not None for ticket in found) == 3
            await client.zrem(f"{two.tag}:replicas", "r1")
            assert await enters(queue) is not None, "one that said good-bye needs none"

    play(valkey, 2, script)


def test_a_server_that_lost_its_memory_gets_the_counts_again(valkey: Engine) -> None:
    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        here, there = open_queue(one, rpm=4, at_once=3), open_queue(two, rpm=4, at_once=3)
        for queue in (here, here, there):
            assert await enters(queue) is not None
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            await client.flushall()
            await client.script_flush()
        found = await asyncio.gather(*[enters(queue, left_s=1.5) for queue in (here, there) for _ in range(3)])
        assert sum(ticket is not None for ticket in found) == 0, "three still run"
        for queue in (here, there):
            for ticket in list(queue._grants):  # type: ignore[attr-defined]
                queue.leave(ticket, sent=True)
        found = await asyncio.gather(*[enters(queue, left_s=1.5) for queue in (here, there) for _ in range(3)])
        assert sum(ticket is not None for ticket in found) == 1

    play(valkey, 2, script, recover_s=1.0)


def test_what_one_sent_alone_is_not_taken_for_what_another_has_seen(valkey: Engine) -> None:
    """In the second in which Valkey went away, requests under a share were lost: another replica had seen as many. With
    gateways that were killed and Valkey restarted without its memory, 91 requests passed a limit of 90."""

    async def script(one: ValkeyLimits, two: ValkeyLimits) -> None:
        here, there = open_queue(one, rpm=40), open_queue(two, rpm=40)
        for limits in (one, two):
            limits._tasks[0].cancel()
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            await until(lambda: one.server_s() % 1 < 0.3)  # all of it in one second
            assert None not in [await enters(queue) for queue in (here, there)]
            await client.flushall()
        reach = one.server.reach
        cut_off(one)
        assert await enters(here) is not None
        one.server.reach = reach  # type: ignore[method-assign]
        for limits in (one, two, one):
            await limits._stay()
        assert here.admission.rpm is not None
        assert here.admission.rpm.used(0.0) == 3

    play(valkey, 2, script, recover_s=1.0)


def test_a_server_that_refuses_commands_is_as_one_that_is_away(valkey: Engine) -> None:
    """F44: it lost our scripts, or takes no writes, because its memory is full or it became a replica of another."""

    async def script(limits: ValkeyLimits) -> None:
        queue = open_queue(limits, rpm=100)
        async with Redis.from_url(valkey.url.replace("valkey", "redis")) as client:
            await client.script_flush()
            assert await enters(queue) is not None
            assert not limits.away, "scripts are sent again"
            for wrong, right in (
                (client.config_set("maxmemory", "1"), client.config_set("maxmemory", "0")),
                (client.replicaof("127.0.0.1", "1"), client.replicaof("NO", "ONE")),
            ):
                await wrong
                try:
                    await until(lambda: bool(limits.away))
                    assert await enters(queue) is not None, "requests go on"
                finally:
                    await right
                await until(lambda: not limits.away)

    play(valkey, 1, script)


def test_a_gateway_may_prefer_to_refuse(valkey: Engine) -> None:
    async def script(limits: ValkeyLimits) -> None:
        queue = open_queue(limits, rpm=100)
        try:
            await freeze(valkey, limits)
            with pytest.raises(UpstreamError) as refused:
                await queue.enter(Ticket("a", 1), NEVER_S)
            assert (refused.value.failure.status, refused.value.failure.code) == (503, "state_away")
        finally:
            await thaw(valkey, limits)
        assert await enters(queue) is not None

    play(valkey, 1, script, on_loss="refuse")


def test_a_replica_that_never_met_valkey_takes_a_tenth() -> None:
    async def run() -> None:
        limits = ValkeyLimits(ValkeyServer("valkey://127.0.0.1:1/0"), "r0", time.monotonic)
        await limits.start()
        queue = open_queue(limits, rpm=30)
        found = [await enters(queue, left_s=0.01) for _ in range(5)]
        assert sum(ticket is not None for ticket in found) == 3
        await limits.close()

    asyncio.run(run())
