"""Attempts: where one request has been and where it may still go. It decides nothing; `Sender.ask` asks it."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from dragoman.failure import Failure
from dragoman.upstream.key_ring import Key
from dragoman.upstream.retry import RetryBudget
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState

Pair = tuple[UpstreamState, Target]
NOBODY: frozenset[int] = frozenset()


class Attempts:
    __slots__ = ("_budget", "_targets", "_tried", "attempts", "first", "left")

    def __init__(self, targets: Sequence[Pair]) -> None:
        self._targets = targets
        self.left = list(targets)
        self.attempts = 0
        self.first: tuple[Target, Failure, str] | None = None  # who failed first, how, and its name
        self._tried: dict[tuple[str, str], set[int]] = {}  # keys by upstream and model
        self._budget: RetryBudget | None = None

    def tried(self, state: UpstreamState, target: Target) -> AbstractSet[int]:
        return self._tried.get((state.spec.name, target.model), NOBODY) if self._tried else NOBODY

    def to_tell(self, target: Target, failure: Failure, name: str) -> tuple[Failure, str]:
        """What the client hears in the end, and of whom: a fallback whose window is too small hides nothing, the
        client's way to go on is in what the first one said (FIELD-CASES 149)."""
        if self.first is None:
            self.first = (target, failure, name)
        asked, before, its_name = self.first
        return (before, its_name) if failure.kind == "too_long" and asked is not target else (failure, name)

    def others(self, target: Target) -> list[Pair]:
        return [pair for pair in self.left if pair[1] is not target]

    def has_other_key(self, state: UpstreamState, target: Target, key: Key) -> bool:
        usable = [known for known in state.keys.keys if not known.disabled]
        return len(usable) > len(self.tried(state, target) | {key.number})

    def go_on(self, state: UpstreamState, target: Target, key: Key, now: float) -> None:
        """Another key here if there is one, else the other targets."""
        here = self._tried.setdefault((state.spec.name, target.model), set())
        here.add(key.number)
        others = self.others(target)
        if others and state.pick(target.model, now, here) is None:
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
