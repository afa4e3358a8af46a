"""Mission rows that hold for many targets at once, each by its id."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.convert import convert, convert_reply
from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.messages import Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import find_kind, load_rows, profile_for
from tests.passes.short_forms import assistant, call, parts_of, result, talk, user

FAMILY = ("openai", "azure", "xai", "groq", "cerebras", "fireworks", "together", "openrouter", "mistral", "deepseek")
LOCAL = ("vllm", "llamacpp", "lmstudio", "sglang", "gpustack", "ollama", "moonshot", "zai", "minimax", "compatible")
OTHERS = ("anthropic", "gemini", "vertex")

# what a client sends, and what is left of it: calls, results, and text
REMOVALS: dict[str, tuple[Request, list[str], list[str], str]] = {
    "complete pairs stay": (
        talk(user("q"), assistant(call("a")), user(result("a")), assistant("ok")),
        ["a"],
        ["a"],
        "q 42 ok",
    ),
    "an orphaned result goes": (talk(user("q"), assistant("ok"), user(result("x")), user("and")), [], [], "q ok and"),
    "a call without a result goes": (talk(user("q"), assistant("hm", call("a")), user("and")), [], [], "q hm and"),
    "a partly answered turn keeps its complete pairs": (
        talk(user("q"), assistant(call("a"), call("b")), user(result("a")), user("and")),
        ["a"],
        ["a"],
        "q 42 and",
    ),
    "the first turn is no result": (talk(user(result("x")), user("q")), [], [], "q"),
}


def words(request: Request) -> str:
    found = []
    for message in request.messages:
        for part in message.parts:
            inner = part.parts if isinstance(part, ToolResult) else (part,)
            found += [piece.text for piece in inner if isinstance(piece, Text)]
    return " ".join(found)


def check(profile: Profile, case: str) -> None:
    request, calls, results, text = REMOVALS[case]
    notes = Notes()
    legal = legalise(replace(request, model="m"), replace(profile, echo="accepted"), notes)
    assert len(parts_of(legal, ToolCall)) == len(calls)
    assert len(parts_of(legal, ToolResult)) == len(results)
    said = words(legal)
    assert [word for word in text.split() if word not in said] == []
    gone = [note for note in notes if note.kind in ("dropped", "repaired")]
    assert bool(gone) or case == "complete pairs stay"  # E4: each removal says what and why


@pytest.mark.parametrize("case", REMOVALS)
@pytest.mark.parametrize("kind", [*FAMILY, *LOCAL])
def test_e1_openais_family_gets_complete_pairs_only(kind: str, case: str) -> None:
    check(profile_for(kind, "m"), case)


@pytest.mark.parametrize("case", REMOVALS)
@pytest.mark.parametrize("kind", OTHERS)
def test_e2_anthropic_and_gemini_get_the_same_strength(kind: str, case: str) -> None:
    check(profile_for(kind, "m"), case)


def test_e2_a_target_that_is_not_sent_to_is_left_as_it_is() -> None:
    for request, *_ in REMOVALS.values():
        assert legalise(request, find_dialect("canonical").profile, Notes()) is request


@pytest.mark.parametrize("kind", [*FAMILY, *LOCAL, *OTHERS])
def test_e3_turns_without_tools_come_back_the_same_objects_in_the_same_order(kind: str) -> None:
    request = talk(user("a"), assistant("b"), user("c"), assistant("d", call("x")), user("e"))
    legal = legalise(request, profile_for(kind, "m"), Notes())
    kept = [message for message in request.messages if not any(isinstance(p, ToolCall) for p in message.parts)]
    texts = words(legal).split()
    assert texts == ["a", "b", "c", "d", "e"]
    assert legal.messages[:3] == tuple(kept[:3])
    assert all(a is b for a, b in zip(legal.messages[:3], kept[:3], strict=True))


B1 = ("openai", "azure", "anthropic", "gemini", "xai", "ollama", "lmstudio", "gpustack")


@pytest.mark.parametrize("kind", B1)
def test_b1_a_provider_of_the_document_has_an_address_a_key_and_a_dialect(kind: str) -> None:
    row = find_kind(kind)
    assert row.base_url.startswith("http")
    assert row.keys
    assert row.seen
    for dialect in row.dialects:
        assert profile_for(kind, "m", dialect).dialect == dialect


NO_PARAMETERS: list[tuple[str, str, Any]] = [
    ("anthropic", "claude-opus-5-5", {"type": "object"}),
    ("openai", "gpt-4o", {"type": "object", "properties": {}}),
    ("openai", "gpt-5", {"type": "object", "properties": {}}),
    ("xai", "grok-4", {"type": "object", "properties": {}}),
]


@pytest.mark.parametrize("given", [None, {}, {"type": "object"}, {"type": None}])
@pytest.mark.parametrize(("kind", "model", "wanted"), NO_PARAMETERS)
def test_b5_a_tool_without_parameters_gets_what_its_provider_demands(
    kind: str, model: str, wanted: Any, given: Any
) -> None:
    from tests.passes.wires import read, send

    function = {"name": "now"} | ({} if given is None else {"parameters": given})
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "q"}],
        "tools": [{"type": "function", "function": function}],
    }
    wire, complaints = send(read("openai_chat", body), kind, model)
    tool = wire["tools"][0]
    assert tool.get("input_schema", tool.get("parameters", (tool.get("function") or {}).get("parameters"))) == wanted
    assert complaints == []


def test_d5_the_prefixes_of_the_document_are_known() -> None:
    kinds = load_rows().kinds
    assert {"gpt-", "o1", "o3", "o4"} <= set(kinds["openai"].prefixes)
    assert {"gemini-", "gemma-"} <= set(kinds["gemini"].prefixes)


# ---------------------------------------------------------------- A: the converters of the first document

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_LOOP: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "W", "parameters": CITY}}],
}
CALLED = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
ANSWERED = {"id": "c1", "name": "weather", "response": {"output": "rain"}}


def dug(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        (
            "anthropic",  # A1
            {
                "system": "Be brief.",
                "tools.0.input_schema": CITY,
                "messages.1.content": [CALLED],
                "messages.2": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}],
                },
            },
        ),
        (
            "gemini",  # A3
            {
                "systemInstruction.parts.0.text": "Be brief.",
                "contents.0.role": "user",
                "contents.1": {
                    "role": "model",
                    "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}}],
                },
                "contents.2.parts.0.functionResponse": ANSWERED,
                "tools.0.functionDeclarations.0.name": "weather",
            },
        ),
        (
            "ollama",  # A5
            {
                "options": {"num_predict": 64, "temperature": 0.5},
                "messages.2.tool_calls.0.function.arguments": {"city": "Oslo"},
                "messages.3.tool_name": "weather",
                "tools.0.function.name": "weather",
            },
        ),
    ],
)
def test_a1_a3_a5_a_chat_request_becomes(to: str, wanted: dict[str, Any]) -> None:
    body = convert(CHAT_LOOP, source="openai_chat", to=to).body
    for path, value in wanted.items():
        assert dug(load_json(dump_json(body)), path) == value, path


REPLIES: dict[str, dict[str, Any]] = {
    "anthropic": {  # A2
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Let me see."}, CALLED],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
    "gemini": {  # A4
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "Let me see."},
                        {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10},
    },
    "ollama": {  # A5
        "model": "m",
        "created_at": "2026-11-15T00:00:00Z",
        "message": {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}],
        },
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 7,
        "eval_count": 3,
    },
}


@pytest.mark.parametrize("source", REPLIES)
def test_a2_a4_a5_a_reply_becomes_a_chat_completion(source: str) -> None:
    body = load_json(dump_json(convert_reply(REPLIES[source], source=source, to="openai_chat").body))
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    function = choice["message"]["tool_calls"][0]["function"]
    assert (function["name"], load_json(function["arguments"])) == ("weather", {"city": "Oslo"})
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (7, 3)
