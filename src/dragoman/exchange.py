"""One exchange: a client's request on its way to a server, and the server's answer on its way back.

    request = read_request(dialect, wire, notes)                            # what the client asks, in our own form
    call = write_call(client_request, destination, notes, stream=False)     # path, headers and body to send
    answer = await send_corrected(call, send)                               # once more if a refusal says what is wrong
    reply = call.way_back.reply(read_reply(dialect, wire, notes))           # a whole answer, as the client asked for it
    events = StreamReader(dialect, notes, call.way_back).feed(piece)        # or a streamed one

Nothing is sent here. `convert` sends nothing; the gateway, the client and `dragoman verify` each have their own way to
send. All four use this module.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.answers.call_ids import FreshIds
from dragoman.answers.spelling import SpellingMender
from dragoman.dialects._base import Dialect
from dragoman.dialects._seals import without_side
from dragoman.errors import LossError, UpstreamError
from dragoman.jsontypes import JsonObject, dump_json, load_json, top_spans
from dragoman.known_turns.history import Hit
from dragoman.known_turns.write import Known, Written, add_taken, is_undone_apart, leaves_apart, write_known
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Locate, Note, Notes
from dragoman.passes.emulate import Undo
from dragoman.passes.prepare import KeptSettings, prepare
from dragoman.passes.profile import Profile
from dragoman.passes.rename import NOTHING
from dragoman.passes.thinking import ask_for_thoughts
from dragoman.way_back import InvalidAnswer, StreamReader, WayBack
from dragoman.wire import WireRequest

HOP = "x-dragoman-hop"  # counts the gateways on the way: a gateway that is its own upstream must notice (T41)
MOST_CORRECTIONS = 3  # of one request: a model may refuse several things, one after the other
T = TypeVar("T")


class ClientRequest(Struct, kw_only=True):
    """A client's request, as it came and in our own form."""

    dialect: Dialect
    request: Request
    decoded: Request | None = None  # as it was read from the body, if `request` is no longer that
    raw: bytes = b""  # the body as it came
    headers: dict[str, str] = {}  # those of the dialect
    notes: tuple[Note, ...] = ()  # of decoding it
    same_wire: bool = True  # whether `raw` still says what `request` says
    hops: int = 0  # gateways of ours it has been through
    known: Known | None = None  # its turns that came in an earlier request too
    kept: tuple[Request, KeptSettings] | None = None  # a request, and its settings if they came before
    locate: Locate | None = None  # finds places in the client's body, if that is not the body that was read
    id: str = ""  # of this request only; "" where nothing may depend on chance
    path: str = ""  # the plain path of its route; Gemini's with what its query says
    counted: bool = False  # its tokens are paid for: a stream is asked for its usage, also if the client did not ask

    @property
    def settings(self) -> KeptSettings | None:
        """Those of the request, if they came before."""
        return self.kept[1] if self.kept is not None and self.kept[0] is self.request else None

    def begin_notes(self, notes: Notes) -> None:
        """Notes from here on are about this request."""
        notes.begin("request", self.locate or self.dialect.locate_request, self.decoded or self.request)


class Destination(Struct, frozen=True, kw_only=True):
    """One model at one server, as far as the wire depends on it."""

    dialect: Dialect
    model: str
    profile: Profile
    asks_usage: bool = False  # a stream is asked to tell its usage


def make_destination(
    dialect: Dialect, model: str, profile: Profile, *, upstream: str, native: bool, stream_usage: bool
) -> Destination:
    """A model at one server, for clients that speak this dialect too (`native`: the request is changed as little as
    possible) or another one. `stream_usage`: the server may be asked for the usage of a stream.

    Seals go only to the server that made them (`upstream`). If the client wants several answers and the server gives
    one, the request was split before (`split_choices`)."""
    policy, option, taken = profile.policy, dialect.usage_option, profile.takes_extras
    if profile.policy_of("choices") == "emulate":
        policy = {**policy, "choices": "drop"}
    return Destination(
        dialect=dialect,
        model=model,
        profile=replace(profile, upstream=upstream, native=native, policy=policy),
        # Mistral refuses `stream_options`, and tells usage unasked.
        asks_usage=stream_usage and option is not None and (taken is None or option[0] in taken),
    )


