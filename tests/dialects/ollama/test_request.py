"""Ollama requests: what our own wire says exactly, and what becomes of what it cannot say."""

from typing import Any

import pytest

from dragoman.dialects.ollama import DIALECT
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json
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

PNG = "iVBORw0KGgoAAAANSUhEUg=="
JPEG = "/9j/4AAQSkZJRg=="
WEBP = "UklGRhoAAABXRUJQVlA4TA=="
WAV = "UklGRiQAAABXQVZFZm10IA=="


def decode(body: JsonObject, path: str = "/api/chat") -> Request:
    return DIALECT.decode_request(WireRequest(body=copy_json(body), path=path), Notes())


def encode(request: Request) -> tuple[JsonObject, list[tuple[str, str]]]:
    notes = Notes()
    body = DIALECT.encode_request(request, notes).body
    return body, [(note.kind, note.where) for note in notes]


def asks(*messages: JsonObject, **more: Any) -> JsonObject:
    return {"model": "m", "messages": list(messages), "stream": False, **more}


def says(*parts: Part, role: Any = "user", **more: Any) -> Request:
    return Request(model="m", messages=(Message(role=role, parts=parts),), stream=False, **more)


USER = {"role": "user", "content": "hi"}
CALL = {"function": {"name": "f", "arguments": {"a": 1}}}

EXACT: dict[str, JsonObject] = {
    "nothing_but_the_model": {"model": "m"},
    "no_model": {"messages": [USER]},
    "an_empty_list_loads_the_model": {"model": "m", "messages": []},
    "null_messages": {"model": "m", "messages": None},
    "no_word_about_streaming": {"model": "m", "messages": [USER]},
    "null_stream": {"model": "m", "messages": [USER], "stream": None},
    "a_role_in_capitals": asks({"role": "User", "content": "hi"}),
    "an_empty_text": asks({"role": "user", "content": ""}),
    "null_content_beside_calls": asks({"role": "assistant", "content": None, "tool_calls": [CALL]}),
    "no_content_beside_calls": asks({"role": "assistant", "tool_calls": [CALL]}),
    "empty_content_beside_calls": asks({"role": "assistant", "content": "", "tool_calls": [CALL]}),
    "a_message_of_nothing": asks({"role": "assistant"}, USER),
    "empty_lists": asks({"role": "assistant", "content": "x", "tool_calls": [], "images": [], "thinking": ""}),
    "null_lists": asks({"role": "assistant", "content": "x", "tool_calls": None, "images": None}),
    "arguments_as_text": asks(
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    ),
    "no_arguments": asks({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}),
    "a_call_with_everything": asks(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_x",
                    "type": "function",
                    "function": {"index": 0, "name": "f", "arguments": {}, "new": 1},
                    "z": 2,
                }
            ],
        }
    ),
    "a_call_nobody_knows": asks({"role": "assistant", "content": "", "tool_calls": [{"remote": {"name": "f"}}]}),
    "a_result_without_any_name": asks({"role": "tool", "content": "1"}),
    "a_result_with_its_old_name": asks({"role": "tool", "content": "1", "name": "f"}),
    "a_result_with_both": asks({"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "call_x"}),
    "a_result_with_a_picture": asks({"role": "tool", "content": "", "tool_name": "f", "images": [PNG]}),
    "a_failed_result": asks({"role": "tool", "content": "[ERROR] no", "tool_name": "f"}),
    "unknown_keys": asks({**USER, "weather": "fine"}, weather={"a": None}),
    "options_of_all_kinds": asks(
        USER,
        options={"temperature": 0, "num_predict": 5, "num_ctx": 8192, "stop": ["x"], "seed": None, "top_k": 40.5},
    ),
    "no_limit": asks(USER, options={"num_predict": -1}),
    "no_options": asks(USER, options={}),
    "null_options": asks(USER, options=None),
    "a_format_that_says_nothing": asks(USER, format=""),
    "a_format_nobody_knows": asks(USER, format="xml"),
    "a_schema": asks(USER, format={"type": "object"}),
    "a_level": asks(USER, think="high"),
    "a_level_nobody_knows": asks(USER, think="ultra"),
    "no_thinking": asks(USER, think=False),
    "a_tool_choice_ollama_does_not_have": asks(USER, tools=[], tool_choice="required"),
    "a_named_tool_choice": asks(USER, tool_choice={"type": "function", "function": {"name": "f"}}),
    "tools_of_all_kinds": asks(
        USER,
        tools=[
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "x": 1}, "items": {}},
            {"function": {"name": "g", "description": None, "parameters": None}},
            {"type": "function", "function": {}},
            {"type": "web"},
        ],
    ),
}


