"""Removes spellings that clients cannot read from an answer whose client speaks the dialect of the server.

Decoders remember how a server spelled things, and encoders write them so again. That would repeat a server's mistake,
such as a call without an id, or the finish `stop` after calls. Official SDKs raise on it, or agents stop too early.
"""

from typing import TypeVar

from msgspec.structs import replace

from dragoman.fields import OMIT, ReplyRules
from dragoman.jsontypes import JsonObject
from dragoman.model.events import Event, PartStart, ReplyEnd, ReplyStart
from dragoman.model.messages import Extras, Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.notes import ROOT, At, Notes

MESSAGE = "~message"  # the spellings of a choice's message
T = TypeVar("T", ReplyStart, ReplyEnd, Finish, ToolCall, Reasoning, Choice, Reply)


class SpellingMender:
    """Corrects one answer. `changed`: a correction was needed."""

    __slots__ = ("_called", "_dialect", "_notes", "_old", "_rules", "_split", "changed")

    def __init__(self, dialect: str, rules: ReplyRules, notes: Notes) -> None:
        self._dialect, self._rules, self._notes = dialect, rules, notes
        self._called: set[int] = set()  # choices of a stream that have a call
        self._old: set[int] = set()  # choices of a stream that have a call of the older form
        self._split = False  # a text came in pieces, as a list
        self.changed = False

    def reply(self, reply: Reply) -> Reply:
        reply = self._clean(reply, ROOT)
        if not reply.choices:
            return reply
        choices = tuple(self._fit_choice(choice, ((ROOT, "choices"), i)) for i, choice in enumerate(reply.choices))
        return reply if choices == reply.choices and not self._split else replace(reply, choices=choices)

    def _fit_choice(self, choice: Choice, at: At) -> Choice:
        parts = tuple(self._fit_part(part, ((at, "parts"), i)) for i, part in enumerate(choice.parts))
        if self._rules.one_text and sum(type(part) is Text for part in parts) > 1:
            self._split = True
            self._mend((at, "parts"), "a list of texts where clients expect one text")
        calls = [part for part in parts if type(part) is ToolCall]
        finish = choice.finish
        if not any(self._is_old(call) for call in calls):
            finish = self._fit_finish(finish, bool(calls), at)
        choice = self._clean(choice, at)
        return (
            choice if parts == choice.parts and finish == choice.finish else replace(choice, parts=parts, finish=finish)
        )

    def _fit_part(self, part: Part, at: At) -> Part:
        match part:
            case ToolCall():
                return self._clean(part, at)
            case Reasoning():
                return self._clean(part, at)
            case _:
                return part

    def feed(self, events: list[Event]) -> list[Event]:
        return [self._fit_event(event) if type(event) in _HEADS else event for event in events]

    def _fit_event(self, event: Event) -> Event:
        match event:
            case ReplyStart():
                return self._clean(event, ROOT)
            case PartStart(part=ToolCall() as call):
                (self._old if self._is_old(call) else self._called).add(event.choice)
                part = self._clean(call, ((((ROOT, "choices"), event.choice), "parts"), event.index))
                return event if part is call else replace(event, part=part)
            case PartStart(part=Reasoning() as thought):
                bare = self._clean(thought, ((((ROOT, "choices"), event.choice), "parts"), event.index))
                return event if bare is thought else replace(event, part=bare)
            case ReplyEnd():
                event = self._clean(event, ROOT)
                finishes = tuple(
                    finish if i in self._old else self._fit_finish(finish, i in self._called, ((ROOT, "choices"), i))
                    for i, finish in enumerate(event.finishes)
                )
                extras = tuple(self._clean_extras(extras) for extras in event.choice_extras)
                return replace(event, finishes=finishes, choice_extras=extras)
            case _:
                return event

    def _fit_finish(self, finish: Finish | None, called: bool, at: At) -> Finish | None:
        if self._rules.ends_calls and called and (finish is None or finish.reason == "stop"):
            self._mend((at, "finish"), "an answer with tool calls must not end like this")
            return Finish(reason="tool_call")
        return finish if finish is None else self._clean(finish, (at, "finish"))

    def _is_old(self, call: ToolCall) -> bool:
        return bool(call.extras) and self._rules.old_form in call.extras.get(self._dialect, ())

    def _clean(self, value: T, at: At) -> T:
        extras = self._clean_extras(value.extras) if value.extras else value.extras
        if extras is value.extras:
            return value
        self._mend(at, f"not as {self._dialect} demands it")
        return replace(value, extras=extras)

    def _clean_extras(self, extras: Extras) -> Extras:
        own = extras.get(self._dialect)
        if own is None:
            return extras
        kept = self._keep(own)
        if kept == own:
            return extras
        self.changed = True
        return {**{name: keys for name, keys in extras.items() if name != self._dialect}, self._dialect: kept}

    def _keep(self, own: JsonObject) -> JsonObject:
        """The keys without those that are wrong."""
        kept: JsonObject = {}
        for key, value in own.items():
            if key == OMIT:
                value = [name for name in value if name not in self._rules.required]
                if not value:
                    continue
            elif key == MESSAGE:
                value = self._keep(value)
            elif self._is_wrong(key, value):
                continue
            kept[key] = value
        return kept

    def _is_wrong(self, key: str, value: object) -> bool:
        rules = self._rules
        return value in rules.wrong_values.get(key, ()) or (key in rules.wrong and value not in rules.wrong[key])

    def _mend(self, at: At, why: str) -> None:
        self.changed = True
        self._notes.repaired(at, why)


_HEADS = (ReplyStart, PartStart, ReplyEnd)
