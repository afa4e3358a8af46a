"""Cache marks: how many a target takes, where they may stand, and in which order their lifetimes may come."""

from msgspec.structs import replace

from dragoman.model.messages import Cache, Message, Opaque, Part, Reasoning, Refusal, Text, ToolResult, Video
from dragoman.model.request import AnyTool, Request, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile

_UNMARKED = frozenset({Reasoning, Refusal, Video, Opaque})  # parts that cannot bear a mark
TOOLS = -1  # the place of a tool: tools come first in a prompt


def fit_cache_marks(request: Request, profile: Profile, notes: Notes) -> Request:
    if not profile.marks_in_results or profile.cache_marks == 0:
        request = notes.stage(_lift_from_results(request, notes))
    if profile.cache_marks is not None:
        request = notes.stage(_limit(request, profile.cache_marks, notes))
    return _order(request, notes) if profile.marks_in_order else request


def _marks(request: Request) -> list[tuple[int, int]]:
    """In the order of the prompt: tools first, then messages."""
    found = [(TOOLS, j) for j, tool in enumerate(request.tools or ()) if type(tool) is Tool and tool.cache is not None]
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            kind = type(part)
            if kind is Text:  # on its own: Python reads a field of one type faster than a field of several
                if part.cache is not None:  # type: ignore[union-attr]
                    found.append((i, j))
            elif kind not in _UNMARKED and part.cache is not None:  # type: ignore[union-attr]
                found.append((i, j))
    return found


def _at(i: int, j: int) -> At:
    return (((((ROOT, "messages"), i), "parts"), j), "cache") if i != TOOLS else (((ROOT, "tools"), j), "cache")


def _mark(request: Request, marks: dict[tuple[int, int], Cache | None]) -> Request:
    """The request with other marks at these places."""
    messages = list(request.messages)
    for i in {i for i, _ in marks if i != TOOLS}:
        parts: list[Part] = list(messages[i].parts)
        for j in {j for at, j in marks if at == i}:
            parts[j] = replace(parts[j], cache=marks[i, j])
        messages[i] = replace(messages[i], parts=tuple(parts))
    tools: list[AnyTool] = list(request.tools or ())
    for j in {j for i, j in marks if i == TOOLS}:
        tools[j] = replace(tools[j], cache=marks[TOOLS, j])
    return replace(request, messages=tuple(messages), tools=tuple(tools) if request.tools is not None else None)


def _limit(request: Request, most: int, notes: Notes) -> Request:
    """The last `most` marks stay: they cover the longest prefixes. The automatic one counts too."""
    if most == 0 and request.cache is not None:
        notes.dropped((ROOT, "cache"), "the target cannot be told what to cache")
        request = replace(request, cache=None)
    places = _marks(request)
    over = len(places) + (request.cache is not None) - most
    if over <= 0:
        return request
    for i, j in places[:over]:
        notes.dropped(_at(i, j), f"at most {most} cache marks")
    return _mark(request, dict.fromkeys(places[:over]))


def _order(request: Request, notes: Notes) -> Request:
    """ "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block": a later mark lives no
    longer than an earlier one."""
    shortened: dict[tuple[int, int], Cache | None] = {}
    short = False
    for place in _marks(request):
        cache = _cache_at(request, place)
        if cache is None:
            continue
        if _is_short(cache):
            short = True
        elif short:
            notes.altered((_at(*place), "ttl"), "a mark after one of 5 minutes may not live longer")
            shortened[place] = replace(cache, ttl="5m")
    request = _mark(request, shortened) if shortened else request
    if request.cache is not None and short and not _is_short(request.cache):
        notes.altered(((ROOT, "cache"), "ttl"), "a mark after one of 5 minutes may not live longer")
        return replace(request, cache=replace(request.cache, ttl="5m"))
    return request


def _is_short(cache: Cache) -> bool:
    return cache.ttl in (None, "5m")


def _cache_at(request: Request, place: tuple[int, int]) -> Cache | None:
    i, j = place
    bearer = request.messages[i].parts[j] if i != TOOLS else (request.tools or ())[j]
    return getattr(bearer, "cache", None)


# ---------------------------------------------------------------- marks inside results


def _mark_inside(result: ToolResult) -> Cache | None:
    for inner in result.parts:
        cache = getattr(inner, "cache", None)
        if cache is not None:
            return cache  # type: ignore[no-any-return]
    return None


def _lift_from_results(request: Request, notes: Notes) -> Request:
    """ "cache_control may not be specified within `tool_result.content`": the mark belongs to the result itself."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            inside = _mark_inside(part) if type(part) is ToolResult else None
            if type(part) is ToolResult and inside is not None:
                parts = list(changed.get(i, message).parts)
                plain = tuple(p if getattr(p, "cache", None) is None else replace(p, cache=None) for p in part.parts)
                parts[j] = replace(part, parts=plain, cache=part.cache or inside)
                at: At = (((((ROOT, "messages"), i), "parts"), j), "parts")
                notes.repaired(at, "a cache mark inside a result stands on the result")
                changed[i] = replace(message, parts=tuple(parts))
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))
