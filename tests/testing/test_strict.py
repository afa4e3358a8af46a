"""Scripted providers refuse what the vendors document that they refuse, with their status and their words."""

from typing import Any

import pytest

from dragoman.testing import Provider
from tests.testing.sample_requests import Answer, Scripted, ask

USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
NESTED = {"name": "f", "parameters": {"type": "object", "properties": {"n": FUNCTION["parameters"]}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
GEMINI_CALL = {"functionCall": {"name": "f", "args": {}}}

PATHS = {
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/models/{model}:generateContent",
    "ollama": "/api/chat",
}
PLAIN: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [USER]},
    "openai_responses": {"model": "m", "input": "hi"},
    "anthropic": {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [USER]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "ollama": {"model": "m", "messages": [USER], "stream": False},
}

# kind, dialect, what is said differently, status, words
REFUSALS: list[tuple[str, str, dict[str, Any], int, str]] = [
    # Anthropic: pairing, roles, required fields, thinking (docs.anthropic.com; FIELD-CASES 1, 2, 9, 10, 51-53, 56, 60)
    ("anthropic", "anthropic", {"max_tokens": None}, 400, "max_tokens: Field required"),
    ("anthropic", "anthropic", {"messages": []}, 400, "at least one message is required"),
    ("anthropic", "anthropic", {"stop": ["x"]}, 400, "stop: Extra inputs are not permitted"),
    (
        "anthropic",
        "anthropic",
        {"messages": [USER, {"role": "assistant", "content": [USE]}, USER]},
        400,
        "`tool_use` ids were found without `tool_result` blocks immediately after: t1",
    ),
    (
        "anthropic",
        "anthropic",
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9", "content": "x"}]}]},
        400,
        "unexpected `tool_use_id` found in `tool_result` blocks: t9",
    ),
    (
        "anthropic",
        "anthropic",
        {"messages": [{"role": "user", "content": " "}]},
        400,
        "must contain non-whitespace text",
    ),
    (
        "anthropic",
        "anthropic",
        {"thinking": {"type": "enabled", "budget_tokens": 100}},
        400,
        "greater than or equal to 1024",
    ),
    (
        "anthropic",
        "anthropic",
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 2048,
            "tools": [TOOL],
            "tool_choice": {"type": "any"},
        },
        400,
        "Thinking may not be enabled when tool_choice forces tool use",
    ),
    (
        "anthropic",
        "anthropic",
        {"tools": [{"name": "a b", "input_schema": {"type": "object"}}]},
        400,
        "should match pattern",
    ),
    (
        "anthropic",
        "anthropic",
        {"output_format": {"type": "json_schema", "schema": {"type": "integer", "minimum": 1}}},
        400,
        "output_format.schema: For 'integer' type, property 'minimum' is not supported",
    ),
    # OpenAI: pairing, unknown parameters, ranges, schemas (platform.openai.com; FIELD-CASES 1, 2, 50, 62, 63)
    (
        "openai",
        "openai_chat",
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER]},
        400,
        "must be followed by tool messages responding to each 'tool_call_id'",
    ),
    (
        "openai",
        "openai_chat",
        {"messages": [USER, {"role": "tool", "tool_call_id": "c9", "content": "x"}]},
        400,
        "must be a response to a preceeding message with 'tool_calls'",
    ),
    ("openai", "openai_chat", {"top_k": 3}, 400, "Unrecognized request argument supplied: top_k"),
    ("openai", "openai_chat", {"model": None}, 400, "you must provide a model parameter"),
    ("openai", "openai_chat", {"temperature": 3}, 400, "decimal above maximum value. Expected a value <= 2"),
    ("openai", "openai_chat", {"temperature": "hot"}, 400, "Invalid type for 'temperature': expected a decimal"),
    (
        "openai",
        "openai_chat",
        {"stream_options": {"include_usage": True}},
        400,
        "only allowed when 'stream' is enabled",
    ),
    ("openai", "openai_chat", {"model": "gpt-5", "max_tokens": 9}, 400, "Use 'max_completion_tokens' instead"),
    ("openai", "openai_chat", {"max_tokens": 9, "max_completion_tokens": 9}, 400, "at the same time is not supported"),
    ("openai", "openai_chat", {"tools": []}, 400, "[] is too short - 'tools'"),
    (
        "openai",
        "openai_chat",
        {"tools": [{"type": "function", "function": {"name": "a.b"}}]},
        400,
        "does not match pattern",
    ),
    (
        "openai",
        "openai_chat",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
        400,
        "object schema missing properties",
    ),
    ("openai", "openai_chat", {"messages": []}, 400, "Expected an array with minimum length 1, but got an empty array"),
    ("openai", "openai_chat", {"model": "gpt-4o", "reasoning_effort": "low"}, 400, "is not supported with this model"),
    ("openai", "openai_chat", {"model": "o4-mini", "stop": ["x"]}, 400, "'stop' is not supported with this model"),
    # Responses (FIELD-CASES 13, 40, 42)
    (
        "openai",
        "openai_responses",
        {"model": "gpt-4o", "reasoning": {"effort": "low"}},
        400,
        "'reasoning.effort' is not",
    ),
    (
        "openai",
        "openai_responses",
        {"model": "o4-mini", "reasoning": {"effort": "minimal"}},
        400,
        "Supported values are",
    ),
    ("openai", "openai_responses", {"stop": ["x"]}, 400, "Unrecognized request argument supplied: stop"),
    ("openai", "openai_responses", {"max_output_tokens": 5}, 400, "integer below minimum value"),
    (
        "openai",
        "openai_responses",
        {"previous_response_id": "resp_1"},
        400,
        "Previous response with id 'resp_1' not found.",
    ),
    (
        "openai",
        "openai_responses",
        {"input": [{"type": "function_call_output", "call_id": "c9", "output": "x"}]},
        400,
        "No tool call found for function call output with call_id c9.",
    ),
    (
        "openai",
        "openai_responses",
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}, USER]},
        400,
        "was provided without its required following item",
    ),
    # Gemini (FIELD-CASES 12, 17, 18, 63, 67)
    ("gemini", "gemini", {"contents": []}, 400, "contents is not specified"),
    ("gemini", "gemini", {"messages": [USER]}, 400, 'Unknown name "messages": Cannot find field.'),
    (
        "gemini",
        "gemini",
        {
            "contents": [
                *PLAIN["gemini"]["contents"],
                {"role": "model", "parts": [GEMINI_CALL]},
                *PLAIN["gemini"]["contents"],
            ]
        },
        400,
        "the number of function response parts is equal to the number of function call parts",
    ),
    (
        "gemini",
        "gemini",
        {"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": ["string", "null"]}}]}]},
        400,
        "Proto field is not repeating, cannot start list.",
    ),
    # Ollama (server source)
    ("ollama", "ollama", {"messages": [{"role": "developer", "content": "x"}]}, 400, "invalid role: developer"),
    (
        "ollama",
        "ollama",
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        400,
        "cannot unmarshal array",
    ),
    ("ollama", "ollama", {"messages": [{**USER, "images": ["abc!"]}]}, 400, "illegal base64 data at input byte 3"),
    ("ollama", "ollama", {"think": "enormous"}, 400, "invalid think value"),
    # compatible servers (provider-quirks, FIELD-CASES 14, 15, 43, 54, 57, 59)
    ("mistral", "openai_chat", {"max_completion_tokens": 9}, 422, "Extra inputs are not permitted"),
    (
        "mistral",
        "openai_chat",
        {"stream_options": {"include_usage": True}, "stream": True},
        422,
        "Extra inputs are not permitted",
    ),
    (
        "mistral",
        "openai_chat",
        {
            "messages": [
                USER,
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "x"},
            ]
        },
        400,
        "must be a-z, A-Z, 0-9, with a length of 9",
    ),
    ("mistral", "openai_chat", {"messages": [USER, USER]}, 400, "roles must alternate"),
    ("groq", "openai_chat", {"logprobs": True}, 400, "logprobs"),
    ("groq", "openai_chat", {"messages": [{**USER, "name": "bob"}]}, 400, "property 'name' is unsupported"),
    (
        "groq",
        "openai_chat",
        {"messages": [USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}, USER]},
        400,
        "property 'reasoning_content' is unsupported",
    ),
    (
        "xai",
        "openai_chat",
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": None, "parameters": FUNCTION["parameters"]},
                }
            ]
        },
        422,
        "Failed to deserialize the JSON body into the target type",
    ),
    (
        "xai",
        "openai_chat",
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        422,
        "missing field `parameters`",
    ),
    ("xai", "openai_chat", {"presence_penalty": 0}, 400, "presence_penalty"),
    (
        "deepseek",
        "openai_chat",
        {"messages": [{"role": "developer", "content": "x"}, USER]},
        400,
        "unknown variant `developer`",
    ),
    (
        "deepseek",
        "openai_chat",
        {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT]},
        400,
        "in the thinking mode must be passed back",
    ),
    ("lmstudio", "openai_chat", {"response_format": {"type": "json_object"}}, 400, "must be 'json_schema' or 'text'"),
    ("cerebras", "openai_chat", {"store": True}, 400, "store"),
    ("fireworks", "openai_chat", {"verbosity": "low"}, 400, "verbosity"),
]


