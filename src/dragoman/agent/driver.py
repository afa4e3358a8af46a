"""Runs the agent loop: what loop.py decides is done here, and everything that was begun has ended when it ends.

Written over two small protocols, so that the client library and the gateway use the same code: a Model that answers a
Request with events, and a Toolbox (tools/toolbox.py) that lists tools and runs calls.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from dragoman.agent.loop import (
    Answered,
    AskModel,
    Begun,
    Command,
    Expired,
    Happening,
    ModelFailed,
    Replied,
    RunTools,
    State,
    decide,
)
from dragoman.agent.steps import CallFinished, CallStarted, Heard, Limits, Step, Stopped, TurnDone, TurnStarted
from dragoman.errors import DragomanError, LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.log_line import LogLine
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.fold import ReplyBuilder
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import AnyTool, Request, ServerTool
from dragoman.notes import Note
from dragoman.tools.function import TooLongError, say_error, within
from dragoman.tools.results import fail, limit
from dragoman.tools.toolbox import Toolbox

log = logging.getLogger(__name__)
_depth: ContextVar[int] = ContextVar("dragoman_agent_depth", default=0)


class Model(Protocol):
    """Answers one request. What fails before the answer begins is an UpstreamError, what fails in it ReplyFailed.

    Closing the iterator gives back everything it holds.
    """

    def ask(self, request: Request) -> AsyncIterator[Event]: ...


@runtime_checkable
class Noting(Protocol):
    """A Model that knows what its turns could not carry."""

    def turn_notes(self) -> tuple[Note, ...]:
        """Of the turn that was asked last, once it has ended."""


def notes_of(model: object) -> tuple[Note, ...]:
    return model.turn_notes() if isinstance(model, Noting) else ()


async def run_loop(
    model: Model, toolbox: Toolbox, request: Request, limits: Limits | None = None
) -> AsyncGenerator[Step, None]:
    """The steps of one loop, the last of them Stopped. Tools in `request.tools` are the caller's own: a call of one
    ends the loop. Those of the toolbox are added, anew for each turn."""
    limits = limits or Limits()
    if limits.cost is not None and limits.price is None:
        raise DragomanError("a limit of the cost needs a price")
    depth = _depth.get()
    if depth >= limits.depth:
        raise DragomanError(f"agents within tools of agents, {depth} deep: no further")
    clock = asyncio.get_running_loop().time
    state = State(request=request, limits=limits, until=clock() + limits.total_s, caller=_names(request.tools or ()))
    happening: Happening = Begun(clock())
    notes: dict[Note, None] = {}
    while True:
        state, command = decide(state, happening)
        match command:
            case Stopped():
                log.debug(LogLine("loop_stopped", {"turns": state.turn, "why": command.reason}))
                yield replace(command, notes=tuple(notes))
                return
            case AskModel(request=asked):
                turn = _ModelTurn(model, toolbox, state, clock)
                async with aclosing(turn.steps(asked)) as steps:
                    async for step in steps:
                        yield step
                happening = turn.outcome
                notes.update(dict.fromkeys(turn.notes))
            case RunTools(calls=calls):
                batch = _Batch(toolbox, state, depth, clock)
                async with aclosing(batch.steps(calls)) as steps:
                    async for step in steps:
                        yield step
                happening = Answered(tuple(batch.results[i] for i in range(len(calls))), clock())


def _names(tools: "tuple[AnyTool, ...] | list[AnyTool]") -> frozenset[str]:
    return frozenset(tool.name for tool in tools if not isinstance(tool, ServerTool))


class _ModelTurn:
    """One turn of the model."""

    def __init__(self, model: Model, toolbox: Toolbox, state: State, clock: Callable[[], float]) -> None:
        self._model, self._toolbox, self._state, self._clock = model, toolbox, state, clock
        self.outcome: Happening = Expired()
        self.notes: tuple[Note, ...] = ()

    async def steps(self, request: Request) -> AsyncGenerator[Step, None]:
        number = self._state.turn
        yield TurnStarted(turn=number)
        builder = ReplyBuilder()
        try:
            async with aclosing(self._heard(request, builder)) as heard:
                async for step in heard:
                    yield step
        except TimeoutError:
            if self._clock() < self._state.until:  # somebody else's
                self.outcome = ModelFailed(Failure(kind="timed_out", message="a step took longer than it may"))
            return
        except UpstreamError as error:
            self.outcome = ModelFailed(error.failure)
            return
        except LossError:
            raise  # whoever would rather have an error than a loss has it, as outside of a loop
        except DragomanError as error:
            self.outcome = ModelFailed(Failure(kind="server_error", message=str(error)))
            return
        finally:
            self.notes = notes_of(self._model)
        reply = _folded(builder)
        if isinstance(reply, Reply):
            self.outcome = Replied(reply, self._clock())
            yield TurnDone(turn=number, reply=reply, notes=self.notes)
        else:
            self.outcome = ModelFailed(reply)

    async def _heard(self, request: Request, builder: ReplyBuilder) -> AsyncGenerator[Step, None]:
        async with asyncio.timeout_at(self._state.until):
            request = replace(request, tools=await self._tools(request))
        events = self._model.ask(request)
        async with aclosing(_closable(events)) as heard:
            while True:
                async with asyncio.timeout_at(self._state.until):
                    event = await anext(heard, None)
                if event is None:
                    return
                builder.feed(event)
                yield Heard(turn=self._state.turn, event=event)

    async def _tools(self, request: Request) -> tuple[AnyTool, ...] | None:
        """The caller's own first; a tool of the toolbox that bears the name of one of them stays out."""
        own = request.tools or ()
        names = _names(own)
        more = [t for t in await self._toolbox.list_tools() if isinstance(t, ServerTool) or t.name not in names]
        return (*own, *more) or None


