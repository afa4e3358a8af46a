"""The one-shot learner: which refusals it understands, what it sends instead, and what it never gives up."""

import json
import re
from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.failure import Failure
from dragoman.learner import learn
from dragoman.model.messages import Extras, Message, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import ReasoningSetting, Request, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import profile_for
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState
from tests.gaps import check_problems
from tests.passes.short_forms import assistant, call, parts_of, result, talk, tool, user
from tests.passes.wires import write
from tests.recorded import cases, needs_corpus

CHAT = Profile(
    kind="compatible", dialect="openai_chat", schema="openai", limit_keys=("max_tokens", "max_completion_tokens")
)


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
        ("Argument not supported on this model: presencePenalty", "presence_penalty", 0.1),
        ('"llama3.2" does not support thinking', "reasoning", ReasoningSetting(effort="high")),
        ("invalid temperature: only 1 is allowed for this model", "temperature", 0.3),
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


def test_case_54_stop_sequences_a_model_refuses_are_cut_on_our_side() -> None:
    message = "Unsupported parameter: 'stop' is not supported with this model."
    lesson = learn(refusal(message, param="stop", code="unsupported_parameter"), ask(stop=("END",)), CHAT, Notes())
    assert lesson is not None
    assert lesson.request.stop is None
    assert lesson.undo.stops == ("END",)
    assert lesson.remember == {"lacks": ("stop",)}


def test_case_54_what_is_learned_is_sent_restored_and_remembered() -> None:
    """Through the same way a gateway goes: no stop in the second body, the answer cut, none in the third."""
    chat = find_dialect("openai_chat")
    state = UpstreamState(
        Upstream(name="x", kind="compatible", dialect="openai_chat", base_url="http://h/v1"), lambda: 0.0
    )
    asked = ClientRequest(
        dialect=chat,
        request=ask(stop=("END",)),
        same_wire=False,
    )

    def made() -> UpstreamCall:
        return render(asked, state, Target(state.spec, "m"), stream=False, refuse=frozenset())

    first = made()
    assert json.loads(first.body)["stop"] == ["END"]
    second = first.correct(UpstreamError(refusal("Unsupported parameter: 'stop' is not supported with this model.")))
    assert second is not None
    assert second.way_back is not None
    state.remember("openai_chat", "m", second.learned)
    answer = Reply(
        id="r", model="m", choices=(Choice(parts=(Text(text="one END two"),), finish=Finish(reason="stop")),)
    )
    assert second.way_back.reply(answer).choices[0].parts == (Text(text="one "),)
    for body in (second.body, made().body):
        assert "stop" not in json.loads(body)


@pytest.mark.parametrize(
    ("setting", "effort"),
    [
        (ReasoningSetting(effort="minimal"), "low"),
        (ReasoningSetting(effort="xhigh"), "high"),
        (ReasoningSetting(mode="off"), "low"),
    ],
)
def test_case_51_an_effort_a_model_does_not_know_becomes_the_nearest_it_names(
    setting: ReasoningSetting, effort: str
) -> None:
    message = "Unsupported value: 'x' is not supported with the 'm' model. Supported values are: 'low' and 'high'."
    failure = refusal(message, param="reasoning_effort", code="unsupported_value")
    lesson = learn(failure, ask(reasoning=setting), CHAT, Notes())
    assert lesson is not None
    assert lesson.request.reasoning is not None
    assert lesson.request.reasoning.effort == effort
    thinking = profile_for("compatible", "m", overrides=lesson.remember).thinking
    assert thinking is not None
    assert (thinking.efforts, thinking.off) == (("low", "high"), False)


def test_case_51_a_model_that_only_thinks_or_does_not_is_switched() -> None:
    ollama = profile_for("ollama", "qwen3:4b")
    request = ask(reasoning=ReasoningSetting(effort="medium"))
    lesson = learn(refusal('think value "medium" is not supported for this model'), request, ollama, Notes())
    assert lesson is not None
    assert write(lesson.request, ollama)["think"] is True
    learned = profile_for("ollama", "qwen3:4b", overrides=lesson.remember)
    assert write(request, learned)["think"] is True


@pytest.mark.parametrize(
    ("message", "role", "roles"),
    [
        ("unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`", "developer", ["system"]),
        (
            "Unsupported value: 'messages[0].role' does not support 'developer' with this model.",
            "developer",
            ["system"],
        ),
        ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "system", []),
        ("invalid params, chat content has invalid message role: system (2013)", "system", []),
        ("Role 'system' is fine, but the request is not", "system", None),
    ],
)
def test_case_43_an_unknown_role_is_said_otherwise(message: str, role: Any, roles: list[str] | None) -> None:
    request = talk(Message(role=role, parts=(Text(text="Be kind."),)), user("q"))
    lesson = learn(refusal(message), request, CHAT, Notes())
    if roles is None:
        assert lesson is None
        return
    assert lesson is not None
    assert [m.role for m in lesson.request.messages] == [*roles, "user"]
    assert "Be kind." in str(lesson.request.messages)
    assert profile_for("openai", "gpt-4o", overrides=lesson.remember).developer is False


