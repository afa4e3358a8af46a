"""The law of places: a note points into the body that was sent, and at what it speaks of.

Recorded bodies are converted to every dialect. Every pointer must lead somewhere in the body as it was recorded; only
what was made up may be missing there. To see that it leads to the right thing, each text of a conversation gets a mark
of its own: the body that our encoder writes in the same dialect has the mark where `locate` says it is, and a part that
a note calls dropped is one whose mark is gone. Nor is a mark gone that no note names.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import dragoman
from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DragomanError, pointer
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.messages import Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import Request, Tool
from dragoman.note_places import Place
from dragoman.notes import Note, Notes, flatten, unspell
from dragoman.wire import WireReply
from tests.laws.second.corpus import TRIES
from tests.recorded import Case, cases, needs_corpus

WORDS = [name for name in NAMES if name != "canonical"]
LARGEST = 300_000  # bytes
STREAMS = 1 if os.environ.get("DRAGOMAN_ALL") else 10  # one of so many recorded streams
ELSEWHERE = {
    "mistral--thinking-text-stream-131d10b7": "its older word for what was read from a cache",
    "groq--web_search-thinking-text-stream-870a3661": "its usage stands in x_groq",
    "snowflake--logprobs-thinking-text-stream-5f0c6517": "a reason that it never gave is noted as altered",
}
each = pytest.mark.parametrize("source", WORDS)


def find(body: Any, where: str) -> tuple[bool, Any]:
    """What stands at a JSON pointer, if it leads anywhere."""
    for step in where.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(body, dict) and step in body:
            body = body[step]
        elif isinstance(body, list) and step.isdecimal() and int(step) < len(body):
            body = body[int(step)]
        else:
            return False, None
    return True, body


def leads_nowhere(notes: tuple[Note, ...], body: Any) -> list[Note]:
    return [note for note in notes if note.kind != "invented" and not find(body, note.where)[0]]


def recorded_requests(source: str) -> Iterator[tuple[Case, Any]]:
    for case in cases(source):
        wire = case.request()
        if wire is not None and len(case.read("request.json") or b"") < LARGEST:
            yield case, wire


def tried(work: Callable[[], Any]) -> Any:
    """None where a body is refused: some recorded ones were refused by their provider too."""
    try:
        return work()
    except DragomanError:
        return None


@needs_corpus
@each
def test_every_note_of_a_request_points_into_it(source: str) -> None:
    for case, wire in recorded_requests(source):
        for target in WORDS:
            made = tried(
                lambda: dragoman.convert(wire.body, source=source, to=target, path=wire.path, headers=wire.headers)  # noqa: B023
            )
            if made is not None:
                assert not leads_nowhere(made.notes, wire.body), (case.name, target)


@needs_corpus
@each
def test_every_note_of_a_reply_points_into_it(source: str) -> None:
    for case in cases(source):
        wire = case.reply()
        if wire is None or case.failed or type(wire.body) is not dict:
            continue
        for target in WORDS:
            made = tried(lambda: dragoman.convert_reply(wire.body, source=source, to=target))  # noqa: B023
            if made is not None:
                assert not leads_nowhere(made.notes, wire.body), (case.name, target)
                assert {note.body for note in made.notes} <= {"reply"}


@needs_corpus
@each
def test_every_note_of_a_stream_points_into_the_answer_put_together(source: str) -> None:
    """A stream is no body: a note of it names the place in the answer that its pieces make."""
    for case in [case for case in cases(source)[::STREAMS] if case.name not in ELSEWHERE]:
        for target in WORDS:
            made = TRIES["stream"](case, source, target)
            if made is not None:
                whole, _, notes = made
                assert not leads_nowhere(notes, whole), (case.name, target)


# ---------------------------------------------------------------- marks


class Marks:
    """A mark for every text, with the canonical place it was put at."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}

    def make(self, *place: str | int) -> str:
        mark = f"mark{len(self.places):05}x"
        self.places[mark] = place
        return mark

    def put(self, part: Part, *place: str | int) -> Part:
        match part:
            case Text() | Refusal() | Reasoning() if part.text:
                return replace(part, text=self.make(*place))
            case ToolCall() if load_or_none(part.arguments) is not None:
                return replace(part, arguments=json.dumps({"mark": self.make(*place)}))
            case ToolResult():
                inner = tuple(self.put(p, *place, "parts", k) for k, p in enumerate(part.parts))
                return replace(part, parts=inner)
            case _:
                return part


def load_or_none(text: str) -> object:
    return tried(lambda: load_json(text))


def mark_request(request: Request) -> tuple[Request, Marks]:
    marks = Marks()
    messages = tuple(
        replace(m, parts=tuple(marks.put(part, "messages", i, "parts", j) for j, part in enumerate(m.parts)))
        for i, m in enumerate(request.messages)
    )
    tools = request.tools
    if tools is not None:
        tools = tuple(
            replace(t, description=marks.make("tools", i, "description")) if is_described(t) else t
            for i, t in enumerate(tools)
        )
    return replace(request, messages=messages, tools=tools), marks


