"""Request, Tool, ToolChoice: the canonical question."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dragoman.model.messages import Cache, Extras, Message


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="function"):
    """A function the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None  # JSON Schema
    strict: bool | None = None
    cache: Cache | None = None
    extras: Extras = {}


class CustomTool(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="custom"):
    """A tool that takes free text. A grammar may restrict the text."""

    name: str
    description: str | None = None
    syntax: str | None = None  # lark, regex; None is plain text
    grammar: str | None = None
    extras: Extras = {}


class ServerTool(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="server"):
    """A tool that only one dialect knows, carried unchanged. Mostly the provider runs it itself."""

    dialect: str
    body: dict[str, Any]


AnyTool: TypeAlias = Tool | CustomTool | ServerTool


class ToolChoice(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """auto: the model may call; none: it must not; required: it must. `names`, if given, are the only allowed tools."""

    mode: Literal["auto", "none", "required"]
    names: tuple[str, ...] | None = None
    extras: Extras = {}


class OutputFormat(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The form of the answer's text. Only `json_schema` has a `schema`."""

    type: Literal["text", "json", "json_schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    extras: Extras = {}


class ReasoningSetting(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How much the model shall think. Each field is the way of some dialect; model/effort.py converts between them."""

    mode: Literal["on", "off", "auto"] | None = None  # auto: the model decides, guided by effort
    effort: str | None = None  # minimal, low, medium, high, xhigh, max
    budget: int | None = None  # tokens
    show: bool | None = None  # whether the answer contains the reasoning, or a summary of it
    extras: Extras = {}


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Every field here is known to two dialects or more. Everything else is in extras."""

    model: str
    messages: tuple[Message, ...] = ()  # including system text, as turns in its place
    tools: tuple[AnyTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    stream: bool | None = None

    max_output: int | None = None  # tokens, reasoning included
    stop: tuple[str, ...] | None = None
    choices: int | None = None  # number of answers
    output: OutputFormat | None = None
    reasoning: ReasoningSetting | None = None
    modalities: tuple[str, ...] | None = None  # text, audio, image

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    verbosity: str | None = None

    user: str | None = None  # an id of the end user, for the provider's abuse checks
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    store: bool | None = None
    cache: Cache | None = None  # for the request as a whole: the provider chooses the places
    cache_key: str | None = None
    extras: Extras = {}
