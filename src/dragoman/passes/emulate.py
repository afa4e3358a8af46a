"""Features that a target lacks: emulated, left out, or refused. The profile's policy decides for each feature.

The answer to an emulated request must be changed back. `Undo` lists what to change; answers/undo.py does it.
"""

from msgspec import Struct
from msgspec.structs import replace

from dragoman.jsontypes import JsonObject, dump_text
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import AnyTool, CustomTool, OutputFormat, Request, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.contents import count_lead
from dragoman.passes.profile import Feature, Profile
from dragoman.passes.rename import NOTHING, Renames
from dragoman.passes.server_tools.mcp_servers import McpReturn, hand_on_servers
from dragoman.passes.server_tools.tools import tell_server_tools
from dragoman.passes.thinking import ask_for_call, is_thinking

JSON_TOOL = "dragoman_answer"  # reserved: its call is the answer
INPUT = "input"  # the one string of a freeform tool
WORD = "answer"  # holds an answer that is to be a bare word
BARE = "~bare"  # spelling of an output format: the answer is the word itself, no JSON
MOST_COPIES = 8  # of one request: each is paid for


class Expected(Struct, frozen=True, kw_only=True):
    """The JSON that the client expects as the answer."""

    schema: JsonObject | None = None  # None: any JSON
    loose: bool = False  # the model was asked in words: text around the JSON is no part of the answer


class Undo(Struct, frozen=True, kw_only=True):
    """The changes that the answer needs, because of what the passes changed in the request."""

    renames: Renames = NOTHING
    custom: frozenset[str] = frozenset()  # freeform tools, by the client's names
    json_tool: str | None = None  # the tool whose call is the answer
    expected: Expected | None = None  # an answer that the target does not hold to its form
    stops: tuple[str, ...] = ()  # sequences to cut at
    copies: int = 1  # how many times to ask
    word: bool = False  # the answer is JSON, and the client wants the word in it
    mcp: McpReturn | None = None  # calls of MCP servers come back in the words of the client

    def is_nothing(self) -> bool:
        """Whether the answer needs no change. `names.taken` does not count: answers/call_ids.py looks after ids."""
        renames = self.renames
        changed = renames.names or renames.properties or renames.answer or self.custom or self.json_tool
        return not (changed or self.expected or self.stops or self.mcp or self.word)

    def is_only_names(self) -> bool:
        """Whether only names have to be changed back, and no content."""
        if self.renames.properties or self.renames.answer:
            return False
        return not (self.custom or self.json_tool or self.expected or self.stops or self.word)


NOTHING_TO_UNDO = Undo()


def emulate(
    request: Request, profile: Profile, notes: Notes, *, freeform: bool = True, foreign: bool = True
) -> tuple[Request, Undo]:
    """`freeform`: there may be tools, calls and results in free text. `foreign`: tools that a server runs itself."""
    undo, lacks = NOTHING_TO_UNDO, profile.lacks
    if freeform and "custom_tools" in lacks:
        request, undo = _emulate_custom(request, profile, undo, notes)
    if foreign and "server_tools" in lacks:
        request, mcp = hand_on_servers(request, profile, notes)
        undo = undo if mcp is None else replace(undo, mcp=mcp)
        request = tell_server_tools(request, profile, notes)
    if request.output is not None and request.output.extras:
        request, undo = _wrap_word(request, request.output, profile, undo, notes)
    if lacks and request.output is not None and request.output.type != "text":
        request, undo = _emulate_output(request, request.output, profile, undo, notes)
    choice = request.tool_choice
    if "tool_choice" in lacks and choice is not None:
        request = _emulate_choice(request, choice, profile, notes)
    elif lacks and choice is not None and ("named_choice" in lacks or _names_some(choice, profile)):
        request = _emulate_names(request, choice, profile, notes)
    if "parallel_off" in lacks and request.parallel_calls is False:
        request = _leave_out(request, "parallel_calls", "parallel_off", profile, notes)
    elif "parallel_off" in lacks and request.parallel_calls:
        request = replace(request, parallel_calls=None)  # parallel calls are the default of every target
    if "choices" in lacks and request.choices is not None:
        request, undo = _emulate_choices(request, request.choices, profile, undo, notes)
    if "stop" in lacks and request.stop is not None:
        request, undo = _emulate_stop(request, request.stop, profile, undo, notes)
    if request.stop is not None:
        undo = _cut_untaken_stops(request.stop, profile, undo)
    return request, undo


