"""A fast path for the most frequent turns: a text; a text and calls; the result of a call.

Reading: a dialect describes its usual turns as classes, and a list of them is read in one step (`TurnReader`).
Writing: a dialect first tries its fast encoder. It handles turns that have only text: no extras and nothing to lose.
The whole encoder is right for every turn; the fast one only saves time.
"""

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.dialects._tools import FAILED
from dragoman.fields import is_silent
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Extras, Message, Part, Text, ToolCall, ToolResult
from dragoman.notes import At, Notes

T = TypeVar("T")
MOST_AT_ONCE = 512 * 1024  # bytes: no other thread runs while they are read in one call, for about 0.2 ms


class TurnReader(Generic[T]):
    """Reads lists of turns of one class."""

    def __init__(self, kind: type[T]) -> None:
        self._read = msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._read_packed = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._read_one = msgspec.json.Decoder(kind).decode
        self._split = msgspec.json.Decoder(list[Raw]).decode

    def read(self, data: bytes | Raw, *, packed: bool) -> list[T] | None:
        """None if a turn is unusual, or no turn. `packed`: it is MessagePack, not JSON."""
        try:
            if packed:
                return self._read_packed(data)
            if len(memoryview(data)) > MOST_AT_ONCE:
                return [self._read_one(item) for item in self._split(data)]
            return self._read(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


EncodeTurn: TypeAlias = Callable[[Message, At, Notes], list[JsonObject]]
EncodeFast: TypeAlias = Callable[[Message, At, Notes], JsonObject | list[JsonObject] | None]


def encode_turns(
    messages: tuple[Message, ...],
    first: int,
    dialect: str,
    fast: EncodeFast,
    whole: EncodeTurn,
    at: At,
    notes: Notes,
) -> list[JsonObject]:
    """Encode every turn from index `first` on, with `fast` where it works, else with `whole`. `at` is the place of the
    list of turns."""
    turns: list[JsonObject] = []
    silent: Extras = {}  # extras without anything for this dialect; turns of one request mostly share them
    for i, message in enumerate(messages[first:] if first else messages, first):
        extras = message.extras
        encoded = None
        if not extras or extras is silent:  # fast path: frequent turn
            encoded = fast(message, (at, i), notes)
        elif is_silent(extras, dialect):  # fast path: frequent turn
            silent = extras
            encoded = fast(message, (at, i), notes)
        if type(encoded) is dict:  # the most frequent case: one message for a turn
            turns.append(encoded)
        else:
            turns.extend(whole(message, (at, i), notes) if encoded is None else encoded)  # type: ignore[arg-type]  # `cast` is a call for each turn
    return turns


def fast_text(part: Part) -> str | None:  # fast path: frequent turn
    """The text of a plain text part. None for an empty text and for every other part."""
    if type(part) is not Text or part.extras or part.cache or part.citations or part.seal or part.logprobs is not None:
        return None
    return part.text or None


def fast_calls(
    parts: tuple[Part, ...], first: int, dialect: str
) -> tuple[ToolCall, ...] | None:  # fast path: frequent turn
    """The parts from index `first` on, if all of them are plain calls. Else None."""
    calls = parts[first:] if first else parts
    for part in calls:
        if type(part) is not ToolCall or part.freeform or part.seal or part.cache:
            return None
        if part.extras and not is_silent(part.extras, dialect):
            return None
    return calls  # type: ignore[return-value]  # `cast` is a call for each turn


def fast_result(part: ToolResult, dialect: str) -> str | None:  # fast path: frequent turn
    """The text of a result that has only a plain text and perhaps a name. None for any other result, and for a text
    that starts with our mark of a failed call."""
    if len(part.parts) != 1 or part.failed is not None or part.cache or part.freeform:
        return None
    if part.extras and not is_silent(part.extras, dialect):
        return None
    inner = part.parts[0]  # the code of `fast_text`, repeated here to save a call
    if type(inner) is not Text or inner.extras or inner.cache or inner.citations or inner.seal:
        return None
    text = inner.text
    return None if not text or inner.logprobs is not None or text.startswith(FAILED) else text
