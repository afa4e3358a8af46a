"""Kinds of servers and model families of the user's own file: `[kind.NAME]` and `[[family]]`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import cli
from dragoman.errors import ConfigError
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.process.reload import reload
from dragoman.gateway.process.startup import ServeOptions, make_access, settle
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.log import Log
from dragoman.upstream.profiles import load_rows, profile_for
from dragoman.upstream.render import find_destination
from tests.gateway.house import faultline, open_house, state
from tests.gateway.test_emulated import whole
from tests.gateway.web import post

FILE = """
[providers.first]
kind = "groq"
api_key = "not-a-real-key"

[providers.near]
kind = "parrot"
base_url = "{url}"

[kind.parrot]
dialects = ["openai_chat"]
auth = "none"
prefixes = ["polly-"]

[kind.parrot.profile]
rejects = ["seed"]

[kind.groq.profile]
rejects = ["top_p"]

[[family]]
models = ["polly-2*"]
kinds = ["parrot"]

[family.profile]
sampling = "no"
"""


def write(folder: Path, url: str = "http://127.0.0.1:9/v1", text: str = FILE) -> Path:
    file = folder / "dragoman.toml"
    file.write_text(text.replace("{url}", url))
    return file


def sent(model: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What the server of the user's kind is sent, and what the client is told about it."""
    with faultline(whole("hi")) as line:
        settings = load_settings(write(folder, line.url), state(folder))
        with open_house(*settings.upstreams, rows=settings.rows) as house:
            body = {"model": model, "messages": [{"role": "user", "content": "q"}], "seed": 1, "temperature": 0.5}
            got = post(house.url, "/v1/chat/completions", body)
            assert got.status == 200
            assert got.headers["x-dragoman-upstream"] == f"near/{model}"
            told = [note["where"] for note in json.loads(got.headers["x-dragoman-notes"])]
            return json.loads(line.seen[0].body), told


def test_a_gateway_follows_the_rows_of_its_file(tmp_path: Path) -> None:
    body, told = sent("polly-1", tmp_path)
    assert (body["temperature"], "seed" in body, told) == (0.5, False, ["/seed"])


def test_a_family_of_the_file_has_rules_of_its_own(tmp_path: Path) -> None:
    body, told = sent("polly-2-large", tmp_path)
    assert ({"temperature", "seed"} & body.keys(), sorted(told)) == (set(), ["/seed", "/temperature"])


def test_a_known_kind_keeps_what_the_file_does_not_say(tmp_path: Path) -> None:
    groq = load_settings(write(tmp_path), state(tmp_path)).upstreams[0]
    profile = profile_for("groq", "m", rows=groq.rows)
    assert (profile.rejects, profile.echo) == (("top_p",), profile_for("groq", "m").echo)
    assert "top_p" not in profile_for("groq", "m").rejects, "other configurations do not see it"


def test_a_reload_changes_the_rows_of_new_requests_only(tmp_path: Path) -> None:
    env = state(tmp_path)
    options = ServeOptions(config=write(tmp_path))
    settings = settle(options, env)
    gateway = Gateway(settings, make_access(settings, env), log=Log())
    old = gateway.now
    write(tmp_path, text=FILE.replace('rejects = ["seed"]', 'rejects = ["stop"]'))
    assert reload(gateway, options, env)
    rules = [
        find_destination(generation.upstream_states["near"], "anthropic", "polly-1").profile.rejects
        for generation in (old, gateway.now)
    ]
    assert rules == [("seed",), ("stop",)]
    assert gateway.now.upstream_states["first"] is old.upstream_states["first"], "its own rows did not change"


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ('rejects = ["seed"]', 'rejectz = ["seed"]', "kind.parrot.profile.rejectz: no such key; did you mean rejects?"),
        (
            'rejects = ["top_p"]',
            'rejects = "top_p"',
            "kind.groq.profile.rejects: expected a list of texts, found string",
        ),
        ('[kind.parrot]\ndialects = ["openai_chat"]', "[kind.parrot]", "kind.parrot: dialects is needed"),
        ('dialects = ["openai_chat"]', 'dialects = ["chat"]', "kind.parrot.dialects: no such dialect: chat"),
        ('["polly-"]', '["${NOPE}"]', "kind.parrot.prefixes.0: the environment variable NOPE is not set"),
        ('models = ["polly-2*"]', 'model = "polly-2*"', "family.0.model: no such key; did you mean models?"),
        (
            'sampling = "no"',
            'sampling = "never"',
            "family.0.profile.sampling: expected no, unless_thinking or yes, found 'never'",
        ),
    ],
)
def test_a_mistake_in_a_row_names_its_line(good: str, bad: str, words: str, tmp_path: Path) -> None:
    text = FILE.replace(good, bad)
    line = text[: text.index(bad)].count("\n") + 1
    file = write(tmp_path, text=text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file, state(tmp_path))
    assert str(caught.value) == f"{file}:{line}: {words}"


def test_check_and_providers_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in state(tmp_path).items():
        monkeypatch.setenv(name, value)
    file = write(tmp_path)
    assert cli.main(["check"]) == 0
    shown = capsys.readouterr().out
    assert "kind parrot: new, openai_chat" in shown
    assert "kind groq: changed" in shown
    assert "models polly-2*: rules of their own" in shown
    assert cli.main(["providers"]) == 0
    assert f"{file} adds or changes groq, parrot." in capsys.readouterr().out
    assert cli.main(["providers", "parrot", "--model", "polly-2"]) == 0
    shown = capsys.readouterr().out
    assert "polly-*" in shown
    assert "refuses          seed" in shown
    assert cli.main(["providers", "parrot", "--config", str(write(tmp_path, text="[kind.parrot]\nx = 1\n"))]) == 1
    assert "dragoman.toml:2: kind.parrot.x: no such key" in capsys.readouterr().err


def test_rows_that_are_dragomans_own_are_not_kept_again(tmp_path: Path) -> None:
    plain = "[providers.openai]\napi_key = 'not-a-real-key'\n"
    assert load_settings(write(tmp_path, text=plain), state(tmp_path)).rows is None
    other = f"{plain}[kind.parrot]\ndialects = ['openai_chat']\n"
    settings = load_settings(write(tmp_path, text=other), state(tmp_path))
    assert settings.upstreams[0].rows is None
    assert settings.rows is not None
    assert "parrot" not in load_rows().kinds
