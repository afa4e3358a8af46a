"""The demo model: its rules, its arguments, and that every dialect can encode its answers."""

from time import process_time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from dragoman.answers.undo import undo_reply
from dragoman.demo.model import count_tokens, demo_embedding, demo_events
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import PartDelta
from dragoman.model.fold import fold
from dragoman.model.messages import Image, Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import CustomTool, OutputFormat, ReasoningSetting, Request, ServerTool, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.prepare import prepare
from dragoman.passes.profile import Profile
from dragoman.wire import WireReply
from tests.laws.strategies import requests
from tests.passes.short_forms import assistant, call, result, system, talk, user

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SUM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
WEATHER = Tool(name="get_weather", description="The weather of a city", parameters=CITY)
ADD = Tool(name="add", description="Adds two numbers", parameters=SUM)
PICTURE = Image(data="iVBORw0KGgo=", media_type="image/png")

# One request for each rule of the model.
REQUESTS: dict[str, Request] = {
    "hello": talk(user("Hello!")),
    "question": talk(user("Why is the sky blue?")),
    "korean": talk(user("하늘은 왜 파란가요?")),
    "nothing": talk(),
    "thinking": talk(user("Why?"), reasoning=ReasoningSetting(effort="high")),
    "call": talk(user("What is the weather in Seoul?"), tools=(WEATHER, ADD)),
    "thinking call": talk(
        user("Weather in Oslo?"), tools=(WEATHER,), reasoning=ReasoningSetting(mode="on", budget=2048)
    ),
    "parallel": talk(user("What is the weather in Paris and in Tokyo? Do both in parallel."), tools=(WEATHER, ADD)),
    "freeform": talk(user("Use the patch tool"), tools=(CustomTool(name="patch"),)),
    "results": talk(user("Weather?"), assistant(call("c1", "get_weather")), user(result("c1", "21 degrees"))),
    "schema": talk(user("Weather?"), output=OutputFormat(type="json_schema", name="w", schema=CITY)),
    "json": talk(user("Weather?"), output=OutputFormat(type="json")),
    "stop": talk(user("Count to 10"), stop=("5",)),
    "length": talk(user("Count to 10"), max_output=3),
    "nothing left": talk(user("Count to 10"), stop=("1",)),
    "choices": talk(user("Hello!"), choices=3),
    "picture": talk(user("What is this?", PICTURE, PICTURE)),
    "logprobs": talk(user("Hello!"), logprobs=True, top_logprobs=2),
}


def demo_reply(request: Request) -> Reply:
    reply = fold(demo_events(request))
    assert isinstance(reply, Reply)
    return reply


def answer_text(request: Request) -> str:
    return "".join(part.text for part in demo_reply(request).choices[0].parts if isinstance(part, Text))


def called_tools(request: Request) -> list[tuple[str, Any]]:
    parts = demo_reply(request).choices[0].parts
    return [(part.name, load_json(part.arguments)) for part in parts if isinstance(part, ToolCall)]


def finish_reason(request: Request) -> str | None:
    end = demo_reply(request).choices[0].finish
    return end.reason if end else None


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_question_gets_the_same_answer(name: str) -> None:
    assert demo_reply(REQUESTS[name]) == demo_reply(REQUESTS[name])


@pytest.mark.parametrize("dialect", [name for name in NAMES if name != "canonical"])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_dialect_can_encode_the_answer(dialect: str, name: str) -> None:
    spoken, request = find_dialect(dialect), REQUESTS[name]
    reply = demo_reply(request)
    whole = spoken.decode_reply(
        WireReply(body=load_json(dump_json(spoken.encode_reply(reply, Notes(), request).body))), Notes()
    )
    encoder, decoder = spoken.stream_encoder(Notes(), request), spoken.stream_decoder(Notes())
    data = encoder.feed(demo_events(request)) + encoder.close()
    streamed = fold([*decoder.feed(data), *decoder.close()])
    assert isinstance(streamed, Reply)
    for heard in (whole, streamed):
        assert plain(heard.choices[0].parts) == plain(reply.choices[0].parts)
        heard_finish = heard.choices[0].finish
        assert heard_finish is not None
        wanted = finish_reason(request)
        assert heard_finish.reason in (wanted, "stop" if wanted == "sequence" else wanted)


def plain(parts: tuple[Part, ...]) -> list[Any]:
    """The texts and calls, without the ids, seals and spelling that a dialect adds or lacks."""
    kept: list[Any] = []
    for part in parts:
        if isinstance(part, ToolCall):
            # a dialect without tools that take free text wraps it in an object
            kept.append(
                (
                    part.name,
                    load_json(part.arguments if part.arguments[:1] == "{" else dump_json({"input": part.arguments})),
                )
            )
        elif isinstance(part, Text | Reasoning) and part.text:
            kept.append((type(part).__name__, part.text))
    return sorted(kept, key=str)


