"""Message, Part and its kinds: what is said, as one ordered list per turn.

Every value is frozen and equal to another with the same content. `None` is "not said"; `()` and `""`
are "said to be empty".

`extras` files what only one dialect knows under that dialect's name. A key that starts with `~` in it is
spelling, not content: how the wire wrote something (a string or a list, this key or its older name).
Spelling lets a dialect write a value back exactly and is nothing to miss elsewhere; nor are the keys that `~silent`
lists (an item's id, a setting that a reply repeats).

`gc=False`: values hold JSON and other values, never themselves, so reference counting alone frees them.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Extras: TypeAlias = dict[str, dict[str, Any]]
Role: TypeAlias = Literal["system", "developer", "user", "assistant"]


class Cache(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A mark that says: the prompt up to here is worth caching."""

    ttl: str | None = None  # the dialect's own word: 5m, 1h, 30m, 12h
    extras: Extras = {}


class Seal(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Opaque state a model hands out and wants back byte for byte. It means something at its origin only."""

    origin: str  # the dialect that can read it
    value: str
    form: str = "signature"  # the origin's own kind: signature, redacted, encrypted, ...
    model: str | None = None  # who issued it, where known
    upstream: str | None = None


class Citation(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a piece of the answer comes from."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None  # the words of the source
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
    """The model's own words for no."""

    text: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    extras: Extras = {}


class Reasoning(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reasoning"):
    """What the model thought. The text may be empty while the seal is not."""

    text: str
    summary: bool = False  # a summary of the thought, not the thought
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
    """Sound, in or out. `id` refers to sound the model spoke earlier."""

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
    """What a tool answered. It stands in a user turn."""

    call_id: str
    parts: tuple["Part", ...] = ()
    name: str | None = None
    failed: bool | None = None
    freeform: bool = False  # answers a freeform call
    cache: Cache | None = None
    extras: Extras = {}


class Opaque(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="opaque"):
    """A whole part only one dialect knows, carried as it came."""

    dialect: str
    body: dict[str, Any]


Part: TypeAlias = Text | Refusal | Reasoning | Image | Document | Audio | Video | ToolCall | ToolResult | Opaque
Media: TypeAlias = Image | Document | Audio | Video


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One turn, or a piece of one: neighbours of the same role say the same as one longer turn."""

    role: Role
    parts: tuple[Part, ...]
    extras: Extras = {}
