"""Does what a newcomer does, and writes what the screen showed to docs/transcripts.md.

    python tools/transcripts.py                  every scene, on the screen
    python tools/transcripts.py clone wheel      some of them
    python tools/transcripts.py --write          every scene, to the page

Each scene runs in an empty environment: no variable of yours, an empty home, a fresh clone. It needs git, make and a
package index, and starts servers on free ports of this machine.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "transcripts.md"
MOST_LINES = 40  # of one output, on the page
WAIT_S = 300.0
PASSED_ON = ("PIP_", "UV_")  # how this machine reaches its package index
NOT_SHOWN = ("WARNING: Location", "WARNING: proceeding")  # of pip about this machine's index, of Codex about its home
ANSI = re.compile(r"\x1b\[[0-9;]*m")
KEY = re.compile(r"\bdk-\w{8}-[\w-]{20,}")  # of a gateway
INTRO = """# What the screen shows

<!-- Written by `python tools/transcripts.py --write`. -->

Each part is a transcript: commands in an empty environment (no variables, an empty home), and what they printed. Paths
and addresses of the machine are replaced. Long output is cut. `python tools/transcripts.py` shows the same on your
machine.
"""


class Screen:
    """Runs commands as one person would, and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.bin: list[Path] = []  # folders that come first in PATH
        self.more: dict[str, str] = {}
        self.lines: list[str] = []
        self.hidden: dict[str, str] = {}  # text of this machine -> what the page says instead

    def env(self) -> dict[str, str]:
        path = os.pathsep.join([*(str(each) for each in self.bin), "/usr/local/bin", "/usr/bin", "/bin"])
        passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        return {**passed, "HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", **self.more}

    def say(self, text: str) -> None:
        self.lines.append(text)

    def run(
        self, command: str, cwd: Path | None = None, *, shown: str = "", fails: bool = False, quiet: bool = False
    ) -> str:
        """The output of a command. An exit code other than 0 ends the scene, unless it is what the scene shows."""
        quieter = command.replace("curl http", "curl -s http")  # without its progress, which a pipe makes it show
        done = subprocess.run(
            ["bash", "-c", quieter], cwd=cwd or self.folder, env=self.env(), text=True, timeout=WAIT_S * 4,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if not quiet:
            self.show(shown or command, done.stdout + (f"(exit code {done.returncode})\n" if done.returncode else ""))
        if bool(done.returncode) != fails:
            raise SystemExit(f"{command}\nended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def show(self, command: str, output: str) -> None:
        lines = [line.rstrip() for line in ANSI.sub("", output).splitlines() if not line.startswith(NOT_SHOWN)]
        if len(lines) > MOST_LINES:
            cut = len(lines) - MOST_LINES
            lines = [*lines[: MOST_LINES - 5], f"... {cut} lines ...", *lines[-5:]]
        text = "\n".join([f"$ {command}", *lines]).strip()
        self.lines.append(f"<!-- not run: a transcript -->\n```console\n{self.hide(text)}\n```")

    def hide(self, text: str) -> str:
        for found, instead in {**self.hidden, str(self.folder): "~", str(ROOT): "dragoman"}.items():
            text = text.replace(found, instead)
        return KEY.sub("dk-...", text)

    @contextmanager
    def server(self, command: str, cwd: Path | None = None, *, ready: str, shown: str = "") -> Iterator[list[str]]:
        """A command that runs until the scene has done with it. What it has printed so far is in the list."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=cwd or self.folder, env=self.env(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        printed: list[str] = []
        done = threading.Event()

        def read() -> None:
            for line in process.stdout or ():
                printed.append(line)
                if ready in line:
                    done.set()
            done.set()

        threading.Thread(target=read, daemon=True).start()
        try:
            if not done.wait(WAIT_S) or process.poll() is not None:
                raise SystemExit(f"{command} did not start:\n{''.join(printed)}")
            if shown != "-":
                self.show(shown or command, "".join(printed))
            yield printed
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(test: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not test():
        if time.monotonic() > until:
            raise SystemExit(f"waited for {what} in vain")
        time.sleep(0.1)


# ---------------------------------------------------------------- environments, each made once


class Workshop:
    """What several scenes need: a clone, archives, an environment with the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def screen(self, name: str) -> Screen:
        folder = self.folder / name
        folder.mkdir()
        return Screen(folder)

    def clone(self) -> Path:
        to = self.folder / "dragoman"
        if not to.exists():
            subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(to)], check=True)
        return to

    def archives(self) -> tuple[Path, Path]:
        dist = self.folder / "dist"
        if not dist.exists():
            command = [sys.executable, "-m", "hatchling", "build", "-d", str(dist)]
            subprocess.run(command, cwd=self.clone(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))

    def installed(self, name: str = "wheel", more: str = "") -> Path:
        """The folder of commands of an empty environment, with the wheel and what it asks for."""
        home = self.folder / f"env-{name}"
        if not home.exists():
            archive = self.archives()[1 if name == "sdist" else 0]
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            install = [str(home / "bin" / "pip"), "install", "--quiet", f"{archive}{more}"]
            subprocess.run(install, check=True)
        return home / "bin"


