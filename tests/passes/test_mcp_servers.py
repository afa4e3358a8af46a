"""MCP servers that a provider connects to: handed on in the target's words, never with more than the client allowed."""

from typing import Any

import pytest

from dragoman.convert import convert, convert_reply, convert_stream
from dragoman.model.request import Request, ServerTool, Tool
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.profiles import profile_for
from tests.passes.short_forms import user

URL = "https://mcp.example/mcp"
LISTED = {"type": "url", "name": "git", "url": URL}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "git"}
TOOL = {"type": "mcp", "server_label": "git", "server_url": URL}
FREE = TOOL | {"require_approval": "never"}
Body = dict[str, Any]


def of_anthropic(server: Body, *toolsets: Body, content: list[Body] | None = None) -> Body:
    turns: list[Body] = [{"role": "user", "content": "q"}]
    if content is not None:
        turns += [{"role": "assistant", "content": content}, {"role": "user", "content": "go"}]
    asked: Body = {"model": "m", "max_tokens": 100, "messages": turns, "mcp_servers": [server]}
    return asked | ({"tools": list(toolsets)} if toolsets else {})


def of_responses(tool: Body, items: list[Body] | None = None) -> Body:
    said: list[Body] = [{"role": "user", "content": "q"}]
    if items is not None:
        said += [*items, {"role": "user", "content": "go"}]
    return {"model": "m", "input": said, "tools": [tool]}


