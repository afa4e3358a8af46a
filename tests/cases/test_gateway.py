"""FIELD-CASES of a running gateway, by number: scripted upstreams on loopback, and what the client gets."""

import asyncio
import json
import socket
import threading
from typing import Any

import openai
import pytest

from tests.dialects.anthropic.grammar import check_stream
from tests.gateway.house import faultline, open_house, say, stream, upstream
from tests.gateway.test_faults import ASK, DONE, GOOD, GOOD_STREAM, WHOLE, chunk, stall
from tests.gateway.web import Got, head_of, post
from tests.waiting import NEVER_S, wait_until

CLAUDE = {**ASK, "max_tokens": 64}
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", ASK),
    "openai_responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "anthropic": ("/v1/messages", CLAUDE),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "ollama": ("/api/chat", {**ASK, "stream": False}),
}
OVERFLOWS = {
    "a vLLM of today": (
        "Requested token count exceeds the model's maximum context length of 262144 tokens. You requested a total of "
        "262462 tokens: 230462 tokens from the input messages and 32000 tokens for the completion."
    ),
    "OpenAI": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. "
        "Please reduce the length of the messages."
    ),
    "llama.cpp": "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it",
}


def refuse(status: int, message: str, **more: Any) -> Any:
    return say(status, json.dumps({"error": {"message": message, **more}}).encode())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("words", OVERFLOWS)
def test_case_20_an_overflow_is_said_so_that_the_client_can_compact(words: str, door: str) -> None:
    path, body = DOORS[door]
    with faultline(refuse(400, OVERFLOWS[words])) as line:
        with open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
            got = post(house.url, path, body)
        assert len(line.seen) == 1, "not tried again"
    assert got.status == 400
    match door:
        case "openai_chat" | "openai_responses":
            assert got.json["error"]["code"] == "context_length_exceeded"
        case "anthropic":  # Claude Code reads these words (appendix B)
            said = got.json["error"]["message"]
            assert "prompt is too long" in said or "exceed context limit" in said
        case _:
            assert "context" in got.text or "too long" in got.text or "token" in got.text


def events(got: Got) -> list[dict[str, Any]]:
    return [json.loads(row[6:]) for row in got.text.splitlines() if row.startswith("data: {")]


def test_case_27_a_stream_to_claude_code_begins_with_about_how_much_was_read() -> None:
    with faultline(GOOD_STREAM) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        long = {**CLAUDE, "stream": True, "messages": [{"role": "user", "content": "word " * 2000}]}
        first = events(post(house.url, "/v1/messages", long))[0]
    assert first["type"] == "message_start"
    assert 1000 < first["message"]["usage"]["input_tokens"] < 10_000


def test_case_127_the_grammar_is_kept_at_the_socket() -> None:
    def thought(text: str) -> bytes:
        return chunk().replace(b'"delta": {}', b'"delta": {"reasoning_content": "%s"}' % text.encode())

    script = stream(thought("h"), thought("m"), chunk("ok"), chunk(finish="stop"), DONE)
    with faultline(script) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = post(house.url, "/v1/messages", {**CLAUDE, "stream": True})
    told = check_stream(got.body)
    assert [e["content_block"]["type"] for e in told if e["type"] == "content_block_start"] == ["thinking", "text"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("door", ["openai_chat", "anthropic"])
def test_case_73_tags_become_thoughts_where_the_profile_says_so(door: str, streamed: bool) -> None:
    """A provider that leaves its thoughts in the text; a client of the same dialect too."""
    whole = say(200, WHOLE.replace(b"fine", b"<think>hm</think>fine"))
    pieces = stream(chunk("<thi"), chunk("nk>hm</th"), chunk("ink>fine"), chunk(finish="stop"), DONE)
    path, body = DOORS[door]
    for overrides, tagged in (({"think_tags": ["think"]}, False), ({}, True)):
        with faultline(pieces if streamed else whole) as line:
            spec = upstream("one", "openai_chat", line.url, models=("m",), overrides=overrides)
            with open_house(spec) as house:
                got = post(house.url, path, {**body, "stream": streamed})
        assert ("<thi" in got.text) is tagged
        thought = '"thinking"' if door == "anthropic" else '"reasoning_content"'
        assert (thought in got.text) is not tagged


def test_case_55_102_a_fallback_gets_a_request_of_its_own() -> None:
    """The primary is busy; the second has other parameters, another name for the model, another dialect."""
    claude = {"id": "x", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn"}
    answer = {**claude, "content": [{"type": "text", "text": "fine"}], "usage": {"input_tokens": 1, "output_tokens": 1}}
    ask = {**ASK, "model": "safe", "temperature": 0.1, "reasoning_effort": "low", "seed": 7}
    long = "call_" + "x" * 900
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": long, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": long, "content": "42"},
    ]
    with faultline(refuse(503, "busy")) as busy, faultline(say(200, json.dumps(answer).encode())) as good:
        ways = (
            upstream("one", "openai_chat", busy.url, kind="deepseek", models=("deepseek-v4",)),
            upstream("two", "anthropic", good.url, models=("claude-opus-4-8",)),
        )
        aliases = {"safe": ("deepseek-v4", "claude-opus-4-8")}
        with open_house(*ways, aliases=aliases) as house:
            got = post(house.url, "/v1/chat/completions", {**ask, "messages": history})
        first, second = json.loads(busy.seen[0].body), json.loads(good.seen[0].body)
    assert got.status == 200
    assert (first["model"], first["thinking"]) == ("deepseek-v4", {"type": "disabled"})
    assert (second["model"], "temperature" in second, "seed" in second) == ("claude-opus-4-8", False, False)
    assert second["output_config"] == {"effort": "low"}
    assert len(first["messages"][1]["tool_calls"][0]["id"]) <= 64


