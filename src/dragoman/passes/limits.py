"""Limits of a target: the length of identifiers, the number of metadata pairs, tools and cache marks, the size of the
answer."""

import re
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from dragoman.model.messages import Cache, Message, Opaque, Part, Reasoning, Refusal, Text, ToolResult, Video
from dragoman.model.request import AnyTool, Request, ServerTool, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import Contents, count_lead
from dragoman.passes.parameters import estimate
from dragoman.passes.profile import Profile

_ADDRESS = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
_TELEPHONE = re.compile(r"\+?\d[\d ()./-]{6,}\d")


def fit_limits(request: Request, profile: Profile, notes: Notes) -> Request:
    request = _fit_identifiers(request, profile, notes)
    if profile.item_ids is not None:
        request = _drop_long_item_ids(request, profile.item_ids, profile.dialect, notes)
    if profile.metadata_limits is not None and request.metadata:
        request = _fit_metadata(request, profile, notes)
    if profile.most_tools is not None and len(request.tools or ()) > profile.most_tools:
        request = _limit_tools(request, profile.most_tools, notes)
    if profile.longest_description is not None and request.tools:
        request = _shorten_descriptions(request, profile.longest_description, notes)
    request = _fit_output(request, profile, notes)
    return _fit_window(request, profile.window, notes) if profile.window is not None else request


# ---------------------------------------------------------------- identifiers


def _fit_identifiers(request: Request, profile: Profile, notes: Notes) -> Request:
    """A long identifier is replaced by its hash, which is the same in every request (docs: "We recommend hashing").
    We do not cut it: two users could then have the same identifier."""
    changes: dict[str, Any] = {}
    own = request.extras.get(profile.dialect, {})
    for field, longest in profile.longest.items():
        second = own.get(field)  # beside `safety_identifier`, `user` is a key of the dialect's own
        if type(second) is str and len(second) > longest:
            own = {**own, field: _shorten(second, longest)}
            source = next((name for name in profile.shared_extras if name in request.extras), profile.dialect)
            at: At = (((ROOT, "extras"), source), field)
            changes["extras"] = {**request.extras, profile.dialect: own}
            notes.altered(at, f"{profile.kind} takes up to {longest} characters: its SHA-256")
        value = getattr(request, field)
        if value is not None and len(value) > longest:
            changes[field] = _shorten(value, longest)
            notes.altered((ROOT, field), f"{profile.kind} takes up to {longest} characters: its SHA-256")
    user = request.user
    if profile.opaque_user and user is not None and "user" not in changes and _is_personal(user):
        changes["user"] = sha256(user.encode()).hexdigest()
        notes.altered((ROOT, "user"), f"{profile.kind} refuses an address of a person: its SHA-256")
    return replace(request, **changes) if changes else request


def _shorten(value: str, longest: int) -> str:
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:longest]


def _is_personal(user: str) -> bool:
    return _ADDRESS.search(user) is not None or _TELEPHONE.fullmatch(user.strip()) is not None


def _drop_long_item_ids(request: Request, longest: int, dialect: str, notes: Notes) -> Request:
    """Copilot gives items ids of 400 characters and more, and refuses them when they come back. An item that is sent
    whole needs no id."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if type(part) is Opaque or not part.extras:  # type: ignore[union-attr]
                continue
            own = part.extras.get(dialect)  # type: ignore[union-attr]
            if own is not None and type(own.get("id")) is str and len(own["id"]) > longest:
                parts = list(changed.get(i, message).parts)
                parts[j] = _without_id(part, dialect, own)
                changed[i] = replace(message, parts=tuple(parts))
                at: At = ((((((ROOT, "messages"), i), "parts"), j), "extras"), dialect)
                notes.repaired((at, "id"), f"an id of more than {longest} characters is refused")
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _without_id(part: Part, dialect: str, own: dict[str, Any]) -> Part:
    kept = {key: value for key, value in own.items() if key != "id"}
    extras = {**part.extras, dialect: {**kept, "~item": "new"}}  # type: ignore[union-attr]
    return replace(part, extras=extras)


# ---------------------------------------------------------------- descriptions


def _shorten_descriptions(request: Request, longest: int, notes: Notes) -> Request:
    """What a long description has over the limit goes into the system text, where the model reads it too."""
    tools, rest = list(request.tools or ()), []
    for i, tool in enumerate(tools):
        if isinstance(tool, ServerTool) or tool.description is None or len(tool.description) <= longest:
            continue
        notes.altered((((ROOT, "tools"), i), "description"), f"over {longest} characters: the rest is system text")
        rest.append(f"The description of the tool {tool.name} goes on:\n{tool.description[longest:]}")
        tools[i] = replace(tool, description=tool.description[:longest])
    if not rest:
        return request
    lead = count_lead(request.messages)
    head, words = request.messages[:lead] or (Message(role="system", parts=()),), Text(text="\n\n".join(rest))
    last = replace(head[-1], parts=(*head[-1].parts, words))
    return replace(request, tools=tuple(tools), messages=(*head[:-1], last, *request.messages[lead:]))


# ---------------------------------------------------------------- counts


def _fit_metadata(request: Request, profile: Profile, notes: Notes) -> Request:
    """Leaves out pairs over the limit. A value is not cut, because half of it would mean something else."""
    most, longest_key, longest_value = profile.metadata_limits or (0, 0, 0)
    kept: dict[str, Any] = {}
    for key, value in (request.metadata or {}).items():
        too_long = len(key) > longest_key or (isinstance(value, str) and len(value) > longest_value)
        if too_long or len(kept) >= most:
            why = f"keys up to {longest_key} and values up to {longest_value} characters, {most} pairs"
            notes.dropped(((ROOT, "metadata"), key), f"{profile.kind} takes {why}")
        else:
            kept[key] = value
    return request if len(kept) == len(request.metadata or {}) else replace(request, metadata=kept)


def _limit_tools(request: Request, most: int, notes: Notes) -> Request:
    """Keeps the first tools, and those that the tool choice names."""
    tools = request.tools or ()
    named = set(request.tool_choice.names or ()) if request.tool_choice is not None else set()
    wanted = [i for i, tool in enumerate(tools) if not isinstance(tool, ServerTool) and tool.name in named][:most]
    others = [i for i in range(len(tools)) if i not in wanted]
    kept = {*wanted, *others[: most - len(wanted)]}
    for i in range(len(tools)):
        if i not in kept:
            notes.dropped(((ROOT, "tools"), i), f"at most {most} tools")
    return replace(request, tools=tuple(tool for i, tool in enumerate(tools) if i in kept))


# ---------------------------------------------------------------- the answer


def _fit_output(request: Request, profile: Profile, notes: Notes) -> Request:
    """Lowers the output limit to what the model can give. Agents ask for what their usual model gives: "max_tokens:
    128001 > 64000, which is the maximum allowed number of output tokens"."""
    most, limit = profile.most_output, request.max_output
    if most is not None and limit is not None and limit > most:
        notes.altered((ROOT, "max_output"), f"the model writes at most {most} tokens")
        return replace(request, max_output=most)
    needed = profile.needs_output
    if limit is None and most is not None and needed is not None and needed > most:
        notes.invented((ROOT, "max_output"), f"{profile.kind} demands a limit: {most}")
        return replace(request, max_output=most)
    return request


