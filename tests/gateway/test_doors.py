"""What real clients do at each door (CLIENTS.md, FIELD-CASES tier 3)."""

import asyncio
import json
import struct
from base64 import b64decode
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.testing import serve
from tests.gateway.house import CANARY, Seen, faultline, open_house, say, upstream
from tests.gateway.test_faults import ASK, GOOD
from tests.gateway.web import get, post, send

TALK = {"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}
JSON_RPC = {"jsonrpc": "2.0", "id": "a", "method": "generate_content", "params": TALK}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", TALK),
        ("/v1/v1/chat/completions", TALK),
        ("/chat/completions", TALK),
        ("//v1//chat/completions/", TALK),
        ("/api/v1/chat/completions", TALK),
        ("/v1/messages?beta=true", {**TALK, "max_tokens": 9}),
        ("/messages", {**TALK, "max_tokens": 9}),
        ("/v1/messages/", {**TALK, "max_tokens": 9}),
        ("/responses", {"model": "demo", "input": "say hi"}),
        ("/v1/models/demo:generateContent", {"contents": [{"parts": [{"text": "say hi"}]}]}),
        ("/v1beta/models/demo:generateContent", {"contents": [{"parts": [{"text": "say hi"}]}]}),
        ("/v1alpha/models/demo:generateContent", {"contents": [{"parts": [{"text": "say hi"}]}]}),
        (
            "/v1/projects/p/locations/l/publishers/google/models/demo:generateContent",
            {"contents": [{"parts": [{"text": "say hi"}]}]},
        ),
        ("/api/chat/", {**TALK, "stream": False}),
        ("/api/generate", {"model": "demo", "prompt": "say hi", "stream": False}),
        ("/generate", JSON_RPC),
    ],
)
def test_an_odd_path_still_arrives(path: str, body: dict[str, Any]) -> None:
    with open_house() as house:
        got = post(house.url, path, body)
        assert got.status == 200
        assert "hi" in got.text


@pytest.mark.parametrize("path", ["/", "/v1/models", "/api/tags", "/api/version", "/health"])
def test_head_is_get_without_its_body(path: str) -> None:
    with open_house() as house:
        head, whole = send(house.url, "HEAD", path), get(house.url, path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"] or path == "/health"


def test_options_says_what_may_be_done() -> None:
    with open_house() as house:
        assert send(house.url, "OPTIONS", "/v1/chat/completions").headers["allow"] == "POST, OPTIONS"
        assert get(house.url, "/v1/chat/completions").status == 405
        assert get(house.url, "/v1/nothing").status == 404


def test_codex_is_told_at_once_that_there_is_no_websocket() -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "x"}
    with open_house() as house:
        got = get(house.url, "/v1/responses", upgrade)
        assert got.status == 426
        assert len(got.body) < 300


def test_the_models_are_listed_in_each_dialects_shape() -> None:
    with open_house(aliases={"claude-opus-4": ("demo",)}) as house:
        openai = get(house.url, "/v1/models").json
        assert [row["id"] for row in openai["data"]] == ["demo", "claude-opus-4"]
        anthropic = get(house.url, "/v1/models?limit=1000", {"anthropic-version": "2023-06-01"}).json
        assert set(anthropic) == {"data", "has_more", "first_id", "last_id"}
        assert anthropic["data"][0].keys() >= {"type", "id", "display_name", "created_at"}
        gemini = get(house.url, "/v1beta/models").json
        assert gemini["models"][0]["name"] == "models/demo"
        tags = get(house.url, "/api/tags").json["models"]
        assert len({row["digest"] for row in tags}) == 2
        assert get(house.url, "/v1/models/claude-opus-4").json["id"] == "claude-opus-4"
        assert get(house.url, "/v1/models/nope").status == 404
        assert get(house.url, "/v1beta/models/demo").json["name"] == "models/demo"


