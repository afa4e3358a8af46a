"""Keys with limits, prices and budgets, as a client of the gateway meets them."""

import asyncio
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import dragoman
from dragoman import cli
from dragoman.accounts import bookkeeper
from dragoman.accounts.budgets import Line, SqliteBudgets, make_lines
from dragoman.accounts.grants import Grant, GrantChange, make_holder
from dragoman.accounts.ledger import LedgerRow, SqliteLedger
from dragoman.accounts.money import find_period
from dragoman.accounts.prices import Cost, read_price
from dragoman.agent.steps import Limits
from dragoman.errors import ConfigError, UpstreamError
from dragoman.gateway.access import webhook
from dragoman.gateway.access.key_limits import KeyLimits
from dragoman.gateway.config.load import read_settings
from dragoman.gateway.config.mcp import McpSettings
from dragoman.gateway.config.teams import BudgetSettings, LedgerSettings, TeamSettings
from dragoman.gateway.process.shared_limits import SharedLimits, SharedMemory
from dragoman.gateway.stores.keys import KeyChange, KeyRow
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.mcp.toolbox import McpToolbox
from dragoman.model.messages import ToolCall
from dragoman.upstream.admission import AdmissionWaiter, ProcessLimits
from tests.gateway.house import Script, faultline, open_house, say, stream, upstream
from tests.gateway.test_faults import DONE, chunk
from tests.gateway.web import Got, get, post
from tests.mcp.servers import bad
from tests.waiting import NEVER_S, wait_until

PRICES = {"*": read_price({"input": 1000, "output": 1000})}
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
SAID = say(200, json.dumps(ANSWER).encode())
COST = "0.015 USD"  # fifteen tokens


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


@pytest.fixture(autouse=True)
def write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeper, "WRITE_S", 0.01)
    monkeypatch.setattr(bookkeeper, "SETTLE_S", 0.001)


def chat(url: str, key: str, model: str = "up-model", **more: Any) -> Got:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, **more}
    return post(url, "/v1/chat/completions", body, {"authorization": f"Bearer {key}", "user-agent": "test/1.0"})


class Office:
    """A gateway with a scripted upstream, keys and a ledger."""

    def __init__(self, url: str, folder: Path, store: SqliteKeyStore) -> None:
        self.url, self.folder, self.store = url, folder, store

    def rows(self, count: int) -> tuple[LedgerRow, ...]:
        ledger = SqliteLedger(self.folder / "ledger.db")
        wait_until(lambda: len(ledger.page(0, 1e11, {}, "", 100).rows) >= count, "rows in the ledger")
        return ledger.page(0, 1e11, {}, "", 100).rows


Open = Callable[..., Any]


@pytest.fixture
def office(tmp_path: Path, store: SqliteKeyStore) -> Open:
    from contextlib import contextmanager

    @contextmanager
    def make(*scripts: Script, **rules: Any) -> Any:
        teams = TeamSettings(prices=rules.pop("prices", PRICES), **rules)
        with faultline(*(scripts or (SAID,) * 20)) as line:
            up = upstream("up", "openai_chat", f"{line.url}/v1", models=("up-model", "gpt-x", "other"))
            with open_house(up, keys=store, store_path=tmp_path / "responses.db", teams=teams) as house:
                yield Office(house.url, tmp_path, store)

    return make


# ---------------------------------------------------------------- models


