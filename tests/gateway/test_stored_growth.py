"""A small request that names a large stored conversation is a large request: for limits, budgets, memory and the loop.

Found by attack (issue 12): a key with 3,000 tokens a minute sent a stored conversation of any length, a budget reserved
a few tokens for it, and ten thousand references to one item became gigabytes.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.accounts.grants import Grant
from dragoman.accounts.prices import ModelPrice, read_price
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.config.teams import BudgetSettings, TeamSettings
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.upstream.attempts import MANY_BRACES
from dragoman.upstream.render import render as write
from tests.gateway.house import Faultline, House, faultline, open_house, say, upstream
from tests.gateway.web import Got, post

LONG = "word " * 2000  # 2,500 tokens
PRICES: dict[str, ModelPrice | None] = {"*": read_price({"input": 1000, "output": 1000})}  # 0.001 USD for each token


def answer(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
    return json.dumps(whole).encode()


@contextmanager
def office(folder: Path, text: str = "hi", **settings: Any) -> Iterator[tuple[House, Faultline]]:
    with faultline(say(200, answer(text))) as line:
        up = upstream("up", "openai_chat", line.url, models=("m",))
        with open_house(up, store_path=folder / "responses.db", **settings) as house:
            yield house, line


def ask(house: House, value: Any, key: str = "", **more: Any) -> Got:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return post(house.url, "/v1/responses", {"model": "m", "input": value, "max_output_tokens": 5, **more}, headers)


@pytest.mark.parametrize("grant", [Grant(tpm=3000), Grant(budget="4 USD/day")], ids=["tokens a minute", "a budget"])
def test_what_is_continued_counts_for_the_key(tmp_path: Path, grant: Grant) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    key = store.new("ada", grant=grant)
    teams = TeamSettings(prices=PRICES, budgets=BudgetSettings(policy="refuse"))
    with office(tmp_path, keys=store, teams=teams) as (house, line):
        first = ask(house, LONG, key)
        assert first.status == 200, first.text
        small = ask(house, "And?", key, previous_response_id=first.json["id"])
        assert small.status == 200, small.text
        for _ in range(3):
            large = ask(house, LONG, key, previous_response_id=first.json["id"])
            assert large.status == 429, large.text
        assert len(line.seen) == 2
        assert ask(house, "And?", key, previous_response_id=first.json["id"]).status == 200, "nothing was held"


def test_one_item_that_is_named_often_is_bounded(tmp_path: Path) -> None:
    with office(tmp_path, "y" * 30_000, max_body_bytes=200_000) as (house, line):
        item = {"type": "item_reference", "id": ask(house, "x").json["output"][0]["id"]}
        user = {"role": "user", "content": "And?"}
        assert ask(house, [item, item, user]).status == 200
        refused = ask(house, [*[item] * 100, user])
        assert (refused.status, refused.json["error"]["code"]) == (413, "request_too_large")
        assert len(line.seen) == 2


def test_messages_are_counted_with_those_that_are_continued(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "x"}] * 8
    with office(tmp_path, limits=RequestLimits(entries=10)) as (house, _):
        first = ask(house, turns).json["id"]
        refused = ask(house, turns, previous_response_id=first)
        assert refused.status == 400
        assert "more than 10 messages" in refused.text


def test_a_long_conversation_that_is_continued_is_written_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(MANY_BRACES + 1)]
    threads: list[threading.Thread] = []

    def render(*args: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return write(*args, **named)

    with office(tmp_path) as (house, _):
        first = ask(house, turns).json["id"]
        monkeypatch.setattr("dragoman.gateway.conversation.render", render)
        assert ask(house, "And?", previous_response_id=first).status == 200
        assert threads
        assert house.loop._thread not in threads
