"""Tools for models that only write text (ReAct). The system text describes the tools, a call is a JSON object in the
answer, and its result is the next user turn. (mission D9)

    {"tool": "server.tool_name", "arguments": {...}}

Calls are found in code fences, between other text, several in one answer, and in the spellings that models use.
"""

import ast
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects._tools import FAILED
from dragoman.jsontypes import JsonObject, dump_text
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Finish
from dragoman.model.request import AnyTool, Request, Tool
from dragoman.notes import Note

MAX_CALLS = 16
MAX_TEXT_CHARS = 256 * 1024
MAX_BRACES = 400  # tried as the start of a call, in one answer
_DECODER = json.JSONDecoder(strict=False)
_ARGUMENT_KEYS = ("arguments", "args", "parameters", "input", "action_input", "params")
_TOOL_KEYS = ("tool", "tool_name", "action")
_CALL_KEYS = {*_ARGUMENT_KEYS, *_TOOL_KEYS, "name", "thought", "id", "type", "function", "tool_calls"}
_QUALIFIED = re.compile(r"\.|__")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n?")
_TAGS = ("<tool_call>", "<function_call>", "<tool_use>")  # some models are trained to put these around a call
_TAG = re.compile("|".join(_TAGS))
_TAG_START = "|".join(sorted({re.escape(tag[:size]) for tag in _TAGS for size in range(1, len(tag))}, key=len))
_POSSIBLE_CALL = re.compile(rf"\{{|\[\s*(?:\{{|\Z)|```|`{{1,2}}\Z|{_TAG.pattern}|(?:{_TAG_START})\Z")
_OBJECT_START = re.compile(r"""\{\s*(?:(["'])([^"']*)(\1)?)?""")
_BROKEN_CALL = re.compile(r"""\{\s*["']tool["']\s*:\s*["']([^"'\n]{1,200})["']""")


class FoundCall(Struct, frozen=True):
    """A call and its position in the text."""

    start: int
    end: int
    name: str
    arguments: str


def find_calls(text: str, known: Container[str] = ()) -> list[FoundCall]:
    """The calls in their order. An object with `tool` is always a call: even an unknown tool needs an answer. An object
    with only a `name` is a call only if it names a known tool."""
    found: list[FoundCall] = []
    position, braces = 0, 0
    text = text[:MAX_TEXT_CHARS]
    while len(found) < MAX_CALLS and braces < MAX_BRACES and (position := text.find("{", position)) >= 0:
        braces += 1
        value, end = _decode_object(text, position)
        calls = _read_calls(value, known) if isinstance(value, dict) else []
        if value is None and (broken := _BROKEN_CALL.match(text, position)):
            calls, end = [(broken[1], text[position:].strip().strip("`"))], len(text)
        if not calls:
            position += 1
            continue
        start, end = _extend_to_fence(text, position, end)
        found.extend(FoundCall(start, end, *call) for call in calls)
        position = end
    return found[:MAX_CALLS]


