"""Every known rule of a provider is obeyed, learned from its refusal, or answered in a sentence, as the page says."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.jsontypes import load_json
from dragoman.model.request import ReasoningSetting
from dragoman.testing.checkers.model_rules import load_model_rules
from dragoman.testing.rules import check
from dragoman.upstream.profiles import load_rows, profile_for
from tests.cases.provider_rules import PAGE, load_ledger, mark, page
from tests.passes.short_forms import talk, user
from tests.passes.test_cases import GONE, dig
from tests.passes.wires import complain, read, write
from tests.testing.test_strict import PLAIN

TESTS = Path(__file__).parents[1]
# The rules that were read, by group: a row that goes missing is noticed.
READ = {"S": 24, "R": 73, "L": 26, "T": 51, "C": 17, "O": 62, "I": 27, "K": 15, "F": 37, "H": 27}
CASES = {name: row for name, row in load_ledger().items() if row.case is not None}


def test_every_rule_that_was_read_has_its_row() -> None:
    assert list(load_ledger()) == [f"{letter}-{i}" for letter, count in READ.items() for i in range(1, count + 1)]


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m tests.cases.provider_rules"


def test_a_rule_of_the_checkers_says_where_it_comes_from() -> None:
    for rule in load_model_rules():
        assert (rule.sure == "assumed") == (rule.source == ""), rule
        assert rule.rows, rule
        assert set(rule.rows) <= set(load_ledger()), rule


# Families of profiles.toml about which no server is known to refuse anything that others take.
NOTHING_REFUSED = {
    ("deepseek", "deepseek-chat*"): "takes what the other models of its maker refuse",
    ("openrouter", "claude-*"): "drops thinking without a word where a call is forced",
    ("cerebras", "zai-glm-4.7*"): "ignores every effort but none",
}


def test_every_family_of_models_has_a_rule_at_the_scripted_provider() -> None:
    """What a profile avoids for a family, the scripted provider refuses for it. `kimi-*`: its maker's own checker;
    OpenRouter's Gemini: testing/seals.py."""
    without = set()
    for family in load_rows().families:
        names = [pattern.replace("?", "1").replace("*", "") for pattern in family.models]
        kinds = family.kinds or tuple(load_rows().kinds)
        spoken = family.dialects or ((family.dialect,) if family.dialect else tuple(PLAIN))
        places = list(product(kinds, spoken, names))
        if not any(rule.holds_for(*place) for rule in load_model_rules() for place in places):
            without.add((kinds[0], family.models[0]))
    assert without - {("moonshot", "kimi-*"), ("openrouter", "gemini-3*")} == set(NOTHING_REFUSED)


def asked(name: str) -> tuple[str, str, str, dict[str, Any], str]:
    row = load_ledger()[name]
    assert row.case is not None
    kind, dialect, model, body, words = row.case
    plain = {key: value for key, value in PLAIN[dialect].items() if key != "stream"}
    named = {} if dialect == "gemini" else {"model": model}
    return kind, dialect, model, {**plain, **named, **load_json(body.encode())}, words


@pytest.mark.parametrize("name", CASES)
def test_the_scripted_provider_refuses_it_in_the_vendors_words(name: str) -> None:
    kind, dialect, model, body, words = asked(name)
    found = [complaint.message for complaint in check(kind, dialect, body, model)]
    assert any(words in message for message in found), found


@pytest.mark.parametrize("native", [False, True], ids=["foreign", "native"])
@pytest.mark.parametrize("name", [name for name, row in CASES.items() if row.does == "obeyed"])
def test_what_we_write_instead_is_taken(name: str, native: bool) -> None:
    kind, dialect, model, body, words = asked(name)
    profile = replace(profile_for(kind, model, dialect), native=native)
    sent = write(replace(read(dialect, body), model=model), profile)
    found = [complaint.message for complaint in check(kind, dialect, sent, model)]
    if native and not load_ledger()[name].native:
        assert any(words in message for message in found), (found, sent)
        return
    assert not any(words in message for message in found), (found, sent)
    assert native or found == [], (found, sent)


def test_every_obeyed_rule_is_shown_to_be_obeyed() -> None:
    assert [name for name, row in load_ledger().items() if row.does == "obeyed" and not mark(row)] == []


