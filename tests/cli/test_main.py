"""The `dragoman` command as a whole: help, version, exit codes, closed pipes."""

import argparse
import io
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dragoman
from dragoman import cli
from dragoman.cli import serve, style

COMMAND = [sys.executable, "-m", "dragoman"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_version_names_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dragoman {dragoman.__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # a narrow terminal breaks lines
    for name in cli.COMMANDS:
        assert cli.load_command(name).HELP in shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_has_its_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"usage: dragoman {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", *cli.COMMANDS])
def test_help_fits_a_narrow_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*([name] if name else []), "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_is_called_like_its_module(name: str) -> None:
    assert name == cli.load_command(name).NAME


@pytest.mark.parametrize("words", [[], ["sevre"], ["--colour"], ["serve", "--no-such-option"], ["serve", "extra"]])
def test_misuse_is_explained_on_stderr_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: dragoman" in err


def test_a_misspelt_command_is_told_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["sevre"])
    err = capsys.readouterr().err
    assert all(name in err for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sevre"], "found 'sevre'; did you mean serve?\n`dragoman --help` explains it."),
        (["launch", "cloud"], "found 'cloud'; did you mean claude?\n`dragoman launch --help` explains it."),
        (
            ["keys"],
            "keys: error: expected ACTION: one of new, edit, list, show, rotate, revoke\n`dragoman keys --help`",
        ),
        (["mcp"], "expected ACTION: one of list, add, remove,"),
        (["ask", "--modle", "x", "hi"], "dragoman ask: error: there is no option --modle; did you mean --model?\n"),
        (["keys", "new", "--nam", "x"], "dragoman keys new: error: there is no option --nam; did you mean --name?\n"),
        (["launch"], "dragoman launch: error: expected PROGRAM: one of claude, codex,"),
        (["serve", "fast"], "dragoman serve: error: there is no place for 'fast'\n`dragoman serve --help`"),
        (["serve", "--port", "99999"], "--port: expected a whole number from 0 to 65535, found '99999'"),
        (["chat", "--port", "x"], "--port: expected a whole number from 0 to 65535, found 'x'"),
        (["serve", "--workers", "0"], "--workers: expected a whole number of 1 or more, found '0'"),
        (["serve", "--xray=-1"], "--xray: expected a whole number of 0 or more, found '-1'"),
        (["ask", "hi", "--temperature", "hot"], "--temperature: expected a number of 0 or more, found 'hot'"),
        (["ask", "hi", "--max-output", "0"], "--max-output: expected a whole number of 1 or more, found '0'"),
        (["ask", "hi", "--effort", "loud"], "max, or a number of tokens, found 'loud'"),
        (["verify", "--parallel", "none"], "--parallel: expected a whole number of 1 or more, found 'none'"),
    ],
)
def test_a_wrong_word_is_named_with_what_was_expected(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert told in capsys.readouterr().err


def test_the_version_imports_no_command() -> None:
    code = "import sys; from dragoman.cli import main; main(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {f"dragoman.cli.{name}" for name in cli.COMMANDS} & set(loaded)


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "run", interrupt)
    assert cli.main(["serve"]) == 130


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_a_closed_pipe_is_no_traceback(words: list[str]) -> None:
    # unbuffered, argparse itself meets the closed pipe and keeps quiet about it
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        done = subprocess.run(
            [*COMMAND, *words], stdout=closed, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_two_closed_pipes_end_like_one() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        done = subprocess.run([*COMMAND, "serve", "--port", "0"], stdout=closed, stderr=closed, check=False)
    assert done.returncode == 141


def test_the_console_script_is_this_main() -> None:
    assert import_module("dragoman.__main__").main is cli.main


def test_paint_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert style.paint("lost", "red", Terminal()) == "\x1b[31mlost\x1b[0m"
    assert style.paint("lost", "red", io.StringIO()) == "lost"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_ask_for_no_colours(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert style.paint("lost", "red", Terminal()) == "lost"


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["verify", "--scripted"], "aiohttp", "testing"),
        (["verify", "--docs", "page.md"], "aiohttp", "testing"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    words: list[str], package: str, extra: str, tmp_path: Path
) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from dragoman.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"dragoman {words[0]}: {package} is missing: pip install 'dragoman[{extra}]'\n"


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    assert "commands:" in capsys.readouterr().out
    assert cli.main(["help", "ask"]) == 0
    assert "usage: dragoman ask" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_no_character_of_an_answer_ends_a_command(encoding: str, tmp_path: Path) -> None:
    """Where a screen has an old encoding, as pipes have on Windows, an answer in Korean ended in a traceback."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONIOENCODING": encoding}
    words = [*COMMAND, "ask", "\ud55c\uad6d ok?"]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ok?" in done.stdout


def test_files_and_pipes_are_utf_8_on_windows() -> None:
    rows: list[tuple[bool, dict[str, str], str]] = [
        (True, {}, "utf-8"),
        (True, {"PYTHONIOENCODING": "cp1252"}, "cp1252"),
        (False, {}, "cp1252"),
    ]
    for windows, env, encoding in rows:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
        cli.allow_all_text(stream, env, windows=windows)
        assert (stream.encoding, stream.errors) == (encoding, "replace")
    cli.allow_all_text(io.StringIO(), {}, windows=True)  # a test's own stream stays as it is
