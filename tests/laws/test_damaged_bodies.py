"""The law of bad input: whatever is bent in a body, it is converted or refused in words, never anything else.

A client's odd value must become its 400, an upstream's a 502; a TypeError from the depths would be our own 500. The
bodies are recorded ones with something bent: at random (`DRAGOMAN_EXAMPLES` says how many for each pair of dialects),
and every kind of place with every type of JSON (`DRAGOMAN_BENDS` says how many for each dialect; "all" is possible).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from random import Random
from typing import TypeVar

import pytest

import dragoman
from dragoman.dialects import NAMES
from dragoman.errors import DecodeError, DragomanError, pointer
from tests.laws.damage import bend, bend_at, bend_line, bend_stream, every_bend, every_stream_bend
from tests.recorded import cases, needs_corpus

EXAMPLES = int(os.environ.get("DRAGOMAN_EXAMPLES", "60"))
BENDS = os.environ.get("DRAGOMAN_BENDS", "600")
LARGEST = 40_000  # bytes: bending is slow in large ones and finds nothing else there
WORDS = [name for name in NAMES if name != "canonical"]
pairs = pytest.mark.parametrize(("source", "target"), [(a, b) for a in WORDS for b in WORDS])

T = TypeVar("T")


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


def some(bends: list[T], *seed: str) -> Iterator[tuple[T, str]]:
    """A fixed sample of the bends, each with a target."""
    dice = Random(" ".join(seed))  # noqa: S311  # the same examples in every run
    number = len(bends) if BENDS == "all" else min(int(BENDS), len(bends))
    return zip(dice.sample(bends, number), cycle(WORDS), strict=False)


@needs_corpus
@pytest.mark.parametrize("source", WORDS)
def test_anything_in_any_place_of_a_request_is_converted_or_refused_in_words(source: str) -> None:
    found = [w.body for c in cases(source) if len(c.read("request.json") or b"") < LARGEST and (w := c.request())]
    for (body, path, odd), target in some(every_bend(found), source, "request"):
        bent = bend_at(body, path, odd)
        check(lambda: dragoman.convert(bent, to=target, source=source).json())  # noqa: B023


READ_AS_LIST = ("/systeminstruction/parts/", "/tools/functiondeclarations")  # Gemini reads one object as a list of one


def is_near(error: DecodeError, bent: str) -> bool:
    """Gemini's errors have `functionCall` for `function_call`. A turn of Gemini whose parts are empty needs a role."""
    found, bent = (place.replace("_", "").lower() for place in (error.where, bent))
    return bent.startswith((found, *READ_AS_LIST)) or found.startswith(bent) or found.endswith("/role")


@needs_corpus
@pytest.mark.parametrize("source", WORDS)
def test_an_error_names_the_place_that_is_wrong(source: str) -> None:
    """Or a place inside it or around it, if that is where the mistake shows."""
    found = [w.body for c in cases(source) if len(c.read("request.json") or b"") < LARGEST and (w := c.request())]
    refused, wrong = 0, []
    for body, path, odd in every_bend(found):
        if odd not in ("0", '"x"', "true", "[null]", '{"a":{"b":[1]}}'):
            continue
        bent = pointer(path)
        try:
            dragoman.convert(bend_at(body, path, odd), to="canonical", source=source)
        except DecodeError as error:
            refused += 1
            if not is_near(error, bent):
                wrong.append((bent, odd, str(error)))
    assert refused > 50
    assert not wrong


@needs_corpus
@pytest.mark.parametrize("source", WORDS)
@pytest.mark.parametrize("failed", [False, True])
def test_anything_in_any_place_of_a_reply_is_converted_or_refused_in_words(source: str, failed: bool) -> None:
    turn = dragoman.convert_failure if failed else dragoman.convert_reply
    found = [w.body for c in cases(source) if c.failed == failed and (w := c.reply()) and type(w.body) is dict]
    small = [body for body in found if len(str(body)) < LARGEST]
    for (body, path, odd), target in some(every_bend(small), source, "reply"):
        bent = bend_at(body, path, odd)
        check(lambda: turn(bent, to=target, source=source).json())  # noqa: B023


@needs_corpus
@pytest.mark.parametrize("source", WORDS)
def test_anything_in_any_place_of_a_stream_is_converted_or_refused_in_words(source: str) -> None:
    found = [data for c in cases(source) if (data := c.stream()) and len(data) < LARGEST]
    for (data, line, path, odd), target in some(every_stream_bend(found), source, "stream"):
        bent = bend_line(data, line, path, odd)
        check(lambda: b"".join(dragoman.convert_stream([bent], to=target, source=source)))  # noqa: B023
