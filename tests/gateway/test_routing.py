"""Which upstream a request reaches: never the wrong one, by the rules of the configuration, and the same one again."""

import http.client
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.config.load import load_settings
from dragoman.upstream.routing import RouteCondition, RouteRule, Routes, choose_by_rule, find_targets, list_models
from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.test_faults import GOOD
from tests.gateway.test_passthrough import REPLIES
from tests.gateway.web import post
from tests.upstream.test_model_lists import SHOWN, answer_json
from tests.waiting import NEVER_S

USER = [{"role": "user", "content": "hi"}]
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": USER}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "anthropic": ("/v1/messages", {"messages": USER, "max_tokens": 9}),
    "gemini": ("/v1beta/models/gpt-5.6:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "ollama": ("/api/chat", {"messages": USER, "stream": False}),
}


def test_the_demo_model_does_not_answer_for_a_model_whose_key_is_missing() -> None:
    with open_house(fallback=False) as house:
        got = post(house.url, "/v1/chat/completions", {"model": "gpt-5.5", "messages": USER})
        assert got.status == 404
        assert b"for OpenAI, set OPENAI_API_KEY and start the gateway again" in got.body
        assert post(house.url, "/v1/chat/completions", {"model": "demo", "messages": USER}).status == 200


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_nothing_serves_is_an_error_that_helps_and_no_prompt_leaves(door: str) -> None:
    path, body = DOORS[door]
    with faultline(GOOD) as far, faultline(answer_json({"/api/tags": {"models": []}})) as near:
        cloud = upstream("cloud", "openai_chat", far.url, models=("gpt-5.5",))
        local = upstream("ollama", "ollama", near.url, models=())
        with open_house(cloud, local, fallback=False, ask_models=True) as house:
            got = post(house.url, path, {"model": "gpt-5.6", **body})
            assert got.status == 404
            assert "did you mean gpt-5.5? One that is not listed" in got.text
            assert "the upstreams are cloud, ollama" in got.text
        assert [seen.path for seen in far.seen if seen.method == "POST"] == []
        assert "/api/tags" in [seen.path for seen in near.seen]


def test_a_model_pulled_after_the_start_is_found_by_the_request_that_asks_for_it() -> None:
    tags: list[dict[str, str]] = []
    with (
        faultline(GOOD) as far,
        faultline(answer_json({"/api/tags": {"models": tags}, "/api/show": SHOWN})) as near,
        open_house(
            upstream("cloud", "openai_chat", far.url, models=("gpt-5.5",)),
            upstream("ollama", "ollama", near.url, models=()),
            fallback=False,
            ask_models=True,
        ) as house,
    ):
        tags.append({"name": "llama3.2:3b", "digest": "d"})
        post(house.url, "/v1/chat/completions", {"model": "llama3.2:3b", "messages": USER})
        assert near.seen[-1].path == "/api/chat"
        assert [seen.path for seen in far.seen if seen.method == "POST"] == []


def test_a_name_with_an_effort_asks_for_that_effort() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("gpt-5.5",))) as house:
        post(house.url, "/v1/messages", {"model": "gpt-5.5-low", "messages": USER, "max_tokens": 9})
        sent = json.loads(line.seen[0].body)
        assert (sent["model"], sent["reasoning_effort"]) == ("gpt-5.5", "low")


def rule(to: str, **when: Any) -> RouteRule:
    return RouteRule(when=RouteCondition(**when), to=(to,))


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize(
    ("asked", "far_models", "goes_to"),
    [
        ("gpt-5.5-mini", ("gpt-6",), "near/gpt-5.5-mini-2026-03-01"),  # the vendor's list does not have it
        ("gpt-5.5-mini", (), "far/gpt-5.5-mini"),  # the vendor's list is not known: it may have it
        ("gpt-5.5-mini", ("gpt-5.5-mini",), "far/gpt-5.5-mini"),
        ("gpt-6-2026-07-01", ("gpt-6",), "far/gpt-6-2026-07-01"),  # the vendor knows its own dates
        ("qwen3-2026-01-01", ("gpt-6",), "near/qwen3"),
    ],
)
def test_a_model_of_another_date_is_found(asked: str, far_models: tuple[str, ...], goes_to: str) -> None:
    near = upstream("near", "openai_chat", "http://127.0.0.1:1", models=("gpt-5.5-mini-2026-03-01", "qwen3"))
    far = upstream("far", "openai_chat", "http://127.0.0.1:2", kind="openai", models=far_models)
    (target,) = find_targets(Routes(upstreams=(near, far), fallback=False), asked, lambda: 0.0)
    assert f"{target.upstream.name}/{target.model}" == goes_to


def test_a_rule_may_name_an_alias() -> None:
    near = upstream("near", "openai_chat", "http://127.0.0.1:1", models=("a", "b", "c"))
    rules = (RouteRule(when=RouteCondition(), to=("fast", "claude-9", "c", "a")),)
    routes = Routes(upstreams=(near,), aliases={"fast": ("a", "b"), "claude-*": ("near/c",)}, rules=rules)
    found = choose_by_rule(routes, 0, lambda: 0.0)
    assert [target.model for target in found.targets] == ["a", "b", "c"]
    assert found.why.startswith(
        "rule 1: alias fast: a is in the model list; b is in the model list; "
        "alias claude-*: near/c begins with the name of its upstream"
    )