def words_of(body: Any) -> str:
    """The message in whichever shape the vendor has."""
    if "detail" in body:
        return str(body["detail"][0]["msg"])
    error = body.get("error", body)
    return str(error if isinstance(error, str) else error["message"])


def plain_ask(provider: Provider, dialect: str, changes: dict[str, Any], model: str = "gemini-2.5-flash") -> Answer:
    body = {key: value for key, value in (PLAIN[dialect] | changes).items() if value is not None}
    return ask(provider, PATHS[dialect].replace("{model}", model), body)


@pytest.mark.parametrize(
    ("kind", "dialect", "changes", "status", "words"),
    REFUSALS,
    ids=[f"{r[0]}-{r[1]}-{i}" for i, r in enumerate(REFUSALS)],
)
def test_it_refuses_as_the_vendor_does(
    scripted: Scripted, kind: str, dialect: str, changes: dict[str, Any], status: int, words: str
) -> None:
    provider = scripted(kind)
    answer = plain_ask(provider, dialect, changes)
    assert (answer.status, words in words_of(answer.json)) == (status, True), answer.body
    assert words in provider.refusals[0]
    assert plain_ask(scripted(kind, strict=False), dialect, changes).status in (200, 400)  # 400: nobody could read it


@pytest.mark.parametrize(
    ("kind", "dialect", "changes", "words"),
    [
        (
            "anthropic",
            "anthropic",
            {"messages": [{"role": "assistant", "content": "x"}, USER]},
            "first message must use",
        ),
        ("gemini", "gemini", {"tools": [{"functionDeclarations": [NESTED]}]}, "should be non-empty for OBJECT type"),
        ("ollama", "ollama", {"messages": [USER, {**RESULT, "tool_name": "f"}]}, "without a call"),
        (
            "openrouter",
            "openai_chat",
            {"tools": [{"type": "function", "function": {**FUNCTION, "name": "a.b"}}]},
            "pattern",
        ),
    ],
)
def test_what_the_vendor_takes_in_silence_is_a_warning(
    scripted: Scripted, kind: str, dialect: str, changes: dict[str, Any], words: str
) -> None:
    provider = scripted(kind)
    assert plain_ask(provider, dialect, changes).status == 200
    assert [words in warning for warning in provider.warnings] == [True]


