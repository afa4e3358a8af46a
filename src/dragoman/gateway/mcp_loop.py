"""Conversations with MCP tools: the gateway runs the loop, and the client gets one answer in its own dialect.

A loop is an Answer like an upstream's, so that pings, X-ray, stored responses, notes and the end of the process treat
it like any other answer.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agent import CallFinished, Limits, Model, Step, Stopped, TurnEvent, TurnFinished, TurnMerger, run_loop
from dragoman.agent.driver import get_turn_notes
from dragoman.agent.merge_turns import ReportedStep, ShowCalls, describe_step
from dragoman.dialects import find_dialect
from dragoman.dialects._tools import FAILED
from dragoman.errors import ConfigError, DecodeError, LossError, UpstreamError
from dragoman.exchange import ClientRequest
from dragoman.failure import Failure
from dragoman.gateway.access.charge import bound_output, reserve_turn
from dragoman.gateway.config.mcp import SHOWS
from dragoman.gateway.config.source import state_folder
from dragoman.gateway.conversation import answer_with, count_estimate, find_request_targets, keep_state, respond
from dragoman.gateway.error_responses import classify
from dragoman.gateway.http import HttpResponse
from dragoman.gateway.scope import Scope
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject
from dragoman.mcp.react import ReactModel
from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import MissingPackageError, ServerPool, UnknownServerError, find_registry_path
from dragoman.mcp.toolbox import McpToolbox
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed
from dragoman.model.fold import ReplyBuilder
from dragoman.model.messages import Text
from dragoman.model.reply import Reply, Usage, add_usage
from dragoman.model.request import Request, ServerTool
from dragoman.network import without_proxies
from dragoman.notes import Note, Notes
from dragoman.upstream.attempts import Job
from dragoman.upstream.open_answer import Piece
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target

HEADER, SHOW_HEADER, MODE_HEADER = "x-dragoman-mcp", "x-dragoman-mcp-show", "x-dragoman-mcp-mode"
LoopMode: TypeAlias = Literal["auto", "native", "react"]
MODES: dict[str, LoopMode] = {"": "auto", "auto": "auto", "native": "native", "react": "react"}
_NO_TOOLS = re.compile(r"\btools?\b|\bfunctions?\b", re.I)
LONGEST_RESULT = 4000  # characters of a result that X-ray shows
STORY = "x_dragoman"  # a key in the last frame of the answer, like Groq's `x_groq`. Clients ignore unknown keys


class LoopOptions(Struct, kw_only=True):
    """What one request wants of the loop."""

    names: tuple[str, ...] | None  # servers; None: all
    mode: LoopMode = "auto"
    show: ShowCalls = "reasoning"
    limits: Limits = Limits()
    calls: bool = False  # the answer lists every call, or has a sentence that there was none (mission D9)


def read_loop_options(scope: Scope) -> LoopOptions | None:
    """`x-dragoman-mcp: one, two` or `*`; an empty header switches off the configured default."""
    headers, settings = scope.http.headers, scope.now.settings.mcp
    header = headers.get(HEADER)
    names = settings.default if header is None else tuple(word.strip() for word in header.split(",") if word.strip())
    if not names:
        return None
    mode, show = headers.get(MODE_HEADER, "").strip().lower(), headers.get(SHOW_HEADER, settings.show).strip().lower()
    if mode not in MODES:
        raise DecodeError(f"{MODE_HEADER}: expected auto, native or react")
    if show not in SHOWS:
        raise DecodeError(f"{SHOW_HEADER}: expected one of {', '.join(SHOWS)}")
    everything = "*" in names
    return LoopOptions(names=None if everything else names, mode=MODES[mode], show=SHOWS[show], limits=settings.limits)


async def answer_in_loop(scope: Scope, options: LoopOptions | None = None) -> HttpResponse:
    options = options or read_loop_options(scope)
    toolbox = await find_toolbox(scope, options.names) if options is not None else None
    if options is None or not toolbox:
        return await answer_with(scope)  # no server: plain generation (mission D9)
    client_request = scope.client_request
    if client_request is None:
        raise DecodeError("the request has no messages")
    if (client_request.request.choices or 1) > 1:
        raise DecodeError("one answer at a time with MCP tools")
    options.limits = with_price(scope, client_request.request.model, options.limits)
    answer = LoopAnswer(scope, toolbox, options)
    try:
        await answer.begin()
    finally:
        if answer.is_answered():  # turns that were answered are paid for, also if the loop fails or its client leaves
            scope.answer = answer
    stream = bool(client_request.request.stream)
    if not stream:
        await answer.read_whole()
    response = await respond(scope, stream=stream)
    if answer.stopped is not None:
        response.headers["x-dragoman-stop"] = answer.stopped.reason
    return response


def with_price(scope: Scope, model: str, limits: Limits) -> Limits:
    """A limit of the cost holds only where a price is known; without one nothing is spent."""
    if limits.cost is None:
        return limits
    targets = scope.now.targets(model, scope.gateway.dice)
    names = [model, *(target.model for _, target in targets), "*"]
    prices = scope.now.settings.mcp.prices
    price = next((prices[name] for name in names if name in prices), None)
    if price is None:
        words = f"mcp.cost is set, but mcp.prices has no price of {model[:200]!r}"
        raise UpstreamError(Failure(kind="server_error", status=500, code="mcp_no_price", message=words))
    return replace(limits, price=price)


async def find_toolbox(scope: Scope, names: tuple[str, ...] | None) -> McpToolbox | None:
    servers = servers_of(scope.gateway)
    try:
        if names == () or not (names or servers.list_specs()):
            return None
        await servers.load_package()
        holder = scope.http.holder
        if holder is None or holder.free_tools:
            return servers.make_toolbox(names)
        reached = [
            name for name in names or servers.list_specs() if name not in servers.list_specs() or holder.may_reach(name)
        ]
        return servers.make_toolbox(reached, holder.may_call) if reached else None
    except ConfigError as error:
        raise UpstreamError(
            Failure(kind="server_error", status=500, code="mcp_registry", message=str(error))
        ) from error
    except UnknownServerError as error:
        raise UpstreamError(
            Failure(kind="not_found", status=404, code="mcp_server_not_found", message=str(error))
        ) from error
    except MissingPackageError as error:
        raise UpstreamError(
            Failure(kind="server_error", status=501, code="mcp_not_installed", message=str(error))
        ) from error


class UpstreamModel:
    """The Model of the loop: each turn is a request of its own, with keys, limits, retries and fallbacks as always."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.first_target: Target | None = None
        self.usage: Usage | None = None  # of the turns so far; of one that runs, an estimate of what was sent
        self._notes: Notes | None = None  # of the last turn

    async def ask(self, request: Request) -> AsyncGenerator[Event, None]:
        scope = self._scope
        client_request = _with(scope.client_request, request)
        targets = await find_request_targets(scope, request)
        size, finished = count_estimate(request), self.usage
        if finished is not None:  # the first turn is reserved with the request
            await reserve_turn(scope, size, bound_output(request.max_output))
        job = Job(
            targets=keep_state(request, scope.dialect, targets),
            render=lambda state, target: render(client_request, state, target, stream=True, refuse=scope.refuse),
            large=scope.large,
            stream=True,
            deadline=scope.gateway.clock() + scope.now.settings.deadline_s,
            client=scope.http.key_id or scope.http.client,
            tokens=size + (bound_output(request.max_output) or 0),
            attempts=scope.attempts,
            trace=scope.trace.start_attempt if scope.trace is not None else None,
            keep_wire=scope.in_xray,
        )
        self.usage = add_usage(finished, Usage(input=size))
        try:
            answer = await scope.gateway.sender.ask(job)
        except UpstreamError:
            self.usage = finished
            raise
        except (DecodeError, LossError) as error:  # the client's own fault, as outside of a loop
            raise UpstreamError(classify(error)) from error
        self.first_target, self._notes = self.first_target or answer.target, answer.notes
        try:
            while (piece := await answer.next()) is not None:
                for event in piece.events:
                    if isinstance(event, ReplyEnd) and event.usage is not None:
                        self.usage = add_usage(finished, event.usage)
                    yield event
        finally:
            answer.close()

    def turn_notes(self) -> tuple[Note, ...]:
        return tuple(self._notes) if self._notes is not None else ()


