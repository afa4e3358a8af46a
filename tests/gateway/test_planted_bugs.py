"""A bug planted in each step of a request, for every dialect: the client gets an error of its own dialect, and the log
the place in our code.

Before the first byte of an answer that is our 500. In the middle of a stream it is an error event, after which nothing
says that the answer is complete.
"""

import json
from collections.abc import Callable, Iterator
from http.client import IncompleteRead
from typing import Any

import msgspec
import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.jsontypes import dump_json
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.fold import unfold
from dragoman.model.messages import Text
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.notes import Notes
from dragoman.wire import WireReply
from tests.gateway.house import Script, faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, get, post

SECRET = "the-words-of-a-client"
WORDS = "one two three four five six"
TALK = [{"role": "user", "content": "hi"}]
MODEL = "a-model"
# the path of a door, its path for streams, and a request
DOORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", "", {"model": MODEL, "messages": TALK}),
    "openai_responses": ("/v1/responses", "", {"model": MODEL, "input": "hi"}),
    "anthropic": ("/v1/messages", "", {"model": MODEL, "messages": TALK, "max_tokens": 9}),
    "gemini": (
        f"/v1beta/models/{MODEL}:generateContent",
        f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
    "ollama": ("/api/chat", "", {"model": MODEL, "messages": TALK}),
}
NAMES = list(DOORS)
# Every dialect is once the client's and once the server's.
PAIRS = [(name, NAMES[(i + 1) % len(NAMES)]) for i, name in enumerate(NAMES)]
each_pair = pytest.mark.parametrize(("door", "target"), PAIRS, ids=[f"{a}-to-{b}" for a, b in PAIRS])


def raise_bug(*_: object, **__: object) -> Any:
    raise AttributeError(SECRET)


