"""What real clients send and real servers refuse, through a gateway to strict scripted providers: docs/strangers.md."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.gateway.process.banner import missing_key
from dragoman.testing import Provider, serve
from tests.gateway.house import House, faultline, open_house, say, upstream
from tests.gateway.web import post

KINDS = {
    "openai": ("openai_chat", "openai_responses"),
    "anthropic": ("anthropic",),
    "gemini": ("gemini",),
    "mistral": ("openai_chat",),
    "deepseek": ("openai_chat", "anthropic"),
    "ollama": ("ollama",),
}
MODELS = {
    "openai": ("gpt-4o", "o3", "gpt-5", "gpt-5.1", "gpt-5.5", "gpt-5.6"),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-1", "claude-sonnet-4-6", "claude-opus-4-7", "claude-opus-5-5"),
    "gemini": ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-3-pro-preview"),
    "mistral": ("mistral-large-latest",),
    "deepseek": ("deepseek-chat",),
    "ollama": ("qwen3",),
}
ALL = [(kind, model) for kind, models in MODELS.items() for model in models]
TURN = [{"role": "user", "content": "hi"}]
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]
TOOL = {"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "w", "arguments": "{}"}}
CALLED = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]


class StrictProviders:
    """One gateway, and a strict provider of each kind behind it."""

    def __init__(self, house: House, providers: dict[str, Provider]) -> None:
        self.house, self.providers = house, providers

    def ask(self, kind: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the provider was sent. It took the first request."""
        provider = self.providers[kind]
        provider.requests.clear()
        got = post(self.house.url, path, body)
        talks = [seen for seen in provider.requests if seen.dialect]
        assert (got.status, provider.refusals, len(talks)) == (200, [], 1), got.text
        sent: dict[str, Any] = talks[0].json
        return sent


@pytest.fixture(scope="module")
def providers() -> Iterator[StrictProviders]:
    with ExitStack() as stack:
        providers = {kind: stack.enter_context(serve(kind)) for kind in KINDS}
        specs = [
            upstream(kind, dialects[0], providers[kind].base_url, kind=kind, dialects=dialects, models=MODELS[kind])
            for kind, dialects in KINDS.items()
        ]
        yield StrictProviders(stack.enter_context(open_house(*specs)), providers)


def ask_anthropic(model: str, **settings: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {"model": model, "max_tokens": 9_000, "messages": TURN, **settings}


def ask_chat(model: str, **settings: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"model": model, "messages": TURN, **settings}


# ---------------------------------------------------------------- thinking


THINKING: list[dict[str, Any]] = [
    {"type": "disabled"},
    {"type": "adaptive"},
    {"type": "adaptive", "display": "summarized"},
    {"type": "enabled", "budget_tokens": 1024},
    {"type": "enabled", "budget_tokens": 8_000, "display": "summarized"},
]
CONFIGS: list[dict[str, Any]] = [
    {"thinkingBudget": 0},
    {"thinkingBudget": -1},
    {"thinkingBudget": 63_999, "includeThoughts": True},
    {"thinkingLevel": "low"},
    {"includeThoughts": True},
]


@pytest.mark.parametrize(("kind", "model"), ALL, ids=[model for _, model in ALL])
def test_every_way_to_ask_for_thoughts_is_taken_by_every_model(
    kind: str, model: str, providers: StrictProviders
) -> None:
    for effort in ("none", "minimal", "low", "high", "xhigh"):
        for reasoning in ({"effort": effort}, {"effort": effort, "summary": "auto"}):
            providers.ask(kind, "/v1/responses", {"model": model, "input": "hi", "reasoning": reasoning})
        providers.ask(kind, *ask_chat(model, reasoning_effort=effort))
    for thinking in THINKING:
        providers.ask(kind, *ask_anthropic(model, thinking=thinking))
    for config in CONFIGS:
        body = {"contents": CONTENTS, "generationConfig": {"thinkingConfig": config}}
        providers.ask(kind, f"/v1beta/models/{model}:generateContent", body)
    for think in (True, False, "low", "high"):
        providers.ask(kind, "/api/chat", {"model": model, "stream": False, "think": think, "messages": TURN})


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.1", "gpt-5.5"])
def test_a_responses_server_keeps_nothing_and_hands_its_state_and_its_thoughts_out(
    model: str, providers: StrictProviders
) -> None:
    for path, body in (
        ask_anthropic(model, thinking={"type": "adaptive"}),
        ("/api/chat", {"model": model, "stream": False, "think": True, "messages": TURN}),
    ):
        sent = providers.ask("openai", path, body)
        assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])
        assert sent["reasoning"]["summary"] == "auto"
        got = post(providers.house.url, path, body).json
        assert "thinking" in json.dumps(got.get("content") or got["message"])


