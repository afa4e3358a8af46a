"""A note tells what is lost. What says no more than its absence would is nothing to lose, whichever the target."""

import pytest
from msgspec.structs import replace

from dragoman.convert import convert, convert_reply
from dragoman.dialects import NAMES, find_dialect
from dragoman.model.messages import Image, Message, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import OutputFormat, Request, Tool, ToolChoice
from dragoman.notes import Notes

DIALECTS = tuple(name for name in NAMES if name != "canonical")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

ASK = Message(role="user", parts=(Text(text="look"),))
CALL = Message(role="assistant", parts=(ToolCall(id="call_1", name="f", arguments="{}"),))
RESULT = ToolResult(call_id="call_1", parts=(Text(text="snow"),))
PICTURE = Image(data="iVBORw0KGgo=", media_type="image/png")
PLAIN = Request(
    model="m",
    messages=(ASK, CALL, Message(role="user", parts=(RESULT,))),
    tools=(Tool(name="f", parameters=SCHEMA),),
    max_output=77,
    stream=True,
)
ANSWER = Reply(
    id="reply_1",
    model="m",
    created=1_700_000_000,
    choices=(Choice(parts=(Text(text="snow"),), finish=Finish(reason="stop")),),
    usage=Usage(input=10, output=6),
)


def answered(result: ToolResult) -> Request:
    return replace(PLAIN, messages=(ASK, CALL, Message(role="user", parts=(result,))))


SAID_ALOUD: dict[str, Request] = {
    "one answer": replace(PLAIN, choices=1),
    "an answer in text": replace(PLAIN, modalities=("text",)),
    "plain text as the output": replace(PLAIN, output=OutputFormat(type="text")),
    "no stop sequences": replace(PLAIN, stop=()),
    "no metadata": replace(PLAIN, metadata={}),
    "not to store": replace(PLAIN, store=False),
    "calls side by side": replace(PLAIN, parallel_calls=True),
    "the model decides whether to call": replace(PLAIN, tool_choice=ToolChoice(mode="auto")),
    "no logprobs": replace(PLAIN, logprobs=False),
    "no penalties": replace(PLAIN, frequency_penalty=0, presence_penalty=0),
    "the usual verbosity": replace(PLAIN, verbosity="medium"),
    "not streamed": replace(PLAIN, stream=False),
    "nothing said of streaming": replace(PLAIN, stream=None),
    "a tool that is not strict": replace(PLAIN, tools=(Tool(name="f", parameters=SCHEMA, strict=False),)),
    "a result that did not fail": answered(replace(RESULT, failed=False)),
    "a result named like its call": answered(replace(RESULT, name="f")),
    "an image at any detail": replace(
        PLAIN, messages=(Message(role="user", parts=(replace(PICTURE, detail="auto"),)), *PLAIN.messages[1:])
    ),
}
COUNTED_ALOUD: dict[str, Reply] = {
    "nothing from the cache": replace(ANSWER, usage=Usage(input=10, output=6, cache_read=0, cache_write=0)),
    "no thoughts": replace(ANSWER, usage=Usage(input=10, output=6, reasoning=0)),
    "no sound": replace(ANSWER, usage=Usage(input=10, output=6, input_audio=0, output_audio=0)),
    "the usual tier": replace(ANSWER, service_tier="default"),
}
# What a target cannot say of any reply: a note about it is right.
NO_PLACE = {"ollama": {"/id"}, "anthropic": {"/created"}}


def notes_of_request(request: Request, dialect: str) -> set[str]:
    notes = Notes()
    find_dialect(dialect).encode_request(request, notes)
    return {f"{note.kind} {note.where}" for note in notes}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", SAID_ALOUD)
def test_a_value_that_means_the_default_makes_no_note(what: str, dialect: str) -> None:
    assert notes_of_request(SAID_ALOUD[what], dialect) == set()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", COUNTED_ALOUD)
def test_a_count_of_nothing_is_not_missed(what: str, dialect: str) -> None:
    notes = Notes()
    find_dialect(dialect).encode_reply(COUNTED_ALOUD[what], notes)
    assert {note.where for note in notes} <= NO_PLACE.get(dialect, set())


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (replace(PLAIN, choices=2), "/choices"),
        (replace(PLAIN, modalities=("text", "audio")), "/modalities"),
        (replace(PLAIN, parallel_calls=False), "/parallel_calls"),
        (replace(PLAIN, tool_choice=ToolChoice(mode="required")), "/tool_choice"),
        (replace(PLAIN, store=True), "/store"),
        (replace(PLAIN, tools=(Tool(name="f", parameters=SCHEMA, strict=True),)), "/tools/0/strict"),
    ],
)
def test_what_is_more_than_that_is_missed(request_: Request, where: str) -> None:
    assert f"dropped {where}" in notes_of_request(request_, "ollama")


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat"])
def test_a_result_named_unlike_its_call_is_missed(dialect: str) -> None:
    assert notes_of_request(answered(replace(RESULT, name="g")), dialect) == {"dropped /messages/2/parts/0/name"}


@pytest.mark.parametrize("to", [name for name in DIALECTS if name != "openai_responses"])
def test_what_a_response_repeats_of_its_request_is_not_missed(to: str) -> None:
    said = {"type": "output_text", "text": "hi", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [item],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tools": [],
        "tool_choice": "auto",
        "text": {"format": {"type": "text"}},
        "metadata": {},
        "truncation": "disabled",
        "store": True,
    }
    converted = convert_reply(body, source="openai_responses", to=to)
    assert {note.canonical for note in converted.notes} <= NO_PLACE.get(to, set())


@pytest.mark.parametrize("to", [name for name in DIALECTS if name != "openai_chat"])
def test_to_ask_for_the_usage_of_a_stream_asks_for_what_others_tell_anyway(to: str) -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert [note for note in convert(body, source="openai_chat", to=to).notes if "extras" in note.where] == []


@pytest.mark.parametrize("word", ["standard", "priority", "batch", "tomorrow's"])
def test_the_tier_that_anthropic_tells_among_its_counts_is_the_replys(word: str) -> None:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1, "service_tier": word},
    }
    assert convert_reply(body, source="anthropic", to="canonical").body["service_tier"] == word
    assert convert_reply(body, source="anthropic", to="anthropic").body == body
    chat = convert_reply(body, source="anthropic", to="openai_chat")
    there = {"standard": "default", "batch": None}.get(word, word)  # Chat's own words
    assert chat.body.get("service_tier") == there
    assert (there is not None) or any("service_tier" in note.canonical for note in chat.notes)
