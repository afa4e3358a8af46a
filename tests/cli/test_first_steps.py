"""Commands for a newcomer: init, doctor, completion, mock, the schema of the configuration; and verify in CI."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dragoman import cli
from dragoman.cli.mock import fault_names, read_faults
from dragoman.errors import DragomanError
from dragoman.gateway.config.load import read_settings
from dragoman.gateway.config.schema import ConfigFile, config_schema
from dragoman.testing import serve
from tests.gateway.house import open_house
from tests.waiting import NEVER_S

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """A command in an empty folder and an empty environment."""
    import os

    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_proxy", "_PROXY")) or name == "OLLAMA_HOST":
            monkeypatch.delenv(name)
    monkeypatch.setenv("DRAGOMAN_NO_PROBE", "1")
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run_words(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_words


def test_init_writes_a_file_that_check_likes(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    assert run("init")[0] == 0
    text = (tmp_path / "dragoman.toml").read_text()
    assert 'api_key = "${OPENAI_API_KEY}"' in text
    assert "canary" not in text
    code, out, _ = run("check")
    assert (code, "openai: openai" in out) == (0, True)
    code, _, err = run("init")
    assert (code, "--force replaces it" in err) == (1, True)


def test_check_says_which_alias_leads_nowhere(run: Run, tmp_path: Path) -> None:
    rule = '[[route]]\nwhen = {images = true}\nto = "gone"\n'
    (tmp_path / "dragoman.toml").write_text(f'[aliases]\nfast = "nothere"\nslow = "demo"\n{rule}')
    code, out, _ = run("check")
    assert code == 0
    assert "fast -> nothere\n    no provider of the file lists nothere: `dragoman route nothere` asks them\n" in out
    assert "slow -> demo\n  rule 1 -> gone\n    no provider of the file lists gone:" in out


def test_init_without_anything_serves_the_demo(run: Run) -> None:
    assert run("init")[0] == 0
    assert "demo: demo, 1 model" in run("check")[1]


def test_doctor_says_what_is_wrong_and_how_to_mend_it(run: Run, tmp_path: Path) -> None:
    with serve("openai", key="right") as good, serve("anthropic", key="right") as bad:
        rows = {
            "good": {"kind": "openai", "base_url": good.base_url, "api_key": "right"},
            "bad": {"kind": "anthropic", "base_url": bad.base_url, "api_key": "sk-canary-0123456789"},
            "away": {"kind": "openai", "base_url": "http://127.0.0.1:9", "api_key": "k"},
        }
        (tmp_path / "config.json").write_text(json.dumps({"providers": rows, "port": 0}))
        code, out, err = run("doctor")
    assert code == 1
    assert "good: accepts the key, answers in" in out
    assert "bad: refuses the key (401)" in out
    assert "away: the upstream accepts no connection" in out
    assert "canary" not in out + err


def test_doctor_tells_variables_of_the_network_that_do_not_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dragoman.toml").write_text('[providers.far]\nbase_url = "https://far.test/v1"\n')
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.test:1080")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    code, out, _ = run("doctor", "--offline")
    assert code == 1
    assert "wrong  SSL_CERT_FILE: there is no " in out
    assert "note   HTTPS_PROXY: is not used: dragoman speaks only to http:// proxies\n" in out


def test_doctor_names_an_address_of_the_environment_where_nothing_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only said: "start Ollama", to a person whose Ollama runs on another machine."""
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    _, out, _ = run("doctor", "--offline")
    assert "note   OLLAMA_HOST: nothing answers at http://127.0.0.1:9\n       start that server, or unset it" in out


def test_doctor_is_content_without_providers(run: Run) -> None:
    code, out, _ = run("doctor", "--offline")
    assert "only the demo model is served" in out
    assert "set OPENAI_API_KEY" in out
    assert code in (0, 1)  # another program may have the port


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_names_every_command_and_its_options(shell: str, run: Run) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert all(name in out for name in cli.COMMANDS)
    assert "xray" in out


def test_bash_completes(run: Run) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = run("completion", "bash")[1]
    code = f"{script}\nCOMP_WORDS=(dragoman serve --wa); COMP_CWORD=2; _dragoman; echo ${{COMPREPLY[@]}}"
    assert subprocess.run([bash, "-c", code], capture_output=True, text=True).stdout.strip() == "--watch"


