"""Tools another provider would run itself: a web search is said in the target's words, the rest is never half said."""

from typing import Any

import pytest

import dragoman
from dragoman.errors import LossError
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request, ServerTool, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import profile_for

PARIS = {"type": "approximate", "city": "Paris", "country": "FR"}
ANTHROPIC = {"type": "web_search_20250305", "name": "web_search"}
RESPONSES = {"type": "web_search"}
GOOGLE: dict[str, Any] = {"googleSearch": {}}

# What was asked, of whom; what the target is told; what it is not.
SEARCHES: list[tuple[str, dict[str, Any], str, dict[str, Any], str]] = [
    ("anthropic", ANTHROPIC, "openai_responses", RESPONSES, ""),
    ("anthropic", ANTHROPIC, "gemini", GOOGLE, ""),
    ("anthropic", ANTHROPIC | {"max_uses": 8}, "openai_responses", RESPONSES, "max_uses"),
    (
        "anthropic",
        ANTHROPIC | {"allowed_domains": ["a.org"], "user_location": PARIS},
        "openai_responses",
        RESPONSES | {"filters": {"allowed_domains": ["a.org"]}, "user_location": PARIS},
        "",
    ),
    ("anthropic", ANTHROPIC | {"blocked_domains": ["b.org"]}, "openai_responses", RESPONSES, "blocked_domains"),
    ("anthropic", ANTHROPIC | {"allowed_domains": ["a.org"]}, "gemini", GOOGLE, "domains"),
    ("openai_responses", RESPONSES, "anthropic", ANTHROPIC, ""),
    ("openai_responses", {"type": "web_search_preview"}, "gemini", GOOGLE, ""),
    (
        "openai_responses",
        RESPONSES | {"filters": {"allowed_domains": ["a.org"]}, "search_context_size": "low", "user_location": PARIS},
        "anthropic",
        ANTHROPIC | {"allowed_domains": ["a.org"], "user_location": PARIS},
        "search_context_size",
    ),
    ("gemini", GOOGLE, "anthropic", ANTHROPIC, ""),
    (
        "gemini",
        {"googleSearch": {"excludeDomains": ["b.org"]}},
        "anthropic",
        ANTHROPIC | {"blocked_domains": ["b.org"]},
        "",
    ),
    ("gemini", GOOGLE, "openai_responses", RESPONSES, ""),
]
KINDS = {"anthropic": "anthropic", "openai_responses": "openai", "gemini": "gemini"}
MODELS = {"anthropic": "claude-sonnet-5-5", "openai_responses": "gpt-5", "gemini": "gemini-3-pro"}


def ask(*tools: Any, choice: ToolChoice | None = None) -> Request:
    talk = (Message(role="user", parts=(Text(text="news?"),)),)
    return Request(model="m", messages=talk, tools=tools, tool_choice=choice)


def target(dialect: str, model: str = "") -> Profile:
    return profile_for(KINDS[dialect], model or MODELS[dialect], dialect)


@pytest.mark.parametrize(("home", "body", "dialect", "told", "lost"), SEARCHES)
def test_a_web_search_is_said_in_the_targets_words(
    home: str, body: dict[str, Any], dialect: str, told: dict[str, Any], lost: str
) -> None:
    notes = Notes()
    tools = legalise(ask(ServerTool(dialect=home, body=body)), target(dialect), notes).tools
    assert tools == (ServerTool(dialect=dialect, body=told),)
    dropped = [note.why for note in notes if note.kind == "dropped"]
    assert len(dropped) == bool(lost)
    assert all(lost in why for why in dropped)


@pytest.mark.parametrize(
    ("kind", "model", "told"),
    [
        ("vertex", "gemini-3-pro", {"googleSearch": {}}),
        ("gemini", "gemini-3-pro", None),  # both need a switch there, and a history that only Google's clients keep
        ("gemini", "gemini-2.5-flash", None),
        ("vertex", "gemini-2.5-flash", None),
        ("gemini", "gemma-3-27b-it", None),
    ],
)
def test_a_search_gives_way_to_functions(kind: str, model: str, told: dict[str, Any] | None) -> None:
    request = ask(ServerTool(dialect="anthropic", body=ANTHROPIC), Tool(name="f", parameters={"type": "object"}))
    tools = legalise(request, profile_for(kind, model, "gemini"), Notes()).tools or ()
    assert [tool.body for tool in tools if isinstance(tool, ServerTool)] == ([told] if told else [])


