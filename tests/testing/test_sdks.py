"""The vendors' own clients against scripted providers: what they send is taken, what they get they understand."""

import json
import os
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai
from google.genai import types

from dragoman.testing import faults
from tests.testing.sample_requests import Scripted

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "weather", "parameters": SCHEMA},
}
ASKED = "What is the weather in Oslo?"
TOLD = "The get_weather tool answered: 3 degrees"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients read keys, addresses and proxies from the environment; a test brings its own."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(
            ("ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "OLLAMA_")
        ):
            monkeypatch.delenv(name)


def openai_client(provider: Any, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.base_url, api_key="k", max_retries=0, **more)


def anthropic_client(provider: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=provider.base_url, api_key="k", max_retries=0)


def gemini_client(provider: Any) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=provider.url))


# -- OpenAI Chat


@pytest.mark.parametrize("kind", ["openai", "groq", "xai", "vllm", "mistral", "deepseek", "openrouter", "llamacpp"])
def test_openai_chat_goes_round_a_tool(scripted: Scripted, kind: str) -> None:
    provider = scripted(kind, key="k")
    with openai_client(provider) as client:
        turns: list[Any] = [{"role": "user", "content": ASKED}]
        first = client.chat.completions.create(model="grok-3", messages=turns, tools=[FUNCTION])
        message: Any = first.choices[0].message
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Oslo"}
        echoed = {"role": "assistant", "content": "", "tool_calls": [call.model_dump(exclude_none=True)]}
        if kind == "deepseek":
            echoed["reasoning_content"] = "I thought."
        turns += [echoed, {"role": "tool", "tool_call_id": call.id, "content": "3 degrees"}]
        second = client.chat.completions.create(model="grok-3", messages=turns, tools=[FUNCTION])
        assert second.choices[0].message.content == TOLD
    assert provider.refusals == []


@pytest.mark.parametrize("kind", ["openai", "groq", "xai", "vllm", "mistral", "deepseek", "openrouter", "azure"])
def test_openai_chat_streams(scripted: Scripted, kind: str) -> None:
    with openai_client(scripted(kind)) as client:
        stream = client.chat.completions.create(
            model="grok-3", messages=[{"role": "user", "content": "Say alpha beta"}], stream=True
        )
        chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "alpha beta"
    assert {choice.finish_reason for chunk in chunks for choice in chunk.choices} >= {"stop"}


def test_openai_chat_gets_what_it_asked_for(scripted: Scripted) -> None:
    with openai_client(scripted("openai")) as client:
        reply = client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Weather?"}],
            n=2,
            logprobs=True,
            response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA}},
        )
        assert [set(json.loads(choice.message.content or "")) for choice in reply.choices] == [{"city"}, {"city"}]
        assert reply.choices[0].logprobs is not None
        assert [model.id for model in client.models.list()] == ["gpt-4o"]
        vectors = client.embeddings.create(model="m", input=["a", "b"], encoding_format="float", dimensions=4)
        assert [len(item.embedding) for item in vectors.data] == [4, 4]
        spoken = client.audio.speech.create(model="m", voice="alloy", input="hi", response_format="wav")
        assert spoken.read()[:4] == b"RIFF"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_openai_knows_the_errors(scripted: Scripted, status: int, error: type[Exception]) -> None:
    provider = scripted("openai")
    provider.next(faults.failing(status))
    with openai_client(provider) as client, pytest.raises(error):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def test_openai_retries_after_the_time_of_the_header(scripted: Scripted) -> None:
    provider = scripted("openai")
    provider.next(faults.rate_limited(0.05, "ms"))
    with openai.OpenAI(base_url=provider.base_url, api_key="k", max_retries=1) as client:
        reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Say alpha"}])
    assert reply.choices[0].message.content == "alpha"
    assert len(provider.requests) == 2


# -- OpenAI Responses


def test_responses_go_round_a_tool_with_their_thoughts(scripted: Scripted) -> None:
    provider = scripted("openai_responses", key="k")
    tool: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    settings: Any = {
        "model": "gpt-5",
        "tools": [tool],
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }
    with openai_client(provider) as client:
        turns: list[Any] = [{"role": "user", "content": ASKED}]
        first = client.responses.create(input=turns, **settings)
        call = next(item for item in first.output if item.type == "function_call")
        turns += [item.model_dump(exclude_none=True) for item in first.output]
        turns.append({"type": "function_call_output", "call_id": call.call_id, "output": "3 degrees"})
        second = client.responses.create(input=turns, **settings)
        assert second.output_text == TOLD
        with client.responses.stream(input="Say alpha beta", model="gpt-5") as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == "alpha beta"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert provider.refusals == []


@pytest.mark.parametrize("stream", [False, True])
def test_responses_go_on_from_an_earlier_one(scripted: Scripted, stream: bool) -> None:
    with openai_client(scripted("openai_responses")) as client:
        if stream:
            with client.responses.stream(model="gpt-4o", input="My name is Alice.") as events:
                first = events.get_final_response()
        else:
            first = client.responses.create(model="gpt-4o", input="My name is Alice.")  # type: ignore[assignment]
        asked: Any = {"model": "gpt-4o", "input": "What is my name?"}
        assert client.responses.create(previous_response_id=first.id, **asked).output_text == "Your name is Alice."
        assert client.responses.retrieve(first.id).output_text == first.output_text
        client.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(previous_response_id=first.id, **asked)


