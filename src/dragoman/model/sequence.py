"""One part at a time: for dialects whose streams may not interleave parts."""

from collections.abc import Iterator

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart


class Sequencer:
    """Passes the events of one open part through at once and keeps those of the others until it has ended."""

    __slots__ = ("_active", "_waiting")

    def __init__(self) -> None:
        self._active: int | None = None
        self._waiting: dict[int, list[Event]] = {}  # in order of their PartStart

    def feed(self, event: Event) -> Iterator[Event]:
        if not isinstance(event, PartDelta | PartStart | PartEnd):
            yield event
            return
        if self._active is None or event.index == self._active:
            self._active = None if isinstance(event, PartEnd) else event.index
            yield event
            if self._active is None:
                yield from self._next()
            return
        self._waiting.setdefault(event.index, []).append(event)

    def _next(self) -> Iterator[Event]:
        while self._active is None and self._waiting:
            index = next(iter(self._waiting))
            events = self._waiting.pop(index)
            if not isinstance(events[-1], PartEnd):
                self._active = index
            yield from events
