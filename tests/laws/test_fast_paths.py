"""Every fast path gives what the slow path gives: the same bytes, the same values, the same notes, the same errors.

Recorded traffic, generated values and near misses go through the code with and without the fast paths. A near miss is a
value that a fast path takes, with one thing changed. Each condition of a fast path is taken away once, to see that the
law would notice. `DRAGOMAN_ALL=1` tries everything (about five minutes); without it every sixteenth recording,
every fourth or fifth near miss and one condition of each fast path are tried.
"""

import json
import os
from collections.abc import Iterable
from functools import cache, partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.convert import convert, convert_reply
from dragoman.dialects import find_dialect
from dragoman.exchange import read_request as read_wire
from dragoman.gateway.passed_frames import leave_out_usage, until_end
from dragoman.jsontypes import dump_json
from dragoman.model.fold import unfold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.laws import odd_values, strategies
from tests.laws.damage import bend, bend_stream
from tests.laws.fast_paths import IN_OTHER_BYTES, Mutant, broken, find_mutants, names, without
from tests.laws.near_misses import bent_requests, usual_request
from tests.laws.probes import PATHS, Try, outcome, probes, show, through, tries_of
from tests.laws.snapshot.table import DIRECTIONS, WRITE, Direction, targets_of
from tests.laws.snapshot.ways import DIALECTS, Written, read_request, send_request, talks
from tests.recorded import needs_corpus

ALL = bool(os.environ.get("DRAGOMAN_ALL"))
EVERY = 1 if ALL else 16
SAMPLE = 1 if ALL else 5
NEAR = 1 if ALL else 4  # of the near misses, to notice a condition that is gone
EXAMPLES = int(os.environ.get("DRAGOMAN_EXAMPLES", "30"))
often = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


