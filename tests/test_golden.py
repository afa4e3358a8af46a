"""Our own cases: what a wire becomes in our form and in every dialect, held as golden files."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.convert import StreamConverter, convert, convert_failure, convert_reply
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.fold import fold
from dragoman.notes import Note, Notes
from dragoman.wire import WireReply, WireRequest

CORPUS = Path(__file__).parent.parent / "corpus"
CASES = sorted(path.parent for path in CORPUS.glob("*/*/case.toml"))
TARGETS = tuple(name for name in NAMES if name != "canonical")


def case_name(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_a_case_comes_out_as_it_was_accepted(case: Path, pytestconfig: pytest.Config) -> None:
    found = look(case)
    golden = case / "golden.json"
    if pytestconfig.getoption("--accept"):
        golden.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert golden.exists(), "no golden file yet: look at what comes out with `pytest --accept`"
    assert found == json.loads(golden.read_text())


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_a_case_says_what_it_is(case: Path) -> None:
    told = tomllib.loads((case / "case.toml").read_text())
    assert told["seen"]
    assert set(told) <= {"seen", "mission", "status", "path"}


def look(case: Path) -> dict[str, Any]:
    source = case.parent.name
    told = tomllib.loads((case / "case.toml").read_text())
    here = find_dialect(source)
    if (file := case / "request.json").exists():
        data, path = file.read_bytes(), told.get("path", "")
        value: Any = here.decode_request(WireRequest(body=load_json(data), path=path), Notes())
        results = {to: convert(data, source=source, to=to, path=path) for to in TARGETS}
    elif (file := case / "reply.json").exists():
        data = file.read_bytes()
        value = here.decode_reply(WireReply(body=load_json(data)), Notes())
        results = {to: convert_reply(data, source=source, to=to) for to in TARGETS}
    elif (file := case / "failure.json").exists():
        data, status = file.read_bytes(), told.get("status", 400)
        value = here.decode_failure(WireReply(body=load_json(data), status=status))
        results = {to: convert_failure(data, source=source, to=to, status=status) for to in TARGETS}
    else:
        return look_at_stream(case, source)
    converted = {to: {"body": plain(result.body), "notes": told_notes(result.notes)} for to, result in results.items()}
    return {"canonical": plain(value), "converted": converted}


def look_at_stream(case: Path, source: str) -> dict[str, Any]:
    (file,) = case.glob("stream.*")
    data = file.read_bytes()
    decoder = find_dialect(source).stream_decoder(Notes())
    found: dict[str, Any] = {"canonical": plain(fold([*decoder.feed(data), *decoder.close()])), "converted": {}}
    for to in TARGETS:
        converter = StreamConverter(source, to)
        text = (converter.feed(data) + converter.close()).decode()
        found["converted"][to] = {"frames": text.splitlines(), "notes": told_notes(converter.notes)}
    return found


def told_notes(notes: Any) -> list[str]:
    return [f"{note.kind} {note.where or '/'}: {note.why}" for note in notes if isinstance(note, Note)]


def plain(value: Any) -> Any:
    return load_json(dump_json(value))
