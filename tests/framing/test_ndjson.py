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
