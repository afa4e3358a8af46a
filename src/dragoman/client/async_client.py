"""AsyncClient. It uses the gateway's sender, so it has the same retries, limits, fallbacks and passes."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, SupportsIndex, TypeVar, Unpack, overload

from msgspec import Struct
from msgspec.structs import replace

from dragoman.accounts.prices import Cost
from dragoman.agent.driver import run_loop
from dragoman.agent.steps import Limits, Step, Stopped
from dragoman.client.answers import (
    Answer,
    AsyncStream,
    RunAnswer,
    find_cost,
    finish_chat,
    finish_run,
    notes_of,
    take_late,
    whole_reply,
)
from dragoman.client.known_prompts import KnownPrompts
from dragoman.client.openai_style import AsyncOpenAI, explain_name
from dragoman.client.prompts import BuiltRequest, ChatOptions, Prompt, build, check_values, read_refuse
from dragoman.client.services import Count, ModelInfo, count_tokens, embed, list_models, speak
from dragoman.client.upstreams import GATEWAY, ClientUpstreams, NetworkOptions, choose_upstreams
from dragoman.dialects import CANONICAL, find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import ArgumentError, UpstreamError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.failure import Failure
from dragoman.known_turns.sent import SentTurns
from dragoman.known_turns.write import Known
from dragoman.model.events import Event
from dragoman.model.fold import unfold
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.notes import Note, Refusable
from dragoman.speech import Sound
from dragoman.upstream.attempts import Job
from dragoman.upstream.fan_out import ask_each
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.upstream.render import render, split
from dragoman.upstream.send import Sender
from dragoman.upstream.spec import Target, Timeouts, Upstream
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState

T = TypeVar("T")
TIMEOUT_S = 600.0
KNOWN_TURNS_MB = 32
OUR_MESSAGE_START = "the upstream"  # our own messages about an upstream begin with this


class ClientEvent(Struct, frozen=True, kw_only=True):
    """What `on_event` is called with. A streamed answer is `answered` when it begins, so its usage is not known yet."""

    kind: Literal["sent", "answered", "failed"]
    model: str
    upstream: str = ""
    seconds: float = 0.0  # since it was sent
    usage: Usage | None = None
    failure: Failure | None = None


class AsyncClient:
    """One API for every provider.

    AsyncClient()                                      every provider whose key is in the environment, and `demo`
    AsyncClient(keys={"anthropic": "..."})             with keys of your own
    AsyncClient("openai", api_key=..., base_url=...)   one provider, a kind of profiles.toml
    AsyncClient(base_url="http://127.0.0.1:20006")     a running gateway
    """

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            raise explain_name(self, name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a client has connections, so it cannot be copied or pickled: make one in each process")

    def __init__(
        self,
        provider: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        keys: Mapping[str, str] | None = None,
        dialect: str | None = None,
        upstreams: Sequence[Upstream] | None = None,
        aliases: Mapping[str, str | Sequence[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        timeouts: Timeouts | None = None,
        max_retries: int | None = None,
        refuse: Iterable[Refusable] = (),
        on_event: Callable[[ClientEvent], object] | None = None,
        proxy: str | bool | None = None,
        ca_file: str | None = None,
        client_cert: str | None = None,
        client_key: str | None = None,
        known_turns_mb: int = KNOWN_TURNS_MB,
    ) -> None:
        """`aliases`: a name for one model, or for several that are tried in turn. `headers`: sent with every request;
        they need a `provider` or a `base_url`. `env`: used instead of the process's environment. `proxy`: its URL, or
        False for a direct connection (default: HTTPS_PROXY and the like). `ca_file`: trusted certificates.
        `max_retries`: how often a request that failed is sent again (default: 2; a gateway retries by itself).
        `on_event`: called with every request that is sent, answered or failed. `known_turns_mb`: memory for the turns
        of conversations, so that only new turns are read and written; 0 for none."""
        if keys is not None and not isinstance(keys, Mapping):
            raise ArgumentError("keys: expected a dict, for example {'openai': 'sk-...'}")
        check_values({"max_retries": max_retries, "timeout_s": timeout_s, "known_turns_mb": known_turns_mb})
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._transport = Transport()
        self._sender = Sender(self._transport)
        self._timeout_s = timeout_s
        self._most = None if max_retries is None else max(1, 1 + max_retries)
        self._on_event = on_event
        self._refuse = read_refuse(refuse)
        self._open_answers: set[OpenAnswer] = set()
        known_bytes = known_turns_mb * 2**20 // 2  # half for what is read, half for what is written
        self._prompts = KnownPrompts(known_bytes, self._sender.clock)
        self._sent = SentTurns(known_bytes)
        self.upstreams: ClientUpstreams = choose_upstreams(
            provider,
            api_key=api_key,
            base_url=base_url,
            keys=keys or {},
            dialect=dialect,
            upstreams=upstreams,
            aliases=aliases or {},
            headers={name.lower(): value for name, value in (headers or {}).items()},
            env=os.environ if env is None else env,
            clock=self._sender.clock,
            timeouts=timeouts or Timeouts(),
            network=NetworkOptions(proxy=proxy, ca_file=ca_file, client_cert=client_cert, client_key=client_key),
        )
        self.openai = AsyncOpenAI(self)

    def _bind_loop(self) -> None:
        """Connections and queues belong to an event loop. A new loop (a second `asyncio.run`) gets new ones."""
        loop = asyncio.get_running_loop()
        if loop is not self._event_loop:
            if self._event_loop is not None:
                self._transport = self._sender.transport = Transport()
                self._open_answers.clear()
                self.upstreams.upstream_states.clear()
            self._event_loop = loop

    # -- chat

    @overload
    async def chat(
        self,
        model: str,
        prompt: Prompt,
        *,
        output: type[T],
        stream: Literal[False] = False,
        **more: Unpack[ChatOptions],
    ) -> Answer[T]: ...
    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: Literal[False] = False,
        **more: Unpack[ChatOptions],
    ) -> Answer[Any]: ...  # fmt: skip
    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, output: type[T], stream: Literal[True], **more: Unpack[ChatOptions]
    ) -> AsyncStream[T]: ...
    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: Literal[True], **more: Unpack[ChatOptions]
    ) -> AsyncStream[Any]: ...
    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, output: Any = None, stream: bool, **more: Unpack[ChatOptions]
    ) -> Answer[Any] | AsyncStream[Any]: ...
    async def chat(
        self, model: str, prompt: Any = None, *, output: Any = None, stream: bool = False, **more: Unpack[ChatOptions]
    ) -> Answer[Any] | AsyncStream[Any]:
        """One answer. The model may call tools, but they are not run: read `.calls`, or use `run`. `output`: a type, a
        JSON Schema or "json"; then `.parsed` is the answer as a value."""
        built = build(model, prompt, more, output, self._prompts)
        request = await self._add_tools(built)
        return await (self._chat_stream(request, built) if stream else self._chat_whole(request, built))

    @overload
    async def stream(
        self, model: str, prompt: Prompt, *, output: type[T], **more: Unpack[ChatOptions]
    ) -> AsyncStream[T]: ...
    @overload
    async def stream(
        self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]
    ) -> AsyncStream[Any]: ...
    async def stream(
        self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]
    ) -> AsyncStream[Any]:
        """The same as `chat(..., stream=True)`."""
        built = build(model, prompt, more, output, self._prompts)
        return await self._chat_stream(await self._add_tools(built), built)

    @overload
    async def run(
        self, model: str, prompt: Prompt, *, output: type[T], limits: Limits | None = None, **more: Unpack[ChatOptions]
    ) -> RunAnswer[T]: ...
    @overload
    async def run(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> RunAnswer[Any]: ...  # fmt: skip
    async def run(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> RunAnswer[Any]:  # fmt: skip
        """The tool loop: asks the model, runs the tools it calls, sends the results, until it calls no more."""
        built = build(model, prompt, more, output, self._prompts)
        notes: list[Note] = []
        costs: list[Cost | None] = []
        async with aclosing(self._loop(built, limits, notes, stream=False, costs=costs)) as steps:
            async for step in steps:
                if isinstance(step, Stopped):
                    return finish_run(step, notes, built, costs)
        raise UpstreamError(Failure(kind="unknown", message="the tool loop ended without a result"))

    async def run_steps(
        self, model: str, prompt: Prompt, *, output: Any = None, limits: Limits | None = None,
        **more: Unpack[ChatOptions],
    ) -> AsyncGenerator[Step, None]:  # fmt: skip
        """The tool loop step by step: model events, calls, results, and the reason it stopped."""
        async with aclosing(
            self._loop(build(model, prompt, more, output, self._prompts), limits, [], stream=True)
        ) as steps:
            async for step in steps:
                yield step

    def _loop(
        self,
        built: BuiltRequest,
        limits: Limits | None,
        notes: list[Note],
        *,
        stream: bool,
        costs: list[Cost | None] | None = None,
    ) -> AsyncGenerator[Step, None]:
        return run_loop(_LoopModel(self, built, notes, stream, costs), built.toolbox, built.request, limits)

    async def speak(
        self,
        model: str,
        text: str,
        *,
        voice: str | None = None,
        instructions: str | None = None,
        form: str | None = None,
        timeout_s: float | None = None,
    ) -> Sound:
        """Speaks a text. `form`: wav, pcm, flac, ogg; mp3, opus and aac need a provider that makes them, or ffmpeg.
        OpenAI's voice names work with Gemini too, and Gemini's with OpenAI."""
        self._bind_loop()
        return await speak(self, model, text, voice=voice, instructions=instructions, form=form, timeout_s=timeout_s)

    @overload
    async def embed(
        self, model: str, text: str, *, size: int | None = None, timeout_s: float | None = None
    ) -> list[float]: ...
    @overload
    async def embed(
        self, model: str, text: list[str] | tuple[str, ...], *, size: int | None = None, timeout_s: float | None = None
    ) -> list[list[float]]: ...
    async def embed(
        self,
        model: str,
        text: str | list[str] | tuple[str, ...],
        *,
        size: int | None = None,
        timeout_s: float | None = None,
    ) -> list[float] | list[list[float]]:
        """The vector of a text, or those of several texts. `size`: numbers in a vector, if there is a choice."""
        self._bind_loop()
        if not isinstance(text, str | list | tuple):
            raise ArgumentError(f"text: expected a text or a list of texts, found {text!r}")
        rows = await embed(self, model, [text] if isinstance(text, str) else list(text), size=size, timeout_s=timeout_s)
        return rows[0] if isinstance(text, str) else rows

    async def _add_tools(self, built: BuiltRequest) -> Request:
        listed = await built.toolbox.list_tools()
        return replace(built.request, tools=(*(built.request.tools or ()), *listed)) if listed else built.request

    # -- models and token counts

    async def models(self, upstream: str | None = None) -> list[ModelInfo]:
        """The models of every upstream that answers. With `upstream`, its models, or an error if it does not answer."""
        self._bind_loop()
        return await list_models(self.upstreams, self._transport, upstream)

    async def count_tokens(
        self, model: str, prompt: Prompt, *, output: Any = None, **more: Unpack[ChatOptions]
    ) -> Count:
        """The number of tokens of a request. The provider counts them if it can; otherwise it is an estimate."""
        request = await self._add_tools(build(model, prompt, more, output, self._prompts))
        self._bind_loop()
        return await count_tokens(self.upstreams, self._transport, request)

    # -- sending

    async def send(
        self,
        request: Request,
        *,
        stream: bool,
        dialect: Dialect | None = None,
        refuse: frozenset[Refusable] = frozenset(),
        timeout_s: float | None = None,
        known: Known | None = None,
    ) -> OpenAnswer:
        """The answer of the first upstream that begins to answer. The caller ends it with `close_answer`. `known`:
        turns that were sent before, if they were found already."""
        self._bind_loop()
        if known is None and dialect is None:  # `client.openai` reads its turns anew each time
            known = self._sent.know(request, self._sender.clock())
        client_request = ClientRequest(
            dialect=dialect or find_dialect(CANONICAL),
            request=replace(request, stream=stream),  # set, so that no dialect has to invent it
            same_wire=False,
            known=known,
        )
        refused = refuse | self._refuse
        targets = self.upstreams.targets(request.model)
        copies = 1
        if (request.choices or 1) > 1:
            client_request, copies = split(client_request, *targets[0], refuse=refused)

        def call(state: UpstreamState, target: Target) -> UpstreamCall:
            return render(client_request, state, target, stream=stream, refuse=refused)

        job = Job(targets=targets, render=call, stream=stream, deadline=self.deadline(timeout_s))
        try:
            return await self.ask(job, copies)
        except UpstreamError as error:
            if not self.upstreams.leave_own_form(error.failure):
                raise
        return await self.send(request, stream=stream, dialect=dialect, refuse=refuse, timeout_s=timeout_s, known=known)

    def deadline(self, timeout_s: float | None) -> float:
        return self._sender.clock() + (self._timeout_s if timeout_s is None else timeout_s)

    async def ask(self, job: Job, copies: int = 1) -> OpenAnswer:
        """The caller ends the answer with `close_answer`. A gateway retries by itself, so we ask it only once."""
        most = self._most or (1 if self.upstreams.only == GATEWAY else job.most)
        job = replace(job, report=explain_refused_key, most=most)
        began, model = self._sender.clock(), job.targets[0][1].model
        self._tell(ClientEvent(kind="sent", model=model))
        try:
            open_answer = await (self._sender.ask(job) if copies == 1 else ask_each(self._sender, job, copies))
        except UpstreamError as error:
            failure = name_upstream(error.failure, job)
            self._tell(ClientEvent(kind="failed", model=model, failure=failure, seconds=self._sender.clock() - began))
            raise UpstreamError(failure) from error
        self._open_answers.add(open_answer)
        name, usage = open_answer.target.upstream.name, open_answer.reply.usage if open_answer.reply else None
        seconds = self._sender.clock() - began
        self._tell(ClientEvent(kind="answered", model=model, upstream=name, usage=usage, seconds=seconds))
        return open_answer

    def _tell(self, event: ClientEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def close_answer(self, open_answer: OpenAnswer) -> None:
        open_answer.close()
        self._open_answers.discard(open_answer)

    def close_when_unused(self, stream: object, open_answer: OpenAnswer) -> None:
        """Closes the connection when the stream is garbage collected. That may happen in any thread."""
        loop = asyncio.get_running_loop()
        weakref.finalize(stream, _close_from_any_thread, loop, self.close_answer, open_answer).atexit = False

    async def _chat_whole(self, request: Request, built: BuiltRequest) -> Answer[Any]:
        open_answer = await self.send(
            request, stream=False, refuse=built.refuse, timeout_s=built.timeout_s, known=built.known
        )
        try:
            return finish_chat(whole_reply(open_answer), open_answer, built)
        finally:
            self.close_answer(open_answer)

    async def _chat_stream(self, request: Request, built: BuiltRequest) -> AsyncStream[Any]:
        open_answer = await self.send(
            request, stream=True, refuse=built.refuse, timeout_s=built.timeout_s, known=built.known
        )

        async def close() -> None:
            self.close_answer(open_answer)

        stream = AsyncStream(pieces(open_answer), close, lambda reply: finish_chat(reply, open_answer, built))
        self.close_when_unused(stream, open_answer)
        return stream

    # -- ending

    async def close(self) -> None:
        """Ends all running answers and closes every connection."""
        for open_answer in list(self._open_answers):
            self.close_answer(open_answer)
        await self._transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _LoopModel:
    """The model that the agent loop asks: this client."""

    def __init__(
        self,
        client: AsyncClient,
        built: BuiltRequest,
        notes: list[Note],
        stream: bool,
        costs: list[Cost | None] | None = None,
    ) -> None:
        self._client, self._built, self._notes, self._stream = client, built, notes, stream
        self._costs: list[Cost | None] = [] if costs is None else costs  # of each turn
        self._turn_notes: tuple[Note, ...] = ()  # of the last turn

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        built = self._built
        open_answer = await self._client.send(
            request, stream=self._stream, refuse=built.refuse, timeout_s=built.timeout_s
        )
        try:
            if self._stream:
                async for piece in pieces(open_answer):
                    for event in piece:
                        yield event
            else:
                for event in unfold(whole_reply(open_answer)):
                    yield event
        finally:
            self._client.close_answer(open_answer)
            self._costs.append(find_cost(open_answer, open_answer.usage))
            self._turn_notes = notes_of(open_answer)
            self._notes.extend(note for note in self._turn_notes if note not in self._notes)

    def turn_notes(self) -> tuple[Note, ...]:
        return self._turn_notes


def _close_from_any_thread(
    loop: asyncio.AbstractEventLoop, close: Callable[[OpenAnswer], None], open_answer: OpenAnswer
) -> None:
    with suppress(RuntimeError):  # the loop is closed, and its connections are too
        loop.call_soon_threadsafe(close, open_answer)


async def pieces(open_answer: OpenAnswer) -> AsyncIterator[list[Event]]:
    while (piece := await open_answer.next()) is not None:
        events = [event for event in piece.events if not take_late(event, open_answer)]
        if events:
            yield events


def explain_refused_key(failure: Failure, name: str) -> Failure:
    """The caller owns the key. So a refused key keeps the failure's kind, status and the provider's message."""
    if failure.kind == "unauthenticated":
        return replace(failure, message=f"{name} refuses the key: {failure.message}")
    if failure.kind == "forbidden":
        return replace(failure, message=f"{name} does not allow this: {failure.message}")
    return failure


def name_upstream(failure: Failure, job: Job) -> Failure:
    """Says which server could not be reached. Without a response the message is ours, so we may rewrite it."""
    answered = any(attempt.status is not None for attempt in job.attempts[-1:])
    if answered or len(job.targets) != 1 or not failure.message.startswith(OUR_MESSAGE_START):
        return failure
    spec = job.targets[0][0].spec
    server = f"the gateway at {spec.base_url}" if spec.name.startswith(GATEWAY) else f"{spec.name} ({spec.base_url})"
    rest = failure.message.removeprefix(OUR_MESSAGE_START)
    return replace(failure, message=server + (f": its {rest[3:]}" if rest.startswith("'s ") else rest))
