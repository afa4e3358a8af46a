"""Results of every kind, as parts."""

import base64
import datetime
import decimal
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from dragoman.errors import DragomanError
from dragoman.model.messages import Audio, Document, Image, Text, ToolCall, ToolResult, Video
from dragoman.tools import File
from dragoman.tools.results import limit_result, make_parts, make_result

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 "
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
PDF = b"%PDF-1.7\n" + bytes([0, 200, 201])
ZIP = b"PK\x03\x04" + bytes([0, 200, 201])
CALL = ToolCall(id="c", name="f", arguments="{}")


@dataclass
class Point:
    x: int
    y: int


class Order(BaseModel):
    item: str
    when: datetime.date


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), "null"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        ({1: 2}, '{"1":2}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Order(item="a", when=datetime.date(2026, 1, 2)), '{"item":"a","when":"2026-01-02"}'),
        ([Order(item="a", when=datetime.date(2026, 1, 2))], '[{"item":"a","when":"2026-01-02"}]'),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), '"2026-01-02T00:00:00Z"'),
        (decimal.Decimal("1.5"), '"1.5"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("/a"), '"/a"'),
        (range(3), "[0,1,2]"),
        ({"a": 1}.items(), '[["a",1]]'),
        (ValueError("x"), '"x"'),
        (b"just text", "just text"),
    ],
    ids=repr,
)
def test_other_values_become_text_or_json(value: Any, text: str) -> None:
    assert make_parts(value) == (Text(text=text),)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (PNG, (Image(data=encoded(PNG), media_type="image/png"),)),
        (bytearray(JPEG), (Image(data=encoded(JPEG), media_type="image/jpeg"),)),
        (WEBP, (Image(data=encoded(WEBP), media_type="image/webp"),)),
        (WAV, (Audio(data=encoded(WAV), media_type="audio/wav"),)),
        (PDF, (Document(data=encoded(PDF), media_type="application/pdf"),)),
        (ZIP, (Document(data=encoded(ZIP), media_type="application/octet-stream"),)),
        (Image(url="https://a.example/b.png"), (Image(url="https://a.example/b.png"),)),
        (Video(url="https://a.example/b.mp4"), (Video(url="https://a.example/b.mp4"),)),
        (
            ["see:", PNG, {"a": 1}],
            (Text(text="see:"), Image(data=encoded(PNG), media_type="image/png"), Text(text='{"a":1}')),
        ),
    ],
    ids=["png", "jpeg", "webp", "wav", "pdf", "zip", "image", "video", "several"],
)
def test_pictures_sounds_and_files_become_parts(value: Any, parts: Any) -> None:
    assert make_parts(value) == parts


def test_a_file_is_read_only_when_it_is_returned_as_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.csv").write_text("a,b")
    (tmp_path / "a.bin").write_bytes(ZIP)
    assert make_parts(File(tmp_path / "a.png")) == (Image(data=encoded(PNG), media_type="image/png"),)
    assert make_parts(File(str(tmp_path / "a.csv"))) == (Text(text="a,b"),)
    (part,) = make_parts(File(tmp_path / "a.bin"))
    assert isinstance(part, Document)
    assert part.name == "a.bin"
    assert make_parts(tmp_path / "a.png") == (Text(text=f'"{tmp_path}/a.png"'),)  # a bare path is only its name
    with pytest.raises(DragomanError, match=r"none.txt cannot be read"):
        make_parts(File(tmp_path / "none.txt"))


def test_a_large_text_file_is_read_as_far_as_it_can_be_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_text("é" * 3_000_000)
    (part,) = make_parts(File(tmp_path / "a.txt"))
    assert isinstance(part, Text)
    assert len(part.text) == 2 * 1024 * 1024


def test_several_texts_share_the_limit_to_the_byte() -> None:
    result = ToolResult(call_id="c", parts=(Text(text="é" * 60_000), Text(text="é" * 60_000)))
    assert limit_result(result) is result


def test_a_returned_tool_result_gets_the_id_of_its_call() -> None:
    made = ToolResult(call_id="", parts=(Text(text="no"),), failed=True)
    assert make_result(CALL, made) == ToolResult(call_id="c", parts=(Text(text="no"),), failed=True)


def test_a_too_large_picture_is_replaced_by_a_note() -> None:
    big = Image(data=encoded(PNG + bytes(3000)), media_type="image/png")
    small = Image(data=encoded(PNG), media_type="image/png")
    result = limit_result(ToolResult(call_id="c", parts=(small, big, Text(text="x"))), media_bytes=1000)
    assert result.parts[0] == small
    assert isinstance(result.parts[1], Text)
    assert "left out: image/png of 30" in result.parts[1].text
    assert result.parts[2] == Text(text="x")


def test_text_is_cut_between_characters_and_over_all_parts() -> None:
    result = limit_result(
        ToolResult(call_id="c", parts=(Text(text="ab"), Text(text="éé"), Text(text="z"))), text_bytes=5
    )
    assert result.parts[0] == Text(text="ab")
    assert result.parts[1] == Text(text="é\n[cut: the result has 4 bytes, 3 are shown]")
    assert result.parts[2] == Text(text="\n[cut: the result has 1 bytes, 0 are shown]")


def test_a_result_that_was_cut_is_not_cut_again() -> None:
    """The tool cuts its result, and the loop checks the result again."""
    once = limit_result(ToolResult(call_id="c", parts=(Text(text="a" * 300),)), 100)
    assert once.parts == (Text(text="a" * 100 + "\n[cut: the result has 300 bytes, 100 are shown]"),)
    assert limit_result(once, 100) is once
    assert limit_result(once, 99) is not once


def test_a_result_within_the_limit_is_the_same_result() -> None:
    result = ToolResult(call_id="c", parts=(Text(text="a" * 1000), Text(text="é" * 1000)))
    assert limit_result(result) is result
