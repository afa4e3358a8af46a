"""Puts system text where a target takes it: at the head, in one message, where it was, or into a user turn."""

from msgspec.structs import replace

from dragoman.model.messages import Message, Opaque, Part, Text, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import INSTRUCTIONS, count_lead
from dragoman.passes.profile import Profile
from dragoman.passes.turns import join_extras, list_own_keys

MARK = "[System Instructions]"  # mission D7


def place_system(request: Request, profile: Profile, notes: Notes) -> Request:
    messages = request.messages
    roles = [message.role for message in messages]
    found = roles.count("system") + roles.count("developer")
    if not found:  # fast path: no system text
        return request
    lead = count_lead(messages)
    if found > lead and profile.mid_system != "keep":
        request = notes.stage(_place_later(request, lead, profile, notes))
        lead = count_lead(request.messages)
    if lead > 1 and profile.lead_system == "one":
        request = _join_lead(request, lead, profile, notes)
    elif lead and profile.lead_system == "user":
        request = _give_to_user(request, lead, notes)
    return request


def _place_later(request: Request, lead: int, profile: Profile, notes: Notes) -> Request:
    """System turns after the first other turn stay, if the target takes them there. Else they become marked user turns.

    We do not move them to the head: that would change their meaning, and the beginning that prompt caches need
    (FIELD-CASES 19).
    """
    messages = list(request.messages)
    hoisted: list[Message] = []
    kept: list[Message] = messages[:lead]
    for i in range(lead, len(messages)):
        message = messages[i]
        if message.role not in INSTRUCTIONS or (profile.mid_system == "placed" and _is_placed(messages, i)):
            kept.append(message)
        elif profile.mid_system == "lead":
            hoisted.append(message)
            notes.altered(((ROOT, "messages"), i), "system text only at the head: moved there")
        else:
            kept.append(replace(message, role="user", parts=mark_system(message.parts)))
            notes.altered(((ROOT, "messages"), i), f"no system text here: said by the user, marked {MARK}")
    if not hoisted and len(kept) == len(messages) and all(a is b for a, b in zip(kept, messages, strict=True)):
        return request
    return replace(request, messages=(*kept[:lead], *hoisted, *kept[lead:]))


def _is_placed(messages: list[Message], i: int) -> bool:
    """Whether Anthropic takes a system turn here: after a user turn (or the result of a server tool), and before an
    assistant turn or at the end."""
    before, after = i - 1, i + 1
    while before >= 0 and messages[before].role in INSTRUCTIONS:
        before -= 1
    while after < len(messages) and messages[after].role in INSTRUCTIONS:
        after += 1
    if before < 0 or (after < len(messages) and messages[after].role != "assistant"):
        return False
    last = messages[before]
    return last.role == "user" or (bool(last.parts) and isinstance(last.parts[-1], Opaque))


def mark_system(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """System text with a mark that tells it from the user's own text."""
    return tuple(
        replace(part, text=f"{MARK}\n{part.text}\n[End of System Instructions]") if isinstance(part, Text) else part
        for part in parts
    )


def _join_lead(request: Request, lead: int, profile: Profile, notes: Notes) -> Request:
    """Joins the first system turns into one: "After the optional system message, conversation roles must alternate"."""
    turns = request.messages[:lead]
    for i in range(1, lead):
        notes.altered(((ROOT, "messages"), i), "one system message only: joined with the first")
    parts = tuple(part for turn in turns for part in turn.parts)
    joined = replace(turns[0], parts=parts, extras=join_extras(turns, 0, profile.dialect, notes))
    return replace(request, messages=(joined, *request.messages[lead:]))


def _give_to_user(request: Request, lead: int, notes: Notes) -> Request:
    """For a target without a system role (gemma): puts the marked text in front of the first user turn (mission D7)."""
    text = "\n\n".join(p.text for m in request.messages[:lead] for p in m.parts if isinstance(p, Text))
    others = tuple(p for m in request.messages[:lead] for p in m.parts if not isinstance(p, Text))
    for i, turn in enumerate(request.messages[:lead]):
        at: At = ((ROOT, "messages"), i)
        notes.altered(at, f"no system role: in front of the user's words, marked {MARK}")
        for dialect, key in list_own_keys(turn):
            notes.dropped((((at, "extras"), dialect), key), "the turn is now a part of the user's turn")
    rest = request.messages[lead:]
    head = f"{MARK}\n{text}"
    first = rest[0] if rest else None
    if first is None or first.role != "user" or any(isinstance(part, ToolResult) for part in first.parts):
        return replace(request, messages=(Message(role="user", parts=(Text(text=head), *others)), *rest))
    old = first.parts[0] if first.parts else None
    if isinstance(old, Text):
        parts: tuple[Part, ...] = (*others, replace(old, text=f"{head}\n\n{old.text}"), *first.parts[1:])
    else:
        parts = (Text(text=head), *others, *first.parts)
    return replace(request, messages=(replace(first, parts=parts), *rest[1:]))


# ------------------------------------------------------------ the billing line
# Claude Code's billing line is a system text for Anthropic, different in every request. At any other server it begins
# the prompt, so that the server cannot use its prompt cache. On local hardware that costs minutes (FIELD-CASES 91,
# ggml-org/llama.cpp #19494).

BILLING = "x-anthropic-billing-header:"


def is_billed(request: Request) -> bool:
    """Whether a text of a request may be such a line."""
    for message in request.messages:
        for part in message.parts:
            if type(part) is Text and part.text.startswith(BILLING):
                return True
    return False


def drop_billing(request: Request, profile: Profile, notes: Notes) -> Request:
    lead = count_lead(request.messages)
    texts = [part.text for message in request.messages[:lead] for part in message.parts if type(part) is Text]
    if not [text for text in texts if text.startswith(BILLING)]:  # fast path: no billing
        return request
    kept: list[Message] = []
    for i, message in enumerate(request.messages[:lead]):
        parts = []
        for j, part in enumerate(message.parts):
            if type(part) is Text and part.text.startswith(BILLING):
                notes.dropped(((((ROOT, "messages"), i), "parts"), j), "only Anthropic reads this line")
            else:
                parts.append(part)
        if len(parts) == len(message.parts):
            kept.append(message)
        elif parts:
            kept.append(replace(message, parts=tuple(parts)))
    return replace(request, messages=(*kept, *request.messages[lead:]))
