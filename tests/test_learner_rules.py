"""Each rule that a refusal names: what is sent instead, now and from then on, and what is kept over a restart."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.conformance.probes import PIXEL
from dragoman.dialects import find_dialect
from dragoman.errors import UpstreamError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.failure import Failure
from dragoman.learner import learn
from dragoman.learner_rules import RULES
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.kept_files import LEARNED_KEPT_S, LearnedFile
from dragoman.upstream.profiles import profile_for
from dragoman.upstream.read_reply import read_refusal
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireReply
from tests.passes.test_cases import MARK, A, answer, ask, calls, dig, fn, said, use
from tests.passes.wires import read, write

SCHEMA = {"type": "json_schema", "json_schema": {"name": "r", "schema": A}}
CHAT, ANTH, GEM, OLL, RESP = "openai_chat", "anthropic", "gemini", "ollama", "openai_responses"
LARGE = PIXEL + "A" * 6_000_000
COUNTED = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}, "maxItems": 3}}}
HIGH = {"reasoning_effort": "high"}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4000}

# kind, model, dialect, what is asked, the refusal, a path in what is sent instead and the value there ("gone": nothing)
LESSONS: list[tuple[str, str, str, dict[str, Any], str, str, Any]] = [
    ("anthropic", "claude-new", ANTH, {"temperature": 0.5, "top_p": 0.5},
     "`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p", "gone"),
    ("openai", "gpt-5.6", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "q", "prompt_cache_breakpoint": {"mode": "explicit"}}]}]},
     "Unknown parameter: 'messages[0].content[0].prompt_cache_breakpoint'.",
     "messages.0.content.0.prompt_cache_breakpoint", "gone"),
    ("openai", "gpt-4o", CHAT, {"web_search_options": {"search_context_size": "low"}},
     "Web search options not supported with this model.", "web_search_options", "gone"),
    ("anthropic", "claude-new", ANTH, {"max_tokens": 128000},
     "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for x", "max_tokens", 64000),
    ("anthropic", "claude-new", ANTH, {"max_tokens": 9, "tools": [], "tool_choice": {"type": "auto"}},
     "tool_choice: may only be specified while providing tools", "tool_choice", "gone"),
    ("compatible", "m", CHAT, {"max_tokens": 99999},
     "max_tokens is too large: 99999. This model supports at most 16384 completion tokens, whereas you provided 99999.",
     "max_tokens", 16384),
    ("groq", "llama-x", CHAT, {"max_tokens": 99999},
     "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the window",
     "max_tokens", 8192),
    ("deepseek", "deepseek-chat", CHAT, {"max_tokens": 99999},
     "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "max_tokens", 8192),
    ("gemini", "gemini-9", GEM, {"generationConfig": {"maxOutputTokens": 99999}},
     "it has a maxOutputTokens value of 99999 but the supported range is from 1 (inclusive) to 65537 (exclusive).",
     "generationConfig.maxOutputTokens", 65536),
    ("gemini", "gemini-9", GEM, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 63999}}},
     "The thinking budget (63999) is invalid. Please choose a value between 512 and 24576.",
     "generationConfig.thinkingConfig.thinkingBudget", 24576),
    ("anthropic", "claude-new", ANTH, {"thinking": {"type": "disabled"}},
     '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode.',
     "thinking.type", "adaptive"),
    ("anthropic", "claude-new", ANTH, BUDGET,
     '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"',
     "thinking.type", "adaptive"),
    ("anthropic", "claude-new", ANTH, {"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}},
     "adaptive thinking is not supported on this model", "thinking.type", "enabled"),
    ("anthropic", "claude-new", ANTH, {"output_config": {"effort": "high"}},
     "This model does not support the effort parameter.", "output_config", "gone"),
    ("gemini", "gemini-3.5-flash", GEM, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}},
     "Thinking level MINIMAL is not supported for this model.",
     "generationConfig.thinkingConfig.thinkingLevel", "LOW"),
    ("openai", "gpt-5", RESP, {"reasoning": {"effort": "minimal"}, "tools": [{"type": "web_search"}]},
     "The following tools cannot be used with reasoning.effort 'minimal': web_search.", "reasoning.effort", "low"),
    ("compatible", "m", CHAT, {**HIGH, "tools": [fn(A)]},
     "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Please use /v1/responses.",
     "reasoning_effort", "gone"),
    ("compatible", "m", CHAT, {"tools": [fn(A)]},
     "Function tools with reasoning_effort are not supported for m. Set reasoning_effort to 'none'.",
     "reasoning_effort", "none"),
    ("openai", "gpt-5", RESP, {"reasoning": {"effort": "low", "summary": "auto"}},
     "Your organization must be verified to generate reasoning summaries.", "reasoning", {"effort": "low"}),
    ("openai", "gpt-7", RESP, {"reasoning": {"effort": "low", "context": "all_turns"}},
     "Unsupported value: 'all_turns' is not supported with this model.", "reasoning", {"effort": "low"}),
    ("openai", "gpt-7", RESP, {"reasoning": {"effort": "low", "mode": "deep"}},
     "Unsupported parameter: 'reasoning.mode' is not supported with this model.", "reasoning", {"effort": "low"}),
    ("anthropic", "claude-new", ANTH, {"tools": [
        {"name": "f", "strict": True, "input_schema": {**A, "additionalProperties": False}}]},
     "The compiled grammar is too large, which would cause performance issues.", "tools.0.strict", "gone"),
    ("compatible", "m", CHAT, {"messages": [ask(), calls("c1"), answer("c1"), ask("go")]},
     "Unexpected role 'user' after role 'tool'", "messages.3", said("OK.")),
    ("compatible", "m", CHAT, {"messages": [ask(), {**calls("c1"), "content": "Let me see."}, answer("c1")]},
     "Assistant message must have either content or tool_calls, but not both.", "messages.1.content", None),
    ("vllm", "gpt-oss-20b", RESP, {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
     "logprobs are not supported with gpt-oss models", "top_logprobs", "gone"),
    ("compatible", "m", CHAT, {"tools": [], "tool_choice": "auto", "messages": [ask()]},
     "`tools` must not be an empty array.", "tools", "gone"),
    ("compatible", "m", CHAT, {"tools": [fn(A, name=f"t{i}") for i in range(5)]},
     "Invalid 'tools': array too long. Expected an array with maximum length 4, but got an array with length 5.",
     "tools.4", "gone"),
    ("groq", "m", CHAT, {"user": "u" * 60},
     "Invalid 'user': string too long. Expected a string with maximum length 40, but got a string with length 60.",
     "safety_identifier", "gone"),
    ("vllm", "m", CHAT, {"response_format": SCHEMA, "tools": [fn(A)]},
     "json mode cannot be combined with tool/function calling", "response_format", "gone"),
    ("vllm", "m", CHAT, {"response_format": SCHEMA, "stream": True},
     "`response_format` does not support streaming", "response_format", {"type": "json_object"}),
    ("ollama", "m", OLL, {"think": "low"},
     "json: cannot unmarshal string into Go struct field ChatRequest.think of type bool", "think", True),
    ("openrouter", "m", CHAT, {"tool_choice": "auto"},
     "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
     "tool_choice", "gone"),
    ("vllm", "m", CHAT, {"messages": [ask(), said("ok", annotations=[{"x": 1}]), ask()]},
     "body.messages.1.assistant.annotations: Extra inputs are not permitted", "messages.1", said("ok")),
    ("anthropic", "claude-new", ANTH, {"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LARGE}}]}]},
     "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
     "messages.0.content", "[image left out: 5.7 MB of base64, 5.0 are taken]"),
    ("openai", "gpt-4o", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{LARGE}"}}]}]},
     "You uploaded an unsupported image. Please make sure your image is below 1 MB in size and of a known format.",
     "messages.0.content", "[image left out: 5.7 MB of base64, 1.3 are taken]"),
    ("openai", "o3", RESP, {"stream": True},
     "Your organization must be verified to stream this model.", "stream", False),
    ("fireworks", "m", CHAT, {"max_tokens": 9000},
     "Requests with max_tokens > 4096 must have stream=true", "stream", True),
    ("azure", "gpt-4o", CHAT, {"tools": [fn(A, description="d" * 10 + "rest")]},
     "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 10, but got 14.",
     "messages.0.content", "The description of the tool look goes on:\nrest"),
    ("gemini", "gemini-9", GEM, {"generationConfig": {"candidateCount": 2}},
     "Multiple candidates is not enabled for this model", "generationConfig.candidateCount", "gone"),
    ("gemini", "gemini-9", GEM, {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": COUNTED}]}]},
     "The specified schema produces a constraint that has too many states for serving.",
     "tools.0.functionDeclarations.0.parametersJsonSchema.properties.x",
     {"type": "array", "items": {"type": "string"}, "description": "(maxItems: 3)"}),
    ("compatible", "kimi-k3", CHAT, {"tools": [fn({"type": "object", "properties": {
        "x": {"type": "string", "anyOf": [{"minLength": 1}, {"type": "null"}], "description": "d"}}})]},
     "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.x': when",
     "tools.0.function.parameters.properties.x",
     {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "description": "d"}),
    ("cerebras", "m", CHAT, {"tools": [fn(COUNTED)]}, "Unsupported JSON schema fields: {'maxItems'}",
     "tools.0.function.parameters.properties.x",
     {"type": "array", "items": {"type": "string"}, "description": "(maxItems: 3)"}),
]  # fmt: skip


def asked(dialect: str, body: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [ask()]},
        RESP: {"input": "q"},
        ANTH: {"messages": [ask()], "max_tokens": 4000},
        GEM: {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        OLL: {"messages": [ask()]},
    }
    return {"model": "m", **plain[dialect], **body}


def refusal(message: str, **more: Any) -> Failure:
    return Failure(kind="invalid_request", status=400, message=message, **more)


@pytest.mark.parametrize(
    ("kind", "model", "dialect", "body", "words", "path", "value"), LESSONS, ids=[row[4][:40] for row in LESSONS]
)
def test_a_refusal_that_names_a_rule_is_obeyed_now_and_the_next_time(
    kind: str, model: str, dialect: str, body: dict[str, Any], words: str, path: str, value: Any
) -> None:
    native = replace(profile_for(kind, model, dialect), native=True)
    request = replace(read(dialect, asked(dialect, body)), model=model)
    lesson = learn(refusal(words), request, native, Notes())
    assert lesson is not None
    now = json.loads(json.dumps(find_dialect(dialect).encode_request(lesson.request, Notes()).body))
    taught = replace(profile_for(kind, model, dialect, lesson.remember), native=True)
    later = write(request, taught)
    for sent in (now, later):
        found = dig(sent, path)
        assert found == value if value != "gone" else type(found) is object, sent


def test_a_refusal_about_one_request_is_not_remembered() -> None:
    """llama.cpp gives logprobs without tools, or without a stream."""
    profile = profile_for("llamacpp", "m", CHAT)
    request = replace(read(CHAT, asked(CHAT, {"logprobs": True, "tools": [fn(A)]})), model="m")
    lesson = learn(refusal("logprobs is not supported with tools + stream"), request, profile, Notes())
    assert lesson is not None
    assert lesson.request.logprobs is None
    assert lesson.remember == {}


def test_a_search_gives_way_to_functions_where_both_are_refused() -> None:
    """Codex asks for both in every request."""
    words = (
        "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling."
    )
    profile = replace(profile_for("gemini", "gemini-9"), searches="yes")
    asks = read(RESP, asked(RESP, {"tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}))
    sent = legalise(asks, profile, Notes())
    assert len(sent.tools or ()) == 2
    notes = Notes()
    lesson = learn(refusal(words), sent, profile, notes)
    assert lesson is not None
    assert [getattr(tool, "name", "") for tool in lesson.request.tools or ()] == ["f"]
    assert [(note.kind, note.where) for note in notes] == [("dropped", "/tools/0")]
    assert lesson.remember == {"searches": "alone"}


def test_googles_refusal_without_a_word_is_answered_with_plainer_schemas_once() -> None:
    """Many limits in the schemas together are "an invalid argument", and nothing says which."""
    profile = profile_for("gemini", "gemini-9")
    request = read(CHAT, asked(CHAT, {"tools": [fn(COUNTED)]}))
    lesson = learn(refusal("Request contains an invalid argument."), request, profile, Notes())
    assert lesson is not None
    assert "maxItems" not in json.dumps(write(lesson.request, profile)).replace("(maxItems: 3)", "")
    assert lesson.remember == {}
    assert learn(refusal("Request contains an invalid argument."), lesson.request, profile, Notes()) is None


def test_a_system_text_beside_sound_is_said_by_the_user_once() -> None:
    """Mistral's older models that hear (mistral-common validator.py)."""
    words = "Found system messages at indexes [0] and audio chunks in messages at indexes [1]. This is not allowed."
    talk = [{"role": "system", "content": "be brief"}, ask()]
    lesson = learn(refusal(words), read(CHAT, asked(CHAT, {"messages": talk})), profile_for("mistral", "m"), Notes())
    assert lesson is not None
    assert [message.role for message in lesson.request.messages] == ["user"]
    assert lesson.remember == {}


