"""Client: the same as AsyncClient for code without `await`. An event loop of its own runs in a thread, so it works
everywhere: in a script, in a thread, in a notebook that already has a loop, in a tool another client runs. A process
that was forked has no such thread: there a client begins anew, and what was under way stays with the parent."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from dragoman.agent.steps import Limits, Step
from dragoman.client.answers import Answer, AsyncStream, RunAnswer, StreamEvent
from dragoman.client.async_client import AsyncClient
from dragoman.client.lists import Count, ListedModel
from dragoman.client.openai_style import AsyncSpeaker, FormStream
from dragoman.client.prompts import Asking, Prompt
from dragoman.errors import DragomanError
from dragoman.upstream.speech import Sound

T = TypeVar("T")
R = TypeVar("R")


class Portal:
    """An event loop in a daemon thread, begun when it is first needed."""

    def __init__(self) -> None:
        self._closed = False
        self.forks = 0  # since it was made
        self.begin_anew()
        _PORTALS.add(self)

    def begin_anew(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for it; an interrupt cancels it first."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._started())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise DragomanError("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="dragoman-client", daemon=True)
                self._thread.start()
            return self._loop

    def end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does `work` and stops. Garbage may be collected in our own thread, which must not wait for itself."""
        if self._loop is not None and threading.current_thread() is self._thread:
            task = self._loop.create_task(work())
            task.add_done_callback(lambda _: self.stop())
            return
        if self._loop is not None:
            self.run(work())
        self.stop()

    def stop(self) -> None:
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


_PORTALS: "weakref.WeakSet[Portal]" = weakref.WeakSet()


def _after_fork() -> None:
    for portal in list(_PORTALS):
        portal.forks += 1
        portal.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class Steps(Generic[T]):
    """An asynchronous iterator as a plain one. It ends by itself; leave early with `with` or `close`."""

    def __init__(self, portal: Portal, inner: AsyncIterator[T]) -> None:
        self._portal = portal
        self._inner = inner
        self._forks = portal.forks

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        if self._forks != self._portal.forks:
            work.close()
            raise DragomanError("this belongs to the process it was begun in, before a fork: ask again here")
        return self._portal.run(work)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._wait(_next(self._inner))
        except _EndError:
            raise StopIteration from None

    def close(self) -> None:
        close = getattr(self._inner, "aclose", None) or getattr(self._inner, "close", None)
        if close is not None and self._forks == self._portal.forks:
            self._portal.run(close())

    def __enter__(self: "S") -> "S":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


S = TypeVar("S", bound=Steps[Any])


class _EndError(Exception):
    """StopIteration cannot pass through a future."""


async def _next(inner: AsyncIterator[T]) -> T:
    try:
        return await anext(inner)
    except StopAsyncIteration:
        raise _EndError from None


class Stream(Steps[StreamEvent]):
    """An answer as it comes; see AsyncStream."""

    def __init__(self, portal: Portal, inner: AsyncStream) -> None:
        super().__init__(portal, inner)
        self._stream = inner
        self._heard: list[StreamEvent] = []  # what arrived together crosses the threads together

    def __next__(self) -> StreamEvent:
        if not self._heard:
            self._heard = self._wait(self._stream.together())
            if not self._heard:
                raise StopIteration
        return self._heard.pop(0)

    def texts(self) -> Iterator[str]:
        """Only the text of the answer, as it comes."""
        for heard in self:
            if heard.text:
                yield heard.text

    def answer(self) -> Answer:
        """The whole answer, once the rest of it has come."""
        return self._wait(self._stream.answer())


class Client:
    """One API for every provider. What it takes is what AsyncClient takes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._portal = Portal()
        self._client = AsyncClient(*args, **kwargs)
        self.wiring = self._client.wiring
        self.openai = OpenAI(self._portal, self._client)
        self._finalizer = weakref.finalize(self, self._portal.end, self._client.close)

    @overload
    def chat(
        self, model: str, prompt: Prompt, *, stream: Literal[False] = False, **asking: Unpack[Asking]
    ) -> Answer: ...
    @overload
    def chat(self, model: str, prompt: Prompt, *, stream: Literal[True], **asking: Unpack[Asking]) -> Stream: ...
    def chat(self, model: str, prompt: Prompt, *, stream: bool = False, **asking: Unpack[Asking]) -> Answer | Stream:
        """One answer. Tools are offered and not run: the calls are in `.calls` (see `run`)."""
        if stream:
            return self.stream(model, prompt, **asking)
        return self._portal.run(self._client.chat(model, prompt, **asking))

    def stream(self, model: str, prompt: Prompt, **asking: Unpack[Asking]) -> Stream:
        """The same as `chat(..., stream=True)`."""
        return Stream(self._portal, self._portal.run(self._client.stream(model, prompt, **asking)))

    def run(self, model: str, prompt: Prompt, *, limits: Limits | None = None, **asking: Unpack[Asking]) -> RunAnswer:
        """The tool loop: asks, runs what is called, tells the results, until there is nothing left to call."""
        return self._portal.run(self._client.run(model, prompt, limits=limits, **asking))

    def run_steps(
        self, model: str, prompt: Prompt, *, limits: Limits | None = None, **asking: Unpack[Asking]
    ) -> Steps[Step]:
        """The tool loop step by step: model events as they come, calls, results, and why it stopped."""
        return Steps(self._portal, self._client.run_steps(model, prompt, limits=limits, **asking))

    def speak(
        self,
        model: str,
        text: str,
        *,
        voice: str | None = None,
        instructions: str | None = None,
        form: str | None = None,
        timeout_s: float | None = None,
    ) -> Sound:
        """A text spoken; see AsyncClient.speak."""
        return self._portal.run(
            self._client.speak(model, text, voice=voice, instructions=instructions, form=form, timeout_s=timeout_s)
        )

    def models(self, upstream: str | None = None) -> list[ListedModel]:
        """Every model of every upstream that answers, or of one, and then it is an error if it does not."""
        return self._portal.run(self._client.models(upstream))

    def count_tokens(self, model: str, prompt: Prompt, **asking: Unpack[Asking]) -> Count:
        """How many tokens a request has: asked of the provider where it can say, else estimated."""
        return self._portal.run(self._client.count_tokens(model, prompt, **asking))

    def close(self) -> None:
        """Ends what still runs and gives back every connection."""
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Speaker:
    """One of OpenAI's APIs, in front of every provider."""

    def __init__(self, portal: Portal, inner: AsyncSpeaker) -> None:
        self._portal, self._inner = portal, inner

    @property
    def completions(self) -> "Speaker":
        return self

    def create(self, **body: Any) -> Any:
        return self(**body)

    def __call__(self, body: dict[str, Any] | None = None, /, **more: Any) -> Any:
        answer = self._portal.run(self._inner(body, **more))
        return Steps(self._portal, answer) if isinstance(answer, FormStream) else answer


class OpenAI:
    """Requests and answers in OpenAI's form, whoever answers."""

    def __init__(self, portal: Portal, client: AsyncClient) -> None:
        self.chat = Speaker(portal, client.openai.chat)
        self.responses = Speaker(portal, client.openai.responses)
