"""The official package is the referee: it parses what we write, and we read what it sends."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import ollama
import pytest
from ollama import ChatResponse, GenerateResponse, ResponseError
from ollama._types import ChatRequest, GenerateRequest
from pydantic import ValidationError

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.fold import unfold
from dragoman.model.messages import Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.ollama.grammar import check_stream
from tests.laws.test_recorded import decoded_requests, replies_of
from tests.recorded import needs_corpus

SOURCES = [name for name in NAMES if name != "canonical"]
HERE = find_dialect("ollama")
ASKED_GENERATE = HERE.decode_request(WireRequest(body={"model": "m", "prompt": "x"}, path="/api/generate"), Notes())


def read(body: JsonObject) -> ChatResponse | GenerateResponse:
    """Strictly: a number that is a string is not one."""
    kind = ChatResponse if "message" in body else GenerateResponse
    return kind.model_validate(body, strict=True)


@needs_corpus
@pytest.mark.parametrize("asked", [None, ASKED_GENERATE], ids=["chat", "generate"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_reply_we_write_parses(source: str, asked: Request | None) -> None:
    for case, reply in replies_of(source):
        body = load_json(dump_json(HERE.encode_reply(reply, Notes(), asked).body))
        assert read(body).done is True, case.name


@needs_corpus
@pytest.mark.parametrize("asked", [None, ASKED_GENERATE], ids=["chat", "generate"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_stream_we_write_parses_and_keeps_the_grammar(source: str, asked: Request | None) -> None:
    for case, reply in replies_of(source):
        encoder = HERE.stream_encoder(Notes(), asked)
        data = encoder.feed(unfold(reply)) + encoder.close()
        for line in check_stream(data, counted=source != "ollama"):
            try:
                read(line)
            except ValidationError as error:
                pytest.fail(f"{case.name}: {error}")


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_request_we_write_is_one_the_package_could_send(source: str) -> None:
    for case, request in decoded_requests(source, HERE.name):
        wire = HERE.encode_request(make_legal(request, HERE, Notes()), Notes())
        if source == "ollama" and wire.body.get("format") == "xml":
            continue  # Ollama refused it too
        body = load_json(dump_json(wire.body))
        body["model"] = body.get("model") or "m"  # Bedrock, Vertex and Gemini have it in the path
        for tool in body.get("tools", ()):
            # the package's class for schemas knows less of them than the server, which takes any
            if "parameters" in tool.get("function", {}):
                assert type(tool["function"].pop("parameters")) is dict
        kind = GenerateRequest if wire.path == "/api/generate" else ChatRequest
        try:
            kind.model_validate(body, strict=True)
        except ValidationError as error:
            pytest.fail(f"{case.name}: {error}")


# ---------------------------------------------------------------- the client itself


def client(answer: Callable[[httpx.Request], httpx.Response]) -> ollama.Client:
    return ollama.Client(host="http://example.test", transport=httpx.MockTransport(answer))


CALL = ToolCall(id="toolu_1", name="f", arguments='{"a": 1}')
REPLY = Reply(
    id="msg_1",
    model="m",
    created=1700000000,
    choices=(Choice(parts=(Reasoning(text="hm"), Text(text="héllo"), CALL), finish=Finish(reason="tool_call")),),
    usage=Usage(input=3, output=4),
)


def test_the_client_reads_a_reply() -> None:
    body = dump_json(HERE.encode_reply(REPLY, Notes()).body)
    with client(lambda request: httpx.Response(200, content=body)) as talk:
        said = talk.chat("m", messages=[{"role": "user", "content": "x"}])
    assert (said.message.content, said.message.thinking, said.done_reason) == ("héllo", "hm", "stop")
    assert said.message.tool_calls is not None
    assert said.message.tool_calls[0].function.arguments == {"a": 1}
    assert (said.prompt_eval_count, said.eval_count) == (3, 4)


def test_the_client_reads_a_stream() -> None:
    encoder = HERE.stream_encoder(Notes())
    data = encoder.feed(unfold(REPLY)) + encoder.close()
    with client(lambda request: httpx.Response(200, content=data)) as talk:
        lines = list(talk.chat("m", stream=True))
    assert "".join(line.message.content or "" for line in lines) == "héllo"
    assert "".join(line.message.thinking or "" for line in lines) == "hm"
    assert [call.function.name for line in lines for call in line.message.tool_calls or ()] == ["f"]
    assert [line.done for line in lines] == [False, False, False, True]


def test_the_client_reads_a_generate_stream() -> None:
    encoder = HERE.stream_encoder(Notes(), ASKED_GENERATE)
    data = encoder.feed(unfold(REPLY)) + encoder.close()
    with client(lambda request: httpx.Response(200, content=data)) as talk:
        lines = list(talk.generate("m", "x", stream=True))
    assert "".join(line.response or "" for line in lines) == "héllo"
    assert "".join(line.thinking or "" for line in lines) == "hm"


def test_the_client_raises_on_a_stream_that_fails() -> None:
    encoder = HERE.stream_encoder(Notes())
    data = encoder.feed(list(unfold(REPLY))[:4]) + encoder.close()
    with (
        client(lambda request: httpx.Response(200, content=data)) as talk,
        pytest.raises(ResponseError, match="the stream was cut off"),
    ):
        list(talk.chat("m", stream=True))


def test_a_request_the_client_builds_is_read_without_a_leftover() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, content=dump_json(HERE.encode_reply(REPLY, Notes()).body))

    def weather(city: str) -> str:
        """How is it?

        Args:
          city: Where.
        """
        return city

    with client(answer) as talk:
        first = talk.chat(
            "m",
            messages=[{"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}],
            tools=[weather],
            format="json",
            think="high",
            options={"temperature": 0.5, "num_predict": 7, "stop": ["END"], "seed": 1},
            logprobs=True,
            top_logprobs=2,
        )
        talk.chat(
            "m",
            messages=[first.message, {"role": "tool", "content": "sunny", "tool_name": "f"}],
            keep_alive="5m",
            stream=False,
        )
    one, two = (HERE.decode_request(WireRequest(body=json.loads(r.content), path=r.url.path), Notes()) for r in sent)
    assert plain(one.extras) == {}
    assert one.tools is not None
    assert plain(getattr(one.tools[0], "extras", {})) == {}
    assert (one.max_output, one.temperature, one.stop, one.seed, one.stream) == (7, 0.5, ("END",), 1, False)
    assert plain(two.extras) == {"keep_alive": "5m"}
    call, result = two.messages[0].parts[-1], two.messages[1].parts[0]
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.id, result.call_id, result.name) == ("call_0_0", "call_0_0", "f")


def plain(extras: dict[str, Any]) -> dict[str, Any]:
    """Extras that say something: no spelling, no nulls."""
    return {key: value for key, value in extras.get("ollama", {}).items() if key[0] != "~" and value is not None}
