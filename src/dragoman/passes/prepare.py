"""Runs all passes that a target needs, in the right order. Then the target accepts the conversation.

prepared = prepare(request, profile, notes)     # for a gateway: the request, and what to undo in the answer
request = legalise(request, profile, notes)     # for a conversion

`STEPS` lists the passes. Those that a profile needs are chosen once. A request runs only those of them that are about
something it contains.
"""

from collections.abc import Callable
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.messages import Image, Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult
from dragoman.model.request import CustomTool, Request, ServerTool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import (
    ANYTHING,
    CACHE_MARK,
    CALLS,
    EMPTY_TURN,
    FAILED_RESULT,
    FREEFORM,
    INNER_MARK,
    INSTRUCTIONS,
    LATER_INSTRUCTIONS,
    LOOSE,
    MEDIA,
    NEIGHBOURS,
    SEAL,
    SPLIT_ANSWER,
    TURN_KEYS,
    Contents,
    find_contents,
)
from dragoman.passes.emulate import Expected, Undo, emulate
from dragoman.passes.limits import fit_cache_marks, fit_limits, lift_marks
from dragoman.passes.media import fit_media, fit_pictures, move_result_media
from dragoman.passes.pairing import declare_history, mend_arguments, name_results, pair_calls, spell_no_text
from dragoman.passes.parameters import (
    drop_lone_choice,
    drop_nulls,
    fit_parameters,
    hand_on_shared,
    leave_nothing_behind,
    open_window,
)
from dragoman.passes.profile import Profile
from dragoman.passes.reasoning import (
    begin_loops_with_thinking,
    drop_last_thoughts,
    replay_reasoning,
    require_echo,
    sign_calls,
)
from dragoman.passes.rename import NOTHING, rename, rename_arguments
from dragoman.passes.schemas.fit import adapt_schemas
from dragoman.passes.server_tools.history import tell_server_history
from dragoman.passes.server_tools.tools import has_foreign
from dragoman.passes.system import drop_billing, is_billed, place_system
from dragoman.passes.thinking import fit_forced_choice, fit_sampling, fit_thinking
from dragoman.passes.turn_keys import fit_turn_keys, say_newer_settings, say_newer_turns
from dragoman.passes.turns import (
    answer_results,
    begin_with_user,
    drop_empty_text,
    drop_silent_turns,
    drop_text_beside_calls,
    end_with_user,
    join_apart,
    join_calls,
    join_turns,
    put_results_first,
    say_developer_as_system,
    say_refusals_as_text,
    set_results_apart,
    strip_last_text,
    tell_failures,
)


class Prepared(Struct, frozen=True):
    request: Request
    undo: Undo
    asked_ids: frozenset[str] | None = None  # of the calls in the client's request, if they were collected


# ---------------------------------------------------------------- the passes


class PassStep(Struct, frozen=True):
    """One pass. `when`: the profiles that need it. `needs`: it runs if the request contains one of these. `looks`: it
    is given what the request contains, too. `about_settings`: the profiles for which it looks at nothing but settings.
    """

    run: Callable[..., Request]
    needs: frozenset[object] = frozenset({ANYTHING})
    when: Callable[[Profile], bool] = lambda profile: True
    adds: bool = True  # whether it may add kinds of parts or settings, or take calls away
    about_turns: bool = False  # it adds nothing, and leaves all settings as they are
    looks: bool = False
    about_settings: Callable[[Profile], bool] = lambda profile: False


def _always(profile: Profile) -> bool:
    return True


def _with(*found: object) -> frozenset[object]:
    return frozenset(found)


