"""Laws over the recorded streams as a network brings them: in any pieces, with any line ends, cut off anywhere.

The pieces and the cuts are drawn by lot, always the same; `DRAGOMAN_SEED` draws others.
"""

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from random import Random
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.model.events import Event
from dragoman.model.fold import fold
from dragoman.notes import Notes
from tests.laws.test_recorded import DIALECTS, decode_stream, talks
from tests.recorded import Case, needs_corpus

pytestmark = needs_corpus

SSE = ("openai_chat", "openai_responses", "anthropic")
CUTS = 2  # of each stream, for each pair

# The line ends a stream may come with; only Server-Sent Events end a line with a bare CR, or begin with a BOM.
LINE_ENDS: dict[str, tuple[tuple[str, ...], Callable[[bytes], bytes]]] = {
    "LF": (DIALECTS, lambda data: data),
    "CRLF": (DIALECTS, lambda data: data.replace(b"\n", b"\r\n")),
    "CR": (SSE, lambda data: data.replace(b"\n", b"\r")),
    "BOM": (SSE, lambda data: b"\xef\xbb\xbf" + data),
}
GRAMMAR_OPTIONS: dict[str, dict[str, Any]] = {"ollama": {"counted": False}}  # a cut stream has counted nothing


def lot(*words: str) -> Random:
    return Random(" ".join((os.environ.get("DRAGOMAN_SEED", "1"), *words)))  # noqa: S311  # no secret is drawn


def streams(dialect: str) -> list[tuple[Case, bytes]]:
    found = [(case, case.stream()) for case in talks(dialect) if not case.failed]
    return [(case, data.replace(b"\r\n", b"\n")) for case, data in found if data is not None]


def decode_pieces(dialect: str, data: bytes, cuts: Iterable[int]) -> list[Event]:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    events: list[Event] = []
    begin = 0
    for end in (*cuts, len(data)):
        events.extend(decoder.feed(data[begin:end]))
        begin = end
    return [*events, *decoder.close()]


@pytest.mark.parametrize(
    ("dialect", "ends"), [(dialect, ends) for ends, (spoken, _) in LINE_ENDS.items() for dialect in spoken]
)
def test_neither_pieces_nor_line_ends_change_what_a_stream_says(dialect: str, ends: str) -> None:
    for case, plain in streams(dialect):
        whole, data = decode_stream(dialect, plain), LINE_ENDS[ends][1](plain)
        draw = lot(dialect, ends, case.name)
        cuts = sorted(draw.randrange(len(data)) for _ in range(draw.randrange(1, 40)))
        assert decode_pieces(dialect, data, cuts) == whole, (case.name, cuts)
        if len(data) < 1500:
            assert decode_pieces(dialect, data, range(1, len(data))) == whole, f"{case.name}, byte by byte"


def frame_ends(dialect: str, data: bytes) -> list[int]:
    mark = b"\n\n" if dialect in SSE or b"\n\n" in data else b"\n"
    return [0, *(i + len(mark) for i in range(len(data)) if data.startswith(mark, i))]


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_a_stream_that_is_cut_off_ends_legally_and_never_well(source: str, target: str) -> None:
    """A cut is a success only where the reason to finish had been given; nothing follows an end."""
    check_stream = import_module(f"tests.dialects.{target}.grammar").check_stream
    options = GRAMMAR_OPTIONS.get(target, {}) | ({"own": True} if source == target == "gemini" else {})
    for case, data in streams(source):
        ends = frame_ends(source, data)
        for end in lot(source, target, case.name).sample(ends, min(CUTS, len(ends))):
            events = decode_stream(source, data[:end])
            encoder = find_dialect(target).stream_encoder(Notes())
            out = encoder.feed(events) + encoder.close()
            check_stream(out, **options)
            assert encoder.feed(events) == b""
            said, heard = fold(events), fold(decode_stream(target, out))
            assert isinstance(said, Failure) == isinstance(heard, Failure), (case.name, end, heard)
