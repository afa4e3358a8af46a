"""Calling tools: arguments, errors as results, timeouts and cancellation."""

import asyncio
import functools
import json
import sys
import threading
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

import pytest

from dragoman.errors import DragomanError
from dragoman.model.messages import Text, ToolCall, ToolResult
from dragoman.tools import FunctionTool, tool
from tests.waiting import NEVER_S, turns, until


def call(name: str = "f", arguments: Any = None, call_id: str = "c1") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolCall(id=call_id, name=name, arguments=text)


def run(function: Any, arguments: Any = None, **options: Any) -> ToolResult:
    made = function if isinstance(function, FunctionTool) else FunctionTool(function, name="f", **options)
    return asyncio.run(made.run(call(made.name, arguments)))


def text_of(result: ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, Text))


# ---------------------------------------------------------------- every kind of callable


def plain(city: str, days: int = 1) -> str:
    return f"{city} {days}"


async def later(city: str, days: int = 1) -> str:
    await asyncio.sleep(0)
    return f"{city} {days}"


def only_by_place(city: str, /, days: int = 1) -> str:
    return f"{city} {days}"


def only_by_name(*, city: str, days: int = 1) -> str:
    return f"{city} {days}"


class Weather:
    def at(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"

    @classmethod
    def of(cls, city: str, days: int = 1) -> str:
        return f"{city} {days}"

    @tool
    def bound_later(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"

    async def __call__(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"


def pieces(city: str, days: int = 1) -> Iterator[str]:
    yield city
    yield f" {days}"


async def later_pieces(city: str, days: int = 1) -> AsyncIterator[str]:
    yield city
    yield f" {days}"


class Forecast:
    def __init__(self, city: str, days: int = 1) -> None:
        self.words = f"{city} {days}"

    def __iter__(self) -> Iterator[str]:
        return iter([self.words])


CALLABLES = [
    plain,
    later,
    only_by_place,
    only_by_name,
    Weather().at,
    Weather.of,
    Weather().bound_later,
    Weather(),
    pieces,
    later_pieces,
    lambda city, days=1: later(city, days),
]


@pytest.mark.parametrize("function", CALLABLES, ids=lambda f: getattr(f, "__name__", type(f).__name__))
def test_any_callable_is_a_tool(function: Any) -> None:
    result = run(function, {"city": "Oslo", "days": 2})
    assert (text_of(result), result.failed, result.call_id) == ("Oslo 2", None, "c1")
    schema = (function if isinstance(function, FunctionTool) else FunctionTool(function, name="f")).parameters
    assert list(schema["properties"]) == ["city", "days"]


@pytest.mark.parametrize(
    "function", [plain, later, Weather().at, Weather()], ids=["function", "coroutine", "method", "object"]
)
def test_arguments_that_a_partial_has_bound_are_hidden_from_the_model(function: Any) -> None:
    bound = functools.partial(function, days=2)
    assert list(FunctionTool(bound, name="f").parameters["properties"]) == ["city"]
    assert text_of(run(bound, {"city": "Oslo"})) == "Oslo 2"
    assert "days: there is no such argument" in text_of(run(bound, {"city": "Oslo", "days": 9}))


def test_a_partial_may_bind_a_type_that_json_cannot_express() -> None:
    def ask(sql: str, database: threading.Lock) -> str:
        return f"{sql} {database is lock}"

    lock = threading.Lock()
    assert text_of(run(functools.partial(ask, database=lock), {"sql": "select"})) == "select True"


class Options(TypedDict, total=False):
    limit: Required[int]
    deep: bool


def test_keywords_of_a_typed_dict_are_arguments() -> None:
    def find(what: str, **options: Unpack[Options]) -> Any:
        """Finds.

        Args:
            limit: at most
        """
        return [what, options]

    schema = FunctionTool(find).parameters
    assert schema["properties"] == {
        "what": {"type": "string"},
        "limit": {"type": "integer", "description": "at most"},
        "deep": {"type": "boolean"},
    }
    assert schema["required"] == ["what", "limit"]
    assert text_of(run(find, {"what": "a", "limit": "3"})) == '["a",{"limit":3}]'
    assert "limit: is missing" in text_of(run(find, {"what": "a"}))


LATER = """
from __future__ import annotations
import dataclasses

from dragoman.tools import FunctionTool


@dataclasses.dataclass
class There:
    here: There | None = None


def make():
    @dataclasses.dataclass
    class Here:
        x: int

    def take(here: Here, there: There, other: Here | There | None = None) -> Nowhere:
        return here.x

    return FunctionTool(take)
"""


def test_hints_are_read_where_annotations_are_only_text() -> None:
    """`from __future__ import annotations`, also with classes inside a function. The return type does not matter."""
    scope: dict[str, Any] = {"__name__": "later"}
    sys.modules["later"] = types.ModuleType("later")
    sys.modules["later"].__dict__.update(scope)
    try:
        exec(LATER, sys.modules["later"].__dict__)  # noqa: S102  # the text above
        made = sys.modules["later"].make()
        assert made.parameters["required"] == ["here", "there"]
        assert text_of(run(made, {"here": {"x": "5"}, "there": {"here": {}}, "other": {"x": 1}})) == "5"
    finally:
        del sys.modules["later"]


def test_an_unknown_type_name_says_what_to_do() -> None:
    def take(value: "Gone") -> None:  # type: ignore[name-defined]  # noqa: F821
        """Takes."""

    with pytest.raises(DragomanError, match=r"take: name 'Gone' is not defined .* define it in the module"):
        FunctionTool(take)


def test_defaults_that_json_cannot_express_are_not_in_the_schema() -> None:
    def f(a: float = float("nan"), b: Any = threading.Lock(), c: Path = Path("x"), d: ToolCall | None = None) -> None:  # noqa: B008
        """F."""

    assert FunctionTool(f).parameters["properties"] == {
        "a": {"type": "number"},
        "b": {},
        "c": {"type": "string", "format": "path", "default": "x"},
    }


def test_positional_and_variable_arguments_arrive() -> None:
    def take(first: int, /, second: int = 2, *rest: int, third: int = 3, **more: int) -> list[Any]:
        return [first, second, rest, third, more]

    assert text_of(run(take, {"first": 1})) == "[1,2,[],3,{}]"
    said = {"first": 1, "rest": [7, 8], "third": 4, "other": 9}
    assert text_of(run(take, said)) == '[1,2,[7,8],4,{"other":9}]'
    assert "other: Expected int" in text_of(run(take, {"first": 1, "other": "x"}))


def test_a_function_may_ask_for_the_call_itself() -> None:
    def which(city: str, call: ToolCall) -> str:
        return f"{call.id} {city}"

    assert list(FunctionTool(which).parameters["properties"]) == ["city"]
    assert text_of(run(which, {"city": "Oslo"})) == "c1 Oslo"


def test_the_decorator_leaves_the_function_callable() -> None:
    @tool(name="weather", timeout_s=3)
    def f(city: str) -> str:
        """The weather."""
        return city

    assert f("Oslo") == "Oslo"
    assert (f.name, f.unique_name, f.timeout_s, f.description) == ("weather", "func_weather", 3, "The weather.")


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(DragomanError, match="name"):
        FunctionTool(lambda: 1)


def test_context_variables_reach_a_function_in_its_thread() -> None:
    user = ContextVar("user", default="unknown")

    def ask() -> str:
        return user.get()

    async def main() -> str:
        user.set("me")
        return text_of(await FunctionTool(ask).run(call()))

    assert asyncio.run(main()) == "me"


# ---------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "city: is missing. The arguments are: city, days (optional)"),
        ({"city": 5}, "city: Expected str, got int"),
        ({"city": "a", "days": "many"}, "days: Expected int, got str"),
        ({"city": "a", "town": "b"}, "town: there is no such argument. The arguments are: city, days (optional)"),
        ({"city": 5, "days": "x"}, "city: Expected str, got int; days: Expected int, got str"),
        ("[1]", "must be one JSON object, not array"),
        ("5", "must be one JSON object, not number"),
        ('{"city": "a"', "are not JSON"),
        ("city=a", "are not JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_explained_to_the_model(arguments: Any, words: str) -> None:
    called = []

    def f(city: str, days: int = 1) -> None:
        called.append(city)

    result = run(f, arguments)
    assert result.failed
    assert words in text_of(result)
    assert called == []


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}", '"{}"'])
def test_no_arguments_can_be_written_in_many_ways(arguments: str) -> None:
    assert text_of(run(lambda: "done", arguments)) == "done"


def test_the_error_says_where_a_nested_value_is_wrong() -> None:
    def f(points: list[dict[str, int]]) -> None: ...

    assert "points: Expected int, got str (in points[1][...])" in text_of(run(f, {"points": [{"x": 1}, {"x": "a"}]}))


# ---------------------------------------------------------------- what goes wrong


def raises() -> None:
    raise ValueError("no such town")


async def raises_later() -> None:
    raise KeyError("town")


def recurses() -> None:
    recurses()


def ends_the_program() -> None:
    sys.exit(3)


def returns_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def returns_a_thread() -> object:
    return threading.Thread()


def stops() -> None:
    raise StopIteration


async def cancels_itself() -> None:
    raise asyncio.CancelledError


def times_out_itself() -> None:
    raise TimeoutError("their clock")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raises, "f failed: ValueError: no such town"),
        (raises_later, "f failed: KeyError: 'town'"),
        (recurses, "f failed: too many nested calls (RecursionError)"),
        (ends_the_program, "it tried to exit the program (3)"),
        (returns_itself, "contains itself"),
        (returns_a_thread, "cannot be written as JSON: Thread"),
        (stops, "StopIteration"),
        (cancels_itself, "f was cancelled"),
        (times_out_itself, "TimeoutError: their clock"),
    ],
)
def test_every_error_is_a_failed_result_and_no_exception(function: Any, words: str) -> None:
    result = run(function)
    assert result.failed
    assert words in text_of(result)


