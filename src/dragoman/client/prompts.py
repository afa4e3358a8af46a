"""What people write, as a canonical Request: text, messages in three forms, pictures, tools, types, options."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, get_type_hints

from msgspec import Struct
from msgspec import convert as to_type
from msgspec.structs import replace

from dragoman.client.outputs import output_format
from dragoman.dialects import NAMES, USUAL, find_dialect
from dragoman.errors import DecodeError, DragomanError
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Document, Image, Message, Part, Role, Text
from dragoman.model.request import (
    AnyTool,
    CustomTool,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from dragoman.notes import NoteKind, Notes
from dragoman.tools.results import File, make_part_from_bytes, sniff_media_type
from dragoman.tools.toolbox import Toolbox, make_toolbox
from dragoman.wire import WireRequest

Picture: TypeAlias = str | bytes | PathLike[str] | Image
Prompt: TypeAlias = "str | Message | Sequence[Any] | Mapping[str, Any]"

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+)?(?:;[\w=.-]+)*;base64,(?P<data>.*)", re.S)
_FIELDS = frozenset(Request.__struct_fields__) - {"model", "messages", "tools", "extras", "stream"}


class Asking(TypedDict, total=False):
    """What `chat`, `stream` and `run` take besides the model and the prompt."""

    system: str
    tools: Any  # callables, FunctionTools, toolboxes, Tool values, OpenAI tool objects; one or a list
    tool_choice: "str | ToolChoice"  # auto, none, required, or a tool's name
    output: Any  # a type, a JSON Schema, or "json"
    images: "Sequence[Picture]"  # paths, URLs, bytes
    files: "Sequence[str | bytes | PathLike[str] | Document]"
    effort: "str | int | bool"  # a word, a budget in tokens, or False
    max_output: int
    temperature: float
    options: Mapping[str, Any]  # any other field of Request, or a dialect's name -> keys of its own
    refuse: "Iterable[NoteKind]"  # rather an error than such a loss
    timeout_s: float


class BuiltRequest(Struct, kw_only=True):
    """A request, and what the answer needs to know of the question."""

    request: Request
    toolbox: Toolbox
    output: Any = None
    refuse: frozenset[NoteKind] = frozenset()
    timeout_s: float | None = None


def build(model: str, prompt: Prompt, asking: Asking) -> BuiltRequest:
    unknown = set(asking) - set(Asking.__annotations__)
    if unknown:
        words = f"no such option: {', '.join(sorted(unknown))}; there are {', '.join(Asking.__annotations__)}"
        raise DragomanError(f"{words}, and in `options` every field of Request")
    declared, toolbox = split_tools(asking.get("tools"))
    output = asking.get("output")
    request = Request(
        model=model,
        messages=read_messages(prompt, asking),
        tools=declared or None,
        tool_choice=_choice(asking.get("tool_choice")),
        output=None if output is None else output_format(output),
        reasoning=_reasoning(asking.get("effort")),
        max_output=asking.get("max_output"),
        temperature=asking.get("temperature"),
    )
    return BuiltRequest(
        request=add_options(request, asking.get("options") or {}),
        toolbox=toolbox,
        output=output,
        refuse=frozenset(asking.get("refuse") or ()),
        timeout_s=asking.get("timeout_s"),
    )


# ---------------------------------------------------------------- messages


def read_messages(prompt: Prompt, asking: Asking) -> tuple[Message, ...]:
    messages = [Message(role="system", parts=(Text(text=asking["system"]),))] if asking.get("system") else []
    messages.extend(_messages(prompt))
    shown: list[Part] = [read_picture(picture) for picture in _listed(asking.get("images"))]
    shown += [read_document(file) for file in _listed(asking.get("files"))]
    if shown:
        if messages and messages[-1].role == "user":
            messages[-1] = replace(messages[-1], parts=(*messages[-1].parts, *shown))
        else:
            messages.append(Message(role="user", parts=tuple(shown)))
    return tuple(messages)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str | bytes | PathLike | Image | Document) else list(value)


def _messages(prompt: Any) -> list[Message]:
    match prompt:
        case str():
            return [_say("user", prompt)]
        case Message():
            return [prompt]
        case Mapping():
            return _decode_messages([prompt])
        case _ if hasattr(prompt, "message"):  # an Answer
            return [prompt.message]
        case _ if isinstance(prompt, Iterable):
            return [message for one in _grouped(prompt) for message in one]
        case _:
            raise DragomanError(f"a prompt is text, a message or a list of them, not {type(prompt).__name__}")


def _grouped(prompt: Iterable[Any]) -> Iterable[list[Message]]:
    """Neighbouring objects are read together: results refer to calls before them."""
    wire: list[Any] = []
    for one in prompt:
        if isinstance(one, Mapping) and "parts" not in one:
            wire.append(one)
            continue
        if wire:
            yield _decode_messages(wire)
            wire = []
        yield _messages(one)
    if wire:
        yield _decode_messages(wire)


def _decode_messages(objects: list[Any]) -> list[Message]:
    """Ours (`parts`) or OpenAI's form (`content`), which nearly everybody writes."""
    if len(objects) == 1 and "parts" in objects[0]:
        try:
            return [to_type(dict(objects[0]), Message)]
        except ValueError as error:
            raise DecodeError(f"not a message: {error}") from error
    body: JsonObject = {"model": "", "messages": [copy_json(dict(one)) for one in objects]}
    return list(find_dialect(USUAL).decode_request(WireRequest(body=body), Notes()).messages)


