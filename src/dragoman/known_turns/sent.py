"""The conversations that a client of the library sends. Its turns are values of our own, which never change, so a turn
that was sent before is known by being the same object.

The "body" of such a conversation is the row of these identities. Its turns are kept, so that no other object can have
one of them.
"""

from array import array

from dragoman.dialects import CANONICAL, find_dialect
from dragoman.known_turns.history import KnownTurns
from dragoman.known_turns.read import begin_history, count_lead
from dragoman.known_turns.write import Known, know
from dragoman.model.messages import Message, Part
from dragoman.model.request import Request

LEAST_TURNS = 3  # turns of a shorter request are not remembered
ID_BYTES = 8
LEVELS = tuple(2 * ID_BYTES * 2**i for i in range(16))
OWNER = ("", "")  # the client itself


class SentTurns:
    """Of one client, and never of another. Bounded in bytes and by age."""

    def __init__(self, most_bytes: int) -> None:
        self.turns = KnownTurns(most_bytes, LEVELS, 2 * ID_BYTES)

    def know(self, request: Request, now: float) -> Known | None:
        """The turns of a request that the client sent before. All of them are known when the next request comes."""
        messages = request.messages
        if len(messages) < LEAST_TURNS or not self.turns.most_bytes:
            return None
        lead = count_lead(messages)  # instructions may change: no turn is written in another way because of them
        raw = array("Q", map(id, messages[lead:])).tobytes()
        hit = self.turns.find(self.turns.find_alike(OWNER, raw), raw, now)
        first = lead if hit is None else lead + 1 + hit.count
        ends = [ID_BYTES * (i + 1 - lead) for i in range(first, len(messages))]
        history = begin_history(raw, messages, ends, find_dialect(CANONICAL), hit)
        if history is None:
            return None
        history.more = count_text(messages[first:]) + (0 if hit is None else hit.history.more)
        self.turns.keep(OWNER, history, now, instead=None if hit is None else hit.history)
        return know(hit, history, request)


def count_text(messages: tuple[Message, ...]) -> int:
    """About the bytes of what is said in some turns."""
    count = 0
    for message in messages:
        for part in message.parts:
            count += _count(part) + sum([_count(inner) for inner in getattr(part, "parts", ())])
    return count


def _count(part: Part) -> int:
    """A picture or a file counts, too: it is kept as long as its turn is."""
    texts = [getattr(part, name, None) for name in ("text", "arguments", "data")]
    return sum([len(text) for text in texts if text])