def test_a_model_card_says_what_is_known_and_nothing_else() -> None:
    known = upstream("one", "openai_chat", "http://127.0.0.1:9", models=("m",), overrides={"window": 8192})
    with open_house(known, upstream("two", "openai_chat", "http://127.0.0.1:9", models=("n",))) as house:
        assert get(house.url, "/v1beta/models/m").json["inputTokenLimit"] == 8192
        assert not {"inputTokenLimit", "outputTokenLimit"} & get(house.url, "/v1beta/models/n").json.keys()
        version = {"anthropic-version": "2023-06-01"}
        assert get(house.url, "/v1/models/m", version).json["max_input_tokens"] == 8192
        assert get(house.url, "/v1/models/n", version).json["max_input_tokens"] is None
        shown = [post(house.url, "/api/show", {"model": name}).json for name in ("m", "n")]
        assert [card["model_info"][f"{n}.context_length"] for card, n in zip(shown, "mn", strict=True)] == [8192, 0]
        for card, name in zip(shown, "mn", strict=True):
            assert card["model_info"].keys() >= {"general.parameter_count", f"{name}.embedding_length"}
            assert card["capabilities"] == ["completion", "tools"]


def test_a_card_of_a_vendors_model_has_its_abilities() -> None:
    claude = upstream("one", "anthropic", "http://127.0.0.1:9", models=("claude-opus-4-5",))
    with open_house(claude) as house:
        shown = post(house.url, "/api/show", {"model": "claude-opus-4-5"}).json
        assert set(shown["capabilities"]) == {"completion", "tools", "vision", "thinking"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models/m:countTokens", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        ("/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
@pytest.mark.parametrize("kind", ["anthropic", "gemini"])
def test_the_server_that_can_count_is_asked_from_every_door(path: str, body: dict[str, Any], kind: str) -> None:
    answer = {"input_tokens": 281} if kind == "anthropic" else {"totalTokens": 281}
    with (
        faultline(say(200, json.dumps(answer).encode())) as line,
        open_house(upstream("one", kind, line.url, models=("m",))) as house,
    ):
        got = post(house.url, path, body)
        assert 281 in got.json.values()
        assert "x-dragoman-estimated" not in got.headers
        assert line.seen[0].path.endswith("/count_tokens" if kind == "anthropic" else ":countTokens")


COUNTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1beta/models/m:countTokens", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    ("/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/responses/input_tokens", {"model": "m", "input": "hi"}),
]


@pytest.mark.parametrize(("path", "body"), COUNTS, ids=["gemini", "anthropic", "responses"])
def test_a_vllm_that_has_no_counter_of_the_clients_dialect_tokenizes(path: str, body: dict[str, Any]) -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await say(*((200, b'{"count":281,"tokens":[]}') if seen.path == "/tokenize" else (404, b"{}")))(seen, writer)

    with faultline(script) as line:
        vllm = upstream("one", "openai_chat", f"{line.url}/v1", kind="vllm", models=("m",))
        with open_house(replace(vllm, dialects=("openai_chat", "openai_responses", "anthropic"))) as house:
            for _ in range(2):
                got = post(house.url, path, body)
                assert 281 in got.json.values()
                assert "x-dragoman-estimated" not in got.headers
        paths = [seen.path for seen in line.seen]
        asked = json.loads(line.seen[-1].body)
        assert (asked["model"], asked["messages"][0]["content"]) == ("m", "hi")
        assert paths.count("/tokenize") == 2
        assert len(paths) == len(set(paths)) + 1  # the counters that are not there were asked once


@pytest.mark.parametrize("key", ["model", "name"])
def test_ollamas_show_makes_its_clients_offer_tools_and_pictures(key: str) -> None:
    with open_house() as house:
        shown = post(house.url, "/api/show", {key: "demo:latest"}).json
        assert {"tools", "vision", "completion"} <= set(shown["capabilities"])
        assert post(house.url, "/api/show", {key: "nope"}).status == 404


def test_an_ollama_request_that_says_nothing_only_loads() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        loaded = post(house.url, "/api/chat", {"model": "m", "messages": []}).json
        assert (loaded["done_reason"], loaded["message"]["content"]) == ("load", "")
        gone = post(house.url, "/api/generate", {"model": "m", "keep_alive": 0}).json
        assert (gone["done_reason"], gone["response"]) == ("unload", "")
        assert not line.seen


