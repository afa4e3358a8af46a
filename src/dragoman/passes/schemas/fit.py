"""The schemas of tools and answers in the schema language of the target (rewrite.py rewrites each).

One illegal keyword in one of eighty tools makes every request of an agent fail (FIELD-CASES 17, 18, 63, 64, 128;
mission B5). Agents send their tools again with every turn. So each schema is rewritten once per language, and the
result is remembered by the text of the schema.
"""

from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, SchemaPath, copy_json, dump_json
from dragoman.model.request import AnyTool, OutputFormat, Request, Tool
from dragoman.notes import ROOT, At, Notes, RepeatedNote, make_repeated
from dragoman.passes.profile import Profile
from dragoman.passes.schemas.rewrite import Adapted, Rewriter
from dragoman.passes.schemas.targets import LANGUAGES
from dragoman.passes.tool_lists import dump_tools

REMEMBERED = {"schemas": 2_000, "lists": 50}
REMEMBERED_BYTES = 4_000_000  # of schemas, and of lists; the answer does not depend on it: one forgotten is made again
LARGEST = 500_000  # bytes of one that is remembered
MOST_WRITTEN_OUT = 100_000  # nodes of one list of tools that stand where references stood
_remembered: dict[tuple[str, str, bool, bytes], Adapted] = {}
_bytes = {"schemas": 0, "lists": 0}  # remembered
K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")


def adapt_schema(
    schema: JsonObject | None, language: str, root: Literal["tool", "output"] = "tool", *, write_out: bool = True
) -> Adapted:
    """A schema in the language of a target. The schema of a tool becomes an object; that of an answer may be any."""
    key = (language, root, write_out, b"" if schema is None else dump_json(schema))
    found = _remembered.get(key)  # fast path: known schema
    if found is None:
        found = Rewriter(schema or {}, LANGUAGES[language], write_out=write_out).run(root)
        _remember(_remembered, key, found, "schemas")
    return found


def _remember(table: dict[K, V], key: K, value: V, what: str) -> None:
    """Adds a result. A table that has become too large is emptied first. The last item of `key` is the text."""
    size = len(key[-1])
    if size > LARGEST:
        return
    if len(table) >= REMEMBERED[what] or _bytes[what] + size > REMEMBERED_BYTES:
        table.clear()
        _bytes[what] = 0
    table[key] = value
    _bytes[what] += size


class Aliases(Struct):
    """Property names that the target refuses: the alias -> the client's name. And how much was written out."""

    tools: dict[str, dict[str, str]] = {}  # by the tool's name
    answer: dict[str, str] = {}
    written_out: int = 0  # nodes of all tools so far that stand where references stood


def adapt_schemas(request: Request, profile: Profile, notes: Notes) -> tuple[Request, Aliases]:
    """Rewrites the schemas of all tools and of the answer. A tool stays strict if its schema can be kept whole."""
    tools, output = request.tools, request.output
    aliases = Aliases()
    if profile.native and LANGUAGES[profile.schema].tolerant:
        return request, aliases
    if tools:
        known = _adapt_tools(tools, profile)
        if known.notes:
            notes.repeat(known.notes)
        aliases.tools = known.aliases
        tools = known.tools or tools
    if output is not None and output.schema is not None:
        output = _adapt_output(output, profile, notes, aliases)
    if tools is request.tools and output is request.output:
        return request, aliases
    return replace(request, tools=tools, output=output), aliases


class _Known(Struct, frozen=True):
    """The result of rewriting a list of tools."""

    tools: tuple[AnyTool, ...] | None  # None: the same
    aliases: dict[str, dict[str, str]]
    notes: tuple[RepeatedNote, ...]


_lists: dict[tuple[str, str | None, bool, str, bytes], _Known] = {}