# Pairing runs first, so that every later pass finds the result of a call. Reasoning and media run before the turns,
# because they may leave a turn empty.
STEPS: tuple[PassStep, ...] = (
    PassStep(tell_server_history, _with(Opaque), lambda p: "server_tools" in p.lacks),
    # calls and results
    PassStep(pair_calls, _with(LOOSE), lambda p: p.pairing != "keep"),
    PassStep(name_results, _with(ToolResult), lambda p: p.result_names, adds=False, about_turns=True),
    PassStep(declare_history, _with(ToolCall), lambda p: p.tools_for_history),
    PassStep(mend_arguments, _with(ToolCall), lambda p: p.arguments == "object", looks=True),
    PassStep(move_result_media, MEDIA, lambda p: not p.result_media),
    PassStep(fit_media, MEDIA),
    PassStep(
        fit_pictures, _with(Image), lambda p: p.media.most_pixels is not None or p.media.most_characters is not None
    ),
    # reasoning
    PassStep(replay_reasoning, _with(Reasoning, SEAL)),
    PassStep(
        fit_thinking,
        when=lambda p: (
            p.thinking is not None or not p.summaries or p.effort_with_tools != "any" or bool(p.reasoning_words)
        ),
    ),
    PassStep(require_echo, _with("assistant"), lambda p: p.echo == "required"),
    PassStep(begin_loops_with_thinking, _with(ToolCall), lambda p: p.thinking_first),
    PassStep(fit_forced_choice, when=lambda p: p.forced_choice != "yes"),
    PassStep(sign_calls, _with(ToolCall), lambda p: p.sentinel is not None),
    PassStep(fit_sampling, when=lambda p: p.sampling != "yes" or p.one_sampler),
    # turns
    PassStep(drop_billing, INSTRUCTIONS, lambda p: not p.billing),
    PassStep(say_refusals_as_text, _with(Refusal), lambda p: not p.refusals),
    PassStep(say_developer_as_system, _with("developer"), lambda p: not p.developer),
    PassStep(place_system, INSTRUCTIONS, lambda p: p.lead_system == "user"),
    PassStep(place_system, _with(LATER_INSTRUCTIONS), lambda p: p.lead_system != "user"),
    PassStep(drop_silent_turns, _with(EMPTY_TURN), lambda p: p.empty_text),
    PassStep(drop_empty_text, when=lambda p: not p.empty_text),
    PassStep(tell_failures, _with(FAILED_RESULT), lambda p: p.failed_needs_text),
    PassStep(drop_last_thoughts, _with(Reasoning), lambda p: p.thoughts != "alone"),
    PassStep(begin_with_user, when=lambda p: p.first_user),
    PassStep(end_with_user, _with("assistant"), lambda p: not p.prefill),
    PassStep(strip_last_text, _with("assistant"), lambda p: p.prefill and not p.empty_text),
    PassStep(set_results_apart, _with(ToolResult), lambda p: p.results_alone),
    PassStep(join_apart, _with(NEIGHBOURS), lambda p: p.results_alone, adds=False, about_turns=True),
    PassStep(
        *(join_turns, _with(NEIGHBOURS)),
        when=lambda p: p.join_turns and not p.results_alone,
        adds=False,
        about_turns=True,
    ),
    PassStep(
        *(join_calls, _with(SPLIT_ANSWER)),
        when=lambda p: p.join_calls and not p.join_turns and not p.results_alone,
        adds=False,
        about_turns=True,
    ),
    PassStep(drop_text_beside_calls, _with(ToolCall), lambda p: not p.text_beside_calls, adds=False),
    PassStep(answer_results, _with(ToolResult), lambda p: not p.user_after_results),
    PassStep(spell_no_text, _with(ToolCall), lambda p: p.empty_content != "any"),
    PassStep(put_results_first, _with(ToolResult), lambda p: p.results_first, adds=False),
    # parameters
    PassStep(drop_nulls, when=lambda p: not p.nulls),
    PassStep(
        say_newer_settings,
        when=lambda p: bool(p.older_forms or p.wrong_forms),
        adds=False,
        about_settings=_always,
    ),
    PassStep(say_newer_turns, _with(TURN_KEYS), lambda p: not p.takes_older and bool(p.older_forms), adds=False),
    PassStep(fit_turn_keys, _with(TURN_KEYS), lambda p: p.result_ids or p.takes_turn_extras is not None, adds=False),
    PassStep(hand_on_shared, when=lambda p: p.maker and bool(p.shared_extras), adds=False, about_settings=_always),
    PassStep(fit_parameters, about_settings=_always),
    PassStep(
        drop_lone_choice,
        when=lambda p: not p.choice_alone and not (p.native and p.empty_tools),
        about_settings=_always,
    ),
    PassStep(fit_limits, about_settings=lambda p: p.window is None and p.item_ids is None),
    PassStep(lift_marks, _with(INNER_MARK), lambda p: not p.marks_in_results or p.cache_marks == 0, adds=False),
    PassStep(fit_cache_marks, _with(CACHE_MARK), adds=False, looks=True),
    PassStep(leave_nothing_behind, when=lambda p: p.stores_unasked and not p.native),
    # A client that speaks Ollama's own dialect knows of its windows.
    PassStep(open_window, when=lambda p: p.context is not None and not p.native),
)

MOST_PLANS = 1_000
MOST_DUE = 50  # of the same settings: for each server, and kind of contents
SAMPLE = Text(text="words")


