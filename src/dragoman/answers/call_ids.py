"""Ids of the calls in an answer: no two calls of a conversation have the same one.

Ollama's calls have no ids, Gemini's often have none, and some servers begin at `call_0` in every answer. Clients find
the result of a call by its id, over the whole conversation.
"""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from dragoman.answers.call_arguments import has_calls
from dragoman.model.events import Event, PartStart
from dragoman.model.messages import Message, Part, ToolCall, ToolResult
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


def find_call_ids(messages: Iterable[Message]) -> set[str]:
    turns = [turn.parts for turn in messages if turn.role == "assistant"]
    return {part.id for parts in turns for part in parts if type(part) is ToolCall}


class FreshIds:
    """Ids for the calls of one answer. `salt` differs from answer to answer. `taken`: ids in use; None: those of the
    request."""

    __slots__ = ("_dialect", "_made", "_new_ids", "_notes", "_salt", "_taken", "repaired")

    def __init__(self, request: Request, dialect: str, salt: str, notes: Notes, taken: set[str] | None = None) -> None:
        self._dialect, self._salt, self._notes = dialect, salt, notes
        self._made = 0
        self.repaired = False  # a server's own id was taken
        self._new_ids: dict[str, str] = {}  # a server's own results come in the same answer
        self._taken = find_call_ids(request.messages) if taken is None else taken

    def reply(self, reply: Reply) -> Reply:
        if not has_calls(reply):  # a server's own results come with their calls
            return reply
        choices = tuple(self._fit_choice(choice, ((ROOT, "choices"), i)) for i, choice in enumerate(reply.choices))
        return reply if choices == reply.choices else replace(reply, choices=choices)

    def _fit_choice(self, choice: Choice, at: At) -> Choice:
        parts = tuple(self._fit(part, ((at, "parts"), i)) for i, part in enumerate(choice.parts))
        return choice if parts == choice.parts else replace(choice, parts=parts)

    def feed(self, events: list[Event]) -> list[Event]:
        return [self._fit_start(event) if type(event) is PartStart else event for event in events]

    def _fit_start(self, event: PartStart) -> PartStart:
        part = self._fit(event.part, ((((ROOT, "choices"), event.choice), "parts"), event.index))
        return event if part is event.part else replace(event, part=part)

    def _fit(self, part: Part, at: At) -> Part:
        if type(part) is ToolResult and part.call_id in self._new_ids:
            return replace(part, call_id=self._new_ids[part.call_id])
        if type(part) is not ToolCall:
            return part
        fresh = self._choose(part, at)
        self._taken.add(fresh)
        return part if fresh == part.id else replace(part, id=fresh)

    def _choose(self, call: ToolCall, at: At) -> str:
        minted = "~id" in call.extras.get(self._dialect, ())
        if not (minted and self._salt) and call.id not in self._taken:
            return call.id
        if not minted:
            self.repaired = True
            self._notes.repaired((at, "id"), "an earlier call has this id")
        fresh = self._new_ids[call.id] = self._make(call)
        return fresh

    def _make(self, call: ToolCall) -> str:
        while True:
            self._made += 1
            text = f"{self._salt}|{call.id}|{call.name}|{self._made}"
            made = "call_" + blake2b(text.encode(), digest_size=12).hexdigest()
            if made not in self._taken:
                return made
