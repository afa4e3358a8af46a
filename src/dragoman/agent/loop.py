"""The decisions of the agent loop, without a clock, a network or a tool: state and what happened -> what to do.

state, command = decide(state, happening)
"""

from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agent.steps import Limits, Stopped, StopReason, count_cost, count_tokens
from dragoman.errors import DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import Json, dump_text, load_json
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Reply, Usage, add_usage
from dragoman.model.request import Request

Mark: TypeAlias = tuple[str, str]  # a call's name and arguments: equal marks are identical calls
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 1000  # a picture, by a rule of thumb


class State(Struct, frozen=True, kw_only=True):
    request: Request  # its messages grow
    limits: Limits
    until: float  # when the whole must have ended
    caller: frozenset[str] = frozenset()  # tools that are the caller's own to run
    turn: int = 0
    calls: int = 0
    usage: Usage = Usage()
    tokens: int = 0  # counted by providers, or guessed where one does not count
    cost: float = 0.0
    last: Usage = Usage()  # of the last turn, said or guessed
    reply: Reply | None = None
    last_turn: tuple[Mark, ...] = ()  # what the last turn called
    same_turns: int = 0  # how many turns in a row called that
    last_call: Mark | None = None
    same_calls: int = 0


# -- what happened


class Begun(Struct, frozen=True):
    now: float


class Replied(Struct, frozen=True):
    reply: Reply
    now: float


class Answered(Struct, frozen=True):
    """Every call of the turn has its result, in the order of the calls."""

    results: tuple[ToolResult, ...]
    now: float


class ModelFailed(Struct, frozen=True):
    failure: Failure


class Expired(Struct, frozen=True):
    """The time was over in the middle of a model's turn."""


Happening: TypeAlias = Begun | Replied | Answered | ModelFailed | Expired


# -- what to do


class AskModel(Struct, frozen=True):
    """Another turn of the model."""

    request: Request


class RunTools(Struct, frozen=True):
    """All of these calls, at the same time."""

    calls: tuple[ToolCall, ...]


Command: TypeAlias = AskModel | RunTools | Stopped


def decide(state: State, happening: Happening) -> tuple[State, Command]:
    match happening:
        case Begun(now=now):
            return _ask(state, now)
        case Replied(reply=reply, now=now):
            return _hear(state, reply, now)
        case Answered(results=results, now=now):
            said = Message(role="user", parts=results)
            request = replace(state.request, messages=(*state.request.messages, said))
            return _ask(replace(state, request=_free(request)), now)
        case ModelFailed(failure=failure):
            return state, _stop(state, "failed", failure)
        case Expired():
            return state, _stop(state, "time")
        case _:
            assert_never(happening)


def _free(request: Request) -> Request:
    """A call that must be made is made once: forced again and again it would never end."""
    choice = request.tool_choice
    return replace(request, tool_choice=None) if choice is not None and choice.mode == "required" else request


def _ask(state: State, now: float) -> tuple[State, Command]:
    if now >= state.until:
        return state, _stop(state, "time")
    if state.turn >= state.limits.turns:
        return state, _stop(state, "turns")
    dear = _too_dear(state)
    if dear is not None:
        return state, _stop(state, dear)
    return replace(state, turn=state.turn + 1), AskModel(state.request)


def _hear(state: State, reply: Reply, now: float) -> tuple[State, Command]:
    choice = reply.choices[0] if reply.choices else None
    parts = choice.parts if choice is not None else ()
    state = _settle(state, reply, parts)
    request = state.request
    if parts:
        request = replace(request, messages=(*request.messages, Message(role="assistant", parts=parts)))
    state = replace(state, request=request, reply=reply, usage=add_usage(state.usage, reply.usage))
    why = choice.finish.reason if choice is not None and choice.finish is not None else None
    calls = tuple(part for part in parts if isinstance(part, ToolCall))
    if why == "pause" and not calls:
        return _ask(state, now)  # "send it back to go on"
    if not calls or why in ("length", "context", "filter", "refusal", "malformed"):
        return state, _stop(state, "done")  # a call that may have been cut is not run
    if any(call.name in state.caller for call in calls):
        return state, _stop(state, "caller")
    reason = _refuse(state, calls, now)
    if reason is not None:
        return state, _stop(state, reason)
    return _count(state, calls), RunTools(calls)


def _refuse(state: State, calls: tuple[ToolCall, ...], now: float) -> StopReason | None:
    """Why these calls may not be run. Asked before them: a call whose answer nobody hears has effects all the same."""
    limits = state.limits
    if now >= state.until:
        return "time"
    dear = _too_dear(state)
    if dear is not None:
        return dear
    counted = _count(state, calls)
    if counted.same_turns > limits.repeats or _longest_run(state, calls) > limits.repeats:
        return "tool_repeat"
    if counted.calls > limits.calls:
        return "calls"
    return "turns" if state.turn >= limits.turns else None


def _settle(state: State, reply: Reply, parts: tuple[Part, ...]) -> State:
    """Adds what this turn used. A provider that does not count must not make the loop free of charge."""
    usage = reply.usage
    if usage is None or count_tokens(usage) == 0:
        asked = sum(_guess(message.parts) for message in state.request.messages)
        usage = Usage(input=asked, output=_guess(parts))
    price = state.limits.price
    return replace(
        state,
        tokens=state.tokens + count_tokens(usage),
        cost=state.cost + (count_cost(usage, price) if price is not None else 0.0),
        last=usage,
    )


def _guess(parts: tuple[Part, ...]) -> int:
    tokens = 0
    for part in parts:
        match part:
            case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolCall(arguments=text):
                tokens += len(text) // CHARS_PER_TOKEN + 1
            case ToolResult(parts=inner):
                tokens += _guess(inner)
            case Image() | Document() | Audio() | Video():
                tokens += MEDIA_TOKENS
            case _:
                pass
    return tokens


def _too_dear(state: State) -> StopReason | None:
    """Whether another turn would break a limit for sure: it reads at least what the last one read and said."""
    limits, again = state.limits, Usage(cache_read=count_tokens(state.last))
    if limits.tokens is not None and state.tokens + count_tokens(again) > limits.tokens:
        return "tokens"
    if limits.cost is None or limits.price is None:
        return None
    return "cost" if state.cost + count_cost(again, limits.price) > limits.cost else None


def _count(state: State, calls: tuple[ToolCall, ...]) -> State:
    marks = [mark_of(call) for call in calls]
    turn = tuple(sorted(marks))
    last, same = state.last_call, state.same_calls
    for mark in marks:
        last, same = mark, same + 1 if mark == last else 1
    return replace(
        state,
        calls=state.calls + len(calls),
        last_turn=turn,
        same_turns=state.same_turns + 1 if turn == state.last_turn else 1,
        last_call=last,
        same_calls=same,
    )


def _longest_run(state: State, calls: tuple[ToolCall, ...]) -> int:
    last, same, longest = state.last_call, state.same_calls, 0
    for call in calls:
        mark = mark_of(call)
        last, same = mark, same + 1 if mark == last else 1
        longest = max(longest, same)
    return longest


def mark_of(call: ToolCall) -> Mark:
    """Name and arguments, whatever the order of keys and the spaces between them."""
    try:
        return call.name, dump_text(_sorted(load_json(call.arguments)))
    except (DragomanError, RecursionError):
        return call.name, call.arguments


def _sorted(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _stop(state: State, reason: StopReason, failure: Failure | None = None) -> Stopped:
    return Stopped(
        reason=reason,
        reply=state.reply,
        messages=state.request.messages,
        usage=state.usage,
        turns=state.turn,
        calls=state.calls,
        failure=failure,
    )
