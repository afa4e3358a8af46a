"""Extra keys on the turns of a history. Clients send back keys that one server gave, and another server refuses
them."""

from typing import Any

from msgspec.structs import replace

from dragoman.model.messages import BLANK, Extras, Message, Part, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile

CALLS = "tool_calls"
THOUGHTS = ("reasoning", "reasoning_content")


def fit_turn_keys(request: Request, profile: Profile, notes: Notes) -> Request:
    changed: dict[int, Message] = {}
    dialect = profile.dialect
    for i, message in enumerate(request.messages):
        if dialect not in message.extras and not _has_own_result(message.parts, dialect):
            continue  # the keys on it are another dialect's
        fitted = _fit_turn(message, i, profile, notes)
        if fitted is not message:
            changed[i] = fitted
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _has_own_result(parts: tuple[Part, ...], dialect: str) -> bool:
    return bool([True for part in parts if type(part) is ToolResult and dialect in part.extras])


# ---------------------------------------------------------------- older forms


def say_newer_settings(request: Request, profile: Profile, notes: Notes) -> Request:
    """`functions` and `function_call` become `tools` and `tool_choice`: Mistral refuses the older ones, others may
    ignore them. The client's answer still has the form it asked for."""
    extras = _without_older(request.extras, profile)
    if extras is not request.extras:
        request = replace(request, extras=extras)
    choice = request.tool_choice
    if choice is not None and choice.extras:
        extras = _without_older(choice.extras, profile)
        own = extras.get(profile.dialect, {})
        if any(form in own for form in profile.wrong_forms):
            kept = {key: value for key, value in own.items() if key not in profile.wrong_forms}
            extras = {**extras, profile.dialect: kept}
            notes.repaired((ROOT, "tool_choice"), f"not the form of {profile.dialect}")
        if extras is not choice.extras:
            request = replace(request, tool_choice=replace(choice, extras=extras))
    return request


def say_newer_turns(request: Request, profile: Profile, notes: Notes) -> Request:
    """The same for calls and results in the history."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if (type(part) is ToolCall or type(part) is ToolResult) and part.extras:
                extras = _without_older(part.extras, profile)
                if extras is not part.extras:
                    parts = changed.get(i, message).parts
                    changed[i] = replace(message, parts=(*parts[:j], replace(part, extras=extras), *parts[j + 1 :]))
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _without_older(extras: Extras, profile: Profile) -> Extras:
    own, older = extras.get(profile.dialect), profile.older_forms
    if not own or profile.takes_older:
        return extras
    kept = {key: value for key, value in own.items() if key not in older or (older[key] and value not in older[key])}
    if len(kept) == len(own):
        return extras
    rest = {name: keys for name, keys in extras.items() if name != profile.dialect}
    return {**rest, profile.dialect: kept} if kept else rest


# ---------------------------------------------------------------- keys


def _fit_turn(message: Message, i: int, profile: Profile, notes: Notes) -> Message:
    own = message.extras.get(profile.dialect)
    if own:
        kept = _fit_keys(own, i, profile, notes)
        if kept != own:
            rest = {name: keys for name, keys in message.extras.items() if name != profile.dialect}
            message = replace(message, extras={**rest, profile.dialect: kept} if kept else rest)
    parts = [_fit_result(part, (i, j), profile, notes) for j, part in enumerate(message.parts)]
    if all(a is b for a, b in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=tuple(parts))


def _fit_keys(own: dict[str, Any], i: int, profile: Profile, notes: Notes) -> dict[str, Any]:
    """Drops keys that the target refuses on a turn. OpenAI's SDK sends back `annotations: []`, which is
    "extra_forbidden" at strict servers."""
    taken, kept = profile.takes_turn_extras, own
    if taken is not None:
        kept = {key: value for key, value in own.items() if key[:1] == "~" or key in taken}
        at: At = ((((ROOT, "messages"), i), "extras"), profile.dialect)
        for key in own:
            if key not in kept and own[key] not in (None, [], {}, ""):
                notes.dropped((at, key), f"{profile.kind} refuses it")
    blanks = kept.get(BLANK)
    if isinstance(blanks, dict):
        left = {key: value for key, value in blanks.items() if _takes_blank(key, profile)}
        if left != blanks:
            kept = {key: value for key, value in kept.items() if key != BLANK} | ({BLANK: left} if left else {})
    return kept


def _takes_blank(key: str, profile: Profile) -> bool:
    """Whether the target takes this key with an empty value. Mistral's answers have an empty list of calls; OpenAI
    refuses it: "[] is too short - 'messages.1.tool_calls'"."""
    if key == CALLS:
        return profile.empty_calls
    if key in THOUGHTS and profile.echo == "forbidden":
        return False
    return profile.takes_turn_extras is None or key in profile.takes_turn_extras


def _fit_result(part: Part, place: tuple[int, int], profile: Profile, notes: Notes) -> Part:
    """Adds the id of the call, which Z.ai's clients leave out, to a result. Drops a name that the target refuses."""
    own = part.extras.get(profile.dialect) if isinstance(part, ToolResult) else None
    if not isinstance(part, ToolResult) or not own or "~role" in own:  # of role `function`: it has a name and no id
        return part
    at: At = ((((ROOT, "messages"), place[0]), "parts"), place[1])
    kept = dict(own)
    if profile.result_ids and kept.pop("~call_id", None) is not None:
        notes.invented((at, "call_id"), "the id of its call")
    named = profile.takes_turn_extras is None or "result.name" in profile.takes_turn_extras
    if not named and kept.pop("~name", None) is not None:
        notes.dropped((at, "name"), f"{profile.kind} refuses it")
    if len(kept) == len(own):
        return part
    rest = {name: keys for name, keys in part.extras.items() if name != profile.dialect}
    return replace(part, extras={**rest, profile.dialect: kept} if kept else rest)
