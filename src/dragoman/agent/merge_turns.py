"""TurnMerger: all turns of a loop as the events of one Reply, for a protocol that knows only one answer."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from dragoman.agent.steps import CallFinished, CallStarted, Step, Stopped, TurnEvent, TurnFinished, TurnStarted
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import Opaque, Reasoning, Text, ToolCall
from dragoman.model.reply import Finish

ShowCalls: TypeAlias = Literal["reasoning", "text", "nothing"]
ReportedStep: TypeAlias = CallStarted | CallFinished | Stopped
PARAGRAPH_BREAK = "\n\n"
SHOWN_CHARS = 300  # of arguments and results in a report of a call


class TurnMerger:
    """Takes the steps of a loop and gives events: one start, the parts of every turn, one end with the whole usage.

    Calls of the toolbox are not parts of the answer. `show_calls` says whether the answer reports them as reasoning, as
    text or not at all. Calls of the caller's tools are parts of the answer. If a limit stopped the loop, the finish is
    `length`.

    Many dialects have only one text in an answer, and clients join the texts of all turns. So the text before a call
    ends with an empty line, and reports that follow each other are one part.
    """

    def __init__(
        self,
        *,
        caller_tools: frozenset[str] = frozenset(),
        show_calls: ShowCalls = "reasoning",
        describe: Callable[[ReportedStep], str] | None = None,
        final_text_only: bool = False,
    ) -> None:
        """`final_text_only`: leave out texts before a call, because the whole answer has to be JSON."""
        self._caller_tools = caller_tools
        self._final_text_only = final_text_only
        self._delayed_texts: dict[int, list[TurnEvent]] = {}  # of a turn that may be the last, by part index
        self._show_calls: ShowCalls = show_calls
        self._describe = describe or describe_step
        self._started = False
        self.has_text = False  # whether the model has written any text
        self.part_count = 0  # of the merged reply
        self._indices: dict[int, int] = {}  # part index in this turn -> in the merged reply
        self._has_caller_calls = False
        self._turn = 0
        self._id_turns: dict[str, int] = {}  # id of a part -> the turn that used it
        self._open_texts: dict[int, str] = {}  # index -> the last characters
        self._pending_end: tuple[PartEnd, str] | None = None  # the delayed end of a text, and its last characters
        self._last_reasoning = "\n"  # its last characters
        self._reasoning_indices: set[int] = set()
        self._report_index: int | None = None  # of an open report

    def feed(self, step: Step) -> list[Event]:
        steps = self._delay_texts(step) if self._final_text_only else [step]
        return [event for ready in steps for event in self._merge_step(ready)]

    def _delay_texts(self, step: Step) -> list[Step]:
        """Delays the texts of a turn until its end. They are dropped if the turn calls a tool of the toolbox."""
        match step:
            case TurnEvent(event=PartStart(part=Text(), index=index)):
                self._delayed_texts[index] = [step]
            case TurnEvent(event=PartDelta(index=index) | PartEnd(index=index)) if index in self._delayed_texts:
                self._delayed_texts[index].append(step)
            case TurnFinished(reply=reply):
                texts, self._delayed_texts = [event for part in self._delayed_texts.values() for event in part], {}
                parts = reply.choices[0].parts if reply.choices else ()
                continues = any(isinstance(part, ToolCall) and part.name not in self._caller_tools for part in parts)
                return [step] if continues else [*texts, step]
            case _:
                return [step]
        return []

    def _merge_step(self, step: Step) -> list[Event]:
        match step:
            case TurnEvent(event=event):
                events = self._merge_event(event)
                return [*self._close_open_parts(), *events] if events else events
            case TurnStarted(turn=turn):
                self._indices, self._turn = {}, turn
                return []
            case CallStarted() | CallFinished():
                return [*self._release_text_end(add_break=True), *self._report(self._describe(step))]
            case TurnFinished():
                return []
            case Stopped():
                return self._finish(step)

    def _merge_event(self, event: Event) -> list[Event]:
        match event:
            case ReplyStart():
                first, self._started = not self._started, True
                return [event] if first else []
            case PartStart(part=ToolCall(name=name)) if name not in self._caller_tools:
                return []
            case PartStart(choice=choice) if choice:
                return []
            case PartStart():
                return [self._start_part(event)]
            case PartDelta():
                index = self._indices.get(event.index)
                return [] if index is None else [self._track_delta(replace(event, index=index))]
            case PartEnd():
                index = self._indices.get(event.index)
                return [] if index is None else self._end_part(replace(event, index=index))
            case ReplyEnd() | ReplyFailed():
                return []
            case _:
                return [event]

    def _start_part(self, event: PartStart) -> PartStart:
        index, self.part_count = self.part_count, self.part_count + 1
        self._indices[event.index] = index
        event = self._drop_repeated_ids(event)
        match event.part:
            case ToolCall():
                self._has_caller_calls = True
            case Text(text=text):
                self._open_texts[index] = text
                self.has_text = self.has_text or bool(text)
            case Reasoning(text=text):
                self._reasoning_indices.add(index)
                self._last_reasoning = text or self._last_reasoning
            case _:
                pass
        return replace(event, index=index)

    def _drop_repeated_ids(self, event: PartStart) -> PartStart:
        """Ids must be unique in one reply, but some servers count from zero in each turn: repeated ids are left out."""
        extras = event.part.extras if not isinstance(event.part, Opaque) else {}
        for dialect, members in extras.items():
            id_keys = [key for key in ("id", "~id") if key in members]
            if any(self._id_turns.setdefault(str(members[key]), self._turn) != self._turn for key in id_keys):
                others = {key: value for key, value in members.items() if key not in id_keys}
                return replace(event, part=replace(event.part, extras={**extras, dialect: others}))
        return event

    def _track_delta(self, event: PartDelta) -> PartDelta:
        if event.text and event.index in self._open_texts:
            self._open_texts[event.index] = (self._open_texts[event.index] + event.text)[-2:]
            self.has_text = True
        elif event.text and event.index in self._reasoning_indices:
            self._last_reasoning = event.text
        return event

    def _end_part(self, event: PartEnd) -> list[Event]:
        """Ends a part. The end of a text is delayed: a paragraph break may have to follow, if a call comes next."""
        tail = self._open_texts.pop(event.index, "")
        if not tail:
            return [event]
        before = self._close_open_parts()
        self._pending_end = (event, tail)
        return before

    def _release_text_end(self, *, add_break: bool) -> list[Event]:
        if self._pending_end is None:
            return []
        (end, tail), self._pending_end = self._pending_end, None
        gap = PARAGRAPH_BREAK[: max(0, 2 - (len(tail) - len(tail.rstrip("\n"))))] if add_break else ""
        return [PartDelta(index=end.index, text=gap), end] if gap else [end]

    def _close_open_parts(self) -> list[Event]:
        """Ends the delayed text and the open report."""
        report, self._report_index = self._report_index, None
        return [
            *self._release_text_end(add_break=False),
            *([] if report is None else [PartEnd(index=report)]),
        ]

    def _report(self, text: str) -> list[Event]:
        if not text or not self._started or self._show_calls == "nothing":
            return []
        if self._report_index is not None:
            return [PartDelta(index=self._report_index, text=text)]
        index, self.part_count = self.part_count, self.part_count + 1
        self._report_index = index
        if self._show_calls == "text":
            return [PartStart(index=index, part=Text(text="")), PartDelta(index=index, text=text)]
        lead = "" if self._last_reasoning.endswith("\n") else "\n"
        self._last_reasoning = "\n"
        return [PartStart(index=index, part=Reasoning(text="")), PartDelta(index=index, text=lead + text)]

    def _finish(self, stopped: Stopped) -> list[Event]:
        if stopped.reason == "failed":
            failure = stopped.failure or Failure(kind="unknown", message="the model failed")
            return [*self._close_open_parts(), ReplyFailed(failure=failure)]
        if not self._started:
            return [ReplyFailed(failure=Failure(kind="timed_out", message="no answer within the time limit"))]
        choice = stopped.reply.choices[0] if stopped.reply is not None and stopped.reply.choices else None
        finish = choice.finish if choice is not None else None
        report: list[Event] = []
        if stopped.reason not in ("done", "caller"):
            finish = Finish(reason="length", message=f"stopped: {stopped.reason}")
            report = [*self._release_text_end(add_break=True), *self._report(self._describe(stopped))]
        elif finish is not None and finish.reason == "tool_call" and not self._has_caller_calls:
            finish = Finish(reason="stop")
        return [*report, *self._close_open_parts(), ReplyEnd(finishes=(finish,), usage=stopped.usage)]


def describe_step(step: ReportedStep, make_label: Callable[[str], str] = str) -> str:
    """One line: a call, the end of a call, or the limit that stopped the loop."""
    if isinstance(step, Stopped):
        return f"[stopped: {step.reason}]\n"
    name = make_label(step.call.name)
    if isinstance(step, CallStarted):
        return f"[{name} {step.call.arguments[:SHOWN_CHARS]}]\n"
    answer = " ".join(" ".join(part.text for part in step.result.parts if isinstance(part, Text)).split())
    return f"[{name} {'failed' if step.result.failed else 'answered'}: {answer[:SHOWN_CHARS]}]\n"