WRITTEN = tuple(f"write requests {name}" for name in DIALECTS)
STREAMED = tuple(f"write streams {name}" for name in DIALECTS)
# Every fast path of the code, and the probes in which it shows.
FAST_PATHS: dict[str, tuple[str, ...]] = {
    # a usual part, turn or tool of a wire
    "anthropic call": ("read requests anthropic",),
    "anthropic lone text": ("read requests anthropic",),
    "anthropic result": ("read requests anthropic",),
    "anthropic text": ("read requests anthropic",),
    "anthropic turn": ("read requests anthropic",),
    "chat answer": ("read requests openai_chat", "read replies openai_chat"),
    "chat choice": ("read replies openai_chat",),
    "chat call": ("read requests openai_chat",),
    "chat text block": ("read requests openai_chat",),
    "few settings": ("read requests anthropic",),
    "no settings": ("read requests openai_chat",),
    "chat turn": ("read requests openai_chat",),
    "gemini part": ("read requests gemini",),
    "gemini tool": ("read requests gemini",),
    "gemini turn": ("read requests gemini",),
    "ollama call": ("read requests ollama", "read replies ollama"),
    "ollama result": ("read requests ollama",),
    "ollama turn": ("read requests ollama",),
    "ollama text": ("read requests ollama", "read replies ollama"),
    "responses item": ("read requests openai_responses",),
    "responses text": ("read requests openai_responses",),
    "responses tool": ("read requests openai_responses",),
    # a usual turn or part, written
    "anthropic text, written": ("write requests anthropic",),
    "responses functions": ("write requests openai_responses", "read requests openai_responses"),
    "chat answer, written": ("write requests openai_chat", "write replies openai_chat"),
    "ollama result, written": ("write requests ollama",),
    "frequent turn": WRITTEN,
    "results without names": ("write requests anthropic",),
    # streams
    "anthropic delta": ("read streams anthropic",),
    "anthropic delta, written": ("write streams anthropic",),
    "chat delta": ("read streams openai_chat",),
    "chat delta, written": ("write streams openai_chat",),
    "chat text": ("read streams openai_chat",),
    "gemini delta": ("read streams gemini",),
    "gemini delta, written": ("write streams gemini",),
    "gemini delta, held": ("write streams gemini",),
    "gemini text": ("read streams gemini",),
    "gemini text part": ("read streams gemini",),
    "ollama delta, written": ("write streams ollama",),
    "ollama delta, held": ("write streams ollama",),
    "ollama line": ("read streams ollama",),
    "ollama delta": ("read streams ollama",),
    "responses delta": ("read streams openai_responses",),
    "responses delta, written": ("write streams openai_responses",),
    "delta of the open part": STREAMED,
    "plain text": STREAMED,
    "known event name": ("cut frames any",),
    "sse data": ("cut frames any",),
    "sse event": ("cut frames any",),
    # passes with nothing to do
    "empty arguments": ("send requests any",),
    "fine ids": ("send requests any",),
    "known names": ("send requests any",),
    "legal base64": ("send requests any",),
    "marks found before": ("send requests any",),
    "names of calls": ("send requests any",),
    "named before": ("send requests any",),
    "no billing": ("send requests any",),
    "no media": ("send requests any",),
    "no media in results": ("send requests any",),
    "no refusal": ("send requests any",),
    "no system text": ("send requests any",),
    "no thoughts": ("send requests any",),
    "nothing blank": ("send requests any",),
    "nothing foreign": ("send requests any",),
    "nothing to rename": ("send requests any",),
    "paired calls": ("send requests any",),
    "no tools": ("send requests any",),
    "nothing of its kind": ("send requests any",),
    "results apart": ("send requests any",),
    "turns apart": ("send requests any",),
    # the gateway
    "known plan": ("send requests any",),
    "known profile": ("send requests any",),
    "known schema": ("send requests any",),
    "known tools": ("send requests any",),
    "no side field": ("send requests any",),
    "no state brought back": (),
    "nothing kept": (),
    "known turns": (),
    "said again": (),
    "tools again": (),
    "nothing to undo": ("undo answers any",),
    "only names to undo": ("undo answers any",),
    "plain spelling": ("check bodies any",),
    "end words": (),
    "usage mark": (),
    "own bytes": (),
    "tools known": (),  # test_known_tools.py
    "settings known": (),  # test_known_settings.py
    "kept settings": (),  # test_known_turns.py
    "fine arguments": ("send requests any",),
    "one note of each kind": (),  # tests/gateway/test_ended.py
    "long lists": (),  # tests/test_jsontypes.py
    "usual turns": (),  # test_usual_turns.py
    "usual turns, packed": (),  # test_own_body.py
    "tools known, packed": (),  # test_own_body.py
    "tools again, copied": (),  # test_own_body.py
    "tools of a prompt": (),  # test_known_prompts.py
    "plain head": (),  # test_request.py
    "anthropic run": (),  # test_text_runs.py
    "chat run": (),
    "gemini run": (),
    "ollama run": (),
    "nothing but text": (),
    "spliced text": (),
    "plain run": (),
    "long run": (),
    "responses run": (),
    "responses progress": (),  # tests/dialects/openai_responses/test_progress.py
    "plain reply": (),  # test_plain_replies.py
    "usual reply": (),  # test_usual_replies.py
    "plain request": (),  # test_plain_requests.py
    "known head": (),  # test_repeated_heads.py
    "judged head": (),  # test_repeated_heads.py
    "plain way": (),  # tests/gateway/test_plain_way.py
    "written head": (),  # the same
    "only key": (),  # tests/upstream/test_breaker.py
    "no limits": (),  # tests/upstream/test_admission.py
    "limits in a row": (),  # the same
}


def test_every_fast_path_of_the_code_is_in_the_table() -> None:
    assert names() == FAST_PATHS.keys()


# ---------------------------------------------------------------- recorded traffic


@needs_corpus
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_recorded_traffic_is_written_alike_with_and_without_the_fast_paths(direction: Direction, dialect: str) -> None:
    fast = write_all(direction, dialect)
    with without():
        slow = write_all(direction, dialect)
    assert slow.keys() == fast.keys()
    differing = {at: (fast[at], slow[at]) for at in fast if fast[at] != slow[at]}
    assert not differing, f"{len(differing)} differ, first the fast one: {next(iter(differing.items()))}"


def write_all(direction: Direction, dialect: str) -> dict[tuple[str, str], Written]:
    targets = targets_of(direction)
    return {
        (case.name, target): written
        for case in talks(dialect)[::EVERY]
        for target, written in WRITE[direction](case, targets).items()
    }


# ---------------------------------------------------------------- near misses and generated values


