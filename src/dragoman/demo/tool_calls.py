"""Which tools the demo model calls, and with which arguments."""

import re
import shlex
from collections.abc import Sequence

from dragoman.demo.patterns import sample_pattern
from dragoman.demo.prompt import (
    digest_request,
    find_hints,
    find_question,
    find_results,
    find_values,
    is_greeting,
    needs_no_tool,
)
from dragoman.demo.sampler import Hints, sample
from dragoman.jsontypes import Json, JsonObject, dump_text
from dragoman.model.messages import ToolCall
from dragoman.model.request import CustomTool, Request, Tool

_MAX_CALLS = 4

_SEVERAL = re.compile(r"\b(both|parallel|at once|simultaneously|each of)\b|동시에|둘 다|각각", re.I)
_STOP_WORDS = frozenset(
    re.split(" ", "a an the of to in for and or is are my me you it this that with use please get what how do")
)
_ASKS_TO_READ = re.compile(
    r"\b(?:read|open|show|print|summari[sz]e|look (?:at|into)|what(?:'s| is) in)\b|읽|보여", re.I
)
_READER_NAME = re.compile(r"(?:^|_)(?:read|open|cat|view)(?:_|$)", re.I)
_PATH_KEY = re.compile(r"^(?:absolute_?|file_?|target_?)*(?:path|file|filename|paths|files)$", re.I)
_COMMAND_KEYS = ("cmd", "command", "commands")
_PATCH_BEGIN = "*** Begin Patch"
_PATCH = f"{_PATCH_BEGIN}\n*** Add File: demo.txt\n+hello\n*** End Patch\n"
_SHELL_FUNCTION = "tools.exec_command("  # in the description of Codex's `exec` tool


def make_calls(request: Request, choice: int) -> list[ToolCall]:
    tool_choice = request.tool_choice
    mode = tool_choice.mode if tool_choice is not None else "auto"
    tools = [tool for tool in request.tools or () if isinstance(tool, Tool | CustomTool)]
    if tool_choice is not None and tool_choice.names is not None:
        tools = [tool for tool in tools if tool.name in tool_choice.names]
    if not tools or mode == "none":
        return []
    question = find_question(request)
    if mode == "auto" and (find_results(request) or not question or is_greeting(question)):
        return []
    named = _find_named_tools(tools, question)
    if mode == "auto" and not named and needs_no_tool(question):
        return []
    path = _find_path(question, find_values(question, tools))
    read_call = _make_read_call(named or tools, path) if path is not None else None
    if read_call is not None and len(named) < 2 and not _SEVERAL.search(question):
        tool, arguments = read_call
        return [_make_call(request, choice, 0, tool, arguments)]
    chosen = _choose_tools(tools, named, question)
    if request.parallel_calls is False:
        chosen = chosen[:1]
    hints = find_hints(question, tools)
    return [_make_call(request, choice, index, tool, _make_arguments(tool, hints)) for index, tool in enumerate(chosen)]


def _make_call(request: Request, choice: int, index: int, tool: Tool | CustomTool, arguments: str) -> ToolCall:
    call_id = f"call_{digest_request(request, choice, index)}"
    return ToolCall(id=call_id, name=tool.name, arguments=arguments, freeform=isinstance(tool, CustomTool))


def _find_named_tools(tools: Sequence[Tool | CustomTool], question: str) -> list[Tool | CustomTool]:
    """The tools that the question names, in its order."""
    positions = [_find_name(tool.name, question) for tool in tools]
    found = sorted((position, i) for i, position in enumerate(positions) if position is not None)
    return [tools[i] for _, i in found][:_MAX_CALLS]


def _find_name(name: str, question: str) -> int | None:
    """Where the question names a tool, as it is written or in plain words: get_weather, "get weather"."""
    spaced = re.sub(r"[_\-.]+|(?<=[a-z])(?=[A-Z])", " ", name)
    for spelling in (name, spaced):
        match = re.search(rf"(?<!\w){re.escape(spelling)}(?!\w)", question, re.I)
        if match:
            return match.start()
    return None


def _choose_tools(
    tools: Sequence[Tool | CustomTool], named: list[Tool | CustomTool], question: str
) -> list[Tool | CustomTool]:
    if len(named) > 1:
        return named
    words = _split_words(question)
    best = named[0] if named else max(tools, key=lambda tool: _count_shared_words(tool, words))
    if not _SEVERAL.search(question):
        return [best]
    values = find_values(question, tools)
    if len(values) > 1:
        return [best] * min(len(values), _MAX_CALLS)
    others = [tool for tool in tools if tool is not best]
    return [best, *(others or [best])[:1]]


