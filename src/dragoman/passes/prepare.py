"""All passes a target needs, in the order they need each other: any conversation, sayable there.

prepared = prepare(request, profile, notes)     # for a gateway: with what the way back has to put right
request = legalise(request, profile, notes)     # for a conversion
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.messages import Opaque, ToolCall
from dragoman.model.request import Request, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.arguments import mend_arguments, spell_no_text
from dragoman.passes.billing import drop_billing
from dragoman.passes.context import open_window
from dragoman.passes.emulate import Undo, emulate
from dragoman.passes.json_answers import Expected
from dragoman.passes.media import fit_media, holds_rare
from dragoman.passes.nulls import drop_nulls
from dragoman.passes.pairing import name_results, pair_calls
from dragoman.passes.parameters import fit_parameters, limit_cache_marks
from dragoman.passes.profile import Profile
from dragoman.passes.property_names import rename_arguments
from dragoman.passes.reasoning import (
    begin_loops_with_thinking,
    drop_last_thoughts,
    replay_reasoning,
    require_echo,
    sign_calls,
)
from dragoman.passes.refusals import say_refusals_as_text
from dragoman.passes.rename import NOTHING, rename
from dragoman.passes.result_media import move_result_media
from dragoman.passes.schemas import adapt_schemas
from dragoman.passes.server_history import tell_server_history
from dragoman.passes.system import place_system
from dragoman.passes.thinking import fit_forced_choice, fit_sampling, fit_thinking
from dragoman.passes.turn_edges import (
    begin_with_user,
    drop_empty_text,
    drop_silent_turns,
    end_with_user,
    strip_last_text,
)
from dragoman.passes.turns import (
    join_apart,
    join_calls,
    join_turns,
    put_results_first,
    say_developer_as_system,
    set_results_apart,
)


class Prepared(Struct, frozen=True):
    request: Request
    undo: Undo


Step: TypeAlias = Callable[[Request, Profile, Notes], Request]


def legalise(request: Request, profile: Profile, notes: Notes) -> Request:
    return prepare(request, profile, notes).request


# Not content but orders: an answer that knows nothing of them answers another question.
ORDERS = frozenset({"compaction_trigger"})


def _refuse_orders(request: Request, profile: Profile, notes: Notes) -> None:
    """Codex ends a request for a compaction with one; a plain answer would be taken for the whole conversation."""
    last = len(request.messages) - 1
    for j, part in enumerate(request.messages[last].parts if last >= 0 else ()):
        if type(part) is not Opaque or part.dialect == profile.dialect:
            continue
        order = str(part.body.get("type"))
        if order in ORDERS:
            at: At = ((((ROOT, "messages"), last), "parts"), j)
            raise notes.refuse(at, f"only {part.dialect} can carry out {order}")


def prepare(request: Request, profile: Profile, notes: Notes) -> Prepared:
    _refuse_orders(notes.stage(request), profile, notes)
    request, undo = emulate(request, profile, notes)
    notes.stage(request)
    steps = STEPS
    if not holds_rare(request.messages):  # fast path: plain conversation
        steps = PLAIN_STEPS
    for step in steps:
        request = notes.stage(step(request, profile, notes))
    asked = request.output
    request, aliases = adapt_schemas(request, profile, notes)
    notes.stage(request)
    if request.output is not asked and asked is not None and asked.schema is not None:
        undo = replace(undo, expected=Expected(schema=asked.schema))  # the target holds the answer to less than this
    if aliases.tools:
        request = notes.stage(rename_arguments(request, aliases.tools, notes))
    request, renames = rename(request, profile.tool_names, profile.call_ids, notes)
    notes.stage(request)
    if aliases.tools or aliases.answer:
        renames = replace(renames, properties=aliases.tools, answer=aliases.answer)
    if renames != NOTHING:
        undo = replace(undo, renames=renames)
    return Prepared(request, undo)


def _reasoning(request: Request, profile: Profile, notes: Notes) -> Request:
    request = notes.stage(replay_reasoning(request, profile, notes))
    request = notes.stage(fit_thinking(request, profile, notes))
    if profile.echo == "required" and not profile.is_off(request.extras):
        request = notes.stage(require_echo(request, profile, notes))
    if profile.thinking_first:
        request = notes.stage(begin_loops_with_thinking(request, notes))
    request = notes.stage(fit_forced_choice(request, profile, notes))
    if profile.sentinel is not None:
        request = notes.stage(sign_calls(request, profile.sentinel, profile.dialect, notes))
    return fit_sampling(request, profile, notes)


def _is_continued(request: Request, profile: Profile) -> bool:
    """Whether the target itself keeps the beginning of the conversation: a result may answer a call we cannot see."""
    own = request.extras.get(profile.dialect)
    return own is not None and any(own.get(key) is not None for key in profile.state_keys)


def _pairing(request: Request, profile: Profile, notes: Notes) -> Request:
    if profile.pairing != "keep" and not _is_continued(request, profile):
        mend = profile.pairing == "mend"
        request = notes.stage(pair_calls(request, notes, mend=mend, ordered=profile.results_in_order))
    if profile.result_names:
        request = notes.stage(name_results(request, notes))
    if profile.tools_for_history and not request.tools:
        request = notes.stage(_declare_history(request, notes))
    return mend_arguments(request, profile, notes)


NOT_NOW = "Used earlier in this conversation, no longer there: not to be called."


def _declare_history(request: Request, notes: Notes) -> Request:
    """Tools that only the history knows, for relays that refuse its calls without them (FIELD-CASES 66). A model that
    is free to call a stand-in calls it instead of answering, so it is told not to, twice."""
    names = {p.name: None for m in request.messages for p in m.parts if isinstance(p, ToolCall)}
    if not names:
        return request
    notes.invented((ROOT, "tools"), "the history has calls, so the request must have their tools")
    empty = {"type": "object", "properties": {}}
    tools = tuple(Tool(name=name, description=NOT_NOW, parameters=empty) for name in names)
    return replace(request, tools=tools, tool_choice=ToolChoice(mode="none"))


def _result_media(request: Request, profile: Profile, notes: Notes) -> Request:
    return request if profile.result_media else move_result_media(request, notes)


def _turns(request: Request, profile: Profile, notes: Notes) -> Request:
    if not profile.billing:
        request = notes.stage(drop_billing(request, notes))
    if not profile.refusals:
        request = notes.stage(say_refusals_as_text(request, notes))
    if not profile.developer:
        request = notes.stage(say_developer_as_system(request, notes))
    request = notes.stage(place_system(request, profile, notes))
    if profile.empty_text:
        request = notes.stage(drop_silent_turns(request, profile.dialect, notes))
    else:
        request = notes.stage(drop_empty_text(request, notes))
    if profile.thoughts != "alone":
        request = notes.stage(drop_last_thoughts(request, notes, bare_only=profile.thoughts == "not_alone"))
    if profile.first_user and not _is_continued(request, profile):
        request = notes.stage(begin_with_user(request, notes))
    if not profile.prefill:
        request = notes.stage(end_with_user(request, profile, notes))
    elif not profile.empty_text:
        request = notes.stage(strip_last_text(request, notes))
    if profile.results_alone:
        request = join_apart(notes.stage(set_results_apart(request, notes)), notes)
        notes.stage(request)
    elif profile.join_turns:
        request = notes.stage(join_turns(request, notes))
    elif profile.join_calls:
        request = notes.stage(join_calls(request, notes))
    request = notes.stage(spell_no_text(request, profile))
    return put_results_first(request, notes) if profile.results_first else request


def _drop_lone_choice(request: Request, notes: Notes) -> Request:
    """ "tool_choice is only allowed when tools are specified"; Codex says it always (CLIENTS 7)."""
    lone = [name for name in ("tool_choice", "parallel_calls") if getattr(request, name) is not None]
    if request.tools or not lone:
        return request
    for name in lone:
        notes.dropped((ROOT, name), "there are no tools")
    return replace(request, tool_choice=None, parallel_calls=None)


def _parameters(request: Request, profile: Profile, notes: Notes) -> Request:
    if not profile.nulls:
        request = notes.stage(drop_nulls(request, profile.dialect))
    request = notes.stage(fit_parameters(request, profile, notes))
    if not profile.choice_alone and not profile.native:
        request = notes.stage(_drop_lone_choice(request, notes))
    if profile.cache_marks is not None:
        request = notes.stage(limit_cache_marks(request, profile.cache_marks, notes))
    return open_window(request, profile, notes)


# Pairing first: everything else may look at a call and know its result. Reasoning and media before the turns, which
# must not be left empty by them. Names last, when no pass adds a tool any more.
STEPS: tuple[Step, ...] = (
    tell_server_history,
    _pairing,
    _result_media,
    fit_media,
    _reasoning,
    _turns,
    _parameters,
)
# Most conversations are words, thoughts and calls: these have nothing to do there.
_FOR_RARE: tuple[Step, ...] = (tell_server_history, _result_media, fit_media)
PLAIN_STEPS: tuple[Step, ...] = tuple(step for step in STEPS if step not in _FOR_RARE)
