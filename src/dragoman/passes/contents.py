"""What a request contains, found in one walk: a pass that is about nothing of it is left out."""

from msgspec import Struct

from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.request import Request, Tool

ANYTHING = "anything"
SEAL = "a seal"
CACHE_MARK = "a cache mark"
INNER_MARK = "a cache mark in a result"
EMPTY_TURN = "an empty turn"
NEIGHBOURS = "two turns of one role, one after the other"
SPLIT_ANSWER = "two turns of the assistant, one after the other"
LATER_INSTRUCTIONS = "a turn of instructions that is not the first turn"
FREEFORM = "a call or result in free text"
LOOSE = "a call that is not followed by its result, in the order of the calls"
NAMED_RESULT = "a result that names its tool"
NESTED_RESULT = "a result in a result"
FAILED_RESULT = "a result that failed"
TURN_KEYS = "a key of the target's own on a turn or a result"
MEDIA = frozenset({Image, Document, Audio, Video, Opaque, NESTED_RESULT})  # handled by the same passes
CALLS = frozenset({ToolCall, ToolResult})
INSTRUCTIONS = frozenset({"system", "developer"})


class Contents(Struct):
    messages: tuple[Message, ...]
    kinds: set[object]  # roles, kinds of parts, and the words above
    calls: list[ToolCall]  # in order
    own_calls: bool  # all of them are in turns of the assistant
    marked: list[int]  # the turns with cache marks, once for each mark

    def find_own_ids(self) -> frozenset[str] | None:
        """The ids of the assistant's calls; None if others make calls, too."""
        return frozenset([call.id for call in self.calls]) if self.own_calls else None

    def find_names(self) -> dict[str, None] | None:
        """The names in the calls, in order; None if results have names of their own."""
        return None if NAMED_RESULT in self.kinds else dict.fromkeys([call.name for call in self.calls])


def find_contents(request: Request, dialect: str) -> Contents:
    """`dialect`: the target's.

    The most frequent kinds come first, each with lines of its own: Python reads a field of one type faster than a field
    of several types."""
    found: set[object] = {ANYTHING}
    add = found.add
    calls: list[ToolCall] = []
    own_calls = True
    pending: list[str] = []  # ids of calls whose results have not come
    answering = loose = False
    before = ""
    marked: list[int] = []
    for i, message in enumerate(request.messages):
        role = message.role
        if role == before:
            add(NEIGHBOURS)
        if role == "assistant":
            if before == "assistant":
                add(SPLIT_ANSWER)
            if answering:
                loose = loose or bool(pending)
                answering = False
        elif role != "user" and i:
            add(LATER_INSTRUCTIONS)
        add(role)
        before = role
        if dialect in message.extras:
            add(TURN_KEYS)
        parts = message.parts
        if not parts:
            add(EMPTY_TURN)
        for part in parts:
            kind = type(part)
            add(kind)
            if kind is Text:
                if part.seal is not None:  # type: ignore[union-attr]
                    add(SEAL)
                if part.cache is not None:  # type: ignore[union-attr]
                    marked.append(i)
            elif kind is ToolCall:
                calls.append(part)  # type: ignore[arg-type]
                pending.append(part.id)  # type: ignore[union-attr, arg-type]
                if role != "assistant":
                    own_calls = False
                if part.seal is not None:  # type: ignore[union-attr]
                    add(SEAL)
                if part.cache is not None:  # type: ignore[union-attr]
                    marked.append(i)
                if part.freeform:  # type: ignore[union-attr]
                    add(FREEFORM)
                continue
            elif kind is ToolResult:
                if role == "user" and pending and pending[0] == part.call_id:  # type: ignore[union-attr]
                    del pending[0]
                    answering = True
                else:
                    loose = True
                if part.name is not None:  # type: ignore[union-attr]
                    add(NAMED_RESULT)
                if part.cache is not None:  # type: ignore[union-attr]
                    marked.append(i)
                if part.freeform:  # type: ignore[union-attr]
                    add(FREEFORM)
                if part.failed:  # type: ignore[union-attr]
                    add(FAILED_RESULT)
                if dialect in part.extras:  # type: ignore[union-attr]
                    add(TURN_KEYS)
                for inner in part.parts:  # type: ignore[union-attr]
                    if type(inner) is Text:
                        if inner.cache is not None:
                            add(CACHE_MARK)
                            add(INNER_MARK)
                        continue
                    add(NESTED_RESULT if type(inner) is ToolResult else type(inner))
                    if getattr(inner, "cache", None) is not None:
                        add(CACHE_MARK)
                        add(INNER_MARK)
                continue
            elif kind is not Reasoning:
                if getattr(part, "seal", None) is not None:
                    add(SEAL)
                if getattr(part, "cache", None) is not None:
                    marked.append(i)
            if pending and role != "assistant":
                loose = True
    if loose or pending or not own_calls:
        add(LOOSE)
    if marked or request.cache is not None:
        add(CACHE_MARK)
    for tool in request.tools or ():
        if type(tool) is not Tool:
            add(type(tool))
        elif tool.cache is not None:
            add(CACHE_MARK)
    return Contents(request.messages, found, calls, own_calls, marked)