@pytest.mark.parametrize("body", EXACT.values(), ids=EXACT)
def test_our_own_wire_comes_back_as_it_was(body: JsonObject) -> None:
    assert encode(decode(body)) == (body, [])


GENERATE: dict[str, JsonObject] = {
    "a_prompt": {"model": "m", "prompt": "hi", "stream": False},
    "a_system_text": {"model": "m", "prompt": "hi", "system": "be brief"},
    "a_picture": {"model": "m", "prompt": "hi", "images": [PNG]},
    "everything_empty": {
        "model": "m",
        "prompt": "hi",
        "system": "",
        "template": "",
        "context": [],
        "raw": False,
        "images": [],
        "format": "",
        "options": {},
        "keep_alive": None,
    },
    "only_ours": {"model": "m", "prompt": "hi", "suffix": "}", "raw": True, "context": [1, 2], "width": 64},
    "an_empty_prompt_loads_the_model": {"model": "m", "prompt": ""},
    "no_prompt_unloads_it": {"model": "m", "keep_alive": 0},
}


@pytest.mark.parametrize("body", GENERATE.values(), ids=GENERATE)
def test_a_generate_request_goes_back_to_generate(body: JsonObject) -> None:
    wire = DIALECT.encode_request(decode(body, "/api/generate"), Notes())
    assert (wire.path, wire.body) == ("/api/generate", body)


def test_without_a_path_a_prompt_means_generate() -> None:
    request = decode({"model": "m", "system": "be brief", "prompt": "hi", "images": [PNG]}, "")
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[1].parts == (Text(text="hi"), Image(data=PNG, media_type="image/png"))


def test_a_generate_request_that_has_grown_goes_to_chat() -> None:
    request = decode({"model": "m", "prompt": "hi"}, "/api/generate")
    grown = Request(model="m", messages=(*request.messages, *request.messages), extras=request.extras, stream=False)
    wire = DIALECT.encode_request(grown, Notes())
    assert wire.path == "/api/chat"
    assert wire.body["messages"] == [USER, USER]


def test_ollama_streams_unless_told_not_to() -> None:
    assert decode({"model": "m", "messages": []}).stream is True
    assert encode(Request(model="m", messages=(Message(role="user", parts=(Text(text="hi"),)),))) == (
        asks(USER),
        [],
    )


def test_options_are_fields_where_others_have_them() -> None:
    request = decode(asks(USER, options={"num_predict": 9, "temperature": 0.5, "stop": ["a"], "num_ctx": 4096}))
    assert (request.max_output, request.temperature, request.stop) == (9, 0.5, ("a",))
    assert request.extras["ollama"]["options"] == {"num_ctx": 4096}


@pytest.mark.parametrize("count", [-1, -2, 0])
def test_a_limit_that_is_none_stays_ollamas_own(count: int) -> None:
    request = decode(asks(USER, options={"num_predict": count}))
    assert request.max_output is None
    assert request.extras["ollama"]["options"] == {"num_predict": count}


@pytest.mark.parametrize(
    ("think", "setting"),
    [
        (True, ReasoningSetting(mode="on")),
        (False, ReasoningSetting(mode="off")),
        ("max", ReasoningSetting(mode="auto", effort="max")),
        ("ultra", None),
        (None, None),
    ],
)
def test_think_is_a_switch_or_a_level(think: object, setting: ReasoningSetting | None) -> None:
    assert decode(asks(USER, think=think)).reasoning == setting


@pytest.mark.parametrize(
    ("setting", "think", "notes"),
    [
        (ReasoningSetting(effort="minimal"), "low", {"/reasoning/effort", "/reasoning/mode"}),
        (ReasoningSetting(mode="auto", effort="xhigh"), "max", {"/reasoning/effort"}),
        (
            ReasoningSetting(mode="on", budget=2048),
            "low",
            {f"/reasoning/{key}" for key in ("mode", "effort", "budget")},
        ),
        (ReasoningSetting(mode="off", effort="high"), False, {"/reasoning/effort"}),
        (ReasoningSetting(mode="auto"), True, {"/reasoning/mode"}),
        (ReasoningSetting(mode="on", effort="ultra"), True, {"/reasoning/effort"}),
        (ReasoningSetting(mode="on", show=True), True, {"/reasoning/show"}),
    ],
)
def test_effort_and_budget_become_a_level(setting: ReasoningSetting, think: object, notes: set[str]) -> None:
    body, found = encode(says(Text(text="hi"), reasoning=setting))
    assert body.get("think") == think
    assert {where for _, where in found} == notes


