"""Tables of `keys`, `teams` and `usage` on a terminal of any width."""

import io
import sys
import time
from pathlib import Path

import pytest

from dragoman import cli
from dragoman.accounts.ledger import LedgerRow, SqliteLedger
from dragoman.accounts.usage import make_report
from dragoman.cli import keys, teams
from dragoman.cli.models import write_table as write_models
from dragoman.cli.style import tame
from dragoman.cli.table import TableColumn, fit, hang
from dragoman.cli.usage import write_table
from dragoman.dialects._services import ListedModel
from dragoman.gateway.stores.keys import KeyTable
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore

NOW = 1_794_959_000.0


def make_rows() -> list[LedgerRow]:
    names = ("gpt-5.5", "qwen3-coder-480b-a35b-instruct")
    return [
        LedgerRow(
            id=str(i), at=NOW - i * 3600, key="ada", team="research and development", model=names[i % 2],
            input=10_000, output=500, cost=None if i == 7 else 123_456, currency="" if i == 7 else "USD", status=200,
        )
        for i in range(100)
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, None])
@pytest.mark.parametrize("by", [["team", "model"], ["team", "day"], ["key"]])
def test_usage_fits_the_terminal(tmp_path: Path, width: int | None, by: list[str]) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.add(make_rows())
    lines = write_table(make_report(ledger, by, NOW - 7 * 86_400, NOW), by, width)
    assert all(len(line) <= (width or 200) for line in lines)
    assert "1 request is unknown" in " ".join(lines[-2:])
    assert " USD" in lines[1]
    assert "requests" in lines[0]
    if "day" in by:
        days = [word for line in lines for word in line.split() if word.startswith("2026-")]
        assert days == sorted(days)
        assert len(days[0]) == 10
    elif width != 40:
        assert any(bar in lines[1] for bar in "▁▂▃▄▅▆▇█"), "a chart of a week has no holes"
    ledger.close()


def test_what_matters_least_goes_first_and_long_words_are_cut() -> None:
    columns = [TableColumn("name", cut=True), TableColumn("much", right=True), TableColumn("little", drop=1)]
    rows = [["a-name-that-is-much-too-long", "1,000", "chart"]]
    assert fit(columns, rows, None)[1] == "a-name-that-is-much-too-long  1,000  chart"
    assert fit(columns, rows, 32)[1] == "a-name-that-is-m…  1,000  chart"
    assert fit(columns, rows, 20)[1] == "a-name-that-…  1,000"
    assert fit(columns, rows, 3)[1] == "a-nam…  1,000"


def test_words_hang_beside_a_line_or_below_it() -> None:
    words = ["models gpt-*,fast", "rpm 60", "20 USD/month"]
    assert hang("id", words, None) == ["id  models gpt-*,fast  rpm 60  20 USD/month"]
    assert hang("id", words, 32) == ["id  models gpt-*,fast  rpm 60", "    20 USD/month"]
    assert hang("id  a long name  web", words, 30) == [
        "id  a long name  web",
        "    models gpt-*,fast  rpm 60",
        "    20 USD/month",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_keys_and_teams_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    limits = ["--models", "gpt-*,claude-*,fast", "--rpm", "60", "--tpm", "200000", "--budget", "20 USD/month"]
    assert cli.main(["teams", "set", "web", *limits]) == 0
    assert cli.main(["keys", "new", "--name", "ada", "--team", "web", "--expires", "90d", *limits]) == 0
    assert cli.main(["keys", "new", "--name", "boss", "--admin"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(keys, "find_width", lambda: width)
    monkeypatch.setattr(teams, "find_width", lambda: width)
    for words in (["keys", "list"], ["teams", "list"]):
        assert cli.main(words) == 0
        shown = capsys.readouterr().out.splitlines()
        assert all(len(line) <= width for line in shown), shown
        assert "20 USD/month" in "\n".join(shown)
    day = time.strftime("%Y", time.gmtime(time.time() + 90 * 86_400))
    assert cli.main(["keys", "list"]) == 0
    assert f"until {day}-" in capsys.readouterr().out


def test_a_key_of_a_team_that_does_not_exist_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    assert cli.main(["keys", "new", "--name", "ada", "--team", "webb"]) == 1
    assert "there is no team 'webb'" in capsys.readouterr().err
    assert cli.main(["teams", "set", "web", "--rpm", "5"]) == 0
    assert cli.main(["keys", "new", "--name", "ada", "--team", "webb"]) == 1
    assert "there is web" in capsys.readouterr().err
    assert cli.main(["keys", "new", "--name", "ada", "--team", "web"]) == 0
    assert cli.main(["keys", "edit", "ada", "--team", "webb"]) == 1
    assert cli.main(["teams", "drop", "web"]) == 1
    assert "1 key would lose the limits of the team web: ada" in capsys.readouterr().err
    assert cli.main(["teams", "drop", "web", "--force"]) == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["new", "--expires", "2020-01-01"], "expected a time to come"),
        (["new", "--expires", "0d"], "expected a time to come"),
        (["new", "--tools", "files"], "'files/*' is every tool of a server"),
        (["edit", "gone", "--rpm", "5"], "the key gone is revoked"),
        (["rotate", "gone"], "the key gone is revoked"),
        (["revoke", "gone"], "the key gone is revoked"),
        (["rotate", "ada", "--grace", "5x"], "--grace: expected a time"),
        (["edit", "nobody", "--rpm", "5"], "`dragoman keys list` shows all"),
    ],
)
def test_what_cannot_be_done_with_a_key_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    store = SqliteKeyStore(tmp_path / "keys.db")
    store.new("ada")
    store.revoke(store.new("gone").split("-")[1])
    assert cli.main(["keys", *words]) == 1
    assert why in capsys.readouterr().err
    assert len((store.read() or KeyTable(pepper="")).rows) == 2, "nothing was made"


def test_a_second_key_of_a_name_is_made_with_a_word_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    assert cli.main(["keys", "new", "--name", "ada", "--soft", "50", "--budget", "20USD/month"]) == 0
    assert "reports by key" not in capsys.readouterr().err
    assert cli.main(["keys", "new", "--name", "ada"]) == 0
    assert "has the name ada too: reports by key add them up" in capsys.readouterr().err
    assert cli.main(["keys", "list"]) == 0
    assert "20 USD/month  soft 50%" in capsys.readouterr().out


EVIL = "m\x1b]0;title\x07\r\x9b2J\u202e\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_t40_control_characters_of_others_are_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [
        *fit([TableColumn("model")], [[EVIL]], None),
        *write_models([ListedModel(name=EVIL, owner="up")]),
        tame(f"a\tb{EVIL}", Terminal()).removesuffix("\n").replace("\t", " "),
    ]
    assert all(line.isprintable() for line in shown)
    assert tame(EVIL, io.StringIO()) == EVIL, "a file gets what the model said"
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert cli.main(["ask", "--model", "demo", f"say {EVIL}"]) == 0
    assert terminal.getvalue().replace("\n", "").isprintable()
