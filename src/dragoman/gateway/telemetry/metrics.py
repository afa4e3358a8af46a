"""Metrics in Prometheus' text form, https://prometheus.io/docs/instrumenting/exposition_formats/ (read 2026-11-15).

Labels are names from the configuration and closed sets. Where a client could make up names, their number is bounded
(T45).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct

from dragoman.accounts.money import MICROS
from dragoman.accounts.prices import Cost
from dragoman.model.reply import Usage
from dragoman.note_ranks import FoldedNote
from dragoman.upstream.read_reply import MOST_TOKENS

if TYPE_CHECKING:
    from dragoman.gateway.telemetry.ended import Ended

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
MOST_UNCOUNTED = 256  # requests
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


Alike: TypeAlias = tuple[str, str, int, str, str, str | None, str]  # door, upstream, status, model, key, team, currency


class AlikeCount:
    """Usual requests that are counted together."""

    __slots__ = ("micros", "requests", "seconds", "tokens")

    def __init__(self) -> None:
        self.requests = self.micros = 0
        self.seconds = Histogram()
        self.tokens: dict[str, int] = {}

    def add(self, one: "Ended") -> None:
        self.requests += 1
        seconds, used, tokens = self.seconds, one.usage, self.tokens
        seconds.counts[bisect_left(BOUNDS, one.seconds)] += 1
        seconds.total += one.seconds
        if one.cost is not None:
            self.micros += one.cost.micros
        if used is None:
            return
        for kind, count in list_tokens(used):
            if count and 0 < count < MOST_TOKENS:  # a counter only grows; upstreams may report nonsense
                tokens[kind] = tokens.get(kind, 0) + count


def list_tokens(usage: Usage) -> tuple[tuple[str, int | None], ...]:
    given, answered = ("input", usage.input), ("output", usage.output)
    if usage.cache_read is None and usage.cache_write is None and usage.reasoning is None:
        return given, answered
    cached = ("cache_read", usage.cache_read), ("cache_write", usage.cache_write)
    return given, *cached, answered, ("reasoning", usage.reasoning)


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
        self._ended: deque[Ended] = deque()  # requests that are not counted yet

    # ---------------------------------------------------------------- counting

    def put(self, ended: "Ended") -> None:
        """The request will be counted, at the latest when the counters are read."""
        self._ended.append(ended)
        if len(self._ended) >= MOST_UNCOUNTED:
            self.settle()

    def settle(self) -> None:
        """Counts the requests that have ended. Usual ones that differ in times and tokens only are counted together."""
        groups: dict[Alike, AlikeCount] = {}
        with suppress(IndexError):
            while True:
                one = self._ended.popleft()
                if one.outcomes or one.notes or one.first_s is not None or not one.status or one.answered is None:
                    self._count(one)
                    continue
                cost = one.cost
                currency = cost.currency if cost is not None and cost.micros else ""
                at = (one.door, one.upstream, one.status, one.answered, one.key, one.team, currency)
                group = groups.get(at)
                if group is None:
                    group = groups[at] = AlikeCount()
                group.add(one)
        for at, group in groups.items():
            self._count_group(at, group)

    def _count_group(self, at: "Alike", group: "AlikeCount") -> None:
        door, upstream, status, answered, key, team, currency = at
        many = group.requests
        _add(self.requests, [((door, upstream, status), many)])
        found = self._histogram(self.seconds, door)
        for bucket, count in enumerate(group.seconds.counts):
            found.counts[bucket] += count
        found.total += group.seconds.total
        self.attempt(upstream, "ok", many)
        model = self.model(door, upstream, answered, many)
        _add(self.tokens, [((upstream, model, kind), count) for kind, count in group.tokens.items()])
        if team is not None:
            self.key(key, team, many)
        if currency:
            self.cost(upstream, model, team or "", Cost(group.micros, currency))

    def _count(self, one: "Ended") -> None:
        door, upstream, model, cost = one.door, one.upstream, "", one.cost
        if one.status:
            self.request(door, upstream, one.status, one.seconds)
        else:
            self.left += 1
        if one.first_s is not None:
            self.first_byte(door, one.first_s)
        if not one.outcomes and one.tries:
            self.attempt(upstream, "ok")
        for asked, outcome in one.outcomes:
            self.attempt(asked, outcome)
        if one.answered is not None:
            model = self.model(door, upstream, one.answered)
        if not model and cost is not None and cost.micros:
            model = one.model
        if one.usage is not None:
            self.usage(upstream, model, one.usage)
        if one.team is not None:
            self.key(one.key, one.team)
        if cost is not None and cost.micros:
            self.cost(upstream, model, one.team or "", cost)
        if one.notes:
            self.note_kinds(one.notes)

    def request(self, door: str, upstream: str, status: int, seconds: float) -> None:
        key = (door, upstream, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        found = self.seconds.get(door) or self._histogram(self.seconds, door)
        found.counts[bisect_left(BOUNDS, seconds)] += 1
        found.total += seconds

    def first_byte(self, door: str, seconds: float) -> None:
        self._histogram(self.first, door).add(seconds)

    def attempt(self, upstream: str, ended: str, many: int = 1) -> None:
        at = (upstream, ended)
        if at not in self.attempts and len(self.attempts) >= MOST_SERIES:
            at = (upstream, OTHER)
        self.attempts[at] = self.attempts.get(at, 0) + many

    def model(self, door: str, upstream: str, model: str, many: int = 1) -> str:
        """Counts an answer of a model. Its name, or "other": some servers take any name that a client makes up."""
        at = (door, upstream, model)
        if at not in self.models and len(self.models) >= MOST_SERIES:
            at = (door, upstream, OTHER)
        self.models[at] = self.models.get(at, 0) + many
        return at[2]

    def usage(self, upstream: str, model: str, usage: Usage) -> None:
        tokens = self.tokens
        for kind, count in list_tokens(usage):
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

    def key(self, key: str, team: str, many: int = 1) -> None:
        """Requests by key. Keys are made by an admin, and beyond a number they are one."""
        at = (key, team) if (key, team) in self.keys or len(self.keys) < MOST_SERIES else (OTHER, OTHER)
        self.keys[at] = self.keys.get(at, 0) + many

    # ---------------------------------------------------------------- reading

    def dump(self) -> Counts:
        self.settle()
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
        self.settle()
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
        self.settle()
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