# ---------------------------------------------------------------- rules of providers


@pytest.mark.parametrize(("kind", "model"), ALL, ids=[model for _, model in ALL])
def test_what_programs_send_is_taken_by_every_model(kind: str, model: str, providers: StrictProviders) -> None:
    """A long user id and cache marks (Claude Code), two samplers (Gemini CLI), echoes of OpenAI's SDK, an empty
    list of tools, an error without words."""
    marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    providers.ask(kind, *ask_anthropic(model, metadata={"user_id": "u" * 180}, system=marked))
    providers.ask(kind, *ask_chat(model, temperature=0.5, top_p=0.9))
    if kind not in ("mistral", "deepseek"):  # some Chat servers take it from their own clients: there it is learned
        providers.ask(kind, *ask_chat(model, tools=[], tool_choice="auto"))
    echoed: dict[str, Any] = {"role": "assistant", "content": "x", "annotations": [], "refusal": None, "audio": None}
    providers.ask(kind, *ask_chat(model, messages=[*TURN, echoed, *TURN]))
    result = {"role": "tool", "tool_call_id": "abcdefghi", "content": "r"}
    providers.ask(kind, *ask_chat(model, messages=[*CALLED, result, *TURN], tools=[TOOL]))
    failed = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True}]},
    ]
    tools = [{"name": "w", "input_schema": {"type": "object"}}]
    providers.ask(kind, *ask_anthropic(model, messages=failed, tools=tools))


@pytest.mark.parametrize(("kind", "model"), ALL, ids=[model for _, model in ALL])
def test_a_second_result_for_one_call_reaches_the_model(kind: str, model: str, providers: StrictProviders) -> None:
    results = [{"role": "tool", "tool_call_id": "abcdefghi", "content": words} for words in ("sun", "rain")]
    sent = json.dumps(providers.ask(kind, *ask_chat(model, messages=[*CALLED, *results], tools=[TOOL])))
    assert "sun" in sent
    assert "rain" in sent


# ---------------------------------------------------------------- doors


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PLAIN = base64.b64encode(PNG).decode()
SAFE = base64.urlsafe_b64encode(PNG).decode()


@pytest.mark.parametrize(
    "data",
    [SAFE, SAFE.rstrip("="), PLAIN.rstrip("="), f"{PLAIN[:40]}\n{PLAIN[40:]} "],
    ids=["safe", "bare", "cut", "blank"],
)
@pytest.mark.parametrize("key", ["inlineData", "inline_data"])
def test_googles_base64_reaches_others_in_the_usual_alphabet(key: str, data: str, providers: StrictProviders) -> None:
    """google-genai for Python writes the URL-safe alphabet."""
    part = {key: {"mimeType" if key == "inlineData" else "mime_type": "image/png", "data": data}}
    body = {"contents": [{"role": "user", "parts": [part, {"text": "x"}]}]}
    sent = providers.ask("openai", "/v1beta/models/gpt-4o:generateContent", body)
    assert sent["messages"][0]["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PLAIN}"


# ---------------------------------------------------------------- servers


WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "no JSON"}, "finish_reason": "stop"}],
}


