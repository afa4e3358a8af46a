"""`dragoman mcp`: the MCP servers of this machine, without a gateway."""

import argparse
import asyncio
import getpass
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.cli.mcp_show import show_changes, show_messages, show_result, show_rows, show_servers, show_tools, warn
from dragoman.cli.style import paint
from dragoman.errors import ConfigError, DecodeError, DragomanError
from dragoman.jsontypes import JsonObject, load_object
from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import ServerPool, find_registry_path
from dragoman.mcp.spec import BadServerError
from dragoman.model.messages import ToolCall

if TYPE_CHECKING:
    from dragoman.mcp.connection import ServerConnection

NAME = "mcp"
HELP = "list, add, remove and try MCP servers"
HOST = re.compile(r"[\w-]+(\.[\w-]+)+(:\d+)?(/|$)|[\w-]+:\d+(/|$)")
EPILOG = """actions:
  list                          every server, its health and its tools
  add NAME URL                  a server at an address (--header, --bearer)
  add NAME -- PROGRAM ARG...    a server that is a program (--env)
  remove NAME
  tools [NAME...]               the tools (--changed: changed since approval)
  approve NAME                  approves its tools as they are now
  call SERVER.TOOL [JSON]       calls a tool
  resources [NAME...]           the resources
  read NAME URI                 reads a resource
  prompts [NAME...]             the prompts
  prompt SERVER.PROMPT [JSON]   prints a prompt
  login NAME                    gets a token, in a browser (--paste: if the
                                browser runs on another machine)
  logout NAME                   forgets the token

examples:
  dragoman mcp add weather https://example.org/mcp --bearer '${WEATHER_KEY}'
  dragoman mcp add time -- uvx mcp-server-time --local-timezone UTC
  dragoman mcp call time.get_current_time '{"timezone": "Asia/Seoul"}'

The registry is mcp.json beside the configuration file, else in the folder of
dragoman's state. A program gets only PATH, LANG, a HOME of its own and the
variables of the entry's `env`.

exit codes: 0 done, 1 a server or a tool failed, 2 bad input or usage"""
LIST_TIMEOUT_S = 15.0
LOGIN_TIMEOUT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=tuple(ACTIONS), metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "words", nargs="*", default=[], metavar="WORD", help="a server's name; its URL; a tool and its arguments"
    )
    parser.set_defaults(program=[])
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="dragoman.toml or config.json (default: DRAGOMAN_CONFIG, else in this folder)",
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="another registry than mcp.json")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="add: for its requests")
    parser.add_argument("--bearer", metavar="TOKEN", help="add: a token for its requests; '${NAME}' is filled in later")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="add: for its program")
    parser.add_argument("--changed", action="store_true", help="tools: only tools that changed since approval, in full")
    parser.add_argument("--paste", action="store_true", help="login: type in the last address of the browser")


