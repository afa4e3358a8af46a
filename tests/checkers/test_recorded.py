"""The checkers against recorded traffic: what a vendor took they take, what it refused for a rule we can know they
refuse too, and the refusals that are about something else are named."""

import json
from collections import Counter
from typing import Any

import pytest

from dragoman.testing import rules
from dragoman.testing.checkers import (
    check_anthropic,
    check_gemini,
    check_models,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)
from dragoman.upstream.profiles import load_rows
from tests.gaps import check_problems
from tests.passes.test_recorded import KINDS, TALK, USUAL
from tests.recorded import Case, cases, needs_corpus

pytestmark = needs_corpus
DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama")

# Words of recorded refusals that no checker of a body can foresee, and why.
NOT_A_RULE = {
    "API key": "the key",
    "Invalid model": "the model",
    "Model not found": "the model",
    "does not exist": "the model",
    "image modality": "what one model can see",
    "function_image_chat": "what one model can see",
    "not accessible": "what a URL leads to",
    "downloading": "what a URL leads to",
    "Cannot fetch content": "what a URL leads to",
    "tool_use_failed": "what the model wrote",
    "context": "the length",
    "too long": "the length",
    "input token count": "the length",
    "supported API model names": "the model",
    "Previous response": "what the server keeps",
    "Test error": "nothing: a test of its origin",
    "Provider returned error": "the server behind a relay",
    "Input should be a valid string": "an Azure model nobody named",
    "No tool output found for tool call call-a": "DeepSeek's own Responses: no words of the model between its calls",
}


def known_kind(case: Case, dialect: str) -> str | None:
    """The server, if we know its rules."""
    provider = case.name.split("--")[0]
    name = KINDS.get(provider, provider)
    row = load_rows().kinds.get(name)
    if row is not None and dialect in row.dialects:
        return name
    return USUAL.get(dialect)


def check(case: Case, dialect: str, kind: str, body: dict[str, Any]) -> list[str]:
    model = str(case.meta.get("model") or "")
    return check_models(kind, dialect, body, model) + check_dialect(case, dialect, kind, body)


def check_dialect(case: Case, dialect: str, kind: str, body: dict[str, Any]) -> list[str]:
    match dialect:
        case "anthropic":
            return check_anthropic(body)
        case "gemini":
            return check_gemini(body, str(case.meta.get("model") or ""))
        case "ollama":
            return [c for c in check_ollama(body) if "without a word" not in c]  # lost, not refused
        case "openai_responses":
            return check_openai_responses(body)
        case _:
            return check_openai_chat(body, "openai" if kind == "azure" else kind)


def checked(dialect: str) -> list[tuple[Case, list[str]]]:
    found = []
    for case in cases(dialect):
        wire, kind = case.request(), known_kind(case, dialect)
        generate = "/api/generate" in str(case.meta.get("url_path"))
        if wire is None or kind is None or generate or case.meta["endpoint"] not in TALK or type(wire.body) is not dict:
            continue
        found.append((case, check(case, dialect, kind, wire.body)))
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_vendor_took_is_taken(dialect: str, gaps: dict[str, str]) -> None:
    taken = [(case, complaints) for case, complaints in checked(dialect) if not case.failed]
    assert len(taken) > 40
    local = {"Qwen/Qwen3-0.6B"}  # a local server under OpenAI's name
    wrong = {case.name: found for case, found in taken if found and case.meta.get("model") not in local}
    check_problems(wrong, gaps)


def test_what_a_vendor_refused_for_a_rule_is_refused(gaps: dict[str, str]) -> None:
    refused, excused = Counter[str](), Counter[str]()
    problems: dict[str, list[str]] = {}
    for dialect in DIALECTS:
        for case, complaints in checked(dialect):
            if case.meta.get("status") not in (400, 422):
                continue
            reply = case.reply()
            said = json.dumps(reply.body, ensure_ascii=False) if reply is not None else ""
            excuse = next((words for words in NOT_A_RULE if words in said), None)
            body, kind = case.request().body, known_kind(case, dialect)  # type: ignore[union-attr]
            complaints = complaints or [c.message for c in rules.check(str(kind), dialect, body)]
            if complaints or excuse:
                (refused if complaints else excused)[excuse or dialect] += 1
            else:
                problems[case.name] = [said]
    check_problems(problems, gaps)
    assert refused.total() >= 28
    assert excused.total() <= 39
