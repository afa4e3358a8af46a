"""Which tool texts were approved: the first list of a server is, and whoever adds it again approves anew (T21).

A description is a prompt. One that changes behind the user's back is withheld and reported, not handed on.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, dump_json, load_object
from dragoman.mcp.registry import write_whole
from dragoman.mcp.spec import ServerSpec

# Zero-width, bidirectional controls, variation selectors and Unicode tags: a person sees nothing, a model reads them.
_HIDDEN = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e01ef]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Change(Struct, frozen=True):
    tool: str
    what: str  # "changed", "new", "gone", "hidden characters"
    old: str = ""
    new: str = ""


class Pins:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, dict[str, str]] = self._load()

    def _load(self) -> dict[str, dict[str, str]]:
        if self._path is None:
            return {}
        try:
            return {key: dict(value) for key, value in load_object(self._path.read_bytes()).items()}
        except (OSError, DecodeError, TypeError, ValueError):
            return {}  # nothing approved yet

    def judge(self, spec: ServerSpec, tools: dict[str, str]) -> tuple[set[str], list[Change]]:
        """Name -> digest of what a server offers now; which of them are withheld, and what is to be told."""
        key = _key(spec)
        known = self._known.get(key)
        if known is None:
            self._keep(key, tools)
            return set(), []
        changed = [Change(name, "changed", known[name], d) for name, d in tools.items() if known.get(name, d) != d]
        new = [Change(name, "new", "", digest) for name, digest in tools.items() if name not in known]
        gone = [Change(name, "gone", known[name], "") for name in known if name not in tools]
        withheld = {change.tool for change in changed} | ({change.tool for change in new} if spec.strict else set())
        if new and not spec.strict:
            self._keep(key, {**known, **{change.tool: change.new for change in new}})
        return withheld, [*changed, *new, *gone]

    def forget(self, spec: ServerSpec) -> None:
        """The next list is approved as it is."""
        if self._known.pop(_key(spec), None) is not None:
            self._save()

    def _keep(self, key: str, tools: dict[str, str]) -> None:
        self._known[key] = tools
        self._save()

    def _save(self) -> None:
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._path, dump_json(self._known))
            except OSError:
                pass  # approved for as long as this process lives


def _key(spec: ServerSpec) -> str:
    return f"{spec.name} {hashlib.sha256(spec.identity.encode()).hexdigest()[:16]}"


def digest(name: str, description: str | None, schema: JsonObject) -> str:
    return hashlib.sha256(dump_json([name, description, _sorted(schema)])).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def has_hidden(text: str) -> bool:
    return bool(_HIDDEN.search(text) or _CONTROL.search(text))


def show_hidden(text: str) -> str:
    """The same text with what hides in it made visible."""
    return _CONTROL.sub(_name, _HIDDEN.sub(_name, text))


def _name(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
