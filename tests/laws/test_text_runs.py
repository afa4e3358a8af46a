"""Deltas that come together may be read as one run (TextRun). What is written of a run is what its deltas say one by
one, to the byte: on recorded streams in pieces of any size, and on texts that a run must not take."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._base import TextEncoder
from dragoman.framing.templates import LONG_RUN, DeltaTemplate, LearntDelta
from dragoman.gateway.splice import Splice
from dragoman.gateway.stream_writer import join_texts
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart, TextRun
from dragoman.model.messages import Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Finish, Usage
from dragoman.notes import Notes
from dragoman.passes.emulate import NOTHING_TO_UNDO, Undo
from dragoman.passes.rename import Renames
from dragoman.passes.server_tools.mcp_servers import McpReturn
from dragoman.upstream.answer import is_run
from dragoman.way_back import StreamReader, WayBack
from tests.laws.fast_paths import without
from tests.laws.snapshot.ways import DIALECTS, talks
from tests.recorded import needs_corpus

ALL = bool(os.environ.get("DRAGOMAN_ALL"))  # every recording to every dialect, in pieces of several sizes
FRAME = {
    "openai_chat": b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n',
    "anthropic": b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":%b}}\n\n',
}
FRAME["openai_responses"] = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,'
    b'"content_index":0,"sequence_number":7,"delta":%b,"obfuscation":"a"}\n\n'
)
FRAME["gemini"] = (
    b'data: {"candidates":[{"content":{"parts":[{"text":%b}],"role":"model"},"index":0}],'
    b'"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":7,"totalTokenCount":11},'
    b'"modelVersion":"m","responseId":"r"}\n\n'
)
FRAME["ollama"] = (
    b'{"model":"m","created_at":"2026-01-01T00:00:00.1Z","message":{"role":"assistant","content":%b},"done":false}\n'
)
START = {
    "gemini": FRAME["gemini"] % b'"first"' * 2,
    "ollama": FRAME["ollama"] % b'"first"',
    "openai_responses": b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":'
    b'{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","model":"m","output":[]}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,'
    b'"sequence_number":1,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress",'
    b'"content":[]}}\n\nevent: response.content_part.added\ndata: {"type":"response.content_part.added",'
    b'"item_id":"msg_1","output_index":0,"content_index":0,"sequence_number":2,'
    b'"part":{"type":"output_text","text":"","annotations":[]}}\n\n',
    "openai_chat": b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n',
    "anthropic": b'event: message_start\ndata: {"type":"message_start","message":{"id":"r","type":"message",'
    b'"role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n',
}
SPOKEN = ("anthropic", "openai_chat", "openai_responses")  # most recordings are theirs
SPLICED = sorted(FRAME)
WRITERS = [name for name in DIALECTS if find_dialect(name).writes_runs]


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    """So many frames in each piece; -1: pieces of odd sizes, which end anywhere."""
    if size < 0:
        sizes, at = (701, 13, 1500, 1, 2048), 0
        for number in range(len(data)):
            if at >= len(data):
                break
            yield data[at : at + sizes[number % len(sizes)]]
            at += sizes[number % len(sizes)]
        return
    end = b"\n\n" if b"\n\n" in data else b"\n"
    frames = data.split(end)
    for at in range(0, len(frames), size):
        last = at + size >= len(frames)
        yield end.join(frames[at : at + size]) + (b"" if last else end)


def write(
    source: str, to: str, pieces: list[bytes], *, join: bool, undo: Undo = NOTHING_TO_UNDO
) -> tuple[bytes, list[Event], int]:
    """The bytes, the events with every run taken apart, and how many runs there were."""
    notes = Notes()
    reader = StreamReader(find_dialect(source), notes, WayBack(notes=notes, undo=undo))
    encoder = find_dialect(to).stream_encoder(Notes(), None)
    if join:
        reader.join()
    out, events, runs = [], list[Event](), 0
    for read in [*[reader.feed(piece) for piece in pieces], reader.close()]:
        out.append(encoder.feed(read))
        for event in read:
            runs += type(event) is TextRun
            events += event.spread() if type(event) is TextRun else [event]
    return b"".join(out) + encoder.close(), events, runs


@needs_corpus
@pytest.mark.parametrize("source", sorted(FRAME))
def test_recorded_streams_are_written_alike_with_and_without_runs(source: str) -> None:
    found = 0
    for number, case in enumerate(talks(source)):
        data = case.stream()
        if data is None or case.failed:
            continue
        data = data.replace(b"\r\n", b"\n")
        for to in WRITERS if ALL else (WRITERS[number % len(WRITERS)],):
            for size in (1, 2, 5, 40, -1) if ALL else (2 + number % 5, -1):
                pieces = list(pieces_of(data, size))
                joined, apart = (write(source, to, pieces, join=join) for join in (True, False))
                assert joined[:2] == apart[:2], case
                found += joined[2]
    assert found > (20 if source in SPOKEN else 3)


ODD = (
    *('""', '"a\\nb"', '"\\u0041"', '"\\/"', '"\\\\"', '"say \\"hi\\""', '"\\ud83d\\ude00"', '"\\ud83d"', '"\x7f"'),
    *('"\\t\\r\\b\\f"', '"é"', '"ünï 世界 😀"', '" "', '"a", "x": "b"', "null", "1", '["a"]', '"\u2028"', '"\x01"'),
)


def run_or_error(source: str, to: str, pieces: list[bytes], *, join: bool) -> object:
    try:
        return write(source, to, pieces, join=join)[:2]
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("to", WRITERS)
@pytest.mark.parametrize("source", sorted(FRAME))
def test_odd_texts_between_plain_ones_are_written_alike(source: str, to: str) -> None:
    plain = FRAME[source] % b'"word "'
    raws = [text.encode() for text in ODD] + [b'"\xff"', b'"\xc3"']
    pieces = [[plain, FRAME[source] % odd + plain, plain * 2] for odd in raws]
    pieces.append([plain, FRAME[source] % b'"\xc3"' + FRAME[source] % b'"\xa9"', plain])  # a letter in two halves
    pieces += [[plain, plain[:40], plain[40:] + plain], [plain + b": a comment\n\n", plain * 3]]
    pieces += [[plain, plain.replace(b"\n", b"\r\n") * 2, plain], [plain, plain[:-1], b"\n" + plain]]
    pieces += [[plain, plain[:-2] + b"\r\n\r", b"\n" + plain], [plain, plain[:-2] + b"\r\r", plain * 2]]
    for odd in pieces:
        whole = [START[source], plain, *odd]
        assert run_or_error(source, to, whole, join=True) == run_or_error(source, to, whole, join=False), odd


@pytest.mark.parametrize("source", sorted(FRAME))
def test_deltas_that_come_together_are_a_run(source: str) -> None:
    plain, other = FRAME[source] % b'"word "', FRAME[source] % '"ünï\\n"'.encode()
    _, events, runs = write(source, "anthropic", [START[source], plain, plain * 2, other * 3], join=True)
    texts = [event.text for event in events if type(event) is PartDelta]
    assert runs >= 1
    assert texts[-6:] == [*["word "] * 3, *["ünï\n"] * 3]


@pytest.mark.parametrize("to", WRITERS)
def test_a_run_that_opens_its_text_or_waits_for_another_part_is_taken_apart(to: str) -> None:
    """Chat's first words may come as a run; Anthropic's blocks follow one another."""
    run = TextRun(index=1, text="ab", pieces=[b"a", b"b"])
    start: list[Event] = [ReplyStart(id="r", model="m", created=1), PartStart(index=0, part=Text(text=""))]
    rest: list[Event] = [PartEnd(index=0), PartEnd(index=1)]
    joined: list[Event] = [*start, PartStart(index=1, part=Text(text="")), run, *rest]
    apart: list[Event] = [*start, PartStart(index=1, part=Text(text="")), *run.spread(), *rest]
    one, other = (find_dialect(to).stream_encoder(Notes(), None).feed(events) for events in (joined, apart))
    assert one == other


VARYING = {
    "gemini": (b'"candidatesTokenCount":7,"totalTokenCount":11', b'"candidatesTokenCount":%d,"totalTokenCount":%d'),
    "ollama": (b"00:00:00.1Z", b"00:0%d:00.%dZ"),
    "openai_responses": (b'"sequence_number":7', b'"sequence_number":%d%d'),
}
BROKEN = (b"007", b"1.5", b"-1", b"[]", b"1,2", b"1\n2", b"", b'1"')


@pytest.mark.parametrize("source", sorted(VARYING))
def test_a_value_that_differs_in_each_frame_is_no_hindrance(source: str) -> None:
    """Gemini counts, Ollama tells the time, Responses numbers its events. Anything else there is read as before."""
    plain, (old, new) = FRAME[source] % b'"word "', VARYING[source]
    frames = [plain.replace(old, new % (at, at + 4)) for at in range(1, 9)]
    pieces = [START[source], plain, *frames[:2], b"".join(frames[2:7]), frames[7]]
    joined, apart = (write(source, "anthropic", pieces, join=join) for join in (True, False))
    assert joined[:2] == apart[:2]
    assert joined[2] >= 3
    for wrong in BROKEN:
        for bad in {plain.replace(digit, wrong, 1) for digit in (b"7", b"11", b"00.1") if digit in plain}:
            whole = [START[source], plain, frames[0] + bad + frames[1], frames[2]]
            assert run_or_error(source, "openai_chat", whole, join=True) == run_or_error(
                source, "openai_chat", whole, join=False
            ), bad


@pytest.mark.parametrize("source", sorted(VARYING))
def test_what_frames_say_beside_their_text_is_known_at_the_end_of_a_splice(source: str) -> None:
    """Gemini's counts, for example: those of the last frame are the answer's, also if only a splice has seen it."""
    plain, (old, new) = FRAME[source] % b'"word "', VARYING[source]
    frames = [plain.replace(old, new % (at, at + 4)) for at in range(1, 9)]
    end = FRAME["gemini"].replace(b'"index":0', b'"finishReason":"STOP","index":0') % b'""'
    pieces = [START[source], plain, *frames, *([end] if source == "gemini" else ())]
    pieces[-1] = pieces[-1].replace(b'"usageMetadata"', b'"_"') if source == "gemini" else pieces[-1]
    for to in WRITERS:
        out, count, _ = splice(source, to, pieces)
        assert out == write(source, to, pieces, join=False)[0]
        assert count >= 6
        if source == "gemini" and to == "anthropic":
            assert b'"output_tokens":8' in out


def test_readers_that_look_for_words_join_nothing() -> None:
    notes = Notes()
    way_back = WayBack(notes=notes, think_tags=("think",))
    reader = StreamReader(find_dialect("openai_chat"), notes, way_back)
    reader.join()
    plain = FRAME["openai_chat"] % b'"word "'
    events = [event for piece in (START["openai_chat"], plain * 2, plain * 3) for event in reader.feed(piece)]
    assert not any(type(event) is TextRun for event in events)


def test_the_pieces_of_a_run_are_spelled_as_we_spell_them() -> None:
    """Every letter, alone in its frame."""
    template = DeltaTemplate()
    assert template.learn(b'data: {"text":"x"}', b'"text"', "x")
    letters = [chr(code) for code in [*range(0x3000), 0xFEFF, 0xFFFD, 0x1F600]]
    for letter in letters:
        for spelled in {dump_json(letter), b'"%b"' % letter.encode(), b'"\\u%04x"' % min(ord(letter), 0xFFFF)}:
            text, pieces, _ = template.read_run(b'data: {"text":%b}\n\n' % spelled)
            if pieces:
                assert text == load_json(spelled)
                assert [dump_json(text)] == [b'"%b"' % piece for piece in pieces]


ODD_FRAMES = (
    b"",
    b": ping\n\n",
    b'data: {"text":"b","n":1}\n\n',
    b'data: {"text":"b"} \n\n',
    b'data: {"text":}\n\n',
    b'data: {"text":"',
    b'data: {"text":"}\n\n',
    b'"}\n\n',
    b'{"text":"b"}\n\n',
    b'data: {"text":"a\\"}\n\ndata: {"text":"c"}\n\n',
    b'data: {"text":""}\n\n',
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("odd", ODD_FRAMES)
def test_a_long_run_ends_before_the_first_other_frame(odd: bytes) -> None:
    template = DeltaTemplate()
    assert template.learn(b'data: {"text":"a"}', b'"text"', "a")
    frames = b"".join(b'data: {"text":"word%d"}\n\n' % i for i in range(200))
    for before, behind in ((frames, b""), (frames, frames), (b"", frames), (frames, frames[:-3])):
        data = before + odd + behind
        assert len(data) > LONG_RUN
        text, pieces, rest = template.read_run(data)
        assert b"".join(b'data: {"text":"%b"}\n\n' % piece for piece in pieces) + rest == data
        assert text == "".join(load_json(b'"%b"' % piece) for piece in pieces)
        with without("long run"):  # it takes nothing if another frame stands between
            assert template.read_run(data) in ((text, pieces, rest), ("", [], data))


def test_a_long_text_that_is_no_run_is_refused_without_trying_every_way_to_read_it() -> None:
    template = DeltaTemplate()
    assert template.learn(b'data: {"text":"x"}', b'"text"', "x")
    assert template.read_run(b'data: {"text":"%b\\u0001"}\n\n' % (b"a\\n" * 20_000))[1] == []


class Client:
    """Stands in for all that a splice needs of the gateway."""

    written = 0.0
    passed = b""
    ending = None
    ready = True

    def __init__(self) -> None:
        self.events = self.streamed = 0
        self.out: list[bytes] = []
        self.said: list[Event] = []

    def now(self) -> float:
        return 0.0

    def is_ready(self) -> bool:
        return self.ready

    def say(self, index: int, text: str) -> None:
        self.said.append(PartDelta(index=index, text=text))

    def put(self, data: bytes) -> None:
        self.out.append(data)


def splice(
    source: str, to: str | None, pieces: list[bytes], undo: Undo = NOTHING_TO_UNDO
) -> tuple[bytes, int, list[Event]]:
    """What the client gets if each piece is spliced that can be, how many were, and what was said beside. `to`: None if
    the client gets the provider's bytes."""
    notes, client = Notes(), Client()
    reader = StreamReader(find_dialect(source), notes, WayBack(notes=notes, undo=undo))
    encoder = find_dialect(to or source).stream_encoder(Notes(), None)
    reader.join()
    short: Splice | None = None
    for piece in pieces:
        if short is not None and short.take(piece):
            continue
        short, events = None, reader.feed(piece)
        client.put(encoder.feed(events) if to is not None else piece)
        client.said += events
        found = reader.learnt() if is_run(events) else None
        if found is not None:
            write = cast(TextEncoder, encoder).open_text(found.index) if to is not None else None
            if write is not None or to is None:
                short = Splice(client, cast(Any, client), client, found, write, partial(client.say, found.index))
    rest = reader.close()
    if to is not None:
        client.put(encoder.feed(rest) + encoder.close())
    said = list[Event]()
    for event in [*client.said, *rest]:
        said += event.spread() if type(event) is TextRun else [event]
    return b"".join(client.out), client.events, said


