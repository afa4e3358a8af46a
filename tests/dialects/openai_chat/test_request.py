"""Chat requests: what goes wrong, one case each."""

from typing import Any

import pytest

from dragoman.convert import convert
from dragoman.dialects.openai_chat import DIALECT
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json
from dragoman.model.messages import (
    Audio,
    Cache,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.request import (
    AnyTool,
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


def decode(**body: Any) -> Request:
    given: JsonObject = {"model": "m", "messages": [], **copy_json(body)}
    return DIALECT.decode_request(WireRequest(body=given), Notes())


def encode(request: Request) -> tuple[Any, list[tuple[str, str]]]:
    notes = Notes()
    body = load_json(dump_json(DIALECT.encode_request(request, notes).body))
    return body, [(note.kind, note.where) for note in notes]


def said(*parts: Part, role: Any = "assistant") -> Any:
    """The messages one turn becomes, and the notes."""
    body, notes = encode(Request(model="m", messages=(Message(role=role, parts=parts),)))
    return body["messages"], notes


def part_of(message: JsonObject) -> Part:
    (part,) = decode(messages=[message]).messages[0].parts
    return part


# ---------------------------------------------------------------- seed 002, mission C1, C3, C4

WEATHER = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}


def test_an_anthropic_request_becomes_a_chat_request_field_by_field() -> None:
    asked = {
        "model": "claude-3-5-sonnet-20241022",
        "max_tokens": 1024,
        "system": "You are helpful",
        "messages": [{"role": "user", "content": "Get Paris weather"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "stream": True,
        "stop_sequences": ["END"],
        "tools": [{"name": "get_weather", "description": "Get weather", "input_schema": WEATHER}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u-1"},
    }
    converted = convert(asked, source="anthropic", to="openai-chat")
    function = {"name": "get_weather", "description": "Get weather", "parameters": WEATHER}
    assert converted.body == {
        "model": "claude-3-5-sonnet-20241022",
        "max_tokens": 1024,
        "messages": [
            {"role": "system", "content": "You are helpful"},
            {"role": "user", "content": "Get Paris weather"},
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "stream": True,
        "stop": ["END"],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "safety_identifier": "u-1",
    }
    assert converted.notes == ()


def test_functions_and_function_call_become_anthropic_tools() -> None:
    asked = {
        "model": "m",
        "max_tokens": 10,
        "functions": [{"name": "get_weather", "description": "Get weather", "parameters": WEATHER}],
        "function_call": {"name": "get_weather"},
        "messages": [
            {"role": "user", "content": "Paris?"},
            {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": '{"a": 1}'}},
            {"role": "function", "name": "get_weather", "content": "sunny"},
            {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": "{}"}},
            {"role": "function", "name": "get_weather", "content": "rain"},
        ],
    }
    body = convert(asked, source="openai-chat", to="anthropic").body
    assert body["tools"] == [{"name": "get_weather", "description": "Get weather", "input_schema": WEATHER}]
    assert body["tool_choice"] == {"type": "tool", "name": "get_weather"}
    calls = [block for turn in body["messages"][1:] for block in turn["content"]]
    assert [block.get("id") or block["tool_use_id"] for block in calls] == [
        "call_legacy_0",
        "call_legacy_0",
        "call_legacy_1",
        "call_legacy_1",
    ]


def test_the_older_forms_come_back_as_they_were() -> None:
    asked = {
        "model": "m",
        "functions": [{"name": "f", "parameters": {"type": "object"}}, {"name": "g"}],
        "function_call": "auto",
        "messages": [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
        ],
    }
    body, notes = encode(decode(**asked))
    assert body == asked
    assert notes == []


# ---------------------------------------------------------------- turns


@pytest.mark.parametrize(
    "content", ["hi", "", [], [{"type": "text", "text": "hi"}], None, [{"type": "text", "text": "a"}, {"type": "x"}]]
)
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_content_is_written_as_it_was(role: str, content: object) -> None:
    messages = [{"role": role, "content": content}]
    assert encode(decode(messages=messages)) == ({"model": "m", "messages": messages}, [])


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_an_assistant_that_only_calls_says_no_text(content: JsonObject) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", **content, "tool_calls": [call]}
    request = decode(messages=[message])
    assert request.messages[0].parts == (ToolCall(id="c", name="f", arguments="{}"),)
    assert encode(request) == ({"model": "m", "messages": [message]}, [])


def test_a_call_without_text_has_null_content() -> None:
    messages, _ = said(ToolCall(id="c", name="f", arguments="{}"))
    assert messages[0]["content"] is None


def test_results_and_text_of_a_turn_keep_their_order() -> None:
    messages, notes = said(
        ToolResult(call_id="a", parts=(Text(text="1"),)),
        ToolResult(call_id="b", parts=(Text(text="2"),)),
        Text(text="and now?"),
        role="user",
    )
    assert messages == [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "and now?"},
    ]
    assert notes == []


def test_a_turn_of_which_nothing_can_be_said_is_left_out() -> None:
    messages, notes = said(Opaque(dialect="anthropic", body={"type": "server_tool_use"}))
    assert messages == []
    assert ("dropped", "/messages/0") in notes


def test_an_order_chat_cannot_keep_is_noted() -> None:
    messages, notes = said(ToolCall(id="c", name="f", arguments="{}"), Text(text="done"))
    assert messages[0]["content"] == "done"
    assert notes == [("altered", "/messages/0/parts")]


@pytest.mark.parametrize("role", ["boss", 3, None])
def test_an_unknown_role_is_an_error_with_its_place(role: object) -> None:
    with pytest.raises(DecodeError) as raised:
        decode(messages=[{"role": "user", "content": "a"}, {"role": role, "content": "b"}])
    assert raised.value.where == "/messages/1/role"


# ---------------------------------------------------------------- thoughts

SIGNED = Reasoning(text="hm", seal=Seal(origin="anthropic", value="sig"))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_is_read_under_every_name_and_written_back_under_its_own(name: str) -> None:
    messages = [{"role": "assistant", "content": "a", name: "hm"}]
    request = decode(messages=messages)
    thought = request.messages[0].parts[0]
    assert isinstance(thought, Reasoning)
    assert thought.text == "hm"
    assert encode(request) == ({"model": "m", "messages": messages}, [])


def test_one_thought_under_two_names_is_one_thought() -> None:
    messages = [{"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_content": "hm"}]
    request = decode(messages=messages)
    assert [type(part) for part in request.messages[0].parts] == [Reasoning, Text]
    assert encode(request)[0]["messages"] == messages


DETAILS = [
    {"type": "reasoning.text", "text": "hm", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.summary", "summary": "so", "format": "x", "index": 1, "id": None},
    {"type": "reasoning.encrypted", "data": "blob", "id": "rs_1", "format": "x", "index": 1},
    {"type": "reasoning.text", "signature": "only", "index": 2},
    {"type": "reasoning.tomorrow", "x": 1},
]


def test_signed_details_go_back_as_they_came_and_their_text_is_read() -> None:
    messages = [{"role": "assistant", "content": "a", "reasoning": "hmso", "reasoning_details": DETAILS}]
    request = decode(messages=messages)
    parts = request.messages[0].parts
    thoughts = [part for part in parts if isinstance(part, Reasoning)]
    assert [(part.text, part.summary, part.seal and part.seal.value) for part in thoughts] == [
        ("hm", False, "sig"),
        ("so", True, None),
        ("", False, "blob"),
        ("", False, "only"),
    ]
    assert encode(request) == ({"model": "m", "messages": messages}, [])


def test_mistral_thinks_among_its_content() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True},
        {"type": "text", "text": "a"},
    ]
    messages = [{"role": "assistant", "content": content}]
    request = decode(messages=messages)
    assert [part.text for part in request.messages[0].parts if isinstance(part, Reasoning | Text)] == ["hm", "a"]
    assert encode(request) == ({"model": "m", "messages": messages}, [])


def test_a_foreign_seal_does_not_go_to_a_provider() -> None:
    messages, notes = said(SIGNED, Text(text="a"))
    assert messages == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
    assert notes == [("dropped", "/messages/0/parts/0/seal")]


def test_a_redacted_thought_is_left_out_of_requests() -> None:
    messages, notes = said(
        Reasoning(text="", seal=Seal(origin="anthropic", value="x", form="redacted")), Text(text="a")
    )
    assert messages == [{"role": "assistant", "content": "a"}]
    assert notes == [("dropped", "/messages/0/parts/0")]


SEAL = {"origin": "anthropic", "value": "sig"}


def test_the_side_field_puts_thoughts_back_where_they_stood() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    side = {"reasoning": [{"index": 0, "at": 0, "text": "one", "seal": SEAL}, {"index": 1, "at": 2, "text": "two"}]}
    message = {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "onetwo",
        "tool_calls": [call],
        "dragoman": side,
    }
    assert decode(messages=[message]).messages[0].parts == (
        Reasoning(text="one", seal=Seal(origin="anthropic", value="sig")),
        Text(text="a"),
        Reasoning(text="two"),
        ToolCall(id="c", name="f", arguments="{}"),
    )


def test_a_thought_the_client_changed_is_not_signed_any_more() -> None:
    side = {"reasoning": [{"index": 0, "at": 0, "text": "one", "seal": SEAL}]}
    message = {"role": "assistant", "content": "a", "reasoning_content": "else", "dragoman": side}
    assert decode(messages=[message]).messages[0].parts == (Reasoning(text="else"), Text(text="a"))


@pytest.mark.parametrize(
    "side", [3, {}, {"x": 1}, {"reasoning": [3]}, {"reasoning": [{"at": "0", "text": "a"}]}, {"seal": {"origin": 1}}]
)
def test_a_side_field_that_is_not_ours_is_left_alone(side: object) -> None:
    messages = [{"role": "assistant", "content": "a", "dragoman": side}]
    request = decode(messages=messages)
    assert request.messages[0].parts == (Text(text="a"),)
    assert encode(request)[0]["messages"] == messages


def test_a_call_brings_its_seal_back() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "dragoman": {"seal": SEAL}}
    (part,) = decode(messages=[{"role": "assistant", "tool_calls": [call]}]).messages[0].parts
    assert isinstance(part, ToolCall)
    assert part.seal == Seal(origin="anthropic", value="sig")


# ---------------------------------------------------------------- calls and results


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "any text"}},
        {"id": "c", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "c", "type": "function", "function": {"name": "f"}},
        {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0},
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{", "x": None, "y": 1}, "z": 2},
        {"id": "c", "type": "tomorrow", "tomorrow": {}},
    ],
)
def test_calls_come_back_as_they_were(call: JsonObject) -> None:
    messages = [{"role": "assistant", "content": "a", "tool_calls": [call]}]
    assert encode(decode(messages=messages)) == ({"model": "m", "messages": messages}, [])


def test_a_result_without_an_id_answers_the_first_call_that_waits() -> None:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ("a", "b", "c")]
    messages = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    request = decode(messages=messages)
    results = [message.parts[0] for message in request.messages[1:]]
    assert [part.call_id for part in results if isinstance(part, ToolResult)] == ["b", "a", "c", "call_legacy_2"]
    assert encode(request) == ({"model": "m", "messages": messages}, [])


