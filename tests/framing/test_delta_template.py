"""Frames that differ in their text only are read without parsing them, and read as if they had been parsed."""

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import find_dialect
from dragoman.dialects.anthropic import stream_decoder as anthropic
from dragoman.dialects.gemini import stream_decoder as gemini
from dragoman.dialects.openai_chat import stream_decoder as chat
from dragoman.dialects.openai_responses import stream_decoder as responses
from dragoman.framing.templates import LEARN_EVERY_MISSES, DeltaTemplate
from dragoman.model.events import Event
from dragoman.notes import Notes


def say_chat(text: str, **more: Any) -> str:
    choice = {"index": more.pop("index", 0), "delta": {"content": text, **more.pop("delta", {})}, "finish_reason": None}
    return "data: " + json.dumps({"id": "c", "model": "m", "choices": [choice], **more}, ensure_ascii=False) + "\n\n"


def say_anthropic(text: str, key: str = "text", index: int = 0) -> str:
    body = {"type": "content_block_delta", "index": index, "delta": {"type": f"{key}_delta", key: text}}
    return f"event: content_block_delta\ndata: {json.dumps(body, ensure_ascii=False)}\n\n"


def open_anthropic(kind: str, index: int = 0) -> str:
    start = {"type": "content_block_start", "index": index, "content_block": {"type": kind, kind: ""}}
    return f"event: content_block_start\ndata: {json.dumps(start)}\n\n"


MESSAGE = 'event: message_start\ndata: {"type":"message_start","message":{"id":"i","model":"m","content":[]}}\n\n'
STOP = 'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
ROLE = say_chat("").replace('"content": ""', '"role": "assistant", "content": ""')
TEXTS = ["a", "", 'q"q', "b\\b", "\n", "é한😀", '"},"x":{"y":"', 'content":"', "{", "a" * 1000]

STREAMS: dict[str, list[str]] = {
    "plain": [ROLE, *map(say_chat, TEXTS * 4)],
    "escapes": [ROLE, *(say_chat("x").replace('"x"', '"\\u0041\\/\\n"') for _ in range(4))],
    "a second key": [ROLE, say_chat("a"), say_chat("b", delta={"role": "x"}), say_chat("c"), say_chat("d")],
    "a second string": [ROLE, *map(say_chat, "ab"), say_chat("c").replace('"c"', '"c", "name": "d"'), say_chat("e")],
    "no string": [ROLE, *map(say_chat, "ab"), say_chat("c").replace('"c"', "null"), say_chat("d")],
    "two choices": [ROLE, *(say_chat(t, index=i) for t in "abcdefgh" for i in (0, 1))],
    "a tier that changes": [ROLE, *map(say_chat, "ab"), say_chat("c", service_tier="flex"), *map(say_chat, "de")],
    "usage in every chunk": [ROLE, *(say_chat("x", usage={"completion_tokens": i}) for i in range(5))],
    "another part between": [
        ROLE,
        *map(say_chat, "abc"),
        say_chat("t").replace('"content"', '"reasoning_content"'),
        *map(say_chat, "def"),
    ],
    "after the end": [ROLE, *map(say_chat, "abc"), "data: [DONE]\n\n", *map(say_chat, "def")],
    "after an error": [ROLE, *map(say_chat, "abc"), 'data: {"error": {"message": "no"}}\n\n', *map(say_chat, "def")],
}
MESSAGES: dict[str, list[str]] = {
    "plain": [MESSAGE, open_anthropic("text"), *map(say_anthropic, TEXTS * 4), STOP],
    "thoughts, then text": [
        MESSAGE,
        open_anthropic("thinking"),
        *(say_anthropic(text, "thinking") for text in "abc"),
        STOP,
        open_anthropic("text"),
        *map(say_anthropic, "def"),
        STOP,
    ],
    "a ping between": [
        MESSAGE,
        open_anthropic("text"),
        *map(say_anthropic, "ab"),
        'event: ping\ndata: {"type":"ping"}\n\n',
        *map(say_anthropic, "cd"),
    ],
    "two blocks at once": [
        MESSAGE,
        open_anthropic("text"),
        open_anthropic("text", 1),
        *(say_anthropic(t, index=i) for t in "abcd" for i in (0, 1)),
    ],
}


def say_response(kind: str, number: int, **more: Any) -> str:
    body = {"type": f"response.{kind}", "sequence_number": number, **more}
    return f"event: response.{kind}\ndata: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


