"""Builds a canonical Request from text, messages (in three forms), pictures, tools, types and options."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, cast, get_type_hints

from msgspec import Struct
from msgspec import convert as to_type
from msgspec.structs import replace

from dragoman.client.known_prompts import KnownPrompts, ReadPrompt
from dragoman.client.outputs import output_format
from dragoman.dialects import NAMES, USUAL, find_dialect
from dragoman.errors import ArgumentError, DecodeError, DragomanError
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.known_turns.write import Known, know
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
from dragoman.note_ranks import check_words
from dragoman.notes import Notes, Refusable
from dragoman.tools.results import File, make_part_from_bytes, sniff_media_type
from dragoman.tools.toolbox import RunnableTool, Toolbox, make_toolbox
from dragoman.wire import WireRequest

Picture: TypeAlias = str | bytes | PathLike[str] | Image
Prompt: TypeAlias = "str | Message | Sequence[Any] | Mapping[str, Any]"

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+)?(?:;[\w=.-]+)*;base64,(?P<data>.*)", re.S)
_FIELDS = frozenset(Request.__struct_fields__) - {"model", "messages", "tools", "extras", "stream"}


class ChatOptions(TypedDict, total=False):
    """The keyword arguments of `chat`, `stream` and `run`."""

    system: str
    tools: Any  # callables, FunctionTools, toolboxes, Tool values, OpenAI tool objects; one or a list
    tool_choice: "str | ToolChoice | Mapping[str, Any]"  # auto, none, required, a tool's name, or an OpenAI object
    images: "Sequence[Picture]"  # paths, URLs, bytes
    files: "Sequence[str | bytes | PathLike[str] | Document]"
    effort: "str | int | bool"  # a level such as "low", a budget in tokens, or False
    max_output: int
    max_tokens: int  # the same as max_output
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: "str | Sequence[str]"
    options: Mapping[str, Any]  # other fields of Request, and for a dialect's name a mapping of its own keys
    refuse: "Iterable[Refusable]"  # raise an error instead of losing or changing something
    timeout_s: float


class BuiltRequest(Struct, kw_only=True):
    """A request, and the arguments that are needed when its answer arrives."""

    request: Request
    toolbox: Toolbox
    known: Known | None = None  # turns of the prompt that came in an earlier one
    output: Any = None
    refuse: frozenset[Refusable] = frozenset()
    timeout_s: float | None = None


# Names that people know from OpenAI's and other clients, and what does the same here.
_KNOWN_ELSEWHERE = {
    "messages": "give the messages as the second argument",
    "input": "give the text or the messages as the second argument",
    "max_completion_tokens": "use max_output",
    "max_output_tokens": "use max_output",
    "response_format": "use output=TYPE, a JSON Schema or 'json'",
    "text_format": "use output=TYPE",
    "reasoning_effort": "use effort",
    "reasoning": "use effort",
    "thinking": "use effort: a level, a number of tokens, or False",
    "stop_sequences": "use stop",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "timeout": "use timeout_s, in seconds",
    "instructions": "use system",
    "n": "use options={'choices': N}",
    "logprobs": "use options={'logprobs': True}",
    "extra_body": "use options={'openai_chat': {...}}: keys of one dialect",
    "extra_headers": "use Client(headers=...)",
    "api_key": "use Client(api_key=...)",
}


_TEXT, _WHOLE, _NUMBER = ((str,), "text"), ((int,), "a whole number"), ((int, float), "a number")
_EXPECTED: dict[str, tuple[tuple[type, ...], str]] = {
    "model": _TEXT,
    "system": _TEXT,
    "max_output": _WHOLE,
    "max_tokens": _WHOLE,
    "top_k": _WHOLE,
    "seed": _WHOLE,
    "max_retries": _WHOLE,
    "known_turns_mb": _WHOLE,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "timeout_s": _NUMBER,
    "stop": ((str, list, tuple), "a text or a list of texts"),
    "options": ((Mapping,), "a dict"),
    "effort": ((str, int), "a level such as 'low', a number of tokens, or False"),
}


def check_values(values: Mapping[str, object]) -> None:
    """A value of the wrong type is an error that names its argument. Otherwise a server would refuse it, or not."""
    for name, value in values.items():
        types, words = _EXPECTED.get(name, ((), ""))
        if types and value is not None and (
            not isinstance(value, types) or (isinstance(value, bool) and name != "effort")
        ):  # fmt: skip
            raise ArgumentError(f"{name}: expected {words}, found {value!r}")
    if values.get("max_output") not in (None, values.get("max_tokens", values.get("max_output"))):
        raise ArgumentError("max_output and max_tokens are the same: give one of them")


def check_options(chat_options: ChatOptions) -> None:
    for name in sorted(set(chat_options) - set(ChatOptions.__annotations__)):
        if name in _KNOWN_ELSEWHERE:
            raise ArgumentError(f"no such option: {name}; {_KNOWN_ELSEWHERE[name]}")
        if name in _FIELDS:
            raise ArgumentError(f"no such option: {name}; use options={{{name!r}: ...}}")
        known = [*ChatOptions.__annotations__, "output"]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ArgumentError(f"no such option: {name}; {hint} (and in `options` every field of Request)")


def build(
    model: str, prompt: Prompt, chat_options: ChatOptions, output: Any = None, known: KnownPrompts | None = None
) -> BuiltRequest:
    """`output`: a type, a JSON Schema, or "json". `known`: what came in earlier prompts."""
    check_options(chat_options)
    check_values({"model": model, **chat_options})
    if model is None:
        raise ArgumentError("model: expected text, found None")
    declared, toolbox = _read_tools(chat_options.get("tools"), known)
    stop = chat_options.get("stop")
    max_output = chat_options.get("max_output")
    messages, found = read_messages(prompt, chat_options, known)
    request = Request(
        model=model,
        messages=messages,
        tools=declared or None,
        tool_choice=_choice(chat_options.get("tool_choice")),
        output=None if output is None else output_format(output),
        reasoning=_reasoning(chat_options.get("effort")),
        max_output=chat_options.get("max_tokens") if max_output is None else max_output,
        temperature=chat_options.get("temperature"),
        top_p=chat_options.get("top_p"),
        top_k=chat_options.get("top_k"),
        seed=chat_options.get("seed"),
        stop=None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
    )
    request = add_options(request, chat_options.get("options") or {})
    return BuiltRequest(
        request=request,
        known=know(found.hit, found.history, request) if request.messages is messages else None,
        toolbox=toolbox,
        output=output,
        refuse=read_refuse(chat_options.get("refuse") or ()),
        timeout_s=chat_options.get("timeout_s"),
    )


def read_refuse(words: Iterable[Refusable]) -> frozenset[Refusable]:
    try:
        return cast(frozenset[Refusable], check_words(words))
    except ValueError as error:
        raise ArgumentError(str(error)) from error


# ---------------------------------------------------------------- messages


def read_messages(
    prompt: Prompt, chat_options: ChatOptions, known: KnownPrompts | None = None
) -> tuple[tuple[Message, ...], ReadPrompt]:
    """The turns to send, and the prompt as it was read."""
    system = chat_options.get("system")
    messages = [_make_message("system", system)] if system else []
    if known is not None and isinstance(prompt, list | tuple):
        read = known.read(prompt, _messages, find_dialect(USUAL))
    else:
        read = ReadPrompt(_messages(prompt))
    messages.extend(read.messages)
    attached: list[Part] = [read_picture(picture) for picture in _listed(chat_options.get("images"))]
    attached += [read_document(file) for file in _listed(chat_options.get("files"))]
    if attached:
        if messages and messages[-1].role == "user":
            messages[-1] = replace(messages[-1], parts=(*messages[-1].parts, *attached))
        else:
            messages.append(Message(role="user", parts=tuple(attached)))
        read = ReadPrompt(read.messages)
    return tuple(messages), read


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str | bytes | PathLike | Image | Document) else list(value)


def _messages(prompt: Any) -> list[Message]:
    match prompt:
        case str():
            return [_make_message("user", prompt)]
        case Message():
            return [prompt]
        case Mapping():
            return _decode_messages([prompt])
        case _ if hasattr(prompt, "message"):  # an Answer
            return [prompt.message]
        case _ if isinstance(prompt, Iterable):
            return [message for one in _grouped(prompt) for message in one]
        case _:
            raise ArgumentError(f"a prompt is text, a message or a list of them, not {type(prompt).__name__}")


def _grouped(prompt: Iterable[Any]) -> Iterable[list[Message]]:
    """Neighbouring objects are decoded together, because results refer to earlier calls."""
    objects: list[Any] = []
    for one in prompt:
        if isinstance(one, Mapping) and "parts" not in one:
            objects.append(one)
            continue
        if objects:
            yield _decode_messages(objects)
            objects = []
        yield _messages(one)
    if objects:
        yield _decode_messages(objects)


def _decode_messages(objects: list[Any]) -> list[Message]:
    """An object is in our form if it has `parts`, otherwise in OpenAI's form (`content`)."""
    if len(objects) == 1 and "parts" in objects[0]:
        try:
            return [to_type(dict(objects[0]), Message)]
        except ValueError as error:
            raise DecodeError(f"not a message: {error}") from error
    body: JsonObject = {"model": "", "messages": [copy_json(dict(one)) for one in objects]}
    return list(find_dialect(USUAL).decode_request(WireRequest(body=body), Notes()).messages)


