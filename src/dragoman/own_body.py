"""The body of a request that a caller gives to `convert`, as values of our own.

Decoders take the objects that they read apart, so they never get the caller's. Most of a request is its turns and its
tools. Usual turns are read in one step, and tools that came before are known by their text, so neither is copied.
"""

from msgspec import Raw, Struct

from dragoman.dialects._base import Dialect
from dragoman.jsontypes import JsonObject, copy_json, load_in_pieces, pack_json, split_members, unpack_json
from dragoman.known_turns.tools import LEAST_BYTES, MOST_BYTES, find_tools_key
from dragoman.model.messages import Message
from dragoman.model.request import AnyTool, Request, Tool

MOST_SEEN = 1_000
_known: dict[tuple[str, bytes], tuple[AnyTool, ...]] = {}  # by dialect and text; one that is forgotten is read again
_kept = {"bytes": 0}
_seen: set[int] = set()  # hashes of lists that came once: most never come again


class OwnBody(Struct):
    values: JsonObject  # turns and tools that are read already are tuples, which JSON does not have
    tools_text: bytes = b""  # of tools that are not known yet

    def remember(self, dialect: Dialect, request: Request) -> None:
        """Remembers the tools from the second time on. `request`: what was read from this body, without a note."""
        tools, text = request.tools, self.tools_text
        if not tools or not text or not all(type(tool) is Tool for tool in tools):
            return
        if dialect.has_other_tools(request):
            return
        key = (dialect.name, text)
        number = hash(key)
        if number not in _seen:
            if len(_seen) >= MOST_SEEN:
                _seen.clear()
            _seen.add(number)
        elif len(text) <= MOST_BYTES:
            if _kept["bytes"] + len(text) > MOST_BYTES:
                _known.clear()
                _kept["bytes"] = 0
            _known[key] = tools
            _kept["bytes"] += len(text)


def take_object(body: JsonObject, dialect: Dialect) -> OwnBody:
    """The body from an object, which stays as it is."""
    read: JsonObject = {}
    turns = _read_object_turns(body.get(dialect.messages_key), dialect)
    if turns is not None:  # fast path: usual turns, packed
        read[dialect.messages_key] = turns
    key = find_tools_key(body, dialect.tools_keys)
    text = pack_json(body[key]) if key else None
    if text is None or len(text) < LEAST_BYTES:
        return OwnBody(_copy_others(body, read))
    tools = _known.get((dialect.name, text))
    if tools is not None:  # fast path: tools known, packed
        read[key] = tools
        return OwnBody(_copy_others(body, read))
    read[key] = unpack_json(text)
    return OwnBody(_copy_others(body, read), text)


def _read_object_turns(turns: object, dialect: Dialect) -> tuple[Message, ...] | None:
    if dialect.read_turns is None or type(turns) not in (list, tuple):
        return None
    packed = pack_json(turns)
    return None if packed is None else dialect.read_turns(packed, packed=True)


def _copy_others(body: JsonObject, read: JsonObject) -> JsonObject:
    """A copy of all that was not read yet, and what was."""
    values: JsonObject = copy_json({name: value for name, value in body.items() if name not in read})
    values.update(read)
    return values


def take_text(body: bytes | str, dialect: Dialect) -> OwnBody | None:
    """The body from a JSON text. None if anything about it is wrong, or if no part of it can be read by itself."""
    members = split_members(body) if dialect.tools_keys else None
    if members is None:
        return None
    read: JsonObject = {}
    text = members.get(dialect.messages_key)
    turns = None if text is None or dialect.read_turns is None else dialect.read_turns(text)
    if turns is not None:  # fast path: usual turns
        read[dialect.messages_key] = turns
    return _take_members(members, read, dialect)


def _take_members(members: dict[str, Raw], read: JsonObject, dialect: Dialect) -> OwnBody | None:
    key = find_tools_key(members, dialect.tools_keys)
    text = bytes(members[key]) if key else b""
    if len(text) < LEAST_BYTES:
        text = b""
    tools = _known.get((dialect.name, text)) if text else None
    if tools is not None:  # fast path: tools known
        read[key], text = tools, b""
    others = load_in_pieces({name: value for name, value in members.items() if name not in read})
    if others is None:
        return None
    others.update(read)
    return OwnBody(others, text)
