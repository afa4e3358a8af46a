"""`dragoman launch`: what each program is told. tests/clients/test_launch.py runs the real ones."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.cli.launch import PACKAGES, PROGRAMS, ProgramSettings, RunningGateway, show
from dragoman.cli.local_gateway import find_limits
from dragoman.upstream.discovery import demo_upstream
from tests.cli.terminal import answers
from tests.gateway.house import open_house, upstream
from tests.ports import free_port
from tests.waiting import NEVER_S

pytestmark = pytest.mark.usefixtures("at_home")


def make_program(folder: Path, name: str) -> None:
    program = folder / name
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, json, urllib.request\n"
        "url = next(v for k, v in os.environ.items() if k in ('ANTHROPIC_BASE_URL', 'GOOGLE_GEMINI_BASE_URL'))\n"
        "up = urllib.request.urlopen(url + '/healthz').status\n"
        "print(json.dumps([up, url, sys.argv[1:]]))\nsys.exit(5)\n"
    )
    program.chmod(0o755)


def test_a_program_is_started_with_the_gateway_behind_it_and_one_is_started_if_none_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_program(tmp_path, "claude")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    port = free_port()
    assert main(["launch", "claude", "--port", str(port), "--model", "demo", "--", "-p", "hi", "--print"]) == 5
    assert json.loads(capfd.readouterr().out) == [200, f"http://127.0.0.1:{port}", ["-p", "hi", "--print"]]
    assert not answers(port)  # it has ended with the program


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("claude", ["ANTHROPIC_BASE_URL=http://127.0.0.1:20006", "ANTHROPIC_AUTH_TOKEN=", "ANTHROPIC_MODEL=m1"]),
        ("codex", ["http://127.0.0.1:20006/v1", 'wire_api="responses"', 'model="m1"', "DRAGOMAN_KEY="]),
        ("gemini", ["GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:20006", "GEMINI_API_KEY=", "--model m1"]),
        ("opencode", ["OPENCODE_CONFIG_CONTENT=", '"model":"dragoman/m1"', "http://127.0.0.1:20006/v1"]),
        ("qwen", ["OPENAI_BASE_URL=http://127.0.0.1:20006/v1", "--auth-type openai --model m1", "unset HTTP_PROXY"]),
    ],
)
def test_print_shows_the_variables_and_starts_nothing(
    program: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", program, "--print", "--model", "m1", "--", "more"]) == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []
    assert out.splitlines()[-1].startswith(program)
    assert out.splitlines()[-1].endswith("more")


def test_claude_code_is_told_more_where_its_own_settings_would_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Variables in its settings.json win over the environment, and those of --settings over them."""
    program = tmp_path / "claude"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, stat, sys\n"
        "place = sys.argv[2]\n"
        "print(json.dumps([sys.argv[1], stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode), "
        "json.load(open(place))['env']['ANTHROPIC_MODEL'], place, sys.argv[3:]]))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "settings.json").write_text('{"env": {"ANTHROPIC_BASE_URL": "http://elsewhere"}}')
    with open_house() as house:
        assert main(["launch", "claude", "--port", str(house.port), "--model", "demo", "--", "-p", "hi"]) == 0
    option, mode, model, place, rest = json.loads(capfd.readouterr().out)
    assert (option, mode, model, rest) == ("--settings", 0o700, "demo", ["-p", "hi"])
    assert not Path(place).exists()


def test_gemini_cli_gets_a_home_with_the_login_that_heeds_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "me" / ".gemini"
    (own / "commands").mkdir(parents=True)
    (own / "settings.json").write_text(
        '{"ui": {"theme": "x"}, "security": {"auth": {"selectedType": "oauth-personal"}}}'
    )
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert main(["launch", "gemini", "--print", "--model", "m1"]) == 0
    home = tmp_path / "home" / "launch" / "gemini"
    assert f"export GEMINI_CLI_HOME={home}" in capsys.readouterr().out
    settings = json.loads((home / ".gemini" / "settings.json").read_text())
    assert settings == {"ui": {"theme": "x"}, "security": {"auth": {"selectedType": "gemini-api-key"}}}
    assert (home / ".gemini" / "commands").resolve() == (own / "commands").resolve()
    assert "oauth-personal" in (own / "settings.json").read_text()


def test_what_is_printed_can_be_evaluated(tmp_path: Path) -> None:
    make_program(tmp_path, "claude")
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    with open_house() as house:
        command = f'eval "$(dragoman launch claude --print --port {house.port} --model demo -- -p "it\'s")"'
        done = subprocess.run(
            ["bash", "-c", command], env={"PATH": path}, capture_output=True, text=True, timeout=NEVER_S
        )
    assert json.loads(done.stdout) == [200, f"http://127.0.0.1:{house.port}", ["-p", "it's"]]
    assert done.returncode == 5


