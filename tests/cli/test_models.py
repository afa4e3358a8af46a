"""`dragoman models`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.cli.route import guess_dialect
from tests.gateway.house import faultline
from tests.upstream.test_model_lists import answer_json

ROUTES = """demo = false
[aliases]
"claude-*" = "m"
[[route]]
when = {{ images = true }}
to = "two/n"
[providers.one]
kind = "vllm"
base_url = "{url}/v1"
[providers.two]
kind = "compatible"
base_url = "http://127.0.0.1:9/v1"
models = ["n"]
"""
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def test_route_says_which_rule_or_name_chose_what(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = here / "body.json"
    body.write_text(json.dumps({"system": "x", "messages": [{"role": "user", "content": [PICTURE]}], "max_tokens": 9}))
    with faultline(answer_json({"/v1/models": {"data": [{"id": "m"}]}})) as line:
        (here / "dragoman.toml").write_text(ROUTES.format(url=line.url))
        said = {}
        for words in (["claude-x"], ["claude-x", "--body", str(body), "--dialect", "anthropic"], ["o"], ["gpt-9"]):
            code = main(["route", *words])
            said[words[0], len(words)] = (code, capsys.readouterr().out)
    assert said["claude-x", 1] == (
        0,
        "no rule fits, of 1 (rules look at --body)\nalias claude-*: m is in the model list\n  goes to one/m\n",
    )
    assert said["claude-x", 5] == (0, "rule 1: two/n begins with the name of its upstream\n  goes to two/n\n")
    assert said["gpt-9", 1][0] == 1
    assert "is not a model that is served here" in said["gpt-9", 1][1]


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"messages": []}, "openai_chat"),
        ({"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}, "openai_chat"),
        ({"messages": [], "system": "x"}, "anthropic"),
        ({"messages": [], "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "anthropic"),
        ({"messages": [], "tools": [{"name": "f", "input_schema": {}}]}, "anthropic"),
        ({"messages": [], "keep_alive": 1}, "ollama"),
        ({"input": "hi"}, "openai_responses"),
        ({"contents": []}, "gemini"),
        ({}, "openai_chat"),
    ],
)
def test_the_dialect_of_a_body_is_guessed_by_its_keys(body: dict[str, Any], dialect: str) -> None:
    assert guess_dialect(body) == dialect


CONFIG = """demo = true
[providers.one]
kind = "vllm"
base_url = "{url}/v1"
[providers.two]
kind = "compatible"
base_url = "http://127.0.0.1:9/v1"
models = ["n"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    return tmp_path


def test_models_lists_what_each_upstream_says_and_leaves_out_what_is_not_known(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with faultline(answer_json({"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}})) as line:
        (here / "dragoman.toml").write_text(CONFIG.format(url=line.url))
        assert main(["models", "--json"]) == 0
        said = capsys.readouterr()
        rows = {row["name"]: row for row in json.loads(said.out)["models"]}
        assert (rows["m"]["upstream"], rows["m"]["window"]) == ("one", 8192)
        assert rows["n"] == {"name": "n", "upstream": "two"}
        assert "two did not list its models" in said.err
        assert main(["models", "--only", "one"]) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == ["m", "one", "8,192", "-", "-"]
    assert main(["models", "--only", "three"]) == 2
