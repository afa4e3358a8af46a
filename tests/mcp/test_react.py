import asyncio
from collections.abc import AsyncIterator

import pytest

from dragoman.mcp.react import CallBuffer, ReactModel, find_calls, write_request
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.model.reply import Finish, Reply
from dragoman.model.request import Request, Tool

CALL = '{"tool": "time.now", "arguments": {"zone": "UTC"}}'
NOW = ("time.now", '{"zone":"UTC"}')

TEXTS = [
    ("alone", CALL, [NOW]),
    ("prose_around", f"I will look it up.\n\n{CALL}\n\nOne moment.", [NOW]),
    ("in_a_fence", f"Sure:\n```json\n{CALL}\n```", [NOW]),
    ("in_a_bare_fence", f"```\n{CALL}\n```\nwaiting", [NOW]),
    ("two", f"{CALL}\n{CALL.replace('UTC', 'Asia/Seoul')}", [NOW, ("time.now", '{"zone":"Asia/Seoul"}')]),
    ("two_in_a_list", f"[{CALL}, {CALL}]", [NOW, NOW]),
    ("two_fences", f"```json\n{CALL}\n```\nand\n```json\n{CALL}\n```", [NOW, NOW]),
    ("spread_over_lines", '{\n  "tool": "time.now",\n  "arguments": {\n    "zone": "UTC"\n  }\n}', [NOW]),
    ("keys_the_other_way_round", '{"arguments": {"zone": "UTC"}, "tool": "time.now"}', [NOW]),
    ("braces_in_a_string", '{"tool": "a.b", "arguments": {"x": "}{\\"}"}}', [("a.b", '{"x":"}{\\"}"}')]),
    ("a_newline_in_a_string", '{"tool": "a.b", "arguments": {"x": "1\n2"}}', [("a.b", '{"x":"1\\n2"}')]),
    ("no_arguments", '{"tool": "a.b"}', [("a.b", "{}")]),
    ("arguments_as_text", '{"tool": "a.b", "arguments": "{\\"x\\": 1}"}', [("a.b", '{"x": 1}')]),
    ("another_word", '{"tool": "a.b", "args": {"x": 1}}', [("a.b", '{"x":1}')]),
    ("python", "{'tool': 'a.b', 'arguments': {'x': True, 'y': None}}", [("a.b", '{"x":true,"y":null}')]),
    ("a_comma_too_many", '{"tool": "a.b", "arguments": {"x": 1,},}', [("a.b", '{"x":1}')]),
    ("openai_s_form", '{"tool_calls": [{"function": {"name": "time.now", "arguments": "{}"}}]}', [("time.now", "{}")]),
    ("in_a_tag", f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>", [NOW]),
    ("in_a_tag_left_open", f"<tool_call>{CALL}", [NOW]),
    ("two_tags", f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>", [NOW, NOW]),
    ("a_tag_around_words", "I write <tool_call> in front of a call, <b>always</b>.", []),
    ("a_name_we_have", '{"name": "time.now", "arguments": {"zone": "UTC"}}', [NOW]),
    ("a_name_without_its_server", '{"name": "now", "arguments": {}}', [("now", "{}")]),
    ("a_name_that_may_be_anybody_s", 'They are called {"name": "now"}.', []),
    ("a_name_we_do_not_have", '{"name": "Ann", "arguments": {}}', []),
    ("an_unknown_tool_gets_an_answer", '{"tool": "no.such", "arguments": {}}', [("no.such", "{}")]),
    ("data", 'The result is {"temperature": 3, "tool": null} today.', []),
    ("somebody_s_data", '{"action": "buy", "price": 3}', []),
    ("plain_words", "It is {very} late.", []),
    ("code", "```python\ndef f():\n    return {'a': 1}\n```", []),
    ("nothing", "", []),
    ("depth", "{" * 5000, []),
    ("depth_with_keys", '{"a":' * 3000, []),
]
STREAMED = [row[1:] for row in TEXTS[:-3]]


@pytest.mark.parametrize(("text", "calls"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_calls_are_found_wherever_a_model_writes_them(text: str, calls: list[tuple[str, str]]) -> None:
    assert [(call.name, call.arguments) for call in find_calls(text, {"time.now", "now"})] == calls


def test_a_call_that_was_cut_off_is_kept_so_that_the_model_reads_its_error() -> None:
    (call,) = find_calls('{"tool": "a.b", "arguments": {"x": ')
    assert call.name == "a.b"
    assert call.arguments.startswith('{"tool"')


def test_many_braces_cost_little() -> None:
    assert find_calls('{"x": {' * 30_000) == []


class Says:
    """A model that says one text, in pieces."""

    def __init__(self, text: str, size: int, reason: str = "stop") -> None:
        self.text, self.size, self.reason = text, size, reason
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        self.asked.append(request)
        yield ReplyStart(id="1", model="m")
        yield PartStart(index=0, part=Text(text=""))
        for i in range(0, len(self.text), self.size):
            yield PartDelta(index=0, text=self.text[i : i + self.size])
        yield PartEnd(index=0)
        yield ReplyEnd(finishes=(Finish(reason=self.reason),))  # type: ignore[arg-type]


ASK = Request(
    model="m",
    messages=(Message(role="user", parts=(Text(text="what time is it?"),)),),
    tools=(Tool(name="time__now", description="The time.", parameters={"type": "object"}),),
)
LABELS = {"time__now": "time.now"}


def label(name: str) -> str:
    return LABELS.get(name, name)


def hear(text: str, size: int, reason: str = "stop") -> tuple[Reply, list[Event]]:
    async def run() -> list[Event]:
        return [event async for event in ReactModel(Says(text, size, reason), label).ask(ASK)]

    events = asyncio.run(run())
    reply = fold(events)
    assert isinstance(reply, Reply)
    return reply, events


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(("text", "calls"), STREAMED, ids=[row[0] for row in TEXTS[:-3]])
def test_a_streamed_answer_gives_the_same_calls_however_it_is_cut(
    text: str, calls: list[tuple[str, str]], size: int
) -> None:
    reply, _ = hear(text, size)
    parts, finish = reply.choices[0].parts, reply.choices[0].finish
    assert [(p.name, p.arguments) for p in parts if isinstance(p, ToolCall)] == calls
    assert finish is not None
    assert finish.reason == ("tool_call" if calls else "stop")
    said = "".join(p.text for p in parts if isinstance(p, Text))
    assert not calls or ('"tool":' not in said and "tool_call" not in said)
    if not calls:
        assert said == text


def test_plain_words_are_not_held_back() -> None:
    _, events = hear("One two {three} four ``` five", 4)
    shown = [event.text for event in events if isinstance(event, PartDelta)]
    assert len(shown) > 4


def test_text_after_a_call_is_not_shown() -> None:
    reply, _ = hear(f"Let me see.\n{CALL}\nResult: it is noon!", 5)
    assert [p.text for p in reply.choices[0].parts if isinstance(p, Text)] == ["Let me see.\n"]


def test_a_call_at_the_output_limit_keeps_its_finish() -> None:
    reply, _ = hear(CALL[:40], 5, "length")
    assert reply.choices[0].finish == Finish(reason="length")


@pytest.mark.parametrize("text", ["a `b` c", "```\ncode\n```\n", "{a}", "[1, 2]", "x [ y", "``", '{"other": 1}'])
def test_a_call_buffer_gives_all_text_back(text: str) -> None:
    holder = CallBuffer()
    assert "".join([*(holder.feed(char) for char in text), holder.close()]) == text


def test_a_model_without_tools_reads_tools_calls_and_results_as_text() -> None:
    talk = (
        Message(role="system", parts=(Text(text="Be brief."),)),
        Message(role="user", parts=(Text(text="time?"),)),
        Message(role="assistant", parts=(ToolCall(id="1", name="time__now", arguments='{"zone":"UTC"}'),)),
        Message(
            role="user",
            parts=(
                ToolResult(call_id="1", name="time__now", parts=(Text(text="no such zone"),), failed=True),
                ToolResult(call_id="2", name="time__now", parts=(Text(text="noon"),)),
            ),
        ),
    )
    request = write_request(Request(model="m", messages=talk, tools=ASK.tools), label)
    assert request.tools is None
    texts = [(m.role, p.text) for m in request.messages for p in m.parts if isinstance(p, Text)]
    assert texts[0] == ("system", "Be brief.")
    assert texts[1][0] == "system"
    assert "- time.now: The time." in texts[1][1]
    assert texts[3] == ("assistant", '{"tool": "time.now", "arguments": {"zone":"UTC"}}')
    assert texts[4] == ("user", "Result of time.now:\n[ERROR] no such zone")
    assert texts[5] == ("user", "Result of time.now:\nnoon")