def test_every_rule_has_its_refusal() -> None:
    words = [row[4] for row in LESSONS] + OTHER_WORDS + [row[2] for row in BLIND_WORDS]
    assert [rule.pattern.pattern for rule in RULES if not any(rule.pattern.search(text) for text in words)] == []


# Words of rules whose fields are the profile's already in every row that a test above could use.
OTHER_WORDS = [
    "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling.",
    "Request contains an invalid argument.",
    "Found system messages at indexes [0] and audio chunks in messages at indexes [1].",
    "logprobs is not supported with tools + stream",
    "Budget 0 is invalid. This model only works in thinking mode.",
    "messages.2.content.0: content cannot be empty if `is_error` is true",
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.",
    "cache_control may not be specified within `tool_result.content`.",
    "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
]


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens and your request has 272 input tokens (32000 > 7920).",
        "This model's maximum context length is 8192 tokens. However, you asked for 32272 (272 in the messages).",
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 32272 (272 of text input)",
        "exceeds the maximum context length of 8192 tokens. You requested a total of 9: 272 tokens from the input text",
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 272 `inputs` tokens and 32000 `max_new_tokens`",
        "input length and `max_tokens` exceed context limit: 272 + 32000 > 8192, decrease input length or `max_tokens`",
    ],
)
def test_a_limit_above_what_the_window_leaves_is_lowered_to_it(words: str) -> None:
    vllm = profile_for("vllm", "qwen")
    request = read(CHAT, asked(CHAT, {"max_tokens": 32000}))
    failure = find_dialect(CHAT).decode_failure(WireReply(status=400, body={"error": {"message": words, "code": 400}}))
    lesson = learn(failure, request, vllm, Notes())
    assert lesson is not None
    assert lesson.request.max_output == 8192 - 272
    later = write(request, profile_for("vllm", "qwen", overrides=lesson.remember))
    assert 7000 < later["max_completion_tokens" if "max_completion_tokens" in later else "max_tokens"] < 8192