@pytest.mark.parametrize("streamed", [False, True])
def test_an_ollama_answer_says_how_long_it_took(streamed: bool) -> None:
    with open_house() as house:
        got = post(house.url, "/api/chat", {**TALK, "stream": streamed})
        last = json.loads(got.text.splitlines()[-1])
        times = [last[key] for key in ("total_duration", "prompt_eval_duration", "eval_duration")]
        assert all(type(time) is int and time > 0 for time in times)
        assert times[0] >= max(times[1:])
        assert last["load_duration"] == 0


def test_codex_finds_its_table_of_models() -> None:
    with open_house() as house:
        assert get(house.url, "/v1/models?client_version=0.166.0").json["models"] == []


def test_the_root_is_ollamas() -> None:
    with open_house() as house:
        assert get(house.url, "/").text == "Ollama is running"
        page = get(house.url, "/", {"accept": "text/html,application/xhtml+xml"})
        assert "<h1>dragoman</h1>" in page.text
        assert "/xray" in page.text
        assert get(house.url, "/api/version").json["version"]
        assert get(house.url, "/api/ps").json == {"models": []}


# ---------------------------------------------------------------- JSON-RPC


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{nope", -32700),
        ({"method": "generate_content", "params": TALK, "id": 1}, -32600),
        ({"jsonrpc": "2.0", "method": "other", "params": TALK, "id": 1}, -32601),
        ({"jsonrpc": "2.0", "method": "generate_content", "id": 1}, -32602),
        ({"jsonrpc": "2.0", "method": "generate_content", "params": {"model": "demo"}, "id": 1}, -32602),
        ({"jsonrpc": "2.0", "method": "generate_content", "params": {**TALK, "temperature": "hot"}, "id": 1}, -32602),
    ],
)
def test_json_rpc_has_its_own_errors(body: Any, code: int) -> None:
    with open_house() as house:
        got = post(house.url, "/generate", body)
        assert got.json["error"]["code"] == code
        assert got.json["jsonrpc"] == "2.0"


def test_json_rpc_answers_as_the_seed_says() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "parts": [{"text": "say hi"}]}]
    params = {"model": "demo", "messages": messages, "temperature": 0.5, "max_output_tokens": 50}
    with open_house() as house:
        got = post(house.url, "/generate", {**JSON_RPC, "params": params}).json
        assert got["id"] == "a"
        assert got["result"]["generated_text"] == "hi"
        assert got["result"]["finish_reason"] == "STOP"


def test_json_rpc_streams_and_calls_tools() -> None:
    tool = {"name": "get_weather", "description": "", "parameters": {"type": "object", "properties": {}}}
    with open_house() as house:
        lines = post(house.url, "/generate", {**JSON_RPC, "params": {**TALK, "stream": True}}).text.splitlines()
        methods = [json.loads(line).get("method") for line in lines]
        assert methods == ["generate_content.start", "generate_content.delta", None]
        asked = {"model": "demo", "messages": [{"role": "user", "content": "use get_weather"}], "tools": [tool]}
        got = post(house.url, "/generate", {**JSON_RPC, "params": asked}).json["result"]
        assert got["finish_reason"] == "TOOL_CALL"
        assert got["tool_calls"][0]["name"] == "get_weather"


def test_a_batch_is_answered_call_by_call_and_a_notification_not_at_all() -> None:
    silent = {"jsonrpc": "2.0", "method": "generate_content", "params": TALK}
    with open_house() as house:
        got = post(
            house.url, "/generate", [JSON_RPC, {"jsonrpc": "1.0", "id": 2}, {**JSON_RPC, "id": 1.10}, silent]
        ).json
        assert [got[0]["id"], got[2]["id"]] == ["a", 1.1]
        assert got[1]["error"]["code"] == -32600
        assert got[2]["result"]["generated_text"] == "hi"
        assert len(got) == 3
        assert post(house.url, "/generate", silent).status == 204


