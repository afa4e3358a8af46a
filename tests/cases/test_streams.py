"""FIELD-CASES of streams: what an upstream really sends, by number and name, and what every client then hears.

Each row is read in one piece and byte by byte (44), told to all five kinds of clients in their own grammar
(appendix C), and read back there: the same thoughts, texts and calls, and the same reason to end.
"""

from typing import Any

import pytest

from dragoman.model.fold import fold
from dragoman.model.reply import Reply
from tests.cases.summary import (
    ANTH,
    CHAT,
    CLIENTS,
    GEM,
    OLL,
    RESP,
    Said,
    byte_by_byte,
    count,
    events_of,
    folded,
    lines,
    named,
    say,
    sse,
    stream_to,
)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def fragment(name: str | None = None, arguments: str = "", **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function, **({"type": "function"} if name else {}), **more}


def calls(*fragments: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments)})


PARIS, JST = '{"city":"Paris"}', '{"tz":"JST"}'
TWO: Said = [("call", "get_weather", {"city": "Paris"}), ("call", "get_time", {"tz": "JST"}), ("end", "tool_call")]
OSLO: Said = [("call", "f", {"city": "Oslo"}), ("end", "tool_call")]
HI: Said = [("text", "hi"), ("end", "stop")]
THOUGHT: Said = [("thought", "hm"), ("text", "ok"), ("end", "stop")]


def message_start(**usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message_end(reason: str, **usage: int) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def response(status: str, *output: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "m",
        "output": list(output),
    }


CALL_ITEM = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "status": "completed"}
TOLD = {**CALL_ITEM, "arguments": '{"city":"Oslo"}'}


