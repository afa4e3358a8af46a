"""`dragoman verify`: what it prints, writes and returns."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dragoman.cli import main
from dragoman.cli.verify import ProgressTable
from dragoman.conformance.report import as_json, as_junit
from dragoman.conformance.report_html import as_html
from dragoman.conformance.runner import VerifyCell, VerifyRun
from dragoman.conformance.runner_play import Try
from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.conformance.runner_wire import WireExchange
from dragoman.conformance.scenario import load_scenarios
from dragoman.failure import Failure
from dragoman.testing import faults, serve

SCRIPTED = ["verify", "--scripted", "--only", "anthropic", "--scenario", "basic", "--scenario", "tool_*"]
EVIL = "</pre><script>alert(1)</script>\x07\x1b[2J"
BASIC = next(scenario for scenario in load_scenarios() if scenario.name == "basic")


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGOMAN_NO_PROBE", "1")
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_the_table_has_a_word_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SCRIPTED) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^scenario +anthropic$", shown, re.MULTILINE)
    assert re.search(r"^tool_trip +PASS$", shown, re.MULTILINE)
    assert re.search(r"^7 PASS  0 FAIL  0 SKIP  in [\d.]+ s$", shown, re.MULTILINE)
    assert "\x1b" not in shown


def test_json_junit_and_html_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit, html = tmp_path / "j.xml", tmp_path / "r.html"
    assert main([*SCRIPTED, "--json", "--junit", str(junit), "--html", str(html)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["totals"]["pass"] == 7
    suite = ElementTree.parse(junit).getroot()  # noqa: S314  # we wrote it
    assert (suite.get("tests"), suite.get("failures")) == ("7", "0")
    page = html.read_text("utf-8")
    assert page.count('class="cell"') == 7
    assert not re.search(r"(src|href)=\"?(https?:)?//", page)  # needs nothing else
    assert "scripted-key" not in page


def test_a_failure_has_exit_code_one_and_the_providers_words(capsys: pytest.CaptureFixture[str]) -> None:
    with serve("anthropic") as provider:
        provider.always(faults.failing(500))
        words = ["--url", provider.url, "--dialect", "anthropic", "--kind", "anthropic", "--model", "claude-sonnet-4-6"]
        assert main(["verify", *words, "--scenario", "basic"]) == 1
    shown = capsys.readouterr().out
    assert "500 server_error" in shown
    assert 'POST /v1/messages {"model":"claude-sonnet-4-6"' in shown


def test_without_keys_everything_is_skip_and_said_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--scenario", "basic"]) == 0
    shown = capsys.readouterr().out
    assert "openai: no key: set OPENAI_API_KEY" in shown
    assert "0 PASS  0 FAIL  8 SKIP" in shown


def test_list_shows_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--list", "--only", "xai"]) == 0
    shown = capsys.readouterr().out
    assert "xai" in shown
    assert "tool_trip" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://127.0.0.1:9"], "--url needs --dialect"),
        (["--scenario", "nope"], "no scenario is called nope"),
        (["--only", "nope"], "no target is called nope"),
        (["--only", "opnai"], "no target is called opnai; did you mean openai?"),
        (["--scripted", "--only", "nope"], "no kind is called nope"),
        (["--replay", "nowhere"], "no recording"),
        (["--scenarios", "nowhere.toml"], "cannot be read"),
        (["--config", "nowhere.toml"], "cannot be read"),
    ],
)
def test_misuse_is_exit_code_two(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_recording_is_replayed_without_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = str(tmp_path / "kept")
    assert main([*SCRIPTED, "--record", kept]) == 0
    assert main(["verify", "--replay", kept, "--scenario", "tool_*"]) == 0
    assert "6 PASS  0 FAIL  0 SKIP" in capsys.readouterr().out
    assert main(["pairs", kept, "--from", "anthropic", "--to", "gemini"]) == 0  # it is a corpus as well


# ---------------------------------------------------------------- reports of a hostile server


def hostile() -> VerifyRun:
    target = VerifyTarget(name="evil <b>", dialect="anthropic", model="m")
    said = WireExchange(
        method="POST",
        path="/v1/messages?" + EVIL,
        request=b'{"key": "sk-abcdefghijklmnopqrstuvwxyz"}',
        status=500,
        reply=EVIL.encode(),
        failure=Failure(kind="unknown", message=EVIL),
        remark=EVIL,
    )
    one = Try(mode="whole", outcome="FAIL", words=EVIL, exchanges=[said])
    cell = VerifyCell(target=target.name, scenario="basic", outcome="FAIL", words=EVIL, tries=[one])
    return VerifyRun(targets=(target,), scenarios=(BASIC,), cells={(target.name, "basic"): cell})


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


def test_what_a_server_says_stays_text() -> None:
    page = as_html(hostile(), "t")
    tags = Tags()
    tags.feed(page)
    assert tags.found.count("script") == 1  # our own
    assert "evil &lt;b&gt;" in page
    assert "sk-abcdef" not in page
    ElementTree.fromstring(as_junit(hostile()))  # noqa: S314
    assert "sk-abcdef" not in as_json(hostile()).decode() + as_junit(hostile())


# ---------------------------------------------------------------- live


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_table_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    run, out = hostile(), Terminal()
    table = ProgressTable(out, list(run.targets), run.scenarios)
    (cell,) = run.cells.values()
    table.update(run, cell)
    table.update(run, cell)
    table.finish(run)
    shown = out.getvalue()
    assert "\x1b[2A" in shown  # drawn over what was there
    assert "\x1b[31m✗\x1b[0m" in shown
    assert "1 of 1" in shown
    assert "\x1b[2J" not in shown  # what a server says commands nothing


def test_a_target_that_only_names_must_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was SKIP and exit code 0: a CI job passed without a server. A pattern, and a missing key, may still skip."""
    for name in ("OLLAMA_HOST", "XAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for words, code in ((["--only", "ollama"], 1), (["--only", "olla*"], 0), (["--only", "xai"], 0)):
        assert main(["verify", *words, "--scenario", "basic", "--yes"]) == code, words
        out = capsys.readouterr().out
        assert ("1 FAIL" in out) == bool(code), out