def read_request(dialect: Dialect, wire: WireRequest, notes: Notes, locate: Locate | None = None) -> Request:
    """A client's request in our own form. `locate`: see ClientRequest."""
    notes.begin("request", locate or dialect.locate_request)
    return notes.stage(dialect.decode_request(wire, notes))


class UpstreamCall(Struct, kw_only=True):
    """A request as one server wants it, and the way back for its answer. Each attempt has a new one."""

    dialect: Dialect
    path: str
    body: bytes
    headers: dict[str, str]
    notes: Notes
    way_back: WayBack | None = None  # None: the answer stays as it is
    fresh_ids: FreshIds | None = None  # None: no call can come
    spelling: SpellingMender | None = None  # None: the client speaks another dialect than the server
    request: Request | None = None  # what the body says, in our own form
    opaque: bool = False  # the answer's body is not a reply: embeddings, sound
    as_is: bool = False  # the client's own bytes: the reply's bytes may go back as they are
    hides_usage: bool = False  # the client did not ask for the usage that comes
    learned: dict[str, object] = {}  # fields of a profile: what a refusal has taught about the model
    exchange: "Exchange | None" = None
    corrections_left: int = MOST_CORRECTIONS
    encoder_notes: tuple[int, int] = (0, 0)  # which of `notes` its encoder made: a corrected call is encoded anew
    write_long: "Callable[[], UpstreamCall] | None" = None  # if `request` lacks the turns that were known

    def correct(self, error: UpstreamError) -> "UpstreamCall | None":
        """The call to send instead of this one, if the error says what is wrong."""
        if self.write_long is not None:
            return self.write_long().correct(error)
        exchange, request, left = self.exchange, self.request, self.corrections_left - 1
        if exchange is None or request is None or left < 0:
            return None
        self.notes.resume_request()  # an answer may have been read in between
        if isinstance(error, InvalidAnswer):
            exchange.notes.forget(*self.encoder_notes)
            return exchange.encode(error.again, corrections_left=0, spent=error.reply.usage)
        from dragoman.learner import add_lesson, learn  # it is needed after a refusal only

        lesson = learn(error.failure, request, exchange.to.profile, exchange.notes)
        if lesson is None:
            return None
        exchange.notes.forget(*self.encoder_notes)
        if not lesson.undo.is_nothing():
            exchange = replace(exchange, undo=_combine(exchange.undo, lesson.undo))
        learned = add_lesson(self.learned, lesson.remember)
        return exchange.encode(lesson.request, corrections_left=left, learned=learned)

    def open_reader(self) -> "StreamReader":
        """For a streamed answer to this call."""
        return StreamReader(self.dialect, self.notes, self.way_back, self.fresh_ids, self.spelling)

    def take_reply(self, reply: Reply) -> Reply:
        """A whole answer to this call, as the client asked for it."""
        if self.fresh_ids is not None:
            reply = self.notes.stage(self.fresh_ids.reply(reply))
        if self.spelling is not None:
            reply = self.notes.stage(self.spelling.reply(reply))
        return reply if self.way_back is None else self.way_back.reply(reply)

    def accept(self, reply: Reply) -> Reply:
        """Takes an answer that does not have the expected form, because no better one came. A note says so."""
        way_back = self.way_back
        return reply if way_back is None else replace(way_back, asked=None).reply(reply)


async def _correct(call: UpstreamCall, error: UpstreamError) -> UpstreamCall | None:
    return call.correct(error)


