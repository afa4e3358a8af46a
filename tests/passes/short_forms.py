"""Short ways to write conversations in tests."""

from typing import Any

from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request, Tool


def _parts(said: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(text=part) if isinstance(part, str) else part for part in said)


def user(*said: Part | str) -> Message:
    return Message(role="user", parts=_parts(said))


def assistant(*said: Part | str) -> Message:
    return Message(role="assistant", parts=_parts(said))


def system(*said: Part | str) -> Message:
    return Message(role="system", parts=_parts(said))


def developer(*said: Part | str) -> Message:
    return Message(role="developer", parts=_parts(said))


def call(call_id: str, name: str = "look", arguments: str = "{}", **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, **more)


def result(call_id: str, *said: Part | str, **more: Any) -> ToolResult:
    return ToolResult(call_id=call_id, parts=_parts(said or ("42",)), **more)


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> Tool:
    return Tool(name=name, parameters=parameters, **more)


def talk(*messages: Message, model: str = "m", **more: Any) -> Request:
    return Request(model=model, messages=messages, **more)


def parts_of(request: Request, kind: type[Part]) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]
