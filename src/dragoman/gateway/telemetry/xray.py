"""X-ray: one request from the client's bytes to the provider's and back, for people. Bounded, and without secrets."""

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from dragoman.errors import DecodeError
from dragoman.gateway.http import HttpResponse
from dragoman.gateway.telemetry.xray_frames import convert_frames, convert_whole, split_frames, to_ms
from dragoman.jsontypes import Json, JsonObject, dump_json, format_json, load_json
from dragoman.log_line import hide_secrets
from dragoman.model.request import Request
from dragoman.note_ranks import RANKS
from dragoman.notes import MOST_PLACES, Note, Notes
from dragoman.upstream.attempts import Attempt

KEEP_ON_REQUEST = 50
MAX_BYTES = 256 * 1024
LONGEST_TEXT = 4000
# Each run of letters is looked at once, from its beginning: else a run that is too short is tried from each letter.
_BASE64 = re.compile(r"(?:data:[\w/+.-]++;base64,)?(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{400,}+={0,2}")


class Xray(Struct, kw_only=True):
    """One request, as bytes and values. It becomes text for people only when it is looked at."""

    id: str
    time: float = 0.0  # when it ended
    door: str
    dialect: str = ""  # the client's
    path: str
    model: str = ""
    upstream: str = ""
    raw: bytes | str | None = None  # the client's wire
    request: Request | Callable[[], Request] | str | None = None  # or what reads it
    began: float = 0.0  # by the gateway's clock, as the times of attempts and pieces
    tries: list[Attempt] = []
    sent: bytes | str = b""  # what the client got
    pieces: list[tuple[float, bytes]] = []  # the same, if it came in several, with times
    loop: list[JsonObject] = []  # the calls of an MCP loop
    noted: Notes | tuple[Note, ...] = ()
    status: int = 0
    seconds: float = 0.0

    @property
    def asked(self) -> Json:
        return None if self.raw is None else show(self.raw)

    def read_request(self) -> Request | str | None:
        return self.request() if callable(self.request) else self.request

    @property
    def canonical(self) -> Json:
        request = self.read_request()
        return show(dump_json(to_builtins(request))) if isinstance(request, Request) else request

    @property
    def attempts(self) -> list[JsonObject]:
        """The request and the answer of each attempt."""
        return [show_try(attempt, self.began) for attempt in self.tries]

    @property
    def frames(self) -> JsonObject:
        """A stream as frames with their times, at the provider, in the neutral form and at the client."""
        last = self.tries[-1].times if self.tries and not self.tries[-1].reply else None
        pieces, dialect = (to_ms(last.pieces, self.began), last.dialect) if last is not None else ([], "")
        sent = to_ms(self.pieces, self.began)
        neutral = convert_frames(pieces, dialect) if pieces else convert_frames(sent, self.dialect)
        columns = {
            "provider": split_frames(pieces, dialect),
            "canonical": neutral,
            "client": split_frames(sent, self.dialect),
        }
        return {name: [mask(to_builtins(frame)) for frame in found] for name, found in columns.items()}

    @property
    def reply_canonical(self) -> Json:
        """An unstreamed answer in the neutral form."""
        if self.pieces or (self.status or 400) >= 400:
            return None
        last = self.tries[-1] if self.tries else None
        reply = find_reply(last) if last is not None else b""
        if last is not None and last.times is not None and isinstance(reply, bytes) and reply:
            return mask(convert_whole(reply, last.times.dialect))
        return mask(convert_whole(self.sent, self.dialect)) if isinstance(self.sent, bytes) else None

    @property
    def reply(self) -> Json:
        return show(self.sent)

    @property
    def notes(self) -> Sequence[Note]:
        return self.noted.read(MOST_PLACES, targets=True) if isinstance(self.noted, Notes) else self.noted

    def written(self) -> JsonObject:
        """All of it as JSON, for programs."""
        names = (
            "id",
            "time",
            "door",
            "dialect",
            "path",
            "model",
            "upstream",
            "asked",
            "canonical",
            "attempts",
            "reply",
        )
        notes = [{"rank": note.rank, **to_builtins(note)} for note in self.notes]
        more = ("status", "seconds", "frames", "reply_canonical")
        return {name: getattr(self, name) for name in (*names, *more)} | {"notes": notes, "loop": mask(self.loop)}


def keep(data: bytes) -> bytes | str:
    """A body to be kept: of a long one only its length."""
    return data if len(data) <= MAX_BYTES else say_length(len(data))


def say_length(size: int) -> str:
    return f"[{size} bytes]"


def trim(attempt: Attempt) -> Attempt:
    """Without its long bodies: only their lengths are kept."""
    if len(attempt.body) > MAX_BYTES:
        attempt.body = say_length(len(attempt.body)).encode()
    if len(attempt.reply) > MAX_BYTES:
        attempt.reply = say_length(len(attempt.reply)).encode()
    return attempt


def find_reply(attempt: Attempt) -> bytes | str:
    times = attempt.times
    reply = attempt.reply or (b"".join([data for _, data in times.pieces]) if times is not None else b"")
    return say_length(times.size) if times is not None and times.size and not reply else reply


def show_try(attempt: Attempt, began: float) -> JsonObject:
    """`began`: when the request did. Times are in milliseconds since then."""
    return {
        "upstream": attempt.upstream,
        "model": attempt.model,
        "dialect": attempt.times.dialect if attempt.times is not None else "",
        "status": attempt.status,
        "failure": attempt.failure,
        "sent": show(attempt.body),
        "reply": show(find_reply(attempt)),
        "times": find_phases(attempt, began),
    }


