"""The cost of a reply in micro-units: prices.toml, prices of the configuration, and the sum.

An unknown price is None, never zero.
"""

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.accounts.grants import matches
from dragoman.accounts.money import MICROS, read_currency, read_micros, write_amount
from dragoman.model.reply import Usage

MOST_MICROS = 10**15  # of one reply; stores add up what fits into 63 bits
MOST_KNOWN = 2000  # model names come from clients
AMOUNTS = (
    *("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning"),
    *("input_audio", "output_audio", "image"),
)
_WORDS = {*AMOUNTS, "currency", "since", "source", "above", "long"}
_DATED = re.compile(r"[-@](?:20\d\d-?\d\d-?\d\d|\d{4}|\d\d-\d\d|\d\d-20\d\d|latest)$")
_HEAD = re.compile(r"^\[model\.(\w+)\]$", re.M)


class ModelPrice(Struct, frozen=True, kw_only=True):
    """Micro-units for a million tokens; `image`: for one picture. None is "costs as the kind of token it is part of",
    and for audio and pictures "unknown"."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    image: int | None = None
    above: int | None = None  # with more input tokens than this, the prices of `long` apply
    long: "ModelPrice | None" = None
    currency: str = "USD"
    since: str = ""
    source: str = ""


class Cost(Struct, frozen=True):
    micros: int
    currency: str

    def __str__(self) -> str:
        return f"{write_amount(self.micros)} {self.currency}"


def count_cost(price: ModelPrice | None, usage: Usage | None, images: int = 0) -> Cost | None:
    """What a reply costs, rounded up to a micro-unit; None if that is unknown."""
    if price is None or usage is None or (usage.input is None and usage.output is None):
        return None
    read, written = usage.cache_read or 0, usage.cache_write or 0
    given = usage.input or 0
    if price.long is not None and price.above is not None and given + read + written > price.above:
        price = price.long
    total = (given + (usage.cache_read or 0 if price.cache_read is None else 0)) * price.input
    if price.cache_read is not None:
        total += read * price.cache_read
    if written:
        total += _write_cost(price, usage, written)
    total += (usage.output or 0) * price.output
    if usage.reasoning:
        total += usage.reasoning * (price.output if price.reasoning is None else price.reasoning)
    if usage.input_audio:  # the input includes it
        if price.input_audio is None:
            return None
        total += usage.input_audio * (price.input_audio - price.input)
    if usage.output_audio:
        if price.output_audio is None:
            return None
        total += usage.output_audio * (price.output_audio - price.output)
    if images:
        if price.image is None:
            return None
        total += images * price.image * MICROS
    return Cost(min(-(-max(total, 0) // MICROS), MOST_MICROS), price.currency)


def is_free(price: ModelPrice) -> bool:
    """Whether all prices of a model are zero."""
    own = any(getattr(price, name) for name in AMOUNTS)
    return not own and (price.long is None or is_free(price.long))


def _write_cost(price: ModelPrice, usage: Usage, written: int) -> int:
    """The cost of writing to caches. Providers with caches of several lifetimes report the longer ones separately."""
    usual = price.input if price.cache_write is None else price.cache_write
    long_lived = 0
    for own in usage.extras.values():
        split = own.get("cache_creation")
        one_hour = split.get("ephemeral_1h_input_tokens") if isinstance(split, dict) else None
        if type(one_hour) is int and price.cache_write_1h is not None:
            long_lived = min(max(one_hour, 0), written)
    return (written - long_lived) * usual + long_lived * (price.cache_write_1h or 0)


class PriceTable:
    """The prices of one configuration. Its own patterns fit `upstream/model`, `kind/model` or `model`, and win."""

    def __init__(self, own: Mapping[str, ModelPrice | None] | None = None) -> None:
        self._own = dict(own or {})
        self._known: dict[tuple[str, str, str], ModelPrice | None] = {}

    def find(self, upstream: str, kind: str, model: str) -> ModelPrice | None:
        at = (upstream, kind, model)
        try:
            return self._known[at]
        except KeyError:
            found = self._find(*at)
            if len(self._known) < MOST_KNOWN:
                self._known[at] = found
            return found

    def _find(self, upstream: str, kind: str, model: str) -> ModelPrice | None:
        for name in (f"{upstream}/{model}", f"{kind}/{model}", model):
            pattern = _best(self._own, name)
            if pattern is not None:
                return self._own[pattern]
        rows = built_in(kind)
        pattern = _best(rows, model)
        return rows[pattern] if pattern is not None else None


def _best(rows: Mapping[str, object], name: str) -> str | None:
    """The name itself, the name without its date, or the longest pattern that fits."""
    for plain in (name, _DATED.sub("", name)):
        if plain in rows:
            return plain
    fitting = [word for word in rows if ("*" in word or "?" in word) and matches((word,), name)]
    return max(fitting, key=len, default=None)


@cache
def built_in(kind: str) -> dict[str, ModelPrice | None]:
    """The rows of one kind of server. Only its part of the file is parsed: all of it takes a tenth of a second."""
    text, parts = _parts()
    if kind not in parts:
        return {}
    table = tomllib.loads(parts[kind], parse_float=Decimal)["model"][kind]
    head = tomllib.loads(text)
    return {model: read_price({**head, **row}) if row else None for model, row in table.items()}


@cache
def _parts() -> tuple[str, dict[str, str]]:
    text = Path(__file__).with_name("prices.toml").read_text("utf-8")
    found = list(_HEAD.finditer(text))
    ends = [*(mark.start() for mark in found[1:]), len(text)]
    return text[: found[0].start()], {mark[1]: text[mark.start() : end] for mark, end in zip(found, ends, strict=True)}


def read_price(row: Mapping[str, Any]) -> ModelPrice:
    """A row of prices.toml or of the configuration; a ValueError says what is wrong."""
    if unknown := sorted(set(row) - _WORDS):
        raise ValueError(f"no such key {unknown[0]!r}; expected some of {', '.join(sorted(_WORDS))}")
    if "input" not in row or "output" not in row:
        raise ValueError("expected input and output, per million tokens")
    amounts: dict[str, Any] = {name: _amount(row, name) for name in AMOUNTS if name in row}
    currency = read_currency(str(row.get("currency", "USD")))
    above, long = row.get("above"), row.get("long")
    if (above is None) != (long is None) or (above is not None and (type(above) is not int or above < 1)):
        raise ValueError("expected `above` (a number of tokens) and `long` (its prices) together")
    more = None
    if long is not None:
        base = {name: row[name] for name in AMOUNTS if name in row}
        more = read_price({**base, **long, "currency": currency})
    amounts |= {name: str(row[name]) for name in ("since", "source") if name in row}
    return ModelPrice(**amounts, currency=currency, above=above, long=more)


def _amount(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    try:
        return read_micros(str(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
