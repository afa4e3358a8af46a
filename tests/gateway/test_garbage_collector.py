"""A request leaves nothing for the garbage collector, however it ends: memory stays flat without it (F54, G8)."""

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.house import House, Script, faultline, open_house, reset, say, stream, upstream
from tests.gateway.test_faults import DONE, GOOD, GOOD_STREAM, chunk
from tests.gateway.web import head_of, post
from tests.waiting import NEVER_S, wait_until

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
ROUNDS = 3


async def hang_up(seen: Any, writer: Any) -> None:
    reset(writer)


def ask(path: str, **more: Any) -> Callable[[House], object]:
    return lambda house: post(house.url, path, {**BODY, **more})


def leave(house: House) -> None:
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
    with socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S) as connection:
        connection.sendall(head_of(CHAT, body) + body)
        connection.recv(100)


# how it ends -> what the upstream does, and what the client does
ENDS: dict[str, tuple[Script, Callable[[House], object]]] = {
    "whole": (GOOD, ask(CHAT)),
    "whole, translated": (GOOD, ask(MESSAGES)),
    "streamed": (GOOD_STREAM, ask(CHAT, stream=True)),
    "streamed, translated": (GOOD_STREAM, ask(MESSAGES, stream=True)),
    "left": (stream(chunk("fi"), 0.1, chunk("ne"), 0.1, chunk(finish="stop"), DONE), leave),
    "hung up": (hang_up, ask(CHAT)),
    "cut": (stream(chunk("fi"), end="reset"), ask(CHAT, stream=True)),
    "refused": (say(400, b'{"error": {"message": "no"}}'), ask(CHAT)),
    "limited": (say(429, b'{"error": {"message": "slow"}}', retry_after="99"), ask(CHAT)),
    "not HTTP": (say(200, b"x", "text/html"), ask(CHAT)),
    "wrong": (GOOD, lambda house: post(house.url, CHAT, b"{")),
    "unknown": (GOOD, lambda house: post(house.url, "/v1/nothing", b"{}")),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_request_leaves_nothing_for_the_collector(name: str) -> None:
    script, act = ENDS[name]
    with faultline(script) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        act(house)  # what is loaded and kept once
        settle(house)
        gc.collect()
        gc.disable()
        try:
            for _ in range(ROUNDS):
                act(house)
            settle(house)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = Counter(type(item).__module__ for item in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        ours = {module: count for module, count in found.items() if module.startswith("dragoman")}
        assert ours == {}, found


async def count_tasks() -> int:
    for _ in range(3):  # what was closed goes in the loop's next turns
        await asyncio.sleep(0)
    return len(asyncio.all_tasks())


def settle(house: House) -> None:
    """Until every task and connection is over."""
    wait_until(lambda: house.gateway.metrics.running == 0 and not house.server.open.connections)
    wait_until(lambda: house.loop.run(count_tasks()) <= 2, "the end of every task but the server's")
