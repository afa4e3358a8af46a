"""What a client learns early: how many tokens were read, and that a server which is away may soon be back."""

import json
from typing import Any

import pytest

from tests.gateway.house import faultline, open_house, say, stream, upstream
from tests.gateway.skipped_pauses import held_time
from tests.gateway.web import post

ASK: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def chunk(delta: dict[str, Any], read: int, written: int, finish: str | None = None) -> bytes:
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


CHUNKS = (
    chunk({"role": "assistant", "content": ""}, 272, 0),
    *(chunk({"content": f"w{n} "}, 272, n) for n in range(1, 6)),
    chunk({}, 272, 6, "stop"),
    b"data: [DONE]\n\n",
)


def test_vllm_is_asked_for_the_usage_early_and_the_first_event_tells_it() -> None:
    with (
        faultline(stream(*CHUNKS)) as far,
        open_house(upstream("far", "openai_chat", far.url, kind="vllm", models=("m",))) as house,
    ):
        got = post(house.url, "/v1/messages", ASK | {"stream": True})
    sent = json.loads(far.seen[0].body)
    assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    events = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: ")]
    assert events[0]["message"]["usage"]["input_tokens"] == 272
    (end,) = [event for event in events if event["type"] == "message_delta"]
    assert (end["usage"]["input_tokens"], end["usage"]["output_tokens"]) == (272, 6)
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == "w1 w2 w3 w4 w5 "


@pytest.mark.parametrize("door", ["/v1/messages", "/v1/chat/completions"])
def test_a_server_that_is_away_is_no_reason_to_give_up(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code ends the conversation at `x-should-retry: false`; straight at the server it waits for a restart."""
    with faultline(say(200, b"{}")) as far:
        url = far.url
    target = upstream("far", "openai_chat", url, kind="vllm", models=("m",))
    with open_house(target) as house, held_time(house, monkeypatch):
        for _ in range(7):
            got = post(house.url, door, ASK)
            assert got.status in (503, 529)
            assert "x-should-retry" not in got.headers
            assert float(got.headers["retry-after"]) <= 2
