"""Settings that came before: all of a body but its turns, and instructions with a key of their own.

An agent sends the same model, tools and settings with each request. They are known by their texts, for one client at
one door: of such a body only the turns and the instructions are read.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects._base import Dialect
from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject, load_json
from dragoman.known_turns.tools import Owner
from dragoman.model.messages import Message
from dragoman.model.request import Request
from dragoman.passes.prepare import KeptSettings

MOST_BYTES = 1024 * 1024  # of texts
MOST_ALIKE = 4  # of one client: a program asks with a few settings
MOST_SEEN = 1_000
Spans: TypeAlias = Mapping[str, tuple[int, int]]  # where the value of each key stands in a body


class SettingsText(Struct, frozen=True):
    """The settings of a body, and what they became."""

    keys: tuple[str, ...]  # of the values that may differ, in the order of the body
    texts: tuple[bytes, ...]  # before, between and behind these values
    headers: dict[str, str]  # those of the dialect
    settings: KeptSettings

    @property
    def size(self) -> int:
        return sum([len(text) for text in self.texts])

    def find_others(self, raw: bytes, dialect: Dialect) -> dict[str, bytes] | None:
        """The texts of the values that are no settings; None if the settings of this body are not these."""
        texts = self.texts
        if not raw.startswith(texts[0]) or not raw.endswith(texts[-1]):
            return None
        start, end = len(texts[0]), len(raw) - len(texts[-1])
        if len(self.keys) == 1:
            return {self.keys[0]: raw[start:end]}
        look = raw.rfind if self.keys[0] == dialect.messages_key else raw.find  # the turns are long
        at = look(texts[1], start, end)
        return {self.keys[0]: raw[start:at], self.keys[1]: raw[at + len(texts[1]) : end]} if at >= 0 else None


class FoundSettings(NamedTuple):
    """The settings of a body."""

    settings: KeptSettings
    others: dict[str, bytes]  # the texts of the other values


def read_others(found: FoundSettings, dialect: Dialect) -> Request | None:
    """The whole request. None if a turn is unusual, or a value no JSON: then the whole body must be read."""
    messages = _read_messages(found.others, dialect)
    return None if messages is None else replace(found.settings.request, messages=messages)


def _read_messages(values: dict[str, bytes], dialect: Dialect) -> tuple[Message, ...] | None:
    if dialect.read_turns is None or dialect.decode_turns is None:
        return None
    turns = dialect.read_turns(values[dialect.messages_key])
    if not turns:
        return None
    body: JsonObject = {dialect.messages_key: turns}
    try:
        if len(values) > 1:
            body[dialect.instructions_key] = load_json(values[dialect.instructions_key], strict=True)
        messages = dialect.decode_turns(body)
    except DragomanError:  # the whole body is read, which raises it again with its place
        return None
    return None if body else messages  # what is left has something to do with the settings


class KnownSettings:
    """Bounded in bytes. Nothing is shared between owners."""

    def __init__(self, most_bytes: int = MOST_BYTES, lock: AbstractContextManager[object] | None = None) -> None:
        """`lock`: for a gateway, which reads large requests in threads."""
        self.bytes = 0
        self._most_bytes = most_bytes
        self._lock = lock or nullcontext()
        self._all: dict[Owner, tuple[SettingsText, ...]] = {}  # the latest first
        self._seen: set[int] = set()  # hashes of settings that came once: most never come again

    def find(self, owner: Owner, raw: bytes, headers: dict[str, str], dialect: Dialect) -> FoundSettings | None:
        for known in self._all.get(owner, ()):
            others = known.find_others(raw, dialect)
            if others is not None and known.headers == headers:
                return FoundSettings(known.settings, others)
        return None

    def keep(
        self, owner: Owner, raw: bytes, spans: Spans, headers: dict[str, str], request: Request, dialect: Dialect
    ) -> None:
        """From the second time on. `spans`: of the body that this request was read from."""
        keys = tuple([key for key in spans if key in (dialect.messages_key, dialect.instructions_key)])
        if dialect.messages_key not in keys:
            return
        edges = [0, *[place for key in keys for place in spans[key]], len(raw)]
        texts = tuple([raw[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)])
        known = SettingsText(keys, texts, headers, KeptSettings(replace(request, messages=()), {}))
        if not self._is_new(owner, known):
            return
        if _read_messages({key: raw[slice(*spans[key])] for key in keys}, dialect) is not None:
            with self._lock:
                self._add(owner, known)

    def _is_new(self, owner: Owner, known: SettingsText) -> bool:
        """Whether settings came before and are not known yet."""
        number = hash((owner, known.texts, *known.headers.items()))
        with self._lock:
            if number in self._seen:
                return not any(
                    one.texts == known.texts and one.headers == known.headers for one in self._all.get(owner, ())
                )
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(number)
        return False

    def _add(self, owner: Owner, known: SettingsText) -> None:
        size = known.size
        if size > self._most_bytes:
            return
        if self.bytes + size > self._most_bytes:
            self._all.clear()
            self.bytes = 0
        kept = self._all.get(owner, ())
        self._all[owner] = (known, *kept[: MOST_ALIKE - 1])
        self.bytes += size - sum([one.size for one in kept[MOST_ALIKE - 1 :]])
