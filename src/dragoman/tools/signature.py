"""The arguments of a callable: their JSON Schema for the model, and their values from the JSON of a call."""

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
from dragoman.tools.docstrings import Docstring, read_docstring
from dragoman.tools.hints import Hint, get_description, read_hint
from dragoman.tools.records import NO_DEFAULT, read_record_shape
from dragoman.tools.schemas import add_default, write_schemas
from dragoman.tools.values import WrongValueError, make_value

_SIMPLE_TYPES = (bool, int, float, str)
_MAX_NAMES = 12  # in one error message


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    hint: Hint
    kind: Any  # the kind of inspect.Parameter
    required: bool
    default: Any = None
    text: str = ""


class Signature(Struct, frozen=True, kw_only=True):
    """The arguments of a callable. `call_argument` is the name of the argument that gets the ToolCall itself."""

    arguments: tuple[Argument, ...]
    var_keyword: Argument | None  # **kwargs
    call_argument: str | None
    description: str
    parameters: JsonObject

    def bind(self, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for a call. WrongValueError tells the model what does not fit."""
        arguments = read_arguments(call.arguments)
        problems: list[str] = []
        values: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.name in arguments:
                _convert_argument(argument, arguments.pop(argument.name), values, problems)
            elif argument.required:
                problems.append(f"{argument.name}: is missing")
        for name, value in arguments.items():
            if self.var_keyword is None:
                problems.append(f"{name}: there is no such argument")
            else:
                _convert_argument(msgspec.structs.replace(self.var_keyword, name=name), value, values, problems)
        if problems:
            raise WrongValueError(f"the arguments do not fit: {'; '.join(problems)}.{self._list_arguments(problems)}")
        return self._arrange(values, call)

    def _list_arguments(self, problems: list[str]) -> str:
        if not any("no such" in problem or "missing" in problem for problem in problems):
            return ""
        names = [a.name + ("" if a.required else " (optional)") for a in self.arguments]
        more = ", ..." if len(names) > _MAX_NAMES else ""
        return f" The arguments are: {', '.join(names[:_MAX_NAMES])}{more}" if names else " It takes no arguments"

    def _arrange(self, values: dict[str, Any], call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
        """Passes arguments by position up to the last given positional-only one, and all of them if there are *args."""
        positional: list[Any] = []
        by_position = [a for a in self.arguments if a.kind is inspect.Parameter.POSITIONAL_ONLY]
        var_positional = next((a for a in self.arguments if a.kind is inspect.Parameter.VAR_POSITIONAL), None)
        if var_positional is not None and var_positional.name in values:
            by_position = [
                a for a in self.arguments if a.kind in (a.kind.POSITIONAL_ONLY, a.kind.POSITIONAL_OR_KEYWORD)
            ]
        last = max((i for i, a in enumerate(by_position) if a.name in values), default=-1)
        if var_positional is not None and var_positional.name in values:
            last = len(by_position) - 1
        positional.extend(values.pop(a.name, a.default) for a in by_position[: last + 1])
        if var_positional is not None:
            positional.extend(values.pop(var_positional.name, ()))
        if self.call_argument is not None:
            values[self.call_argument] = call
        return positional, values


def _convert_argument(argument: Argument, value: Json, values: dict[str, Any], problems: list[str]) -> None:
    try:
        values[argument.name] = make_value(value, argument.hint, argument.name)
    except WrongValueError as error:
        problems.append(f"{argument.name}: {error}")


def read_arguments(text: str) -> JsonObject:
    """Reads the JSON of the model. Empty text means no arguments. A value that is no object raises WrongValueError."""
    if not text.strip():
        return {}
    try:
        value = load_json(text)
        if isinstance(value, str):  # encoded twice: "{\"city\": ...}"
            value = load_json(value)
    except DragomanError as error:
        raise WrongValueError(f"the arguments are {error}. Write one JSON object") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WrongValueError(f"the arguments must be one JSON object, not {kind_of(value)}")
    return copy_json(value)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- reading a callable


def read_signature(function: Callable[..., Any]) -> Signature:
    """DragomanError if JSON cannot express the type of an argument."""
    documented = _find_documented(function)
    doc = read_docstring(inspect.getdoc(documented) if not isinstance(documented, functools.partial) else None)
    hints, names = _read_hints(function)
    arguments: list[Argument] = []
    var_keyword: Argument | None = None
    call_argument: str | None = None
    for parameter in _list_parameters(function):
        hint = hints.get(parameter.name, parameter.annotation)
        if hint is ToolCall or hint == ToolCall | None:
            call_argument = parameter.name
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and typing.get_origin(hint) is typing.Unpack:
            options = _unpack_typed_dict(hint)
            arguments += [_read_argument(function, option, option.annotation, doc, names) for option in options]
            continue
        argument = _read_argument(function, parameter, hint, doc, names)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            var_keyword = argument
        else:
            arguments.append(argument)
    return Signature(
        arguments=tuple(arguments),
        var_keyword=var_keyword,
        call_argument=call_argument,
        description=_join_description(doc),
        parameters=_write_parameters(arguments, var_keyword),
    )


def _join_description(doc: Docstring) -> str:
    returns = f"Returns: {doc.returns}" if doc.returns else ""
    return "\n\n".join(words for words in (doc.description, returns) if words)


def _find_documented(function: Callable[..., Any]) -> Any:
    """The object with the docstring: the function in a partial, the class of an object, or its __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    class_doc = inspect.getdoc(type(function))
    return type(function) if class_doc else type(function).__call__


def _list_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise DragomanError(f"{function!r} has no readable signature") from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [parameter for parameter in parameters if parameter.name not in bound]  # already bound
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
        return parameters[1:]  # a method that is not bound yet
    return parameters


def _read_hints(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The resolved type hints, and all names that a hint in quotes may use, also local names around the function."""
    unwrapped: Any = function
    while isinstance(unwrapped, functools.partial):
        unwrapped = unwrapped.func
    if inspect.isclass(unwrapped):
        unwrapped = unwrapped.__init__
    elif not inspect.isroutine(unwrapped):
        unwrapped = type(unwrapped).__call__
    unwrapped = inspect.unwrap(unwrapped)
    annotations = {name: hint for name, hint in getattr(unwrapped, "__annotations__", {}).items() if name != "return"}
    module_names = getattr(inspect.unwrap(getattr(unwrapped, "__func__", unwrapped)), "__globals__", {})
    namespace, local_names = types.SimpleNamespace(__annotations__=annotations), _find_local_names(unwrapped)
    try:
        return typing.get_type_hints(namespace, module_names, local_names, include_extras=True), {
            **module_names,
            **local_names,
        }
    except NameError as error:
        name = getattr(unwrapped, "__qualname__", unwrapped)
        raise DragomanError(f"{name}: {error} in its type hints: define it in the module") from error
    except (TypeError, AttributeError):
        return {}, {}


def _find_local_names(function: Any) -> dict[str, Any]:
    """Local names of the enclosing function, while it still runs, and names in the closure."""
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


def _unpack_typed_dict(hint: Any) -> list[inspect.Parameter]:
    """`**options: Unpack[Options]`: each key of the TypedDict is an argument."""
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            field.name,
            keyword_only,
            annotation=field.hint,
            default=inspect.Parameter.empty if field.required else NO_DEFAULT,
        )
        for field in read_record_shape(typing.get_args(hint)[0]).fields
    ]


def _read_argument(
    function: Any, parameter: inspect.Parameter, hint: Any, doc: Docstring, names: dict[str, Any]
) -> Argument:
    has_no_default = parameter.default is inspect.Parameter.empty
    if hint is inspect.Parameter.empty and not has_no_default and type(parameter.default) in _SIMPLE_TYPES:
        hint = type(parameter.default)
    if not has_no_default and parameter.default is None and hint is not inspect.Parameter.empty:
        hint = hint | None if isinstance(hint, type) else typing.Union[hint, None]  # noqa: UP007  # a value, not a hint
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        hint = list[Any] if hint is inspect.Parameter.empty else list[hint]
    try:
        described_hint = read_hint(hint, names)
    except DragomanError as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        raise DragomanError(f"{name}: argument {parameter.name}: {error}") from error
    is_variadic = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return Argument(
        name=parameter.name,
        hint=described_hint,
        kind=parameter.kind,
        required=has_no_default and not is_variadic,
        default=parameter.default,
        text=doc.arguments.get(parameter.name, ""),
    )


def _write_parameters(arguments: list[Argument], var_keyword: Argument | None) -> JsonObject:
    """The JSON Schema of all arguments. It always has `type` and `properties`: the strictest provider wants them."""
    hints = [a.hint for a in arguments] + ([var_keyword.hint] if var_keyword is not None else [])
    schemas, definitions = write_schemas(hints)
    properties: JsonObject = {}
    for argument, described in zip(arguments, schemas, strict=False):
        properties[argument.name] = _write_property(argument, described)
    schema: JsonObject = {"type": "object", "properties": properties}
    required = [a.name for a in arguments if a.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False if var_keyword is None else (schemas[-1] or True)
    if definitions:
        schema["$defs"] = definitions
    return schema


def _write_property(argument: Argument, schema: JsonObject) -> JsonObject:
    text = get_description(argument.hint.kind) or argument.text
    if text:
        schema = {**schema, "description": text}
    return add_default(schema, NO_DEFAULT if argument.default is inspect.Parameter.empty else argument.default)
