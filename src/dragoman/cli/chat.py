"""`dragoman chat`: a conversation in the terminal (mission D10)."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from dragoman.cli.arguments import add_gateway, read_whole
from dragoman.cli.chat_session import ITERATIONS, VIAS, ChatSession
from dragoman.cli.local_gateway import (
    GatewayError,
    base_url,
    fetch,
    find_key,
    find_model,
    list_models,
    running_gateway,
)
from dragoman.cli.style import paint, shows_colour, tame
from dragoman.cli.xray import show as show_xray
from dragoman.jsontypes import Json, dump_text
from dragoman.log_line import plain
from dragoman.model.events import PartDelta, PartStart, ReplyEnd, ReplyFailed
from dragoman.model.messages import Reasoning, Refusal, Text
from dragoman.model.reply import Finish

NAME = "chat"
HELP = "talk with a model in the terminal"
COMMANDS_HELP = """  /model [NAME]    another model; without a name, lists the models
  /clear           forget the conversation
  /save FILE       save the conversation: Markdown, or JSON for .json
  /xray            the last request, step by step
  /add NAME URL    register an MCP server, and use its tools
  /remove NAME     forget an MCP server
  /list            the MCP servers
  /iter [N]        the limit of turns with tools (--via mcp)
  /help            this list
  /quit            or Ctrl-D"""
EPILOG = f"""commands:
{COMMANDS_HELP}

