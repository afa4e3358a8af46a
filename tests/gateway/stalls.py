"""How long one request keeps the gateway's loop from all others: the worst legal requests and answers of each kind.

`python -m tests.gateway.stalls` tries each kind at each door with each upstream and prints the longest time that one
step of the loop took, in CPU time of its thread: a busy machine makes that a little longer, and nothing else does.
"""

import gc
import sys
import time
from asyncio import Handle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, TypeAlias

import httpx2

from dragoman.dialects import find_dialect
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.model.fold import unfold
from dragoman.model.messages import Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from tests.gateway.house import House, faultline, open_house, say, stream, upstream
from tests.waiting import NEVER_S, turns

Make: TypeAlias = Callable[[str], JsonObject]
PROMISE_S = 0.05  # "no request holds the loop for more than 50 ms, whatever it is"
DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


class Meter:
    """The longest step of a loop."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.steps = 0

    @contextmanager
    def watch(self, house: House) -> Iterator[None]:
        """The loop of the tests is asyncio's own, which runs each step by `Handle._run`."""
        run, loop, meter = Handle._run, house.loop.loop, self

        def timed(handle: Any) -> None:
            if handle._loop is not loop:
                run(handle)
                return
            began = time.thread_time()
            run(handle)
            meter.steps += 1
            meter.worst_s = max(meter.worst_s, time.thread_time() - began)

        Handle._run = timed  # type: ignore[assignment, method-assign]
        try:
            yield
            house.loop.run(turns(20))  # a request ends after its answer was written
        finally:
            Handle._run = run  # type: ignore[method-assign]


# ---------------------------------------------------------------- requests

SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def talk(door: str, turns: list[tuple[str, list[str]]], tools: Sequence[tuple[str, JsonObject]] = ()) -> JsonObject:
    """A conversation in the words of a door: who says it, and in which pieces."""
    request = Request(model="m", max_output=100)
    wire = find_dialect(door).encode_request(request, Notes()).body
    match door:
        case "gemini":
            roles = {"user": "user", "assistant": "model"}
            said: list[Any] = [{"role": roles[who], "parts": [{"text": t} for t in texts]} for who, texts in turns]
            declared = [{"name": name, "parameters": schema} for name, schema in tools]
            return {**wire, "contents": said, **({"tools": [{"functionDeclarations": declared}]} if tools else {})}
        case "openai_responses":
            kinds = {"user": "input_text", "assistant": "output_text"}
            said = [{"role": w, "content": [{"type": kinds[w], "text": t} for t in texts]} for w, texts in turns]
            functions = [{"type": "function", "name": name, "parameters": schema} for name, schema in tools]
            return {**wire, "input": said, **({"tools": functions} if tools else {})}
        case "anthropic":
            said = [{"role": w, "content": [{"type": "text", "text": t} for t in texts]} for w, texts in turns]
            declared = [{"name": name, "input_schema": schema} for name, schema in tools]
            return {**wire, "messages": said, **({"tools": declared} if tools else {})}
        case _:
            whole = door == "ollama"
            said = [
                {"role": w, "content": "".join(texts) if whole else [{"type": "text", "text": t} for t in texts]}
                for w, texts in turns
            ]
            nested = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in tools]
            return {**wire, "messages": said, **({"tools": nested} if tools else {})}


def ask(door: str, text: str = "hi") -> JsonObject:
    return talk(door, [("user", [text])])


def talk_of(count: int, size: int) -> list[tuple[str, list[str]]]:
    return [("user" if i % 2 == 0 else "assistant", [f"{i} {'lorem ' * (size // 6)}"]) for i in range(count)]


