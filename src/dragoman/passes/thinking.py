"""Writes how much to think in the settings of the target's model: an effort, a budget, a level or `adaptive`.

Settings that a model refuses together with thinking are left out here too. model/effort.py converts between words and
tokens. A profile says which of them a model family takes (FIELD-CASES 51-54).
"""

from typing import Literal

from msgspec.structs import replace

from dragoman.model.effort import EFFORTS, budget_of_effort, effort_of_budget, lowest_known
from dragoman.model.messages import Text
from dragoman.model.request import ReasoningSetting, Request, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile, Thinking
from dragoman.passes.reasoning import switch_off

AT: At = (ROOT, "reasoning")
ROOM = 16_000  # tokens for the answer beside its thinking, when the request has no limit


def ask_for_thoughts(request: Request, client: Profile, target: Profile) -> Request:
    """Asks a target that hides thoughts to show them, if the client asks for thinking and its dialect shows
    thoughts."""
    setting = request.reasoning
    if not target.hides_thoughts or client.hides_thoughts or client.dialect == target.dialect:
        return request
    if setting is None or setting.show is not None or setting.mode == "off":
        return request
    if setting.mode is None and setting.budget is None and not (setting.effort is not None and client.effort_thinks):
        return request
    return replace(request, reasoning=replace(setting, show=True))


def fit_thinking(request: Request, profile: Profile, notes: Notes) -> Request:
    """Writes the client's setting for thinking in the form that this model takes."""
    if profile.reasoning_words:
        request = _fit_words(request, profile, notes)
    request = _fit_setting(request, profile, notes)
    return _fit_beside_tools(request, profile, notes) if profile.effort_with_tools != "any" else request


