"""The agent loop: model turn, tool calls in parallel, results, next turn, until there is nothing left to call.

steps.py    Limits, and what a reader of the loop sees: Step and its kinds
loop.py     decides (pure: state and what happened -> what to do)
driver.py   does: asks a Model, runs a Toolbox
onestream.py  all turns as one stream of events, for those who want to see one answer
"""

from dragoman.agent.driver import Model, run_loop
from dragoman.agent.onestream import OneStream
from dragoman.agent.steps import (
    CallFinished,
    CallStarted,
    Heard,
    Limits,
    Price,
    Step,
    Stopped,
    StopReason,
    TurnDone,
    TurnStarted,
)
from dragoman.tools.toolbox import Toolbox

__all__ = [
    "CallFinished",
    "CallStarted",
    "Heard",
    "Limits",
    "Model",
    "OneStream",
    "Price",
    "Step",
    "StopReason",
    "Stopped",
    "Toolbox",
    "TurnDone",
    "TurnStarted",
    "run_loop",
]