class BreaksLater:
    """A codec of a stream that works for so many calls of its feed. It can still write an error."""

    def __init__(self, inner: Any, calls: int) -> None:
        self._inner, self._left = inner, calls

    def feed(self, piece: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not any(isinstance(event, ReplyFailed) for event in piece):
            raise_bug()
        return self._inner.feed(piece)

    def open_text(self, *_: object) -> None:
        """No piece may be written without `feed`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def plant() -> Iterator[Callable[..., None]]:
    """Puts functions in the place of a dialect's own."""
    changed: list[tuple[Dialect, str, Any]] = []

    def put(name: str, **functions: Any) -> None:
        dialect = find_dialect(name)
        for field, function in functions.items():
            changed.append((dialect, field, getattr(dialect, field)))
            msgspec.structs.force_setattr(dialect, field, function)

    yield put
    for dialect, field, old in reversed(changed):
        msgspec.structs.force_setattr(dialect, field, old)


def whole(name: str) -> Script:
    reply = Reply(id="r1", model=MODEL, choices=(Choice(parts=(Text(text=WORDS),), finish=Finish(reason="stop")),))
    return say(200, dump_json(find_dialect(name).encode_reply(reply, Notes()).body))


def streamed(name: str) -> Script:
    """Every event in a piece of its own, so that a codec is fed often."""
    dialect = find_dialect(name)
    encoder = dialect.stream_encoder(Notes())
    reply = Reply(id="r1", model=MODEL, choices=(Choice(parts=(Text(text=WORDS),), finish=Finish(reason="stop")),))
    pieces = [encoder.feed([event]) for event in spread(list(unfold(reply)))] + [encoder.close()]
    timed: list[Any] = [part for piece in pieces if piece for part in (piece, 0.02)]
    return stream(*timed, kind=dialect.media_type)


def spread(events: list[Event]) -> Iterator[Event]:
    """The same events with a delta for each word."""
    for event in events:
        text = getattr(event, "text", "")
        if text == WORDS:
            yield from (msgspec.structs.replace(event, text=f"{word} ") for word in text.split())
        else:
            yield event


def ask(url: str, door: str, *, streams: bool) -> Got:
    path, stream_path, body = DOORS[door]
    if door != "gemini":
        body = body | {"stream": streams}
    return post(url, stream_path or path if streams else path, body)


def read_failure(door: str, got: Got) -> Any:
    """The error, as a client of this dialect reads it."""
    return find_dialect(door).decode_failure(WireReply(status=got.status, body=json.loads(got.text)))


STEPS: dict[str, Callable[[str, str, Callable[..., None], pytest.MonkeyPatch], None]] = {
    "reading the request": lambda door, _, plant, __: plant(
        door, decode_request=raise_bug, read_plain_request=raise_bug
    ),
    "the passes": lambda _, __, ___, patch: patch.setattr("dragoman.passes.prepare.find_contents", raise_bug),
    "writing the request": lambda _, target, plant, __: plant(target, encode_request=raise_bug),
    "reading the answer": lambda _, target, plant, __: plant(target, decode_reply=raise_bug, read_usual_reply=None),
    "reading a usual answer": lambda _, target, plant, __: plant(target, read_usual_reply=raise_bug),
    "writing the answer": lambda door, _, plant, __: plant(door, encode_reply=raise_bug),
}


@pytest.mark.parametrize("step", STEPS)
@each_pair
def test_a_bug_before_the_answer_is_our_500_in_the_clients_dialect(
    step: str,
    door: str,
    target: str,
    plant: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with faultline(whole(target)) as line, open_house(upstream("a", target, line.url, models=(MODEL,))) as house:
        good = ask(house.url, door, streams=False)
        assert (good.status, WORDS in good.text) == (200, True), good.text
        STEPS[step](door, target, plant, monkeypatch)
        got = ask(house.url, door, streams=False)
    assert got.status == 500, got.text
    failure = read_failure(door, got)
    assert failure.kind == "server_error"
    assert failure.message == "an internal error of the gateway"
    assert_logged(caplog, "internal_error")


@pytest.mark.parametrize("calls", [0, 2], ids=["at once", "in the middle"])
@pytest.mark.parametrize("codec", ["decoder", "encoder"])
@each_pair
def test_a_bug_in_a_stream_is_an_error_of_the_clients_dialect(
    calls: int, codec: str, door: str, target: str, plant: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with faultline(streamed(target)) as line, open_house(upstream("a", target, line.url, models=(MODEL,))) as house:
        good = ask(house.url, door, streams=True)
        assert good.status == 200, good.text
        assert "six" in good.text
        make = getattr(find_dialect(target if codec == "decoder" else door), f"stream_{codec}")
        broken = {f"stream_{codec}": lambda *args, **more: BreaksLater(make(*args, **more), calls)}
        plant(target if codec == "decoder" else door, **broken)
        got = ask(house.url, door, streams=True)
    if got.status != 200:
        assert got.status == 500, got.text
        assert read_failure(door, got).kind == "server_error"
        assert_logged(caplog, "internal_error")
        return
    decoder = find_dialect(door).stream_decoder(Notes())
    events = [*decoder.feed(got.body), *decoder.close()]
    last = events[-1]
    assert isinstance(last, ReplyFailed), got.text
    assert last.failure.message == "an internal error of the gateway"
    assert_logged(caplog, "read_failed" if codec == "decoder" else "encode_failed")


def assert_logged(caplog: pytest.LogCaptureFixture, event: str) -> None:
    lines = [record.getMessage() for record in caplog.records if event in record.getMessage()]
    assert len(lines) == 1, caplog.text
    assert "error=AttributeError" in lines[0]
    assert "at=" in lines[0]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("place", ["_complete", "_late_notes"], ids=["at its first event", "behind its last"])
@pytest.mark.parametrize("door", ["openai_chat", "anthropic"])
def test_a_bug_around_the_encoder_never_makes_half_an_answer_a_whole_one(
    place: str, door: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = "openai_responses"
    with faultline(streamed(target)) as line, open_house(upstream("a", target, line.url, models=(MODEL,))) as house:
        monkeypatch.setattr(f"dragoman.gateway.stream_writer.StreamWriter.{place}", raise_bug)
        if place == "_late_notes":  # the whole answer was written: only the connection can say that something is wrong
            with pytest.raises(IncompleteRead):
                ask(house.url, door, streams=True)
            assert_logged(caplog, "answer_failed")
            return
        got = ask(house.url, door, streams=True)
    decoder = find_dialect(door).stream_decoder(Notes())
    assert isinstance([*decoder.feed(got.body), *decoder.close()][-1], ReplyFailed), got.text
    assert_logged(caplog, "encode_failed")


JSONRPC = {"jsonrpc": "2.0", "id": 7, "method": "generate_content", "params": {"model": "demo", "messages": TALK}}
CANONICAL = {"model": "demo", "messages": [{"role": "user", "parts": [{"kind": "text", "text": "hi"}]}]}
# Requests that are no plain conversation: the path, the body (None: a GET), and where the bug is.
OTHERS: dict[str, tuple[str, Any, str]] = {
    "a count of tokens": (
        "/v1/messages/count_tokens",
        DOORS["anthropic"][2] | {"model": "demo"},
        "gateway.routes.count.count",
    ),
    "a list of models": ("/v1/models", None, "gateway.routes.models._describe"),
    "embeddings": ("/v1/embeddings", {"model": "demo", "input": "hi"}, "gateway.routes.non_chat._embed_demo"),
    "speech": (
        "/v1/audio/speech",
        {"model": "demo", "input": "hi", "voice": "a"},
        "gateway.routes.non_chat.speak_demo",
    ),
    "our own door": ("/dragoman/v1/chat", CANONICAL, "gateway.take_in.need_messages"),
    "a call of a batch": ("/generate", [JSONRPC], "dialects.jsonrpc.request.Request"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_bug_in_another_service_is_our_500_too(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, body, place = OTHERS[what]
    with open_house() as house:
        ask_once: Callable[[], Got] = (
            (lambda: get(house.url, path)) if body is None else (lambda: post(house.url, path, body))
        )
        good = ask_once()
        assert good.status == 200, good.text
        monkeypatch.setattr(f"dragoman.{place}", raise_bug)
        got = ask_once()
    assert got.status == (200 if path == "/generate" else 500), got.text  # JSON-RPC says it in the body
    assert "an internal error of the gateway" in got.text
    assert_logged(caplog, "internal_error")
