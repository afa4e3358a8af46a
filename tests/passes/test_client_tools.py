"""Tools a vendor defines and the client runs: elsewhere they are functions with the arguments the client expects."""

import pytest
from anthropic.types import beta

import dragoman
from dragoman.model.request import ServerTool
from dragoman.passes.server_tools.tools import CLIENT_TOOLS, read_client_tool

TARGETS = ("openai_chat", "openai_responses", "gemini", "ollama")
TYPES = {
    "bash_20250124": ("bash", {"command", "restart"}),
    "text_editor_20250124": (
        "str_replace_editor",
        {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"},
    ),
    "text_editor_20250728": (
        "str_replace_based_edit_tool",
        {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"},
    ),
    "memory_20250818": (
        "memory",
        {
            "command",
            "path",
            "view_range",
            "file_text",
            "old_str",
            "new_str",
            "insert_line",
            "insert_text",
            "old_path",
            "new_path",
        },
    ),
}


def ask(tool: dict[str, object]) -> dict[str, object]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [tool],
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", TYPES)
def test_a_tool_the_client_runs_is_a_function_elsewhere(kind: str, target: str) -> None:
    name, arguments = TYPES[kind]
    converted = dragoman.convert(ask({"type": kind, "name": name}), to=target)
    tools = dragoman.convert(converted.body, to="canonical", source=target).body["tools"]
    assert isinstance(tools, list)
    [tool] = tools
    assert isinstance(tool, dict)
    assert tool["name"] == name
    parameters = tool["parameters"]
    assert isinstance(parameters, dict)
    assert set(parameters["properties"]) == arguments
    assert [note.kind for note in converted.notes if note.where == "/tools/0"] == ["altered"]


@pytest.mark.parametrize("kind", ["web_search_20250305", "computer_toolset_20260801", "bash", "tool_search_tool_bm25"])
def test_a_tool_without_a_description_here_is_left_out(kind: str) -> None:
    assert read_client_tool(ServerTool(dialect="anthropic", body={"type": kind, "name": "x"})) is None


def test_at_home_the_type_is_all_that_is_said() -> None:
    asked = ask({"type": "bash_20250124", "name": "bash"})
    assert dragoman.convert(asked, to="anthropic").body["tools"] == [{"type": "bash_20250124", "name": "bash"}]


def test_the_memory_commands_are_those_of_the_sdk() -> None:
    classes = [getattr(beta, n) for n in dir(beta) if n.startswith("BetaMemoryTool20250818") and n.endswith("Command")]
    fields = {field for cls in classes if hasattr(cls, "model_fields") for field in cls.model_fields}
    parameters = CLIENT_TOOLS["anthropic", "memory"].parameters
    assert isinstance(parameters["properties"], dict)
    assert fields == set(parameters["properties"])