def _folded(builder: ReplyBuilder) -> Reply | Failure:
    try:
        return builder.reply()
    except ValueError:
        return Failure(kind="cut_off", message="the answer ended before its end")


async def _closable(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """A Model may give any iterator; one that can be closed is."""
    try:
        async for event in events:
            yield event
            if isinstance(event, ReplyFailed):
                return
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _Batch:
    """The calls of one turn, all at the same time."""

    def __init__(self, toolbox: Toolbox, state: State, depth: int, clock: Callable[[], float]) -> None:
        self._toolbox, self._state, self._depth, self._clock = toolbox, state, depth, clock
        self._gate = asyncio.Semaphore(max(1, state.limits.at_once))
        self._queue: asyncio.Queue[CallStarted | CallFinished] = asyncio.Queue()
        self.results: dict[int, ToolResult] = {}

    async def steps(self, calls: tuple[ToolCall, ...]) -> AsyncGenerator[Step, None]:
        tasks = [asyncio.create_task(self._one(i, call)) for i, call in enumerate(calls)]
        waiting = len(tasks)
        try:
            while waiting:
                step = await self._queue.get()
                waiting -= isinstance(step, CallFinished)
                yield step
        finally:
            left = [task for task in tasks if not task.done()]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)  # each ends within the grace time of `within`

    async def _one(self, place: int, call: ToolCall) -> None:
        _depth.set(self._depth + 1)  # of this task alone
        async with self._gate:
            begun, turn = self._clock(), self._state.turn
            self._queue.put_nowait(CallStarted(turn=turn, call=call))
            result = await self._run(call, self._state.until - begun)
            self.results[place] = result
            seconds = self._clock() - begun
            if log.isEnabledFor(logging.DEBUG):
                fields = {"turn": turn, "tool": call.name, "failed": result.failed, "ms": round(seconds * 1000)}
                log.debug(LogLine("tool_called", fields))
            self._queue.put_nowait(CallFinished(turn=turn, call=call, result=result, seconds=seconds))

    async def _run(self, call: ToolCall, left_s: float) -> ToolResult:
        limits = self._state.limits
        allowed = min(limits.tool_s, left_s)
        if allowed <= 0:
            return fail(call, f"{call.name} was not called: there is no time left")
        try:
            result = await within(self._toolbox.run(call), allowed)
        except TooLongError:
            return fail(call, f"{call.name} took longer than {allowed:g} s")
        except Exception as error:  # a toolbox should not; the loop goes on all the same
            return fail(call, f"{call.name} failed: {say_error(error)}")
        if result.call_id != call.id:
            result = replace(result, call_id=call.id)
        return limit(result, limits.result_bytes, limits.media_bytes)


__all__ = ["Command", "Model", "run_loop"]
