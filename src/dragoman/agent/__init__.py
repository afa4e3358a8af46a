"""The agent loop: model turn, tool calls in parallel, results, next turn, until the model makes no more calls.

steps.py        Limits, and the steps that a caller of the loop sees
loop.py         the decisions, as a pure function
driver.py       carries the decisions out: asks a Model, runs the tools of a Toolbox
merge_turns.py  all turns as the events of one Reply
"""

from dragoman.agent.driver import Model, run_loop
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
from dragoman.tools.toolbox import Toolbox

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
