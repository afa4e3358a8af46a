"""One part at a time: for dialects whose streams may not interleave parts."""

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart


class Sequencer:
    """Passes the events of one open part through at once and keeps those of the others until it has ended."""

    __slots__ = ("_active", "_waiting")

    def __init__(self) -> None:
        self._active: int | None = None
        self._waiting: dict[int, list[Event]] = {}  # in order of their PartStart

    def feed(self, event: Event) -> tuple[Event, ...] | list[Event]:
        if type(event) is PartDelta and event.index == self._active:
            return (event,)
        if not isinstance(event, PartDelta | PartStart | PartEnd):
            return (event,)
        if self._active is None or event.index == self._active:
            if isinstance(event, PartEnd):
                self._active = None
                return [event, *self._next()] if self._waiting else (event,)
            self._active = event.index
            return (event,)
        self._waiting.setdefault(event.index, []).append(event)
        return ()

    def _next(self) -> list[Event]:
        """What the parts that waited have to say, up to the first that is still open."""
        ready: list[Event] = []
        while self._active is None and self._waiting:
            index = next(iter(self._waiting))
            events = self._waiting.pop(index)
            if not isinstance(events[-1], PartEnd):
                self._active = index
            ready.extend(events)
        return ready
