"""Makes names of tools and ids of calls legal and unique at the target, and gives the answer the client's own again.

An alias is a readable prefix and eight hex digits of the original's SHA-256. So the same name has the same alias in
every turn and every process: prompt caches survive, and a gateway need not remember it (FIELD-CASES 5, 13, 60-62, 115).
"""

import re
from collections import deque
from collections.abc import Container
from functools import cache
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.messages import Message, Part, ToolCall, ToolResult
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import AnyTool, Request, ServerTool, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import Contents
from dragoman.passes.profile import Spelling
from dragoman.passes.tool_lists import is_kept

DIGITS = 8


class Renames(Struct, frozen=True, kw_only=True):
    """What was renamed in one request: from the target's word to the client's."""

    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    taken: frozenset[str] = frozenset()  # the client's own ids in this history
    properties: dict[str, dict[str, str]] = {}  # tool -> names in its arguments
    answer: dict[str, str] = {}  # names in an answer held to a schema


NOTHING = Renames()


def rename(
    request: Request, names: Spelling | None, ids: Spelling | None, notes: Notes, contents: Contents | None = None
) -> tuple[Request, Renames]:
    """Renames the tools and ids that are illegal at the target. The history must be paired before. `contents`: of the
    request, if they were found before."""
    names_used, call_ids, taken_ids = _find_names_used(request, contents)
    illegal = _find_illegal(names_used, names) if names is not None else []
    name_map = _map_names(names_used, illegal, names) if illegal and names is not None else {}
    id_changes, own_ids, taken = _map_ids(request, call_ids, taken_ids, ids)
    if not name_map and not id_changes and not _name_tools(request.tools).repeated:  # fast path: nothing to rename
        return request, Renames(taken=taken) if taken else NOTHING
    changed = replace(
        request,
        messages=_rename_messages(request.messages, name_map, id_changes, notes),
        tools=_rename_tools(request.tools, name_map, notes),
        tool_choice=_rename_choice(request, name_map),
    )
    wire_names = {alias: name for name, alias in name_map.items()}
    return changed, Renames(names=wire_names, ids=own_ids, taken=taken)


def _find_names_used(request: Request, contents: Contents | None) -> tuple[dict[str, None], list[str], frozenset[str]]:
    """The names of tools in order of appearance, and the ids of all calls, in a list and as a set."""
    names = _name_tools(request.tools).names
    in_calls = contents.find_names() if contents is not None else None
    chosen = request.tool_choice.names if request.tool_choice is not None else None
    if contents is not None and in_calls is not None:  # fast path: names of calls
        ids, taken = [call.id for call in contents.calls], contents.ids
        if chosen or not in_calls.keys() <= names.keys():
            names = names | in_calls
    else:
        names, ids = dict(names), []
        _add_names(request, names, ids)
        taken = frozenset(ids)
    return (names | dict.fromkeys(chosen) if chosen else names), ids, taken


def _add_names(request: Request, names: dict[str, None], ids: list[str]) -> None:
    for message in request.messages:
        for part in message.parts:
            kind = type(part)
            if kind is ToolCall:
                names[part.name] = None  # type: ignore[union-attr, index]
                ids.append(part.id)  # type: ignore[union-attr, arg-type]
            elif kind is ToolResult and part.name is not None:  # type: ignore[union-attr]
                names[part.name] = None  # type: ignore[union-attr]


def alias_of(text: str, rule: Spelling, salt: str = "") -> str:
    """A legal name for an illegal one. Another `salt` gives another alias."""
    digest = sha256((text + salt).encode()).hexdigest()
    if rule.shortest == rule.longest:  # Mistral: exactly nine letters or digits
        return digest[: rule.longest]
    head = re.sub(f"[^{rule.letters}]+", "_", text).strip("_")[: rule.longest - DIGITS - 1]
    if rule.first and not re.match(f"[{rule.first}]", head):
        head = f"t_{head}"[: rule.longest - DIGITS - 1]
    return f"{head}_{digest[:DIGITS]}" if head else f"t_{digest[:DIGITS]}"


def is_legal(text: str, rule: Spelling) -> bool:
    return _compiled(rule).fullmatch(text) is not None


def _are_legal(texts: list[str], rule: Spelling) -> bool:
    """The same for many, in one search: one in each line."""
    lines = "".join([f"{text}\n" for text in texts])
    return lines.count("\n") == len(texts) and _compiled_lines(rule).fullmatch(lines) is not None


@cache
def _compiled_lines(rule: Spelling) -> re.Pattern[str]:
    return re.compile(f"(?:{_pattern(rule)}\n)*")


@cache
def _compiled(rule: Spelling) -> re.Pattern[str]:
    return re.compile(_pattern(rule))


def _pattern(rule: Spelling) -> str:
    first = rule.first or rule.letters
    return f"[{first}][{rule.letters}]{{{max(rule.shortest - 1, 0)},{rule.longest - 1}}}"


# ---------------------------------------------------------------- names