def _make_message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def read_picture(picture: Picture) -> Image:
    """A URL, a data URL, a file's path, bytes, or an Image."""
    if isinstance(picture, Image):
        return picture
    if isinstance(picture, str) and picture.startswith(("http://", "https://")):
        return Image(url=picture)
    if isinstance(picture, str) and (match := _DATA_URL.fullmatch(picture)):
        return Image(data=match["data"], media_type=match["type"])
    data = picture if isinstance(picture, bytes) else _read(picture)
    kind = sniff_media_type(data)
    if kind is None or not kind.startswith("image/"):
        subject = "these bytes are" if isinstance(picture, bytes) else f"{picture} is"
        raise DragomanError(f"{subject} no picture that can be shown: PNG, JPEG, GIF or WebP")
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


def _read_tools(tools: Any, known: KnownPrompts | None) -> tuple[tuple[AnyTool, ...], Toolbox]:
    if known is None or type(tools) is not list or not all(type(tool) is dict for tool in tools):
        return split_tools(tools)
    return known.read_tools(tools, lambda tools: split_tools(tools)[0]), make_toolbox([])


def split_tools(tools: Any) -> tuple[tuple[AnyTool, ...], Toolbox]:
    """The tools that are only declared (the caller runs them), and a toolbox of the tools that we can run."""
    if isinstance(tools, str | bytes):
        raise ArgumentError(f"tools: expected functions, toolboxes or tool objects, found {tools!r}")
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
            declared.extend(read_tool(tool))
        elif callable(tool) or isinstance(tool, RunnableTool | Toolbox):
            runnable.append(tool)
        else:
            raise ArgumentError(f"tools: expected functions, toolboxes or tool objects, found {tool!r}")
    return tuple(declared), make_toolbox(runnable)