def test_a_good_first_answer_stands_when_asking_again_fails() -> None:
    """An answer in the wrong form is better than the error of asking for it once more."""
    answers = iter([WHOLE])

    async def script(seen: Any, writer: Any) -> None:
        found = next(answers, None)
        status = 200 if found else 400
        await say(status, json.dumps(found or {"error": {"message": "no"}}).encode())(seen, writer)

    lacks = {"lacks": ("json", "json_schema")}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": schema}}
    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), overrides=lacks)) as house,
    ):
        got = post(house.url, *ask_chat("m", response_format=form))
        assert (got.status, len(line.seen)) == (200, 2)
        assert got.json["choices"][0]["message"]["content"] == "no JSON"
        assert "not in the form" in got.headers["x-dragoman-notes"]


CHUNK: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
SPOKEN = {"index": 0, "delta": {"role": "assistant", "content": "no JSON"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("words", "asked", "sent"),
    [
        ("Your organization must be verified to stream this model.", True, [True, False, False]),
        ("Requests with max_tokens > 4096 must have stream=true", False, [False, True, True]),
    ],
)
def test_a_server_that_answers_in_one_way_only_serves_clients_of_both(
    words: str, asked: bool, sent: list[bool]
) -> None:
    """OpenAI streams some models to verified organisations only. Codex always asks for a stream."""

    async def script(seen: Any, writer: Any) -> None:
        streams = bool(json.loads(seen.body).get("stream"))
        if streams == asked:
            await say(400, json.dumps({"error": {"message": words, "type": "invalid_request_error"}}).encode())(
                seen, writer
            )
        elif streams:
            chunk = f"data: {json.dumps({**CHUNK, 'choices': [SPOKEN]})}\n\ndata: [DONE]\n\n"
            await say(200, chunk.encode(), "text/event-stream")(seen, writer)
        else:
            await say(200, json.dumps(WHOLE).encode())(seen, writer)

    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        for path, body in (ask_chat("m", stream=asked), ("/v1/responses", {"model": "m", "input": "q"})):
            got = post(house.url, path, {**body, "stream": asked})
            assert (got.status, "no JSON" in got.text) == (200, True), got.text
            assert got.text.startswith("{") != asked
        assert [bool(json.loads(seen.body).get("stream")) for seen in line.seen] == sent


def test_a_strict_client_of_codex_is_not_refused_for_its_groups_of_tools() -> None:
    function = {
        "type": "function",
        "name": "sleep",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    group = {"type": "namespace", "name": "clock", "description": "time", "tools": [function]}
    with (
        faultline(say(200, json.dumps(WHOLE).encode())) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        body = {"model": "m", "input": "hi", "tools": [group]}
        assert post(house.url, "/v1/responses", body, {"x-dragoman-refuse": "dropped"}).status == 200
        assert [tool["function"]["name"] for tool in json.loads(line.seen[0].body)["tools"]] == ["clock__sleep"]


def test_an_assistants_turn_is_an_item_that_says_its_type(providers: StrictProviders) -> None:
    """llama.cpp refuses any other: "Cannot determine type of 'item'"."""
    turns = [*TURN, {"role": "assistant", "content": "yes"}, *TURN]
    sent = providers.ask("openai", *ask_chat("gpt-5.5", messages=turns))
    assert sent["input"][1]["type"] == "message"


@pytest.mark.parametrize(("kind", "advised"), [("vllm", False), ("llamacpp", False), ("openai", True)])
def test_a_server_on_this_machine_is_not_reported_to_lack_a_key(kind: str, advised: bool) -> None:
    spec = upstream("far", "openai_chat", "http://models.example:8000/v1", kind=kind, keys=())
    assert (missing_key(spec) is not None) is advised


def test_check_takes_the_file_as_serve_spells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.toml"
    file.write_text('[providers.near]\nkind = "vllm"\nbase_url = "http://127.0.0.1:8000/v1"\n', "utf-8")
    assert main(["check", "--config", str(file)]) == 0
    assert "near: a vllm server" in capsys.readouterr().out