def test_a_result_of_a_freeform_call_is_freeform() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    request = decode(
        messages=[{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}]
    )
    assert request.messages[0].parts == (ToolCall(id="c", name="patch", arguments="*** Begin", freeform=True),)
    result = request.messages[1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.freeform


@pytest.mark.parametrize(
    "result",
    [
        {"content": "42"},
        {"content": ""},
        {"content": None},
        {},
        {"content": []},
        {"content": [{"type": "text", "text": "42"}]},
        {"content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]},
        {"content": "42", "name": "f"},
        {"content": "[ERROR] no", "x": 1},
    ],
)
def test_results_come_back_as_they_were(result: JsonObject) -> None:
    messages = [{"role": "tool", "tool_call_id": "c", **result}]
    assert encode(decode(messages=messages)) == ({"model": "m", "messages": messages}, [])


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((Text(text="no"),), "[ERROR] no"),
        ((), "[ERROR] "),
        ((Text(text="a"), Text(text="b")), [{"type": "text", "text": "[ERROR] a"}, {"type": "text", "text": "b"}]),
    ],
)
def test_a_failed_result_is_marked_and_read_back(parts: tuple[Part, ...], content: object) -> None:
    messages, notes = said(ToolResult(call_id="c", parts=parts, failed=True), role="user")
    assert messages == [{"role": "tool", "tool_call_id": "c", "content": content}]
    assert notes == []
    result = part_of(messages[0])
    assert isinstance(result, ToolResult)
    assert (result.parts, result.failed) == (parts, True)


