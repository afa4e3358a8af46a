"""Halves of surrogate pairs: joined over two events, replaced where there is no other half."""

import json

import pytest

from dragoman.way_back import PairJoiner

FIRST, SECOND = b'data: {"t":"a\\ud83d"}\n\n', b'data: {"t":"\\ude00b"}\n\n'


def join(*pieces: bytes) -> bytes:
    joiner = PairJoiner()
    return b"".join(joiner.feed(piece) for piece in pieces) + joiner.close()


def texts(data: bytes) -> list[str]:
    return [json.loads(row[5:])["t"] for row in data.splitlines() if row]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 1000])
def test_a_pair_that_two_events_share_is_joined(size: int) -> None:
    data = FIRST + SECOND
    assert texts(join(*[data[i : i + size] for i in range(0, len(data), size)])) == ["a", "\U0001f600b"]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (b"\\ud83d\\ude00", "\U0001f600"),  # a whole pair stays
        (b"\\ud83dx", "\ufffdx"),
        (b"\\ude00", "\ufffd"),
        (b"\\\\ud83d", "\\ud83d"),  # a backslash and four letters
        (b"\\\\\\ud83dx", "\\\ufffdx"),
        (b"\\n\\u00e9", "\n\xe9"),
    ],
)
def test_other_escapes_are_what_they_were(text: bytes, becomes: str) -> None:
    line = b'data: {"t":"' + text + b'"}\n'
    assert texts(join(line)) == [becomes]
    assert texts(join(*[line[i : i + 1] for i in range(len(line))])) == [becomes]


def test_a_line_without_halves_waits_for_nothing() -> None:
    assert PairJoiner().feed(b'data: {"t":"a\\n') == b'data: {"t":"a\\n'
