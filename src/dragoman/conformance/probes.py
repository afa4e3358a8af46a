"""One small conversation for each feature, and how to find the feature in it again.

A probe is a canonical value: a request that a client of any dialect might send, or an answer of a provider.

- `look` finds the feature in a value; None if it is not there.
- `marks` are words that the probe contains only for this feature. If a wire has them, it has the feature in some form.
- `noted` are canonical fields. If a note is about one of them, the feature counts as adapted, even if it reads back the
  same.
- `signs` are words in the target's wire that show a form of our own (a mark in the text, a value that clients keep for
  us). They make the feature adapted too.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.dialects._tools import FAILED
from dragoman.dialects.anthropic.words import NAME as ANTHROPIC
from dragoman.failure import Failure
from dragoman.model.messages import (
    Audio,
    Citation,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import OutputFormat, ReasoningSetting, Request, Tool, ToolChoice
from dragoman.reasoning_state.envelope import MARK

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAPER = "JVBERi0xLjEKJSVFT0YK"
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool(name="weather", description="Tells the weather of a place", parameters=SCHEMA)
CLOCK = Tool(name="clock", description="Tells the time of a place", parameters=SCHEMA)
ASKED = Message(role="user", parts=(Text(text="How is the weather in Bergen?"),))
CALL = ToolCall(id="call_1", name="weather", arguments='{"city":"Bergen"}')
OTHER_CALL = ToolCall(id="call_2", name="clock", arguments='{"city":"Oslo"}')
RAIN = ToolResult(call_id="call_1", name="weather", parts=(Text(text="rain, as ever"),))
NOON = ToolResult(call_id="call_2", name="clock", parts=(Text(text="noon sharp"),))

Talk = Request | Reply


class Probe(Struct, frozen=True, kw_only=True):
    feature: str
    build: Callable[[str], Request | Reply | Failure]  # gets the name of the source dialect
    look: Callable[[Any], object]
    marks: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()


# ---------------------------------------------------------------- looking


def parts_of(value: Talk) -> Iterator[Part]:
    """Every part, in order. The parts of a tool result stay inside it."""
    if isinstance(value, Request):
        for message in value.messages:
            yield from message.parts
    else:
        for choice in value.choices:
            yield from choice.parts


def _all(kind: type[Part], *fields: str) -> Callable[[Talk], object]:
    """Some fields of every part of a kind, or None where there is no such part."""

    def look(value: Talk) -> object:
        return [[getattr(part, f) for f in fields] for part in parts_of(value) if isinstance(part, kind)] or None

    return look


def _field(*names: str) -> Callable[[Any], object]:
    """A field, by its path."""

    def look(value: Any) -> object:
        for name in names:
            if value is None or value == ():
                return None
            value = value[int(name)] if name.isdigit() else getattr(value, name)
        return value or None

    return look


def _system(value: Request) -> object:
    found = [_text(message.parts) for message in value.messages if message.role in ("system", "developer")]
    return "\n\n".join(found) or None


def _text(parts: tuple[Part, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def _results(value: Request) -> list[ToolResult]:
    return [part for part in parts_of(value) if isinstance(part, ToolResult)]


def _result_kinds(value: Request) -> object:
    return [[type(part).__name__ for part in result.parts] for result in _results(value)] or None


def _result_failures(value: Request) -> object:
    return [[result.failed, _text(result.parts)] for result in _results(value)] or None


def _pairs(value: Request) -> object:
    """Which call got which result, by the order of the calls, because ids may change."""
    calls = [part for part in parts_of(value) if isinstance(part, ToolCall)]
    order = {call.id: i for i, call in enumerate(calls)}
    answers = [[order.get(result.call_id), _text(result.parts)] for result in _results(value)]
    return [[call.name, call.arguments] for call in calls] + answers or None


def _seals(value: Talk) -> object:
    seals = [part.seal for part in parts_of(value) if isinstance(part, Reasoning | Text | ToolCall) and part.seal]
    return [[seal.origin, seal.value] for seal in seals] or None


def _reasons(value: Reply) -> object:
    return [choice.finish.reason if choice.finish else None for choice in value.choices]


def _usage(value: Reply) -> object:
    usage = value.usage
    return usage and [usage.input, usage.cache_read, usage.output, usage.reasoning]


def _tools(value: Request) -> object:
    return [[t.name, t.description, t.parameters] for t in value.tools or () if isinstance(t, Tool)] or None


# ---------------------------------------------------------------- requests


def _ask(*messages: Message, **settings: Any) -> Request:
    return Request(model="some-model", max_output=1000, messages=messages, **settings)


def _user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def _assistant(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


def _asks(*messages: Message, **settings: Any) -> Callable[[str], Request]:
    return lambda origin: _ask(*messages, **settings)


def _thought(origin: str) -> Reasoning:
    return Reasoning(
        text="Bergen means rain.", seal=Seal(origin=origin, value="c2VhbGVk", form=find_dialect(origin).seal_form)
    )


def _signed_turn(origin: str) -> tuple[Part, ...]:
    """A thought and a call with the signature of their dialect. Gemini signs the call instead of the thought."""
    dialect = find_dialect(origin)
    if dialect.seals_calls:
        seal = Seal(origin=origin, value="c2VhbGVk", form=find_dialect(origin).seal_form)
        return (ToolCall(id="call_1", name="weather", arguments='{"city":"Bergen"}', seal=seal),)
    if dialect.seal_form:
        return (_thought(origin), CALL)
    return (Reasoning(text="Bergen means rain."), CALL)


REQUESTS = (
    Probe(
        feature="system",
        build=_asks(Message(role="system", parts=(Text(text="Answer as a sailor would."),)), ASKED),
        look=_system,
        marks=("Answer as a sailor would.",),
    ),
    Probe(
        feature="text, several turns",
        build=_asks(ASKED, _assistant(Text(text="It rains.")), _user(Text(text="And tomorrow?"))),
        look=_all(Text, "text"),
        marks=("It rains.", "And tomorrow?"),
    ),
    Probe(
        feature="image",
        build=_asks(_user(Text(text="What is this?"), Image(data=PIXEL, media_type="image/png"))),
        look=_all(Image, "data", "media_type"),
        marks=(PIXEL,),
    ),
    Probe(
        feature="image by URL",
        build=_asks(_user(Text(text="What is this?"), Image(url="https://example.org/fjord.png"))),
        look=_all(Image, "url"),
        marks=("fjord.png",),
    ),
    Probe(
        feature="document",
        build=_asks(_user(Document(data=PAPER, media_type="application/pdf", name="log.pdf"), Text(text="Sum it up."))),
        look=_all(Document, "data", "media_type"),
        marks=(PAPER,),
    ),
    Probe(
        feature="audio",
        build=_asks(_user(Text(text="Who speaks?"), Audio(data=SOUND, media_type="audio/wav"))),
        look=_all(Audio, "data", "media_type"),
        marks=(SOUND,),
    ),
    Probe(feature="tool", build=_asks(ASKED, tools=(WEATHER,)), look=_tools, marks=("Tells the weather",)),
    Probe(
        feature="tool call and result",
        build=_asks(ASKED, _assistant(CALL), _user(RAIN), tools=(WEATHER,)),
        look=_pairs,
        marks=("rain, as ever", "Bergen"),
    ),
    Probe(
        feature="parallel tool calls",
        build=_asks(ASKED, _assistant(CALL, OTHER_CALL), _user(RAIN, NOON), tools=(WEATHER, CLOCK)),
        look=_pairs,
        marks=("rain, as ever", "noon sharp"),
    ),
    Probe(
        feature="tool choice: required",
        build=_asks(ASKED, tools=(WEATHER, CLOCK), tool_choice=ToolChoice(mode="required")),
        look=_field("tool_choice", "mode"),
        noted=("tool_choice",),
    ),
    Probe(
        feature="tool choice: one by name",
        build=_asks(ASKED, tools=(WEATHER, CLOCK), tool_choice=ToolChoice(mode="required", names=("clock",))),
        look=lambda r: r.tool_choice and (r.tool_choice.mode, r.tool_choice.names),
        noted=("tool_choice",),
    ),
    Probe(
        feature="no parallel calls",
        build=_asks(ASKED, tools=(WEATHER,), tool_choice=ToolChoice(mode="auto"), parallel_calls=False),
        look=lambda r: None if r.parallel_calls is None else [r.parallel_calls],
        noted=("parallel_calls",),
    ),
    Probe(
        feature="tool result with image",
        build=_asks(
            ASKED,
            _assistant(CALL),
            _user(
                ToolResult(
                    call_id="call_1",
                    name="weather",
                    parts=(Text(text="see for yourself"), Image(data=PIXEL, media_type="image/png")),
                )
            ),
            tools=(WEATHER,),
        ),
        look=_result_kinds,
        marks=(PIXEL,),
    ),
    Probe(
        feature="error result",
        build=_asks(
            ASKED,
            _assistant(CALL),
            _user(ToolResult(call_id="call_1", name="weather", failed=True, parts=(Text(text="no such city"),))),
            tools=(WEATHER,),
        ),
        look=_result_failures,
        marks=("no such city",),
        signs=(FAILED,),
    ),
    Probe(
        feature="reasoning setting",
        build=_asks(ASKED, reasoning=ReasoningSetting(mode="auto", effort="high")),
        look=_field("reasoning", "effort"),
        noted=("mode", "effort"),
    ),
    Probe(
        feature="reasoning in the history",
        build=lambda origin: _ask(ASKED, _assistant(*_signed_turn(origin)), _user(RAIN), tools=(WEATHER,)),
        look=_all(Reasoning, "text"),
        marks=("Bergen means rain.",),
    ),
    Probe(
        feature="signature in the history",
        build=lambda origin: _ask(ASKED, _assistant(*_signed_turn(origin)), _user(RAIN), tools=(WEATHER,)),
        look=_seals,
        marks=("c2VhbGVk",),
    ),
    Probe(
        feature="structured output",
        build=_asks(ASKED, output=OutputFormat(type="json_schema", schema=SCHEMA, name="answer")),
        look=_field("output", "schema"),
    ),
    Probe(
        feature="stop",
        build=_asks(ASKED, stop=("END", "STOP")),
        look=_field("stop"),
        marks=("END",),
        noted=("stop",),
    ),
)


# ---------------------------------------------------------------- replies


def _answer(*parts: Part, finish: Finish | None = None, usage: Usage | None = None) -> Reply:
    usage = usage or Usage(input=20, output=10)
    return Reply(
        id="reply_1",
        model="some-model",
        created=1_790_000_000,
        choices=(Choice(parts=parts, finish=finish or Finish(reason="stop")),),
        usage=usage,
    )


def _answers(*parts: Part, finish: Finish | None = None, usage: Usage | None = None) -> Callable[[str], Reply]:
    return lambda origin: _answer(*parts, finish=finish, usage=usage)


def _cite(origin: str) -> Reply:
    words = "It rains in Bergen."
    cited = make_citation(origin, Citation(url="https://example.org/bergen", title="Bergen"), words, "rain is usual")
    return _answer(Text(text=words, citations=(cited,)))


def make_citation(origin: str, cited: Citation, words: str, quote: str) -> Citation:
    """A citation in the way of its dialect: Anthropic quotes the source, the others name a span of the answer."""
    if origin != ANTHROPIC:
        return replace(cited, start=0, end=len(words))
    own = {ANTHROPIC: {"type": "web_search_result_location", "encrypted_index": "aWR4"}}
    return replace(cited, quote=quote, extras=own)


def _citations(value: Reply) -> object:
    found = [c for part in parts_of(value) if isinstance(part, Text) for c in part.citations]
    return [[c.url, c.title] for c in found] or None


_RAIN_TEXT = Text(text="It rains.")

REPLIES = (
    Probe(feature="text", build=_answers(_RAIN_TEXT), look=_all(Text, "text"), marks=("It rains.",)),
    Probe(
        feature="tool call",
        build=_answers(CALL, finish=Finish(reason="tool_call")),
        look=_all(ToolCall, "name", "arguments"),
        marks=("weather",),
    ),
    Probe(
        feature="parallel tool calls",
        build=_answers(CALL, OTHER_CALL, finish=Finish(reason="tool_call")),
        look=_all(ToolCall, "name", "arguments"),
        marks=("weather", "clock"),
    ),
    Probe(
        feature="reasoning",
        build=lambda origin: _answer(
            _thought(origin) if find_dialect(origin).profile.echo == "signed" else Reasoning(text="Bergen means rain."),
            _RAIN_TEXT,
        ),
        look=_all(Reasoning, "text"),
        marks=("Bergen means rain.",),
    ),
    Probe(
        feature="signature",
        build=lambda origin: _answer(*_signed_turn(origin), finish=Finish(reason="tool_call")),
        look=_seals,
        marks=("c2VhbGVk",),
        signs=(MARK,),
    ),
    Probe(feature="end: length", build=_answers(_RAIN_TEXT, finish=Finish(reason="length")), look=_reasons),
    Probe(feature="end: tool call", build=_answers(CALL, finish=Finish(reason="tool_call")), look=_reasons),
    Probe(feature="end: filter", build=_answers(_RAIN_TEXT, finish=Finish(reason="filter")), look=_reasons),
    Probe(
        feature="end: stop sequence",
        build=_answers(_RAIN_TEXT, finish=Finish(reason="sequence", sequence="END")),
        look=lambda r: r.choices[0].finish and r.choices[0].finish.sequence,
        marks=('"END"',),
    ),
    Probe(
        feature="refusal",
        build=_answers(Refusal(text="I would rather not."), finish=Finish(reason="refusal")),
        look=_all(Refusal, "text"),
        marks=("I would rather not.",),
    ),
    Probe(
        feature="usage",
        build=_answers(_RAIN_TEXT, usage=Usage(input=20, output=10)),
        look=lambda r: r.usage and [r.usage.input, r.usage.output],
    ),
    Probe(
        feature="usage: cache and reasoning",
        build=_answers(_RAIN_TEXT, usage=Usage(input=20, cache_read=300, output=10, reasoning=40)),
        look=_usage,
    ),
    Probe(feature="citations", build=_cite, look=_citations, marks=("example.org/bergen",)),
)

FAILURES = (
    Probe(
        feature="error: rate limit",
        build=lambda origin: Failure(kind="rate_limited", message="Slow down, please.", status=429, retry_after_s=7.0),
        look=lambda f: [f.kind, f.message, f.retry_after_s],
        marks=("Slow down, please.",),
    ),
    Probe(
        feature="error: bad request",
        build=lambda origin: Failure(kind="invalid_request", message="No such field.", status=400),
        look=lambda f: [f.kind, f.message],
        marks=("No such field.",),
    ),
    Probe(
        feature="error: overloaded",
        build=lambda origin: Failure(kind="overloaded", message="Too many at once.", status=503),
        look=lambda f: [f.kind, f.message],
        marks=("Too many at once.",),
    ),
)