def test_a_result_of_ten_megabytes_is_cut() -> None:
    result = run(lambda: "é" * 5_000_000)
    text = text_of(result)
    assert len(text.encode()) < 256 * 1024 + 100
    assert text.endswith("[cut: the result has 10000000 bytes, 262144 are shown]")
    assert not result.failed


async def hangs() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("way", ["awaiting", "in a thread"])
def test_a_tool_that_hangs_fails_at_its_timeout(way: str) -> None:
    release = threading.Event()

    def hangs_in_a_thread() -> None:
        release.wait(NEVER_S)

    result = run(hangs if way == "awaiting" else hangs_in_a_thread, timeout_s=0.02)
    assert not release.is_set()
    release.set()
    assert result.failed
    assert "took longer than 0.02 s" in text_of(result)


def test_a_tool_that_ignores_its_cancellation_is_left_after_a_grace_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.tools.function.GRACE_S", 0.05)
    ended: list[bool] = []

    async def stubborn() -> None:
        while not ended:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    async def main() -> ToolResult:
        result = await FunctionTool(stubborn, timeout_s=0.02).run(call())
        ended.append(True)
        return result

    assert asyncio.run(main()).failed


def test_cancelling_a_call_ends_the_tool_first() -> None:
    begun = threading.Event()
    seen = []

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await turns(5)
            seen.append("cleaned up")

    async def main() -> None:
        task = asyncio.create_task(FunctionTool(slow).run(call()))
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cleaned up"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_blocking_function_does_not_block_the_event_loop() -> None:
    together = threading.Barrier(5)

    async def main() -> list[ToolResult]:
        slow = FunctionTool(lambda: together.wait(NEVER_S), name="slow")
        return await asyncio.gather(*(slow.run(call()) for _ in range(5)))

    assert [result.failed for result in asyncio.run(main())] == [None] * 5
