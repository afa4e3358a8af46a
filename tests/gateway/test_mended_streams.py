"""A stream in the client's own dialect is passed on as it is only while its bytes are legal (issue 16, point 16).

Each row bends one legal stream with two calls. The checkers of `dragoman.testing` refuse the bent bytes, and accept
what the client of the gateway gets: with the same two calls in it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import ollama
import openai
import pytest

from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from dragoman.testing.checkers import check_stream
from dragoman.wire import WireReply
from tests.gateway.house import KINDS, Faultline, House, faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, post

Json = dict[str, Any]
Bend = Callable[[list[Json]], list[Json]]
MODEL = "far-model"
WORDS = "all that was said"
PARIS, ROME = '{"city":"Paris"}', '{"city":"Rome"}'


# ---------------------------------------------------------------- legal streams


def chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}


def fragment(index: int, arguments: str, **more: Any) -> Json:
    name = {"name": "weather"} if more else {}
    return chunk({"tool_calls": [{"index": index, **more, "function": {**name, "arguments": arguments}}]})


CHAT = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Look"}),
    chunk({"content": "ing"}),
    fragment(0, "", id="call_a", type="function"),
    fragment(0, PARIS[:6]),
    fragment(0, PARIS[6:]),
    fragment(1, "", id="call_b", type="function"),
    fragment(1, ROME),
    chunk({}, "tool_calls"),
]


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def use(index: int, name: str, arguments: str) -> list[Json]:
    start = {"type": "tool_use", "id": name, "name": "weather", "input": {}}
    pieces = ({"type": "input_json_delta", "partial_json": text} for text in (arguments[:6], arguments[6:]))
    return block(index, start, *pieces)


ANTHROPIC = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    },
    *block(0, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in ("Look", "ing"))),
    *use(1, "toolu_a", PARIS),
    *use(2, "toolu_b", ROME),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
]


def respond(status: str, output: list[Json]) -> Json:
    head = {"id": "resp_1", "object": "response", "created_at": 7, "model": "m", "status": status, "output": output}
    return head | {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "error": None}


def called(place: int, name: str, arguments: str) -> tuple[list[Json], Json]:
    item = {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": "weather", "status": "completed"}
    at = {"item_id": f"fc_{name}", "output_index": place}
    begun, done = {**item, "arguments": "", "status": "in_progress"}, {**item, "arguments": arguments}
    kind = "response.function_call_arguments"
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        {"type": f"{kind}.delta", **at, "delta": arguments[:6]},
        {"type": f"{kind}.delta", **at, "delta": arguments[6:]},
        {"type": f"{kind}.done", **at, "name": "weather", "arguments": arguments},
        {"type": "response.output_item.done", "output_index": place, "item": done},
    ], done


def numbered(events: list[Json]) -> list[Json]:
    return [{**event, "sequence_number": i} for i, event in enumerate(events)]


def responses() -> list[Json]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = {"type": "output_text", "text": "Looking", "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    paris, first = called(1, "call_a", PARIS)
    rome, second = called(2, "call_b", ROME)
    begun = {**message, "content": [], "status": "in_progress"}
    return [
        {"type": "response.created", "response": respond("in_progress", [])},
        {"type": "response.in_progress", "response": respond("in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **at, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": "Look", "logprobs": []},
        {"type": "response.output_text.delta", **at, "delta": "ing", "logprobs": []},
        {"type": "response.output_text.done", **at, "text": "Looking", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": text},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        *paris,
        *rome,
        {"type": "response.completed", "response": respond("completed", [message, first, second])},
    ]


def candidate(*parts: Json, **more: Any) -> Json:
    content = {"parts": list(parts), "role": "model"}
    return {"candidates": [{"content": content, "index": 0, **more}], "modelVersion": "m", "responseId": "r1"}


def function_call(name: str, arguments: str) -> Json:
    return {"functionCall": {"id": name, "name": "weather", "args": json.loads(arguments)}}


GEMINI = [
    candidate({"text": "Look"}),
    candidate({"text": "ing"}),
    candidate(function_call("a", PARIS)),
    candidate(function_call("b", ROME), finishReason="STOP"),
]


def line(*, done: bool = False, **message: Any) -> Json:
    said = {"role": "assistant", "content": "", **message}
    end = {"done_reason": "stop", "prompt_eval_count": 3, "eval_count": 9} if done else {}
    return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": said, "done": done, **end}


def tool_call(name: str, index: int, arguments: str) -> Json:
    return {"id": name, "function": {"index": index, "name": "weather", "arguments": json.loads(arguments)}}


OLLAMA = [
    line(content="Look"),
    line(content="ing"),
    line(tool_calls=[tool_call("a", 0, PARIS)]),
    line(tool_calls=[tool_call("b", 1, ROME)]),
    line(done=True),
]
LEGAL = {
    "openai_chat": CHAT,
    "anthropic": ANTHROPIC,
    "openai_responses": numbered(responses()),
    "gemini": GEMINI,
    "ollama": OLLAMA,
}


def write(dialect: str, bodies: list[Json]) -> list[bytes]:
    """Each body as a frame of its dialect."""
    data = [json.dumps(body).encode() for body in bodies]
    match dialect:
        case "ollama":
            return [text + b"\n" for text in data]
        case "openai_chat":
            return [*(b"data: " + text + b"\n\n" for text in data), b"data: [DONE]\n\n"]
        case "gemini":
            return [b"data: " + text + b"\r\n\r\n" for text in data]
        case _:
            names = [body.get("type", "").encode() for body in bodies]
            return [b"event: " + name + b"\ndata: " + text + b"\n\n" for name, text in zip(names, data, strict=True)]


# ---------------------------------------------------------------- how each is bent


def change(*, when: Callable[[Json], bool], **changes: Any) -> Bend:
    """In each object for which `when` is true: sets these keys, and removes those that are None."""

    def bend(bodies: list[Json]) -> list[Json]:
        for holder in (holder for body in bodies for holder in inner(body) if when(holder)):
            for key, value in changes.items():
                holder.pop(key, None)
                if value is not None:
                    holder[key] = value
        return bodies

    return bend


def inner(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        for item in list(value.values()):
            yield from inner(item)
    elif isinstance(value, list):
        for item in value:
            yield from inner(item)


def has(*keys: str, **values: Any) -> Callable[[Json], bool]:
    return lambda holder: all(key in holder for key in keys) and all(holder.get(k) == v for k, v in values.items())


def without(kind: str) -> Bend:
    return lambda bodies: [body for body in bodies if body.get("type") != kind]


def azure(bodies: list[Json]) -> list[Json]:
    return [{"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}, *bodies]


def whole_calls(bodies: list[Json]) -> list[Json]:
    """Each call in one chunk, all numbered 0 (Ollama's /v1)."""
    made = [fragment(0, text, id=name, type="function") for name, text in (("call_a", PARIS), ("call_b", ROME))]
    return [*bodies[:3], *made, bodies[-1]]


def cut_argument(bodies: list[Json]) -> list[Json]:
    """The last bracket of the last arguments is missing (vLLM's parsers)."""
    for holder in (holder for body in bodies for holder in inner(body)):
        for key in ("arguments", "partial_json", "delta"):
            if isinstance(holder.get(key), str) and holder[key].endswith('Rome"}'):
                holder[key] = holder[key][:-1]
    return bodies


def write_arguments(bodies: list[Json]) -> list[Json]:
    for holder in (holder for body in bodies for holder in inner(body) if "arguments" in holder):
        holder["arguments"] = json.dumps(holder["arguments"])
    return bodies


def bare_numbers(bodies: list[Json]) -> list[Json]:
    return change(when=has("output_index"), output_index=None, content_index=None)(bodies)


def unsigned_thought(bodies: list[Json]) -> list[Json]:
    """A thought without a signature (llama.cpp and others)."""
    thought = block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."})
    return [bodies[0], *thought, *({**b, "index": b["index"] + 1} if "index" in b else b for b in bodies[1:])]


def listed_text(bodies: list[Json]) -> list[Json]:
    """Thoughts and texts as blocks (Mistral)."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    texts = [chunk({"content": [{"type": "text", "text": text}]}) for text in ("Look", "ing")]
    return [bodies[0], chunk({"content": [thought]}), *texts, *bodies[3:]]


is_call = has("id", "function", type="function")
BENT: dict[str, dict[str, Bend]] = {
    "openai_chat": {
        "no index": change(when=has("index", "function"), index=None),
        "index 0 for all, calls whole": whole_calls,
        "indexes from 1": lambda bodies: change(when=has("function", index=1), index=2)(bodies),
        "no id": change(when=is_call, id=None),
        "empty id": change(when=is_call, id=""),
        "no type": change(when=is_call, type=None),
        "one id for all": change(when=is_call, id="call_a"),
        "stop with calls": change(when=has(finish_reason="tool_calls"), finish_reason="stop"),
        "no word at the end": change(when=has(finish_reason="tool_calls"), finish_reason=""),
        "a word of its own": change(when=has(finish_reason="tool_calls"), finish_reason="tool_use"),
        "no role": change(when=has("role"), role=None),
        "no choice index": change(when=has("delta"), index=None),
        "no id of the reply": change(when=has("choices"), id=None),
        "no model": change(when=has("choices"), model=None),
        "no time": change(when=has("choices"), created=None),
        "an empty word in each chunk": change(when=has("finish_reason", finish_reason=None), finish_reason=""),
        "text as a list": listed_text,
        "Azure's first chunk": azure,
        "a bracket is missing": cut_argument,
    },
    "anthropic": {
        "no id": change(when=has("usage", type="message"), id=None),
        "no model": change(when=has("usage", type="message"), model=None),
        "no usage at the start": change(when=has("usage", type="message"), usage=None),
        "no usage at the end": change(when=has("usage", type="message_delta"), usage=None),
        "no content": change(when=has("usage", type="message"), content=None),
        "no message_start": without("message_start"),
        "no message_delta": without("message_delta"),
        "no message_stop": without("message_stop"),
        "no content_block_stop": without("content_block_stop"),
        "no index": change(when=has("index"), index=None),
        "indexes from 1": lambda bodies: [{**b, "index": b["index"] + 1} if "index" in b else b for b in bodies],
        "no id of a call": change(when=has(type="tool_use"), id=None),
        "one id for all": change(when=has(type="tool_use"), id="toolu_a"),
        "a thought without a signature": unsigned_thought,
        "end_turn with calls": change(when=has(stop_reason="tool_use"), stop_reason="end_turn"),
        "a bracket is missing": cut_argument,
    },
    "openai_responses": {
        "no sequence_number": change(when=has("sequence_number"), sequence_number=None),
        "no output_index": bare_numbers,
        "no item_id": change(when=has("item_id"), item_id=None),
        "no created": without("response.created"),
        "no item added": without("response.output_item.added"),
        "no part added": without("response.content_part.added"),
        "no item done": without("response.output_item.done"),
        "no id of the message": change(when=has(type="message"), id=None),
        "one id for all": change(when=has("call_id"), call_id="call_a"),
        "no output at the end": change(when=has("output", status="completed"), output=[]),
        "a bracket is missing": cut_argument,
    },
    "gemini": {
        "one id for all": change(when=has("args", "name"), id="a"),
        "snake case": lambda bodies: load_json(json.dumps(bodies).replace("functionCall", "function_call")),
    },
    "ollama": {
        "one id for all": change(when=has("function"), id="a"),
        "no role": change(when=has("role"), role=None),
        "no time": change(when=has("created_at"), created_at=None),
        "no model": change(when=has("model"), model=None),
        "arguments as text": write_arguments,
    },
}
# The same stream with other bytes around its objects.
FRAMED: dict[str, dict[str, Callable[[bytes], bytes]]] = {
    "openai_chat": {
        "the last event has no end": lambda data: data.rstrip(b"\n"),
        "no [DONE]": lambda data: data.removesuffix(b"data: [DONE]\n\n"),
    },
    "anthropic": {
        "no event lines": lambda data: b"".join(f for f in data.splitlines(True) if not f.startswith(b"event:")),
        "the last event has no end": lambda data: data.rstrip(b"\n"),
    },
    "openai_responses": {"the last event has no end": lambda data: data.rstrip(b"\n")},
    "gemini": {
        "the last event has no end": lambda data: data.rstrip(b"\r\n"),
        "an end mark": lambda data: data + b"data: [DONE]\r\n\r\n",
        "comments": lambda data: b": processing\r\n\r\n" + data,
        "event lines": lambda data: data.replace(b"data:", b"event: message\r\ndata:"),
    },
    "ollama": {"the last line has no end": lambda data: data.rstrip(b"\n")},
}


def bent_rows() -> Iterator[Any]:
    for dialect, bends in BENT.items():
        for name, bend in bends.items():
            bodies: list[Json] = load_json(json.dumps(LEGAL[dialect]))
            yield pytest.param(dialect, write(dialect, bend(bodies)), id=f"{dialect}: {name}")
    for dialect, wraps in FRAMED.items():
        for name, wrap in wraps.items():
            data = wrap(b"".join(write(dialect, LEGAL[dialect])))
            yield pytest.param(dialect, [data[:50], data[50:]], id=f"{dialect}: {name}")


# ---------------------------------------------------------------- the test


ASKED: Json = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "tells it", "parameters": SCHEMA}
BODIES: dict[str, Json] = {
    "openai_chat": {**ASKED, "tools": [{"type": "function", "function": FUNCTION}]},
    "anthropic": {**ASKED, "max_tokens": 9, "tools": [{"name": "weather", "input_schema": SCHEMA}]},
    "openai_responses": {
        "model": MODEL,
        "input": "hi",
        "stream": True,
        "store": False,
        "tools": [{"type": "function", **FUNCTION, "strict": False}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [FUNCTION]}],
    },
    "ollama": {**ASKED, "tools": [{"type": "function", "function": FUNCTION}]},
}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai_responses": "/v1/responses",
    "ollama": "/api/chat",
    "gemini": f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
}


def read(dialect: str, data: bytes) -> Reply:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    reply = fold([*decoder.feed(data), *decoder.close()])
    assert isinstance(reply, Reply), reply
    return reply


def said(reply: Reply) -> tuple[str, list[tuple[str, Any]]]:
    parts = reply.choices[0].parts
    calls = [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]
    return "".join(part.text for part in parts if isinstance(part, Text)), calls


TWO_CALLS = [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]


class Row:
    """A gateway in front of one server of each dialect."""

    def __init__(self, house: House, lines: dict[str, Faultline]) -> None:
        self.house, self.lines = house, lines

    def play(self, dialect: str, pieces: list[bytes]) -> None:
        """The server sends these, one after the other."""
        paced = [part for piece in pieces for part in (piece, PACE_S)]
        self.lines[dialect].scripts = [stream(*paced, kind=find_dialect(dialect).media_type)]

    def ask(self, server: str, client: str, *, streamed: bool = True, **more: Any) -> bytes:
        """What a client gets that asks this server."""
        got = self.send(server, client, streamed=streamed, **more)
        assert got.status == 200, got.text
        return b"".join(line for line in got.body.splitlines(True) if not line.startswith(NOTES))

    def send(self, server: str, client: str, *, streamed: bool, **more: Any) -> Got:
        path, body = PATHS[client].replace(MODEL, f"{server}-model"), {**BODIES[client], **more}
        if "model" in body:
            body |= {"model": f"{server}-model", "stream": streamed}
        elif not streamed:
            path = path.replace("streamGenerateContent?alt=sse", "generateContent")
        return post(self.house.url, path, body)


PACE_S = 0.0005  # so that the gateway reads most pieces one by one; all must hold if it does not
NOTES = b": x-dragoman-notes"


@pytest.fixture(scope="module")
def row() -> Iterator[Row]:
    with ExitStack() as stack:
        lines = {name: stack.enter_context(faultline(say(500, b""))) for name in LEGAL}
        kinds = {"openai_chat": "vllm"}
        specs = [upstream(name, name, line.url, kind=kinds.get(name, KINDS[name])) for name, line in lines.items()]
        yield Row(stack.enter_context(open_house(*specs)), lines)


@pytest.mark.parametrize("dialect", LEGAL)
def test_a_legal_stream_keeps_every_byte(dialect: str, row: Row) -> None:
    pieces = write(dialect, LEGAL[dialect])
    assert check_stream(dialect, b"".join(pieces)) == []
    row.play(dialect, pieces)
    assert row.ask(dialect, dialect) == b"".join(pieces)


@pytest.mark.parametrize(("dialect", "pieces"), list(bent_rows()))
def test_a_bent_stream_is_mended_for_a_client_of_its_own_dialect(dialect: str, pieces: list[bytes], row: Row) -> None:
    assert check_stream(dialect, b"".join(pieces)), "the checker does not know this rule"
    row.play(dialect, pieces)
    got = row.ask(dialect, dialect)
    assert check_stream(dialect, got) == [], got.decode()
    reply = read(dialect, got)
    assert said(reply) == ("Looking", TWO_CALLS)
    assert reply.choices[0].finish is not None
    assert reply.choices[0].finish.reason == "tool_call"


def bent(dialect: str, *names: str) -> list[list[bytes]]:
    rows = [BENT[dialect][name] for name in names] if names else list(BENT[dialect].values())
    return [write(dialect, bend(load_json(json.dumps(LEGAL[dialect])))) for bend in rows]


def test_openais_own_client_reads_what_was_bent(row: Row) -> None:
    with openai.OpenAI(base_url=f"{row.house.url}/v1", api_key="x", max_retries=0) as client:
        for pieces in bent("openai_chat"):
            row.play("openai_chat", pieces)
            asked = {**BODIES["openai_chat"], "model": "openai_chat-model"}
            del asked["stream"]
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
            calls = choice.message.tool_calls or []
            assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
            assert len({call.id for call in calls}) == 2
            assert choice.finish_reason == "tool_calls"


def test_anthropics_own_client_reads_what_was_bent(row: Row) -> None:
    with anthropic.Anthropic(base_url=row.house.url, api_key="x", max_retries=0) as client:
        for pieces in bent("anthropic"):
            row.play("anthropic", pieces)
            asked = {**BODIES["anthropic"], "model": "anthropic-model"}
            del asked["stream"]
            with client.messages.stream(**asked) as events:
                message = events.get_final_message()
            calls = [block for block in message.content if block.type == "tool_use"]
            assert [call.input for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
            assert len({call.id for call in calls}) == 2
            assert message.stop_reason == "tool_use"


def test_ollamas_own_client_reads_what_was_bent(row: Row) -> None:
    client = ollama.Client(host=row.house.url)
    with client._client:
        read_bent_calls(client, row)


def read_bent_calls(client: ollama.Client, row: Row) -> None:
    for pieces in bent("ollama"):
        row.play("ollama", pieces)
        asked = {**BODIES["ollama"], "model": "ollama-model"}
        calls = [call for said in client.chat(**asked) for call in said.message.tool_calls or ()]
        assert [call.function.arguments for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]


# ---------------------------------------------------------------- duplicate ids, any pair


def call_ids(reply: Reply) -> list[str]:
    return [part.id for part in reply.choices[0].parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("server", LEGAL)
def test_two_calls_of_one_id_reach_no_client(server: str, row: Row) -> None:
    (pieces,) = bent(server, "one id for all")
    events = find_dialect(server).stream_decoder(Notes())
    reply = fold([*events.feed(b"".join(pieces)), *events.close()])
    assert isinstance(reply, Reply)
    assert len(set(call_ids(reply))) == 1
    whole = dump_json(find_dialect(server).encode_reply(reply, Notes()).body)
    for client in LEGAL:
        row.play(server, pieces)
        assert len(set(call_ids(read(client, row.ask(server, client))))) == 2, client
        row.lines[server].scripts = [say(200, whole)]
        got = load_json(row.ask(server, client, streamed=False))
        assert len(set(call_ids(find_dialect(client).decode_reply(WireReply(body=got), Notes())))) == 2, client


def test_an_id_of_an_earlier_call_is_not_given_again(row: Row) -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": PARIS}}
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
    ]
    row.play("openai_chat", write("openai_chat", CHAT))
    got = row.ask("openai_chat", "openai_chat", messages=talk)
    assert check_stream("openai_chat", got) == []
    assert "call_a" not in call_ids(read("openai_chat", got))


SAID_ONCE: dict[str, tuple[ToolCall, ...]] = {
    "one id for both": (ToolCall(id="one", name="weather", arguments=PARIS),) * 2,
    "a broken call": (ToolCall(id="one", name="weather", arguments=PARIS[:6]),),
}


@pytest.mark.parametrize("part", [Text(text=WORDS), Reasoning(text=WORDS)], ids=["text", "thought"])
@pytest.mark.parametrize("calls", SAID_ONCE)
@pytest.mark.parametrize("server", LEGAL)
def test_what_comes_after_a_call_is_said_once(server: str, calls: str, part: Part, row: Row) -> None:
    """The client has it already when a call must be mended."""
    first, *others = SAID_ONCE[calls]
    choice = Choice(parts=(first, part, *others), finish=Finish(reason="tool_call"))
    encoder = find_dialect(server).stream_encoder(Notes(), None)
    reply = Reply(id="r_1", model="m", created=7.0, choices=(choice,), usage=Usage(input=1, output=1))
    row.play(server, [piece for event in unfold(reply) if (piece := encoder.feed([event]))])
    got = read(server, row.ask(server, server))
    assert [one.text for one in got.choices[0].parts if isinstance(one, Text | Reasoning)] == [WORDS]


# ---------------------------------------------------------------- numbers of events


def long_text(count: int, first: int) -> list[Json]:
    """The beginning of a stream whose server counts from another number than 0."""
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    deltas = [{"type": "response.output_text.delta", **at, "delta": f"w{i} ", "logprobs": []} for i in range(count)]
    return [{**event, "sequence_number": first + i} for i, event in enumerate([*responses()[:4], *deltas])]


def mean_nothing(number: int) -> Json:
    """Its place is missing, so that the gateway writes the rest of the stream."""
    return {"type": "response.output_text.delta", "delta": "more", "sequence_number": number}


@pytest.mark.parametrize("together", [1, 7])
@pytest.mark.parametrize("count", [3, 450])
@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("bent", [False, True], ids=["cut", "bent and cut"])
def test_an_error_has_the_number_behind_that_of_the_servers_last_event(
    bent: bool, first: int, count: int, together: int, row: Row
) -> None:
    """Texts of a long stream are joined in memory, and those that come together are counted together."""
    events = long_text(count, first)
    frames = write("openai_responses", [*events, mean_nothing(first + len(events))] if bent else events)
    row.play("openai_responses", [b"".join(frames[i : i + together]) for i in range(0, len(frames), together)])
    lines = row.ask("openai_responses", "openai_responses").splitlines()
    got = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    begin = got[0]["sequence_number"]
    assert begin in (first, 0), "0 if a busy machine read all of it at once, so that all of it was written anew"
    assert [event["sequence_number"] for event in got] == list(range(begin, begin + len(got)))
    assert [event["type"] for event in got[-2:]] == ["error", "response.failed"]
    assert got[-1]["response"]["id"] == "resp_1"


# ---------------------------------------------------------------- whole answers

WHOLE: dict[str, dict[str, Callable[[Json], object]]] = {
    "openai_chat": {
        "no id": lambda body: [call.pop("id") for call in body["choices"][0]["message"]["tool_calls"]],
        "no type": lambda body: [call.pop("type") for call in body["choices"][0]["message"]["tool_calls"]],
        "stop with calls": lambda body: body["choices"][0].update(finish_reason="stop"),
        "no role": lambda body: body["choices"][0]["message"].pop("role"),
        "no choice index": lambda body: body["choices"][0].pop("index"),
        "no id of the reply": lambda body: body.pop("id"),
        "no model": lambda body: body.pop("model"),
        "no object": lambda body: body.pop("object"),
        "arguments are an object": lambda body: body["choices"][0]["message"]["tool_calls"][0]["function"].update(
            arguments={"city": "Paris"}
        ),
    },
    "anthropic": {
        "end_turn with calls": lambda body: body.update(stop_reason="end_turn"),
        "no role": lambda body: body.pop("role"),
        "no usage": lambda body: body.pop("usage"),
    },
    "ollama": {
        "no role": lambda body: body["message"].pop("role"),
        "no model": lambda body: body.pop("model"),
        "arguments as text": lambda body: body["message"]["tool_calls"][0]["function"].update(arguments=PARIS),
    },
}


@pytest.mark.parametrize("dialect", WHOLE)
def test_a_bent_whole_answer_is_mended_too(dialect: str, row: Row) -> None:
    there = find_dialect(dialect)
    legal = load_json(
        dump_json(there.encode_reply(read(dialect, b"".join(write(dialect, LEGAL[dialect]))), Notes()).body)
    )
    row.lines[dialect].scripts = [say(200, dump_json(legal))]
    assert row.ask(dialect, dialect, streamed=False) == dump_json(legal)
    for name, bend in WHOLE[dialect].items():
        body = load_json(dump_json(legal))
        bend(body)
        row.lines[dialect].scripts = [say(200, dump_json(body))]
        got = load_json(row.ask(dialect, dialect, streamed=False))
        assert shape(got) == shape(legal), name


@pytest.mark.parametrize("dialect", LEGAL)
def test_a_whole_answer_without_calls_is_never_emptied(dialect: str, row: Row) -> None:
    reply = Reply(id="r1", model="m", choices=(Choice(parts=(Text(text=WORDS),), finish=Finish(reason="stop")),))
    legal = load_json(dump_json(find_dialect(dialect).encode_reply(reply, Notes()).body))
    for place, body in copies_without_a_key(legal):
        if WORDS in str(body):
            row.lines[dialect].scripts = [say(200, dump_json(body))]
            got = row.send(dialect, dialect, streamed=False)
            assert WORDS in got.text if got.status == 200 else "cannot be read" in got.text, place


def copies_without_a_key(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(value, dict):
            yield f"{place}/{key}", {name: more for name, more in value.items() if name != key}
        for inner, copy in copies_without_a_key(item, f"{place}/{key}"):
            changed = value.copy()
            changed[key] = copy
            yield inner, changed


def shape(value: Any) -> Any:
    """The keys and types of a value, and the words that are not ids."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if not key.endswith("duration") and key[:6] != "cache_"}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return value if value in ("assistant", "tool_calls", "tool_use", "function", "stop") else type(value)


NO_OBJECTS = ["[1,2]", "12", "hello", '"hello"', "```{}", "{'city': 'Rome'}", '{"city": Rome}', '{"city": "Ro']


@pytest.mark.parametrize("arguments", NO_OBJECTS)
def test_arguments_that_are_no_object_never_make_a_client_fail(arguments: str, row: Row) -> None:
    """The Anthropic SDK reads the arguments while they come. The answer does not end as one whose calls may run."""
    pieces = [*CHAT[:6], fragment(1, "", id="call_b", type="function"), *(fragment(1, c) for c in arguments), CHAT[-1]]
    row.play("openai_chat", write("openai_chat", pieces))
    asked = {**BODIES["anthropic"], "model": "openai_chat-model"}
    del asked["stream"]
    with (
        anthropic.Anthropic(base_url=row.house.url, api_key="x", max_retries=0) as client,
        client.messages.stream(**asked) as events,
    ):
        message = events.get_final_message()
    assert message.stop_reason == "max_tokens"
