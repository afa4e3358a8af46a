"""Model names to upstreams, and URLs."""

import pytest

from dragoman.upstream.http.request import join_url, quote_segment
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.routing import Routes, find_targets, is_legal_model, list_models
from dragoman.upstream.spec import Upstream

OPENAI = Upstream(name="openai", dialect="openai_chat", models=("gpt-4o", "shared"))
GEMINI = Upstream(name="gemini", dialect="gemini", models=("gemini-2.5-flash", "gemma-3-27b-it"))
SECOND = Upstream(name="second", kind="openai", dialect="openai_chat", models=("shared",), weight=3.0)
DEMO = Upstream(name="demo", kind="demo", dialect="canonical", models=("demo",))
ROUTES = Routes(
    upstreams=(GEMINI, OPENAI, SECOND),
    aliases={"fast": ("gemini/gemini-2.5-flash",), "safe": ("gpt-4o", "gemini-2.5-flash")},
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", ["openai:gpt-4o"]),
        ("gemini-2.5-flash", ["gemini:gemini-2.5-flash"]),
        ("models/gemini-2.5-flash", ["gemini:gemini-2.5-flash"]),
        ("gpt-4o:latest", ["openai:gpt-4o"]),
        ("gpt-5-new", ["openai:gpt-5-new", "second:gpt-5-new"]),
        ("o3-mini", ["openai:o3-mini", "second:o3-mini"]),
        ("gemma-9", ["gemini:gemma-9"]),
        ("something", ["gemini:something"]),
        ("openai/o9", ["openai:o9"]),
        ("openai/org/model", ["openai:org/model"]),
        ("fast", ["gemini:gemini-2.5-flash"]),
        ("safe", ["openai:gpt-4o", "gemini:gemini-2.5-flash"]),
        ("", ["gemini:gemini-2.5-flash"]),
    ],
)
def test_d5_a_model_goes_to_the_map_then_the_prefix_then_the_first(model: str, expected: list[str]) -> None:
    found = find_targets(ROUTES, model, lambda: 0.0)
    assert [f"{t.upstream.name}:{t.model}" for t in found] == expected


@pytest.mark.parametrize(
    ("model", "there", "expected"),
    [
        ("gpt-5", ("demo", "azure"), "azure"),  # whoever has OpenAI's models, when OpenAI itself is not there
        ("gpt-5", ("azure", "openai"), "openai"),
        ("gemini-3-pro", ("demo", "vertex"), "vertex"),
        ("kimi-k2", ("demo", "moonshot"), "moonshot"),
        ("accounts/fireworks/models/kimi-k2", ("moonshot", "fireworks"), "fireworks"),  # the longest prefix
        ("kimi-k2", ("demo", "openai"), "demo"),
    ],
)
def test_d5_the_prefixes_are_those_of_the_profiles(model: str, there: tuple[str, ...], expected: str) -> None:
    upstreams = tuple(Upstream(name=f"my-{kind}", kind=kind, dialect="openai_chat") for kind in there)
    assert find_targets(Routes(upstreams=upstreams), model, lambda: 0.0)[0].upstream.kind == expected


@pytest.mark.parametrize(("kind", "prefix"), [(k.name, p) for k in load_rows().kinds.values() for p in k.prefixes])
def test_d5_every_prefix_of_a_row_leads_to_its_upstream(kind: str, prefix: str) -> None:
    upstreams = (DEMO, Upstream(name="mine", kind=kind, dialect="openai_chat"))
    assert find_targets(Routes(upstreams=upstreams), f"{prefix}9", lambda: 0.0)[0].upstream.name == "mine"


def test_weights_say_who_is_asked_first() -> None:
    rolls = iter((0.1, 0.3, 0.9))
    first = [find_targets(ROUTES, "shared", lambda: next(rolls))[0].upstream.name for _ in range(3)]
    assert first == ["openai", "second", "second"]


def test_the_demo_model_answers_to_any_name() -> None:
    (target,) = find_targets(Routes(upstreams=(DEMO,)), "claude-anything", lambda: 0.0)
    assert target.model == "demo"


def test_every_alias_is_listed() -> None:
    assert list_models(ROUTES) == {
        "gemini-2.5-flash": "gemini",
        "gemma-3-27b-it": "gemini",
        "gpt-4o": "openai",
        "shared": "openai",
        "fast": "gemini",
        "safe": "openai",
    }


@pytest.mark.parametrize("name", ["../../v1/files?key=", "a%2f..", "x:y?alt=sse#", "a\r\nb", "a/../b", "", "x" * 201])
def test_a_name_that_could_change_a_url_is_no_model(name: str) -> None:
    assert not is_legal_model(name)


@pytest.mark.parametrize("name", ["gpt-4o", "llama3.2:3b", "org/model@2", "accounts/f/models/x-1"])
def test_usual_names_are_models(name: str) -> None:
    assert is_legal_model(name)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h", "https://h/v1/chat/completions"),
        ("https://h/", "https://h/v1/chat/completions"),
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/api/v1", "https://h/api/v1/chat/completions"),
        ("https://h//v1", "https://h/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/x/chat/completions?api-version=2", "https://h/x/chat/completions?api-version=2"),
        ("https://h/openai?api-version=2", "https://h/openai/v1/chat/completions?api-version=2"),
    ],
)
def test_a_base_and_a_path_make_one_url(base: str, url: str) -> None:
    assert join_url(base, "/v1/chat/completions") == url


def test_a_query_of_the_dialect_is_kept() -> None:
    path = "/v1beta/models/g:streamGenerateContent?alt=sse"
    assert join_url("https://h/v1beta", path) == "https://h/v1beta/models/g:streamGenerateContent?alt=sse"


def test_a_segment_cannot_leave_its_place() -> None:
    assert quote_segment("a/../b?c#d") == "a%2F..%2Fb%3Fc%23d"