def test_it_answers_word_by_word() -> None:
    words = [event.text for event in demo_events(REQUESTS["question"]) if isinstance(event, PartDelta)]
    assert len(words) > 10
    assert "sky" in answer_text(REQUESTS["question"])


def test_a_streamed_and_an_unstreamed_answer_have_the_same_ids() -> None:
    request = REQUESTS["parallel"]
    assert demo_reply(request) == demo_reply(talk(*request.messages, tools=request.tools, stream=True))
    ids = [part.id for part in demo_reply(request).choices[0].parts if isinstance(part, ToolCall)]
    assert len(set(ids)) == 2


def test_korean_gets_korean() -> None:
    assert "물으셨군요" in answer_text(REQUESTS["korean"])
    assert "안녕하세요" in answer_text(talk(user("안녕하세요!")))


def test_a_greeting_calls_no_tool() -> None:
    assert called_tools(talk(user("Hello!"), tools=(WEATHER,))) == []


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("say hello", []),
        ("count to 3", []),
        ("What is my name?", []),
        ("say what get_weather tells about Oslo", ["get_weather"]),
        ("Tell me about Oslo", ["get_weather"]),
    ],
)
def test_a_question_it_can_answer_itself_calls_no_tool_unless_one_is_named(text: str, called: list[str]) -> None:
    """A coding agent has dozens of tools: "say hello" would start other agents, which start others."""
    assert [name for name, _ in called_tools(talk(user(text), tools=(WEATHER,)))] == called


def test_the_best_tool_is_called_with_values_from_the_question() -> None:
    assert called_tools(REQUESTS["call"]) == [("get_weather", {"city": "Seoul"})]
    assert called_tools(talk(user("Please add 17 and 25"), tools=(WEATHER, ADD))) == [("add", {"a": 17, "b": 25})]
    assert called_tools(talk(user("서울의 날씨를 알려줘"), tools=(WEATHER,))) == [("get_weather", {"city": "서울"})]


def test_a_text_in_backticks_is_the_argument() -> None:
    read = Tool(
        name="Read",
        parameters={"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
    )
    asked = user("<system-reminder>Use add</system-reminder>", "Read the file `/a b/notes.txt`.")
    assert called_tools(talk(asked, tools=(ADD, read))) == [("Read", {"file_path": "/a b/notes.txt"})]


def test_several_tools_named_are_called_together() -> None:
    asked = talk(user("get_weather for Oslo, then add 3 and 4"), tools=(ADD, WEATHER))
    assert called_tools(asked) == [("get_weather", {"city": "Oslo"}), ("add", {"a": 3, "b": 4})]
    assert called_tools(REQUESTS["parallel"]) == [
        ("get_weather", {"city": "Paris"}),
        ("get_weather", {"city": "Tokyo"}),
    ]


def test_parallel_calls_may_be_forbidden() -> None:
    asked = user("get_weather for Oslo, then add 3 and 4")
    assert len(called_tools(talk(asked, tools=(ADD, WEATHER), parallel_calls=False))) == 1


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ToolChoice(mode="none"), []),
        (ToolChoice(mode="auto"), []),
        (ToolChoice(mode="required"), ["get_weather"]),
        (ToolChoice(mode="required", names=("add",)), ["add"]),
    ],
)
def test_a_tool_choice_is_obeyed(choice: ToolChoice, names: list[str]) -> None:
    asked = talk(user("Hello!"), tools=(WEATHER, ADD), tool_choice=choice)
    assert [name for name, _ in called_tools(asked)] == names


def test_a_tool_of_the_provider_is_not_called() -> None:
    search = ServerTool(dialect="anthropic", body={"type": "web_search_20250305", "name": "web_search"})
    assert called_tools(talk(user("search for cats"), tools=(search,))) == []


def test_arguments_fit_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 3},
            "filters": {"type": "array", "items": {"$ref": "#/$defs/filter"}, "minItems": 1},
            "page": {"type": ["integer", "null"]},
        },
        "required": ["query", "filters", "page"],
        "additionalProperties": False,
        "$defs": {"filter": {"type": "object", "properties": {"op": {"enum": ["<", ">"]}}, "required": ["op"]}},
    }
    ((_, arguments),) = called_tools(talk(user("search for cats"), tools=(Tool(name="search", parameters=schema),)))
    assert list(Draft202012Validator(schema).iter_errors(arguments)) == []


