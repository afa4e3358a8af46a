"""The one-shot learner: which refusals it understands, what it sends instead, and what it never gives up."""

from typing import Any

import pytest

from dragoman.failure import Failure
from dragoman.model.messages import Extras, Seal, ToolCall
from dragoman.model.request import ReasoningSetting, Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.upstream.learner import learn
from dragoman.upstream.profiles import profile_for
from tests.passes.talk import assistant, call, parts_of, result, talk, tool, user

CHAT = Profile(kind="compatible", dialect="openai_chat", schema="openai")


def refusal(message: str, **more: Any) -> Failure:
    return Failure(kind="invalid_request", status=400, message=message, **more)


def ask(**more: Any) -> Request:
    return talk(user("q"), **more)


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature", 0.5),
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature", 0.5),
        ("Model grok-4 does not support parameter presencePenalty.", "presence_penalty", 0.1),
        ("Model grok-4 does not support parameter reasoningEffort.", "reasoning", ReasoningSetting(effort="high")),
        ("Unrecognized request argument supplied: seed", "seed", 7),
        ("property 'logprobs' is unsupported", "logprobs", True),
        ("top_k: Extra inputs are not permitted", "top_k", 4),
        (
            'Invalid JSON payload received. Unknown name "frequencyPenalty": Cannot find field.',
            "frequency_penalty",
            1.0,
        ),
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature", 0.5),
        ("`temperature` is deprecated for this model.", "temperature", 0.5),
    ],
)
def test_case_54_a_refused_parameter_is_left_out_once(message: str, field: str, value: object) -> None:
    notes = Notes()
    lesson = learn(refusal(message), ask(**{field: value}), CHAT, notes)
    assert lesson is not None
    assert getattr(lesson.request, field) is None
    assert lesson.remember
    assert [(n.kind, n.where) for n in notes] == [("dropped", f"/{field}")]
    assert learn(refusal(message), lesson.request, CHAT, Notes()) is None  # once


def test_the_field_of_an_error_counts_when_its_code_says_unsupported() -> None:
    failure = refusal("no", code="unsupported_parameter", param="verbosity")
    lesson = learn(failure, ask(verbosity="low"), CHAT, Notes())
    assert lesson is not None
    assert lesson.remember == {"rejects": ("verbosity",)}


@pytest.mark.parametrize(
    ("sent", "other"), [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]
)
def test_case_50_the_other_word_for_the_limit(sent: str, other: str) -> None:
    extras: dict[str, Any] = {} if sent == "max_tokens" else {"openai_chat": {"~limit": sent}}
    message = f"Unsupported parameter: '{sent}' is not supported with this model. Use '{other}' instead."
    lesson = learn(refusal(message), ask(max_output=64, extras=extras), CHAT, Notes())
    assert lesson is not None
    assert lesson.request.extras["openai_chat"]["~limit"] == other
    assert lesson.request.max_output == 64
    assert lesson.remember == {"spelling": {"~limit": other}}


def test_case_38_a_refused_beta_is_left_out() -> None:
    anthropic = profile_for("anthropic", "claude-opus-4-7")
    extras = {"anthropic": {"header:anthropic-beta": "prompt-caching-2024-07-31,tool-examples-2025-10-29"}}
    message = "Unexpected value(s) `tool-examples-2025-10-29` for the `anthropic-beta` header."
    lesson = learn(refusal(message), ask(extras=extras), anthropic, Notes())
    assert lesson is not None
    assert lesson.request.extras["anthropic"]["header:anthropic-beta"] == "prompt-caching-2024-07-31"


def test_case_37_a_refused_key_of_the_dialects_own_is_left_out() -> None:
    anthropic = profile_for("anthropic", "claude-opus-4-7")
    extras: Extras = {"anthropic": {"context_management": {"edits": []}}}
    lesson = learn(
        refusal("context_management: Extra inputs are not permitted"), ask(extras=extras), anthropic, Notes()
    )
    assert lesson is not None
    assert lesson.request.extras == {"anthropic": {}}
    assert lesson.remember == {"rejects_extras": ("context_management",)}


def test_case_128_a_grammar_that_cannot_be_parsed_gets_simpler_schemas() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^\\d+$"}}}
    message = "Failed to initialize samplers: failed to parse grammar"
    lesson = learn(refusal(message), ask(tools=(tool("f", schema),)), CHAT, Notes())
    assert lesson is not None
    assert "'pattern':" not in str(lesson.request.tools)
    assert learn(refusal(message), ask(), CHAT, Notes()) is None


def test_case_12_calls_without_a_signature_are_marked_as_such() -> None:
    gemini = profile_for("gemini", "gemini-unheard-of")
    request = talk(user("q"), assistant(call("a"), call("b")), user(result("a"), result("b")))
    message = "Function call is missing a thought_signature in functionCall parts."
    lesson = learn(refusal(message), request, gemini, Notes())
    assert lesson is not None
    first, second = parts_of(lesson.request, ToolCall)
    assert first.seal == Seal(origin="gemini", value="skip_thought_signature_validator")
    assert second.seal is None


def test_case_12_a_spoilt_signature_is_taken_off() -> None:
    gemini = profile_for("gemini", "gemini-3-pro")
    request = talk(user("q"), assistant(call("a", seal=Seal(origin="gemini", value="bad"))), user(result("a")))
    lesson = learn(refusal("Corrupted thought signature."), request, gemini, Notes())
    assert lesson is not None
    assert parts_of(lesson.request, ToolCall)[0].seal.value == "skip_thought_signature_validator"


@pytest.mark.parametrize(
    "failure",
    [
        refusal("Unsupported parameter: 'tools' is not supported with this model."),
        refusal("Unsupported parameter: 'messages' is not supported"),
        refusal("messages.0: all messages must have non-empty content"),
        refusal("Invalid type for 'temperature': expected a number", param="temperature"),
        refusal("Unsupported parameter: 'seed' is not supported"),  # nobody sent one
        Failure(kind="rate_limited", status=429, message="Unsupported parameter: 'temperature'"),
        Failure(kind="too_long", status=400, message="max_tokens is too large"),
        refusal(""),
    ],
    ids=lambda f: f.message[:50],
)
def test_what_is_no_lesson_is_an_ordinary_failure(failure: Failure) -> None:
    request = ask(temperature=0.5, max_output=5, tools=(tool("f"),))
    assert learn(failure, request, CHAT, Notes()) is None