@needs_corpus
@pytest.mark.parametrize("source", SPLICED)
def test_recorded_streams_are_spliced_as_they_are_written(source: str) -> None:
    spliced = 0
    for number, case in enumerate(talks(source)):
        data = case.stream()
        if data is None or case.failed:
            continue
        pieces = list(pieces_of(data.replace(b"\r\n", b"\n"), 1 + number % 3))
        for to in WRITERS if ALL else (WRITERS[number % len(WRITERS)],):
            out, count, _ = splice(source, to, pieces)
            assert out == write(source, to, pieces, join=False)[0], case
            spliced += count
        out, count, said = splice(source, None, pieces)
        assert out == b"".join(pieces)
        assert join_texts(said) == join_texts(write(source, source, pieces, join=False)[1])
        spliced += count
    assert spliced > (20 if source in SPOKEN else 3)


@pytest.mark.parametrize("to", WRITERS)
@pytest.mark.parametrize("source", SPLICED)
def test_odd_texts_are_spliced_alike_or_not_at_all(source: str, to: str) -> None:
    plain = FRAME[source] % b'"word "'
    odd = [FRAME[source] % text for text in [*(text.encode() for text in ODD), b'"\xff"', b'"\xc3"', b'"\xa9"']]
    odd += [
        plain[:40],
        plain[40:],
        plain * 2,
        plain.replace(b"\n", b"\r\n"),
        plain[:-1],
        b"\n",
        b": a comment\n\n",
        b"",
    ]
    odd += [b"data: {}\n\n", plain[:-2] + b"\r\r", plain.replace(b'"word "', b'"')]
    for one in odd:
        whole = [START[source], *[plain] * 3, one, plain, plain + one + plain, *[plain] * 3]
        try:
            found: object = splice(source, to, whole)[0]
        except Exception as error:
            found = type(error), str(error)
        slow = run_or_error(source, to, whole, join=False)
        assert found == (slow[0] if isinstance(slow, tuple) and isinstance(slow[0], bytes) else slow), one


