"""Whether an answer is what a scenario expects: plain functions from an answer to complaints.

The form of an answer (finish, calls that fit their schemas, usage, the order of a stream) is checked at every server.
Its words are checked only if the model can be expected to understand.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dragoman.conformance.scenario import Expect
from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.json_schema.check import find_violation
from dragoman.jsontypes import kind_of, load_json
from dragoman.model.events import Aside, Event, PartDelta, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Choice, Reply, Usage
from dragoman.model.request import Tool

NO_THOUGHT = "it did not think: no thoughts are shown or counted"


class ScenarioRequest(Struct, frozen=True, kw_only=True):
    """What the checks need to know besides the answer."""

    expect: Expect
    tools: tuple[Tool, ...] = ()
    meaning: bool = True  # the words of the answer are checked too
    before: Usage | None = None  # the usage of the turn before
    worded: bool = False  # the form of the answer was asked for in words, not by a setting


def check_reply(reply: Reply, request: ScenarioRequest) -> list[str]:
    if not reply.choices:
        return ["the reply has no answer in it"]
    choice = reply.choices[0]
    return [
        *_check_finish(choice, request.expect),
        *_check_text(choice, request),
        *_check_calls(choice, request),
        *_check_thoughts(choice, reply.usage, request),
        *_check_usage(reply.usage, request),
    ]


def check_failure(failure: Failure, expect: Expect) -> list[str]:
    """An expected failure: its kind, and that it has a message."""
    found = []
    if failure.kind not in expect.failure:
        found.append(f"failed as {failure.kind}, expected {' or '.join(expect.failure)}: {failure.message}")
    if not failure.message.strip():
        found.append("the error has no message")
    return found


def check_events(events: Sequence[Event], expect: Expect) -> list[str]:
    """Checks the order of the events of a stream."""
    own_events = [event for event in events if not isinstance(event, Aside)]
    if not own_events:
        return ["the stream is empty"]
    found = []
    if not isinstance(own_events[0], ReplyStart):
        found.append(f"the stream begins with {type(own_events[0]).__name__}")
    ends = [event for event in own_events if isinstance(event, ReplyEnd | ReplyFailed)]
    if len(ends) != 1 or own_events[-1] is not ends[0]:
        found.append("the stream does not end once, at its end")
    pieces = sum(_grows(event) for event in own_events)
    if pieces < expect.pieces:
        found.append(f"the text came in {pieces} piece(s), expected {expect.pieces} or more")
    return found


def _grows(event: Event) -> bool:
    match event:
        case PartDelta(text=text) | PartStart(part=Text(text=text)):
            return bool(text)
        case PartStart(part=ToolCall()):
            return True
        case _:
            return False


def text_of(choice: Choice) -> str:
    return "".join(part.text for part in choice.parts if isinstance(part, Text | Refusal))


def calls_of(choice: Choice) -> list[ToolCall]:
    return [part for part in choice.parts if isinstance(part, ToolCall)]


def input_of(usage: Usage | None) -> int | None:
    """All input tokens, cached or not."""
    if usage is None or usage.input is None:
        return None
    return usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)


def _check_finish(choice: Choice, expect: Expect) -> Iterator[str]:
    reason = choice.finish.reason if choice.finish is not None else "nothing"
    if expect.finish and reason not in expect.finish:
        yield f"finished with {reason}, expected {' or '.join(expect.finish)}"


def _check_text(choice: Choice, request: ScenarioRequest) -> Iterator[str]:
    expect, text = request.expect, text_of(choice)
    if expect.text and not text.strip():
        yield "there is no text"
    if expect.max_words is not None and len(text.split()) > expect.max_words:
        yield f"{len(text.split())} words, expected {expect.max_words} at most"
    for word in expect.without:
        if word in text:
            yield f"the text contains {word!r}: {_short(text)}"
    if expect.answer is not None:
        yield from _check_json(text, {"type": "object"} if request.worded else expect.answer)
    if request.meaning:
        for word in expect.says:
            if not _says(text, word):
                yield f"the text does not say {word!r}: {_short(text)}"
        if expect.says_any and not any(_says(text, word) for word in expect.says_any):
            yield f"the text says none of {', '.join(expect.says_any)}: {_short(text)}"


def _check_json(text: str, schema: dict[str, object]) -> Iterator[str]:
    try:
        value = load_json(text)
    except DecodeError as error:
        yield f"the text is not JSON ({error}): {_short(text)}"
        return
    wrong = find_violation(value, schema)
    if wrong is not None:
        yield f"the JSON does not fit its schema: {wrong}: {_short(text)}"


def _check_calls(choice: Choice, request: ScenarioRequest) -> Iterator[str]:
    wanted = request.expect.calls
    calls = calls_of(choice)
    known = {tool.name: tool for tool in request.tools}
    ids = [call.id for call in calls]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"the ids of the calls are empty or not unique: {ids}"
    for call in calls:
        yield from _check_arguments(call, known)
    if wanted is None:
        return
    if not wanted and calls:
        yield f"called {calls[0].name}, which was forbidden"
    if wanted and not calls:
        yield f"called nothing, expected {', '.join(wanted)}; it said: {_short(text_of(choice))}"
    elif wanted and request.meaning:
        wrong = [call.name for call in calls if call.name not in wanted]
        if wrong:
            yield f"called {', '.join(wrong)}, expected {', '.join(wanted)}"
        if len(calls) < request.expect.least_calls:
            yield f"made {len(calls)} call(s), expected {request.expect.least_calls}"


def _check_arguments(call: ToolCall, known: dict[str, Tool]) -> Iterator[str]:
    if call.name not in known:
        yield f"called {call.name!r}, which was not offered"
        return
    try:
        value = load_json(call.arguments)
    except DecodeError as error:
        yield f"the arguments of {call.name} are not JSON ({error}): {_short(call.arguments)}"
        return
    if type(value) is not dict:
        yield f"the arguments of {call.name} are {kind_of(value)}, expected object"
        return
    wrong = find_violation(value, known[call.name].parameters or {})
    if wrong is not None:
        yield f"the arguments of {call.name} do not fit its schema: {wrong}: {_short(call.arguments)}"


def _check_thoughts(choice: Choice, usage: Usage | None, request: ScenarioRequest) -> Iterator[str]:
    wanted = request.expect.thinks
    shown = any(isinstance(part, Reasoning) and part.text.strip() for part in choice.parts)
    thought = shown or bool(usage is not None and usage.reasoning)
    if wanted is False and thought:
        yield "it thought although the request said not to"
    if wanted and request.meaning and not thought:
        yield NO_THOUGHT


def _check_usage(usage: Usage | None, request: ScenarioRequest) -> Iterator[str]:
    total = input_of(usage)
    if usage is None or total is None or usage.output is None:
        yield "the reply has no usage"
        return
    if total <= 0:
        yield f"the usage says {total} tokens of input"
    counts = {name: getattr(usage, name) for name in ("input", "output", "cache_read", "cache_write", "reasoning")}
    for name, count in counts.items():
        if count is not None and count < 0:
            yield f"the usage says {count} tokens of {name}"
    before = input_of(request.before)
    if request.expect.usage == "grows" and before is not None and total <= before:
        yield f"the longer conversation has {total} tokens of input, the shorter had {before}"


def _says(text: str, word: str) -> bool:
    """Whether a word of the text begins with it: "red" is not in "answered", "fail" is in "failed"."""
    return re.search(rf"(?<!\w){re.escape(_plain(word))}", _plain(text)) is not None


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return f"{flat[:160]}…" if len(flat) > 160 else flat or "(nothing)"
