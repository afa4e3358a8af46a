import base64
from typing import Any

import mcp_types as wire
import pytest

from dragoman.mcp.content import read_tool_result
from dragoman.model.messages import Audio, Document, Image, Part, Text, ToolCall

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n rest").decode()
PDF = base64.b64encode(b"%PDF-1.7 rest \xff").decode()
BYTES = base64.b64encode(b"\xff\xfe\x00").decode()
CALL = ToolCall(id="c1", name="s__t", arguments="{}")

KINDS: list[tuple[Any, tuple[Part, ...]]] = [
    (wire.TextContent(type="text", text="hi"), (Text(text="hi"),)),
    (
        wire.ImageContent(type="image", data=PNG, mime_type="image/png"),
        (Image(data=PNG, media_type="image/png"),),
    ),
    (
        wire.AudioContent(type="audio", data=BYTES, mime_type="audio/wav"),
        (Audio(data=BYTES, media_type="audio/wav"),),
    ),
    (
        wire.ImageContent(type="image", data="not base64!", mime_type="image/png"),
        (Text(text="[image image/png: unreadable, because it is not base64]"),),
    ),
    (
        wire.ResourceLink(type="resource_link", name="log", uri="file:///log", mime_type="text/plain"),
        (Text(text="[log: file:///log - text/plain]"),),
    ),
    (
        wire.EmbeddedResource(
            type="resource", resource=wire.TextResourceContents(uri="file:///a", text="inside", mime_type="text/plain")
        ),
        (Text(text="[file:///a]\ninside"),),
    ),
    (
        wire.EmbeddedResource(
            type="resource", resource=wire.BlobResourceContents(uri="file:///a", blob=PDF, mime_type="application/pdf")
        ),
        (Text(text="[file:///a]"), Document(data=PDF, media_type="application/pdf")),
    ),
    (
        wire.EmbeddedResource(type="resource", resource=wire.BlobResourceContents(uri="file:///a", blob=PNG)),
        (Text(text="[file:///a]"), Image(data=PNG, media_type="image/png")),
    ),
]


@pytest.mark.parametrize(("block", "parts"), KINDS, ids=[row[0].type for row in KINDS])
def test_every_kind_of_content_becomes_parts(block: Any, parts: tuple[Part, ...]) -> None:
    result = read_tool_result(CALL, wire.CallToolResult(content=[block]))
    assert result.parts == parts
    assert result.call_id == "c1"
    assert result.failed is None


def test_an_error_is_a_failed_result() -> None:
    answer = wire.CallToolResult(content=[wire.TextContent(type="text", text="no")], is_error=True)
    assert read_tool_result(CALL, answer).failed is True


def test_structured_content_is_said_only_where_no_text_says_it() -> None:
    text = wire.TextContent(type="text", text='{"n":1}')
    both = wire.CallToolResult(content=[text], structured_content={"n": 1})
    alone = wire.CallToolResult(content=[], structured_content={"n": 1})
    assert read_tool_result(CALL, both).parts == (Text(text='{"n":1}'),)
    assert read_tool_result(CALL, alone).parts == (Text(text='{"n":1}'),)


def test_nothing_is_an_empty_text() -> None:
    assert read_tool_result(CALL, wire.CallToolResult(content=[])).parts == (Text(text=""),)


def test_content_of_tomorrow_does_not_break_today() -> None:
    class Hologram:
        type = "hologram"

    class Answer:
        content = (Hologram(),)
        is_error = False

    assert read_tool_result(CALL, Answer()).parts == (Text(text="[content of an unknown kind: hologram]"),)