def say_output(text: str, number: int, item: str = "a", **more: Any) -> str:
    place = {"item_id": item, "output_index": 0, "content_index": 0}
    return say_response("output_text.delta", number, **place, delta=text, logprobs=[], **more)


def add_output(number: int, item: str = "a") -> str:
    added = {"id": item, "type": "message", "role": "assistant", "content": []}
    return say_response("output_item.added", number, output_index=0, item=added)


CREATED = say_response("created", 0, response={"id": "r", "object": "response", "model": "m", "output": []})
RESPONSES: dict[str, list[str]] = {
    "plain": [CREATED, add_output(1), *(say_output(text, i) for i, text in enumerate(TEXTS * 4))],
    "padded": [CREATED, add_output(1), *(say_output(t, i, obfuscation="x" * i) for i, t in enumerate(TEXTS * 4))],
    "the number last": [
        CREATED,
        add_output(1),
        *(
            say_output("x", 7).replace('"sequence_number":7,', "").replace("}\n", f',"sequence_number":{i}}}\n')
            for i in range(5)
        ),
    ],
    "two items": [CREATED, add_output(1), add_output(2, "b"), *(say_output(t, 3, i) for t in "cdef" for i in "ab")],
    "a text that looks like a number": [
        CREATED,
        add_output(1),
        *(say_output('"sequence_number":1,', i) for i in range(4)),
        *(say_output(',"obfuscation":"x"', i) for i in range(4)),
    ],
    "chances now and then": [
        CREATED,
        add_output(1),
        *map(say_output, "abc", range(3)),
        say_output("d", 4).replace(
            '"logprobs":[]', '"logprobs":[{"token":"d","logprob":-1,"bytes":[],"top_logprobs":[]}]'
        ),
        *map(say_output, "efg", range(3)),
    ],
    "after an error": [
        CREATED,
        add_output(1),
        *map(say_output, "abc", range(3)),
        say_response("failed", 4, response={"error": {"message": "no"}}),
        say_output("d", 5),
    ],
}
PADDED = [say_chat(t, obfuscation="x" * i).replace(": ", ":").replace(", ", ",") for i, t in enumerate("abcdef" * 4)]
STREAMS["padded"] = [ROLE, *PADDED]
STREAMS["padded from the middle"] = [ROLE, *map(say_chat, "abc"), *PADDED, *map(say_chat, "def")]


def say_gemini(text: str, count: int = 1, part: dict[str, Any] | None = None, index: int = 0, **more: Any) -> str:
    candidate = {"content": {"parts": [{"text": text, **(part or {})}], "role": "model"}, "index": index, **more}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": count}
    body = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}
    return f"data: {json.dumps(body, ensure_ascii=False)}\r\n\r\n"


CITED = {"citationSources": [{"uri": "http://x", "endIndex": 1}]}
LAST = say_gemini("z", 9, finishReason="STOP")
GEMINI: dict[str, list[str]] = {
    "plain": [*map(say_gemini, TEXTS * 4), LAST],
    "counts that grow": [*(say_gemini(text, i) for i, text in enumerate(TEXTS * 4)), LAST],
    "counts that fall back": [*(say_gemini(text, i % 3) for i, text in enumerate("abcdefgh")), *map(say_gemini, "ij")],
    "a thought between": [
        *map(say_gemini, "abc"),
        *(say_gemini(text, part={"thought": True}) for text in "def"),
        *map(say_gemini, "ghi"),
        LAST,
    ],
    "a signature": [
        *map(say_gemini, "abc"),
        say_gemini("d", part={"thoughtSignature": "s"}),
        *map(say_gemini, "ef"),
        LAST,
    ],
    "two candidates": [*(say_gemini(text, index=i) for text in "abcdef" for i in (0, 1)), LAST],
    "sources in every frame": [*(say_gemini(text, citationMetadata=CITED) for text in "abcdef"), LAST],
    "something new": [
        *map(say_gemini, "abc"),
        say_gemini("d").replace('"responseId"', '"promptFeedback": {"x": 1}, "responseId"'),
        *map(say_gemini, "ef"),
        LAST,
    ],
    "another key instead": [
        *map(say_gemini, "abc"),
        say_gemini("d").replace("modelVersion", "x"),
        *map(say_gemini, "ef"),
    ],
    "after an error": [*map(say_gemini, "abc"), 'data: {"error": {"message": "no", "code": 500}}\n\n', say_gemini("d")],
}
CASES = {"gemini": GEMINI, "openai_chat": STREAMS, "anthropic": MESSAGES, "openai_responses": RESPONSES}
ALL = [(dialect, name) for dialect, streams in CASES.items() for name in streams]