def test_a_client_that_does_not_read_is_not_written_to() -> None:
    client, template = Client(), DeltaTemplate()
    client.ready = False
    assert template.learn(b'data: {"text":"x"}', b'"text"', "x")
    learnt = LearntDelta(template, 0)
    assert not Splice(client, cast(Any, client), client, learnt, None).take(b'data: {"text":"word"}\n\n')
    assert client.out == []


# ---------------------------------------------------------------- arguments and thoughts

PLAIN_WORDS = [f"word{number} " for number in range(12)]
ARGUMENTS = {
    "plain": ['{"path":"', *PLAIN_WORDS, '"}'],
    "code": ['{"', "code", '":"', "if a:\\n", "    b", ' = \\"', "c", '\\"', "\\\\", "n", '", "n', '": [1,', "2", "]}"],
    "nested": ['{"a": {"b": [', "1, ", "2", '], "c": "', "é", "世界 😀", '"', "}", "}"],
    "in two halves": ['{"a":"x', "\\", "n", "\\", '"', '"', "}"],
    "not closed": ['{"a":"', *PLAIN_WORDS, '"'],
    "cut in a string": ['{"a":"', *PLAIN_WORDS],
    "twice": ['{"a":"', *PLAIN_WORDS, '"}', '{"a":"', *PLAIN_WORDS, '"}'],
    "words around": ["Sure: ", '{"a":"', *PLAIN_WORDS, '"} ', "done"],
    "a letter": ['{"a":"', *PLAIN_WORDS, '",', "oops", "}"],
    "fenced": ["```json\n", '{"a":"', *PLAIN_WORDS, '"}', "\n```"],
    "nothing": [],
}


