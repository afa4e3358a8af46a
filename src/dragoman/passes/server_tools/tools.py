"""Tools that another provider would run itself.

If the target has the same tool, it is written in the target's form. If the client runs it, it becomes a function. Every
other tool is left out: an empty function would be one that no client can run (FIELD-CASES 70). Of the tools that
providers run, only the web search exists at several (crosswalk, "Server tools": map it by name, with domains and
location where both have them).
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject
from dragoman.model.request import AnyTool, Request, ServerTool, Tool
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile, SearchTool
from dragoman.passes.server_tools.mcp_servers import lists_servers

CHAT = "openai_chat"
SEARCH_OPTIONS = "web_search_options"
SIZE = "search_context_size"


class WebSearch(Struct, frozen=True, kw_only=True):
    """The settings of a provider's web search that several providers have."""

    only: list[Any] | None = None  # domains
    never: list[Any] | None = None
    place: JsonObject | None = None  # Anthropic and Responses say it alike
    size: str | None = None  # how much of the results the model reads; OpenAI's word
    other: tuple[str, ...] = ()  # keys that only its own provider knows


def has_foreign(request: Request) -> bool:
    """Whether a request may contain a tool that only its own provider runs."""
    own = request.extras.get(CHAT)
    return (own is not None and SEARCH_OPTIONS in own) or lists_servers(request)


def tell_server_tools(request: Request, profile: Profile, notes: Notes) -> Request:
    if profile.dialect != CHAT:
        request = _tell_chat_search(request, profile, notes)
    if profile.searches == "alone" and not profile.native:
        request = _drop_own_searches(request, profile, notes)
    if profile.search_tool is not None and profile.search_tool.most_domains is not None:
        request = _cut_own_domains(request, profile, profile.search_tool, notes)
    foreign = [tool for tool in request.tools or () if _is_foreign(tool, profile)]
    if not foreign or request.tools is None:
        return request
    kept: list[AnyTool] = []
    gone: set[str] = set()  # names that can no longer be chosen
    for i, tool in enumerate(request.tools):
        if not isinstance(tool, ServerTool) or not _is_foreign(tool, profile):
            kept.append(tool)
            continue
        known = _tell(tool, i, request, profile, notes)
        if known is not None:
            kept.append(known)
        if known is None or isinstance(known, ServerTool):
            gone.add(str(tool.body.get("name")))
    return _choose_among(replace(request, tools=tuple(kept) or None), gone, notes)


def _drop_own_searches(request: Request, profile: Profile, notes: Notes) -> Request:
    """A search that we asked for beside functions, before a refusal taught that both are too much."""
    tools = request.tools or ()
    mixed = any(not isinstance(tool, ServerTool) for tool in tools)
    found = [isinstance(t, ServerTool) and t.dialect == profile.dialect and read_search(t) is not None for t in tools]
    if not mixed or not any(found):
        return request
    for i, searches in enumerate(found):
        if searches:
            notes.dropped(((ROOT, "tools"), i), f"{profile.kind} refuses a web search beside functions")
    return replace(request, tools=tuple(tool for tool, gone in zip(tools, found, strict=True) if not gone))


def _is_foreign(tool: AnyTool, profile: Profile) -> bool:
    """Whether a tool belongs to another dialect, or to another server of the same one (`openrouter:web_search`)."""
    if type(tool) is not ServerTool:
        return False
    maker, colon, _ = str(tool.body.get("type")).partition(":")
    return tool.dialect != profile.dialect or (colon == ":" and maker != profile.kind)


def _tell_chat_search(request: Request, profile: Profile, notes: Notes) -> Request:
    """Chat asks for a web search by an option beside the tools."""
    own = request.extras.get(CHAT, {})
    options = own.get(SEARCH_OPTIONS)
    form = _find_form(request, profile)
    if type(options) is not dict or form is None:
        return request
    place = options.get("user_location")
    inside = place.get("approximate") if isinstance(place, dict) else None
    search = WebSearch(
        place={"type": "approximate", **inside} if isinstance(inside, dict) else None,
        size=_size(options),
        other=_others(options, ("user_location", SIZE)),
    )
    at: At = (((ROOT, "extras"), CHAT), SEARCH_OPTIONS)
    notes.altered(at, f"the web search of {profile.kind or profile.dialect} in its place")
    tool = write_search(search, profile, form, at, notes)
    rest = {key: value for key, value in own.items() if key != SEARCH_OPTIONS}
    return replace(request, tools=(*(request.tools or ()), tool), extras={**request.extras, CHAT: rest})


