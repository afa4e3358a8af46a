"""Parameters that a target refuses, limits or names in its own way: left out, moved into range, or renamed.

What a request *means* (messages, tools, answers held to a schema, thinking) is never dropped here: see emulate.py.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.jsontypes import dump_json
from dragoman.model.messages import SILENT, Extras, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.request import AnyTool, Request, ServerTool, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile

# These values are the defaults, but some servers refuse them too ("does not support parameter presencePenalty").
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
TEXT_ONLY = ("text",)  # what a model answers in anyway


def fit_parameters(request: Request, profile: Profile, notes: Notes) -> Request:
    changes: dict[str, Any] = {}
    if profile.streams != "any":
        request = _fit_stream(request, profile, notes)
    if profile.omit_neutral:
        _leave_out_neutral(request, changes, notes)
    if request.top_k is not None and request.top_k <= 0 and not profile.native:
        changes["top_k"] = None
        notes.repaired((ROOT, "top_k"), "a limit of 0 or less is no limit, and many servers refuse it")
    if request.top_logprobs is not None and not request.logprobs and not profile.native:
        changes["top_logprobs"] = None
        notes.repaired((ROOT, "top_logprobs"), "without logprobs it says nothing, and many servers refuse it")
    for field in profile.rejects:
        value = getattr(request, field)
        if value is not None and field not in changes:
            changes[field] = None
            if value != TEXT_ONLY:
                notes.dropped((ROOT, field), f"{profile.kind} refuses it")
    if profile.ranges:
        _fit_ranges(request, changes, profile, notes)
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
    if profile.forced_word is not None or profile.off or profile.on:
        request = _spell(request, profile)
    if profile.spelling or profile.dialect in request.extras:
        request = _fit_extras(request, profile, notes)
    if request.tools is not None and (profile.takes_tool_extras is not None or not request.tools):
        request = _fit_tools(request, request.tools, profile, notes)
    return request


def _leave_out_neutral(request: Request, changes: dict[str, Any], notes: Notes) -> None:
    for field, value in NEUTRAL.items():
        if getattr(request, field) == value:
            changes[field] = None
            notes.repaired((ROOT, field), "has no effect, and may be refused")
    if request.output is not None and request.output.type == "text":
        changes["output"] = None
        notes.repaired((ROOT, "output"), "has no effect, and may be refused")


def _fit_stream(request: Request, profile: Profile, notes: Notes) -> Request:
    """Asks for a stream, or for none, where the server gives its answer in one way only. The client gets what it asked
    for: each answer is read whichever way it comes."""
    wanted = profile.streams == "always"
    if bool(request.stream) == wanted:
        return request
    notes.repaired((ROOT, "stream"), "the server answers only " + ("in a stream" if wanted else "without a stream"))
    return replace(request, stream=wanted)


def _fit_ranges(request: Request, changes: dict[str, Any], profile: Profile, notes: Notes) -> None:
    """Puts numbers that are too small or too large into `changes`, as the nearest that is taken."""
    for field, (least, most) in profile.ranges.items():
        value = changes.get(field, getattr(request, field))
        if value is None:
            continue
        fitted = most if most is not None and value > most else least if least is not None and value < least else value
        if fitted != value:
            changes[field] = int(fitted) if fitted == int(fitted) and type(value) is int else fitted
            notes.altered((ROOT, field), f"{profile.kind} takes {write_range(least, most)}")


def _spell(request: Request, profile: Profile) -> Request:
    """Writes two settings in the target's own words: whether to think, and that a call must be made."""
    choice, setting = request.tool_choice, request.reasoning
    if profile.forced_word is not None and choice is not None and choice.mode == "required" and choice.names is None:
        own = choice.extras.get(profile.dialect, {})
        if own.get("~word") != profile.forced_word:
            extras = {**choice.extras, profile.dialect: {**own, "~word": profile.forced_word}}
            request = replace(request, tool_choice=replace(choice, extras=extras))
    if profile.off and setting is not None and setting.mode == "off":
        own = {**request.extras.get(profile.dialect, {}), **profile.off}
        request = replace(request, reasoning=None, extras={**request.extras, profile.dialect: own})
    elif profile.on and setting is not None and setting.mode in ("on", "auto") and setting.effort is None:
        if setting.budget is not None and "reasoning_effort" in profile.on:
            return request  # the same key says the budget
        own = {**profile.on, **request.extras.get(profile.dialect, {})}
        rest = None if setting.budget is None else setting  # a budget is kept, because it is more than "think"
        request = replace(request, reasoning=rest, extras={**request.extras, profile.dialect: own})
    return request