def read(dialect: str, pieces: list[bytes]) -> list[Event]:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("dialect", "name"), ALL)
def test_a_stream_is_read_as_if_every_frame_were_parsed(
    dialect: str, name: str, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [frame.encode() for frame in CASES[dialect][name]]
    pieces = [b"".join(frames)] if together else frames
    quick = read(dialect, pieces)
    monkeypatch.setattr(DeltaTemplate, "read", lambda self, block: None)
    for decoder in (chat.StreamDecoder, gemini.StreamDecoder):  # nor any other short way
        monkeypatch.setattr(decoder, "_read_text", lambda *_: False)
    assert quick == read(dialect, pieces)


def test_an_end_of_a_block_ends_what_was_learnt_of_it() -> None:
    frames = [MESSAGE, open_anthropic("text"), *map(say_anthropic, "ab"), STOP, say_anthropic("c")]
    with pytest.raises(Exception, match="outside its block"):
        read("anthropic", ["".join(frames).encode()])


LONG: dict[str, tuple[Any, str, list[str]]] = {
    "gemini": (gemini, "load_json", [say_gemini(f"word {i}") for i in range(100)]),
    "openai_chat": (chat, "load_json", [ROLE, *(say_chat(f"word {i}") for i in range(100))]),
    "anthropic": (
        anthropic,
        "load_object",
        [MESSAGE, open_anthropic("text"), *(say_anthropic(f"{i}") for i in range(100))],
    ),
    "openai_responses": (
        responses,
        "load_object",
        [CREATED, add_output(1), *(say_output(f"{i}", i, obfuscation="x" * (i % 9)) for i in range(100))],
    ),
}


@pytest.mark.parametrize("dialect", LONG)
def test_hardly_a_frame_is_parsed(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, loader, frames = LONG[dialect]
    parsed = 0
    load = getattr(module, loader)

    def count(data: bytes) -> Any:
        nonlocal parsed
        parsed += 1
        return load(data)

    monkeypatch.setattr(module, loader, count)
    events = read(dialect, ["".join(frames).encode()])
    assert len(events) > 100
    assert parsed < 6


def test_a_frame_that_changes_is_learnt_again() -> None:
    template = DeltaTemplate()
    assert template.learn(b'{"a":1,"t":"x"}', b'"t"', "x")
    assert template.read(b'{"a":1,"t":"y"}') == "y"
    for _ in range(LEARN_EVERY_MISSES):
        template.learn(b'{"a":2,"t":"x"}', b'"t"', "x")
    assert template.read(b'{"a":2,"t":"z"}') == "z"
    assert template.read(b'{"a":1,"t":"y"}') is None


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b'{"t":"x","u":{"t":"y"}}', "x"),  # which of the two?
        (b'{"t":"x"}', "y"),
        (b'{"t":["x"]}', "x"),
        (b"{}", ""),
    ],
)
def test_what_may_mean_something_else_is_not_learnt(block: bytes, text: str) -> None:
    assert not DeltaTemplate().learn(block, b'"t"', text)


@pytest.mark.parametrize(
    "block", [b'{"t":"', b'{"t":"}', b'{"t":"x"y"}', b'{"t":"x","t":"y"}', b'{"t":"\n"}', b'{"t":"x\\"}']
)
def test_what_only_looks_alike_is_not_read(block: bytes) -> None:
    template = DeltaTemplate()
    assert template.learn(b'{"t":"x"}', b'"t"', "x")
    assert template.read(block) is None


@given(st.lists(st.text(max_size=20), max_size=20), st.booleans())
def test_whatever_is_said_is_read_as_json_reads_it(texts: list[str], compact: bool) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    template, first = DeltaTemplate(), json.dumps({"a": [1], "t": "x", "b": {}}, separators=separators).encode()
    assert template.learn(first, b'"t"', "x")
    for text in texts:
        assert template.read(json.dumps({"a": [1], "t": text, "b": {}}, separators=separators).encode()) == text


@pytest.mark.parametrize(
    ("dialect", "name"),
    [("openai_chat", "two choices"), ("anthropic", "plain"), ("openai_responses", "plain"), ("gemini", "plain")],
)
def test_a_decoder_goes_without_the_collector(dialect: str, name: str) -> None:
    frames = CASES[dialect][name]
    read(dialect, ["".join(frames).encode()])
    gc.collect()
    gc.disable()
    try:
        read(dialect, ["".join(frames).encode()])
        assert gc.collect() == 0
    finally:
        gc.enable()
