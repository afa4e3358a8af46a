"""The output of `dragoman mcp`. We do not trust the texts of servers, so their hidden characters are shown."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from dragoman.cli.style import paint
from dragoman.jsontypes import JsonObject, format_json
from dragoman.mcp.tool_listing import show_hidden
from dragoman.model.messages import Media, Message, Part, Text, ToolResult
from dragoman.model.request import Tool

if TYPE_CHECKING:
    from dragoman.mcp.connection import ServerConnection
    from dragoman.mcp.servers import ServerPool


def warn(event: str, fields: JsonObject) -> None:
    if event == "mcp_server_down":
        return  # the command itself says so
    text = " ".join(f"{key}={show_hidden(str(value))}" for key, value in fields.items() if value)
    print(paint(f"{event} {text}", "yellow", sys.stderr), file=sys.stderr)


def print_json(value: Any) -> None:
    print(format_json(value).decode())


def show_servers(rows: Sequence[JsonObject], registry: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        print(f"no MCP server in {registry}; add one: dragoman mcp add NAME URL")
    for row in rows:
        health = paint(f"{row['health']:<10}", "green" if row["health"] == "up" else "red", sys.stdout)
        print(f"{row['name']:<16} {health} {row['tools']:>3} tools  {row['transport']:<5} {row['url']}")
        if row["last_error"]:
            print(f"{'':<16} {show_hidden(row['last_error'])}")
        for change in row.get("changes", ()):
            withheld = ", withheld" if change["tool"] in row["withheld"] else ""
            print(f"{'':<16} {show_hidden(change['tool'])}: {change['what']}{withheld}")


def show_tools(tools: Iterable[Tool], label: Callable[[str], str], *, as_json: bool) -> None:
    if as_json:
        rows = [{"name": label(t.name), "description": t.description, "parameters": t.parameters} for t in tools]
        print_json(rows)
        return
    for tool in tools:
        print(paint(show_hidden(label(tool.name)), "bold", sys.stdout) + f"({', '.join(arguments(tool.parameters))})")
        print("  " + " ".join((tool.description or "").split())[:200])


def arguments(schema: JsonObject | None) -> list[str]:
    needed = set((schema or {}).get("required") or ())
    names = (schema or {}).get("properties") or {}
    return [name if name in needed else f"{name}?" for name in names]


def show_changes(servers: "ServerPool", connections: "Iterable[ServerConnection]", *, as_json: bool) -> None:
    """Every tool that changed since its approval: both versions in full, with hidden characters shown."""
    rows = [row for connection in connections for row in servers.describe_changes(connection)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = "withheld" if row["withheld"] else "offered"
        print(paint(f"{row['server']}.{show_hidden(row['tool'])}: {row['what']}, {state}", "bold", sys.stdout))
        for when in ("approved", "now"):
            if row[when] is not None:
                text = format_json(row[when]).decode()
                print(paint(f"  {when}:", "dim", sys.stdout))
                print("\n".join(f"    {line}" for line in show_hidden(text).splitlines()))
    if not rows:
        print("no tool has changed since its approval")
    else:
        print("to approve the new version: dragoman mcp approve NAME")


def show_rows(found: Mapping[str, Sequence[Any]], what: str, *, as_json: bool) -> None:
    if as_json:
        named = {name: [row.model_dump(mode="json", exclude_none=True) for row in rows] for name, rows in found.items()}
        print_json(named)
        return
    from dragoman.mcp.content import describe_row

    for name, rows in found.items():
        for row in rows:
            print(f"{paint(name, 'bold', sys.stdout)} {describe_row(row)}")
            for argument in getattr(row, "arguments", None) or ():
                needed = "" if argument.required else "?"
                print(f"  {show_hidden(argument.name)}{needed} {show_hidden(argument.description or '')}".rstrip())
    if not any(found.values()):
        print(f"no {what}")


def show_result(result: ToolResult, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(result))
        return
    stream = sys.stderr if result.failed else sys.stdout
    for part in result.parts:
        show_part(part, stream)


def show_messages(messages: Iterable[Message], *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(tuple(messages)))
        return
    for message in messages:
        print(paint(f"{message.role}:", "bold", sys.stdout))
        for part in message.parts:
            show_part(part, sys.stdout)


def show_part(part: Part, stream: TextIO) -> None:
    """Prints a server's text. Commands for the terminal in it are made visible (T40)."""
    if isinstance(part, Text):
        print(show_hidden(part.text) if stream.isatty() else part.text, file=stream)
    elif isinstance(part, Media):
        size = len(part.data or "") * 3 // 4
        print(paint(f"[{part.media_type or 'a file'}, {size} bytes]", "dim", stream), file=stream)
