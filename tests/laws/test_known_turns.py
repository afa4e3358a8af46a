"""A conversation whose turns are known is written as one that is read for the first time: the same bytes and notes.

Conversations come turn by turn, as agents send them: recorded ones, and made ones with edits, other models, other
settings and odd turns on the way. `DRAGOMAN_ALL=1` sends each of them to every server.
"""

import json
import os
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.scope import Scope
from dragoman.gateway.take_in import decode, decode_all_turns, decode_turns
from dragoman.known_turns.history import History, KnownTurns, find_later
from dragoman.known_turns.read import find_cuts
from dragoman.known_turns.settings import KnownSettings
from dragoman.known_turns.tools import KnownTools
from dragoman.upstream.profiles import load_rows
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState
from tests.laws.snapshot.ways import DOORS, request_targets, talks
from tests.recorded import needs_corpus

ALL = bool(os.environ.get("DRAGOMAN_ALL"))
CLIENTS = ("anthropic", "openai_chat")
SERVERS = tuple(target for target in request_targets() if "/" in target)


class Client:
    """One client whose requests are read and written both ways."""

    def __init__(self, dialect: str, most_bytes: int = 10**7) -> None:
        self.known_turns = KnownTurns(most_bytes)
        self.owner = ("key", dialect)
        self.short = 0  # calls that were written without the known turns
        self.read = 0  # requests that were read without them
        self._scope = cast("Scope", _scope(dialect, KnownTools(), KnownSettings()))
        self._forgetful = cast("Scope", _scope(dialect, KnownTools(0), KnownSettings(0)))
        self._states: dict[str, UpstreamState] = {}
        self.now = 0.0

    def ask(self, body: dict[str, Any], *targets: str) -> None:
        raw, path = json.dumps(body).encode(), DOORS[self.owner[1]]
        long = attempt(lambda: decode(self._forgetful, raw, path))
        found = attempt(lambda: self._take_in(raw, path))
        if isinstance(long, str) or isinstance(found, str):
            assert found == long
            return
        assert found.request == long.request
        assert found.raw == long.raw
        for target in targets:
            fast, slow = self._send(found, target), self._send(replace(long, known=None), target)
            assert fast == slow, target

    def _take_in(self, raw: bytes, path: str) -> ClientRequest:
        self.now += 1
        alike = self.known_turns.find_alike(self.owner, raw)
        later = find_later(alike, raw)
        if later is not None:
            find_cuts(later)
        hit = self.known_turns.find(alike, raw, self.now)
        found = None if hit is None else decode_turns(self._scope, raw, path, hit)
        request, history = found or decode_all_turns(self._scope, raw, path)
        if isinstance(history, History):
            self.known_turns.keep(self.owner, history, self.now, instead=None if hit is None else hit.history)
        self.read += request.known is not None
        return request

    def _send(self, asked: ClientRequest, target: str) -> object:
        state = self._states.setdefault(target, make_state(target))
        at = Target(state.spec, target.partition("/")[2])
        call = attempt(lambda: render(asked, state, at, stream=bool(asked.request.stream), refuse=frozenset()))
        if isinstance(call, str):
            return call
        self.short += asked.known is not None and (call.write_long is not None or call.as_is)
        return show(call)


def _scope(dialect: str, known_tools: KnownTools, known_settings: KnownSettings) -> SimpleNamespace:
    gateway = SimpleNamespace(known_tools=known_tools, known_settings=known_settings)
    http = HttpRequest("POST", DOORS[dialect])
    http.unique_id, http.key_id = "u", "key"
    now = SimpleNamespace(settings=SimpleNamespace(limits=RequestLimits()))
    scope = SimpleNamespace(dialect=find_dialect(dialect), http=http, refuse=frozenset(), now=now, state_key=None)
    scope.gateway = gateway
    return scope


def make_state(target: str) -> UpstreamState:
    server = target.partition("/")[0]
    kind, _, dialect = server.partition(":")
    spoken = (dialect,) if dialect else load_rows().kinds[kind].dialects
    return UpstreamState(Upstream(name=kind, kind=kind, dialect=spoken[0], dialects=spoken), lambda: 0.0)


def show(call: UpstreamCall) -> object:
    notes = [(note.kind, note.where, note.why, note.canonical) for note in call.notes]
    undo = call.exchange.undo if call.exchange is not None else None
    return call.path, call.headers, call.body, notes, undo


def attempt(work: Any) -> Any:
    try:
        return work()
    except DragomanError as error:
        return f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- recorded conversations


@needs_corpus
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_recorded_conversation_is_written_alike_turn_by_turn(dialect: str) -> None:
    dice, short = Random(dialect), 0  # noqa: S311  # the same servers in every run
    for case in talks(dialect):
        raw = case.read("request.json")
        body = json.loads(raw) if raw is not None else {}
        turns = body.get("messages")
        if not isinstance(turns, list) or len(turns) < 5:
            continue
        client = Client(dialect)
        servers = SERVERS if ALL else dice.sample(SERVERS, 2)
        for count in range(1, len(turns) + 1):
            if count == len(turns) or turns[count - 1].get("role") != "assistant":
                client.ask({**body, "messages": turns[:count]}, *servers)
        short += client.short
    assert short > 5


