import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import UpstreamError
from dragoman.notes import Notes
from dragoman.upstream.read_reply import decode_whole


@pytest.mark.parametrize("raw", [b"{}", b'{"id":"1","usage":{}}', b'{"ok":true}'])
@pytest.mark.parametrize("dialect", [name for name in NAMES if find_dialect(name).reply_keys])
def test_a_body_that_is_neither_an_answer_nor_an_error_is_the_upstreams_fault(dialect: str, raw: bytes) -> None:
    there = find_dialect(dialect)
    with pytest.raises(UpstreamError) as raised:
        decode_whole({}, raw, there, Notes())
    assert raised.value.failure.code == "upstream_malformed"
    assert there.reply_keys[0] in raised.value.failure.message
