"""Finds in one walk what a request contains, so that a pass about anything else is not run."""

from msgspec import Struct

from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.request import AnyTool, Request, Tool

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
NEXT = frozenset({NEIGHBOURS})
SPLIT = NEXT | {SPLIT_ANSWER}
INNER_MARKS = frozenset({CACHE_MARK, INNER_MARK})


def count_lead(messages: tuple[Message, ...]) -> int:
    """How many system turns a conversation begins with."""
    lead = 0
    while lead < len(messages) and messages[lead].role in INSTRUCTIONS:
        lead += 1
    return lead


class Contents(Struct):
    messages: tuple[Message, ...]
    tools: tuple[AnyTool, ...] | None
    marked_tools: bool  # some of them have cache marks
    kinds: set[object]  # roles, kinds of parts, and the words above
    calls: list[ToolCall]  # in order
    own_calls: bool  # all of them are in turns of the assistant
    marked: list[int]  # the turns with cache marks, once for each mark
    ids: frozenset[str]  # of all calls

    def are_of(self, request: Request) -> bool:
        """Whether the request has still these turns and tools."""
        return self.messages is request.messages and self.tools is request.tools

    def find_own_ids(self) -> frozenset[str] | None:
        """The ids of the assistant's calls; None if others make calls, too."""
        return self.ids if self.own_calls else None

    def find_names(self) -> dict[str, None] | None:
        """The names in the calls, in order; None if results have names of their own."""
        return None if NAMED_RESULT in self.kinds else dict.fromkeys([call.name for call in self.calls])


def find_contents(request: Request, dialect: str) -> Contents:
    """`dialect`: the target's. The most frequent kinds of parts have lines of their own: that is faster."""
    found: set[object] = {ANYTHING, Text}  # hardly any has no text
    add = found.add
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    marked: list[int] = []
    pending: list[str] = []  # ids of calls whose results have not come
    own_calls, answering, loose, before = True, False, False, ""
    for i, message in enumerate(request.messages):
        role, parts = message.role, message.parts
        if role != before:
            add(role)
        else:
            found.update(SPLIT if role == "assistant" else NEXT)
        if role == "assistant":
            if answering:
                loose, answering = loose or bool(pending), False
        elif role != "user" and i:
            add(LATER_INSTRUCTIONS)
        before = role
        if not parts:
            add(EMPTY_TURN)
        if message.extras and dialect in message.extras:
            add(TURN_KEYS)
        for part in parts:
            kind = type(part)
            if kind is Text:
                if part.cache is not None or part.seal is not None:  # type: ignore[union-attr]
                    _add_marks(part, i, found, marked)
            elif kind is ToolCall:
                calls.append(part)  # type: ignore[arg-type]
                pending.append(part.id)  # type: ignore[union-attr, arg-type]
                own_calls = own_calls and role == "assistant"
                if part.cache is not None:  # type: ignore[union-attr]
                    marked.append(i)
                continue
            elif kind is ToolResult:
                results.append(part)  # type: ignore[arg-type]
                if part.cache is not None:  # type: ignore[union-attr]
                    marked.append(i)
                if role == "user" and pending and pending[0] == part.call_id:  # type: ignore[union-attr]
                    del pending[0]
                    answering = True
                else:
                    loose = True
                continue
            else:
                add(kind)
                if kind is not Reasoning:
                    _add_marks(part, i, found, marked)
            if pending and role != "assistant":
                loose = True
    if loose or pending or not own_calls:
        add(LOOSE)
    if marked or request.cache is not None:
        add(CACHE_MARK)
    _add_calls(calls, results, dialect, found)
    marked_tools = _add_tools(request.tools or (), found)
    ids = frozenset([call.id for call in calls])
    return Contents(request.messages, request.tools, marked_tools, found, calls, own_calls, marked, ids)


def _add_marks(part: Part, number: int, found: set[object], marked: list[int]) -> None:
    """Of a part in the turn with this number."""
    if getattr(part, "seal", None) is not None:
        found.add(SEAL)
    if getattr(part, "cache", None) is not None:
        marked.append(number)


def _add_calls(calls: list[ToolCall], results: list[ToolResult], dialect: str, found: set[object]) -> None:
    if calls:
        found.add(ToolCall)
    if results:
        found.add(ToolResult)
    for call in calls:
        if call.seal is not None:
            found.add(SEAL)
        if call.freeform:
            found.add(FREEFORM)
    for result in results:
        if result.name is not None:
            found.add(NAMED_RESULT)
        if result.freeform:
            found.add(FREEFORM)
        if result.failed:
            found.add(FAILED_RESULT)
        if dialect in result.extras:
            found.add(TURN_KEYS)
        for inner in result.parts:
            if type(inner) is Text:
                cache = inner.cache
            else:
                found.add(NESTED_RESULT if type(inner) is ToolResult else type(inner))
                cache = getattr(inner, "cache", None)
            if cache is not None:
                found |= INNER_MARKS


def _add_tools(tools: tuple[AnyTool, ...], found: set[object]) -> bool:
    """Also returns whether one of them has a cache mark."""
    marked = False
    for tool in tools:
        if type(tool) is not Tool:
            found.add(type(tool))
        elif tool.cache is not None:
            found.add(CACHE_MARK)
            marked = True
    return marked
