"""Reading: a body whose beginning is known is read without it, and becomes a history itself."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects._base import Dialect
from dragoman.dialects._seals import WORD
from dragoman.errors import DragomanError
from dragoman.jsontypes import count_sign, dump_json, load_json, split_members, top_spans
from dragoman.known_turns.history import LEVELS, SAMPLE, History, Hit, Later
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.passes.contents import INSTRUCTIONS
from dragoman.reasoning_state.envelope import has_mark

_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def load_turns(text: bytes | msgspec.Raw, dialect: Dialect) -> Any:
    """A list of turns as JSON; as a tuple in our own form, if none of them is unusual."""
    turns = dialect.read_turns(text) if dialect.read_turns is not None else None
    if turns is not None:  # fast path: usual turns
        return turns
    return load_json(text, strict=True)


def read_new(hit: Hit, dialect: Dialect) -> tuple[Request, list[int]] | None:
    """The whole request, if only turns are new: nothing else is read. Also where each of them ends in the body."""
    old, text = hit.history, hit.new
    if text is None or old.request is None or dialect.decode_turns is None:
        return None
    turns = b"[" + text.lstrip(b" \t\r\n,") + b"]"
    try:
        ends = _list_ends(turns)
        new = dialect.decode_turns({dialect.messages_key: load_turns(turns, dialect)})
    except (DragomanError, msgspec.DecodeError, RecursionError):
        return None
    if len(new) != len(ends) or not may_follow(hit, new, dialect):
        return None
    start = hit.end + len(text) - (len(turns) - 2) - 1
    messages = (*old.first, *old.turns[: hit.count], *new)
    return replace(old.request, messages=messages), [start + end for end in ends]


def join(hit: Hit, short: Request, dialect: Dialect) -> Request | None:
    """The whole request, from the one that was read from the short body."""
    lead = count_lead(short.messages)
    new = short.messages[lead + 1 :]
    if not _is_first(short.messages[lead]) or not may_follow(hit, new, dialect):
        return None
    return replace(short, messages=(*short.messages[: lead + 1], *hit.history.turns[: hit.count], *new))


def make_history(
    raw: bytes, request: Request, dialect: Dialect, hit: Hit | None, ends: list[int] | None = None
) -> History | None:
    """The history for the next request. None if the next request could leave out none of these turns. `ends`: where the
    new turns end, if that is known."""
    lead = count_lead(request.messages)
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


def begin_history(
    raw: bytes, messages: tuple[Message, ...], new_ends: list[int], dialect: Dialect, hit: Hit | None
) -> History | None:
    """The same for messages that are no body. `new_ends`: where each of them ends in `raw`, from the first turn of the
    user on, or from the first new turn if there is a hit."""
    lead = count_lead(messages)
    turns = messages[lead + 1 :]
    if not turns or turns[0].role != "assistant" or not _is_first(messages[lead]):
        return None
    if hit is not None:
        history = _begin_from(hit, raw, turns)
        _go_on(history, hit.count, new_ends, dialect)
    else:
        history = History(raw, new_ends[0], turns, (), (), 0, {}, frozenset())
        _go_on(history, 0, new_ends[1:], dialect)
    history.first = messages[: lead + 1]
    return history if history.ends else None


def may_follow(hit: Hit, new: Sequence[Message], dialect: Dialect) -> bool:
    """Whether turns can be read apart from the known ones."""
    if not new or new[0].role != "assistant":
        return False
    ids = hit.history.ids
    return not any(ids.get(key, hit.count) < hit.count or _is_made(key, dialect) for key in find_ids(new))


def find_cuts(history: History) -> None:
    """Finds where the body may be cut. It is called when another request continues this one."""
    later = history.later
    if later is None:
        return
    request = _read_again(history.raw, later)
    made = None if request is None else make_history(history.raw, request, later.dialect, None)
    if made is None:
        history.ends = history.counts = ()
    else:
        for field in made.__struct_fields__:
            if field not in ("headers", "later"):
                setattr(history, field, getattr(made, field))
    history.later = None  # last: it may be looked for meanwhile


def make_later(raw: bytes, request: Request, dialect: Dialect) -> History | None:
    """The history of a request that came for the first time, without a look at its turns. Its `ends` only says about
    where the last turn ends, so that the body is found again. None if that is not known."""
    last = request.messages[-1].parts
    text = last[-1].text if last and type(last[-1]) is Text else ""
    end = raw.rfind(dump_json(text[-SAMPLE:])[1:-1]) if text else -1
    if end < LEVELS[0]:
        return None
    lead = request.messages[: count_lead(request.messages)]
    later = Later(replace(request, messages=()), lead, len(request.messages), dialect, memoryview(raw)[:end])
    return History(raw, 0, (), (end,), (0,), 0, {}, frozenset(), later=later)


def _read_again(raw: bytes, later: Later) -> Request | None:
    """The whole request of a body that was read before."""
    key = later.dialect.messages_key
    text = (split_members(raw) or {}).get(key)
    if text is None or later.dialect.decode_turns is None:
        return None
    turns = later.dialect.decode_turns({key: load_turns(text, later.dialect)})
    before = later.count - len(turns)  # instructions may have a key of their own
    if not 0 <= before <= len(later.lead):
        return None
    return replace(later.request, messages=(*later.lead[:before], *turns))


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
    lead = count_lead(request.messages) + 1
    others = request.messages[:lead] + request.messages[lead + hit.count :]
    return hit.history.parts + sum([len(message.parts) for message in others])


def _begin_from(hit: Hit, raw: bytes, turns: tuple[Message, ...]) -> History:
    """A new history with the part of the known one that is in this body."""
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


def count_lead(messages: Sequence[Message]) -> int:
    lead = 0
    while lead < len(messages) - 1 and messages[lead].role in INSTRUCTIONS:
        lead += 1
    return lead


def _is_first(message: Message) -> bool:
    """A turn of the user that says something, with which a conversation may begin."""
    return message.role == "user" and bool(message.parts) and all(_is_text(part) for part in message.parts)


def _is_plain(turn: Message) -> bool:
    """Whether a turn has only texts, calls and results, without extras, seals or cache marks."""
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


def find_ids(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        for part in message.parts:
            if type(part) is ToolCall:
                yield part.id
            elif type(part) is ToolResult:
                yield part.call_id
