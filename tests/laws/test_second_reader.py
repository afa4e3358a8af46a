"""The second law, on recorded traffic: each fact of a wire is in the converted wire, or a note names it.

The facts are found by a reader that shares no code with the dialects (`tests/laws/second`), so a mistake that an
encoder and its decoder make alike is seen too. Every tenth recording is tried; `DRAGOMAN_ALL=1`, or
`python -m tests.laws.second`, tries all of them (about a minute).
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseStreamEvent

import dragoman
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.notes import Note, Notes
from tests.gaps import report
from tests.laws.second.corpus import DIALECTS, TALK, TRIES, problems_of
from tests.laws.second.law import lost_facts
from tests.laws.second.paths import Place, find, leaves, pointer
from tests.laws.second.reader import TABLES, What, read_facts
from tests.laws.second.streams import assemble
from tests.recorded import cases, needs_corpus

SECOND = Path(__file__).parent / "second"
EVERY = 1 if os.environ.get("DRAGOMAN_ALL") else 10
KNOWN = {
    "cerebras--thinking-tool_call-usage_cache-stream-78c4e13d": "Two answers were recorded into one file.",
    "openai--text-stream-b1aca11e": "One cache mark is said in two spellings.",
}


@needs_corpus
@pytest.mark.parametrize("what", TRIES)
@pytest.mark.parametrize("source", DIALECTS)
def test_no_fact_of_recorded_traffic_is_lost_without_a_note(source: str, what: str) -> None:
    for to in DIALECTS:
        problems = {case: found for case, found in problems_of(source, to, what, EVERY) if case not in KNOWN}
        assert not problems, f"{source} to {to}: {report(problems)}"


def test_each_reason_to_be_silent_is_a_clause() -> None:
    reasons = [why for table in TABLES.values() for what in table.values() for why in what["silent"].values()]
    assert len(reasons) > 50
    assert [why for why in reasons if len(why) < 10] == []


# Where only one of several words is a fact, or whether there is one: how much a model thinks is said in words and
# numbers that others do not have (`test_any_wish_to_think_is_one_the_model_takes`), and a mark is a mark.
READ_AS_ONE = {"effort", "show", "cache", "finish", "output", "tool_choice"}


@needs_corpus
@pytest.mark.parametrize("what", ["request", "reply"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_value_of_recorded_traffic_is_read(dialect: str, what: What) -> None:
    """Another value there is another fact. Without this a path that reads nothing would hide what is lost."""
    table, unread = TABLES[dialect][what], set[str]()
    seen: set[str] = set()
    as_one = [path for kind, paths in table.items() if kind.rstrip("~^") in READ_AS_ONE for path in paths]
    for case in [case for case in cases(dialect) if case.meta["endpoint"] in TALK and not case.failed][::EVERY]:
        wire = case.request() if what == "request" else case.reply()
        if wire is None or type(wire.body) is not dict or wire.body.get("error"):
            continue
        body = copy_json(wire.body)
        before = read_facts(dialect, what, copy_json(body), source=True)
        silent = {found.place for path in (*table["skip"], *table["silent"], *as_one) for found in find(body, path)}
        for place, value in list(leaves(body)):
            shape = re.sub(r"/\d+", "/*", pointer(place))
            if value in (None, "", False, 0) or shape in seen:
                continue
            if any(place[:n] in silent for n in range(len(place) + 1)):
                continue
            seen.add(shape)
            put(body, place, not value if type(value) is bool else value + (3 if type(value) is not str else "zz"))
            if read_facts(dialect, what, body, source=True) == before:
                unread.add(shape)
            put(body, place, value)
    assert unread == set()


def put(body: Any, place: Place, value: Any) -> None:
    for step in place[:-1]:
        body = body[step]
    body[place[-1]] = value


# Events of OpenAI's SDK that the second reader leaves out, by their endings.
TOLD_AGAIN = {
    "created|in_progress|queued|searching|generating|interpreting|partial_image": "how far it is",
    "audio.delta|audio.done|audio.transcript.delta|audio.transcript.done": "sound comes over the realtime API",
    "output_text.done|refusal.done|content_part.done|reasoning_text.done|arguments.done": "said once more at the end",
    "reasoning_summary_text.done|reasoning_summary_part.done": "said once more at the end",
    "input.delta|input.done|code.delta|code.done|mcp_call_arguments.delta": "the finished item has the whole of it",
    "shell_call_command.added|shell_call_command.delta|shell_call_command.done|content.delta|content.done": "as above",
    "compacting": "as above",
    "call.completed|call.failed|tools.completed|tools.failed": "the finished item says so",
}


def test_every_event_of_a_responses_stream_is_read_or_repeated_at_its_end() -> None:
    union = get_args(get_args(ResponseStreamEvent)[0])
    kinds = {get_args(event.model_fields["type"].annotation)[0] for event in union}
    read = set(re.findall(r'"((?:response\.[a-z_.]+)|error)"', (SECOND / "streams.py").read_text("utf-8")))
    endings = tuple(ending for group in TOLD_AGAIN for ending in group.split("|"))
    assert len(kinds) > 50
    assert sorted(kind for kind in kinds - read if not kind.endswith(endings)) == []


# ---------------------------------------------------------------- the law would notice

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG = "data:image/png;base64,iVBORw0KGgo="
REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PNG}}],
        },
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "snow"},
        {"role": "tool", "tool_call_id": "call_2", "content": "sun"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "the sky", "parameters": SCHEMA}}],
    "tool_choice": "required",
    "top_p": 0.9,
    "frequency_penalty": 0.5,
    "max_completion_tokens": 100,
    "stop": ["END", "STOP"],
    "logit_bias": {"50256": -100},
    "response_format": {"type": "json_schema", "json_schema": {"name": "sky", "schema": SCHEMA}},
}


def converted(to: str) -> tuple[Any, tuple[Note, ...]]:
    made = dragoman.convert(REQUEST, source="openai_chat", to=to)
    return copy_json(made.body), made.notes


def is_noticed(to: str, body: Any, notes: tuple[Note, ...]) -> bool:
    return bool(lost_facts("openai_chat", to, "request", REQUEST, body, notes))


@pytest.mark.parametrize("to", DIALECTS)
def test_a_request_as_we_convert_it_is_sound(to: str) -> None:
    body, notes = converted(to)
    assert lost_facts("openai_chat", to, "request", REQUEST, body, notes) == []


def swap(holder: dict[str, Any], one: str, other: str) -> None:
    holder[one], holder[other] = holder[other], holder[one]


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "topP and frequencyPenalty are swapped": (
        "gemini",
        lambda body: swap(body["generationConfig"], "topP", "frequencyPenalty"),
    ),
    "no responseMimeType": ("gemini", lambda body: body["generationConfig"].pop("responseMimeType")),
    "no name in a functionResponse": (
        "gemini",
        lambda body: body["contents"][2]["parts"][0]["functionResponse"].pop("name"),
    ),
    "the wrong name in a functionResponse": (
        "gemini",
        lambda body: body["contents"][2]["parts"][0]["functionResponse"].update(name="other"),
    ),
    "an image is left out": ("anthropic", lambda body: body["messages"][0]["content"].pop()),
    "a text is left out": ("anthropic", lambda body: body["messages"][0]["content"].pop(0)),
    "a stop word is left out": ("anthropic", lambda body: body["stop_sequences"].pop()),
    "a result says something else": (
        "anthropic",
        lambda body: body["messages"][2]["content"][0].update(content="sun"),
    ),
    "a call is left out": ("openai_responses", lambda body: body["input"].pop(3)),
    "other arguments": ("openai_responses", lambda body: body["input"][2].update(arguments='{"city":"Rome"}')),
    "no type of a tool": ("openai_chat", lambda body: body["tools"][0].pop("type")),
    "no type of a call": ("openai_chat", lambda body: body["messages"][2]["tool_calls"][0].pop("type")),
    "no type of a part": ("openai_chat", lambda body: body["messages"][1]["content"][0].pop("type")),
    "no schema": ("ollama", lambda body: body.pop("format")),
    "a limit of another number": ("ollama", lambda body: body["options"].update(num_predict=99)),
}


@pytest.mark.parametrize(("to", "harm"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_is_noticed(to: str, harm: Callable[[Any], Any]) -> None:
    body, notes = converted(to)
    harm(body)
    assert is_noticed(to, body, notes)


@pytest.mark.parametrize("to", [name for name in DIALECTS if name != "openai_chat"])
def test_a_note_that_is_missing_is_noticed(to: str) -> None:
    """`logit_bias` declared silent: the first law believes it."""
    body, notes = converted(to)
    assert is_noticed(to, body, tuple(note for note in notes if "logit_bias" not in note.where))


def told(body: dict[str, Any], source: str, to: str, **changes: Any) -> list[str]:
    """What is lost of a request if the target says other words than we write: old ones, and new ones in their place."""
    made = dragoman.convert(body, source=source, to=to)
    text = dump_json(made.body).decode()
    for i, (old, new) in enumerate(changes.items()):
        assert old in text, i
        text = text.replace(old, new)
    return lost_facts(source, to, "request", body, load_json(text.encode()), made.notes)


def test_a_key_inside_a_turn_is_read_too() -> None:
    """A list of parts is no value of its own: what no path reads in it must be there, or a note must name it."""
    part = {"type": "text", "text": "hi", "mood": "sour"}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    assert told(body, "openai_chat", "openai_chat") == []
    assert told(body, "openai_chat", "openai_chat", sour="sweet")
    made = dragoman.convert(body, source="openai_chat", to="anthropic")
    assert lost_facts("openai_chat", "anthropic", "request", body, made.body, made.notes) == []
    assert lost_facts("openai_chat", "anthropic", "request", body, made.body, ())


def test_the_type_of_a_picture_and_the_failure_of_a_call_are_facts() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "gone", "is_error": True}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": source}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
            {"role": "user", "content": [result]},
        ],
    }
    for to, mark in (("openai_chat", "[ERROR] "), ("openai_responses", "[ERROR] "), ("gemini", '"error":')):
        assert told(body, "anthropic", to) == []
        assert told(body, "anthropic", to, **{"image/png": "image/gif"})
        assert told(body, "anthropic", to, **{mark: '"output":' if to == "gemini" else ""})


def test_what_the_target_has_a_word_for_is_not_excused_as_an_unknown_key() -> None:
    """A decoder that reads no `top_p`: the key is left as the source's own, and has a note."""
    body, notes = converted("gemini")
    del body["generationConfig"]["topP"]
    unread = Note("dropped", "/top_p", "only openai_chat has top_p", "/extras/openai_chat/top_p")
    assert is_noticed("gemini", body, (*notes, unread))
    said = Note("dropped", "/top_p", "the model refuses it", "/top_p")
    assert not is_noticed("gemini", body, (*notes, said))


