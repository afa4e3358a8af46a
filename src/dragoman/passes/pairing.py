"""Pairs tool calls with their results: every call has a result, and every result follows its call.

Targets refuse any other history, and a client that sends its history again then never recovers: "messages with role
'tool' must be a response to a preceeding message with 'tool_calls'" (mission E1), "tool_use ids were found without
tool_result blocks immediately after" (FIELD-CASES 1-5). Providers reuse ids, so a pair is found by position and number,
not by the id alone. Calls that a provider runs itself are Opaque parts; they are not changed.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import are_objects, dump_text, load_json
from dragoman.model.messages import RAW, Message, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.request import Request, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import Contents
from dragoman.passes.profile import Profile

INTERRUPTED = "[no result: the call was interrupted]"

PartPlace = tuple[int, int]  # message, part


def pair_calls(request: Request, profile: Profile, notes: Notes) -> Request:
    """Removes calls without a result and results without a call, and puts results directly behind their calls.

    With the pairing "mend" nothing is removed: a call without a result gets an error result, and a result without a
    call becomes user text. If the target takes results in any order, results that all follow their calls stay there.
    """
    if profile.state_keys and profile.is_continued(request.extras):
        return request
    ordered = profile.results_in_order
    if _is_paired(request.messages, ordered):  # fast path: paired calls
        return request
    repair = _Repair(request.messages, notes, mend=profile.pairing == "mend", ordered=ordered)
    return replace(request, messages=tuple(repair.run()))


def _is_paired(messages: tuple[Message, ...], ordered: bool) -> bool:  # fast path: paired calls
    pending: list[str] = []
    answering = False
    for message in messages:
        role = message.role
        if role == "assistant" and answering:
            if pending:
                return False
            answering = False
        for part in message.parts:
            kind = type(part)
            if kind is ToolCall:
                if role != "assistant":
                    return False
                pending.append(part.id)  # type: ignore[union-attr, arg-type]
            elif kind is ToolResult:
                call_id: str = part.call_id  # type: ignore[union-attr]
                if role != "user" or call_id not in pending or (ordered and pending[0] != call_id):
                    return False
                pending.remove(call_id)
                answering = True
            elif pending and role != "assistant":
                return False
    return not pending


class _PairedCall:
    __slots__ = ("answer", "at", "part", "run")

    def __init__(self, part: ToolCall, at: PartPlace, run: int) -> None:
        self.part, self.at, self.run = part, at, run
        self.answer: PartPlace | None = None


class _Repair:
    """One history on its way to being paired."""

    def __init__(self, messages: tuple[Message, ...], notes: Notes, *, mend: bool, ordered: bool) -> None:
        self.messages, self.notes, self.mend, self.ordered = messages, notes, mend, ordered
        self.calls: list[_PairedCall] = []
        self.orphans: list[PartPlace] = []
        self.run_ends: dict[int, int] = {}  # run of assistant turns -> its last message
        self.gone: set[PartPlace] = set()  # parts that leave their place
        self.text: dict[PartPlace, tuple[Part, ...]] = {}  # orphans kept as text
        self.placed: dict[int, list[Message]] = {}  # after message i

    def run(self) -> Iterable[Message]:
        self._match()
        self._settle_orphans()
        self._settle_calls()
        self._place_results()
        return self._rebuild()

    # ------------------------------------------------------------ which result belongs to which call

    def _match(self) -> None:
        """A result answers the nearest earlier turn that has an unanswered call of its id, there the first such call.

        A result right before the turn of its call, of an id that was not used earlier, is taken as sent out of order.
        """
        waiting: dict[str, list[_PairedCall]] = {}
        early: dict[tuple[int, str], list[PartPlace]] = {}
        before: list[tuple[str, PartPlace]] = []  # unclaimed results of the user turn at hand
        run, known, previous = -1, set[str](), None
        for i, message in enumerate(self.messages):
            if message.role == "assistant":
                if previous != "assistant":
                    run += 1
                    for call_id, place in before:
                        early.setdefault((run, call_id), []).append(place)
                    before = []
                self.run_ends[run] = i
            elif message.role != previous:
                before = []
            previous = message.role
            for j, part in enumerate(message.parts):
                if isinstance(part, ToolCall):
                    call = _PairedCall(part, (i, j), run if message.role == "assistant" else -1)
                    self.calls.append(call)
                    known.add(part.id)
                    if call.run >= 0:
                        waiting.setdefault(part.id, []).append(call)
                elif isinstance(part, ToolResult):
                    found = _claim(waiting.get(part.call_id))
                    if found is not None:
                        found.answer = (i, j)
                        continue
                    self.orphans.append((i, j))
                    if part.call_id not in known:
                        before.append((part.call_id, (i, j)))
        for call in self.calls:
            places = early.get((call.run, call.part.id))
            if call.answer is None and call.run >= 0 and places:
                call.answer = places.pop(0)
                self.orphans.remove(call.answer)

    # ------------------------------------------------------------ results without a call, calls without a result

    def _settle_orphans(self) -> None:
        for i, j in self.orphans:
            part = self.messages[i].parts[j]
            if not isinstance(part, ToolResult):
                continue
            self.gone.add((i, j))
            kept = _as_text(part) if self.mend or self._is_second(part) else ()
            if kept:
                self.text[i, j] = kept
                self.notes.altered(self._at(i, j), f"it answers no tool call ({part.call_id}): kept as text")
            else:
                self.notes.repaired(self._at(i, j), f"it answers no tool call ({part.call_id})")

    def _is_second(self, result: ToolResult) -> bool:
        """Whether this is a second, different result of a call that has one already: an update, not a mistake."""
        answers = [call.answer for call in self.calls if call.part.id == result.call_id and call.answer is not None]
        parts = [self.messages[i].parts[j] for i, j in answers]
        return bool(parts) and all(isinstance(part, ToolResult) and part.parts != result.parts for part in parts)

    def _settle_calls(self) -> None:
        for call in self.calls:
            if call.answer is not None:
                continue
            if self.mend and call.run >= 0:
                self.notes.invented(self._at(*call.at), f"an error result: nothing answers the call {call.part.id}")
                continue
            self.gone.add(call.at)
            self.notes.repaired(self._at(*call.at), f"the call {call.part.id} has no result")
        if not self.mend:
            self._drop_bare_reasoning()

    def _drop_bare_reasoning(self) -> None:
        """Drops the reasoning of calls that were dropped: targets refuse it alone ("without its required following
        item")."""
        for i in sorted({i for i, _ in self.gone}):
            message = self.messages[i]
            left = [j for j in range(len(message.parts)) if (i, j) not in self.gone]
            if message.role == "assistant" and all(isinstance(message.parts[j], Reasoning) for j in left):
                for j in left:
                    self.gone.add((i, j))
                    self.notes.repaired(self._at(i, j), "its call has no result")

    # ------------------------------------------------------------ results behind their calls

    def _place_results(self) -> None:
        runs: dict[int, list[_PairedCall]] = {}
        for call in self.calls:
            if call.run >= 0 and (call.answer is not None or self.mend):
                runs.setdefault(call.run, []).append(call)
        for run, calls in runs.items():
            if not self._is_in_place(run, calls):
                self.placed[self.run_ends[run]] = self._gather(calls)

    def _is_in_place(self, run: int, calls: list[_PairedCall]) -> bool:
        wanted = [call.answer for call in calls]
        found: list[PartPlace | None] = []
        for i in range(self.run_ends[run] + 1, len(self.messages)):
            message = self.messages[i]
            if len(found) >= len(wanted) or message.role != "user":
                break
            for j, part in enumerate(message.parts):
                if (i, j) in self.gone and (i, j) not in self.text:
                    continue
                if not isinstance(part, ToolResult) or (i, j) in self.text or len(found) == len(wanted):
                    break
                found.append((i, j))
            else:
                continue
            break
        if self.ordered or None in wanted:
            return found == wanted
        return set(found) == set(wanted)

    def _gather(self, calls: list[_PairedCall]) -> list[Message]:
        gathered: list[Message] = []
        for call in calls:
            if call.answer is None:
                error = ToolResult(
                    call_id=call.part.id,
                    parts=(Text(text=INTERRUPTED),),
                    failed=True,
                    freeform=call.part.freeform,
                )
                gathered.append(Message(role="user", parts=(error,)))
                continue
            i, j = call.answer
            message = self.messages[i]
            self.gone.add(call.answer)
            self.notes.repaired(self._at(i, j), f"moved behind its call {call.part.id}")
            if len(message.parts) == 1 and message.role == "user":
                gathered.append(message)
            else:
                gathered.append(Message(role="user", parts=(message.parts[j],)))
        return gathered

    def _rebuild(self) -> Iterable[Message]:
        touched = {i for i, _ in self.gone}
        for i, message in enumerate(self.messages):
            if i not in touched:
                yield message
            else:
                parts: list[Part] = []
                for j, part in enumerate(message.parts):
                    if (i, j) in self.text:
                        parts.extend(self.text[i, j])
                    elif (i, j) not in self.gone:
                        parts.append(part)
                if parts:
                    yield replace(message, parts=tuple(parts))
            yield from self.placed.get(i, ())

    def _at(self, i: int, j: int) -> At:
        return ((((ROOT, "messages"), i), "parts"), j)


def _claim(waiting: list[_PairedCall] | None) -> _PairedCall | None:
    """The first call of the latest turn among those that wait."""
    if not waiting:
        return None
    place = len(waiting) - 1
    while place and waiting[place - 1].run == waiting[place].run:
        place -= 1
    return waiting.pop(place)


def _as_text(result: ToolResult) -> tuple[Part, ...]:
    """The content of a result without a call, as user text; nothing if the result is empty."""
    if not any(not isinstance(part, Text) or part.text.strip() for part in result.parts):
        return ()
    head = f"[result of an earlier tool call {result.call_id}]"
    first = result.parts[0]
    if isinstance(first, Text):
        return (replace(first, text=f"{head} {first.text}"), *result.parts[1:])
    return (Text(text=head), *result.parts)


def name_results(request: Request, profile: Profile, notes: Notes) -> Request:
    """Gives every result the name of its function, never an invented one (mission A7, FIELD-CASES 67).

    The history must be paired before.
    """
    names: dict[str, list[str]] = {}  # of the calls that wait for their results
    changed: dict[int, list[Part]] = {}
    for i, message in enumerate(request.messages):
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    names.setdefault(part.id, []).append(part.name)
            continue
        for j, part in enumerate(message.parts):
            if type(part) is not ToolResult or not (waiting := names.get(part.call_id)):
                continue
            name = waiting.pop(0)
            if name == part.name:
                continue
            parts = changed[i] if i in changed else changed.setdefault(i, list(message.parts))
            parts[j] = replace(part, name=name)
            at: At = (((((ROOT, "messages"), i), "parts"), j), "name")
            if part.name is None:
                notes.invented(at, "the name of its call")
            else:
                notes.repaired(at, f"its call says {name}")
    if not changed:
        return request
    messages = list(request.messages)
    for i, parts in changed.items():
        messages[i] = replace(messages[i], parts=tuple(parts))
    return replace(request, messages=tuple(messages))


# ---------------------------------------------------- arguments in the history
# vLLM, llama.cpp and strict relays parse the arguments in the history and answer 400 to a broken one, in every later
# turn too (FIELD-CASES 28). So broken arguments become an object with the original text as its one value; the call and
# its result stay.
# A turn with calls and no text can have null, an empty string or no key as its content. Some server refuses each of
# these forms (FIELD-CASES 57).


def mend_arguments(request: Request, profile: Profile, notes: Notes, contents: Contents | None = None) -> Request:
    if contents is not None and contents.messages is request.messages:
        texts = [call.arguments for call in contents.calls if not call.freeform]
        if are_objects(texts):  # fast path: fine arguments
            return request
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        for part in message.parts:
            if type(part) is ToolCall and not part.freeform and not _is_object(part.arguments):
                changed[i] = _mend(message, i, notes)
                break
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _is_object(text: str) -> bool:
    if text == "{}":  # fast path: empty arguments
        return True
    try:
        return type(load_json(text)) is dict
    except DecodeError:
        return False


def _mend(message: Message, i: int, notes: Notes) -> Message:
    parts = list(message.parts)
    for j, part in enumerate(parts):
        if type(part) is ToolCall and not part.freeform and not _is_object(part.arguments):
            at = (((((ROOT, "messages"), i), "parts"), j), "arguments")
            empty = not part.arguments.strip() or part.arguments.strip() == "null"
            notes.repaired(at, "no arguments are an empty object" if empty else f"not a JSON object: kept under {RAW}")
            parts[j] = replace(part, arguments="{}" if empty else dump_text({RAW: part.arguments}))
    return replace(message, parts=tuple(parts))


_WORDS = {"null": None, "blank": "empty"}  # how the Chat dialect remembers what stood there


def spell_no_text(request: Request, profile: Profile, notes: Notes) -> Request:
    """Writes the missing text of a turn with calls in the form that the target takes. Nothing is lost."""
    word = _WORDS[profile.empty_content]
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if message.role == "assistant":
            kinds = {type(part) for part in message.parts}
            if ToolCall in kinds and Text not in kinds:
                changed[i] = _spell(message, word, profile.dialect)
    if all(message is request.messages[i] for i, message in changed.items()):
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _spell(message: Message, word: str | None, dialect: str) -> Message:
    own = message.extras.get(dialect, {})
    if own.get("~content") == word:
        return message
    rest = {key: value for key, value in own.items() if key != "~content"}
    spelled = {**rest, "~content": word} if word else rest
    extras = {name: body for name, body in message.extras.items() if name != dialect}
    return replace(message, extras={**extras, dialect: spelled} if spelled else extras)


NOT_NOW = "Used earlier in this conversation, no longer there: not to be called."


def declare_history(request: Request, profile: Profile, notes: Notes) -> Request:
    """If a request has no tools but its history has calls, adds the tools of these calls: some relays demand them
    (FIELD-CASES 66). The model could call one instead of answering. So the description and the choice both forbid
    it."""
    names = {p.name: None for m in request.messages for p in m.parts if isinstance(p, ToolCall)}
    if request.tools or not names:
        return request
    notes.invented((ROOT, "tools"), "the history has calls, so the request must have their tools")
    empty = {"type": "object", "properties": {}}
    tools = tuple(Tool(name=name, description=NOT_NOW, parameters=empty) for name in names)
    return replace(request, tools=tools, tool_choice=ToolChoice(mode="none"))
