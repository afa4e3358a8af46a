"""Google's own package is the referee: it parses what we write, and we read what it sends."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types
from google.genai._common import _remove_extra_fields  # the package itself drops keys it does not know

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.dialects.gemini import DIALECT
from dragoman.errors import DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json, load_object
from dragoman.model.events import ReplyFailed, ReplyStart
from dragoman.model.fold import unfold
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.gemini.grammar import check_stream
from tests.laws.test_recorded import decoded_requests, replies_of
from tests.recorded import needs_corpus

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _sources() -> list[str]:
    """The dialects there are, as far as they can be loaded."""
    found = []
    for name in NAMES:
        if name == "canonical":
            continue
        try:
            find_dialect(name)
        except (ImportError, DragomanError):
            continue
        found.append(name)
    return found


SOURCES = _sources()


def read_reply(body: JsonObject, *, own: bool) -> types.GenerateContentResponse:
    """Strictly, keys the package does not know forbidden; only Gemini's own traffic and our side field have some."""
    body = copy_json(body)
    for candidate in body.get("candidates") or ():
        for part in (candidate.get("content") or {}).get("parts") or ():
            part.pop("dragoman", None)
    (body.get("usageMetadata") or {}).pop("serviceTier", None)  # newer than the package
    if own:
        _remove_extra_fields(types.GenerateContentResponse, body)
    return types.GenerateContentResponse.model_validate(body)


def check_request(body: JsonObject) -> None:
    """Every key one the package knows: "Unknown name: Cannot find field" ends a request."""
    body = copy_json(body)
    kinds: dict[str, Any] = {
        "contents": types.Content,
        "systemInstruction": types.Content,
        "tools": types.Tool,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    for key, kind in kinds.items():
        value = body.get(key)
        for item in value if type(value) is list else [] if value is None else [value]:
            kind.model_validate(item)
    assert set(body) <= {*kinds, "serviceTier", "store"}


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_reply_we_write_parses(source: str) -> None:
    own = source == "gemini"
    for case, reply in replies_of(source):
        if "enum-encoding=int" in case.meta["url_path"]:
            continue  # the package asks for words
        body = load_object(dump_json(DIALECT.encode_reply(reply, Notes()).body))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of finish reasons newer than the package
            parsed = read_reply(body, own=own)
        assert (parsed.response_id or "") == reply.id, case.name


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_stream_we_write_parses_and_keeps_the_grammar(source: str) -> None:
    own = source == "gemini"
    for case, reply in replies_of(source):
        if "enum-encoding=int" in case.meta["url_path"]:
            continue
        encoder = DIALECT.stream_encoder(Notes())
        data = encoder.feed(unfold(reply)) + encoder.close()
        try:
            frames = check_stream(data, own=own)
        except AssertionError as error:
            raise AssertionError(case.name) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for frame in frames:
                read_reply(frame, own=own)


@needs_corpus
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "gemini"])
def test_every_request_we_write_is_one_the_package_could_send(source: str) -> None:
    """Gemini's own are written back as they were, whatever a client put in them: that is another law."""
    for case, request in decoded_requests(source, DIALECT.name):
        if case.failed:
            continue
        legal = make_legal(request, DIALECT, Notes())
        body = load_object(dump_json(DIALECT.encode_request(legal, Notes()).body))
        try:
            check_request(body)
        except (AssertionError, ValueError) as error:
            raise AssertionError(case.name) from error
        for content in body["contents"]:
            assert content["parts"], case.name


# ---------------------------------------------------------------- the package's own client


def client(answer: Callable[[httpx.Request], httpx.Response]) -> genai.Client:
    """Google's client with a wire of ours: no network."""
    transport = httpx.Client(transport=httpx.MockTransport(answer))
    return genai.Client(api_key="k", http_options=types.HttpOptions(httpx_client=transport))


REPLY = Reply(
    id="r",
    model="m",
    choices=(
        Choice(
            parts=(
                Reasoning(text="hm, 한국", summary=True),
                Text(text='two\n\nlines and a "quote" : event: x'),
                ToolCall(id="c", name="look", arguments='{"at":"sky"}'),
            ),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=5, output=2, reasoning=1),
)


def streamed(data: bytes) -> Iterator[types.GenerateContentResponse]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=data, headers={"content-type": "text/event-stream"})

    return client(answer).models.generate_content_stream(model="gemini-3-flash", contents="hi")


