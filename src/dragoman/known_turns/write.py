"""Writing: known turns are left out on the way to a server, and their bytes are put back in."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.answers.call_ids import find_call_ids
from dragoman.dialects._base import Dialect
from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.known_turns.history import Chunk, History, Hit
from dragoman.known_turns.read import count_lead, find_ids
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.model.request import Request, ServerTool
from dragoman.note_places import Place
from dragoman.notes import Locate, Notes
from dragoman.passes.contents import INSTRUCTIONS
from dragoman.passes.emulate import Undo
from dragoman.passes.parameters import estimate
from dragoman.passes.prepare import Prepared, prepare
from dragoman.passes.profile import Profile
from dragoman.passes.rename import Renames

MOST_CHUNKS = 32


class Known(Struct, frozen=True):
    """The turns of a request that were known when it came."""

    history: History
    messages: tuple[Message, ...]  # all of the request
    lead: int  # of the messages: instructions, before the first turn of the user
    count: int  # of the turns behind it that are known and may be left out
    hit: Hit

    def find_call_ids(self) -> set[str]:
        """The ids of the calls in all turns of the request."""
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
    """The known turns as they are written for a server."""

    entries: bytes  # of its list of turns, without the brackets
    count: int
    same: bool  # no pass has changed them

    def put_into(self, body: JsonObject, dialect: Dialect) -> Locate:
        """Puts the known turns behind the first turn. Returns the function that finds places in the whole body."""
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


def know(hit: Hit | None, history: History | None, request: Request) -> Known | None:
    """The turns of a request that may be left out on its way to a server."""
    if hit is None or history is None:
        return None
    most = min(hit.count, history.plain)
    number = bisect_right(history.counts, most)
    count = history.counts[number - 1] if number else 0
    return Known(history, request.messages, count_lead(request.messages), count, hit) if count else None


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
    if profile.mcp and not profile.native and any(type(tool) is ServerTool for tool in request.tools or ()):
        return False  # calls of MCP servers are written in one way if the server is named, else in another
    if profile.tools_for_history and not known.history.names <= {
        getattr(tool, "name", None) for tool in request.tools or ()
    }:
        return False
    new = known.messages[known.lead + 1 + known.count :]
    if not _begins_with_answer(new) or any(message.role in INSTRUCTIONS for message in new):
        return False
    ids = known.history.ids
    if any(ids.get(call_id, known.count) < known.count for call_id in find_ids(new)):
        return False
    return profile.window is None or _fits_window(request, profile.window)


def _begins_with_answer(new: tuple[Message, ...]) -> bool:
    """Whether the first new turn is an answer that no pass leaves out: what follows it would go to the turn of the user
    before it."""
    if not new or new[0].role != "assistant":
        return False
    if any(type(part) is Text and part.text and not part.text.isspace() for part in new[0].parts):
        return True
    results = takewhile(lambda message: message.role == "user", new[1:])
    answered = {part.call_id for message in results for part in message.parts if type(part) is ToolResult}
    return any(type(part) is ToolCall and part.id in answered for part in new[0].parts)


def _fits_window(request: Request, window: int) -> bool:
    """Whether the whole conversation leaves enough room for the answer, so that no limit has to change."""
    return request.max_output is None or request.max_output <= window - estimate(request) - window // 16


def is_undone_apart(undo: Undo) -> bool:
    """Whether nothing of the known turns was renamed or asked for in another way."""
    renames = undo.renames
    changed = renames.names or renames.ids or renames.properties or renames.answer
    return not changed and undo.json_tool is None and undo.expected is None


def add_taken(prepared: Prepared, known: Known) -> Undo:
    """The Undo with the ids of the known turns, which new calls must not use either."""
    taken = prepared.undo.renames.taken.union(known.old_ids())
    return replace(prepared.undo, renames=Renames(taken=taken)) if taken else prepared.undo


def write_known(
    known: Known, request: Request, destination: object, dialect: Dialect, profile: Profile
) -> Written | None:
    """The known turns as they are written for a server. None if they cannot be written without the new ones."""
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


def _merge(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Joins the older chunks, because changes in a conversation are mostly near its end."""
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