def _say(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def read_picture(picture: Picture) -> Image:
    """A URL, a data URL, a file's path, bytes, or an Image."""
    if isinstance(picture, Image):
        return picture
    if isinstance(picture, str) and picture.startswith(("http://", "https://")):
        return Image(url=picture)
    if isinstance(picture, str) and (found := _DATA_URL.fullmatch(picture)):
        return Image(data=found["data"], media_type=found["type"])
    data = picture if isinstance(picture, bytes) else _read(picture)
    kind = sniff_media_type(data)
    if kind is None or not kind.startswith("image/"):
        what = "these bytes are" if isinstance(picture, bytes) else f"{picture} is"
        raise DragomanError(f"{what} no picture that can be shown: PNG, JPEG, GIF or WebP")
    return Image(data=base64.b64encode(data).decode(), media_type=kind)


def read_document(file: Any) -> Part:
    if isinstance(file, Document):
        return file
    if isinstance(file, str) and file.startswith(("http://", "https://")):
        return Document(url=file)
    if isinstance(file, bytes):
        return make_part_from_bytes(file)
    path = Path(file.path if isinstance(file, File) else file)
    part = make_part_from_bytes(_read(path), name=path.name)
    return Document(text=part.text, media_type="text/plain", name=path.name) if isinstance(part, Text) else part


def _read(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DragomanError(f"{path}: cannot be read: {error.strerror or error}") from error


# ---------------------------------------------------------------- tools


def split_tools(tools: Any) -> tuple[tuple[AnyTool, ...], Toolbox]:
    """Tools that are only declared (the caller runs them), and the toolbox of those that can be run."""
    if tools is None or not isinstance(tools, Iterable) or isinstance(tools, Toolbox):
        one = [] if tools is None else [tools]
        if isinstance(tools, Toolbox):
            return (), tools
        tools = one
    elif isinstance(tools, Mapping):
        tools = [tools]
    declared: list[AnyTool] = []
    runnable: list[Any] = []
    for tool in tools:
        if isinstance(tool, Tool | CustomTool | ServerTool):
            declared.append(tool)
        elif isinstance(tool, Mapping):
            body: JsonObject = {"model": "", "messages": [], "tools": [copy_json(dict(tool))]}
            declared.extend(find_dialect(USUAL).decode_request(WireRequest(body=body), Notes()).tools or ())
        else:
            runnable.append(tool)
    return tuple(declared), make_toolbox(runnable)


def _choice(choice: str | ToolChoice | None) -> ToolChoice | None:
    match choice:
        case None | ToolChoice():
            return choice
        case "auto" | "none" | "required":
            return ToolChoice(mode=choice)
        case _:
            return ToolChoice(mode="required", names=(choice,))


# ---------------------------------------------------------------- options


def _reasoning(effort: str | int | bool | None) -> ReasoningSetting | None:
    match effort:
        case None:
            return None
        case True:
            return ReasoningSetting(mode="on")
        case False | "off" | "none" | 0:
            return ReasoningSetting(mode="off")
        case int():
            return ReasoningSetting(mode="on", budget=effort)
        case _:
            return ReasoningSetting(effort=effort)


def add_options(request: Request, options: Mapping[str, Any]) -> Request:
    """Fields of Request by their names, and under a dialect's name the keys only that dialect has."""
    fields: dict[str, Any] = {}
    extras = dict(request.extras)
    for name, value in options.items():
        dialect = name.replace("-", "_")
        if dialect in NAMES and isinstance(value, Mapping):
            extras[dialect] = {**extras.get(dialect, {}), **value}
        elif name in _FIELDS:
            fields[name] = value
        else:
            raise DragomanError(f"options: no such field {name!r}; there are {', '.join(sorted(_FIELDS))}")
    try:
        read = {name: to_type(value, _types()[name]) for name, value in fields.items()}
    except ValueError as error:
        raise DragomanError(f"options: {error}") from error
    return replace(request, extras=extras, **read) if fields or options else request


def _types() -> dict[str, Any]:
    return get_type_hints(Request)