def test_an_altered_turn_excuses_no_lost_text() -> None:
    body, notes = converted("anthropic")
    altered = Note("altered", "/messages/1/content", "said in another order", "/messages/1/parts")
    body["messages"][0]["content"].pop(0)
    assert is_noticed("anthropic", body, (*notes, altered))


ANSWER: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "snow"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5},
}


@pytest.mark.parametrize(
    "harm",
    [
        lambda body: body["choices"][0].update(finish_reason="length"),
        lambda body: body["usage"].update(prompt_tokens=3),
        lambda body: body["usage"].update(total_tokens=8),
        lambda body: body["choices"][0]["message"].update(content="sno"),
        lambda body: body.update(id="other"),
    ],
    ids=["end_turn is said as max_tokens", "input without the cache", "a wrong sum", "a cut text", "another id"],
)
def test_a_wrong_answer_is_noticed(harm: Callable[[Any], Any]) -> None:
    made = dragoman.convert_reply(ANSWER, source="anthropic", to="openai_chat")
    body = copy_json(made.body)
    assert lost_facts("anthropic", "openai_chat", "reply", ANSWER, body, made.notes) == []
    harm(body)
    assert lost_facts("anthropic", "openai_chat", "reply", ANSWER, body, made.notes)


@pytest.mark.parametrize("kind", ["web", "retrievedContext", "maps"])
@pytest.mark.parametrize("to", [name for name in DIALECTS if name not in ("gemini", "ollama")])
def test_each_kind_of_source_that_gemini_cites_is_cited(kind: str, to: str) -> None:
    supports = [{"segment": {"startIndex": 0, "endIndex": 4, "text": "snow"}, "groundingChunkIndices": [0]}]
    grounding = {
        "groundingChunks": [{kind: {"uri": "https://a.example/", "title": "A"}}],
        "groundingSupports": supports,
    }
    candidate = {
        "content": {"role": "model", "parts": [{"text": "snow"}]},
        "finishReason": "STOP",
        "groundingMetadata": grounding,
    }
    body = {"responseId": "r", "modelVersion": "m", "candidates": [candidate]}
    made = dragoman.convert_reply(body, source="gemini", to=to)
    assert "https://a.example/" in dump_json(made.body).decode()
    assert lost_facts("gemini", to, "reply", body, made.body, made.notes) == []
    bare = load_json(dump_json(made.body).replace(b"https://a.example/", b""))
    assert lost_facts("gemini", to, "reply", body, bare, ())


