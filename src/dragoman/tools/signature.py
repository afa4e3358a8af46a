"""A callable's arguments: described for the model, and bound from what the model wrote."""

import contextlib
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.errors import DragomanError
from dragoman.jsontypes import Json, JsonObject, copy_json, kind_of, load_json
from dragoman.model.messages import ToolCall
from dragoman.tools.docstrings import Doc, read_docstring
from dragoman.tools.hints import Hint, description_of, read_hint
from dragoman.tools.records import NOTHING, read_shape
from dragoman.tools.schemas import describe, with_default
from dragoman.tools.values import WrongValue, convert

_SIMPLE = (bool, int, float, str)
_MOST_NAMED = 12  # names an error lists


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    hint: Hint
    kind: Any  # of inspect.Parameter
    required: bool
    default: Any = None
    text: str = ""


class Signature(Struct, frozen=True, kw_only=True):
    """What a callable takes. `wants_call` names the argument that gets the ToolCall itself."""

    arguments: tuple[Argument, ...]
    rest: Argument | None  # **kwargs
    wants_call: str | None
    description: str
    parameters: JsonObject

    def bind(self, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for a call; WrongValue says to the model what does not fit."""
        given = read_arguments(call.arguments)
        wrongs: list[str] = []
        values: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.name in given:
                _take(argument, given.pop(argument.name), values, wrongs)
            elif argument.required:
                wrongs.append(f"{argument.name}: is missing")
        for name, value in given.items():
            if self.rest is None:
                wrongs.append(f"{name}: there is no such argument")
            else:
                _take(msgspec.structs.replace(self.rest, name=name), value, values, wrongs)
        if wrongs:
            raise WrongValue(f"the arguments do not fit: {'; '.join(wrongs)}.{self._hint(wrongs)}")
        return self._place(values, call)

    def _hint(self, wrongs: list[str]) -> str:
        if not any("no such" in words or "missing" in words for words in wrongs):
            return ""
        names = [a.name + ("" if a.required else " (optional)") for a in self.arguments]
        more = ", ..." if len(names) > _MOST_NAMED else ""
        return f" The arguments are: {', '.join(names[:_MOST_NAMED])}{more}" if names else " It takes no arguments"

    def _place(self, values: dict[str, Any], call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
        """Positional where the callable wants it so: up to the last positional-only one that is given, and *args."""
        positional: list[Any] = []
        by_place = [a for a in self.arguments if a.kind is inspect.Parameter.POSITIONAL_ONLY]
        star = next((a for a in self.arguments if a.kind is inspect.Parameter.VAR_POSITIONAL), None)
        if star is not None and star.name in values:
            by_place = [a for a in self.arguments if a.kind in (a.kind.POSITIONAL_ONLY, a.kind.POSITIONAL_OR_KEYWORD)]
        last = max((i for i, a in enumerate(by_place) if a.name in values), default=-1)
        if star is not None and star.name in values:
            last = len(by_place) - 1
        positional.extend(values.pop(a.name, a.default) for a in by_place[: last + 1])
        if star is not None:
            positional.extend(values.pop(star.name, ()))
        if self.wants_call is not None:
            values[self.wants_call] = call
        return positional, values


def _take(argument: Argument, value: Json, values: dict[str, Any], wrongs: list[str]) -> None:
    try:
        values[argument.name] = convert(value, argument.hint, argument.name)
    except WrongValue as error:
        wrongs.append(f"{argument.name}: {error}")


def read_arguments(text: str) -> JsonObject:
    """The model's JSON. Nothing at all means no arguments; anything but an object is a WrongValue, never {}."""
    if not text.strip():
        return {}
    try:
        value = load_json(text)
        if isinstance(value, str):  # said twice: "{\"city\": ...}"
            value = load_json(value)
    except DragomanError as error:
        raise WrongValue(f"the arguments are {error}. Write one JSON object") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WrongValue(f"the arguments must be one JSON object, not {kind_of(value)}")
    return copy_json(value)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- reading a callable


def read_signature(function: Callable[..., Any]) -> Signature:
    """DragomanError when there is an argument JSON has no form for."""
    shown = _documented(function)
    doc = read_docstring(inspect.getdoc(shown) if not isinstance(shown, functools.partial) else None)
    hints, names = _hints(function)
    arguments: list[Argument] = []
    rest: Argument | None = None
    wants_call: str | None = None
    for parameter in _parameters(function):
        hint = hints.get(parameter.name, parameter.annotation)
        if hint is ToolCall or hint == ToolCall | None:
            wants_call = parameter.name
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and typing.get_origin(hint) is typing.Unpack:
            arguments += [_argument(function, one, one.annotation, doc, names) for one in _unpacked(hint)]
            continue
        argument = _argument(function, parameter, hint, doc, names)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = argument
        else:
            arguments.append(argument)
    return Signature(
        arguments=tuple(arguments),
        rest=rest,
        wants_call=wants_call,
        description=_description(doc),
        parameters=_schema(arguments, rest),
    )


def _description(doc: Doc) -> str:
    returns = f"Returns: {doc.returns}" if doc.returns else ""
    return "\n\n".join(words for words in (doc.description, returns) if words)


def _documented(function: Callable[..., Any]) -> Any:
    """What bears the docstring: the function under a partial, the __call__ of an object without one of its own."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    own = inspect.getdoc(type(function))
    return type(function) if own else type(function).__call__


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise DragomanError(f"{function!r} does not say what it takes") from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [parameter for parameter in parameters if parameter.name not in bound]  # not the model's to say
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
        return parameters[1:]  # a method that is bound later
    return parameters


def _hints(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Type hints with strings resolved, also to names of the scope a function was made in; and those names."""
    shown: Any = function
    while isinstance(shown, functools.partial):
        shown = shown.func
    if inspect.isclass(shown):
        shown = shown.__init__
    elif not inspect.isroutine(shown):
        shown = type(shown).__call__
    shown = inspect.unwrap(shown)
    said = {name: hint for name, hint in getattr(shown, "__annotations__", {}).items() if name != "return"}
    around = getattr(inspect.unwrap(getattr(shown, "__func__", shown)), "__globals__", {})
    bare, names = types.SimpleNamespace(__annotations__=said), _names_around(shown)
    try:
        return typing.get_type_hints(bare, around, names, include_extras=True), {**around, **names}
    except NameError as error:
        name = getattr(shown, "__qualname__", shown)
        raise DragomanError(f"{name}: {error} where its type hints can be read: define it in the module") from error
    except (TypeError, AttributeError):
        return {}, {}


def _names_around(function: Any) -> dict[str, Any]:
    """What a hint in quotes may mean in a function made inside another: what that one has, if it still runs."""
    names: dict[str, Any] = {}
    outer = getattr(function, "__qualname__", "").rpartition(".<locals>.")[0]
    frame = sys._getframe() if outer else None
    while frame is not None:
        if frame.f_code.co_qualname == outer:
            names.update(frame.f_locals)
            break
        frame = frame.f_back
    with contextlib.suppress(TypeError, ValueError):
        names.update(inspect.getclosurevars(function).nonlocals)
    return names


def _unpacked(hint: Any) -> list[inspect.Parameter]:
    """`**options: Unpack[Options]`: the keys of the TypedDict are arguments."""
    name = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            field.name, name, annotation=field.hint, default=inspect.Parameter.empty if field.required else NOTHING
        )
        for field in read_shape(typing.get_args(hint)[0]).fields
    ]


