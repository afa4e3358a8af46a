"""Decode, passes and encode in one call: the library's face.

    converted = convert(body, to="openai_chat")          # a request
    converted = convert_reply(body, to="anthropic")      # an answer
    for piece in convert_stream(pieces, to="gemini"): …  # an answer in pieces
    converted = convert_failure(body, to="ollama")       # an error

Bodies are bytes, text or plain JSON objects; they are never changed in place. `source` is recognised from the body
unless it is said. What could not be carried is in `.notes`; `refuse={"dropped"}` raises LossError instead.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import NAMES, find_dialect
from dragoman.dialects._base import Dialect, What
from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.fields import drop_spellings, refuse_spellings
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import Json, JsonObject, copy_json, dump_json, kind_of, load_json
from dragoman.model.request import Request
from dragoman.notes import Note, Notes, Refusable
from dragoman.passes.profile import Feature, Policy, Profile
from dragoman.reasoning_state.carry import StateSource, carry_reply
from dragoman.reasoning_state.envelope import DEFAULT_KEY, StateKey
from dragoman.reasoning_state.take_back import take_back_state
from dragoman.wire import WireReply, WireRequest

if TYPE_CHECKING:
    from dragoman.own_body import OwnBody

Body: TypeAlias = bytes | str | JsonObject
AUTO = "auto"


class Converted(Struct, frozen=True, kw_only=True, dict=True):
    """A converted body, and what it takes to send it."""

    body: Json
    noted: Notes = Notes()
    source: str  # the dialect it came in
    to: str
    path: str = ""  # of a request
    headers: dict[str, str] = {}
    status: int = 200  # of a reply or a failure

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Notes on what was lost or changed. Their places are looked up at the first use: that can take longer than the
        conversion itself."""
        return tuple(self.noted)

    def json(self) -> bytes:
        """The body as it goes over the wire."""
        return dump_json(self.body)


def convert(
    request: Body,
    *,
    to: str,
    source: str = AUTO,
    path: str = "",
    headers: dict[str, str] | None = None,
    refuse: Iterable[Refusable] = (),
    mend: bool = True,
    state_key: StateKey = DEFAULT_KEY,
) -> Converted:
    """A request in another dialect. `mend=False` skips the passes that make it legal there. `state_key`: the one that
    `convert_reply` had for the answers in the conversation, which carry reasoning state (decision 3)."""
    # Imported here: the passes are loaded when they are first needed.
    from dragoman.exchange import read_request, write_wire
    from dragoman.passes.thinking import ask_for_thoughts
    from dragoman.passes.turns import join_pieces

    there = find_dialect(to)
    here, own = _own_request(request, source)
    refuse_spellings(own.values)
    notes = Notes(refuse)
    asked = read_request(here, WireRequest(body=own.values, path=path, headers=_lower(headers)), notes)
    if own.tools_text and not len(notes):
        own.remember(here, asked)
    notes.copies_tools = True  # they may be remembered, and the caller may change what it gets
    if here.keeps_pieces:
        asked = notes.stage(join_pieces(asked, notes))
    if here.slots is not None:
        asked = notes.stage(take_back_state(asked, here.slots, state_key, notes))
    profile = conversion_profile(there, native=here is there) if mend else None
    if profile is not None:
        asked = ask_for_thoughts(asked, here.profile, profile)
    notes.write_for(there.locate_request)
    wire = write_wire(asked, profile, there.encode_request, notes)
    return Converted(
        body=wire.body,
        path=wire.path,
        headers=wire.headers,
        noted=notes,
        source=here.name,
        to=there.name,
    )


def make_legal(request: Request, dialect: Dialect, notes: Notes, *, native: bool = False) -> Request:
    """The request as any server of a dialect takes it. `native`: it came in this dialect."""
    from dragoman.passes.prepare import legalise

    return legalise(request, conversion_profile(dialect, native=native), notes)


