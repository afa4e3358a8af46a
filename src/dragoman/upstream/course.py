"""Course: where one request has been and where it may still go. It decides nothing; `Sender.ask` asks it."""

from collections.abc import Sequence

from dragoman.upstream.keys import Key
from dragoman.upstream.retry import RetryBudget
from dragoman.upstream.spec import Target
from dragoman.upstream.station import Station

Pair = tuple[Station, Target]


class Course:
    __slots__ = ("_budget", "_targets", "_tried", "attempts", "left")

    def __init__(self, targets: Sequence[Pair]) -> None:
        self._targets = targets
        self.left = list(targets)
        self.attempts = 0
        self._tried: dict[tuple[str, str], set[int]] = {}  # keys by upstream and model
        self._budget: RetryBudget | None = None

    def tried(self, station: Station, target: Target) -> set[int]:
        return self._tried.setdefault((station.spec.name, target.model), set())

    def others(self, target: Target) -> list[Pair]:
        return [pair for pair in self.left if pair[1] is not target]

    def has_other_key(self, station: Station, target: Target, key: Key) -> bool:
        usable = [known for known in station.keys.keys if not known.disabled]
        return len(usable) > len(self.tried(station, target) | {key.number})

    def go_on(self, station: Station, target: Target, key: Key, now: float) -> None:
        """Another key here if there is one, else the other targets."""
        here = self.tried(station, target)
        here.add(key.number)
        others = self.others(target)
        if others and station.pick(target.model, now, here) is None:
            self.left = others

    def start_again(self, budget: RetryBudget) -> None:
        """Everybody was asked: whoever may be asked first is asked once more."""
        self.left = list(self._targets)
        self._tried = {}
        self.hold(budget)

    def hold(self, budget: RetryBudget) -> None:
        """The same upstream gets the same again: that counts until it is over, the wait before it included (P6)."""
        self._budget = budget
        budget.retrying += 1

    def free(self) -> None:
        if self._budget is not None:
            self._budget.retrying -= 1
            self._budget = None