def _refuse(feature: Feature, profile: Profile, field: str, notes: Notes) -> None:
    if profile.policy_of(feature) == "refuse":
        raise notes.refuse((ROOT, field), f"{profile.kind or profile.dialect} has no {feature}")


def _leave_out(request: Request, field: str, feature: Feature, profile: Profile, notes: Notes) -> Request:
    _refuse(feature, profile, field, notes)
    notes.dropped((ROOT, field), f"{profile.kind or profile.dialect} has no setting for it")
    return replace(request, **{field: None})


# ---------------------------------------------------------------- freeform tools (FIELD-CASES 39)


def _emulate_custom(request: Request, profile: Profile, undo: Undo, notes: Notes) -> tuple[Request, Undo]:
    tools = request.tools or ()
    custom = frozenset([tool.name for tool in tools if type(tool) is CustomTool])
    if custom:
        _refuse("custom_tools", profile, "tools", notes)
    changed: list[AnyTool] = []
    for i, tool in enumerate(tools):
        at: At = ((ROOT, "tools"), i)
        if not isinstance(tool, CustomTool):
            changed.append(tool)
        elif profile.policy_of("custom_tools") == "drop":
            notes.dropped(at, f"{profile.kind or profile.dialect} has no freeform tools")
        else:
            notes.altered(at, f"a function with one string, {INPUT}")
            changed.append(_as_function(tool))
    messages = tuple(_plain_calls(m, i, notes) for i, m in enumerate(request.messages))
    request = replace(request, tools=tuple(changed) if request.tools is not None else None, messages=messages)
    return request, replace(undo, custom=custom)


def _as_function(tool: CustomTool) -> Tool:
    description = tool.description or ""
    if tool.grammar is not None:
        description += f"\n\nThe input must match this {tool.syntax or 'grammar'} grammar:\n{tool.grammar}"
    schema: JsonObject = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
    return Tool(name=tool.name, description=description.strip() or None, parameters=schema, extras=tool.extras)


def _plain_calls(message: Message, i: int, notes: Notes) -> Message:
    parts: list[Part] = list(message.parts)
    for j, part in enumerate(parts):
        at: At = (((((ROOT, "messages"), i), "parts"), j), "freeform")
        if isinstance(part, ToolCall) and part.freeform:
            parts[j] = replace(part, freeform=False, arguments=dump_text({INPUT: part.arguments}))
            notes.altered(at, f"a function with one string, {INPUT}")
        elif isinstance(part, ToolResult) and part.freeform:
            parts[j] = replace(part, freeform=False)
            notes.altered(at, "a function's result")
    same = all(a is b for a, b in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=tuple(parts))


# ---------------------------------------------------------------- JSON answers (FIELD-CASES 71)


def _emulate_output(
    request: Request, output: OutputFormat, profile: Profile, undo: Undo, notes: Notes
) -> tuple[Request, Undo]:
    feature: Feature = "json_schema" if output.type == "json_schema" else "json"
    alone = _refused_beside(request, profile)
    if feature not in profile.lacks and alone is None:
        return _say_json(request, output, profile, notes), undo
    if profile.policy_of(feature) == "drop":
        return _leave_out(request, "output", feature, profile, notes), undo
    _refuse(feature, profile, "output", notes)
    if alone is None and _is_object(output.schema) and "json" in profile.lacks and _can_force(request, profile):
        notes.altered((ROOT, "output"), f"the arguments of a forced call, {JSON_TOOL}, are the answer")
        tool = Tool(name=JSON_TOOL, description=output.description or "Give the answer.", parameters=output.schema)
        forced = ToolChoice(mode="required", names=(JSON_TOOL,))
        undo = replace(undo, json_tool=JSON_TOOL, expected=Expected(schema=output.schema, loose=True))
        return replace(request, output=None, tools=(tool,), tool_choice=forced), undo
    notes.altered((ROOT, "output"), "asked for in words" + (f": it is refused beside {alone}" if alone else ""))
    kept = OutputFormat(type="json") if "json" not in profile.lacks and alone in (None, "a stream") else None
    undo = replace(undo, expected=Expected(schema=output.schema, loose=kept is None))
    return replace(_instruct(request, _ask_for_json(output)), output=kept), undo