def _with(client_request: ClientRequest | None, request: Request) -> ClientRequest:
    if client_request is None:
        raise DecodeError("the request has no messages")
    # The client's own bytes do not hold our tools.
    return replace(client_request, request=replace(request, stream=True), same_wire=False)


def choose_model(model: UpstreamModel, toolbox: McpToolbox, mode: LoopMode) -> Model:
    if mode == "native":
        return model
    react = ReactModel(model, toolbox.make_label)
    return react if mode == "react" else EitherModel(model, react)


class EitherModel:
    """Native calls, until a model refuses tools in its first answer: then tools in words."""

    def __init__(self, native: Model, react: Model) -> None:
        self._native, self._react = native, react
        self._chosen: Model | None = None

    async def ask(self, request: Request) -> AsyncGenerator[Event, None]:
        model = self._chosen or self._native
        try:
            async for event in model.ask(request):
                self._chosen = model
                yield event
            return
        except UpstreamError as error:
            if self._chosen is not None or not request.tools or not refuses_tools(error.failure):
                raise
        self._chosen = self._react
        async for event in self._react.ask(request):
            yield event

    def turn_notes(self) -> tuple[Note, ...]:
        return get_turn_notes(self._chosen or self._native)


def refuses_tools(failure: Failure) -> bool:
    """ "... does not support tools": providers have no code for it, only words."""
    return failure.kind == "invalid_request" and bool(_NO_TOOLS.search(failure.message))