@pytest.mark.parametrize("dialect", ["openai_chat", "ollama"])
def test_without_a_search_the_tool_goes_and_so_does_its_name_in_the_choice(dialect: str) -> None:
    """A choice that names a tool which is not there is a 400 at every provider."""
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "news?"}],
        "tools": [ANTHROPIC, {"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "web_search"},
    }
    converted = dragoman.convert(body, to=dialect)
    assert "web_search" not in converted.json().decode()
    assert {note.where for note in converted.notes} >= {"/tools/0", "/tool_choice"}


def test_a_search_that_has_no_name_at_the_target_cannot_be_chosen_by_name() -> None:
    choice = ToolChoice(mode="required", names=("web_search",))
    request = legalise(ask(ServerTool(dialect="anthropic", body=ANTHROPIC), choice=choice), target("gemini"), Notes())
    assert request.tool_choice is None or request.tool_choice.names is None


def test_a_refused_tool_is_named() -> None:
    code = ServerTool(dialect="anthropic", body={"type": "code_execution_20250825", "name": "code_execution"})
    profile = Profile(dialect="openai_chat", lacks=("server_tools",), policy={"server_tools": "refuse"})
    with pytest.raises(LossError, match="code_execution_20250825"):
        legalise(ask(code), profile, Notes())


CHAT_SEARCH = {"search_context_size": "low", "user_location": {"type": "approximate", "approximate": {"city": "Paris"}}}
HERE = {"user_location": {"type": "approximate", "city": "Paris"}}


@pytest.mark.parametrize(
    ("dialect", "told", "lost"),
    [
        ("openai_responses", RESPONSES | {"search_context_size": "low"} | HERE, ""),
        ("anthropic", ANTHROPIC | HERE, "search_context_size"),
        ("gemini", GOOGLE, "search_context_size, location"),
    ],
)
def test_the_search_option_of_chat_is_a_tool_elsewhere(dialect: str, told: dict[str, Any], lost: str) -> None:
    asked = Request(model="m", messages=ask().messages, extras={"openai_chat": {"web_search_options": CHAT_SEARCH}})
    notes = Notes()
    sent = legalise(asked, profile_for(KINDS[dialect], MODELS[dialect], dialect), notes)
    assert sent.tools == (ServerTool(dialect=dialect, body=told),)
    assert [note.why for note in notes if note.kind == "dropped"] == (
        [f"the web search of {dialect} has no settings for: {lost}"] if lost else []
    )


def test_a_server_of_the_same_dialect_is_not_sent_anothers_tools() -> None:
    """OpenRouter's tools, read in recorded traffic on 2026-11-17: no other Chat server knows them."""
    theirs = ServerTool(dialect="openai_chat", body={"type": "openrouter:web_search", "parameters": {}})
    for kind, left in (("openai", None), ("groq", None), ("openrouter", (theirs,))):
        notes = Notes()
        assert legalise(ask(theirs), profile_for(kind, "m", "openai_chat"), notes).tools == left
        assert [note.why for note in notes] == ([] if left else ["only openrouter runs the tool openrouter:web_search"])


def test_a_group_of_tools_is_not_lost_its_tools_stand_alone() -> None:
    inside = {"type": "function", "name": "sleep", "parameters": {"type": "object", "properties": {}}}
    asked = {"model": "m", "input": "q", "tools": [{"type": "namespace", "name": "clock", "tools": [inside]}]}
    converted = dragoman.convert(asked, to="openai_chat", source="openai_responses")
    told = [(note.kind, note.why) for note in converted.notes if note.where == "/tools/0"]
    assert told == [("altered", "a group of tools: each one is sent alone, with the group in its name")]
