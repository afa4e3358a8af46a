"""Requests and answers in OpenAI's form, for every provider. Code written for OpenAI's API works here (mission A6).

    client.openai.chat(model="claude-...", messages=[...])               a chat completion
    client.openai.chat.completions.create(model=..., messages=[...])     the same, as the official client spells it
    client.openai.responses.create(model=..., input=...)                 the Responses API

Where the package `openai` is installed, answers are objects of its own classes; it is imported with the first answer.
Elsewhere they are dicts whose keys can also be read as attributes: `answer.choices[0].message.content`.
"""

import json
import time
from collections.abc import AsyncIterator
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import Json, JsonObject, copy_json, load_json
from dragoman.model.events import Event, ReplyFailed, ReplyStart
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.reasoning_state.carry import StateCarrier, StateSource, carry_reply
from dragoman.reasoning_state.envelope import DEFAULT_KEY
from dragoman.reasoning_state.take_back import take_back_state
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.way_back import open_carrier
from dragoman.wire import WireRequest

if TYPE_CHECKING:  # where `openai` is not installed, a type checker takes these for Any
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent

    from dragoman.client.async_client import AsyncClient

    ChatPiece: TypeAlias = ChatCompletionChunk
    ResponsesPiece: TypeAlias = ResponseStreamEvent

    class ChatAnswer(ChatCompletion):
        """OpenAI's own class, with what could not be translated."""

        notes: tuple[Note, ...]

    class ResponsesAnswer(Response):
        """OpenAI's own class, with what could not be translated."""

        notes: tuple[Note, ...]


WholeT = TypeVar("WholeT")  # OpenAI's class of whole answers
PieceT = TypeVar("PieceT")  # its class of the pieces of a stream

_DONE = b"[DONE]"
_KINDS = {"openai_chat": "chat", "openai_responses": "responses"}
# Without these, OpenAI's client raises a TypeError. A response may do without `input`: a stored prompt has it.
_REQUIRED = {"chat": ("messages", "model"), "responses": ("model",)}


class OpenAIObject(dict[str, Any]):
    """A JSON object whose keys are attributes too. `notes` lists losses and changes."""

    notes: tuple[Note, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in _OPTIONAL:
            return None  # OpenAI's type has this field, the answer does not
        near = get_close_matches(name, [*self, *_OPTIONAL, "output_text"], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"this answer has no {name}{hint}")

    @property
    def output_text(self) -> str:
        """All text of a response, as OpenAI's client says it."""
        parts = [part for item in self.get("output", ()) for part in item.get("content") or ()]
        return "".join(part["text"] for part in parts if part.get("type") == "output_text")

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        return _without_none(self) if exclude_none else copy_json(dict(self))  # type: ignore[no-any-return]

    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False, **_: Any) -> str:
        return json.dumps(self.model_dump(exclude_none=exclude_none), indent=indent, ensure_ascii=False)

    to_dict = model_dump
    to_json = model_dump_json


# Fields of OpenAI's types that an answer may lack. Every other name is a mistake of the caller.
_OPTIONAL = frozenset(
    (
        *(
            "usage",
            "system_fingerprint",
            "service_tier",
            "moderation",
            "logprobs",
            "finish_reason",
            "refusal",
            "content",
        ),
        *("tool_calls", "function_call", "audio", "annotations", "reasoning_content", "role", "id", "content"),
        *("prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details"),
        *("error", "incomplete_details", "instructions", "metadata", "temperature", "top_p", "max_output_tokens"),
        *("previous_response_id", "reasoning", "text", "truncation", "user", "status", "encrypted_content", "delta"),
        *("response", "item", "part", "item_id", "output_index", "content_index", "sequence_number", "obfuscation"),
        *("cached_tokens", "reasoning_tokens", "audio_tokens", "summary", "name", "arguments", "call_id", "type"),
    )
)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def make_answer(value: JsonObject, kind: str, notes: tuple[Note, ...] = ()) -> Any:
    """An answer as an object of OpenAI's own class, if the package `openai` is installed, else an OpenAIObject."""
    official = _find_class(kind)
    if official is None:
        answer = make_object(value)
        answer.__dict__["notes"] = notes
        return answer
    construct, cls = official
    answer = construct(type_=cls, value=value)
    if kind in _WHOLE:
        answer._notes = notes
    return answer


