"""What an answer says, whatever dialect it came in: short enough for a table."""

import json
from typing import Any

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json
from dragoman.model.events import Event
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from tests.dialects.anthropic import grammar as anthropic
from tests.dialects.gemini import grammar as gemini
from tests.dialects.ollama import grammar as ollama
from tests.dialects.openai_chat import grammar as openai_chat
from tests.dialects.openai_responses import grammar as openai_responses

CHAT, RESP, ANTH, GEM, OLL = "openai_chat", "openai_responses", "anthropic", "gemini", "ollama"
CLIENTS = (CHAT, RESP, ANTH, GEM, OLL)
GRAMMARS = {
    CHAT: openai_chat.check_stream,
    RESP: openai_responses.check_stream,
    ANTH: anthropic.check_stream,
    GEM: gemini.check_stream,
    OLL: ollama.check_stream,
}
Said = list[tuple[Any, ...]]


def sse(*frames: Any, done: bool = False) -> bytes:
    made = b"".join(b"data: " + dump_json(frame) + b"\n\n" for frame in frames)
    return made + (b"data: [DONE]\n\n" if done else b"")


def named(*frames: dict[str, Any]) -> bytes:
    """Events with a name, as Anthropic and Responses write them."""
    return b"".join(f"event: {f['type']}\n".encode() + b"data: " + dump_json(f) + b"\n\n" for f in frames)


def lines(*frames: dict[str, Any]) -> bytes:
    return b"".join(dump_json(frame) + b"\n" for frame in frames)


def events_of(dialect: str, data: bytes) -> list[Event]:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    return [*decoder.feed(data), *decoder.close()]


def byte_by_byte(dialect: str, data: bytes) -> list[Event]:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    return [*(event for i in range(len(data)) for event in decoder.feed(data[i : i + 1])), *decoder.close()]


def stream_to(dialect: str, events: list[Event]) -> bytes:
    """The client's bytes, which must keep its grammar (appendix C)."""
    encoder = find_dialect(dialect).stream_encoder(Notes())
    data = encoder.feed(events) + encoder.close()
    GRAMMARS[dialect](data)
    return data


def say(reply: Reply | Failure) -> Said:
    """Thoughts, texts and calls in order, then why it ended."""
    if isinstance(reply, Failure):
        return [("failed", reply.kind)]
    choice = reply.choices[0]
    said: Said = []
    for part in choice.parts:
        match part:
            case Reasoning() if part.text:
                said.append(("thought", part.text))
            case Text() if part.text:
                said.append(("text", part.text))
            case Refusal():
                said.append(("text", part.text))
            case ToolCall():
                said.append(("call", part.name, _load(part.arguments)))
            case _:
                pass
    return [*said, ("end", choice.finish.reason if choice.finish else None)]


def _load(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def count(usage: Usage | None) -> dict[str, int]:
    fields = ("input", "cache_read", "cache_write", "output", "reasoning")
    return {f: value for f in fields if (value := getattr(usage, f, None)) is not None}


def folded(dialect: str, data: bytes) -> Reply | Failure:
    return fold(events_of(dialect, data))
