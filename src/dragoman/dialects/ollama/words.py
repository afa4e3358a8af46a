"""Ollama: its words and ours. https://github.com/ollama/ollama api/types.go at fb30760 (read 2026-11-15)"""

from typing import Literal, TypeAlias

from dragoman.model.messages import Extras, Role
from dragoman.model.reply import FinishReason

NAME = "ollama"

CHAT_PATH = "/api/chat"
GENERATE_PATH = "/api/generate"

# Ollama lower-cases roles and passes them to the model's template. Templates know these roles.
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "developer": "developer"}
ROLE_WORDS: dict[Role, str] = {"system": "system", "user": "user", "assistant": "assistant", "developer": "system"}
TOOL_ROLE = "tool"  # here a turn of its own, in the canonical form a part of the user's turn

FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
# A call ends with `stop` (FIELD-CASES 16). An answer that is not complete never ends with `stop` (FIELD-CASES 31).
FINISH_WORDS: dict[FinishReason, str] = {
    "stop": "stop",
    "sequence": "stop",
    "length": "length",
    "context": "length",
    "tool_call": "stop",
    "filter": "length",
    "refusal": "length",
    "pause": "length",
    "malformed": "length",
    "other": "length",
}

OptionKind: TypeAlias = Literal["number", "whole", "limit", "texts"]
# Options that other dialects have too: name -> our field, and the values that we take.
OPTIONS: dict[str, tuple[str, OptionKind]] = {
    "num_predict": ("max_output", "limit"),  # -1 (no limit) and -2 (until the context is full) are Ollama's own
    "temperature": ("temperature", "number"),
    "top_p": ("top_p", "number"),
    "top_k": ("top_k", "whole"),
    "min_p": ("min_p", "number"),
    "seed": ("seed", "whole"),
    "frequency_penalty": ("frequency_penalty", "number"),
    "presence_penalty": ("presence_penalty", "number"),
    "stop": ("stop", "texts"),
}

# The levels of `think` ("must be high, medium, low, max, true, or false").
LEVELS = ("low", "medium", "high", "max")
LEVEL_OF_EFFORT: dict[str, str] = {level: level for level in LEVELS} | {"minimal": "low", "xhigh": "max"}

# Keys of a generate request with values that mean nothing. Older clients always send them.
EMPTY: dict[str, object] = {"suffix": "", "template": "", "context": [], "raw": False}

FORM = "~form"  # spelling: `generate` if the request came over /api/generate
GENERATE = "generate"


def says_generate(extras: Extras) -> bool:
    own = extras.get(NAME)
    return own is not None and own.get(FORM) == GENERATE