SOME: list[tuple[Body, Body]] = [
    (of_anthropic(LISTED, TOOLSET), FREE),
    (of_anthropic(LISTED), FREE),  # the older beta: no toolset
    (of_anthropic(LISTED | {"authorization_token": "t"}, TOOLSET), FREE | {"authorization": "t"}),
    (
        of_anthropic(LISTED, TOOLSET | {"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}}}),
        FREE | {"allowed_tools": ["a"]},
    ),
    (of_anthropic(LISTED | {"tool_configuration": {"allowed_tools": ["a"]}}), FREE | {"allowed_tools": ["a"]}),
    (
        of_anthropic(
            LISTED,
            TOOLSET
            | {
                "configs": {"b": {"enabled": False}},
                "tools": [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}],
            },
        ),
        FREE | {"allowed_tools": ["a"]},
    ),
    (
        of_anthropic(LISTED | {"name": "my git"}, TOOLSET | {"mcp_server_name": "my git"}),
        FREE | {"server_label": "my_git"},
    ),
]


@pytest.mark.parametrize(("asked", "tool"), SOME)
def test_a_server_of_anthropic_is_a_tool_of_responses_that_asks_for_no_approval(asked: Body, tool: Body) -> None:
    converted = convert(asked, to="openai_responses", source="anthropic")
    assert converted.body["tools"] == [tool]
    assert [note.kind for note in converted.notes if "mcp" in note.where or "tools" in note.where] == ["altered"]


@pytest.mark.parametrize(
    ("tool", "server", "toolset"),
    [
        (FREE, LISTED, TOOLSET),
        (FREE | {"authorization": "t"}, LISTED | {"authorization_token": "t"}, TOOLSET),
        (FREE | {"headers": {"authorization": "Bearer t"}}, LISTED | {"authorization_token": "t"}, TOOLSET),
        (
            FREE | {"allowed_tools": {"tool_names": ["a"]}},
            LISTED,
            TOOLSET | {"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}}},
        ),
        (
            TOOL | {"require_approval": {"never": {"tool_names": ["a", "b"]}}, "allowed_tools": ["a", "c"]},
            LISTED,
            TOOLSET | {"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}}},
        ),
    ],
)
def test_a_tool_of_responses_is_a_server_and_a_toolset_of_anthropic(tool: Body, server: Body, toolset: Body) -> None:
    converted = convert(of_responses(tool), to="anthropic", source="openai_responses")
    assert converted.body["mcp_servers"] == [server]
    assert converted.body["tools"] == [toolset]
    assert "mcp-client-2025-11-20" in converted.headers["anthropic-beta"]


@pytest.mark.parametrize(
    ("asked", "source", "to", "why"),
    [
        (of_responses(TOOL), "openai_responses", "anthropic", "approved"),  # unsaid is: approve each call
        (of_responses(TOOL | {"require_approval": "always"}), "openai_responses", "anthropic", "approved"),
        (
            of_responses(TOOL | {"require_approval": {"always": {"tool_names": ["a"]}}}),
            "openai_responses",
            "anthropic",
            "approved",
        ),
        (of_responses(FREE | {"headers": {"x-key": "k"}}), "openai_responses", "anthropic", "x-key"),
        (of_responses(FREE | {"allowed_tools": {"read_only": True}}), "openai_responses", "anthropic", "read_only"),
        (
            of_responses(
                {
                    "type": "mcp",
                    "server_label": "git",
                    "connector_id": "connector_gmail",
                    "require_approval": "never",
                }
            ),
            "openai_responses",
            "anthropic",
            "the way to it",
        ),
        (
            of_anthropic(LISTED, TOOLSET | {"configs": {"b": {"enabled": False}}}),
            "anthropic",
            "openai_responses",
            "switch off single tools: b",
        ),
        (
            of_anthropic(LISTED | {"tool_configuration": {"enabled": False}}),
            "anthropic",
            "openai_responses",
            "switched off",
        ),
        (of_responses(FREE | {"allowed_tools": ["a"]}), "openai_responses", "gemini", "which of its tools"),
    ],
)
def test_no_server_is_handed_on_with_more_than_the_client_allowed(asked: Body, source: str, to: str, why: str) -> None:
    converted = convert(asked, to=to, source=source)
    assert URL not in str(converted.body)
    (told,) = [note.why for note in converted.notes if note.kind == "dropped"]
    assert why in told


def test_servers_of_gemini_go_to_both_and_come_from_both() -> None:
    server = {"name": "git", "streamableHttpTransport": {"url": URL, "headers": {"Authorization": "Bearer t"}}}
    asked = {"contents": [{"role": "user", "parts": [{"text": "q"}]}], "tools": [{"mcpServers": [server]}]}
    responses = convert(asked, to="openai_responses", source="gemini").body
    assert responses["tools"] == [FREE | {"authorization": "t"}]
    back = convert(of_responses(FREE | {"authorization": "t"}), to="gemini", source="openai_responses").body
    assert back["tools"] == [{"mcpServers": [server]}]


def test_a_model_that_takes_functions_alone_gets_no_server_beside_them() -> None:
    """The Gemini API takes its own tools beside functions only with a switch that no other client can obey."""
    new = profile_for("gemini", "gemini-3-pro", "gemini")
    server = ServerTool(dialect="openai_responses", body=FREE)
    for profile, tools, servers in (
        (profile_for("gemini", "gemini-2.5-flash", "gemini"), (Tool(name="f"), server), 0),
        (new, (Tool(name="f"), server), 0),
        (new, (server,), 1),
    ):
        request = Request(model="m", messages=(user("q"),), tools=tools)
        kept = legalise(request, profile, Notes()).tools or ()
        assert len([tool for tool in kept if isinstance(tool, ServerTool)]) == servers


def test_only_servers_that_are_known_to_connect_get_one() -> None:
    assert profile_for("anthropic", "claude-sonnet-5-5", "anthropic").mcp
    assert profile_for("openai", "gpt-5", "openai_responses").mcp
    assert not profile_for("ollama", "qwen3", "anthropic").mcp
    assert not profile_for("ollama", "qwen3", "openai_responses").mcp


# ---------------------------------------------------------------- answers

USE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "git", "input": {"q": 1}}
RESULT = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "found"}],
}
ITEM = {
    "type": "mcp_call",
    "id": "mcp_mcptoolu_1",
    "server_label": "git",
    "name": "find",
    "arguments": '{"q":1}',
    "approval_request_id": None,
    "status": "completed",
    "output": "found",
    "error": None,
}


