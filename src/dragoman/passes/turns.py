"""Turns: joined or set apart as the target reads them, results in front, developer said as system."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

from msgspec.structs import replace

from dragoman.model.messages import (
    Audio,
    Cache,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import count_lead
from dragoman.passes.profile import Profile

SPEAKER = "name"  # the key, in any dialect, of the one who says the words of a turn

Fits: TypeAlias = Callable[[Message, Message], bool]


def join_turns(request: Request, profile: Profile, notes: Notes) -> Request:
    """Joins neighbouring turns of one role, for targets that refuse them. They mean the same (see Message)."""
    return _join(request, profile.dialect, notes, lambda first, new: True)


def join_calls(request: Request, profile: Profile, notes: Notes) -> Request:
    """Puts the calls of one turn into one message: "insufficient tool messages following tool_calls" (FIELD-CASES
    4)."""
    return _join(
        request, profile.dialect, notes, lambda first, new: new.role == "assistant" and _holds(first, ToolCall)
    )


def join_apart(request: Request, profile: Profile, notes: Notes) -> Request:
    """Joins neighbouring turns of one role, but keeps results apart from the user's own words after them (Gemini)."""
    return _join(
        request, profile.dialect, notes, lambda first, new: _holds(first, ToolResult) == _holds(new, ToolResult)
    )


def _join(request: Request, dialect: str, notes: Notes, fits: Fits) -> Request:
    """`dialect`: the target's; `fits`: whether a message joins the turn before it, whose first message it is given."""
    messages, role = request.messages, ""
    repeated: list[int] = []  # messages of the role that spoke before
    for i, message in enumerate(messages):
        if message.role == role:
            repeated.append(i)
        role = message.role
    runs: list[tuple[int, int]] = []  # of two messages and more: the first one, and the one after the last
    for new in repeated:
        run = runs.pop() if runs and runs[-1][1] == new else (new - 1, new)
        if fits(messages[run[0]], messages[new]):
            run = (run[0], new + 1)
        if run[1] - run[0] > 1:
            runs.append(run)
    if not runs:  # fast path: turns apart
        return request
    joined: list[Message] = []
    place = 0
    for first, end in runs:
        joined += [*messages[place:first], _join_run(messages[first:end], first, dialect, notes)]
        place = end
    return replace(request, messages=(*joined, *messages[place:]))


def _join_run(run: Sequence[Message], place: int, dialect: str, notes: Notes) -> Message:
    parts = tuple(chain.from_iterable(message.parts for message in run))
    return replace(run[0], parts=parts, extras=join_extras(run, place, dialect, notes))


def join_extras(run: Sequence[Message], place: int, target: str, notes: Notes) -> dict[str, dict[str, Any]]:
    """The extras of turns that become one. `place`: of the first of them; `target`: the dialect that is written."""
    extras: dict[str, dict[str, Any]] = {}
    tellers: dict[tuple[str, str], int] = {}  # the last turn that had a key
    for i, message in enumerate(run, place):
        for dialect, keys in message.extras.items():
            joined = extras.setdefault(dialect, {})
            for key in _find_clashes(joined, keys):
                at = ((((ROOT, "messages"), tellers[dialect, key]), "extras"), dialect)
                notes.dropped((at, key), f"joined with a turn that has another {key}")
            joined.update(keys)
            tellers.update({(dialect, key): i for key in keys})
    named = tellers.get((target, SPEAKER))
    if named is not None and any(_speaks_unnamed(message, target) for message in run):
        at = ((((ROOT, "messages"), named), "extras"), target)
        notes.altered((at, SPEAKER), "joined with a turn without a name, which has this name now")
    return extras


def _speaks_unnamed(message: Message, dialect: str) -> bool:
    spoken = any(not isinstance(part, ToolResult) for part in message.parts)
    return spoken and SPEAKER not in message.extras.get(dialect, {})


def list_own_keys(message: Message) -> list[tuple[str, str]]:
    """The keys that a dialect gave this turn, with the dialect. Those with `~` say only how something was spelled."""
    return [(dialect, key) for dialect, keys in message.extras.items() for key in keys if key[:1] != "~"]


def join_pieces(request: Request, notes: Notes) -> Request:
    """Puts the pieces of one answer together, for clients that keep a message for each chunk of a stream."""
    joined = _join(request, "", notes, lambda first, new: new.role == "assistant")
    if joined is request:
        return request
    before = set(map(id, request.messages))
    return replace(joined, messages=tuple(m if id(m) in before else _glue(m) for m in joined.messages))