def frames_of(source: str, parts: list[tuple[Part, list[str]]]) -> list[bytes]:
    """A stream as our encoder writes it: one delta in each frame."""
    events: list[Event] = [ReplyStart(id="r", model="m", created=1)]
    for index, (part, texts) in enumerate(parts):
        events.append(PartStart(index=index, part=part))
        events += [PartDelta(index=index, text=text) for text in texts]
        events.append(PartEnd(index=index))
    called = any(type(part) is ToolCall for part, _ in parts)
    finish = Finish(reason="tool_call" if called else "stop")
    events.append(ReplyEnd(finishes=(finish,), usage=Usage(input=1, output=2)))
    encoder = find_dialect(source).stream_encoder(Notes(), None)
    return [frame for frame in [*(encoder.feed([event]) for event in events), encoder.close()] if frame]


def check_spliced(source: str, frames: list[bytes], size: int, undo: Undo = NOTHING_TO_UNDO) -> int:
    """Compares every way to write a stream. How many deltas were spliced, over all targets."""
    pieces = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
    spliced = 0
    for to in WRITERS:
        slow, events, _ = write(source, to, pieces, join=False, undo=undo)
        assert write(source, to, pieces, join=True, undo=undo)[:2] == (slow, events), to
        out, count, _ = splice(source, to, pieces, undo)
        assert out == slow, to
        spliced += count
    return spliced