@pytest.mark.parametrize("name", [name for name, row in load_ledger().items() if row.shown])
def test_the_test_that_shows_it_exists(name: str) -> None:
    file, _, test = load_ledger()[name].shown.partition("::")
    assert f"def {test}(" in (TESTS / file).read_text("utf-8")


@pytest.mark.parametrize("name", [name for name, row in load_ledger().items() if row.sent is not None])
def test_what_is_sent_obeys_the_rule(name: str) -> None:
    row = load_ledger()[name].sent
    assert row is not None
    source, kind, dialect, model, said, expected = row
    plain = {key: value for key, value in PLAIN[source].items() if key != "stream"}
    request = replace(read(source, {**plain, **load_json(said.encode())}), model=model)
    sent = write(request, replace(profile_for(kind, model, dialect), native=source == dialect))
    wanted: dict[str, Any] = load_json(expected.encode())
    assert {path: "GONE" if (found := dig(sent, path)) is GONE else found for path in wanted} == wanted, sent
    assert [complaint.message for complaint in check(kind, dialect, sent, model)] == []


# ---------------------------------------------------------------- how much to think, in every combination

MODELS = {
    ("openai", "openai_chat"): """o3 o4-mini-deep-research gpt-4o gpt-5 gpt-5-pro gpt-5-codex gpt-5.1 gpt-5.1-codex-max
        gpt-5.2 gpt-5.2-pro gpt-5.3-chat-latest gpt-5.4 gpt-5.5 gpt-5.6-sol gpt-6-astra gpt-6-sol""",
    ("openai", "openai_responses"): """o3 o4-mini-deep-research gpt-4o gpt-5 gpt-5-pro gpt-5-codex gpt-5.1
        gpt-5.1-codex-max gpt-5.2 gpt-5.2-pro gpt-5.3-chat-latest gpt-5.4 gpt-5.5 gpt-5.6-sol gpt-6-astra gpt-6-sol""",
    ("anthropic", "anthropic"): """claude-3-haiku-20240307 claude-3-7-sonnet-latest claude-opus-4-1 claude-sonnet-4-5
        claude-opus-4-5 claude-opus-4-6 claude-opus-4-7 claude-opus-5 claude-opus-5-5 claude-sonnet-5-5
        claude-mythos-preview claude-of-tomorrow""",
    ("gemini", "gemini"): """gemini-2.0-flash gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite gemini-3-pro-preview
        gemini-3.1-pro-preview gemini-3.5-flash gemini-3-pro-image gemini-4-argon gemma-3-27b-it gemma-4-31b-it
        gemini-flash-latest""",
    ("xai", "openai_chat"): "grok-3 grok-3-mini grok-4.20 grok-4.3 grok-4.5 grok-4.6",
    ("groq", "openai_chat"): "openai/gpt-oss-120b qwen/qwen3-32b llama-3.3-70b",
    ("cerebras", "openai_chat"): "gpt-oss-120b",
    ("fireworks", "openai_chat"): "gpt-oss-120b",
    ("mistral", "openai_chat"): "mistral-large-latest magistral-medium-latest mistral-small-2603",
    ("deepseek", "openai_chat"): "deepseek-v4-pro deepseek-chat",
    ("moonshot", "openai_chat"): "kimi-k2.6 kimi-k3",
    ("zai", "openai_chat"): "glm-5.3",
    ("ollama", "ollama"): "m",
    ("vllm", "openai_chat"): "m",
    ("sglang", "openai_chat"): "gpt-oss-20b",
}
TARGETS = [(kind, model, dialect) for (kind, dialect), models in MODELS.items() for model in models.split()]
SETTINGS = [
    ReasoningSetting(mode=mode, effort=effort, budget=budget, show=show)  # type: ignore[arg-type]
    for mode, effort, budget, show in product(
        (None, "on", "off", "auto"),
        (None, "minimal", "medium", "max"),
        (None, -1, 0, 1, 63_999),
        (None, True),
    )
]


@pytest.mark.parametrize(("kind", "model", "dialect"), TARGETS, ids=[f"{t[0]}-{t[1]}-{t[2]}" for t in TARGETS])
def test_any_wish_to_think_is_one_the_model_takes(kind: str, model: str, dialect: str) -> None:
    profile = profile_for(kind, model, dialect)
    for i, setting in enumerate(SETTINGS):
        limit = (None, 1000)[i % 2]
        body = write(talk(user("q"), model=model, reasoning=setting, max_output=limit), profile)
        assert complain(body, profile, model) == [], (setting, limit, body)
