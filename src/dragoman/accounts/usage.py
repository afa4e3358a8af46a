"""Reports on the ledger: usage as a table with small charts, and exports to CSV, JSON and Parquet."""

import io
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from dragoman.accounts.ledger import COLUMNS, COUNTERS, Ledger, LedgerRow, Sums
from dragoman.accounts.money import read_duration_s

BARS = "▁▂▃▄▅▆▇█"
CHART = 14  # columns of a chart
FINE_S = 14 * 86_400  # a chart of more time than this is made of days
FIELDS = ("requests", "failed", "unpriced", *COUNTERS, "cost", "total_ms")
PAGE = 5000
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ReportLine(Struct, frozen=True, kw_only=True):
    sums: Sums
    chart: tuple[int, ...]  # requests in equal parts of the time


def read_since(text: str, now: float) -> float:
    """`7d` before now, or a day like 2026-11-01."""
    try:
        return now - read_duration_s(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected 7d, 12h or a day like 2026-11-01, found {text[:50]!r}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def make_report(
    ledger: Ledger, by: Sequence[str], since: float, until: float | None = None, where: dict[str, str] | None = None
) -> list[ReportLine]:
    """The lines of a report. Each currency has a line of its own, because amounts of two cannot be added."""
    until = time.time() if until is None else until
    groups = [word for word in dict.fromkeys((*by, "currency")) if word]
    sums = _join(ledger.sum(groups, since, until, where or {}))
    clock = "hour" if until - since <= FINE_S else "day"
    charts: dict[tuple[object, ...], dict[str, int]] = {}
    if clock not in groups:
        for line in _join(ledger.sum([*groups, clock], since, until, where or {})):
            at = tuple(line.by[word] for word in groups)
            charts.setdefault(at, {})[str(line.by[clock])] = line.requests
    return [ReportLine(sums=line, chart=_chart(charts.get(tuple(line.by.values()), {}), since, until)) for line in sums]


def _join(sums: list[Sums]) -> list[Sums]:
    """Requests without a cost have no currency. They stand in the line of the only currency, if there is one."""
    groups: dict[tuple[object, ...], list[Sums]] = {}
    for line in sums:
        groups.setdefault(tuple(value for word, value in line.by.items() if word != "currency"), []).append(line)
    joined = []
    for lines in groups.values():
        bare = [line for line in lines if not line.by["currency"]]
        priced = [line for line in lines if line.by["currency"]]
        joined += [_add(priced[0], bare[0])] if len(priced) == 1 and bare else lines
    return sorted(joined, key=lambda line: (-line.cost, -line.requests, str(line.by)))


def _add(one: Sums, two: Sums) -> Sums:
    return Sums(by=one.by, **{name: getattr(one, name) + getattr(two, name) for name in FIELDS})


def _chart(counts: dict[str, int], since: float, until: float) -> tuple[int, ...]:
    parts = [0] * CHART
    for word, count in counts.items():
        at = datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()
        place = int((at - since) / max(until - since, 1) * CHART)
        parts[min(max(place, 0), CHART - 1)] += count
    return tuple(parts)


def draw(chart: Sequence[int]) -> str:
    most = max(chart, default=0)
    return "".join(BARS[count * (len(BARS) - 1) // most] if count else " " for count in chart) if most else ""


def write_csv(report: Sequence[ReportLine], by: Sequence[str]) -> str:
    import csv  # a gateway seldom writes a file

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*by, "currency", *FIELDS])
    for line in report:
        sums = line.sums
        values = {name: _in_units(name, getattr(sums, name)) for name in FIELDS}
        if sums.unpriced == sums.requests:
            values["cost"] = ""
        writer.writerow([*(_cell(sums.by[word]) for word in by), sums.by["currency"], *values.values()])
    return out.getvalue()


def _in_units(name: str, value: object) -> object:
    """Money as people and their spreadsheets read it: 0.0058, not 5800 micro-units."""
    return Decimal(value).scaleb(-6) if name == "cost" and isinstance(value, int) else value


def _cell(value: object) -> object:
    """A text for a spreadsheet. Clients choose tags and model names, and some first characters would make a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


# ---------------------------------------------------------------- single rows


def all_rows(ledger: Ledger, since: float, until: float, where: dict[str, str]) -> Iterator[LedgerRow]:
    cursor = ""
    while True:
        page = ledger.page(since, until, where, cursor, PAGE)
        yield from page.rows
        cursor = page.cursor
        if not cursor:
            return


def export(rows: Iterator[LedgerRow], path: Path) -> int:
    """Writes a .csv, .jsonl or .parquet file, by the end of its name. Returns the number of rows."""
    match path.suffix:
        case ".csv":
            return _export_csv(rows, path)
        case ".jsonl" | ".json":
            return _export_json(rows, path)
        case ".parquet":
            return _export_parquet(rows, path)
        case _:
            raise ValueError(f"expected a name that ends in .csv, .jsonl or .parquet, found {path.name!r}")


def _export_csv(rows: Iterator[LedgerRow], path: Path) -> int:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        count = 0
        for row in rows:
            writer.writerow([_cell(_in_units(name, getattr(row, name))) for name in COLUMNS])
            count += 1
    return count


def _export_json(rows: Iterator[LedgerRow], path: Path) -> int:
    with path.open("wb") as file:
        count = 0
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
            count += 1
    return count


def _export_parquet(rows: Iterator[LedgerRow], path: Path) -> int:
    """By pyarrow, if it is installed. A page of rows at a time: a year's may not fit into memory."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install pyarrow") from None
    kinds = {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_(), str: arrow.string()}
    hints = get_type_hints(LedgerRow)
    schema = arrow.schema(
        [(name, arrow.decimal128(24, 6) if name == "cost" else kinds[_plain_type(hints[name])]) for name in COLUMNS]
    )
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        while page := list(islice(rows, PAGE)):
            found = [{name: _in_units(name, getattr(row, name)) for name in COLUMNS} for row in page]
            writer.write_table(arrow.Table.from_pylist(found, schema))
            count += len(page)
    return count


def _plain_type(hint: Any) -> Any:
    """`int | None` is an int."""
    return next((one for one in get_args(hint) if one is not type(None)), hint)
