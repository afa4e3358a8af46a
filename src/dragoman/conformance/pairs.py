"""The pair table: each feature from each dialect to each, carried, adapted or lost, measured with the probes.

A probe is written in the source's own wire, converted as the library converts, and read again in the target's wire.

    carried   the target's reader finds what the source's reader found, and no note speaks of it
    adapted   it is there in another form
    lost      it is not there
    -         the source has no way to say it
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.conformance.probes import FAILURES, REPLIES, REQUESTS, Probe
from dragoman.convert import StreamConverter, convert, convert_failure, convert_reply, make_legal
from dragoman.dialects import SPOKEN, find_dialect
from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event, PartEnd, ReplyEnd, ReplyFailed
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Message, Text
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.reasoning_state.envelope import DEFAULT_KEY
from dragoman.reasoning_state.take_back import take_back_state
from dragoman.wire import WireReply, WireRequest

DIALECTS = SPOKEN

USUAL = ("text, several turns", "text", "tool call and result")  # every probe has their notes, so these do not count

PairOutcome: TypeAlias = Literal["carried", "adapted", "lost", "-"]


class PairCell(Struct, frozen=True):
    outcome: PairOutcome
    why: tuple[str, ...] = ()  # the sentences of the notes


class Row(Struct, frozen=True):
    what: str  # request, reply, stream, error
    feature: str
    cells: dict[tuple[str, str], PairCell]  # by source and target


def measure_pairs(dialects: Iterable[str] = DIALECTS) -> list[Row]:
    """Every feature over every pair."""
    names = tuple(dialects)
    pairs = [(source, target) for source in names for target in names]
    ways: list[tuple[str, tuple[Probe, ...], Callable[[Probe, str, str], PairCell]]] = [
        ("request", REQUESTS, probe_request),
        ("reply", REPLIES, probe_reply),
        ("stream", REPLIES, probe_stream),
        ("error", FAILURES, probe_failure),
        ("stream", FAILURES[-1:], probe_broken_stream),
    ]
    rows = [
        Row(what, probe.feature, {pair: measure(probe, *pair) for pair in pairs})
        for what, probes, measure in ways
        for probe in probes
    ]
    return [_without_the_usual(row, rows) for row in rows]


def _without_the_usual(row: Row, rows: list[Row]) -> Row:
    """Only the notes about the feature, without those that plain text has too."""
    plain = [r for r in rows if r.what == row.what and r.feature in USUAL and r is not row]
    cells = {}
    for pair, cell in row.cells.items():
        usual = {why for other in plain for why in other.cells[pair].why}
        keep = cell.outcome in ("adapted", "lost")
        cells[pair] = PairCell(cell.outcome, tuple(why for why in cell.why if keep and why not in usual))
    return Row(row.what, row.feature, cells)


# ---------------------------------------------------------------- one probe, one pair


def probe_request(probe: Probe, source: str, target: str) -> PairCell:
    here, there = find_dialect(source), find_dialect(target)
    request = probe.build(source)
    assert isinstance(request, Request)  # noqa: S101  # the probes are our own
    source_wire = here.encode_request(make_legal(request, here, Notes(), native=True), Notes())
    body = load_json(dump_json(source_wire.body))
    read = here.decode_request(
        WireRequest(body=load_json(dump_json(body)), path=source_wire.path, headers=source_wire.headers), Notes()
    )
    if probe.look(read) is None or probe.look(read) != probe.look(request):
        return PairCell("-")
    result = convert(body, source=source, to=target, path=source_wire.path, headers=source_wire.headers)
    wire = WireRequest(body=load_json(result.json()), path=result.path, headers=result.headers)
    return _judge(probe, source, target, read, there.decode_request(wire, Notes()), result.json(), result.notes)


def probe_reply(probe: Probe, source: str, target: str) -> PairCell:
    here, there = find_dialect(source), find_dialect(target)
    answer = probe.build(source)
    assert isinstance(answer, Reply)  # noqa: S101  # the probes are our own
    body = load_json(dump_json(here.encode_reply(answer, Notes()).body))
    read = here.decode_reply(WireReply(body=load_json(dump_json(body))), Notes())
    if _unsayable(probe, answer, read):
        return PairCell("-")
    result = convert_reply(body, source=source, to=target)
    after = _bring_back(there.decode_reply(WireReply(body=load_json(result.json())), Notes()), there)
    return _judge(probe, source, target, read, after, result.json(), result.notes)


def probe_stream(probe: Probe, source: str, target: str) -> PairCell:
    answer = probe.build(source)
    assert isinstance(answer, Reply)  # noqa: S101
    data = _encode_stream(find_dialect(source), unfold(answer))
    read = fold(_decode_stream(find_dialect(source), data))
    if isinstance(read, Failure) or _unsayable(probe, answer, read):
        return PairCell("-")
    converter = StreamConverter(source, target)
    wire = converter.feed(data) + converter.close()
    after = fold(_decode_stream(find_dialect(target), wire))
    back = None if isinstance(after, Failure) else _bring_back(after, find_dialect(target))
    return _judge(probe, source, target, read, back, wire, tuple(converter.notes))


def _bring_back(reply: Reply, dialect: Dialect) -> Reply:
    """An answer as the client sends it back in its next request, with the reasoning state that it keeps for us."""
    if dialect.slots is None:
        return reply
    restored = []
    for choice in reply.choices:
        request = Request(model="", messages=(Message(role="assistant", parts=choice.parts),))
        messages = take_back_state(request, dialect.slots, DEFAULT_KEY, Notes()).messages
        restored.append(replace(choice, parts=messages[0].parts if messages else ()))
    return replace(reply, choices=tuple(restored))


def probe_failure(probe: Probe, source: str, target: str) -> PairCell:
    here, there = find_dialect(source), find_dialect(target)
    failure = probe.build(source)
    assert isinstance(failure, Failure)  # noqa: S101
    wire = here.encode_failure(failure)
    body = load_json(dump_json(wire.body))
    read = here.decode_failure(WireReply(body=load_json(dump_json(body)), status=wire.status, headers=wire.headers))
    result = convert_failure(body, source=source, to=target, status=wire.status, headers=wire.headers)
    after = there.decode_failure(WireReply(body=load_json(result.json()), status=result.status, headers=result.headers))
    return _judge(probe, source, target, read, after, result.json(), ())


def probe_broken_stream(probe: Probe, source: str, target: str) -> PairCell:
    """An answer that begins well and ends in an error. It must end in an error in every dialect."""
    failure = probe.build(source)
    assert isinstance(failure, Failure)  # noqa: S101
    began = Reply(id="reply_1", model="some-model", choices=(Choice(parts=(Text(text="It rains"),)),))
    events = [event for event in unfold(began) if not isinstance(event, PartEnd | ReplyEnd)]
    data = _encode_stream(find_dialect(source), [*events, ReplyFailed(failure=failure)])
    read = fold(_decode_stream(find_dialect(source), data))
    converter = StreamConverter(source, target)
    wire = converter.feed(data) + converter.close()
    after = fold(_decode_stream(find_dialect(target), wire))
    return _judge(probe, source, target, read, after if isinstance(after, Failure) else None, wire, ())


# ---------------------------------------------------------------- judging


def _unsayable(probe: Probe, meant: Reply, read: Reply) -> bool:
    return probe.look(read) is None or probe.look(read) != probe.look(meant)


def _judge(
    probe: Probe, source: str, target: str, before: Any, after: Any, wire: bytes, notes: Iterable[Note]
) -> PairCell:
    expected, found = probe.look(before), None if after is None else probe.look(after)
    notes = [note for note in notes if note.kind != "invented"]
    why = tuple(dict.fromkeys(note.why for note in notes))
    if found == expected:
        for sign in probe.signs:
            if sign.encode() in wire and source != target:
                return PairCell("adapted", (f"said by our own mark, `{sign.strip(' :{')}`",))
        return PairCell("adapted" if _speaks_of(probe, notes) else "carried", why)
    if after is not None and (found is not None or any(mark.encode() in wire for mark in probe.marks)):
        return PairCell("adapted", why)
    if after is not None and _speaks_of(probe, [note for note in notes if note.kind != "dropped"]):
        return PairCell("adapted", why)  # in a form of our own, which no reader finds: a note tells of it
    return PairCell("lost", why)


def _speaks_of(probe: Probe, notes: Iterable[Note]) -> bool:
    return any(set(note.canonical.split("/")) & set(probe.noted) for note in notes)


def _encode_stream(dialect: Dialect, events: Iterable[Event]) -> bytes:
    encoder = dialect.stream_encoder(Notes())
    return encoder.feed(events) + encoder.close()


def _decode_stream(dialect: Dialect, data: bytes) -> Iterator[Event]:
    decoder = dialect.stream_decoder(Notes())
    yield from decoder.feed(data)
    yield from decoder.close()
