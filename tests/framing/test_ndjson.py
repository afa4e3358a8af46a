"""One JSON value per line, whatever the network cut them into."""

import pytest

from dragoman.errors import DecodeError
from dragoman.framing.ndjson import NdjsonDecoder

WIRE = '{"a":"é"}\n\n{"b":"\U0001f30d"}\r\n{"c":1}'.encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_come_whole_and_the_last_may_lack_its_newline(size: int) -> None:
    decoder = NdjsonDecoder()
    found = [line for i in range(0, len(WIRE), size) for line in decoder.feed(WIRE[i : i + size])]
    assert [*found, *decoder.close()] == ['{"a":"é"}'.encode(), '{"b":"\U0001f30d"}'.encode(), b'{"c":1}']


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(DecodeError, match="larger than 10 bytes"):
        NdjsonDecoder(max_line_bytes=10).feed(b"x" * 11)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_gathered_piece_and_the_rest_give_the_same_lines(size: int) -> None:
    decoder, found = NdjsonDecoder(), list[bytes]()
    for at in range(0, len(WIRE), size):
        piece = decoder.gather(WIRE[at : at + size])
        found += decoder.feed(WIRE[at : at + size] if piece is None else piece)
    assert [*found, *decoder.close()] == NdjsonDecoder().feed(WIRE + b"\n")


def test_a_line_that_grows_is_as_bounded_as_one_that_comes_at_once() -> None:
    decoder = NdjsonDecoder(max_line_bytes=10)
    for _ in range(10):
        decoder.feed(b"x")
    with pytest.raises(DecodeError, match="larger than 10 bytes"):
        decoder.feed(b"x")