def is_described(tool: object) -> bool:
    """A tool that stands in another one is written there as it was, whatever is said of it here."""
    return (
        isinstance(tool, Tool) and bool(tool.description) and not any("~place" in own for own in tool.extras.values())
    )


def mark_reply(reply: Reply) -> tuple[Reply, Marks]:
    marks = Marks()
    choices = tuple(
        replace(c, parts=tuple(marks.put(part, "choices", i, "parts", j) for j, part in enumerate(c.parts)))
        for i, c in enumerate(reply.choices)
    )
    return replace(reply, choices=choices), marks


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, (*place, i))
    elif isinstance(value, str) and "mark" in value:
        yield place, value


def misplaced(body: Any, marks: Marks, locate: Callable[[Place], Place]) -> list[tuple[str, str, str]]:
    """Marks that are found elsewhere than where they are said to be."""
    said = [(place, text) for place, text in leaves(load_json(dump_json(body)))]
    wrong = []
    for mark, canonical in marks.places.items():
        found = [place for place, text in said if mark in text]
        located = locate(canonical)
        if found and not any(place[: len(located)] == located for place in found):
            wrong.append((pointer(canonical), pointer(located), pointer(found[0])))
        if found and not located:
            wrong.append((pointer(canonical), "", pointer(found[0])))
    return wrong


def decoded(source: str, wire: Any) -> Request | None:
    body = json.loads(json.dumps(wire.body))
    again = type(wire)(body=body, path=wire.path, headers=wire.headers)
    return tried(lambda: find_dialect(source).decode_request(again, Notes()))


@needs_corpus
@each
def test_a_part_of_a_request_is_where_it_is_said_to_be(source: str) -> None:
    dialect, seen = find_dialect(source), 0
    for case, wire in recorded_requests(source):
        request = decoded(source, wire)
        if request is not None:
            marked, marks = mark_request(request)
            body = dialect.encode_request(marked, Notes()).body
            assert not misplaced(body, marks, lambda place: dialect.locate_request(marked, place)), case.name  # noqa: B023
            seen += len(marks.places)
    assert seen > 100


@needs_corpus
@each
def test_a_part_of_a_reply_is_where_it_is_said_to_be(source: str) -> None:
    dialect, seen = find_dialect(source), 0
    for case in cases(source):
        wire = case.reply()
        if wire is None or case.failed or type(wire.body) is not dict:
            continue
        reply = tried(lambda: dialect.decode_reply(WireReply(body=json.loads(json.dumps(wire.body))), Notes()))  # noqa: B023
        if reply is not None:
            marked, marks = mark_reply(reply)
            body = dialect.encode_reply(marked, Notes()).body
            assert not misplaced(body, marks, lambda place: dialect.locate_reply(marked, place)), case.name  # noqa: B023
            seen += len(marks.places)
    assert seen > 40


# ---------------------------------------------------------------- after the passes


def parts_dropped(notes: Notes) -> set[str]:
    """Places of whole parts that are gone, and of whole turns."""
    places = {note.canonical for note in notes if note.kind == "dropped"}
    return {place for place in places if place.split("/")[-2:-1] in (["parts"], ["messages"])}


@needs_corpus
@each
@pytest.mark.parametrize("target", WORDS)
def test_what_a_note_calls_dropped_is_what_is_gone(source: str, target: str) -> None:
    there = find_dialect(target)
    for case, wire in recorded_requests(source):
        request = decoded(source, wire)
        if request is None or len(request.messages) < 2:
            continue
        marked, marks = mark_request(request)
        notes = Notes()
        notes.begin("request", find_dialect(source).locate_request, marked)
        made = tried(lambda: there.encode_request(make_legal(marked, there, notes), notes))  # noqa: B023
        if made is None:
            continue
        sent = dump_json(made.body).decode()
        tools = {
            pointer(place) for place in marks.places.values() if place[0] == "tools"
        }  # left out: no call is wanted
        gone, told = parts_dropped(notes), {note.canonical for note in notes if note.kind != "invented"}
        for mark, place in marks.places.items():
            where = pointer(place)
            if any(is_in(where, lost) for lost in gone):
                assert mark not in sent, (case.name, where, "is called dropped, and is there")
            if mark not in sent:
                named = any(is_in(where, holder) for holder in told) or (where in tools and "/tool_choice" in told)
                assert named, (case.name, where, "is gone, and no note names it")


def is_in(where: str, holder: str) -> bool:
    return where == holder or where.startswith(f"{holder}/")


@needs_corpus
@each
def test_every_canonical_place_is_one_of_what_was_read(source: str) -> None:
    for case, wire in recorded_requests(source):
        request = decoded(source, wire)
        if request is None:
            continue
        value = load_json(dump_json(request))
        for target in WORDS:
            made = tried(
                lambda: dragoman.convert(wire.body, source=source, to=target, path=wire.path, headers=wire.headers)  # noqa: B023
            )
            for note in made.notes if made is not None else ():
                head = flatten(unspell(note.canonical))[: 4 if note.canonical.startswith("/messages") else 2]
                if len(head) > 1 and isinstance(head[-1], int):  # a turn, a part of one, or a tool
                    assert find(value, pointer(head))[0], (case.name, target, note)