@pytest.mark.parametrize("case", ARGUMENTS)
@pytest.mark.parametrize("source", SPOKEN)
def test_arguments_of_calls_are_spliced_as_they_are_written(source: str, case: str) -> None:
    call = ToolCall(id="call_1", name="f", arguments="")
    other = ToolCall(id="call_2", name="g", arguments="")
    text = (Text(text=""), PLAIN_WORDS[:4])
    parts: list[tuple[Part, list[str]]] = [text, (call, ARGUMENTS[case]), (other, ARGUMENTS["plain"])]
    spliced = sum(check_spliced(source, frames_of(source, parts), size) for size in (1, 2, 3, 5, 100))
    assert spliced > 30


@pytest.mark.parametrize("source", sorted(FRAME))
def test_thoughts_are_spliced_as_they_are_written(source: str) -> None:
    thought = Reasoning(text="", summary=source in ("openai_responses", "gemini"))
    odd = ["a\n", "é", '"', "\\", "<", "\u2028"]
    parts: list[tuple[Part, list[str]]] = [
        (thought, [*PLAIN_WORDS, *odd, *PLAIN_WORDS]),
        (Text(text=""), PLAIN_WORDS),
    ]
    spliced = sum(check_spliced(source, frames_of(source, parts), size) for size in (1, 2, 3, 5, 100))
    assert spliced > 300


