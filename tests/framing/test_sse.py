"""Server-sent events: any split of the bytes, every oddity seen on the wire."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError
from dragoman.framing.sse import SseDecoder, SseFrame, find_cut


def frames(*pieces: bytes) -> list[SseFrame]:
    decoder = SseDecoder()
    found = [frame for piece in pieces for frame in decoder.feed(piece)]
    return [*found, *decoder.close()]


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"event: x\ndata: a\n\n", [("x", b"a")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
        (b": a comment\n\ndata: a\n\n", [("", b"a")]),
        (b":\ndata:\n\ndata: a\n\n", [("", b"a")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [("", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"data: no blank line at the end", [("", b"no blank line at the end")]),
        (b"event: lonely\n\ndata: a\n\n", [("", b"a")]),
        (b'error: {"message":"busy"}\n\n', [("error", b' {"message":"busy"}')]),
        (b'{"error": {\n  "code": 429\n}}\n', [("error", b'{"error": {\n  "code": 429\n}}')]),
        (b"data: [DONE]\n\n", [("", b"[DONE]")]),
    ],
)
def test_each_form_is_read(wire: bytes, expected: list[tuple[str, bytes]]) -> None:
    assert [(frame.event, frame.data) for frame in frames(wire)] == expected


WIRE = (
    'event: a\r\ndata: {"text":"\U0001f30d 한국어"}\r\n\r\n: ping\n\ndata: b\ndata: c\n\nevent: d\rdata: é\r\r'.encode()
)


@given(st.lists(st.integers(0, len(WIRE)), max_size=8))
def test_any_split_gives_the_same_frames(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WIRE)]
    assert frames(*(WIRE[a:b] for a, b in pairwise(edges))) == frames(WIRE)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_one_byte_at_a_time_gives_the_same_frames(mark: bytes) -> None:
    assert frames(*(bytes([byte]) for byte in mark + WIRE)) == frames(WIRE)


@pytest.mark.parametrize("wire", [b"data: " + b"x" * 200, b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60 + b"\n"])
def test_an_endless_event_is_refused(wire: bytes) -> None:
    decoder = SseDecoder(max_frame_bytes=100)
    with pytest.raises(DecodeError, match="larger than 100 bytes"):
        decoder.feed(wire)


def test_a_frame_that_grows_is_as_bounded_as_one_that_comes_at_once() -> None:
    decoder = SseDecoder(max_frame_bytes=100)
    for _ in range(100):
        decoder.feed(b"x")
    with pytest.raises(DecodeError, match="larger than 100 bytes"):
        decoder.feed(b"x")


RUN = b"data: a\r\n\r\ndata: bb\n\n\ndata: c\rdata: d\n\r\n: e\r\n\r\n"


@given(st.lists(st.integers(0, len(RUN)), max_size=12), st.integers(0, 12))
def test_a_gathered_piece_and_the_rest_give_the_same_frames(cuts: list[int], gathered: int) -> None:
    """`gather` may be asked before each piece, and may decline."""
    decoder, found = SseDecoder(), list[SseFrame]()
    for number, (a, b) in enumerate(pairwise([0, *sorted(cuts), len(RUN)])):
        piece = decoder.gather(RUN[a:b]) if number >= gathered else None
        found += decoder.feed(RUN[a:b] if piece is None else piece)
    assert [*found, *decoder.close()] == frames(RUN)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: 1\n\ndata: 2\n\ndata: 3\n\n", b"data: 1\n\ndata: 2\n\n"),
        (b"data: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", b"data: 1\r\n\r\n"),
        (b"event: long\ndata: long and longer\n\ndata: 2\n\n", b"event: long\ndata: long and longer\n\n"),
        (b"data: 12345678901\n\ndata: 2\n\n", b"data: 12345678901\n\n"),  # its end stands on both sides of the place
        (b'{"a":1}\n{"a":2}\n{"a":3}\n', b'{"a":1}\n{"a":2}\n'),  # not SSE, but lines
        (b"event: long\ndata: " + b"long" * 20 + b"\n\n", b"event: long\n"),
        (b"data: " + b"long" * 20, b"data: longlonglong"),
    ],
)
def test_slices_are_cut_behind_a_frame_if_they_can(data: bytes, expected: bytes) -> None:
    assert data[: find_cut(data, 18, 40)] == expected
