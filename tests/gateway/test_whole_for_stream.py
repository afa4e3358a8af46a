"""A stream was asked for and the upstream answers with one JSON document: every client still gets a whole stream."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product

import pytest
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Message, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from dragoman.upstream import retry
from dragoman.wire import WireReply
from tests.gateway.house import Faultline, House, Script, faultline, open_house, say, upstream
from tests.gateway.test_damaged_requests import DOORS
from tests.gateway.web import Got, post

DIALECTS = tuple(DOORS)
ASKED = Request(
    model="it-model",
    messages=(Message(role="user", parts=(Text(text="say it"),)),),
    tools=(Tool(name="look", parameters={"type": "object", "properties": {"at": {"type": "string"}}}),),
    stream=True,
)
SAID = Reply(
    id="r1",
    model="it-model",
    choices=(
        Choice(
            parts=(Text(text="Hier 你好\n\nvoilà."), ToolCall(id="call_1", name="look", arguments='{"at":"you"}')),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=7, output=5),
)
# What servers say a document is: the last ones do not know, or are wrong.
KINDS = ("application/json", "application/json; charset=utf-8", "text/plain", "", "text/event-stream")
WAYS = ("compact", "pretty", "indented", "compact", "pretty")  # how a document of each kind is laid out
PAIRS = list(product(DIALECTS, DIALECTS))


def document(dialect: str, way: str = "compact") -> bytes:
    body = find_dialect(dialect).encode_reply(SAID, Notes(), ASKED).body
    data = dump_json(body) if way == "compact" else json.dumps(body, indent=2).encode()
    return b"\r\n  " + data + b"\n\n" if way == "indented" else data


@dataclass
class StrictProviders:
    """A gateway in front of one server of each dialect."""

    house: House
    lines: dict[str, Faultline]

    def ask(self, server: str, client: str, script: Script, *, stream: bool = True, query: str = "?alt=sse") -> Got:
        self.lines[server].scripts = [script]
        asked = replace(ASKED, model=f"{server}-model", stream=stream)
        body = dict(find_dialect(client).encode_request(asked, Notes()).body)
        if stream and client == "openai_chat":
            body["stream_options"] = {"include_usage": True}
        verb = f"streamGenerateContent{query}" if stream else "generateContent"
        return post(self.house.url, DOORS[client].format(verb).replace("demo", asked.model), body)


@pytest.fixture(scope="module")
def providers() -> Iterator[StrictProviders]:
    with ExitStack() as open_things:
        lines = {server: open_things.enter_context(faultline(say(500, b""))) for server in DIALECTS}
        upstreams = [upstream(server, server, line.url) for server, line in lines.items()]
        yield StrictProviders(open_things.enter_context(open_house(*upstreams)), lines)


def read(client: str, data: bytes) -> Reply:
    decoder = find_dialect(client).stream_decoder(Notes())
    reply = fold(decoder.feed(data) + decoder.close())
    assert not isinstance(reply, Failure), reply
    return reply


def assert_same(reply: Reply) -> None:
    (choice,) = reply.choices
    words, call = choice.parts
    assert isinstance(words, Text)
    assert isinstance(call, ToolCall)
    assert words.text == "Hier 你好\n\nvoilà."
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "you"})
    assert choice.finish is not None
    assert choice.finish.reason == "tool_call"
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.output) == (7, 5)


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_a_document_becomes_a_stream_in_every_pair(server: str, client: str, providers: StrictProviders) -> None:
    for kind, way in [*zip(KINDS, WAYS, strict=True), ("", "indented"), ("application/json", "pretty")]:
        got = providers.ask(server, client, say(200, document(server, way), kind))
        assert got.status == 200, (kind, way, got.text)
        assert got.headers["content-type"].partition(";")[0] == find_dialect(client).media_type
        assert_same(read(client, got.body))


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_a_stream_becomes_a_document_in_every_pair(server: str, client: str, providers: StrictProviders) -> None:
    encoder = find_dialect(server).stream_encoder(Notes())
    data = encoder.feed(unfold(SAID)) + encoder.close()
    for kind in KINDS:
        got = providers.ask(server, client, say(200, data, kind), stream=False)
        assert got.status == 200, got.text
        assert got.headers["content-type"] == "application/json"
        assert_same(find_dialect(client).decode_reply(WireReply(body=got.json), Notes()))


@pytest.mark.parametrize("query", ["", "?alt=sse"])
def test_a_gemini_stream_has_the_form_its_client_asked_for(query: str, providers: StrictProviders) -> None:
    """Also when the upstream sends the other one."""
    array = b"[" + document("gemini") + b"]"
    sse = b"data: " + document("gemini") + b"\r\n\r\n"
    for data in (array, sse):
        got = providers.ask("gemini", "gemini", say(200, data), query=query)
        assert got.body.startswith(b"data: " if query else b"[")
        assert query or isinstance(got.json, list)
        assert_same(read("gemini", got.body))


@pytest.mark.parametrize("server", DIALECTS)
def test_a_gemini_client_that_wants_an_array_gets_one(server: str, providers: StrictProviders) -> None:
    got = providers.ask(server, "gemini", say(200, document(server)), query="")
    assert isinstance(got.json, list)
    assert_same(read("gemini", got.body))


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_an_error_under_status_200_is_an_error(
    server: str, client: str, providers: StrictProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first word an error is a status, whatever the upstream called it."""
    monkeypatch.setattr(retry, "BASE_S", 0.0)
    failure = Failure(kind="invalid_request", status=400, message="no such thing as this")
    body = dump_json(find_dialect(server).encode_failure(failure).body)
    for kind, stream in product(KINDS, (True, False)):
        got = providers.ask(server, client, say(200, body, kind), stream=stream)
        assert got.status >= 400, (kind, got.text)
        assert "no such thing as this" in got.text
