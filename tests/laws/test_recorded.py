"""Laws over the recorded traffic of every dialect: nothing is lost without a note."""

import json
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DecodeError, LossError
from dragoman.failure import Failure
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.events import Event
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Opaque
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.gaps import check_problems
from tests.laws.compare import differences
from tests.recorded import Case, cases, needs_corpus

pytestmark = needs_corpus

DIALECTS = tuple(name for name in NAMES if name != "canonical")
TALK = ("messages", "chat", "responses", "generate")  # endpoints of the conversation itself


def talks(dialect: str) -> list[Case]:
    return [case for case in cases(dialect) if case.meta["endpoint"] in TALK]


def plain(wire: WireRequest | WireReply) -> Any:
    """The body as JSON would carry it."""
    return load_json(dump_json(wire.body))


def requests_of(dialect: str) -> list[tuple[Case, WireRequest]]:
    return [(case, wire) for case in talks(dialect) if (wire := case.request()) is not None]


@cache
def decoded_requests(dialect: str, to: str = "") -> list[tuple[Case, Request]]:
    """Every recorded request that we can read, as a canonical value. `to`: without those that are refused there.

    `test_a_request_comes_back_as_it_was` fails for the others.
    """
    found = []
    for case, wire in requests_of(dialect):
        with suppress(DecodeError):
            found.append((case, find_dialect(dialect).decode_request(wire, Notes())))
    return [(case, request) for case, request in found if not to or _is_taken(request, to)]


def _is_taken(request: Request, to: str) -> bool:
    """A compacted conversation, which only its own provider can read, is refused by all others."""
    parts = [part for message in request.messages for part in message.parts if isinstance(part, Opaque)]
    if all(part.dialect == to or part.body.get("type") != "compaction" for part in parts):
        return True
    with suppress(LossError):
        make_legal(request, find_dialect(to), Notes())
        return True
    return False


@cache
def streams_of(dialect: str) -> list[tuple[Case, list[Event]]]:
    """Every recorded stream as events."""
    found = [(case, case.stream()) for case in talks(dialect) if not case.failed]
    return [(case, decode_stream(dialect, data)) for case, data in found if data is not None]


def decode_stream(dialect: str, data: bytes) -> list[Event]:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    return [*decoder.feed(data), *decoder.close()]