def test_case_58_a_conversation_that_may_not_end_with_the_assistant_gets_a_last_word() -> None:
    message = "This model does not support assistant message prefill. The conversation must end with a user message."
    anthropic = profile_for("anthropic", "claude-sonnet-4-5")
    lesson = learn(refusal(message), talk(user("q"), assistant("Sure")), anthropic, Notes())
    assert lesson is not None
    assert [m.role for m in lesson.request.messages] == ["user", "assistant", "user"]
    assert lesson.remember == {"prefill": False}


def test_case_15_thoughts_a_server_does_not_want_are_left_out_from_then_on() -> None:
    message = "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property "
    message += "'reasoning_content' is unsupported)]"
    request = talk(user("q"), assistant(Reasoning(text="hm"), "ok"), user("and"))
    lesson = learn(refusal(message), request, CHAT, Notes())
    assert lesson is not None
    assert parts_of(lesson.request, Reasoning) == []
    assert lesson.remember == {"echo": "forbidden"}


def test_case_53_a_call_that_cannot_be_forced_while_thinking_is_forced_without() -> None:
    request = ask(tools=(tool("f"),), tool_choice=ToolChoice(mode="required"))
    lesson = learn(refusal("tool_choice 'required' is incompatible with thinking enabled"), request, CHAT, Notes())
    assert lesson is not None
    assert lesson.request.extras["openai_chat"]["thinking"] == {"type": "disabled"}
    assert lesson.request.tool_choice == ToolChoice(mode="required")


@pytest.mark.parametrize(
    "message",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    ],
)
def test_case_14_a_server_that_misses_a_thought_is_told_not_to_think(message: str) -> None:
    request = talk(user("q"), assistant(call("a")), user(result("a")))
    lesson = learn(refusal(message), request, CHAT, Notes())
    assert lesson is not None
    assert lesson.request.extras["openai_chat"]["thinking"] == {"type": "disabled"}
    assert lesson.remember["echo"] == "required"


def test_case_55_a_refusal_a_relay_quotes_counts_too() -> None:
    raw = '{"error": {"message": "Unsupported parameter: \'temperature\' is not supported with this model."}}'
    extras: Extras = {"openai_chat": {"metadata": {"provider_name": "OpenAI", "raw": raw}}}
    failure = refusal("Provider returned error", extras=extras)
    lesson = learn(failure, ask(temperature=0.5), CHAT, Notes())
    assert lesson is not None
    assert lesson.request.temperature is None


# Words of a recorded refusal -> what is sent instead; None: nothing can be left out, the client is told.
RECORDED: dict[str, str | None] = {
    "'stop' is not supported with this model": "stop sequences cut here",
    "'temperature' is not supported with this model": "without temperature",  # inside what OpenRouter quotes
    "'reasoning.effort' is not supported with this model": "without reasoning.effort",
    "'minimal' is not supported with the": "the nearest effort",
    "does not support 'developer' with this model": "developer said as system",
    "Logprobs are not enabled for this model": "without Logprobs",
    "Use 'max_completion_tokens' instead": "max_completion_tokens instead of max_tokens",
    "Web search options not supported with this model": "without web_search_options",
    "Tool call validation failed": None,  # what the model wrote
    "unknown variant `image_url`": "a line of text for media that it cannot see",
    "unknown variant `file`": None,
    "unknown variant `video_url`": None,
    "does not support assistant message prefill": "a last word of the user",
    "does not support image modality": "a line of text for media that it cannot see",
    "does not support function 'function_image_chat'": None,
    "For 'integer' type, property 'minimum' is not supported": None,  # a schema: the passes know Anthropic's
}
ABOUT = re.compile(
    r"unsupported|not support|not permitted|not enabled|not allowed|unknown (?:variant|name|param)", re.I
)