# ---------------------------------------------------------------- scenes


def scene_clone(work: Workshop) -> Screen:
    """The README, from top to bottom, in a fresh clone"""
    screen, clone, port = work.screen("clone"), work.clone(), free_port()
    screen.hidden = {str(clone): "~/dragoman", str(port): "20006"}
    address = f"http://127.0.0.1:{port}"
    with screen.server(f"make serve PORT={port}", clone, ready="-d '{", shown="make serve"):
        screen.bin = [clone / ".venv" / "bin"]
        blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", (clone / "README.md").read_text("utf-8"), re.M | re.S)
        for language, text in blocks:
            text = text.replace("http://127.0.0.1:20006", address).replace(
                "launch claude", f"launch --port {port} claude"
            )
            if language == "python":
                if "mcp_server_time" in text:
                    screen.run("pip install mcp-server-time", quiet=True)
                screen.run(f"python - <<'END'\n{text.strip()}\nEND")
                continue
            for command in split_commands(text):
                play_readme(screen, command, clone)
    return screen


def split_commands(text: str) -> list[str]:
    """Lines that go on with a backslash, a pipe or an open quote are one command."""
    return [each for each in re.split(r"\n(?! )", text.strip()) if each]


def play_readme(screen: Screen, command: str, clone: Path) -> None:
    if command.startswith(("make serve", "dragoman serve")):
        return  # it runs already
    if command.startswith("make test"):
        screen.say("`make test` takes minutes; it is what CI runs.")
    elif command.startswith("pip install"):
        screen.say(f"`{command}`: see the next part, where the wheel is installed.")
    elif "launch" in command and shutil.which("claude") is None:
        screen.run(command.partition(" -- ")[0] + " --print")
        screen.run(command, fails=True)
    elif command.startswith("dragoman verify --url"):
        screen.run(command.replace("http://127.0.0.1:8000/v1", f"http://127.0.0.1:{free_port()}/v1"), fails=True)
    elif command.startswith("dragoman verify --gateway"):
        screen.run(f"{command} --model demo --yes")
    else:
        screen.run(command, clone)


def scene_wheel(work: Workshop) -> Screen:
    """The wheel in an empty environment: every command"""
    screen = work.screen("wheel")
    screen.bin = [work.installed("wheel")]
    screen.hidden = {str(work.folder): "~"}
    play_commands(screen)
    return screen


def scene_sdist(work: Workshop) -> Screen:
    """The source archive in an empty environment"""
    screen = work.screen("sdist")
    screen.bin = [work.installed("sdist")]
    screen.run("dragoman --version")
    screen.run("dragoman ask 'say hello'")
    return screen