def _tell(tool: ServerTool, i: int, request: Request, profile: Profile, notes: Notes) -> AnyTool | None:
    at: At = ((ROOT, "tools"), i)
    function = read_client_tool(tool)
    if function is not None:
        notes.altered(at, f"{tool.dialect}'s own tool, sent as a function")
        return function
    search, form = read_search(tool), _find_form(request, profile)
    if search is not None and form is not None:
        notes.altered(at, f"the web search of {profile.kind or profile.dialect} in its place")
        return write_search(search, profile, form, (at, "body"), notes)
    if is_tool_group(tool.body):
        notes.altered(at, "a group of tools: each one is sent alone, with the group in its name")
        return None
    what = name_server_tool(tool.body)
    maker = tool.dialect if tool.dialect != profile.dialect else str(what).partition(":")[0]
    if profile.policy_of("server_tools") == "refuse":
        raise notes.refuse(at, f"{profile.kind or profile.dialect} has no {what}")
    notes.dropped(at, f"only {maker} runs the tool {what}")
    return None


def name_server_tool(body: dict[str, Any]) -> object:
    """The word for a server's own tool. Gemini's is the only key of its tool (`codeExecution`)."""
    return body.get("type") or body.get("name") or next((key for key in body if key[:1] != "~"), "")


def is_tool_group(body: dict[str, Any]) -> bool:
    """Whether this only holds tools that the request lists one by one too (`lift_tools` of openai_responses)."""
    inside = body.get("tools")
    if body.get("type") not in ("namespace", "additional_tools") or type(inside) is not list:
        return False
    return all(
        type(tool) is dict and (tool.get("type") in ("function", "custom") or is_tool_group(tool)) for tool in inside
    )


def _find_form(request: Request, profile: Profile) -> SearchTool | None:
    """How the target is asked to search the web; None if it may not be asked here."""
    if profile.searches == "alone":
        alone = all(isinstance(tool, ServerTool) for tool in request.tools or ())
        return profile.search_tool if alone else None
    return profile.search_tool if profile.searches == "yes" else None


def _choose_among(request: Request, gone: set[str], notes: Notes) -> Request:
    """Removes tools from the tool choice that were left out, or that the target does not know by name."""
    choice = request.tool_choice
    if choice is None or choice.names is None or gone.isdisjoint(choice.names):
        return request
    notes.altered((ROOT, "tool_choice"), "names a tool the target does not know by that name: left to the model")
    names = tuple(name for name in choice.names if name not in gone)
    choice = replace(choice, names=names) if names else replace(choice, mode="auto", names=None)
    return replace(request, tool_choice=choice)


# ---------------------------------------------------------------- web search


def read_search(tool: ServerTool) -> WebSearch | None:
    body = tool.body
    match tool.dialect:
        case "anthropic" if str(body.get("type")).startswith("web_search_"):
            return _search(body, body, ("type", "name"))
        case "openai_responses" if str(body.get("type")).startswith("web_search"):
            filters = body.get("filters")
            return _search(body, filters if isinstance(filters, dict) else {}, ("type", "filters"))
        case "gemini" if "googleSearch" in body:
            inner = body["googleSearch"] if isinstance(body["googleSearch"], dict) else {}
            return WebSearch(never=_domains(inner, "excludeDomains"), other=_others(inner, ("excludeDomains",)))
        case _:
            return None


def _search(body: JsonObject, filters: JsonObject, known: tuple[str, ...]) -> WebSearch:
    place = body.get("user_location")
    return WebSearch(
        only=_domains(filters, "allowed_domains"),
        never=_domains(filters, "blocked_domains"),
        place=place if isinstance(place, dict) else None,
        size=_size(body),
        other=_others(body, (*known, SIZE, "user_location", "allowed_domains", "blocked_domains")),
    )


def _size(body: JsonObject) -> str | None:
    size = body.get(SIZE)
    return size if isinstance(size, str) else None


def _domains(body: JsonObject, key: str) -> list[Any] | None:
    found = body.get(key)
    return found if isinstance(found, list) and found else None


def _others(body: JsonObject, known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key, value in body.items() if key not in known and value is not None)


def write_search(search: WebSearch, profile: Profile, form: SearchTool, at: At, notes: Notes) -> ServerTool:
    """The search as a tool of the target. Settings that it does not have are noted."""
    body: JsonObject = dict(form.head)
    lost = list(search.other)
    if search.size is not None and form.size:
        body[SIZE] = search.size
    elif search.size is not None:
        lost.append(SIZE)
    if search.place is not None and form.place:
        body["user_location"] = search.place
    if form.filters is None:
        lost += ["domains"] if search.only or search.never else []
    else:
        lost += _write_domains(body, search, form)
    if search.place and not form.place:
        lost.append("location")
    if lost:
        notes.dropped(at, f"the web search of {profile.dialect} has no settings for: {', '.join(lost)}")
    return ServerTool(dialect=profile.dialect, body=body)