@pytest.mark.parametrize("dialect", DIALECTS)
def test_reading_a_usual_request_leaves_the_near_misses_whole(dialect: str) -> None:
    before = bent_requests(dialect)
    read_wire(find_dialect(dialect), WireRequest(path=PATHS[dialect], body=usual_request(dialect)), Notes())
    assert bent_requests(dialect) == before


def check_alike(tries: Iterable[Try]) -> None:
    tries = list(tries)
    fast = [outcome(run) for run in tries]
    with without():
        slow = [outcome(run) for run in tries]
    differing = [pair for pair in zip(fast, slow, strict=True) if pair[0] != pair[1]]
    assert not differing, (
        f"{len(differing)} of {len(tries)} differ, first:\nfast {differing[0][0]}\nslow {differing[0][1]}"
    )


@pytest.mark.parametrize("probe", probes())
def test_a_near_miss_comes_out_alike(probe: str) -> None:
    check_alike(tries_of(probe)[::SAMPLE])


SERVERS = ("openai/o3", "anthropic/claude-opus-5-5", "gemini/gemini-3-pro", "xai/grok-4", "mistral/mistral-medium")


@often
@given(request_=strategies.requests | odd_values.requests)
def test_a_generated_request_is_written_alike(request_: Request) -> None:
    body = dump_json(request_)
    asked = read_request("canonical", body)
    tries: list[Try] = [partial(send_request, asked, server) for server in SERVERS]
    for mend in (False, True):
        tries += [partial(write_request, body, name, mend) for name in DIALECTS]
    check_alike(tries)


def write_request(body: bytes, to: str, mend: bool) -> object:
    return show(convert(body, to=to, source="canonical", mend=mend))


@often
@given(reply=strategies.replies() | odd_values.replies())
def test_a_generated_reply_is_written_alike(reply: Reply) -> None:
    body, events = dump_json(reply), [dump_json(event) + b"\n" for event in unfold(reply)]
    tries: list[Try] = [partial(through, events, "canonical", name) for name in DIALECTS]
    tries += [partial(write_reply, body, name) for name in DIALECTS]
    check_alike(tries)


def write_reply(body: bytes, to: str) -> object:
    return show(convert_reply(body, to=to, source="canonical"))


@needs_corpus
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bent_recording_comes_out_alike(dialect: str) -> None:
    dice, tries = Random(dialect), list[Try]()  # noqa: S311  # the same examples in every run
    found = [case for case in talks(dialect) if not case.failed]
    bodies = [body for case in found if (body := case.read("request.json")) is not None and len(body) < 10_000]
    streams = [data for case in found if (data := case.stream()) is not None and len(data) < 10_000]
    for _ in range(EXAMPLES * 3):
        bent, to = json.dumps(bend(json.loads(dice.choice(bodies)), dice)).encode(), dice.choice(DIALECTS)
        tries.append(lambda b=bent, t=to: show(convert(b, to=t, source=dialect, path=PATHS[dialect])))  # type: ignore[misc]
        tries.append(partial(events_of, bend_stream(dice.choice(streams), dice), dialect))
    check_alike(tries)


def events_of(data: bytes, dialect: str) -> list[Any]:
    """The events of a stream, and what ended it. The order of keys in extras is of no account."""
    lines, *rest = through([data], dialect, "canonical")
    assert isinstance(lines, bytes)
    return [json.dumps(json.loads(line), sort_keys=True) for line in lines.splitlines()] + rest


# ---------------------------------------------------------------- the same in other bytes


@needs_corpus
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_clients_own_bytes_say_what_we_would_write(dialect: str) -> None:
    """Except that we ask a Chat stream for its usage where we write the request ourselves."""
    targets = [target for target in targets_of("requests") if "/" in target]
    found = [case for case in talks(dialect)[::EVERY] if case.read("request.json")]
    fast = [WRITE["requests"](case, targets) for case in found]
    with without("own bytes"):
        slow = [WRITE["requests"](case, targets) for case in found]
    for case, one, other in zip(found, fast, slow, strict=True):
        for target in targets:
            assert read_sent(one[target]) == read_sent(other[target]), (case.name, target)


def read_sent(written: Written) -> tuple[bytes, Any, bytes]:
    head, _, body = written.sent.partition(b"\n\n")
    value = json.loads(body) if body else None
    if isinstance(value, dict):
        value.pop("stream_options", None)
    return head, value, written.notes