def test_a_key_sees_and_uses_only_its_models(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(models=("gpt-*",)))
    with office() as here:
        listed = get(here.url, "/v1/models", {"authorization": f"Bearer {key}"}).json["data"]
        assert [row["id"] for row in listed] == ["gpt-x"]
        assert chat(here.url, key, "gpt-x").status == 200
        refused = chat(here.url, key, "other")
        assert refused.status == 403
        assert "this key may not use the model 'other'" in refused.text
        assert get(here.url, "/v1/models/other", {"authorization": f"Bearer {key}"}).status == 404
        assert chat(here.url, key, "up/other").status == 403, "an upstream's name in front opens nothing"
        claude = {"model": "other", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        said = post(here.url, "/v1/messages", claude, {"x-api-key": key})
        assert (said.status, said.json["error"]["type"]) == (403, "permission_error")


@pytest.mark.parametrize("named", [{"models": ["other"]}, {"fallbacks": [{"model": "other"}]}, {"preset": "other"}])
def test_a_key_names_no_other_models_for_the_case_that_one_fails(
    office: Open, store: SqliteKeyStore, named: dict[str, Any]
) -> None:
    """OpenRouter takes the next model of `models` if the first one fails: one that was neither checked nor priced."""
    narrow, poor = store.new("ada", grant=Grant(models=("gpt-*",))), store.new("bob", grant=Grant(budget="9 USD/day"))
    with office() as here:
        assert [chat(here.url, key, "gpt-x", **named).status for key in (narrow, poor, store.new("eve"))] == [
            403,
            403,
            200,
        ]
        assert chat(here.url, narrow, "gpt-x", models=["gpt-x"]).status == 200


def test_a_team_narrows_what_its_keys_may_use(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", team="web", grant=Grant(models=("gpt-*", "other")))
    store.set_team("web", GrantChange(models=("other",)))
    with office() as here:
        assert chat(here.url, key, "gpt-x").status == 403
        assert chat(here.url, key, "other").status == 200


@pytest.mark.parametrize("count", [-(10**6), 10**7 + 1, 2**62, 2**63, 10**40, -1e308, 1e30])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_no_count_of_a_provider_stops_the_books_or_gives_money_back(
    office: Open, store: SqliteKeyStore, name: str, count: float
) -> None:
    key = store.new("ada", grant=Grant(budget="1000 USD/day"))
    said = {**ANSWER, "usage": {"prompt_tokens": 10, "completion_tokens": 5, name: count}}
    with office(say(200, json.dumps(said).encode()), SAID) as here:
        assert [chat(here.url, key).status for _ in range(2)] == [200, 200]
        after, first = here.rows(2)
        assert after.cost == 15_000
        assert first.estimated
        assert 0 < (first.cost or 0) < 1_000_000


def test_a_request_that_is_nested_deeply_is_paid_for(office: Open, store: SqliteKeyStore) -> None:
    """Of a key whose bodies are kept: to write them down failed, and so the answer was free."""
    key = store.new("ada", grant=Grant(budget="1000 USD/day", bodies=True))
    deep: Any = "x"
    for _ in range(800):
        deep = [deep]
    with office() as here:
        assert chat(here.url, key, custom=deep).status == 200
        (row,) = here.rows(1)
        assert row.cost == 15_000
        assert "nested too deeply" in row.bodies or "[[[[" in row.bodies  # Python 3.12 can write it down


SHORT: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": ""}]},
    "/v1/responses/compact": {"input": ""},
    "/v1/embeddings": {"input": "x"},
    "/v1/audio/speech": {"input": "x", "voice": "a"},
}


@pytest.mark.parametrize("path", SHORT)
def test_a_spent_key_pays_for_nothing_more_at_any_path(tmp_path: Path, store: SqliteKeyStore, path: str) -> None:
    """The shortest request was taken for one that costs nothing, and compaction for one without any text."""
    key = store.new("ada", grant=Grant(budget="0.01 USD/day"))
    used = {"input_tokens": 10**6, "output_tokens": 10**6, "total_tokens": 2 * 10**6}
    reply = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [], "usage": used}
    teams = TeamSettings(prices=dict(PRICES))
    with faultline(say(200, json.dumps(reply).encode())) as line:
        up = upstream("up", "openai_responses", f"{line.url}/v1", models=("gpt-x",))
        with open_house(up, keys=store, store_path=tmp_path / "responses.db", teams=teams) as house:
            mine = {"authorization": f"Bearer {key}"}
            assert post(house.url, "/v1/responses/compact", {"model": "gpt-x", "input": "x"}, mine).status == 200
            Office(house.url, tmp_path, store).rows(1)
            refused = post(house.url, path, {"model": "gpt-x", **SHORT[path]}, mine)
            assert "the budget of the key ada is spent" in refused.text
            assert len(line.seen) == 1


ODD_NUMBERS: list[dict[str, Any]] = [{"max_tokens": -(10**6)}, {"max_tokens": 5, "n": -5}, {"max_tokens": 0, "n": 0}]


@pytest.mark.parametrize("odd", ODD_NUMBERS, ids=str)
def test_no_odd_number_makes_a_request_of_a_spent_key_free(office: Open, store: SqliteKeyStore, odd: Any) -> None:
    """Fewer tokens than none made an estimate of nothing, which was not looked at; to some servers -1 is no limit."""
    key = store.new("ada", grant=Grant(budget="0.01 USD/day"))
    with office() as here:
        assert chat(here.url, key).status == 200
        here.rows(1)
        wait_until(lambda: "is spent" in chat(here.url, key).text, "an empty budget")
        refused = chat(here.url, key, **odd)
        assert (refused.status, "the budget of the key ada is spent" in refused.text) == (429, True)


@pytest.mark.parametrize("odd", ODD_NUMBERS[:2], ids=str)
def test_no_odd_number_is_worth_tokens(office: Open, store: SqliteKeyStore, odd: Any) -> None:
    key = store.new("ada", grant=Grant(tpm=40))
    with office() as here:
        assert chat(here.url, key).status == 200
        long = [{"role": "user", "content": "word " * 100}]
        refused = chat(here.url, key, messages=long, **odd)
        assert (refused.status, "40 tokens a minute" in refused.text) == (429, True)


@pytest.mark.parametrize("grant", [Grant(tpm=50), Grant(budget="1 USD/day")], ids=str)
def test_a_number_that_is_too_large_is_no_error_of_ours(office: Open, store: SqliteKeyStore, grant: Grant) -> None:
    key = store.new("ada", grant=grant)
    with office(budgets=BudgetSettings(policy="refuse")) as here:
        assert chat(here.url, key, max_tokens=10**30).status in (200, 429)