_profiles: dict[tuple[str, bool], Profile] = {}


def conversion_profile(dialect: Dialect, *, native: bool = False) -> Profile:
    """The dialect's profile for a request that is only written, not sent by us; native: it came in the same dialect."""
    found = _profiles.get((dialect.name, native))
    if found is None:
        found = _profiles[dialect.name, native] = _one_way(dialect, native=native)
    return found


def _one_way(dialect: Dialect, *, native: bool) -> Profile:
    """The profile without what needs us in the answer: a conversion cannot cut an answer at a stop sequence, or join
    several answers."""
    profile = dialect.profile
    policy: dict[Feature, Policy] = {**profile.policy, "stop": "drop", "choices": "drop"}
    return replace(
        profile,
        native=native,
        maker=True,
        takes_older=True,
        searches="yes" if dialect.searches_web else "no",
        mcp=dialect.connects_mcp,
        policy=policy,
    )


def convert_reply(
    reply: Body,
    *,
    to: str,
    source: str = AUTO,
    refuse: Iterable[Refusable] = (),
    state_key: StateKey = DEFAULT_KEY,
) -> Converted:
    """An unstreamed answer in another dialect."""
    from dragoman.answers.mcp_calls import translate_calls
    from dragoman.way_back import open_carrier, read_reply

    body = _own(reply)
    drop_spellings(body)
    here, there = _dialects(source, to, body, "reply")
    notes = Notes(refuse)
    answer = notes.stage(translate_calls(read_reply(here, WireReply(body=body), notes), there.name))
    carrier = open_carrier(here, there, StateSource(), state_key)
    wire = there.encode_reply(
        notes.stage(carry_reply(answer, carrier, notes)) if carrier is not None else answer, notes
    )
    return Converted(body=wire.body, headers=wire.headers, noted=notes, source=here.name, to=there.name)


def convert_failure(
    failure: Body, *, to: str, source: str = AUTO, status: int = 400, headers: dict[str, str] | None = None
) -> Converted:
    """An error in another dialect, with the status to send it under."""
    body = _own(failure)
    here, there = _dialects(source, to, body, "failure")
    wire = there.encode_failure(here.decode_failure(WireReply(body=body, status=status, headers=_lower(headers))))
    return Converted(body=wire.body, headers=wire.headers, status=wire.status, source=here.name, to=there.name)


class StreamConverter:
    """Bytes of one dialect's stream in, bytes of another's out, as they come. After `close` nothing follows."""

    def __init__(
        self,
        source: str,
        to: str,
        *,
        refuse: Iterable[Refusable] = (),
        request: Request | None = None,
        state_key: StateKey = DEFAULT_KEY,
    ):
        from dragoman.answers.mcp_calls import McpStream
        from dragoman.way_back import StreamReader, open_carrier

        self.notes = Notes(refuse)
        self.source, self.to = find_dialect(source), find_dialect(to)
        self._reader = StreamReader(self.source, self.notes)
        may_call = self.source is not self.to and self.source.connects_mcp and self.to.connects_mcp
        self._mcp = McpStream(self.to.name) if may_call else None
        self._carrier = open_carrier(self.source, self.to, StateSource(), state_key)
        if self._carrier is not None:
            self._carrier.stage(self.notes)
        self._encoder = self.to.stream_encoder(self.notes, request)
        if self.to.writes_runs:
            self._reader.join()

    @property
    def failure(self) -> Failure | None:
        """The failure that ended the stream, if it did not end well."""
        return self._reader.failure

    def feed(self, piece: bytes) -> bytes:
        events = self._reader.feed(piece)
        if self._mcp is not None:
            events = self._mcp.feed(events)
        if events and self._carrier is not None:
            events = self._carrier.feed(events)
        return self._encoder.feed(events) if events else b""

    def close(self) -> bytes:
        """The last bytes. A stream that was cut ends with an error in the target's dialect, never with a success."""
        events = self._reader.close()
        if self._mcp is not None:
            events = self._mcp.feed(events)
        if self._carrier is not None:
            events = self._carrier.feed(events)
        return self._encoder.feed(events) + self._encoder.close()