def write_range(least: float | None, most: float | None) -> str:
    """In words: "at most 2", "0 to 1"."""
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"{least:g} to {most:g}"


def _fit_stop(stop: tuple[str, ...], profile: Profile, notes: Notes) -> tuple[str, ...] | None:
    kept = stop
    if not profile.blank_stops:
        kept = tuple(sequence for sequence in kept if sequence.strip())
        if len(kept) < len(stop):
            notes.altered((ROOT, "stop"), "a stop sequence of white space is refused: dragoman cuts the answer there")
    if profile.stops is not None and len(kept) > profile.stops:
        kept = kept[: profile.stops]
        notes.altered((ROOT, "stop"), f"{profile.kind} takes {profile.stops}: dragoman cuts the answer at the others")
    return kept or (None if stop else stop)


def drop_lone_choice(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops a tool choice without tools: "tool_choice is only allowed when tools are specified". Codex always sends
    one (CLIENTS 7)."""
    lone = [name for name in ("tool_choice", "parallel_calls") if getattr(request, name) is not None]
    if request.tools or not lone:
        return request
    if request.tool_choice is not None:
        notes.dropped((ROOT, "tool_choice"), "there are no tools")
    if request.parallel_calls is False:
        notes.dropped((ROOT, "parallel_calls"), "there are no tools")
    return replace(request, tool_choice=None, parallel_calls=None)


# ---------------------------------------------------------------- keys of the dialect's own


def hand_on_shared(request: Request, profile: Profile, notes: Notes) -> Request:
    """Keeps keys that two dialects of one maker share, such as `prompt_cache_retention`. Encoders note the others."""
    for dialect, keys in profile.shared_extras.items():
        theirs = request.extras.get(dialect)
        if not theirs:
            continue
        left, own = dict(theirs), dict(request.extras.get(profile.dialect, {}))
        for key, words in keys.items():
            _hand_on(left, own, key, words)
        if left != theirs:
            silent = [key for key in theirs.get(SILENT, ()) if key in own]
            own |= {SILENT: [*own.get(SILENT, ()), *silent]} if silent else {}
            request = replace(request, extras={**request.extras, dialect: left, profile.dialect: own})
    return request


def _hand_on(left: dict[str, Any], own: dict[str, Any], key: str, words: tuple[str, ...]) -> None:
    outer, _, inner = key.partition(".")
    given = left.get(outer)
    value = given.get(inner) if inner and isinstance(given, dict) else None if inner else given
    if value is None or (words and value not in words):
        return
    if not inner:
        own.setdefault(outer, value)
        del left[outer]
        return
    own[outer] = {inner: value, **own.get(outer, {})}
    left[outer] = {name: kept for name, kept in left[outer].items() if name != inner}
    if not left[outer]:
        del left[outer]


def _fit_extras(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops keys that this server of the dialect refuses: "Extra inputs are not permitted" (FIELD-CASES 37, 38)."""
    own = request.extras.get(profile.dialect)
    kept = dict(own) if own else {}
    at: At = ((ROOT, "extras"), profile.dialect)
    for key in own or ():
        refused = key in profile.rejects_extras or (
            profile.takes_extras is not None and key not in profile.takes_extras and key != BETA
        )
        if refused and key[:1] != "~" and kept.pop(key) is not None:
            notes.dropped((at, key), f"{profile.kind} refuses it")
    for key, words in profile.respelled.items():
        if type(kept.get(key)) is str and kept[key] in words:
            notes.repaired((at, key), f"{kept[key]} is not its word, {words[kept[key]]} is")
            kept[key] = words[kept[key]]
    for key in profile.stream_keys:
        if not request.stream and kept.get(key) is not None:
            del kept[key]
            notes.repaired((at, key), "it is about streams, and this request has none")
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


def _fit_tools(request: Request, tools: tuple[AnyTool, ...], profile: Profile, notes: Notes) -> Request:
    taken = profile.takes_tool_extras
    if not tools and not (profile.empty_tools and profile.native):
        notes.repaired((ROOT, "tools"), "an empty list has no effect, and may be refused")
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


# ----------------------------------------------------------------------- nulls
# Some targets refuse null where the key may be absent, so such nulls are left out (FIELD-CASES 57).
# xAI: "Failed to deserialize the JSON body into the target type".


def drop_nulls(request: Request, profile: Profile, notes: Notes) -> Request:
    """Leaves out nulls. That changes only the spelling; nothing is lost."""
    dialect = profile.dialect
    changes: dict[str, Any] = {}
    extras = _without(request.extras, dialect)
    if extras is not request.extras:
        changes["extras"] = extras
    cleaned = {i: _clean(message, dialect) for i, message in enumerate(request.messages) if message.extras}
    if any(message is not request.messages[i] for i, message in cleaned.items()):
        changes["messages"] = tuple(cleaned.get(i, message) for i, message in enumerate(request.messages))
    if request.tools is not None:
        tools = tuple(tool if isinstance(tool, ServerTool) else _clean(tool, dialect) for tool in request.tools)
        if any(a is not b for a, b in zip(tools, request.tools, strict=True)):
            changes["tools"] = tools
    return replace(request, **changes) if changes else request


def _clean(value: Any, dialect: str) -> Any:
    if not value.extras:
        return value
    extras = _without(value.extras, dialect)
    return value if extras is value.extras else replace(value, extras=extras)


def _without(extras: Extras, dialect: str) -> Extras:
    own = extras.get(dialect)
    if not own or not any(value is None or key.endswith(".null") for key, value in own.items()):
        return extras
    kept = {key: value for key, value in own.items() if value is not None and not key.endswith(".null")}
    rest = {name: body for name, body in extras.items() if name != dialect}
    return {**rest, dialect: kept} if kept else rest


# ------------------------------------------------------------------ the window
# Ollama silently cuts the beginning of a prompt that is longer than its window (FIELD-CASES 82). The system text and
# the tools are lost first, and the model seems to be bad. So we ask for a larger window if the prompt does not fit the
# default one. Sizes grow in steps, because Ollama loads the model again for each new size.

OPTION = "num_ctx"
BYTES_A_TOKEN = 3  # fewer than in English prose: code and other scripts need more tokens
A_PICTURE = 1_500
AN_ANSWER = 2_048  # tokens of the window for the answer, at most: agents ask for far more, and a window costs memory


def leave_nothing_behind(request: Request, profile: Profile, notes: Notes) -> Request:
    """A client of another dialect keeps its conversation itself. So the target is told to store nothing, and to give
    out its reasoning encrypted. A model that cannot think refuses the second setting, so it does not get it."""
    if request.store is None:
        request = replace(request, store=False)
    thinking = profile.thinking
    setting = request.reasoning
    reasons = thinking.says != "nothing" if thinking is not None else setting is not None
    if profile.sealed_option is None or not reasons or (setting is not None and setting.mode == "off"):
        return request
    key, entry = profile.sealed_option
    own = request.extras.get(profile.dialect, {})
    asked = own.get(key)
    listed = asked if isinstance(asked, list) else []
    if entry in listed:
        return request
    added = {key: [*listed, entry]} if listed else {key: [entry], SILENT: [*own.get(SILENT, ()), key]}
    return replace(request, extras={**request.extras, profile.dialect: {**own, **added}})


def open_window(request: Request, profile: Profile, notes: Notes) -> Request:
    if profile.context is None:
        return request
    own = request.extras.get(profile.dialect, {})
    options = own.get("options")
    if options is not None and (not isinstance(options, dict) or OPTION in options):
        return request
    needed = estimate(request) + min(request.max_output or AN_ANSWER, AN_ANSWER)
    if needed <= profile.context:
        return request
    size = profile.context
    while size < needed:
        size *= 2
    notes.invented(((((ROOT, "extras"), profile.dialect), "options"), OPTION), f"a prompt of about {needed} tokens")
    extras = {**own, "options": {**(options or {}), OPTION: size}}
    return replace(request, extras={**request.extras, profile.dialect: extras})


def estimate(request: Request) -> int:
    """About how many tokens a request has. The estimate is rather too high than too low."""
    tokens = sum(_size(part) for message in request.messages for part in message.parts)
    for tool in request.tools or ():
        if isinstance(tool, Tool):
            tokens += (
                len(tool.name) + len(tool.description or "") + len(dump_json(tool.parameters or {}))
            ) // BYTES_A_TOKEN
    return tokens


def _size(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text.encode()) // BYTES_A_TOKEN
        case ToolCall():
            return (len(part.name) + len(part.arguments.encode())) // BYTES_A_TOKEN
        case ToolResult():
            return sum(_size(piece) for piece in part.parts)
        case _:
            return A_PICTURE
