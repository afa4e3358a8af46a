"""Tool results, resources and prompts of servers as parts."""

import asyncio
import base64
import re
import sys
from pathlib import Path
from typing import Any

import mcp_types as wire
import pytest

from dragoman.mcp.content import read_tool_result
from dragoman.model.messages import Audio, Document, Image, Part, Text, ToolCall
from tests.mcp.servers import HERE, House, bad, everything, spec, time_server, words

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


def test_a_link_in_a_result_can_be_read_by_the_model(tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, spec("every", command=everything())) as house:
            names = [tool.name for tool in await house.servers.make_toolbox().list_tools()]
            assert {"every__list_resources", "every__read_resource"} <= set(names)
            links = words(await house.call("every.get-resource-links", '{"count": 2}'))
            uris = re.findall(r"demo://resource/dynamic/\w+/\d+", links)
            assert len(uris) == 2
            for uri in uris:
                result = await house.call("every.read_resource", f'{{"uri": "{uri}"}}')
                assert not result.failed
                assert words(result).startswith(f"[{uri}]")
            listed = words(await house.call("every.list_resources"))
            assert "demo://resource/static/document/features.md - " in listed
            assert "demo://resource/dynamic/text/{resourceId} - " in listed
            page = await house.call("every.read_resource", '{"uri": "demo://resource/static/document/features.md"}')
            assert "# Everything Server" in words(page)
            blob = await house.call("every.read_resource", '{"uri": "demo://resource/dynamic/blob/1"}')
            assert isinstance(blob.parts[1], Text | Document)
            embedded = await house.call("every.get-resource-reference", '{"resourceType": "Text", "resourceId": 1}')
            assert "demo://resource/dynamic/text/1" in words(embedded)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [('{"uri": "demo://nowhere"}', "not found"), ("{}", "uri must be a text"), ('{"uri": 3}', "uri must be a text")],
)
def test_what_cannot_be_read_is_an_error_for_the_model(arguments: str, why: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, bad("library")) as house:
            assert words(await house.call("library.read_resource", '{"uri": "demo://page"}')).endswith("upon a time.")
            result = await house.call("library.read_resource", arguments)
            assert result.failed
            assert why in words(result)

    asyncio.run(run())


def test_a_server_that_lists_none_and_sends_a_link_can_be_asked_for_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, bad("link")) as house:
            toolbox = house.servers.make_toolbox()
            assert [tool.name for tool in await toolbox.list_tools()] == ["link__work"]
            assert words(await house.call("link.work")) == "[page: demo://page - A page., text/plain]"
            assert [tool.name for tool in await toolbox.list_tools()][1:] == [
                "link__list_resources",
                "link__read_resource",
            ]
            read = await house.call("link.read_resource", '{"uri": "demo://page"}')
            assert words(read) == "[demo://page]\nOnce upon a time."

    asyncio.run(run())


def test_a_server_without_resources_or_one_that_shall_not_show_them_has_no_such_tools(tmp_path: Path) -> None:
    """The time server says it has resources, and has none."""

    async def run() -> None:
        async with House(tmp_path, time_server(), bad("fine"), bad("library", resources=False)) as house:
            names = [tool.name for tool in await house.servers.make_toolbox().list_tools()]
            assert names == ["time__get_current_time", "time__convert_time", "fine__work", "library__work"]

    asyncio.run(run())


def test_a_server_of_the_newest_protocol_that_wants_something_of_us_is_refused_at_once(tmp_path: Path) -> None:
    """No person uses a gateway directly, so sampling and questions are refused at once."""

    async def run() -> None:
        asking = spec("asking", command=sys.executable, args=[str(HERE / "asking_server.py")], timeout_s=60)
        async with House(tmp_path, asking) as house:
            await house.servers.make_toolbox().list_tools()
            assert house.row("asking")["protocol"] == "2026-07-28"
            for tool in ("elicit", "sample", "need"):
                result = await house.call(f"asking.{tool}")
                assert result.failed
                assert "heard" not in words(result)
                assert "longer than" not in words(result)
            assert house.health() == {"asking": "up"}

    asyncio.run(run())