@needs_corpus
def test_case_54_every_recorded_refusal_of_a_parameter_leads_to_the_right_request(gaps: dict[str, str]) -> None:
    met: set[str] = set()
    problems: dict[str, list[str]] = {}
    for dialect in NAMES:
        for case in cases(dialect) if dialect != "canonical" else ():
            wire, reply = case.request(), case.reply()
            if wire is None or reply is None or reply.status not in (400, 422):
                continue
            said = json.dumps(reply.body, ensure_ascii=False).replace('\\"', '"')
            failure = find_dialect(dialect).decode_failure(reply)
            try:
                request = find_dialect(dialect).decode_request(wire, Notes())
            except DecodeError as error:
                problems[case.name] = [str(error)]
                continue
            lesson = learn(failure, request, find_dialect(dialect).profile, Notes())
            words = next((words for words in RECORDED if words in said), None)
            sent, expected = lesson.what if lesson else None, RECORDED.get(words or "")
            if words is None and ABOUT.search(said):
                problems[case.name] = [f"RECORDED does not have these words: {said}"]
            elif sent != expected:
                problems[case.name] = [f"{sent} was sent, not {expected}"]
            met.add(words or "")
    check_problems(problems, gaps)
    assert met - {""} == set(RECORDED)


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


UNREAD = {
    "anthropic": ("claude-sonnet-4-5", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    "anthropic redacted": ("claude-sonnet-4-5", "messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
    "openai_responses": (
        "gpt-5",
        "The encrypted content gAAA... could not be verified. Reason: Encrypted content organization_id did not match.",
    ),
    "openai_responses gone": (
        "gpt-5",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
}


@pytest.mark.parametrize("row", UNREAD)
def test_case_9_thoughts_that_the_server_cannot_read_do_not_end_the_conversation(row: str) -> None:
    """First those of earlier turns, then those of the turn at hand; a loop without its thought is one without any."""
    dialect, (model, message) = row.split()[0], UNREAD[row]
    profile = profile_for({"openai_responses": "openai"}.get(dialect, dialect), model, dialect=dialect)
    form = "encrypted" if dialect == "openai_responses" else "signature"
    old, new = (Reasoning(text=name, seal=Seal(origin=dialect, value=name, form=form)) for name in ("old", "new"))
    request = talk(
        user("q"), assistant(old, Text(text="ho")), user("more"), assistant(new, call("a")), user(result("a")),
        reasoning=ReasoningSetting(mode="on", budget=2048),
    )  # fmt: skip
    once = learn(refusal(message), request, profile, Notes())
    assert once is not None
    assert parts_of(once.request, Reasoning) == [new]
    assert once.remember == {}, "a lesson about this conversation, not about the model"
    twice = learn(refusal(message), once.request, profile, Notes())
    assert twice is not None
    assert parts_of(twice.request, Reasoning) == []
    assert [part.text for part in parts_of(twice.request, Text)] == ["q", "ho", "more"]
    assert len(parts_of(twice.request, ToolCall)) == 1
    if dialect == "anthropic":
        assert twice.request.reasoning is not None
        assert twice.request.reasoning.mode == "off"
    assert learn(refusal(message), twice.request, profile, Notes()) is None


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


@pytest.mark.parametrize(
    "message",
    [
        "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified.",
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
    ],
)
def test_case_66_a_history_of_calls_gets_its_tools(message: str) -> None:
    history = talk(user("q"), assistant(call("c", "look")), user(result("c")), user("sum it up"))
    lesson = learn(refusal(message), history, CHAT, Notes())
    assert lesson is not None
    assert lesson.request.tools is not None
    assert [tool.name for tool in lesson.request.tools] == ["look"]  # type: ignore[union-attr]
    assert lesson.request.tool_choice is not None
    assert lesson.request.tool_choice.mode == "none"
    assert lesson.remember == {"tools_for_history": True}
    assert learn(refusal(message), lesson.request, CHAT, Notes()) is None  # once is enough


def test_what_was_renamed_before_a_lesson_is_the_clients_again_after_it() -> None:
    state = UpstreamState(Upstream(name="x", kind="compatible", dialect="openai_chat"), lambda: 0.0)
    history = talk(
        user("q"),
        assistant(call("c1", "a.b")),
        user(result("c1")),
        tools=(tool("a.b", {"type": "object", "properties": {"p": {"type": "string"}}}),),
        stop=("END",),
    )
    asked = ClientRequest(
        dialect=find_dialect("canonical"),
        request=history,
        same_wire=False,
    )
    first = render(asked, state, Target(state.spec, "m"), stream=False, refuse=frozenset())
    second = first.correct(UpstreamError(refusal("Unsupported parameter: 'stop' is not supported with this model.")))
    assert second is not None
    assert second.way_back is not None
    state.remember("openai_chat", "m", second.learned)
    alias = json.loads(second.body)["tools"][0]["function"]["name"]
    called = Choice(parts=(ToolCall(id="c2", name=alias, arguments="{}"),), finish=Finish(reason="tool_call"))
    assert alias != "a.b"
    assert second.way_back.reply(Reply(id="r", model="m", choices=(called,))).choices[0].parts[0] == call("c2", "a.b")
