"""A request as one target wants it, made afresh for each attempt from the canonical request (FIELD-CASES 102)."""

from collections.abc import Callable
from functools import lru_cache, partial

from msgspec import Struct
from msgspec.structs import replace

from dragoman.demo.model import demo_events
from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects._seals import WORD, strip_side
from dragoman.errors import LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.reply import Reply, add_usage
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.passes.emulate import Undo, split_choices
from dragoman.passes.json_answers import ask_again
from dragoman.passes.prepare import prepare
from dragoman.passes.profile import Profile
from dragoman.passes.rename import NOTHING
from dragoman.passes.think_tags import ThoughtFinder, find_thoughts
from dragoman.passes.undo import StreamRenamer, StreamUndo
from dragoman.passes.undo import undo_reply as restore_reply
from dragoman.upstream.attempts import UpstreamCall
from dragoman.upstream.learner import learn
from dragoman.upstream.profiles import choose_dialect as dialect_of_model
from dragoman.upstream.profiles import load_rows, profile_for
from dragoman.upstream.spec import DEMO, Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState

MOST_PROFILES = 1_000
HOP = "x-dragoman-hop"  # a gateway that is its own upstream must notice (T41)


class ClientRequest(Struct, kw_only=True):
    """What the client asked, in its own dialect and in ours."""

    dialect: Dialect
    request: Request
    raw: bytes  # the body as it came
    headers: dict[str, str]  # those of the dialect
    notes: tuple[Note, ...]  # of decoding it
    same_wire: bool = True  # whether `raw` still says what `request` says
    put_model: Callable[[bytes, str, str], bytes]
    hops: int = 0  # gateways of ours it has been through
    path: str = ""  # the plain path of its route; Gemini's with what its query says


def render(
    asked: ClientRequest, state: UpstreamState, target: Target, *, stream: bool, refuse: frozenset[str]
) -> UpstreamCall:
    upstream = state.spec
    notes = Notes(refuse)  # type: ignore[arg-type]  # checked where it was read
    notes.extend(asked.notes)
    request = replace(asked.request, model=target.model, stream=stream or asked.request.stream)
    if upstream.kind == DEMO:
        canonical = find_dialect("canonical")
        return UpstreamCall(
            dialect=canonical, path="", body=b"", headers={}, notes=notes, events=lambda: demo_events(request)
        )
    name = choose_dialect(upstream, asked.dialect.name, target.model)
    dialect = find_dialect(name)
    own = name == asked.dialect.name
    profile = state.profiles.get((name, target.model, own)) or _find_profile(state, name, target.model, native=own)
    prepared = prepare(request, profile, notes)
    usage = stream and upstream.stream_usage and _takes_usage_option(dialect, profile)
    if own and asked.same_wire and not profile.think_tags and _equal(prepared.request, request):
        rendered = _as_is(asked, dialect, target, notes)
    else:
        rendered = _encode(dialect, prepared.request, notes, usage=usage)

    way = _Way(state, target, dialect, profile, prepared.undo, notes, usage, asked.hops)
    return way.dress(rendered, prepared.request)


def _find_profile(state: UpstreamState, dialect: str, model: str, *, native: bool) -> Profile:
    learned = state.learned.get((dialect, model))
    overrides = state.spec.overrides if learned is None else {**state.spec.overrides, **learned}
    profile = _for_here(profile_for(state.spec.kind, model, dialect, overrides), state.spec.name, native=native)
    if len(state.profiles) >= MOST_PROFILES:  # model names come from clients
        state.profiles.clear()
    state.profiles[dialect, model, native] = profile
    return profile


def split(
    asked: ClientRequest, state: UpstreamState, target: Target, *, refuse: frozenset[str]
) -> tuple[ClientRequest, int]:
    """What to ask, and how often: more than once if several answers are wanted from a target that gives one."""
    upstream = state.spec
    if upstream.kind == DEMO:  # it gives as many as it is asked for
        return asked, 1
    name = choose_dialect(upstream, asked.dialect.name, target.model)
    profile = profile_for(upstream.kind, target.model, name, upstream.overrides)
    notes = Notes(refuse)  # type: ignore[arg-type]  # checked where it was read
    request, copies = split_choices(asked.request, profile, notes)
    if copies == 1:
        return asked, 1
    return replace(asked, request=request, same_wire=False, notes=(*asked.notes, *notes)), copies