def test_a_cache_mark_on_a_result_moves_to_its_text() -> None:
    messages, _ = said(ToolResult(call_id="c", parts=(Text(text="a"),), cache=Cache(ttl="5m")), role="user")
    assert messages[0]["content"] == [
        {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}
    ]


def test_pictures_left_in_a_result_are_dropped_and_noted() -> None:
    image = Image(data="iVBO", media_type="image/png")
    messages, notes = said(ToolResult(call_id="c", parts=(Text(text="a"), image)), role="user")
    assert messages[0]["content"] == "a"
    assert notes == [("dropped", "/messages/0/parts/0/parts/1")]


def test_a_picture_in_a_result_is_shown_behind_all_results() -> None:
    asked = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "user", "content": "look"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "shot", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "shot", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
                        ],
                    },
                    {"type": "tool_result", "tool_use_id": "b", "content": "nothing"},
                ],
            },
        ],
    }
    messages = convert(asked, source="anthropic", to="openai-chat").body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[2]["content"] == "[image attached below]"
    assert messages[4]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "low"}},
            Image(data="iVBO", media_type="image/png", detail="low"),
        ),
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, Image(url="https://a/b.png")),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;charset=x;base64,iVBO"}},
            Image(url="data:image/png;charset=x;base64,iVBO"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}},
            Audio(data="UklG", media_type="audio/mpeg"),
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
            Document(data="JVBE", media_type="application/pdf", name="a.pdf"),
        ),
        (
            {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
            Text(text="a", cache=Cache(ttl="12h")),
        ),
    ],
)
def test_parts_are_read_and_come_back(block: JsonObject, part: Part) -> None:
    messages = [{"role": "user", "content": [block]}]
    request = decode(messages=messages)
    assert request.messages[0].parts == (part,)
    assert encode(request) == ({"model": "m", "messages": messages}, [])


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"type": "image_url", "image_url": "https://a/b.png"}, Image),
        ({"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": None, "x": 1}, "text": None}, Image),
        ({"type": "image_url", "image_url": {"file_id": "f"}}, Opaque),
        ({"type": "input_audio", "input_audio": "UklG"}, Audio),
        ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "flac"}}, Audio),
        ({"type": "file", "file": {"file_id": "f"}}, Document),
        ({"type": "file", "file": {"file_data": "JVBE", "filename": "a"}}, Document),
        ({"type": "file", "file": {"file_data": "https://a/b.pdf"}}, Document),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA", "fps": 1}}, Video),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "5m"}}, Text),
        ({"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "9d"}}, Text),
        ({"type": "text", "text": None}, Opaque),
        ({"role": "user", "content": "no type at all"}, Opaque),
        ({"type": "document_url", "document_url": "https://a"}, Opaque),
    ],
)
def test_other_spellings_of_parts_come_back_as_they_were(block: JsonObject, kind: type[Part]) -> None:
    messages = [{"role": "user", "content": [block]}]
    request = decode(messages=messages)
    assert [type(part) for part in request.messages[0].parts] == [kind]
    assert encode(request) == ({"model": "m", "messages": messages}, [])