def test_the_package_reads_our_streams_through_its_own_parser() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    chunks = list(streamed(encoder.feed(unfold(REPLY)) + encoder.close()))
    parts = [
        part
        for chunk in chunks
        for candidate in chunk.candidates or ()
        for part in (candidate.content.parts if candidate.content else None) or ()
    ]
    assert [(part.text, part.thought) for part in parts[:2]] == [
        ("hm, 한국", True),
        ('two\n\nlines and a "quote" : event: x', None),
    ]
    assert parts[2].function_call is not None
    assert parts[2].function_call.args == {"at": "sky"}
    assert chunks[-1].usage_metadata is not None
    assert chunks[-1].usage_metadata.thoughts_token_count == 1


def test_the_package_raises_our_error_in_mid_stream() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    failure = Failure(kind="overloaded", message="try later")
    data = encoder.feed([ReplyStart(id="r", model="m"), ReplyFailed(failure=failure)]) + encoder.close()
    with pytest.raises(errors.ServerError, match="try later"):
        list(streamed(data))


def test_the_package_reads_our_reply_and_raises_our_error() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if b"fail" in request.content:
            wire = DIALECT.encode_failure(Failure(kind="rate_limited", message="slow down", retry_after_s=3.0))
        else:
            wire = DIALECT.encode_reply(REPLY, Notes())
        return httpx.Response(wire.status, content=dump_json(wire.body), headers=wire.headers)

    google = client(answer)
    reply = google.models.generate_content(model="gemini-3-flash", contents="hi")
    assert reply.function_calls is not None
    assert reply.function_calls[0].name == "look"
    with pytest.raises(errors.ClientError) as caught:
        google.models.generate_content(model="gemini-3-flash", contents="fail")
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")


def look(city: str, days: int | None = None) -> str:
    """What the sky is like."""
    return f"{city}: blue"


def sent(**asked: Any) -> WireRequest:
    """What the package puts on the wire."""
    caught: list[WireRequest] = []

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        caught.append(WireRequest(body=load_json(request.content), path=path))
        return httpx.Response(200, content=b'{"candidates":[]}')

    client(answer).models.generate_content(**asked)
    return caught[0]


ASKED: dict[str, dict[str, Any]] = {
    "plain": {"contents": "hi"},
    "everything": {
        "contents": [
            types.Content(role="user", parts=[types.Part.from_bytes(data=b"abc", mime_type="image/png")]),
            types.Content(
                role="model",
                parts=[
                    types.Part(text="hm", thought=True),
                    types.Part(
                        function_call=types.FunctionCall(name="look", args={"city": "Seoul"}), thought_signature=b"s"
                    ),
                ],
            ),
            types.Content(
                role="user", parts=[types.Part.from_function_response(name="look", response={"output": "blue"})]
            ),
        ],
        "config": types.GenerateContentConfig(
            system_instruction="be brief",
            tools=[look, types.Tool(google_search=types.GoogleSearch())],
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(
                    mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["look"]
                )
            ),
            thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True),
            response_mime_type="application/json",
            response_schema={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
            safety_settings=[
                types.SafetySetting(
                    category=types.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=types.HarmBlockThreshold.OFF
                )
            ],
            temperature=0.5,
            stop_sequences=["END"],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    },
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_the_package_sends_comes_back_as_it_was(asked: dict[str, Any]) -> None:
    wire = sent(model="gemini-3-flash", **asked)
    body, path = copy_json(wire.body), wire.path
    notes = Notes()
    again = DIALECT.encode_request(DIALECT.decode_request(wire, notes), notes)
    assert (again.body, again.path) == (body, path)
    assert not notes.items


def test_what_the_package_sends_is_understood() -> None:
    request: Request = DIALECT.decode_request(sent(model="gemini-3-flash", **ASKED["everything"]), Notes())
    assert request.model == "gemini-3-flash"
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.tool_choice is not None
    assert (request.tool_choice.mode, request.tool_choice.names) == ("required", ("look",))
    assert request.output is not None
    assert request.output.schema == {"type": "object", "properties": {"a": {"type": "string"}}}
