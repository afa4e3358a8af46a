"""AsyncClient: asks upstreams with the gateway's own sender: the same retries, limits, fallbacks and passes."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Literal, Unpack, overload

from msgspec.structs import replace

from dragoman.agent.driver import run_loop
from dragoman.agent.steps import Limits, Step, Stopped
from dragoman.client.answers import Answer, AsyncStream, RunAnswer
from dragoman.client.lists import Count, ListedModel, count_tokens, list_models
from dragoman.client.openai_style import AsyncOpenAI
from dragoman.client.prompts import Asking, BuiltRequest, Prompt, build
from dragoman.client.speech import speak
from dragoman.client.wiring import GATEWAY, Wiring, wire
from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.failure import Failure
from dragoman.jsontypes import load_json
from dragoman.model.events import Event
from dragoman.model.fold import unfold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Note, NoteKind
from dragoman.upstream.answer import OpenAnswer
from dragoman.upstream.attempts import Job
from dragoman.upstream.fan_out import ask_each
from dragoman.upstream.render import render, split
from dragoman.upstream.send import Sender
from dragoman.upstream.spec import Target, Timeouts, Upstream
from dragoman.upstream.speech import Sound
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState

TIMEOUT_S = 600.0
OUR_WORDS = "the upstream"  # so begin our own messages about an upstream


class AsyncClient:
    """One API for every provider.

    AsyncClient()                                      every provider whose key is in the environment, and `demo`
    AsyncClient(keys={"anthropic": "..."})             with keys of your own
    AsyncClient("openai", api_key=..., base_url=...)   one provider, a kind of profiles.toml
    AsyncClient(base_url="http://127.0.0.1:20006")     a running gateway
    """

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
        refuse: Sequence[NoteKind] = (),
    ) -> None:
        """`aliases`: a name for one model, or for several to be tried in turn. `headers`: sent with every request, to
        the one provider or gateway that is said. `env`: instead of the process's own."""
        self._home: asyncio.AbstractEventLoop | None = None
        self._transport = Transport()
        self._sender = Sender(self._transport)
        self._timeout_s = timeout_s
        self._refuse = frozenset(refuse)
        self._live: set[OpenAnswer] = set()
        self.wiring: Wiring = wire(
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
        )
        self.openai = AsyncOpenAI(self)

    def _begin(self) -> None:
        """Connections and queues belong to a loop: in another one (a second `asyncio.run`) there are new ones."""
        loop = asyncio.get_running_loop()
        if loop is not self._home:
            if self._home is not None:
                self._transport = self._sender.transport = Transport()
                self._live.clear()
                self.wiring.upstream_states.clear()
            self._home = loop

    # -- asking

    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, stream: Literal[False] = False, **asking: Unpack[Asking]
    ) -> Answer: ...
    @overload
    async def chat(
        self, model: str, prompt: Prompt, *, stream: Literal[True], **asking: Unpack[Asking]
    ) -> AsyncStream: ...
    async def chat(
        self, model: str, prompt: Prompt, *, stream: bool = False, **asking: Unpack[Asking]
    ) -> Answer | AsyncStream:
        """One answer. Tools are offered and not run: the calls are in `.calls` (see `run`)."""
        asked = build(model, prompt, asking)
        request = await self._offer(asked)
        return await (self._stream(request, asked) if stream else self._whole(request, asked))

    async def stream(self, model: str, prompt: Prompt, **asking: Unpack[Asking]) -> AsyncStream:
        """The same as `chat(..., stream=True)`."""
        return await self.chat(model, prompt, stream=True, **asking)

    async def run(
        self, model: str, prompt: Prompt, *, limits: Limits | None = None, **asking: Unpack[Asking]
    ) -> RunAnswer:
        """The tool loop: asks, runs what is called, tells the results, until there is nothing left to call."""
        asked = build(model, prompt, asking)
        notes: list[Note] = []
        async with aclosing(self._loop(asked, limits, notes, stream=False)) as steps:
            async for step in steps:
                if isinstance(step, Stopped):
                    return finish_run(step, notes, asked)
        raise UpstreamError(Failure(kind="unknown", message="the loop ended without an end"))

    async def run_steps(
        self, model: str, prompt: Prompt, *, limits: Limits | None = None, **asking: Unpack[Asking]
    ) -> AsyncGenerator[Step, None]:
        """The tool loop step by step: model events as they come, calls, results, and why it stopped."""
        async with aclosing(self._loop(build(model, prompt, asking), limits, [], stream=True)) as steps:
            async for step in steps:
                yield step

    def _loop(
        self, asked: BuiltRequest, limits: Limits | None, notes: list[Note], *, stream: bool
    ) -> AsyncGenerator[Step, None]:
        return run_loop(_Upstreams(self, asked, notes, stream), asked.toolbox, asked.request, limits)

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
        """A text spoken. `form`: wav, pcm, flac, ogg; mp3, opus and aac where the provider gives them or ffmpeg is
        there. OpenAI's and Gemini's names of voices are understood by both."""
        self._begin()
        return await speak(self, model, text, voice=voice, instructions=instructions, form=form, timeout_s=timeout_s)

    async def _offer(self, asked: BuiltRequest) -> Request:
        offered = (*(asked.request.tools or ()), *await asked.toolbox.list_tools())
        return replace(asked.request, tools=offered) if offered else asked.request

    # -- lists

    async def models(self, upstream: str | None = None) -> list[ListedModel]:
        """Every model of every upstream that answers, or of one, and then it is an error if it does not."""
        self._begin()
        return await list_models(self.wiring, self._transport, upstream)

    async def count_tokens(self, model: str, prompt: Prompt, **asking: Unpack[Asking]) -> Count:
        """How many tokens a request has: asked of the provider where it can say, else estimated."""
        request = await self._offer(build(model, prompt, asking))
        self._begin()
        return await count_tokens(self.wiring, self._transport, request)

    # -- sending

    async def send(
        self,
        request: Request,
        *,
        stream: bool,
        dialect: Dialect | None = None,
        refuse: frozenset[NoteKind] = frozenset(),
        timeout_s: float | None = None,
    ) -> OpenAnswer:
        """The first upstream that begins to answer. Whoever calls this closes what it gives (`done`)."""
        self._begin()
        client_request = ClientRequest(
            dialect=dialect or find_dialect("canonical"),
            request=replace(request, stream=stream),  # said, so that no dialect has to make it up
            same_wire=False,
        )
        wanted = refuse | self._refuse
        targets = self.wiring.targets(request.model)
        copies = 1
        if (request.choices or 1) > 1:
            client_request, copies = split(client_request, *targets[0], refuse=wanted)

        def call(state: UpstreamState, target: Target) -> UpstreamCall:
            return render(client_request, state, target, stream=stream, refuse=wanted)

        job = Job(
            targets=targets,
            render=call,
            stream=stream,
            deadline=self.deadline(timeout_s),
        )
        return await self.ask(job, copies)

    def deadline(self, timeout_s: float | None) -> float:
        return self._sender.clock() + (self._timeout_s if timeout_s is None else timeout_s)

    async def ask(self, job: Job, copies: int = 1) -> OpenAnswer:
        """Whoever calls this closes what it gives (`done`). A gateway has tried again already when it says no."""
        job = replace(job, report=tell_refused_key, most=1 if self.wiring.only == GATEWAY else job.most)
        try:
            sent = await (self._sender.ask(job) if copies == 1 else ask_each(self._sender, job, copies))
        except UpstreamError as error:
            raise UpstreamError(name_upstream(error.failure, job)) from error
        self._live.add(sent)
        return sent

    def done(self, sent: OpenAnswer) -> None:
        sent.close()
        self._live.discard(sent)

    def drop_with(self, stream: object, sent: OpenAnswer) -> None:
        """A stream that nobody holds any more hangs up, in whatever thread that is noticed."""
        loop = asyncio.get_running_loop()
        weakref.finalize(stream, _drop, loop, self.done, sent).atexit = False

    async def _whole(self, request: Request, asked: BuiltRequest) -> Answer:
        sent = await self.send(request, stream=False, refuse=asked.refuse, timeout_s=asked.timeout_s)
        try:
            return finish_chat(whole_reply(sent), sent, asked)
        finally:
            self.done(sent)

    async def _stream(self, request: Request, asked: BuiltRequest) -> AsyncStream:
        sent = await self.send(request, stream=True, refuse=asked.refuse, timeout_s=asked.timeout_s)

        async def close() -> None:
            self.done(sent)

        stream = AsyncStream(pieces(sent), close, lambda reply: finish_chat(reply, sent, asked))
        self.drop_with(stream, sent)
        return stream

    # -- ending

    async def close(self) -> None:
        """Ends what still runs and gives back every connection."""
        for sent in list(self._live):
            self.done(sent)
        await self._transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Upstreams:
    """The Model of the agent loop."""

    def __init__(self, client: AsyncClient, asked: BuiltRequest, notes: list[Note], stream: bool) -> None:
        self._client, self._asked, self._notes, self._stream = client, asked, notes, stream
        self._last: tuple[Note, ...] = ()  # of the last turn

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        asked = self._asked
        sent = await self._client.send(request, stream=self._stream, refuse=asked.refuse, timeout_s=asked.timeout_s)
        try:
            if self._stream:
                async for piece in pieces(sent):
                    for event in piece:
                        yield event
            else:
                for event in unfold(whole_reply(sent)):
                    yield event
        finally:
            self._client.done(sent)
            self._last = notes_of(sent)
            self._notes.extend(note for note in self._last if note not in self._notes)

    def turn_notes(self) -> tuple[Note, ...]:
        return self._last


