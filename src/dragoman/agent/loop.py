"""The decisions of the agent loop, without a clock, a network or a tool.

    state, command = decide(state, outcome)

The outcome is the result of the last command.
"""

from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agent.steps import Limits, Stopped, StopReason, count_cost, count_tokens
from dragoman.errors import DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import dump_text, load_json, sort_keys
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

CallKey: TypeAlias = tuple[str, str]  # name and arguments: identical calls have equal keys
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 1000  # for a picture, roughly


class LoopState(Struct, frozen=True, kw_only=True):
    request: Request  # its messages grow with each turn
    limits: Limits
    deadline: float  # of the whole loop, on the clock that `now` comes from
    caller_tools: frozenset[str] = frozenset()  # names of tools that the caller runs itself
    turn: int = 0
    calls: int = 0
    usage: Usage = Usage()
    tokens: int = 0  # as the provider counts, else a guess
    cost: float = 0.0
    last_usage: Usage = Usage()  # of the last turn, as the provider counts or a guess
    reply: Reply | None = None
    last_turn_calls: tuple[CallKey, ...] = ()  # all calls of the last turn
    repeated_turns: int = 0  # turns in a row with exactly these calls
    last_call: CallKey | None = None
    repeated_calls: int = 0


# -- outcomes


class LoopStarted(Struct, frozen=True):
    now: float


class ModelReplied(Struct, frozen=True):
    reply: Reply
    now: float


class ToolsFinished(Struct, frozen=True):
    """All calls of the turn have results. They are in the order of the calls."""

    results: tuple[ToolResult, ...]
    now: float


class ModelFailed(Struct, frozen=True):
    failure: Failure


class TimedOut(Struct, frozen=True):
    """The deadline passed during a turn of the model."""


Outcome: TypeAlias = LoopStarted | ModelReplied | ToolsFinished | ModelFailed | TimedOut


# -- commands


class AskModel(Struct, frozen=True):
    """Start another turn of the model."""

    request: Request


class RunTools(Struct, frozen=True):
    """Run all of these calls at the same time."""

    calls: tuple[ToolCall, ...]


LoopCommand: TypeAlias = AskModel | RunTools | Stopped


def decide(state: LoopState, outcome: Outcome) -> tuple[LoopState, LoopCommand]:
    match outcome:
        case LoopStarted(now=now):
            return _ask_model(state, now)
        case ModelReplied(reply=reply, now=now):
            return _take_reply(state, reply, now)
        case ToolsFinished(results=results, now=now):
            message = Message(role="user", parts=results)
            request = replace(state.request, messages=(*state.request.messages, message))
            return _ask_model(replace(state, request=_allow_plain_answer(request)), now)
        case ModelFailed(failure=failure):
            return state, _make_stop(state, "failed", failure)
        case TimedOut():
            return state, _make_stop(state, "time")
        case _:
            assert_never(outcome)


def _allow_plain_answer(request: Request) -> Request:
    """Removes a forced tool call after the first turn. Otherwise the loop would never end."""
    choice = request.tool_choice
    return replace(request, tool_choice=None) if choice is not None and choice.mode == "required" else request


def _ask_model(state: LoopState, now: float) -> tuple[LoopState, LoopCommand]:
    if now >= state.deadline:
        return state, _make_stop(state, "time")
    if state.turn >= state.limits.turns:
        return state, _make_stop(state, "turns")
    reason = _check_budget(state)
    if reason is not None:
        return state, _make_stop(state, reason)
    return replace(state, turn=state.turn + 1), AskModel(state.request)


def _take_reply(state: LoopState, reply: Reply, now: float) -> tuple[LoopState, LoopCommand]:
    choice = reply.choices[0] if reply.choices else None
    parts = choice.parts if choice is not None else ()
    state = _charge_turn(state, reply, parts)
    request = state.request
    if parts:
        request = replace(request, messages=(*request.messages, Message(role="assistant", parts=parts)))
    state = replace(state, request=request, reply=reply, usage=add_usage(state.usage, reply.usage))
    finish_reason = choice.finish.reason if choice is not None and choice.finish is not None else None
    calls = tuple(part for part in parts if isinstance(part, ToolCall))
    if finish_reason == "pause" and not calls:
        return _ask_model(state, now)  # a paused reply is sent back to continue
    if not calls or finish_reason in ("length", "context", "filter", "refusal", "malformed"):
        return state, _make_stop(state, "done")  # the call may have been cut: do not run it
    if any(call.name in state.caller_tools for call in calls):
        return state, _make_stop(state, "caller")
    stop_reason = _check_calls(state, calls, now)
    if stop_reason is not None:
        return state, _make_stop(state, stop_reason)
    return _count_calls(state, calls), RunTools(calls)


