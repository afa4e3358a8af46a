"""The first law, as a comparison: what comes back equals what went in, minus exactly what the notes name.

Two canonical values are compared as plain data. What a note calls dropped is taken out of the original first (a note
about something that is not there fails); what a note calls altered, invented or repaired may differ in any way. Only a
list of parts is held to more: an altered one may come back in another order and with its texts joined, but with every
part in it that no note of its own names.

Spelling (`~` keys and nulls in extras), the text of JSON arguments and the borders between turns of one role do not
count. Nor does what says no more than its absence would (`declared.QUIET`): to ask for one answer.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from dragoman.jsontypes import dump_json
from dragoman.notes import Note
from tests.laws.declared import QUIET


class Anything:
    def __repr__(self) -> str:
        return "<anything>"


class Altered(list[Any]):
    """Parts that may come back in another order and joined. If some were invented, there may be more of them."""

    more = False


ANYTHING = Anything()
GONE = object()
_QUIET = [(quiet.path.split("/")[1:], quiet.values) for quiet in QUIET]
WORDS = ("text", "refusal", "reasoning")  # kinds of parts that are joined with their neighbours
EMPTIED = object()  # a list all of whose items were dropped: empty or absent, as the default has it


def differences(original: Any, returned: Any, notes: Iterable[Note]) -> list[str]:
    """Where the returned value differs and no note says so; empty when the law holds."""
    expected, found = json.loads(dump_json(original)), json.loads(dump_json(returned))
    called = {**_called(expected), **_called(found)}
    problems: list[str] = []
    for note in notes:
        problem = _apply(expected, note)
        if problem:
            problems.append(problem)
    expected, found = _purge(expected), _purge(found)
    for value in (expected, found):
        for path, values in _QUIET:
            _hush(value, path, values)
        _hush_names(value, called)
    expected, found = _normal(expected), _normal(found)
    _compare(expected, found, "", problems)
    return problems


def is_quiet(where: str, value: Any) -> bool:
    """Whether a value says no more at its place than its absence would."""
    plain = json.loads(dump_json(value))
    paths = [quiet.path.replace("*", "[0-9]+") for quiet in QUIET if plain in quiet.values]
    return any(re.fullmatch(path, where) for path in paths)


def _steps(where: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in where.split("/")[1:]]


def _apply(value: Any, note: Note) -> str | None:
    steps = _steps(note.canonical)
    if not steps:
        return f"a note about everything: {note}"
    holder = value
    for step in steps[:-1]:
        inner = _get(holder, step)
        if inner is ANYTHING or inner is GONE:
            return None  # inside what another note already gave up
        if inner is None:
            if note.kind == "dropped":
                return f"nothing is there: {note}"
            inner = {}  # a default, left out
            holder[step] = inner
        holder = inner
    last = steps[-1]
    there = _get(holder, last)
    if note.kind == "dropped":
        if there is None:
            return f"nothing is there: {note}"
        _set(holder, last, GONE)
    elif last == "parts" and isinstance(there, list) and note.kind in ("altered", "invented"):
        altered = Altered(there)
        altered.more = note.kind == "invented" or getattr(there, "more", False)
        _set(holder, last, altered)
    elif there is not GONE:
        _set(holder, last, ANYTHING)
    return None


def _get(holder: Any, step: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list | tuple):
        return holder[int(step)] if int(step) < len(holder) else None
    return None


def _set(holder: Any, step: str, value: Any) -> None:
    holder[int(step) if isinstance(holder, list) else step] = value


def _hush(holder: Any, path: list[str], values: tuple[Any, ...]) -> None:
    """Take out what stands at a path and says nothing."""
    step, *rest = path
    if step == "*":
        for item in holder if isinstance(holder, list) else ():
            _hush(item, rest, values)
    elif isinstance(holder, dict) and step in holder:
        if rest:
            _hush(holder[step], rest, values)
        elif holder[step] in values:
            del holder[step]


def _parts_of(value: Any) -> list[dict[str, Any]]:
    messages = value.get("messages") if isinstance(value, dict) else None
    turns = [m["parts"] for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    return [part for parts in turns if isinstance(parts, list) for part in parts if isinstance(part, dict)]


def _called(value: Any) -> dict[str, str]:
    return {part["id"]: part["name"] for part in _parts_of(value) if part.get("kind") == "tool_call"}


def _hush_names(value: Any, called: dict[str, str]) -> None:
    """The name of a result says nothing that its call has not said."""
    for part in _parts_of(value):
        if part.get("kind") == "tool_result" and isinstance(part.get("name"), str):
            call_id = part["call_id"]
            if isinstance(call_id, str) and part["name"] == called.get(call_id):
                del part["name"]


def _purge(value: Any) -> Any:
    """Without what was dropped, without spelling, without empty extras; tuples as lists."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if item is GONE:
                continue
            if key == "extras" and isinstance(item, dict):
                item = _purge_extras(item)
                if not item:
                    continue
            kept[key] = _purge(item)
        if isinstance(kept.get("arguments"), str):
            kept["arguments"] = _json_or_text(kept["arguments"])
        return kept
    if isinstance(value, list | tuple):
        kept_items = [_purge(item) for item in value if item is not GONE]
        if isinstance(value, Altered):
            altered = Altered(kept_items)
            altered.more = value.more
            return altered
        return EMPTIED if value and not kept_items else kept_items
    return value