@pytest.mark.parametrize(("kind", "dialect"), sorted({(r[0], r[1]) for r in REFUSALS}))
def test_a_plain_request_is_taken(scripted: Scripted, kind: str, dialect: str) -> None:
    assert plain_ask(scripted(kind), dialect, {}).status == 200


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("openai", {"error"}),
        ("xai", {"code", "error"}),
        ("mistral", {"object", "message", "type", "param", "code", "raw_status_code"}),
        ("lmstudio", {"error"}),
    ],
)
def test_an_error_has_the_shape_of_its_server(scripted: Scripted, kind: str, shape: set[str]) -> None:
    assert set(plain_ask(scripted(kind), "openai_chat", {"messages": []}).json) == shape


@pytest.mark.parametrize(
    ("kind", "dialect", "header", "status"),
    [
        ("openai", "openai_chat", {"authorization": "Bearer k"}, 401),
        ("anthropic", "anthropic", {"x-api-key": "k"}, 401),
        ("gemini", "gemini", {"x-goog-api-key": "k"}, 400),
    ],
)
def test_a_wrong_key_is_refused_and_the_right_one_taken(
    scripted: Scripted, kind: str, dialect: str, header: dict[str, str], status: int
) -> None:
    provider = scripted(kind, key="k")
    path = PATHS[dialect].replace("{model}", "gemini-2.5-flash")
    assert ask(provider, path, PLAIN[dialect], header).status == 200
    assert ask(provider, path, PLAIN[dialect], {name: value + "x" for name, value in header.items()}).status == status
    assert ask(provider, path, PLAIN[dialect]).status == status