def convert_stream(
    pieces: Iterable[bytes],
    *,
    to: str,
    source: str = AUTO,
    refuse: Iterable[Refusable] = (),
    notes: Notes | None = None,
    state_key: StateKey = DEFAULT_KEY,
) -> Iterator[bytes]:
    """A streamed answer in another dialect, piece by piece. Pass `notes` to read them afterwards."""
    waiting, converter = b"", None
    for piece in pieces:
        waiting += piece
        if converter is None:
            if source == AUTO:
                frame = first_frame(waiting)
                if frame is None:
                    continue
                source = recognise(frame, "stream").name
            converter = StreamConverter(source, to, refuse=refuse, state_key=state_key)
            if notes is not None:
                converter.notes.share(notes)
        out = converter.feed(waiting)
        waiting = b""
        if out:
            yield out
    if converter is None:
        raise DecodeError("not a stream of any dialect: it has no frame that is a JSON object")
    if out := converter.close():
        yield out


def recognise(body: JsonObject, what: What) -> Dialect:
    """The dialect a body is in; a DecodeError when none or two could be meant."""
    scores = sorted(((find_dialect(name).recognise(body, what), name) for name in NAMES), reverse=True)
    best, name = scores[0]
    if best == 0:
        keys = ", ".join(list(body)[:6]) or "none"
        raise DecodeError(f"not a {what} of any dialect (its keys: {keys})")
    if scores[1][0] == best:
        raise DecodeError(f"could be {name} or {scores[1][1]}: say which")
    return find_dialect(name)


def first_frame(data: bytes) -> JsonObject | None:
    """The first JSON object of a stream, whatever its framing; None while there is none yet."""
    text = data.lstrip()
    if text[:1] == b"[":  # Gemini's array
        text = text[1:].lstrip()
        return _first_object(text)
    if text[:1] == b"{":
        return _first_object(text)
    for frame in SseDecoder().feed(data):
        try:
            value = load_json(frame.data)
        except DecodeError:
            continue
        if type(value) is dict:
            return value
    return None


def _first_object(text: bytes) -> JsonObject | None:
    """The first whole object at the start of a text."""
    depth, inside, escaped = 0, False, False
    for i, char in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif char == 0x5C:
                escaped = True
            elif char == 0x22:
                inside = False
        elif char == 0x22:
            inside = True
        elif char == 0x7B:
            depth += 1
        elif char == 0x7D:
            depth -= 1
            if depth == 0:
                value = load_json(text[: i + 1])
                return value if type(value) is dict else None
    return None


def _own(body: Body) -> JsonObject:
    """The body as objects of our own; decoders take them apart."""
    value = load_json(body) if isinstance(body, bytes | str) else copy_json(body)
    if type(value) is not dict:
        raise DecodeError(f"expected object, found {kind_of(value)}")
    return value


def _own_request(body: Body, source: str) -> "tuple[Dialect, OwnBody]":
    """A request's dialect, and its body as objects of our own."""
    from dragoman.own_body import OwnBody, take_object, take_text

    whole = body if type(body) is dict else None
    if source == AUTO and whole is None:
        whole = _own(body)
    here = find_dialect(source) if source != AUTO else recognise(whole or {}, "request")
    if type(body) is dict:
        return here, take_object(body, here)
    own = take_text(body, here) if isinstance(body, bytes | str) else None
    return here, OwnBody(_own(body)) if own is None else own


def _lower(headers: dict[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}


def _dialects(source: str, to: str, body: JsonObject, what: What) -> tuple[Dialect, Dialect]:
    there = find_dialect(to)  # first, so that a misspelled target is reported before anything about the body
    return (recognise(body, what) if source == AUTO else find_dialect(source)), there
