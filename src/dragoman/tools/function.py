"""FunctionTool: any callable as a tool. A call never raises: what goes wrong is a result the model can read.

A plain function runs in a thread of its own, so it blocks nobody; a thread cannot be ended from outside, so one that
hangs is answered for at its timeout and left to itself (it does not keep the program from ending).
"""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, overload

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import Tool
from dragoman.tools.results import fail, limit, make_result
from dragoman.tools.signature import read_signature
from dragoman.tools.values import WrongValue

TOOL_S = 120.0  # RELIABILITY 2.2
GRACE_S = 1.0  # for a cancelled tool to clean up
PREFIX = "func_"


class FunctionTool:
    """A callable, described for models. Calling it calls the function itself."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: JsonObject | None = None,
        timeout_s: float = TOOL_S,
        strict: bool | None = None,
    ) -> None:
        """`parameters`, if said, is the schema the model sees; arguments are converted by the hints all the same."""
        self.function: Callable[..., Any] = function.function if isinstance(function, FunctionTool) else function
        function = self.function
        self.name = name or _name_of(function)
        self._signature = read_signature(function)
        self.description = self._signature.description if description is None else description
        self.parameters: JsonObject = self._signature.parameters if parameters is None else parameters
        self.timeout_s = timeout_s
        self.strict = strict
        self.__doc__ = inspect.getdoc(function)
        self.__name__ = self.name
        self.__wrapped__ = function

    @property
    def unique_name(self) -> str:
        """The name with `func_` in front: it cannot clash with a provider's own tools."""
        return PREFIX + self.name

    def to_tool(self) -> Tool:
        return Tool(
            name=self.name, description=self.description or None, parameters=self.parameters, strict=self.strict
        )

    def renamed(self, name: str) -> "FunctionTool":
        """The same tool under another name."""
        return FunctionTool(
            self.function,
            name=name,
            description=self.description,
            parameters=self.parameters,
            timeout_s=self.timeout_s,
            strict=self.strict,
        )

    async def run(self, call: ToolCall) -> ToolResult:
        """The result of one call; `failed` when the arguments do not fit, the function raises or takes too long."""
        try:
            positional, named = self._signature.bind(call)
        except WrongValue as error:
            return fail(call, f"{self.name} was not called: {error}")
        try:
            value = await within(self._call(positional, named), self.timeout_s)
            return limit(make_result(call, value))
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return fail(call, f"{self.name} was cancelled")  # by itself
        except TooLongError:
            return fail(call, f"{self.name} took longer than {self.timeout_s:g} s")
        except DragomanError as error:
            return fail(call, f"{self.name}: {error}")
        except RecursionError:
            return fail(call, f"{self.name} failed: it calls itself too deeply")
        except Exception as error:
            return fail(call, f"{self.name} failed: {say_error(error)}")

    async def _call(self, positional: list[Any], named: dict[str, Any]) -> Any:
        if _is_async(self.function):
            value = self.function(*positional, **named)
        else:
            value = await in_thread(functools.partial(_call_through, self.function, positional, named))
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            return join_pieces([piece async for piece in value])
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> "FunctionTool":
        """A tool made of a method is bound like one."""
        if owner is None:
            return self
        return FunctionTool(
            self.function.__get__(owner, kind),
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            timeout_s=self.timeout_s,
            strict=self.strict,
        )

    def __repr__(self) -> str:
        return f"<FunctionTool {self.name}({', '.join(a.name for a in self._signature.arguments)})>"


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: JsonObject | None = None,
    timeout_s: float = TOOL_S,
    strict: bool | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`@tool` or `@tool(name=..., timeout_s=...)`."""
    if function is not None:
        return FunctionTool(function)
    return lambda made: FunctionTool(made, **options)


def say_error(error: BaseException) -> str:
    """An exception in one line, without a trace: the model needs what went wrong, not where."""
    words = str(error).strip() or "no more is known"
    return f"{type(error).__name__}: {words}"[:2000]


def join_pieces(pieces: list[Any]) -> Any:
    """What a generator gave: text if it was text, else a list."""
    return "".join(pieces) if pieces and all(isinstance(piece, str) for piece in pieces) else pieces


def _name_of(function: Callable[..., Any]) -> str:
    shown: Any = function
    while isinstance(shown, functools.partial):
        shown = shown.func
    name = getattr(shown, "__name__", None) or type(shown).__name__
    if name == "<lambda>":
        raise DragomanError("a lambda has no name: FunctionTool(..., name=...)")
    return str(name)


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def _call_through(function: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    value = function(*positional, **named)
    return join_pieces(list(value)) if inspect.isgenerator(value) else value


# ---------------------------------------------------------------- running


class TooLongError(Exception):
    """Ours, and nobody else's TimeoutError."""


async def within(work: Awaitable[Any], timeout_s: float) -> Any:
    """What `work` gives, or TooLongError. In either case, and when cancelled, `work` has ended or had its chance to:
    a task that swallows its cancellation is waited for GRACE_S and no longer."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if done:
            return task.result()
        raise TooLongError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
            task.add_done_callback(_look_away)


def _look_away(task: "asyncio.Future[Any]") -> None:
    """Nobody asks any more how it ended."""
    if not task.cancelled():
        task.exception()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def in_thread(work: Callable[[], Any]) -> Any:
    """Like asyncio.to_thread, in a daemon thread: one that hangs does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def run() -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = context.run(work)
        except StopIteration as stop:  # a future cannot carry it
            error = RuntimeError(f"StopIteration: {stop}")
        except SystemExit as stop:
            error = RuntimeError(f"it wanted to end the program ({stop.code})")
        except BaseException as caught:
            error = caught if isinstance(caught, Exception) else RuntimeError(say_error(caught))
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    threading.Thread(target=run, name="dragoman-tool", daemon=True).start()
    return await future