def _glue(message: Message) -> Message:
    """The message with its texts whole: a chunk may end in the middle of a word, or say nothing."""
    parts: list[Part] = []
    for part in message.parts:
        last = parts[-1] if parts else None
        if isinstance(part, Text | Reasoning) and type(last) is type(part) and _goes_on(part, last):
            parts[-1] = replace(last, text=last.text + part.text)
        elif not (type(part) is Text and _says_nothing(part)):
            parts.append(part)
    return replace(message, parts=tuple(parts)) if parts else message


def _goes_on(part: Text | Reasoning, last: Text | Reasoning) -> bool:
    """Whether this text has nothing of its own: only more words of the one before it."""
    return part.seal is None and replace(part, text="") == replace(last, text="")


def _says_nothing(part: Text) -> bool:
    bare = not part.text and part.seal is None and part.cache is None
    return bare and not any(key[:1] != "~" for keys in part.extras.values() for key in keys)


def _holds(message: Message, kind: type[Part]) -> bool:
    return any(isinstance(part, kind) for part in message.parts)


def _find_clashes(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Keys that have different values in both turns. A joined turn has each key once: it keeps the second value."""
    return [
        key for key, value in second.items() if key[:1] != "~" and first.get(key) is not None and value != first[key]
    ]


def put_results_first(request: Request, profile: Profile, notes: Notes) -> Request:
    """Puts tool results first in their turn. Anthropic ("tool_result blocks must come first") and Gemini demand it."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if len(message.parts) < 2 or message.role != "user":
            continue
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if results and tuple(results) != message.parts[: len(results)]:
            others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
            changed[i] = replace(message, parts=(*results, *others))
            notes.repaired(((ROOT, "messages"), i), "tool results moved to the front of their turn")
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def set_results_apart(request: Request, profile: Profile, notes: Notes) -> Request:
    """Moves the user's own words behind results into a turn of their own, because Gemini demands it."""
    if not any(_is_mixed(message) for message in request.messages):  # fast path: results apart
        return request
    messages: list[Message] = []
    for i, message in enumerate(request.messages):
        if not _is_mixed(message):
            messages.append(message)
            continue
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        messages += [Message(role="user", parts=results), replace(message, parts=others)]
        notes.repaired(((ROOT, "messages"), i), "tool results moved into a turn of their own")
    return replace(request, messages=tuple(messages))


def _is_mixed(message: Message) -> bool:  # fast path: results apart
    if message.role != "user" or len(message.parts) < 2:
        return False
    count = sum(isinstance(part, ToolResult) for part in message.parts)
    return 0 < count < len(message.parts)


def say_developer_as_system(request: Request, profile: Profile, notes: Notes) -> Request:
    """Both roles are instructions; only OpenAI ranks them."""
    found = [i for i, message in enumerate(request.messages) if message.role == "developer"]
    if not found:
        return request
    messages = list(request.messages)
    for i in found:
        notes.altered((((ROOT, "messages"), i), "role"), "the target does not distinguish developer and system")
        messages[i] = replace(messages[i], role="system")
    return replace(request, messages=tuple(messages))


# ---------------------------------------------------------- the edges of turns
# No turn is empty, the first turn is the user's, and the last is not the assistant's if the target refuses that.

NO_CONTENT = "(no content)"
OPENING = "(conversation continues)"
GO_ON = "(continue)"
SEEN = "OK."
FAILED = "(failed without a message)"

_Marked = Text | Image | Document | Audio | ToolCall | ToolResult  # parts that can bear a cache mark


def drop_empty_text(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops blank text: "text content blocks must contain non-whitespace text" (FIELD-CASES 56).

    A turn without any other part gets a placeholder in words, because servers refuse a blank one too.
    """
    if not _any_blank(request.messages):  # fast path: nothing blank
        return request
    messages: list[Message] = []
    changed = False
    for i, message in enumerate(request.messages):
        if message.parts and not _holds_blank(message.parts):  # fast path: nothing blank
            messages.append(message)
            continue
        at: At = ((ROOT, "messages"), i)
        parts = _without_blank(message.parts, (at, "parts"), notes)
        if parts:
            messages.append(message if parts is message.parts else replace(message, parts=parts))
        elif message.role in ("user", "assistant"):
            notes.invented((at, "parts"), f"an empty turn is refused: {NO_CONTENT}")
            messages.append(replace(message, parts=(Text(text=NO_CONTENT),)))
        elif not message.parts:
            notes.repaired((at, "parts"), "an empty system turn left out")
        changed = changed or not messages or messages[-1] is not message
    return replace(request, messages=tuple(messages)) if changed else request


def tell_failures(request: Request, profile: Profile, notes: Notes) -> Request:
    """Gives a failed result without text a text: "content cannot be empty if `is_error` is true" (Anthropic)."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        parts = tuple(_with_words(part) for part in message.parts)
        if any(a is not b for a, b in zip(parts, message.parts, strict=True)):
            for j, part in enumerate(message.parts):
                if part is not parts[j]:
                    at: At = ((((ROOT, "messages"), i), "parts"), j)
                    notes.invented((at, "parts"), f"a failed result must say something: {FAILED}")
            changed[i] = replace(message, parts=parts)
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _with_words(part: Part) -> Part:
    if type(part) is ToolResult and part.failed is True and not part.parts:
        return replace(part, parts=(Text(text=FAILED),))
    return part


def drop_silent_turns(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops empty turns, except those that came so in the target's own dialect (`content: ""`)."""
    silent = [i for i, m in enumerate(request.messages) if not m.parts and _lacks_content(m, profile.dialect)]
    if not silent:
        return request
    for i in silent:
        notes.repaired((((ROOT, "messages"), i), "parts"), "an empty turn left out")
    return replace(request, messages=tuple(m for i, m in enumerate(request.messages) if i not in set(silent)))


def _lacks_content(message: Message, dialect: str) -> bool:
    """Whether the turn came without content, or with null for the assistant. Servers take `""`, but not null."""
    own = message.extras.get(dialect)
    if own is None or message.role != "assistant":
        return own is None
    return own.keys() <= {"~content", "~blank"} and own.get("~content", "null") in ("null", "absent")


def _any_blank(messages: tuple[Message, ...]) -> bool:  # fast path: nothing blank
    """Whether any text may be blank. It is quick, because mostly no text is."""
    for message in messages:
        if not message.parts:
            return True
        for part in message.parts:
            kind = type(part)
            if kind is Text:
                text = part.text  # type: ignore[union-attr]
                if not text or text.isspace():
                    return True
            elif kind is ToolResult:
                for inner in part.parts:  # type: ignore[union-attr]
                    if type(inner) is not Text or not inner.text or inner.text.isspace():
                        return True
            elif kind is Refusal:
                return True
    return False


def _holds_blank(parts: tuple[Part, ...]) -> bool:  # fast path: nothing blank
    for part in parts:
        kind = type(part)
        if kind is Text:
            text = part.text  # type: ignore[union-attr]
            if (not text or text.isspace()) and _is_blank(part):
                return True
        elif (kind is ToolResult and _holds_blank(part.parts)) or (kind is Refusal and _is_blank(part)):  # type: ignore[union-attr]
            return True
    return False


def _is_blank(part: Part) -> bool:
    if isinstance(part, Text):
        return part.seal is None and not part.text.strip()
    return isinstance(part, Refusal) and not part.text.strip()


def _without_blank(parts: tuple[Part, ...], at: At, notes: Notes) -> tuple[Part, ...]:
    kept: list[Part] = []
    mark: Cache | None = None  # of a blank text: it moves to the neighbour
    same = True
    for j, part in enumerate(parts):
        if _is_blank(part):
            same = False
            notes.repaired((at, j), "blank text is refused")
            cache = part.cache if isinstance(part, Text) else None
            if cache is not None and not (kept and _mark(kept, cache)):
                mark = cache
            continue
        if isinstance(part, ToolResult):
            inner = _without_blank(part.parts, ((at, j), "parts"), notes)
            if inner is not part.parts:
                same = False
                part = replace(part, parts=inner)
        kept.append(part)
        if mark is not None and _mark(kept, mark):
            mark = None
    return parts if same else tuple(kept)


def _mark(kept: list[Part], cache: Cache) -> bool:
    last = kept[-1]
    if not isinstance(last, _Marked):
        return False
    if last.cache is None:
        kept[-1] = replace(last, cache=cache)
    return True


def strip_last_text(request: Request, profile: Profile, notes: Notes) -> Request:
    """Strips the end of the last turn: "final assistant content cannot end with trailing whitespace" (Anthropic)."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not last.parts:
        return request
    part = last.parts[-1]
    if not isinstance(part, Text) or part.text == part.text.rstrip():
        return request
    i, j = len(request.messages) - 1, len(last.parts) - 1
    notes.altered((((((ROOT, "messages"), i), "parts"), j), "text"), "its trailing space is refused")
    turn = replace(last, parts=(*last.parts[:-1], replace(part, text=part.text.rstrip())))
    return replace(request, messages=(*request.messages[:-1], turn))


def begin_with_user(request: Request, profile: Profile, notes: Notes) -> Request:
    """Puts a user turn first: "first message must use the user role" (Anthropic), and Gemini wants one before a
    call."""
    lead = count_lead(request.messages)
    rest = request.messages[lead:]
    if (rest and rest[0].role == "user") or profile.is_continued(request.extras):
        return request
    if rest and rest[0].parts and _is_compacted(rest[0].parts[0], profile):
        return request
    notes.invented((ROOT, "messages"), "a user turn added at the beginning")
    first = Message(role="user", parts=(Text(text=OPENING if rest else NO_CONTENT),))
    return replace(request, messages=(*request.messages[:lead], first, *rest))


def _is_compacted(part: Part, profile: Profile) -> bool:
    """Whether this is a summary of earlier turns. It comes first, "in place of the messages it summarizes" (anthropic
    2.8)."""
    return isinstance(part, Opaque) and part.dialect == profile.dialect and part.body.get("type") == "compaction"


def end_with_user(request: Request, profile: Profile, notes: Notes) -> Request:
    """Adds a user turn at the end. A last turn of the assistant ("prefill") asks it to go on; newer models refuse that.

    A last turn that ends with a part of the target's own is a paused server tool: it must stay as it is.
    """
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant":
        return request
    if last.parts and isinstance(last.parts[-1], Opaque):
        return request
    at: At = ((ROOT, "messages"), len(request.messages) - 1)
    match profile.policy_of("prefill"):
        case "refuse":
            raise notes.refuse(at, "the target refuses a prefilled answer")
        case "drop":
            notes.dropped(at, "the target refuses a prefilled answer")
            return end_with_user(replace(request, messages=request.messages[:-1]), profile, notes)
        case "emulate":
            notes.invented((ROOT, "messages"), "a user turn added at the end: the target refuses a prefilled answer")
            turn = Message(role="user", parts=(Text(text=GO_ON),))
            return replace(request, messages=(*request.messages, turn))


def drop_text_beside_calls(request: Request, profile: Profile, notes: Notes) -> Request:
    """Leaves the words before a call out: "Assistant message must have either content or tool_calls, but not both"
    (older models of Mistral, also at vLLM). The calls and their results say what was done."""
    messages = list(request.messages)
    for i, message in enumerate(messages):
        if message.role == "assistant" and _holds(message, ToolCall) and _holds(message, Text):
            notes.dropped(((ROOT, "messages"), i), "the target takes no text beside a call")
            messages[i] = replace(message, parts=tuple(part for part in message.parts if type(part) is not Text))
    return request if messages == list(request.messages) else replace(request, messages=tuple(messages))


def answer_results(request: Request, profile: Profile, notes: Notes) -> Request:
    """Puts a short assistant turn between results and a user turn: "Unexpected role 'user' after role 'tool'" (Mistral,
    code 3230)."""
    if not any(_speaks_after_results(request.messages, i) for i in range(len(request.messages))):
        return request
    messages: list[Message] = []
    for i, message in enumerate(request.messages):
        if not _speaks_after_results(request.messages, i):
            messages.append(message)
            continue
        notes.invented(((ROOT, "messages"), i), "a turn of the assistant added between tool results and the user")
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        seen = Message(role="assistant", parts=(Text(text=SEEN),))
        messages += [*([Message(role="user", parts=results)] if results else ()), seen, replace(message, parts=others)]
    return replace(request, messages=tuple(messages))


def _speaks_after_results(messages: tuple[Message, ...], i: int) -> bool:
    """Whether the user's own words follow directly after results, in the same turn or in the next."""
    message = messages[i]
    if message.role != "user" or not message.parts or isinstance(message.parts[-1], ToolResult):
        return False
    before = messages[i - 1] if i else None
    return _holds(message, ToolResult) or (
        before is not None and before.role == "user" and bool(before.parts) and isinstance(before.parts[-1], ToolResult)
    )


# -------------------------------------------------------------------- refusals
# Refusals in the history, for targets that know only text: "unknown variant `refusal`, expected `text`".


def say_refusals_as_text(request: Request, profile: Profile, notes: Notes) -> Request:
    if not _any_refusal(request.messages):  # fast path: no refusal
        return request
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if any(type(part) is Refusal for part in message.parts):
            parts: list[Part] = list(message.parts)
            for j, part in enumerate(parts):
                if isinstance(part, Refusal):
                    parts[j] = Text(text=part.text)
                    notes.altered(((((ROOT, "messages"), i), "parts"), j), "a refusal is said as text here")
            changed[i] = replace(message, parts=tuple(parts))
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _any_refusal(messages: tuple[Message, ...]) -> bool:  # fast path: no refusal
    for message in messages:
        for part in message.parts:
            if type(part) is Refusal:
                return True
    return False
