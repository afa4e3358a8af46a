"""Nulls that say nothing, for targets that refuse them: what is null may as well be absent (FIELD-CASES 57).

xAI: "Failed to deserialize the JSON body into the target type" for a null where there may be nothing at all.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.model.messages import Extras
from dragoman.model.request import Request, ServerTool


def drop_nulls(request: Request, dialect: str) -> Request:
    """A spelling: nothing is lost."""
    changes: dict[str, Any] = {}
    extras = _without(request.extras, dialect)
    if extras is not request.extras:
        changes["extras"] = extras
    messages = tuple(_clean(message, dialect) for message in request.messages)
    if any(a is not b for a, b in zip(messages, request.messages, strict=True)):
        changes["messages"] = messages
    if request.tools is not None:
        tools = tuple(tool if isinstance(tool, ServerTool) else _clean(tool, dialect) for tool in request.tools)
        if any(a is not b for a, b in zip(tools, request.tools, strict=True)):
            changes["tools"] = tools
    return replace(request, **changes) if changes else request


def _clean(value: Any, dialect: str) -> Any:
    if not value.extras:
        return value
    extras = _without(value.extras, dialect)
    return value if extras is value.extras else replace(value, extras=extras)


def _without(extras: Extras, dialect: str) -> Extras:
    own = extras.get(dialect)
    if not own or not any(value is None or key.endswith(".null") for key, value in own.items()):
        return extras
    kept = {key: value for key, value in own.items() if value is not None and not key.endswith(".null")}
    rest = {name: body for name, body in extras.items() if name != dialect}
    return {**rest, dialect: kept} if kept else rest