@pytest.mark.parametrize(
    ("part", "note"),
    [
        (Image(file_id="f"), ("dropped", "/messages/0/parts/0")),
        (Video(url="https://a/b.mp4"), ("dropped", "/messages/0/parts/0")),
        (Document(url="https://a/b.pdf"), ("dropped", "/messages/0/parts/0")),
        (Audio(data="T2dn", media_type="audio/ogg"), ("dropped", "/messages/0/parts/0")),
        (Document(text="words", name="a.txt"), ("altered", "/messages/0/parts/0")),
        (Refusal(text="no"), ("altered", "/messages/0/parts/0")),
        (Document(data="JVBE", media_type="application/pdf"), ("invented", "/messages/0/parts/0/name")),
        (Image(data="iVBO"), ("invented", "/messages/0/parts/0/media_type")),
        (Text(text="a", cache=Cache(ttl="1h")), ("altered", "/messages/0/parts/0/cache/ttl")),
    ],
)
def test_what_chat_cannot_say_is_noted(part: Part, note: tuple[str, str]) -> None:
    assert note in said(part, role="user")[1]


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}])
def test_a_tool_without_parameters_gets_a_schema(parameters: JsonObject | None) -> None:
    body, notes = encode(Request(model="m", tools=(Tool(name="f", parameters=parameters),)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    ]
    assert [where for _, where in notes] == ["/tools/0/parameters"]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "f", "parameters": {}}},
        {"type": "function", "function": {"name": "f", "parameters": None, "strict": None}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "x": 1}, "cache_control": {}},
        {"function": {"name": "f", "parameters": {"type": "object", "properties": {}}}},
        {"type": "custom", "custom": {"name": "f", "format": {"type": "text"}}},
        {
            "type": "custom",
            "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"definition": "s: x", "syntax": "lark"}}},
        },
        {"type": "openrouter:web_search", "parameters": {"max_uses": 1}},
    ],
)
def test_tools_come_back_as_they_were(tool: JsonObject) -> None:
    body, notes = encode(decode(tools=[tool]))
    assert body["tools"] == [tool]
    assert notes == []


