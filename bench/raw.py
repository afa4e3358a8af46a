"""Raw: the smallest server and client in Python that translate the bench's requests, for `python bench/gateway.py`.

httptools reads, msgspec decodes and encodes, each request is a task. It has no limits, deadlines, keys, log, retries,
checks or notes, and knows only the requests and answers of the bench: what is above it is what a gateway's features
cost. B (gateway.py) is the same translation between uvicorn and aiohttp.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import msgspec

load, dump = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
Body = dict[str, Any]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
REASONS = {stop: reason for reason, stop in STOPS.items()}


# ---------------------------------------------------------------- requests


def to_chat(body: Body) -> Body:
    """An Anthropic request for a Chat server."""
    messages: list[Body] = []
    system = body.get("system")
    if system is not None:
        text = system if type(system) is str else "".join([block["text"] for block in system])
        messages.append({"role": "system", "content": text})
    for turn in body["messages"]:
        content = turn["content"]
        if type(content) is str:
            messages.append({"role": turn["role"], "content": content})
        else:
            _add_blocks(messages, turn["role"], content)
    out: Body = {"model": body["model"], "messages": messages, "max_tokens": body["max_tokens"]}
    if "tools" in body:
        out["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["input_schema"],
                },
            }
            for tool in body["tools"]
        ]
    if body.get("stream"):
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    return out


def _add_blocks(messages: list[Body], role: str, blocks: list[Body]) -> None:
    text, calls = "", []
    for block in blocks:
        if block["type"] == "text":
            text += block["text"]
        elif block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": dump(block["input"]).decode()}
            calls.append({"id": block["id"], "type": "function", "function": function})
        else:
            messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]})
    if calls:
        messages.append({"role": role, "content": text, "tool_calls": calls})
    elif text:
        messages.append({"role": role, "content": text})


def to_anthropic(body: Body) -> Body:
    """A Chat request (of texts) for an Anthropic server."""
    system, messages = "", []
    for message in body["messages"]:
        if message["role"] == "system":
            system += message["content"]
        else:
            messages.append({"role": message["role"], "content": message["content"]})
    out: Body = {"model": body["model"], "messages": messages, "max_tokens": body.get("max_tokens", 4096)}
    if system:
        out["system"] = system
    if "tools" in body:
        out["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
            }
            for tool in body["tools"]
        ]
    if body.get("stream"):
        out["stream"] = True
    return out


# ---------------------------------------------------------------- answers


def from_chat(reply: Body) -> Body:
    choice, usage = reply["choices"][0], reply["usage"]
    return {
        "id": reply["id"],
        "type": "message",
        "role": "assistant",
        "model": reply["model"],
        "content": [{"type": "text", "text": choice["message"]["content"]}],
        "stop_reason": STOPS[choice["finish_reason"]],
        "stop_sequence": None,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def same(body: Body) -> Body:
    return body


Feed = Callable[[bytes], bytes]


def copy_events() -> Feed:
    """A stream in its own dialect: each event is read and written."""
    rest = b""

    def feed(piece: bytes) -> bytes:
        nonlocal rest
        *frames, rest = (rest + piece).split(b"\n\n")
        out = [b"data: %b\n\n" % dump(load(frame[6:])) if frame[6:7] == b"{" else frame + b"\n\n" for frame in frames]
        return b"".join(out)

    return feed


def _event(name: str, body: Body) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dump({"type": name, **body}))


def events_from_chat() -> Feed:
    """Chat's stream as Anthropic's."""
    rest, begun, stop, usage = b"", False, "end_turn", {"output_tokens": 0}

    def start(chunk: Body) -> bytes:
        message = {"id": chunk["id"], "type": "message", "role": "assistant", "model": chunk["model"], "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return _event("message_start", {"message": message}) + _event("content_block_start", block)

    def feed(piece: bytes) -> bytes:
        nonlocal rest, begun, stop, usage
        *frames, rest = (rest + piece).split(b"\n\n")
        out = []
        for frame in frames:
            if frame[6:7] != b"{":
                end = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
                out += [_event("content_block_stop", {"index": 0}), _event("message_delta", end)]
                out.append(_event("message_stop", {}))
                continue
            chunk = load(frame[6:])
            if not begun:
                begun = True
                out.append(start(chunk))
            if chunk.get("usage"):
                usage = {"output_tokens": chunk["usage"]["completion_tokens"]}
            for choice in chunk["choices"]:
                if choice["finish_reason"]:
                    stop = STOPS[choice["finish_reason"]]
                text = choice["delta"].get("content")
                if text:
                    delta = {"index": 0, "delta": {"type": "text_delta", "text": text}}
                    out.append(_event("content_block_delta", delta))
        return b"".join(out)

    return feed


def events_from_anthropic() -> Feed:
    """Anthropic's stream as Chat's."""
    rest, head = b"", {}

    def chunk(delta: Body, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: %b\n\n" % dump({**head, "choices": choices})

    def feed(piece: bytes) -> bytes:
        nonlocal rest, head
        *frames, rest = (rest + piece).split(b"\n\n")
        out = []
        for frame in frames:
            event = load(frame[frame.index(b"data: ") + 6 :])
            match event["type"]:
                case "content_block_delta":
                    out.append(chunk({"content": event["delta"]["text"]}))
                case "message_start":
                    message = event["message"]
                    head = {"id": message["id"], "object": "chat.completion.chunk", "created": 1}
                    head["model"] = message["model"]
                    out.append(chunk({"role": "assistant", "content": ""}))
                case "message_delta":
                    out.append(chunk({}, REASONS[event["delta"]["stop_reason"]]))
                case "message_stop":
                    out.append(b"data: [DONE]\n\n")
        return b"".join(out)

    return feed


# what the client speaks, what the server speaks -> the request, the answer, its stream
WAYS: dict[tuple[str, str], tuple[Callable[[Body], Body], Callable[[Body], Body], Callable[[], Feed]]] = {
    (CHAT, CHAT): (same, same, copy_events),
    (MESSAGES, CHAT): (to_chat, from_chat, events_from_chat),
    (CHAT, MESSAGES): (to_anthropic, same, events_from_anthropic),
}


def find_way(path: str, model: str) -> tuple[str, str]:
    """The models of the bench are called as their dialects."""
    return path, MESSAGES if model == "anthropic" else CHAT


# ---------------------------------------------------------------- HTTP, both ways

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_FIELDS = b"host: h\r\ncontent-type: application/json\r\nauthorization: Bearer x\r\n"
ASK = b"POST %b HTTP/1.1\r\n" + _FIELDS + b"content-length: %d\r\n\r\n%b"


class Server(asyncio.Protocol):
    """One client's connection. Each request is a task."""

    def __init__(self, upstreams: "Upstreams") -> None:
        self.upstreams = upstreams
        self.parser = httptools.HttpRequestParser(self)
        self.transport: Any = None
        self.url, self.pieces = b"", []
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        body, self.pieces = b"".join(self.pieces), []
        self.task = self.upstreams.loop.create_task(self.serve(self.url.decode(), body))

    async def serve(self, path: str, data: bytes) -> None:
        body = load(data)
        way = find_way(path, body["model"])
        request, answer, events = WAYS[way]
        data = dump(request(body))
        upstream = await self.upstreams.take()
        upstream.ask(ASK % (way[1].encode(), len(data), data))
        write = self.transport.write
        if not body.get("stream"):
            data = b"".join([piece async for piece in upstream])
            body_out = dump(answer(load(data)))
            write(JSON_HEAD % (len(body_out), body_out))
        else:
            feed = events()
            write(STREAM_HEAD)
            async for piece in upstream:
                if out := feed(piece):
                    write(b"%x\r\n%b\r\n" % (len(out), out))
            write(b"0\r\n\r\n")
        self.upstreams.idle.append(upstream)


