"""A kept request as a scenario of `dragoman verify`: a TOML file that plays the same conversation at any provider."""

import re
from typing import Any

from msgspec import to_builtins

from dragoman.jsontypes import Json, dump_text
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request, Tool

SETTINGS = (
    "max_output",
    "stop",
    "output",
    "reasoning",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "tool_choice",
    "parallel_calls",
)


def write_scenario(request: Request, name: str) -> str:
    """The last user turn is the question; what stands before it is the history."""
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "mine"
    system = "\n".join(_text(message) for message in request.messages if message.role == "system")
    talk = [message for message in request.messages if message.role != "system"]
    history, last = (talk[:-1], talk[-1]) if talk and talk[-1].role == "user" else (talk, None)
    tools = [tool for tool in request.tools or () if isinstance(tool, Tool)]
    known = to_builtins(request)
    chosen = {key: known[key] for key in SETTINGS if known.get(key) is not None}
    turn: dict[str, Json] = {"history": [_message(message) for message in history]} if history else {}
    turn["user"] = "Go on." if last is None else _user(last)
    lines = [f"# dragoman verify --scenarios {words}.toml --scenario {words}", ""]
    for tool in tools:
        row = {k: v for k, v in to_builtins(tool).items() if k in ("description", "parameters") and v}
        lines += [f"[tool.{_key(tool.name)}]", *(f"{key} = {write_toml(value)}" for key, value in row.items()), ""]
    lines += ["[[scenario]]", f"name = {write_toml(words)}", f'title = "from X-ray {words}"']
    lines += [f"system = {write_toml(system)}"] if system else []
    lines += [f"tools = {write_toml([tool.name for tool in tools])}"] if tools else []
    lines += [f"set = {write_toml(chosen)}"] if chosen else []
    lines += ["", "[[scenario.turn]]", *(f"{key} = {write_toml(value)}" for key, value in turn.items())]
    return "\n".join(lines) + "\n"


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def _message(message: Message) -> Json:
    found = to_builtins(message)
    return {**found, "parts": [_part(part) for part in found["parts"]]}


def _user(message: Message) -> Json:
    if all(isinstance(part, Text) for part in message.parts):
        return _text(message)
    return [_part(part) for part in to_builtins(message)["parts"]]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value not in (None, {}, [])}


def write_toml(value: Json) -> str:
    """On one line. A JSON text is a TOML text; null has no form in TOML and is left out."""
    match value:
        case dict():
            rows = [f"{_key(name)} = {write_toml(item)}" for name, item in value.items() if item is not None]
            return "{ " + ", ".join(rows) + " }" if rows else "{}"
        case list() | tuple():
            return "[" + ", ".join(write_toml(item) for item in value if item is not None) + "]"
        case _:
            return dump_text(value).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else dump_text(name)
