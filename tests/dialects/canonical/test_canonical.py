"""Our own form as a dialect."""

import dragoman
from dragoman.jsontypes import dump_json, load_json

ASKED = {"model": "m", "max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": "hi"}]}


def test_what_it_hands_out_is_what_it_prints() -> None:
    """Lists, never tuples: a caller may look at `.body` with the eyes of the JSON it stands for."""
    body = dragoman.convert(ASKED, to="canonical").body
    assert load_json(dump_json(body)) == body
    assert dragoman.convert(body, to="anthropic").body == ASKED
