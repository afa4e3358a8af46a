"""Reads what an upstream sent back: whole answers, refusals and how long to wait, first words, token counts."""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import UpstreamCall
from dragoman.failure import Failure
from dragoman.fields import drop_spellings
from dragoman.framing.ndjson import MAX_LINE_BYTES
from dragoman.jsontypes import MOST_VALUES, Json, has_more_values, load_json
from dragoman.learner_rules import REQUESTS_OWN
from dragoman.log_line import own_error
from dragoman.model.events import Event, PartDelta, PartStart, ReplyEnd
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.failures import malformed, unreadable
from dragoman.way_back import StreamReader, mend_reply, read_checked_reply
from dragoman.wire import WireReply

log = logging.getLogger(__name__)
DAY_S = 86400.0
_GO = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_WORDS = re.compile(r"\b(?:re)?try (?:again )?in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)", re.IGNORECASE)
MOST_TOKENS = 10_000_000  # of one reply
MAX_MESSAGE = 2000
_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte-order mark, and blanks


JSON = "application/json"


def is_page(headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "")
    return kind != JSON and kind.lstrip()[:9].lower() == "text/html"


def refuse_form(headers: Mapping[str, str]) -> None:
    """A compressed answer was not asked for, and a web page is no answer."""
    encoding = headers.get("content-encoding", "identity")
    if encoding not in ("", "identity"):
        raise UpstreamError(malformed(f"the upstream's answer is {encoding[:20]}, which was not asked for"))
    if is_page(headers):
        raise UpstreamError(malformed("the upstream answered with a web page"))


def is_document(head: bytes, dialect: Dialect) -> bool | None:
    """Whether one JSON document begins here, and not a stream; None while this cannot be told. The content type is no
    help: servers that answer with a document where a stream was asked for call it anything (F22)."""
    start = head if head[:1] == b"{" else head.lstrip(_BLANK)
    if not start:
        return None
    if dialect.media_type == "text/event-stream":
        return start[:1] == b"{" or (start[:1] == b"[" and not dialect.sse_query)  # Gemini's array is a stream
    line, ended, _ = start.partition(b"\n")
    return not _is_json(line) if ended or len(start) > MAX_LINE_BYTES else None  # the first line of a stream is whole


def may_tell(piece: bytes, dialect: Dialect) -> bool:
    """Whether `is_document` may know more with this piece. To ask it after each piece of a long line costs too much."""
    return bool(piece.strip(_BLANK)) if dialect.media_type == "text/event-stream" else b"\n" in piece


def is_array(head: bytes) -> bool:
    return head.lstrip(_BLANK)[:1] == b"["


def _is_json(line: bytes) -> bool:
    try:
        load_json(line)
    except DecodeError:
        return False
    return True


def decode_whole(
    headers: dict[str, str], raw: bytes, dialect: Dialect, notes: Notes, native: bool = True
) -> tuple[Reply, bool]:
    """A whole answer, and whether its calls were whole. Some servers stream it although no stream was asked for.
    `native`: the client speaks the same dialect."""
    usual = dialect.read_usual_reply(raw) if dialect.read_usual_reply is not None else None
    if usual is not None:  # fast path: usual reply
        notes.begin("reply", dialect.locate_reply)
        return mend_reply(notes.stage(usual), notes)
    try:
        if is_document(raw, dialect) is False:
            reader = StreamReader(dialect, notes)
            return notes.stage(fold_events(reader.feed(raw) + reader.close())), False
        if len(raw) > MOST_VALUES and has_more_values(raw, MOST_VALUES):
            raise DecodeError(f"more than {MOST_VALUES} values")
        body = load_json(raw)
        if b"~" in raw:
            drop_spellings(body)
        if _is_error(body, dialect):
            raise UpstreamError(dialect.decode_failure(WireReply(body=body, headers=headers)))
        if type(body) is dict and dialect.reply_keys and body.keys().isdisjoint(dialect.reply_keys):
            raise DecodeError(f"expected {' or '.join(dialect.reply_keys)}, found neither an answer nor an error")
        if dialect.find_failure is not None and not native and type(body) is dict:
            failure = dialect.find_failure(body)
            if failure is not None:
                raise UpstreamError(failure)
        return read_checked_reply(dialect, WireReply(body=body, headers=headers), notes)
    except (DecodeError, RecursionError) as error:
        raise UpstreamError(unreadable(error)) from error


def take_whole(call: UpstreamCall, reply: Reply, *, whole: bool) -> tuple[Reply, bool]:
    """An answer as the client asked for it, and whether the upstream's bytes may go to the client. `whole`: see
    `decode_whole`."""
    taken = call.take_reply(reply)
    named = bool(reply.id and reply.model) or not call.dialect.reply_id_prefix
    return taken, call.as_is and whole and taken is reply and named


def _is_error(body: Json, dialect: Dialect) -> bool:
    """Some servers send an error under status 200. A reply may have an `error` too, beside its content."""
    if type(body) is list and body:
        body = body[0]
    return type(body) is dict and bool(body.get("error")) and not any(key in body for key in dialect.reply_keys)