def play_commands(screen: Screen) -> None:
    """Each command does something real, or says in one line which extra it needs."""
    asked = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
    (screen.folder / "request.json").write_text(asked)
    screen.run(
        "du -sh --apparent-size $(dirname $(dirname $(command -v dragoman)))/lib", shown="du -sh lib", quiet=True
    )
    screen.run("dragoman --help")
    for command in (
        "dragoman --version",
        "dragoman ask 'say hello'",
        "printf 'my name is Ann\\nwhat is my name?\\n' | dragoman chat --model demo",
        "dragoman convert request.json --from anthropic --to gemini",
        "dragoman dialects",
        "dragoman verify --list | head -5",
        "dragoman init",
        "dragoman check",
        "dragoman models",
        "dragoman providers ollama",
        "dragoman route demo",
        "dragoman keys new --name laptop",
        "dragoman keys list",
        "dragoman teams list",
        "dragoman mcp list",
        "dragoman say hello -o hello.wav --model demo",
        "dragoman launch codex --print",
        "dragoman completion bash | head -3",
        "dragoman pairs --from anthropic --to gemini | head -8",
    ):
        screen.run(command)
    for command in ("dragoman mock openai --port 0", "dragoman usage", "dragoman db migrate", "dragoman xray 1"):
        screen.run(f"timeout 20 {command}", shown=command, fails=True)


def scene_uvx(work: Workshop) -> Screen:
    """`uvx` and `pipx run`"""
    screen, tools = work.screen("uvx"), work.folder / "env-tools"
    subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
    subprocess.run([str(tools / "bin" / "pip"), "install", "--quiet", "uv", "pipx"], check=True)
    screen.bin = [tools / "bin"]
    wheel = work.archives()[0]
    screen.hidden = {str(wheel): "dragoman.whl"}
    screen.run(f"uvx --quiet --from {wheel} dragoman ask 'say hello'")
    screen.run(f"uvx --quiet --from {wheel} dragoman launch claude --model demo --print")
    screen.run(
        f"pipx run --spec {wheel} dragoman ask 'say hello' 2>/dev/null",
        shown="pipx run --spec dragoman.whl dragoman ask 'say hello'",
    )
    return screen


def scene_phone(work: Workshop) -> Screen:
    """A terminal of 40 columns"""
    screen = work.screen("phone")
    screen.bin, screen.more = [work.installed()], {"COLUMNS": "40", "LINES": "30"}
    for command in ("dragoman --help", "dragoman ask --help", "dragoman models", "dragoman route no-such-model"):
        screen.run(command, fails=command.endswith("no-such-model"))
    return screen


def scene_windows(work: Workshop) -> Screen:
    """Windows, by taking the names of Unix away"""
    screen = work.screen("windows")
    screen.bin = [work.installed()]
    text = (ROOT / "tests" / "test_windows_and_macos.py").read_text("utf-8")
    gone = re.search(r'AS_ON_WINDOWS = """\n(.*?)"""', text, re.S)
    if gone is None:
        raise SystemExit("tests/test_windows_and_macos.py has no AS_ON_WINDOWS")
    program = gone[1] + "from dragoman.cli import main; sys.exit(main(sys.argv[1:]))\n"
    (screen.folder / "windows.py").write_text(program)
    screen.say("`windows.py` first removes `signal.SIGHUP`, `os.fork`, `fcntl`, `resource`, `pwd` and others.")
    for words in ("ask 'say hello'", "check", "models", "route demo", "launch claude --print", "doctor"):
        screen.run(f"python windows.py {words}")
    port = free_port()
    screen.hidden = {str(port): "20006"}
    with screen.server(f"python windows.py serve --port {port}", ready="-d '{"):
        screen.run(f"dragoman ask 'say hello' --url http://127.0.0.1:{port}")
    screen.run("python windows.py serve --workers 2", fails=True)
    return screen


# ---------------------------------------------------------------- servers that scenes need