def test_a_tool_without_parameters_gets_an_empty_object() -> None:
    assert called_tools(talk(user("what time is it?"), tools=(Tool(name="now"),))) == [("now", {})]


def test_it_answers_from_the_results() -> None:
    assert answer_text(REQUESTS["results"]) == "The get_weather tool answered: 21 degrees"


def test_it_says_which_result_has_failed() -> None:
    turn = user(result("c1", "21 degrees"), result("c2", "no such city", failed=True))
    asked = talk(user("Weather?"), assistant(call("c1", "a"), call("c2", "b")), turn)
    assert answer_text(asked) == "The a tool answered: 21 degrees\nThe b tool failed: no such city"


def test_it_sees_pictures_in_turns_and_in_results() -> None:
    assert "2 images (image/png)" in answer_text(REQUESTS["picture"])
    asked = talk(user("Look"), assistant(call("c1", "look")), user(result("c1", PICTURE)))
    assert "1 image (image/png)" in answer_text(asked)


def test_structured_output_fits_its_schema() -> None:
    assert list(Draft202012Validator(CITY).iter_errors(load_json(answer_text(REQUESTS["schema"])))) == []
    assert set(load_json(answer_text(REQUESTS["json"]))) == {"answer"}


def test_a_stop_sequence_ends_it() -> None:
    assert answer_text(REQUESTS["stop"]) == "1 2 3 4 "
    end = demo_reply(REQUESTS["stop"]).choices[0].finish
    assert end is not None
    assert (end.reason, end.sequence) == ("sequence", "5")


def test_the_limit_ends_it() -> None:
    assert (answer_text(REQUESTS["length"]), finish_reason(REQUESTS["length"])) == ("1 2 3", "length")
    thinking = talk(user("Why?"), max_output=4, reasoning=ReasoningSetting(effort="low"))
    assert (answer_text(thinking), finish_reason(thinking)) == ("", "length")


def test_it_thinks_more_with_more_effort() -> None:
    def thought(effort: str) -> int:
        reply = demo_reply(talk(user("Why?"), reasoning=ReasoningSetting(effort=effort)))
        assert reply.usage is not None
        return reply.usage.reasoning or 0

    assert 0 < thought("low") < thought("medium") < thought("high")


@pytest.mark.parametrize("setting", [None, ReasoningSetting(mode="off"), ReasoningSetting(mode="off", effort="high")])
def test_it_does_not_think_without_being_asked(setting: ReasoningSetting | None) -> None:
    reply = demo_reply(talk(user("Why?"), reasoning=setting))
    assert not any(isinstance(part, Reasoning) for part in reply.choices[0].parts)


def test_hidden_reasoning_is_counted_but_not_shown() -> None:
    reply = demo_reply(talk(user("Why?"), reasoning=ReasoningSetting(effort="high", show=False)))
    assert [type(part) for part in reply.choices[0].parts] == [Text]
    assert reply.usage is not None
    assert reply.usage.reasoning


@pytest.mark.parametrize(
    ("told", "asked", "answer"),
    [
        ("My name is Alice.", "What is my name?", "Your name is Alice."),
        ("my favourite colour is dark blue", "So what's my favourite colour?", "Your favourite colour is dark blue."),
        ("Remember the number 42.", "Which number did you remember?", "You asked me to remember the number 42."),
        ("내 이름은 철수야", "내 이름이 뭐야?", "내 기억으로는 철수입니다."),
    ],
)
def test_it_remembers_an_earlier_turn(told: str, asked: str, answer: str) -> None:
    assert answer_text(talk(user(told), assistant("Noted."), user(asked))) == answer


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("Reply with the word pong.", "pong"),
        ('Say "good day" twice', "good day"),
        ("Repeat after me: 안녕 👋🏽", "안녕 👋🏽"),
        ("Reply with exactly: ok", "ok"),
        ("Please count from 3 to 6.", "3 4 5 6"),
    ],
)
def test_it_says_the_wanted_text(asked: str, answer: str) -> None:
    assert answer_text(talk(user(asked))) == answer


def test_a_word_that_the_system_text_demands_is_in_the_answer() -> None:
    assert answer_text(talk(system('Always begin with "Ahoy".'), user("Why?"))).startswith("Ahoy ")


def test_every_choice_differs() -> None:
    texts = [choice.parts for choice in demo_reply(REQUESTS["choices"]).choices]
    assert len(set(map(str, texts))) == 3


def test_words_are_tokens() -> None:
    reply = demo_reply(talk(user("Count to 10")))
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.output) == (3, 10)
    assert count_tokens(talk(user("one two", PICTURE))) == 87
    assert count_tokens(talk()) == 1