# ---------------------------------------------------------------- made conversations


class Talk:
    """A conversation that grows, mostly as an agent's does."""

    def __init__(self, dialect: str, dice: Random) -> None:
        self.chat, self.dice = dialect == "openai_chat", dice
        self.made = 0
        self.turns: list[dict[str, Any]] = []
        if self.chat:
            self.turns.append({"role": "system", "content": "Be brief."})
        self.turns.append({"role": "user", "content": f"Look at file {dice.random()}, please. " * 8})

    def grow(self, odd: float) -> None:
        if self.dice.random() < odd:
            self._add_odd()
        calls = self.dice.choice((0, 1, 1, 1, 2))
        ids = [f"toolu_{self.made + i:03}" for i in range(calls)]
        self.made += calls
        if self.chat:
            self._add_chat(ids)
        else:
            self._add_anthropic(ids)

    def _add_chat(self, ids: list[str]) -> None:
        said = self.dice.choice(("I look.", None)) if ids else "It is fine."
        calls = [{"id": i, "type": "function", "function": {"name": "look", "arguments": '{"path":"a"}'}} for i in ids]
        self.turns.append({"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})})
        self.turns += [{"role": "tool", "tool_call_id": i, "content": f"line {self.made}"} for i in ids]
        if not ids:
            self.turns.append({"role": "user", "content": f"And the next one, number {self.made}?"})

    def _add_anthropic(self, ids: list[str]) -> None:
        said = [{"type": "text", "text": "I look."}] if not ids or self.dice.random() < 0.5 else []
        calls = [{"type": "tool_use", "id": i, "name": "look", "input": {"path": "a"}} for i in ids]
        results = [{"type": "tool_result", "tool_use_id": i, "content": f"line {self.made}"} for i in ids]
        self.turns.append({"role": "assistant", "content": [*said, *calls]})
        self.turns.append({"role": "user", "content": results or f"And the next one, number {self.made}?"})

    def _add_odd(self) -> None:
        """What a cache may stumble over, at the end or anywhere."""
        dice, last = self.dice, self.turns[-1]
        picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        choice = dice.randrange(9)
        if choice == 0:
            self.turns.append({"role": "user", "content": "I forgot something."})
        elif choice == 1:
            del self.turns[dice.randrange(2, len(self.turns)) if len(self.turns) > 2 else -1]
        elif choice == 2 and len(self.turns) > 3:
            self.turns[dice.randrange(1, len(self.turns))] = {"role": "user", "content": f"edited {self.made}"}
        elif choice == 3:
            self.made = max(self.made - 1, 0)  # an id comes twice
        elif choice == 4 and not self.chat:
            last["content"] = [{"type": "image", "source": picture}, {"type": "text", "text": "a picture"}]
        elif choice == 5 and not self.chat and isinstance(last["content"], list):
            last["content"][-1]["cache_control"] = {"type": "ephemeral"}
        elif choice == 6:
            self.turns.append({"role": "system", "content": "Be even briefer."})
        elif choice == 7:
            self.turns.append({"role": "user", "content": " "})
        elif choice == 8 and not self.chat:
            thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
            self.turns.append({"role": "assistant", "content": [thought, {"type": "text", "text": "so"}]})
            self.turns.append({"role": "user", "content": "go on"})


TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def settings(dialect: str, dice: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """What stands before and behind the turns; some of it changes on the way."""
    ahead: dict[str, Any] = {"model": "m", "max_tokens": 4096}
    if dialect == "anthropic":
        tools = [{"name": name, "description": "d", "input_schema": TOOL} for name in ("look", "write it")]
        after: dict[str, Any] = {
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": tools[: dice.choice((1, 1, 2))],
        }
        if dice.random() < 0.2:
            after["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    else:
        after = {"tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": TOOL}}]}
        if dice.random() < 0.2:
            after["response_format"] = {"type": "json_object"}
    if dice.random() < 0.1:
        after.pop("tools")
    return ahead, {**after, "stream": dice.random() < 0.5, "temperature": dice.choice((0.5, 1))}


@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("seed", range(60 if ALL else 12))
def test_a_made_conversation_is_written_alike_turn_by_turn(dialect: str, seed: int) -> None:
    dice = Random(f"{dialect} {seed}")  # noqa: S311  # the same conversations in every run
    client, talk = Client(dialect), Talk(dialect, dice)
    odd = dice.choice((0.0, 0.05, 0.3))
    ahead, after = settings(dialect, dice)
    servers = list(SERVERS) if ALL else dice.sample(SERVERS, 5)
    for _ in range(12):
        client.ask({**ahead, "messages": talk.turns, **after}, *servers)
        talk.grow(odd)
        if dice.random() < 0.1:
            ahead, after = settings(dialect, dice)
        if dice.random() < 0.1 and not ALL:
            servers[0] = dice.choice(SERVERS)
    if not odd:
        assert client.read > 5


def grow(dialect: str, client: Client, turns: int, *servers: str, seed: int = 0) -> Talk:
    talk = Talk(dialect, Random(seed))  # noqa: S311
    ahead, after = settings(dialect, Random(0))  # noqa: S311
    for _ in range(turns):
        client.ask({**ahead, "messages": talk.turns, **after}, *servers)
        talk.grow(0)
    return talk


@pytest.mark.parametrize("dialect", CLIENTS)
def test_the_known_turns_of_a_plain_conversation_are_left_out(dialect: str) -> None:
    client = Client(dialect)
    grow(dialect, client, 10, "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "groq/llama-3")
    assert client.read == 8, "the second request brings the first answer, the third brings turns that are known"
    assert client.short == 3 * 8


@pytest.mark.parametrize("dialect", CLIENTS)
def test_without_room_nothing_is_kept(dialect: str) -> None:
    for most_bytes in (0, 5_000):
        client = Client(dialect, most_bytes)
        grow(dialect, client, 10, "openai/gpt-4o")
        assert client.known_turns.bytes <= most_bytes
        assert client.read < 8


def test_memory_stays_flat_over_many_conversations_and_old_ones_are_forgotten() -> None:
    client = Client("anthropic", 100_000)
    for seed in range(40):
        grow("anthropic", client, 6, seed=seed)
        assert client.known_turns.bytes <= 100_000
    assert 1 < len(client.known_turns) < 40
    client.now += 10_000
    grow("anthropic", client, 3, seed=99)
    assert len(client.known_turns) == 1, "what was used long ago is forgotten"


def test_nothing_is_shared_between_owners() -> None:
    client = Client("anthropic")
    talk = grow("anthropic", client, 6)
    ahead, after = settings("anthropic", Random(0))  # noqa: S311
    raw = json.dumps({**ahead, "messages": talk.turns, **after}).encode()
    known = client.known_turns
    assert known.find(known.find_alike(client.owner, raw), raw, 0.0) is not None
    assert known.find(known.find_alike(("other", "anthropic"), raw), raw, 0.0) is None


def test_the_end_of_a_conversation_may_change_and_the_beginning_is_still_known() -> None:
    client = Client("anthropic")
    talk = grow("anthropic", client, 10, "openai/gpt-4o")
    ahead, after = settings("anthropic", Random(0))  # noqa: S311
    read = client.read
    for number in (-3, 8, 5):
        talk.turns[number] = {"role": talk.turns[number]["role"], "content": "said in another way"}
        client.ask({**ahead, "messages": talk.turns, **after}, "openai/gpt-4o")
    assert client.read >= read + 2


def test_another_list_that_ends_alike_is_not_taken_for_turns() -> None:
    client = Client("anthropic")
    talk, (ahead, _) = Talk("anthropic", Random(3)), settings("anthropic", Random(0))  # noqa: S311
    for stop in (None, None, None, ["a"], None, ["b"]):
        more = {} if stop is None else {"stop_sequences": stop}
        client.ask({**ahead, "messages": talk.turns, **more, "stream": True}, "openai/gpt-4o")
        talk.grow(0)
    assert client.read == 4


def test_the_same_request_again_is_known_but_for_its_last_turn() -> None:
    client = Client("anthropic")
    talk, (ahead, after) = Talk("anthropic", Random(3)), settings("anthropic", Random(0))  # noqa: S311
    for _ in range(5):
        talk.grow(0)
    for _ in range(3):
        client.ask({**ahead, "messages": talk.turns, **after}, "openai/gpt-4o")
    assert client.read == client.short == 2


@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_new_answer_of_which_nothing_is_left_joins_the_turns_around_it(dialect: str) -> None:
    """Its only call has no result, so it is left out, and the user's turns before and behind it become one."""
    client = Client(dialect)
    talk = grow(dialect, client, 8, "openai/gpt-4o")
    ahead, after = settings(dialect, Random(0))  # noqa: S311
    client.ask({**ahead, "messages": talk.turns, **after}, "openai/gpt-4o")
    talk._add_chat(["lost"]) if talk.chat else talk._add_anthropic(["lost"])
    talk.turns[-1] = {"role": "user", "content": "I changed my mind."}
    if not talk.chat:
        talk.turns[-2]["content"] = talk.turns[-2]["content"][-1:]
    else:
        talk.turns[-2]["content"] = None
    client.ask({**ahead, "messages": talk.turns, **after}, *SERVERS[::9], "anthropic/claude-sonnet-4-5")
