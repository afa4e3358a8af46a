"""Turns of a conversation that were seen before. Agents send the whole conversation again with every new turn.

A body that begins with the bytes of an earlier one is cut: the turns known from it are left out, and the short body is
read and checked. Then they are put back as the values they were before (`join`). On the way to a server they are left
out once more: the passes see the first turn, then the new ones, and what the known turns became at that server before
is put between them as bytes (`Written`).

That gives the same bytes as the long way only where no pass and no encoder looks from a new turn at a known one, or
back. So turns are cut only between a turn of the user and the assistant's next one, when each call has its result; they
hold nothing but texts, calls and results; and `leaves_apart` says which profiles let them alone. In every other case
the answer is None, and the caller goes the long way. `tests/laws/test_known_turns.py` compares both.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.answers.call_ids import find_call_ids
from dragoman.dialects._base import Dialect
from dragoman.dialects._seals import WORD
from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject, count_sign, dump_json, load_json, top_spans
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.note_places import Place
from dragoman.notes import Locate, Notes
from dragoman.passes.emulate import Undo
from dragoman.passes.parameters import estimate
from dragoman.passes.prepare import Prepared, prepare
from dragoman.passes.profile import Profile
from dragoman.passes.rename import Renames
from dragoman.reasoning_state.envelope import has_mark
from dragoman.wire import WireRequest

MOST_BYTES = 64 * 1024 * 1024
MOST_AGE_S = 1800.0
COST = 4  # bytes of memory for a byte of a body: its text, its values, and what it became
TURN_BYTES = 700  # and for each of its turns, however short: objects of Python
LEVELS = tuple(128 * 2**i for i in range(18))  # lengths at which the beginning of a body is compared
SAMPLE = 64  # bytes before such a length
MOST_ALIKE = 8  # conversations that begin alike
INSTRUCTIONS = ("system", "developer")
_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Chunk(Struct, frozen=True):
    """What turns became at one server: entries of its list, as bytes."""

    end: int  # the number of turns behind the first one, up to the last of these
    body: bytes
    entries: int
    same: bool  # no pass has changed them


class History(Struct, eq=False):
    """The turns of one conversation behind the first one of the user."""

    raw: bytes  # the body they were in
    cut: int  # where the first turn of the user ends in it
    turns: tuple[Message, ...]
    ends: tuple[int, ...]  # where the body may be cut, each after a turn of the user that leaves no call open
    counts: tuple[int, ...]  # of the turns before each of them
    plain: int  # so many of the turns hold nothing that a pass might move or change
    ids: dict[str, int]  # of calls and results, with the number of the turn
    names: frozenset[str]  # of tools
    first: tuple[Message, ...] = ()  # the messages up to the first turn of the user
    request: Request | None = None  # all that was asked but the turns
    headers: dict[str, str] = {}  # those of the dialect
    tail: int = 0  # where the list of turns ends in the body
    values: int = 0  # in the body, at most
    parts: int = 0  # of all its turns, at most
    clean: bool = False  # nothing in the body is ours, so that no server may see it
    chunks: dict[int, tuple[object, tuple[Chunk, ...]]] = {}  # by the identity of a destination, which is kept alive
    later: "Later | None" = None  # it was not looked at yet

    @property
    def size(self) -> int:
        return COST * len(self.raw) + TURN_BYTES * len(self.turns)

    def settle(self) -> None:
        """Finds out where the body may be cut, now that another one goes on where this one ended."""
        later = self.later
        if later is None:
            return
        made = make_history(self.raw, later.request, later.dialect, None)
        if made is None:
            self.ends = self.counts = ()
        else:
            for field in made.__struct_fields__:
                if field not in ("headers", "later"):
                    setattr(self, field, getattr(made, field))
        self.later = None  # last: it may be looked for meanwhile


class Later(Struct, frozen=True):
    """A request that came for the first time. Most come only once: what another may begin with is found out then."""

    request: Request
    dialect: Dialect


class Hit(Struct, frozen=True, dict=True):
    """A body that begins as a known one does."""

    history: History
    raw: bytes
    end: int  # the last byte that is known
    count: int  # of the turns that are known

    @cached_property
    def short(self) -> bytes:
        """The body without the turns that are known."""
        return self.raw[: self.history.cut] + self.raw[self.end :]

    @cached_property
    def new(self) -> bytes | None:
        """The turns behind the known ones, if all that follows is known too."""
        old = self.history
        tail = old.raw[old.tail :]
        if old.request is None or len(self.raw) - len(tail) < self.end or not self.raw.endswith(tail):
            return None
        return self.raw[self.end : len(self.raw) - len(tail)]

    def in_whole(self, start: int, end: int) -> tuple[int, int]:
        """A place in the short body as a place in the whole one."""
        left_out = self.end - self.history.cut if start >= self.history.cut else 0
        return start + left_out, end + left_out


class Known(Struct, frozen=True):
    """The turns of a request that were known when it came."""

    history: History
    messages: tuple[Message, ...]  # all of the request
    lead: int  # of the messages: instructions, before the first turn of the user
    count: int  # of the turns behind it that are known and may be left out
    hit: Hit

    def find_call_ids(self) -> set[str]:
        """Of all turns of the request."""
        first = self.lead + 1
        return find_call_ids(self.messages[:first] + self.messages[first + self.count :]).union(self.old_ids())

    def old_ids(self) -> Iterable[str]:
        old = self.hit.history
        if old.counts[-1] == self.count:
            return old.ids
        return [key for key, i in self.history.ids.items() if i < self.count]

    def leave_out(self, request: Request) -> Request:
        first = self.lead + 1
        return replace(request, messages=self.messages[:first] + self.messages[first + self.count :])


class Written(Struct, frozen=True):
    """What the known turns became at a server."""

    entries: bytes  # of its list of turns, without the brackets
    count: int
    same: bool  # no pass has changed them

    def put_into(self, body: JsonObject, dialect: Dialect) -> Locate:
        """Puts them behind the first turn. Returns how to find a place in the body then."""
        key, locate, count = dialect.messages_key, dialect.locate_request, self.count
        first = find_first(body[key])
        body[key].insert(first + 1, msgspec.Raw(self.entries))

        def find(value: Any, place: Place) -> Place:
            found = locate(value, place)
            match found:
                case (name, int(i), *rest) if name == key and i > first:
                    return (key, i + count, *rest)
                case _:
                    return found

        return find


# ---------------------------------------------------------------- the cache


class KnownTurns:
    """Bounded in bytes and by age. An owner is a client key at one door: nothing is shared between owners."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.bytes = self.hits = self.misses = 0
        self._all: OrderedDict[int, tuple[float, History, list[tuple[object, ...]]]] = OrderedDict()  # oldest use first
        self._alike: dict[tuple[object, ...], list[History]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def find(self, owner: tuple[str, str], raw: bytes, now: float) -> Hit | None:
        """The known beginning of a body."""
        for level in reversed(LEVELS[: bisect_right(LEVELS, len(raw))]):
            for history in reversed(self._alike.get((owner, level, raw[level - SAMPLE : level]), ())):
                hit = _match(history, raw) if history.later is None else None
                if hit is not None:
                    self.hits += 1
                    self._touch(history, now)
                    return hit
        self.misses += 1
        return None

    def find_later(self, owner: tuple[str, str], raw: bytes) -> History | None:
        """A body that this one continues and that was not looked at yet: it must be settled, and then it is found."""
        for level in reversed(LEVELS[: bisect_right(LEVELS, len(raw))]):
            for history in self._alike.get((owner, level, raw[level - SAMPLE : level]), ()):
                if history.later is not None and raw.startswith(memoryview(history.raw)[: history.ends[-1]]):
                    return history
        return None

    def keep(self, owner: tuple[str, str], history: History, now: float, instead: History | None = None) -> None:
        """`instead`: the history that this one continues."""
        if instead is not None and instead.ends[-1] <= history.ends[-1]:
            self._forget(id(instead))
        if not self.most_bytes or history.size > self.most_bytes:
            return
        known = history.ends[-1]
        keys: list[tuple[object, ...]] = [
            (owner, level, history.raw[level - SAMPLE : level]) for level in LEVELS[: bisect_right(LEVELS, known)][-2:]
        ]
        for key in keys:
            alike = self._alike.setdefault(key, [])
            if len(alike) >= MOST_ALIKE:
                self._forget(id(alike[0]))
                alike = self._alike.setdefault(key, [])
            alike.append(history)
        self._all[id(history)] = (now, history, keys)
        self.bytes += history.size
        self._shrink(now)

    def _touch(self, history: History, now: float) -> None:
        entry = self._all.get(id(history))
        if entry is not None:
            self._all[id(history)] = (now, *entry[1:])
            self._all.move_to_end(id(history))

    def _shrink(self, now: float) -> None:
        while self._all:
            number, (used, _, _) = next(iter(self._all.items()))
            if self.bytes <= self.most_bytes and used > now - MOST_AGE_S:
                return
            self._forget(number)

    def _forget(self, number: int) -> None:
        entry = self._all.pop(number, None)
        if entry is None:
            return
        _, history, keys = entry
        self.bytes -= history.size
        for key in keys:
            alike = [other for other in self._alike.get(key, ()) if other is not history]
            if alike:
                self._alike[key] = alike
            else:
                self._alike.pop(key, None)


def _match(history: History, raw: bytes) -> Hit | None:
    """The longest beginning that both have, up to a place where the body may be cut."""
    ends, number = history.ends, len(history.ends)
    if not ends:
        return None
    old = memoryview(history.raw)  # it may be long: nothing is copied
    if len(raw) <= ends[-1] or not raw.startswith(old[: ends[-1]]):
        low, number = 0, len(ends) - 1  # the first `low` are the same; those after `number` are not
        while low < number:
            middle = (low + number + 1) // 2
            if raw.startswith(old[: ends[middle - 1]]) and len(raw) > ends[middle - 1]:
                low = middle
            else:
                number = middle - 1
    if (
        number and raw[ends[number - 1] : ends[number - 1] + SAMPLE].lstrip()[:1] == b"]"
    ):  # the same body again: its last turn is new
        number -= 1
    if not number:
        return None
    end = ends[number - 1]
    return Hit(history, raw, end, history.counts[number - 1])


# ---------------------------------------------------------------- reading


def read_new(hit: Hit, dialect: Dialect) -> tuple[Request, list[int]] | None:
    """The whole request, if only turns are new: nothing else is read. Also where each of them ends in the body."""
    old, text = hit.history, hit.new
    if text is None or old.request is None:
        return None
    turns = b"[" + text.lstrip(b" \t\r\n,") + b"]"
    try:
        ends = _list_ends(turns)
        notes = Notes()
        short = dialect.decode_request(WireRequest(body={dialect.messages_key: load_json(turns, strict=True)}), notes)
    except (DragomanError, msgspec.DecodeError, RecursionError):
        return None
    if len(notes) or len(short.messages) != len(ends) or not _may_follow(hit, short.messages, dialect):
        return None
    start = hit.end + len(text) - (len(turns) - 2) - 1
    messages = (*old.first, *old.turns[: hit.count], *short.messages)
    return replace(old.request, messages=messages), [start + end for end in ends]


def join(hit: Hit, short: Request, dialect: Dialect) -> Request | None:
    """The whole request, from the one that was read from the short body."""
    lead = _count_lead(short.messages)
    new = short.messages[lead + 1 :]
    if not _is_first(short.messages[lead]) or not _may_follow(hit, new, dialect):
        return None
    return replace(short, messages=(*short.messages[: lead + 1], *hit.history.turns[: hit.count], *new))


def _may_follow(hit: Hit, new: Sequence[Message], dialect: Dialect) -> bool:
    """Whether turns can be read apart from the known ones."""
    if not new or new[0].role != "assistant":
        return False
    ids = hit.history.ids
    return not any(ids.get(key, hit.count) < hit.count or _is_made(key, dialect) for key in _find_ids(new))


def make_history(
    raw: bytes, request: Request, dialect: Dialect, hit: Hit | None, ends: list[int] | None = None
) -> History | None:
    """What the next request may begin with; None if nothing of this one can be left out. `ends`: of the new turns, if
    they are known."""
    lead = _count_lead(request.messages)
    turns, known = request.messages[lead + 1 :], 0 if hit is None else hit.count
    if not turns or turns[0].role != "assistant" or not _is_first(request.messages[lead]):
        return None
    if hit is not None and ends is not None:
        history = _begin_from(hit, raw, turns)
        history.tail = len(raw) - len(hit.history.raw) + hit.history.tail
    else:
        start, end = top_spans(raw if hit is None else hit.short).get(dialect.messages_key, (0, 0))
        ends = _find_ends(raw if hit is None else hit.short, start, end)
        first = len(ends) - (len(turns) - known) - 1  # the entry of the first turn; `system` may have its own key
        if first < 0 or first not in (lead, lead - 1):
            return None
        history = History(raw, ends[first], turns, (), (), 0, {}, frozenset())
        left_out = 0
        if hit is not None:
            history, left_out = _begin_from(hit, raw, turns), hit.end - hit.history.cut
        history.tail = end - 1 + left_out
        ends = [end + left_out for end in ends[first + 1 :]]
    history.first, history.request = request.messages[: lead + 1], replace(request, messages=())
    history.values = count_values(raw, hit)
    history.clean = is_clean(raw, hit)
    history.parts += sum([len(turn.parts) for turn in turns[known:]])
    _go_on(history, known, ends, dialect)
    return history if history.ends else None


def make_later(raw: bytes, request: Request, dialect: Dialect) -> History | None:
    """The same for a request that came for the first time, without a look at its turns. `ends` only tells about where
    the last turn ends, so that it is found again. None: that cannot be told."""
    last = request.messages[-1].parts
    text = last[-1].text if last and type(last[-1]) is Text else ""
    end = raw.rfind(dump_json(text[-SAMPLE:])[1:-1]) if text else -1
    if end < LEVELS[0]:
        return None
    return History(raw, 0, (), (end,), (0,), 0, {}, frozenset(), later=Later(request, dialect))


def count_values(raw: bytes, hit: Hit | None) -> int:
    """The values in a body, or somewhat more: commas and colons in texts are counted too."""
    if hit is not None:
        return hit.history.values + count_values(hit.short if hit.new is None else hit.new, None)
    return count_sign(raw, b",") + count_sign(raw, b":")


def is_clean(raw: bytes, hit: Hit | None) -> bool:
    """Whether neither our side field nor an opaque value of ours is in a body."""
    if hit is not None and hit.history.clean:
        raw = hit.short if hit.new is None else hit.new
    return WORD not in raw and not has_mark(raw)


def count_parts(request: Request, hit: Hit) -> int:
    """The parts of all turns, or somewhat more."""
    lead = _count_lead(request.messages) + 1
    others = request.messages[:lead] + request.messages[lead + hit.count :]
    return hit.history.parts + sum([len(message.parts) for message in others])


def _begin_from(hit: Hit, raw: bytes, turns: tuple[Message, ...]) -> History:
    """As much of a history as a body has of it."""
    old, number = hit.history, bisect_right(hit.history.counts, hit.count)
    if old.counts[-1] == hit.count:
        ids, chunks = dict(old.ids), dict(old.chunks)
    else:
        ids = {key: i for key, i in old.ids.items() if i < hit.count}
        chunks = {
            key: (to, tuple([chunk for chunk in written if chunk.end <= hit.count]))
            for key, (to, written) in old.chunks.items()
        }
    ends, counts, plain = old.ends[:number], old.counts[:number], min(old.plain, hit.count)
    return History(raw, old.cut, turns, ends, counts, plain, ids, old.names, parts=old.parts, chunks=chunks)


def _go_on(history: History, known: int, new_ends: list[int], dialect: Dialect) -> None:
    """Adds the turns behind the known ones, up to the last place where the body may be cut."""
    turns, ends, counts = history.turns, list(history.ends), list(history.counts)
    ids: dict[str, int] = {}  # since the last such place
    opened: dict[str, str] = {}  # id and name of calls without a result
    names: set[str] = set()
    for i, turn in enumerate(turns[known:], known):
        for part in turn.parts:
            if isinstance(part, ToolCall):
                if part.id in history.ids or part.id in ids or _is_made(part.id, dialect):
                    return
                ids[part.id] = i
                opened[part.id] = part.name
            elif isinstance(part, ToolResult):
                if part.call_id not in opened:
                    return
                names.add(opened.pop(part.call_id))
        if history.plain == i and _is_plain(turn):
            history.plain = i + 1
        if turn.role == "user" and not opened and (i + 1 == len(turns) or turns[i + 1].role == "assistant"):
            ends.append(new_ends[i - known])
            counts.append(i + 1)
            history.ids.update(ids)
            ids.clear()
            history.ends, history.counts, history.names = tuple(ends), tuple(counts), history.names | names


def _find_ends(raw: bytes, start: int, end: int) -> list[int]:
    """Where each entry of a list ends in the body that it is in."""
    return [start + at for at in _list_ends(raw[start:end])] if raw[start : start + 1] == b"[" else []


def _list_ends(text: bytes) -> list[int]:
    ends, at = [], 1
    for entry in _entries(text):
        while text[at] in b" \t\r\n,":
            at += 1
        at += len(bytes(entry))
        ends.append(at)
    return ends


def _count_lead(messages: Sequence[Message]) -> int:
    lead = 0
    while lead < len(messages) - 1 and messages[lead].role in INSTRUCTIONS:
        lead += 1
    return lead


def _is_first(message: Message) -> bool:
    """A turn of the user that says something, with which a conversation may begin."""
    return message.role == "user" and bool(message.parts) and all(_is_text(part) for part in message.parts)


def _is_plain(turn: Message) -> bool:
    """Nothing but texts, calls and results, with nothing on them."""
    if turn.role not in ("user", "assistant") or not turn.parts:
        return False
    for part in turn.parts:
        if type(part) is ToolCall:
            if part.freeform or part.seal is not None or part.cache is not None:
                return False
        elif type(part) is ToolResult:
            if part.freeform or part.cache is not None or not part.parts:
                return False
            if not all(_is_text(inner) for inner in part.parts):
                return False
        elif not _is_text(part):
            return False
    return True


def _is_text(part: Part) -> bool:
    if type(part) is not Text or part.cache is not None or part.seal is not None or part.citations:
        return False
    return bool(part.text) and not part.text.isspace()


def _is_made(call_id: str, dialect: Dialect) -> bool:
    """Whether the id was made from the number of the call, because the client gave none."""
    return bool(dialect.made_ids) and call_id.startswith(dialect.made_ids)


def _find_ids(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        for part in message.parts:
            if type(part) is ToolCall:
                yield part.id
            elif type(part) is ToolResult:
                yield part.call_id


# ---------------------------------------------------------------- writing


def know(hit: Hit | None, history: History | None, request: Request) -> Known | None:
    """The turns of a request that may be left out on its way to a server."""
    if hit is None or history is None:
        return None
    most = min(hit.count, history.plain)
    number = bisect_right(history.counts, most)
    count = history.counts[number - 1] if number else 0
    return Known(history, request.messages, _count_lead(request.messages), count, hit) if count else None


def leaves_apart(known: Known, request: Request, profile: Profile) -> bool:
    """Whether the passes of a profile treat the known turns and the new ones apart."""
    if request.messages is not known.messages or request.output is not None or profile.is_continued(request.extras):
        return False
    if profile.echo == "required" or profile.sentinel is not None or profile.lead_system == "user":
        return False  # they look for the last turn of the user, or make a turn of the instructions
    if profile.thinking_first and request.reasoning is not None:
        return False
    if profile.context is not None and not profile.native:
        return False  # it is opened for the whole conversation
    if profile.tools_for_history and not known.history.names <= {
        getattr(tool, "name", None) for tool in request.tools or ()
    }:
        return False
    new = known.messages[known.lead + 1 + known.count :]
    if any(message.role in INSTRUCTIONS for message in new):
        return False
    ids = known.history.ids
    if any(ids.get(call_id, known.count) < known.count for call_id in _find_ids(new)):
        return False
    return profile.window is None or _fits_window(request, profile.window)


def _fits_window(request: Request, window: int) -> bool:
    """The whole conversation leaves the answer its room, so that nothing is changed about it."""
    return request.max_output is None or request.max_output <= window - estimate(request) - window // 16


def is_undone_apart(undo: Undo) -> bool:
    """Whether nothing of the known turns was renamed or asked for in another way."""
    renames = undo.renames
    changed = renames.names or renames.ids or renames.properties or renames.answer
    return not changed and undo.json_tool is None and undo.expected is None


def add_taken(prepared: Prepared, known: Known) -> Undo:
    """The ids of the known turns are taken too."""
    taken = prepared.undo.renames.taken.union(known.old_ids())
    return replace(prepared.undo, renames=Renames(taken=taken)) if taken else prepared.undo


def write_known(
    known: Known, request: Request, destination: object, dialect: Dialect, profile: Profile
) -> Written | None:
    """What the known turns become at a server. None if that cannot be told of them alone."""
    history = known.history
    _, chunks = history.chunks.get(id(destination), (None, ()))
    end = chunks[-1].end if chunks else 0
    if end < known.count:
        chunk = _write_chunk(known, end, request, dialect, profile)
        if chunk is None:
            return None
        chunks = _merge((*chunks, chunk))
        history.chunks[id(destination)] = (destination, chunks)
    return Written(
        b",".join([chunk.body for chunk in chunks]),
        sum([chunk.entries for chunk in chunks]),
        all(chunk.same for chunk in chunks),
    )


MOST_CHUNKS = 32


def _merge(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Old ones become one: what changes in a conversation is mostly near its end."""
    if len(chunks) <= MOST_CHUNKS:
        return chunks
    old, new = chunks[: MOST_CHUNKS // 2], chunks[MOST_CHUNKS // 2 :]
    body = b",".join([chunk.body for chunk in old])
    same = all(chunk.same for chunk in old)
    return (Chunk(old[-1].end, body, sum([chunk.entries for chunk in old]), same), *new)


def _write_chunk(known: Known, start: int, request: Request, dialect: Dialect, profile: Profile) -> Chunk | None:
    """The turns between two places, written behind the first turn as a conversation of their own."""
    first, notes = known.lead + 1, Notes()
    messages = (known.messages[first - 1], *known.messages[first + start : first + known.count])
    alone = Request(model=request.model, messages=messages, tools=request.tools if profile.tools_for_history else None)
    try:
        prepared = prepare(alone, profile, notes)
        notes.stage(prepared.request)
        entries = dialect.encode_request(prepared.request, notes).body.get(dialect.messages_key)
    except DragomanError:
        return None
    if notes.is_about("messages") or not is_undone_apart(prepared.undo) or type(entries) is not list:
        return None
    at = find_first(entries)
    if at < 0 or len(entries) == at + 1:
        return None
    same = prepared.request.messages == messages
    return Chunk(known.count, dump_json(entries[at + 1 :])[1:-1], len(entries) - at - 1, same)


def find_first(entries: list[Any]) -> int:
    """The place of the first turn of the user in a server's list; -1 if there is none."""
    return next((i for i, entry in enumerate(entries) if type(entry) is dict and entry.get("role") == "user"), -1)
