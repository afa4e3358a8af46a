"""Lists of tools that come again as the same object, because an agent sends the same tools with every turn.

What is made of such a list is remembered by the identity of the list. A table by identity keeps the list alive, so only
small lists are kept in one.
"""

from dragoman.jsontypes import dump_json
from dragoman.model.request import AnyTool

LARGEST = 500_000  # bytes of a list that may be kept beyond its request
MOST_DUMPED = 25
DUMPED_BYTES = 4_000_000
_last_dumped: dict[int, tuple[tuple[AnyTool, ...], bytes]] = {}  # by identity


def dump_tools(tools: tuple[AnyTool, ...]) -> bytes:
    """A list of tools as bytes. For a known conversation the gateway passes the same object again, so that we need not
    write it again."""
    known = _last_dumped.get(id(tools))
    if known is not None and known[0] is tools:  # fast path: said again
        return known[1]
    body = dump_json(tools)
    if len(body) <= DUMPED_BYTES // MOST_DUMPED:
        if len(_last_dumped) >= MOST_DUMPED:
            _last_dumped.clear()
        _last_dumped[id(tools)] = (tools, body)
    return body


def is_kept(tools: tuple[AnyTool, ...]) -> bool:
    """Whether a list is small enough to be kept beyond its request."""
    return len(dump_tools(tools)) <= LARGEST
