"""Tools for models that only write text (mission D9): they are described in the system text, a call is a JSON object
in the answer, its result is the next user turn.

    {"tool": "server.tool_name", "arguments": {...}}

Calls are found in code fences, with prose around them, several in one answer, and in the ways models misspell them.
"""

import ast
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, dump_text
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Finish
from dragoman.model.request import AnyTool, Request, Tool
from dragoman.notes import Note

ERROR = "[ERROR] "
MOST_CALLS = 16
MOST_TEXT = 256 * 1024
MOST_TRIED = 400  # braces looked at in one answer
_DECODER = json.JSONDecoder(strict=False)
_ARGUMENTS = ("arguments", "args", "parameters", "input", "action_input", "params")
_TOOL = ("tool", "tool_name", "action")
_KEYS = {*_ARGUMENTS, *_TOOL, "name", "thought", "id", "type", "function", "tool_calls"}
_QUALIFIED = re.compile(r"\.|__")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n?")
_TAGS = ("<tool_call>", "<function_call>", "<tool_use>")  # what some models have learnt to put around a call
_TAG = re.compile("|".join(_TAGS))
_TAG_BEGUN = "|".join(sorted({re.escape(tag[:size]) for tag in _TAGS for size in range(1, len(tag))}, key=len))
_SUSPICIOUS = re.compile(rf"\{{|\[\s*(?:\{{|\Z)|```|`{{1,2}}\Z|{_TAG.pattern}|(?:{_TAG_BEGUN})\Z")
_HEAD = re.compile(r"""\{\s*(?:(["'])([^"']*)(\1)?)?""")
_BROKEN = re.compile(r"""\{\s*["']tool["']\s*:\s*["']([^"'\n]{1,200})["']""")


class Found(Struct, frozen=True):
    """A call and where in the text it stands."""

    start: int
    end: int
    name: str
    arguments: str


def find_calls(text: str, known: Container[str] = ()) -> list[Found]:
    """In the order they are written. A `tool` is a call whoever it names: an unknown one deserves an answer too.
    A `name` alone is one only when it names a tool we have."""
    found: list[Found] = []
    place, tried = 0, 0
    text = text[:MOST_TEXT]
    while len(found) < MOST_CALLS and tried < MOST_TRIED and (place := text.find("{", place)) >= 0:
        tried += 1
        value, end = _decode(text, place)
        calls = _read_calls(value, known) if isinstance(value, dict) else []
        if value is None and (broken := _BROKEN.match(text, place)):
            calls, end = [(broken[1], text[place:].strip().strip("`"))], len(text)
        if not calls:
            place += 1
            continue
        start, end = _with_fence(text, place, end)
        found.extend(Found(start, end, *call) for call in calls)
        place = end
    return found[:MOST_CALLS]


