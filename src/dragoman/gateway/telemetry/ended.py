"""Ended: what is known of a request when it has ended.

Its line in the log, its counts and its row of traffic are made of it later, of many requests at once. The same code
then runs again and again, and nothing is made that nothing reads.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from msgspec import Struct

from dragoman.accounts.prices import Cost
from dragoman.gateway.access.charge import NO_RANKS, read_program
from dragoman.gateway.telemetry.traffic_store import TrafficRow, Values
from dragoman.log_line import quoted, write_line
from dragoman.model.reply import Usage
from dragoman.note_ranks import FoldedNote, NoteRank

MOST_TOKENS = 10**15
LONGEST_NAME = 100  # of a model, if the words of the line are remembered


class Ended(Struct, frozen=True, gc=False):
    """A request that has ended. It is an entry of the log, too."""

    at: float
    seconds: float
    id: str
    door: str
    asked: str  # the model, as the client named it
    upstream: str  # that was asked last
    model: str  # that it was asked for
    answered: str | None  # the model whose answer the client has; None if there was no answer
    status: int  # 0: the client left
    failure: str
    first_s: float | None
    usage: Usage | None
    cost: Cost | None
    cost_text: str  # "" if it is not written yet
    key: str
    team: str | None  # None if no key was needed
    agent: str
    tries: int
    outcomes: Sequence[tuple[str, str]]  # upstream and failure of each try; empty if the only one went well
    waited_s: float
    kept: bool  # its bodies were kept for X-ray
    notes: Sequence[FoldedNote]
    more: dict[str, object]  # fields for the log

    event: ClassVar[str] = "request"
    level: ClassVar[int] = logging.INFO
    logger: ClassVar[str] = "dragoman.gateway.scope"

    @property
    def line(self) -> "Ended":
        return self

    @property
    def fields(self) -> dict[str, object]:
        """For the log. Empty fields are left out."""
        given, written = self.totals
        fields: dict[str, object] = {
            "id": self.id,
            "door": self.door,
            "status": self.status or "left",
            "model": self.asked,
            "upstream": self.upstream,
            "key": self.key,
            "team": self.team,
            "input": given,
            "output": written,
            "cost": self.shown_cost,
            "first_ms": self.first_ms,
            "ms": round(self.seconds * 1000),
            "waited_ms": round(self.waited_s * 1000),
        }
        if self.tries > 1:
            fields["attempts"] = self.tries
        if self.failure:
            fields["failure"] = self.failure
        return fields | self.more

    def __str__(self) -> str:
        """The line of the log."""
        usual = self.tries == 1 and not self.failure and not self.more and self.id.isalnum()
        if not usual or len(self.asked) > LONGEST_NAME:
            return write_line(self.event, self.fields)
        names = _write_names(self.door, self.status, self.asked, self.upstream, self.key, self.team)
        words, (given, written) = f"request id={self.id}{names}", self.totals
        if given:
            words += f" input={given}"
        if written:
            words += f" output={written}"
        if cost := self.shown_cost:
            words += f" cost={quoted(cost)}"
        if self.first_s is not None and (first := round(self.first_s * 1000)):
            words += f" first_ms={first}"
        if took := round(self.seconds * 1000):
            words += f" ms={took}"
        if self.waited_s and (waited := round(self.waited_s * 1000)):
            words += f" waited_ms={waited}"
        return words

    @property
    def totals(self) -> tuple[int | None, int | None]:
        """Tokens of the prompt and of the answer."""
        used = self.usage
        if used is None:
            return None, None
        if used.cache_read is None and used.cache_write is None and used.reasoning is None:
            given, written = used.input, used.output
            if (given is None or 0 <= given < MOST_TOKENS) and (written is None or 0 <= written < MOST_TOKENS):
                return given, written
        return _sum(used.input, used.cache_read, used.cache_write), _sum(used.output, used.reasoning)

    @property
    def first_ms(self) -> int | None:
        return None if self.first_s is None else round(self.first_s * 1000)

    @property
    def shown_cost(self) -> str | None:
        """None: unknown, or nothing was answered."""
        if self.answered is None or self.cost is None:
            return None
        return self.cost_text or str(self.cost)

    def values(self) -> Values:
        """As a row of traffic, without its number."""
        ranks = count_ranks(self.notes) if self.notes else NO_RANKS
        given, written = self.totals
        return (
            self.id,
            round(self.at * 1000),
            self.key,
            read_program(self.agent),
            self.door,
            self.asked,
            self.upstream,
            self.model,
            self.status,
            self.failure,
            self.first_ms,
            round(self.seconds * 1000),
            given,
            written,
            self.shown_cost,
            ranks["lost"],
            ranks["changed"],
            ranks["harmless"],
            self.tries,
            self.kept,
        )

    def make_row(self) -> TrafficRow:
        names = TrafficRow.__struct_fields__[1:]
        return TrafficRow(seq=0, **dict(zip(names, self.values(), strict=True)))  # type: ignore[arg-type]


@lru_cache(1024)
def _write_names(door: str, status: int, asked: str, upstream: str, key: str, team: str | None) -> str:
    """The same for many requests."""
    fields = {"door": door, "status": status or "left", "model": asked, "upstream": upstream, "key": key, "team": team}
    return write_line("", fields)


def count_ranks(notes: Sequence[FoldedNote]) -> dict[NoteRank, int]:
    ranks = dict(NO_RANKS)
    for row in notes:
        ranks[row.rank] += row.places
    return ranks


def _sum(*counts: int | None) -> int | None:
    total: int | None = None
    for count in counts:
        if count is not None and -MOST_TOKENS < count < MOST_TOKENS:  # upstreams may say nonsense
            total = count + (total or 0)
    return total