def test_a_rule_or_an_alias_that_leads_nowhere_is_named() -> None:
    one = upstream("one", "openai_chat", "http://127.0.0.1:1", models=("one",))
    with open_house(one, rules=(rule("gone", images=True),), aliases={"fast": ("gone",)}, fallback=False) as house:

        def told(model: str, content: Any) -> str:
            body = {"model": model, "messages": [{"role": "user", "content": content}]}
            return str(post(house.url, "/v1/chat/completions", body).json["error"]["message"])

        aliases = {"fast": ("gone",), "ok": ("gone", "one")}
        assert set(list_models(Routes(upstreams=(one,), aliases=aliases, fallback=False))) == {"one", "ok"}
        assert told("one", [PICTURE]).startswith("rule 1 ([[route]]) of the configuration leads to a model that no")
        assert told("fast", "hi").startswith("the alias 'fast' of the configuration leads to a model that no upstream")


def test_a_rule_moves_a_conversation_and_it_stays_there() -> None:
    with faultline(GOOD) as one, faultline(GOOD) as two:
        upstreams = (upstream(n, "openai_chat", f.url, models=(n,)) for n, f in (("one", one), ("two", two)))
        with open_house(*upstreams, rules=(rule("two", images=True), rule("two", tokens_over=100_000))) as house:

            def talk(*more: dict[str, Any]) -> list[int]:
                post(house.url, "/v1/chat/completions", {"model": "one", "messages": [*USER, *more]})
                return [len(one.seen), len(two.seen)]

            answer = {"role": "assistant", "content": "yes"}
            assert talk() == [1, 0]
            assert talk(answer, {"role": "user", "content": [PICTURE]}) == [1, 1]
            assert talk(answer, {"role": "user", "content": "and now?"}) == [1, 2]  # its cache is there
            assert talk() == [2, 2]  # a new conversation that begins alike


def test_a_conversation_stays_at_the_upstream_that_the_weights_chose_first() -> None:
    with faultline(GOOD) as one, faultline(GOOD) as two:
        upstreams = [
            upstream(name, "openai_chat", line.url, models=("m",), weight=weight)
            for name, line, weight in (("one", one, 1.0), ("two", two, 2.0))
        ]
        with open_house(*upstreams) as house:
            rolls = iter((0.9, 0.0, 0.0))
            house.gateway.dice = lambda: next(rolls)
            for turns in (USER, [*USER, {"role": "assistant", "content": "yes"}, *USER]):
                post(house.url, "/v1/chat/completions", {"model": "m", "messages": turns})
            assert (len(one.seen), len(two.seen)) == (0, 2)


def test_what_was_written_for_one_upstream_is_never_sent_to_another() -> None:
    """The weights are asked once for each request, also if it has to wait for a connection."""
    with faultline(GOOD) as one, faultline(say(200, REPLIES["anthropic"])) as two:
        upstreams = [
            upstream("one", "openai_chat", one.url, models=("m",), weight=1.0),
            upstream("two", "anthropic", two.url, models=("m",), weight=2.0),
        ]
        with open_house(*upstreams) as house:
            rolls = itertools.cycle((0.9, 0.0, 0.0))
            house.gateway.dice = lambda: next(rolls)
            client = http.client.HTTPConnection(house.url.removeprefix("http://"), timeout=NEVER_S)
            for _ in range(6):
                body = json.dumps({"model": "m", "messages": USER})
                client.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                client.getresponse().read()
            client.close()
    assert {seen.path for seen in one.seen} == {"/v1/chat/completions"}
    assert {seen.path for seen in two.seen} == {"/v1/messages"}


# ---------------------------------------------------------------- the file

KEYS = {"GEMINI_API_KEY": "g-0123456789abcdef", "DRAGOMAN_NO_PROBE": "1"}


@pytest.mark.parametrize(
    ("text", "names", "fallback"),
    [
        ("port = 8080\n", ["gemini"], False),
        ("port = 8080\ndiscover = false\n", ["demo"], False),
        ("demo = true\n", ["demo"], False),
        ('[providers.x]\nbase_url = "http://x.test/v1"\n', ["x"], True),  # one provider
        ('discover = true\n[providers.x]\nbase_url = "http://x.test/v1"\n', ["x", "gemini"], False),
        (
            '[providers.x]\nbase_url = "http://x.test/v1"\n[providers.y]\nbase_url = "http://y.test"\n',
            ["x", "y"],
            False,
        ),
        (
            'http_port = 1\n[providers.x]\nbase_url = "http://x.test/v1"\n[providers.y]\nbase_url = "http://y.test"\n',
            ["x", "y"],
            True,
        ),
        (
            'fallback = "first"\n[providers.x]\nbase_url = "http://x.test"\n[providers.y]\nbase_url = "http://y.test"\n',
            ["x", "y"],
            True,
        ),
    ],
)
def test_a_file_says_where_unknown_models_go_and_whether_to_look_for_providers(
    text: str, names: list[str], fallback: bool, tmp_path: Path
) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(text)
    settings = load_settings(file, KEYS)
    assert [one.name for one in settings.upstreams] == names
    assert settings.fallback is fallback


def test_rules_are_read_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[[route]]\nwhen = { model = "*haiku*", tokens_over = 60000 }\nto = ["a", "b"]\n')
    (one,) = load_settings(file, KEYS).rules
    assert (one.when.model, one.when.tokens_over, one.to) == (("*haiku*",), 60_000, ("a", "b"))
    for text, key in (
        ('[[route]]\nwhen = { pictures = true }\nto = "a"\n', "route.0.when.pictures"),
        ("[[route]]\nwhen = { images = true }\n", "route.0"),
        ("[[route]]\nto = []\n", "route.0.to"),
        ('[[route]]\nwhen = { images = 3 }\nto = "a"\n', "route.0.when.images"),
        ('fallback = "second"\n', "fallback"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_settings(file, KEYS)
        assert caught.value.key == key
        assert caught.value.line, key