def _decode(text: str, place: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        pass
    head = _HEAD.match(text, place)
    if head is None or head[2] not in _KEYS:  # mending is dear, and only for what looks like a call
        return None, place
    end = _closing(text, place)
    if end is None or end - place > 20_000:
        return None, place
    body = text[place:end]
    readers: tuple[Callable[[str], Any], ...] = (_load_loosely, ast.literal_eval)
    for read in readers:
        try:
            return read(body), end
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return None, place


def _load_loosely(body: str) -> Any:
    return json.loads(re.sub(r",\s*([}\]])", r"\1", body), strict=False)


def _closing(text: str, place: int) -> int | None:
    """Behind the brace that closes the one at `place`, quotes respected."""
    depth, quote = 0, ""
    skip = False
    for i in range(place, min(len(text), place + 20_000)):
        char = text[i]
        if skip:
            skip = False
        elif char == "\\":
            skip = bool(quote)
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return i + 1
    return None


def _read_calls(value: JsonObject, known: Container[str]) -> list[tuple[str, str]]:
    """One, or those of a list as OpenAI's replies have it."""
    rows = value.get("tool_calls")
    given = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [value]
    return [call for row in given if (call := _read_call(row, known)) is not None]


def _read_call(value: JsonObject, known: Container[str]) -> tuple[str, str] | None:
    inner = value.get("function")
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        value = inner
    name = next((value[key] for key in _TOOL if isinstance(value.get(key), str)), None)
    if name is None and isinstance(value.get("name"), str) and value["name"] in known:
        name = value["name"]
    if not name:
        return None
    given = next((value[key] for key in _ARGUMENTS if key in value), None)
    if given is None and not any(key in value for key in _TOOL) and not _QUALIFIED.search(name):
        return None  # {"name": "search"} may be anybody's
    if given is None and name not in known and len(value) > 1 and "tool" not in value:
        return None  # {"action": "...", ...} of somebody's data
    return name.strip(), given if isinstance(given, str) else dump_text({} if given is None else given)


def _with_fence(text: str, start: int, end: int) -> tuple[int, int]:
    """A fence that holds nothing else belongs to the call."""
    before = re.search(r"```[\w-]*[ \t]*\n?[\s\[]*$", text[:start])
    after = re.match(r"[\s\],]*```", text[end:])
    if before and after:
        return before.start(), end + after.end()
    tag = re.search(rf"(?:{_TAG.pattern})[\s\[]*$", text[:start])
    shut = re.match(r"[\s\],]*</\w+>", text[end:]) if tag else None
    return tag.start() if tag else start, end + shut.end() if shut else end


# ---------------------------------------------------------------- what a model without tools is told


def write_request(request: Request, label: Callable[[str], str]) -> Request:
    """The same request for a model that knows no tools: they, the calls and the results are text."""
    messages = [_write_message(message, label) for message in request.messages]
    if request.tools:
        lead = next((i for i, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages))
        messages.insert(lead, Message(role="system", parts=(Text(text=instruct(request.tools, label)),)))
    return replace(request, messages=tuple(messages), tools=None, tool_choice=None, parallel_calls=None)


def instruct(tools: Iterable[AnyTool], label: Callable[[str], str]) -> str:
    rows = [
        f"- {label(tool.name)}: {tool.description or 'no description'}\n  arguments: {dump_text(tool.parameters or {})}"
        for tool in tools
        if isinstance(tool, Tool)
    ]
    return (
        "You can use tools. To call one, write one JSON object of this form, and nothing behind it:\n"
        '{"tool": "server.tool_name", "arguments": {}}\n'
        "Several calls are several objects. The results come in the next message; errors begin with [ERROR]. "
        "When you need no tool any more, answer in plain words without such an object.\n\nTools:\n" + "\n".join(rows)
    )


def _write_message(message: Message, label: Callable[[str], str]) -> Message:
    if not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            parts.append(Text(text=_write_call(part, label)))
        elif isinstance(part, ToolResult):
            parts.extend(_write_result(part, label))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def _write_call(call: ToolCall, label: Callable[[str], str]) -> str:
    return f'{{"tool": {dump_text(label(call.name))}, "arguments": {call.arguments or "{}"}}}'


def _write_result(result: ToolResult, label: Callable[[str], str]) -> list[Part]:
    words = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    name = label(result.name) if result.name else "the tool"
    said = f"{ERROR}{words}" if result.failed and not words.startswith(ERROR) else words
    text = Text(text=f"Result of {name}:\n{said}")
    return [text, *(part for part in result.parts if not isinstance(part, Text))]


# ---------------------------------------------------------------- what it answers


class Holder:
    """Lets text through as it comes, but for what may be the beginning of a call."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        shown: list[str] = []
        while self._held:
            place = _suspicious(self._held)
            shown.append(self._held[:place])
            self._held = self._held[place:]
            size = _innocent(self._held)
            if not size:
                break
            shown.append(self._held[:size])
            self._held = self._held[size:]
        return "".join(shown)

    def close(self) -> str:
        held, self._held = self._held, ""
        return held


def _suspicious(text: str) -> int:
    """Where a call might begin: a brace, a fence, a tag, or what may become one."""
    found = _SUSPICIOUS.search(text)
    return found.start() if found else len(text)


def _innocent(held: str) -> int:
    """How many characters at the start are surely no call; 0: wait for more."""
    if not held or len(held) > MOST_TEXT:
        return len(held)
    tag = _TAG.match(held)
    fence = tag or _FENCE.match(held)
    if fence is None and held[0] in "`<":
        return 0 if (len(held) < 3 and held[0] == "`") or any(known.startswith(held) for known in _TAGS) else 1
    inside = (held[fence.end() :] if fence else held).lstrip(" \n\t[")
    if not inside and held[0] == "[":
        return 0
    if fence is not None:
        if not inside or (tag is None and "\n" not in held):
            return 0
        if inside[0] != "{":
            return fence.end()
    elif not inside or inside[0] != "{":
        return 1
    head = _HEAD.match(inside)
    size = fence.end() if fence else 1
    if head is None or (head[1] is None and inside[head.end() :].strip()):
        return size
    if head[3] is not None and head[2] not in _KEYS:
        return size
    if head[3] is None and head[1] is not None and not any(key.startswith(head[2]) for key in _KEYS):
        return size
    return 0


class TextModel(Protocol):
    def ask(self, request: Request) -> AsyncIterator[Event]: ...


class ReactModel:
    """A model without tools as one with them (agent/driver.py: Model)."""

    def __init__(self, model: TextModel, label: Callable[[str], str] = str) -> None:
        self._model, self._label = model, label
        self._count = 0

    async def ask(self, request: Request) -> AsyncGenerator[Event, None]:
        names = {tool.name for tool in request.tools or () if isinstance(tool, Tool)}
        labels = {self._label(name) for name in names}
        known = names | labels | {label.partition(".")[2] for label in labels}  # some leave the server out
        turn = _TextTurn(known, self._next_id)
        events = self._model.ask(write_request(request, self._label))
        async with aclosing(_closable(events)) as heard:
            async for event in heard:
                for out in turn.feed(event):
                    yield out

    def turn_notes(self) -> tuple[Note, ...]:
        told = getattr(self._model, "turn_notes", None)
        return told() if told is not None else ()

    def _next_id(self) -> str:
        self._count += 1
        return f"call_react_{self._count}"


async def _closable(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _TextTurn:
    """One answer: texts lose their calls, which follow as parts of their own."""

    def __init__(self, known: set[str], next_id: Callable[[], str]) -> None:
        self._known, self._next_id = known, next_id
        self._holders: dict[int, Holder] = {}
        self._open: set[int] = set()  # texts of which something has been shown
        self._calls = 0
        self._last = -1

    def feed(self, event: Event) -> list[Event]:
        match event:
            case PartStart(index=index, part=Text(text=text), choice=0):
                self._last = max(self._last, index)
                self._holders[index] = Holder()
                return self._show(index, self._holders[index].feed(text))
            case PartStart(index=index):
                self._last = max(self._last, index)
                return [event]
            case PartDelta(index=index, text=text) if index in self._holders:
                return self._show(index, self._holders[index].feed(text))
            case PartEnd(index=index) if index in self._holders:
                return self._end(index)
            case ReplyEnd():
                left = [out for index in list(self._holders) for out in self._end(index)]
                return [*left, self._finish(event)]
            case _:
                return [event]

    def _show(self, index: int, text: str) -> list[Event]:
        if not text or self._calls:  # what a model writes behind its call is what it imagines the result to be
            return []
        start: list[Event] = [] if index in self._open else [PartStart(index=index, part=Text(text=""))]
        self._open.add(index)
        return [*start, PartDelta(index=index, text=text)]

    def _end(self, index: int) -> list[Event]:
        held = self._holders.pop(index).close()
        found = find_calls(held, self._known)
        lead = held[: found[0].start].rstrip() if found else held
        out = self._show(index, lead)
        if index in self._open:
            out.append(PartEnd(index=index))
        for call in found:
            self._calls += 1
            self._last += 1000  # clear of the indices the model's own parts have
            part = ToolCall(id=self._next_id(), name=call.name, arguments="")
            out.append(PartStart(index=self._last, part=part))
            out.append(PartDelta(index=self._last, text=call.arguments))
            out.append(PartEnd(index=self._last))
        return out

    def _finish(self, end: ReplyEnd) -> ReplyEnd:
        first = end.finishes[0] if end.finishes else None
        if not self._calls or (first is not None and first.reason not in ("stop", "sequence", "other")):
            return end
        return replace(end, finishes=(Finish(reason="tool_call"), *end.finishes[1:]))
