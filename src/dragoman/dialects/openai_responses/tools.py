"""OpenAI Responses: tools and the choice among them, both ways."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from dragoman.dialects._tools import encode_any_tool, encode_each_tool
from dragoman.dialects.openai_responses.words import MODES, NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    OMIT,
    add_extras,
    leftovers,
    listed,
    note_omitted,
    note_spelling,
    spelled,
    take_flag_or_none,
    take_text,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Message, Opaque, Part, ToolCall, ToolResult
from dragoman.model.request import AnyTool, CustomTool, Request, ServerTool, Tool, ToolChoice
from dragoman.note_places import Place
from dragoman.notes import ROOT, At, Notes

ADDED = "additional_tools"  # an input item that has tools
GROUP = "namespace"  # a tool that has tools

# ---------------------------------------------------------------- decode


def decode_tool(tool: JsonObject) -> AnyTool:
    kind = tool.get("type")
    if type(tool.get("name")) is str:
        if kind == "function":
            return _decode_function(tool)
        if kind == "custom" and _is_known_format(tool.get("format")):
            return _decode_custom(tool)
    return ServerTool(dialect=NAME, body=tool)


def _decode_function(tool: JsonObject) -> Tool:
    if len(tool) == 5:  # fast path: responses tool
        description, parameters, strict = tool.get("description"), tool.get("parameters"), tool.get("strict")
        if type(description) is str and type(parameters) is dict and parameters and type(strict) is bool:
            return Tool(name=tool["name"], description=description, parameters=parameters, strict=strict)
    del tool["type"]
    note_omitted(tool, tool, "parameters", "strict")
    if tool.get("parameters") == {}:
        note_spelling(tool, "parameters", "empty")
    return Tool(
        name=take_text(tool, "name"),
        description=take_text_or_none(tool, "description"),
        parameters=tool.pop("parameters") if type(tool.get("parameters")) is dict else None,
        strict=take_flag_or_none(tool, "strict"),
        extras=leftovers(tool, NAME),
    )


def _is_known_format(given: object) -> bool:
    if given is None:
        return True
    if type(given) is not dict:
        return False
    if given.get("type") == "text":
        return len(given) == 1
    known = set(given) <= {"type", "syntax", "definition"} and all(type(value) is str for value in given.values())
    return known and given.get("type") == "grammar"


def _decode_custom(tool: JsonObject) -> CustomTool:
    del tool["type"]
    given = tool.pop("format") if tool.get("format") is not None else None
    if given == {"type": "text"}:
        note_spelling(tool, "format", "text")
    grammar = given or {}
    return CustomTool(
        name=take_text(tool, "name"),
        description=take_text_or_none(tool, "description"),
        syntax=grammar.get("syntax"),
        grammar=grammar.get("definition"),
        extras=leftovers(tool, NAME),
    )


def lift_tools(tools: tuple[AnyTool, ...], messages: tuple[Message, ...]) -> tuple[AnyTool, ...]:
    """The functions and custom tools in namespaces and in the input. Codex with the newest models sends all its tools
    in namespaces in the input.

    The originals stay in place, so these copies have a mark and Responses does not write them twice. Other dialects
    have only the request's list of tools, so they need the copies.
    """
    lifted: list[AnyTool] = []
    for number, tool in enumerate(tools):
        if isinstance(tool, ServerTool) and tool.body.get("type") == GROUP:
            try:
                lifted += _lift(tool.body, GROUP)
            except DecodeError as error:
                raise error.under("tools", number) from None
    for body in _added(messages):
        try:
            lifted += _lift(body, ADDED)
        except DecodeError as error:  # which of the items it is was forgotten when they became turns
            raise DecodeError(f"{error.what} in {error.where} of the item {ADDED}", "input") from None
    return tuple(lifted)


def has_other_tools(request: Request) -> bool:
    """Whether some of the tools are copies of those in namespaces and in the input."""
    return any(
        "~place" in tool.extras.get(NAME, ()) for tool in request.tools or () if not isinstance(tool, ServerTool)
    )


def _lift(body: JsonObject, place: str, space: str | None = None) -> list[AnyTool]:
    given = body.get("tools")
    if body.get("type") == GROUP:
        space = body["name"] if type(body.get("name")) is str else None
    lifted: list[AnyTool] = []
    for number, item in enumerate(given if type(given) is list else ()):
        if type(item) is not dict:
            continue
        try:
            if item.get("type") == GROUP:
                lifted += _lift(item, place)
                continue
            tool = decode_tool(copy_json(item))
        except DecodeError as error:
            raise error.under("tools", number) from None
        if isinstance(tool, Tool | CustomTool):
            own: JsonObject = {**tool.extras.get(NAME, {}), "~place": place}
            name = tool.name
            if space is not None:
                own[SPACE], name = space, flat_name(space, name)
            lifted.append(replace(tool, name=name, extras={NAME: own}))
    return lifted


def find_brought(request: Request, number: int) -> tuple[Place, Place] | None:
    """What brings the tool with this number, as a place in the request, and where the tool is in it. None for a tool
    that stands in the list itself."""
    tools = request.tools or ()
    if not _is_brought(tools[number]):
        return None
    groups = [(("tools", i), t.body) for i, t in enumerate(tools) if isinstance(t, ServerTool) and _is_group(t.body)]
    items = [
        (("messages", i, "parts", j), part.body)
        for i, message in enumerate(request.messages)
        for j, part in enumerate(message.parts)
        if isinstance(part, Opaque) and part.dialect == NAME and part.body.get("type") == ADDED
    ]
    places = [(holder, inside) for holder, body in (*groups, *items) for inside in _lifted_from(body)]
    before = sum(_is_brought(tool) for tool in tools[:number])
    return places[before] if before < len(places) else None


def _is_brought(tool: AnyTool) -> bool:
    return not isinstance(tool, ServerTool) and spelled(tool.extras, NAME, "~place") is not None


def _is_group(body: JsonObject) -> bool:
    return body.get("type") == GROUP


def _lifted_from(body: JsonObject) -> Iterator[Place]:
    """The places of the tools that `_lift` takes out of a body, in its order."""
    given = body.get("tools")
    for i, item in enumerate(given if type(given) is list else ()):
        if type(item) is dict and _is_group(item):
            yield from (("tools", i, *inside) for inside in _lifted_from(item))
        elif type(item) is dict and isinstance(decode_tool(copy_json(item)), Tool | CustomTool):
            yield ("tools", i)


def _added(messages: tuple[Message, ...]) -> list[JsonObject]:
    return [
        part.body
        for message in messages
        for part in message.parts
        if isinstance(part, Opaque) and part.dialect == NAME and part.body.get("type") == ADDED
    ]


def take_tool_choice(body: JsonObject) -> ToolChoice | None:
    choice = body.get("tool_choice")
    if type(choice) is str and choice in MODES:
        del body["tool_choice"]
        return ToolChoice(mode=MODES[choice])
    decoded = _decode_choice(choice) if type(choice) is dict else None
    if decoded is not None:  # else null or an unknown word, which stays an extra
        del body["tool_choice"]
    return decoded


def _decode_choice(choice: JsonObject) -> ToolChoice | None:
    match choice.get("type"):
        case "function" | "custom" as kind if type(choice.get("name")) is str:
            del choice["type"]
            if kind == "custom":
                note_spelling(choice, "type", kind)
            return ToolChoice(mode="required", names=(choice.pop("name"),), extras=leftovers(choice, NAME))
        case "allowed_tools":
            mode = choice.get("mode")
            if type(mode) is not str or mode not in MODES:
                return None
            del choice["mode"]
            names = _names_of(choice.get("tools"))
            if names is not None:
                del choice["type"]
                note_spelling(choice, "kinds", [tool["type"] for tool in choice.pop("tools")])
            return ToolChoice(mode=MODES[mode], names=names, extras=leftovers(choice, NAME))
        case str():  # a tool that the server runs: it has no name in our tools
            return ToolChoice(mode="required", extras=leftovers(choice, NAME))
        case _:
            return None


def _names_of(tools: object) -> tuple[str, ...] | None:
    """The names, if all allowed tools are functions and custom tools. Else None."""
    if type(tools) is not list:
        return None
    names = []
    for tool in tools:
        if type(tool) is not dict or tool.get("type") not in ("function", "custom") or set(tool) != {"type", "name"}:
            return None
        if type(tool["name"]) is not str:
            return None
        names.append(tool["name"])
    return tuple(names)


# ---------------------------------------------------------------- encode


def encode_tools(request: Request, notes: Notes, *, repeated: bool = False) -> list[JsonObject] | None:
    """The tools of the request, without the copies of tools that its items have. None if no list is to be written.
    `repeated`: for a response to it."""
    tools, encode = request.tools, repeat_tool if repeated else encode_tool
    if tools is None:
        return None
    if all(type(tool) is Tool and not tool.extras for tool in tools):  # fast path: responses functions
        return encode_each_tool(tools, encode, notes)
    at: At = (ROOT, "tools")
    brought = _bringers(request)
    encoded: list[JsonObject] = []
    written = 0
    for i, tool in enumerate(tools):
        place = spelled(tool.extras, NAME, "~place") if not isinstance(tool, ServerTool) else None
        if type(place) is str and place in brought:
            continue
        written += 1
        body = encode(tool, (at, i), notes)
        if body is not None:
            encoded.append(body)
    if not written and tools and spelled(request.extras, NAME, "~tools") is None:
        return None
    return encoded


def _bringers(request: Request) -> set[str]:
    """The kinds of places in a request that have tools of their own."""
    found = {ADDED} if _added(request.messages) else set()
    groups = (t for t in request.tools or () if isinstance(t, ServerTool) and t.dialect == NAME)
    if any(tool.body.get("type") == GROUP for tool in groups):
        found.add(GROUP)
    return found


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    return encode_any_tool(tool, NAME, _encode_function, _encode_freeform, at, notes)


def repeat_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    """A tool in a response: a function has every key that the schema of a response demands."""
    body = encode_tool(tool, at, notes)
    if body is None or body.get("type") != "function":
        return body
    return {"strict": None, "parameters": None, **body}


def _encode_function(tool: Tool, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"type": "function", "name": tool.name}
    own = tool.extras.get(NAME, {})
    omitted = listed(own, OMIT)
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters or "~parameters" in own:
        body["parameters"] = tool.parameters
    elif "parameters" not in own and "parameters" not in omitted:
        body["parameters"] = {"type": "object", "properties": {}}  # required, and never {} (mission B5)
        notes.invented((at, "parameters"), "responses demands a schema")
    if tool.strict is not None:
        body["strict"] = tool.strict
    elif "strict" not in own and "strict" not in omitted:
        # Without this key the server would try strict. In other dialects the default is not strict (crosswalk).
        body["strict"] = False
    if tool.cache is not None:
        notes.dropped((at, "cache"), "responses has no cache marks on tools")
    if tool.extras:
        add_extras(body, tool.extras, NAME, at, notes)
    return body


def _encode_freeform(tool: CustomTool, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"type": "custom", "name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.grammar is not None or tool.syntax is not None:
        body["format"] = {"type": "grammar"}
        if tool.syntax is not None:
            body["format"]["syntax"] = tool.syntax
        if tool.grammar is not None:
            body["format"]["definition"] = tool.grammar
    elif spelled(tool.extras, NAME, "~format") == "text":
        body["format"] = {"type": "text"}
    if tool.extras:
        add_extras(body, tool.extras, NAME, at, notes)
    return body


def encode_tool_choice(request: Request, notes: Notes) -> str | JsonObject | None:
    choice = request.tool_choice
    if choice is None:
        return None
    at: At = (ROOT, "tool_choice")
    own = choice.extras.get(NAME, {})
    body: JsonObject = {}
    if "type" in own:  # a tool that the server runs, or a list with such a tool
        if own["type"] == "allowed_tools":
            body["mode"] = choice.mode
    elif choice.names is None or choice.mode == "none":
        if choice.names is not None:
            notes.dropped((at, "names"), "responses names no tools where none may be called")
        add_extras({}, choice.extras, NAME, at, notes)
        return choice.mode
    else:
        kinds = own.get("~kinds") or [_kind_of(name, request) for name in choice.names]
        if choice.mode == "required" and len(choice.names) == 1 and "~kinds" not in own:
            body = {"type": own.get("~type") or kinds[0], "name": choice.names[0]}
        else:
            tools = [{"type": kind, "name": name} for kind, name in zip(kinds, choice.names, strict=False)]
            body = {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    add_extras(body, choice.extras, NAME, at, notes)
    return body


def _kind_of(name: str, request: Request) -> str:
    custom = any(isinstance(tool, CustomTool) and tool.name == name for tool in request.tools or ())
    return "custom" if custom else "function"


# ---------------------------------------------------------------- namespaces
#
# Codex groups its tools, for example a tool `sleep` in the namespace `clock`. A call names both. Other dialects have no
# namespaces: there the tool is called `clock__sleep`. We split the name of a call again on the way back.

JOINT = "__"
SPACE = "~namespace"


def flat_name(space: str, name: str) -> str:
    """The name of a namespace's tool in other dialects. A function that was loaded late is its own namespace."""
    return name if space == name else f"{space}{JOINT}{name}"


