"""Requests: what is said in items comes back item by item, and what others say fits into them."""

from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects.openai_responses.services import COUNTS, encode_count_request
from dragoman.errors import DecodeError
from dragoman.jsontypes import copy_json
from dragoman.model.messages import (
    Audio,
    Cache,
    Document,
    Image,
    Message,
    Opaque,
    Reasoning,
    Seal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.request import (
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.recorded import cases, needs_corpus

NAME = "openai_responses"
HERE = find_dialect(NAME)


def decode(body: dict[str, Any]) -> Request:
    return HERE.decode_request(WireRequest(body=copy_json(body)), Notes())


def decode_input(*items: dict[str, Any]) -> tuple[Message, ...]:
    return decode({"model": "m", "input": list(items)}).messages


def encode(request: Request) -> tuple[dict[str, Any], list[str]]:
    notes = Notes()
    body = HERE.encode_request(request, notes).body
    return body, [f"{note.kind} {note.where}" for note in notes]


def turn(text: str) -> dict[str, Any]:
    """An assistant's turn in the one form that llama.cpp takes, and OpenAI too."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


def words(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def encode_messages(*messages: Message) -> tuple[list[dict[str, Any]], list[str]]:
    body, notes = encode(Request(model="m", messages=messages))
    return body["input"], notes


def user(*parts: Any) -> Message:
    return Message(role="user", parts=parts)


def assistant(*parts: Any) -> Message:
    return Message(role="assistant", parts=parts)


CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}

EXACT: dict[str, dict[str, Any]] = {
    "a string": {"model": "m", "input": "hi"},
    "no input at all": {"prompt": {"id": "pmpt_1"}, "previous_response_id": "resp_1"},
    "a null input": {"model": "m", "input": None},
    "instructions": {"model": "m", "instructions": "be brief", "input": [{"role": "user", "content": "hi"}]},
    "instructions and a string": {"model": "m", "instructions": "be brief", "input": "hi"},
    "a long identifier": {"model": "m", "input": "hi", "safety_identifier": "x" * 100},
    "null instructions": {"model": "m", "instructions": None, "input": "hi"},
    "a system item first": {"model": "m", "input": [{"role": "system", "content": "be brief"}]},
    "a system item behind instructions": {
        "model": "m",
        "instructions": "a",
        "input": [
            {"role": "system", "content": "b"},
            {"role": "developer", "content": [{"type": "input_text", "text": "c"}]},
        ],
    },
    "items with and without type": {
        "model": "m",
        "input": [
            {"role": "user", "content": "a"},
            {"type": "message", "role": "user", "content": "b"},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "c"}],
                "status": "completed",
            },
            {"role": "assistant", "content": "d"},
            {"role": "assistant", "content": "e"},
            {"type": "message", "role": "assistant", "content": "f"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "g"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "h", "annotations": []}],
            },
        ],
    },
    "two messages in one turn with their phases": {
        "model": "m",
        "input": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "b"},
                ],
            },
            {
                "type": "message",
                "id": "msg_2",
                "role": "assistant",
                "status": "incomplete",
                "phase": None,
                "tomorrow": 1,
                "content": [{"type": "output_text", "text": "c", "annotations": [], "id": "of the part"}],
            },
        ],
    },
    "reasoning of every form": {
        "model": "m",
        "input": [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAA"},
            {
                "type": "reasoning",
                "id": "rs_2",
                "status": "completed",
                "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
                "encrypted_content": "gBBB",
            },
            {
                "type": "reasoning",
                "id": "rs_3",
                "summary": [{"type": "summary_text", "text": ""}],
                "content": [{"type": "reasoning_text", "text": ""}, {"type": "reasoning_text", "text": "c"}],
                "encrypted_content": None,
            },
            {"type": "reasoning", "id": "rs_4", "summary": [], "content": []},
            {"type": "reasoning", "id": "rs_5", "summary": "of tomorrow"},
            CALL,
        ],
    },
    "calls and outputs": {
        "model": "m",
        "input": [
            CALL | {"id": "fc_1", "status": "completed", "namespace": "crm", "caller": None},
            {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin", "id": "ctc_1"},
            OUTPUT,
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "ok"}]},
            OUTPUT | {"output": ""},
            OUTPUT | {"output": []},
            OUTPUT | {"output": "[ERROR] no"},
            OUTPUT | {"output": [{"type": "input_image", "image_url": "data:image/png;base64,iVBO"}]},
            {"type": "function_call_output", "output": "whose?"},
        ],
    },
    "what only responses knows, in its place": {
        "model": "m",
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "patch"}]},
            {"role": "user", "content": "hi"},
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            {"id": "msg_9"},
            {"type": "item_reference", "id": "rs_9"},
            {"type": "configuration_update", "reasoning": {"effort": "low"}},
            {"type": "tool_search_output", "execution": "client", "tools": []},
            {"type": "compaction", "encrypted_content": "gCCC"},
            {"role": "user", "content": [{"type": "input_audio", "data": "UklG"}, {"type": "input_text", "text": "x"}]},
            {"role": "user", "content": [{"type": "hologram"}]},
            {"role": "user", "content": []},
            {"type": "message", "role": "assistant", "id": "msg_3", "status": "completed", "content": []},
            {"type": "compaction_trigger"},
        ],
    },
    "media of every form": {
        "model": "m",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"},
                    {"type": "input_image", "image_url": "https://example.org/a.png"},
                    {"type": "input_image", "file_id": "file-1", "detail": "auto", "image_url": None},
                    {"type": "input_image", "image_url": "data:image/svg+xml,<svg/>", "detail": "auto"},
                    {"type": "input_file", "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
                    {"type": "input_file", "file_data": "JVBE"},
                    {"type": "input_file", "file_url": "https://example.org/a.pdf", "detail": "low"},
                    {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
                ],
            }
        ],
    },
    "tools of every kind": {
        "model": "m",
        "input": "hi",
        "tools": [
            {"type": "function", "name": "a", "parameters": None, "strict": None},
            {"type": "function", "name": "b"},
            {"type": "function", "name": "c", "parameters": {}, "strict": True, "defer_loading": True},
            {"type": "function", "name": "d", "description": "D", "parameters": {"type": "object"}, "strict": False},
            {"type": "custom", "name": "e"},
            {"type": "custom", "name": "f", "format": {"type": "text"}},
            {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}},
            {"type": "custom", "name": "h", "format": {"type": "tomorrow"}},
            {"type": "namespace", "name": "crm", "tools": []},
            {"type": "web_search"},
        ],
    },
    "an empty list of tools beside added ones": {
        "model": "m",
        "input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "a"}]}],
        "tools": [],
    },
    "settings": {
        "model": "m",
        "input": "hi",
        "reasoning": {"effort": "high", "summary": "concise", "mode": "pro", "context": None},
        "text": {"format": {"type": "json_object"}, "verbosity": "low", "tomorrow": 1},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results"],
        "prompt_cache_options": {"mode": "implicit", "ttl": "30m", "prewarm": True},
        "user": "u",
        "max_output_tokens": 8,
        "service_tier": "a new one",
        "background": False,
        "truncation": "auto",
        "tool_choice": None,
    },
    "other settings": {
        "model": "m",
        "input": "hi",
        "reasoning": {"effort": None, "generate_summary": "concise"},
        "text": {},
        "include": ["message.output_text.logprobs"],
        "prompt_cache_options": {"mode": "explicit"},
        "user": "u",
        "safety_identifier": "s",
        "conversation": {"id": "conv_1"},
        "stream_options": {"include_obfuscation": False},
        "tool_choice": "a new word",
    },
}
for number, choice in enumerate(
    (
        "required",
        {"type": "function", "name": "a"},
        {"type": "custom", "name": "a"},
        {"type": "mcp", "server_label": "s", "name": "n"},
        {"type": "web_search_preview"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]},
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "custom", "name": "a"}, {"type": "function", "name": "b"}],
        },
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "image_generation"}]},
    )
):
    EXACT[f"tool choice {number}"] = {"model": "m", "input": "hi", "tool_choice": choice}


@pytest.mark.parametrize("case", EXACT)
def test_a_request_comes_back_word_for_word(case: str) -> None:
    assert encode(decode(EXACT[case])) == (EXACT[case], [])


def test_adjacent_items_of_the_model_are_one_turn() -> None:
    messages = decode_input(CALL, CALL | {"call_id": "call_2"}, OUTPUT, OUTPUT | {"call_id": "call_2"})
    assert [(m.role, len(m.parts)) for m in messages] == [("assistant", 2), ("user", 2)]


def test_encrypted_content_is_on_the_last_part_of_its_item_and_the_id_on_the_first() -> None:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    (turn,) = decode_input({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gA"})
    first, last = turn.parts
    assert isinstance(first, Reasoning)
    assert isinstance(last, Reasoning)
    assert (first.text, first.summary, first.seal) == ("a", True, None)
    assert first.extras[NAME]["id"] == "rs_1"
    assert last.seal == Seal(origin=NAME, form="encrypted", value="gA")


def test_instructions_are_the_leading_system_turn() -> None:
    (first, second) = decode({"model": "m", "instructions": "be brief", "input": "hi"}).messages
    assert first == Message(role="system", parts=(Text(text="be brief"),))
    assert second == user(Text(text="hi"))


def test_a_plain_leading_system_turn_becomes_instructions() -> None:
    body, notes = encode(
        Request(model="m", messages=(Message(role="system", parts=(Text(text="s"),)), user(Text(text="u"))))
    )
    assert body == {"model": "m", "instructions": "s", "input": [{"role": "user", "content": "u"}]}
    assert notes == []


def test_a_leading_system_turn_with_a_cache_mark_stays_an_item() -> None:
    items, notes = encode_messages(Message(role="system", parts=(Text(text="s", cache=Cache(ttl="1h")),)))
    mark = {"mode": "explicit", "ttl": "30m"}
    block = {"type": "input_text", "text": "s", "prompt_cache_breakpoint": mark}
    assert items == [{"role": "system", "content": [block]}]
    assert notes == ["altered /messages/0/parts/0/cache/ttl"]


def test_history_of_the_model_is_output_text_and_of_the_user_input_text() -> None:
    items, _ = encode_messages(user(Text(text="a"), Text(text="b")), assistant(Text(text="c"), Text(text="d")))
    assert [block["type"] for block in items[0]["content"]] == ["input_text", "input_text"]
    assert [block["type"] for block in items[1]["content"]] == ["output_text", "output_text"]
    assert "id" not in items[1]


def test_text_calls_and_results_keep_their_order() -> None:
    items, notes = encode_messages(
        assistant(Text(text="a"), ToolCall(id="c1", name="f", arguments="{}"), Text(text="b")),
        user(Text(text="x"), ToolResult(call_id="c1", parts=(Text(text="r"),)), Text(text="y")),
    )
    assert [(item["role"], words(item)) if "role" in item else item["type"] for item in items] == [
        ("assistant", "a"),
        "function_call",
        ("assistant", "b"),
        ("user", "x"),
        "function_call_output",
        ("user", "y"),
    ]
    assert notes == []


@pytest.mark.parametrize(
    "part",
    [
        Reasoning(text="hm"),
        Reasoning(text="hm", seal=Seal(origin="anthropic", value="c2ln")),
        Reasoning(text="hm", seal=Seal(origin=NAME, value="of another form")),
    ],
)
def test_foreign_reasoning_is_not_sent(part: Reasoning) -> None:
    items, notes = encode_messages(assistant(part, Text(text="so")))
    assert items == [turn("so")]
    assert notes == ["dropped /messages/0/parts/0"]


def test_our_own_encrypted_reasoning_comes_back_even_without_its_id() -> None:
    seal = Seal(origin=NAME, form="encrypted", value="gA")
    items, notes = encode_messages(assistant(Reasoning(text="hm", seal=seal), Text(text="so")))
    summary = [{"type": "summary_text", "text": "hm"}]
    assert items[0] == {"type": "reasoning", "summary": summary, "encrypted_content": "gA"}
    assert notes == ["altered /messages/0/parts/0/summary"]


def test_ids_we_made_up_for_a_client_never_reach_a_provider() -> None:
    messages = decode_input(
        {"type": "reasoning", "id": "rs_dragoman_r_0", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "id": "msg_dragoman_r_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "so", "annotations": []}],
        },
        CALL | {"id": "fc_dragoman_r_2", "status": "completed"},
    )
    items, notes = encode_messages(*messages)
    assert items == [turn("so"), CALL]
    assert notes == ["dropped /messages/0/parts/0"]


def test_a_seal_a_client_kept_for_us_is_read_back() -> None:
    seal = {"origin": "gemini", "value": "c2ln"}
    (turn,) = decode_input(CALL | {"dragoman": {"seal": seal}})
    call = turn.parts[0]
    assert isinstance(call, ToolCall)
    assert call.seal == Seal(origin="gemini", value="c2ln")
    assert encode_messages(turn)[1] == ["dropped /messages/0/parts/0/seal"]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult(call_id="c"), ""),
        (ToolResult(call_id="c", parts=(Text(text="ok"),)), "ok"),
        (ToolResult(call_id="c", parts=(Text(text=""),)), [{"type": "input_text", "text": ""}]),
        (ToolResult(call_id="c", failed=True), "[ERROR] "),
        (ToolResult(call_id="c", failed=True, parts=(Text(text="no"),)), "[ERROR] no"),
        (
            ToolResult(call_id="c", failed=True, parts=(Text(text=""),)),
            [{"type": "input_text", "text": "[ERROR] "}, {"type": "input_text", "text": ""}],
        ),
        (
            ToolResult(call_id="c", failed=True, parts=(Image(url="https://example.org/a.png"),)),
            [
                {"type": "input_text", "text": "[ERROR] "},
                {"type": "input_image", "image_url": "https://example.org/a.png"},
            ],
        ),
    ],
)
def test_a_result_says_what_it_is_and_whether_it_failed(result: ToolResult, output: Any) -> None:
    items, notes = encode_messages(user(result))
    assert items == [{"type": "function_call_output", "call_id": "c", "output": output}]
    assert notes == []
    (turn,) = decode_input(*items)
    back = turn.parts[0]
    assert isinstance(back, ToolResult)
    assert back.failed == result.failed
    assert [type(part) for part in back.parts] == [type(part) for part in result.parts]
    assert [part.text for part in back.parts if isinstance(part, Text)] == [
        part.text for part in result.parts if isinstance(part, Text)
    ]


def test_a_result_keeps_its_images_and_files() -> None:
    parts = (
        Text(text="see"),
        Image(data="iVBO", media_type="image/png"),
        Document(data="JVBE", media_type="application/pdf", name="a.pdf"),
        Audio(data="UklG"),
    )
    items, notes = encode_messages(user(ToolResult(call_id="c", parts=parts)))
    assert [block["type"] for block in items[0]["output"]] == ["input_text", "input_image", "input_file"]
    assert notes == ["dropped /messages/0/parts/0/parts/3"]


def test_a_freeform_call_and_its_result_are_custom() -> None:
    items, notes = encode_messages(
        assistant(ToolCall(id="c", name="patch", arguments="*** Begin", freeform=True)),
        user(ToolResult(call_id="c", parts=(Text(text="ok"),), freeform=True)),
    )
    assert items == [
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    assert notes == []


def test_malformed_arguments_in_the_history_are_passed_on_as_they_are() -> None:
    (turn,) = decode_input(CALL | {"arguments": '{"a":'})
    assert encode_messages(turn)[0] == [CALL | {"arguments": '{"a":'}]


def test_tools_in_the_input_are_plain_tools_for_other_dialects() -> None:
    added = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "a", "parameters": {"type": "object"}}, {"type": "web_search"}],
    }
    request = decode({"model": "m", "input": [added, {"role": "user", "content": "hi"}]})
    assert [type(tool) for tool in request.tools or ()] == [Tool]
    assert request.messages[0] == Message(role="developer", parts=(Opaque(dialect=NAME, body=added),))
    elsewhere = find_dialect("anthropic").encode_request(request, Notes()).body
    assert [tool["name"] for tool in elsewhere["tools"]] == ["a"]


def test_a_tool_without_strict_is_not_strict_and_has_a_schema() -> None:
    body, notes = encode(Request(model="m", tools=(Tool(name="t"),)))
    schema = {"type": "object", "properties": {}}
    assert body["tools"] == [{"type": "function", "name": "t", "parameters": schema, "strict": False}]
    assert notes == ["invented /tools/0/parameters"]


def test_a_tool_of_another_provider_is_left_out_with_a_note() -> None:
    body, notes = encode(Request(model="m", tools=(ServerTool(dialect="anthropic", body={"type": "web_search_1"}),)))
    assert body["tools"] == []
    assert notes == ["dropped /tools/0"]


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        (ToolChoice(mode="required", names=("f",)), {"type": "function", "name": "f"}),
        (ToolChoice(mode="required", names=("c",)), {"type": "custom", "name": "c"}),
        (
            ToolChoice(mode="auto", names=("f", "c")),
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
            },
        ),
    ],
)
def test_a_choice_names_tools_by_their_kind(choice: ToolChoice, word: Any) -> None:
    tools = (Tool(name="f", strict=False, parameters={"type": "object"}), CustomTool(name="c"))
    body, _ = encode(Request(model="m", tools=tools, tool_choice=choice))
    assert body["tool_choice"] == word


@pytest.mark.parametrize(
    ("setting", "word", "notes"),
    [
        (ReasoningSetting(mode="off"), {"effort": "none"}, []),
        (ReasoningSetting(mode="auto", effort="max", show=True), {"effort": "max", "summary": "auto"}, []),
        (ReasoningSetting(effort="low"), {"effort": "low"}, ["altered /reasoning/mode"]),
        (
            ReasoningSetting(mode="on", budget=8000),
            {"effort": "medium"},
            ["altered /reasoning/budget", "invented /reasoning/effort", "altered /reasoning/mode"],
        ),
        (ReasoningSetting(mode="on"), None, ["dropped /reasoning/mode", "dropped /reasoning"]),
        (ReasoningSetting(show=False), None, ["dropped /reasoning/show", "dropped /reasoning"]),
    ],
)
def test_how_much_to_think_is_said_in_one_word(setting: ReasoningSetting, word: Any, notes: list[str]) -> None:
    body, found = encode(Request(model="m", reasoning=setting))
    assert body.get("reasoning") == word
    assert found == notes


def test_effort_none_is_off() -> None:
    assert decode({"model": "m", "input": "", "reasoning": {"effort": "none"}}).reasoning == ReasoningSetting(
        mode="off"
    )


def test_what_responses_lacks_is_noted() -> None:
    request = Request(
        model="m",
        stop=("END",),
        choices=2,
        modalities=("text", "audio"),
        top_k=1,
        min_p=0.1,
        frequency_penalty=1,
        presence_penalty=1,
        seed=1,
    )
    body, notes = encode(request)
    assert body == {"model": "m", "input": []}
    assert sorted(notes) == [
        f"dropped /{field}"
        for field in (
            "choices",
            "frequency_penalty",
            "min_p",
            "modalities",
            "presence_penalty",
            "seed",
            "stop",
            "top_k",
        )
    ]


def test_values_responses_would_refuse_are_changed_and_noted() -> None:
    request = Request(
        model="m",
        max_output=5,
        service_tier="standard_only",
        cache=Cache(ttl="5m"),
        output=OutputFormat(type="json_schema", schema={"type": "object"}),
    )
    body, notes = encode(request)
    assert body["max_output_tokens"] == 16
    assert body["service_tier"] == "default"
    assert body["prompt_cache_options"] == {"mode": "implicit", "ttl": "30m"}
    assert body["text"]["format"] == {"type": "json_schema", "schema": {"type": "object"}, "name": "output"}
    assert sorted(notes) == [
        "altered /cache/ttl",
        "altered /max_output",
        "altered /service_tier",
        "invented /output/name",
    ]


def test_a_plain_text_document_is_sent_as_a_file() -> None:
    items, notes = encode_messages(user(Document(text="hé", media_type="text/plain", name="a.txt")))
    (block,) = items[0]["content"]
    assert block == {"type": "input_file", "file_data": "data:text/plain;base64,aMOp", "filename": "a.txt"}
    assert notes == ["altered /messages/0/parts/0"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"model": "m", "input": 3}, "/input"),
        ({"model": "m", "input": ["hi"]}, "/input/0"),
        ({"model": "m", "input": [{"role": "user"}]}, "/input/0/content"),
        ({"model": "m", "input": [{"role": "parrot", "content": "hi"}]}, "/input/0/role"),
        ({"model": "m", "input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "/input/0/call_id"),
        ({"model": "m", "input": "", "temperature": "hot"}, "/temperature"),
    ],
)
def test_what_no_request_says_is_refused_and_the_place_is_named(body: dict[str, Any], where: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(body)
    assert caught.value.where == where


def test_a_count_has_only_the_fields_it_takes() -> None:
    body = {"model": "m", "input": "hi", "temperature": 1, "store": False, "truncation": "auto"}
    request = COUNTS.decode_request(WireRequest(body=body), Notes())
    wire = encode_count_request(request, Notes())
    assert wire.path == "/v1/responses/input_tokens"
    assert wire.body == {"model": "m", "input": "hi", "truncation": "auto"}
    assert COUNTS.decode_reply(COUNTS.encode_reply(12)) == 12
    with pytest.raises(DecodeError):
        COUNTS.decode_reply({"error": {"message": "no"}})


@needs_corpus
def test_recorded_counts_come_back_as_they_were() -> None:
    counted = [case for case in cases(NAME) if case.meta["endpoint"] == "count_tokens"]
    assert counted
    for case in counted:
        wire, reply = case.request(), case.reply()
        assert wire is not None
        assert reply is not None
        before, answer = copy_json(wire.body), copy_json(reply.body)
        notes = Notes()
        assert encode_count_request(COUNTS.decode_request(wire, notes), notes).body == before
        assert COUNTS.encode_reply(COUNTS.decode_reply(reply.body)) == answer
        assert not list(notes)


@pytest.mark.parametrize(
    "body",
    [
        {"model": None, "input": "hi"},
        {"model": "m", "input": [{"type": None, "role": "user", "content": "hi"}]},
        {"model": "m", "input": [{"type": None, "role": "assistant", "content": "hi"}]},
        {"model": "m", "input": [{"type": ["message"], "content": "hi"}]},
        {"model": "m", "input": [{"type": "reasoning", "summary": None, "encrypted_content": "gA"}]},
        {"model": "m", "input": "hi", "tool_choice": {}},
        {"model": "m", "input": "hi", "tool_choice": {"type": "allowed_tools", "tools": []}},
        {"model": "m", "input": "hi", "tools": [{"type": "custom", "name": "c", "format": {"syntax": "lark"}}]},
        {"model": "m", "input": "hi", "text": {"format": {"type": {}}}},
        {"model": "m", "input": "hi", "text": {"format": {"type": "json_schema", "schema": {}}}},
    ],
)
def test_nulls_and_odd_types_are_left_where_they_stand(body: dict[str, Any]) -> None:
    assert encode(decode(body)) == (body, [])


@pytest.mark.parametrize(
    ("body", "mine"),
    [
        ({"model": "m", "input": [{"role": "user", "content": "hi"}]}, True),
        ({"model": "m", "input": "hi", "instructions": "be brief"}, True),
        ({"prompt": {"id": "pmpt_1"}}, True),
        ({"model": "m", "previous_response_id": "resp_1"}, True),
        ({"model": "m", "prompt": "hi"}, False),
        ({"model": "m", "messages": []}, False),
    ],
)
def test_a_request_is_known_by_its_input(body: dict[str, Any], mine: bool) -> None:
    assert (HERE.recognise(body, "request") >= 50) is mine
