"""The turns most conversations consist of: a text; a text and calls; the result of a call.

An encoder looks at each turn the short way first. What is usual has nothing beside its words: nothing to spell, nothing
to lose, so a dialect writes it in a few steps. The long way is right for every turn; the short one only saves time.
"""

from collections.abc import Callable
from typing import TypeAlias, cast

from dragoman.dialects._tools import FAILED
from dragoman.fields import is_silent
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Extras, Message, Part, Text, ToolCall, ToolResult
from dragoman.notes import At, Notes

EncodeTurn: TypeAlias = Callable[[Message, At, Notes], list[JsonObject]]
EncodeUsual: TypeAlias = Callable[[Message, At, Notes], JsonObject | list[JsonObject] | None]


def encode_turns(
    messages: tuple[Message, ...],
    first: int,
    dialect: str,
    usual: EncodeUsual,
    whole: EncodeTurn,
    at: At,
    notes: Notes,
) -> list[JsonObject]:
    """Every turn from the first one on, the short way where there is one. `at` is the place of the turns."""
    turns: list[JsonObject] = []
    silent: Extras = {}  # extras found to have nothing for us; turns of one wire mostly share them
    for i, message in enumerate(messages[first:] if first else messages, first):
        extras = message.extras
        said = None
        if not extras or extras is silent:  # fast path: usual turn
            said = usual(message, (at, i), notes)
        elif is_silent(extras, dialect):  # fast path: usual turn
            silent = extras
            said = usual(message, (at, i), notes)
        if said is None:
            turns.extend(whole(message, (at, i), notes))
        elif type(said) is list:
            turns.extend(said)
        else:  # mostly a turn is one message
            turns.append(cast("JsonObject", said))
    return turns


def usual_text(part: Part) -> str | None:
    """The words of a part that is nothing else; None for an empty text and for every other part."""
    if type(part) is not Text or part.extras or part.cache or part.citations or part.seal or part.logprobs is not None:
        return None
    return part.text or None


def usual_calls(parts: tuple[Part, ...], first: int, dialect: str) -> tuple[ToolCall, ...] | None:
    """The parts from the first one on, if they are calls and nothing else."""
    calls = parts[first:] if first else parts
    for part in calls:
        if type(part) is not ToolCall or part.freeform or part.seal or part.cache:
            return None
        if part.extras and not is_silent(part.extras, dialect):
            return None
    return cast("tuple[ToolCall, ...]", calls)


def usual_result(part: ToolResult, dialect: str) -> str | None:
    """The words of a result that is nothing but words and perhaps a name, and does not look like a failed one."""
    if len(part.parts) != 1 or part.failed is not None or part.cache or part.freeform:
        return None
    if part.extras and not is_silent(part.extras, dialect):
        return None
    inner = part.parts[0]  # `usual_text`, spelled out here to spare a call
    if type(inner) is not Text or inner.extras or inner.cache or inner.citations or inner.seal:
        return None
    text = inner.text
    return None if not text or inner.logprobs is not None or text.startswith(FAILED) else text
