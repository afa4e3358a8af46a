"""What an upstream sent back, read: whole answers, first words, counts."""

from collections.abc import Mapping

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import Json, load_json
from dragoman.model.events import Event, PartDelta, PartStart, ReplyEnd
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.failures import malformed, unreadable
from dragoman.wire import WireReply

MOST_TOKENS = 10_000_000  # of one reply


def is_whole(headers: Mapping[str, str], dialect: Dialect) -> bool:
    """Whether a stream was asked for and one JSON document came (F22). Gemini's array is a stream."""
    kind = _media_type(headers)
    return kind == "application/json" and dialect.media_type == "text/event-stream" and not dialect.sse_query


def decode_whole(headers: dict[str, str], raw: bytes, dialect: Dialect, notes: Notes, *, as_is: bool) -> Reply:
    """An answer in one piece, also where it is a stream nobody asked for; `as_is`: its bytes go back as they are."""
    kind = _media_type(headers)
    try:
        if kind in ("text/event-stream", "application/x-ndjson") and dialect.media_type == kind:
            decoder = dialect.stream_decoder(notes)
            return fold_events(decoder.feed(raw) + decoder.close())
        body = load_json(raw)
        if as_is and not dialect.stores_replies:  # a stored reply needs what it says
            body = _without_content(body)
        return dialect.decode_reply(WireReply(body=body, headers=headers), notes)
    except (DecodeError, RecursionError) as error:
        raise UpstreamError(unreadable(error)) from error


def _media_type(headers: Mapping[str, str]) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        raise UpstreamError(malformed("the upstream answered with a web page"))
    return kind


def _without_content(body: Json) -> Json:
    """Its bytes go back as they are: only its head, its usage and its finish are of interest to us."""
    for key in ("choices", "content", "candidates"):
        if type(body) is dict and type(body.get(key)) is list and body[key]:
            body[key] = []
    return body


def fold_events(events: list[Event]) -> Reply:
    reply = fold(events)
    if isinstance(reply, Failure):
        raise UpstreamError(reply)
    return reply


def says_something(event: Event) -> bool:
    match event:
        case PartStart(part=Text(text="") | Reasoning(text="") | Refusal(text="")):
            return False
        case PartStart(part=ToolCall()):
            return True
        case PartStart() | PartDelta() | ReplyEnd():
            return True
        case _:
            return False


def count_all(usage: Usage | None) -> int | None:
    if usage is None:
        return None
    counts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
    known = [count for count in counts if count is not None]
    # an upstream may count what it likes: nonsense leaves the reservation as it is (T42)
    return sum(known) if all(0 <= count <= MOST_TOKENS for count in known) else None
