"""Scope: one request from its first byte to its last. At the end it gives everything back once and reports."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.accounts.prices import Cost, ModelPrice, count_cost
from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError
from dragoman.exchange import HOP, ClientRequest
from dragoman.failure import Failure
from dragoman.gateway.access.charge import Charge, believe, end_charge, find_cost, find_usage, make_row
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.routes.responses import Resolved
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.telemetry.ended import Ended
from dragoman.gateway.telemetry.xray import MAX_BYTES, Xray, keep, say_length, show, trim
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.log_line import LogLine
from dragoman.model.events import ReplyEnd, ReplyStart
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Request
from dragoman.note_ranks import FoldedNote, check_words, fold_notes
from dragoman.notes import MOST_PLACES, Note, Refusable, is_mended_turn
from dragoman.reasoning_state.carry import SealDropper, StateCarrier, StateSource
from dragoman.reasoning_state.envelope import StateKey
from dragoman.reasoning_state.stored import Conversation
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import Attempt
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.way_back import open_carrier

log = logging.getLogger(__name__)
MOST_MENDED = 5  # in one line of the log
MOST_NOTES = 1000  # the first notes of a request; some requests have 100,000
CHARS_PER_TOKEN = 4
H = TypeVar("H", Reply, ReplyStart)
E = TypeVar("E", Reply, ReplyEnd)


class Scope:
    """One request, from its first byte in to its last byte out. It gives back what it uses exactly once."""

    __slots__ = (
        *("_believed", "_cost", "_cost_text", "_folded", "_over", "_sent", "_sent_bytes"),
        *("answer", "attempts", "bare", "charge", "client_request", "conversation", "dialect", "door", "ending"),
        *("events", "failure", "first_s", "gateway", "http", "in_xray", "keep", "large", "loop", "makes_names"),
        *("model", "now", "raw", "refuse", "request", "resolved", "size", "started", "status", "streamed", "trace"),
        "usage",
    )

    def __init__(self, gateway: Gateway, http: HttpRequest, dialect: Dialect, door: str) -> None:
        self.gateway = gateway
        self.now: Generation = gateway.now
        self.http = http
        self.dialect = dialect
        self.door = door
        self.started = gateway.clock()
        self.trace = gateway.traces.begin(http, door) if gateway.traces is not None else None
        self.model = ""
        self.size = 0  # of the request, in bytes
        self.large = False  # it is worked on off the loop
        self.client_request: ClientRequest | None = None
        self.resolved: Resolved | None = None
        self.answer: OpenAnswer | None = None
        self.bare: Request | None = None  # as its client sent it, at doors whose clients may bring no state back
        self.conversation: Conversation | None = None  # that `bare` belongs to, once it was read: kept_turns.py
        self.attempts: list[Attempt] = []
        self.refuse: frozenset[Refusable] = read_refuse(http)
        self.in_xray = gateway.xray.always or "x-dragoman-xray" in http.headers
        # Whether what is asked and answered is kept until the end: for X-ray, or for the ledger.
        self.keep = self.in_xray or (http.holder is not None and http.holder.keeps_bodies)
        self.status = 0
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self.first_s: float | None = None
        self.charge: Charge | None = None  # its places under the limits, and its reservation of a budget
        self.makes_names = False  # its answer may have ids of things at the provider, such as files
        self.events = self.streamed = 0  # events and bytes of a stream so far: if it breaks, its cost is estimated
        self._believed: Usage | None = None  # a usage whose counters make sense
        self._cost: tuple[Cost | None] | None = None  # once it is known
        self._cost_text = ""
        self._sent: list[tuple[float, bytes]] = []  # time and bytes of each piece, for X-ray and the ledger
        self._sent_bytes = 0
        self.raw = b""  # what the client sent, for X-ray
        self.request: Callable[[], Request] | None = None  # reads it, if there is no `client_request`
        self.loop: list[JsonObject] = []  # the calls of an MCP loop, for X-ray
        self.ending: Failure | None = None  # why the request is ended from outside
        self._over = False
        self._folded: tuple[int, list[FoldedNote]] | None = None  # the number of notes, and these notes folded

    @property
    def notes(self) -> tuple[Note, ...]:
        if self.answer is not None:
            return tuple(self.answer.notes.read(MOST_PLACES, most_notes=MOST_NOTES))
        return self.client_request.notes[:MOST_NOTES] if self.client_request is not None else ()

    def count_notes(self) -> int:
        if self.answer is not None:
            return min(len(self.answer.notes), MOST_NOTES)
        return len(self.notes)

    def fold_notes(self) -> list[FoldedNote]:
        """The worst first, equal ones as one."""
        if self.answer is None:
            return fold_notes(self.notes)
        count = len(self.answer.notes)
        if self._folded is None or self._folded[0] != count:
            self._folded = (count, self.answer.notes.fold(MOST_PLACES, MOST_NOTES))
        return self._folded[1]

    @property
    def state_key(self) -> StateKey:
        return StateKey(self.gateway.state_secret, self.http.key_id)

    def open_carrier(self) -> StateCarrier | SealDropper | None:
        """Puts the reasoning state of the answer where the client keeps it; None if there is nothing to do."""
        answer = self.answer
        if answer is None or answer.as_is:
            return None
        if self.dialect.slots is None and self.keeps_turns:
            return SealDropper()
        return open_carrier(answer.dialect, self.dialect, self.state_source(answer), self.state_key)

    def state_source(self, answer: OpenAnswer) -> StateSource:
        return StateSource(model=answer.target.model, upstream=answer.target.upstream.name)

    @property
    def keeps_turns(self) -> bool:
        """Whether this client may bring no state back, so that the gateway keeps it: its dialect has no place for it,
        or the client did not ask for it."""
        slots, asked = self.dialect.slots, self.client_request
        if self.dialect.keeps_seals:
            return False
        if slots is None or slots.kind == "details":
            return True
        option = self.dialect.profile.sealed_option
        if option is None or asked is None:
            return False
        wanted = asked.request.extras.get(self.dialect.name, {}).get(option[0])
        return not (isinstance(wanted, list) and option[1] in wanted)

    def stamp(self, head: H) -> H:
        """Adds what encoders cannot know: a unique id in the dialect's own form, the time, and the model if the
        upstream did not name it.

        Claude Code takes two messages of one id for one message. A stored response is found again by our id."""
        prefix = self.dialect.reply_id_prefix
        known = head.id.startswith(prefix) if head.id else not self.dialect.reply_ids
        if self.dialect.stores_replies or not known:
            head = replace(head, id=f"{prefix}{self.http.unique_id}")
        if head.created is None and self.dialect.dated:
            head = replace(head, created=round(self.gateway.wall()))
        if not head.model:
            head = replace(head, model=self.model)
        return head

    def time(self, end: E) -> E:
        """Adds how long the answer took, where its dialect says so and the upstream did not."""
        keys, own = self.dialect.timed, end.extras.get(self.dialect.name, {})
        if keys is None or keys.total in own:
            return end
        now = self.gateway.clock()
        first = self.started + (self.first_s or 0.0)  # unstreamed, it is not known
        took = {
            keys.total: _nanoseconds(now - self.started),
            keys.loading: 0,
            keys.reading: _nanoseconds(first - self.started),
            keys.writing: _nanoseconds(now - first),
        }
        return replace(end, extras={**end.extras, self.dialect.name: {**own, **took}})

    def release_request(self, answer: UpstreamAnswer) -> None:
        """The request will not be sent again: frees its memory, as a stream may be long."""
        if self.keep or self.client_request is None:
            return
        answer.release_request()
        answer.notes.settle(MOST_PLACES, each=HOP in self.http.headers or log.isEnabledFor(logging.DEBUG))
        self.client_request.raw = b""
        self.bare = None
        if self.resolved is None or not self.resolved.store:
            self.client_request.request = replace(self.client_request.request, messages=())
            self.client_request.decoded = self.client_request.known = self.client_request.kept = None

    def take_usage(self, usage: Usage | None, price: ModelPrice | None) -> None:
        """The usage that an upstream has told in a whole answer, and the price of its model: `find_usage` and
        `find_cost` would find the same."""
        if price is not None and price.image is not None:
            return
        if usage is not None and believe(usage, 1) is usage and (usage.input is not None or usage.output is not None):
            self.usage = self._believed = usage
            self._cost = (None if price is None else count_cost(price, usage),)

    @property
    def cost(self) -> Cost | None:
        """None is unknown."""
        if self._cost is None:
            self._cost = (find_cost(self, find_usage(self)[0]),)
        return self._cost[0]

    @property
    def cost_text(self) -> str:
        """ "" is unknown."""
        if not self._cost_text and (cost := self.cost) is not None:
            self._cost_text = str(cost)
        return self._cost_text

    def write_quota(self) -> dict[str, str]:
        """Headers that say how much is left of the limits of the client's key; empty if it has none."""
        holder = self.http.holder
        if holder is None or self.charge is None or not holder.limited:
            return {}
        return self.gateway.key_limits.find_quota(holder, self.dialect).write(self.gateway.wall())

    def write_quota_lines(self) -> str:
        """The same, as lines of a head."""
        holder = self.http.holder
        if holder is None or self.charge is None or not holder.limited:
            return ""
        return self.gateway.key_limits.find_quota(holder, self.dialect).write_lines(self.gateway.wall())

    def record(self) -> None:
        """Writes the request down, before its client has read the end of its answer. Only the first call counts."""
        charge = self.charge
        if charge is None or charge.books is None or charge.recorded:
            return
        charge.recorded = True
        usage, estimated = (self._believed, False) if self._believed is not None else find_usage(self)
        charge.usage = usage
        if self._cost is None:
            self._cost = (find_cost(self, usage),)
        charge.books.record(make_row(self, charge, usage, self.cost, estimated=estimated))

    def keep_sent(self, data: bytes) -> None:
        """A piece of what the client got. Of a long answer only its length is kept, also while it runs."""
        self._sent_bytes += len(data)
        if self._sent_bytes <= MAX_BYTES:
            self._sent.append((self.gateway.clock(), data))
        else:
            self._sent.clear()

    @property
    def sent(self) -> bytes | str:
        if self._sent_bytes > MAX_BYTES:
            return say_length(self._sent_bytes)
        return b"".join([data for _, data in self._sent])

    def show_bodies(self) -> str:
        """What was asked and answered, masked as X-ray masks."""
        asked = show(self.client_request.raw) if self.client_request is not None else None
        reply = show(self.sent or (self.answer.raw if self.answer is not None else b""))
        return dump_json({"asked": asked, "reply": reply}).decode()

    def finish(self) -> None:
        """Gives back what the request uses and reports it. Only the first call counts."""
        if self._over:
            return
        self._over = True
        try:
            self.record()
        finally:
            self._release()
        self._report()
        if self.trace is not None:
            self.trace.finish(self)
        if self.in_xray:
            self._keep()

    def _release(self) -> None:
        if self.charge is not None:
            end_charge(self, self.charge)
        if self.answer is not None:
            reported = self.usage or self.answer.usage
            if reported is not self._believed:
                self.usage = None if reported is None else believe(reported, len(self.attempts))
            self.failure = self.failure or self.answer.failure
            self.answer.close()

    def _report(self) -> None:
        gateway, http, holder, attempts = self.gateway, self.http, self.http.holder, self.attempts
        answer, failure, last = self.answer, self.failure, attempts[-1] if attempts else None
        notes = self.fold_notes() if self.count_notes() else ()
        went_well = len(attempts) == 1 and not attempts[0].failure
        shown = log.isEnabledFor(logging.INFO)
        ended = Ended(
            gateway.wall(),
            gateway.clock() - self.started,
            http.id,
            self.door,
            self.model,
            last.upstream if last is not None else "",
            last.model if last is not None else "",
            answer.target.model if answer is not None else None,
            self.status,
            (failure.code or failure.kind) if failure is not None else "",
            self.first_s,
            self.usage,
            self.cost,
            self._cost_text,
            (holder.name or holder.id) if holder is not None else http.key_id,
            holder.team if holder is not None else None,
            http.headers.get("user-agent", ""),
            len(attempts),
            () if went_well else [(one.upstream, one.failure or "ok") for one in attempts],
            attempts[0].waited_s if went_well else sum([one.waited_s for one in attempts]),
            self.in_xray,
            notes,
            self._say_notes(notes) if notes and shown else {},
        )
        gateway.metrics.put(ended)
        gateway.traffic.put(ended)
        if not shown:
            return
        gateway.log.say(log, ended)
        if notes and log.isEnabledFor(logging.DEBUG):
            for note in self.notes[:MOST_PLACES]:  # later notes have no place
                log.debug(LogLine("note", {"id": http.id, "rank": note.rank, **to_builtins(note)}))

    def _say_notes(self, notes: Sequence[FoldedNote]) -> dict[str, object]:
        """For the request's line in the log."""
        return {"notes": self.count_notes(), "lost": say_lost(notes), "mended": self._say_mended(notes)}

    def _say_mended(self, notes: Sequence[FoldedNote]) -> str:
        """About the parts that were removed from the conversation or repaired in it (mission E4)."""
        if self.answer is not None and len(notes) == self.count_notes() <= MOST_PLACES:
            found = [row.first for row in notes if is_mended_turn(row.first)]
            if len(found) < 2:  # fast path: one note of each kind
                return f"{found[0].where}: {found[0].why}" if found else ""
        if self.answer is not None:
            found, count = self.answer.notes.read_mended_turns(MOST_PLACES, MOST_MENDED)
        else:
            found = [note for note in self.notes if is_mended_turn(note)]
            found, count = found[:MOST_MENDED], len(found)
        more = [f"and {count - MOST_MENDED} more"] if count > MOST_MENDED else []
        return "; ".join([f"{note.where}: {note.why}" for note in found] + more)

    def _keep(self) -> None:
        """For X-ray. Of a long request neither the bytes nor the values are kept."""
        asked, noted = self.client_request, self.answer.notes if self.answer is not None else self.notes
        raw = keep(self.raw) if asked is None and self.raw else None if asked is None else keep(asked.raw)
        request: Request | Callable[[], Request] | str | None = self.request if asked is None else asked.request
        if isinstance(raw, str):
            request, noted = raw, self.notes
        self.gateway.xray.put(
            Xray(
                id=self.http.id,
                time=self.gateway.wall(),
                door=self.door,
                dialect=self.dialect.name,
                path=self.http.path,
                model=self.model,
                upstream=self.attempts[-1].upstream if self.attempts else "",
                raw=raw,
                request=request,
                began=self.started,
                tries=[trim(attempt) for attempt in self.attempts],
                sent=self.sent,
                pieces=self._sent if len(self._sent) > 1 else [],
                loop=self.loop,
                noted=noted,
                status=self.status,
                seconds=round(self.gateway.clock() - self.started, 4),
            )
        )


def say_lost(notes: Sequence[FoldedNote]) -> str:
    """For the log: the folded notes of rank `lost` that are not about messages."""
    lost = [row for row in notes if row.rank == "lost" and not row.first.canonical.startswith("/messages/")]
    more = [f"and {len(lost) - MOST_MENDED} more"] if len(lost) > MOST_MENDED else []
    return "; ".join([str(row) for row in lost[:MOST_MENDED]] + more)


def read_refuse(http: HttpRequest) -> frozenset[Refusable]:
    """`x-dragoman-refuse: lost, altered`: the client wants an error instead of notes of these ranks and kinds."""
    known = http.facts.refuse
    if known is None:
        header = http.headers.get("x-dragoman-refuse", "")
        try:
            words = check_words(word.strip() for word in header.split(",") if word.strip())
        except ValueError as error:
            raise DecodeError(f"x-dragoman-{error}") from error
        known = http.facts.refuse = cast(frozenset[Refusable], words)
    return known


def _nanoseconds(seconds: float) -> int:
    return max(int(seconds * 1e9), 1)  # clients divide by it