def test_case_103_after_the_first_word_no_other_is_asked() -> None:
    broken = stream(chunk("half an"), end="reset")
    with faultline(broken) as one, faultline(GOOD_STREAM) as two:
        ways = (upstream(n, "openai_chat", line.url, models=("m",)) for n, line in (("one", one), ("two", two)))
        with open_house(*ways) as house:
            got = post(house.url, "/v1/chat/completions", {**ASK, "stream": True})
        assert two.seen == []
    assert "half an" in got.text
    assert '"error"' in got.text
    assert "[DONE]" not in got.text


def test_case_104_a_fault_of_the_client_is_sent_to_no_other() -> None:
    with faultline(refuse(400, "image too large")) as one, faultline(GOOD) as two:
        ways = (upstream(n, "openai_chat", line.url, models=("m",)) for n, line in (("one", one), ("two", two)))
        with open_house(*ways) as house:
            got = post(house.url, "/v1/chat/completions", ASK)
        assert (got.status, len(one.seen), two.seen) == (400, 1, [])
    assert "image too large" in got.text
    assert got.headers["x-should-retry"] == "false"


def test_case_105_how_long_to_wait_is_passed_on_and_a_used_up_account_is_not_waited_for() -> None:
    busy = say(529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', retry_after="90")
    with faultline(busy) as line, open_house(upstream("one", "anthropic", line.url, models=("m",))) as house:
        got = post(house.url, "/v1/messages", CLAUDE)
        assert (got.status, got.headers["retry-after"], len(line.seen)) == (529, "90", 1)
    spent = refuse(429, "You exceeded your current quota", type="insufficient_quota", code="insufficient_quota")
    with faultline(spent) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        assert post(house.url, "/v1/chat/completions", ASK).status in (402, 429)
        assert len(line.seen) == 1


def test_case_106_a_server_that_is_down_is_asked_three_times_at_most() -> None:
    """Also when the client would try again by itself, as the official ones do twice."""
    with faultline(refuse(503, "down")) as line:
        with open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
            client = openai.OpenAI(base_url=f"{house.url}/v1", api_key="none", max_retries=2)
            with client, pytest.raises(openai.InternalServerError) as failed:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert len(line.seen) == 3
    assert failed.value.response.headers["x-should-retry"] == "false"


def test_case_149_a_fallback_that_is_too_small_does_not_hide_what_the_first_one_said() -> None:
    limited = say(429, b'{"error":{"message":"slow down"}}', retry_after="90")
    with faultline(limited) as one, faultline(refuse(400, OVERFLOWS["OpenAI"])) as two:
        ways = (upstream(n, "openai_chat", line.url, models=("m",)) for n, line in (("one", one), ("two", two)))
        with open_house(*ways) as house:
            got = post(house.url, "/v1/chat/completions", ASK)
        assert len(two.seen) == 1
    assert got.status == 429
    assert "slow down" in got.text


def test_case_96_no_picture_is_fetched_for_a_client() -> None:
    reply = {"model": "m", "created_at": "2026-11-15T00:00:00Z", "message": {"role": "assistant", "content": "hm"}}
    answer = json.dumps({**reply, "done": True, "done_reason": "stop"}).encode()
    with faultline(GOOD) as trap, faultline(say(200, answer)) as line:
        picture = {"type": "image_url", "image_url": {"url": f"{trap.url}/a.png"}}
        with open_house(upstream("one", "ollama", line.url, models=("m",))) as house:
            got = post(
                house.url, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": [picture]}]}
            )
        assert (got.status, trap.seen) == (200, [])
        assert "image left out" in line.seen[0].body.decode()


def test_case_108_a_proxy_of_the_environment_does_not_catch_a_local_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        assert post(house.url, "/v1/chat/completions", ASK).status == 200


def test_case_23_112_after_good_bad_and_broken_requests_nothing_is_held() -> None:
    never = stream(chunk("a"), threading.Event())
    scripts = [GOOD, refuse(400, "no"), stream(chunk("a"), end="reset"), GOOD_STREAM, never, GOOD]
    with faultline(*scripts) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), at_once=2)
        with open_house(spec) as house:
            before = house.loop.run(_count_tasks())
            for _ in range(4):
                post(house.url, "/v1/chat/completions", {**ASK, "stream": len(line.seen) >= 2})
            body = json.dumps({**ASK, "stream": True}).encode()
            leave(house.url, head_of("/v1/chat/completions", body) + body)
            assert post(house.url, "/v1/chat/completions", ASK).status == 200  # a place is free
            (state,) = house.gateway.now.upstream_states.values()
            wait_until(lambda: (state.admission.running, state.budget.in_flight) == (0, 0))
            wait_until(lambda: house.loop.run(_count_tasks()) <= before + 1)