# Where OpenAI's package keeps the classes of whole answers and of the pieces of streams.
_WHOLE = {"chat": ("openai.types.chat", "ChatCompletion"), "responses": ("openai.types.responses", "Response")}
_PIECES = {
    "chat piece": ("openai.types.chat", "ChatCompletionChunk"),
    "responses piece": ("openai.types.responses", "ResponseStreamEvent"),
}


@lru_cache
def _find_class(kind: str) -> tuple[Any, Any] | None:
    """OpenAI's function that makes its objects, and the class. A whole answer gets `notes` too."""
    module, name = (_WHOLE | _PIECES)[kind]
    try:
        construct = import_module("openai._models").construct_type
        cls = getattr(import_module(module), name)
        private = import_module("pydantic").PrivateAttr
    except (ImportError, AttributeError):  # it is not installed, or is of another version
        return None
    if kind in _WHOLE:
        extra = {"__module__": __name__, "_notes": private(()), "notes": property(lambda answer: answer._notes)}
        cls = type(name, (cls,), extra)
    return construct, cls


def make_object(value: Json) -> Any:
    if isinstance(value, dict):
        return OpenAIObject({key: make_object(item) for key, item in value.items()})
    return [make_object(item) for item in value] if isinstance(value, list) else value


class OpenAIStream(Generic[PieceT]):
    """A streamed answer: OpenAI's chunks, one by one."""

    def __init__(self, client: "AsyncClient", open_answer: OpenAnswer, dialect: Dialect, request: Request) -> None:
        self._client, self._open_answer = client, open_answer
        self._carrier = _open_carrier(open_answer, dialect)
        if self._carrier is not None:
            self._carrier.stage(open_answer.notes)
        self._encoder = dialect.stream_encoder(open_answer.notes, request)
        self._kind = f"{_KINDS[dialect.name]} piece"
        self._frames = SseDecoder()
        self._ready: list[PieceT] = []
        self._failure: Failure | None = None
        self._over = False

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._open_answer.notes)

    def __aiter__(self) -> AsyncIterator[PieceT]:
        return self

    async def __anext__(self) -> PieceT:
        while not self._ready:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                await self.close()
                raise UpstreamError(failure)
            if self._over:
                raise StopAsyncIteration
            await self._fill()
        return self._ready.pop(0)

    async def _fill(self) -> None:
        try:
            piece = await self._open_answer.next()
        except BaseException:
            await self.close()
            raise
        if piece is None:
            self._take(self._encoder.close())
            await self.close()
            return
        events = [_add_time(event) for event in piece.events]
        if events and isinstance(events[-1], ReplyFailed):
            self._failure = events[-1].failure
            events = events[:-1]
        self._take(self._encoder.feed(events if self._carrier is None else self._carrier.feed(events)))

    def _take(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if frame.data and frame.data != _DONE:
                self._ready.append(make_answer(load_json(frame.data), self._kind))

    async def close(self) -> None:
        self._over = True
        self._client.close_answer(self._open_answer)

    async def __aenter__(self) -> "OpenAIStream[PieceT]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _add_time(event: Event) -> Event:
    """OpenAI's form has a time. Encoders have no clock, so it is set here."""
    if isinstance(event, ReplyStart) and event.created is None:
        return replace(event, created=float(round(time.time())))
    return event


def _open_carrier(answer: OpenAnswer, dialect: Dialect) -> StateCarrier | None:
    """Puts the reasoning state of an answer where a program that keeps OpenAI's messages keeps it."""
    source = StateSource(model=answer.target.model, upstream=answer.target.upstream.name)
    return open_carrier(answer.dialect, dialect, source, DEFAULT_KEY)


class AsyncEndpoint(Generic[WholeT, PieceT]):
    """One of OpenAI's APIs, for every provider."""

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_endpoint(name)

    def __init__(self, client: "AsyncClient", dialect: str) -> None:
        self._client = client
        self._name = dialect

    @property
    def completions(self) -> "AsyncEndpoint[WholeT, PieceT]":
        return self

    @overload
    async def create(self, *, stream: Literal[False] | None = None, **body: Any) -> WholeT: ...
    @overload
    async def create(self, *, stream: Literal[True], **body: Any) -> OpenAIStream[PieceT]: ...
    @overload
    async def create(self, *, stream: bool, **body: Any) -> WholeT | OpenAIStream[PieceT]: ...
    async def create(self, **body: Any) -> Any:
        return await self(**body)

    @overload
    async def __call__(
        self, body: JsonObject | None = None, /, *, stream: Literal[False] | None = None, **more: Any
    ) -> WholeT: ...
    @overload
    async def __call__(
        self, body: JsonObject | None = None, /, *, stream: Literal[True], **more: Any
    ) -> OpenAIStream[PieceT]: ...
    @overload
    async def __call__(
        self, body: JsonObject | None = None, /, *, stream: bool, **more: Any
    ) -> WholeT | OpenAIStream[PieceT]: ...
    async def __call__(self, body: JsonObject | None = None, /, **more: Any) -> Any:
        """An OpenAIObject, or with `stream=True` an OpenAIStream. `timeout` is ours; the rest is the request."""
        timeout_s = more.pop("timeout", None)
        request_body: JsonObject = copy_json({**(body or {}), **more.pop("extra_body", {}), **more})
        if missing := [name for name in _REQUIRED[_KINDS[self._name]] if name not in request_body]:
            near = get_close_matches(missing[0], request_body, 1)
            hint = f"; did you mean it by {near[0]}?" if near else ""
            raise TypeError(f"missing argument: {missing[0]}{hint}")
        dialect = find_dialect(self._name)
        notes = Notes()
        request = dialect.decode_request(WireRequest(body=_plain(request_body)), notes)
        if dialect.slots is not None:
            request = take_back_state(request, dialect.slots, DEFAULT_KEY, notes)
        stream = bool(request.stream)
        open_answer = await self._client.send(request, stream=stream, dialect=dialect, timeout_s=timeout_s)
        open_answer.notes.items[:0] = notes.items
        if stream:
            chunks: OpenAIStream[PieceT] = OpenAIStream(self._client, open_answer, dialect, request)
            self._client.close_when_unused(chunks, open_answer)
            return chunks
        try:
            if open_answer.reply is None:
                raise UpstreamError(
                    Failure(kind="server_error", status=502, message="the upstream sent an empty answer")
                )
            reply = open_answer.reply
            if reply.created is None:
                reply = replace(reply, created=float(round(time.time())))
            carrier = _open_carrier(open_answer, dialect)
            if carrier is not None:
                reply = open_answer.notes.stage(carry_reply(reply, carrier, open_answer.notes))
            open_answer.notes.sends = False  # the caller gets the body
            body = dialect.encode_reply(reply, open_answer.notes, request).body
            return make_answer(body, _KINDS[self._name], tuple(open_answer.notes))
        finally:
            self._client.close_answer(open_answer)


def _plain(value: Any) -> Any:
    """A copy as plain JSON values, so that an answer can be put into the next request."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    dump = getattr(value, "model_dump", None)  # the types of OpenAI's Python client
    return _plain(dump(exclude_none=True)) if callable(dump) else value


_ELSEWHERE = {"embeddings": "embed(model, texts)", "models": "models()", "audio": "speak(...)"}


def explain_missing(name: str) -> AttributeError:
    """OpenAI's client has more APIs than two. Some of them are methods of ours."""
    instead = f": use client.{_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    return AttributeError(f"client.openai has chat.completions and responses, and no {name}{instead}")


# What other packages call a method of a client, and ours.
_METHODS = {
    "acompletion": "chat(model, messages)",
    "completion": "chat(model, messages)",
    "completions": "openai.chat.completions",
    "embeddings": "embed(model, texts)",
    "generate": "chat(model, prompt)",
    "messages": "chat(model, messages)",
    "responses": "openai.responses",
}


def explain_name(client: object, name: str) -> AttributeError:
    """For a name that a client does not have."""
    near = get_close_matches(name, [known for known in dir(type(client)) if known[0] != "_"], 1)
    hint = f": use client.{_METHODS[name]}" if name in _METHODS else f"; did you mean {near[0]}?" if near else ""
    return AttributeError(f"{type(client).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=None)


_NOT_HERE = {
    "parse": "use client.chat(model, messages, output=TYPE) and .parsed",
    "stream": "use create(stream=True)",
}


def explain_endpoint(name: str) -> AttributeError:
    hint = f": {_NOT_HERE[name]}" if name in _NOT_HERE else ""
    return AttributeError(f"client.openai has no {name}, only create{hint}")


class AsyncOpenAI:
    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_missing(name)

    def __init__(self, client: "AsyncClient") -> None:
        self.chat: AsyncEndpoint[ChatAnswer, ChatPiece] = AsyncEndpoint(client, "openai_chat")
        self.responses: AsyncEndpoint[ResponsesAnswer, ResponsesPiece] = AsyncEndpoint(client, "openai_responses")