A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of
several lines. Ctrl-C stops an answer, Ctrl-D ends the conversation. A gateway
is started if none runs at --host and --port, and ends with the conversation."""
QUOTES = '"""'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--via", choices=VIAS, default="openai", help="the protocol to use (default: %(default)s)")
    add_gateway(parser)
    parser.add_argument("--mcp", metavar="NAMES", help="use the tools of MCP servers: names with commas, or *")
    parser.add_argument(
        "--max-iter",
        type=read_whole(1),
        default=ITERATIONS,
        metavar="N",
        help="turns with --via mcp (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    url, key = base_url(args.host, args.port), find_key(args.key)
    try:
        with running_gateway(url):
            session = ChatSession(url, args.via, args.model or find_model(url, key), key=key, mcp=args.mcp)
            session.iterations = args.max_iter
            history = start_history() if sys.stdin.isatty() else None
            try:
                ChatTerminal(session).run()
            finally:
                if history is not None:
                    save_history(history)
    except GatewayError as error:
        print(f"{paint('dragoman chat:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1
    return 0


def start_history() -> Path | None:
    """Turns on line editing and loads the lines of earlier conversations."""
    from dragoman.gateway.config.source import state_folder

    try:
        import readline
    except ImportError:  # Windows
        return None
    path = state_folder(os.environ) / "chat_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(1000)
    return path


def save_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
        path.chmod(0o600)


class ChatTerminal:
    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "model": self._model,
            "clear": self._clear,
            "save": self._save,
            "xray": self._xray,
            "add": self._add,
            "remove": self._remove,
            "list": self._list,
            "iter": self._iter,
            "help": lambda words: print(COMMANDS_HELP),
        }

    def run(self) -> None:
        if self.session.via == "mcp":
            self._refresh_servers()
        if sys.stdin.isatty():
            servers = ", ".join(self.session.servers) or self.session.mcp
            tools = f" with the tools of {servers}" if servers else ""
            about = f"{self.session.model} through {self.session.via}{tools}; /help for commands, Ctrl-D to end"
            print(paint(about, "dim", sys.stdout))
        while True:
            try:
                text = self._read()
            except EOFError:
                if sys.stdin.isatty():
                    print()
                break
            except KeyboardInterrupt:
                print()
                continue
            if text.strip() in ("/quit", "/exit", "/bye"):
                break
            if text.strip():
                self._handle(text)

    def _handle(self, text: str) -> None:
        try:
            if text.startswith("/") and "\n" not in text:
                self._command(text[1:].split())
            else:
                self._answer(text)
        except GatewayError as error:
            print(paint(str(error), "red", sys.stdout))
        except KeyboardInterrupt:
            print(paint("\n(stopped; not remembered)", "yellow", sys.stdout))

    # ---- input

    def _read(self) -> str:
        line = input(_prompt("> "))
        if line.strip().startswith(QUOTES):
            return self._read_quoted(line.strip()[3:])
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input(_prompt(". ")))
        return "\n".join(lines)

    def _read_quoted(self, first: str) -> str:
        if first.endswith(QUOTES):
            return first[:-3]
        lines = [first] if first else []
        while not (line := input(_prompt(". "))).rstrip().endswith(QUOTES):
            lines.append(line)
        last = line.rstrip()[:-3]
        return "\n".join([*lines, last] if last else lines)

    # ---- answers

    def _answer(self, text: str) -> None:
        kinds: dict[int, type] = {}
        last: type | None = None
        for event in self.session.send(text):
            match event:
                case PartStart(index=index, part=part) if isinstance(part, Text | Reasoning | Refusal):
                    kinds[index] = type(part)
                    last = self._show(part.text, type(part), last)
                case PartDelta(index=index, text=piece) if index in kinds:
                    last = self._show(piece, kinds[index], last)
                case ReplyFailed(failure=failure):
                    broken = "\n" if last is not None else ""
                    raise GatewayError(f"{broken}{failure.message or failure.kind}")
                case ReplyEnd(finishes=(Finish(reason=reason), *_)) if reason not in ("stop", "sequence", None):
                    last = self._show(f"{' ' if last else ''}(ended: {reason})", Reasoning, last)
                case _:
                    pass
        print()

    def _show(self, text: str, kind: type, last: type | None) -> type | None:
        if not text:
            return last
        if last is Reasoning and kind is Text:
            print()
        text = tame(text, sys.stdout)
        sys.stdout.write(paint(text, "dim", sys.stdout) if kind is Reasoning else text)
        sys.stdout.flush()
        return kind

    # ---- commands

    def _command(self, words: list[str]) -> None:
        command = self._commands.get(words[0] if words else "")
        if command is None:
            name = words[0] if words else ""
            print(f"no such command: /{name}; /help lists them (to send it as text, begin with a space)")
            return
        command(words[1:])

    def _model(self, words: list[str]) -> None:
        if words:
            self.session.model = words[0]
            print(f"model: {words[0]}")
            return
        for name in list_models(self.session.url, self.session.key):
            print(f"{'*' if name == self.session.model else ' '} {plain(name)}")

    def _clear(self, words: list[str]) -> None:
        self.session.messages.clear()
        print("forgotten")

    def _iter(self, words: list[str]) -> None:
        if words:
            if not words[0].isdigit() or not 1 <= int(words[0]) <= 100:
                print("expected a number from 1 to 100")
                return
            self.session.iterations = int(words[0])
        print(f"iterations: {self.session.iterations}")

    def _save(self, words: list[str]) -> None:
        if not words:
            print("expected a file: /save talk.md")
            return
        path = Path(words[0]).expanduser()
        rows = [(m.role, "".join(getattr(part, "text", "") for part in m.parts)) for m in self.session.messages]
        if path.suffix == ".json":
            text = dump_text([{"role": role, "content": content} for role, content in rows]) + "\n"
        else:
            text = "\n".join(f"## {role}\n\n{content}\n" for role, content in rows)
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            print(f"{path} cannot be written: {error.strerror}")
            return
        print(f"saved {len(rows)} messages to {path}")

    def _xray(self, words: list[str]) -> None:
        if not self.session.request_id:
            print("nothing has been asked yet")
            return
        show_xray(self._fetch(f"/xray/{self.session.request_id}"))

    def _add(self, words: list[str]) -> None:
        if len(words) != 2:
            print("expected a name and an address: /add time http://127.0.0.1:8000/mcp")
            return
        self._fetch("/mcp/add", {"name": words[0], "url": words[1]})
        print(f"added {words[0]}")
        self.session.use_server(words[0])
        self._refresh_servers()

    def _remove(self, words: list[str]) -> None:
        if len(words) != 1:
            print("expected a name: /remove time")
            return
        self._fetch("/mcp/remove", {"name": words[0]}, "DELETE")
        print(f"removed {words[0]}")
        self.session.drop_server(words[0])
        self._refresh_servers()

    def _list(self, words: list[str]) -> None:
        rows = self._fetch("/mcp/list")["servers"]
        for row in rows:
            tools = f"{row['tools']} tool{'' if row['tools'] == 1 else 's'}"
            print(f"{row['name']:<16} {row['health']:<9} {tools:>8}  {row['url']}")
            if row["last_error"]:
                print(paint(f"{'':<16} {row['last_error']}", "red", sys.stdout))
        if not rows:
            print("no MCP server; /add NAME URL")

    def _refresh_servers(self) -> None:
        self.session.servers = [
            row["name"] for row in self._fetch("/mcp/list")["servers"] if row["health"] != "disabled"
        ]

    def _fetch(self, path: str, body: Json = None, method: str | None = None) -> Json:
        key = os.environ.get("DRAGOMAN_ADMIN_KEY") or self.session.key
        return fetch(self.session.url, path, key, body, method)


def _prompt(text: str) -> str:
    """The marks tell readline not to count the colour codes as width."""
    if not sys.stdin.isatty():
        return ""
    return f"\x01\x1b[32m\x02{text}\x01\x1b[0m\x02" if shows_colour(sys.stdout) else text