def _count_shared_words(tool: Tool | CustomTool, words: set[str]) -> int:
    return 3 * len(_split_words(tool.name) & words) + len(_split_words(tool.description or "") & words)


def _split_words(text: str) -> set[str]:
    spaced = re.sub(r"[_\W]+|(?<=[a-z])(?=[A-Z])", " ", text)
    return {word.lower() for word in spaced.split()} - _STOP_WORDS


def _make_arguments(tool: Tool | CustomTool, hints: Hints) -> str:
    if isinstance(tool, Tool) and (patch := _make_patch_arguments(tool)) is not None:
        return patch
    if isinstance(tool, Tool):
        schema = tool.parameters or {}
        sampled = sample({**schema, "type": "object"} if "type" not in schema else schema, hints)
        return dump_text(sampled if type(sampled) is dict else {})
    if tool.syntax == "regex" and tool.grammar:
        return sample_pattern(tool.grammar)
    if _PATCH_BEGIN in (tool.grammar or ""):
        return _PATCH
    return hints.next_text() or "hello"


# -- reading a file
#
# Coding agents give a tool that reads (`Read`, `read_file`), or a shell (`{"cmd": "cat ..."}`), or a tool that runs
# code which can call a shell (Codex's `exec`). Only required arguments are filled in: made-up options would make the
# call fail.


def _find_path(question: str, values: Sequence[str]) -> str | None:
    """The path of the file that the question asks to read."""
    if not _ASKS_TO_READ.search(question):
        return None
    return next((value for value in values if re.search(r"^[~.]{0,2}/|\w\.\w{1,5}$", value) and " " not in value), None)


def _make_read_call(tools: Sequence[Tool | CustomTool], path: str) -> tuple[Tool | CustomTool, str] | None:
    """The tool that can read the file, and its arguments."""
    for make in (_make_reader_arguments, _make_shell_arguments, _make_code_arguments):
        for tool in tools:
            arguments = make(tool, path)
            if arguments is not None:
                return tool, arguments
    return None


def _make_reader_arguments(tool: Tool | CustomTool, path: str) -> str | None:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[-.]", "_", tool.name)
    if isinstance(tool, CustomTool) or not _READER_NAME.search(name) or "image" in name.lower():
        return None
    key = next((key for key in _get_properties(tool) if _PATH_KEY.match(key)), None)
    return _dump_arguments(tool, key, path, [path]) if key is not None else None


def _make_shell_arguments(tool: Tool | CustomTool, path: str) -> str | None:
    if isinstance(tool, CustomTool):
        return None
    key = next((key for key in _COMMAND_KEYS if key in _get_properties(tool)), None)
    return _dump_arguments(tool, key, f"cat {shlex.quote(path)}", ["cat", path]) if key is not None else None


def _make_code_arguments(tool: Tool | CustomTool, path: str) -> str | None:
    if _SHELL_FUNCTION not in (tool.description or ""):
        return None
    command = dump_text({"cmd": f"cat {shlex.quote(path)}"})
    code = f"const r = await tools.exec_command({command});\ntext(r.output);\n"
    if isinstance(tool, CustomTool):
        return code
    key = next((key for key, schema in _get_properties(tool).items() if _get_type(schema) == "string"), None)
    return _dump_arguments(tool, key, code, [code]) if key is not None else None


def _dump_arguments(tool: Tool, key: str, text: str, words: list[str]) -> str:
    """`key` with the text (or with the words, if it takes a list), and a sample for every other required argument."""
    properties = _get_properties(tool)
    required = (tool.parameters or {}).get("required")
    names = [name for name in (required if type(required) is list else []) if name in properties and name != key]
    others: JsonObject = {name: sample(properties[name]) for name in names}
    value: Json = [*words] if _get_type(properties[key]) == "array" else text
    return dump_text({key: value, **others})


def _make_patch_arguments(tool: Tool) -> str | None:
    """A patch as the one argument of a function whose description says that it takes patches."""
    if _PATCH_BEGIN not in (tool.description or ""):
        return None
    strings = [key for key, schema in _get_properties(tool).items() if _get_type(schema) == "string"]
    return dump_text({strings[0]: _PATCH}) if len(strings) == len(_get_properties(tool)) == 1 else None


def _get_properties(tool: Tool) -> JsonObject:
    found = (tool.parameters or {}).get("properties")
    return found if type(found) is dict else {}


def _get_type(schema: Json) -> Json:
    return schema.get("type") if isinstance(schema, dict) else None
