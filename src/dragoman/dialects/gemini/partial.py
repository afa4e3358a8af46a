"""Gemini generateContent on Vertex: a call whose arguments come in pieces (`streamFunctionCallArguments`).

{"name": "f", "willContinue": true}
{"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "x", "willContinue": true}], "willContinue": true}
{"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "y"}], "willContinue": true}
{}
"""

import re
from itertools import pairwise
from typing import Any

from dragoman.errors import DecodeError
from dragoman.fields import look_list, need_object
from dragoman.jsontypes import JsonObject, dump_text

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue")
MAX_DEPTH = 64
MAX_PLACES = 10_000  # limit for one array, because a path can name any index


class PartialCall:
    def __init__(self, part: JsonObject) -> None:
        call = part["functionCall"]
        self.part = part
        self.arguments: JsonObject = dict(need_object(call.get("args") or {}))
        self._growing: str | None = None  # the path whose string is not complete

    def grow(self, call: JsonObject) -> None:
        for piece in look_list(call, "partialArgs"):
            path = need_object(piece).get("jsonPath")
            steps = _read_path(path)
            value = next((piece[key] for key in _VALUES if key in piece), None)
            holder = self._reach(steps[:-1], steps[-1])
            if type(value) is str and self._growing == path:
                value = str(_get(holder, steps[-1])) + value
            _set(holder, steps[-1], value)
            self._growing = path if piece.get("willContinue") else None

    def complete(self, whole: bool) -> JsonObject:
        """The part as if it had come in one piece. A cut call has no arguments here: `cut_text` gives them as invalid
        JSON, so that no client runs the call (FIELD-CASES 24)."""
        call = {key: self.part["functionCall"][key] for key in ("id", "name") if key in self.part["functionCall"]}
        part = self.part | {"functionCall": call | {"args": self.arguments}}
        return part if whole else part | {"functionCall": call}

    def cut_text(self) -> str:
        return dump_text(self.arguments)[:-1]

    def _reach(self, steps: list[str | int], last: str | int) -> Any:
        holder: Any = self.arguments
        for step, following in pairwise([*steps, last]):
            inner = _get(holder, step)
            if not isinstance(inner, dict | list):
                inner = [] if type(following) is int else {}
                _set(holder, step, inner)
            holder = inner
        return holder


def _read_path(path: object) -> list[str | int]:
    if type(path) is not str or not path.startswith("$"):
        raise DecodeError("expected a JSON path", "partialArgs", "jsonPath")
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            raise DecodeError(f"not a JSON path we read: {path}", "partialArgs", "jsonPath")
        name, number, single, double = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        place = match.end()
    if not steps or len(steps) > MAX_DEPTH:
        raise DecodeError("a JSON path that leads nowhere", "partialArgs", "jsonPath")
    return steps


def _get(holder: Any, step: str | int) -> Any:
    if isinstance(holder, list):
        return holder[step] if isinstance(step, int) and step < len(holder) else None
    return holder.get(step)


def _set(holder: Any, step: str | int, value: Any) -> None:
    if not isinstance(holder, list):
        holder[step] = value
        return
    if not isinstance(step, int) or step >= MAX_PLACES:
        raise DecodeError("a JSON path that leads nowhere", "partialArgs", "jsonPath")
    holder.extend([None] * (step + 1 - len(holder)))
    holder[step] = value
