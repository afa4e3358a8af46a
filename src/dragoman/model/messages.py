"""Message, Part and its kinds: the content of a turn as one ordered list.

Every value is frozen, and two values with the same content are equal. `None` means "absent"; `()` and `""` mean
"present and empty".

`extras` keeps what only one dialect knows, under that dialect's name. A key in it that starts with `~` is spelling, not
content: how the wire wrote a value (as a string or a list, under this key or its older name). With it a dialect writes
the value back exactly. Another dialect loses nothing without it. The same holds for the keys that `~silent` lists (an
item's id, a setting that a reply repeats).

`gc=False`: values contain JSON and other values but never themselves, so reference counting alone frees them.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Extras: TypeAlias = dict[str, dict[str, Any]]
Role: TypeAlias = Literal["system", "developer", "user", "assistant"]

# Keys of spelling that several modules read.
BLANK = "~blank"  # spelling: keys of a turn with an empty value, as SDKs and gateways print them
SILENT = "~silent"  # spelling: extras that mean nothing in other dialects, so that dropping them needs no note
# The key under which arguments that are not a JSON object are kept as text, so that no call becomes empty.
RAW = "_raw"


class Cache(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A mark in the prompt: the provider should cache everything up to here."""

    ttl: str | None = None  # the dialect's own word: 5m, 1h, 30m, 12h
    extras: Extras = {}


class Seal(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Opaque state that a model sends and needs back byte for byte. Only its origin can use it."""

    origin: str  # the dialect that can read it
    value: str
    form: str = "signature"  # the origin's own kind: signature, redacted, encrypted, ...
    model: str | None = None  # that issued it, where known
    upstream: str | None = None


class Citation(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The source of a piece of the answer."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None  # the quoted words of the source
    start: int | None = None  # the span in the answer's own text, in code points
    end: int | None = None
    extras: Extras = {}


class TokenLogprob(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None
    top: tuple["TokenLogprob", ...] | None = None
    extras: Extras = {}


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="text"):
    text: str
    citations: tuple[Citation, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    seal: Seal | None = None  # Gemini signs text parts too
    cache: Cache | None = None
    extras: Extras = {}


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="refusal"):
    """The model's own words when it refuses."""

    text: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    extras: Extras = {}


class Reasoning(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reasoning"):
    """The model's reasoning. The text may be empty while there is a seal."""

    text: str
    summary: bool = False  # a summary instead of the reasoning itself
    seal: Seal | None = None
    extras: Extras = {}


class Image(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="image"):
    """Exactly one of data (base64), url, file_id."""

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    detail: str | None = None  # low, high, auto, original
    seal: Seal | None = None
    cache: Cache | None = None
    extras: Extras = {}


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="document"):
    """A file to read: exactly one of data (base64), text (plain), url, file_id."""

    data: str | None = None
    text: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    name: str | None = None  # file name or title
    cache: Cache | None = None
    extras: Extras = {}


class Audio(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="audio"):
    """Sound, in or out. `id` refers to an earlier spoken answer of the model."""

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    id: str | None = None
    media_type: str | None = None  # audio/wav, audio/mpeg, ...
    transcript: str | None = None
    cache: Cache | None = None
    extras: Extras = {}


class Video(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="video"):
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    extras: Extras = {}


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="tool_call"):
    id: str
    name: str
    arguments: str  # the model's own JSON text, even when it is not valid JSON; free text if freeform
    freeform: bool = False  # a call of a CustomTool
    seal: Seal | None = None
    cache: Cache | None = None
    extras: Extras = {}


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="tool_result"):
    """The result of a tool call. It stands in a user turn."""

    call_id: str
    parts: tuple["Part", ...] = ()
    name: str | None = None
    failed: bool | None = None
    freeform: bool = False  # answers a freeform call
    cache: Cache | None = None
    extras: Extras = {}


class Opaque(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="opaque"):
    """A whole part that only one dialect knows, carried unchanged."""

    dialect: str
    body: dict[str, Any]


Part: TypeAlias = Text | Refusal | Reasoning | Image | Document | Audio | Video | ToolCall | ToolResult | Opaque
Media: TypeAlias = Image | Document | Audio | Video


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One turn, or a piece of one: neighbours with the same role mean the same as one longer turn."""

    role: Role
    parts: tuple[Part, ...]
    extras: Extras = {}
