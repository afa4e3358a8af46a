"""`response.in_progress` repeats the start of a stream. It is passed over unread, as long as it could be read."""

import json
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import DecodeError
from dragoman.notes import Notes
from tests.laws.damage import bend_at, every_bend
from tests.laws.fast_paths import without

RESPONSE = {
    "id": "resp_1",
    "model": "m",
    "status": "in_progress",
    "instructions": "Say \u00e9.",
    "tools": [{"name": "f"}],
}
PROGRESS: dict[str, Any] = {"type": "response.in_progress", "sequence_number": 1, "response": RESPONSE}
CREATED = {**PROGRESS, "type": "response.created", "sequence_number": 0}


def write(body: bytes, event: bytes = b"response.in_progress") -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event, body)


START = write(json.dumps(CREATED).encode(), b"response.created")


def read(frame: bytes, *, started: bool) -> object:
    decoder = find_dialect("openai_responses").stream_decoder(Notes())
    try:
        events = decoder.feed(START if started else b"") + decoder.feed(frame) + decoder.close()
    except DecodeError as error:
        return str(error)
    return events, decoder.irregular


def list_odd() -> list[bytes]:
    body = json.dumps(PROGRESS).encode()
    odd = [body, json.dumps(PROGRESS, ensure_ascii=False).encode(), body[:-1], body + b"}", b"", b"[]", b"{}", b"null"]
    odd += [body.replace(b"Say", text) for text in (b"\xff", b"\x01", rb"\ud800", rb"\x", b'"')]
    odd += [body.replace(b"1", number, 1) for number in (b"01", b"1.5", b"null", b"true", b'"1"')]
    odd += [b"[" * 2000 + b"]" * 2000, body[:-1] + b',"x":%b}' % (b"[" * 2000 + b"]" * 2000)]
    odd.append(body[:-1] + b',"x":[%b]}' % b",".join([b"1"] * 500_000))  # more values than are read
    odd += [json.dumps(bend_at(body, path, bent)).encode() for body, path, bent in every_bend([PROGRESS])]
    return odd


@pytest.mark.parametrize("event", [b"response.in_progress", b"response.created", b"error"])
def test_an_event_that_is_passed_over_could_have_been_read(event: bytes) -> None:
    frames = [write(body, event) for body in list_odd()]
    for started in (True, False):
        quick = [read(frame, started=started) for frame in frames]
        with without("responses progress"):
            assert [read(frame, started=started) for frame in frames] == quick
