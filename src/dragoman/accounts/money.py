"""Money in whole micro-units, which are millionths of a currency's unit, and budgets over a period.

There are no floats: a sum of many small costs is exact.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

from msgspec import Struct

MICROS = 1_000_000  # in one unit of a currency
MOST_UNITS = 10**12
Period: TypeAlias = Literal["hour", "day", "week", "month", "total"]
PERIODS: tuple[Period, ...] = get_args(Period)
_CURRENCY = re.compile(r"[A-Z]{3}")
_BUDGET = re.compile(r"\s*([0-9._]+)\s*([A-Za-z]{3})\s*/\s*([a-z]+)\s*")
_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class Budget(Struct, frozen=True, kw_only=True):
    """An amount for each period. Periods begin at UTC midnight, weeks on a Monday; `total` is one endless period."""

    micros: int
    currency: str
    period: Period

    def __str__(self) -> str:
        return f"{write_amount(self.micros)} {self.currency}/{self.period}"


def read_micros(units: str | int | Decimal) -> int:
    """`0.0375` units as micro-units, rounded up. ValueError if it is not an amount."""
    try:
        amount = Decimal(units)
    except InvalidOperation:
        raise ValueError(f"expected an amount, found {str(units)[:50]!r}") from None
    if not amount.is_finite() or not 0 <= amount <= MOST_UNITS:
        raise ValueError(f"expected an amount from 0 to {MOST_UNITS}, found {amount}")
    return int((amount * MICROS).to_integral_value(ROUND_CEILING))


def read_currency(text: str) -> str:
    if not _CURRENCY.fullmatch(text.upper()):
        raise ValueError(f"expected a currency like USD or EUR, found {text[:50]!r}")
    return text.upper()


@lru_cache(maxsize=1024)
def read_budget(text: str) -> Budget:
    """`20 USD/month`; a ValueError says what is wrong."""
    match = _BUDGET.fullmatch(text)
    if match is None or match[3] not in PERIODS:
        raise ValueError(f"expected a budget like '20 USD/month' ({', '.join(PERIODS)}), found {text[:50]!r}")
    micros = read_micros(match[1].replace("_", ""))
    return Budget(micros=micros, currency=read_currency(match[2]), period=cast(Period, match[3]))


@lru_cache(1024)
def write_amount(micros: int) -> str:
    """In units, without zeros at the end: 1500000 is 1.5."""
    whole, rest = divmod(abs(micros), MICROS)
    sign = "-" if micros < 0 else ""
    return f"{sign}{whole}" if not rest else f"{sign}{whole}.{rest:06d}".rstrip("0")


_found: dict[Period, tuple[int, int]] = {}  # the periods that were asked for last


def find_period(period: Period, now: float) -> tuple[int, int | None]:
    """The first second of the period that `now` is in, and of the next one; None if there is no next one."""
    if period == "total":
        return 0, None
    last = _found.get(period)
    if last is None or not last[0] <= now < last[1]:
        last = _found[period] = _make_period(period, now)
    return last


def _make_period(period: Period, now: float) -> tuple[int, int]:
    at = datetime.fromtimestamp(now, UTC)
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "hour":
            start = at.replace(minute=0, second=0, microsecond=0)
            end = start + timedelta(hours=1)
        case "day":
            start, end = midnight, midnight + timedelta(days=1)
        case "week":
            start = midnight - timedelta(days=midnight.weekday())
            end = start + timedelta(days=7)
        case _:
            start = midnight.replace(day=1)
            end = (start + timedelta(days=31)).replace(day=1)
    return int(start.timestamp()), int(end.timestamp())


def read_duration_s(text: str) -> int:
    """`90d`, `12h` or `30m` in seconds. Any other text raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a time like 90d, 12h or 30m, found {text[:50]!r}")
    return int(match[1]) * _SECONDS[match[2]]


def write_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