class PassPlan(Struct, frozen=True):
    """The passes that a profile asks for."""

    profile: Profile
    steps: tuple[PassStep, ...]

    def find_due(self, settings: "KeptSettings", kinds: set[object]) -> tuple[int, ...]:
        """The numbers of the steps that may have work. As long as they change nothing but turns, all others leave the
        request alone. `settings`: those of the request."""
        key = (id(self), frozenset(kinds))
        known = settings.due.get(key)
        if known is None:
            if len(settings.due) >= MOST_DUE:
                settings.due.clear()
            known = settings.due[key] = (self, self._find_due(settings.request, kinds))
        return known[1]

    def _find_due(self, settings: Request, kinds: set[object]) -> tuple[int, ...]:
        found = [i for i, step in enumerate(self.steps) if not step.needs.isdisjoint(kinds)]
        return tuple([i for i in found if not self._leaves(self.steps[i], settings)])

    def _leaves(self, step: PassStep, settings: Request) -> bool:
        """Whether a pass about settings leaves these alone, and has no note about them."""
        notes = Notes()
        return (
            step.about_settings(self.profile) and step.run(settings, self.profile, notes) is settings and not len(notes)
        )


class KeptSettings(Struct, frozen=True, eq=False):
    """Settings that come with one request after another, and what was found out about them."""

    request: Request  # without messages
    # By the identity of a plan, and by what a request contains.
    due: dict[tuple[int, frozenset[object]], tuple[PassPlan, tuple[int, ...]]]


_plans: dict[int, PassPlan] = {}  # by the id() of the profile; it is kept, so that no other object gets that id


def _plan(profile: Profile) -> PassPlan:
    known = _plans.get(id(profile))  # fast path: known plan
    if known is None:
        steps = tuple(step for step in STEPS if step.when(profile))
        known = PassPlan(profile, steps)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[id(profile)] = known
    return known


_WORDS = (drop_empty_text, open_window)  # passes for every request that look at its words
_left_alone: dict[tuple[int, tuple[str, ...]], tuple[Profile, bool]] = {}  # by identity of the profile, and roles


_SETTINGS = tuple(name for name in Request.__struct_fields__ if name not in ("model", "messages", "stream"))
_read_settings = attrgetter(*_SETTINGS)
_NO_SETTINGS = _read_settings(Request(model=""))


def leaves_alone(request: Request, profile: Profile) -> bool:
    """For a request of texts: whether `prepare` changes and notes nothing. Without settings it depends on the roles
    alone, so it is found out once for each row of them."""
    if _read_settings(request) != _NO_SETTINGS:
        return _passes_as_it_is(request, profile)
    roles = tuple([message.role for message in request.messages])
    known = _left_alone.get((id(profile), roles))
    if known is None:
        known = (profile, _changes_nothing(request, profile))
        if len(_left_alone) >= MOST_PLANS:
            _left_alone.clear()
        _left_alone[id(profile), roles] = known
    return known[1] and not is_billed(request)


def _changes_nothing(request: Request, profile: Profile) -> bool:
    if any(step.run in _WORDS for step in _plan(profile).steps) and not profile.takes_all:
        return False
    sample = replace(request, messages=tuple([replace(one, parts=(SAMPLE,)) for one in request.messages]))
    return _passes_as_it_is(sample, profile)


def leaves_texts_alone(request: Request, profile: Profile) -> bool | None:
    """The same for all requests that differ from this one in their words only, and have no line of billing. None: it
    depends on the words."""
    looks = any(step.run in _WORDS for step in _plan(profile).steps) and not profile.takes_all
    if looks or (request.max_output is not None and profile.window is not None):
        return None
    return _changes_nothing(request, profile)


def _passes_as_it_is(request: Request, profile: Profile) -> bool:
    notes = Notes()
    prepared = prepare(request, profile, notes).request
    return (prepared is request or prepared == request) and not len(notes)


def legalise(request: Request, profile: Profile, notes: Notes) -> Request:
    return prepare(request, profile, notes).request