FRAMES = (
    b'data: {"type":"ping"}',
    b'data: {"type":"message_stop"}',
    b'data: {"type":"message\\u005fstop"}',
    b'data: {"type":"response.completed"}',
    b'data: {"text":"message_stop [DONE] true response.failed"}',
    b"event: message_stop\ndata: {}",
    b"data: [DONE]",
    b": [DONE]",
    b"data: ",
    b'{"done":true}',
    b'{"done":false,"t":"true"}',
)


@often
@given(
    frames=st.lists(st.sampled_from(FRAMES), max_size=6),
    end=st.sampled_from((b"\n\n", b"\r\n\r\n", b"\r\r", b"\n")),
    dialect=st.sampled_from(DIALECTS),
)
def test_the_end_of_a_stream_is_found_with_and_without_its_words(frames: list[bytes], end: bytes, dialect: str) -> None:
    data, there = b"".join(frame + end for frame in frames), find_dialect(dialect)
    fast = until_end(data, there)
    with without("end words"):
        assert until_end(data, there) == fast


USAGE_FRAMES = (
    b'data: {"choices":[],"usage":{"prompt_tokens":1}}',
    b'data: {"choices" : [ ] ,"usage":{"prompt_tokens":1}}',
    b'data: {"cho\\u0069ces":[],"usage":{}}',
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}',
    b'data: {"choices":[{"delta":{"content":"\\"choices\\":[] usage"}}],"usage":{}}',
    b'data: {"choices":[],"error":{"message":"usage"}}',
    b"data: [DONE]",
    b": usage",
)


@often
@given(frames=st.lists(st.sampled_from(USAGE_FRAMES), max_size=6), end=st.sampled_from((b"\n\n", b"\r\n\r\n", b"\r\r")))
def test_the_usage_of_a_stream_is_found_with_and_without_its_mark(frames: list[bytes], end: bytes) -> None:
    data, there = b"".join(frame + end for frame in frames), find_dialect("openai_chat")
    fast = leave_out_usage(data, there)
    with without("usage mark"):
        assert leave_out_usage(data, there) == fast


# ---------------------------------------------------------------- the law would notice

# Conditions that never decide alone, and why they are there.
IMPLIED: dict[str, tuple[str, ...]] = {
    "chat answer, written": ("isinstance(only, Text)",),  # a plain part is a text; the type checker does not know it
    "gemini delta": ("choice is not None",),  # there is no text without a choice; for the type checker
    "responses item": ("kind is None",),  # an item of two keys with a type has no role or no content
    "results apart": ("message.role != 'user'", "len(message.parts) < 2"),  # no other turn has results; no single part
    "sse event": ("found",),  # without the separator there is no data
}


@cache
def expect(probe: str, step: int) -> tuple[str, ...]:
    return tuple(outcome(run) for run in tries_of(probe)[::step])


def is_noticed(mutant: Mutant, shown_by: tuple[str, ...]) -> bool:
    """By some of the near misses, or else by one of all."""
    return any(is_noticed_by(mutant, probe, step) for step in dict.fromkeys((NEAR, 1)) for probe in shown_by)


def is_noticed_by(mutant: Mutant, probe: str, step: int) -> bool:
    expected = zip(tries_of(probe)[::step], expect(probe, step), strict=True)
    with broken(mutant):
        return any(outcome(run, raises=Exception) != was for run, was in expected)


TRIED = sorted(name for name in FAST_PATHS.keys() - IN_OTHER_BYTES if FAST_PATHS[name])


@pytest.mark.parametrize("name", TRIED)
def test_a_fast_path_that_takes_too_much_is_noticed(name: str) -> None:
    mutants = [m for m in find_mutants(name) if m.words not in IMPLIED.get(name, ())]
    assert mutants
    chosen = mutants if ALL else [Random(name).choice(mutants)]  # noqa: S311
    survivors = [f"{m.mark.file.name}: {m.words}" for m in chosen if not is_noticed(m, FAST_PATHS[name])]
    assert not survivors


def test_only_fast_paths_have_implied_conditions() -> None:
    for name, words in IMPLIED.items():
        assert set(words) <= {mutant.words for mutant in find_mutants(name)}, name
