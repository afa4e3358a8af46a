"""Model names to upstreams, and URLs."""

from typing import Any

import pytest

from dragoman.model.messages import Image, Message, Text
from dragoman.model.request import ReasoningSetting, Request, ServerTool, Tool
from dragoman.upstream.http.request import join_url, quote_segment
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.routing import (
    RouteCondition,
    RouteRule,
    Routes,
    find_default,
    find_nearest,
    find_rule,
    find_targets,
    is_legal_model,
    list_models,
)
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


# ---------------------------------------------------------------- wildcards, efforts, dates, unknown names

LOCAL = Upstream(name="ollama", kind="ollama", dialect="ollama")
VENDOR = Upstream(name="gemini", kind="gemini", dialect="gemini")
GPT = Upstream(name="openai", kind="openai", dialect="openai_chat")
LISTED = {"ollama": ("llama3.2:1b", "qwen3"), "gemini": ("gemini-2.5-flash",), "openai": ("gpt-5.5", "o3-mini-high")}
STRICT = Routes(
    upstreams=(VENDOR, GPT, LOCAL),
    listed=LISTED,
    aliases={
        "claude-*": ("gemini-2.5-flash",),
        "claude-haiku-*": ("qwen3",),
        "*": ("openai/never",),
        "claude-opus-5": ("gpt-5.5",),
        "or/*": ("openai/*",),
    },
    fallback=False,
)
PLAIN = Routes(
    upstreams=(VENDOR, GPT, LOCAL), listed={**LISTED, "ollama": ("m-20250101", "m-20260101")}, fallback=False
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5", "openai:gpt-5.5"),  # the exact alias
        ("claude-haiku-5", "ollama:qwen3"),  # the most specific one
        ("claude-sonnet-5-5", "gemini:gemini-2.5-flash"),
        ("or/gpt-9", "openai:gpt-9"),  # what the star stands for
        ("anything", "openai:never"),
    ],
)
def test_a_wildcard_alias_gives_way_to_a_more_specific_one(model: str, expected: str) -> None:
    assert [f"{t.upstream.name}:{t.model}" for t in find_targets(STRICT, model, lambda: 0.0)] == [expected]


def test_a_wildcard_is_no_model_of_the_list() -> None:
    assert not any("*" in name for name in list_models(STRICT))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5.5-low", ("openai", "gpt-5.5", "low")),
        ("gpt-5.5-none", ("openai", "gpt-5.5", "none")),
        ("o3-mini-high", ("openai", "o3-mini-high", None)),  # a model of that whole name is listed
        ("gpt-5.1-codex-max", ("openai", "gpt-5.1-codex-max", None)),  # or known
        ("m", ("ollama", "m-20260101", None)),  # the newest of that name
        ("qwen9-low", None),
        ("llama3.2:3b", None),
        ("something", None),
    ],
)
def test_a_name_means_the_model_it_says_or_none(model: str, expected: tuple[str, str, str | None] | None) -> None:
    found = [(t.upstream.name, t.model, t.effort) for t in find_targets(PLAIN, model, lambda: 0.0)]
    assert found == ([] if expected is None else [expected])


def test_a_dated_name_is_the_listed_one_without_its_date() -> None:
    routes = Routes(upstreams=(LOCAL,), listed={"ollama": ("foo-4-5",)}, fallback=False)
    assert [t.model for t in find_targets(routes, "foo-4-5-20250929", lambda: 0.0)] == ["foo-4-5"]


@pytest.mark.parametrize(
    ("upstreams", "listed", "said", "expected"),
    [
        ((VENDOR, DEMO), {}, "", "gemini-2.5-flash"),  # a key and no list yet
        ((VENDOR, DEMO), {"gemini": ("aqa", "gemini-2.5-flash")}, "", "gemini-2.5-flash"),
        ((LOCAL, DEMO), {"ollama": ("nomic-embed-text", "qwen3")}, "", "qwen3"),
        ((DEMO, LOCAL), {"ollama": ("qwen3",)}, "", "qwen3"),  # never the toy
        ((GPT, LOCAL), {"openai": ("a",), "ollama": ("qwen3",)}, "ollama/qwen3", "ollama/qwen3"),
        ((DEMO,), {}, "", "demo"),
        ((LOCAL, DEMO), {}, "", None),
    ],
)
def test_the_default_model_is_the_first_real_one(
    upstreams: tuple[Upstream, ...], listed: dict[str, tuple[str, ...]], said: str, expected: str | None
) -> None:
    assert find_default(Routes(upstreams=upstreams, listed=listed, fallback=False), said) == expected


def test_an_error_names_the_nearest_models() -> None:
    assert find_nearest(PLAIN, "gemini-2.5-flsh") == ["gemini-2.5-flash"]
    assert find_nearest(STRICT, "llama3.2:3b")[0] == "llama3.2:1b"


def ask(**fields: Any) -> Request:
    words = fields.pop("words", "hi")
    picture = (Image(data="iVBORw0KGgo=", media_type="image/png"),) if fields.pop("picture", False) else ()
    return Request(
        model=fields.pop("model", "claude-x"),
        messages=(Message(role="user", parts=(Text(text=words), *picture)),),
        **fields,
    )


RULES = Routes(
    upstreams=(VENDOR,),
    rules=tuple(
        RouteRule(when=RouteCondition(**when), to=(to,))
        for when, to in (
            ({"model": ("*haiku*",)}, "small"),
            ({"web_search": True}, "searching"),
            ({"images": True}, "seeing"),
            ({"tokens_over": 1000}, "long"),
            ({"thinking": True}, "thinking"),
            ({"tools": True, "thinking": False}, "working"),
        )
    ),
)


@pytest.mark.parametrize(
    ("request_", "to"),
    [
        (ask(model="claude-haiku-5"), "small"),
        (ask(tools=(ServerTool(dialect="anthropic", body={"type": "web_search_20250305"}),)), "searching"),
        (ask(picture=True), "seeing"),
        (ask(words="x " * 5000), "long"),
        (ask(reasoning=ReasoningSetting(effort="high")), "thinking"),
        (ask(reasoning=ReasoningSetting(mode="off"), tools=(Tool(name="f"),)), "working"),
        (ask(), None),
    ],
)
def test_a_rule_looks_at_what_a_request_shows(request_: Request, to: str | None) -> None:
    rule = find_rule(RULES, request_)
    assert (None if rule is None else RULES.rules[rule].to[0]) == to
