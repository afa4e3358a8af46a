"""Every kind of server there is a row for: it takes what our passes make for it, and our decoders read its answers."""

import pytest
from msgspec.structs import replace

from dragoman.model.messages import Image, Reasoning, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import OutputFormat, ReasoningSetting, Request, Tool, ToolChoice
from dragoman.testing import Provider
from dragoman.upstream.profiles import load_rows
from tests.passes.short_forms import assistant, call, developer, result, system, talk, user
from tests.testing.sample_requests import Scripted, hear, send

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", description="The weather of a city", parameters=CITY)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

PAIRS = [(kind.name, dialect) for kind in load_rows().kinds.values() for dialect in kind.dialects]
TALKS: dict[str, Request] = {
    "words": talk(system("Be brief."), user("Say alpha beta gamma")),
    "call": talk(user("What is the weather in Oslo?"), tools=(WEATHER,), max_output=4000),
    "parallel": talk(user("The weather in Paris and in Tokyo, both please."), tools=(WEATHER,), max_output=4000),
    "thinking": talk(user("Say alpha beta"), reasoning=ReasoningSetting(effort="high", show=True), max_output=20000),
    "forced": talk(user("Hello!"), tools=(WEATHER,), tool_choice=ToolChoice(mode="required"), max_output=4000),
    "history": talk(
        developer("Be brief."),
        user("What is the weather in Oslo?"),
        assistant("Let me see.", call("call_aaaaaaaaaaaaaaaaaaaaaaaa", "get_weather", '{"city":"Oslo"}')),
        user(result("call_aaaaaaaaaaaaaaaaaaaaaaaa", "3 degrees", name="get_weather")),
        tools=(WEATHER,),
        max_output=4000,
        temperature=0.5,
    ),
    "orphans": talk(
        user("One"),
        user("Two"),
        assistant(call("c1", "get_weather", '{"city":"Oslo"}'), call("c2", "get_weather", "{}")),
        user(result("c2", "late"), result("c9", "lost"), "Say alpha"),
        tools=(WEATHER,),
        max_output=4000,
    ),
    "picture": talk(user("What is this?", Image(data=PIXEL, media_type="image/png")), max_output=400),
    "schema": talk(user("Weather?"), output=OutputFormat(type="json_schema", name="w", schema=CITY), max_output=400),
}


def model_of(provider: Provider, name: str) -> str:
    """One that takes what is asked: at OpenAI and xAI not every model thinks, and not every one takes penalties."""
    thinking = {"openai": "gpt-5", "xai": "grok-4.3"} if name == "thinking" else {"xai": "grok-3"}
    return thinking.get(provider.kind, provider.models[0])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize(("kind", "dialect"), PAIRS)
def test_a_conversation_is_taken_and_answered(
    scripted: Scripted, kind: str, dialect: str, name: str, stream: bool
) -> None:
    provider = scripted(kind)
    request = replace(TALKS[name], model=model_of(provider, name), stream=stream)
    answer = send(provider, request, dialect)
    assert provider.refusals == []
    judge(name, hear(answer, dialect, stream))


def judge(name: str, reply: Reply) -> None:
    parts = reply.choices[0].parts
    said = "".join(part.text for part in parts if isinstance(part, Text))
    calls = [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)]
    finish = reply.choices[0].finish
    assert finish is not None
    assert finish.reason == ("tool_call" if calls else "stop")
    match name:
        case "call":
            assert calls == [("get_weather", '{"city":"Oslo"}')]
        case "parallel":
            assert calls == [("get_weather", '{"city":"Paris"}'), ("get_weather", '{"city":"Tokyo"}')]
            ids = [part.id for part in parts if isinstance(part, ToolCall)]
            assert len(set(ids)) == 2
        case "words":
            assert said == "alpha beta gamma"
        case "thinking":
            assert said == "alpha beta"
            thoughts = [part for part in parts if isinstance(part, Reasoning)]
            assert all(thought.text for thought in thoughts)
        case "history":
            assert "3 degrees" in said
        case _:
            pass