def test_calls_without_ids_get_the_same_ones_every_time() -> None:
    body = asks(USER, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}, USER)
    ids = [part.id for part in decode(body).messages[1].parts if isinstance(part, ToolCall)]
    assert ids == ["call_1_0", "call_1_1"]


def results(*messages: JsonObject) -> list[tuple[str, str | None]]:
    found = [part for message in decode(asks(*messages)).messages for part in message.parts]
    return [(part.call_id, part.name) for part in found if isinstance(part, ToolResult)]


def calls(*names: str) -> JsonObject:
    made = [{"function": {"name": name, "arguments": {}}} for name in names]
    return {"role": "assistant", "content": "", "tool_calls": made}


def test_results_answer_calls_by_name_then_by_order() -> None:
    def result(**keys: str) -> JsonObject:
        return {"role": "tool", "content": "1", **keys}

    assert results(calls("f", "g"), result(tool_name="g"), result(tool_name="f")) == [
        ("call_0_1", "g"),
        ("call_0_0", "f"),
    ]
    assert results(calls("f", "f"), result(), result()) == [("call_0_0", None), ("call_0_1", None)]
    assert results(calls("f"), result(tool_name="f"), calls("f"), result(name="f")) == [
        ("call_0_0", "f"),
        ("call_2_0", "f"),
    ]


def test_a_result_says_itself_which_call_it_answers() -> None:
    one = {"id": "call_a", "function": {"name": "f", "arguments": {}}}
    two = {"id": "call_b", "function": {"name": "f", "arguments": {}}}
    turn = {"role": "assistant", "content": "", "tool_calls": [one, two]}
    first, second = {"role": "tool", "content": "", "tool_call_id": "call_b"}, {"role": "tool", "content": ""}
    assert results(turn, first, second) == [("call_b", None), ("call_a", None)]


def test_a_result_whose_id_no_call_has_answers_the_call_without_one() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    told = {"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "call_7"}
    body = asks(turn, told)
    request = decode(body)
    (answer,) = request.messages[-1].parts
    assert isinstance(answer, ToolResult)
    (call,) = request.messages[-2].parts
    assert isinstance(call, ToolCall)
    assert answer.call_id == call.id
    assert encode(request)[0]["messages"][-1] == told


def test_a_result_of_no_call_is_still_a_result() -> None:
    assert results(USER, {"role": "tool", "content": "1", "tool_name": "f"}) == [("call_1", "f")]


def test_a_result_is_named_after_its_call() -> None:
    call = ToolCall(id="toolu_1", name="f", arguments='{"a":1}')
    result = ToolResult(call_id="toolu_1", parts=(Text(text="42"),))
    turns = (Message(role="assistant", parts=(call,)), Message(role="user", parts=(result, Text(text="so?"))))
    body, notes = encode(Request(model="m", messages=turns, stream=True))
    assert body["messages"] == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "toolu_1", **CALL}]},
        {"role": "tool", "content": "42", "tool_name": "f", "tool_call_id": "toolu_1"},
        {"role": "user", "content": "so?"},
    ]
    assert notes == []


@pytest.mark.parametrize(
    ("parts", "content"),
    [((Text(text="no"),), "[ERROR] no"), ((), "[ERROR] ")],
)
def test_a_failed_result_is_marked(parts: tuple[Part, ...], content: str) -> None:
    body, _ = encode(says(ToolResult(call_id="x", name="f", parts=parts, failed=True)))
    assert body["messages"][0]["content"] == content
    read = decode(body).messages[0].parts[0]
    assert isinstance(read, ToolResult)
    assert read.failed is True


@pytest.mark.parametrize(
    ("arguments", "written"),
    [("{", {"_raw": "{"}), ("[1]", {"_raw": "[1]"}), ("", {}), ('{"a":1}', {"a": 1})],
)
def test_broken_arguments_are_kept_and_never_an_empty_call(arguments: str, written: JsonObject) -> None:
    body, notes = encode(says(ToolCall(id="x", name="f", arguments=arguments), role="assistant"))
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == written
    assert bool(notes) is ("_raw" in written)


