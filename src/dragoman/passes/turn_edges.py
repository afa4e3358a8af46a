"""The edges of turns: nothing empty, a user first, and no assistant last where the target minds."""

from msgspec.structs import replace

from dragoman.model.messages import (
    Audio,
    Cache,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile
from dragoman.passes.system import count_lead

NO_CONTENT = "(no content)"
OPENING = "(conversation continues)"
GO_ON = "(continue)"

_Marked = Text | Image | Document | Audio | ToolCall | ToolResult  # parts that can bear a cache mark


def drop_empty_text(request: Request, notes: Notes) -> Request:
    """Without blank text: "text content blocks must contain non-whitespace text" (FIELD-CASES 56).

    A turn with nothing left says so in words: a blank placeholder passes one check and fails the next.
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


def drop_silent_turns(request: Request, dialect: str, notes: Notes) -> Request:
    """Without turns that say nothing, unless that is how the target's own wire said it (`content: ""`)."""
    silent = [i for i, m in enumerate(request.messages) if not m.parts and dialect not in m.extras]
    if not silent:
        return request
    for i in silent:
        notes.repaired((((ROOT, "messages"), i), "parts"), "an empty turn left out")
    return replace(request, messages=tuple(m for i, m in enumerate(request.messages) if i not in set(silent)))


def _any_blank(messages: tuple[Message, ...]) -> bool:
    """Whether anything may be blank: mostly nothing is, so this is quick."""
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


def _holds_blank(parts: tuple[Part, ...]) -> bool:
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


def strip_last_text(request: Request, notes: Notes) -> Request:
    """Anthropic: "final assistant content cannot end with trailing whitespace"."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not last.parts:
        return request
    said = last.parts[-1]
    if not isinstance(said, Text) or said.text == said.text.rstrip():
        return request
    i, j = len(request.messages) - 1, len(last.parts) - 1
    notes.altered((((((ROOT, "messages"), i), "parts"), j), "text"), "its trailing space is refused")
    turn = replace(last, parts=(*last.parts[:-1], replace(said, text=said.text.rstrip())))
    return replace(request, messages=(*request.messages[:-1], turn))


def begin_with_user(request: Request, notes: Notes) -> Request:
    """Anthropic: "first message must use the user role"; Gemini: a call comes after a user turn."""
    lead = count_lead(request.messages)
    rest = request.messages[lead:]
    if rest and rest[0].role == "user":
        return request
    notes.invented((ROOT, "messages"), "a user's turn at the beginning")
    first = Message(role="user", parts=(Text(text=OPENING if rest else NO_CONTENT),))
    return replace(request, messages=(*request.messages[:lead], first, *rest))


def end_with_user(request: Request, profile: Profile, notes: Notes) -> Request:
    """A conversation that ends with the assistant asks it to go on: newer models refuse that ("prefill").

    A turn that ends in a part only the target knows is a paused server tool: that must come back as it is.
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
            notes.invented((ROOT, "messages"), "a user's turn at the end: the target refuses a prefilled answer")
            turn = Message(role="user", parts=(Text(text=GO_ON),))
            return replace(request, messages=(*request.messages, turn))
