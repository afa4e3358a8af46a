"""Same dialect in and out: the client's own bytes go upstream, the provider's own bytes come back (DESIGN 4)."""

import json

import pytest

from dragoman.dialects import find_dialect
from dragoman.model.fold import unfold
from dragoman.model.messages import Message, Text
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from tests.gateway.house import faultline, open_house, say, stream, upstream
from tests.gateway.web import post
from tests.waiting import wait_until

# Odd spacing, key order, unknown keys, escapes and numbers: everything a re-encoding would change.
CHAT = (
    b'{ "messages" : [ {"content":"h\\u00e9llo \\u4f60","role":"user", "x_own": [1.0, 1e2]} ],\n'
    b'  "temperature": 0.70, "model":"MODEL",  "private": {"z": 1, "a": null} }'
)
ANTHROPIC = (
    b'{"max_tokens": 64, "system": [ {"type":"text","text":"be \\u0062rief","cache_control":{"type":"ephemeral"}} ],'
    b' "model" : "MODEL" , "messages":[{"role":"user","content":"hi"}], "x_new": {"b":1,"a":2.50}}'
)
RESPONSES = (
    b'{"input": "hi", "model": "MODEL", "store": false, "x_new": [ 1, 2 ] , "text": {"format": {"type": "text"}}}'
)
OLLAMA = (
    b'{"messages":[{"role":"user","content":"hi"}] ,"model":"MODEL","stream": STREAM, "keep_alive":"5m", "x": 1.50}'
)
GEMINI = b'{"contents": [ {"role":"user","parts":[{"text":"hi"}]} ], "generation_config": {"temperature": 0.10}}'

REPLIES = {
    "openai_chat": b'{ "id":"c1", "object":"chat.completion","created":1,"model":"far", "x_far": 1.0,"choices":['
    b'{"index":0,"message":{"role":"assistant","content":"h\\u00e9"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}',
    "anthropic": b'{"id":"msg_1","type":"message","role":"assistant","model":"far","content":'
    b'[{"type":"text","text":"h\\u00e9"}], "stop_reason":"end_turn","stop_sequence":null,'
    b'"usage":{"input_tokens":3,"output_tokens":2}, "x_far":[1.0]}',
    "openai_responses": b'{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"far",'
    b'"x_far":1.0,"output":[{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":'
    b'[{"type":"output_text","text":"h\\u00e9","annotations":[]}]}],'
    b'"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}',
    "ollama": b'{"model":"far","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"h\\u00e9"},'
    b' "done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2, "x_far": 1.0}',
    "gemini": b'{"candidates": [ {"content":{"parts":[{"text":"h\\u00e9"}],"role":"model"},"finishReason":"STOP",'
    b'"index":0} ],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,'
    b'"totalTokenCount":5},"modelVersion":"far","x_far":1.0}',
}
BODIES = {
    "openai_chat": CHAT,
    "anthropic": ANTHROPIC,
    "openai_responses": RESPONSES,
    "ollama": OLLAMA,
    "gemini": GEMINI,
}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai_responses": "/v1/responses",
    "ollama": "/api/chat",
    "gemini": "/v1beta/models/MODEL:generateContent",
}
# A kind that has no rules of its own, so that no pass changes anything.
KINDS = {"openai_chat": "vllm", "openai_responses": "openai"}


