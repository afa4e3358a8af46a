"""`dragoman providers`: every row, readable, and one with the rules of a model."""

import json

import pytest

from dragoman.cli import main
from dragoman.upstream.profiles import load_rows


def test_all_providers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers"]) == 0
    shown = capsys.readouterr().out
    for kind in load_rows().kinds.values():
        assert kind.name in shown
        assert kind.base_url in shown


def test_one_provider_says_what_it_takes_and_where_it_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "groq"]) == 0
    shown = capsys.readouterr().out
    assert "GROQ_API_KEY" in shown
    assert "echo = forbidden" in shown
    assert "FC 15" in shown


def test_a_models_rules_are_shown_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "gemini", "--model", "gemma-3-27b-it"]) == 0
    shown = capsys.readouterr().out
    assert "lead_system = user" in shown
    assert "mission D7" in shown


@pytest.mark.parametrize("words", [["providers", "--json"], ["providers", "xai", "--json", "--model", "grok-4"]])
def test_programs_get_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)


def test_an_unknown_provider_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "parrot"]) == 1
    assert "openai" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(load_rows().kinds))
def test_every_provider_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", name]) == 0
    assert "seen" in capsys.readouterr().out
