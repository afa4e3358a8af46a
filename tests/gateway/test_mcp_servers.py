"""MCP servers that a provider connects to, through a gateway: there, and the calls back, whole and streamed."""

import json
from typing import Any

from tests.gateway.house import faultline, open_house, say, stream, upstream
from tests.gateway.web import post

TOOL = {"type": "mcp", "server_label": "git", "server_url": "https://mcp.example/mcp", "require_approval": "never"}
BLOCKS: list[dict[str, Any]] = [
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "git", "input": {"q": 1}},
    {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_1",
        "is_error": False,
        "content": [{"type": "text", "text": "7"}],
    },
]
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "stop_sequence": None}
USAGE = {"input_tokens": 1, "output_tokens": 2}


def event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def frames() -> bytes:
    whole: list[dict[str, Any]] = [
        {"type": "message_start", "message": HEAD | {"content": [], "stop_reason": None, "usage": USAGE}}
    ]
    for i, block in enumerate(BLOCKS):
        whole.append({"type": "content_block_start", "index": i, "content_block": block})
        whole.append({"type": "content_block_stop", "index": i})
    whole.append({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE})
    return b"".join(map(event, [*whole, {"type": "message_stop"}]))


def test_a_client_of_responses_uses_an_mcp_server_by_way_of_anthropic() -> None:
    answer = HEAD | {"content": BLOCKS, "stop_reason": "end_turn", "usage": USAGE}
    with (
        faultline(say(200, json.dumps(answer).encode()), stream(frames())) as line,
        open_house(upstream("a", "anthropic", line.url, kind="anthropic", models=("claude-sonnet-5-5",))) as house,
    ):
        asked = {"model": "claude-sonnet-5-5", "input": "q", "tools": [TOOL]}
        whole = post(house.url, "/v1/responses", asked)
        streamed = post(house.url, "/v1/responses", asked | {"stream": True})
    sent = json.loads(line.seen[0].body)
    assert sent["mcp_servers"] == [{"type": "url", "name": "git", "url": TOOL["server_url"]}]
    assert "mcp-client-2025-11-20" in line.seen[0].headers["anthropic-beta"]
    (call,) = whole.json["output"]
    assert (call["type"], call["id"], call["output"]) == ("mcp_call", "mcp_mcptoolu_1", "7")
    last = [json.loads(row[6:]) for row in streamed.body.decode().splitlines() if row.startswith("data: ")][-1]
    assert last["response"]["output"] == [call]
