"""The pair table over recorded traffic: every case of a corpus folder from its dialect to each.

The folder is laid out as `cases/<dialect>/<case>/` with `meta.json` and, where they were recorded, `request.json`,
`reply.json` and `stream.sse`, `stream.ndjson` or `stream.json`. A conversion fails when it raises, or when the target's
own reader does not take what came out. Only counts leave this module, never a word of the traffic.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.conformance.pairs import DIALECTS
from dragoman.convert import StreamConverter, convert, convert_failure, convert_reply
from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.jsontypes import load_json
from dragoman.model.fold import fold
from dragoman.notes import Note, Notes
from dragoman.wire import WireReply, WireRequest

TALK = ("messages", "chat", "responses", "generate")  # endpoints of the conversation itself
STREAMS = ("stream.sse", "stream.ndjson", "stream.json")


class Tally(Struct):
    """What became of the cases of one pair."""

    source: str
    target: str
    requests: int = 0
    replies: int = 0
    streams: int = 0
    errors: int = 0
    whole: int = 0  # cases without a dropped or altered note
    notes: dict[str, int] = {}
    failed: list[str] = []  # the cases, and what went wrong

    @property
    def cases(self) -> int:
        return self.requests + self.replies + self.streams + self.errors

    @property
    def score(self) -> float:
        """The share of cases that lost nothing and changed nothing."""
        return self.whole / self.cases if self.cases else 1.0


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
        case = Case(path.name, path, json.loads((path / "meta.json").read_bytes()))
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
                notes = run()
            except Exception as error:  # whatever it is, it is this case's failure
                tally.failed.append(f"{case.name} ({kind}): {type(error).__name__}: {error}")
                continue
            counts = Counter[str](note.kind for note in notes)
            tally.notes = dict(Counter(tally.notes) + counts)
            tally.whole += not (counts["dropped"] or counts["altered"])
    return tally


def _conversions(case: Case, source: str, target: str) -> Iterator[tuple[str, Callable[[], Iterable[Note]]]]:
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


def _request(data: bytes, case: Case, source: str, target: str) -> Iterable[Note]:
    headers = {key.lower(): value for key, value in (case.meta.get("request_headers") or {}).items()}
    result = convert(data, source=source, to=target, path=case.meta.get("url_path") or "", headers=headers)
    wire = WireRequest(body=load_json(result.json()), path=result.path, headers=result.headers)
    find_dialect(target).decode_request(wire, Notes())
    return result.notes


def _reply(body: Any, source: str, target: str) -> Iterable[Note]:
    result = convert_reply(body, source=source, to=target)
    find_dialect(target).decode_reply(WireReply(body=load_json(result.json())), Notes())
    return result.notes


def _failure(body: Any, case: Case, source: str, target: str) -> Iterable[Note]:
    if type(body) is not dict:
        body = {"error": body}
    result = convert_failure(body, source=source, to=target, status=case.meta.get("status") or 400)
    wire = WireReply(body=load_json(result.json()), status=result.status, headers=result.headers)
    if not find_dialect(target).decode_failure(wire).message:
        raise DragomanError("the error has lost its words")
    return ()


def _stream(data: bytes, source: str, target: str) -> Iterable[Note]:
    converter = StreamConverter(source, target)
    wire = converter.feed(data) + converter.close()
    decoder = find_dialect(target).stream_decoder(Notes())
    fold([*decoder.feed(wire), *decoder.close()])
    return converter.notes
