"""Vercel's AI SDK refers to what the model said by id unless it is told `store: false`: the items are put in its place.

Found with @ai-sdk/openai 4.0.114 on 2026-11-18: every earlier text of the model was lost towards other dialects.
"""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import Request
from dragoman.testing.provider import Provider, serve
from tests.gateway.house import House, open_house, upstream
from tests.gateway.sdks import WEATHER
from tests.gateway.web import post

UPSTREAMS = {
    "anthropic": ("anthropic", "claude-sonnet-4-6"),
    "gemini": ("gemini", "gemini-3-pro"),
    "openrouter": ("openai_chat", "google/gemini-3-pro"),
    "ollama": ("ollama", "qwen3"),
}
TOOL = {"type": "function", "strict": False, **WEATHER}


def think_say_call(request: Request) -> Reply:
    """A thought, words and a call, then words."""
    said = len([message for message in request.messages if message.role == "assistant"])
    parts: tuple[Any, ...] = (Reasoning(text=f"Thought {said}.", summary=True), Text(text=f"Words {said}."))
    if not said:
        parts = (*parts, ToolCall(id="call_1", name="get_weather", arguments='{"city":"Bergen"}'))
    finish = Finish(reason="stop" if said else "tool_call")
    return Reply(id=f"r{said}", model=request.model, choices=(Choice(parts=parts, finish=finish),))


@pytest.fixture(scope="module", params=list(UPSTREAMS))
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[str, Provider, House]]:
    dialect, model = UPSTREAMS[request.param]
    with serve(request.param, brain=think_say_call, odd=False) as provider:
        spec = upstream("far", dialect, provider.base_url, kind=request.param, models=(model,))
        with open_house(spec) as house:
            yield model, provider, house


def as_ai_sdk_sends(item: Any) -> dict[str, Any]:
    """Calls whole, all else by its id."""
    if item.type != "function_call":
        return {"type": "item_reference", "id": item.id}
    return {"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": item.arguments}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_referred_to_reaches_the_model(behind: tuple[str, Provider, House], stream: bool) -> None:
    model, provider, house = behind
    provider.reset()
    history: list[Any] = [{"role": "user", "content": "The weather?"}]
    asked: dict[str, Any] = {"model": model, "tools": [TOOL], "reasoning": {"effort": "low", "summary": "auto"}}
    with openai.OpenAI(base_url=f"{house.url}/v1", api_key="unused", max_retries=0) as client:
        for _ in range(2):
            if stream:
                with client.responses.stream(input=history, **asked) as events:
                    said = events.get_final_response()
            else:
                said = client.responses.create(input=history, **asked)
            history += [as_ai_sdk_sends(item) for item in said.output]
            calls = [item for item in said.output if item.type == "function_call"]
            history += [{"type": "function_call_output", "call_id": c.call_id, "output": "rain"} for c in calls]
            history += [] if calls else [{"role": "user", "content": "And?"}]
        assert [item["type"] for item in history if item.get("type") == "item_reference"]
        client.responses.create(input=history, **asked)
    assert provider.refusals == []
    last = provider.requests[-1].body.decode()
    for words in ("The weather?", "Words 0.", "Bergen", "rain", "Words 1.", "And?"):
        assert words in last, words


def test_an_item_that_is_not_kept_is_an_error_with_words(behind: tuple[str, Provider, House]) -> None:
    model, provider, house = behind
    provider.reset()
    for name in ("msg_dragoman_resp_0_0", "msg_of_another_server"):
        items = [{"type": "item_reference", "id": name}, {"role": "user", "content": "And?"}]
        got = post(house.url, "/v1/responses", {"model": model, "input": items})
        assert got.status == 400
        assert name in got.json["error"]["message"]
        assert "send the item itself" in got.json["error"]["message"]
    assert provider.requests == []