def test_the_schema_knows_every_key_and_finds_a_mistake(run: Run) -> None:
    schema = json.loads(run("check", "--schema")[1])
    Draft202012Validator.check_schema(schema)
    top = schema["$defs"]["ConfigFile"]
    assert set(top["properties"]) == set(ConfigFile.__struct_fields__)
    checker = Draft202012Validator(schema)
    good: dict[str, Any] = {"port": 1, "providers": {"openai": {"models": ["m"], "timeouts": {"idle_s": 3}}}}
    read_settings(good, "f", {})
    assert not list(checker.iter_errors(good))
    wrongs: tuple[dict[str, Any], ...] = (
        {"prot": 1},
        {"port": "x"},
        {"providers": {"a": {"modles": []}}},
        {"log": "xml"},
    )
    for wrong in wrongs:
        assert list(checker.iter_errors(wrong)), wrong
    assert "proxy" in config_schema()["$defs"]["ProviderTable"]["properties"]


# ---------------------------------------------------------------- mock


def test_a_mock_answers_refuses_and_fails_as_told(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text('["first", "second"]')
    words = ["mock", "openai", "--port", "0", "--script", "answers.json", "--faults", "503"]
    command = [sys.executable, "-m", "dragoman", *words]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]

        def ask(body: dict[str, Any]) -> Any:
            data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
            request = urllib.request.Request(f"{url}/chat/completions", data, headers)  # noqa: S310
            with urllib.request.urlopen(request, timeout=NEVER_S) as response:  # noqa: S310
                return json.load(response)["choices"][0]["message"]["content"]

        good = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
        with pytest.raises(urllib.error.HTTPError, match="503"):
            ask(good)
        assert [ask(good), ask(good)] == ["first", "second"]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask({**good, "no_such_key": 1})
    finally:
        process.kill()
        process.communicate()


def test_a_provider_that_is_none_is_named_with_the_nearest(run: Run) -> None:
    code, _, err = run("mock", "antropic")
    assert (code, err) == (1, "dragoman mock: no provider is called antropic; did you mean anthropic?\n")
    code, _, err = run("mock", "anthropic", "--script", "none.json")
    assert (code, err) == (1, "dragoman mock: none.json: No such file or directory\n")


def test_faults_are_named() -> None:
    assert {"rate_limited", "overloaded", "cut", "stalled"} <= set(fault_names())
    assert [fault.name for fault in read_faults("overloaded, 418")]
    with pytest.raises(DragomanError, match="no such fault tea"):
        read_faults("tea")


# ---------------------------------------------------------------- verify in CI


def test_a_named_server_that_does_not_answer_is_a_failure(run: Run, tmp_path: Path) -> None:
    words = ["--url", "http://127.0.0.1:9", "--dialect", "openai-chat", "--scenario", "say_word"]
    names = [line.split()[0] for line in run("verify", "--list")[1].partition("scenarios\n")[2].splitlines()]
    words[-1] = names[0]
    code, out, _ = run("verify", *words, "--junit", "out.xml", "--badge", "out.svg")
    assert code == 1
    line, blank, totals = out.splitlines()
    assert line.startswith("127.0.0.1:9 (openai_chat): not reachable: ")
    assert (blank, totals.split()[2:4]) == ("", ["1", "FAIL"])
    assert 'failures="1"' in (tmp_path / "out.xml").read_text()
    assert "0 of 1" in (tmp_path / "out.svg").read_text()


def test_a_baseline_fails_only_what_was_better(run: Run, tmp_path: Path) -> None:
    names = [line.split()[0] for line in run("verify", "--list")[1].partition("scenarios\n")[2].splitlines()]
    with open_house() as house:
        there = ["--url", house.url, "--dialect", "openai-chat", "--model", "demo", "--form", "--scenario", names[0]]
        code, out, _ = run("verify", *there, "--json")
        (tmp_path / "before.json").write_text(out)
    assert code == 0
    code, _, err = run("verify", *there, "--baseline", "before.json")
    assert (code, "worse than before" in err) == (1, True)
    (tmp_path / "before.json").write_text(out.replace('"PASS"', '"FAIL"'))
    assert run("verify", *there, "--baseline", "before.json")[0] == 0


def test_paid_requests_are_counted_before_they_are_made(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    def refuse() -> str:
        asked.append("asked")
        return "n\n"

    monkeypatch.setattr("sys.stdin.readline", refuse, raising=False)
    code, _, err = run("verify", "--url", "https://far.test", "--dialect", "openai-chat", "--model", "m")
    assert (code, len(asked)) == (2, 1)
    assert "requests to far.test" in err
    assert "at a price that is not known here. Go on?" in err
    priced = ["--url", "https://far.test", "--dialect", "openai-chat", "--kind", "openai", "--model", "gpt-5.5"]
    assert re.search(r"tokens, about \d+\.\d+ USD\. Go on\?", run("verify", *priced)[2])