def find_phases(attempt: Attempt, began: float) -> JsonObject | None:
    """When a try began, how long it waited, connected, waited for the first byte, and read; in milliseconds."""
    times = attempt.times
    if times is None:
        return None
    queued = times.began + attempt.waited_s
    end = times.began + attempt.seconds if attempt.seconds is not None else times.ended or queued
    sent = min(times.sent or end, end)
    first = times.pieces[0][0] if times.pieces else times.heard or end
    points = (times.began, queued, sent, min(first, end), end)
    steps = [max(0.0, later - earlier) for earlier, later in itertools.pairwise(points)]
    names = ("queue_ms", "connect_ms", "first_ms", "stream_ms")
    return {
        "start_ms": round((times.began - began) * 1000, 1),
        **{name: round(s * 1000, 1) for name, s in zip(names, steps, strict=True)},
    }


class XrayRing:
    def __init__(self, keep: int) -> None:
        self.always = keep > 0
        self._keep = keep or KEEP_ON_REQUEST
        self._rows: OrderedDict[str, Xray] = OrderedDict()

    def put(self, row: Xray) -> None:
        self._rows[row.id] = row
        while len(self._rows) > self._keep:
            self._rows.popitem(last=False)

    def get(self, request_id: str) -> Xray | None:
        return self._rows.get(request_id)

    def rows(self) -> list[Xray]:
        return list(reversed(self._rows.values()))


def show(data: bytes | str) -> Json:
    """A body for display: parsed if it is JSON, shortened if it is long."""
    data = data if isinstance(data, str) else keep(data)
    if isinstance(data, str):
        return data
    try:
        return mask(load_json(data))
    except DecodeError:
        return mask(data.decode("utf-8", "replace"))
    except RecursionError:  # it was read in fewer calls than it takes to mask it
        return f"{say_length(len(data))}, nested too deeply"


def mask(value: Any) -> Json:
    if isinstance(value, str):
        text = _BASE64.sub(lambda found: f"[{len(found[0])} characters of base64]", value)
        text = hide_secrets(text)
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... [{len(text)} characters]"
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    return value


# ---------------------------------------------------------------- the page: plain HTML, no scripts, values escaped

HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8884; border-radius: .4rem; font-size: 13px; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; }
tr + tr td { border-top: 1px solid #8884; } summary { cursor: pointer; font-weight: 600; margin-top: 1rem; }
code { font-size: 13px; }
"""


def escape(text: str) -> str:
    from html import escape as escape_html  # its table of entities is half a megabyte

    return escape_html(text)


def show_list(rows: list[Xray], query: str) -> HttpResponse:
    """`query` goes along with every link: a key in it is the only one a browser can send."""
    if not rows:
        words = "<p>Nothing is kept. Send <code>x-dragoman-xray: 1</code> with a request, or start with --xray N.</p>"
        return show_page("X-ray", words)
    tail = f"?{escape(query)}" if query else ""
    lines = [
        f'<tr><td><a href="/xray/{escape(row.id)}{tail}"><code>{escape(row.id)}</code></a></td>'
        f"<td>{escape(row.door)}</td><td>{row.status or 'left'}</td><td>{row.seconds:.3f} s</td>"
        f"<td>{escape(row.upstream)}</td><td>{escape(row.model)}</td><td>{len(row.notes) or ''}</td></tr>"
        for row in rows
    ]
    head = "<tr><th>request<th>door<th>status<th>took<th>upstream<th>model<th>notes</tr>"
    return show_page("X-ray", f"<table>{head}{''.join(lines)}</table>")


def show_request(row: Xray) -> HttpResponse:
    return show_page(f"X-ray {row.id}", "".join(_sections(row)))


def _sections(row: Xray) -> Iterator[str]:
    way = f"{escape(row.door)} &rarr; {escape(row.upstream or 'no upstream')}"
    yield f"<p>{way}, {row.status or 'left'}, {row.seconds} s</p>"
    if row.notes:
        notes = "".join(
            f"<tr><td>{note.rank}</td><td>{note.kind}</td><td>{note.body}</td>"
            f"<td><code>{escape(note.where or '/')}</code></td>"
            f"<td><code>{escape(note.canonical or '/')}</code></td><td><code>{escape(note.target)}</code></td>"
            f"<td>{escape(note.why)}</td></tr>"
            for note in sorted(row.notes, key=lambda note: RANKS.index(note.rank))
        )
        columns = ("rank", "kind", "of the", "place in it", "canonical place", "place in the provider's", "why")
        head = f"<tr>{''.join(f'<th>{column}' for column in columns)}</tr>"
        yield f"<details open><summary>notes</summary><table>{head}{notes}</table></details>"
    yield _section(f"client wire: {row.path}", row.asked)
    yield _section("canonical", row.canonical)
    for attempt in row.attempts:
        yield _section(f"provider wire: {attempt['upstream']}/{attempt['model']}", attempt["sent"])
        outcome = f"{attempt['status'] or ''} {attempt['failure'] or ''}".strip()
        yield _section(f"provider reply: {outcome}", attempt["reply"])
    yield _section(f"client reply: {row.status or 'left'}", row.reply)


def _section(title: str, value: Json) -> str:
    text = value if isinstance(value, str) else format_json(value).decode()
    return f"<details open><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def show_page(title: str, body: str) -> HttpResponse:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    html = f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}"
    return HttpResponse(200, f"{html}</body></html>".encode(), headers=dict(HEADERS))
