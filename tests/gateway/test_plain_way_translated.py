"""A request that is translated without a task is answered as with one: every client's dialect, every provider's.

The table has each pair of dialects, whole answers and streams, with tools and without. The failures go round the pairs.
"""

import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.dialects import SPOKEN, find_dialect
from dragoman.jsontypes import dump_json
from dragoman.model.fold import unfold
from dragoman.model.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from dragoman.upstream import answer as answer_module
from tests.gateway.house import set_deadline
from tests.gateway.test_plain_way import ANSWERS, HANG_UP, Street, no_pauses, play_both, settings_of, whole

__all__ = ["no_pauses"]
DIALECTS = sorted(SPOKEN)
UNSTORED = "openai_responses, not stored"
FRONTS = (*DIALECTS, UNSTORED)
# Responses are stored, and Gemini's requests may name a cache.
WITHOUT_A_TASK = [name for name in FRONTS if name not in ("openai_responses", "gemini")]
TOOL = Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {"at": {"type": "string"}}})
ASKED = (Message(role="user", parts=(Text(text="hello"),)),)
CALL = ToolCall(id="call_1", name="look", arguments='{"at":"x"}')
CALLED = (
    *ASKED,
    Message(role="assistant", parts=(CALL,)),
    Message(role="user", parts=(ToolResult(call_id="call_1", parts=(Text(text="seen"),)),)),
)


def ask(front: str, *, stream: bool, tools: bool) -> tuple[str, bytes]:
    messages = CALLED if tools else ASKED
    request = Request(model="up-model", messages=messages, tools=(TOOL,) if tools else None, stream=stream)
    if front == UNSTORED:
        request = replace(request, store=False)
    wire = find_dialect(front.partition(",")[0]).encode_request(request, Notes())
    return wire.path, dump_json(wire.body)


def reply(*parts: Part) -> Reply:
    called = any(type(part) is ToolCall for part in parts)
    finish = Finish(reason="tool_call" if called else "stop")
    usage = Usage(input=3, output=2)
    return Reply(id="r_1", model="up-model", created=7.0, choices=(Choice(parts=parts, finish=finish),), usage=usage)


SAID = {
    "a text": reply(Text(text="h\u00e9llo")),
    "a call": reply(Text(text="Let me see."), ToolCall(id="call_2", name="look", arguments='{"at":"y"}')),
    "a call with a known id": reply(ToolCall(id="call_1", name="look", arguments='{"at":"y"}')),
    "a broken call": reply(ToolCall(id="call_2", name="look", arguments='{"at":')),
    "a thought": reply(Reasoning(text="hm"), Text(text="hi")),
}
OTHER_ANSWERS = (
    "bad request",
    "wrong key",
    "too much",
    "broken",
    "gone",
    "no JSON",
    "an error as an answer",
    "nothing",
)