def _drop(loop: asyncio.AbstractEventLoop, done: Callable[[OpenAnswer], None], sent: OpenAnswer) -> None:
    with suppress(RuntimeError):  # the loop is closed, and all of it with it
        loop.call_soon_threadsafe(done, sent)


async def pieces(sent: OpenAnswer) -> AsyncIterator[list[Event]]:
    while (piece := await sent.next()) is not None:
        if piece.events:
            yield piece.events


def whole_reply(sent: OpenAnswer) -> Reply:
    if sent.reply is None:
        raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream said nothing"))
    return sent.reply


def finish_chat(reply: Reply, sent: OpenAnswer, asked: BuiltRequest) -> Answer:
    return Answer(reply, notes=notes_of(sent), upstream=sent.target.upstream.name, output=asked.output)


def finish_run(stopped: Stopped, notes: list[Note], asked: BuiltRequest) -> RunAnswer:
    """A loop that a limit ended has an answer; one whose model failed has none."""
    if stopped.failure is not None:
        raise UpstreamError(stopped.failure)
    return RunAnswer(stopped, notes=tuple(notes), output=asked.output)


def notes_of(sent: OpenAnswer) -> tuple[Note, ...]:
    """Ours, and those a gateway tells in its header."""
    notes = tuple(sent.notes)
    said = sent.headers.get("x-dragoman-notes")
    if said is None or not sent.target.upstream.name.startswith(GATEWAY):
        return notes
    try:
        rows = load_json(said)
        more = [Note(row["kind"], row["where"], row["why"]) for row in rows if "kind" in row]
    except (DecodeError, KeyError, TypeError):
        return notes
    return (*notes, *more)


def tell_refused_key(failure: Failure, name: str) -> Failure:
    """The caller of a library owns the key: a refusal keeps its kind and its status, in the provider's words."""
    if failure.kind == "unauthenticated":
        return replace(failure, message=f"{name} refuses the key: {failure.message}")
    if failure.kind == "forbidden":
        return replace(failure, message=f"{name} does not allow this: {failure.message}")
    return failure


def name_upstream(failure: Failure, job: Job) -> Failure:
    """Says which server could not be reached. Without a response the message is ours, so we may rewrite it."""
    answered = any(attempt.status is not None for attempt in job.attempts[-1:])
    if answered or len(job.targets) != 1 or not failure.message.startswith(OUR_WORDS):
        return failure
    spec = job.targets[0][0].spec
    server = f"the gateway at {spec.base_url}" if spec.name.startswith(GATEWAY) else f"{spec.name} ({spec.base_url})"
    rest = failure.message.removeprefix(OUR_WORDS)
    return replace(failure, message=server + (f": its {rest[3:]}" if rest.startswith("'s ") else rest))