def test_counts_that_come_first_are_passed_on_first() -> None:
    """Anthropic's clients read the tokens of a prompt from the first event. Gemini tells them in each of its own."""
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "sn"}]}}]}
    last = {"candidates": [{"content": {"role": "model", "parts": [{"text": "ow"}]}, "finishReason": "STOP"}]}
    counts = {"promptTokenCount": 1234, "candidatesTokenCount": 2, "totalTokenCount": 1236}
    chunks = [{**chunk, "usageMetadata": counts, "responseId": "r", "modelVersion": "m"} for chunk in (first, last)]
    data = b"".join(b"data: " + dump_json(chunk) + b"\n\n" for chunk in chunks)
    begun, _, _ = b"".join(dragoman.convert_stream([data], source="gemini", to="anthropic")).partition(b"\n\n")
    assert b'"input_tokens":1234' in begun


CHUNK = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s}]}\n\n'
)
CALLS = [
    '{"role":"assistant","content":null}',
    '{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"sky","arguments":""}}]}',
    '{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":\\"Oslo\\"}"}}]}',
    '{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"sky","arguments":"{}"}}]}',
]
STREAM = "".join(CHUNK % delta for delta in CALLS).encode() + (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("to", DIALECTS)
def test_a_parallel_call_that_a_stream_loses_is_noticed(to: str) -> None:
    notes = Notes()
    data = b"".join(dragoman.convert_stream([STREAM], source="openai_chat", to=to, notes=notes))
    whole = assemble("openai_chat", STREAM)
    assert lost_facts("openai_chat", to, "reply", whole, assemble(to, data), notes) == []
    one = STREAM.replace((CHUNK % CALLS[-1]).encode(), b"")
    data = b"".join(dragoman.convert_stream([one], source="openai_chat", to=to))
    assert lost_facts("openai_chat", to, "reply", whole, assemble(to, data), notes)


LEGACY = [
    '{"role":"assistant","content":null,"function_call":{"name":"sky","arguments":""}}',
    '{"function_call":{"arguments":"{\\"city\\":"}}',
    '{"function_call":{"arguments":"\\"Oslo\\"}"}}',
]


def test_a_function_call_of_the_older_form_is_put_together() -> None:
    whole = assemble("openai_chat", "".join(CHUNK % delta for delta in LEGACY).encode())
    assert whole is not None
    assert whole["choices"][0]["message"]["function_call"] == {"name": "sky", "arguments": '{"city":"Oslo"}'}


def test_what_the_last_event_says_is_read_too() -> None:
    events = [
        {"type": "message_start", "message": {"id": "a", "role": "assistant", "content": []}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"invocationLatency": 1213}},
    ]
    data = "".join(f"data: {dump_json(event).decode()}\n\n" for event in events)
    assert (assemble("anthropic", data.encode()) or {})["amazon-bedrock-invocationMetrics"]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/a/*[kind=x]/v", [1]),
        ("/a/*[!kind]/v", [3]),
        ("/a/*/v=2", [2]),
        ("/b|c/d", [4]),
        ("/a/*[kind]/v", [1, 2]),
        ("/a[kind=x]", []),
    ],
)
def test_paths_find_what_they_say(path: str, values: list[int]) -> None:
    body = {"a": [{"kind": "x", "v": 1}, {"kind": "y", "v": 2}, {"v": 3}], "c": {"d": 4}}
    assert [found.value for found in find(body, path)] == values