def test_json_rpc_says_an_upstreams_failure_as_an_error() -> None:
    with (
        faultline(say(400, b'{"error":{"message":"too hot"}}')) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        got = post(house.url, "/generate", {**JSON_RPC, "params": {**TALK, "model": "m"}}).json
        assert got["error"]["message"].endswith("too hot")
        assert got["error"]["code"] == -32602


# ---------------------------------------------------------------- stored responses


def test_a_conversation_goes_on_from_a_stored_response() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("anthropic", "anthropic", provider.base_url, models=("m",))) as house,
    ):
        first = {"model": "m", "input": "my name is Ada. say hi", "instructions": "be brief"}
        one = post(house.url, "/v1/responses", first)
        assert one.status == 200, one.text
        follow = {"model": "m", "input": "what is my name?", "previous_response_id": one.json["id"]}
        for streamed in (False, True):
            got = post(house.url, "/v1/responses", {**follow, "stream": streamed})
            assert "Ada" in got.text
        sent = json.loads(provider.requests[-1].body)
        assert "be brief" not in json.dumps(sent), "instructions are not carried over"
        assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]
        items = get(house.url, f"/v1/responses/{one.json['id']}/input_items").json
        assert len(items["data"]) == 1


def test_a_streamed_response_is_stored_too_and_store_false_is_kept_to() -> None:
    with open_house() as house:
        got = post(house.url, "/v1/responses", {"model": "demo", "input": "say hi", "stream": True}).text
        created = json.loads(got.splitlines()[1].removeprefix("data: "))["response"]["id"]
        stored = get(house.url, f"/v1/responses/{created}").json
        assert stored["output"][0]["content"][0]["text"] == "hi"
        gone = post(house.url, "/v1/responses", {"model": "demo", "input": "say hi", "store": False}).json["id"]
        assert get(house.url, f"/v1/responses/{gone}").status == 404


def test_an_unknown_previous_response_is_said_so() -> None:
    with open_house() as house:
        got = post(house.url, "/v1/responses", {"model": "demo", "input": "x", "previous_response_id": "resp_0"})
        assert got.status == 400
        assert got.json["error"]["code"] == "previous_response_not_found"


# ---------------------------------------------------------------- embeddings, speech, counting


@pytest.mark.parametrize("dialect", ["openai_chat", "gemini", "ollama"])
def test_embeddings_come_from_any_upstream_that_has_them(dialect: str) -> None:
    with serve(dialect, key=CANARY) as provider:
        spec = upstream("far", dialect, provider.base_url, kind={"openai_chat": "openai"}.get(dialect, dialect))
        with open_house(spec) as house:
            openai = post(house.url, "/v1/embeddings", {"model": "far-model", "input": ["a", "b"]}).json
            assert [len(row["embedding"]) > 1 for row in openai["data"]] == [True, True]
            packed = {"model": "far-model", "input": "a", "encoding_format": "base64"}
            data = b64decode(post(house.url, "/v1/embeddings", packed).json["data"][0]["embedding"])
            floats = struct.unpack(f"<{len(data) // 4}f", data)
            assert floats == pytest.approx(openai["data"][0]["embedding"], rel=1e-5)
            ollama = post(house.url, "/api/embed", {"model": "far-model", "input": ["a", "b"]}).json
            assert len(ollama["embeddings"]) == 2
            assert post(house.url, "/api/embeddings", {"model": "far-model", "prompt": "a"}).json["embedding"]
            content = {"content": {"parts": [{"text": "a"}]}}
            gemini = post(house.url, "/v1beta/models/far-model:embedContent", content).json
            assert gemini["embedding"]["values"]
            both = post(house.url, "/v1beta/models/far-model:batchEmbedContents", {"requests": [content, content]}).json
            assert len(both["embeddings"]) == 2


def test_the_demo_model_embeds_and_anthropic_says_that_it_does_not() -> None:
    with open_house() as house:
        assert post(house.url, "/v1/embeddings", {"model": "demo", "input": "a"}).json["data"][0]["embedding"]
    with faultline(GOOD) as line, open_house(upstream("one", "anthropic", line.url)) as house:
        got = post(house.url, "/v1/embeddings", {"model": "one-model", "input": "a"})
        assert got.status == 400
        assert "no embeddings" in got.text