def read_tool(tool: Mapping[str, Any]) -> tuple[AnyTool, ...]:
    """A tool as the request of some dialect has it: OpenAI's form, or else the first dialect that understands it."""
    if not tool:
        raise ArgumentError("tools: a tool has a name or a type, found {}")
    usual = _decode_tool(tool, USUAL)
    if any(isinstance(found, ServerTool) for found in usual):
        for name in NAMES:
            found = _decode_tool(tool, name)
            if found and all(isinstance(each, Tool) and each.parameters is not None for each in found):
                return found
    return usual


def _decode_tool(tool: Mapping[str, Any], dialect: str) -> tuple[AnyTool, ...]:
    body: JsonObject = {"model": "", "messages": [], "tools": [copy_json(dict(tool))]}
    try:
        return find_dialect(dialect).decode_request(WireRequest(body=body), Notes()).tools or ()
    except DecodeError:
        if dialect == USUAL:
            raise
        return ()


def _choice(choice: str | ToolChoice | Mapping[str, Any] | None) -> ToolChoice | None:
    match choice:
        case None | ToolChoice():
            return choice
        case "auto" | "none" | "required":
            return ToolChoice(mode=choice)
        case "any":  # as Anthropic and Mistral say it
            return ToolChoice(mode="required")
        case str():
            return ToolChoice(mode="required", names=(choice,))
        case Mapping():
            body: JsonObject = {"model": "", "messages": [], "tool_choice": copy_json(dict(choice))}
            found = find_dialect(USUAL).decode_request(WireRequest(body=body), Notes()).tool_choice
            if isinstance(found, ToolChoice):
                return found
    raise ArgumentError(f"tool_choice: expected auto, none, required or a tool's name, found {choice!r}")


# ---------------------------------------------------------------- options


def _reasoning(effort: str | int | bool | None) -> ReasoningSetting | None:
    match effort:
        case None:
            return None
        case True:
            return ReasoningSetting(mode="on")
        case False | "off" | "none" | 0:
            return ReasoningSetting(mode="off")
        case int() if effort < 0:
            raise ArgumentError(f"effort: expected a number of tokens of 0 or more, found {effort}")
        case int():
            return ReasoningSetting(mode="on", budget=effort)
        case _:
            return ReasoningSetting(effort=effort)


def add_options(request: Request, options: Mapping[str, Any]) -> Request:
    """Sets fields of Request. Keys under a dialect's name go to that dialect's extras."""
    fields: dict[str, Any] = {}
    extras = dict(request.extras)
    for name, value in options.items():
        dialect = name.replace("-", "_")
        if dialect in NAMES and isinstance(value, Mapping):
            extras[dialect] = {**extras.get(dialect, {}), **value}
        elif name in _FIELDS:
            fields[name] = value
        else:
            raise ArgumentError(f"options: no such field {name!r}; there are {', '.join(sorted(_FIELDS))}")
    try:
        read = {name: to_type(value, _types()[name]) for name, value in fields.items()}
    except ValueError as error:
        raise ArgumentError(f"options: {error}") from error
    return replace(request, extras=extras, **read) if fields or options else request


def _types() -> dict[str, Any]:
    return get_type_hints(Request)