def _purge_extras(extras: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for dialect, keys in extras.items():
        if isinstance(keys, dict):
            silent = keys.get("~silent", ())
            keys = {k: v for k, v in keys.items() if v is not None and v is not GONE and not k.startswith("~")}
            keys = {k: v for k, v in keys.items() if k not in silent}
        if keys:
            kept[dialect] = keys
    return kept


def _json_or_text(text: str) -> Any:
    if not text:
        return {}  # a call without arguments, however it is said
    try:
        return json.loads(text)
    except ValueError:
        return text


def _normal(value: Any) -> Any:
    """Neighbouring turns of one role as the one turn they are."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return value
    joined: list[Any] = []
    for message in value["messages"]:
        if isinstance(message, dict) and message.get("parts") in ([], EMPTIED):
            continue  # a turn that says nothing
        last = joined[-1] if joined else None
        if (
            isinstance(message, dict)
            and isinstance(last, dict)
            and last["role"] == message["role"]
            and isinstance(last.get("parts"), list)
            and isinstance(message.get("parts"), list)
        ):
            extras = {**last.get("extras", {}), **message.get("extras", {})}
            parts = _join(last["parts"], message["parts"])
            joined[-1] = {**last, "parts": parts} | ({"extras": extras} if extras else {})
        else:
            joined.append(message)
    return value | {"messages": joined}


def _join(first: list[Any], second: list[Any]) -> list[Any]:
    """The parts of two turns. Altered ones stay together: see `_spread`."""
    return [*_held(first), *_held(second)]


def _held(parts: list[Any]) -> list[Any]:
    return [parts] if isinstance(parts, Altered) else parts


def _compare(expected: Any, found: Any, where: str, problems: list[str]) -> None:
    if expected is ANYTHING or (expected is EMPTIED and not found):
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            if expected.get(key) is not ANYTHING:
                _compare(expected.get(key), found.get(key), f"{where}/{key}", problems)
    elif isinstance(expected, Altered):
        _compare_altered(expected, found or [], where, problems)
    elif isinstance(expected, list) and isinstance(found, list) and any(isinstance(e, Altered) for e in expected):
        _compare_around(expected, found, where, problems)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for i, (left, right) in enumerate(zip(expected, found, strict=True)):
            _compare(left, right, f"{where}/{i}", problems)
    elif expected != found:
        problems.append(f"{where}: {_short(expected)} became {_short(found)}")


def _compare_around(expected: list[Any], found: list[Any], where: str, problems: list[str]) -> None:
    """Turns of one role, some of them altered. What is before the first and behind the last of these is in order."""
    places = [i for i, item in enumerate(expected) if isinstance(item, Altered)]
    head, tail = places[0], len(expected) - places[-1] - 1
    if len(found) < head + tail:
        problems.append(f"{where}: {_short(expected)} became {_short(found)}")
        return
    _compare(expected[:head], found[:head], where, problems)
    _compare(expected[len(expected) - tail :], found[len(found) - tail :], where, problems)
    middle = Altered(part for item in expected[head : len(expected) - tail] for part in _spread(item))
    middle.more = any(expected[i].more for i in places)
    _compare_altered(middle, found[head : len(found) - tail], where, problems)


def _spread(item: Any) -> list[Any]:
    return item if isinstance(item, Altered) else [item]


# ---------------------------------------------------------------- parts in another order, and joined


def _compare_altered(expected: Altered, found: list[Any], where: str, problems: list[str]) -> None:
    """Each part is there as it was, or its text is in a text of its kind; and nothing is there that was not."""
    left, joined = list(found), []
    for part in [part for part in expected if part is not ANYTHING]:
        same = next((other for other in left if not _differ(part, other)), None)
        if same is not None:
            left.remove(same)
        elif not _says_nothing(part):
            joined.append(part)
    lost = [part for part in joined if not any(_is_in(part, other) for other in left)]
    problems += [f"{where}: {_short(part)} is lost among {_short(found)}" for part in lost]
    if not expected.more and ANYTHING not in expected:
        problems += [f"{where}: {_short(other)} was not there" for other in left if not _is_made_of(other, joined)]


def _differ(expected: Any, found: Any) -> bool:
    problems: list[str] = []
    _compare(expected, found, "", problems)
    return bool(problems)


def _says_nothing(part: Any) -> bool:
    return isinstance(part, dict) and not part.get("text", "?") and not set(part) - {"kind", "text", "extras"}


def _is_in(part: Any, other: Any) -> bool:
    """A text in a joined one, which also has the rest of what the part says."""
    if part.get("kind") not in WORDS or part.get("kind") != other.get("kind"):
        return False
    return part["text"] in other["text"] and all(
        _holds(other.get(key), value) for key, value in part.items() if key != "text"
    )


def _holds(joined: Any, value: Any) -> bool:
    if isinstance(value, list) and isinstance(joined, list):
        return all(any(not _differ(_without_span(v), _without_span(j)) for j in joined) for v in value)
    return not _differ(value, joined)


def _without_span(item: Any) -> Any:
    """A citation in a joined text has another span, or one where it had none."""
    return {key: inner for key, inner in item.items() if key not in ("start", "end")} if type(item) is dict else item


def _is_made_of(other: Any, parts: list[Any]) -> bool:
    rest = other.get("text", "?") if isinstance(other, dict) else "?"
    for part in parts:
        rest = rest.replace(part.get("text", ""), "", 1) if other.get("kind") == part.get("kind") else rest
    return not rest.strip()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."
