"""X-ray in a browser: what is kept, and one request from wire to wire. Plain HTML, no script; everything is escaped."""

from collections.abc import Iterator
from html import escape

from dragoman.gateway.http import HttpResponse
from dragoman.gateway.xray import Xray
from dragoman.jsontypes import Json, format_json

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


def show_list(rows: list[Xray], query: str) -> HttpResponse:
    """`query` goes along with every link: a key in it is the only one a browser can send."""
    if not rows:
        words = "<p>Nothing is kept. Send <code>x-dragoman-xray: 1</code> with a request, or start with --xray N.</p>"
        return _page("X-ray", words)
    tail = f"?{escape(query)}" if query else ""
    lines = [
        f'<tr><td><a href="/xray/{escape(row.id)}{tail}"><code>{escape(row.id)}</code></a></td>'
        f"<td>{escape(row.door)}</td><td>{row.status or 'left'}</td><td>{row.seconds:.3f} s</td>"
        f"<td>{escape(row.upstream)}</td><td>{escape(row.model)}</td><td>{len(row.notes) or ''}</td></tr>"
        for row in rows
    ]
    head = "<tr><th>request<th>door<th>status<th>took<th>upstream<th>model<th>notes</tr>"
    return _page("X-ray", f"<table>{head}{''.join(lines)}</table>")


def show_request(row: Xray) -> HttpResponse:
    return _page(f"X-ray {row.id}", "".join(_sections(row)))


def _sections(row: Xray) -> Iterator[str]:
    way = f"{escape(row.door)} &rarr; {escape(row.upstream or 'nobody')}"
    yield f"<p>{way}, {row.status or 'left'}, {row.seconds} s</p>"
    if row.notes:
        notes = "".join(
            f"<tr><td>{note.kind}</td><td><code>{escape(note.where or '/')}</code></td><td>{escape(note.why)}</td></tr>"
            for note in row.notes
        )
        yield f"<details open><summary>notes</summary><table>{notes}</table></details>"
    yield _section(f"client wire: {row.path}", row.asked)
    yield _section("canonical", row.canonical)
    for attempt in row.attempts:
        yield _section(f"provider wire: {attempt['upstream']}/{attempt['model']}", attempt["sent"])
        said = f"{attempt['status'] or ''} {attempt['failure'] or ''}".strip()
        yield _section(f"provider reply: {said}", attempt["reply"])
    yield _section(f"client reply: {row.status or 'left'}", row.reply)


def _section(title: str, value: Json) -> str:
    text = value if isinstance(value, str) else format_json(value).decode()
    return f"<details open><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _page(title: str, body: str) -> HttpResponse:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    html = f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}"
    return HttpResponse(200, f"{html}</body></html>".encode(), headers=dict(HEADERS))