UNDONE = {
    "a freeform tool, as for Codex": Undo(custom=frozenset({"f"})),
    "a stop that comes": Undo(stops=("word9", "nothing")),
    "a stop that does not come": Undo(stops=("nothing",)),
    "a tool for JSON": Undo(json_tool="f"),
    "renamed arguments": Undo(renames=Renames(properties={"f": {"path": "file"}})),
}


@pytest.mark.parametrize("case", UNDONE)
def test_parts_that_are_put_right_are_taken_apart_and_the_others_are_spliced(case: str) -> None:
    calls = [ToolCall(id=f"call_{name}", name=name, arguments="") for name in "fg"]
    parts: list[tuple[Part, list[str]]] = [(call, ARGUMENTS["plain"]) for call in calls]
    parts[:0] = [(Text(text=""), PLAIN_WORDS)]
    spliced = 0
    for source in SPOKEN:
        frames = frames_of(source, parts)
        spliced += sum(check_spliced(source, frames, size, UNDONE[case]) for size in (1, 2, 3, 5, 100))
    assert spliced > 100 or (case == "a stop that comes" and not spliced)


def test_calls_that_grow_by_turns_are_spliced_as_they_are_written() -> None:
    def fragment(index: int, more: dict[str, object]) -> bytes:
        entry = {"index": index, **more}
        choice = {"index": 0, "delta": {"tool_calls": [entry]}, "logprobs": None, "finish_reason": None}
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return b"data: %b\n\n" % dump_json({**base, "choices": [choice]})

    def grow(index: int, text: str) -> bytes:
        return fragment(index, {"function": {"arguments": text}})

    starts = [
        fragment(i, {"id": f"call_{i}", "type": "function", "function": {"name": "f", "arguments": ""}}) for i in (0, 1)
    ]
    words = [grow(i, text) for texts in zip(PLAIN_WORDS, PLAIN_WORDS, strict=True) for i, text in enumerate(texts)]
    frames = [START["openai_chat"], *starts, grow(0, '{"a":"'), grow(1, '{"a":"'), *words, *words[::2], *words[1::2]]
    frames += [grow(0, '"}'), grow(1, '"}'), words[0], grow(7, "?"), words[1]]
    for size in (1, 2, 7):
        check_spliced("openai_chat", frames, size)


def test_a_text_behind_a_call_of_a_provider_s_mcp_server_is_not_joined() -> None:
    """The parts get new numbers there, which a run would not have."""
    notes = Notes()
    way_back = WayBack(notes=notes, undo=Undo(mcp=McpReturn(dialect="anthropic")))
    reader = StreamReader(find_dialect("openai_chat"), notes, way_back)
    reader.join()
    plain = FRAME["openai_chat"] % b'"word "'
    events = [event for piece in (START["openai_chat"], plain * 2, plain * 3) for event in reader.feed(piece)]
    assert not any(type(event) is TextRun for event in events)