FREE_INPUT = {
    "output": read_price({"input": 0, "output": 1000}),
    "image": read_price({"input": 0, "output": 0, "image": 1}),
}


@pytest.mark.parametrize("price", FREE_INPUT)
def test_a_price_of_answers_alone_is_a_price(office: Open, store: SqliteKeyStore, price: str) -> None:
    key = store.new("ada", grant=Grant(budget="0.004 USD/day"))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    message = {**ANSWER["choices"][0]["message"], "images": [image]}  # type: ignore[index]
    drawn = {**ANSWER, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with office(*[say(200, json.dumps(drawn).encode())] * 20, prices={"*": FREE_INPUT[price]}) as here:
        assert chat(here.url, key, max_tokens=0).status == 200
        here.rows(1)
        wait_until(lambda: "is spent" in chat(here.url, key, max_tokens=0).text, "an empty budget")


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("grant", "words"), [(Grant(rpm=2), "2 requests a minute"), (Grant(tpm=50), "50 tokens a minute")]
)
def test_a_key_over_its_limit_is_told_when_to_come_again(
    office: Open, store: SqliteKeyStore, grant: Grant, words: str
) -> None:
    key = store.new("ada", grant=grant)
    with office() as here:
        got = [chat(here.url, key) for _ in range(4)]
        assert [one.status for one in got] == [200, 200, 429, 429]
        assert f"the key ada may have {words}" in got[2].text
        assert 1 <= float(got[2].headers["retry-after"]) <= 61
        store.edit(key.split("-")[1], KeyChange(grant=GrantChange(rpm=None, tpm=None)))
        wait_until(lambda: chat(here.url, key).status == 200, "the new limits")


def test_a_keys_limit_holds_over_all_workers() -> None:
    memory, holder = SharedMemory(4), make_holder("x", "ada", Grant(rpm=5), team="web", team_grant=Grant(tpm=10**6))
    workers = [KeyLimits(SharedLimits(memory, number), time.monotonic) for number in range(4)]

    async def ask(limits: KeyLimits) -> bool:
        try:
            return bool(await limits.enter(holder, 10))
        except UpstreamError as error:
            return error.failure.code != "key_rpm"

    async def ask_all() -> list[bool]:
        return [await ask(workers[i % 4]) for i in range(20)]

    assert sum(asyncio.run(ask_all())) == 5


def test_the_keys_of_a_team_wait_in_one_queue() -> None:
    """Each key has an account of its own for its team. With the queue opened anew at every change of key, a limit that
    is kept elsewhere was registered anew for each request."""
    opened: list[str] = []

    class Counted(ProcessLimits):
        def open_queue(self, name: str, label: str, **numbers: Any) -> AdmissionWaiter:
            opened.append(name)
            return super().open_queue(name, label, **numbers)

    limits = KeyLimits(Counted(time.monotonic), time.monotonic)
    ada, bob = (make_holder(key, key, Grant(), team="web", team_grant=Grant(rpm=100)) for key in ("ada", "bob"))
    for holder in (ada, bob, ada, bob):
        limits._find(holder.limited[0])
    assert opened == ["team:web"]
    limits._find(make_holder("ada", "ada", Grant(), team="web", team_grant=Grant(rpm=9)).limited[0])
    assert opened == ["team:web"] * 2, "its limit has changed"


def test_a_team_over_its_limit_costs_its_keys_nothing(office: Open, store: SqliteKeyStore) -> None:
    ada, bob = (store.new(name, team="web", grant=Grant(rpm=3)) for name in ("ada", "bob"))
    store.set_team("web", GrantChange(rpm=2))
    with office() as here:
        assert [chat(here.url, key).status for key in (ada, bob, ada, bob)] == [200, 200, 429, 429]
        assert [row.status for row in here.rows(4)] == [429, 429, 200, 200], "also what is refused is written down"
        assert "team web" in chat(here.url, ada).json["error"]["message"]


def test_an_expired_and_a_rotated_key_are_refused(office: Open, store: SqliteKeyStore) -> None:
    gone = store.new("gone", expires=1.0)
    old = store.new("ada")
    new = store.rotate(old.split("-")[1])
    kept = store.new("bob")
    both = store.rotate(kept.split("-")[1], grace_s=1000)
    assert new is not None
    assert both is not None
    with office() as here:
        assert [chat(here.url, key).status for key in (gone, old, new, kept, both)] == [401, 401, 200, 200, 200]
        assert "this key expired at 1970-01-01" in chat(here.url, gone).text
        assert "no valid key" in chat(here.url, gone[:-1] + "x").text, "only its owner is told"
        assert "models need a client key" in chat(here.url, store.new("boss", admin=True)).text


