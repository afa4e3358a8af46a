"""OpenAnswer: an answer that has begun, as the gateway and the client read it, piece by piece."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.model.events import Event
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.spec import Target
from dragoman.way_back import StreamReader


class Piece(Struct):
    """Bytes that arrived together, and their events."""

    raw: bytes
    events: list[Event]
    large: bool = False  # writing it takes long, too
    held: bool = False  # the next piece begins with an event of this one


class Tap(Protocol):
    """Takes the pieces of a stream as they arrive."""

    def take(self, piece: Piece) -> bool:
        """False: the task that reads the stream must take it."""

    def find_splice(self, reader: StreamReader) -> Callable[[bytes], bool] | None:
        """A shorter way for pieces that are one delta, if there is one here. It holds as long as it takes all pieces:
        False from it means that it has done nothing."""


class OpenAnswer(Protocol):
    """An answer that has begun. Its reader calls `close`, once or more."""

    @property
    def target(self) -> Target: ...
    @property
    def dialect(self) -> Dialect:
        """The dialect in which the answer came."""

    @property
    def as_is(self) -> bool:
        """Whether the upstream's bytes may go to the client unchanged. A stream may lose this on its way."""

    @property
    def notes(self) -> Notes: ...
    @property
    def headers(self) -> dict[str, str]:
        """The upstream's."""

    @property
    def raw(self) -> bytes:
        """The body of an unstreamed answer."""

    @property
    def reply(self) -> Reply | None:
        """The answer, if it was not streamed."""

    @property
    def complete(self) -> bool:
        """Whether the answer came as a whole, so that `reply` is set."""

    @property
    def plain(self) -> bool:
        """Its bytes may go to the client, and it has neither calls nor thoughts: `reply` need not be read."""

    @property
    def usage(self) -> Usage | None: ...
    @property
    def failure(self) -> Failure | None: ...

    async def next(self) -> Piece | None:
        """The next piece of the answer; None at its end."""

    def close(self) -> None:
        """Gives back everything it uses. Only the first call counts."""
