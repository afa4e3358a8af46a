"""Client: AsyncClient for code without `await`.

Its event loop runs in a thread of its own. So it works in a script, in a thread, in a notebook that already has a
loop, and in a tool that another client runs. A forked process does not inherit the thread: the client starts a new
one there, and requests that were running stay with the parent process.
"""

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    Unpack,
    overload,
)

from dragoman.agent.steps import Limits, Step
from dragoman.client.answers import Answer, AsyncStream, RunAnswer, StreamEvent
from dragoman.client.async_client import AsyncClient
from dragoman.client.openai_style import (
    AsyncEndpoint,
    OpenAIStream,
    PieceT,
    WholeT,
    explain_endpoint,
    explain_missing,
    explain_name,
)
from dragoman.client.prompts import ChatOptions, Prompt
from dragoman.client.services import Count, ModelInfo
from dragoman.errors import ArgumentError, DragomanError
from dragoman.read_struct import suggest
from dragoman.speech import Sound

if TYPE_CHECKING:
    from dragoman.client.openai_style import ChatAnswer, ChatPiece, ResponsesAnswer, ResponsesPiece

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def _takes_arguments_of(
    other: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """The decorated method has the arguments of another one, for type checkers and for `help`."""

    def copy_signature(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        method.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]
        method.__doc__ = other.__doc__
        return method

    return copy_signature


class LoopThread:
    """An event loop in a daemon thread. The thread starts with the first call."""

    def __init__(self) -> None:
        self._closed = False
        self.forks = 0  # forks since this was made
        self.reset()
        _LOOP_THREADS.add(self)

    def reset(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine and waits for its result. An interrupt cancels it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._start())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise DragomanError("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="dragoman-client", daemon=True
                )
                self._thread.start()
            return self._loop

    def finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `work`, then stops the loop. The garbage collector may call this in our own thread, which cannot wait
        for itself."""
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


_LOOP_THREADS: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


def _after_fork() -> None:
    for loop_thread in list(_LOOP_THREADS):
        loop_thread.forks += 1
        loop_thread.reset()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
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
    """A plain iterator over an asynchronous one. To leave early, use `with` or `close`."""

    def __init__(self, owner: "Client", loop_thread: LoopThread, inner: AsyncIterator[T]) -> None:
        self._owner = owner  # a client that is forgotten is closed, and its answers with it
        self._loop_thread = loop_thread
        self._inner = inner
        self._forks = loop_thread.forks

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        if self._forks != self._loop_thread.forks:
            work.close()
            raise DragomanError("this was started before a fork and belongs to the parent process: start it again here")
        return self._loop_thread.run(work)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._wait(_next(self._inner))
        except _EndError:
            raise StopIteration from None

    def close(self) -> None:
        close = getattr(self._inner, "aclose", None) or getattr(self._inner, "close", None)
        if close is not None and self._forks == self._loop_thread.forks:
            self._loop_thread.run(close())

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


class Stream(Steps[StreamEvent], Generic[R]):
    """A streamed answer; see AsyncStream."""

    def __init__(self, owner: "Client", loop_thread: LoopThread, inner: AsyncStream[R]) -> None:
        super().__init__(owner, loop_thread, inner)
        self._stream = inner
        self._batch: list[StreamEvent] = []  # one switch of threads per batch, not per event

    def __next__(self) -> StreamEvent:
        if not self._batch:
            self._batch = self._wait(self._stream.next_batch())
            if not self._batch:
                raise StopIteration
        return self._batch.pop(0)

    def texts(self) -> Iterator[str]:
        """Only the text of the answer, piece by piece."""
        for stream_event in self:
            if stream_event.text:
                yield stream_event.text

    def answer(self) -> Answer[R]:
        """Reads the rest of the stream and returns the whole answer."""
        return self._wait(self._stream.answer())


class Client:
    """One API for every provider. It takes the same arguments as AsyncClient."""

    @_takes_arguments_of(AsyncClient.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        known = inspect.signature(AsyncClient).parameters
        if unknown := [name for name in options if name not in known]:
            raise ArgumentError(f"Client() takes no argument {unknown[0]!r}; {suggest(unknown[0], known)}")
        self._loop_thread = LoopThread()
        self._client = AsyncClient(*args, **options)
        self.upstreams = self._client.upstreams
        self._finalizer = weakref.finalize(self, self._loop_thread.finish, self._client.close)

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_name(self, name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Client has connections, so it cannot be copied or pickled: make one in each process")

    @property
    def openai(self) -> "OpenAI":
        """The same client in OpenAI's form."""
        return OpenAI(self, self._loop_thread, self._client)

    @overload
    def chat(
        self,
        model: str,
        prompt: Prompt,
        *,
        output: type[T],
        stream: Literal[False] = False,
        **more: Unpack[ChatOptions],
    ) -> Answer[T]: ...
    @overload
    def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: Literal[False] = False,
        **more: Unpack[ChatOptions],
    ) -> Answer[Any]: ...  # fmt: skip
    @overload
    def chat(
        self, model: str, prompt: Prompt, *, output: type[T], stream: Literal[True], **more: Unpack[ChatOptions]
    ) -> Stream[T]: ...
    @overload
    def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: Literal[True], **more: Unpack[ChatOptions]
    ) -> Stream[Any]: ...
    @overload
    def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: bool, **more: Unpack[ChatOptions]
    ) -> Answer[Any] | Stream[Any]: ...
    def chat(
        self, model: str, prompt: Any = None, *, output: Any = None, stream: bool = False, **more: Unpack[ChatOptions]
    ) -> Answer[Any] | Stream[Any]:
        """One answer. The model may call tools, but they are not run: read `.calls`, or use `run`. `output`: a type, a
        JSON Schema or "json"; then `.parsed` is the answer as a value."""
        if stream:
            return self.stream(model, prompt, output=output, **more)
        return self._loop_thread.run(self._client.chat(model, prompt, output=output, **more))

    @overload
    def stream(self, model: str, prompt: Prompt, *, output: type[T], **more: Unpack[ChatOptions]) -> Stream[T]: ...
    @overload
    def stream(self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]) -> Stream[Any]: ...
    def stream(self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]) -> Stream[Any]:
        """The same as `chat(..., stream=True)`."""
        opened = self._loop_thread.run(self._client.stream(model, prompt, output=output, **more))
        return Stream(self, self._loop_thread, opened)

    @overload
    def run(
        self, model: str, prompt: Prompt, *, output: type[T], limits: Limits | None = None, **more: Unpack[ChatOptions]
    ) -> RunAnswer[T]: ...
    @overload
    def run(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> RunAnswer[Any]: ...  # fmt: skip
    def run(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> RunAnswer[Any]:  # fmt: skip
        """The tool loop: asks the model, runs the tools it calls, sends the results, until it calls no more."""
        return self._loop_thread.run(self._client.run(model, prompt, output=output, limits=limits, **more))

    def run_steps(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> Steps[Step]:  # fmt: skip
        """The tool loop step by step: model events, calls, results, and the reason it stopped."""
        steps = self._client.run_steps(model, prompt, output=output, limits=limits, **more)
        return Steps(self, self._loop_thread, steps)

    @overload
    def embed(
        self, model: str, text: str, *, size: int | None = None, timeout_s: float | None = None
    ) -> list[float]: ...
    @overload
    def embed(
        self, model: str, text: list[str] | tuple[str, ...], *, size: int | None = None, timeout_s: float | None = None
    ) -> list[list[float]]: ...
    def embed(
        self,
        model: str,
        text: str | list[str] | tuple[str, ...],
        *,
        size: int | None = None,
        timeout_s: float | None = None,
    ) -> list[float] | list[list[float]]:
        """The vector of a text, or those of several texts. `size`: numbers in a vector, if there is a choice."""
        found: Any = self._loop_thread.run(self._client.embed(model, text, size=size, timeout_s=timeout_s))
        return found  # type: ignore[no-any-return]  # as the overloads say

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
        """Speaks a text; see AsyncClient.speak."""
        return self._loop_thread.run(
            self._client.speak(model, text, voice=voice, instructions=instructions, form=form, timeout_s=timeout_s)
        )

    def models(self, upstream: str | None = None) -> list[ModelInfo]:
        """The models of every upstream that answers. With `upstream`, its models, or an error if it does not answer."""
        return self._loop_thread.run(self._client.models(upstream))

    def count_tokens(self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]) -> Count:
        """The number of tokens of a request. The provider counts them if it can; otherwise it is an estimate."""
        return self._loop_thread.run(self._client.count_tokens(model, prompt, output=output, **more))

    def close(self) -> None:
        """Ends all running answers and closes every connection."""
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Endpoint(Generic[WholeT, PieceT]):
    """One of OpenAI's APIs, for every provider."""

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_endpoint(name)

    def __init__(self, owner: Client, loop_thread: LoopThread, inner: AsyncEndpoint[WholeT, PieceT]) -> None:
        self._owner, self._loop_thread, self._inner = owner, loop_thread, inner

    @property
    def completions(self) -> "Endpoint[WholeT, PieceT]":
        return self

    @overload
    def create(self, *, stream: Literal[False] | None = None, **body: Any) -> WholeT: ...
    @overload
    def create(self, *, stream: Literal[True], **body: Any) -> Steps[PieceT]: ...
    @overload
    def create(self, *, stream: bool, **body: Any) -> WholeT | Steps[PieceT]: ...
    def create(self, **body: Any) -> Any:
        return self(**body)

    @overload
    def __call__(
        self, body: dict[str, Any] | None = None, /, *, stream: Literal[False] | None = None, **more: Any
    ) -> WholeT: ...
    @overload
    def __call__(
        self, body: dict[str, Any] | None = None, /, *, stream: Literal[True], **more: Any
    ) -> Steps[PieceT]: ...
    @overload
    def __call__(
        self, body: dict[str, Any] | None = None, /, *, stream: bool, **more: Any
    ) -> WholeT | Steps[PieceT]: ...
    def __call__(self, body: dict[str, Any] | None = None, /, **more: Any) -> Any:
        answer = self._loop_thread.run(self._inner(body, **more))
        return Steps(self._owner, self._loop_thread, answer) if isinstance(answer, OpenAIStream) else answer


class OpenAI:
    """Requests and answers in OpenAI's form, for every provider."""

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_missing(name)

    def __init__(self, owner: Client, loop_thread: LoopThread, client: AsyncClient) -> None:
        self.chat: Endpoint[ChatAnswer, ChatPiece] = Endpoint(owner, loop_thread, client.openai.chat)
        self.responses: Endpoint[ResponsesAnswer, ResponsesPiece] = Endpoint(
            owner, loop_thread, client.openai.responses
        )
