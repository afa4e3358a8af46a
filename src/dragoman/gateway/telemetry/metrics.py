"""Metrics in Prometheus' text form, https://prometheus.io/docs/instrumenting/exposition_formats/ (read 2026-11-15).

Labels are names from the configuration and closed sets. Where a client could make up names, their number is bounded
(T45).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct

from dragoman.accounts.money import MICROS
from dragoman.accounts.prices import Cost
from dragoman.model.reply import Usage
from dragoman.note_ranks import FoldedNote
from dragoman.upstream.read_reply import MOST_TOKENS

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
MOST_SERIES = 500  # of one counter: names of failures come from upstreams, and some models' names from clients
OTHER = "other"  # the series for all further names


Gauge: TypeAlias = tuple[str, dict[str, str], float]
K = TypeVar("K")


class Counts(Struct, kw_only=True):
    """All counters of one process, and its gauges, for the worker that puts them together."""

    worker: int = 0
    requests: list[tuple[tuple[str, str, int], int]] = []
    attempts: list[tuple[tuple[str, str], int]] = []
    models: list[tuple[tuple[str, str, str], int]] = []
    tokens: list[tuple[tuple[str, str, str], int]] = []
    costs: list[tuple[tuple[str, str, str, str], int]] = []
    keys: list[tuple[tuple[str, str], int]] = []
    notes: list[tuple[str, int]] = []
    seconds: list[tuple[str, list[int], float]] = []
    first: list[tuple[str, list[int], float]] = []
    left: int = 0
    gauges: list[Gauge] = []


class Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.total += value


class Metrics:
    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}  # door, upstream, status
        self.attempts: dict[tuple[str, str], int] = {}  # upstream, how it ended
        self.models: dict[tuple[str, str, str], int] = {}  # door, upstream, model
        self.tokens: dict[tuple[str, str, str], int] = {}  # upstream, model, kind
        self.seconds: dict[str, Histogram] = {}  # door
        self.first: dict[str, Histogram] = {}
        self.costs: dict[tuple[str, str, str, str], int] = {}  # upstream, model, team, currency: micro-units
        self.keys: dict[tuple[str, str], int] = {}  # key, team
        self.notes: dict[str, int] = {}
        self.running = 0
        self.left = 0  # clients that left before their answer

    def request(self, door: str, upstream: str, status: int, seconds: float) -> None:
        key = (door, upstream, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        found = self.seconds.get(door) or self._histogram(self.seconds, door)
        found.counts[bisect_left(BOUNDS, seconds)] += 1
        found.total += seconds

    def first_byte(self, door: str, seconds: float) -> None:
        self._histogram(self.first, door).add(seconds)

    def attempt(self, upstream: str, ended: str) -> None:
        at = (upstream, ended)
        if at not in self.attempts and len(self.attempts) >= MOST_SERIES:
            at = (upstream, OTHER)
        self.attempts[at] = self.attempts.get(at, 0) + 1

    def model(self, door: str, upstream: str, model: str) -> str:
        """Counts an answer of a model. Its name, or "other": some servers take any name that a client makes up."""
        at = (door, upstream, model)
        if at not in self.models and len(self.models) >= MOST_SERIES:
            at = (door, upstream, OTHER)
        self.models[at] = self.models.get(at, 0) + 1
        return at[2]

    def usage(self, upstream: str, model: str, usage: Usage) -> None:
        tokens = self.tokens
        for kind, count in (
            ("input", usage.input),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
            ("output", usage.output),
            ("reasoning", usage.reasoning),
        ):
            if count and 0 < count < MOST_TOKENS:  # a counter only grows; upstreams may report nonsense
                at = (upstream, model, kind)
                tokens[at] = tokens.get(at, 0) + count

    def note_kinds(self, notes: Sequence[FoldedNote]) -> None:
        for row in notes:
            self.notes[row.first.kind] = self.notes.get(row.first.kind, 0) + row.places

    def cost(self, upstream: str, model: str, team: str, cost: Cost) -> None:
        at = (upstream, model, team, cost.currency)
        if at not in self.costs and len(self.costs) >= MOST_SERIES:
            at = (upstream, OTHER, OTHER, cost.currency)
        self.costs[at] = self.costs.get(at, 0) + cost.micros

    def key(self, key: str, team: str) -> None:
        """Requests by key. Keys are made by an admin, and beyond a number they are one."""
        at = (key, team) if (key, team) in self.keys or len(self.keys) < MOST_SERIES else (OTHER, OTHER)
        self.keys[at] = self.keys.get(at, 0) + 1

    def dump(self) -> Counts:
        return Counts(
            requests=list(self.requests.items()),
            attempts=list(self.attempts.items()),
            models=list(self.models.items()),
            tokens=list(self.tokens.items()),
            costs=list(self.costs.items()),
            keys=list(self.keys.items()),
            notes=list(self.notes.items()),
            seconds=[(door, found.counts, found.total) for door, found in self.seconds.items()],
            first=[(door, found.counts, found.total) for door, found in self.first.items()],
            left=self.left,
        )

    def add(self, other: Counts) -> None:
        """Counts of another process, or of the one before this."""
        _add(self.requests, other.requests)
        _add(self.attempts, other.attempts)
        _add(self.models, other.models)
        _add(self.tokens, other.tokens)
        _add(self.costs, other.costs)
        _add(self.keys, other.keys)
        _add(self.notes, other.notes)
        self.left += other.left
        for table, rows in ((self.seconds, other.seconds), (self.first, other.first)):
            for door, counts, total in rows:
                found = self._histogram(table, door)
                found.counts = [one + two for one, two in zip(found.counts, counts, strict=False)]
                found.total += total

    def _histogram(self, table: dict[str, Histogram], door: str) -> Histogram:
        found = table.get(door)
        if found is None:
            found = table[door] = Histogram()
        return found

    def text(self, gauges: Iterable[Gauge], words: dict[str, str]) -> str:
        lines: list[str] = []
        _counter(lines, "dragoman_requests_total", "requests answered", {
            _labels(door=d, upstream=u, status=str(s)): n for (d, u, s), n in self.requests.items()
        })  # fmt: skip
        _counter(lines, "dragoman_attempts_total", "requests sent to upstreams", {
            _labels(upstream=u, ended=e): n for (u, e), n in self.attempts.items()
        })  # fmt: skip
        _counter(lines, "dragoman_tokens_total", "tokens as upstreams count them", {
            _labels(upstream=u, model=m, kind=k): n for (u, m, k), n in self.tokens.items()
        })  # fmt: skip
        _counter(lines, "dragoman_answers_total", "answers of models", {
            _labels(door=d, upstream=u, model=m): n for (d, u, m), n in self.models.items()
        })  # fmt: skip
        _counter(lines, "dragoman_notes_total", "things lost, changed, made up or mended", {
            _labels(kind=k): n for k, n in self.notes.items()
        })  # fmt: skip
        _counter(lines, "dragoman_cost_total", "money spent, by prices and token counts", {
            _labels(upstream=u, model=m, team=t, currency=c): n / MICROS for (u, m, t, c), n in self.costs.items()
        })  # fmt: skip
        _counter(lines, "dragoman_key_requests_total", "requests by key", {
            _labels(key=k, team=t): n for (k, t), n in self.keys.items()
        })  # fmt: skip
        _counter(lines, "dragoman_clients_left_total", "clients that left before their answer", {"": self.left})
        _histogram(lines, "dragoman_request_seconds", "from request to last byte", self.seconds)
        _histogram(lines, "dragoman_first_byte_seconds", "from request to first byte of a stream", self.first)
        seen: set[str] = set()
        for name, labels, value in gauges:
            if name not in seen:
                seen.add(name)
                lines += [f"# HELP {name} {words.get(name, name)}", f"# TYPE {name} gauge"]
            lines.append(f"{name}{_labels(**labels)} {_number(value)}")
        return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    if not labels:
        return ""
    escaped = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(escaped) + "}"


def _number(value: float) -> str:
    """Writes all digits: a rounded sum of seconds would stop growing."""
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def _counter(lines: list[str], name: str, what: str, values: Mapping[str, float]) -> None:
    lines += [f"# HELP {name} {what}", f"# TYPE {name} counter"]
    lines += [f"{name}{labels} {_number(value)}" for labels, value in values.items()]


def _add(table: dict[K, int], rows: list[tuple[K, int]]) -> None:
    for key, count in rows:
        table[key] = table.get(key, 0) + count


def _histogram(lines: list[str], name: str, what: str, table: dict[str, Histogram]) -> None:
    lines += [f"# HELP {name} {what}", f"# TYPE {name} histogram"]
    for door, histogram in table.items():
        running = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.counts, strict=True):
            running += count
            lines.append(f"{name}_bucket{_labels(door=door, le=bound)} {running}")
        lines.append(f"{name}_sum{_labels(door=door)} {_number(histogram.total)}")
        lines.append(f"{name}_count{_labels(door=door)} {running}")