# -- Anthropic


def test_anthropic_goes_round_a_tool_with_its_thoughts(scripted: Scripted) -> None:
    provider = scripted("anthropic", key="k")
    settings: Any = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 4000,
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with anthropic_client(provider) as client:
        turns: list[Any] = [{"role": "user", "content": ASKED}]
        with client.messages.stream(messages=turns, **settings) as stream:
            first = stream.get_final_message()
        assert [block.type for block in first.content] == ["thinking", "tool_use"]
        assert first.stop_reason == "tool_use"
        call: Any = first.content[1]
        assert call.input == {"city": "Oslo"}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "3 degrees"}
        turns += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second: Any = client.messages.create(messages=turns, **settings)
        assert second.content[-1].text == TOLD
        count = client.messages.count_tokens(model="claude-sonnet-4-6", messages=[{"role": "user", "content": "a b c"}])
        assert count.input_tokens == 3
        assert [model.id for model in client.models.list()] == ["claude-sonnet-4-6"]
    assert provider.refusals == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (404, anthropic.NotFoundError),
        (413, anthropic.RequestTooLargeError),
        (429, anthropic.RateLimitError),
        (529, anthropic.InternalServerError),
    ],
)
def test_anthropic_knows_the_errors(scripted: Scripted, status: int, error: type[Exception]) -> None:
    provider = scripted("anthropic")
    provider.next(faults.failing(status))
    with anthropic_client(provider) as client, pytest.raises(error):
        client.messages.create(model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


def test_anthropic_knows_an_error_amid_the_stream(scripted: Scripted) -> None:
    provider = scripted("anthropic")
    provider.next(faults.error_in_stream(3, "overloaded"))
    asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": [{"role": "user", "content": "Say alpha beta"}]}
    with (
        anthropic_client(provider) as client,
        pytest.raises(anthropic.APIStatusError, match="Overloaded"),
        client.messages.stream(**asked) as stream,
    ):
        stream.get_final_message()


# -- Gemini


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3-pro-preview"])
def test_gemini_goes_round_a_tool(scripted: Scripted, model: str) -> None:
    provider = scripted("gemini", key="k")
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="get_weather", parameters=SCHEMA)])
    config = types.GenerateContentConfig(
        tools=[tool], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    client = gemini_client(provider)
    asked = types.Content(role="user", parts=[types.Part(text=ASKED)])
    first: Any = client.models.generate_content(model=model, contents=[asked], config=config)
    (call,) = first.function_calls
    assert call.args == {"city": "Oslo"}
    result = types.Part.from_function_response(name="get_weather", response={"result": "3 degrees"})
    turns: Any = [asked, first.candidates[0].content, types.Content(role="user", parts=[result])]
    second = client.models.generate_content(model=model, contents=turns, config=config)
    assert "3 degrees" in (second.text or "")
    streamed = client.models.generate_content_stream(model=model, contents="Say alpha beta")
    assert "".join(chunk.text or "" for chunk in streamed) == "alpha beta"
    assert client.models.count_tokens(model=model, contents="a b c").total_tokens == 3
    assert [found.name for found in client.models.list()] == ["models/gemini-2.5-flash"]
    embedded: Any = client.models.embed_content(model="e", contents=["a", "b"])
    assert [len(item.values) for item in embedded.embeddings] == [8, 8]
    assert provider.refusals == []
    client.close()


# -- Ollama


def test_ollama_goes_round_a_tool(scripted: Scripted) -> None:
    provider = scripted("ollama")
    client = ollama.Client(host=provider.url)
    turns: list[Any] = [{"role": "user", "content": ASKED}]
    first = client.chat(model="qwen3", messages=turns, tools=[FUNCTION])
    (call,) = first.message.tool_calls or ()
    assert call.function.arguments == {"city": "Oslo"}
    turns += [first.message, {"role": "tool", "tool_name": "get_weather", "content": "3 degrees"}]
    second = client.chat(model="qwen3", messages=turns, tools=[FUNCTION])
    assert second.message.content == TOLD
    pieces = client.chat(model="qwen3", messages=[{"role": "user", "content": "Say alpha beta"}], stream=True)
    assert "".join(piece.message.content or "" for piece in pieces) == "alpha beta"
    assert client.generate(model="qwen3", prompt="Say alpha beta").response == "alpha beta"
    thought = client.chat(model="qwen3", messages=[{"role": "user", "content": "Say alpha"}], think=True)
    assert thought.message.thinking
    assert [found.model for found in client.list().models] == ["qwen3"]
    assert len(client.embed(model="qwen3", input=["a", "b"]).embeddings) == 2
    assert "tools" in (client.show("qwen3").capabilities or ())
    with pytest.raises(ollama.ResponseError, match="not found"):
        client.chat(model="no-such-model", messages=turns[:1])
    assert provider.refusals == ["no such model: no-such-model"]
    client._client.close()