def _wrap_word(
    request: Request, output: OutputFormat, profile: Profile, undo: Undo, notes: Notes
) -> tuple[Request, Undo]:
    """Gemini's `text/x.enum` answers with one bare word of a list. Other targets answer with JSON, and OpenAI demands
    an object. So the word is asked for as the one property of an object."""
    if profile.dialect in output.extras or not any(BARE in own for own in output.extras.values()):
        return request, undo
    notes.altered((ROOT, "output"), f"one of several words is asked for as JSON, under {WORD}")
    schema: JsonObject = {"type": "object", "properties": {WORD: output.schema}, "required": [WORD]}
    asked = OutputFormat(type="json_schema", schema={**schema, "additionalProperties": False})
    return replace(request, output=asked), replace(undo, word=True)


def _refused_beside(request: Request, profile: Profile) -> str | None:
    """The feature of this request beside which the target refuses `response_format`; None if there is none."""
    refused, choice = profile.json_not_with, request.tool_choice
    if "tools" in refused and request.tools:
        return "tools"
    if "forced" in refused and request.tools and choice is not None and choice.mode == "required":
        return "a forced call"
    is_schema = request.output is not None and request.output.type == "json_schema"
    return "a stream" if "stream" in refused and request.stream and is_schema else None


def _say_json(request: Request, output: OutputFormat, profile: Profile, notes: Notes) -> Request:
    """Adds the word JSON to the system text where the target demands it: "'messages' must contain the word 'json' in
    some form, to use 'response_format' of type 'json_object'"."""
    if output.type != "json" or not profile.json_word or _says_json(request):
        return request
    notes.invented((ROOT, "messages"), "a line with the word JSON, which the target demands for JSON answers")
    return _instruct(request, _ask_for_json(output))


def _says_json(request: Request) -> bool:
    return any(
        isinstance(part, Text) and "json" in part.text.lower() for turn in request.messages for part in turn.parts
    )


def _can_force(request: Request, profile: Profile) -> bool:
    """Whether the request may force a call: "forced only if the caller gave no tool_choice and no thinking"
    (FIELD-CASES 71), and only at a target that can force one."""
    if profile.forced_choice == "no" or not {"tool_choice", "named_choice", "forced_choice"}.isdisjoint(profile.lacks):
        return False
    return request.tools is None and request.tool_choice is None and not is_thinking(request, profile)


def _is_object(schema: JsonObject | None) -> bool:
    """Whether an answer can be the arguments of a call."""
    return schema is not None and (schema.get("type") == "object" or "properties" in schema)


def _ask_for_json(output: OutputFormat) -> str:
    if output.schema is None:
        return "Answer with one JSON value and nothing else."
    return f"Answer with JSON and nothing else. It must match this JSON Schema:\n{dump_text(output.schema)}"


def _instruct(request: Request, text: str) -> Request:
    """Adds an instruction at the end of the system text. It is the same in every turn, so prompt caches survive."""
    lead = count_lead(request.messages)
    turn = Message(role="system", parts=(Text(text=text),))
    return replace(request, messages=(*request.messages[:lead], turn, *request.messages[lead:]))


# ---------------------------------------------------------------- the rest