def _argument(function: Any, parameter: inspect.Parameter, hint: Any, doc: Doc, names: dict[str, Any]) -> Argument:
    empty = parameter.default is inspect.Parameter.empty
    if hint is inspect.Parameter.empty and not empty and type(parameter.default) in _SIMPLE:
        hint = type(parameter.default)
    if not empty and parameter.default is None and hint is not inspect.Parameter.empty:
        hint = hint | None if isinstance(hint, type) else typing.Union[hint, None]  # noqa: UP007  # a value, not a hint
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        hint = list[Any] if hint is inspect.Parameter.empty else list[hint]
    try:
        found = read_hint(hint, names)
    except DragomanError as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        raise DragomanError(f"{name}: argument {parameter.name}: {error}") from error
    variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return Argument(
        name=parameter.name,
        hint=found,
        kind=parameter.kind,
        required=empty and not variable,
        default=parameter.default,
        text=doc.arguments.get(parameter.name, ""),
    )


def _schema(arguments: list[Argument], rest: Argument | None) -> JsonObject:
    """`type` and `properties` always, as the strictest provider wants them (seed 001)."""
    hints = [a.hint for a in arguments] + ([rest.hint] if rest is not None else [])
    schemas, definitions = describe(hints)
    properties: JsonObject = {}
    for argument, described in zip(arguments, schemas, strict=False):
        properties[argument.name] = _property(argument, described)
    schema: JsonObject = {"type": "object", "properties": properties}
    required = [a.name for a in arguments if a.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False if rest is None else (schemas[-1] or True)
    if definitions:
        schema["$defs"] = definitions
    return schema


def _property(argument: Argument, schema: JsonObject) -> JsonObject:
    text = description_of(argument.hint.kind) or argument.text
    if text:
        schema = {**schema, "description": text}
    return with_default(schema, NOTHING if argument.default is inspect.Parameter.empty else argument.default)