# ---------------------------------------------------------------- cost and ledger


def test_the_cost_of_an_answer_is_in_its_header_and_in_the_ledger(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", team="web")
    with office() as here:
        got = chat(here.url, key)
        assert got.headers["x-dragoman-cost"] == COST
        (row,) = here.rows(1)
        assert (row.key, row.team, row.client, row.asked) == ("ada", "web", "test", "up-model")
        assert (row.upstream, row.model, row.input, row.output) == ("up", "up-model", 10, 5)
        assert (row.cost, row.currency, row.status, row.estimated) == (15_000, "USD", 200, False)
        assert (row.tries, len(row.attempts), row.bodies) == (1, 1, "")


def test_a_converted_stream_says_its_cost_at_its_end(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada")
    with office(stream(chunk("hi"), chunk(finish="stop"), USAGE, DONE)) as here:
        body = {"model": "up-model", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        said = post(here.url, "/v1/messages", body, {"x-api-key": key})
        assert said.text.endswith(f": x-dragoman-cost {COST}\n\n")
        assert here.rows(1)[0].cost == 15_000


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}\n\n'
OPTIONS: list[dict[str, Any]] = [{}, {"stream_options": {"include_usage": False}}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_stream_that_is_passed_on_costs_what_its_provider_says(
    tmp_path: Path, store: SqliteKeyStore, options: dict[str, Any]
) -> None:
    """The client's own bytes did not ask for the usage, so its stream was paid for by an estimate."""
    key, teams = store.new("ada"), TeamSettings(prices=dict(PRICES))
    body = {"model": "up-model", "stream": True, "messages": [{"role": "user", "content": "stream_options"}], **options}
    said = chunk("hi").replace(b'{"content"', b'{"role": "assistant", "content"'), chunk(finish="stop")
    with faultline(stream(*said, USAGE, DONE), stream(*said, USAGE + DONE), stream(*said, USAGE, DONE)) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("up-model",))
        with open_house(up, keys=store, store_path=tmp_path / "responses.db", teams=teams) as house:
            here, mine = Office(house.url, tmp_path, store), {"authorization": f"Bearer {key}"}
            for count in (1, 2):
                got = post(house.url, "/v1/chat/completions", body, mine)
                assert got.text == b"".join((*said, DONE)).decode(), "the client gets only what it asked for"
                row = here.rows(count)[0]
                assert (row.input, row.output, row.cost, row.estimated) == (10, 5, 15_000, False)
                assert json.loads(line.seen[-1].body) == {**body, "stream_options": {"include_usage": True}}
            asks = {**body, "stream_options": {"include_usage": True}}
            assert post(house.url, "/v1/chat/completions", asks, mine).text == b"".join((*said, USAGE, DONE)).decode()


def test_a_client_of_the_gateway_hears_the_cost(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada")
    with office() as here, dragoman.Client(base_url=here.url, api_key=key, env={}) as client:
        assert client.chat("up-model", "hi").cost == Cost(15_000, "USD")


def test_a_key_lists_and_calls_only_its_tools() -> None:
    holder = make_holder(
        "x", "ada", Grant(tools=("files/read*", "time/*")), team="web", team_grant=Grant(tools=("files/*",))
    )
    assert holder.may_call("files", "read_file")
    assert not holder.may_call("files", "write")
    assert not holder.may_call("time", "now"), "its team has no such server"
    assert (holder.may_reach("files"), holder.may_reach("time")) == (True, False)
    box = McpToolbox([Shelf()], holder.may_call)  # type: ignore[list-item]  # as much of a server as it asks for
    tools = asyncio.run(box.list_tools())
    assert [tool.name for tool in tools] == ["files__read"]
    refused = asyncio.run(box.run(ToolCall(id="1", name="files__write", arguments="{}")))
    assert refused.failed
    box._tool_ids = {"files__write": ("files", "write")}  # a list from before
    assert asyncio.run(box.run(ToolCall(id="1", name="files__write", arguments="{}"))).failed


class Shelf:
    """A server with two tools, none of which may be called."""

    spec, withheld, health = SimpleNamespace(name="files"), frozenset[str](), "up"

    async def list_tools(self) -> list[Any]:
        def make(name: str) -> Any:
            return SimpleNamespace(name=name, to_tool=lambda legal: SimpleNamespace(name=legal))

        return [make("read"), make("write")]

    async def call(self, *_: Any) -> Any:
        raise AssertionError("it was called")


def test_an_unknown_price_is_no_cost_at_all(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada")
    with office(prices={}) as here:
        assert "x-dragoman-cost" not in chat(here.url, key).headers
        assert here.rows(1)[0].cost is None


def test_bodies_are_kept_for_keys_that_ask_and_masked(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(bodies=True))
    with office() as here:
        chat(here.url, key, messages=[{"role": "user", "content": "my key is sk-abcdefghijklmnop"}])
        kept = json.loads(here.rows(1)[0].bodies)
        assert kept["asked"]["messages"][0]["content"] == "my key is [redacted]"
        assert kept["reply"]["choices"][0]["message"]["content"] == "hi"


def test_bodies_of_streams_are_kept_as_the_client_got_them(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(bodies=True))
    answer = stream(chunk("fi"), chunk("ne"), chunk(finish="stop"), DONE)
    claude = {"model": "up-model", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "ask"}]}
    with office(answer, answer, stream(*[chunk("word ")] * 3, end="reset")) as here:
        assert chat(here.url, key, stream=True).status == 200
        assert post(here.url, "/v1/messages", claude, {"x-api-key": key}).status == 200
        post(here.url, "/v1/messages", claude, {"x-api-key": key})
        broken, messages, plain = (json.loads(row.bodies) for row in here.rows(3))
        assert plain["asked"]["messages"][0]["content"] == "hi"
        assert "fi" in plain["reply"]
        assert messages["asked"]["messages"][0]["content"] == "ask"
        assert "content_block_delta" in messages["reply"], "the client's dialect, not the provider's"
        assert "word" in broken["reply"]


def test_a_refused_request_costs_nothing_and_is_written_down(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(budget="1 USD/day"))
    with office(*[say(400, b'{"error": {"message": "no", "type": "invalid_request_error"}}')] * 3) as here:
        assert chat(here.url, key).status == 400
        (row,) = here.rows(1)
        assert (row.status, row.cost, row.failure != "") == (400, 0, True)


def test_without_keys_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, store: SqliteKeyStore) -> None:
    for on, there in ((None, False), (True, True)):
        folder = tmp_path / str(on)
        rules = TeamSettings(ledger=LedgerSettings(on=on))
        with faultline(SAID) as line:
            up = upstream("up", "openai_chat", f"{line.url}/v1")
            with open_house(up, keys=store, store_path=folder / "responses.db", teams=rules) as house:
                assert chat(house.url, "").status == 200
        assert (folder / "ledger.db").exists() is there


# ---------------------------------------------------------------- budgets


def test_a_budget_is_spent_and_says_when_it_begins_anew(
    office: Open, store: SqliteKeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    key = store.new("ada", grant=Grant(budget="0.04 USD/month", soft=30))
    with office() as here:
        first = chat(here.url, key)
        assert "x-dragoman-budget" not in first.headers
        wait_until(lambda: "budget_soft_limit" in caplog.text, "the first one settled")
        second = chat(here.url, key)
        assert second.headers["x-dragoman-budget"].startswith("key 37% of 0.04 USD/month, until 20")
        here.rows(2)
        wait_until(lambda: "is spent" in chat(here.url, key).text, "an empty budget")
        spent = chat(here.url, key)
        assert spent.status in (402, 429)
        assert "the budget of the key ada is spent (0.04 USD/month); it begins anew at 20" in spent.text


def test_a_request_that_may_cost_too_much_is_not_told_that_the_budget_is_spent(
    office: Open, store: SqliteKeyStore
) -> None:
    key = store.new("ada", grant=Grant(budget="0.04 USD/month"))
    with office(budgets=BudgetSettings(policy="refuse")) as here:
        refused = chat(here.url, key, max_tokens=1000)
        assert "the budget of the key ada has less left than this request may cost (0.04 USD/month)" in refused.text


def test_a_client_that_asks_one_after_the_other_is_not_refused_for_its_last_request(
    office: Open, store: SqliteKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate of a request may be all that is left; what it did not cost comes back a moment after its end."""
    monkeypatch.setattr(bookkeeper, "SETTLE_S", 0.05)
    key = store.new("ada", grant=Grant(budget="0.05 USD/day"))
    with office() as here:
        assert [chat(here.url, key, max_tokens=4000).status for _ in range(4)] == [200, 200, 200, 200]
        assert chat(here.url, key, max_tokens=4000).status == 429


def test_a_model_without_a_price_is_refused_for_a_key_with_a_budget(office: Open, store: SqliteKeyStore) -> None:
    key, free = store.new("ada", grant=Grant(budget="1 USD/day")), store.new("bob")
    with office(prices={}) as here:
        refused = chat(here.url, key)
        assert refused.status == 403
        assert refused.json["error"]["message"] == (
            "the price of 'up-model' is not known, and the key ada has a budget: an admin of this gateway can add "
            '[prices."up/up-model"] to its configuration'
        )
        assert chat(here.url, free).status == 200
    with office(prices={}, budgets=BudgetSettings(unknown_price="allow")) as here:
        assert chat(here.url, key).status == 200


def test_a_stream_that_breaks_is_paid_for(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(budget="1 USD/day"))
    broken = stream(*[chunk("word ")] * 30, end="reset")
    with office(broken) as here:
        chat(here.url, key, stream=True)
        (row,) = here.rows(1)
        assert row.estimated
        assert row.output is not None
        assert 20 <= row.output <= 100
        assert row.cost is not None
        assert row.cost > 20_000


def leave(url: str, path: str, key: str, body: Any, until_seen: Callable[[], bool], **headers: str) -> None:
    """Asks, and hangs up as soon as the provider works on it."""
    data = json.dumps(body).encode()
    own = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    )
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}{own}content-length: {len(data)}\r\n\r\n".encode() + data)
        wait_until(until_seen, "the provider")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_client_that_leaves_before_its_answer_pays_for_what_was_sent(
    tmp_path: Path, store: SqliteKeyStore, path: str
) -> None:
    """The provider has read it. To ask and hang up, again and again, cost a key nothing."""
    key = store.new("ada", grant=Grant(budget="100 USD/day"))
    text = "word " * 800
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "input": text}
    with faultline(stream(threading.Event())) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        teams = TeamSettings(prices=dict(PRICES))
        with open_house(up, keys=store, store_path=tmp_path / "responses.db", teams=teams) as house:
            leave(house.url, path, key, body, lambda: bool(line.seen))
            (row,) = Office(house.url, tmp_path, store).rows(1)
            assert (row.status, row.estimated) == (0, True)
            assert row.cost is not None
            assert 1_000_000 <= row.cost <= 2_200_000
            assert [one.status for one in row.attempts] == [None], "no status came"
            (by_model,) = SqliteLedger(tmp_path / "ledger.db").sum(["model"], 0, 1e11, {})
            assert (by_model.by, by_model.cost) == ({"model": "m"}, row.cost)


def test_a_client_that_leaves_a_loop_pays_for_its_turns(tmp_path: Path, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(budget="100 USD/day"))
    call = {"id": "c", "type": "function", "function": {"name": "fine.work", "arguments": "{}"}}
    delta = {"index": 0, "delta": {"role": "assistant", "tool_calls": [{"index": 0, **call}]}, "finish_reason": None}
    used = {"prompt_tokens": 5000, "completion_tokens": 10, "total_tokens": 5010}
    frames = [{"choices": [delta]}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]
    said = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (*frames, {"choices": [], "usage": used}))
    body = {"model": "m", "messages": [{"role": "user", "content": "work"}], "stream": True}
    with faultline(stream(said + b"data: [DONE]\n\n"), stream(threading.Event())) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        more = {
            "teams": TeamSettings(prices=dict(PRICES)),
            "mcp": McpSettings(folder=tmp_path, servers={"fine": bad("fine")}),
        }
        with open_house(up, keys=store, store_path=tmp_path / "responses.db", **more) as house:
            asked = {"x_dragoman_mcp": "fine", "x_dragoman_mcp_show": "nothing"}
            leave(house.url, "/v1/chat/completions", key, body, lambda: len(line.seen) == 2, **asked)
            (row,) = Office(house.url, tmp_path, store).rows(1)
            assert row.estimated
            assert 5_010_000 < (row.cost or 0) < 6_000_000


def test_an_answer_from_where_the_price_is_unknown_is_paid_at_the_price_that_was_reserved(
    tmp_path: Path, store: SqliteKeyStore
) -> None:
    key, price = store.new("ada", grant=Grant(budget="0.02 USD/day")), read_price({"input": 1000, "output": 1000})
    with faultline(say(500, b"{}"), SAID) as line:
        ups = [upstream(name, "openai_chat", f"{line.url}/v1", models=("m",)) for name in ("first", "second")]
        teams = TeamSettings(prices={"first/*": price})
        with open_house(*ups, keys=store, store_path=tmp_path / "responses.db", teams=teams) as house:
            assert "x-dragoman-cost" not in chat(house.url, key, "m").headers
            (row,) = Office(house.url, tmp_path, store).rows(1)
            assert (row.upstream, row.cost) == ("second", None), "the cost stays unknown"
            lines = make_lines(make_holder(row.key_id, "ada", Grant(budget="0.02 USD/day")).budgeted, time.time())
            (spent,) = SqliteBudgets(tmp_path / "budgets.db").read(lines)
            assert spent.micros == 15_000


def test_each_turn_of_a_loop_needs_money(
    tmp_path: Path, store: SqliteKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first turn was reserved: a loop of a hundred turns could be paid by the last cent of a budget."""
    monkeypatch.setattr(bookkeeper, "STANDBY_S", 1e9)  # on a busy machine the gateway would reserve its own part, too
    key = store.new("ada", grant=Grant(budget="9 USD/day"))
    call = {"id": "c", "type": "function", "function": {"name": "fine.work", "arguments": "{}"}}
    delta = {"index": 0, "delta": {"role": "assistant", "tool_calls": [{"index": 0, **call}]}, "finish_reason": None}
    frames = [{"choices": [delta]}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]
    said = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in frames) + b"data: [DONE]\n\n"
    body = {"model": "m", "messages": [{"role": "user", "content": "work"}], "max_tokens": 2000}
    teams = TeamSettings(prices=dict(PRICES))
    with faultline(stream(said)) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("m",))
        mcp = McpSettings(folder=tmp_path, servers={"fine": bad("fine")}, limits=Limits(repeats=50))
        with open_house(up, keys=store, store_path=tmp_path / "responses.db", teams=teams, mcp=mcp) as house:
            headers = {"authorization": f"Bearer {key}", "x-dragoman-mcp": "fine"}
            refused = post(house.url, "/v1/chat/completions", body, headers)
            assert "running requests hold the rest of the budget" in refused.text
            assert len(line.seen) == 5, "four turns reserve 2 USD each, and one the rest"
            (row,) = Office(house.url, tmp_path, store).rows(1)
            assert row.cost
            line_ = Line(f"key:{row.key_id}", find_period("day", time.time())[0], 9_000_000, 80)
            spent = SqliteBudgets(tmp_path / "budgets.db")
            wait_until(lambda: spent.read([line_])[0].micros == row.cost, "the budget to be settled")
            assert spent.read([line_])[0].reserved == 0


def test_a_budget_that_cannot_be_checked_is_a_503_and_the_log_says_why(
    office: Open, store: SqliteKeyStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **more: object) -> Any:
        raise OSError("/var/state/budgets.db: database is locked")

    key = store.new("ada", grant=Grant(budget="1 USD/day"))
    monkeypatch.setattr(SqliteBudgets, "reserve", fail)
    with office() as here:
        refused = chat(here.url, key)
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert "try again" in refused.text
    assert "budgets.db" not in refused.text
    assert "database is locked" in caplog.text


def test_a_file_of_budgets_that_another_process_holds_delays_a_request_and_refuses_none(
    office: Open, store: SqliteKeyStore
) -> None:
    """It was a 503 after two seconds, in which the gateway answered nothing else."""
    ada, bob = store.new("ada", grant=Grant(budget="9 USD/day")), store.new("bob")
    with office() as here, closing(sqlite3.connect(here.folder / "budgets.db", isolation_level=None)) as other:
        SqliteBudgets(here.folder / "budgets.db").read([])
        other.execute("begin immediate")
        got: list[int] = []
        waiting = threading.Thread(target=lambda: got.append(chat(here.url, ada).status))
        waiting.start()
        assert chat(here.url, bob).status == 200, "a key without a budget does not wait"
        assert not got
        other.execute("commit")
        waiting.join(NEVER_S)
        assert got == [200]


def test_the_webhook_hears_of_a_soft_limit_once(office: Open, store: SqliteKeyStore) -> None:
    key = store.new("ada", grant=Grant(budget="1 USD/day", soft=1))
    with faultline(*[say(204, b"")] * 9) as hook, office(budgets=BudgetSettings(webhook=f"{hook.url}/x")) as here:
        chat(here.url, key)
        wait_until(lambda: hook.seen, "the webhook")  # requests that are settled together are told as one sum
        for _ in range(2):
            chat(here.url, key)
        here.rows(3)
    told = [json.loads(seen.body) for seen in hook.seen]
    assert [(one["event"], one["limit"]) for one in told] == [("budget_soft_limit", "1")]
    assert told[0]["account"] == f"key:{key.split('-')[1]}"
    assert (told[0]["name"], told[0]["currency"], told[0]["period"]) == ("ada", "USD", "day")
    assert told[0]["text"].startswith("the key ada has spent 0.015 of 1 USD/day, until ")


def test_the_webhook_gets_the_message_again_after_an_error(
    office: Open, store: SqliteKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PAUSES_S", (0.0,))
    store.set_team("two words", GrantChange(budget="0.01 USD/total"))
    key = store.new("ada", team="two words")
    with faultline(say(503, b""), say(204, b"")) as hook, office(budgets=BudgetSettings(webhook=hook.url)) as here:
        chat(here.url, key)
        wait_until(lambda: len(hook.seen) == 2, "the message, once more")
    first, second = (json.loads(seen.body) for seen in hook.seen)
    assert first == second
    assert (first["event"], first["name"], first["resets"]) == ("budget_spent", "two words", None)


# ---------------------------------------------------------------- the file and the commands

FILE = """
[providers.up]
base_url = "http://127.0.0.1:1/v1"
[team.web]
budget = "500 USD/month"
[key.ada]
secret = "${ADA_KEY}"
team = "web"
models = "gpt-*"
rpm = 60
[prices."gpt-*"]
input = 1.25
output = 10
[ledger]
keep_days = 30
"""


def test_keys_and_teams_can_stand_in_the_file() -> None:
    import tomllib

    settings = read_settings(tomllib.loads(FILE), "f", {"ADA_KEY": "a-secret-that-is-long"})
    (ada,) = settings.teams.keys
    assert (ada.name, ada.team, ada.grant) == ("ada", "web", Grant(models=("gpt-*",), rpm=60))
    assert settings.teams.teams["web"].budget == "500 USD/month"
    assert settings.teams.prices["gpt-*"] == read_price({"input": "1.25", "output": 10})
    assert settings.teams.ledger.keep_days == 30


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("rpm = 60", "rpm = 0", "key.ada.rpm"),
        ("rpm = 60", "rmp = 60", "key.ada.rmp"),
        ("500 USD/month", "500", "team.web.budget"),
        ("${ADA_KEY}", "short", "key.ada"),
        ("input = 1.25", "input = -1", "prices.gpt-*"),
        ("keep_days = 30", "keep = 30", "ledger.keep"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(old: str, new: str, key: str) -> None:
    import tomllib

    with pytest.raises(ConfigError) as caught:
        read_settings(tomllib.loads(FILE.replace(old, new)), "f", {"ADA_KEY": "a-secret-that-is-long"})
    assert caught.value.key == key


GRANT = '"models":["gpt-*","fast"],"tools":["files/*"],{}"tpm":200000,"at_once":5,"budget":"20 USD/month"'


def test_the_commands_make_change_and_show_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))

    def run(*words: str) -> str:
        assert cli.main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    limits = [
        "--models",
        "gpt-*,fast",
        "--rpm",
        "60",
        "--tpm",
        "200000",
        "--at-once",
        "5",
        "--expires",
        "90d",
        "--tools",
        "files/*",
    ]
    run("teams", "set", "web", "--rpm", "600", "--budget", "100 USD/month")
    key = run("keys", "new", "--name", "ada", "--team", "web", "--budget", "20 USD/month", *limits).strip()
    key_id = key.split("-")[1]
    assert "web  1 key  rpm 600  100 USD/month" in run("teams", "list")
    shown = run("keys", "show", "ada")
    assert shown == run("keys", "show", key_id)
    assert "models gpt-*,fast  tools files/*  rpm 60  tpm 200000  at once 5  20 USD/month" in shown
    assert "the team web: 0 of 100 USD/month spent, 0 reserved" in shown
    assert "rpm" not in run("keys", "edit", key_id, "--rpm", "none")
    assert run("keys", "rotate", key_id, "--grace", "1h").startswith(f"dk-{key_id}-")
    assert cli.main(["keys", "edit", key_id, "--budget", "lots"]) == 1
    assert cli.main(["keys", "edit", "ada"]) == 1, "nothing to change"
    assert cli.main(["keys", "new", "--read-only"]) == 1
    team = run("teams", "show", "web").splitlines()
    assert team == ["web  rpm 600  100 USD/month", "1 key: ada", "the team web: 0 of 100 USD/month spent, 0 reserved"]
    audit = run("usage", "--audit")
    assert audit.splitlines()[1].endswith(
        '{"grant":{' + GRANT.format('"rpm":60,') + '}} -> {"grant":{' + GRANT.format("") + "}}"
    )
    assert len(json.loads(run("usage", "--audit", "--json"))) == 4
    assert [line.split("  ")[2] for line in audit.splitlines()] == ["key rotate", "key edit", "key new", "team new"]
    assert key not in audit
    run("keys", "new", "--name", "ada")
    capsys.readouterr()
    assert cli.main(["keys", "revoke", "ada"]) == 1
    assert "2 keys have the name ada: give an id of" in capsys.readouterr().err


def test_check_names_a_key_whose_team_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    monkeypatch.setenv("ADA_KEY", "0123456789abcdef")
    SqliteKeyStore(tmp_path / "keys.db").set_team("stored", GrantChange(rpm=5))
    file = tmp_path / "dragoman.toml"
    for team, doubt in (("web", False), ("stored", False), ("wbe", True)):
        file.write_text(FILE.replace('team = "web"', f'team = "{team}"'))
        assert cli.main(["check", str(file)]) == 0
        assert ("key.ada: there is no team wbe" in capsys.readouterr().out) is doubt


def test_an_older_store_gets_todays_tables(tmp_path: Path) -> None:
    import sqlite3

    from dragoman.gateway.stores import sqlite_keys as key_store

    path = tmp_path / key_store.FILE
    db = sqlite3.connect(path)
    db.executescript(key_store._SCHEMA)
    db.execute("insert into install values ('pepper')")
    db.execute("insert into keys values ('abcdefgh', 'd', 'old', 0, 1.0, null)")
    db.execute("pragma user_version = 1")
    db.commit()
    db.close()
    table = key_store.open_key_store(tmp_path).read()
    assert table is not None
    assert [replace(row, digest="") for row in table.rows] == [
        KeyRow(id="abcdefgh", digest="", name="old", created=1.0)
    ]


def test_the_audit_log_cannot_be_rewritten(store: SqliteKeyStore) -> None:
    import sqlite3

    store.new("ada", who="eve")
    db = sqlite3.connect(store.path)
    for words in ("update audit set who = 'bob'", "delete from audit"):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(words)
    db.close()
    (row,) = store.read_audit()
    assert (row.who, row.what) == ("eve", "key new")
