"""The agent loop: model turn, tool calls in parallel, results, next turn, until the model makes no more calls.

steps.py        Limits, and the steps that a caller of the loop sees
loop.py         the decisions, as a pure function
driver.py       carries the decisions out: asks a Model, runs the tools of a Toolbox
merge_turns.py  all turns as the events of one Reply
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.agent.merge_turns import TurnMerger
from dragoman.agent.steps import (
    CallFinished,
    CallStarted,
    Limits,
    Price,
    Step,
    Stopped,
    StopReason,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)

if TYPE_CHECKING:
    from dragoman.agent.driver import Model, run_loop
    from dragoman.tools.toolbox import Toolbox

# Where the names live that are loaded on first use: a gateway that runs no loop needs none of them.
_HOMES = {"Model": "agent.driver", "run_loop": "agent.driver", "Toolbox": "tools.toolbox"}

__all__ = [
    "CallFinished",
    "CallStarted",
    "Limits",
    "Model",
    "Price",
    "Step",
    "StopReason",
    "Stopped",
    "Toolbox",
    "TurnEvent",
    "TurnFinished",
    "TurnMerger",
    "TurnStarted",
    "run_loop",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dragoman.agent' has no attribute {name!r}")
    found = getattr(import_module(f"dragoman.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
