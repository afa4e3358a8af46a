"""Reasoning state survives real clients: three tool turns of a model that thinks, behind every door, streamed or not.

The history comes back as the official SDK itself dumps its objects, without any member that its types do not know. The
providers are strict: they refuse a signature that is missing, changed or foreign.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from google.genai import Client
from google.genai import types as genai

from dragoman.dialects import find_dialect
from dragoman.model.messages import Reasoning, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.testing.provider import Provider, serve
from dragoman.testing.seals import SENTINEL
from dragoman.wire import WireRequest
from tests.gateway.house import House, open_house, upstream
from tests.gateway.sdks import DOORS, WEATHER, Said
from tests.gateway.web import post

# upstream: kind, dialect, model
UPSTREAMS = {
    "anthropic": ("anthropic", "anthropic", "claude-sonnet-4-6"),
    "gemini": ("gemini", "gemini", "gemini-3-pro"),
    "openai": ("openai", "openai_responses", "gpt-5"),
    "openrouter": ("openrouter", "openai_chat", "google/gemini-3-pro"),
    "deepseek": ("deepseek", "openai_chat", "deepseek-reasoner"),
    "ollama": ("ollama", "ollama", "qwen3"),
}
CITIES = ("Bergen", "Seoul", "Lima")


def think_and_call(request: Request) -> Reply:
    """A thought and a call for each city, then a thought and the answer."""
    done = sum(isinstance(part, ToolResult) for message in request.messages for part in message.parts)
    thought = Reasoning(text=f"Thought {done} about the weather.", summary=True)
    if done == len(CITIES):
        parts: tuple[Any, ...] = (thought, text_of("Rain."))
        return Reply(id=f"r{done}", model=request.model, choices=(Choice(parts=parts, finish=Finish(reason="stop")),))
    call = ToolCall(id=f"call_{done}", name="get_weather", arguments=f'{{"city":"{CITIES[done]}"}}')
    finish = Finish(reason="tool_call")
    return Reply(id=f"r{done}", model=request.model, choices=(Choice(parts=(thought, call), finish=finish),))


def text_of(words: str) -> Any:
    from dragoman.model.messages import Text

    return Text(text=words)


@pytest.fixture(scope="module", params=list(UPSTREAMS))
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[str, Provider, House]]:
    kind, dialect, model = UPSTREAMS[request.param]
    with serve(kind, brain=think_and_call, odd=False) as provider:
        spec = upstream("far", dialect, provider.base_url, kind=kind, models=(model,))
        with open_house(spec) as house:
            yield request.param, provider, house


@pytest.fixture(scope="module", params=list(DOORS))
def door_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask_three_times(door: Any, model: str, *, stream: bool, forget: Any = None, think: bool = True) -> list[Said]:
    said = [door.ask(model, "The weather?", tools=[WEATHER], think=think, stream=stream)]
    while said[-1].calls:
        history = forget(said[-1].raw) if forget is not None else said[-1].raw
        results = ["rain"] * len(said[-1].calls)
        said.append(door.ask(model, "", tools=[WEATHER], after=history, results=results, think=think, stream=stream))
    return said


def thoughts_sent(provider: Provider, dialect: str) -> list[list[Any]]:
    """What each request brought the provider of its own thoughts and signatures."""
    sent: list[list[Any]] = []
    for seen in provider.requests:
        body = seen.json
        request = find_dialect(dialect).decode_request(WireRequest(body=body, path=seen.path), Notes())
        parts = [part for message in request.messages if message.role == "assistant" for part in message.parts]
        if dialect == "gemini":
            sent.append([part.seal for part in parts if isinstance(part, ToolCall)])
        else:
            sent.append([part for part in parts if isinstance(part, Reasoning)])
    return sent


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_thoughts_come_back_to_their_vendor(behind: tuple[str, Provider, House], door_name: str, stream: bool) -> None:
    name, provider, house = behind
    _, dialect, model = UPSTREAMS[name]
    provider.reset()
    door = DOORS[door_name](house.url)
    try:
        said = ask_three_times(door, model, stream=stream)
    finally:
        door.close()
    assert provider.refusals == []
    assert [len(one.calls) for one in said] == [1, 1, 1, 0]
    assert said[-1].text == "Rain."
    assert all("Thought" in one.thought for one in said), [one.thought for one in said]
    sent = thoughts_sent(provider, dialect)
    assert [len(thoughts) for thoughts in sent] == [0, 1, 2, 3]
    assert SENTINEL not in str(sent)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_googles_own_chats_keep_every_turn_as_one(behind: tuple[str, Provider, House], stream: bool) -> None:
    """`chats` keeps one content for each chunk, and leaves out a turn of which one chunk has no parts."""
    name, provider, house = behind
    _, dialect, model = UPSTREAMS[name]
    provider.reset()
    declared = genai.FunctionDeclaration(name="get_weather", parameters_json_schema=WEATHER["parameters"])
    config = genai.GenerateContentConfig(
        tools=[genai.Tool(function_declarations=[declared])],
        automatic_function_calling=genai.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=genai.ThinkingConfig(include_thoughts=True, thinking_budget=2048),
    )
    with Client(api_key="k" * 20, http_options=genai.HttpOptions(base_url=house.url)) as client:
        chat = client.chats.create(model=model, config=config)
        send: Any = "The weather?"
        for _ in range(len(CITIES) + 1):
            chunks = list(chat.send_message_stream(send)) if stream else [chat.send_message(send)]
            calls = [call for chunk in chunks for call in chunk.function_calls or ()]
            results = [genai.FunctionResponse(id=call.id, name=call.name, response={"sky": "rain"}) for call in calls]
            send = [genai.Part(function_response=result) for result in results]
    assert provider.refusals == []
    assert len(provider.requests) == len(CITIES) + 1
    assert [len(thoughts) for thoughts in thoughts_sent(provider, dialect)] == [0, 1, 2, 3]
    last = provider.requests[-1]
    request = find_dialect(dialect).decode_request(WireRequest(body=last.json, path=last.path), Notes())
    assert [m.role for m in request.messages if m.role in ("user", "assistant")] == ["user", "assistant"] * 3 + ["user"]
    assert not any(part == text_of("") for message in request.messages for part in message.parts)


def only_plain(messages: list[Any]) -> list[Any]:
    """As most programs keep Chat messages: the fields that everybody knows."""
    known = {"role", "content", "tool_calls", "tool_call_id"}
    plain = [{key: value for key, value in message.items() if key in known} for message in messages]
    for message in plain:
        for call in message.get("tool_calls", ()):
            call.pop("extra_content", None)
    return plain


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_chat_program_that_keeps_only_plain_messages(behind: tuple[str, Provider, House], stream: bool) -> None:
    name, provider, house = behind
    _, dialect, model = UPSTREAMS[name]
    provider.reset()
    door = DOORS["openai_chat"](house.url)
    try:
        said = ask_three_times(door, model, stream=stream, forget=only_plain)
    finally:
        door.close()
    assert provider.refusals == []
    assert said[-1].text == "Rain."
    sent = thoughts_sent(provider, dialect)
    assert [len(thoughts) for thoughts in sent] == [0, 1, 2, 3]
    assert SENTINEL not in str(sent)


def without_thoughts(items: list[Any]) -> list[Any]:
    """As pydantic-ai brings them back from a model whose name it does not know."""
    return [item for item in items if item.get("type") != "reasoning"]


def test_a_responses_program_that_asks_for_no_state_keeps_it(behind: tuple[str, Provider, House]) -> None:
    """OpenAI itself would need no state from it: the program did not say `store: false`."""
    name, provider, house = behind
    _, dialect, model = UPSTREAMS[name]
    if dialect == "openai_responses":
        pytest.skip("the request goes to OpenAI as it came")
    provider.reset()
    door = DOORS["openai_responses"](house.url)
    try:
        said = ask_three_times(door, model, stream=False, forget=without_thoughts, think=False)
    finally:
        door.close()
    assert provider.refusals == []
    assert said[-1].text == "Rain."
    sent = thoughts_sent(provider, dialect)
    assert [len(thoughts) for thoughts in sent] == [0, 1, 2, 3]
    assert SENTINEL not in str(sent)


ORDERS = (
    ("gemini", "openrouter", "deepseek", "anthropic"),
    ("openrouter", "deepseek", "ollama", "openai"),
    ("openai", "anthropic", "gemini", "openrouter"),
    ("anthropic", "openai", "openrouter", "gemini"),
    ("deepseek", "ollama", "anthropic", "openai"),
)


@pytest.fixture(scope="module")
def all_behind() -> Iterator[tuple[dict[str, Provider], House]]:
    with ExitStack() as stack:
        providers = {
            name: stack.enter_context(serve(kind, brain=think_and_call, odd=False))
            for name, (kind, _, _) in UPSTREAMS.items()
        }
        specs = [
            upstream(name, dialect, providers[name].base_url, kind=kind, models=(model,))
            for name, (kind, dialect, model) in UPSTREAMS.items()
        ]
        yield providers, stack.enter_context(open_house(*specs))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_conversation_that_changes_its_provider_at_every_turn(
    all_behind: tuple[dict[str, Provider], House], door_name: str, order: tuple[str, ...]
) -> None:
    """What one provider thought and signed is no reason for the next one to refuse."""
    providers, house = all_behind
    for provider in providers.values():
        provider.reset()
    models = [f"{name}/{UPSTREAMS[name][2]}" for name in order]
    door = DOORS[door_name](house.url)
    stream = ORDERS.index(order) % 2 == 0
    try:
        said = door.ask(models[0], "The weather?", tools=[WEATHER], think=True, stream=stream)
        for model in models[1:]:
            results = ["rain"] * len(said.calls)
            said = door.ask(model, "", tools=[WEATHER], after=said.raw, results=results, think=True, stream=stream)
    finally:
        door.close()
    assert said.text == "Rain."
    assert {name: provider.refusals for name, provider in providers.items() if provider.refusals} == {}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_one_conversation_with_two_models_at_once(
    all_behind: tuple[dict[str, Provider], House], door_name: str, stream: bool
) -> None:
    """As in a playground with two columns: the same words and the same calls, turn by turn. Each model gets its own
    thoughts back. Ollama's clients bring none, and the state of one column took the place of the other's."""
    providers, house = all_behind
    for provider in providers.values():
        provider.reset()
    columns = {name: f"{name}/{UPSTREAMS[name][2]}" for name in ("anthropic", "openai")}
    door = DOORS[door_name](house.url)
    try:
        said = {
            name: door.ask(model, "The weather?", tools=[WEATHER], think=True, stream=stream)
            for name, model in columns.items()
        }
        for _ in CITIES:
            for name, model in columns.items():
                before = said[name]
                said[name] = door.ask(
                    model, "", tools=[WEATHER], after=before.raw, results=["rain"], think=True, stream=stream
                )
    finally:
        door.close()
    assert {name: one.text for name, one in said.items()} == dict.fromkeys(columns, "Rain.")
    for name in columns:
        assert providers[name].refusals == []
        sent = thoughts_sent(providers[name], UPSTREAMS[name][1])
        assert [len(thoughts) for thoughts in sent] == [0, 1, 2, 3], name


# A conversation that began elsewhere: its state was signed for another account (FIELD-CASES 9).
SEALED = "b3RoZXIgYWNjb3VudA=="
CALL = {"name": "get_weather", "arguments": '{"city":"Bergen"}'}
CHAT_TOOL = {"type": "function", "function": WEATHER}
ELSEWHERE: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages",
        {
            "max_tokens": 4000,
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "tools": [{"name": "get_weather", "input_schema": WEATHER["parameters"]}],
            "messages": [
                {"role": "user", "content": "The weather?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": SEALED},
                        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Bergen"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]},
            ],
        },
    ),
    "openai": (
        "/v1/responses",
        {
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [{"type": "function", "strict": False, **WEATHER}],
            "input": [
                {"role": "user", "content": "The weather?"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED},
                {"type": "function_call", "call_id": "call_1", **CALL},
                {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            ],
        },
    ),
    "openrouter": (
        "/v1/chat/completions",
        {
            "tools": [CHAT_TOOL],
            "messages": [
                {"role": "user", "content": "The weather?"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_details": [
                        {
                            "type": "reasoning.encrypted",
                            "data": SEALED,
                            "format": "google-gemini-v1",
                            "id": "call_1",
                            "index": 0,
                        }
                    ],
                    "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            ],
        },
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_history_of_another_account_is_answered(behind: tuple[str, Provider, House], stream: bool) -> None:
    """It was refused for ever before: a client sends its history with every request."""
    name, provider, house = behind
    if name not in ELSEWHERE:
        pytest.skip("it signs nothing, or says that it can do without")
    provider.reset()
    path, body = ELSEWHERE[name]
    got = post(house.url, path, {"model": UPSTREAMS[name][2], **body, "stream": stream})
    assert got.status == 200, got.text
    assert len(provider.refusals) == 1
    assert SEALED in provider.requests[0].body.decode()
    assert SEALED not in provider.requests[1].body.decode()
    assert "rain" in provider.requests[1].body.decode()
    assert "cannot read" in got.headers["x-dragoman-notes"]