def candidate(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    inner = {"content": {"role": "model", "parts": list(parts)}, "index": 0} | (
        {"finishReason": finish} if finish else {}
    )
    return {"candidates": [inner], "modelVersion": "m", "responseId": "r", **more}


def line(message: dict[str, Any], *, done: bool = False, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "created_at": "2026-11-15T00:00:00Z", "message": {"role": "assistant", **message}}
    return {**body, "done": done, **more}


ENDED = {"done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2}

CASES: list[tuple[str, str, bytes, Said]] = [
    (
        "6 streamed calls without index",
        CHAT,
        sse(
            calls(fragment("get_weather", PARIS, id="a")),
            calls(fragment("get_time", JST, id="b")),
            chunk(finish="tool_calls"),
            done=True,
        ),
        TWO,
    ),
    (
        "6 streamed calls all with index 0",
        CHAT,
        sse(
            calls(fragment("get_weather", PARIS, id="a", index=0)),
            calls(fragment("get_time", JST, id="b", index=0)),
            chunk(finish="tool_calls"),
            done=True,
        ),
        TWO,
    ),
    (
        "6 two calls without ids in one chunk",
        CHAT,
        sse(calls(fragment("get_weather", PARIS), fragment("get_time", JST)), chunk(finish="tool_calls"), done=True),
        TWO,
    ),
    (
        "6 a fragment without an id goes on with its call",
        CHAT,
        sse(
            calls(fragment("get_weather", '{"city":', id="a")),
            calls(fragment(None, '"Paris"}')),
            calls(fragment("get_time", JST, id="b")),
            chunk(finish="tool_calls"),
            done=True,
        ),
        TWO,
    ),
    (
        "7 interleaved arguments of parallel calls",
        CHAT,
        sse(
            calls(fragment("get_weather", "", id="a", index=0)),
            calls(fragment("get_time", "", id="b", index=1)),
            calls(fragment(None, '{"city":', index=0)),
            calls(fragment(None, '{"tz":', index=1)),
            calls(fragment(None, '"Paris"}', index=0)),
            calls(fragment(None, '"JST"}', index=1)),
            chunk(finish="tool_calls"),
            done=True,
        ),
        TWO,
    ),
    (
        "8 all arguments at once",
        GEM,
        sse(
            candidate({"functionCall": {"name": "f", "args": {"city": "Oslo"}}}),
            candidate({"text": ""}, finish="STOP"),
        ),
        OSLO,
    ),
    (
        "8 arguments only when they are done",
        RESP,
        named(
            {"type": "response.created", "sequence_number": 0, "response": response("in_progress")},
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {**CALL_ITEM, "arguments": "", "status": "in_progress"},
            },
            {
                "type": "response.function_call_arguments.done",
                "sequence_number": 2,
                "item_id": "fc_1",
                "output_index": 0,
                "arguments": '{"city":"Oslo"}',
            },
            {"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": TOLD},
            {"type": "response.completed", "sequence_number": 4, "response": response("completed", TOLD)},
        ),
        OSLO,
    ),
    (
        "16 a call that ends with stop",
        CHAT,
        sse(calls(fragment("f", '{"city":"Oslo"}', id="a", index=0)), chunk(finish="stop"), done=True),
        OSLO,
    ),
    (
        "16 a call that ends with STOP",
        GEM,
        sse(candidate({"functionCall": {"name": "f", "args": {"city": "Oslo"}}}, finish="STOP")),
        OSLO,
    ),
    (
        "16 a call before the last line",
        OLL,
        lines(
            line({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"city": "Oslo"}}}]}),
            line({"content": ""}, done=True, **ENDED),
        ),
        OSLO,
    ),
    (
        "16 a call cut off by the limit stays cut off",
        CHAT,
        sse(
            chunk({"content": "hi"}),
            calls(fragment("f", '{"city":"Oslo"}', id="a", index=0)),
            chunk(finish="length"),
            done=True,
        ),
        [("text", "hi"), ("call", "f", {"city": "Oslo"}), ("end", "length")],
    ),
    ("21 an error inside a 200 stream", CHAT, sse({"choices": [], "error": {"code": 502, "message": "limit"}}), []),
    (
        "21 an error and then the usual end",
        CHAT,
        sse({"error": {"message": "The model is not multimodal", "code": 400}}, done=True),
        [],
    ),
    (
        "21 an error behind the beginning",
        RESP,
        named(
            {"type": "response.created", "sequence_number": 0, "response": response("in_progress")},
            {"type": "error", "sequence_number": 1, "code": "insufficient_quota", "message": "no", "param": None},
        ),
        [],
    ),
    (
        "21 an error where a message should begin",
        ANTH,
        named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        [],
    ),
    ("24 a stream without its end", CHAT, sse(chunk({"content": "hi"})), []),
    (
        "24 a call that was cut in the middle",
        CHAT,
        sse(calls(fragment("f", '{"city":"Os', id="a", index=0))),
        [],
    ),
    ("24 no message_stop", ANTH, named(message_start(input_tokens=1), *block(0, {"type": "text", "text": "hi"})), []),
    ("24 no last line", OLL, lines(line({"content": "hi"})), []),
    ("24 no reason to end", GEM, sse(candidate({"text": "hi"})), []),
    (
        "24 no response.completed",
        RESP,
        named({"type": "response.created", "sequence_number": 0, "response": response("in_progress")}),
        [],
    ),
    (
        "31 no content and a reason that is no stop",
        GEM,
        sse({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}], "modelVersion": "m"}),
        [("end", "malformed")],
    ),
    ("31 the limit without content", GEM, sse({"candidates": [{"finishReason": "MAX_TOKENS"}]}), [("end", "length")]),
    (
        "31 a refusal",
        ANTH,
        named(message_start(input_tokens=1), *message_end("refusal", output_tokens=0)),
        [("end", "refusal")],
    ),
    (
        "46 comments, pings and empty data",
        CHAT,
        b": ping\n\n:\n\ndata:\n\n"
        + sse(chunk({"content": "hi"}))
        + b"event: ping\ndata: {}\n\n: OPENROUTER PROCESSING\n\n"
        b"data:" + sse(chunk(finish="stop"))[6:] + b"data:[DONE]\n\n",
        HI,
    ),
    (
        "46 a ping between events",
        ANTH,
        named(
            message_start(input_tokens=1),
            {"type": "ping"},
            *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hi"}),
            {"type": "ping"},
            *message_end("end_turn", output_tokens=1),
        ),
        HI,
    ),
    *[
        (
            f"74 thoughts under {name}",
            CHAT,
            sse(chunk({name: "hm"}), chunk({"content": "ok"}), chunk(finish="stop"), done=True),
            THOUGHT,
        )
        for name in ("reasoning", "reasoning_content")
    ],
    (
        "74 the same thought under two names is one",
        CHAT,
        sse(
            chunk({"reasoning": "hm", "reasoning_content": "hm"}),
            chunk({"content": "ok"}),
            chunk(finish="stop"),
            done=True,
        ),
        THOUGHT,
    ),
    (
        "74 thinking",
        OLL,
        lines(
            line({"content": "", "thinking": "hm"}), line({"content": "ok"}), line({"content": ""}, done=True, **ENDED)
        ),
        THOUGHT,
    ),
    (
        "77 a first chunk without choices, a choice without delta",
        CHAT,
        sse(
            {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            chunk({"content": "hi", "tool_calls": []}),
            {
                "id": "x",
                "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"start_offset": 0}}],
            },
            chunk(finish="stop"),
            {"id": "x", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
            done=True,
        ),
        HI,
    ),
    (
        "79 no candidates at all",
        GEM,
        sse(
            {
                "promptFeedback": {"blockReason": "SAFETY"},
                "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
            }
        ),
        [("end", "filter")],
    ),
    (
        "80 NDJSON, and the last line lacks its newline",
        OLL,
        lines(line({"content": "h"}), line({"content": "i"}), line({"content": ""}, done=True, **ENDED))[:-1],
        HI,
    ),
    ("80 an error line", OLL, lines(line({"content": "h"}), {"error": "out of memory"}), []),
    (
        "81 calls with object arguments and no ids",
        OLL,
        lines(
            line(
                {
                    "content": "",
                    "tool_calls": [
                        {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}},
                        {"function": {"name": "get_time", "arguments": {"tz": "JST"}}},
                    ],
                }
            ),
            line({"content": ""}, done=True, **ENDED),
        ),
        TWO,
    ),
    (
        "123 an empty input before the streamed one",
        ANTH,
        named(
            message_start(input_tokens=1),
            *block(
                0,
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"city":'},
                {"type": "input_json_delta", "partial_json": '"Oslo"}'},
            ),
            *message_end("tool_use", output_tokens=1),
        ),
        OSLO,
    ),
    (
        "123 an input that is all there is",
        ANTH,
        named(
            message_start(input_tokens=1),
            *block(0, {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Oslo"}}),
            *message_end("tool_use", output_tokens=1),
        ),
        OSLO,
    ),
    (
        "127 thoughts, then text",
        CHAT,
        sse(
            chunk({"role": "assistant", "reasoning_content": "h"}),
            chunk({"role": "assistant", "reasoning_content": "m"}),
            chunk({"role": "assistant", "content": "ok"}),
            chunk(finish="stop"),
            done=True,
        ),
        THOUGHT,
    ),
    (
        "135 a call the model failed to write",
        CHAT,
        sse({"error": {"message": "x", "code": "tool_use_failed", "failed_generation": "<f>", "status_code": 400}}),
        [],
    ),
]
IDS = [f"{row[0]} [{row[1]}]" for row in CASES]


@pytest.mark.parametrize(("name", "source", "data", "said"), CASES, ids=IDS)
def test_the_stream_says(name: str, source: str, data: bytes, said: Said) -> None:
    events = events_of(source, data)
    reply = fold(events)
    if said:
        assert say(reply) == said
    else:
        assert not isinstance(reply, Reply), "an error, never a successful empty answer"
    assert fold(byte_by_byte(source, data)) == reply  # 44


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("name", "source", "data", "said"), CASES, ids=IDS)
def test_every_client_hears_the_same(name: str, source: str, data: bytes, said: Said, client: str) -> None:
    heard = say(folded(client, stream_to(client, events_of(source, data))))
    if not said:
        assert heard[0][0] == "failed"
        return
    words, end = heard[:-1], heard[-1][1]
    assert words == said[:-1]
    assert end == said[-1][1] or (end, said[-1][1]) in LESS_FINE.get(client, ()), "an end may be said less finely"
    assert (end == "stop") == (said[-1][1] == "stop")


# What a dialect has no word of its own for; never a plain stop (31).
LESS_FINE: dict[str, tuple[tuple[str, str], ...]] = {
    CHAT: (("filter", "refusal"), ("length", "malformed")),
    RESP: (("filter", "refusal"), ("other", "malformed")),
    ANTH: (("refusal", "filter"), ("length", "malformed")),
    GEM: (("filter", "refusal"),),
    OLL: (("length", "refusal"), ("length", "filter"), ("length", "malformed")),
}


def test_case_129_every_chunk_of_a_chat_stream_has_the_same_head() -> None:
    from tests.dialects.openai_chat.grammar import check_stream

    for _, source, data, said in CASES:
        chunks = check_stream(stream_to(CHAT, events_of(source, data)))
        heads = {(c["id"], c["object"], c["created"], c["model"]) for c in chunks if "choices" in c}
        assert len(heads) == 1 or not said


USAGE: list[tuple[str, str, bytes, dict[str, int]]] = [
    (
        "26 usage in the last chunk, beside an empty choice",
        CHAT,
        sse(
            chunk({"content": "hi"}),
            chunk(finish="stop"),
            {"id": "x", "choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
            done=True,
        ),
        {"input": 7, "output": 2},
    ),
    (
        "26 usage beside the text",
        CHAT,
        sse(
            chunk({"content": "hi"}, usage={"prompt_tokens": 7, "completion_tokens": 1}),
            chunk(finish="stop", usage={"prompt_tokens": 7, "completion_tokens": 2}),
            done=True,
        ),
        {"input": 7, "output": 2},
    ),
    ("26 nobody told: not zero", CHAT, sse(chunk({"content": "hi"}), chunk(finish="stop"), done=True), {}),
    (
        "26 what the beginning said is kept",
        ANTH,
        named(
            message_start(input_tokens=7, cache_read_input_tokens=3),
            *block(0, {"type": "text", "text": "hi"}),
            *message_end("end_turn", output_tokens=2),
        ),
        {"input": 7, "cache_read": 3, "output": 2},
    ),
]


@pytest.mark.parametrize(("name", "source", "data", "usage"), USAGE, ids=[row[0] for row in USAGE])
def test_the_stream_counts(name: str, source: str, data: bytes, usage: dict[str, int]) -> None:
    reply = folded(source, data)
    assert isinstance(reply, Reply)
    assert count(reply.usage) == usage
