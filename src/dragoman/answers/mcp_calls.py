"""MCP calls that a provider made itself, in the form of the client's dialect: in a stream and in a whole answer."""

from collections.abc import Iterator

from msgspec.structs import replace

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Part
from dragoman.model.reply import Reply
from dragoman.passes.server_tools.mcp_calls import McpTranslator, translates


class McpStream:
    """Rewrites the events of a stream. One part may become two, and two may become one, so parts get new numbers."""

    def __init__(self, dialect: str, names: dict[str, str] | None = None) -> None:
        self._dialect = dialect
        self._translator = McpTranslator(dialect, names)
        self._numbers: dict[int, int] = {}  # index of a part -> its index in what goes out
        self._translated: set[int] = set()
        self._next = 0

    def feed(self, events: list[Event]) -> list[Event]:
        return [out for event in events for out in self._feed(event)]

    def _feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartStart(part=part) if translates(part, self._dialect):
                self._translated.add(event.index)
                yield from self._add(self._translator.feed(part))
            case PartStart():
                self._numbers[event.index] = self._next
                yield self._renumber(event)
                self._next += 1
            case PartDelta() | PartEnd() if event.index not in self._translated:
                yield self._renumber(event)
            case PartDelta() | PartEnd():
                pass
            case ReplyEnd():
                yield from self._add(self._translator.close())
                yield event
            case _:
                yield event

    def _renumber(self, event: PartStart | PartDelta | PartEnd) -> Event:
        number = self._numbers.get(event.index, event.index)
        return event if number == event.index else replace(event, index=number)

    def _add(self, parts: list[Part]) -> Iterator[Event]:
        """Adds whole parts to the first choice: dialects with such calls give only one answer."""
        for part in parts:
            yield PartStart(index=self._next, part=part)
            yield PartEnd(index=self._next)
            self._next += 1


def translate_calls(reply: Reply, dialect: str, names: dict[str, str] | None = None) -> Reply:
    """A whole answer; the same object if it has no such call."""
    if not any(translates(part, dialect) for choice in reply.choices for part in choice.parts):
        return reply
    translated = fold(McpStream(dialect, names).feed(list(unfold(reply))))
    return translated if isinstance(translated, Reply) else reply
