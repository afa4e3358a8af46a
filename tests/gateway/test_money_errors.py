"""What a client hears in its own dialect when its key may not use a model, is over a limit or has spent its budget."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as google_errors

from dragoman.accounts.budgets import Line, Settlement, SqliteBudgets
from dragoman.accounts.grants import Grant
from dragoman.accounts.money import find_period
from dragoman.accounts.prices import read_price
from dragoman.gateway.config.teams import TeamSettings
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import House, faultline, open_house, upstream
from tests.gateway.test_error_table import DOORS
from tests.gateway.test_teams import SAID
from tests.gateway.web import Got, post

SPENT = Grant(budget="1 USD/month")
# door -> status, where the dialect says the kind of an error, and the word there
QUOTA: dict[str, tuple[int, tuple[str, ...], object]] = {
    "chat": (429, ("error", "code"), "insufficient_quota"),
    "responses": (429, ("error", "code"), "insufficient_quota"),
    "anthropic": (402, ("error", "type"), "billing_error"),
    "gemini": (429, ("error", "status"), "RESOURCE_EXHAUSTED"),
    "ollama": (402, (), None),
    "jsonrpc": (200, ("error", "code"), -32030),
}
FORBIDDEN: dict[str, tuple[int, tuple[str, ...], object]] = {
    "chat": (403, ("error", "code"), "permission_denied"),
    "responses": (403, ("error", "code"), "model_not_allowed"),
    "anthropic": (403, ("error", "type"), "permission_error"),
    "gemini": (403, ("error", "status"), "PERMISSION_DENIED"),
    "ollama": (403, (), None),
    "jsonrpc": (403, ("error", "code"), -32003),
}


@contextmanager
def open_office(folder: Path, grant: Grant) -> Iterator[tuple[House, str]]:
    store = SqliteKeyStore(folder / "keys.db")
    key = store.new("ada", grant=grant)
    with faultline(*[SAID] * 9) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m", "other"))
        rules = TeamSettings(prices={"*": read_price({"input": 1000, "output": 1000})})
        with open_house(up, keys=store, store_path=folder / "responses.db", teams=rules) as house:
            yield house, key


def spend(folder: Path, key: str) -> None:
    budgets = SqliteBudgets(folder / "budgets.db")
    line = Line(f"key:{key.split('-')[1]}", find_period("month", time.time())[0], 1_000_000)
    budgets.settle([Settlement("before", (line,), 1_000_000)], time.time())
    budgets.close()


def ask(house: House, door: str, key: str) -> Got:
    path, body = DOORS[door]
    return post(house.url, path, body, {"authorization": f"Bearer {key}"})


def word_at(got: Got, path: tuple[str, ...]) -> object:
    found: Any = got.json
    for name in path:
        found = found[name]
    return found if path else None


@pytest.mark.parametrize("door", DOORS)
def test_a_spent_budget_is_the_dialects_own_quota_error_and_says_when_it_resets(tmp_path: Path, door: str) -> None:
    with open_office(tmp_path, SPENT) as (house, key):
        spend(tmp_path, key)
        got = ask(house, door, key)
    status, path, word = QUOTA[door]
    assert (got.status, word_at(got, path)) == (status, word), got.text
    assert "the budget of the key ada is spent (1 USD/month); it begins anew at 20" in got.text
    if door != "jsonrpc":
        assert int(got.headers["retry-after"]) >= 1
        assert got.headers["x-should-retry"] == "false", "an SDK shall not ask again in a second"


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_is_not_allowed_is_the_dialects_own_error(tmp_path: Path, door: str) -> None:
    with open_office(tmp_path, Grant(models=("other",))) as (house, key):
        got = ask(house, door, key)
    status, path, word = FORBIDDEN[door]
    assert (got.status, word_at(got, path)) == (status, word), got.text
    assert "this key may not use the model 'm'" in got.text


def test_the_official_clients_raise_their_own_exceptions(tmp_path: Path) -> None:
    with open_office(tmp_path, SPENT) as (house, key):
        spend(tmp_path, key)
        asked: Any = [{"role": "user", "content": "hi"}]
        with (
            openai.OpenAI(base_url=f"{house.url}/v1", api_key=key) as one,
            pytest.raises(openai.RateLimitError, match="is spent") as said,
        ):
            one.chat.completions.create(model="m", messages=asked)
        assert said.value.code == "insufficient_quota"
        with (
            anthropic.Anthropic(base_url=house.url, api_key=key) as two,
            pytest.raises(anthropic.APIStatusError, match="is spent") as told,
        ):
            two.messages.create(model="m", messages=asked, max_tokens=5)
        assert told.value.status_code == 402
        with (
            genai.Client(api_key=key, http_options={"base_url": house.url}) as three,
            pytest.raises(google_errors.ClientError, match="is spent") as heard,
        ):
            three.models.generate_content(model="m", contents="hi")
        assert heard.value.code == 429
