"""What goes wrong with Gemini requests, both ways."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.convert import make_legal
from dragoman.dialects.gemini import DIALECT
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
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
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

PATH = "/v1beta/models/gemini-3-flash:generateContent"


def decode(body: JsonObject, path: str = PATH) -> Request:
    return DIALECT.decode_request(WireRequest(body=copy_json(body), path=path), Notes())


def encode(request: Request) -> tuple[JsonObject, Notes]:
    notes = Notes()
    return DIALECT.encode_request(request, notes).body, notes


def ask(*messages: Message, **fields: Any) -> Request:
    return Request(model="gemini-3-flash", stream=False, messages=messages, **fields)


def user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def model(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


HI: JsonObject = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CALL: JsonObject = {"functionCall": {"name": "look", "args": {"at": "sky"}}}


def turns(*contents: tuple[str, list[JsonObject]]) -> JsonObject:
    return {"contents": [{"role": role, "parts": parts} for role, parts in contents]}


SPELLINGS: dict[str, JsonObject] = {
    "plain": HI,
    "contents_as_string": {"contents": "hi"},
    "contents_as_object": {"contents": {"role": "user", "parts": [{"text": "hi"}]}},
    "a_lone_part_without_its_list": {"contents": [{"role": "user", "parts": {"text": "hi"}}]},
    "no_role": {"contents": [{"parts": [{"text": "hi"}]}]},
    "no_parts": {"contents": [{"role": "user"}]},
    "empty_parts": {"contents": [{"role": "user", "parts": []}]},
    "role_function": turns(("function", [{"functionResponse": {"name": "f", "response": {"a": 1}}}])),
    "role_system_in_contents": turns(("system", [{"text": "be brief"}]), ("user", [{"text": "hi"}])),
    "system_as_string": HI | {"systemInstruction": "be brief"},
    "system_as_list": HI | {"systemInstruction": [{"text": "be brief"}]},
    "system_with_role": HI | {"systemInstruction": {"role": "user", "parts": [{"text": "be brief"}]}},
    "system_with_a_lone_part": HI | {"system_instruction": {"parts": {"text": "be brief"}}},
    "system_null": HI | {"systemInstruction": None, "toolConfig": None, "generationConfig": None},
    "snake_everywhere": {
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"inline_data": {"mime_type": "image/png", "data": "aGk="}},
                    {"fileData": {"file_uri": "gs://a/b.pdf", "mimeType": "application/pdf", "display_name": "b.pdf"}},
                    {"text": "x", "thought_signature": "c2ln"},
                ],
            }
        ],
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_level": "low"}, "topK": 4.0},
        "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}},
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"type": "object"}}]}],
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    },
    "both_spellings_at_once": HI | {"generationConfig": {"topP": 0.1, "top_p": 0.2}},
    "tools_as_object": HI | {"tools": {"functionDeclarations": [{"name": "f"}]}},
    "tools_side_by_side": HI
    | {"tools": [{"googleSearch": {}, "functionDeclarations": [{"name": "f"}, {"name": "g"}]}, {"urlContext": {}}]},
    "tools_in_two_entries": HI
    | {"tools": [{"functionDeclarations": [{"name": "f"}]}, {"functionDeclarations": [{"name": "g"}]}]},
    "tools_empty": HI | {"tools": [{"functionDeclarations": []}]},
    "tool_null": HI | {"tools": [{"codeExecution": None}]},
    "tool_choice_validated": HI
    | {"toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}}},
    "tool_choice_number": HI | {"toolConfig": {"functionCallingConfig": {"mode": 2}}},
    "tool_choice_without_mode": HI | {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": []}}},
    "tool_config_beside": HI
    | {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {"languageCode": "ko"}}},
    "call_without_args_or_id": turns(("model", [{"functionCall": {"name": "f"}}])),
    "call_with_null_args": turns(("model", [{"functionCall": {"name": "f", "args": None, "id": None}}])),
    "call_in_pieces": turns(("model", [{"functionCall": {"willContinue": True}}])),
    "results_of_every_form": turns(
        ("model", [CALL] * 8),
        (
            "user",
            [
                {"functionResponse": {"name": "look", "response": response}}
                for response in (
                    {"output": "blue"},
                    {"result": "blue"},
                    {"result": 42},
                    {"error": "dark"},
                    {"error": {"code": 5}},
                    {"a": 1, "b": [2]},
                    {},
                    {"output": ""},
                )
            ],
        ),
    ),
    "result_with_media_and_flags": turns(
        ("model", [CALL]),
        (
            "user",
            [
                {
                    "functionResponse": {
                        "name": "look",
                        "response": {"output": "see"},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
                        "willContinue": True,
                        "scheduling": "SILENT",
                    },
                    "thoughtSignature": "c2ln",
                }
            ],
        ),
    ),
    "result_without_response": turns(("user", [{"functionResponse": {"id": "1", "name": "f"}}])),
    "image_beside_a_result": turns(
        ("model", [CALL]),
        ("user", [{"text": "here"}, {"functionResponse": {"name": "look", "response": {}}}, {"text": "done"}]),
    ),
    "nulls_of_a_dumped_object": turns(("model", [{"text": "a", "thought": None, "functionCall": None}])),
    "thoughts_echoed": turns(("model", [{"text": "hm", "thought": True}, {"text": "a", "thought": False}])),
    "empty_texts": turns(
        ("model", [{"text": ""}, {"text": "", "thoughtSignature": "c2ln"}, {"thoughtSignature": "s"}])
    ),
    "the_sentinel": turns(("model", [CALL | {"thoughtSignature": "skip_thought_signature_validator"}])),
    "code_and_tomorrow": turns(
        ("model", [{"executableCode": {"language": "PYTHON", "code": "1"}}, {"dance": {"steps": 3}}, {}])
    ),
    "video_cut": turns(
        ("user", [{"fileData": {"fileUri": "https://youtu.be/x"}, "videoMetadata": {"fps": 1}}, {"videoMetadata": {}}])
    ),
    "thinking_both": HI | {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "thinkingBudget": 0}}},
    "thinking_off": HI | {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
    "thinking_dynamic": HI | {"generationConfig": {"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": True}}},
    "thinking_empty": HI | {"generationConfig": {"thinkingConfig": {}}},
    "config_empty": HI | {"generationConfig": {}},
    "config_of_odd_types": HI | {"generationConfig": {"maxOutputTokens": "5", "topK": 1.5, "stopSequences": [1]}},
    "output_enum": HI
    | {"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}}},
    "output_schema": HI
    | {
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT", "properties": {"type": {"type": "STRING", "nullable": True}}},
        }
    },
    "output_json_schema_private": HI
    | {"generationConfig": {"responseMimeType": "application/json", "_responseJsonSchema": {"type": "object"}}},
    "output_schema_without_type": HI | {"generationConfig": {"responseJsonSchema": {"type": "object"}}},
    "modalities_in_lower_case": HI | {"generationConfig": {"responseModalities": ["Text", "IMAGE"]}},
    "extras": HI | {"cachedContent": "cachedContents/1", "labels": {"team_name": "x"}, "serviceTier": "FLEX"},
    "model_in_the_body": HI | {"model": "models/gemini-3-flash"},
}


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_request_is_written_back_as_it_was_spelled(body: JsonObject) -> None:
    written, notes = encode(decode(body))
    assert written == body
    assert not notes.items


PATHS = [
    PATH,
    "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse",
    "/v1beta/models/gemini-3-flash:streamGenerateContent",
    "/v1/models/gemini-3-flash:generateContent",
    "/v1beta/tunedModels/mine-7:generateContent",
    "/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro@001:streamGenerateContent?alt=sse",
    "/v1beta/models/gemini-2.0-flash:generateContent?$alt=json;enum-encoding=int",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_comes_back(path: str) -> None:
    assert DIALECT.encode_request(decode(HI, path), Notes()).path == path


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        (PATHS[0], "gemini-3-flash", False),
        (PATHS[2], "gemini-3-flash", True),
        (PATHS[4], "tunedModels/mine-7", False),
        (PATHS[5], "gemini-2.5-pro@001", True),
        ("/v1beta/models/a%2Fb%3Ac:generateContent", "a/b:c", False),
    ],
)
def test_the_path_says_the_model_and_whether_to_stream(path: str, model: str, stream: bool) -> None:
    request = decode(HI, path)
    assert (request.model, request.stream) == (model, stream)


def test_a_key_in_the_query_never_travels_on() -> None:
    wire = DIALECT.encode_request(decode(HI, f"{PATHS[2]}?key=secret&alt=sse&access_token=s"), Notes())
    assert wire.path == PATHS[1]


def test_a_model_name_cannot_leave_its_place_in_the_path() -> None:
    path = DIALECT.encode_request(Request(model="../x:y?z#", stream=True), Notes()).path
    assert path == "/v1beta/models/..%2Fx%3Ay%3Fz%23:streamGenerateContent?alt=sse"


# ---------------------------------------------------------------- who answers whom


def call_ids(request: Request) -> list[str]:
    return [
        part.id if isinstance(part, ToolCall) else part.call_id
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult)
    ]


def result(name: str, call_id: str | None = None) -> JsonObject:
    return {"functionResponse": {"name": name, "response": {}} | ({"id": call_id} if call_id else {})}


def call(name: str, call_id: str | None = None) -> JsonObject:
    return {"functionCall": {"name": name, "args": {}} | ({"id": call_id} if call_id else {})}


def test_results_without_ids_answer_calls_of_their_name_in_order() -> None:
    request = decode(
        turns(("model", [call("f"), call("g"), call("f")]), ("user", [result("g"), result("f"), result("f")]))
    )
    f, g, f2, *answers = call_ids(request)
    assert answers == [g, f, f2]
    assert len({f, g, f2}) == 3


def test_a_result_whose_name_is_a_uuid_answers_by_position() -> None:
    request = decode(turns(("model", [call("f"), call("g")]), ("user", [result("0f-1"), result("g")])))
    f, g, *answers = call_ids(request)
    assert answers == [f, g]


def test_a_repeated_result_answers_the_same_call_again() -> None:
    request = decode(
        turns(("model", [call("f"), call("g")]), ("user", [result("f"), result("f"), result("g")])),
    )
    f, g, *answers = call_ids(request)
    assert answers == [f, f, g]


def test_a_result_answers_the_latest_turn_before_one_given_up() -> None:
    request = decode(
        turns(("model", [call("f")]), ("user", [{"text": "no"}]), ("model", [call("f")]), ("user", [result("f")]))
    )
    _, second, answer = call_ids(request)
    assert answer == second


def test_given_ids_are_kept_and_calls_with_ids_can_be_answered_without() -> None:
    request = decode(turns(("model", [call("f", "a"), call("f", "b")]), ("user", [result("f", "b"), result("f")])))
    assert call_ids(request) == ["a", "b", "b", "a"]


def test_ids_stay_the_same_when_the_history_grows() -> None:
    history = [("model", [call("f"), call("f")]), ("user", [result("f"), result("f")])]
    longer = [*history, ("model", [call("f")]), ("user", [result("f")])]
    assert call_ids(decode(turns(*longer)))[:4] == call_ids(decode(turns(*history)))


# ---------------------------------------------------------------- what is said


def test_thoughts_and_signatures_are_read() -> None:
    parts: list[JsonObject] = [{"text": "hm", "thought": True}, CALL | {"thoughtSignature": "c2ln"}]
    thought, called = decode(turns(("model", parts))).messages[0].parts
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.summary, thought.seal) == ("hm", True, None)
    assert isinstance(called, ToolCall)
    assert called.seal == Seal(origin="gemini", value="c2ln", form="thought_signature")


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("image/png", Image),
        ("audio/wav", Audio),
        ("video/mp4", Video),
        ("application/pdf", Document),
        ("text/csv", Document),
    ],
)
def test_media_are_told_apart_by_their_type(media_type: str, kind: type[Part]) -> None:
    parts: list[JsonObject] = [{"inlineData": {"mimeType": media_type, "data": "aGk="}}]
    (part,) = decode(turns(("user", parts))).messages[0].parts
    assert type(part) is kind


def test_generation_settings_are_read() -> None:
    request = decode(
        HI
        | {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "topK": 40,
                "candidateCount": 2,
                "maxOutputTokens": 99,
                "stopSequences": ["END"],
                "seed": 7,
                "responseLogprobs": True,
                "logprobs": 3,
                "responseModalities": ["TEXT", "IMAGE"],
                "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
                "speechConfig": {"languageCode": "ko"},
            }
        }
    )
    assert (request.temperature, request.top_p, request.top_k, request.choices) == (0.5, 0.9, 40, 2)
    assert (request.max_output, request.stop, request.seed) == (99, ("END",), 7)
    assert (request.logprobs, request.top_logprobs, request.modalities) == (True, 3, ("text", "image"))
    assert request.reasoning == ReasoningSetting(mode="auto", effort="low", show=True)
    assert request.extras == {"gemini": {"generationConfig": {"speechConfig": {"languageCode": "ko"}}}}


@pytest.mark.parametrize(
    ("thinking", "setting"),
    [
        ({"thinkingBudget": 0}, ReasoningSetting(mode="off")),
        ({"thinkingBudget": -1}, ReasoningSetting(mode="auto")),
        ({"thinkingBudget": 512}, ReasoningSetting(mode="on", budget=512)),
        ({"thinkingLevel": "HIGH"}, ReasoningSetting(mode="auto", effort="high")),
        ({"includeThoughts": False}, ReasoningSetting(show=False)),
    ],
)
def test_a_thinking_setting_means_the_same_both_ways(thinking: JsonObject, setting: ReasoningSetting) -> None:
    assert decode(HI | {"generationConfig": {"thinkingConfig": thinking}}).reasoning == setting
    body, notes = encode(ask(reasoning=setting))
    assert body["generationConfig"]["thinkingConfig"] == thinking
    assert not notes.items


@pytest.mark.parametrize(
    ("setting", "thinking", "noted"),
    [
        (ReasoningSetting(mode="auto", effort="max"), {"thinkingLevel": "HIGH"}, ["/reasoning/effort"]),
        (ReasoningSetting(mode="on", effort="low", budget=99), {"thinkingBudget": 99}, ["/reasoning/effort"]),
        (ReasoningSetting(mode="off", effort="low"), {"thinkingBudget": 0}, ["/reasoning/effort"]),
        (ReasoningSetting(mode="on"), {"thinkingBudget": -1}, ["/reasoning/mode"]),
    ],
)
def test_what_gemini_cannot_say_of_thinking_is_noted(
    setting: ReasoningSetting, thinking: JsonObject, noted: list[str]
) -> None:
    body, notes = encode(ask(reasoning=setting))
    assert body["generationConfig"]["thinkingConfig"] == thinking
    assert [note.where for note in notes] == noted


# ---------------------------------------------------------------- foreign conversations


def test_a_result_gets_the_name_of_its_call() -> None:
    body, notes = encode(
        ask(
            model(ToolCall(id="c1", name="look", arguments='{"a":1}')),
            user(ToolResult(call_id="c1", parts=(Text(text="blue"),))),
        )
    )
    assert body["contents"][0]["parts"] == [{"functionCall": {"id": "c1", "name": "look", "args": {"a": 1}}}]
    answer = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "blue"}}}
    assert body["contents"][1] == {"role": "user", "parts": [answer]}
    assert list(notes) == []  # what the call says is nobody's invention


def test_a_result_without_a_call_is_named_after_its_id_and_never_unknown() -> None:
    body, _ = encode(ask(user(ToolResult(call_id="c9", parts=(Text(text="?"),)))))
    assert body["contents"][0]["parts"][0]["functionResponse"]["name"] == "c9"


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        (ToolResult(call_id="c", name="f", parts=(Text(text="[1,2]"),)), {"output": "[1,2]"}),
        (ToolResult(call_id="c", name="f", parts=(Text(text='{"a":1}'),)), {"output": '{"a":1}'}),
        (ToolResult(call_id="c", name="f", parts=(Text(text="no"),), failed=True), {"error": "no"}),
        (ToolResult(call_id="c", name="f"), {}),
        (ToolResult(call_id="c", name="f", parts=(Text(text="a"), Text(text="b"))), {"output": "a\nb"}),
    ],
)
def test_a_result_is_always_an_object(answer: ToolResult, response: JsonObject) -> None:
    body, _ = encode(ask(user(answer)))
    assert body["contents"][0]["parts"][0]["functionResponse"]["response"] == response


def test_a_picture_in_a_result_stays_in_it() -> None:
    picture = Image(data="aGk=", media_type="image/png")
    body, notes = encode(ask(user(ToolResult(call_id="c", name="f", parts=(Text(text="see"), picture)))))
    assert body["contents"][0]["parts"][0]["functionResponse"]["parts"] == [
        {"inlineData": {"data": "aGk=", "mimeType": "image/png"}}
    ]
    assert not notes.items


def test_results_stand_in_a_content_of_their_own() -> None:
    call = ToolCall(id="c", name="f", arguments="{}")
    answer = ToolResult(call_id="c", name="f", parts=(Text(text="x"),))
    history = ask(user(Text(text="go")), model(call), user(Text(text="and now?"), answer))
    body, _ = encode(make_legal(history, DIALECT, Notes()))
    assert [list(content["parts"][0]) for content in body["contents"][2:]] == [["functionResponse"], ["text"]]


def test_leading_system_turns_are_the_instruction_and_later_ones_the_user_s() -> None:
    request = ask(
        Message(role="system", parts=(Text(text="a"),)),
        Message(role="developer", parts=(Text(text="b"),)),
        user(Text(text="hi")),
        Message(role="system", parts=(Text(text="c"),)),
    )
    notes = Notes()
    body, _ = encode(make_legal(request, DIALECT, notes))
    assert body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    marked = "[System Instructions]\nc\n[End of System Instructions]"  # not to be taken for the user's words
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}, {"text": marked}]}]
    assert {note.where for note in notes} == {"/messages/1/role", "/messages/3"}


def test_a_foreign_thought_is_left_out_and_its_turn_with_it() -> None:
    thought = Reasoning(text="hm", seal=Seal(origin="anthropic", value="x"))
    notes = Notes()
    legal = make_legal(ask(user(Text(text="a")), model(thought), user(Text(text="b"))), DIALECT, notes)
    body, _ = encode(legal)
    assert body["contents"] == [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]
    assert [note.where for note in notes if note.kind == "dropped"] == ["/messages/1/parts/0"]


def test_a_foreign_seal_never_reaches_gemini_and_its_own_comes_back_byte_for_byte() -> None:
    foreign = ToolCall(id="c", name="f", arguments="{}", seal=Seal(origin="anthropic", value="x"))
    own = ToolCall(id="d", name="f", arguments="{}", seal=Seal(origin="gemini", value="c2ln", form="thought_signature"))
    body, notes = encode(ask(model(foreign, own)))
    first, second = body["contents"][0]["parts"]
    assert "thoughtSignature" not in first
    assert "dragoman" not in first
    assert second["thoughtSignature"] == "c2ln"
    assert [note.where for note in notes] == ["/messages/0/parts/0/seal"]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"text"', "7"])
def test_arguments_that_are_no_object_are_never_an_empty_call(arguments: str) -> None:
    body, notes = encode(ask(model(ToolCall(id="c", name="f", arguments=arguments))))
    assert body["contents"][0]["parts"][0]["functionCall"]["args"] == {"_raw": arguments}
    assert [note.kind for note in notes] == ["altered"]


def test_nothing_empty_is_said() -> None:
    body, notes = encode(ask(user(Text(text=""), Text(text="hi")), model(), user(Text(text=""))))
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert [note.where for note in notes] == ["/messages/0/parts/0", "/messages/2/parts/0"]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Image(url="https://x/a.png?v=1"), {"fileData": {"fileUri": "https://x/a.png?v=1", "mimeType": "image/png"}}),
        (Image(url="https://x/a"), {"fileData": {"fileUri": "https://x/a", "mimeType": "image/jpeg"}}),
        (Document(text="hi"), {"inlineData": {"data": "aGk=", "mimeType": "text/plain"}}),
        (
            Document(data="aGk=", media_type="application/pdf", name="a.pdf"),
            {"inlineData": {"data": "aGk=", "mimeType": "application/pdf", "displayName": "a.pdf"}},
        ),
        (
            Image(data="aGk=", media_type="image/png", detail="low"),
            {
                "inlineData": {"data": "aGk=", "mimeType": "image/png"},
                "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"},
            },
        ),
    ],
)
def test_media_always_say_their_type(part: Part, block: JsonObject) -> None:
    body, _ = encode(ask(user(part)))
    assert body["contents"][0]["parts"] == [block]


def test_another_provider_s_file_is_left_out_with_a_note() -> None:
    body, notes = encode(ask(user(Text(text="read"), Document(file_id="file_1"))))
    assert body["contents"][0]["parts"] == [{"text": "read"}]
    assert [note.where for note in notes] == ["/messages/0/parts/1"]


def test_tools_of_other_dialects_become_functions() -> None:
    schema = {"type": "object", "properties": {"n": {"type": ["integer", "null"], "exclusiveMinimum": 0}}}
    body, notes = encode(
        ask(
            tools=(
                Tool(name="f", description="d", parameters=schema, strict=True, cache=Cache()),
                ServerTool(dialect="anthropic", body={"type": "bash_20250124", "name": "bash"}),
                Tool(name="g"),
                CustomTool(name="h", grammar="start: /x/", syntax="lark"),
            )
        )
    )
    ((entry),) = body["tools"]
    f, g, h = entry["functionDeclarations"]
    assert f == {"name": "f", "description": "d", "parametersJsonSchema": schema}
    assert g == {"name": "g"}
    assert h["parametersJsonSchema"]["required"] == ["input"]
    assert [note.where for note in notes] == ["/tools/0/strict", "/tools/0/cache", "/tools/1", "/tools/3"]


def test_a_tool_list_that_was_changed_is_grouped_anew() -> None:
    request = decode(SPELLINGS["tools_side_by_side"])
    assert request.tools is not None
    body, _ = encode(replace(request, tools=(*request.tools[1:], Tool(name="new"))))
    assert body["tools"] == [
        {"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "new"}]},
        {"urlContext": {}},
    ]


def test_names_to_choose_from_need_another_mode_than_auto() -> None:
    body, _ = encode(ask(tool_choice=ToolChoice(mode="auto", names=("f",))))
    config = body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}


def test_an_output_schema_of_another_dialect_is_json_schema() -> None:
    output = OutputFormat(type="json_schema", schema={"type": "object"}, name="n", strict=True)
    body, notes = encode(ask(output=output))
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }
    assert [note.where for note in notes] == ["/output/name", "/output/strict"]


def test_what_gemini_has_no_place_for_is_noted() -> None:
    fields = {"parallel_calls": False, "min_p": 0.1, "verbosity": "low", "user": "u", "metadata": {"a": 1}}
    _, notes = encode(ask(cache=Cache(), cache_key="k", **fields))
    assert {note.where for note in notes if note.kind == "dropped"} == {
        f"/{key}" for key in (*fields, "cache", "cache_key")
    }


def test_an_unknown_part_of_another_dialect_is_noted() -> None:
    _, notes = encode(ask(user(Text(text="x"), Opaque(dialect="parrot", body={"type": "squawk"}))))
    assert [note.where for note in notes] == ["/messages/0/parts/1"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"contents": 5}, "/contents"),
        ({"contents": [5]}, "/contents/0"),
        ({"contents": [{"parts": [7]}]}, "/contents/0/parts/0"),
        (
            {"contents": [{"parts": [{"functionCall": {"name": "f", "args": 7}}]}]},
            "/contents/0/parts/0/functionCall/args",
        ),
        ({"contents": [], "tools": [{"functionDeclarations": [{"name": 5}]}]}, "/tools/0/functionDeclarations/0/name"),
        ({"contents": [], "systemInstruction": 5}, "/systemInstruction"),
    ],
)
def test_a_wrong_shape_says_where(body: JsonObject, where: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(body)
    assert caught.value.where == where


def test_an_empty_list_of_allowed_names_forbids_nothing() -> None:
    body = HI | {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": []}}}
    choice = decode(body).tool_choice
    assert choice is not None
    assert (choice.mode, choice.names) == ("required", None)
    assert DIALECT.encode_request(decode(body), Notes()).body["toolConfig"] == body["toolConfig"]