def test_when_no_tool_is_left_nothing_about_tools_is_said() -> None:
    request = Request(
        model="m",
        tools=(ServerTool(dialect="anthropic", body={"type": "web_search_20250305"}),),
        tool_choice=ToolChoice(mode="required"),
        parallel_calls=False,
    )
    body, notes = encode(request)
    assert body == {"model": "m", "messages": []}
    assert {where for _, where in notes} >= {"/tools/0", "/tool_choice", "/parallel_calls"}


TOOLS: tuple[AnyTool, ...] = (Tool(name="f", parameters=WEATHER), CustomTool(name="patch"))


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        (ToolChoice(mode="auto"), "auto"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="required", names=("f",)), {"type": "function", "function": {"name": "f"}}),
        (ToolChoice(mode="required", names=("patch",)), {"type": "custom", "custom": {"name": "patch"}}),
        (
            ToolChoice(mode="auto", names=("f", "patch")),
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "custom", "custom": {"name": "patch"}},
                    ],
                },
            },
        ),
    ],
)
def test_tool_choices_are_said_and_read(choice: ToolChoice, encoded: object) -> None:
    body, notes = encode(Request(model="m", tools=TOOLS, tool_choice=choice))
    assert body["tool_choice"] == encoded
    assert notes == []
    read = decode(**{key: value for key, value in body.items() if key not in ("model", "messages")}).tool_choice
    assert read is not None
    assert (read.mode, read.names) == (choice.mode, choice.names)


@pytest.mark.parametrize("choice", ["any", "sometimes", {"type": "tool", "name": "f"}, {"name": "f"}, {"type": "x"}])
def test_other_spellings_of_a_choice_come_back_as_they_were(choice: object) -> None:
    assert encode(decode(tool_choice=choice))[0]["tool_choice"] == choice


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"max_tokens": 5, "max_completion_tokens": 6},
        {"user": "u"},
        {"safety_identifier": "s", "user": "u"},
        {"stop": "END"},
        {"stop": ["END"]},
        {"stop": None, "temperature": None, "tools": None},
        {"tools": []},
        {"top_k": 40, "min_p": 0.1},
        {"modalities": ["text", "image"]},
        {"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}},
        {"prompt_cache_options": {"mode": "explicit"}},
        {"response_format": {"type": "json_object", "schema": {}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": None}}},
        {"response_format": {"type": "grammar", "grammar": "x"}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "default"},
        {"thinking": {"type": "enabled"}, "reasoning": {"effort": "low"}, "chat_template_kwargs": {"a": 1}},
        {"stream": True, "stream_options": {"include_usage": True}, "logit_bias": {"1": -1}, "prediction": {"x": 1}},
    ],
)
def test_parameters_come_back_as_they_were(body: JsonObject) -> None:
    assert encode(decode(**body)) == ({"model": "m", "messages": [], **body}, [])


def test_a_request_without_model_or_messages_is_read() -> None:
    request = DIALECT.decode_request(WireRequest(body={"x": 1}), Notes())
    assert encode(request)[0] == {"x": 1}


@pytest.mark.parametrize(
    ("setting", "word", "notes"),
    [
        (ReasoningSetting(mode="off"), "none", []),
        (ReasoningSetting(mode="auto", effort="max"), "max", []),
        (ReasoningSetting(effort="low"), "low", [("invented", "/reasoning/mode")]),
        (
            ReasoningSetting(mode="on", budget=8000),
            "medium",
            [("altered", "/reasoning/budget"), ("altered", "/reasoning/effort"), ("altered", "/reasoning/mode")],
        ),
        (ReasoningSetting(mode="auto"), None, [("dropped", "/reasoning")]),
        (ReasoningSetting(mode="auto", effort="low", show=True), "low", [("dropped", "/reasoning/show")]),
    ],
)
def test_how_much_to_think_is_said_in_one_word(
    setting: ReasoningSetting, word: str | None, notes: list[tuple[str, str]]
) -> None:
    body, found = encode(Request(model="m", reasoning=setting))
    assert body.get("reasoning_effort") == word
    assert found == notes


def test_a_schema_without_a_name_gets_one() -> None:
    body, notes = encode(Request(model="m", output=OutputFormat(type="json_schema", schema=WEATHER)))
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "response", "schema": WEATHER}}
    assert notes == [("invented", "/output/name")]


def test_what_only_some_servers_know_is_not_sent_to_all() -> None:
    body, notes = encode(Request(model="m", top_k=5, modalities=("text", "image")))
    assert body == {"model": "m", "messages": [], "modalities": ["text"]}
    assert notes == [("altered", "/modalities"), ("dropped", "/top_k")]