def anthropic_answer(*content: Body) -> Body:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return head | {"content": list(content), "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 2}}


def responses_answer(*output: Body) -> Body:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    return head | {"output": list(output), "error": None, "incomplete_details": None}


def text(said: str) -> Body:
    return {"type": "text", "text": said}


def calls_in(body: Any) -> list[Body]:
    return [item for item in body["output"] if item["type"] == "mcp_call"]


def test_two_blocks_are_one_item_for_a_client_of_responses() -> None:
    converted = convert_reply(
        anthropic_answer(text("a"), USE, RESULT, text("b")), to="openai_responses", source="anthropic"
    )
    assert [item["type"] for item in converted.body["output"]] == ["message", "mcp_call", "message"]
    assert calls_in(converted.body) == [ITEM]
    assert not [note for note in converted.notes if note.kind == "dropped"]


def test_a_failed_call_is_an_error_of_the_item_and_back() -> None:
    failed = RESULT | {"is_error": True, "content": "no such file"}
    (item,) = calls_in(convert_reply(anthropic_answer(USE, failed), to="openai_responses", source="anthropic").body)
    said = [{"type": "text", "text": "no such file"}]
    assert (item["status"], item["output"]) == ("failed", None)
    assert item["error"] == {"type": "mcp_tool_execution_error", "content": said}
    back: Any = convert_reply(responses_answer(item | {"id": "mcp_1"}), to="anthropic", source="openai_responses").body
    assert back["content"][1] == {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_mcp_1",
        "is_error": True,
        "content": said,
    }


def test_a_call_that_waits_for_its_result_is_not_lost() -> None:
    (item,) = calls_in(convert_reply(anthropic_answer(USE), to="openai_responses", source="anthropic").body)
    assert (item["status"], item["output"]) == ("incomplete", None)


def test_a_stream_shows_the_call_as_the_whole_answer_does() -> None:
    for source, to, whole in (
        ("anthropic", "openai_responses", anthropic_answer(text("a"), USE, RESULT, text("b"))),
        ("openai_responses", "anthropic", responses_answer(ITEM | {"id": "mcp_1"})),
    ):
        streamed = convert_stream([_stream_of(whole, source)], to=to, source=source)
        back = b"".join(convert_stream(streamed, to="canonical", source=to))
        assert b"mcp_call" in back if to == "openai_responses" else b"mcp_tool_result" in back
        assert b"found" in back


def _stream_of(whole: Body, dialect: str) -> bytes:
    from dragoman.dialects import find_dialect
    from dragoman.model.fold import unfold
    from dragoman.notes import Notes
    from dragoman.wire import WireReply

    there = find_dialect(dialect)
    encoder = there.stream_encoder(Notes(), None)
    return encoder.feed(unfold(there.decode_reply(WireReply(body=whole), Notes()))) + encoder.close()


# ---------------------------------------------------------------- the next request


def test_the_provider_gets_its_own_call_back_in_its_own_form() -> None:
    converted: Any = convert(of_responses(FREE, [ITEM]), to="anthropic", source="openai_responses").body
    assert converted["messages"][1]["content"] == [USE, RESULT]
    own = ITEM | {"id": "mcp_9"}
    blocks: Any = convert_reply(responses_answer(own), to="anthropic", source="openai_responses").body
    asked = of_anthropic(LISTED, TOOLSET, content=blocks["content"])
    back: Any = convert(asked, to="openai_responses", source="anthropic").body
    assert own in back["input"]


def test_a_call_of_another_provider_or_of_a_server_that_is_not_named_is_told_as_text() -> None:
    foreign = ITEM | {"id": "mcp_abc"}
    told: Any = convert(of_responses(FREE, [foreign]), to="anthropic", source="openai_responses").body
    assert "[git/find: 1]" not in told["messages"][1]["content"]
    assert "found" in str(told["messages"][1]["content"])
    assert "mcp_tool_use" not in str(told)
    unnamed = of_responses(FREE, [ITEM])
    del unnamed["tools"]
    assert "mcp_tool_use" not in str(convert(unnamed, to="anthropic", source="openai_responses").body)