async def send_corrected(
    call: UpstreamCall,
    send: Callable[[UpstreamCall], Awaitable[T]],
    keep: Callable[[UpstreamCall, Reply], T],
    correct: Callable[[UpstreamCall, UpstreamError], Awaitable[UpstreamCall | None]] = _correct,
    first: tuple[UpstreamCall, Reply] | None = None,
) -> T:
    """Sends a call. As long as the error says what to send instead, sends the corrected call. `keep` turns an earlier
    answer in the wrong form (`first`) into the result, if the second call for a better one fails. `correct`: a gateway
    corrects large requests outside of its event loop."""
    while True:
        try:
            return await send(call)
        except UpstreamError as error:
            corrected = await correct(call, error) if first is None else None
            if isinstance(error, InvalidAnswer):
                first = call, error.reply
            if corrected is None and first is not None:
                return keep(*first)
            if corrected is None:
                raise
            call = corrected


class Exchange(Struct, frozen=True, kw_only=True):
    """The facts that all calls for one client request at one destination share."""

    to: Destination
    notes: Notes
    undo: Undo
    stream: bool
    client_request: ClientRequest
    asked_ids: frozenset[str] | None = None  # of the calls in the client's request, if they were collected

    def encode(
        self,
        request: Request,
        *,
        corrections_left: int = MOST_CORRECTIONS,
        learned: dict[str, object] | None = None,
        spent: Usage | None = None,
        written: Written | None = None,
    ) -> UpstreamCall:
        """`spent`: the usage of an answer in the wrong form, if this call asks once more. `written`: the known turns,
        which `request` lacks."""
        to, undo, original = self.to, self.undo, self.client_request.request
        noted = len(self.notes)
        self.notes.write_for(to.dialect.locate_request)
        self.notes.sends = True
        wire = to.dialect.encode_request(self.notes.stage(request), self.notes)
        encoder_notes = (noted, len(self.notes))
        if written is not None:
            self.notes.write_for(written.put_into(wire.body, to.dialect))
        if self.stream and to.asks_usage:
            self._ask_for_usage(wire.body)
        body = dump_json(wire.body)
        fresh_ids: FreshIds | None = None
        if original.tools or undo.renames.taken:  # else no call can come
            fresh_ids = FreshIds(original, to.dialect.name, self.client_request.id, self.notes, self.find_taken())
        native = to.dialect is self.client_request.dialect
        return UpstreamCall(
            dialect=to.dialect,
            path=wire.path,
            body=without_side(body) if to.profile.native else body,  # other dialects do not say it anyway
            headers={**wire.headers, HOP: str(self.client_request.hops + 1)},
            notes=self.notes,
            way_back=self._make_way_back(request if corrections_left else None, spent),
            fresh_ids=fresh_ids,
            spelling=SpellingMender(to.dialect.name, to.dialect.reply_rules, self.notes) if native else None,
            request=request,
            learned=learned or {},
            exchange=self,
            corrections_left=corrections_left,
            encoder_notes=encoder_notes,
        )

    def _ask_for_usage(self, body: JsonObject) -> None:
        """Adds the option that makes the server send the usage of a stream, if its dialect has one."""
        if self.to.dialect.usage_option is None:
            return
        key, inside = self.to.dialect.usage_option
        options = body.get(key)
        body[key] = {**(options if type(options) is dict else {}), inside: True}
        if self.to.profile.early_usage and self.client_request.dialect.counts_first:
            body[key][self.to.profile.early_usage] = True

    def _make_way_back(self, request: Request | None, spent: Usage | None) -> WayBack | None:
        """None if the answer can stay as it is. `request`: the request to send once more if the answer has the wrong
        form."""
        profile = self.to.profile
        if not profile.think_tags and spent is None and self.undo.is_nothing():
            return None
        return WayBack(
            notes=self.notes,
            undo=self.undo,
            think_tags=profile.think_tags,
            think_opened=profile.think_opened,
            asked=request if self.undo.expected is not None else None,
            spent=spent,
        )

    def find_taken(self) -> set[str] | None:
        """The ids of the client's calls, if they are known without a look at all turns."""
        if self.asked_ids is not None:
            return set(self.asked_ids)
        known, asked = self.client_request.known, self.client_request.request
        return known.find_call_ids() if known is not None and asked.messages is known.messages else None

    def copy_bytes(self, client_request: ClientRequest, request: Request) -> UpstreamCall:
        """The client's own bytes, with the model's name as the only change."""
        dialect, model, known = self.to.dialect, self.to.model, client_request.known
        hit = known.hit if known is not None else None
        path, body = client_request.path, put_model(client_request.raw, model, client_request.request.model, hit)
        if dialect.put_model is not None:
            path = dialect.put_model(path, model)
        asked, fresh_ids = client_request.request, None
        hides_usage = self.stream and client_request.counted and self.to.asks_usage and not says_usage(asked, dialect)
        if hides_usage:
            body = ask_for_usage(body, dialect)
        if asked.tools:  # else no call can come
            salt = client_request.id if "~id" in dialect.reply_rules.wrong else ""  # elsewhere a call needs no id
            fresh_ids = FreshIds(asked, dialect.name, salt, self.notes, self.find_taken())
        return UpstreamCall(
            dialect=dialect,
            path=path,
            body=body if known is not None and known.history.clean else without_side(body),
            headers={**dialect.default_headers, **client_request.headers, HOP: str(self.client_request.hops + 1)},
            notes=self.notes,
            fresh_ids=fresh_ids,
            spelling=SpellingMender(dialect.name, dialect.reply_rules, self.notes),
            request=request,
            as_is=True,
            hides_usage=hides_usage,
            exchange=self,
        )


