"""`verify` does what `serve` does: the same scenario at the same server, directly and through a gateway."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.conformance.runner_play import Player, Try
from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.conformance.runner_wire import LiveSender
from dragoman.conformance.scenario import Expect, ReplyMode, Scenario, ScenarioTurn
from dragoman.exchange import HOP
from dragoman.upstream.keys import Secret, origin_of
from tests.gateway.house import CANARY, Faultline, Script, Seen, faultline, open_house, say, stream, upstream

MODES: tuple[ReplyMode, ...] = ("whole", "streamed")
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
SCHEMA = {  # as Anthropic wants it: the door leaves it as it is
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def refuse(parameter: str) -> Script:
    words = f"Unsupported parameter: '{parameter}' is not supported with this model."
    error = {"message": words, "type": "invalid_request_error", "param": parameter, "code": "unsupported_parameter"}
    return say(400, json.dumps({"error": error}).encode())


def answer(text: str, mode: ReplyMode) -> Script:
    head = {"id": f"chatcmpl-{text}", "created": 1, "model": "m"}
    if mode == "whole":
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        return say(200, json.dumps(body).encode())
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in text.partition(" ")
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": USAGE})
    frames = [b"data: %b\n\n" % json.dumps({**head, "object": "chat.completion.chunk", **c}).encode() for c in chunks]
    return stream(*frames, b"data: [DONE]\n\n")


def ask(expect: Expect, **fields: Any) -> Scenario:
    turn = ScenarioTurn(user="Say something.", expect=expect)
    return Scenario(name="own", set={"max_output": 100, **fields}, turn=(turn,))


def play(scenario: Scenario, target: VerifyTarget, mode: ReplyMode) -> Try:
    async def work() -> Try:
        network = LiveSender()
        try:
            return await Player(scenario, target, mode, network, meaning=True, timeout_s=30.0).play()
        finally:
            await network.close()

    return asyncio.run(work())


def play_directly(scenario: Scenario, line: Faultline, mode: ReplyMode, overrides: dict[str, Any]) -> Try:
    key = Secret(CANARY, origin_of(line.url))
    target = VerifyTarget(
        name="one",
        dialect="openai_chat",
        kind="compatible",
        base_url=line.url,
        model="m",
        auth="bearer",
        key=key,
        overrides=overrides,
    )
    return play(scenario, target, mode)


def play_through_gateway(scenario: Scenario, line: Faultline, mode: ReplyMode, overrides: dict[str, Any]) -> Try:
    server = upstream("one", "openai_chat", line.url, models=("m",), kind="compatible", overrides=overrides)
    with open_house(server) as house:
        door = VerifyTarget(name="door", dialect="anthropic", base_url=house.url, model="m", gateway=True)
        return play(scenario, door, mode)


def sent(seen: Seen) -> tuple[str, dict[str, str], bytes]:
    """Without the address, which is another for each server, and without the number of gateways on the way."""
    return seen.path, {k: v for k, v in seen.headers.items() if k not in ("host", HOP)}, seen.body


@contextmanager
def both(scenario: Scenario, scripts: list[Script], mode: ReplyMode, **overrides: Any) -> Iterator[list[Seen]]:
    with faultline(*scripts) as line, faultline(*scripts) as other:
        direct = play_directly(scenario, line, mode, overrides)
        through = play_through_gateway(scenario, other, mode, overrides)
        assert (direct.outcome, direct.words) == ("PASS", "")
        assert (through.outcome, through.words) == ("PASS", "")
        assert [sent(seen) for seen in line.seen] == [sent(seen) for seen in other.seen]
        assert len(line.seen) == len(scripts)
        yield line.seen


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_refuses_three_things_is_asked_four_times(mode: ReplyMode) -> None:
    scripts = [refuse("temperature"), refuse("top_p"), refuse("stop"), answer("one END two", mode)]
    expect = Expect(finish=("sequence",), says=("one",), without=("two",))
    scenario = ask(expect, temperature=0.5, top_p=0.9, stop=["END"])
    with both(scenario, scripts, mode) as seen:
        bodies = [json.loads(one.body) for one in seen]
        assert [sorted({"temperature", "top_p", "stop"} & body.keys()) for body in bodies] == [
            ["stop", "temperature", "top_p"],
            ["stop", "top_p"],
            ["stop"],
            [],
        ]


@pytest.mark.parametrize("mode", MODES)
def test_thoughts_between_tags_are_thoughts(mode: ReplyMode) -> None:
    scenario = ask(Expect(finish=("stop",), says=("yes",), without=("<think>",), thinks=True))
    with both(scenario, [answer("<think>hm hm</think>yes", mode)], mode, think_tags=["think"]) as seen:
        assert json.loads(seen[0].body).get("stream_options") == (
            {"include_usage": True} if mode == "streamed" else None
        )


def test_a_wrong_json_answer_is_asked_for_once_more() -> None:
    scenario = ask(
        Expect(finish=("stop",), answer=SCHEMA),
        output={"type": "json_schema", "name": "r", "schema": SCHEMA},
    )
    scripts = [answer('{"a":1}', "whole"), answer('{"a":"b"}', "whole")]
    with both(scenario, scripts, "whole", lacks=["json", "json_schema", "tool_choice"]) as seen:
        first, second = (json.loads(one.body)["messages"] for one in seen)
        assert second[: len(first)] == first
        assert [turn["role"] for turn in second[len(first) :]] == ["assistant", "user"]


def test_a_lesson_of_one_turn_is_kept_for_the_next() -> None:
    turns = tuple(ScenarioTurn(user=text, expect=Expect(finish=("stop",))) for text in ("One.", "Two."))
    scenario = Scenario(name="own", set={"max_output": 100, "temperature": 0.5}, turn=turns)
    scripts = [refuse("temperature"), answer("yes", "whole"), answer("no", "whole")]
    with both(scenario, scripts, "whole") as seen:
        assert ["temperature" in json.loads(one.body) for one in seen] == [True, False, False]