def fold_events(events: list[Event]) -> Reply:
    reply = fold(events)
    if isinstance(reply, Failure):
        raise UpstreamError(reply)
    return reply


def read_refusal(dialect: Dialect, status: int, headers: dict[str, str], data: bytes, wall: float) -> Failure:
    """An answer with another status than 2xx. `wall` is the time of day, for hints that are dates."""
    if status < 400:
        words = f"the upstream answered {status}; redirects are not followed"
        return Failure(kind="server_error", status=502, code="upstream_redirect", message=words)
    try:
        body = load_json(data) if data else {}
    except DecodeError:
        body = data.decode("utf-8", "replace") if "html" not in headers.get("content-type", "") else ""
    try:
        failure = dialect.decode_failure(WireReply(body=body, status=status, headers=headers))
    except Exception as error:  # an error's body can be anything; its status is enough to go on
        if not isinstance(error, DecodeError | RecursionError):
            log.warning(own_error("failure_unread", "", error))
        failure = Failure(kind="server_error", status=status, message="")
    message = failure.message[:MAX_MESSAGE] or f"the upstream answered {status}"
    if failure.kind in ("server_error", "unknown", "not_found") and REQUESTS_OWN.search(message):
        failure = replace(failure, kind="invalid_request", status=400)
    return replace(failure, message=message, retry_after_s=_retry_after_s(failure, headers, wall))


def _retry_after_s(failure: Failure, headers: Mapping[str, str], wall: float) -> float | None:
    """The longer one of what the body and the headers say, else what the message says in words."""
    header_s = failure.retry_after_s
    hint = read_hint(headers, wall)
    if hint is None and header_s is None and failure.kind == "rate_limited":
        hint = read_words(failure.message)
    header_s = header_s if header_s is None or header_s <= DAY_S else None
    if hint is not None and failure.kind in ("rate_limited", "overloaded", "server_error"):
        return max(hint, header_s or 0.0)
    return header_s


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
    total = 0
    for count in (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning):
        if count is not None:
            if not 0 <= count <= MOST_TOKENS:
                return None  # counts that make no sense: the reservation stays as it is (T42)
            total += count
    return total


# ---------------------------------------------------------------- how long to wait
# https://www.rfc-editor.org/rfc/rfc9110#name-retry-after. A hint that is negative, no number, longer than a day, in
# the past or a list of several is ignored.


def read_hint(headers: Mapping[str, str], wall: float) -> float | None:
    """Seconds to wait. `wall` is the time of day, for hints that are dates. Header names are in lower case."""
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if name in headers:
            found = _bounded(_number(headers[name]), 1000.0)
            if found is not None:
                return found
    after = headers.get("retry-after")
    if after is not None:
        found = _bounded(_number(after), 1.0)
        if found is None and _number(after) is None:
            found = _until(_http_date(after), wall)
        if found is not None:
            return found
    return _reset(headers, wall)


def _reset(headers: Mapping[str, str], wall: float) -> float | None:
    """When a used-up limit is free again: the longest of those that have nothing left."""
    waits = []
    for what in ("requests", "tokens", "input-tokens", "output-tokens"):
        for prefix in ("x-ratelimit-", "anthropic-ratelimit-"):
            left, reset = _names(prefix, what)
            value = headers.get(reset)
            if value is None or headers.get(left, "0").strip() not in ("0", ""):
                continue
            found = read_duration(value)
            if found is None:
                found = _until(_iso_date(value), wall)
            if found is not None:
                waits.append(found)
    return max(waits, default=None)


def _names(prefix: str, what: str) -> tuple[str, str]:
    if prefix == "x-ratelimit-":  # OpenAI: x-ratelimit-reset-tokens
        return f"{prefix}remaining-{what}", f"{prefix}reset-{what}"
    return f"{prefix}{what}-remaining", f"{prefix}{what}-reset"  # Anthropic


def read_duration(text: str) -> float | None:
    """A Go duration: 6m0s, 20ms, 1h2m3.5s."""
    match = _GO.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, millis = (float(group or 0) for group in match.groups())
    return _bounded(hours * 3600 + minutes * 60 + seconds + millis / 1000, 1.0)


def read_words(message: str) -> float | None:
    """From the message. Google: "Please retry in 47.43s."; OpenAI: "Please try again in 6m0s." """
    match = _WORDS.search(message)
    return read_duration(match[1]) if match is not None else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bounded(value: float | None, unit: float) -> float | None:
    if value is None:
        return None
    seconds = value / unit
    return seconds if 0 <= seconds <= DAY_S else None  # false for a NaN


def _http_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime  # few servers say a date

    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None


def _iso_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _until(when: datetime | None, wall: float) -> float | None:
    if when is None:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = when.timestamp() - wall
    return seconds if 0 < seconds <= DAY_S else None