def write_call(
    client_request: ClientRequest, to: Destination, notes: Notes, *, stream: bool, corrections: int = MOST_CORRECTIONS
) -> UpstreamCall:
    """The client's request as its destination wants it: the client's own bytes if nothing has to change."""
    request = asked = client_request.request
    settings = client_request.settings
    if asked.model != to.model or (stream and not asked.stream):
        request = replace(asked, model=to.model, stream=stream or asked.stream)
    if asked.reasoning is not None:
        request, settings = ask_for_thoughts(request, client_request.dialect.profile, to.profile), None
    writer = CallWriter(client_request, request, settings, to, notes, stream, corrections)
    known = client_request.known
    if known is not None and leaves_apart(known, request, to.profile):  # fast path: known turns
        call = writer.write_short(known)
        if call is not None:
            return call
    return writer.write()


class CallWriter(Struct, frozen=True):
    """Writes one call of a client's request."""

    client_request: ClientRequest
    request: Request
    settings: KeptSettings | None  # those of the request, if they came before
    to: Destination
    notes: Notes
    stream: bool
    corrections: int

    def write(self) -> UpstreamCall:
        """The long way: all turns go through the passes."""
        self.client_request.begin_notes(self.notes)
        prepared = prepare(self.request, self.to.profile, self.notes, self.settings)
        exchange = self._exchange(prepared.undo, prepared.asked_ids)
        if self._is_own(prepared.request, self.request):  # fast path: own bytes
            return exchange.copy_bytes(self.client_request, prepared.request)
        return exchange.encode(prepared.request, corrections_left=self.corrections)

    def write_short(self, known: Known) -> UpstreamCall | None:
        """The call, made without the known turns. None if the long way would give other bytes."""
        start = len(self.notes)
        self.client_request.begin_notes(self.notes)
        call = self._write_short(known, known.leave_out(self.request))
        if call is None:
            self.notes.forget(start, len(self.notes))
        elif not call.as_is:
            end = len(self.notes)
            call.write_long = lambda: self._write_long(start, end)
        return call

    def _write_short(self, known: Known, short: Request) -> UpstreamCall | None:
        try:
            prepared = prepare(short, self.to.profile, self.notes)
        except LossError:
            return None
        if not is_undone_apart(prepared.undo):
            return None
        written = write_known(known, self.request, self.to, self.to.dialect, self.to.profile)
        if written is None:
            return None
        exchange = self._exchange(add_taken(prepared, known))
        if written.same and self._is_own(prepared.request, short):
            return exchange.copy_bytes(self.client_request, self.request)
        try:
            return exchange.encode(prepared.request, corrections_left=self.corrections, written=written)
        except LossError:
            return None

    def _write_long(self, start: int, end: int) -> UpstreamCall:
        self.notes.forget(start, end)
        return self.write()

    def _exchange(self, undo: Undo, asked_ids: frozenset[str] | None = None) -> Exchange:
        return Exchange(
            to=self.to,
            notes=self.notes,
            undo=undo,
            stream=self.stream,
            client_request=self.client_request,
            asked_ids=asked_ids,
        )

    def _is_own(self, prepared: Request, request: Request) -> bool:
        """Whether the client's own bytes can be sent unchanged."""
        asked, to = self.client_request, self.to
        if not asked.same_wire or not to.profile.native or to.profile.think_tags:
            return False
        if asked.request.model == "" and to.model != "" and to.dialect.put_model is None:
            return False  # the body names no model: it can be named only in the path
        return prepared is request or prepared == request


