"""All turns of a loop as the events of one Reply, for a reader whose protocol knows only one answer."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from dragoman.agent.steps import CallFinished, CallStarted, Heard, Step, Stopped, TurnDone, TurnStarted
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import Opaque, Reasoning, Text, ToolCall
from dragoman.model.reply import Finish

Show: TypeAlias = Literal["reasoning", "text", "nothing"]
Told: TypeAlias = CallStarted | CallFinished | Stopped
APART = "\n\n"


class OneStream:
    """Steps in, events out: one start, the parts of every turn, one end with the usage of all.

    Calls of the toolbox are not parts of the answer; `show` says whether they are told in it as reasoning or as text.
    Calls of the caller's own tools are passed on. A loop that a limit stopped ends with finish `length`.

    Many dialects have one text in an answer, and every client joins what it gets: so the text before a call ends with
    an empty line, and what is told of calls one after another is one part.
    """

    def __init__(
        self,
        *,
        caller: frozenset[str] = frozenset(),
        show: Show = "reasoning",
        tell: "Callable[[Told], str] | None" = None,
        last_only: bool = False,
    ) -> None:
        """`last_only`: what is said before a call is no part of the answer, because the answer has to be JSON."""
        self._caller = caller
        self._last_only = last_only
        self._waiting: dict[int, list[Heard]] = {}  # texts of a turn that may be the last
        self._show: Show = show
        self._tell = tell or tell_step
        self._started = False
        self.said = False  # whether there is any text of the model in it
        self.places = 0  # how many parts there are
        self._places: dict[int, int] = {}  # this turn's index -> ours
        self._passed_calls = False
        self._turn = 0
        self._ids: dict[str, int] = {}  # a part's own id -> the turn that used it
        self._texts: dict[int, str] = {}  # open texts of the model, the last they said
        self._held: tuple[PartEnd, str] | None = None  # the end of a text, and the last it said
        self._thought = "\n"  # the last that was said as reasoning
        self._thoughts: set[int] = set()
        self._telling: int | None = None  # a told part that may grow

    def feed(self, step: Step) -> list[Event]:
        steps = self._wait(step) if self._last_only else [step]
        return [event for one in steps for event in self._feed(one)]

    def _wait(self, step: Step) -> list[Step]:
        """A turn's texts come when it has ended without a call of the toolbox, and otherwise not."""
        match step:
            case Heard(event=PartStart(part=Text(), index=index)):
                self._waiting[index] = [step]
            case Heard(event=PartDelta(index=index) | PartEnd(index=index)) if index in self._waiting:
                self._waiting[index].append(step)
            case TurnDone(reply=reply):
                texts, self._waiting = [one for part in self._waiting.values() for one in part], {}
                parts = reply.choices[0].parts if reply.choices else ()
                goes_on = any(isinstance(part, ToolCall) and part.name not in self._caller for part in parts)
                return [step] if goes_on else [*texts, step]
            case _:
                return [step]
        return []

    def _feed(self, step: Step) -> list[Event]:
        match step:
            case Heard(event=event):
                heard = self._hear(event)
                return [*self._close(), *heard] if heard else heard
            case TurnStarted(turn=turn):
                self._places, self._turn = {}, turn
                return []
            case CallStarted() | CallFinished():
                return [*self._end_text(apart=True), *self._say(self._tell(step))]
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
                return [self._begin(event)]
            case PartDelta():
                place = self._places.get(event.index)
                return [] if place is None else [self._grow(replace(event, index=place))]
            case PartEnd():
                place = self._places.get(event.index)
                return [] if place is None else self._hold(replace(event, index=place))
            case ReplyEnd() | ReplyFailed():
                return []
            case _:
                return [event]

    def _begin(self, event: PartStart) -> PartStart:
        place, self.places = self.places, self.places + 1
        self._places[event.index] = place
        event = self._keep_ids_apart(event)
        match event.part:
            case ToolCall():
                self._passed_calls = True
            case Text(text=text):
                self._texts[place] = text
                self.said = self.said or bool(text)
            case Reasoning(text=text):
                self._thoughts.add(place)
                self._thought = text or self._thought
            case _:
                pass
        return replace(event, index=place)

    def _keep_ids_apart(self, event: PartStart) -> PartStart:
        """Ids are unique in one reply, and some servers count anew in each: what is said twice is left out."""
        extras = event.part.extras if not isinstance(event.part, Opaque) else {}
        for dialect, keys in extras.items():
            used = [key for key in ("id", "~id") if key in keys]
            if any(self._ids.setdefault(str(keys[key]), self._turn) != self._turn for key in used):
                fewer = {key: value for key, value in keys.items() if key not in used}
                return replace(event, part=replace(event.part, extras={**extras, dialect: fewer}))
        return event

    def _grow(self, event: PartDelta) -> PartDelta:
        if event.text and event.index in self._texts:
            self._texts[event.index] = (self._texts[event.index] + event.text)[-2:]
            self.said = True
        elif event.text and event.index in self._thoughts:
            self._thought = event.text
        return event

    def _hold(self, event: PartEnd) -> list[Event]:
        """The end of a text waits until it is known whether more text will follow a call."""
        last = self._texts.pop(event.index, "")
        if not last:
            return [event]
        before = self._close()
        self._held = (event, last)
        return before

    def _end_text(self, *, apart: bool) -> list[Event]:
        if self._held is None:
            return []
        (end, last), self._held = self._held, None
        gap = APART[: max(0, 2 - (len(last) - len(last.rstrip("\n"))))] if apart else ""
        return [PartDelta(index=end.index, text=gap), end] if gap else [end]

    def _close(self) -> list[Event]:
        """Whatever waits for its end has it now."""
        told, self._telling = self._telling, None
        return [*self._end_text(apart=False), *([] if told is None else [PartEnd(index=told)])]

    def _say(self, words: str) -> list[Event]:
        if not words or not self._started or self._show == "nothing":
            return []
        if self._telling is not None:
            return [PartDelta(index=self._telling, text=words)]
        place, self.places = self.places, self.places + 1
        self._telling = place
        if self._show == "text":
            return [PartStart(index=place, part=Text(text="")), PartDelta(index=place, text=words)]
        lead = "" if self._thought.endswith("\n") else "\n"
        self._thought = "\n"
        return [PartStart(index=place, part=Reasoning(text="")), PartDelta(index=place, text=lead + words)]

    def _end(self, stopped: Stopped) -> list[Event]:
        if stopped.reason == "failed":
            failure = stopped.failure or Failure(kind="unknown", message="the model's turn failed")
            return [*self._close(), ReplyFailed(failure=failure)]
        if not self._started:
            return [ReplyFailed(failure=Failure(kind="timed_out", message="there was no time for an answer"))]
        choice = stopped.reply.choices[0] if stopped.reply is not None and stopped.reply.choices else None
        finish = choice.finish if choice is not None else None
        said: list[Event] = []
        if stopped.reason not in ("done", "caller"):
            finish = Finish(reason="length", message=f"stopped: {stopped.reason}")
            said = [*self._end_text(apart=True), *self._say(self._tell(stopped))]
        elif finish is not None and finish.reason == "tool_call" and not self._passed_calls:
            finish = Finish(reason="stop")
        return [*said, *self._close(), ReplyEnd(finishes=(finish,), usage=stopped.usage)]


def tell_step(step: Told, label: Callable[[str], str] = str, most: int = 300) -> str:
    """One line for a call, one for its end, one for a limit that stopped it all."""
    if isinstance(step, Stopped):
        return f"[stopped: {step.reason}]\n"
    name = label(step.call.name)
    if isinstance(step, CallStarted):
        return f"[{name} {step.call.arguments[:most]}]\n"
    said = " ".join(" ".join(part.text for part in step.result.parts if isinstance(part, Text)).split())
    return f"[{name} {'failed' if step.result.failed else 'answered'}: {said[:most]}]\n"
