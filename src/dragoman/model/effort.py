"""Effort and budget: one scale for how much a model should think, in words and in tokens.

The numbers are our convention (no vendor states one): protocols' crosswalk, "Effort / budget", read 2026-11-15.
"""

from collections.abc import Sequence

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 32768}
_UP_TO = ((1024, "minimal"), (4096, "low"), (12288, "medium"), (24576, "high"))


def effort_of_budget(budget: int) -> str:
    """The word nearest to a number of tokens."""
    for limit, effort in _UP_TO:
        if budget <= limit:
            return effort
    return "xhigh"


def budget_of_effort(effort: str) -> int:
    return BUDGETS.get(effort, BUDGETS["medium"])


def lowest_known(effort: str, known: Sequence[str]) -> str:
    """The effort itself if the target knows it, else its nearest neighbour on the scale, the lower one first."""
    if effort in known or effort not in EFFORTS:
        return effort
    place = EFFORTS.index(effort)
    for lower in reversed(EFFORTS[:place]):
        if lower in known:
            return lower
    return next((higher for higher in EFFORTS[place:] if higher in known), effort)