MARGIN = 16  # one sixteenth of the window stays free for the text that the server's template adds
LEAST_ROOM = 256  # tokens: a smaller limit would only cut the answer, so the server's own refusal is the better answer


def _fit_window(request: Request, window: int, notes: Notes) -> Request:
    """Lowers the output limit to the space that the prompt leaves in the window. Agents ask every model for 32,000
    tokens. vLLM: "maximum context length is 8192 tokens and your request has 272 input tokens"."""
    limit, room = request.max_output, window - estimate(request) - window // MARGIN
    if limit is None or limit <= room or room < LEAST_ROOM:
        return request
    notes.altered((ROOT, "max_output"), f"the window of {window} tokens leaves about {room}")
    return replace(request, max_output=room)


# ---------------------------------------------------------------- cache marks

_UNMARKED = frozenset({Reasoning, Refusal, Video, Opaque})  # parts that cannot bear a mark
TOOLS = -1  # the place of a tool: tools come first in a prompt


def fit_cache_marks(request: Request, profile: Profile, notes: Notes, contents: Contents | None = None) -> Request:
    if profile.cache_marks is not None:
        known = None
        if contents is not None and contents.are_of(request):  # fast path: marks found before
            known = contents
        request = notes.stage(_limit(request, profile.cache_marks, notes, known))
    return _order(request, notes) if profile.marks_in_order else request


def _marks(request: Request, known: Contents | None = None) -> list[tuple[int, int]]:
    """The places of all cache marks, in the order of the prompt: tools first, then messages. `known`: what the request
    contains."""
    tools = request.tools or () if known is None or known.marked_tools else ()
    found = [(TOOLS, j) for j, tool in enumerate(tools) if type(tool) is Tool and tool.cache is not None]
    for i in range(len(request.messages)) if known is None else sorted(set(known.marked)):
        for j, part in enumerate(request.messages[i].parts):
            kind = type(part)
            if kind is Text:  # a branch for itself: it is the most frequent type, and faster this way
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
    request = replace(request, messages=tuple(messages))
    if not any(i == TOOLS for i, _ in marks):
        return request
    tools: list[AnyTool] = list(request.tools or ())
    for j in {j for i, j in marks if i == TOOLS}:
        tools[j] = replace(tools[j], cache=marks[TOOLS, j])
    return replace(request, tools=tuple(tools))


def _limit(request: Request, most: int, notes: Notes, known: Contents | None = None) -> Request:
    """Keeps the last `most` marks, because they cover the longest prefixes. The automatic mark counts too."""
    if most == 0 and request.cache is not None:
        notes.dropped((ROOT, "cache"), "the target has no cache marks")
        request = replace(request, cache=None)
    places = _marks(request, known)
    over = len(places) + (request.cache is not None) - most
    if over <= 0:
        return request
    for i, j in places[:over]:
        notes.dropped(_at(i, j), f"at most {most} cache marks" if most else "it takes no cache marks")
    return _mark(request, dict.fromkeys(places[:over]))


def _order(request: Request, notes: Notes) -> Request:
    """No mark lives longer than one before it: "a ttl='1h' cache_control block must not come after a ttl='5m'
    cache_control block"."""
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


def lift_marks(request: Request, profile: Profile, notes: Notes) -> Request:
    """Moves a mark inside a tool result to the result itself: "cache_control may not be specified within
    `tool_result.content`"."""
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
