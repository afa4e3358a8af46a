"""Requests and answers in OpenAI's form, whoever answers (mission A6): code written for it moves over.

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

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import Json, JsonObject, copy_json, load_json
from dragoman.model.events import Event, ReplyFailed, ReplyStart
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.upstream.answer import OpenAnswer
from dragoman.wire import WireRequest

if TYPE_CHECKING:
    from dragoman.client.async_client import AsyncClient

_DONE = b"[DONE]"


class Form(dict[str, Any]):
    """A JSON object whose keys are attributes too. `notes` says what could not be carried."""

    notes: tuple[Note, ...] = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name.startswith("__"):
                raise AttributeError(name) from None
            return None  # a field the vendor's type has and this answer does not

    def model_dump(self) -> dict[str, Any]:
        return copy_json(dict(self))  # type: ignore[no-any-return]


def shape(value: Json) -> Any:
    if isinstance(value, dict):
        return Form({key: shape(item) for key, item in value.items()})
    return [shape(item) for item in value] if isinstance(value, list) else value


class FormStream:
    """Chunks as they come."""

    def __init__(self, client: "AsyncClient", sent: OpenAnswer, dialect: Dialect, request: Request) -> None:
        self._client, self._sent = client, sent
        self._encoder = dialect.stream_encoder(sent.notes, request)
        self._frames = SseDecoder()
        self._ready: list[Form] = []
        self._failure: Failure | None = None
        self._over = False

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._sent.notes)

    def __aiter__(self) -> AsyncIterator[Form]:
        return self

    async def __anext__(self) -> Form:
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
            piece = await self._sent.next()
        except BaseException:
            await self.close()
            raise
        if piece is None:
            self._take(self._encoder.close())
            await self.close()
            return
        events = [_dated(event) for event in piece.events]
        if events and isinstance(events[-1], ReplyFailed):
            self._failure = events[-1].failure
            events = events[:-1]
        self._take(self._encoder.feed(events))

    def _take(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if frame.data and frame.data != _DONE:
                self._ready.append(shape(load_json(frame.data)))

    async def close(self) -> None:
        self._over = True
        self._client.done(self._sent)

    async def __aenter__(self) -> "FormStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _dated(event: Event) -> Event:
    """Encoders have no clock, and the form wants a time."""
    if isinstance(event, ReplyStart) and event.created is None:
        return replace(event, created=float(round(time.time())))
    return event


class AsyncSpeaker:
    """One of OpenAI's APIs, in front of every provider."""

    def __init__(self, client: "AsyncClient", dialect: str) -> None:
        self._client = client
        self._name = dialect

    @property
    def completions(self) -> "AsyncSpeaker":
        return self

    async def create(self, **body: Any) -> Any:
        return await self(**body)

    async def __call__(self, body: JsonObject | None = None, /, **more: Any) -> Any:
        """A Form, or with `stream=True` a FormStream. `timeout` is ours; everything else is the request."""
        timeout_s = more.pop("timeout", None)
        said: JsonObject = copy_json({**(body or {}), **more.pop("extra_body", {}), **more})
        dialect = find_dialect(self._name)
        notes = Notes()
        request = dialect.decode_request(WireRequest(body=_plain(said)), notes)
        stream = bool(request.stream)
        sent = await self._client.send(request, stream=stream, dialect=dialect, timeout_s=timeout_s)
        sent.notes.items[:0] = notes.items
        if stream:
            chunks = FormStream(self._client, sent, dialect, request)
            self._client.drop_with(chunks, sent)
            return chunks
        try:
            if sent.reply is None:
                raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream said nothing"))
            reply = sent.reply
            if reply.created is None:
                reply = replace(reply, created=float(round(time.time())))
            form = shape(dialect.encode_reply(reply, sent.notes, request).body)
            form.__dict__["notes"] = tuple(sent.notes)
            return form
        finally:
            self._client.done(sent)


def _plain(value: Any) -> Any:
    """What came out of an answer may go back into a request."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    dump = getattr(value, "model_dump", None)  # the official client's own types
    return _plain(dump(exclude_none=True)) if callable(dump) else value


class AsyncOpenAI:
    def __init__(self, client: "AsyncClient") -> None:
        self.chat = AsyncSpeaker(client, "openai_chat")
        self.responses = AsyncSpeaker(client, "openai_responses")
