"""Everything that reads foreign bytes, as functions of bytes: each returns, or raises one of our own errors."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from dragoman.dialects import find_dialect
from dragoman.dialects.jsonrpc import decode_calls
from dragoman.errors import DragomanError
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.framing.sse import SseDecoder
from dragoman.gateway.bodies import inflate, load_body
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.settings import RequestLimits
from dragoman.jsontypes import dump_json
from dragoman.mcp.stdio import _parse
from dragoman.model.events import ReplyEnd, ReplyFailed
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from dragoman.upstream.read_reply import decode_whole, read_refusal
from dragoman.wire import WireRequest

Read = Callable[[bytes], object]
WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
CALL = ToolCall(id="call_1", name="look", arguments='{"at": 1}')
ASKED = Request(
    model="m",
    messages=(
        Message(role="system", parts=(Text(text="be"),)),
        Message(role="user", parts=(Text(text="hi 你"),)),
        Message(role="assistant", parts=(CALL,)),
        Message(role="user", parts=(ToolResult(call_id="call_1", parts=(Text(text="ok"),)),)),
    ),
    tools=(Tool(name="look", parameters={"type": "object", "properties": {"at": {"type": "integer"}}}),),
    stream=True,
)
SAID = Reply(
    id="r",
    model="m",
    choices=(Choice(parts=(Text(text="so 你\n"), CALL), finish=Finish(reason="tool_call")),),
    usage=Usage(input=3, output=4),
)
PATHS = {"gemini": "/v1beta/models/m:streamGenerateContent?alt=sse"}


def read_request(name: str) -> Read:
    def read(data: bytes) -> None:
        dialect = find_dialect(name)
        body = load_body(data, RequestLimits())
        request = dialect.decode_request(WireRequest(body=body, path=PATHS.get(name, "/")), Notes())
        for other in WIRES:
            find_dialect(other).encode_request(request, Notes())

    return read


def read_reply(name: str) -> Read:
    def read(data: bytes) -> None:
        reply, _ = decode_whole({}, data, find_dialect(name), Notes())
        for other in WIRES:
            find_dialect(other).encode_reply(reply, Notes())

    return read


def read_stream(name: str) -> Read:
    def read(data: bytes) -> None:
        dialect = find_dialect(name)
        whole = dialect.stream_decoder(Notes())
        events = whole.feed(data) + whole.close()
        if events:
            assert isinstance(events[-1], ReplyEnd | ReplyFailed), "a stream has an end"
            fold(events)  # raises for what is not grammatical
        halves, at = dialect.stream_decoder(Notes()), len(data) // 2
        assert halves.feed(data[:at]) + halves.feed(data[at:]) + halves.close() == events, "any split gives the same"
        for other in WIRES:
            encoder = find_dialect(other).stream_encoder(Notes())
            said = encoder.feed(events) + encoder.close()
            again = find_dialect(other).stream_decoder(Notes())
            again.feed(said)
            again.close()

    return read


def read_settings(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dragoman.toml"
        path.write_bytes(data)
        load_settings(path, {})


def read_failure(data: bytes) -> None:
    for name in WIRES:
        read_refusal(find_dialect(name), 429, {}, data, 0.0)


def read_frames(data: bytes) -> None:
    for decoder in (SseDecoder(), NdjsonDecoder()):
        decoder.feed(data)
        decoder.close()


def inflate_all(data: bytes) -> None:
    for encoding in ("gzip", "deflate", "zstd"):
        try:
            inflate(data, encoding, 100_000)
        except DragomanError:
            continue


def make_targets() -> dict[str, tuple[Read, bytes]]:
    """Name -> how it is read, and a valid text to begin with."""
    found: dict[str, tuple[Read, bytes]] = {
        "frames": (read_frames, b'event: x\ndata: {"a": 1}\n\n: ping\n\n{"b": 2}\n'),
        "json-rpc": (decode_calls, b'[{"jsonrpc":"2.0","id":1,"method":"generate_content","params":{"model":"m"}}]'),
        "mcp": (_parse, b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x","inputSchema":{}}]}}\n'),
        "failure": (read_failure, b'{"error":{"message":"slow down","type":"rate_limit_error","code":429}}'),
        "inflate": (inflate_all, b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        "settings": (read_settings, b'port = 1\n[providers.x]\nkind = "openai"\nkey = "k"\nmodels = ["m"]\n[limits]\n'),
    }
    for name in WIRES:
        dialect = find_dialect(name)
        encoder = dialect.stream_encoder(Notes(), ASKED)
        found[f"{name} request"] = read_request(name), dump_json(dialect.encode_request(ASKED, Notes()).body)
        found[f"{name} reply"] = read_reply(name), dump_json(dialect.encode_reply(SAID, Notes(), ASKED).body)
        found[f"{name} stream"] = read_stream(name), encoder.feed(unfold(SAID)) + encoder.close()
    return found


PIECES = (
    *(b"null", b"{}", b"[]", b'""', b"1e400", b"-1", b"true", b"\xff", b"\x00", b"\\ud800", b"\n\n", b"data: "),
    *(b'"index":0', b'"index":-1', b'"type":"x"', b'"id":null', b"9" * 30, b"[" * 50, b'{"a":' * 50, b"\r", b","),
    *(b":", b"[DONE]", b"event: error\n"),
)


def mutate(data: bytes, dice: Random) -> bytes:
    """One to four changes: a piece out, a piece twice, something odd in, a value in the place of another."""
    for _ in range(dice.randint(1, 4)):
        at, size = dice.randrange(len(data) + 1), dice.choice((0, 1, 2, 5, 20))
        odd = dice.choice((*PIECES, bytes([dice.randrange(256)])))
        new = dice.choice((b"", data[at : at + 30] * 2, odd, odd))
        data = data[:at] + new + data[at + size :]
    return data


def try_read(read: Read, data: bytes) -> str:
    """What is wrong with how these bytes were read; "" if nothing is. Our own errors become words at the edge."""
    began = time.process_time()
    try:
        read(data)
    except (DragomanError, RecursionError):
        pass
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    took = time.process_time() - began
    return f"it took {took:.2f} s" if took > 0.05 + len(data) * 1e-5 else ""
