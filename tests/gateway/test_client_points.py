"""Each numbered point of CLIENTS.md at its door: it is taken, the upstream hears what was meant, the client its answer.

What reached an upstream is read with that dialect's own decoder, so one expectation holds for all of them.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman.demo.model import wants_reasoning
from dragoman.dialects import find_dialect
from dragoman.jsontypes import load_json
from dragoman.model.fold import fold
from dragoman.model.messages import Document, Image, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import Request, ServerTool
from dragoman.notes import Notes
from dragoman.testing import Provider, serve
from dragoman.wire import WireReply, WireRequest
from tests.gateway.client_cases import CASES, CHAT, HEADERS, HI, TOOL, Case, chat, turn
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.gateway.web import Got, get, post

UPSTREAMS = {
    "openai_chat": "gpt-5.1",
    "openai_responses": "gpt-5.2",
    "anthropic": "claude-sonnet-4-6",
    "gemini": "gemini-3-flash-preview",
    "ollama": "qwen3",
}
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "openai_responses": "/v1/responses",
    "openai_chat": "/v1/chat/completions",
    "ollama": "/api/chat",
}


@dataclass
class StrictProviders:
    house: House
    providers: dict[str, Provider]


@pytest.fixture(scope="module")
def providers() -> Iterator[StrictProviders]:
    with ExitStack() as stack:
        providers = {name: stack.enter_context(serve(name, key=CANARY)) for name in UPSTREAMS}
        specs = [
            upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=(UPSTREAMS[name],))
            for name, provider in providers.items()
        ]
        yield StrictProviders(stack.enter_context(open_house(*specs)), providers)


def ask(url: str, case: Case, model: str, *, stream: bool) -> Got:
    if case.door == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return post(url, f"/v1beta/models/{model}:{verb}", case.body)
    body = {"model": model, **case.body, "stream": stream}
    return post(url, PATHS[case.door], body, HEADERS if case.door == "anthropic" else {})


def heard(provider: Provider) -> Request:
    """What the upstream was asked, as its own dialect reads it."""
    seen = provider.requests[-1]
    assert seen.dialect
    wire = WireRequest(body=load_json(seen.body), path=seen.path, headers=seen.headers)
    return find_dialect(seen.dialect).decode_request(wire, Notes())


def answer(case: Case, got: Got, *, stream: bool) -> list[Part]:
    """What the client was told, as its own dialect reads it."""
    dialect = find_dialect(case.door)
    if stream:
        decoder = dialect.stream_decoder(Notes())
        reply = fold([*decoder.feed(got.body), *decoder.close()])
    else:
        reply = dialect.decode_reply(WireReply(body=load_json(got.body)), Notes())
    assert isinstance(reply, Reply), reply
    return [part for part in reply.choices[0].parts if not isinstance(part, Reasoning)]


def every(parts: tuple[Part, ...]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, ToolResult):
            yield from every(part.parts)


def words(parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in every(parts) if isinstance(part, Text))


def steps(request: Request) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                found.append(("call", part.name, load_json(part.arguments)))
            elif isinstance(part, ToolResult):
                found.append(("result", plain(words(part.parts))))
    return found


def plain(said: str) -> str:
    """A result Gemini wants as an object says the same."""
    try:
        value = json.loads(said)
    except ValueError:
        return said
    return str(next(iter(value.values()))) if isinstance(value, dict) and len(value) == 1 else said


def check_heard(case: Case, request: Request) -> None:
    said = "\n".join(words(message.parts) for message in request.messages)
    at = 0
    for text in case.hears:
        at = said.find(text, at)
        assert at >= 0, (text, said)
    assert not [text for text in case.misses if text in said]
    if case.steps is not None:
        assert tuple(steps(request)) == case.steps
    if case.tools is not None:
        assert tuple(t.name for t in request.tools or () if not isinstance(t, ServerTool)) == case.tools
    if case.pictures is not None:
        parts = [part for message in request.messages for part in every(message.parts)]
        assert sum(isinstance(part, Image | Document) for part in parts) == case.pictures
    if case.thinks is not None:
        least = request.reasoning is not None and request.reasoning.effort == "minimal"  # Gemini 3 has no off
        assert (wants_reasoning(request) and not least) is case.thinks


def check_answer(case: Case, parts: list[Part]) -> None:
    if case.calls is not None:
        (call,) = [part for part in parts if isinstance(part, ToolCall)]
        name, arguments = case.calls
        own = call.extras.get("openai_responses", {}).get("~namespace")
        assert (call.name.removeprefix(f"{own}__") if own else call.name) == name
        given = load_json(call.arguments)
        assert arguments is None or {key: given.get(key) for key in arguments} == arguments
    if case.says is not None:
        assert case.says in words(tuple(parts))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("behind", UPSTREAMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_point_of_a_client_works_in_request_and_answer(
    case: Case, behind: str, stream: bool, providers: StrictProviders
) -> None:
    provider = providers.providers[behind]
    provider.reset()
    got = ask(providers.house.url, case, UPSTREAMS[behind], stream=stream)
    if behind in case.but:
        assert got.status == 200, got.text
        assert len(provider.refusals) == 1, "it is sent again without what cannot be read there"
        check_answer(case, answer(case, got, stream=stream))
        return
    if behind in case.learns and provider.refusals:
        provider.reset()
        got = ask(providers.house.url, case, UPSTREAMS[behind], stream=stream)
    assert provider.refusals == []
    assert got.status == 200, got.text
    assert len(provider.requests) == 1
    check_heard(case, heard(provider))
    check_answer(case, answer(case, got, stream=stream))


# ---------------------------------------------------------------- what is no single body


@pytest.mark.parametrize("header", [{"authorization": "Bearer dk-key"}, {"x-api-key": "dk-key"}])
def test_6_a_key_comes_as_bearer_or_as_x_api_key(header: dict[str, str]) -> None:
    with open_house(client_keys=("dk-key",)) as house:
        body = {"model": "demo", "max_tokens": 9, "messages": [HI]}
        assert post(house.url, "/v1/messages", body, {**HEADERS, **header}).status == 200
        assert post(house.url, "/v1/messages", body, HEADERS).status == 401


@pytest.mark.parametrize("behind", UPSTREAMS)
def test_8_a_freeform_call_comes_back_as_free_text(behind: str, providers: StrictProviders) -> None:
    patch = {"type": "custom", "name": "apply_patch", "description": "Patches", "format": {"type": "text"}}
    body = {"model": UPSTREAMS[behind], "input": "use apply_patch with `hello there`", "tools": [patch], "store": False}
    (item,) = [i for i in post(providers.house.url, "/v1/responses", body).json["output"] if i["type"] != "reasoning"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "hello there")


@pytest.mark.parametrize("kind", ["deepseek", "moonshot", "zai"])
def test_13_a_server_that_wants_its_reasoning_back_gets_it_or_is_not_asked_to_think(kind: str) -> None:
    case = next(case for case in CHAT if case.name.startswith("13"))
    with serve(kind, key=CANARY) as provider:
        spec = upstream(kind, "openai_chat", provider.base_url, kind=kind, models=("m",))
        with open_house(spec) as house:
            got = ask(house.url, case, "m", stream=False)
            assert provider.refusals == []
            assert got.status == 200, got.text


@pytest.mark.parametrize("behind", ["anthropic", "gemini", "ollama"])
def test_17_a_stream_without_alt_sse_is_one_json_array(behind: str, providers: StrictProviders) -> None:
    body = {"contents": [turn("user", {"text": "say hi there"})]}
    got = post(providers.house.url, f"/v1beta/models/{UPSTREAMS[behind]}:streamGenerateContent", body)
    chunks = got.json
    said = [part.get("text", "") for c in chunks for part in c["candidates"][0].get("content", {}).get("parts", ())]
    assert "".join(said).strip() == "hi there"
    assert got.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("behind", UPSTREAMS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_17_tokens_are_counted(behind: str, wrapped: bool, providers: StrictProviders) -> None:
    body: dict[str, Any] = {"contents": [turn("user", {"text": "say hi there"})]}
    if wrapped:
        body = {"generateContentRequest": {"model": f"models/{UPSTREAMS[behind]}", **body}}
    got = post(providers.house.url, f"/v1beta/models/{UPSTREAMS[behind]}:countTokens", body)
    assert got.status == 200, got.text
    assert got.json["totalTokens"] > 0


def test_18_a_model_has_a_digest_of_its_own_and_says_what_it_can() -> None:
    with open_house(aliases={"other": ("demo",)}) as house:
        tags = get(house.url, "/api/tags").json["models"]
        assert len({row["digest"] for row in tags}) == len(tags) == 2
        for key in ("name", "model"):
            shown = post(house.url, "/api/show", {key: "demo"}).json
            assert {"completion", "tools", "vision"} <= set(shown["capabilities"])


def test_18_an_ollama_provider_may_really_speak_chat(providers: StrictProviders) -> None:
    got = post(providers.house.url, "/v1/chat/completions", {"model": "qwen3:latest", "messages": [HI]})
    assert got.json["choices"][0]["message"]["content"] == "hi"


@pytest.mark.parametrize("behind", UPSTREAMS)
def test_19_a_body_of_119_kb_goes_through(behind: str, providers: StrictProviders) -> None:
    provider = providers.providers[behind]
    provider.reset()
    many = [
        {**TOOL, "function": {**TOOL["function"], "name": f"tool_{i}", "description": "d" * 1200}} for i in range(64)
    ]
    body = chat({"role": "user", "content": "x " * 10_000 + "say hi"}, tools=many, tool_choice="none")
    got = post(providers.house.url, "/v1/chat/completions", {"model": UPSTREAMS[behind], **body})
    assert len(json.dumps(body)) > 119_000
    assert (provider.refusals, got.status) == ([], 200)


@pytest.mark.parametrize("behind", UPSTREAMS)
@pytest.mark.parametrize("door", ["openai_chat", "anthropic"])
def test_20_the_id_of_a_call_leads_its_result_back(door: str, behind: str, providers: StrictProviders) -> None:
    """Whatever a client does with an id, it sends back the one it got."""
    provider = providers.providers[behind]
    provider.reset()
    url, model = providers.house.url, UPSTREAMS[behind]
    asked = {"role": "user", "content": "read /a.txt"}
    if door == "openai_chat":
        called = post(url, PATHS[door], {"model": model, "messages": [asked], "tools": [TOOL]})
        message = called.json["choices"][0]["message"]
        told = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "alpha"}
        body: dict[str, Any] = {"messages": [asked, message, told], "tools": [TOOL]}
    else:
        tool = {"name": "Read", "input_schema": TOOL["function"]["parameters"]}
        first = {"model": model, "max_tokens": 900, "messages": [asked], "tools": [tool]}
        content = post(url, PATHS[door], first, HEADERS).json["content"]
        told = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "alpha"}
        turns = [asked, {"role": "assistant", "content": content}, {"role": "user", "content": [told]}]
        body = {"max_tokens": 900, "messages": turns, "tools": [tool]}
    got = post(url, PATHS[door], {"model": model, **body}, HEADERS if door == "anthropic" else {})
    assert provider.refusals == []
    assert "The Read tool answered: alpha" in got.text
    assert len(steps(heard(provider))) == 2


@pytest.mark.parametrize("behind", UPSTREAMS)
def test_21_arguments_are_the_same_json_however_they_are_written(behind: str, providers: StrictProviders) -> None:
    provider = providers.providers[behind]
    for written in ('{"a":1,"b":"é"}', '{ "b": "\\u00e9", "a": 1 }'):
        provider.reset()
        call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": written}}
        told = {"role": "tool", "tool_call_id": "c1", "content": "x"}
        body = chat(HI, {"role": "assistant", "content": "", "tool_calls": [call]}, told, tools=[TOOL])
        post(providers.house.url, "/v1/chat/completions", {"model": UPSTREAMS[behind], **body})
        assert steps(heard(provider))[0] == ("call", "Read", {"a": 1, "b": "é"})


def test_22_models_tokens_and_earlier_responses_are_there_for_those_who_ask(providers: StrictProviders) -> None:
    url = providers.house.url
    assert {row["id"] for row in get(url, "/v1/models").json["data"]} >= set(UPSTREAMS.values())
    count = {"model": "gpt-5.1", "messages": [HI]}
    assert post(url, "/v1/messages/count_tokens", count, HEADERS).json["input_tokens"] > 0
    first = post(url, "/v1/responses", {"model": "claude-sonnet-4-6", "input": "my name is Ada"}).json
    again = {"model": "claude-sonnet-4-6", "input": "what is my name?", "previous_response_id": first["id"]}
    assert "Ada" in post(url, "/v1/responses", again).text


@pytest.mark.parametrize("behind", [name for name in UPSTREAMS if name != "openai_responses"])
def test_7_an_order_only_openai_can_carry_out_is_refused_rather_than_answered(
    behind: str, providers: StrictProviders
) -> None:
    items = [{"role": "user", "content": "say hi"}, {"type": "compaction_trigger"}]
    got = post(providers.house.url, "/v1/responses", {"model": UPSTREAMS[behind], "input": items, "store": False})
    assert got.status == 400
    assert "compaction_trigger" in got.json["error"]["message"]