def _check_calls(state: LoopState, calls: tuple[ToolCall, ...], now: float) -> StopReason | None:
    """Which limit forbids these calls. Checked before they run: calls have effects, even if the loop stops then."""
    limits = state.limits
    if now >= state.deadline:
        return "time"
    reason = _check_budget(state)
    if reason is not None:
        return reason
    counted = _count_calls(state, calls)
    if counted.repeated_turns > limits.repeats or _count_longest_repeat(state, calls) > limits.repeats:
        return "tool_repeat"
    if counted.calls > limits.calls:
        return "calls"
    return "turns" if state.turn >= limits.turns else None


def _charge_turn(state: LoopState, reply: Reply, parts: tuple[Part, ...]) -> LoopState:
    """Adds the tokens and the cost of this turn. If the provider does not count, both are guessed: limits must hold."""
    usage = reply.usage
    if usage is None or count_tokens(usage) == 0:
        input_tokens = sum(_guess_tokens(message.parts) for message in state.request.messages)
        usage = Usage(input=input_tokens, output=_guess_tokens(parts))
    price = state.limits.price
    return replace(
        state,
        tokens=state.tokens + count_tokens(usage),
        cost=state.cost + (count_cost(usage, price) if price is not None else 0.0),
        last_usage=usage,
    )


def _guess_tokens(parts: tuple[Part, ...]) -> int:
    tokens = 0
    for part in parts:
        match part:
            case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolCall(arguments=text):
                tokens += len(text) // CHARS_PER_TOKEN + 1
            case ToolResult(parts=result_parts):
                tokens += _guess_tokens(result_parts)
            case Image() | Document() | Audio() | Video():
                tokens += MEDIA_TOKENS
            case _:
                pass
    return tokens


def _check_budget(state: LoopState) -> StopReason | None:
    """Which limit another turn would break. It reads at least the input and the output of the last turn."""
    limits, next_turn = state.limits, Usage(cache_read=count_tokens(state.last_usage))
    if limits.tokens is not None and state.tokens + count_tokens(next_turn) > limits.tokens:
        return "tokens"
    if limits.cost is None or limits.price is None:
        return None
    return "cost" if state.cost + count_cost(next_turn, limits.price) > limits.cost else None


def _count_calls(state: LoopState, calls: tuple[ToolCall, ...]) -> LoopState:
    keys = [make_call_key(call) for call in calls]
    turn_calls = tuple(sorted(keys))
    last_call, repeats = state.last_call, state.repeated_calls
    for key in keys:
        last_call, repeats = key, repeats + 1 if key == last_call else 1
    return replace(
        state,
        calls=state.calls + len(calls),
        last_turn_calls=turn_calls,
        repeated_turns=state.repeated_turns + 1 if turn_calls == state.last_turn_calls else 1,
        last_call=last_call,
        repeated_calls=repeats,
    )


def _count_longest_repeat(state: LoopState, calls: tuple[ToolCall, ...]) -> int:
    last_call, repeats, longest = state.last_call, state.repeated_calls, 0
    for call in calls:
        key = make_call_key(call)
        last_call, repeats = key, repeats + 1 if key == last_call else 1
        longest = max(longest, repeats)
    return longest


def make_call_key(call: ToolCall) -> CallKey:
    """Name and arguments, independent of the order of keys and of spaces."""
    try:
        return call.name, dump_text(sort_keys(load_json(call.arguments)))
    except (DragomanError, RecursionError):
        return call.name, call.arguments


def _make_stop(state: LoopState, reason: StopReason, failure: Failure | None = None) -> Stopped:
    return Stopped(
        reason=reason,
        reply=state.reply,
        messages=state.request.messages,
        usage=state.usage,
        turns=state.turn,
        calls=state.calls,
        failure=failure,
    )