async def _count_tasks() -> int:
    return len(asyncio.all_tasks())


def leave(url: str, data: bytes) -> None:
    """Asks and hangs up after the first bytes."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=NEVER_S) as connection:
        connection.sendall(data)
        connection.recv(10)


def test_case_111_many_streams_at_once_all_end_whole() -> None:
    words = [chunk(f"w{i} ") for i in range(50)]
    got: list[str] = []
    with faultline(stream(*words, chunk(finish="stop"), DONE)) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",))
        with open_house(spec) as house:

            def ask() -> None:
                got.append(post(house.url, "/v1/messages", {**CLAUDE, "stream": True}).text)

            asking = [threading.Thread(target=ask) for _ in range(60)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join(NEVER_S)
    assert len(got) == 60
    assert all("w49 " in text and "message_stop" in text for text in got)


def test_case_86_equal_keys_are_fine_and_conflicting_ones_are_not(tmp_path: Any) -> None:
    from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore

    keys = SqliteKeyStore(tmp_path / "keys.db")
    key = keys.new("a", admin=False)
    with open_house(keys=keys) as house:
        path, body = DOORS["openai_chat"]
        same = {"authorization": f"Bearer {key}", "x-api-key": key}
        assert post(house.url, path, {**body, "model": "demo"}, same).status == 200
        other = {"authorization": f"Bearer {key}", "x-api-key": "dk-other"}
        assert post(house.url, path, {**body, "model": "demo"}, other).status == 401


def test_case_148_what_only_openai_can_compact_is_refused_by_name() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = post(house.url, "/v1/responses/compact", {"model": "m", "input": "hi"})
        assert got.status in (400, 404, 501)
        assert "compact" in got.text
        assert line.seen == []


def test_case_38_betas_go_to_anthropic_as_they_are_and_to_others_not_at_all() -> None:
    claude = {"id": "x", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn", "content": []}
    answer = say(200, json.dumps({**claude, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode())
    betas = "prompt-caching-2024-07-31,tool-examples-2025-10-29"
    for kind, wanted in (("anthropic", betas), ("zai", None)):
        with faultline(answer) as line:
            with open_house(upstream("one", "anthropic", line.url, kind=kind, models=("m",))) as house:
                assert post(house.url, "/v1/messages", CLAUDE, {"anthropic-beta": betas}).status == 200
            assert line.seen[0].headers.get("anthropic-beta") == wanted, kind


def test_case_88_a_key_in_a_url_is_nowhere_to_be_seen() -> None:
    script = refuse(404, "no such model")
    with faultline(script) as line, open_house(upstream("one", "gemini", line.url, models=("m",))) as house:
        got = post(house.url, "/v1beta/models/m:generateContent?key=AIzaCANARY", DOORS["gemini"][1])
    assert "AIzaCANARY" not in got.text
    assert "key=" not in line.seen[0].path
    assert "AIzaCANARY" not in json.dumps(line.seen[0].headers)


def test_case_22_a_client_that_leaves_before_the_first_word_ends_the_upstream() -> None:
    with faultline(stall) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        body = json.dumps(ASK).encode()
        with socket.create_connection(("127.0.0.1", house.port)) as client:
            client.sendall(head_of("/v1/chat/completions", body) + body)
            wait_until(lambda: line.seen)
        assert line.seen[0].left.wait(NEVER_S / 2)
