"""Dialect: the record each dialect fills in."""

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from dragoman.dialects._services import CountCodec, EmbeddingsCodec, ModelsCodec, SpeechCodec
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject
from dragoman.model.events import Event
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.wire import WireReply, WireRequest

Pass: TypeAlias = Callable[[Request, Notes], Request]
What: TypeAlias = Literal["request", "reply", "stream", "failure"]
KeyStyle: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]  # bearer, or the name of a header


class StreamDecoder(Protocol):
    """Provider bytes -> events. `close` ends a stream that was cut with ReplyFailed."""

    def feed(self, piece: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class StreamEncoder(Protocol):
    """Events -> client bytes, legal to the last byte. After `close` nothing follows."""

    def feed(self, events: Iterable[Event]) -> bytes: ...
    def close(self) -> bytes: ...


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


class EncodeLoaded(Protocol):
    def __call__(self, request: Request, created: float) -> JsonObject: ...


class Dialect(Struct, frozen=True, kw_only=True):
    """`request`, where an encoder takes it, is what the client asked: some dialects echo it in their replies."""

    name: str
    title: str
    profile: Profile  # what any server of it takes, as data for the passes; rows of profiles.toml start from it
    legal: tuple[Pass, ...]  # what makes any Request sayable in it
    recognise: Callable[[JsonObject, What], int]  # 0 (not mine) to 100 (certainly mine), from one body or first frame

    decode_request: Callable[[WireRequest, Notes], Request]
    encode_request: Callable[[Request, Notes], WireRequest]
    decode_reply: Callable[[WireReply, Notes], Reply]
    encode_reply: EncodeReply
    stream_decoder: Callable[[Notes], StreamDecoder]
    stream_encoder: MakeStreamEncoder
    decode_failure: Callable[[WireReply], Failure]
    encode_failure: Callable[[Failure], WireReply]

    # its API
    doors: tuple[Door, ...] = ()
    other_bases: tuple[str, ...] = ()  # where servers of another dialect offer this one; clients may keep it in a path
    client_headers: tuple[str, ...] = ()  # of a request: only clients of this dialect send them
    client_paths: tuple[str, ...] = ()  # pieces of a path that only they ask for
    key_style: KeyStyle = "bearer"  # how they send their key
    put_model: Callable[[str, str], str] | None = None  # another model's name into a path; None: the body names it
    counts: CountCodec | None = None
    models: ModelsCodec | None = None
    embeddings: EmbeddingsCodec | None = None
    speech: SpeechCodec | None = None

    # headers
    carried_headers: tuple[str, ...] = ()  # of a client's request: a server of the same dialect gets them too
    default_headers: dict[str, str] = {}  # every request needs them; these are sent if the client says nothing
    rate_headers: tuple[str, ...] = ("x-ratelimit-",)  # of a response, by their beginning: how much is left
    request_id_header: str = "x-request-id"  # of a response

    # streams
    media_type: str
    start_mark: bytes = b""  # stands in the first frame of every stream
    end_mark: bytes = b""  # stands in the frame that ends every stream
    end_frame: bytes = b""  # that frame; some servers leave it out, and clients may wait for it
    ping: bytes = b""  # keeps a quiet stream open
    usage_option: tuple[str, str] | None = None  # a stream tells its usage only if asked: key of the body, key inside
    counts_first: bool = False  # its streams begin with how many tokens were read
    sse_query: str = ""  # a stream is one JSON array unless the query says this

    # replies
    dated: bool = False  # they say when they were made; encoders have no clock
    reply_id_prefix: str = ""
    call_id_prefix: str = "call_"
    seal_form: str = ""  # of its seals; "" is: it has none
    seals_calls: bool = False  # a call is sealed, and not the thought before it
    stores_replies: bool = False  # a later request may continue one by its id
    explains_finish: bool = False  # they have a place for why an answer ended
    searches_web: bool = False  # its maker's own server does so; servers of others mostly do not
    encode_loaded: EncodeLoaded | None = None  # the answer to a request without messages, which loads a model
