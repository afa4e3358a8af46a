"""FairQueue: a bounded line in which nobody's many requests hold up somebody else's one."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served for one asker; turn by turn between askers."""

    __slots__ = ("_lines", "_size", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # the first is next
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, who: str, item: T) -> bool:
        """False when the line is full."""
        if self._size >= self.limit:
            return False
        self._lines.setdefault(who, deque()).append(item)
        self._size += 1
        return True

    def peek(self) -> T | None:
        for line in self._lines.values():
            return line[0]
        return None

    def pop(self) -> T:
        """The next one; its asker goes to the end of the turn."""
        who, line = self._lines.popitem(last=False)
        item = line.popleft()
        self._size -= 1
        if line:
            self._lines[who] = line
        return item

    def remove(self, who: str, item: T) -> bool:
        line = self._lines.get(who)
        if line is None or item not in line:
            return False
        line.remove(item)
        self._size -= 1
        if not line:
            del self._lines[who]
        return True