def test_a_prompt_that_does_not_fit_teaches_nothing() -> None:
    words = "This model's maximum context length is 8192 tokens and your request has 9000 input tokens"
    failure = Failure(kind="too_long", status=400, message=words)
    assert learn(failure, read(CHAT, asked(CHAT, {"max_tokens": 10})), profile_for("vllm", "q"), Notes()) is None


# ---------------------------------------------------------------- said once, kept over a restart

UPSTREAM = Upstream(name="x", kind="vllm", dialect=CHAT, base_url="http://h/v1")
BOTH = {"temperature": 0.5, "top_k": 3, "metadata": {"a": "b"}, "stop_sequences": ["x"], "tools": [
    {"name": "f", "input_schema": A, "cache_control": MARK}]}  # fmt: skip


def state_with(file: LearnedFile | None = None) -> UpstreamState:
    return UpstreamState(UPSTREAM, lambda: 0.0, None, file)


def first_call(state: UpstreamState) -> UpstreamCall:
    request = read(
        ANTH, asked(ANTH, {**BOTH, "messages": [ask(), {"role": "assistant", "content": [use("t")]}, ask()]})
    )
    client = ClientRequest(dialect=find_dialect(ANTH), request=request, same_wire=False)
    return render(client, state, Target(UPSTREAM, "m"), stream=False, refuse=frozenset())


