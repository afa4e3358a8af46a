"""Prices: what a reply costs, to the micro-unit; an unknown price is unknown."""

import tomllib
from importlib.resources import files

import pytest

from dragoman.accounts.money import Budget, find_period, read_budget, read_micros, write_amount
from dragoman.accounts.prices import Cost, ModelPrice, PriceTable, built_in, count_cost, read_price
from dragoman.model.reply import Usage

SONNET = Usage(
    input=100,
    output=50,
    cache_read=1000,
    cache_write=100,
    extras={"anthropic": {"cache_creation": {"ephemeral_1h_input_tokens": 40}}},
)


def test_each_kind_of_token_has_its_price() -> None:
    price = PriceTable().find("a", "anthropic", "claude-sonnet-4-5")
    assert count_cost(price, SONNET) == Cost(100 * 3 + 300 + 60 * 15 // 4 + 40 * 6 + 50 * 15, "USD")


def test_a_dated_name_costs_what_the_plain_one_costs() -> None:
    table = PriceTable()
    assert table.find("x", "openai", "gpt-5.2-2025-12-11") == table.find("x", "openai", "gpt-5.2")
    assert table.find("x", "openai", "gpt-5.2") is not None


@pytest.mark.parametrize(("kind", "model"), [("compatible", "gpt-5"), ("openai", "gpt-99"), ("ollama", "big-cloud")])
def test_what_is_not_in_the_table_is_unknown(kind: str, model: str) -> None:
    assert PriceTable().find("x", kind, model) is None
    assert count_cost(None, SONNET) is None


def test_a_server_on_this_machine_costs_nothing() -> None:
    assert count_cost(PriceTable().find("x", "ollama", "llama3"), SONNET) == Cost(0, "USD")


def test_without_counters_the_cost_is_unknown() -> None:
    assert count_cost(ModelPrice(input=1, output=1), Usage()) is None
    assert count_cost(ModelPrice(input=1, output=1), None) is None


def test_audio_without_a_price_makes_the_cost_unknown() -> None:
    assert count_cost(ModelPrice(input=10**6, output=0), Usage(input=10, output=0, input_audio=5)) is None
    heard = ModelPrice(input=10**6, output=0, input_audio=4 * 10**6)
    assert count_cost(heard, Usage(input=10, output=0, input_audio=5)) == Cost(25, "USD")


def test_a_long_request_has_its_own_price() -> None:
    price = read_price({"input": 1, "output": 2, "above": 1000, "long": {"input": 3}})
    assert count_cost(price, Usage(input=1000, output=10)) == Cost(1020, "USD")
    assert count_cost(price, Usage(input=1001, output=10)) == Cost(3023, "USD")


def test_a_part_of_a_micro_unit_counts_as_one() -> None:
    assert count_cost(read_price({"input": "0.04", "output": 0}), Usage(input=1, output=0)) == Cost(1, "USD")


def test_the_configuration_wins_by_the_longest_pattern() -> None:
    own = {"gpt-*": read_price({"input": 1, "output": 1}), "gpt-5*": read_price({"input": 2, "output": 2})}
    found = PriceTable(own).find("x", "openai", "gpt-5.2")
    assert found is not None
    assert found.input == 2 * 10**6
    here = PriceTable({**own, "x/*": None})
    assert here.find("x", "openai", "gpt-5.2") is None
    assert here.find("y", "openai", "gpt-5.2") == found


def test_every_row_of_the_table_can_be_read() -> None:
    table = files("dragoman.accounts").joinpath("prices.toml").read_text("utf-8")
    kinds = list(tomllib.loads(table)["model"])
    assert {"openai", "anthropic", "gemini", "demo"} <= set(kinds)
    for kind in kinds[:12]:
        assert all(price is None or price.currency == "USD" for price in built_in(kind).values()), kind


@pytest.mark.parametrize("row", [{"input": 1}, {"input": -1, "output": 1}, {"input": "x", "output": 1}, {"inptu": 1}])
def test_a_price_that_is_none_says_so(row: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|no such"):
        read_price(row)


def test_money_is_whole() -> None:
    assert read_micros("0.0000001") == 1
    assert write_amount(1_500_000) == "1.5"
    assert write_amount(-1) == "-0.000001"
    assert str(read_budget("20 usd/month")) == "20 USD/month"
    assert read_budget("0.5 EUR/day") == Budget(micros=500_000, currency="EUR", period="day")


@pytest.mark.parametrize("text", ["20", "20 USD", "20 USD/year", "-1 USD/day", "nan USD/day", "20 dollars/day"])
def test_a_budget_that_is_none_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_budget(text)


def test_periods_begin_at_midnight_utc() -> None:
    now = 1_794_861_296.0  # Monday, 16 November 2026, 18:34:56
    assert find_period("month", now) == (1_793_491_200, 1_796_083_200)
    assert find_period("week", now) == (1_794_787_200, 1_795_392_000)
    assert find_period("day", now)[0] == 1_794_787_200
    assert find_period("hour", now)[1] == 1_794_862_800
    assert find_period("total", now) == (0, None)