def _tool_name(tool: AnyTool) -> str | None:
    if isinstance(tool, ServerTool):
        name = tool.body.get("name")
        grouped = tool.body.get("type") == "namespace"  # the name of a group of tools, not of one
        return name if isinstance(name, str) and not grouped else None
    return tool.name


class _ToolNames(Struct, frozen=True):
    """Of a list of tools."""

    tools: tuple[AnyTool, ...]
    names: dict[str, None]  # that calls can have, in order
    repeated: bool  # whether two tools have one name


MOST_LISTS = 25
_NO_NAMES = _ToolNames((), {}, False)
_seen: dict[int, int] = {}  # lists by their identity, with their lengths
_named: dict[int, _ToolNames] = {}  # by the identity of the list: an agent sends the same one again and again


def _name_tools(tools: tuple[AnyTool, ...] | None) -> _ToolNames:
    if not tools:
        return _NO_NAMES
    known = _named.get(id(tools))
    if known is not None and known.tools is tools:  # fast path: named before
        return known
    named = [name for tool in tools if (name := _tool_name(tool)) is not None]
    found = _ToolNames(
        tools, {tool.name: None for tool in tools if not isinstance(tool, ServerTool)}, len(set(named)) < len(named)
    )
    _remember(tools, found)
    return found


def _remember(tools: tuple[AnyTool, ...], names: _ToolNames) -> None:
    """From the second time on: most lists never come again as the same object."""
    if _seen.get(id(tools)) != len(tools):
        if len(_seen) >= 10 * MOST_LISTS:
            _seen.clear()
        _seen[id(tools)] = len(tools)
    elif is_kept(tools):
        if len(_named) >= MOST_LISTS:
            _named.clear()
        _named[id(tools)] = names


_legal: dict[Spelling, set[str]] = {}  # names known to be so: agents say the same ones again and again
MOST_KNOWN = 10_000


def _find_illegal(names: dict[str, None], rule: Spelling) -> list[str]:
    legal = _legal.setdefault(rule, set())
    if names.keys() <= legal:  # fast path: known names
        return []
    pattern = _compiled(rule)
    bad = [name for name in names if not pattern.fullmatch(name)]
    if len(legal) > MOST_KNOWN:
        legal.clear()
    legal.update(names.keys() - set(bad))
    return bad


def _map_names(own: dict[str, None], bad: list[str], rule: Spelling) -> dict[str, str]:
    """Own name -> alias, for the names that need one."""
    used = own.keys() - set(bad)
    aliases: dict[str, str] = {}
    for name in bad:
        aliases[name] = _free(name, rule, used)
        used.add(aliases[name])
    return aliases


def _free(text: str, rule: Spelling, used: set[str]) -> str:
    alias, turn = alias_of(text, rule), 1
    while alias in used:
        turn += 1
        alias = alias_of(text, rule, f"#{turn}")
    return alias


def _rename_tools(
    tools: tuple[AnyTool, ...] | None, aliases: dict[str, str], notes: Notes
) -> tuple[AnyTool, ...] | None:
    if tools is None:
        return None
    renamed: list[AnyTool] = []
    seen: dict[str, AnyTool] = {}
    for i, tool in enumerate(tools):
        at: At = ((ROOT, "tools"), i)
        name = _tool_name(tool)
        if name is not None and name in seen:  # "tools: Tool names must be unique"
            why = "the same tool is there already" if tool == seen[name] else "another tool has its name"
            notes.dropped(at, why)
            continue
        if name is not None:
            seen[name] = tool
        if not isinstance(tool, ServerTool) and tool.name in aliases:
            notes.altered((at, "name"), f"called {aliases[tool.name]} at the target")
            tool = replace(tool, name=aliases[tool.name])
        renamed.append(tool)
    return tuple(renamed)


def _rename_choice(request: Request, aliases: dict[str, str]) -> ToolChoice | None:
    choice = request.tool_choice
    if choice is None or choice.names is None or not any(name in aliases for name in choice.names):
        return choice
    return replace(choice, names=tuple(aliases.get(name, name) for name in choice.names))


# ---------------------------------------------------------------- ids


def _map_ids(
    request: Request, ids: list[str], fine: frozenset[str], rule: Spelling | None
) -> tuple[dict[tuple[int, int], str], dict[str, str], frozenset[str]]:
    """Place of a call or result -> its new id; new id -> the client's; the client's ids. `fine`: the ids as a set."""
    if rule is None:
        return {}, {}, fine
    if len(fine) == len(ids) and _are_legal(ids, rule):  # fast path: fine ids
        return {}, {}, fine
    legal = _compiled(rule).fullmatch
    changes: dict[tuple[int, int], str] = {}
    own: dict[str, str] = {}
    used: set[str] = set()
    taken: set[str] = set()
    turns: dict[str, int] = {}  # own id -> the last number given to it
    waiting: dict[str, deque[str]] = {}  # own id -> new ids of calls not answered yet
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                call_id = part.id
                taken.add(call_id)
                new = call_id
                if not legal(new):
                    new = alias_of(call_id, rule)
                if new in used:
                    new = _next_id(call_id, new, rule, used, turns)
                if new != call_id:
                    changes[i, j] = new
                    own[new] = call_id
                used.add(new)
                waiting.setdefault(call_id, deque()).append(new)
            elif isinstance(part, ToolResult):
                own_id = part.call_id
                queue = waiting.get(own_id)
                if queue and (new := queue.popleft()) != own_id:
                    changes[i, j] = new
    return changes, own, frozenset(taken)


