"""Ollama: its words and ours. https://github.com/ollama/ollama api/types.go at fb30760 (read 2026-11-15)"""

from typing import Literal, TypeAlias

from dragoman.model.messages import Extras, Role
from dragoman.model.reply import FinishReason

NAME = "ollama"

CHAT_PATH = "/api/chat"
GENERATE_PATH = "/api/generate"

# Ollama lower-cases roles and leaves them to the model's template; these are the ones templates know.
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "developer": "developer"}
ROLE_WORDS: dict[Role, str] = {"system": "system", "user": "user", "assistant": "assistant", "developer": "system"}
TOOL_ROLE = "tool"  # a turn of its own here, a part of the user's turn in the canonical form

FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
# A call ends with `stop` (FIELD-CASES 16). Ollama has two words: an answer that is not whole is never `stop` (31).
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

Kind: TypeAlias = Literal["number", "whole", "limit", "texts"]
# options that other dialects know too: name -> our field, and what it must be to be taken
OPTIONS: dict[str, tuple[str, Kind]] = {
    "num_predict": ("max_output", "limit"),  # -1 and -2 are Ollama's own: without end, until the context is full
    "temperature": ("temperature", "number"),
    "top_p": ("top_p", "number"),
    "top_k": ("top_k", "whole"),
    "min_p": ("min_p", "number"),
    "seed": ("seed", "whole"),
    "frequency_penalty": ("frequency_penalty", "number"),
    "presence_penalty": ("presence_penalty", "number"),
    "stop": ("stop", "texts"),
}

# `think` as a level ("must be high, medium, low, max, true, or false")
LEVELS = ("low", "medium", "high", "max")
LEVEL_OF_EFFORT: dict[str, str] = {level: level for level in LEVELS} | {"minimal": "low", "xhigh": "max"}

# keys of a generate request that say nothing with these values; older clients always send them
EMPTY: dict[str, object] = {"suffix": "", "template": "", "context": [], "raw": False}

FORM = "~form"  # spelling: `generate` for what came over /api/generate
GENERATE = "generate"


def says_generate(extras: Extras) -> bool:
    own = extras.get(NAME)
    return own is not None and own.get(FORM) == GENERATE