def _fit_words(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops values that this model refuses. Codex sends them to every model: "Unsupported value: 'all_turns' is not
    supported with this model"."""
    setting, dialect = request.reasoning, profile.dialect
    beside = request.extras.get(dialect, {})  # a `reasoning` without a known setting stays here
    own = setting.extras.get(dialect, {}) if setting is not None else beside.get("reasoning")
    if not isinstance(own, dict):
        return request
    wrong = [key for key, words in profile.reasoning_words.items() if own.get(key, None) not in (None, *words)]
    if not wrong:
        return request
    at: At = ((AT, "extras"), dialect) if setting is not None else (((ROOT, "extras"), dialect), "reasoning")
    for key in wrong:
        notes.dropped((at, key), f"the model does not take {own[key]}")
    kept = {key: value for key, value in own.items() if key not in wrong}
    if setting is not None:
        return replace(request, reasoning=replace(setting, extras={**setting.extras, dialect: kept}))
    rest = {key: value for key, value in beside.items() if key != "reasoning"} | ({"reasoning": kept} if kept else {})
    return replace(request, extras={**request.extras, dialect: rest})


def _fit_beside_tools(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops an effort beside tools: "Function tools with reasoning_effort are not supported in /v1/chat/completions.
    Please use /v1/responses"."""
    setting = request.reasoning
    if not request.tools or (setting is not None and setting.mode == "off"):
        return request
    if profile.effort_with_tools == "none":
        notes.altered(AT, "tools are refused here unless thinking is off")
        return replace(request, reasoning=ReasoningSetting(mode="off"))
    if setting is None:
        return request
    notes.dropped(AT, "it cannot be said beside tools here")
    return replace(request, reasoning=None)


def _fit_setting(request: Request, profile: Profile, notes: Notes) -> Request:
    request = _fit_show(request, profile, notes)
    thinking, setting = profile.thinking, request.reasoning
    if thinking is None or setting is None:
        return request
    if thinking.says == "nothing":
        notes.dropped(AT, f"{profile.kind or profile.dialect} has no setting for how much to think")
        return replace(request, reasoning=None)
    if profile.show_needs_mode and _says_only_show(setting):
        setting = replace(setting, mode="auto")  # Anthropic's `display` stands inside a switch that is on
        request = replace(request, reasoning=setting)
        notes.invented((AT, "mode"), "thinking is on, because only then it can be shown")
    if profile.open_budget and _is_left_open(setting):
        return request  # Gemini has a word for that, -1
    if setting.budget is not None and setting.budget < 0 and setting.mode != "off" and not profile.open_budget:
        setting = replace(setting, mode="auto", budget=None)  # Gemini's -1, which its users write elsewhere too
        request = replace(request, reasoning=setting)
        notes.altered((AT, "budget"), "a budget below 0 leaves the choice to the model")
    fitted = _fit_off(setting, thinking, notes) if setting.mode == "off" else _fit_on(setting, thinking, request, notes)
    if thinking.says == "switch" and thinking.default == "on" and profile.off and fitted.mode in ("on", "auto"):
        notes.altered((AT, "mode"), "this model thinks unless thinking is switched off")
        return replace(request, reasoning=None)
    if profile.show_needs_mode and fitted.mode == "off" and fitted.show is not None:
        notes.dropped((AT, "show"), "nothing to show, because the model does not think")
        fitted = replace(fitted, show=None)
    if fitted != setting:
        request = replace(request, reasoning=fitted)
    if thinking.inside and fitted.budget is not None:
        request = _fit_limit(request, fitted, profile, notes)
    return request


def _fit_show(request: Request, profile: Profile, notes: Notes) -> Request:
    """Does not ask for summaries where they are refused: "Your organization must be verified to generate reasoning
    summaries"."""
    setting = request.reasoning
    own = setting.extras.get(profile.dialect, {}) if setting is not None else {}
    if setting is None or profile.summaries or (not setting.show and "summary" not in own):
        return request
    notes.dropped((AT, "show"), "the server refuses to show what it thinks")
    kept = {key: value for key, value in own.items() if key != "summary"}
    extras = {
        **{k: v for k, v in setting.extras.items() if k != profile.dialect},
        **({profile.dialect: kept} if kept else {}),
    }
    bare = replace(setting, show=None, extras=extras)
    says = bare.mode or bare.effort or bare.budget is not None or bare.extras
    return replace(request, reasoning=bare if says else None)


def _says_only_show(setting: ReasoningSetting) -> bool:
    return bool(setting.show) and setting.mode is None and setting.effort is None and setting.budget is None


def _is_left_open(setting: ReasoningSetting) -> bool:
    return setting.mode == "auto" and setting.effort is None and setting.budget is None


def _fit_off(setting: ReasoningSetting, thinking: Thinking, notes: Notes) -> ReasoningSetting:
    if thinking.off:
        known = thinking.efforts if thinking.efforts_off is None else thinking.efforts_off
        return _fit_word(setting, replace(thinking, efforts=known), notes)
    notes.altered((AT, "mode"), "thinking cannot be switched off: the lowest level is used")
    if thinking.says == "budget":
        return replace(setting, mode="on", budget=thinking.least, effort=None)
    lowest = next((effort for effort in EFFORTS if effort in thinking.efforts), None)
    return replace(setting, mode="auto", budget=None, effort=lowest)


def _fit_on(setting: ReasoningSetting, thinking: Thinking, request: Request, notes: Notes) -> ReasoningSetting:
    match thinking.says:
        case "budget":
            return _as_budget(setting, thinking, notes)
        case "adaptive":
            return _as_adaptive(setting, thinking, request, notes)
        case "effort" | "level":
            return _as_effort(setting, thinking, notes)
        case "switch":
            return _as_switch(setting, notes)
        case _:
            setting = _clamp(setting, thinking, notes)
            if setting.budget is not None and setting.mode is None:
                setting = replace(setting, mode="on")
            return _fit_word(setting, thinking, notes)


def _as_budget(setting: ReasoningSetting, thinking: Thinking, notes: Notes) -> ReasoningSetting:
    """Writes the effort as a number of tokens. The word stays too, if the model reads both."""
    budget, mode = setting.budget, setting.mode
    if budget is None and (setting.effort is not None or mode is not None):
        budget = budget_of_effort(setting.effort or "medium")
        notes.altered((AT, "effort" if setting.effort else "mode"), f"said as a budget: {budget} tokens")
    if budget is not None:
        trial = Notes() if setting.budget is None else notes  # our own number needs no note
        budget = _clamp(ReasoningSetting(budget=budget), thinking, trial).budget
    effort = setting.effort if setting.effort in thinking.efforts else None
    if mode == "auto" or (mode is None and budget is not None):
        mode = "on"
    return replace(setting, mode=mode, budget=budget, effort=effort)


def _clamp(setting: ReasoningSetting, thinking: Thinking, notes: Notes) -> ReasoningSetting:
    """Puts the budget into the range of the model: "The thinking budget (63999) is invalid"."""
    budget = setting.budget
    if budget is None or budget < 0:
        return setting
    fitted = max(budget, thinking.least)
    fitted = min(fitted, thinking.most) if thinking.most is not None else fitted
    if fitted == budget:
        return setting
    notes.altered((AT, "budget"), f"between {thinking.least} and {thinking.most or 'the output limit'}")
    return replace(setting, budget=fitted)


def _as_adaptive(setting: ReasoningSetting, thinking: Thinking, request: Request, notes: Notes) -> ReasoningSetting:
    """Writes the setting as `adaptive` with an effort: "thinking.type.enabled is not supported for this model. Use
    adaptive and output_config.effort"."""
    mode, effort = setting.mode, setting.effort
    if setting.budget is not None:
        effort = effort or effort_of_budget(setting.budget)
        notes.altered((AT, "budget"), f"said as adaptive, with effort {effort}")
    if mode == "on":
        mode = "auto"
        if setting.budget is None:
            notes.altered((AT, "mode"), "said as adaptive")
    elif (
        mode is None and setting.effort is not None and thinking.default == "off" and "anthropic" not in request.extras
    ):
        mode = "auto"  # elsewhere an effort asks for thinking; here it would not
        notes.invented((AT, "mode"), "an effort asks for thinking: adaptive")
    elif mode is None and setting.budget is not None:
        mode = "auto"
    return _fit_word(replace(setting, mode=mode, effort=effort, budget=None), thinking, notes)


def _as_effort(setting: ReasoningSetting, thinking: Thinking, notes: Notes) -> ReasoningSetting:
    effort = setting.effort
    if thinking.on is not None and effort is None and setting.budget is None and setting.mode in ("on", "auto"):
        notes.altered((AT, "mode"), f"said as effort {thinking.on}")
        return replace(setting, effort=thinking.on)
    if thinking.says == "level" and effort is None:
        return _clamp(setting, thinking, notes)  # Gemini 3 still reads a budget, but not beside a level
    if setting.budget is not None and setting.budget >= 0:
        effort = effort or effort_of_budget(setting.budget)
        notes.altered((AT, "budget"), f"said as effort {effort}")
    if setting.budget is not None:
        setting = replace(setting, budget=None, effort=effort)
    return _fit_word(setting, thinking, notes)


def _as_switch(setting: ReasoningSetting, notes: Notes) -> ReasoningSetting:
    for field in ("effort", "budget"):
        if getattr(setting, field) is not None:
            notes.dropped((AT, field), "thinking is on or off here")
    mode = "on" if setting.mode in (None, "auto") and (setting.effort or setting.budget) else setting.mode
    return replace(setting, mode=mode, effort=None, budget=None)


def _fit_word(setting: ReasoningSetting, thinking: Thinking, notes: Notes) -> ReasoningSetting:
    effort = setting.effort
    if effort is None or effort in thinking.efforts:
        return setting
    if not thinking.efforts:
        notes.dropped((AT, "effort"), "this model knows no effort")
        return replace(setting, effort=None)
    known = lowest_known(effort, thinking.efforts)
    if known not in thinking.efforts:
        known = thinking.efforts[-1]
    notes.altered((AT, "effort"), f"this model has no effort {effort}: {known}")
    return replace(setting, effort=known)


def _fit_limit(request: Request, setting: ReasoningSetting, profile: Profile, notes: Notes) -> Request:
    """Adds the budget to the output limit, so that the answer keeps its length: "max_tokens must be greater than
    thinking.budget_tokens"."""
    limit, budget, most = request.max_output, setting.budget or 0, profile.most_output
    if limit is not None and most is not None:
        limit = min(limit, most)
    wanted = limit
    if limit is None and (budget >= ROOM or (most is not None and budget >= most)):
        wanted = budget + ROOM
    elif limit is not None and limit <= budget:
        wanted = limit + budget
    if most is not None and wanted is not None and wanted > most:
        wanted = most
    if wanted is not None and budget >= wanted:
        room = ROOM if limit is None or limit >= wanted else limit
        budget = max(wanted - room, (wanted + 1) // 2 if room >= wanted else 0)
        notes.altered((AT, "budget"), f"the model writes at most {wanted} tokens, with thinking: {budget}")
        request = replace(request, reasoning=replace(setting, budget=budget))
    if wanted == request.max_output:
        return request
    note = notes.invented if limit is None else notes.altered
    note((ROOT, "max_output"), f"the limit includes {budget} tokens of thinking: {wanted}")
    return replace(request, max_output=wanted)


# ---------------------------------------------------------------- settings that a model refuses beside thinking


def is_thinking(request: Request, profile: Profile) -> bool:
    setting = request.reasoning
    if setting is not None and setting.mode is not None:
        return setting.mode != "off"
    if profile.is_off(request.extras):
        return False
    if setting is not None and (setting.budget or (setting.effort is not None and profile.effort_thinks)):
        return True
    return profile.thinking is not None and profile.thinking.default == "on"


def fit_forced_choice(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops thinking beside a forced call, or the forced call if the profile says so (`keep_thinking`): "Thinking may
    not be enabled when tool_choice forces tool use"."""
    choice = request.tool_choice
    if choice is None or choice.mode != "required" or profile.forced_choice == "yes":
        return request
    if profile.forced_choice == "unless_thinking":
        if not is_thinking(request, profile):
            return request
        can_be_off = profile.thinking is None or profile.thinking.off
        if can_be_off and not profile.keep_thinking:
            return switch_off(request, "no thinking while a call is forced", notes)
    return ask_for_call(request, choice, profile, notes)


def ask_for_call(request: Request, choice: ToolChoice, profile: Profile, notes: Notes) -> Request:
    """Asks in words for a call that cannot be forced. The model gets only the tools that it may call."""
    policy = profile.policy_of("forced_choice")
    at: At = (ROOT, "tool_choice")
    if policy == "refuse":
        raise notes.refuse(at, "the target refuses forced calls")
    names = choice.names
    tools = request.tools
    if names is not None and tools is not None:
        tools = tuple(tool for tool in tools if getattr(tool, "name", None) in names)
    soft: Literal["auto"] = "auto"
    request = replace(request, tool_choice=ToolChoice(mode=soft, extras=choice.extras), tools=tools)
    notes.altered(at, "forced calls are refused: the model may choose" if policy == "drop" else "asked for in words")
    if policy == "drop" or not request.messages or request.messages[-1].role != "user":
        return request
    what = f"the tool {names[0]}" if names and len(names) == 1 else "one of the tools"
    last = request.messages[-1]
    turn = replace(last, parts=(*last.parts, Text(text=f"[Answer with a call of {what}.]")))
    return replace(request, messages=(*request.messages[:-1], turn))


def fit_sampling(request: Request, profile: Profile, notes: Notes) -> Request:
    """Leaves out sampling settings that the model refuses, with a note (FIELD-CASES 52)."""
    if profile.sampling == "yes" and not profile.one_sampler:
        return request
    changes: dict[str, None] = {}
    if profile.sampling == "no" or (profile.sampling == "unless_thinking" and is_thinking(request, profile)):
        for field in profile.samplers:
            value = getattr(request, field)
            least, most = profile.tolerated.get(field, (1, 1 if field == "temperature" else 0))
            if value is None or (profile.sampling == "unless_thinking" and least <= value <= most):
                continue
            changes[field] = None
            notes.dropped(
                (ROOT, field), "the model refuses it" + ("" if profile.sampling == "no" else " while it thinks")
            )
    both = request.temperature is not None and request.top_p is not None
    if profile.one_sampler and both and not changes.keys() & {"temperature", "top_p"}:
        changes["top_p"] = None
        notes.dropped((ROOT, "top_p"), "the model takes temperature or top_p, not both")
    return replace(request, **changes) if changes else request
