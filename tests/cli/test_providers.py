"""`dragoman providers`: every row, readable, and one with the rules of a model."""

import json
import os
import re
import shutil
import sys

import pytest

from dragoman.cli import main
from dragoman.cli.providers import LABELS, differences
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
    assert re.search(r"old thoughts +refused", shown)
    assert "case 15" in shown


def test_a_models_rules_are_shown_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "gemini", "--model", "gemma-3-27b-it"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"system text +sent as the user's, marked", shown)
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


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for words in (["providers"], *(["providers", name] for name in load_rows().kinds)):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > width and " " in line.strip()[:70] and "{" not in line] == []


def test_a_pipe_gets_every_address_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers"]) == 0
    assert "..." not in capsys.readouterr().out


def test_every_rule_that_differs_somewhere_is_said_in_words() -> None:
    rows = load_rows()
    told = {f for kind in rows.kinds.values() for dialect in kind.dialects for f in differences(kind.name, "", dialect)}
    told |= {field for family in rows.families for field in family.profile}
    assert sorted(told - set(LABELS)) == []


def test_a_key_that_is_set_is_said_to_be_and_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-canary")
    assert main(["providers", "groq"]) == 0
    shown = capsys.readouterr().out
    assert "GROQ_API_KEY (set)" in shown
    assert "canary" not in shown