class LoopAnswer:
    """All turns of a loop as one answer (an OpenAnswer)."""

    target: Target  # of its first turn; known after `begin`

    def __init__(self, scope: Scope, toolbox: McpToolbox, options: LoopOptions) -> None:
        client_request = scope.client_request
        if client_request is None:
            raise DecodeError("the request has no messages")
        self.dialect = find_dialect("canonical")
        self.as_is = False
        self.notes = Notes(scope.refuse)
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.reply: Reply | None = None
        self.complete = self.plain = False
        self._usage: Usage | None = None  # once it has ended
        self.failure: Failure | None = None
        self.stopped: Stopped | None = None
        self.calls: list[CallFinished] = []
        self.turns = 0
        self._model = UpstreamModel(scope)
        request = client_request.request
        self._steps = run_loop(choose_model(self._model, toolbox, options.mode), toolbox, request, options.limits)
        own = frozenset(tool.name for tool in request.tools or () if not isinstance(tool, ServerTool))
        self._toolbox = toolbox
        output = request.output
        exact = output is not None and output.type != "text"  # then `show` may not put words into the text either
        show: ShowCalls = "nothing" if exact and options.show == "text" else options.show
        self._merger = TurnMerger(caller_tools=own, show_calls=show, describe=self._tell, final_text_only=exact)
        self._client_dialect, self._list_calls = scope.dialect, options.calls
        self._trace = scope.trace
        self._keep = scope.loop if scope.in_xray else None
        self._waiting: list[Event] = []
        self._over = False
        self._gone = False

    @property
    def usage(self) -> Usage | None:
        return self._usage or self._model.usage

    def is_answered(self) -> bool:
        """Whether an upstream has begun to answer, so that `target` is known."""
        if self._model.first_target is None:
            return False
        self.target = self._model.first_target
        return True

    async def begin(self) -> None:
        """Runs until the first text or call. A failure before that is an ordinary error (commit point)."""
        while not self._over:
            events = await self._step()
            self._waiting.extend(events)
            if any(isinstance(event, PartStart) for event in events):
                break
        failed = next((e.failure for e in self._waiting if isinstance(e, ReplyFailed)), None)
        if failed is not None:
            raise UpstreamError(failed)
        if not self.is_answered():
            raise UpstreamError(Failure(kind="timed_out", status=504, message="no answer within the time limit"))
        self._take_notes(self._model.turn_notes())  # in time for the headers

    async def next(self) -> Piece | None:
        while not self._waiting and not self._over:
            self._waiting = await self._step()
        events, self._waiting = self._waiting, []
        return Piece(b"", events) if events else None

    async def read_whole(self) -> None:
        builder = ReplyBuilder()
        while (piece := await self.next()) is not None:
            for event in piece.events:
                builder.feed(event)
        if self.failure is not None:
            raise UpstreamError(self.failure)
        reply = builder.reply()
        if isinstance(reply, Failure):
            raise UpstreamError(reply)
        self.reply, self._usage, self.complete = reply, reply.usage, True

    async def _step(self) -> list[Event]:
        step = await anext(self._steps, None)
        if step is None:
            self._over = True
            return []
        self._watch(step)
        events = self._merger.feed(step)
        if isinstance(step, Stopped) and isinstance(events[-1], ReplyEnd):
            return [*events[:-1], *self._explain_end(events[-1], step)]
        return events

    def _explain_end(self, end: ReplyEnd, stopped: Stopped) -> list[Event]:
        """The last events. A stream has no header left to say why the loop ended, so the end says it."""
        story: JsonObject = {STORY: {"stop": stopped.reason, "turns": stopped.turns, "calls": stopped.calls}}
        if self._list_calls:
            story |= {"iterations": stopped.turns, "mcp_calls": [self._write_call(step) for step in self.calls]}
        finishes = end.finishes
        if not self._client_dialect.explains_finish:
            finishes = tuple(finish and replace(finish, message=None) for finish in finishes)
        before: list[Event] = []
        if self._list_calls and not self._merger.has_text and stopped.reason not in ("done", "caller"):
            words = f"{FAILED}no answer after {stopped.turns} iterations ({stopped.reason})"
            place = self._merger.part_count
            before = [PartStart(index=place, part=Text(text="")), PartDelta(index=place, text=words)]
            before.append(PartEnd(index=place))
        return [*before, replace(end, finishes=finishes, extras={self._client_dialect.name: story})]

    def _write_call(self, step: CallFinished) -> JsonObject:
        return {
            "tool": self._toolbox.make_label(step.call.name),
            "arguments": step.call.arguments,
            "failed": bool(step.result.failed),
            "seconds": round(step.seconds, 3),
        }

    def _write_kept(self, step: CallFinished) -> JsonObject:
        """For X-ray: one call, with what it answered."""
        texts = [part.text if isinstance(part, Text) else part.__class__.__name__ for part in step.result.parts]
        return {"turn": step.turn, **self._write_call(step), "result": "\n".join(texts)[:LONGEST_RESULT]}

    def _watch(self, step: Step) -> None:
        match step:
            case Stopped():
                self.stopped, self._over = step, True
                self._usage, self.turns = step.usage, step.turns
                if step.reason == "failed":
                    self.failure = step.failure
            case CallFinished():
                self.calls.append(step)
                if self._keep is not None:
                    self._keep.append(self._write_kept(step))
                if self._trace is not None:
                    name = self._toolbox.make_label(step.call.name)
                    self._trace.add_tool(name, step.call.id, step.seconds, failed=bool(step.result.failed))
            case TurnEvent(turn=turn):
                self.turns = turn
            case TurnFinished(notes=notes):
                self._take_notes(notes)
            case _:
                pass

    def _take_notes(self, notes: tuple[Note, ...]) -> None:
        known = set(self.notes.items)
        self.notes.extend(note for note in notes if note not in known)

    def _tell(self, step: ReportedStep) -> str:
        return describe_step(step, self._toolbox.make_label)

    def close(self) -> None:
        """Ends the loop wherever it stands; its upstream socket and its calls end with it."""
        if self._gone:
            return
        self._gone = True
        if self.stopped is not None:
            return
        task = asyncio.get_running_loop().create_task(self._steps.aclose())
        _ending.add(task)
        task.add_done_callback(_ending.discard)


_ending: set["asyncio.Task[None]"] = set()  # asyncio may collect a task without a reference before it has run


# ---------------------------------------------------------------- the servers of a running gateway

_servers: WeakKeyDictionary[Gateway, ServerPool] = WeakKeyDictionary()


def servers_of(gateway: Gateway) -> ServerPool:
    """The MCP servers of a gateway. They are made on first use, follow the configuration, and end with the gateway."""
    settings = gateway.now.settings
    found = _servers.get(gateway)
    if found is None:
        folder = settings.mcp.folder or (
            settings.store_path.parent if settings.store_path else state_folder(os.environ)
        )
        env = os.environ if settings.proxies else without_proxies(os.environ)
        path = settings.mcp.file or find_registry_path(settings.source, folder)
        found = _servers[gateway] = ServerPool(Registry(Path(path)), folder=folder, env=env)
        gateway.closers.append(found.close)
    found.configured = settings.mcp.servers  # a reload may have changed them
    # only a gateway that others cannot reach may connect to servers of this machine (T12)
    found.allow_private = not gateway.now.access.public if settings.mcp.private is None else settings.mcp.private
    return found