@pytest.mark.parametrize("dialect", BODIES)
@pytest.mark.parametrize("alias", [False, True], ids=["same name", "another name"])
def test_a_request_and_its_reply_keep_every_byte(dialect: str, alias: bool) -> None:
    body = BODIES[dialect].replace(b"STREAM", b"false")
    asked, sent = ("nick", "far-model") if alias else ("far-model", "far-model")
    with faultline(say(200, REPLIES[dialect])) as line:
        spec = upstream("far", dialect, line.url, kind=KINDS.get(dialect, dialect), models=("far-model",))
        with open_house(spec, aliases={"nick": ("far/far-model",)}) as house:
            got = post(house.url, PATHS[dialect].replace("MODEL", asked), body.replace(b"MODEL", asked.encode()))
            assert got.status == 200, got.text
            assert line.seen[0].body == body.replace(b"MODEL", sent.encode())
            assert got.body == REPLIES[dialect]
            assert "x-dragoman-notes" not in got.headers


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "openai_responses", "ollama"])
def test_a_request_without_a_model_is_sent_with_the_one_we_chose(dialect: str) -> None:
    body = json.loads(BODIES[dialect].replace(b"STREAM", b"false"))
    del body["model"]
    with faultline(say(200, REPLIES[dialect])) as line:
        spec = upstream("far", dialect, line.url, kind=KINDS.get(dialect, dialect), models=("far-model",))
        with open_house(spec) as house:
            assert post(house.url, PATHS[dialect], json.dumps(body).encode()).status == 200
            assert json.loads(line.seen[0].body) == {"model": "far-model", **body}


def test_the_model_in_a_gemini_body_is_that_of_its_path() -> None:
    body = GEMINI.replace(b"{", b'{"model": "models/nick", ', 1)
    with faultline(say(200, REPLIES["gemini"])) as line:
        spec = upstream("far", "gemini", line.url, models=("far-model",))
        with open_house(spec, aliases={"nick": ("far/far-model",)}) as house:
            assert post(house.url, PATHS["gemini"].replace("MODEL", "nick"), body).status == 200
            assert line.seen[0].body == body.replace(b"nick", b"far-model")