def prepare(request: Request, profile: Profile, notes: Notes, settings: KeptSettings | None = None) -> Prepared:
    """`settings`: those of the request, if they come again and again."""
    if profile.takes_all:
        return Prepared(notes.stage(request), Undo())
    before, contents = notes.stage(request), find_contents(request, profile.dialect)
    asked, kinds = contents, contents.kinds
    if Opaque in kinds:
        _refuse_orders(request, profile, notes)
    if request.extras:
        _refuse_order_key(request, profile, notes)
    freeform, foreign = FREEFORM in kinds or CustomTool in kinds, ServerTool in kinds or has_foreign(request)
    request, undo = emulate(request, profile, notes, freeform=freeform, foreign=foreign)
    if request is not before:
        contents = find_contents(notes.stage(request), profile.dialect)
    plan, start = _plan(profile), 0
    kept = settings if settings is not None and settings.request.stream == request.stream else None
    if kept is not None and request is before:  # fast path: kept settings
        start = len(plan.steps)
        for number in plan.find_due(kept, contents.kinds):
            changed, contents = _run(plan.steps[number], request, profile, notes, contents)
            if changed is not request and not plan.steps[number].about_turns:
                request, start = changed, number + 1
                break
            request = changed
    for step in plan.steps[start:]:
        if step.needs.isdisjoint(contents.kinds):  # fast path: nothing of its kind
            continue
        request, contents = _run(step, request, profile, notes, contents)
    has_tools = request.tools or request.tool_choice is not None or not CALLS.isdisjoint(contents.kinds)
    if not has_tools and request.output is None:  # fast path: no tools
        return Prepared(request, undo)
    return _spell_tools(request, profile, undo, notes, contents, asked.find_own_ids())


def _run(
    step: PassStep, before: Request, profile: Profile, notes: Notes, contents: Contents
) -> tuple[Request, Contents]:
    request = step.run(before, profile, notes, contents) if step.looks else step.run(before, profile, notes)
    if request is not before:
        notes.stage(request)
        if step.adds and (request.messages is not before.messages or request.tools is not before.tools):
            contents = find_contents(request, profile.dialect)
    return request, contents


# Instructions to the server, not content. A server that does not know them would answer another question.
ORDERS = frozenset({"compaction_trigger"})
ORDER_KEY = "compaction"  # of Anthropic: the answer is a summary of the conversation, which takes its place
REFERENCE = "item_reference"  # names an item that only its provider has stored
COMPACTED = "compaction"  # stands for the turns before it, which the client no longer sends


def _refuse_order_key(request: Request, profile: Profile, notes: Notes) -> None:
    for dialect, own in request.extras.items():
        if dialect != profile.dialect and own.get(ORDER_KEY) is not None:
            raise notes.refuse((((ROOT, "extras"), dialect), ORDER_KEY), f"only {dialect} can carry out {ORDER_KEY}")


def _stands_for_lost_turns(part: Opaque, before: tuple[Message, ...]) -> bool:
    """Whether this summary replaces turns that the client no longer sends; only its provider can read it. Clients that
    keep the whole conversation send all turns before it; `/responses/compact` keeps only those of the user."""
    if not part.body.get("encrypted_content") or "content" in part.body:
        return False
    return not any(message.role == "assistant" and message.parts for message in before)


def _refuse_orders(request: Request, profile: Profile, notes: Notes) -> None:
    """Refuses instructions that only another provider knows. Codex ends a request for a compaction with one, and would
    take a plain answer for the whole conversation."""
    last = len(request.messages) - 1
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if type(part) is not Opaque or part.dialect == profile.dialect:
                continue
            at: At = ((((ROOT, "messages"), i), "parts"), j)
            kind = str(part.body.get("type"))
            if kind in ORDERS and i == last:
                raise notes.refuse(at, f"only {part.dialect} can carry out {kind}")
            if kind == COMPACTED and _stands_for_lost_turns(
                part, (*request.messages[:i], replace(message, parts=message.parts[:j]))
            ):
                raise notes.refuse(at, f"only {part.dialect} can read this {kind}: send the conversation itself")
            if kind == REFERENCE:
                raise notes.refuse(
                    at, f"only {part.dialect} keeps the item {part.body.get('id')}: send the item itself"
                )


def _spell_tools(
    request: Request, profile: Profile, undo: Undo, notes: Notes, contents: Contents, asked_ids: frozenset[str] | None
) -> Prepared:
    """Adapts schemas, then names. It comes last, because other passes may add tools. Both are undone in the answer."""
    output = request.output
    request, aliases = adapt_schemas(request, profile, notes)
    notes.stage(request)
    if request.output is not output and output is not None and output.schema is not None:
        undo = replace(undo, expected=Expected(schema=output.schema))  # the target holds the answer to less than this
    if aliases.tools:
        request = notes.stage(rename_arguments(request, aliases.tools, notes))
    request, renames = rename(request, profile.tool_names, profile.call_ids, notes, contents)
    notes.stage(request)
    if aliases.tools or aliases.answer:
        renames = replace(renames, properties=aliases.tools, answer=aliases.answer)
    if renames != NOTHING:
        undo = replace(undo, renames=renames)
    return Prepared(request, undo, asked_ids)