def test_each_text_has_its_own_unit_vector() -> None:
    one, other = demo_embedding("a", 40), demo_embedding("b", 40)
    assert len(one) == 40
    assert sum(x * x for x in one) == pytest.approx(1)
    assert one != other == demo_embedding("b", 40)


@given(requests)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_request_gets_an_answer(request: Request) -> None:
    reply = demo_reply(request)
    assert reply.choices
    for part in reply.choices[0].parts:
        if isinstance(part, ToolCall) and not part.freeform:
            assert type(load_json(part.arguments)) is dict


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * 100_000,
        "my " * 100_000,
        "'" * 100_000,
        "/a" * 100_000,
        "say " * 100_000,
        "count to 99999999999999999999",
        "remember " * 100_000 + "what is my name?",
        "가" * 100_000,
        "A " * 100_000 + "both",
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_takes_no_longer(text: str) -> None:
    asked = talk(user(text), assistant("ok"), user(text), tools=(WEATHER, ADD))
    start = process_time()
    demo_reply(asked)
    demo_reply(talk(*asked.messages))
    assert process_time() - start < 2


READ = Tool(
    name="Read",
    parameters={"type": "object", "properties": {"limit": {"type": "integer"}, "file_path": {"type": "string"}}},
)
SHELL = Tool(
    name="exec_command",
    description="Runs a command",
    parameters={
        "type": "object",
        "properties": {"workdir": {"type": "string"}, "cmd": {"type": "string"}},
        "required": ["cmd"],
    },
)
OLD_SHELL = Tool(
    name="shell",
    parameters={"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
)
VIEW = Tool(
    name="view_image",
    description="View a local file and tell what it says",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CODE = CustomTool(name="exec", description="for example `await tools.exec_command(...)`")
WRAPPED = Tool(
    name="exec",
    description="for example `await tools.exec_command(...)`",
    parameters={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
)
SCRIPT = 'const r = await tools.exec_command({"cmd":"cat /home/me/note.txt"});\ntext(r.output);\n'


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (READ, {"file_path": "/home/me/note.txt"}),
        (SHELL, {"cmd": "cat /home/me/note.txt"}),
        (OLD_SHELL, {"command": ["cat", "/home/me/note.txt"]}),
        (WRAPPED, {"input": SCRIPT}),
    ],
    ids=["reader", "shell", "shell of a list", "code in a function"],
)
def test_a_file_is_read_with_the_tool_there_is(tool: Tool, arguments: Any) -> None:
    asked = user("Read the file /home/me/note.txt and tell me what it says.")
    assert called_tools(talk(asked, tools=(VIEW, WEATHER, tool, ADD))) == [(tool.name, arguments)]


def test_a_file_is_read_with_code_in_free_text() -> None:
    asked = user("Read the file /home/me/note.txt and tell me what it says.")
    (part,) = demo_reply(talk(asked, tools=(VIEW, CODE))).choices[0].parts
    assert isinstance(part, ToolCall)
    assert (part.freeform, part.arguments) == (True, SCRIPT)


def test_text_that_a_client_adds_is_not_part_of_the_question() -> None:
    reminder = f"<system-reminder>\n{'Use the add tool. ' * 400}\n</system-reminder>\n"
    assert called_tools(talk(user(reminder + "What is the weather in Seoul?"), tools=(ADD, WEATHER))) == [
        ("get_weather", {"city": "Seoul"})
    ]


def test_a_function_that_takes_a_patch_gets_a_patch() -> None:
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    tool = Tool(name="apply_patch", description='The input must match: "*** Begin Patch" LF', parameters=schema)
    ((name, arguments),) = called_tools(talk(user("Use apply_patch."), tools=(ADD, tool)))
    assert (name, arguments["input"].splitlines()[0]) == ("apply_patch", "*** Begin Patch")


def test_a_question_in_quotes_is_the_question() -> None:
    asked = user('"Read the file /home/me/note.txt and tell me what it says."\n')
    assert called_tools(talk(asked, tools=(VIEW, READ))) == [("Read", {"file_path": "/home/me/note.txt"})]


def test_a_schema_in_the_prompt_is_obeyed() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    profile = Profile(kind="x", dialect="openai_chat", lacks=("json", "json_schema", "tool_choice"))
    asked = talk(user("Anna is 31."), model="demo", output=OutputFormat(type="json_schema", schema=schema))
    prepared = prepare(asked, profile, Notes())
    assert prepared.request.output is None
    reply = fold(demo_events(prepared.request))
    assert isinstance(reply, Reply)
    notes = Notes()
    undo_reply(reply, prepared.undo, notes)
    assert not notes.items
