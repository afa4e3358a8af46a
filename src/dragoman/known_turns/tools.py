"""Lists of tools that came before. An agent begins each of its conversations with the same tools.

A list is known by its text, for one client at one door. It is the same object each time, so that what was made of it
for a server is found again too (passes/schemas/fit.py, dialects/_tools.py).
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from dragoman.model.request import AnyTool

MOST_BYTES = 1024 * 1024  # of text; the values take about ten times as much
LEAST_BYTES = 500  # a shorter list is read as fast as it is found
MOST_SEEN = 1_000
Owner: TypeAlias = tuple[str, str]  # a client's key, and the dialect that it speaks


def find_tools_key(members: Mapping[str, object], keys: tuple[str, ...]) -> str:
    """The key of a list of tools that can be read by itself; empty if there is none, or one under an unusual key."""
    named = [key for key in keys if key in members]
    return named[0] if named and named == list(keys[:1]) else ""


class KnownTools:
    def __init__(self, most_bytes: int = MOST_BYTES, lock: AbstractContextManager[object] | None = None) -> None:
        """`lock`: for a gateway, which reads large requests in threads."""
        self.bytes = 0
        self._most_bytes = most_bytes
        self._lock = lock or nullcontext()
        self._all: OrderedDict[tuple[Owner, bytes], tuple[AnyTool, ...]] = OrderedDict()  # oldest use first
        self._seen: set[int] = set()  # hashes of lists that came once: most never come again

    def find(self, owner: Owner, text: bytes) -> tuple[AnyTool, ...] | None:
        key = (owner, text)
        with self._lock:
            found = self._all.get(key)
            if found is not None:
                self._all.move_to_end(key)
        return found

    def keep(self, owner: Owner, text: bytes, tools: tuple[AnyTool, ...]) -> None:
        """From the second time on."""
        with self._lock:
            self._keep((owner, text), text, tools)

    def _keep(self, key: tuple[Owner, bytes], text: bytes, tools: tuple[AnyTool, ...]) -> None:
        number = hash(key)
        if number not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(number)
        elif key not in self._all and len(text) <= self._most_bytes:
            self._all[key] = tools
            self.bytes += len(text)
            while self.bytes > self._most_bytes:
                (_, old), _ = self._all.popitem(last=False)
                self.bytes -= len(old)
