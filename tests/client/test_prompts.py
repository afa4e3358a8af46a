"""What people write, as a Request."""

import base64
from pathlib import Path
from typing import Any, TypedDict

import jsonschema
import pytest
from pydantic import BaseModel

from dragoman.client.answers import Answer
from dragoman.client.outputs import parse, schema_of
from dragoman.client.prompts import build
from dragoman.errors import DragomanError
from dragoman.model.messages import Document, Image, Message, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import OutputFormat, ReasoningSetting, Request, Tool, ToolChoice

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def made(prompt: Any = "hi", **asking: Any) -> Request:
    said: Any = asking
    output = said.pop("output", None)
    return build("m", prompt, said, output).request


def user(text: str) -> Message:
    return Message(role="user", parts=(Text(text=text),))


ANSWER: Answer[Any] = Answer(Reply(id="r", model="m", choices=(Choice(parts=(Text(text="yes"),)),)))


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ("hi", [user("hi")]),
        (user("hi"), [user("hi")]),
        (["one", "two"], [user("one"), user("two")]),
        ({"role": "user", "content": "hi"}, [user("hi")]),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], [user("hi")]),
        ([{"role": "user", "parts": [{"kind": "text", "text": "hi"}]}], [user("hi")]),
        (["one", ANSWER, "two"], [user("one"), Message(role="assistant", parts=(Text(text="yes"),)), user("two")]),
        ((user("one"), {"role": "user", "content": "two"}, "three"), [user("one"), user("two"), user("three")]),
    ],
    ids=range(8),
)
def test_a_prompt_in_every_form(prompt: Any, messages: list[Message]) -> None:
    assert [Message(role=m.role, parts=tuple(Text(text=p.text) for p in m.parts if isinstance(p, Text))) for m in made(prompt).messages] == messages  # fmt: skip # noqa: E501


def test_calls_and_results_in_openais_form_stay_together() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = made(
        [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
        ]
    ).messages
    assert isinstance(messages[1].parts[0], ToolCall)
    assert isinstance(messages[2].parts[0], ToolResult)
    assert messages[2].role == "user"


@pytest.mark.parametrize("prompt", [5, None, [5], object()])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(DragomanError, match="a prompt is"):
        made(prompt)


def test_the_system_text_comes_first() -> None:
    assert made("hi", system="Be short.").messages[0] == Message(role="system", parts=(Text(text="Be short."),))


def test_pictures_and_files_are_shown_with_the_question(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 \xff")
    data = base64.b64encode(PNG).decode()
    picture = Image(data=data, media_type="image/png")
    request = made(
        "hi",
        images=[
            PNG,
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
            "https://x.example/a",
            f"data:image/png;base64,{data}",
        ],
        files=[tmp_path / "a.txt", tmp_path / "a.pdf", "https://x.example/a.pdf"],
    )
    (message,) = request.messages
    assert message.parts[1:] == (
        picture,
        picture,
        picture,
        Image(url="https://x.example/a"),
        picture,
        Document(text="text", media_type="text/plain", name="a.txt"),
        Document(data=base64.b64encode(b"%PDF-1.7 \xff").decode(), media_type="application/pdf", name="a.pdf"),
        Document(url="https://x.example/a.pdf"),
    )
    with pytest.raises(DragomanError, match="no picture"):
        made("hi", images=[b"text"])
    with pytest.raises(DragomanError, match="cannot be read"):
        made("hi", images="/nowhere/a.png")


@pytest.mark.parametrize(
    ("effort", "setting"),
    [
        ("high", ReasoningSetting(effort="high")),
        (2000, ReasoningSetting(mode="on", budget=2000)),
        (True, ReasoningSetting(mode="on")),
        (False, ReasoningSetting(mode="off")),
        ("off", ReasoningSetting(mode="off")),
    ],
)
def test_effort_is_a_word_a_number_or_a_switch(effort: Any, setting: ReasoningSetting) -> None:
    assert made(effort=effort).reasoning == setting


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ("get_weather", ToolChoice(mode="required", names=("get_weather",))),
        (ToolChoice(mode="auto", names=("a",)), ToolChoice(mode="auto", names=("a",))),
        ("any", ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "a"}}, ToolChoice(mode="required", names=("a",))),
    ],
    ids=str,
)
def test_a_choice_of_tools(choice: Any, meant: ToolChoice) -> None:
    assert made(tool_choice=choice).tool_choice == meant


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
        {"type": "function", "name": "f", "parameters": SCHEMA},
        {"name": "f", "input_schema": SCHEMA},
        {"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]},
    ],
    ids=["chat", "responses", "anthropic", "gemini"],
)
def test_a_tool_may_have_the_form_of_any_dialect(tool: dict[str, Any]) -> None:
    (found,) = made(tools=[tool]).tools or ()
    assert isinstance(found, Tool)
    assert (found.name, found.parameters) == ("f", SCHEMA)


def test_options_are_fields_of_a_request_or_keys_of_a_dialect() -> None:
    request = made(temperature=0.5, options={"top_p": 0.9, "stop": ["END"], "seed": 7, "anthropic": {"container": "x"}})
    assert (request.temperature, request.top_p, request.stop, request.seed) == (0.5, 0.9, ("END",), 7)
    assert request.extras == {"anthropic": {"container": "x"}}
    with pytest.raises(DragomanError, match="no such field 'top_q'"):
        made(options={"top_q": 1})
    with pytest.raises(DragomanError, match="Expected `int"):
        made(options={"seed": "x"})
    with pytest.raises(DragomanError, match="no such option: temprature"):
        made(temprature=1)


class Town(BaseModel):
    name: str


class Tree(BaseModel):
    name: str
    kids: "list[Tree]" = []


class Row(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("kind", "good", "value"),
    [
        (Town, '{"name": "a"}', Town(name="a")),
        (Tree, '{"name": "a", "kids": [{"name": "b"}]}', Tree(name="a", kids=[Tree(name="b")])),
        (Row, '{"name": "a"}', {"name": "a"}),
        (int, '{"value": 5}', 5),
        (int, "5", 5),
        (list[Town], '{"value": [{"name": "a"}]}', [Town(name="a")]),
        (Town | None, '{"value": null}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
    ids=str,
)
def test_a_type_is_asked_for_as_an_object_and_read_back(kind: Any, good: str, value: Any) -> None:
    schema, _ = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert parse(kind, good) == value
    wanted = made(output=kind).output
    assert wanted is not None
    assert (wanted.type, wanted.schema) == ("json_schema", schema)


def test_a_schema_or_any_json_can_be_asked_for() -> None:
    schema = {"type": "object", "title": "A town!", "properties": {}}
    assert made(output=schema).output == OutputFormat(type="json_schema", schema=schema, name="A_town")
    assert made(output="json").output == made(output=dict).output == OutputFormat(type="json")
    assert parse(schema, '{"a": 1}') == {"a": 1}