def _decode_object(text: str, position: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        pass
    start_match = _OBJECT_START.match(text, position)
    if (
        start_match is None or start_match[2] not in _CALL_KEYS
    ):  # repair is expensive, so only for objects that look like a call
        return None, position
    end = _find_closing_brace(text, position)
    if end is None or end - position > 20_000:
        return None, position
    body = text[position:end]
    readers: tuple[Callable[[str], Any], ...] = (_load_with_trailing_commas, ast.literal_eval)
    for read in readers:
        try:
            return read(body), end
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return None, position


def _load_with_trailing_commas(body: str) -> Any:
    return json.loads(re.sub(r",\s*([}\]])", r"\1", body), strict=False)


def _find_closing_brace(text: str, position: int) -> int | None:
    """The position after the brace that closes the one at `position`. Braces in quotes do not count."""
    depth, quote = 0, ""
    escaped = False
    for i in range(position, min(len(text), position + 20_000)):
        char = text[i]
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = bool(quote)
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
    """One call, or the calls in a list `tool_calls` as in OpenAI's replies."""
    listed = value.get("tool_calls")
    call_objects = (
        [call_object for call_object in listed if isinstance(call_object, dict)]
        if isinstance(listed, list)
        else [value]
    )
    return [call for call_object in call_objects if (call := _read_call(call_object, known)) is not None]


def _read_call(value: JsonObject, known: Container[str]) -> tuple[str, str] | None:
    inner = value.get("function")
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        value = inner
    name = next((value[key] for key in _TOOL_KEYS if isinstance(value.get(key), str)), None)
    if name is None and isinstance(value.get("name"), str) and value["name"] in known:
        name = value["name"]
    if not name:
        return None
    arguments = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    if arguments is None and not any(key in value for key in _TOOL_KEYS) and not _QUALIFIED.search(name):
        return None  # {"name": "search"} may be ordinary data
    if arguments is None and name not in known and len(value) > 1 and "tool" not in value:
        return None  # {"action": "...", ...} may be ordinary data
    return name.strip(), arguments if isinstance(arguments, str) else dump_text({} if arguments is None else arguments)


def _extend_to_fence(text: str, start: int, end: int) -> tuple[int, int]:
    """The range of the call including its code fence or tag, if that contains nothing else."""
    before = re.search(r"```[\w-]*[ \t]*\n?[\s\[]*$", text[:start])
    after = re.match(r"[\s\],]*```", text[end:])
    if before and after:
        return before.start(), end + after.end()
    tag = re.search(rf"(?:{_TAG.pattern})[\s\[]*$", text[:start])
    closing_tag = re.match(r"[\s\],]*</\w+>", text[end:]) if tag else None
    return tag.start() if tag else start, end + closing_tag.end() if closing_tag else end


# ---------------------------------------------------------------- the request for a model without tools


def write_request(request: Request, make_label: Callable[[str], str]) -> Request:
    """The request with its tools, calls and results as text."""
    messages = [_write_message(message, make_label) for message in request.messages]
    if request.tools:
        first_turn = next((i for i, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages))
        messages.insert(
            first_turn, Message(role="system", parts=(Text(text=write_instructions(request.tools, make_label)),))
        )
    return replace(request, messages=tuple(messages), tools=None, tool_choice=None, parallel_calls=None)


def write_instructions(tools: Iterable[AnyTool], make_label: Callable[[str], str]) -> str:
    rows = [
        f"- {make_label(tool.name)}: {tool.description or 'no description'}\n"
        f"  arguments: {dump_text(tool.parameters or {})}"
        for tool in tools
        if isinstance(tool, Tool)
    ]
    return (
        "You can use tools. To call one, write one JSON object of this form, and nothing after it:\n"
        '{"tool": "server.tool_name", "arguments": {}}\n'
        "Several calls are several objects. The results come in the next message; errors begin with [ERROR]. "
        "When you need no tool any more, answer in plain words without such an object.\n\nTools:\n" + "\n".join(rows)
    )


def _write_message(message: Message, make_label: Callable[[str], str]) -> Message:
    if not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            parts.append(Text(text=_write_call(part, make_label)))
        elif isinstance(part, ToolResult):
            parts.extend(_write_result(part, make_label))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def _write_call(call: ToolCall, make_label: Callable[[str], str]) -> str:
    return f'{{"tool": {dump_text(make_label(call.name))}, "arguments": {call.arguments or "{}"}}}'


def _write_result(result: ToolResult, make_label: Callable[[str], str]) -> list[Part]:
    text_ = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    name = make_label(result.name) if result.name else "the tool"
    result_text = f"{FAILED}{text_}" if result.failed and not text_.startswith(FAILED) else text_
    text = Text(text=f"Result of {name}:\n{result_text}")
    return [text, *(part for part in result.parts if not isinstance(part, Text))]


# ---------------------------------------------------------------- its answer


class CallBuffer:
    """Releases text as it comes, but keeps text that may be the start of a call."""

    def __init__(self) -> None:
        self._buffer = ""

    def feed(self, text: str) -> str:
        self._buffer += text
        released: list[str] = []
        while self._buffer:
            position = _find_possible_call(self._buffer)
            released.append(self._buffer[:position])
            self._buffer = self._buffer[position:]
            size = _count_harmless_chars(self._buffer)
            if not size:
                break
            released.append(self._buffer[:size])
            self._buffer = self._buffer[size:]
        return "".join(released)

    def close(self) -> str:
        remaining, self._buffer = self._buffer, ""
        return remaining


def _find_possible_call(text: str) -> int:
    """Where a call may start: at a brace, a fence, a tag, or the first characters of one."""
    match = _POSSIBLE_CALL.search(text)
    return match.start() if match else len(text)


def _count_harmless_chars(buffer: str) -> int:
    """How many characters at the start cannot be part of a call; 0: wait for more text."""
    if not buffer or len(buffer) > MAX_TEXT_CHARS:
        return len(buffer)
    tag = _TAG.match(buffer)
    fence = tag or _FENCE.match(buffer)
    if fence is None and buffer[0] in "`<":
        return 0 if (len(buffer) < 3 and buffer[0] == "`") or any(known.startswith(buffer) for known in _TAGS) else 1
    inside = (buffer[fence.end() :] if fence else buffer).lstrip(" \n\t[")
    if not inside and buffer[0] == "[":
        return 0
    if fence is not None:
        if not inside or (tag is None and "\n" not in buffer):
            return 0
        if inside[0] != "{":
            return fence.end()
    elif not inside or inside[0] != "{":
        return 1
    object_start = _OBJECT_START.match(inside)
    size = fence.end() if fence else 1
    if object_start is None or (object_start[1] is None and inside[object_start.end() :].strip()):
        return size
    if object_start[3] is not None and object_start[2] not in _CALL_KEYS:
        return size
    if (
        object_start[3] is None
        and object_start[1] is not None
        and not any(key.startswith(object_start[2]) for key in _CALL_KEYS)
    ):
        return size
    return 0


class TextModel(Protocol):
    def ask(self, request: Request) -> AsyncIterator[Event]: ...


class ReactModel:
    """Makes a model without tools usable as a model with tools (agent/driver.py: Model)."""

    def __init__(self, model: TextModel, make_label: Callable[[str], str] = str) -> None:
        self._model, self._make_label = model, make_label
        self._count = 0

    async def ask(self, request: Request) -> AsyncGenerator[Event, None]:
        names = {tool.name for tool in request.tools or () if isinstance(tool, Tool)}
        labels = {self._make_label(name) for name in names}
        known = names | labels | {label.partition(".")[2] for label in labels}  # some models leave the server name out
        turn = _TextTurn(known, self._next_id)
        async with aclosing(_close_after(self._model.ask(write_request(request, self._make_label)))) as events:
            async for event in events:
                for out in turn.feed(event):
                    yield out

    def turn_notes(self) -> tuple[Note, ...]:
        get_notes = getattr(self._model, "turn_notes", None)
        return get_notes() if get_notes is not None else ()

    def _next_id(self) -> str:
        self._count += 1
        return f"call_react_{self._count}"


async def _close_after(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _TextTurn:
    """One answer. Calls are taken out of its texts and follow as separate parts."""

    def __init__(self, known: set[str], next_id: Callable[[], str]) -> None:
        self._known, self._next_id = known, next_id
        self._buffers: dict[int, CallBuffer] = {}
        self._started: set[int] = set()  # texts with events that were already sent
        self._calls = 0
        self._last_index = -1

    def feed(self, event: Event) -> list[Event]:
        match event:
            case PartStart(index=index, part=Text(text=text), choice=0):
                self._last_index = max(self._last_index, index)
                self._buffers[index] = CallBuffer()
                return self._emit_text(index, self._buffers[index].feed(text))
            case PartStart(index=index):
                self._last_index = max(self._last_index, index)
                return [event]
            case PartDelta(index=index, text=text) if index in self._buffers:
                return self._emit_text(index, self._buffers[index].feed(text))
            case PartEnd(index=index) if index in self._buffers:
                return self._end_text(index)
            case ReplyEnd():
                ends = [end for index in list(self._buffers) for end in self._end_text(index)]
                return [*ends, self._finish(event)]
            case _:
                return [event]

    def _emit_text(self, index: int, text: str) -> list[Event]:
        if not text or self._calls:  # text after a call is only the model's guess at the result
            return []
        start: list[Event] = [] if index in self._started else [PartStart(index=index, part=Text(text=""))]
        self._started.add(index)
        return [*start, PartDelta(index=index, text=text)]

    def _end_text(self, index: int) -> list[Event]:
        text = self._buffers.pop(index).close()
        found = find_calls(text, self._known)
        before = text[: found[0].start].rstrip() if found else text
        events = self._emit_text(index, before)
        if index in self._started:
            events.append(PartEnd(index=index))
        for call in found:
            self._calls += 1
            self._last_index += 1000  # far above the indices of the model's own parts
            part = ToolCall(id=self._next_id(), name=call.name, arguments="")
            events.append(PartStart(index=self._last_index, part=part))
            events.append(PartDelta(index=self._last_index, text=call.arguments))
            events.append(PartEnd(index=self._last_index))
        return events

    def _finish(self, end: ReplyEnd) -> ReplyEnd:
        first = end.finishes[0] if end.finishes else None
        if not self._calls or (first is not None and first.reason not in ("stop", "sequence", "other")):
            return end
        return replace(end, finishes=(Finish(reason="tool_call"), *end.finishes[1:]))