CHAT_STREAM = (
    b': hello\n\ndata: {"id":"c","object":"chat.completion.chunk","created":1,"model":"far","x_far":1.0,'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"h\\u00e9"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"far","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
)
ANTHROPIC_STREAM = b"".join(
    b"event: %s\ndata: %s\n\n" % (kind, data)
    for kind, data in (
        (
            b"message_start",
            (b'{"type":"message_start", "message":{"id":"m","type":"message","role":"assistant","model":"far",'
            b'"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}'),
        ),
        (b"content_block_start", b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'),
        (b"ping", b'{"type": "ping"}'),
        (b"content_block_delta", b'{"type":"content_block_delta", "index":0,"delta":{"type":"text_delta","text":"h"}}'),
        (b"content_block_stop", b'{"type":"content_block_stop","index":0}'),
        (b"message_delta", (b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
                           b'"usage":{"output_tokens":2}}')),
        (b"message_stop", b'{"type":"message_stop"}'),
    )
)  # fmt: skip
OLLAMA_STREAM = (
    b'{"model":"far","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"h\\u00e9"},'
    b' "done":false}\n'
    b'{"model":"far","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true,'
    b'"done_reason":"stop","prompt_eval_count":3,"eval_count":2}\n'
)


@pytest.mark.parametrize(
    ("dialect", "wire", "kind"),
    [
        ("openai_chat", CHAT_STREAM, "text/event-stream"),
        ("openai_chat", CHAT_STREAM.replace(b"\n", b"\r\n"), "text/event-stream; charset=utf-8"),
        ("anthropic", ANTHROPIC_STREAM, "text/event-stream"),
        ("ollama", OLLAMA_STREAM, "application/x-ndjson"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_stream_keeps_every_byte_however_it_is_cut(dialect: str, wire: bytes, kind: str, step: int) -> None:
    pieces: list[bytes | float] = [wire[i : i + step] for i in range(0, len(wire), step)]
    body = BODIES[dialect].replace(b"STREAM", b"true").replace(b"MODEL", b"far-model")
    if dialect != "ollama":
        body = body[:-1].rstrip(b"} ") + (
            b'}, "stream": true}' if body.rstrip().endswith(b"} }") else b'},"stream":true}'
        )
        json.loads(body)
    with faultline(stream(*pieces, kind=kind)) as line:
        spec = upstream("far", dialect, line.url, kind=KINDS.get(dialect, dialect), models=("far-model",))
        with open_house(spec) as house:
            got = post(house.url, PATHS[dialect], body)
            assert line.seen[0].body == body
            assert got.body == wire
            assert got.headers["content-type"].partition(";")[0] == kind.partition(";")[0]
            wait_until(lambda: bool(house.gateway.metrics.dump().tokens))
            tokens = house.gateway.metrics.tokens
            assert tokens["far", "far-model", "input"] == 3, "the observer reads what passes"
            assert tokens["far", "far-model", "output"] == 2


WHOLE = b"event: message\ndata: " + REPLIES["anthropic"] + b"\n\n"


@pytest.mark.parametrize(
    ("dialect", "wire", "end"),
    [
        ("openai_chat", CHAT_STREAM.removesuffix(b"data: [DONE]\n\n"), b"}\n\ndata: [DONE]\n\n"),
        ("openai_chat", CHAT_STREAM.removesuffix(b"\n\ndata: [DONE]\n\n"), b"}\n\ndata: [DONE]\n\n"),
        ("anthropic", ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b"event: message_stop")], b'"message_stop"}\n\n'),
        ("anthropic", WHOLE, b'"message_stop"}\n\n'),
    ],
    ids=[
        "Cerebras leaves out DONE",
        "nor a blank line",
        "Vertex leaves out message_stop",
        "Vertex says it in one frame",
    ],
)
def test_a_stream_without_its_end_gets_it(dialect: str, wire: bytes, end: bytes) -> None:
    body = json.loads(BODIES[dialect].replace(b"MODEL", b"far-model")) | {"stream": True}
    with faultline(stream(wire)) as line:
        spec = upstream("far", dialect, line.url, kind=KINDS.get(dialect, dialect), models=("far-model",))
        with open_house(spec) as house:
            got = post(house.url, PATHS[dialect], body)
            assert got.body.endswith(end)
            assert got.body.count(end[-16:]) == 1
            assert wire is WHOLE or got.body.startswith(wire.rstrip())
            assert wire is not WHOLE or b"content_block_delta" in got.body


def test_a_repaired_conversation_is_not_passed_as_it_is() -> None:
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "lost"}
    body = {"model": "far-model", "messages": [{"role": "user", "content": "hi"}, orphan]}
    with (
        faultline(say(200, REPLIES["openai_chat"])) as line,
        open_house(upstream("far", "openai_chat", line.url, models=("far-model",))) as house,
    ):
        got = post(house.url, PATHS["openai_chat"], body)
        assert got.status == 200
        assert b"nobody" not in line.seen[0].body
        notes = json.loads(got.headers["x-dragoman-notes"])
        assert {note["kind"] for note in notes} & {"repaired", "dropped"}


LATE = {
    "openai_chat": b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"LATE"}}]}\n\n',
    "openai_responses": b'data: {"type":"response.output_text.delta","delta":"LATE"}\n\n',
    "anthropic": b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"LATE"}}\n\n',
    "ollama": b'{"model":"m","message":{"role":"assistant","content":"LATE"},"done":false}\n',
}


@pytest.mark.parametrize("pause", [(), (0.05,)], ids=["in the same read", "later"])
@pytest.mark.parametrize("dialect", LATE)
def test_nothing_is_passed_on_after_the_end_of_a_stream(dialect: str, pause: tuple[float, ...]) -> None:
    """The text says every word that may end a stream, in the way of each dialect: those are words."""
    words = 'data: [DONE] "type":"message_stop" "type":"response.completed" "done":true'
    reply = Reply(
        id="r",
        model="m",
        choices=(Choice(parts=(Text(text=words),), finish=Finish(reason="stop")),),
        usage=Usage(output=1),
    )
    encoder = find_dialect(dialect).stream_encoder(Notes())
    data = encoder.feed(unfold(reply)) + encoder.close()
    kind = find_dialect(dialect).media_type
    asked = Request(model="m-model", messages=(Message(role="user", parts=(Text(text="x"),)),), stream=True)
    wire = find_dialect(dialect).encode_request(asked, Notes())
    script = stream(data, *pause, LATE[dialect], kind=kind)
    with faultline(script) as line, open_house(upstream("m", dialect, line.url)) as house:
        got = post(house.url, wire.path, wire.body)
    assert b"LATE" not in got.body
    assert got.body == data