def _adapt_tools(tools: tuple[AnyTool, ...], profile: Profile) -> _Known:
    """An agent sends the same list with every turn: it is looked up whole."""
    body = dump_tools(tools)
    key = (profile.schema, profile.strict_schema, profile.strict_alike, profile.dialect, body)
    known = _lists.get(key)  # fast path: known tools
    if known is None:
        notes, aliases = Notes(), Aliases()
        changed = tuple(
            adapt_tool(tool, profile, ((ROOT, "tools"), i), notes, aliases) if isinstance(tool, Tool) else tool
            for i, tool in enumerate(tools)
        )
        if profile.strict_alike:
            changed = _alike(changed, notes)
        same = all(a is b for a, b in zip(tools, changed, strict=True))
        known = _Known(None if same else changed, aliases.tools, make_repeated(notes))
        _remember(_lists, key, known, "lists")
    return known


def _alike(tools: tuple[AnyTool, ...], notes: Notes) -> tuple[AnyTool, ...]:
    """If only some tools are strict, none stays strict: "Tools with mixed values for 'strict' are not allowed"."""
    values = {tool.strict or False for tool in tools if isinstance(tool, Tool)}
    if len(values) < 2:
        return tools
    for i, tool in enumerate(tools):
        if isinstance(tool, Tool) and tool.strict:
            notes.altered((((ROOT, "tools"), i), "strict"), "all tools must be strict here, or none")
    return tuple(replace(tool, strict=False) if isinstance(tool, Tool) else tool for tool in tools)


def adapt_tool(tool: Tool, profile: Profile, at: At, notes: Notes, aliases: Aliases) -> Tool:
    strict, parameters = tool.strict, tool.parameters
    if "~parameters" in tool.extras.get("gemini", ()) and profile.dialect == "gemini":
        return tool  # in Gemini's own language already
    if strict and not profile.strict_schema:
        notes.dropped((at, "strict"), f"{profile.dialect} promises no strict calls")
        strict = None
    adapted = None
    if strict and profile.strict_schema:
        adapted = adapt_schema(parameters, profile.strict_schema)
        if not adapted.strict:
            # "never make optional fields required; else send strict: false" (FIELD-CASES 64)
            notes.altered((at, "strict"), "this schema cannot keep it: strict is off")
            strict, adapted = False, None
    if adapted is None:
        room = aliases.written_out < MOST_WRITTEN_OUT
        adapted = adapt_schema(parameters, profile.schema, write_out=room)
    aliases.written_out += adapted.written_out
    if adapted.names:
        aliases.tools[tool.name] = adapted.names
    if adapted.schema == parameters and strict == tool.strict:
        return tool
    _note_lost(adapted, parameters, (at, "parameters"), notes)
    return replace(tool, parameters=adapted.schema, strict=strict)


def _adapt_output(output: OutputFormat, profile: Profile, notes: Notes, aliases: Aliases) -> OutputFormat:
    language = profile.output_schema or profile.schema
    strict = output.strict
    if strict and profile.strict_schema and profile.output_schema is None:
        if adapt_schema(output.schema, profile.strict_schema, "output").strict:
            language = profile.strict_schema
        else:
            notes.altered(((ROOT, "output"), "strict"), "this schema cannot keep it: strict is off")
            strict = False
    adapted = adapt_schema(output.schema, language, "output")
    aliases.answer = adapted.names
    if adapted.schema == output.schema and strict == output.strict:
        return output
    _note_lost(adapted, output.schema, ((ROOT, "output"), "schema"), notes)
    return replace(output, schema=copy_json(adapted.schema), strict=strict)  # the other is remembered


def _note_lost(adapted: Adapted, before: JsonObject | None, at: At, notes: Notes) -> None:
    if not adapted.lost and adapted.schema is not None and adapted.schema != before:
        if before is None:
            notes.invented(at, "a tool without parameters, as the target writes it")
        else:
            notes.altered(at, "written in the target's schema language")
        return
    for path, why, gone in adapted.lost:
        place = at
        for step in path:
            place = (place, step)
        if gone and _is_there(before, path):
            notes.dropped(place, why)
        else:
            notes.altered(place if _is_there(before, path) else at, why)
    if adapted.schema is None and before:
        notes.altered(at, "no parameters: the target wants them left out")


def _is_there(schema: Any, path: SchemaPath) -> bool:
    for step in path:
        if isinstance(schema, dict):
            schema = schema.get(step)
        elif isinstance(schema, list) and isinstance(step, int) and step < len(schema):
            schema = schema[step]
        else:
            return False
    return schema is not None