def answer(behind: str, said: Reply, *, stream: bool) -> list[bytes | None]:
    dialect = find_dialect(behind)
    if not stream:
        return [whole(dump_json(dialect.encode_reply(said, Notes()).body))]
    encoder = dialect.stream_encoder(Notes(), None)
    kind = dialect.media_type.encode()
    frames = [encoder.feed([event]) for event in unfold(said)]
    pieces = [frame for frame in [*frames, encoder.close()] if frame]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    return [head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


def cut(pieces: list[bytes | None]) -> list[bytes | None]:
    return [*pieces[: len(pieces) // 2], HANG_UP]


async def ask_all(street: Street, body: bytes, answers: list[list[bytes | None]]) -> None:
    for pieces in answers:
        street.answers = [pieces]
        street.ask(body)
        await street.said.wait()
        await street.settle()


@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("behind", DIALECTS)
@pytest.mark.parametrize("front", FRONTS)
def test_what_a_server_says_comes_back_as_with_a_task(
    front: str, behind: str, stream: bool, tools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = ask(front, stream=stream, tools=tools)
    said = SAID.values() if tools else (SAID["a text"], SAID["a thought"])

    async def play(street: Street) -> None:
        await ask_all(street, body, [answer(behind, one, stream=stream) for one in said])

    fast, _ = play_both(monkeypatch, play, front=path, behind=behind, first=body)
    assert fast.ways == (len(said) + 1 if front in WITHOUT_A_TASK else 0)


PAIRS = [pair for pair in itertools.product(WITHOUT_A_TASK, DIALECTS) if pair[0] != pair[1]]
FAILING = [
    (name, *PAIRS[(i * 3 + stream * 7) % len(PAIRS)], stream)
    for i, name in enumerate((*OTHER_ANSWERS, "cut", "a document"))
    for stream in (False, True)
]


@pytest.mark.parametrize(("name", "front", "behind", "stream"), FAILING)
@pytest.mark.parametrize("kind", ["without keys", "with keys", "for X-ray"])
def test_a_failure_is_met_as_with_a_task(
    name: str, front: str, behind: str, stream: bool, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, body = ask(front, stream=stream, tools=True)
    usual = answer(behind, SAID["a text"], stream=stream)
    odd = {"cut": cut(usual), "a document": answer(behind, SAID["a call"], stream=not stream)}
    answers = [usual, odd.get(name) or ANSWERS[name], usual]

    async def play(street: Street) -> None:
        await ask_all(street, body, answers)

    fast, _ = play_both(monkeypatch, play, front=path, behind=behind, first=body, **settings_of(kind, tmp_path))
    assert fast.ways >= 2


BAD = {
    "no JSON": b"{",
    "no messages": b'{"model":"up-model","max_tokens":9,"messages":[]}',
    "an unknown model": b'{"model":"\\u0001","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}',
    "a wrong type": b'{"model":"up-model","max_tokens":"many","messages":[{"role":"user","content":"hi"}]}',
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["without keys", "with keys", "with a budget", "for X-ray"])
def test_a_request_that_is_refused_is_refused_alike(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, body = ask("anthropic", stream=False, tools=False)

    async def play(street: Street) -> None:
        await ask_all(street, BAD[name], [[], []])
        await ask_all(street, body, [answer("openai_chat", SAID["a text"], stream=False)])

    settings: dict[str, Any] = settings_of(kind, tmp_path)
    fast, _ = play_both(monkeypatch, play, front=path, first=body, **settings)
    assert json.loads(fast.client.wrote[-2].partition(b"\r\n\r\n")[2])["type"] == "error"


def test_a_client_that_leaves_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = ask("anthropic", stream=False, tools=True)

    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(body)
        await street.go_round()
        street.client.abort()

    fast, _ = play_both(monkeypatch, play, front=path, first=body, keys=True)
    assert [row.status for row in fast.rows] == [200, 200, 0]


def test_a_conversation_that_goes_on_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path, first = ask("anthropic", stream=False, tools=True)
    more = json.loads(first)
    more["messages"] += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now?" * 20}]
    longer = json.loads(json.dumps(more))
    longer["messages"] += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "Go on. " * 20}]

    async def play(street: Street) -> None:
        said = answer("openai_chat", SAID["a text"], stream=False)
        for body in (more, longer, longer):
            await ask_all(street, dump_json(body), [said])

    fast, slow = play_both(monkeypatch, play, front=path, first=first)
    known = [(one.gateway.known_turns.hits, one.gateway.known_turns.misses) for one in (fast, slow)]
    assert known[0] == known[1]
    assert fast.ways == 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_full_limit_is_met_as_with_a_task(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = ask("anthropic", stream=stream, tools=True)

    async def play(street: Street) -> None:
        wires = [street.client, *(street.connect() for _ in range(3))]
        for street.client in wires:
            await street.warm_up()
        street.answers = [[], [], []]
        for street.client in wires:
            street.ask(body)
        await street.said.wait()  # the fourth one is refused
        for wire in street.silent:
            street.play(wire, answer("openai_chat", SAID["a text"], stream=stream))

    fast, _ = play_both(monkeypatch, play, front=path, first=body, keys=True)
    assert [row.status for row in fast.rows[-4:]] == [429, 200, 200, 200]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_server_that_shuts_down_waits_for_the_answer(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = ask("anthropic", stream=stream, tools=True)

    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(body)
        street.client.protocol.shutdown()
        await street.go_round()
        assert len(street.open.tasks) == 1
        street.play(street.providers[-1], answer("openai_chat", SAID["a text"], stream=stream))
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play, front=path, first=body)
    assert b"connection: close" in b"".join(fast.client.wrote)


def test_no_answer_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = ask("anthropic", stream=False, tools=True)

    async def play(street: Street) -> None:
        set_deadline(street.gateway, 0.3)
        street.answers = [[], [], [], []]
        street.ask(body)
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play, front=path, first=body)
    assert fast.client.wrote[-1].startswith(b"HTTP/1.1 504")


def test_a_stream_does_not_keep_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may be long: what was sent is not needed any more."""
    path, body = ask("anthropic", stream=True, tools=False)
    long = json.loads(body)
    long["messages"][0]["content"] = "hello " * 30_000

    async def play(street: Street) -> None:
        pieces = answer("openai_chat", SAID["a text"], stream=True)
        street.answers = [pieces[:3]]
        tracemalloc.start()
        street.ask(dump_json(long))
        await street.said.wait()
        await street.go_round()
        street.providers[-1].wrote[-1] = b""
        kept = [trace.size for trace in tracemalloc.take_snapshot().traces if trace.size > 100_000]
        tracemalloc.stop()
        assert kept == []
        street.play(street.providers[-1], pieces[3:])

    fast, _ = play_both(monkeypatch, play, front=path, first=body)
    assert fast.ways == 2


def cut_before_words(pieces: list[bytes | None]) -> dict[str, list[bytes | None]]:
    """A stream that stops before its first word."""
    at = next(i for i, piece in enumerate(pieces) if piece and b"llo" in piece)
    return {"the head": pieces[:1], "a comment": [pieces[0], b"a\r\n: hello\n\n\r\n"], "its start": pieces[:at]}


@pytest.mark.parametrize("stops_after", ["the head", "a comment", "its start"])
@pytest.mark.parametrize("behind", ["openai_chat", "anthropic", "openai_responses"])
def test_a_stream_that_opens_and_says_nothing_is_met_as_with_a_task(
    behind: str, stops_after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence before its start is an error. A stream that has started is passed on."""
    monkeypatch.setattr(answer_module, "QUIET_START_S", 0.2)
    path, body = ask("anthropic", stream=True, tools=True)
    usual = answer(behind, SAID["a text"], stream=True)
    silent = cut_before_words(usual)[stops_after]

    async def play(street: Street) -> None:
        state = street.gateway.now.upstream_states["up"]
        state.spec = replace(state.spec, timeouts=replace(state.spec.timeouts, first_s=0.3))
        street.answers = [list(silent)]
        street.ask(body)
        await street.said.wait()
        if stops_after == "its start":
            street.play(street.providers[-1], usual[len(silent) :])
        await street.settle()

    fast, _ = play_both(monkeypatch, play, front=path, behind=behind, first=body)
    assert fast.rows[-1].status == (200 if stops_after == "its start" else 504)
    assert fast.ways == 2


def test_a_stream_that_says_nothing_again_and_again_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece without content began a wait of its own, so that eight of them lasted far beyond the deadline."""
    path, body = ask("anthropic", stream=True, tools=True)
    head = answer("openai_chat", SAID["a text"], stream=True)[0]

    async def play(street: Street) -> None:
        late, clock = [0.0], street.gateway.clock
        street.gateway.clock = street.gateway.sender.clock = lambda: clock() + late[0]
        street.answers = [[head]]
        street.ask(body)
        await street.go_round()
        late[0] = street.gateway.now.settings.deadline_s
        street.play(street.providers[-1], [b"7\r\nid: 1\n\n\r\n"])
        await street.settle()

    fast, _ = play_both(monkeypatch, play, front=path, first=body)
    assert fast.rows[-1].status == 504
    assert fast.ways == 2


@pytest.mark.parametrize("stops_after", ["the head", "its start", "its first word"])
def test_a_client_that_leaves_a_stream_is_left(stops_after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = ask("anthropic", stream=True, tools=True)
    usual = answer("openai_chat", SAID["a text"], stream=True)
    said = {**cut_before_words(usual), "its first word": usual[:-3]}[stops_after]

    async def play(street: Street) -> None:
        street.answers = [list(said)]
        street.ask(body)
        await street.go_round()
        street.client.abort()
        await street.settle()

    play_both(monkeypatch, play, front=path, first=body, keys=True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_that_leaves_as_its_answer_begins_is_left(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task for the rest of the answer was made, and has not begun."""
    path, body = ask("anthropic", stream=stream, tools=True)
    usual = answer("openai_chat", SAID["a text"], stream=stream)
    begin = [piece for piece in usual if piece][:-3] if stream else [whole(b"not JSON")]

    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(body)
        await street.go_round()
        for piece in begin:
            street.providers[-1].protocol.data_received(piece)
        street.client.abort()
        await street.settle()

    play_both(monkeypatch, play, front=path, first=body, keys=True)