def _for_here(profile: Profile, upstream: str, *, native: bool) -> Profile:
    """Seals stay with the server that made them, a client's own dialect is left as it is, and whoever wants several
    answers from a target that gives one has split the request before (`split`)."""
    policy = profile.policy
    if profile.policy_of("choices") == "emulate":
        policy = {**policy, "choices": "drop"}
    return replace(profile, upstream=upstream, native=native, policy=policy)


class _Way(Struct, frozen=True):
    """What is the same for everything that is sent to one target for one request. It does not know what was rendered:
    nothing here has to be collected."""

    state: UpstreamState
    target: Target
    dialect: Dialect
    profile: Profile
    undo: Undo
    notes: Notes
    usage: bool
    hops: int

    def dress(self, made: UpstreamCall, sent: Request) -> UpstreamCall:
        """With what the way back needs."""
        made.learn = partial(self.relearn, sent)
        made.headers[HOP] = str(self.hops + 1)
        if self.profile.native:  # in another dialect what is one's own is not said anyway
            made.body = without_side(made.body)
        if not self.undo.is_nothing() and not made.as_is:
            made.restore = _restorer(self.undo, self.notes)
            made.restore_reply = self.restore
            if self.undo.expected is not None:
                second = _SecondTry(self, sent)
                made.restore_reply, made.learn = second.restore, second.learn
        if self.profile.think_tags:
            _find_thoughts(made, self.profile)
        return made

    def restore(self, reply: Reply) -> Reply:
        try:
            return restore_reply(reply, self.undo, self.notes)
        except LossError as error:
            raise UpstreamError(_misfit(error.why)) from error

    def relearn(self, sent: Request, failure: Failure) -> UpstreamCall | None:
        """What to send instead of what was refused, if the refusal tells."""
        lesson = learn(failure, sent, self.profile, self.notes)
        if lesson is None:
            return None
        self.state.remember(self.dialect.name, self.target.model, lesson.remember)
        way = self if lesson.undo.is_nothing() else replace(self, undo=_add(self.undo, lesson.undo))
        return way.dress(_encode(self.dialect, lesson.request, self.notes, usage=self.usage), lesson.request)


def _find_thoughts(made: UpstreamCall, profile: Profile) -> None:
    """Before anything else is put right: what is a thought is no text (FIELD-CASES 73)."""
    tags, opened = profile.think_tags, profile.think_opened
    finder, events, whole = ThoughtFinder(tags, opened=opened), made.restore, made.restore_reply

    def restore(given: list[Event]) -> list[Event]:
        found = [out for event in given for out in finder.feed(event)]
        return found if events is None else events(found)

    def restore_reply(reply: Reply) -> Reply:
        found = find_thoughts(reply, tags, opened=opened)
        return found if whole is None else whole(found)

    made.restore, made.restore_reply = restore, restore_reply


def _add(first: Undo, second: Undo) -> Undo:
    """What a lesson emulates besides what the profile did; names were made legal before, and are known from then."""
    said = {f: getattr(second, f) for f in Undo.__struct_fields__ if getattr(second, f) != getattr(Undo(), f)}
    said |= {"custom": first.custom | second.custom, "stops": first.stops + second.stops}
    return replace(first, **{**said, "renames": first.renames if first.renames != NOTHING else second.renames})


