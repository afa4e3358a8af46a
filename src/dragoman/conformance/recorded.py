"""The pair table over recorded traffic: every case of a corpus folder from its dialect to each.

The folder is laid out as `cases/<dialect>/<case>/` with `meta.json` and, where they were recorded, `request.json`,
`reply.json` and `stream.sse`, `stream.ndjson` or `stream.json`. A conversion fails when it raises, or when the target's
own reader does not take what came out. Only counts leave this module, never a word of the traffic.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, to_builtins

from dragoman.conformance.pairs import DIALECTS
from dragoman.convert import make_legal
from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.fold import fold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.wire import WireReply, WireRequest

TALK = ("messages", "chat", "responses", "generate")  # endpoints of conversations
OWN = ("opaque", "server")  # parts and tools that only their dialect reads
FREE = ("parameters", "schema", "metadata", "arguments")
ReadBack: TypeAlias = tuple[Request | Reply | Failure, Iterable[Note]]
STREAMS = ("stream.sse", "stream.ndjson", "stream.json")


class Tally(Struct):
    """The results of the cases of one pair."""

    source: str
    target: str
    requests: int = 0
    replies: int = 0
    streams: int = 0
    errors: int = 0
    notes: dict[str, int] = {}  # by kind; "own": notes about features that only the source's dialect has
    values: int = 0  # values in the source, without features that only its dialect has
    kept: int = 0  # how many of them no note calls dropped or altered
    failed: list[str] = []  # the name of each failed case, and its error

    @property
    def cases(self) -> int:
        return self.requests + self.replies + self.streams + self.errors

    @property
    def score(self) -> float:
        """The share of the values that arrived unchanged."""
        return self.kept / self.values if self.values else 1.0


class Case(Struct, frozen=True):
    name: str
    folder: Path
    meta: dict[str, Any]

    def read(self, *files: str) -> bytes | None:
        found = (self.folder / file for file in files)
        return next((path.read_bytes() for path in found if path.exists()), None)

    @property
    def failed(self) -> bool:
        return (self.meta.get("status") or 200) >= 400


def is_corpus(root: Path) -> bool:
    return (root / "cases").is_dir()


def read_cases(root: Path, dialect: str) -> list[Case]:
    """The recorded conversations of a dialect; counting tokens and the like are left out."""
    folder = root / "cases" / dialect
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        case = Case(path.name, path, load_json((path / "meta.json").read_bytes()))
        if case.meta.get("endpoint") in TALK:
            found.append(case)
    return found


def tally_pairs(root: Path, sources: Iterable[str] = DIALECTS, targets: Iterable[str] = DIALECTS) -> list[Tally]:
    targets = tuple(targets)
    tallies = []
    for source in sources:
        cases = read_cases(root, source)
        tallies += [tally_pair(cases, source, target) for target in targets]
    return tallies


def tally_pair(cases: list[Case], source: str, target: str) -> Tally:
    tally = Tally(source, target, notes={}, failed=[])
    for case in cases:
        for kind, run in _conversions(case, source, target):
            setattr(tally, kind, getattr(tally, kind) + 1)
            try:
                value, notes = run()
            except Exception as error:  # any exception is a failure of this case
                tally.failed.append(f"{case.name} ({kind}): {type(error).__name__}: {error}")
            else:
                _count(tally, to_builtins(value), notes)
    return tally


def _count(tally: Tally, value: Any, notes: Iterable[Note]) -> None:
    values = _leaves(value)
    tally.values += values
    for note in notes:
        found = _at(value, note.canonical)
        own = "/extras/" in note.canonical or (isinstance(found, dict) and found.get("kind") in OWN)
        kind = "own" if own else note.kind
        tally.notes[kind] = tally.notes.get(kind, 0) + 1
        if kind in ("dropped", "altered"):
            values -= max(_leaves(found), 1)
    tally.kept += max(values, 0)


def _leaves(value: Any) -> int:
    """How many values there are. A schema counts as one, extras count as none."""
    if isinstance(value, dict):
        if value.get("kind") in OWN:
            return 0
        return sum(1 if key in FREE else _leaves(item) for key, item in value.items() if key != "extras")
    if isinstance(value, list | tuple):
        return sum(map(_leaves, value))
    return 1


def _at(value: Any, where: str) -> Any:
    for step in where.split("/")[1:]:
        if isinstance(value, list | tuple):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value


def _conversions(case: Case, source: str, target: str) -> Iterator[tuple[str, Callable[[], ReadBack]]]:
    asked, answer, stream = case.read("request.json"), case.read("reply.json"), case.read(*STREAMS)
    if asked is not None:
        yield "requests", partial(_request, asked, case, source, target)
    if answer is not None:
        body = load_json(answer)
        if case.failed or (type(body) is dict and body.get("error")):
            yield "errors", partial(_failure, body, case, source, target)
        else:
            yield "replies", partial(_reply, body, source, target)
    if stream is not None and not case.failed:
        yield "streams", partial(_stream, stream, source, target)


def _request(data: bytes, case: Case, source: str, target: str) -> ReadBack:
    headers = {key.lower(): value for key, value in (case.meta.get("request_headers") or {}).items()}
    there, notes = find_dialect(target), Notes()
    wire = WireRequest(body=load_json(data), path=case.meta.get("url_path") or "", headers=headers)
    request = make_legal(find_dialect(source).decode_request(wire, notes), there, notes)
    sent = there.encode_request(request, notes)
    there.decode_request(WireRequest(body=_plain(sent.body), path=sent.path, headers=sent.headers), Notes())
    return request, notes


def _reply(body: Any, source: str, target: str) -> ReadBack:
    there, notes = find_dialect(target), Notes()
    reply = find_dialect(source).decode_reply(WireReply(body=body), notes)
    there.decode_reply(WireReply(body=_plain(there.encode_reply(reply, notes).body)), Notes())
    return reply, notes


def _failure(body: Any, case: Case, source: str, target: str) -> ReadBack:
    there = find_dialect(target)
    failure = find_dialect(source).decode_failure(WireReply(body=body, status=case.meta.get("status") or 400))
    sent = there.encode_failure(failure)
    wire = WireReply(body=_plain(sent.body), status=sent.status, headers=sent.headers)
    if not there.decode_failure(wire).message:
        raise DragomanError("the error has lost its words")
    return failure, ()


def _stream(data: bytes, source: str, target: str) -> ReadBack:
    there, notes = find_dialect(target), Notes()
    decoder, encoder, reader = (
        find_dialect(source).stream_decoder(notes),
        there.stream_encoder(notes),
        there.stream_decoder(Notes()),
    )
    events = [*decoder.feed(data), *decoder.close()]
    wire = encoder.feed(events) + encoder.close()
    before, after = fold(events), fold([*reader.feed(wire), *reader.close()])
    if isinstance(before, Failure) is not isinstance(after, Failure):
        raise DragomanError("a stream that ended well ends in an error, or the other way round")
    return before, notes


def _plain(body: Any) -> Any:
    """The body as plain JSON."""
    return load_json(dump_json(body))
