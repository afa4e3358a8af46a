"""What a client of the library sends of a conversation that it sent before is what it would send the first time: the
same turns, bytes and notes. Prompts are objects, our own values, answers, or a mixture; callers change them on the way.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.answers import Answer
from dragoman.client.known_prompts import KnownPrompts
from dragoman.client.prompts import BuiltRequest, ChatOptions, build
from dragoman.dialects import CANONICAL, find_dialect
from dragoman.errors import DragomanError
from dragoman.exchange import ClientRequest
from dragoman.known_turns.sent import SentTurns
from dragoman.known_turns.write import Known
from dragoman.model.messages import Message, Text, ToolCall
from dragoman.model.reply import Choice, Reply
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState
from tests.laws.test_known_turns import ALL, SERVERS, TOOL, Talk, attempt, make_state, show
from tests.recorded import cases, needs_corpus

TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": TOOL}}]


class Client:
    """Builds and writes each prompt as a client does that remembers, and as one that does not."""

    def __init__(self, most_bytes: int = 10**7) -> None:
        self.now = 0.0
        self.prompts, self.sent = KnownPrompts(most_bytes, lambda: self.now), SentTurns(most_bytes)
        self.known = self.short = 0
        self._states: dict[str, UpstreamState] = {}

    def ask(self, prompt: Sequence[Any], *servers: str, **options: Any) -> None:
        self.now += 1
        more: Any = {"tools": TOOLS, **options}
        long, built = attempt(lambda: build("m", prompt, more)), self._build(prompt, more)
        if isinstance(long, str) or isinstance(built, str):
            assert built == long
            return
        assert built.request == long.request
        known = built.known
        self.known += known is not None
        by_identity = self.sent.know(built.request, self.now)
        for server in servers:
            slow = self._send(long, None, server)
            assert self._send(built, known, server) == slow, server
            assert self._send(built, by_identity, server) == slow, server

    def _build(self, prompt: Sequence[Any], more: ChatOptions) -> BuiltRequest | str:
        found: BuiltRequest | str = attempt(lambda: build("m", prompt, more, known=self.prompts))
        return found

    def _send(self, built: BuiltRequest, known: Known | None, server: str) -> object:
        state = self._states.setdefault(server, make_state(server))
        request = replace(built.request, stream=True)
        asked = ClientRequest(dialect=find_dialect(CANONICAL), request=request, same_wire=False, known=known)
        target = Target(state.spec, server.partition("/")[2])
        call = attempt(lambda: render(asked, state, target, stream=True, refuse=frozenset()))
        if isinstance(call, str):
            return call
        self.short += call.write_long is not None
        return show(call)


def as_values(turns: list[dict[str, Any]], values: dict[str, Any], dice: Random) -> list[Any]:
    """The turns, some of them as answers or as values of our own, each the same object in every prompt."""
    made: list[Any] = []
    for turn in turns:
        key = json.dumps(turn)
        if key not in values:
            values[key] = _as_value(turn) if dice.random() < 0.5 else turn
        made.append(values[key])
    return made


def _as_value(turn: dict[str, Any]) -> Any:
    if turn["role"] != "assistant":
        return Message(role="user", parts=(Text(text=turn["content"]),)) if turn["role"] == "user" else turn
    said = (Text(text=turn["content"]),) if turn["content"] else ()
    calls = [call["function"] | {"id": call["id"]} for call in turn.get("tool_calls", ())]
    parts = (*said, *[ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"]) for c in calls])
    return Answer(Reply(id="r", model="m", choices=(Choice(parts=parts),)))


@pytest.mark.parametrize("kind", ["objects", "copies", "mixed"])
@pytest.mark.parametrize("seed", range(40 if ALL else 8))
def test_a_conversation_is_sent_alike_turn_by_turn(kind: str, seed: int) -> None:
    dice = Random(f"{kind} {seed}")  # noqa: S311  # the same conversations in every run
    client, talk, values = Client(), Talk("openai_chat", dice), dict[str, Any]()
    odd = dice.choice((0.0, 0.05, 0.3))
    servers = list(SERVERS) if ALL else dice.sample(SERVERS, 5)
    options: dict[str, Any] = {}
    for _ in range(12):
        prompt: list[Any] = talk.turns
        if kind == "copies":
            prompt = json.loads(json.dumps(prompt))
        elif kind == "mixed":
            prompt = as_values(prompt, values, dice)
        client.ask(prompt, *servers, **options)
        talk.grow(odd)
        if dice.random() < 0.15:
            options = {"system": dice.choice(("Be brief.", "Be long.")), "temperature": 0.5}
        if odd and dice.random() < 0.2:  # in place, as a caller may
            turn = dice.choice(talk.turns)
            if turn["role"] == "user":
                turn["content"] = f"said in another way {dice.random()}"
    if not odd:
        assert client.known > 5
        assert client.short > 5


@needs_corpus
def test_a_recorded_conversation_is_sent_alike_turn_by_turn() -> None:
    dice, known = Random(1), 0  # noqa: S311  # the same servers in every run
    for case in cases("openai_chat"):
        raw = case.read("request.json")
        body = json.loads(raw) if raw is not None else {}
        turns = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(turns, list) or len(turns) < 5:
            continue
        client = Client()
        for count in range(1, len(turns) + 1):
            if count == len(turns) or turns[count - 1].get("role") != "assistant":
                client.ask(turns[:count], *dice.sample(SERVERS, 2))
        known += client.known
    assert known > 5


def grow(client: Client, turns: int, *servers: str, seed: int = 0) -> Talk:
    talk = Talk("openai_chat", Random(seed))  # noqa: S311
    for _ in range(turns):
        client.ask(talk.turns, *servers)
        talk.grow(0)
    return talk


def test_the_turns_of_a_plain_conversation_are_known() -> None:
    client = Client()
    grow(client, 10, "openai/gpt-4o", "anthropic/claude-sonnet-4-5")
    assert client.known == 8
    assert client.short == 2 * 2 * 8, "by the prompt, and by the identity of its turns"


@pytest.mark.parametrize("most_bytes", [0, 5_000])
def test_without_room_nothing_is_kept(most_bytes: int) -> None:
    client = Client(most_bytes)
    grow(client, 12, "openai/gpt-4o")
    assert client.prompts.turns.bytes <= most_bytes
    assert client.sent.turns.bytes <= most_bytes
    assert client.known < 8


def test_memory_stays_within_bounds_over_many_conversations() -> None:
    client = Client(200_000)
    for seed in range(30):
        grow(client, 6, seed=seed)
        assert client.prompts.turns.bytes <= 200_000
        assert client.sent.turns.bytes <= 200_000
    assert 1 < len(client.sent.turns) < 30


def test_texts_of_values_count_although_only_their_identities_are_compared() -> None:
    client = Client()
    long = Message(role="user", parts=(Text(text="x" * 100_000),))
    said = Message(role="assistant", parts=(Text(text="yes"),))
    client.ask([long, said, long, said, long])
    assert client.sent.turns.bytes > 100_000


def test_a_turn_that_a_caller_changed_is_read_again() -> None:
    client = Client()
    talk = grow(client, 8, "openai/gpt-4o")
    for place in (1, 4, -1):
        talk.turns[place] = {"role": "user", "content": f"another turn {place}"}
        client.ask(talk.turns, "openai/gpt-4o", "anthropic/claude-sonnet-4-5")
    talk.turns[1]["content"] = "the same object with other words"
    client.ask(talk.turns, "openai/gpt-4o", "anthropic/claude-sonnet-4-5")


def test_tools_that_came_before_are_the_same_values() -> None:
    prompts = KnownPrompts(10**6, lambda: 0.0)
    more: ChatOptions = {"tools": TOOLS}
    first, second = (build("m", "hi", more, known=prompts).request for _ in range(2))
    assert first.tools is second.tools
    changed = json.loads(json.dumps(TOOLS))
    changed[0]["function"]["description"] = "other"
    third = build("m", "hi", {"tools": changed}, known=prompts).request
    assert third == build("m", "hi", {"tools": changed}).request
    with pytest.raises(DragomanError):
        build("m", "hi", {"tools": [{}]}, known=prompts)