def flatten_name(item: JsonObject) -> None:
    """Join an item's namespace and name into one name, and keep the namespace as spelling. A null stays an extra."""
    space, name = item.get("namespace"), item.get("name")
    if type(space) is str and type(name) is str:
        del item["namespace"]
        item["name"], item[SPACE] = flat_name(space, name), space


def write_name(item: JsonObject, part: ToolCall | ToolResult) -> None:
    """Write the name of a call or a result, with its namespace."""
    name, space = part.name or "", spelled(part.extras, NAME, SPACE)
    if type(space) is str and (name == space or name.startswith(space + JOINT)):
        item["namespace"] = space
        name = name if name == space else name[len(space) + len(JOINT) :]
    item["name"] = name


def find_spaces(request: Request | None) -> dict[str, str]:
    """The namespaces of a request's tools, by the name of the tool."""
    if request is None:
        return {}
    return {
        tool.name: space
        for tool in request.tools or ()
        if not isinstance(tool, ServerTool) and type(space := spelled(tool.extras, NAME, SPACE)) is str
    }


def put_in_space(part: Part, spaces: Mapping[str, str]) -> Part:
    """Give a call of any upstream the namespace of the client's own tool."""
    if not isinstance(part, ToolCall) or part.name not in spaces:
        return part
    own = part.extras.get(NAME, {})
    if SPACE in own or "namespace" in own:
        return part
    return replace(part, extras={**part.extras, NAME: {**own, SPACE: spaces[part.name]}})
