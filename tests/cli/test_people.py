"""The programs people use in a terminal, driven as a person drives them."""

import contextlib
import http.server
import json
import os
import pty
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.cli.say import samples, wrap
from dragoman.gateway.mcp_settings import McpSettings
from tests.gateway.house import House, open_house
from tests.mcp.servers import bad, time_server


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("people")
    with open_house(mcp=McpSettings(folder=folder, servers={"time": time_server()})) as house:
        yield house


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DRAGOMAN_NO_PROBE", "1")
    for name in ("DRAGOMAN_KEY", "DRAGOMAN_ADMIN_KEY", "DRAGOMAN_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
            os.execv(sys.executable, [sys.executable, "-m", "dragoman", *words])  # noqa: S606
        self.seen, self._at = "", 0

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ask(self, line: str, word: str) -> None:
        """Types a line when there is a prompt, and waits for what must be in the answer, not in its echo."""
        self.wait("> ")
        self.type(line + "\r")
        self.wait("\n")
        self.wait(word)

    def wait(self, word: str, seconds: float = 8.0) -> None:
        """Reads on until a word has appeared behind the last one waited for."""
        until = time.monotonic() + seconds
        while (place := self.seen.find(word, self._at)) < 0:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            try:
                data = os.read(self._fd, 65536) if ready else b""
            except OSError:  # the program has ended
                data = b""
            if not data:
                os.kill(self.pid, signal.SIGKILL)
                self.end()
                raise AssertionError(f"no {word!r} in {self.seen[self._at :]!r}")
            self.seen += data.decode("utf-8", "replace")
        self._at = place + len(word)

    def end(self) -> int:
        until = time.monotonic() + 8.0
        with contextlib.suppress(OSError):
            while time.monotonic() < until and select.select([self._fd], [], [], 8.0)[0] and os.read(self._fd, 65536):
                pass
        if time.monotonic() >= until:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_a_conversation_in_a_terminal(house: House, tmp_path: Path) -> None:
    terminal = Terminal("chat", "--via", "anthropic", "--port", str(house.port), "--model", "demo")
    terminal.wait("/help for commands")
    terminal.ask("remember that my name is Ann", "Ann”")
    terminal.ask("what is my name?", "Your name is Ann.")
    terminal.ask('"""', ". ")  # several lines
    terminal.type('say one\rtwo"""\r')
    terminal.wait('two"""')
    terminal.ask("say \\", ". ")
    terminal.type("three\r")
    terminal.wait("\n")
    terminal.ask("/clear", "forgotten")
    terminal.ask("/iter 7", "iterations: 7")
    terminal.ask("/iter x", "from 1 to 100")
    terminal.ask("/model", "* demo")
    terminal.ask("say goodbye", "goodbye")
    terminal.ask("/xray", "── canonical")
    terminal.ask(f"/save {tmp_path}/talk.json", "saved 2 messages")
    terminal.ask("/frobnicate", "no such command")
    terminal.wait("> ")
    time.sleep(0.3)  # a signal while the prompt is being written is heard at the next key only (CPython's readline)
    terminal.type("\x03")  # Ctrl-C at the prompt ends nothing
    terminal.ask("say still here", "still here")
    terminal.wait("> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "\x1b[32m" in terminal.seen  # the prompt is coloured
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [row["role"] for row in saved] == ["user", "assistant"]
    history = tmp_path / "home" / "chat_history"
    assert "say goodbye" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_tools_in_a_terminal(house: House) -> None:
    terminal = Terminal("chat", "--via", "mcp", "--port", str(house.port), "--model", "demo", "--max-iter", "4")
    terminal.ask("/list", "time ")
    terminal.ask("/add other http://127.0.0.1:9/mcp", "added other")
    terminal.ask("/remove other", "removed other")
    terminal.ask("/add nonsense", "expected a name and an address")
    terminal.ask('Use convert_time with "UTC" "12:00" "Asia/Tokyo"', "T21:00:00+09:00")
    terminal.ask("/quit", "")
    assert terminal.end() == 0


@pytest.mark.parametrize("via", ["ollama", "jsonrpc", "openai", "anthropic", "gemini"])
def test_every_door_talks_and_remembers(
    house: House, via: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("my colour is green\nwhat is my colour?\n"))
    assert main(["chat", "--via", via, "--port", str(house.port), "--model", "demo"]) == 0
    assert "Your colour is green." in capsys.readouterr().out


def test_an_error_of_the_gateway_is_shown_and_the_conversation_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/model demo\nsay yes\n"))
    assert main(["chat", "--port", str(house.port), "--model", "../no/such"]) == 0
    out = capsys.readouterr().out
    assert "no model '../no/such'" in out
    assert "yes" in out


def test_a_gateway_elsewhere_that_does_not_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--host", "192.0.2.1", "--port", "9"]) == 1
    assert "no gateway answers" in capsys.readouterr().err


# ---------------------------------------------------------------- launch


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert main(["launch", "claude", "--port", str(port), "--model", "demo", "--", "-p", "hi", "--print"]) == 5
    assert json.loads(capfd.readouterr().out) == [200, f"http://127.0.0.1:{port}", ["-p", "hi", "--print"]]
    with socket.socket() as probe:  # it has ended with the program
        assert probe.connect_ex(("127.0.0.1", port)) != 0


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
        done = subprocess.run(["bash", "-c", command], env={"PATH": path}, capture_output=True, text=True, timeout=20)
    assert json.loads(done.stdout) == [200, f"http://127.0.0.1:{house.port}", ["-p", "it's"]]
    assert done.returncode == 5


def test_a_program_that_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["launch", "qwen"]) == 127
    assert "qwen is not installed" in capsys.readouterr().err


# ---------------------------------------------------------------- say

PCM = b"\x01\x00\x02\x00" * 100


class Speaker(http.server.BaseHTTPRequestHandler):
    """OpenAI's /audio/speech; what it gives is its server's to say."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server: Any = self.server
        server.asked.append((self.path, body))
        data = server.gives
        self.send_response(200 if data else 400)
        self.end_headers()
        self.wfile.write(data or b'{"error": {"message": "no such voice"}}')

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def speaker(gives: bytes) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Speaker)
    server.gives, server.asked = gives, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("name", "gives", "asks", "gets"),
    [
        ("a.wav", wrap(PCM), "wav", wrap(PCM)),
        ("a.pcm", PCM, "pcm", PCM),
        ("a.pcm", wrap(PCM), "pcm", PCM),  # some servers give wav whatever one asks
        ("a.wav", PCM, "wav", wrap(PCM)),
        ("a.ogg", b"OggS...", "opus", b"OggS..."),
        ("a.mp3", b"ID3...", "mp3", b"ID3..."),
    ],
)
def test_sound_is_saved_as_the_name_says(
    name: str, gives: bytes, asks: str, gets: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with speaker(gives) as server:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        assert main(["say", "hello", "there", "-o", name, "--url", url, "--voice", "nova"]) == 0
    assert (tmp_path / name).read_bytes() == gets
    path, body = server.asked[0]
    assert path == "/v1/audio/speech"
    assert body == {"model": "tts-1", "input": "hello there", "voice": "nova", "response_format": asks}
    assert f"{name}: {len(gets)} bytes" in capsys.readouterr().err


def test_without_a_converter_ogg_is_a_clear_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with speaker(wrap(PCM)) as server:
        assert main(["say", "hi", "-o", "a.ogg", "--url", f"http://127.0.0.1:{server.server_port}/v1"]) == 1
    assert "the server gave wav, and a.ogg needs ffmpeg" in capsys.readouterr().err
    assert not (tmp_path / "a.ogg").exists()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["say", "hi", "-o", "a.txt"], 2, "expected a file ending in"),
        (["say", "hi", "-o", "a.wav", "--url", "http://127.0.0.1:9"], 1, "does not answer"),
    ],
)
def test_what_cannot_be_said_is_explained(
    words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    assert why in capsys.readouterr().err


def test_a_refusal_of_the_server_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with speaker(b"") as server:
        assert main(["say", "hi", "-o", "a.wav", "--url", f"http://127.0.0.1:{server.server_port}"]) == 1
    assert "no such voice" in capsys.readouterr().err


def test_the_gateway_s_own_models_are_asked_and_the_demo_does_not_speak(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["say", "hi", "-o", "a.wav", "--port", str(house.port)]) == 1
    assert "say which: --model" in capsys.readouterr().err
    assert main(["say", "hi", "-o", "a.wav", "--port", str(house.port), "--model", "demo"]) == 1
    assert "does not speak" in capsys.readouterr().err


def test_a_progress_line_on_a_terminal(tmp_path: Path) -> None:
    with speaker(wrap(PCM)) as server:
        terminal = Terminal("say", "hi", "-o", "a.wav", "--url", f"http://127.0.0.1:{server.server_port}/v1")
        terminal.wait("speaking ...")
        terminal.wait("a.wav: ")
        assert terminal.end() == 0


def test_wav_is_read_whatever_stands_before_its_sound() -> None:
    odd = b"RIFF\0\0\0\0WAVE" + b"LIST\x03\0\0\0abc\0" + b"fmt \x10\0\0\0" + b"\0" * 16 + b"data\x02\0\0\0\x07\x08"
    assert samples(odd) == b"\x07\x08"


# ---------------------------------------------------------------- mcp


def test_servers_are_added_tried_and_removed_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = bad("fine")
    assert main(["mcp", "list"]) == 0
    assert "no MCP server" in capsys.readouterr().out
    assert main(["mcp", "add", "fine", "--", str(fine.command), *fine.args]) == 0
    assert main(["mcp", "add", "dead", "http://127.0.0.1:9/mcp"]) == 0
    capsys.readouterr()
    assert main(["mcp", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["fine"]["health"], rows["fine"]["tools"], rows["dead"]["health"]) == ("up", 1, "down")
    assert main(["mcp", "tools", "fine"]) == 0
    assert "fine.work()" in capsys.readouterr().out
    assert main(["mcp", "call", "fine.work", "{}"]) == 0
    assert capsys.readouterr().out == "done\n"
    assert main(["mcp", "call", "fine.wrok"]) == 1
    assert main(["mcp", "call", "dead.work"]) == 1
    assert "dead does not run" in capsys.readouterr().err
    assert main(["mcp", "remove", "fine"]) == 0
    assert main(["mcp", "remove", "fine"]) == 1
    assert main(["mcp", "add", "x", "ftp://example.org"]) == 2
    assert main(["mcp", "add"]) == 2
    (tmp_path / "home" / "mcp.json").write_text('{"mcpServers": {')
    assert main(["mcp", "list"]) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_servers_of_the_configuration_are_known_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = bad("fine")
    (tmp_path / "dragoman.toml").write_text(
        f"demo = true\n[mcp.servers.fine]\ncommand = {json.dumps(fine.command)}\nargs = {json.dumps(list(fine.args))}\n"
    )
    assert main(["mcp", "call", "fine.work"]) == 0
    assert capsys.readouterr().out == "done\n"
    (tmp_path / "dragoman.toml").write_text('demo = true\n[mcp]\nshow = "loud"\n')
    assert main(["mcp", "list"]) == 2
    assert "mcp.show" in capsys.readouterr().err


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name
)
def test_a_chat_that_is_ended_leaves_no_gateway_behind(how: signal.Signals) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "chat", "--port", str(port), "--model", "demo"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert b"started a gateway" in process.stderr.readline()
    process.send_signal(how)
    process.communicate(timeout=10)
    until = time.monotonic() + 5
    while (there := answers(port)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not there


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