def test_a_corrected_call_says_every_note_once() -> None:
    first = first_call(state_with())
    before = [(note.kind, note.where, note.why) for note in first.notes]
    words = "Unsupported parameter: 'temperature' is not supported with this model."
    second = first.correct(UpstreamError(refusal(words)))
    assert second is not None
    after = [(note.kind, note.where, note.why) for note in second.notes]
    assert len(after) == len(set(after))
    assert set(before) < set(after)


def test_what_was_learned_is_known_after_a_restart(tmp_path: Path) -> None:
    now = [1000.0]
    file = LearnedFile(tmp_path / "learned.json", lambda: now[0])
    state = state_with(file)
    first = first_call(state)
    second = first.correct(UpstreamError(refusal("Unsupported parameter: 'temperature' is not supported.")))
    assert second is not None
    state.remember(CHAT, "m", second.learned)
    assert "temperature" in json.loads(first.body)
    again = state_with(LearnedFile(tmp_path / "learned.json", lambda: now[0]))
    assert "temperature" not in json.loads(first_call(again).body)
    other = replace(UPSTREAM, base_url="http://other/v1")
    assert LearnedFile(tmp_path / "learned.json", lambda: now[0]).read(other) == {}
    now[0] += LEARNED_KEPT_S + 1
    assert file.read(UPSTREAM) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"server": "vllm http://h/v1"}]'])
