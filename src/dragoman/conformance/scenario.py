"""Scenarios: conversations as data (scenarios.toml, or a user's own files), and the requests made from them."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from dragoman.errors import ConfigError
from dragoman.model.messages import Extras, Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request, Tool
from dragoman.notes import Note

FILE = "scenarios.toml"
ReplyMode: TypeAlias = Literal["whole", "streamed"]


class Expect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What we expect of an answer. scenarios.toml explains each field."""

    finish: tuple[str, ...] = ()
    text: bool | None = None
    max_words: int | None = None
    without: tuple[str, ...] = ()
    pieces: int = 1
    says: tuple[str, ...] = ()
    says_any: tuple[str, ...] = ()
    calls: tuple[str, ...] | None = None
    least_calls: int = 1
    answer: dict[str, Any] | None = None
    thinks: bool | None = None
    usage: Literal["said", "grows"] = "said"
    failure: tuple[str, ...] = ()


class Results(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results of a tool."""

    parts: tuple[Part, ...]
    failed: bool | None = None


class ScenarioTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request: the messages that it adds to the conversation, and the answer that we expect."""

    history: tuple[Message, ...] = ()
    filler: int = 0
    user: str | tuple[Part, ...] = ()
    results: dict[str, str | Results] = {}
    expect: Expect = Expect()


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    title: str = ""
    group: str = "own"
    kind: Literal["talk", "cancel", "count", "models"] = "talk"
    modes: tuple[ReplyMode, ...] = ("whole", "streamed")
    about: tuple[str, ...] = ()
    system: str = ""
    tools: tuple[str, ...] = ()
    set: dict[str, Any] = {}
    model: Literal["", "unknown"] = ""
    key: Literal["", "wrong"] = ""
    unpaired: bool = False
    other_picture: dict[str, str] = {}  # sent second: if the answer stays the same, the model saw neither
    turn: tuple[ScenarioTurn, ...] = ()
    offered: tuple[Tool, ...] = ()  # filled in from the file's [tool.*] tables

    def is_about(self, note: Note) -> bool:
        """Whether a note says that the conversion lost what the scenario tests."""
        return any(re.fullmatch(pattern, f"{note.kind} {note.canonical}") for pattern in self.about)


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    defaults: dict[str, Any] = {}
    image: dict[str, str] = {}
    tool: dict[str, dict[str, Any]] = {}
    scenario: list[dict[str, Any]] = []


def load_scenarios(*own: Path) -> tuple[Scenario, ...]:
    """Our own scenarios, then those of the given files. A later one replaces an earlier one of the same name."""
    text = files("dragoman.conformance").joinpath(FILE).read_text("utf-8")
    found = {scenario.name: scenario for scenario in read_scenarios(tomllib.loads(text), FILE)}
    for path in own:
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(str(path), "", f"cannot be read: {error}") from error
        found |= {scenario.name: scenario for scenario in read_scenarios(data, str(path))}
    return tuple(found.values())


def read_scenarios(data: Mapping[str, Any], file: str) -> list[Scenario]:
    try:
        whole = convert(data, _File)
    except ValidationError as error:
        raise ConfigError(file, "", str(error)) from error
    tools = {name: Tool(name=name, **row) for name, row in whole.tool.items()}
    return [_read(row, whole, tools, file, i) for i, row in enumerate(whole.scenario)]


def _read(row: dict[str, Any], whole: _File, tools: Mapping[str, Tool], file: str, place: int) -> Scenario:
    at = f"scenario.{row.get('name', place)}"
    filled = {**row, "set": {**whole.defaults, **row.get("set", {})}}
    try:
        scenario = convert(_fill_images(filled, whole.image), Scenario)
        build_request(scenario, "model", ())
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigError(file, at, str(error)) from error
    unknown = [name for name in scenario.tools if name not in tools]
    if unknown:
        raise ConfigError(file, f"{at}.tools", f"no such tool: {', '.join(unknown)}")
    if scenario.kind != "models" and not scenario.turn:
        raise ConfigError(file, at, "has no turn")
    return replace(scenario, offered=tuple(tools[name] for name in scenario.tools))


def _fill_images(value: Any, images: Mapping[str, str]) -> Any:
    """`data = "@red"` stands for the picture of that name."""
    match value:
        case dict():
            return {
                key: images[item[1:]]
                if key == "data" and isinstance(item, str) and item.startswith("@")
                else _fill_images(item, images)
                for key, item in value.items()
            }
        case list():
            return [_fill_images(item, images) for item in value]
        case _:
            return value


# ---------------------------------------------------------------- as requests


def build_request(scenario: Scenario, model: str, messages: tuple[Message, ...]) -> Request:
    """The canonical request with these messages."""
    lead = (_text("system", scenario.system),) if scenario.system else ()
    fields = {**scenario.set, "model": model}
    request = convert(fields, Request)
    return replace(request, messages=(*lead, *messages), tools=scenario.offered or None)


def say_turn(turn: ScenarioTurn, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages so far, then this turn: results of open calls first, then the question."""
    added = [*turn.history, *_filler(turn.filler)]
    results = [_answer(call, turn) for call in _open_calls(messages)] if turn.results else []
    user_parts = (Text(text=turn.user),) if isinstance(turn.user, str) else turn.user
    if results or user_parts:
        added.append(Message(role="user", parts=(*results, *user_parts)))
    return (*messages, *added)


def _open_calls(messages: tuple[Message, ...]) -> Iterable[ToolCall]:
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant":
        return ()
    return [part for part in last.parts if isinstance(part, ToolCall)]


def _answer(call: ToolCall, turn: ScenarioTurn) -> ToolResult:
    found = turn.results.get(call.name, "There is nothing to say.")
    result = ToolResult(call_id=call.id, name=call.name, extras=_nameless(call))
    if isinstance(found, str):
        return replace(result, parts=(Text(text=found),))
    return replace(result, parts=found.parts, failed=found.failed)


def _nameless(call: ToolCall) -> Extras:
    """A call that came without an id is answered without one, as clients of such dialects do (CLIENTS 15)."""
    own = {name: keys["~id"] for name, keys in call.extras.items() if "~id" in keys}
    return {name: {"~id": word, "~tool_call_id": "absent"} for name, word in own.items()}


def _filler(count: int) -> list[Message]:
    pairs = ((f"Note number {n}: nothing happened.", "Noted.") for n in range(1, count + 1))
    return [
        message for user_parts, answer in pairs for message in (_text("user", user_parts), _text("assistant", answer))
    ]


def _text(role: Literal["system", "user", "assistant"], text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))