def _next_id(own: str, alias: str, rule: Spelling, used: set[str], turns: dict[str, int]) -> str:
    """The first occurrence keeps its id, later ones count: id_2, id_3 (FIELD-CASES 5)."""
    turn = turns.get(own, 1) + 1
    while True:
        new = f"{alias}_{turn}"
        if rule.shortest == rule.longest or not is_legal(new, rule):
            new = alias_of(own, rule, f"#{turn}")
        if new not in used:
            turns[own] = turn
            return new
        turn += 1


def _rename_messages(
    messages: tuple[Message, ...], names: dict[str, str], ids: dict[tuple[int, int], str], notes: Notes
) -> tuple[Message, ...]:
    renamed: list[Message] = []
    for i, message in enumerate(messages):
        changed: list[Part] | None = None
        for j, part in enumerate(message.parts):
            new = _rename_part(part, names, ids.get((i, j)))
            if new is not part:
                if changed is None:
                    changed = list(message.parts)
                changed[j] = new
                if (i, j) in ids and isinstance(part, ToolCall):
                    at: At = (((((ROOT, "messages"), i), "parts"), j), "id")
                    notes.altered(at, f"called {ids[i, j]} at the target")
        renamed.append(message if changed is None else replace(message, parts=tuple(changed)))
    return tuple(renamed)


def _rename_part(part: Part, names: dict[str, str], new_id: str | None) -> Part:
    if isinstance(part, ToolCall) and (new_id is not None or part.name in names):
        return replace(part, id=new_id or part.id, name=names.get(part.name, part.name))
    if isinstance(part, ToolResult) and (new_id is not None or part.name in names):
        name = None if part.name is None else names.get(part.name, part.name)
        return replace(part, call_id=new_id or part.call_id, name=name)
    return part


# ---------------------------------------------------------------- the way back


def undo_call_names(call: ToolCall, renames: Renames, seen: Container[str] = ()) -> ToolCall:
    """A new call with the client's own names. An id that the client has already seen gets a number (FIELD-CASES 5)."""
    name = renames.names.get(call.name, call.name)
    new, turn = call.id, 2
    while new in renames.taken or new in seen:
        new, turn = f"{call.id}_{turn}", turn + 1
    if name == call.name and new == call.id:
        return call
    return replace(call, name=name, id=new)


def undo_reply_names(reply: Reply, renames: Renames) -> Reply:
    choices = tuple(_restore_choice(choice, renames) for choice in reply.choices)
    if all(a is b for a, b in zip(choices, reply.choices, strict=True)):
        return reply
    return replace(reply, choices=choices)


def _restore_choice(choice: Choice, renames: Renames) -> Choice:
    seen: set[str] = set()
    parts = list(choice.parts)
    for i, part in enumerate(parts):
        if isinstance(part, ToolCall):
            call = undo_call_names(part, renames, seen)
            seen.add(call.id)
            parts[i] = call
    if all(a is b for a, b in zip(parts, choice.parts, strict=True)):
        return choice
    return replace(choice, parts=tuple(parts))


# ------------------------------------------------------------------ properties
# Names of properties in arguments and answers: the target reads its own names, the client reads the client's.
# passes/schemas/rewrite.py renames them in schemas. Each tool has one table of names for all depths. An alias ends with
# a digest of the name, so it is never equal to another key.


def rename_keys(text: str, names: dict[str, str]) -> str:
    """A JSON text with renamed keys. The same text if there is nothing to rename, or if it is no JSON."""
    try:
        value = load_json(text)
    except DecodeError:
        return text
    renamed = _rename(value, names)
    return text if renamed == value else dump_text(renamed)


def _rename(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _rename(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rename(inner, names) for inner in value]
    return value


def rename_arguments(request: Request, aliases: dict[str, dict[str, str]], notes: Notes) -> Request:
    """Renames properties in the arguments of earlier calls, as they are renamed in the schemas of their tools."""
    words = {tool: {own: alias for alias, own in names.items()} for tool, names in aliases.items()}
    messages = tuple(_rename_message(message, i, words, notes) for i, message in enumerate(request.messages))
    if all(a is b for a, b in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=messages)


def _rename_message(message: Message, i: int, words: dict[str, dict[str, str]], notes: Notes) -> Message:
    parts: list[Part] = list(message.parts)
    for j, part in enumerate(parts):
        if not isinstance(part, ToolCall) or part.name not in words or part.freeform:
            continue
        arguments = rename_keys(part.arguments, words[part.name])
        if arguments != part.arguments:
            at: At = (((((ROOT, "messages"), i), "parts"), j), "arguments")
            notes.altered(at, "properties as the target calls them")
            parts[j] = replace(part, arguments=arguments)
    same = all(a is b for a, b in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=tuple(parts))
