"""Small conversations and answers in which every Struct of `model/` stands somewhere: places to try a field at."""

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.failure import Failure
from dragoman.model.events import Aside, Event, ReplyFailed
from dragoman.model.fold import unfold
from dragoman.model.messages import (
    Audio,
    Cache,
    Citation,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import CustomTool, OutputFormat, ReasoningSetting, Request, ServerTool, Tool, ToolChoice
from tests.laws.derive import Kind
from tests.laws.strategies import MP4, PDF, PNG, WAV

Path: TypeAlias = tuple[str | int, ...]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="weather", parameters=SCHEMA)
CALL = ToolCall(id="call_1", name="weather", arguments='{"city":"Oslo"}')
RAIN = TokenLogprob(token="rain", logprob=-2.0, bytes=(114, 97, 105, 110))
SNOW = TokenLogprob(token="snow", logprob=-0.5, bytes=(115, 110, 111, 119), top=(RAIN,))
CITATION = Citation(url="https://example.org/", title="Snow", start=0, end=4)
FORMS = {"openai_responses": "encrypted"}  # of the seals a dialect takes back


def seal_of(dialect: str) -> Seal:
    return Seal(origin=dialect, value="c2VhbA==", form=FORMS.get(dialect, "signature"))


def opaques_of(dialect: str) -> tuple[Opaque, Opaque]:
    """A part of its own, and one of another dialect."""
    return Opaque(dialect=dialect, body={"type": "squawk"}), Opaque(dialect="parrot", body={"type": "squawk"})


@cache
def requests_for(dialect: str) -> tuple[Request, ...]:
    """Conversations whose seals are the dialect's own."""
    seal = seal_of(dialect)
    asked, marked = says("user", Text(text="hi")), Text(text="look", cache=Cache())
    result = ToolResult(call_id="call_1", parts=(Text(text="snow"), Image(data=PNG, media_type="image/png")))
    everything = Request(
        model="m",
        messages=(
            says("system", Text(text="be brief")),
            says("developer", Text(text="be kind")),
            asked,
            says("assistant", Reasoning(text="hm", seal=seal), Text(text="Oslo?"), CALL),
            says("user", result, Text(text="and?")),
        ),
        tools=(
            WEATHER,
            CustomTool(name="shell"),
            ServerTool(dialect=dialect, body={"type": "squawk"}),
            ServerTool(dialect="parrot", body={"type": "squawk"}),
        ),
        tool_choice=ToolChoice(mode="required"),
        output=OutputFormat(type="json_schema", schema=SCHEMA),
        reasoning=ReasoningSetting(effort="high"),
        cache=Cache(),
    )
    answer = Text(text="snow", citations=(CITATION,), logprobs=(SNOW,), seal=seal)
    strange = Reasoning(text="hm", extras={"parrot": {"mood": "sour"}})
    turns = (
        (answer,),
        (strange, Text(text="yes")),
        (Refusal(text="no", logprobs=(SNOW,)),),
        (Text(text="yes"), *opaques_of(dialect)),
    )
    return (
        everything,
        *(Request(model="m", messages=(asked, says("assistant", *parts), asked)) for parts in turns),
        Request(model="m", messages=(says("user", *media(), marked),)),
    )


@cache
def replies_for(dialect: str) -> tuple[Reply, ...]:
    """Answers whose seals are the dialect's own."""
    seal = seal_of(dialect)
    answer = Text(text="snow", citations=(CITATION,), logprobs=(SNOW,))
    return (
        replied(Text(text="snow")),
        replace(replied(Text(text="snow")), service_tier="priority"),
        replied(Reasoning(text="hm", seal=seal), Text(text="Oslo?"), CALL, reason="tool_call"),
        replied(answer),
        replied(Refusal(text="no", logprobs=(SNOW,)), reason="refusal"),
        ended(Finish(reason="refusal", message="It is against the rules.")),
        ended(Finish(reason="sequence", sequence="END")),
        replied(Text(text="snow"), *opaques_of(dialect)),
        *(replied(medium) for medium in media()),
    )


def events_for(dialect: str) -> tuple[tuple[Event, ...], ...]:
    """An answer in pieces, and one that fails."""
    start, *others = unfold(replied(Text(text="snow")))
    aside = Aside(dialect="parrot", body={"type": "squawk"})
    return (start, aside, *others), (start, ReplyFailed(failure=FAILURE))


FAILURE = Failure(kind="invalid_request", message="no such tool")


def media() -> tuple[Part, ...]:
    return (
        Image(data=PNG, media_type="image/png"),
        Document(data=PDF, media_type="application/pdf"),
        Audio(data=WAV, media_type="audio/wav"),
        Video(data=MP4, media_type="video/mp4"),
    )


def says(role: Role, *parts: Part) -> Message:
    return Message(role=role, parts=parts)


def ended(finish: Finish) -> Reply:
    """An answer whose end says more than its reason."""
    reply = replied(Text(text="snow"))
    return replace(reply, choices=(replace(reply.choices[0], finish=finish),))


def replied(*parts: Part, reason: Any = "stop") -> Reply:
    return Reply(
        id="reply_1",
        model="m",
        choices=(Choice(parts=parts, finish=Finish(reason=reason)),),
        usage=Usage(input=10, output=6),
    )


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Struct]]:
    """Every Struct in a value, and where it is."""
    if isinstance(value, Struct):
        yield path, value
        for name in value.__struct_fields__:
            yield from walk(getattr(value, name), (*path, name))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from walk(item, (*path, i))


def places(value: Any, kind: Kind) -> list[Path]:
    """Where Structs of a kind stand in a value."""
    return [path for path, found in walk(value) if type(found) is kind]


def at_place(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return value


def change(value: Any, path: Path, fields: dict[str, Any]) -> Any:
    """The value with other fields in the Struct at a place."""
    if not path:
        return replace(value, **fields)
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return tuple(change(item, rest, fields) if i == step else item for i, item in enumerate(value))
    return replace(value, **{step: change(getattr(value, step), rest, fields)})