@pytest.mark.parametrize(
    ("kind", "dialect"), [("openai", "openai_chat"), ("anthropic", "anthropic"), ("ollama", "ollama")]
)
def test_an_unknown_model_is_404(scripted: Scripted, kind: str, dialect: str) -> None:
    assert plain_ask(scripted(kind), dialect, {"model": "no-such-model"}).status == 404
    assert plain_ask(scripted(kind, models=("a",)), dialect, {"model": "b"}).status == 404
    assert plain_ask(scripted("gemini"), "gemini", {}, "no-such-model").status == 404


def test_each_kind_has_its_own_words_for_a_missing_model(scripted: Scripted) -> None:
    missing = {"model": "no-such-model"}
    mistral = plain_ask(scripted("mistral"), "openai_chat", missing)
    assert (mistral.status, mistral.json["type"]) == (400, "invalid_model")
    xai = plain_ask(scripted("xai"), "openai_chat", missing)
    assert (xai.status, xai.json["code"]) == (400, "invalid-argument")
    responses = plain_ask(scripted("openai"), "openai_responses", missing)
    assert (responses.status, responses.json["error"]["code"]) == (400, "model_not_found")


def test_a_path_of_another_dialect_is_404(scripted: Scripted) -> None:
    provider = scripted("anthropic")
    assert ask(provider, provider.url + "/v1/chat/completions", PLAIN["openai_chat"]).status == 404
    openai = scripted("openai")
    assert ask(openai, openai.url + "/v1/v1/chat/completions", PLAIN["openai_chat"]).status == 404


def test_anthropic_wants_its_version_header(scripted: Scripted) -> None:
    answer = ask(scripted("anthropic"), "/v1/messages", PLAIN["anthropic"], {"anthropic-version": None})
    assert answer.status == 400
    assert words_of(answer.json) == "anthropic-version: header is required"


def test_what_is_no_json_is_refused(scripted: Scripted) -> None:
    assert ask(scripted("openai"), "/chat/completions", b"{").status == 400
    assert ask(scripted("openai"), "/chat/completions", b"[]").status == 400


# -- signatures


def test_a_thought_comes_back_only_as_it_was(scripted: Scripted) -> None:
    provider = scripted("anthropic")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    told = plain_ask(provider, "anthropic", thinking).json["content"]
    assert [block["type"] for block in told] == ["thinking", "text"]

    def replay(block: dict[str, Any]) -> Answer:
        turns = [USER, {"role": "assistant", "content": [block, told[1]]}, USER]
        return plain_ask(provider, "anthropic", {**thinking, "messages": turns})

    assert replay(told[0]).status == 200
    for spoiled in ({"thinking": "other"}, {"signature": "made-up"}):
        answer = replay({**told[0], **spoiled})
        assert answer.status == 400
        assert "Invalid `signature` in `thinking` block" in words_of(answer.json)


def test_gemini_3_wants_its_signature_on_the_first_call(scripted: Scripted) -> None:
    provider = scripted("gemini")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"functionDeclarations": [{"name": "weather", "parameters": schema}]}]
    asked = {"role": "user", "parts": [{"text": "weather in Oslo?"}]}
    told = plain_ask(provider, "gemini", {"contents": [asked], "tools": tools}, "gemini-3-pro").json
    (part,) = told["candidates"][0]["content"]["parts"]
    response = {"functionResponse": {"name": "weather", "response": {"result": "3 degrees"}}}

    def replay(**changes: Any) -> Answer:
        model = {"role": "model", "parts": [{k: v for k, v in (part | changes).items() if v is not None}]}
        turns = [asked, model, {"role": "user", "parts": [response]}]
        return plain_ask(provider, "gemini", {"contents": turns, "tools": tools}, "gemini-3-pro")

    assert replay().status == 200
    assert replay(thoughtSignature="skip_thought_signature_validator").status == 200
    assert "missing a thought_signature" in words_of(replay(thoughtSignature=None).json)
    assert "Corrupted thought signature" in words_of(replay(thoughtSignature="bWFkZSB1cA==").json)


def test_responses_know_their_own_encrypted_content(scripted: Scripted) -> None:
    provider = scripted("openai")
    asked = {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"], "store": False}
    told = plain_ask(provider, "openai_responses", asked).json["output"]
    assert [item["type"] for item in told] == ["reasoning", "message"]
    user = {"role": "user", "content": "hi"}
    assert plain_ask(provider, "openai_responses", {**asked, "input": [user, *told, user]}).status == 200
    told[0]["encrypted_content"] = "gAAAA"
    answer = plain_ask(provider, "openai_responses", {**asked, "input": [user, *told, user]})
    assert answer.json["error"]["code"] == "invalid_encrypted_content"