def test_speech_goes_through_and_gemini_speaks_wav() -> None:
    samples = b"\x01\x00" * 100
    sound = {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AQAB" * 10}}
    spoken = json.dumps({"candidates": [{"content": {"parts": [sound]}}]}).encode()
    ask = {"model": "one-model", "input": "hello", "voice": "alloy"}
    with (
        faultline(say(200, samples, "audio/mpeg")) as line,
        open_house(upstream("one", "openai_chat", line.url)) as house,
    ):
        got = post(house.url, "/v1/audio/speech", ask)
        assert (got.body, got.headers["content-type"]) == (samples, "audio/mpeg")
        assert json.loads(line.seen[0].body) == ask
    with faultline(say(200, spoken)) as line, open_house(upstream("one", "gemini", line.url)) as house:
        wav = post(house.url, "/v1/audio/speech", {**ask, "response_format": "wav"})
        assert wav.body[:4] == b"RIFF"
        assert struct.unpack("<I", wav.body[24:28]) == (24_000,)
        pcm = post(house.url, "/v1/audio/speech", {**ask, "response_format": "pcm"})
        assert wav.body[44:] == pcm.body
        assert post(house.url, "/v1/audio/speech", {**ask, "response_format": "midi"}).status == 400


def test_tokens_are_estimated_where_no_server_counts_and_said_to_be() -> None:
    with (
        faultline(say(404, b"{}")) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        got = post(house.url, "/v1/messages/count_tokens?beta=true", {"model": "m", "messages": ASK["messages"]})
        assert got.json["input_tokens"] > 0
        assert got.headers["x-dragoman-estimated"] == "true"
        assert not line.seen


# ---------------------------------------------------------------- seeing


def test_a_request_can_be_seen_through() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("far", "anthropic", provider.base_url, models=("m",))) as house,
    ):
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500}}
        parts = [{"type": "text", "text": "say hi"}, picture]
        asked = {"model": "m", "messages": [{"role": "user", "content": parts}], "logit_bias": {"1": 2}}
        got = post(house.url, "/v1/chat/completions", asked, {"x-dragoman-xray": "1", "x-request-id": "look"})
        seen = get(house.url, "/xray/look").json
        assert seen["asked"]["model"] == "m"
        assert seen["canonical"]["messages"]
        assert seen["attempts"][0]["sent"]["messages"]
        assert seen["status"] == got.status
        assert "QUJDQUJD" not in json.dumps(seen)
        assert CANARY not in json.dumps(seen)
        assert get(house.url, "/xray/nobody").status == 404


def test_strict_clients_get_a_refusal_instead_of_a_loss() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("far", "anthropic", provider.base_url, models=("m",))) as house,
    ):
        asked = {**ASK, "logit_bias": {"1": 2}}
        assert "x-dragoman-notes" in post(house.url, "/v1/chat/completions", asked).headers
        got = post(house.url, "/v1/chat/completions", asked, {"x-dragoman-refuse": "dropped"})
        assert got.status == 400
        assert "logit_bias" in got.text


def test_health_says_what_the_mission_asks_for() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",), rpm=10)) as house:
        post(house.url, "/v1/chat/completions", ASK)
        health = get(house.url, "/health").json
        assert health["status"] == "ok"
        assert health["queue_sizes"] == {"one": 0}
        assert health["rate_limits"]["one"]["rpm"] == {"limit": 10, "used": 1, "free_in_s": 0.0}
        assert health["providers"]["one"]["models"] == ["m"]
        metrics = get(house.url, "/metrics").text
        assert 'dragoman_requests_total{door="chat",upstream="one",status="200"} 1' in metrics
        assert 'dragoman_answers_total{door="chat",upstream="one",model="m"} 1' in metrics


@pytest.mark.parametrize("model", ["gemma-3-27b-it", "gemini-2.5-flash"])
def test_d7_gemma_gets_its_system_text_in_the_first_user_message(model: str) -> None:
    with (
        serve("gemini", key=CANARY, models=(model,)) as provider,
        open_house(upstream("gemini", "gemini", provider.base_url, models=(model,))) as house,
    ):
        messages = [{"role": "system", "content": "be a pirate"}, {"role": "user", "content": "say hi"}]
        assert post(house.url, "/api/chat", {"model": model, "messages": messages, "stream": False}).status == 200
        sent = json.loads(provider.requests[-1].body)
        if model.startswith("gemma"):
            assert "systemInstruction" not in sent
            assert "[System Instructions]" in json.dumps(sent["contents"][0])
        else:
            assert "be a pirate" in json.dumps(sent["systemInstruction"])