@cache
def replies_of(dialect: str) -> list[tuple[Case, Reply]]:
    """Every recorded answer, streamed or not, as a canonical value."""
    found = []
    for case in talks(dialect):
        if case.failed:
            continue
        stream, wire = case.stream(), case.reply()
        if stream is not None:
            reply = fold(decode_stream(dialect, stream))
        elif wire is not None:
            if type(wire.body) is dict and "error" in wire.body and wire.body["error"]:
                continue  # an error under status 200
            reply = find_dialect(dialect).decode_reply(wire, Notes())
        else:
            continue
        if isinstance(reply, Reply):
            found.append((case, reply))
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_comes_back_as_it_was(dialect: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    spoken = find_dialect(dialect)
    for case, wire in requests_of(dialect):
        before = copy_json(wire.body)
        notes = Notes()
        try:
            after = spoken.encode_request(spoken.decode_request(wire, notes), notes)
        except DecodeError as error:
            problems[case.name] = [str(error)]
            continue
        if plain(after) != before or len(notes):
            problems[case.name] = [*differing(before, plain(after)), *map(str, notes)]
        for header, value in wire.headers.items():
            if header in ("anthropic-beta", "anthropic-version") and after.headers.get(header) != value:
                problems.setdefault(case.name, []).append(f"header {header} was {value}")
    check_problems(problems, gaps)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_comes_back_as_it_was(dialect: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    spoken = find_dialect(dialect)
    for case in talks(dialect):
        wire = case.reply()
        if wire is None or case.failed or (type(wire.body) is dict and wire.body.get("error")):
            continue
        before = copy_json(wire.body)
        notes = Notes()
        after = plain(spoken.encode_reply(spoken.decode_reply(wire, notes), notes))
        if after != before or len(notes):
            problems[case.name] = [*differing(before, after), *map(str, notes)]
    check_problems(problems, gaps)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_recorded_failure_is_read(dialect: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    spoken = find_dialect(dialect)
    for case in talks(dialect):
        wire = case.reply()
        if wire is None or not case.failed:
            continue
        before = copy_json(wire.body)
        failure = spoken.decode_failure(wire)
        if not failure.message or failure.kind == "unknown" or failure.status != case.meta["status"]:
            problems[case.name] = [str(failure), json.dumps(before)[:300]]
        again = spoken.decode_failure(spoken.encode_failure(failure))
        if (again.kind, again.message, again.status) != (failure.kind, failure.message, failure.status):
            problems.setdefault(case.name, []).append(f"{failure} became {again}")
    check_problems(problems, gaps)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_folds_and_its_encoding_folds_to_the_same(dialect: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    spoken = find_dialect(dialect)
    for case in talks(dialect):
        data = case.stream()
        if data is None or case.failed:
            continue
        events = decode_stream(dialect, data)
        first = fold(events)
        if isinstance(first, Failure):
            if "error_midstream" not in case.meta["features"]:
                problems[case.name] = [f"{first}", repr(data[-200:])]
            continue
        notes = Notes()
        encoder = spoken.stream_encoder(notes)
        second = fold(decode_stream(dialect, encoder.feed(events) + encoder.close()))
        if isinstance(second, Failure):
            problems[case.name] = [f"re-encoded: {second}"]
        elif found := differences(first, second, notes):
            problems[case.name] = found
        elif len(notes):
            problems[case.name] = [str(note) for note in notes]
    check_problems(problems, gaps)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_split_of_the_bytes_gives_the_same_events(dialect: str) -> None:
    streams = sorted(
        ((case, data) for case in talks(dialect) if (data := case.stream()) is not None and not case.failed),
        key=lambda pair: len(pair[1]),
    )
    for case, data in streams[:40]:
        whole = decode_stream(dialect, data)
        for size in (1, 7, 64):
            decoder = find_dialect(dialect).stream_decoder(Notes())
            pieces: list[Event] = []
            for i in range(0, len(data), size):
                pieces.extend(decoder.feed(data[i : i + size]))
            pieces.extend(decoder.close())
            assert pieces == whole, f"{case.name} in pieces of {size}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unfold_then_fold_is_the_same_reply(dialect: str) -> None:
    for case, reply in replies_of(dialect):
        assert fold(unfold(reply)) == reply, case.name


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", DIALECTS)
def test_a_converted_request_differs_only_as_noted(source: str, target: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    there = find_dialect(target)
    for case, request in decoded_requests(source, target):
        request = make_legal(request, there, Notes(), native=source == target)
        notes = Notes()
        wire = there.encode_request(request, notes)
        again = WireRequest(body=plain(wire), path=wire.path, headers=wire.headers)
        found = differences(request, there.decode_request(again, Notes()), notes)
        if found:
            problems[case.name] = found
    check_problems(problems, gaps)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", DIALECTS)
def test_a_converted_reply_differs_only_as_noted(source: str, target: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    there = find_dialect(target)
    for case, reply in replies_of(source):
        notes = Notes()
        wire = WireReply(body=plain(there.encode_reply(reply, notes)))
        found = differences(reply, there.decode_reply(wire, Notes()), notes)
        if found:
            problems[case.name] = found
    check_problems(problems, gaps)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", DIALECTS)
def test_a_converted_stream_folds_to_the_reply_minus_its_notes(source: str, target: str, gaps: dict[str, str]) -> None:
    problems: dict[str, list[str]] = {}
    there = find_dialect(target)
    for case, events in streams_of(source):
        reply = fold(events)
        notes = Notes()
        encoder = there.stream_encoder(notes)
        returned = fold(decode_stream(target, encoder.feed(events) + encoder.close()))
        if isinstance(reply, Failure) or isinstance(returned, Failure):
            if type(reply) is not type(returned):
                problems[case.name] = [f"{reply} became {returned}"]
            continue
        found = differences(reply, returned, notes)
        if found:
            problems[case.name] = found
    check_problems(problems, gaps)


def differing(before: Any, after: Any, where: str = "") -> list[str]:
    """Where two JSON values differ, for people."""
    if isinstance(before, dict) and isinstance(after, dict):
        missing = object()
        found = []
        for key in {**before, **after}:
            left, right = before.get(key, missing), after.get(key, missing)
            if left is missing:
                found.append(f"{where}/{key}: new {str(right)[:100]}")
            elif right is missing:
                found.append(f"{where}/{key}: lost {str(left)[:100]}")
            else:
                found.extend(differing(left, right, f"{where}/{key}"))
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [d for i, pair in enumerate(zip(before, after, strict=True)) for d in differing(*pair, f"{where}/{i}")]
    return [] if before == after else [f"{where}: {str(before)[:150]} became {str(after)[:150]}"]