def _emulate_choice(request: Request, choice: ToolChoice, profile: Profile, notes: Notes) -> Request:
    """For a target without `tool_choice`. For the choice "none" the tools are left out. For a forced call the model is
    asked in words, and gets only the tools that it may choose."""
    _refuse("tool_choice", profile, "tool_choice", notes)
    at: At = (ROOT, "tool_choice")
    drop = profile.policy_of("tool_choice") == "drop"
    if drop or (choice.mode == "auto" and choice.names is None):
        if choice.mode != "auto":
            notes.dropped(at, f"{profile.kind or profile.dialect} has no tool choice")
        return replace(request, tool_choice=None)
    if choice.mode == "none":
        notes.altered(at, "said by sending no tools")
        return replace(request, tool_choice=None, tools=None)
    if choice.mode == "required":
        return replace(ask_for_call(request, choice, profile, notes), tool_choice=None)
    notes.altered(at, "said by sending no other tools")
    tools = tuple(t for t in request.tools or () if getattr(t, "name", None) in (choice.names or ()))
    return replace(request, tool_choice=None, tools=tools or None)


def _names_some(choice: ToolChoice, profile: Profile) -> bool:
    """Whether the choice names some of several tools. Only OpenAI has a form for that (`allowed_tools`). Every target
    has a form for one tool that must be called."""
    if profile.allowed_tools or choice.names is None:
        return False
    return choice.mode != "required" or len(choice.names) > 1


def _emulate_names(request: Request, choice: ToolChoice, profile: Profile, notes: Notes) -> Request:
    """For a target whose choice is one word: the tools that may not be called are left out."""
    if choice.names is None:
        return request
    _refuse("named_choice", profile, "tool_choice", notes)
    if profile.policy_of("named_choice") == "drop":
        notes.dropped(((ROOT, "tool_choice"), "names"), f"{profile.kind or profile.dialect} cannot force one tool")
        return replace(request, tool_choice=replace(choice, names=None))
    notes.altered(((ROOT, "tool_choice"), "names"), "said by sending no other tools")
    tools = tuple(t for t in request.tools or () if getattr(t, "name", None) in choice.names)
    return replace(request, tool_choice=replace(choice, names=None), tools=tools or request.tools)


def _emulate_choices(
    request: Request, choices: int, profile: Profile, undo: Undo, notes: Notes
) -> tuple[Request, Undo]:
    if choices <= 1:
        return replace(request, choices=None), undo
    if profile.policy_of("choices") != "emulate":
        return _leave_out(request, "choices", "choices", profile, notes), undo
    copies = min(choices, MOST_COPIES)
    words = f"asked {copies} times, not {choices}: that is the limit" if copies < choices else f"asked {copies} times"
    notes.altered((ROOT, "choices"), words)
    return replace(request, choices=None), replace(undo, copies=copies)


def split_choices(request: Request, profile: Profile, notes: Notes) -> tuple[Request, int]:
    """For a target that gives one answer: the request for one answer, and how often to send it."""
    wanted = request.choices
    if wanted is None or wanted <= 1 or "choices" not in profile.lacks or profile.policy_of("choices") != "emulate":
        return request, 1
    request, undo = _emulate_choices(request, wanted, profile, Undo(), notes)
    return request, undo.copies


def _emulate_stop(
    request: Request, stop: tuple[str, ...], profile: Profile, undo: Undo, notes: Notes
) -> tuple[Request, Undo]:
    sequences = tuple(sequence for sequence in stop if sequence)
    if not sequences:
        return replace(request, stop=None), undo
    if profile.policy_of("stop") != "emulate":
        return _leave_out(request, "stop", "stop", profile, notes), undo
    notes.altered((ROOT, "stop"), "dragoman cuts the answer there: the rest is still generated and paid for")
    return replace(request, stop=None), replace(undo, stops=sequences)


def _cut_untaken_stops(stop: tuple[str, ...], profile: Profile, undo: Undo) -> Undo:
    """We cut the answer ourselves at the stop sequences that the target does not take: blank ones, and those over its
    limit. parameters.py sends the others."""
    taken = [sequence for sequence in stop if profile.blank_stops or sequence.strip()]
    sent = set(taken if profile.stops is None else taken[: profile.stops])
    rest = tuple(sequence for sequence in stop if sequence and sequence not in sent)
    return replace(undo, stops=rest) if rest and profile.policy_of("stop") == "emulate" else undo