def test_a_spoilt_file_of_lessons_costs_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "learned.json").write_text(text)
    file = LearnedFile(tmp_path / "learned.json")
    assert file.read(UPSTREAM) == {}
    file.write(UPSTREAM, CHAT, "m", {"no_such_field": 1})
    assert file.read(UPSTREAM) == {}  # a field of another version
    file.write(UPSTREAM, CHAT, "m", {"one_sampler": True})
    assert file.read(UPSTREAM) == {(CHAT, "m"): {"one_sampler": True}}


def test_a_folder_that_cannot_be_written_costs_the_lesson_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    LearnedFile(tmp_path / "file" / "learned.json").write(UPSTREAM, CHAT, "m", {"one_sampler": True})


BLIND_WORDS = [
    (500, CHAT, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (404, CHAT, "No endpoints found that support image input"),
    (400, CHAT, "m is not a multimodal model"),
    (400, CHAT, "At most 0 image(s) may be provided in one request."),
    (422, CHAT, "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 187"),
    (400, CHAT, "Image input is not enabled for this model"),
    (
        500,
        OLL,
        "Failed to create new sequence: failed to process inputs: this model is missing data required for image input",
    ),
]


@pytest.mark.parametrize(("status", "dialect", "words"), BLIND_WORDS)
def test_a_server_without_vision_gets_text_for_pictures_after_its_first_refusal(
    status: int, dialect: str, words: str
) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    request = read(CHAT, asked(CHAT, {"messages": [{"role": "user", "content": [picture]}]}))
    body = {"error": words} if dialect == OLL else {"error": {"message": words, "type": "server_error"}}
    failure = read_refusal(find_dialect(dialect), status, {}, json.dumps(body).encode(), 0.0)
    assert (failure.kind, failure.status) == ("invalid_request", 422 if status == 422 else 400)
    blind = profile_for("compatible", "m", dialect)
    notes = Notes()
    lesson = learn(failure, request, blind, notes)
    assert lesson is not None
    sent = json.dumps(find_dialect(dialect).encode_request(lesson.request, Notes()).body)
    assert PIXEL not in sent
    assert "image left out" in sent
    assert [note.kind for note in notes] == ["altered"]
    assert PIXEL not in json.dumps(write(request, profile_for("compatible", "m", dialect, lesson.remember)))


def test_a_refusal_that_speaks_of_pictures_teaches_nothing_where_there_is_none() -> None:
    failure = Failure(kind="invalid_request", status=400, message="image input is not supported")
    assert learn(failure, read(CHAT, asked(CHAT, {})), profile_for("compatible", "m"), Notes()) is None


def test_mistrals_nested_detail_is_read() -> None:
    detail = {"type": "extra_forbidden", "loc": ["body", "messages", 1, "assistant", "annotations"],
              "msg": "Extra inputs are not permitted", "input": []}  # fmt: skip
    body = {"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error", "code": "3051"}
    failure = find_dialect(CHAT).decode_failure(WireReply(status=422, body=body))
    assert failure.message == "body.messages.1.assistant.annotations: Extra inputs are not permitted"
