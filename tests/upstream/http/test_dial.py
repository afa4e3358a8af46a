"""Names into addresses, when the system's resolver is slow, wrong or gone (F29)."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.upstream.http import dial
from dragoman.upstream.http.dial import Resolver
from tests.waiting import NEVER_S, until


def row(address: str) -> tuple[Any, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))


class Names:
    """A resolver that says what it is told; it counts how often it is asked."""

    def __init__(self, *answers: str | Exception | Callable[[], str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def look_up(self, host: str, port: int) -> list[Any]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [row(answer if isinstance(answer, str) else answer())]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


GONE = socket.gaierror(socket.EAI_NONAME, "no such name")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize(
    ("ages", "asked", "found"),
    [
        ([0, 59], 1, ["10.0.0.1", "10.0.0.1"]),  # fresh
        ([0, 61], 2, ["10.0.0.1", "10.0.0.1"]),  # not fresh, and the resolver is gone: the last good answer
        ([0, 61, 299], 3, ["10.0.0.1"] * 3),
        ([0, 301], 2, ["10.0.0.1", None]),  # too old to be true
    ],
)
def test_the_last_good_answer_serves_for_five_minutes(
    ages: list[float], asked: int, found: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, clock = Names("10.0.0.1", GONE), Clock()
    monkeypatch.setattr(dial, "look_up", names.look_up)

    async def ask() -> list[str | None]:
        known = Resolver(clock=clock)
        seen: list[str | None] = []
        for age in ages:
            clock.now = age
            try:
                seen.append((await known.resolve("a.test", 80))[0][4][0])
            except socket.gaierror:
                seen.append(None)
        return seen

    assert run(ask()) == found
    assert len(names.asked) == asked


def test_a_slow_name_ends_in_time_is_asked_once_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def look_up(host: str, port: int) -> list[Any]:
        asked.append(host)
        if host.startswith("slow"):
            release.wait(NEVER_S)
        return [row("10.0.0.1")]

    asked: list[str] = []
    monkeypatch.setattr(dial, "look_up", look_up)

    async def ask() -> None:
        known = Resolver(lookup_s=0.5)
        slow = [asyncio.ensure_future(known.resolve(f"slow{n % 40}.test", 80)) for n in range(80)]
        await asyncio.sleep(0)
        assert (await known.resolve("quick.test", 80))[0][4][0] == "10.0.0.1", "not behind forty slow ones"
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert all(isinstance(error, socket.gaierror) for error in ended)
        release.set()

    run(ask())
    assert len(asked) == 41


def test_an_answer_that_came_too_late_serves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(dial, "look_up", lambda host, port: release.wait(NEVER_S) and [row("10.0.0.1")])

    async def ask() -> Any:
        known = Resolver(lookup_s=0.02)
        with pytest.raises(socket.gaierror):
            await known.resolve("late.test", 80)
        release.set()
        await until(lambda: not known._asking)
        return await known.resolve("late.test", 80)

    assert run(ask()) == [row("10.0.0.1")]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_is_not_looked_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(GONE)
    monkeypatch.setattr(dial, "look_up", names.look_up)
    assert run(Resolver().resolve(address, 80))[0][4][0] == address
    assert names.asked == []


def test_a_loop_that_is_gone_hears_of_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(dial, "look_up", lambda host, port: release.wait(NEVER_S) and [row("10.0.0.1")])

    async def ask() -> None:
        with pytest.raises(socket.gaierror):
            await Resolver(lookup_s=0.01).resolve("stuck.test", 80)

    run(ask())
    release.set()
    for thread in threading.enumerate():
        if thread.name == "resolver":
            thread.join(NEVER_S)
    assert not any(thread.name == "resolver" for thread in threading.enumerate())
