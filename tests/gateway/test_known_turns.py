"""Turns that came before are not read and written again, and servers get the same bytes."""

import tracemalloc
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.known_turns.read import make_history
from dragoman.notes import Notes
from dragoman.testing import serve
from dragoman.upstream.attempts import Job
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.upstream.send import Sender
from dragoman.wire import WireRequest
from tests.gateway.house import CANARY, open_house, upstream
from tests.gateway.web import get, post

TOOL = {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {}}}


def turns(count: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": "Look at all files, please. " * 8}]
    for i in range(count):
        call = {"type": "tool_use", "id": f"toolu_{i}", "name": "look", "input": {}}
        said.append({"role": "assistant", "content": [call]})
        said.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "ok"}]}
        )
    return said


def send_all(dialect: str, known_turns_bytes: int) -> tuple[list[bytes], str]:
    with (
        serve(dialect, key=CANARY) as provider,
        open_house(
            upstream("far", dialect, provider.base_url, models=("m",)), known_turns_bytes=known_turns_bytes
        ) as house,
    ):
        for count in range(6):
            body = {
                "model": "far/m",
                "max_tokens": 99,
                "messages": turns(count),
                "system": "Be brief.",
                "tools": [TOOL],
            }
            assert post(house.url, "/v1/messages", body).status == 200
        assert provider.refusals == []
        return [request.body for request in provider.requests], get(house.url, "/metrics").text


def test_servers_get_the_same_bytes() -> None:
    for dialect in ("openai_chat", "anthropic", "gemini"):
        known, metrics = send_all(dialect, 1_000_000)
        assert known == send_all(dialect, 0)[0]
        assert 'dragoman_known_turns_found{found="yes"} 4' in metrics
        assert "dragoman_known_turns_bytes 0\n" not in metrics


def test_a_long_conversation_is_written_off_the_loop_until_its_turns_were_written_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large: list[bool] = []
    ask = Sender.ask

    async def watch(self: Sender, job: Job) -> OpenAnswer:
        large.append(job.large)
        return await ask(self, job)

    monkeypatch.setattr(Sender, "ask", watch)
    with (
        serve("openai_chat", key=CANARY) as provider,
        open_house(upstream("far", "openai_chat", provider.base_url, models=("m",))) as house,
    ):
        for count in (600, 601, 602, 603):
            body = {"model": "far/m", "max_tokens": 99, "messages": turns(count), "tools": [TOOL]}
            assert post(house.url, "/v1/messages", body).status == 200
    assert large == [True, True, False, False]


def test_what_is_kept_takes_no_more_memory_than_is_counted() -> None:
    """Turns of one letter take far more memory than their bytes: 64 MB by count were 200 MB."""
    dialect = find_dialect("openai_chat")
    said = [{"role": "user", "content": "x"}]
    for _ in range(2_000):
        said += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    raw = dump_json({"model": "m", "messages": said})
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        request = dialect.decode_request(WireRequest(body=load_json(raw)), Notes())
        history = make_history(bytes(bytearray(raw)), request, dialect, None)
        assert history is not None
        del request
        assert tracemalloc.get_traced_memory()[0] - before < history.size
    finally:
        tracemalloc.stop()
