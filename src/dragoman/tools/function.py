"""FunctionTool: any callable as a tool. A call never raises: every error becomes a result that the model can read.

A plain function runs in its own thread, so it does not block the event loop. A thread cannot be ended from outside. If
it hangs, the call fails at its timeout, and the thread is left alone. It does not keep the program from ending.
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
from dragoman.tools.results import limit_result, make_failed_result, make_result
from dragoman.tools.signature import read_signature
from dragoman.tools.values import WrongValueError

TOOL_S = 120.0  # (RELIABILITY 2.2)
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
        """`parameters`, if given, is the schema that the model sees. The type hints still convert the arguments."""
        self.function: Callable[..., Any] = function.function if isinstance(function, FunctionTool) else function
        function = self.function
        self.name = name or _get_function_name(function)
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
        """The name with `func_` in front, which cannot clash with tools of a provider."""
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
        """Runs one call. The result is `failed` if the arguments do not fit, the function raises or takes too long."""
        try:
            positional, named = self._signature.bind(call)
        except WrongValueError as error:
            return make_failed_result(call, f"{self.name} was not called: {error}")
        try:
            value = await run_with_timeout(self._call(positional, named), self.timeout_s)
            return limit_result(make_result(call, value))
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return make_failed_result(call, f"{self.name} was cancelled")  # the function cancelled itself
        except ToolTimeoutError:
            return make_failed_result(call, f"{self.name} took longer than {self.timeout_s:g} s")
        except DragomanError as error:
            return make_failed_result(call, f"{self.name}: {error}")
        except RecursionError:
            return make_failed_result(call, f"{self.name} failed: too many nested calls (RecursionError)")
        except Exception as error:
            return make_failed_result(call, f"{self.name} failed: {describe_error(error)}")

    async def _call(self, positional: list[Any], named: dict[str, Any]) -> Any:
        if _is_async(self.function):
            value = self.function(*positional, **named)
        else:
            value = await run_in_thread(functools.partial(_call_plain, self.function, positional, named))
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            return join_pieces([piece async for piece in value])
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> "FunctionTool":
        """Binds a tool that decorates a method to its instance."""
        if instance is None:
            return self
        return FunctionTool(
            self.function.__get__(instance, owner),
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
    return lambda decorated: FunctionTool(decorated, **options)


def describe_error(error: BaseException) -> str:
    """An exception in one line, without a trace: the model needs to know what went wrong, not where."""
    message = str(error).strip() or "no message"
    return f"{type(error).__name__}: {message}"[:2000]


def join_pieces(pieces: list[Any]) -> Any:
    """The items of a generator: one text if all of them are text, else a list."""
    return "".join(pieces) if pieces and all(isinstance(piece, str) for piece in pieces) else pieces


def _get_function_name(function: Callable[..., Any]) -> str:
    unwrapped: Any = function
    while isinstance(unwrapped, functools.partial):
        unwrapped = unwrapped.func
    name = getattr(unwrapped, "__name__", None) or type(unwrapped).__name__
    if name == "<lambda>":
        raise DragomanError("a lambda has no name: use FunctionTool(..., name=...)")
    return str(name)


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def _call_plain(function: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    value = function(*positional, **named)
    return join_pieces(list(value)) if inspect.isgenerator(value) else value


# ---------------------------------------------------------------- running


class ToolTimeoutError(Exception):
    """The timeout of a call. A TimeoutError that the tool itself raises is something else."""


async def run_with_timeout(work: Awaitable[Any], timeout_s: float) -> Any:
    """The result of `work`, or ToolTimeoutError. On a timeout or a cancellation `work` is cancelled and gets GRACE_S to
    end; if it ignores the cancellation, it is left alone."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if done:
            return task.result()
        raise ToolTimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
            task.add_done_callback(_ignore_outcome)


def _ignore_outcome(task: "asyncio.Future[Any]") -> None:
    """Reads the exception, so that asyncio does not log it as unhandled."""
    if not task.cancelled():
        task.exception()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Like asyncio.to_thread, but in a daemon thread: if it hangs, the program can still end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def set_outcome(value: Any, error: BaseException | None) -> None:
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
        except StopIteration as stop:  # a future refuses StopIteration
            error = RuntimeError(f"StopIteration: {stop}")
        except SystemExit as stop:
            error = RuntimeError(f"it tried to exit the program ({stop.code})")
        except BaseException as exception:
            error = exception if isinstance(exception, Exception) else RuntimeError(describe_error(exception))
        try:
            loop.call_soon_threadsafe(set_outcome, value, error)
        except RuntimeError:
            return  # the event loop is closed, so the result is not needed

    threading.Thread(target=run, name="dragoman-tool", daemon=True).start()
    return await future
