"""Runs the agent loop: carries out the decisions of loop.py. When the loop ends, everything that it started has ended.

The client library and the gateway both use it, through two small protocols: a Model answers a Request with events, and
a Toolbox (tools/toolbox.py) lists tools and runs calls.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from dragoman.agent.loop import (
    AskModel,
    LoopStarted,
    LoopState,
    ModelFailed,
    ModelReplied,
    Outcome,
    RunTools,
    TimedOut,
    ToolsFinished,
    decide,
)
from dragoman.agent.steps import CallFinished, CallStarted, Limits, Step, Stopped, TurnEvent, TurnFinished, TurnStarted
from dragoman.errors import DragomanError, LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.log_line import LogLine
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.fold import ReplyBuilder
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import AnyTool, Request, ServerTool
from dragoman.notes import Note
from dragoman.tools.function import ToolTimeoutError, describe_error, run_with_timeout
from dragoman.tools.results import limit_result, make_failed_result
from dragoman.tools.toolbox import Toolbox

log = logging.getLogger(__name__)
_depth: ContextVar[int] = ContextVar("dragoman_agent_depth", default=0)


class Model(Protocol):
    """Answers one request. A failure before the answer starts is an UpstreamError; a failure in it is a ReplyFailed.

    Closing the iterator frees everything that it uses.
    """

    def ask(self, request: Request) -> AsyncIterator[Event]: ...


@runtime_checkable
class HasTurnNotes(Protocol):
    """A Model that knows what its conversions lost or changed."""

    def turn_notes(self) -> tuple[Note, ...]:
        """The notes of the last turn, once it has ended."""


def get_turn_notes(model: object) -> tuple[Note, ...]:
    return model.turn_notes() if isinstance(model, HasTurnNotes) else ()


async def run_loop(
    model: Model, toolbox: Toolbox, request: Request, limits: Limits | None = None
) -> AsyncGenerator[Step, None]:
    """Yields the steps of one loop; the last one is Stopped. The caller runs the tools in `request.tools` itself: a
    call of one of them ends the loop. The tools of the toolbox are added, and listed again for each turn."""
    limits = limits or Limits()
    if limits.cost is not None and limits.price is None:
        raise DragomanError("Limits.cost needs Limits.price")
    depth = _depth.get()
    if depth >= limits.depth:
        raise DragomanError(f"agents inside tools of agents, {depth} levels deep: that is the limit (Limits.depth)")
    clock = asyncio.get_running_loop().time
    state = LoopState(
        request=request, limits=limits, deadline=clock() + limits.total_s, caller_tools=_get_names(request.tools or ())
    )
    outcome: Outcome = LoopStarted(clock())
    notes: dict[Note, None] = {}
    while True:
        state, command = decide(state, outcome)
        match command:
            case Stopped():
                log.debug(LogLine("loop_stopped", {"turns": state.turn, "why": command.reason}))
                yield replace(command, notes=tuple(notes))
                return
            case AskModel(request=model_request):
                turn = _ModelTurn(model, toolbox, state, clock)
                async with aclosing(turn.steps(model_request)) as steps:
                    async for step in steps:
                        yield step
                outcome = turn.outcome
                notes.update(dict.fromkeys(turn.notes))
            case RunTools(calls=calls):
                batch = _CallBatch(toolbox, state, depth, clock)
                async with aclosing(batch.steps(calls)) as steps:
                    async for step in steps:
                        yield step
                outcome = ToolsFinished(tuple(batch.results[i] for i in range(len(calls))), clock())


def _get_names(tools: tuple[AnyTool, ...]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if not isinstance(tool, ServerTool))


class _ModelTurn:
    """One turn of the model."""

    def __init__(self, model: Model, toolbox: Toolbox, state: LoopState, clock: Callable[[], float]) -> None:
        self._model, self._toolbox, self._state, self._clock = model, toolbox, state, clock
        self.outcome: Outcome = TimedOut()
        self.notes: tuple[Note, ...] = ()

    async def steps(self, request: Request) -> AsyncGenerator[Step, None]:
        number = self._state.turn
        yield TurnStarted(turn=number)
        builder = ReplyBuilder()
        try:
            async with aclosing(self._stream_reply(request, builder)) as turn_events:
                async for step in turn_events:
                    yield step
        except TimeoutError:
            if self._clock() < self._state.deadline:  # not our deadline but a timeout inside the model
                self.outcome = ModelFailed(Failure(kind="timed_out", message="the model took too long"))
            return
        except UpstreamError as error:
            self.outcome = ModelFailed(error.failure)
            return
        except LossError:
            raise  # the caller asked for an error instead of a loss, as outside of a loop
        except DragomanError as error:
            self.outcome = ModelFailed(Failure(kind="server_error", message=str(error)))
            return
        finally:
            self.notes = get_turn_notes(self._model)
        reply = _build_reply(builder)
        if isinstance(reply, Reply):
            self.outcome = ModelReplied(reply, self._clock())
            yield TurnFinished(turn=number, reply=reply, notes=self.notes)
        else:
            self.outcome = ModelFailed(reply)

    async def _stream_reply(self, request: Request, builder: ReplyBuilder) -> AsyncGenerator[Step, None]:
        async with asyncio.timeout_at(self._state.deadline):
            request = replace(request, tools=await self._list_all_tools(request))
        async with aclosing(_close_after(self._model.ask(request))) as events:
            while True:
                async with asyncio.timeout_at(self._state.deadline):
                    event = await anext(events, None)
                if event is None:
                    return
                builder.feed(event)
                yield TurnEvent(turn=self._state.turn, event=event)

    async def _list_all_tools(self, request: Request) -> tuple[AnyTool, ...] | None:
        """The caller's tools, then those of the toolbox. On a name clash the caller's tool wins."""
        caller_tools = request.tools or ()
        names = _get_names(caller_tools)
        others = [t for t in await self._toolbox.list_tools() if isinstance(t, ServerTool) or t.name not in names]
        return (*caller_tools, *others) or None


def _build_reply(builder: ReplyBuilder) -> Reply | Failure:
    try:
        return builder.reply()
    except ValueError:
        return Failure(kind="cut_off", message="the answer was cut off")


async def _close_after(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """The events up to a failure. Closes the iterator of the Model, if it can be closed."""
    try:
        async for event in events:
            yield event
            if isinstance(event, ReplyFailed):
                return
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _CallBatch:
    """Runs the calls of one turn at the same time."""

    def __init__(self, toolbox: Toolbox, state: LoopState, depth: int, clock: Callable[[], float]) -> None:
        self._toolbox, self._state, self._depth, self._clock = toolbox, state, depth, clock
        self._semaphore = asyncio.Semaphore(max(1, state.limits.at_once))
        self._queue: asyncio.Queue[CallStarted | CallFinished] = asyncio.Queue()
        self.results: dict[int, ToolResult] = {}

    async def steps(self, calls: tuple[ToolCall, ...]) -> AsyncGenerator[Step, None]:
        tasks = [asyncio.create_task(self._run_and_report(i, call)) for i, call in enumerate(calls)]
        waiting = len(tasks)
        try:
            while waiting:
                step = await self._queue.get()
                waiting -= isinstance(step, CallFinished)
                yield step
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished)  # each ends within the grace time of `run_with_timeout`

    async def _run_and_report(self, index: int, call: ToolCall) -> None:
        _depth.set(self._depth + 1)  # for this task only
        async with self._semaphore:
            started, turn = self._clock(), self._state.turn
            self._queue.put_nowait(CallStarted(turn=turn, call=call))
            result = await self._run(call, self._state.deadline - started)
            self.results[index] = result
            seconds = self._clock() - started
            if log.isEnabledFor(logging.DEBUG):
                fields = {"turn": turn, "tool": call.name, "failed": result.failed, "ms": round(seconds * 1000)}
                log.debug(LogLine("tool_called", fields))
            self._queue.put_nowait(CallFinished(turn=turn, call=call, result=result, seconds=seconds))

    async def _run(self, call: ToolCall, remaining_s: float) -> ToolResult:
        limits = self._state.limits
        timeout_s = min(limits.tool_s, remaining_s)
        if timeout_s <= 0:
            return make_failed_result(call, f"{call.name} was not called: the time of the loop is over")
        try:
            result = await run_with_timeout(self._toolbox.run(call), timeout_s)
        except ToolTimeoutError:
            return make_failed_result(call, f"{call.name} took longer than {timeout_s:g} s")
        except Exception as error:  # a toolbox should not raise, but the loop must go on
            return make_failed_result(call, f"{call.name} failed: {describe_error(error)}")
        if result.call_id != call.id:
            result = replace(result, call_id=call.id)
        return limit_result(result, limits.result_bytes, limits.media_bytes)