class Ollama(ThreadingHTTPServer):
    """As much of Ollama as the scenes need. `models` may grow while it runs."""

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), OllamaRequest)
        self.models = ["qwen3:8b"]
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


INFO = {"general.architecture": "qwen3", "qwen3.context_length": 40960}


class OllamaRequest(BaseHTTPRequestHandler):
    server: Ollama

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""

    def do_GET(self) -> None:
        tags = [{"name": name, "model": name, "size": 1, "details": {}} for name in self.server.models]
        self._answer({"models": tags} if self.path == "/api/tags" else {"version": "0.12.0"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/api/show":
            self._answer({"capabilities": ["completion", "tools"], "model_info": INFO, "details": {}})
            return
        self.server.asked.append(body["model"])
        message = {"role": "assistant", "content": f"I am {body['model']}"}
        self._answer({"model": body["model"], "created_at": "2026-11-17T00:00:00Z", "message": message, "done": True,
                      "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 4})  # fmt: skip

    def _answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def scene_pulled(work: Workshop) -> Screen:
    """A model that is pulled while the gateway runs"""
    screen, ollama, port = work.screen("pulled"), Ollama(), free_port()
    screen.bin = [work.installed()]
    screen.more = {"OLLAMA_HOST": f"127.0.0.1:{ollama.port}", "GEMINI_API_KEY": "a-key-that-no-request-may-use"}
    screen.hidden = {str(port): "20006", str(ollama.port): "11434"}
    screen.say("A server that answers as Ollama does, a Gemini key in the environment, and a gateway:")
    url = f"http://127.0.0.1:{port}"
    body = {"model": "llama3.2:3b", "stream": False, "messages": [{"role": "user", "content": "who are you?"}]}
    asks = f"curl -s {url}/api/chat -d '{json.dumps(body)}'"
    with screen.server(f"dragoman serve --port {port}", ready="-d '{"):
        screen.run(f"curl -s {url}/api/tags | python -m json.tool | grep '\"name\"'")
        screen.say("Not pulled yet. The prompt does not go to Gemini; it is an error that says what there is:")
        screen.run(asks)
        ollama.models.append("llama3.2:3b")
        time.sleep(6)  # lists of models that are younger than 5 seconds are not asked for again
        screen.say("`ollama pull llama3.2:3b`. Then, with the same gateway:")
        screen.run(asks)
        screen.run(f"curl -s {url}/api/tags | python -m json.tool | grep '\"name\"'")
    if ollama.asked != ["llama3.2:3b"]:
        raise SystemExit(f"Ollama was asked for {ollama.asked}")
    return screen


ALIASES = """
[aliases]
fast = "gemini/gemini-2.5-flash"
"claude-*" = "gemini/gemini-2.5-flash"
"claude-opus-*" = "gemini/gemini-2.5-pro"

[providers.gemini]
api_key = "k"
models = ["gemini-2.5-flash", "gemini-2.5-pro"]

[providers.openai]
api_key = "k"
models = ["gpt-5.5"]

[providers.near]
base_url = "http://127.0.0.1:8000/v1"
models = ["gpt-5.5-mini-2026-03-01", "glm-5"]

[[route]]
when = { web_search = true }
to = "fast"

[[route]]
when = { tokens_over = 50000 }
to = ["gemini/gemini-2.5-pro", "gpt-5.5"]
"""
NAMES = (
    *("fast", "claude-opus-4-8", "claude-haiku-4-5", "gpt-5.5", "openai/gpt-9", "gpt-5.5-low", "gpt-5.5-mini"),
    *("gpt-5.5-mini-2026-03-01", "glm-5-2026-02-03", "gemini-3-flash-preview", "llama3.2:3b"),
)
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def scene_aliases(work: Workshop) -> Screen:
    """Each form of a model's name, and rules"""
    screen = work.screen("aliases")
    screen.bin = [work.installed()]
    (screen.folder / "dragoman.toml").write_text(ALIASES.lstrip())
    screen.say(f"`dragoman.toml`:\n\n```toml\n{ALIASES.strip()}\n```")
    for name in NAMES:
        screen.run(f"dragoman route {name}", fails=name == "llama3.2:3b")
    screen.say("A request of Claude Code that searches the web, and one with a long history:")
    question = {"role": "user", "content": "What is new?"}
    bodies = {"search.json": {"tools": [SEARCH], "messages": [question]},
              "long.json": {"messages": [{"role": "user", "content": "word " * 60_000}]}}  # fmt: skip
    for name, body in bodies.items():
        (screen.folder / name).write_text(json.dumps({"model": "gpt-5.5", "max_tokens": 99, **body}))
        screen.run(f"dragoman route gpt-5.5 --body {name}")
    return screen


PROGRAMS = {
    "claude": '-p "who are you?"',
    "codex": 'exec --skip-git-repo-check --json "who are you?"',
    "gemini": '-p "who are you?" --skip-trust',
    "opencode": 'run "who are you?"',
    "qwen": '-p "who are you?"',
}


def scene_launch(work: Workshop) -> Screen:
    """`launch` for five programs without `--model`"""
    screen, ollama, port = work.screen("launch"), Ollama(), free_port()
    screen.bin, screen.more = [work.installed()], {"OLLAMA_HOST": f"127.0.0.1:{ollama.port}", "NO_COLOR": "1"}
    screen.hidden = {str(port): "20006", str(ollama.port): "11434"}
    there = find_programs()
    with screen.server(f"dragoman serve --port {port}", ready="-d '{", shown="-"):
        for program in PROGRAMS:
            screen.run(f"dragoman launch {program} --print --port {port}", shown=f"dragoman launch {program} --print")
        if there is None:
            screen.say("The programs themselves are not installed here.")
            return screen
        screen.bin.append(there)
        screen.say("The programs themselves. The server behind the gateway answers as Ollama does:")
        for program, words in PROGRAMS.items():
            shown = f"dragoman launch {program} -- {words}"
            screen.run(f"dragoman launch {program} --port {port} -- {words} < /dev/null", shown=shown)
    if len(ollama.asked) < len(PROGRAMS) or set(ollama.asked) != set(ollama.models):
        raise SystemExit(f"Ollama was asked for {ollama.asked}")
    return screen


def find_programs() -> Path | None:
    """The folder in which `make test-clients` has put them."""
    found = Path.home().glob(".cache/dragoman-clients/*/node_modules/.bin/claude")
    return next((path.parent for path in found if all((path.parent / name).exists() for name in PROGRAMS)), None)


def scene_proxy(work: Workshop) -> Screen:
    """Behind a company's proxy"""
    screen, port, proxy_port, address = work.screen("proxy"), free_port(), free_port(), own_address()
    if address is None:
        screen.say("This machine has no address but 127.0.0.1, and dragoman asks no proxy for servers on this machine.")
        return screen
    ollama = Ollama("")
    screen.bin = [work.installed()]
    screen.more = {"HTTP_PROXY": f"http://ann:secret@127.0.0.1:{proxy_port}"}
    server = f"http://{address}:{ollama.port}"
    screen.hidden = {
        server: "http://models.company.test",
        str(port): "20006",
        str(proxy_port): "3128",
        address: "models.company.test",
    }
    (screen.folder / "dragoman.toml").write_text(f'[providers.house]\nkind = "ollama"\nbase_url = "{server}"\n')
    screen.say("A real proxy (proxy.py) that wants a password; a server that is not on this machine:")
    screen.run("cat dragoman.toml")
    words = f"--hostname 127.0.0.1 --port {proxy_port} --basic-auth ann:secret --num-workers 1 --num-acceptors 1"
    with screen.server(
        f"{sys.executable} -m proxy {words} --data-dir {screen.folder}/proxy", ready="Loaded plugin", shown="-"
    ) as seen:
        wait_for(lambda: is_open(proxy_port), "the proxy")
        with screen.server(
            f"dragoman serve --port {port}",
            ready="-d '{",
            shown="HTTP_PROXY=http://ann:secret@127.0.0.1:3128 dragoman serve",
        ):
            body = '{"model": "qwen3:8b", "messages": [{"role": "user", "content": "hi"}]}'
            asks = f"curl -s --noproxy '*' http://127.0.0.1:{port}/v1/chat/completions -d '{body}'"
            screen.run(f"{asks} -H 'content-type: application/json'")
            screen.run("dragoman doctor")
        wait_for(lambda: any("/api/chat" in line for line in seen), "the proxy's log")
        rows = [re.sub(r"^.*access_log:\d+ - [\d.:]+ - ", "", line) for line in seen if "/api/" in line]
        screen.show("grep /api/ proxy.log", "".join(rows[:4]))
    return screen


def own_address() -> str | None:
    """An address of this machine that other machines would use; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def scene_verify(work: Workshop) -> Screen:
    """`verify` and a server that does not answer"""
    screen, port = work.screen("verify"), free_port()
    screen.bin, screen.hidden = [work.installed()], {str(port): "8000"}
    screen.run(f"dragoman verify --url http://127.0.0.1:{port}/v1 --dialect openai-chat --junit report.xml", fails=True)
    screen.run("head -c 400 report.xml")
    return screen


def claude_code_request() -> dict[str, Any]:
    """A request as Claude Code makes them: cache marks, tools with schemas, a thinking budget, metadata."""
    mark = {"cache_control": {"type": "ephemeral"}}
    names = ("Bash", "Read", "Edit", "Write", "Grep", "Glob", "Task", "WebFetch", "TodoWrite", "NotebookEdit")
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False}
    tools = [
        {
            "name": name,
            "description": name,
            "input_schema": {**schema, "properties": {"path": {"type": "string"}}},
            **mark,
        }
        for name in names
    ]
    turns: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "fix the test", **mark}]}]
    for i in range(8):
        call = {"type": "tool_use", "id": f"toolu_{i}", "name": "Read", "input": {"path": "a.py"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "text", **mark}
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {
        "model": "gemini-2.5-flash", "max_tokens": 32000, "stream": True, "messages": turns, "tools": tools,
        "system": [{"type": "text", "text": "You are Claude Code.", **mark}],
        "metadata": {"user_id": "user_1_account__session_2"}, "thinking": {"type": "enabled", "budget_tokens": 31999},
    }  # fmt: skip


def scene_notes(work: Workshop) -> Screen:
    """The notes of a Claude Code request to Gemini"""
    screen = work.screen("notes")
    screen.bin = [work.installed()]
    (screen.folder / "claude-code.json").write_text(json.dumps(claude_code_request()))
    screen.run("dragoman convert claude-code.json --to gemini > gemini.json")
    count = screen.run(
        "dragoman convert claude-code.json --to gemini --verbose 2>&1 >/dev/null | wc -l", quiet=True
    ).strip()
    screen.say(f"`--verbose` shows each note on a line of its own: {count} lines.")
    return screen


SCENES: dict[str, Callable[[Workshop], Screen]] = {
    name.removeprefix("scene_"): scene for name, scene in list(globals().items()) if name.startswith("scene_")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    args = parser.parse_args()
    parts, failed = [INTRO], []
    with tempfile.TemporaryDirectory() as folder:
        work = Workshop(Path(folder))
        for name in args.scenes or SCENES:
            try:
                screen = SCENES[name](work)
            except SystemExit as error:
                failed.append(f"{name}: {error}")
                continue
            text = "\n\n".join([f"## {SCENES[name].__doc__}", *screen.lines])
            parts.append(text.replace(folder, "~"))
            print(parts[-1], flush=True)
    if failed:  # the page keeps its old parts
        raise SystemExit("\n".join(failed))
    if args.write:
        PAGE.write_text("\n\n".join(parts) + "\n", "utf-8")


if __name__ == "__main__":
    main()
