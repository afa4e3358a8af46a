"""Three gateways behind nginx: killed, cut off from Valkey and PostgreSQL, restarted, while clients ask.

A short form of bench/replicas.py, in which each step lasts until the clients have had some more answers.
"""

import asyncio
import shutil

import pytest

from tests.engines.replicas import TIA, Chaos, Load, Street, judge, open_street, show
from tests.real.llama import UnavailableError
from tests.waiting import until

ANSWERS = 12  # to more requests, for each step of a pause


async def insist(load: Load) -> int:
    """Asks as a client does: on a busy machine PostgreSQL may be late, and the answer says to come again."""
    status = 503
    while status == 503:
        status = (await load.ask("tia")).status
    return status


async def play(street: Street) -> None:
    async with Load(street, clients=6) as load:
        passed = await asyncio.gather(*(insist(load) for _ in range(2 * TIA)))
        assert passed.count(200) == TIA, "of a hundred at once, as many as the budget is good for"

        async def pause(length: float) -> None:
            wanted = load.done + ANSWERS * length
            await until(lambda: load.done >= wanted, "more answers")

        load.begin()
        chaos = Chaos(street, load, pause)
        await pause(1)
        await chaos.kill(street.replicas[0])
        await chaos.restart_valkey()
        await chaos.stop_postgres(2)
        await chaos.kill(street.replicas[1])
        await chaos.cut("valkey", 2)
        await chaos.cut("postgres", 2, street.replicas[2])
        await chaos.restart(street.replicas[2])
        await load.stop()
        verdict = await judge(street, load)
        assert verdict.faults == [], show(verdict)
        assert all(chaos.said_away.values())
        assert verdict.by_kind["stream"]["200"]
        assert verdict.by_kind["tools"]["200"]


def test_nothing_is_lost_doubled_or_exceeded() -> None:
    pytest.importorskip("redis", reason="the extra `valkey` is not installed")
    pytest.importorskip("asyncpg", reason="the extra `postgres` is not installed")
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed (.ci/run does it)")
    try:
        with open_street() as street:
            asyncio.run(play(street))
    except UnavailableError as error:
        pytest.skip(str(error))
