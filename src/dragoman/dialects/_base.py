"""Dialect: the record that each dialect fills in."""

from collections.abc import Callable, Iterable
from re import Pattern
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw, Struct

from dragoman.dialects._note_places import same_place
from dragoman.dialects._services import CountCodec, EmbeddingsCodec, ModelsCodec, SpeechCodec
from dragoman.failure import Failure
from dragoman.fields import ReplyRules
from dragoman.framing.templates import LearntDelta
from dragoman.jsontypes import JsonObject
from dragoman.model.events import Event
from dragoman.model.messages import Message
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Locate, Notes
from dragoman.passes.profile import Profile
from dragoman.reasoning_state.carry import StateSlots
from dragoman.wire import WireReply, WireRequest

# Headers that tell a client its limits. Many servers have taken over OpenAI's names.
OPENAI_QUOTA = (
    *("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    *("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)
What: TypeAlias = Literal["request", "reply", "stream", "failure"]
KeyStyle: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]  # bearer, or the name of a header


class StreamDecoder(Protocol):
    """Turns an upstream's bytes into events. `close` ends a cut stream with ReplyFailed."""

    irregular: bool  # some bytes so far are not what clients of the dialect can read
    finishing: bool  # the reason to end has come, but not yet the end of every part
    holds: bool  # bytes have come whose event is still to be given: it will be the next one
    joins: bool  # set by the reader: deltas that come together may be given as a TextRun

    def feed(self, piece: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...
    def learnt(self) -> LearntDelta | None:
        """The part that the next frame adds to, if it is like the template: then the decoder need not read it."""


class StreamEncoder(Protocol):
    """Turns events into bytes for a client. `close` gives the last bytes, also of a cut stream."""

    def feed(self, events: Iterable[Event]) -> bytes: ...
    def close(self) -> bytes: ...


WritePieces: TypeAlias = Callable[[str, list[bytes]], bytes]  # a text, and its pieces as in a TextRun -> frames


class ReadTurns(Protocol):
    def __call__(self, data: bytes | Raw, *, packed: bool = False) -> tuple[Message, ...] | None:
        """`packed`: the list is MessagePack, not JSON."""


class TextEncoder(StreamEncoder, Protocol):
    def open_text(self, index: int) -> WritePieces | None:
        """Writes the next pieces of this part, as long as no other event comes. None if it must see the events."""


@runtime_checkable
class LateEncoder(StreamEncoder, Protocol):
    """An encoder that writes the end of something later than servers do."""

    def flush(self) -> bytes: ...


@runtime_checkable
class CountingEncoder(StreamEncoder, Protocol):
    """An encoder whose events have numbers."""

    def count_on(self, frames: bytes) -> None:
        """The client has these frames of a server. The next event has the number behind the last one's."""


class EncodeReply(Protocol):
    def __call__(self, reply: Reply, notes: Notes, request: Request | None = None) -> WireReply: ...


class MakeStreamEncoder(Protocol):
    def __call__(self, notes: Notes, request: Request | None = None) -> StreamEncoder: ...


WritePath: TypeAlias = Callable[[dict[str, str], str], str]  # groups of a pattern, and the query -> what decoders read


class Door(Struct, frozen=True, kw_only=True):
    """One path of a dialect's API, as its clients call it."""

    path: str  # plain, or a pattern with (?P<name>...) groups
    methods: tuple[str, ...] = ("POST",)
    serves: str = "conversation"  # what a request there asks for: a name in HANDLERS of gateway/app.py
    name: str = ""  # of the door in logs and metrics; "" is the dialect's name
    public: bool = False  # needs no key
    write_path: WritePath | None = None


class PlainRequest(Struct, frozen=True):
    """A request of texts alone with usual settings, without its texts. Equal ones go the same way."""

    model: str
    roles: tuple[str, ...]  # as the wire says them
    streamed: bool
    settings: tuple[object, ...]
    max_output: int | None


class PlainReply(Struct, frozen=True):
    """A reply of texts alone, with nothing that clients of its dialect could not read."""

    usage: Usage | None


class EncodeLoaded(Protocol):
    def __call__(self, request: Request, created: float) -> JsonObject: ...


class TimeKeys(Struct, frozen=True, kw_only=True):
    """The keys under which a reply says how long it took, in nanoseconds."""

    total: str
    reading: str  # until the first word
    writing: str  # from the first word to the last
    loading: str


class KeptState(Struct, frozen=True, kw_only=True):
    """A key of a request that names something its server keeps. Any other server would answer without it."""

    key: str
    advice: str  # what the client can do instead
    extras: dict[str, JsonObject] = {}  # of the refusal: the words that clients look for
    is_name: Callable[[object], bool] = bool  # whether a value names something


class Dialect(Struct, frozen=True, kw_only=True):
    """All that the rest of the code needs to know about a dialect. Encoders of replies get the client's `request`,
    because some dialects repeat it in their replies."""

    name: str
    title: str
    profile: Profile  # what its servers accept, as data for the passes; rows of profiles.toml start from it
    recognise: Callable[[JsonObject, What], int]  # 0 (not mine) to 100 (certainly mine), from one body or first frame

    decode_request: Callable[[WireRequest, Notes], Request]
    encode_request: Callable[[Request, Notes], WireRequest]
    decode_reply: Callable[[WireReply, Notes], Reply]
    encode_reply: EncodeReply
    stream_decoder: Callable[[Notes], StreamDecoder]
    stream_encoder: MakeStreamEncoder
    decode_failure: Callable[[WireReply], Failure]
    encode_failure: Callable[[Failure], WireReply]
    locate_request: Locate = same_place  # where a place of a canonical request is in the body it was read from
    locate_reply: Locate = same_place

    # its API
    messages_key: str = "messages"  # of a request
    instructions_key: str = ""  # of a request, if they have a key of their own
    # Takes both out of a body: each entry of the list is one message. None: they cannot be read without the rest.
    decode_turns: Callable[[JsonObject], tuple[Message, ...]] | None = None
    # The keys of a list of tools, the usual one first; () if it is not read by itself, without the rest of the body.
    tools_keys: tuple[str, ...] = ()
    # Whether more was read of a request's tools than that list gives alone.
    has_other_tools: Callable[[Request], bool] = lambda request: False
    # The list of turns, read from its text in one step; None: one of them is unusual.
    read_turns: ReadTurns | None = None
    # A request of which nothing is unusual, read in one step; None: it must be read key by key.
    read_plain_request: Callable[[bytes], Request | None] | None = None
    look_at_request: Callable[[bytes], PlainRequest | None] | None = None  # the same without its texts
    made_ids: str = ""  # how the ids begin that are made for calls without one
    kept_state: tuple[KeptState, ...] = ()
    naming_keys: tuple[str, ...] = ()  # inside of tools and parts: their values are ids of things that its servers keep
    doors: tuple[Door, ...] = ()
    other_bases: tuple[str, ...] = ()  # paths under which other servers offer this dialect; clients may keep them
    client_headers: tuple[str, ...] = ()  # request headers that only clients of this dialect send
    client_paths: tuple[str, ...] = ()  # pieces of a path that only these clients use
    key_style: KeyStyle = "bearer"  # how clients send their key
    keeps_pieces: bool = False  # its clients keep a message for each chunk of a stream
    put_model: Callable[[str, str], str] | None = None  # writes a model into a path; None: the body names it
    counts: CountCodec | None = None
    models: ModelsCodec | None = None
    embeddings: EmbeddingsCodec | None = None
    speech: SpeechCodec | None = None

    # headers
    any_content_type: bool = False  # its servers do not look at it, and its clients send a form's
    carried_headers: tuple[str, ...] = ()  # request headers that we pass on to a server of the same dialect
    default_headers: dict[str, str] = {}  # required headers, sent if the client sends none
    rate_headers: tuple[str, ...] = ("x-ratelimit-",)  # prefixes of response headers that tell the remaining quota
    # The names of the headers that tell a client its own limits: limit, rest and reset of requests, then of tokens.
    quota_headers: tuple[str, str, str, str, str, str] = OPENAI_QUOTA
    dates_quota: bool = False  # the reset is a time, not a number of seconds
    request_id_header: str = "x-request-id"  # of a response

    # streams
    media_type: str
    start_mark: bytes = b""  # is in the first frame of every stream
    is_end: Callable[[bytes], bool] | None = None  # whether the data of a frame ends the stream; None: no frame does
    end_words: tuple[bytes, ...] = ()  # one of them is in such a frame: others need not be read
    end_frame: bytes = b""  # the last frame, for clients that wait for it when a server leaves it out
    ping: bytes = b""  # keeps a quiet stream open
    usage_option: tuple[str, str] | None = None  # a stream has usage only with it: key of the body, key inside
    is_usage: Callable[[bytes], bool] | None = None  # whether the data of a frame is there only because of that option
    usage_mark: Pattern[bytes] | None = None  # is in such a frame: others need not be read
    counts_first: bool = False  # its streams begin with the number of input tokens
    write_late: Callable[[str, str], bytes] | None = None  # a header known at the end; None: an SSE comment
    writes_runs: bool = False  # its encoder is a TextEncoder and writes each piece of a TextRun by itself
    sse_query: str = ""  # without this query a stream is one JSON array

    # replies
    look_at_reply: Callable[[bytes], PlainReply | None] | None = None  # a quick look; None: it must be read
    read_usual_reply: Callable[[bytes], Reply | None] | None = None  # in one step; None: it is read key by key
    reply_rules: ReplyRules = ReplyRules()
    reply_keys: tuple[str, ...] = ()  # one of them is in the body of every reply: a body without them may be an error
    # Why a whole reply is no answer, for clients of other dialects: it failed, or its server still works on it.
    find_failure: Callable[[JsonObject], Failure | None] | None = None
    timed: TimeKeys | None = None  # replies say how long they took
    dated: bool = False  # replies have a time, which encoders cannot know: they have no clock
    reply_ids: bool = True  # replies have an id
    reply_id_prefix: str = ""
    call_id_prefix: str = "call_"
    seal_form: str = ""  # the form of its seals; "" if it has none
    slots: StateSlots | None = None  # where its clients keep the state of other vendors' models; None: nowhere
    keeps_seals: bool = False  # its clients send the seals of every dialect back
    repeats_call_ids: bool = True  # its clients send the ids of calls back
    seals_calls: bool = False  # the seal is on the call, not on the thought before it
    stores_replies: bool = False  # a later request can continue a reply by its id
    explains_finish: bool = False  # replies can have a text that says why the answer ended
    connects_mcp: bool = False  # the vendor's own server connects to MCP servers that a request names
    searches_web: bool = False  # the vendor's own server can search the web; other servers mostly cannot
    encode_loaded: EncodeLoaded | None = None  # the answer to a request without messages, which loads a model
