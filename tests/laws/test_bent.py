"""The law of bad input: whatever is bent in a body, it is converted or refused in words, never anything else.

A client's odd value must become its 400, an upstream's a 502; a TypeError from the depths would be our own 500. The
bodies are recorded ones with something bent; `DRAGOMAN_EXAMPLES` says how many for each pair of dialects.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

import dragoman
from dragoman.dialects import NAMES
from dragoman.errors import DragomanError
from tests.laws.bending import bend, bend_stream
from tests.recorded import cases, needs_corpus

EXAMPLES = int(os.environ.get("DRAGOMAN_EXAMPLES", "60"))
LARGEST = 40_000  # bytes: bending is slow in large ones and finds nothing else there
WORDS = [name for name in NAMES if name != "canonical"]
pairs = pytest.mark.parametrize(("source", "target"), [(a, b) for a in WORDS for b in WORDS])


def check(what: Callable[[], object]) -> None:
    with suppress(DragomanError):
        what()


def pick(source: str, target: str, file: str) -> Random:
    seed = os.environ.get("DRAGOMAN_SEED", "1")
    return Random(f"{seed} {source} {target} {file}")  # noqa: S311  # the same examples in every run


@needs_corpus
@pairs
def test_a_bent_request_is_converted_or_refused_in_words(source: str, target: str) -> None:
    dice = pick(source, target, "request")
    found = [w.body for c in cases(source) if len(c.read("request.json") or b"") < LARGEST and (w := c.request())]
    for _ in range(EXAMPLES):
        body = bend(dice.choice(found), dice)
        check(lambda: dragoman.convert(body, to=target, source=source).json())  # noqa: B023  # called at once


@needs_corpus
@pairs
def test_a_bent_reply_is_converted_or_refused_in_words(source: str, target: str) -> None:
    dice = pick(source, target, "reply")
    found = [
        (c.failed, w.body) for c in cases(source) if len(c.read("reply.json") or b"") < LARGEST and (w := c.reply())
    ]
    for _ in range(EXAMPLES):
        failed, body = dice.choice(found)
        body, turn = bend(body, dice), dragoman.convert_failure if failed else dragoman.convert_reply
        check(lambda: turn(body, to=target, source=source).json())  # noqa: B023


@needs_corpus
@pairs
def test_a_bent_stream_is_converted_or_refused_in_words(source: str, target: str) -> None:
    dice = pick(source, target, "stream")
    found = [data for c in cases(source) if (data := c.stream()) and len(data) < LARGEST]
    for _ in range(EXAMPLES):
        data = bend_stream(dice.choice(found), dice)
        check(lambda: b"".join(dragoman.convert_stream([data], to=target, source=source)))  # noqa: B023
