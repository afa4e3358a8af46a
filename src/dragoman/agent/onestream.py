"""All turns of a loop as the events of one Reply, for a reader whose protocol knows only one answer."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from dragoman.agent.steps import CallFinished, CallStarted, Heard, Step, Stopped, TurnDone, TurnStarted
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Finish

Show: TypeAlias = Literal["reasoning", "text", "nothing"]


class OneStream:
    """Steps in, events out: one start, the parts of every turn, one end with the usage of all.

    Calls of the toolbox are not parts of the answer; `show` says whether they are told in it as reasoning or as text.
    Calls of the caller's own tools are passed on. A loop that a limit stopped ends with finish `length`.
    """

    def __init__(
        self,
        *,
        caller: frozenset[str] = frozenset(),
        show: Show = "reasoning",
        tell: "Callable[[CallStarted | CallFinished], str] | None" = None,
    ) -> None:
        self._caller = caller
        self._show: Show = show
        self._tell = tell or tell_call
        self._started = False
        self._next = 0
        self._places: dict[int, int] = {}  # this turn's index -> ours
        self._passed_calls = False

    def feed(self, step: Step) -> list[Event]:
        match step:
            case Heard(event=event):
                return self._hear(event)
            case TurnStarted():
                self._places = {}
                return []
            case CallStarted() | CallFinished():
                return self._tell_call(step)
            case TurnDone():
                return []
            case Stopped():
                return self._end(step)

    def _hear(self, event: Event) -> list[Event]:
        match event:
            case ReplyStart():
                first, self._started = not self._started, True
                return [event] if first else []
            case PartStart(part=ToolCall(name=name)) if name not in self._caller:
                return []
            case PartStart(choice=choice) if choice:
                return []
            case PartStart():
                self._passed_calls = self._passed_calls or isinstance(event.part, ToolCall)
                self._places[event.index] = self._next
                self._next += 1
                return [replace(event, index=self._places[event.index])]
            case PartDelta() | PartEnd():
                place = self._places.get(event.index)
                return [] if place is None else [replace(event, index=place)]
            case ReplyEnd() | ReplyFailed():
                return []
            case _:
                return [event]

    def _tell_call(self, step: CallStarted | CallFinished) -> list[Event]:
        words = self._tell(step) if self._show != "nothing" else ""
        if not words or not self._started:
            return []
        place, self._next = self._next, self._next + 1
        part = Text(text="") if self._show == "text" else Reasoning(text="")
        return [PartStart(index=place, part=part), PartDelta(index=place, text=words), PartEnd(index=place)]

    def _end(self, stopped: Stopped) -> list[Event]:
        if stopped.reason == "failed":
            failure = stopped.failure or Failure(kind="unknown", message="the model's turn failed")
            return [ReplyFailed(failure=failure)]
        if not self._started:
            return [ReplyFailed(failure=Failure(kind="timed_out", message="there was no time for an answer"))]
        choice = stopped.reply.choices[0] if stopped.reply is not None and stopped.reply.choices else None
        finish = choice.finish if choice is not None else None
        if stopped.reason not in ("done", "caller"):
            finish = Finish(reason="length", message=f"stopped: {stopped.reason}")
        elif finish is not None and finish.reason == "tool_call" and not self._passed_calls:
            finish = Finish(reason="stop")
        return [ReplyEnd(finishes=(finish,), usage=stopped.usage)]


def tell_call(step: CallStarted | CallFinished) -> str:
    """One line for a call and one for its end."""
    if isinstance(step, CallStarted):
        return f"[{step.call.name} {step.call.arguments[:300]}]\n"
    said = " ".join(part.text for part in step.result.parts if isinstance(part, Text))
    return f"[{step.call.name} {'failed' if step.result.failed else 'answered'}: {said[:300]}]\n"