def test_powershell_gets_settings_in_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ProgramSettings(env={"A_URL": "http://x/'y"}, arguments=["--model", "m"], unset=("HTTP_PROXY",))
    show("qwen", settings, ["it's"], powershell=True)
    assert capsys.readouterr().out.splitlines() == [
        "Remove-Item Env:HTTP_PROXY -ErrorAction SilentlyContinue",
        "$env:A_URL = 'http://x/''y'",
        "& 'qwen' '--model' 'm' 'it''s'",
    ]


@pytest.mark.parametrize("deaf", [False, True])
def test_the_end_of_launch_ends_the_program_and_the_gateway(deaf: bool, tmp_path: Path) -> None:
    """Also one that does not heed a signal, as some that draw on the whole terminal do not."""
    program = tmp_path / "claude"
    heed = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else ""
    program.write_text(
        f"#!{sys.executable}\nimport os, signal, time\n{heed}\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    port = free_port()
    words = [sys.executable, "-m", "dragoman", "launch", "claude", "--port", str(port), "--model", "demo"]
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(NEVER_S) == 128 + (signal.SIGKILL if deaf else signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not answers(port)


def test_print_names_the_model_of_the_gateway_that_runs_and_never_the_toy(capsys: pytest.CaptureFixture[str]) -> None:
    real = upstream("one", "openai_chat", "http://127.0.0.1:9", models=("qwen3",), overrides={"window": 8192})
    with open_house(demo_upstream(), real) as house:
        assert main(["launch", "claude", "--print", "--port", str(house.port)]) == 0
    said = capsys.readouterr().out
    assert "ANTHROPIC_MODEL=qwen3" in said
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS=8192" in said


def test_without_a_provider_the_demo_model_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "claude", "--print", "--port", str(free_port())]) == 0
    said = capsys.readouterr()
    assert "ANTHROPIC_MODEL=demo" in said.out
    assert "no provider is set up" in said.err


def test_a_key_is_enough_for_a_real_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "g-0123456789abcdef")
    assert main(["launch", "claude", "--print", "--port", str(free_port())]) == 0
    assert "ANTHROPIC_MODEL=gemini-2.5-flash" in capsys.readouterr().out


def test_a_program_that_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["launch", "qwen"]) == 127
    assert "qwen is not installed: npm install -g @qwen-code/qwen-code" in capsys.readouterr().err
    assert set(PACKAGES) == set(PROGRAMS)


def test_a_program_is_told_how_much_the_model_reads_and_writes() -> None:
    gateway = RunningGateway("http://127.0.0.1:1", "m", "k", 8192, 1024)
    env = PROGRAMS["claude"](gateway).env
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "8192"
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in env, "Claude Code warns of less than 100,000"
    large = PROGRAMS["claude"](RunningGateway("http://127.0.0.1:1", "m", "k", 200_000)).env
    assert large["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == large["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "200000"
    assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1024"
    assert "model_context_window=8192" in PROGRAMS["codex"](gateway).arguments
    config = json.loads(PROGRAMS["opencode"](gateway).env["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"]["dragoman"]["models"]["m"]["limit"] == {"context": 8192, "output": 1024}


def test_a_window_alone_is_told_as_each_program_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM and llama.cpp tell how much a model reads, and not how much it may write."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    monkeypatch.delenv("QWEN_CODE_SYSTEM_DEFAULTS_PATH", raising=False)
    gateway = RunningGateway("http://127.0.0.1:1", "m", "k", 16384)
    config = json.loads(PROGRAMS["opencode"](gateway).env["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"]["dragoman"]["models"]["m"]["limit"] == {"context": 16384, "output": 4096}
    home = Path(PROGRAMS["gemini"](gateway).env["GEMINI_CLI_HOME"])
    settings = json.loads((home / ".gemini" / "settings.json").read_text())
    assert settings["model"]["compressionThreshold"] * 1_048_576 == pytest.approx(8192, rel=0.01)
    qwen = PROGRAMS["qwen"](gateway).env
    defaults = json.loads(Path(qwen["QWEN_CODE_SYSTEM_DEFAULTS_PATH"]).read_text())
    assert defaults == {"model": {"generationConfig": {"contextWindowSize": 16384}}}
    assert "QWEN_CODE_MAX_OUTPUT_TOKENS" not in qwen


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_told_no_limits_that_are_not_known(program: str, tmp_path: Path) -> None:
    settings = PROGRAMS[program](RunningGateway("http://127.0.0.1:1", "m", "k"))
    told = ("MAX_CONTEXT", "context_window", '"limit"', "MAX_OUTPUT", "DEFAULTS_PATH", "None")
    assert not any(word in str(settings) for word in told)


def test_the_gateway_says_the_limits_of_a_model() -> None:
    with open_house(
        upstream("one", "openai_chat", "http://127.0.0.1:9", models=("m",), overrides={"window": 8192})
    ) as house:
        assert find_limits(house.url, None, "m") == (8192, None)
        assert find_limits(house.url, None, "one/x") == (8192, None)
        assert find_limits(house.url, None, "nothing/there") == (None, None)
