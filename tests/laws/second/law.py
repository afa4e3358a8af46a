"""The second law: each fact of the source is in the target, or a note names its place."""

import json
import re
from collections.abc import Iterable
from typing import Any

from dragoman.notes import Note
from tests.laws.second.paths import leaves, pointer
from tests.laws.second.reader import CALLS, MEANINGS, Fact, Facts, What, can_read, read_facts

# Places of whole turns: "altered" there speaks of order and borders, and excuses the loss of nothing.
TURN = re.compile(r"/(messages|contents|choices|candidates|output|input)(/\d+(/(content|message|parts))*)?")
CONTAINED = ("text", "thought")  # may be joined with others of their kind
JSON_TEXT = ("result",)
SHARED = (*CONTAINED, *JSON_TEXT, "effort", "show", "citation", "told")  # several of them may be said by one


def lost_facts(source: str, to: str, what: What, body: Any, made: Any, notes: Iterable[Note]) -> list[str]:
    """What the source says, the target does not say, and no note names."""
    told = list(notes)
    here, there = read_facts(source, what, body, source=True), read_facts(to, what, made, source=source == to)
    wanted = [fact for fact in here.known if _can_say(to, what, fact)]
    known = sorted(wanted, key=lambda fact: is_named(fact, here, told))  # what a note names is looked for last
    lost = [*_missing(known, there), *_missing_others(here, made)]
    found = [
        fact for fact in lost if not is_named(fact, here, [note for note in told if _excuses(note, fact, to, what)])
    ]
    return (wrong_sums(there) if source != to else []) + [
        f"{pointer(fact.place)}: {fact.kind} {fact.about} {json.dumps(fact.value)[:80]}" for fact in found
    ]


def _excuses(note: Note, fact: Fact, to: str, what: What) -> bool:
    """A note about a key that only the source has excuses no loss of what the target has a word for. A source that
    no words cite has no place in other dialects."""
    unknown = fact.kind in ("other", "told", "citation") or (fact.kind == "finish" and fact.value not in MEANINGS)
    return "/extras/" not in note.canonical or unknown or not can_read(to, what, fact.kind)


def _can_say(dialect: str, what: What, fact: Fact) -> bool:
    """A word for "there are calls" is wanted only of dialects that have it, one for "other" of none. Ollama finds out
    what a picture is. For sums see `wrong_sums`."""
    if fact.kind == "media_type":
        return dialect != "ollama"
    if (fact.kind, fact.value) == ("finish", "call"):
        return dialect in CALLS
    return fact.kind != "usage total" and (fact.kind, fact.value) != ("finish", "other")


def wrong_sums(facts: Facts) -> list[str]:
    """A total is the sum of what it counts."""
    counts = {fact.kind: fact.value for fact in facts.known if fact.kind.startswith("usage ")}
    total = counts.get("usage total", 0)
    said = counts.get("usage input", 0) + counts.get("usage output", 0)
    return [f"usage: a total of {total} for {said}"] if total and total != said else []


def is_named(fact: Fact, here: Facts, notes: list[Note]) -> bool:
    """Whether a note names it. Of a thought that is told twice one is enough."""
    twice = [other for other in here.known if fact.kind == "thought" and other[:3] == fact[:3]]
    places = [pointer(one.place) for one in (fact, *twice)]
    if fact.place[0] == "tools":
        places += ["/tool_choice", "/toolConfig/functionCallingConfig/mode"]  # "none" is said by sending no tools
    if fact.kind == "moved":
        return any(where == note.where or where.startswith(f"{note.where}/") for note in notes for where in places)
    return any(_names(note, where, fact.kind) for note in notes for where in places)


def _names(note: Note, where: str, kind: str) -> bool:
    if note.kind == "invented" or not note.where:
        return False
    if where == note.where or where.startswith(f"{note.where}/"):
        return note.kind != "altered" or where == note.where or TURN.fullmatch(note.where) is None
    return kind in ("arguments", "schema", "result", "output_schema", "tool_choice") and note.where.startswith(
        f"{where}/"
    )


def _missing(known: list[Fact], there: Facts) -> list[Fact]:
    left: dict[str, list[Fact]] = {}
    for fact in there.known:
        left.setdefault(fact.kind, []).append(fact)
    missing = []
    for fact in known:
        same = next((other for other in left.get(fact.kind, ()) if _is_same(fact, other)), None)
        if fact.kind == "told":  # what a tool of the source's own server did: other targets get it as text
            texts = (*left.get("text", ()), *left.get("told", ()))
            same = same or next((other for other in texts if fact.value.strip() in other.value), None)
        if same is None and fact.kind == "text" and any(fact.value.strip() in o.value for o in left.get("text", ())):
            missing.append(fact._replace(kind="moved"))  # it is there, and another one says it
        elif same is None:
            missing.append(fact)
        elif fact.kind not in SHARED:
            left[fact.kind].remove(same)
    return missing


def _is_same(fact: Fact, other: Fact) -> bool:
    if fact.kind in CONTAINED:
        return fact.about == other.about and fact.value.strip() in other.value
    if fact.kind in JSON_TEXT:
        return "?" in (fact.about, other.about, fact.about == other.about and "?") and _holds(other.value, fact.value)
    if fact.kind == "call":
        return _is_name(other.about, fact.about)
    return _is_name(other.about, fact.about) and bool(fact.value == other.value)


def _is_name(said: str, name: str) -> bool:
    """A namespace may stand before a name."""
    return said == name or said.endswith(f"__{name}")


def _holds(value: Any, part: Any) -> bool:
    """Whether a result has the words of another. A mark for an error may stand before them."""
    said = _scalars(value)
    return all(any(word in other for other in said) for word in _scalars(part) - said)


def _scalars(value: Any) -> set[str]:
    """The words and numbers of a result, however it is wrapped."""
    if not isinstance(value, str):
        return {word for _, leaf in leaves(value) for word in (_scalars(leaf) if type(leaf) is str else (str(leaf),))}
    try:
        inner = json.loads(value)
    except ValueError:
        return {line.strip() for line in value.split("\n")}
    return _scalars(inner) if isinstance(inner, dict | list) else {str(inner)}


def _missing_others(here: Facts, made: Any) -> list[Fact]:
    said = {(str(step), repr(value)) for place, value in leaves(made) for step in place}
    return [fact for fact in here.others if (fact.about, repr(fact.value)) not in said]
