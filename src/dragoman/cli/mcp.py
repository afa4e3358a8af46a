"""`dragoman mcp`: the MCP servers of this machine, without a gateway."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from dragoman.cli.style import paint
from dragoman.errors import ConfigError, DragomanError
from dragoman.jsontypes import JsonObject, format_json
from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import Servers, registry_path
from dragoman.mcp.spec import BadServerError, check_name, check_url
from dragoman.model.messages import Media, Text, ToolCall, ToolResult

NAME = "mcp"
HELP = "list, add, remove and try MCP servers"
EPILOG = """examples:
  dragoman mcp add weather https://example.org/mcp
  dragoman mcp add time -- uvx mcp-server-time --local-timezone UTC
  dragoman mcp list
  dragoman mcp tools time
  dragoman mcp call time.convert_time '{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Seoul"}'
  dragoman mcp remove time

The registry is mcp.json beside the configuration file, else in the folder of dragoman's state. Programs are started
with an environment of their own: PATH, LANG, a HOME of their own and what the entry's `env` says."""
LOOK_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=("list", "add", "remove", "tools", "call"), help="what to do")
    parser.add_argument("words", nargs="*", metavar="WORD", help="a server's name; its URL; a tool and its arguments")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="dragoman.toml or config.json (default: found here)"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="another registry than mcp.json")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    try:
        servers = open_servers(args.config, args.file)
        match args.action, args.words:
            case "list", []:
                return asyncio.run(show_list(servers, as_json=args.json))
            case "add", [name, url] if "://" in url:
                said = "changed" if servers.registry.add(check_name(name), check_url(url)) else "added"
                print(f"{said} {name} in {servers.registry.path}")
            case "add", [name, program, *more]:
                said = "changed" if servers.registry.put(check_name(name), write_row(program, more)) else "added"
                print(f"{said} {name} in {servers.registry.path}")
            case "remove", [name]:
                servers.remove(name)
                print(f"removed {name}")
            case "tools", names:
                return asyncio.run(show_tools(servers, names or None, as_json=args.json))
            case "call", [tool, *rest] if len(rest) < 2:
                return asyncio.run(call(servers, tool, rest[0] if rest else "{}", as_json=args.json))
            case _:
                raise BadServerError(
                    "expected list, add NAME URL, remove NAME, tools [NAME...] or call SERVER.TOOL JSON"
                )
    except DragomanError as error:
        print(f"{paint('dragoman mcp:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | BadServerError) else 1
    return 0


def write_row(program: str, more: list[str]) -> JsonObject:
    return {"command": program, **({"args": more} if more else {})}


def open_servers(config: Path | None, file: Path | None) -> Servers:
    from dragoman.gateway.config import find_file, load_settings, state_folder

    folder = state_folder(os.environ)
    path = config or find_file(Path.cwd(), os.environ)
    if path is None:
        return Servers(Registry(file or registry_path("", folder)), folder=folder)
    settings = load_settings(path, os.environ).mcp
    registry = Registry(file or settings.file or registry_path(str(path), folder))
    return Servers(registry, settings.servers, folder=folder, report=warn)


def warn(event: str, fields: JsonObject) -> None:
    words = " ".join(f"{key}={value}" for key, value in fields.items() if value)
    print(paint(f"{event} {words}", "yellow", sys.stderr), file=sys.stderr)


async def show_list(servers: Servers, *, as_json: bool) -> int:
    try:
        await servers.look(LOOK_S)
        rows = servers.describe()
    finally:
        await servers.close()
    if as_json:
        print(format_json(rows).decode())
    elif not rows:
        print(f"no MCP server in {servers.registry.path}; add one: dragoman mcp add NAME URL")
    for row in rows if not as_json else ():
        health = paint(f"{row['health']:<10}", "green" if row["health"] == "up" else "red", sys.stdout)
        print(f"{row['name']:<16} {health} {row['tools']:>3} tools  {row['transport']:<5} {row['url']}")
        if row["last_error"]:
            print(f"{'':<16} {row['last_error']}")
        for change in row.get("changes", ()):
            print(f"{'':<16} {change['tool']}: {change['what']}")
    return 0


async def show_tools(servers: Servers, names: list[str] | None, *, as_json: bool) -> int:
    try:
        toolbox = servers.toolbox(names)
        tools = await toolbox.list_tools()
        down = [row for row in servers.describe() if row["last_error"] and (names is None or row["name"] in names)]
    finally:
        await servers.close()
    if as_json:
        rows = [
            {"name": toolbox.label(t.name), "description": t.description, "parameters": t.parameters} for t in tools
        ]
        print(format_json(rows).decode())
    for tool in tools if not as_json else ():
        print(paint(toolbox.label(tool.name), "bold", sys.stdout) + f"({', '.join(arguments(tool.parameters))})")
        print("  " + " ".join((tool.description or "").split())[:200])
    for row in down:
        print(f"{paint(row['name'], 'red', sys.stderr)}: {row['last_error']}", file=sys.stderr)
    return 1 if down and not tools else 0


def arguments(schema: JsonObject | None) -> list[str]:
    needed = set((schema or {}).get("required") or ())
    names = (schema or {}).get("properties") or {}
    return [name if name in needed else f"{name}?" for name in names]


async def call(servers: Servers, tool: str, text: str, *, as_json: bool) -> int:
    name = next((name for name in servers.specs() if tool.startswith((f"{name}.", f"{name}__"))), None)
    try:
        result = await servers.toolbox([name] if name else None).run(ToolCall(id="cli", name=tool, arguments=text))
    finally:
        await servers.close()
    show_result(result, as_json=as_json)
    return 1 if result.failed else 0


def show_result(result: ToolResult, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(format_json(msgspec.to_builtins(result)).decode())
        return
    stream = sys.stderr if result.failed else sys.stdout
    for part in result.parts:
        if isinstance(part, Text):
            print(part.text, file=stream)
        elif isinstance(part, Media):
            size = len(part.data or "") * 3 // 4
            print(paint(f"[{part.media_type or 'a file'}, {size} bytes]", "dim", stream), file=stream)
