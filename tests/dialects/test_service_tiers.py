"""Service tiers: each dialect has its own words for the same three or four."""

import pytest

from dragoman import convert, convert_reply
from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.model.messages import Text
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply

WORDS = {"openai_chat": "default", "openai_responses": "default", "anthropic": "standard", "gemini": "standard"}


def tier_of(dialect: str, body: dict[str, object]) -> object:
    usage = body.get("usageMetadata" if dialect == "gemini" else "usage") or {}
    assert isinstance(usage, dict)
    return {"anthropic": usage.get("service_tier"), "gemini": usage.get("serviceTier")}.get(
        dialect, body.get("service_tier")
    )


@pytest.mark.parametrize("target", WORDS)
@pytest.mark.parametrize("said", ["standard", "default"])
def test_the_usual_tier_of_a_reply_has_the_clients_word(said: str, target: str) -> None:
    reply = Reply(
        id="a",
        model="m",
        created=1,
        service_tier=said,
        usage=Usage(input=1, output=1),
        choices=(Choice(parts=(Text(text="hi"),), finish=Finish(reason="stop")),),
    )
    assert tier_of(target, find_dialect(target).encode_reply(reply, Notes()).body) == WORDS[target]


@pytest.mark.parametrize(
    ("source", "said", "target", "wanted"),
    [
        ("anthropic", "standard_only", "openai_chat", "default"),
        ("anthropic", "standard_only", "openai_responses", "default"),
        ("gemini", "standard", "openai_chat", "default"),
        ("gemini", "unspecified", "openai_chat", "auto"),
        ("gemini", "unspecified", "openai_responses", "auto"),
        ("openai_chat", "on_demand", "openai_chat", "on_demand"),  # Groq's own
        ("openai_chat", "standard", "openai_chat", "standard"),
        ("gemini", "priority", "openai_chat", "priority"),
    ],
)
def test_the_tier_of_a_request_has_the_targets_word(source: str, said: str, target: str, wanted: str) -> None:
    key = "serviceTier" if source == "gemini" else "service_tier"
    turn: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}], "model": "m", "max_tokens": 9}
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]} if source == "gemini" else turn
    assert convert(body | {key: said}, to=target, source=source).body["service_tier"] == wanted


def test_a_chat_servers_own_word_comes_back() -> None:
    body = {
        "id": "a",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "service_tier": "standard",
        "choices": [],
    }
    assert convert_reply(body, to="openai_chat", source="openai_chat").body["service_tier"] == "standard"


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
def test_a_503_is_overloaded_whatever_general_word_comes_with_it(dialect: str) -> None:
    errors = [{"type": "server_error", "code": "server_overloaded"}, {"type": "server_error"}, {"type": "api_error"}]
    found = [
        find_dialect(dialect).decode_failure(WireReply(status=503, body={"error": error | {"message": "busy"}}))
        for error in errors
    ]
    assert [failure.kind for failure in found] == ["overloaded"] * 3


def test_a_streams_server_overloaded_is_overloaded() -> None:
    wire = WireReply(body={"error": {"code": "server_overloaded", "message": "busy"}})
    assert find_dialect("openai_responses").decode_failure(wire) == Failure(
        kind="overloaded", message="busy", code="server_overloaded"
    )
