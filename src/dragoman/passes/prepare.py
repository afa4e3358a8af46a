"""All passes a target needs, in the order they need each other: any conversation, sayable there.

prepared = prepare(request, profile, notes)     # for a gateway: with what the way back has to put right
request = legalise(request, profile, notes)     # for a conversion
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.messages import Opaque
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.emulate import Undo, emulate
from dragoman.passes.json_answers import Expected
from dragoman.passes.media import fit_media, holds_rare, move_result_media
from dragoman.passes.pairing import declare_history, mend_arguments, name_results, pair_calls, spell_no_text
from dragoman.passes.parameters import drop_lone_choice, drop_nulls, fit_parameters, limit_cache_marks, open_window
from dragoman.passes.profile import Profile
from dragoman.passes.reasoning import (
    begin_loops_with_thinking,
    drop_last_thoughts,
    replay_reasoning,
    require_echo,
    sign_calls,
)
from dragoman.passes.rename import NOTHING, rename, rename_arguments
from dragoman.passes.schemas import adapt_schemas
from dragoman.passes.server_history import tell_server_history
from dragoman.passes.system import drop_billing, place_system
from dragoman.passes.thinking import fit_forced_choice, fit_sampling, fit_thinking
from dragoman.passes.turns import (
    begin_with_user,
    drop_empty_text,
    drop_silent_turns,
    end_with_user,
    join_apart,
    join_calls,
    join_turns,
    put_results_first,
    say_developer_as_system,
    say_refusals_as_text,
    set_results_apart,
    strip_last_text,
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
        request = notes.stage(declare_history(request, notes))
    return mend_arguments(request, profile, notes)


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


def _parameters(request: Request, profile: Profile, notes: Notes) -> Request:
    if not profile.nulls:
        request = notes.stage(drop_nulls(request, profile.dialect))
    request = notes.stage(fit_parameters(request, profile, notes))
    if not profile.choice_alone and not profile.native:
        request = notes.stage(drop_lone_choice(request, notes))
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