def run(args: argparse.Namespace) -> int:
    try:
        args.words += args.program
        servers = open_servers(args.config, args.file)
        return ACTIONS[args.action](servers, args)
    except DragomanError as error:
        print(f"{paint('dragoman mcp:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | BadServerError) else 1


def open_servers(config: Path | None, file: Path | None) -> ServerPool:
    from dragoman.gateway.config.load import load_settings
    from dragoman.gateway.config.source import find_file, state_folder

    folder = state_folder(os.environ)
    path = config or find_file(Path.cwd(), os.environ)
    if path is None:
        return ServerPool(Registry(file or find_registry_path("", folder)), folder=folder, report=warn)
    settings = load_settings(path, os.environ).mcp
    registry = Registry(file or settings.file or find_registry_path(str(path), folder))
    return ServerPool(registry, settings.servers, folder=folder, report=warn)


# ---------------------------------------------------------------- the registry


def add(servers: ServerPool, args: argparse.Namespace) -> int:
    match args.words:
        case [name, url] if "://" in url:
            headers = dict(split(option, ":", "--header") for option in args.header)
            more: JsonObject = {"headers": headers} if headers else {}
            replaced = servers.add(name, url, more | ({"bearer": args.bearer} if args.bearer else {}))
        case [_, address] if not args.program and lacks_scheme(address):
            raise BadServerError(f"{address} is no program here; an address begins with https:// or http://")
        case [name, program, *rest]:
            env = dict(split(option, "=", "--env") for option in args.env)
            row: JsonObject = {"command": program} | ({"args": rest} if rest else {}) | ({"env": env} if env else {})
            replaced = servers.add_program(name, row)
        case _:
            raise BadServerError("expected add NAME URL, or add NAME -- PROGRAM ARG...")
    print(f"{'changed' if replaced else 'added'} {name} in {servers.registry.path}")
    return 0


def lacks_scheme(word: str) -> bool:
    """`example.org/mcp`, `localhost:9000`: an address without its beginning, and no program of this machine."""
    return HOST.match(word) is not None and shutil.which(word) is None


def split(text: str, mark: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name.strip():
        raise BadServerError(f"{option}: expected NAME{mark}VALUE")
    return name.strip(), value.strip()


def remove(servers: ServerPool, args: argparse.Namespace) -> int:
    name = only_word(args, "remove NAME")
    servers.remove(name)
    print(f"removed {name}")
    return 0


def only_word(args: argparse.Namespace, expected: str) -> str:
    if len(args.words) != 1:
        raise BadServerError(f"expected {expected}")
    word: str = args.words[0]
    return word


# ---------------------------------------------------------------- running servers


@asynccontextmanager
async def running(servers: ServerPool, names: list[str]) -> "AsyncGenerator[list[ServerConnection], None]":
    """Connects to the named servers, or to all, and lists the tools of each."""
    try:
        if names or servers.list_specs():
            await servers.load_package()
        found = [servers.get_connection(name) for name in names or servers.list_specs()]
        await asyncio.gather(*(c.list_tools(LIST_TIMEOUT_S) for c in found if not c.spec.disabled))
        yield found
    finally:
        await servers.close()


def report_down(connections: "list[ServerConnection]") -> int:
    """Prints the errors of servers that do not run. Returns 1 if none runs."""
    for connection in connections:
        if connection.last_error:
            print(f"{paint(connection.spec.name, 'red', sys.stderr)}: {connection.last_error}", file=sys.stderr)
    return 1 if connections and not any(c.client for c in connections) else 0


async def list_servers(servers: ServerPool, args: argparse.Namespace) -> int:
    if args.words:
        raise BadServerError("expected list without more words")
    async with running(servers, []):
        rows = servers.describe()
    show_servers(rows, servers.registry.path, as_json=args.json)
    return 0


async def tools(servers: ServerPool, args: argparse.Namespace) -> int:
    async with running(servers, args.words) as found:
        if args.changed:
            show_changes(servers, found, as_json=args.json)
            return report_down(found)
        toolbox = servers.make_toolbox([c.spec.name for c in found])
        show_tools(await toolbox.list_tools(), toolbox.make_label, as_json=args.json)
        return report_down(found)


async def approve(servers: ServerPool, args: argparse.Namespace) -> int:
    async with running(servers, [only_word(args, "approve NAME")]) as (connection,):
        if connection.client is None:
            return report_down([connection])
        changes = connection.changes
        connection.approve()
        count = len(connection.listed_tools)
        print(f"approved {count} tools of {connection.spec.name}; {len(changes)} had changed")
    return 0


async def call(servers: ServerPool, args: argparse.Namespace) -> int:
    tool, text = read_name_and_json(args, "call SERVER.TOOL [JSON]")
    name = find_server(servers, tool)
    try:
        result = await servers.make_toolbox([name] if name else None).run(ToolCall(id="cli", name=tool, arguments=text))
    finally:
        await servers.close()
    show_result(result, as_json=args.json)
    return 1 if result.failed else 0


def read_name_and_json(args: argparse.Namespace, expected: str) -> tuple[str, str]:
    if not 1 <= len(args.words) <= 2:
        raise BadServerError(f"expected {expected}")
    return args.words[0], args.words[1] if len(args.words) == 2 else "{}"


def find_server(servers: ServerPool, tool: str) -> str | None:
    named = [name for name in servers.list_specs() if tool.startswith((f"{name}.", f"{name}__"))]
    return max(named, key=len, default=None)  # a name may have dots itself


def make_list_action(what: str) -> "AsyncAction":
    async def show(servers: ServerPool, args: argparse.Namespace) -> int:
        async with running(servers, args.words) as found:
            kinds = ("resources", "templates") if what == "resources" else (what,)
            rows = {c.spec.name: [row for kind in kinds for row in await c.list_all(kind)] for c in found}
            show_rows(rows, what, as_json=args.json)
            return report_down(found)

    return show


async def read(servers: ServerPool, args: argparse.Namespace) -> int:
    if len(args.words) != 2:
        raise BadServerError("expected read NAME URI")
    async with running(servers, args.words[:1]) as (connection,):
        if connection.client is None:
            return report_down([connection])
        from dragoman.mcp.content import READ_TOOL, run_resource_tool

        tool_call = ToolCall(id="cli", name=READ_TOOL, arguments="{}")
        result = await run_in_time(
            connection, run_resource_tool(connection.client, tool_call, READ_TOOL, {"uri": args.words[1]})
        )
        show_result(result, as_json=args.json)
    return 0


async def prompt(servers: ServerPool, args: argparse.Namespace) -> int:
    full_name, text = read_name_and_json(args, "prompt SERVER.PROMPT [JSON]")
    server = find_server(servers, full_name)
    if server is None:
        raise BadServerError("expected prompt SERVER.PROMPT [JSON]")
    try:
        arguments = {key: str(value) for key, value in load_object(text.encode()).items()}
    except DecodeError as error:
        raise BadServerError(f"the arguments are {error}") from error
    async with running(servers, [server]) as (connection,):
        if connection.client is None:
            return report_down([connection])
        from dragoman.mcp.content import get_prompt_messages

        name = full_name[len(server) :].lstrip("._")
        messages = await run_in_time(connection, get_prompt_messages(connection.client, name, arguments))
        show_messages(messages, as_json=args.json)
    return 0


async def run_in_time(connection: "ServerConnection", work: Awaitable[Any]) -> Any:
    """Runs `work` with the server's timeout. An error becomes a DragomanError with a message."""
    from dragoman.mcp.connection import describe_error

    try:
        async with asyncio.timeout(connection.spec.timeout_s):
            return await work
    except Exception as error:
        raise DragomanError(f"{connection.spec.name}: {describe_error(error)}") from error


# ---------------------------------------------------------------- tokens


async def login(servers: ServerPool, args: argparse.Namespace) -> int:
    name = only_word(args, "login NAME")
    await servers.load_package()
    from dragoman.mcp.oauth import BrowserLogin
    from dragoman.mcp.spec import LOGIN_PORT

    spec = servers.get_connection(name).spec
    port = spec.oauth.redirect_port if spec.oauth is not None else LOGIN_PORT
    try:
        async with BrowserLogin(port, show_page, ask_address if args.paste else None) as browser:
            failed = await servers.login(name, browser.show_page, browser.await_code, LOGIN_TIMEOUT_S)
    finally:
        await servers.close()
    if failed:
        raise DragomanError(f"{name}: {failed}")
    print(f"logged in to {name}")
    return 0


def show_page(url: str) -> None:
    print(f"Open this page and agree:\n\n  {url}\n", flush=True)


def ask_address() -> str:
    """The terminal does not echo it, because it contains a code."""
    return getpass.getpass("The last address of the browser: ") if sys.stdin.isatty() else sys.stdin.readline()


def logout(servers: ServerPool, args: argparse.Namespace) -> int:
    name = only_word(args, "logout NAME")
    print(f"forgot the token of {name}" if servers.logout(name) else f"there was no token of {name}")
    return 0


AsyncAction: TypeAlias = Callable[[ServerPool, argparse.Namespace], Awaitable[int]]


def run_async(action: AsyncAction) -> Callable[[ServerPool, argparse.Namespace], int]:
    async def main(servers: ServerPool, args: argparse.Namespace) -> int:
        return await action(servers, args)

    return lambda servers, args: asyncio.run(main(servers, args))


ACTIONS: dict[str, Callable[[ServerPool, argparse.Namespace], int]] = {
    "list": run_async(list_servers),
    "add": add,
    "remove": remove,
    "tools": run_async(tools),
    "approve": run_async(approve),
    "call": run_async(call),
    "resources": run_async(make_list_action("resources")),
    "read": run_async(read),
    "prompts": run_async(make_list_action("prompts")),
    "prompt": run_async(prompt),
    "login": run_async(login),
    "logout": logout,
}