def _cut_own_domains(request: Request, profile: Profile, form: SearchTool, notes: Notes) -> Request:
    """The same limit for a tool that the client wrote in the target's dialect itself."""
    tools = list(request.tools or ())
    for i, tool in enumerate(tools):
        search = read_search(tool) if isinstance(tool, ServerTool) and tool.dialect == profile.dialect else None
        if not isinstance(tool, ServerTool) or search is None or search.only is None or not form.filters:
            continue
        kept = search.only[: form.most_domains]
        if len(kept) < len(search.only):
            notes.altered((((ROOT, "tools"), i), "body"), f"{profile.kind} takes {form.most_domains} domains")
            filters = {**tool.body[form.filters], "allowed_domains": kept}
            tools[i] = replace(tool, body={**tool.body, form.filters: filters})
    same = all(a is b for a, b in zip(tools, request.tools or (), strict=True))
    return request if same else replace(request, tools=tuple(tools))


def _write_domains(body: JsonObject, search: WebSearch, form: SearchTool) -> list[str]:
    """Returns what cannot be written."""
    if search.only is not None:
        domains: JsonObject = {"allowed_domains": search.only[: form.most_domains]}
        body |= {form.filters: domains} if form.filters else domains
    over = len(search.only or ()) - (form.most_domains or len(search.only or ()))
    lost = [f"{over} more domains"] if over > 0 else []
    if search.never is None:
        return lost
    if not form.blocks or search.only is not None:  # "cannot be used alongside allowed_domains"
        return [*lost, "blocked_domains"]
    body["blocked_domains"] = search.never
    return lost


# ------------------------------------------------------- tools the client runs
# Tools with a schema by the vendor, and calls that the client runs. For other targets they become plain functions.
# Claude was trained on them, so Anthropic's wire has only their type. Another model needs their arguments too. The
# client runs the call as usual, because it has the same name and the same arguments. Arguments are those documented for
# bash_20250124 and text_editor_20250728 (read 2026-11-16), and those of the SDK's BetaMemoryTool20250818.


class ClientTool(Struct, frozen=True):
    name: str
    description: str
    parameters: JsonObject


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _object(properties: JsonObject, *required: str) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required)}


_EDITS: JsonObject = {
    "path": _text("The file or directory."),
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "view: the first and the last line, counted from 1; -1 is the end of the file.",
    },
    "file_text": _text("create: the content of the new file."),
    "old_str": _text("str_replace: the text to replace; it must stand in the file exactly once."),
    "new_str": _text("str_replace: the text to put in its place."),
    "insert_line": {"type": "integer", "description": "insert: the line to insert behind; 0 is the beginning."},
}


def _commands(*names: str) -> JsonObject:
    return {"type": "string", "enum": list(names)}


_BASH = ClientTool(
    name="bash",
    description="Run a command in a bash session that keeps its state between calls.",
    parameters=_object(
        {"command": _text("The command."), "restart": {"type": "boolean", "description": "Start the session anew."}}
    ),
)
_EDITOR = ClientTool(
    name="str_replace_based_edit_tool",
    description="View, create and edit text files.",
    parameters=_object(
        {
            "command": _commands("view", "create", "str_replace", "insert"),
            **_EDITS,
            "new_str": _text("str_replace: the text to put in its place; insert: the text to insert."),
        },
        "command",
        "path",
    ),
)
_MEMORY = ClientTool(
    name="memory",
    description="Notes in files under /memories: look there before you begin, write down what must not be forgotten.",
    parameters=_object(
        {
            "command": _commands("view", "create", "str_replace", "insert", "delete", "rename"),
            **_EDITS,
            "insert_text": _text("insert: the text to insert."),
            "old_path": _text("rename: the name it has."),
            "new_path": _text("rename: the name it gets."),
        },
        "command",
    ),
)

# By dialect and the type without its date: a new date changes a limit here and there, not the calls.
CLIENT_TOOLS: dict[tuple[str, str], ClientTool] = {
    ("anthropic", "bash"): _BASH,
    ("anthropic", "text_editor"): _EDITOR,
    ("anthropic", "memory"): _MEMORY,
}


def read_client_tool(tool: ServerTool) -> Tool | None:
    """The tool as a function. None if its provider runs it itself, or if we do not know its parameters."""
    kind = tool.body.get("type")
    known = CLIENT_TOOLS.get((tool.dialect, kind.rpartition("_")[0])) if isinstance(kind, str) else None
    if known is None:
        return None
    name = tool.body.get("name")
    return Tool(
        name=name if isinstance(name, str) else known.name,
        description=known.description,
        parameters=known.parameters,
    )