def test_a_freeform_call_is_a_function_with_one_input() -> None:
    body, notes = encode(says(ToolCall(id="x", name="f", arguments="*** patch", freeform=True), role="assistant"))
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == {"input": "*** patch"}
    assert {where for _, where in notes} == {"/messages/0/parts/0/freeform", "/messages/0/parts/0/arguments"}


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (PNG, Image(data=PNG, media_type="image/png")),
        (JPEG, Image(data=JPEG, media_type="image/jpeg")),
        (WEBP, Image(data=WEBP, media_type="image/webp")),
        ("R0lGODlhAQ==", Image(data="R0lGODlhAQ==", media_type="image/gif")),
        (WAV, Audio(data=WAV, media_type="audio/wav")),
        ("SUQzBAAAAAA=", Audio(data="SUQzBAAAAAA=", media_type="audio/mpeg")),
        ("//uQZAAAAAA=", Audio(data="//uQZAAAAAA=", media_type="audio/mpeg")),
        ("AAAA", Image(data="AAAA")),
        ("UklGR!", Image(data="UklGR!")),
        (f"data:image/png;base64,{PNG}", Image(data=PNG, media_type="image/png")),
        ("https://example.org/a.png", Image(url="https://example.org/a.png")),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(data: str, part: Part) -> None:
    assert decode(asks({**USER, "images": [data]})).messages[0].parts == (Text(text="hi"), part)


@pytest.mark.parametrize(
    ("part", "notes"),
    [
        (Image(data=PNG, media_type="image/png"), []),
        (Image(data=PNG), [("invented", "/media_type")]),
        (Image(data=PNG, media_type="image/jpg"), [("altered", "/media_type")]),
        (Image(data="AAAA", media_type="image/png"), [("dropped", "/media_type")]),
        (Image(data=PNG, media_type="image/png", detail="low"), [("dropped", "/detail")]),
        (Image(data=PNG, media_type="image/png", cache=Cache(ttl="5m")), [("dropped", "/cache")]),
        (Image(url="https://example.org/a.png"), [("dropped", "")]),
        (Image(file_id="file_1"), [("dropped", "")]),
        (Audio(data=WAV, media_type="audio/wav"), []),
        (Audio(data="T2dnUw==", media_type="audio/ogg"), [("dropped", "")]),
        (Document(data="JVBERi0=", media_type="application/pdf"), [("dropped", "")]),
        (Document(text="words", name="a.txt"), [("altered", "")]),
        (Opaque(dialect="anthropic", body={"type": "container_upload"}), [("dropped", "")]),
    ],
)
def test_what_ollama_cannot_look_at_is_noted(part: Part, notes: list[tuple[str, str]]) -> None:
    _, found = encode(says(part))
    at = "/messages/0/parts/0"
    gone = [("dropped", "/messages/0"), ("dropped", "/messages")] if notes == [("dropped", "")] else []
    assert found == [(kind, at + where) for kind, where in notes] + gone


@pytest.mark.parametrize(
    ("role", "parts", "message"),
    [
        ("user", (Text(text="a"), Text(text="b")), {"role": "user", "content": "a\nb"}),
        (
            "user",
            (Image(data=PNG, media_type="image/png"), Text(text="a")),
            {"role": "user", "content": "a", "images": [PNG]},
        ),
        (
            "assistant",
            (Text(text="a"), Reasoning(text="b"), Text(text="c")),
            {"role": "assistant", "content": "a\nc", "thinking": "b"},
        ),
        ("assistant", (Text(text="a"), Refusal(text="b")), {"role": "assistant", "content": "a\nb"}),
    ],
)
def test_a_message_has_one_text_and_one_order(role: Any, parts: Any, message: JsonObject) -> None:
    notes = Notes()
    wire = DIALECT.encode_request(says(*parts, role=role), notes)
    assert wire.body["messages"] == [message]
    assert ("altered", "/messages/0/parts") in {(note.kind, note.where) for note in notes}


def test_a_developer_is_the_system() -> None:
    body, notes = encode(says(Text(text="be brief"), role="developer"))
    assert body["messages"] == [{"role": "system", "content": "be brief"}]
    assert notes == [("altered", "/messages/0/role")]