class _SecondTry:
    """An answer that is not what was asked for, where nobody else holds the model to it, is asked for once more."""

    def __init__(self, way: _Way, sent: Request) -> None:
        self._way, self._sent = way, sent
        self._again: Request | None = None
        self._first: Reply | None = None

    def restore(self, reply: Reply) -> Reply:
        trial = Notes()
        restored = restore_reply(reply, self._way.undo, trial)
        why = next((note.why for note in trial if note.kind == "dropped"), None)
        self._again = ask_again(self._sent, restored, why) if why is not None else None
        if why is None or self._again is None:
            return self._way.restore(reply)
        self._first = reply
        raise UpstreamError(_misfit(why))

    def learn(self, failure: Failure) -> UpstreamCall | None:
        if failure.code != MISFIT or self._again is None:
            return self._way.relearn(self._sent, failure)
        made = self._way.dress(_encode(self._way.dialect, self._again, self._way.notes, usage=False), self._again)
        made.restore_reply, made.learn = self._restore_second, None
        return made

    def _restore_second(self, reply: Reply) -> Reply:
        """It cost what both cost."""
        spent = self._first.usage if self._first is not None else None
        if spent is not None:
            reply = replace(reply, usage=add_usage(spent, reply.usage))
        return self._way.restore(reply)


MISFIT = "answer_misfit"


def _misfit(why: str) -> Failure:
    """The model's slip: not the caller's fault, nor the upstream's."""
    return Failure(kind="refused", status=502, code=MISFIT, message=why)


def _encode(dialect: Dialect, request: Request, notes: Notes, *, usage: bool) -> UpstreamCall:
    wire = dialect.encode_request(request, notes)
    headers = dict(wire.headers)
    if usage and dialect.usage_option is not None:
        _ask_for_usage(wire.body, *dialect.usage_option)
    return UpstreamCall(dialect=dialect, path=wire.path, body=dump_json(wire.body), headers=headers, notes=notes)


def _takes_usage_option(dialect: Dialect, profile: Profile) -> bool:
    """Mistral refuses `stream_options`, and tells usage unasked."""
    taken = profile.takes_extras
    return dialect.usage_option is not None and (taken is None or dialect.usage_option[0] in taken)


def choose_dialect(upstream: Upstream, client: str, model: str) -> str:
    """The API path follows the model (mission B6). A client keeps its own where models of that kind go over it;
    what a server emulates beside its own dialect we convert better ourselves (BACKENDS.md: llama.cpp's Responses)."""
    spoken = upstream.dialects or (upstream.dialect,)
    if len(spoken) == 1:
        return spoken[0]
    if client in spoken and client != "openai_chat" and _is_native(upstream.kind, client):
        return client
    wanted = dialect_of_model(upstream.kind, model)
    return wanted if wanted in spoken else upstream.dialect


@lru_cache(256)
def _is_native(kind: str, dialect: str) -> bool:
    return any(row.dialect == dialect and kind in (row.kinds or ()) for row in load_rows().families)


def _equal(one: Request, other: Request) -> bool:
    return one is other or one == other


def _as_is(asked: ClientRequest, dialect: Dialect, target: Target, notes: Notes) -> UpstreamCall:
    """The client's own bytes, with the model's name as the only change."""
    headers = {**dialect.default_headers, **asked.headers}
    path, body = asked.path, asked.raw
    if dialect.put_model is None:
        body = asked.put_model(asked.raw, target.model, asked.request.model)
    else:
        path = dialect.put_model(path, target.model)
    return UpstreamCall(dialect=dialect, path=path, body=body, headers=headers, notes=notes, as_is=True)


def without_side(body: bytes) -> bytes:
    """No provider sees our side field; a body without it keeps every byte."""
    if WORD not in body:  # fast path: no side field
        return body
    value = load_json(body)
    return dump_json(value) if strip_side(value) else body


def _ask_for_usage(body: JsonObject, key: str, inside: str) -> None:
    options = body.get(key)
    body[key] = {**(options if type(options) is dict else {}), inside: True}


def _restorer(undo: Undo, notes: Notes) -> Callable[[list[Event]], list[Event]]:
    if undo.is_only_names():  # fast path: only names to undo
        return StreamRenamer(undo.renames).feed_all
    restorer = StreamUndo(undo, notes)

    def restore(events: list[Event]) -> list[Event]:
        restored: list[Event] = []
        try:
            for event in events:
                restored.extend(restorer.feed(event))
        except LossError as error:
            restored.append(ReplyFailed(failure=_misfit(error.why)))
        return restored

    return restore
