"""Parameters a target refuses, limits or leaves no choice about: left out, moved into range, spelled its way.

What a request *means* (messages, tools, answers held to a schema, thinking) is never dropped here: see emulate.py.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.model.messages import Opaque, Part, Reasoning, Refusal, Video
from dragoman.model.request import Request, ServerTool, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile

# Said, these change nothing; some servers refuse even that ("does not support parameter presencePenalty").
NEUTRAL: dict[str, object] = {
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "choices": 1,
    "top_p": 1,
    "logprobs": False,
    "min_p": 0,
}
# Spellings that say something about these fields only.
_SPELLED: dict[str, tuple[str, ...]] = {"~limit": ("max_output",), "~guests": ("top_k", "min_p")}
_USUAL = {"~limit": "max_tokens"}
BETA = "header:anthropic-beta"


def fit_parameters(request: Request, profile: Profile, notes: Notes) -> Request:
    changes: dict[str, Any] = {}
    if profile.omit_neutral:
        for field, value in NEUTRAL.items():
            if getattr(request, field) == value:
                changes[field] = None
                notes.repaired((ROOT, field), "says nothing, and may be refused")
    for field in profile.rejects:
        if getattr(request, field) is not None and field not in changes:
            changes[field] = None
            notes.dropped((ROOT, field), f"{profile.kind} refuses it")
    for field, (least, most) in profile.ranges.items():
        value = changes.get(field, getattr(request, field))
        if value is not None:
            fitted = (
                most if most is not None and value > most else least if least is not None and value < least else value
            )
            if fitted != value:
                changes[field] = int(fitted) if fitted == int(fitted) and type(value) is int else fitted
                notes.altered((ROOT, field), f"{profile.kind} takes {_range(least, most)}")
    for field, words in profile.words.items():
        value = getattr(request, field)
        if value is not None and value not in words and field not in changes:
            changes[field] = None
            notes.dropped((ROOT, field), f"{profile.kind} takes only {', '.join(words)}")
    if request.stop is not None and "stop" not in changes:
        stop = _fit_stop(request.stop, profile, notes)
        if stop != request.stop:
            changes["stop"] = stop
    if changes:
        request = replace(request, **changes)
    request = _spell(request, profile)
    request = _fit_extras(request, profile, notes)
    return _fit_tools(request, profile, notes)


def _spell(request: Request, profile: Profile) -> Request:
    """What the target says in other words than its dialect: not thinking, and a call that must be made."""
    choice, setting = request.tool_choice, request.reasoning
    if profile.forced_word is not None and choice is not None and choice.mode == "required" and choice.names is None:
        own = choice.extras.get(profile.dialect, {})
        if own.get("~word") != profile.forced_word:
            extras = {**choice.extras, profile.dialect: {**own, "~word": profile.forced_word}}
            request = replace(request, tool_choice=replace(choice, extras=extras))
    if profile.off and setting is not None and setting.mode == "off":
        own = {**request.extras.get(profile.dialect, {}), **profile.off}
        request = replace(request, reasoning=None, extras={**request.extras, profile.dialect: own})
    return request


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"{least:g} to {most:g}"


def _fit_stop(stop: tuple[str, ...], profile: Profile, notes: Notes) -> tuple[str, ...] | None:
    kept = stop
    if not profile.blank_stops:
        kept = tuple(sequence for sequence in kept if sequence.strip())
        if len(kept) < len(stop):
            notes.altered((ROOT, "stop"), "each stop sequence must contain non-whitespace")
    if profile.stops is not None and len(kept) > profile.stops:
        kept = kept[: profile.stops]
        notes.altered((ROOT, "stop"), f"{profile.kind} takes {profile.stops}: the rest is cut on our side")
    return kept or (None if stop else stop)


# ---------------------------------------------------------------- keys of the dialect's own


def _fit_extras(request: Request, profile: Profile, notes: Notes) -> Request:
    """Newer fields only their own maker takes: "Extra inputs are not permitted" (FIELD-CASES 37, 38)."""
    own = request.extras.get(profile.dialect)
    kept = dict(own) if own else {}
    at: At = ((ROOT, "extras"), profile.dialect)
    for key in own or ():
        refused = key in profile.rejects_extras or (
            profile.takes_extras is not None and key not in profile.takes_extras and key != BETA
        )
        if refused and key[:1] != "~" and kept.pop(key) is not None:
            notes.dropped((at, key), f"{profile.kind} refuses it")
    if profile.takes_betas is not None and isinstance(kept.get(BETA), str):
        _fit_betas(kept, profile.takes_betas, at, notes)
    for key, word in profile.spelling.items():
        needed = _SPELLED.get(key)
        if kept.get(key, _USUAL.get(key)) == word:
            continue
        if needed is None or any(getattr(request, field) is not None for field in needed):
            kept[key] = word
    if kept == (own or {}):
        return request
    extras = {name: keys for name, keys in request.extras.items() if name != profile.dialect}
    return replace(request, extras={**extras, profile.dialect: kept} if kept else extras)


def _fit_betas(kept: dict[str, Any], taken: tuple[str, ...], at: At, notes: Notes) -> None:
    betas = [beta.strip() for beta in kept[BETA].split(",")]
    left = [beta for beta in betas if beta in taken]
    if len(left) < len(betas):
        notes.altered((at, BETA), f"refused: {', '.join(beta for beta in betas if beta not in taken)}")
        if left:
            kept[BETA] = ",".join(left)
        else:
            del kept[BETA]


def _fit_tools(request: Request, profile: Profile, notes: Notes) -> Request:
    taken, tools = profile.takes_tool_extras, request.tools
    if tools is None:
        return request
    if not tools and profile.omit_neutral:
        notes.repaired((ROOT, "tools"), "an empty list may be refused")
        return replace(request, tools=None)
    if taken is None:
        return request
    changed = list(tools)
    for i, tool in enumerate(tools):
        own = None if isinstance(tool, ServerTool) else tool.extras.get(profile.dialect)
        if isinstance(tool, ServerTool) or not own:
            continue
        kept = {key: value for key, value in own.items() if key in taken or key[:1] == "~"}
        if len(kept) < len(own):
            at: At = ((((ROOT, "tools"), i), "extras"), profile.dialect)
            for key in own:
                if key not in kept and own[key] is not None:
                    notes.dropped((at, key), f"{profile.kind} refuses it")
            extras = {**tool.extras, profile.dialect: kept}
            changed[i] = replace(tool, extras=extras if kept else {k: v for k, v in extras.items() if v})
    if all(a is b for a, b in zip(changed, tools, strict=True)):
        return request
    return replace(request, tools=tuple(changed))


# ---------------------------------------------------------------- cache marks


def limit_cache_marks(request: Request, most: int, notes: Notes) -> Request:
    """The last `most` marks stay: they cover the longest prefixes (Anthropic takes 4, the automatic one included)."""
    places = list(_marks(request))
    if len(places) + (request.cache is not None) <= most:
        return request
    gone = set(places[: len(places) + (request.cache is not None) - most])
    messages = list(request.messages)
    for i, j in sorted(gone):
        at: At = (((((ROOT, "messages"), i), "parts"), j), "cache") if i >= 0 else (((ROOT, "tools"), j), "cache")
        notes.dropped(at, f"at most {most} cache marks")
    for i, message in enumerate(messages):
        if any((i, j) in gone for j in range(len(message.parts))):
            parts = tuple(_unmark(p) if (i, j) in gone else p for j, p in enumerate(message.parts))
            messages[i] = replace(message, parts=parts)
    tools = request.tools
    if tools is not None and any(i < 0 for i, _ in gone):
        tools = tuple(
            replace(t, cache=None) if (-1, j) in gone and not isinstance(t, ServerTool) else t
            for j, t in enumerate(tools)
        )
    return replace(request, messages=tuple(messages), tools=tools)


def _marks(request: Request) -> "list[tuple[int, int]]":
    """Tools come first in the prompt, then the messages; their place is -1."""
    found = [(-1, j) for j, tool in enumerate(request.tools or ()) if type(tool) is Tool and tool.cache is not None]
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if type(part) not in _UNMARKED and part.cache is not None:  # type: ignore[union-attr]
                found.append((i, j))
    return found


_UNMARKED = frozenset({Reasoning, Refusal, Video, Opaque})  # parts that cannot bear a mark


def _unmark(part: Part) -> Part:
    return replace(part, cache=None)