def write_wire(
    request: Request, profile: Profile | None, encode: Callable[[Request, Notes], WireRequest], notes: Notes
) -> WireRequest:
    """Writes a request whose answer we do not read: for a conversion, or to count its tokens. Without a profile, no
    pass makes it legal."""
    if profile is not None:
        request = prepare(request, profile, notes).request
    return encode(request, notes)


def put_model(data: bytes, model: str, old: str, hit: Hit | None = None) -> bytes:
    """Replaces the model's name and keeps every other byte. What stands before a `/` in front of the name stays too.
    `hit`: what is known of the body, so that not all of it is searched."""
    spans = {} if model == old else top_spans(data if hit is None else hit.short)
    if "model" not in spans:
        return data
    start, end = spans["model"] if hit is None else hit.in_whole(*spans["model"])
    name = load_json(data[start:end])
    if name != old and not (type(name) is str and name.endswith(f"/{old}")):
        return data
    return data[:start] + dump_json(name.removesuffix(old) + model) + data[end:]


def says_usage(request: Request, dialect: Dialect) -> bool:
    """Whether a client of this dialect has asked for the usage of its stream."""
    if dialect.usage_option is None:
        return True
    key, inside = dialect.usage_option
    options = request.extras.get(dialect.name, {}).get(key)
    return isinstance(options, dict) and options.get(inside) is True


def ask_for_usage(data: bytes, dialect: Dialect) -> bytes:
    """The same body, which asks for the usage of its stream. Every other byte stays."""
    if dialect.usage_option is None:
        return data
    key, inside = dialect.usage_option
    span = top_spans(data).get(key) if key.encode() in data else None
    if span is None:
        start = data.index(b"{") + 1
        return data[:start] + dump_json({key: {inside: True}})[1:-1] + b"," + data[start:]
    options = load_json(data[span[0] : span[1]])
    asked = {**(options if type(options) is dict else {}), inside: True}
    return data[: span[0]] + dump_json(asked) + data[span[1] :]


def _combine(first: Undo, second: Undo) -> Undo:
    """The Undo of the first call, with the changes that a lesson added. Names were made legal in the first call."""
    changed = {f: getattr(second, f) for f in Undo.__struct_fields__ if getattr(second, f) != getattr(Undo(), f)}
    changed |= {"custom": first.custom | second.custom, "stops": first.stops + second.stops}
    return replace(first, **{**changed, "renames": first.renames if first.renames != NOTHING else second.renames})
