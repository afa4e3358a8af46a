"""Requests and answers in OpenAI's form, for every provider. Code written for OpenAI's API works here (mission A6).

    client.openai.chat(model="claude-...", messages=[...])               a chat completion
    client.openai.chat.completions.create(model=..., messages=[...])     the same, as the official client spells it
    client.openai.responses.create(model=..., input=...)                 the Responses API

Answers are dicts whose keys can also be read as attributes: `answer.choices[0].message.content`.
"""

import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.convert import open_carrier
from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import Json, JsonObject, copy_json, load_json
from dragoman.model.events import Event, ReplyFailed, ReplyStart
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.reasoning_state.carry import StateCarrier, StateSource, carry_reply, take_back_state
from dragoman.reasoning_state.envelope import DEFAULT_KEY
from dragoman.upstream.answer import OpenAnswer
from dragoman.wire import WireRequest

if TYPE_CHECKING:
    from dragoman.client.async_client import AsyncClient

_DONE = b"[DONE]"


class OpenAIObject(dict[str, Any]):
    """A JSON object whose keys are attributes too. `notes` lists losses and changes."""

    notes: tuple[Note, ...] = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name.startswith("__"):
                raise AttributeError(name) from None
            return None  # OpenAI's type has this field, the answer does not

    def model_dump(self) -> dict[str, Any]:
        return copy_json(dict(self))  # type: ignore[no-any-return]


def make_object(value: Json) -> Any:
    if isinstance(value, dict):
        return OpenAIObject({key: make_object(item) for key, item in value.items()})
    return [make_object(item) for item in value] if isinstance(value, list) else value


class OpenAIStream:
    """A streamed answer: OpenAI's chunks, one by one."""

    def __init__(self, client: "AsyncClient", open_answer: OpenAnswer, dialect: Dialect, request: Request) -> None:
        self._client, self._open_answer = client, open_answer
        self._carrier = _open_carrier(open_answer, dialect)
        if self._carrier is not None:
            self._carrier.stage(open_answer.notes)
        self._encoder = dialect.stream_encoder(open_answer.notes, request)
        self._frames = SseDecoder()
        self._ready: list[OpenAIObject] = []
        self._failure: Failure | None = None
        self._over = False

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._open_answer.notes)

    def __aiter__(self) -> AsyncIterator[OpenAIObject]:
        return self

    async def __anext__(self) -> OpenAIObject:
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
                self._ready.append(make_object(load_json(frame.data)))

    async def close(self) -> None:
        self._over = True
        self._client.close_answer(self._open_answer)

    async def __aenter__(self) -> "OpenAIStream":
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


class AsyncEndpoint:
    """One of OpenAI's APIs, for every provider."""

    def __init__(self, client: "AsyncClient", dialect: str) -> None:
        self._client = client
        self._name = dialect

    @property
    def completions(self) -> "AsyncEndpoint":
        return self

    async def create(self, **body: Any) -> Any:
        return await self(**body)

    async def __call__(self, body: JsonObject | None = None, /, **more: Any) -> Any:
        """An OpenAIObject, or with `stream=True` an OpenAIStream. `timeout` is ours; the rest is the request."""
        timeout_s = more.pop("timeout", None)
        request_body: JsonObject = copy_json({**(body or {}), **more.pop("extra_body", {}), **more})
        dialect = find_dialect(self._name)
        notes = Notes()
        request = dialect.decode_request(WireRequest(body=_plain(request_body)), notes)
        if dialect.slots is not None:
            request = take_back_state(request, dialect.slots, DEFAULT_KEY, notes)
        stream = bool(request.stream)
        open_answer = await self._client.send(request, stream=stream, dialect=dialect, timeout_s=timeout_s)
        open_answer.notes.items[:0] = notes.items
        if stream:
            chunks = OpenAIStream(self._client, open_answer, dialect, request)
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
            answer = make_object(dialect.encode_reply(reply, open_answer.notes, request).body)
            answer.__dict__["notes"] = tuple(open_answer.notes)
            return answer
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


class AsyncOpenAI:
    def __init__(self, client: "AsyncClient") -> None:
        self.chat = AsyncEndpoint(client, "openai_chat")
        self.responses = AsyncEndpoint(client, "openai_responses")
