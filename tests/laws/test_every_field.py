"""Every field of every Struct of `model/`, in every dialect: it comes back, or a note names it, or it is declared.

The fields are read from the Structs, so a new one is tried here at once. A value is tried alone, at every place of
`examples` where its Struct stands: a failure is about that field.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec import Struct

import dragoman.model
from dragoman.convert import make_legal
from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, TextRun
from dragoman.model.fold import GrammarError, fold
from dragoman.model.reply import Reply, Usage, add_usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from tests.laws.compare import is_quiet
from tests.laws.declared import What, unsaid
from tests.laws.derive import Kind
from tests.laws.examples import (
    FAILURE,
    Path,
    at_place,
    change,
    events_for,
    places,
    replies_for,
    requests_for,
    walk,
)
from tests.laws.round_trip import (
    ANSWERED,
    ASKED,
    event_differences,
    legal_differences,
    reply_differences,
    stream_differences,
)
from tests.laws.strategies import usual

Examples: TypeAlias = Callable[[str], tuple[Any, ...]]
few = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


FOLD = "src/dragoman/model/fold.py"
DIALECT = "src/dragoman/dialects/<name>"
TEACH: dict[What, str] = {
    "request": f"Write and read it in {DIALECT}/request.py, or note there that it is dropped",
    "reply": f"Write and read it in {DIALECT}/reply.py, or note there that it is dropped",
    "stream": f"Write and read it in {DIALECT}/stream*.py, or note there that it is dropped; {FOLD} must carry it too",
    "event": f"Write and read it in {DIALECT}/stream*.py, or note there that it is dropped",
    "fold": f"Make it a part of the answer in {FOLD}",
    "failure": f"Write it in {DIALECT}/failure.py",
    "sum": "Add it up in src/dragoman/model/reply.py",
}


def structs() -> list[Kind]:
    """Every Struct of `model/`, and the failure a stream may end with. A run of texts is a shorter spelling of deltas
    that stand here themselves; tests/laws/test_text_runs.py compares the two."""
    modules = [import_module(f"dragoman.model.{module.name}") for module in iter_modules(dragoman.model.__path__)]
    named = [kind for module in modules for kind in vars(module).values()]
    found = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Struct)]
    return [kind for kind in dict.fromkeys(found) if kind not in (Struct, TextRun)]


def fields_in(examples: Examples, *besides: Examples) -> list[Any]:
    """The fields of the Structs that stand in these examples, and not in those, by name."""
    held = kinds_in(examples) - set().union(*map(kinds_in, besides))
    kinds = [kind for kind in structs() if kind in held]
    return [pytest.param(k, name, id=f"{k.__name__}.{name}") for k in kinds for name in k.__struct_fields__]


def kinds_in(examples: Examples) -> set[Kind]:
    return {type(found) for example in examples("parrot") for _, found in walk(example)}


@cache
def values_of(kind: Kind, name: str) -> list[dict[str, Any]]:
    """A few values of a field that are not its default, each with those of the fields that depend on it."""
    drawn: list[dict[str, Any]] = []

    @few
    @given(usual.changes(kind, name))
    def keep(changes: dict[str, Any]) -> None:
        drawn.append(changes)

    keep()
    return drawn


@cache
def spots(examples: Examples, dialect: str, kind: Kind) -> list[tuple[Any, Path]]:
    """Where a Struct stands: examples and places in them. Of turns that are the same in two examples one is enough."""
    found, seen = [], []
    for example in examples(dialect):
        for path in places(example, kind):
            turn = at_place(example, path[:2]) if path else None, path[2:]
            if turn not in seen:
                seen.append(turn)
                found.append((example, path))
    return found


def tries(examples: Examples, dialect: str, kind: Kind, name: str) -> Iterator[tuple[Any, Path, Any]]:
    """An example, a place in it, and the example with another value of the field there."""
    for changes in values_of(kind, name):
        for example, path in spots(examples, dialect, kind):
            changed = change(example, path, changes)
            if changed != example:
                yield example, (*path, name), changed


def find_silent(
    kind: Kind,
    name: str,
    examples: Examples,
    dialects: Mapping[str, Dialect],
    find: Callable[[Any, Path, Dialect], list[str]],
) -> dict[str, str]:
    """The dialects that neither carry a field nor note it, each with an example of what is lost."""
    silent: dict[str, str] = {}
    for dialect, there in dialects.items():
        tried = list(tries(examples, dialect, kind, name))
        assert tried, f"{kind.__name__}.{name}: no value was tried; refine it in tests/laws/strategies.py"
        losses = (loss for _, at, changed in tried for loss in find(changed, at, there))
        first = next(losses, None)
        if first is not None:
            silent[dialect] = first
    return silent


def check(kind: Kind, name: str, what: What, silent: dict[str, str]) -> None:
    """That exactly the declared ones keep silent about a field. The message is what to do."""
    field = f"{kind.__name__}.{name}"
    declared = unsaid(field, what)
    lost = {who: loss for who, loss in silent.items() if who not in declared}
    if lost:
        details = "\n".join(f"    {who}: {loss}" for who, loss in lost.items())
        pytest.fail(
            f"{field}: {', '.join(lost)} neither carry it nor note it ({what}). {TEACH[what]}, or add it to UNSAID in "
            f"tests/laws/declared.py and say why.\n{details}"
        )
    kept = declared - silent.keys()
    if kept:
        pytest.fail(f"{field}: {', '.join(kept)} carry it or note it ({what}): take them out of UNSAID")


@pytest.mark.parametrize(("kind", "name"), fields_in(requests_for))
def test_a_request_loses_no_field_in_silence(kind: Kind, name: str) -> None:
    def find(request: Request, at: Path, there: Dialect) -> list[str]:
        passed = Notes()
        legal = make_legal(request, there, passed)
        return legal_differences(legal, there) + lost_in_passes(request, at, legal, passed)

    check(kind, name, "request", find_silent(kind, name, requests_for, ASKED, find))


def lost_in_passes(request: Request, at: Path, legal: Request, notes: Notes) -> list[str]:
    """A value that is nowhere any more once the passes have been, and of whose place they say nothing."""
    holder = at_place(request, at[:-1])
    name, where = str(at[-1]), "".join(f"/{step}" for step in at)
    value = getattr(holder, name)
    if any(walk(value)) or is_quiet(where, value):
        return []  # what a Struct in it says is tried by itself
    if any(type(found) is type(holder) and getattr(found, name) == value for _, found in walk(legal)):
        return []
    noted = any(is_inside(where, note.where) or is_inside(note.where, where) for note in notes)
    return [] if noted else [f"{where}: {value!r} is lost in the passes"]


def is_inside(where: str, outer: str) -> bool:
    return f"{where}/".startswith(f"{outer}/")


@pytest.mark.parametrize(("kind", "name"), fields_in(replies_for))
def test_a_reply_loses_no_field_in_silence(kind: Kind, name: str) -> None:
    silent = find_silent(kind, name, replies_for, ANSWERED, lambda reply, _, there: reply_differences(reply, there))
    check(kind, name, "reply", silent)


@pytest.mark.parametrize(("kind", "name"), fields_in(replies_for))
def test_a_stream_loses_no_field_in_silence(kind: Kind, name: str) -> None:
    silent = find_silent(kind, name, replies_for, ANSWERED, lambda reply, _, there: stream_differences(reply, there))
    check(kind, name, "stream", silent)


@pytest.mark.parametrize(("kind", "name"), fields_in(events_for, replies_for))
def test_a_stream_loses_no_field_of_an_event_in_silence(kind: Kind, name: str) -> None:
    def find(events: tuple[Event, ...], _: Path, there: Dialect) -> list[str]:
        return [] if fold_or_none(events) is None else event_differences(events, there)

    check(kind, name, "event", find_silent(kind, name, events_for, ANSWERED, find))


@pytest.mark.parametrize(("kind", "name"), fields_in(events_for, replies_for))
def test_fold_reads_every_field_of_an_event(kind: Kind, name: str) -> None:
    check(kind, name, "fold", find_ignored(kind, name, events_for, {"fold": fold_or_none}))


def fold_or_none(events: tuple[Event, ...]) -> Reply | Failure | None:
    try:
        return fold(events)
    except GrammarError:
        return None


@pytest.mark.parametrize("name", Failure.__struct_fields__)
def test_a_failure_is_written_with_every_field(name: str) -> None:
    """An error has no notes: a field that a dialect cannot write is declared."""
    writers = {dialect: there.encode_failure for dialect, there in ANSWERED.items()}
    check(Failure, name, "failure", find_ignored(Failure, name, lambda _: (FAILURE,), writers))


@pytest.mark.parametrize("name", Usage.__struct_fields__)
def test_a_sum_of_usage_has_every_field(name: str) -> None:
    both = {"add_usage": lambda usage: add_usage(usage, Usage(input=1))}
    check(Usage, name, "sum", find_ignored(Usage, name, lambda _: (Usage(output=1),), both))


def find_ignored(
    kind: Kind, name: str, examples: Examples, readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, str]:
    """The readers to whom no value of a field makes a difference."""
    return {
        reader: f"no value of it makes a difference, not even {values_of(kind, name)[0][name]!r}"
        for reader, read in readers.items()
        if all(read(changed) == read(example) for example, _, changed in tries(examples, reader, kind, name))
    }


def test_every_struct_of_the_model_stands_in_an_example() -> None:
    shown = kinds_in(requests_for) | kinds_in(replies_for) | kinds_in(events_for)
    assert [kind.__name__ for kind in structs() if kind not in shown] == []
