"""Goals of the bench: what was measured, what was wanted, and whether it was met."""

from typing import NamedTuple


class Goal(NamedTuple):
    name: str
    value: float
    wanted: float
    unit: str
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.wanted if self.at_least else self.value <= self.wanted

    def __str__(self) -> str:
        sign, word = ">=" if self.at_least else "<=", "met" if self.met else "MISSED"
        value = f"{self.value:,.2f}" if self.value < 100 else f"{self.value:,.0f}"
        return f"{self.name:58}{value:>9} {self.unit:9}{sign} {self.wanted:<7g}{word}"


class Goals:
    def __init__(self) -> None:
        self.all: list[Goal] = []
        self._told = 0

    def add(self, name: str, value: float, wanted: float, unit: str = "times", *, at_least: bool = False) -> None:
        self.all.append(Goal(name, value, wanted, unit, at_least))
        self._tell()

    def later(self, name: str, value: float, wanted: float, unit: str = "times", *, at_least: bool = False) -> None:
        """The same, printed at the end: something else is being printed."""
        self.all.append(Goal(name, value, wanted, unit, at_least))

    def _tell(self) -> None:
        while self._told < len(self.all):
            print(self.all[self._told], flush=True)
            self._told += 1

    def end(self) -> int:
        """The exit code: 1 if one was missed."""
        self._tell()
        missed = [goal for goal in self.all if not goal.met]
        print(f"\n{len(self.all) - len(missed)} of {len(self.all)} goals met" + "".join(f"\n  {g}" for g in missed))
        return 1 if missed else 0