class Upstream(asyncio.Protocol):
    """A connection to the provider. Its answer is read piece by piece: `async for piece in upstream`."""

    def __init__(self, upstreams: "Upstreams") -> None:
        self.upstreams = upstreams
        self.parser = httptools.HttpResponseParser(self)
        self.transport: Any = None
        self.waiter: asyncio.Future[None] | None = None
        self.pieces: list[bytes] = []
        self.ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.upstreams.idle:
            self.upstreams.idle.remove(self)

    def ask(self, data: bytes) -> None:
        self.ended = False
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.ended = True

    def __aiter__(self) -> "Upstream":
        return self

    async def __anext__(self) -> bytes:
        while not self.pieces:
            if self.ended:
                raise StopAsyncIteration
            self.waiter = self.upstreams.loop.create_future()
            await self.waiter
        data, self.pieces = b"".join(self.pieces), []
        return data


class Upstreams:
    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port, self.loop = port, loop
        self.idle: list[Upstream] = []

    async def take(self) -> Upstream:
        if self.idle:
            return self.idle.pop()
        _, made = await self.loop.create_connection(lambda: Upstream(self), "127.0.0.1", self.port)
        return made


async def serve(port: int, provider: int) -> None:
    loop = asyncio.get_running_loop()
    upstreams = Upstreams(provider, loop)
    server = await loop.create_server(lambda: Server(upstreams), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()