def test_thoughts_keep_their_words_and_lose_their_seal() -> None:
    seal = Seal(origin="anthropic", value="sig")
    body, notes = encode(says(Reasoning(text="hm", seal=seal), Text(text="a"), role="assistant"))
    assert body["messages"] == [{"role": "assistant", "content": "a", "thinking": "hm"}]
    assert notes == [("dropped", "/messages/0/parts/0/seal")]
    body, notes = encode(says(Reasoning(text="", seal=seal), Text(text="a"), role="assistant"))
    assert body["messages"] == [{"role": "assistant", "content": "a"}]
    assert notes == [("dropped", "/messages/0/parts/0")]


def test_a_seal_in_the_side_field_is_read_back() -> None:
    seal = {"origin": "gemini", "value": "sig"}
    message = {
        "role": "assistant",
        "content": "a",
        "thinking": "b",
        "tool_calls": [{"id": "x", **CALL, "dragoman": {"seal": seal}}],
        "dragoman": {"thinking": {"seal": seal}, "content": {"seal": seal}},
    }
    parts = decode(asks(message)).messages[0].parts
    assert [getattr(part, "seal", None) for part in parts] == [Seal(origin="gemini", value="sig")] * 3


def test_tools_of_other_kinds() -> None:
    tools = (
        Tool(name="f", description="d", parameters={"type": "object"}, strict=True),
        CustomTool(name="patch", description="d", syntax="lark", grammar="start: /.+/"),
        ServerTool(dialect="anthropic", body={"type": "web_search_20250305"}),
    )
    body, notes = encode(says(Text(text="hi"), tools=tools))
    names = [tool["function"]["name"] for tool in body["tools"]]
    assert names == ["f", "patch"]
    assert body["tools"][1]["function"]["parameters"]["required"] == ["input"]
    assert "start: /.+/" in body["tools"][1]["function"]["description"]
    assert notes == [("dropped", "/tools/0/strict"), ("altered", "/tools/1"), ("dropped", "/tools/2")]


def test_a_tool_choice_is_kept_for_other_upstreams() -> None:
    given = {"type": "function", "function": {"name": "f"}}
    assert decode(asks(USER, tool_choice="none")).tool_choice == ToolChoice(mode="none")
    assert decode(asks(USER, tool_choice=given)).tool_choice == ToolChoice(mode="required", names=("f",))
    assert decode(asks(USER, tool_choice={"type": "?"})).tool_choice is None


@pytest.mark.parametrize(
    ("output", "written", "notes"),
    [
        (OutputFormat(type="json"), "json", []),
        (OutputFormat(type="text"), "", []),
        (OutputFormat(type="json_schema", schema={"type": "object"}), {"type": "object"}, []),
        (
            OutputFormat(type="json_schema", schema={"a": 1}, name="n", strict=True),
            {"a": 1},
            [("dropped", "/output/name"), ("dropped", "/output/strict")],
        ),
        (OutputFormat(type="json_schema"), "json", [("altered", "/output/type")]),
    ],
)
def test_the_form_of_the_answer(output: OutputFormat, written: object, notes: list[tuple[str, str]]) -> None:
    body, found = encode(says(Text(text="hi"), output=output))
    assert (body["format"], found) == (written, notes)


def test_what_ollama_has_no_word_for_is_noted() -> None:
    request = says(
        Text(text="hi"),
        tool_choice=ToolChoice(mode="required"),
        parallel_calls=False,
        choices=2,
        modalities=("text", "audio"),
        verbosity="low",
        user="u",
        metadata={"a": 1},
        service_tier="flex",
        store=True,
        cache=Cache(),
        cache_key="k",
        extras={"openai_chat": {"logit_bias": {}}},
    )
    body, notes = encode(request)
    assert body == asks(USER)
    assert {kind for kind, _ in notes} == {"dropped"}
    assert len(notes) == 12


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (asks({"role": "bird", "content": "x"}), "/messages/0/role"),
        (asks(USER, {"content": "x"}), "/messages/1/role"),
        (asks({"role": "user", "content": [{"type": "text"}]}), "/messages/0/content"),
        (asks({**USER, "images": [1]}), "/messages/0/images/0"),
        (asks({**USER, "tool_calls": [CALL, {"function": {}}]}), "/messages/0/tool_calls/1/function/name"),
        (
            asks({**USER, "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}),
            "/messages/0/tool_calls/0/function/arguments",
        ),
        ({"model": 1}, "/model"),
        ({"model": "m", "messages": {}}, "/messages"),
        (asks(USER, stream="yes"), "/stream"),
    ],
)
def test_an_error_says_where(body: JsonObject, where: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(body)
    assert caught.value.where == where