def open_calls(door: str, count: int = 5_000) -> JsonObject:
    """Calls that no result answers: each is mended, and each has a note."""
    said, given = ask(door), dump_json({"a": "x"}).decode()
    match door:
        case "gemini":
            said["contents"] += [
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": "x"}}}]}
            ] * count
        case "openai_responses":
            calls = [
                {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": given} for i in range(count)
            ]
            said["input"] += calls
        case "anthropic":
            used = [{"type": "tool_use", "id": f"c{i}", "name": "f", "input": {"a": "x"}} for i in range(count)]
            said["messages"].append({"role": "assistant", "content": used})
        case _:
            arguments = {"a": "x"} if door == "ollama" else given
            made = [
                {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": arguments}}
                for i in range(count)
            ]
            said["messages"].append({"role": "assistant", "content": "", "tool_calls": made})
    return said


def unknown_keys(door: str) -> JsonObject:
    said = talk(door, [("user", ["x"])] * 9_000)
    for turn in said.get("messages") or said.get("input") or said["contents"]:
        turn |= {f"k{i}": 1 for i in range(15)}
    return said


def key_in_turn(door: str, key: str) -> JsonObject:
    said = ask(door)
    (said.get("messages") or said.get("input") or said["contents"])[0][key] = 1
    return said


def pointing(count: int) -> JsonObject:
    """Definitions that lead to each other: written out they have no end."""
    places = {
        f"d{i}": {
            "type": "object",
            "properties": {"x": {"$ref": f"#/$defs/d{(i + 1) % count}"}, "y": {"$ref": f"#/$defs/d{(i + 2) % count}"}},
        }
        for i in range(count)
    }
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": places}


def branches(count: int) -> JsonObject:
    closed = [
        {"type": "object", "properties": {"k": {"const": i}}, "additionalProperties": False} for i in range(count)
    ]
    return {"type": "object", "properties": {"a": {"anyOf": closed}}}


REQUESTS: dict[str, Make] = {
    "10,000 tools": lambda door: talk(door, [("user", ["x"])], [(f"tool{i}", SCHEMA) for i in range(9_990)]),
    "10,000 tools with names that must change": lambda door: talk(
        door, [("user", ["x"])], [(f"tööl {i % 7}/{i}", SCHEMA) for i in range(9_990)]
    ),
    "300 tools that point": lambda door: talk(
        door, [("user", ["x"])], [(f"t{i}", pointing(20 + i)) for i in range(300)]
    ),
    "a schema of 20,000 branches": lambda door: talk(door, [("user", ["x"])], [("f", branches(20_000))]),
    "30,000 parts": lambda door: talk(door, [("user", ["x"] * 29_000)]),
    "10,000 turns": lambda door: talk(door, talk_of(9_999, 6)),
    "5,000 open calls": open_calls,
    "a history of 1 MB": lambda door: talk(door, talk_of(501, 2_000)),
    "a history of 30 MB": lambda door: talk(door, talk_of(9_999, 3_000)),
    "a text of 30 MB": lambda door: ask(door, "y" * 30_000_000),
    "50,000 stop sequences": lambda door: {
        **ask(door),
        "stop": [f"s{i}" for i in range(50_000)],
        "stop_sequences": [f"s{i}" for i in range(50_000)],
    },
    "200,000 keys": lambda door: {**ask(door), **{f"k{i}": 1 for i in range(190_000)}},
    "130,000 unknown keys of turns": unknown_keys,
    "a key of 20 MB": lambda door: {**ask(door), "k" * 20_000_000: 1},
    "a key of 20 MB in a turn": lambda door: key_in_turn(door, "k" * 20_000_000),
    "400,000 values": lambda door: {**ask(door), "metadata": [[] for _ in range(390_000)]},
    "30,000 required names": lambda door: talk(
        door, [("user", ["x"])], [("f", {**SCHEMA, "required": [f"r{i}" for i in range(30_000)]})]
    ),
}

# ---------------------------------------------------------------- answers


def reply_of(*parts: Any) -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason="stop")),))


REPLIES: dict[str, Callable[[], Reply]] = {
    "short": lambda: reply_of(Text(text="ok")),
    "a text of 3 MB": lambda: reply_of(Text(text="z" * 3_000_000)),
    "2,000 calls": lambda: reply_of(*[ToolCall(id=f"c{i}", name="f", arguments='{"a":"x"}') for i in range(2_000)]),
    "a call with 100,000 values": lambda: reply_of(
        ToolCall(id="c", name="f", arguments='{"a":[%s0]}' % ("[]," * 100_000))
    ),
}


def write_reply(dialect: str, reply: Reply, *, streamed: bool) -> Any:
    """The answer as an upstream of this dialect sends it."""
    spoken = find_dialect(dialect)
    if not streamed:
        return say(200, dump_json(spoken.encode_reply(reply, Notes(), None).body))
    encoder = spoken.stream_encoder(Notes(), None)
    return stream(encoder.feed(list(unfold(reply))) + encoder.close(), kind=spoken.media_type)


# ---------------------------------------------------------------- one try


def post(
    house: House, door: str, body: JsonObject | bytes, *, streamed: bool = False, path: str = ""
) -> httpx2.Response:
    if door == "gemini" and not path:
        path = f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if streamed else 'generateContent'}"
    elif isinstance(body, dict) and door != "gemini" and not path:
        body = {**body, "stream": streamed}
    data = body if isinstance(body, bytes) else dump_json(body)
    headers = {"content-type": "application/json"}
    return httpx2.post(house.url + (path or PATHS[door]), content=data, headers=headers, timeout=NEVER_S)


def longest_step(
    door: str,
    target: str,
    body: JsonObject | bytes,
    *,
    reply: Reply | None = None,
    streamed: bool = False,
    path: str = "",
) -> tuple[float, int]:
    """Seconds, and the status of the answer."""
    script = write_reply(target, reply or REPLIES["short"](), streamed=streamed)
    with faultline(script) as line, open_house(upstream("up", target, line.url, models=("m",))) as house:
        post(house, door, ask(door))  # what is loaded and compiled once
        gc.collect()
        meter = Meter()
        with meter.watch(house):
            status = post(house, door, body, streamed=streamed, path=path).status_code
        return meter.worst_s, status


def main() -> None:
    """Slow: minutes. Words: kinds to try, by a part of their names."""
    words = sys.argv[1:]
    kinds: list[tuple[str, Make, Reply | None]] = [(name, make, None) for name, make in REQUESTS.items()]
    kinds += [(f"answer: {name}", ask, said()) for name, said in REPLIES.items()]
    for name, make, reply in kinds:
        if words and not any(word in name for word in words):
            continue
        for door, target, streamed in product(DIALECTS, DIALECTS, (False, True)):
            worst, status = longest_step(door, target, make(door), reply=reply, streamed=streamed)
            row = f"{worst * 1000:7.1f} ms  {status}  {name}  {door} -> {target}  {'streamed' if streamed else 'whole'}"
            sys.stdout.write(f"{'!' if worst > PROMISE_S else ' '} {row}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
