"""Where a field of a wire goes, measured: decode bodies that differ in that field alone and see what differs then.

    carried   a canonical field holds the value as it was
    adapted   a canonical field holds it in another form (another word, a sum, JSON text)
    extra     it stays among the extras, as spelling even, or in a part, tool or frame that only this dialect reads
    lost      the canonical value is the same whatever the field says, or encoding does not give it back
    refused   the dialect does not read a body with it

A field with one possible word (`type: message`) is carried when the word is not kept and comes back all the same: the
canonical value says it by what it is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from msgspec import to_builtins

from dragoman.dialects import find_dialect
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, copy_json, dump_json, load_json
from dragoman.model.events import Aside, Event
from dragoman.model.fold import fold
from dragoman.model.messages import Part
from dragoman.model.request import AnyTool
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.fields.inventory import Entry
from tests.fields.samples import ABSENT, Sample, Settings, bodies, field_name, is_constant

FREE = {"parameters", "schema", "metadata"}  # canonical fields that hold any JSON
OWN = {"opaque", "server", "aside"}  # kinds that only their dialect reads
KINDS = {  # of parts, tools and events
    tag
    for union in (Part, AnyTool, Event)
    for member in get_args(union)
    if isinstance(tag := member.__struct_config__.tag, str)
}


class Door(NamedTuple):
    """How to send a section's bodies through a dialect's codec, there and back."""

    dialect: str
    settings: Settings
    decode: Callable[[Any], Any]  # a body -> a canonical value
    encode: Callable[[Any], Any]  # and back
    faithful: Callable[[Any, Any], bool]  # whether what came back says the same as what went in


class Measured(NamedTuple):
    account: str
    to: tuple[str, ...] = ()  # the canonical fields it goes to
    why: str = ""


def measure(entry: Entry, door: Door) -> Measured:
    if field_name(entry.steps) in door.settings.anew:
        return Measured("lost", why="counted anew")
    worst = Measured("refused", why="no sample for it")
    for samples in bodies(entry, door.settings):
        found = _judge(entry, samples, door)
        if found.account not in ("refused", "lost"):
            return found
        worst = found
    return worst


def _judge(entry: Entry, samples: list[Sample], door: Door) -> Measured:
    values = []
    for sample in samples:
        try:
            values.append((sample.value, door.decode(copy_json(sample.body))))
        except DecodeError as error:
            if sample.value is ABSENT and len(values) > 1:
                continue  # it may not be left out
            return Measured("refused", why=str(error))
        if sample.value is not ABSENT:
            after = door.encode(values[-1][1])
            if not door.faithful(sample.body, after):
                return Measured("lost", why=f"{sample.value!r} does not come back: {sample.body} became {after}")
    flat = [(value, dict(_flatten(to_builtins(decoded), door.dialect))) for value, decoded in values]
    if is_constant(entry, door.settings):
        return _judge_constant(entry, flat)
    found = {_compare(one, other) for one, other in pairwise(flat)}
    accounts = {one.account for one in found}
    to = _shortest(place for one in found for place in one.to)
    if "lost" in accounts:
        return Measured("lost", why="two values read the same")
    if len(accounts) == 1:
        return Measured(accounts.pop(), to)
    return Measured("adapted", to)


def _compare(one: tuple[Any, dict[str, Any]], other: tuple[Any, dict[str, Any]]) -> Measured:
    """What differs between two decodings of bodies that differ in one value."""
    (left, before), (right, after) = one, other
    places = [place for place in {**before, **after} if before.get(place, ABSENT) != after.get(place, ABSENT)]
    if not places:
        return Measured("lost")
    # that a list is longer is news only where nothing says what is in it
    telling = [place for place in places if not place.endswith("[]")] or places
    canonical = [place for place in telling if not place.startswith("~")]
    if not canonical:
        return Measured("extra")
    said = [place for place in canonical if _holds(before, place, left) and _holds(after, place, right)]
    return Measured("carried" if said else "adapted", _shortest(map(_plain_place, said or canonical)))


def _holds(flat: dict[str, Any], place: str, value: Any) -> bool:
    while isinstance(value, dict | list):
        value = next(reversed(value.values() if isinstance(value, dict) else value), ABSENT)
    return value is ABSENT or (place in flat and flat[place] == value and type(flat[place]) is type(value))


def _judge_constant(entry: Entry, flat: list[tuple[Any, dict[str, Any]]]) -> Measured:
    """A word that says what it always says: kept as an extra, or implied by the canonical value."""
    word, decoded = flat[0]
    key = field_name(entry.steps)
    if any(place.startswith("~") and place.endswith("." + key) and decoded[place] == word for place in decoded):
        return Measured("extra")
    return Measured("carried")


def _flatten(
    value: Any, dialect: str, place: str = "", *, own: bool = False, spelling: bool = True
) -> Iterator[tuple[str, Any]]:
    """Every leaf of a canonical value under its place. What only its dialect reads stands under `~`."""
    if isinstance(value, dict):
        if not value:
            yield f"{place}", "{}"
        kind = value.get("kind")
        if kind in KINDS and not own:
            place += f"<{kind}>"
            yield ("~" if kind in OWN else "") + f"{place}.", kind
        for key, item in value.items():
            inner = f"{place}.{key}" if place else key
            if own:
                if item is not None:  # a null says nothing
                    yield from _flatten(item, dialect, inner, own=True, spelling=spelling)
            elif key in ("extras", "choice_extras"):
                for extras in item if isinstance(item, list | tuple) else [item]:
                    for name, extra in extras.get(dialect, {}).items():
                        if (name[0] != "~" or spelling) and extra is not None:
                            kept = f"~{inner}.{dialect}.{name}"
                            yield from _flatten(extra, dialect, kept, own=True, spelling=spelling)
            elif kind in OWN:
                yield from _flatten(item, dialect, f"~{inner}", own=True, spelling=spelling)
            else:
                yield from _flatten(item, dialect, inner, spelling=spelling)
    elif isinstance(value, list | tuple):
        for i, item in _numbered(value, apart=place == ""):
            yield from _flatten(item, dialect, f"{place}[{i}]", own=own, spelling=spelling)
        yield f"{place}[]", len(value)
    else:
        yield place, value


def _numbered(items: Sequence[Any], *, apart: bool) -> Iterator[tuple[int, Any]]:
    """Items with their numbers; events each kind for itself, so that one more does not move the others."""
    seen: Counter[str] = Counter()
    for item in items:
        kind = item["kind"] if apart else ""
        yield seen[kind], item
        seen[kind] += 1


def own_places(entry: Entry, door: Door) -> tuple[Any, list[str]]:
    """For a field that stays an extra: a decoded value with it, and the JSON pointers to what says it."""
    for samples in bodies(entry, door.settings):
        try:
            values = [door.decode(copy_json(sample.body)) for sample in samples]
        except DecodeError:
            continue
        flat = [dict(_flatten(to_builtins(value), door.dialect, spelling=False)) for value in values]
        places = [place for place in flat[0] if flat[0][place] != flat[-1].get(place, ABSENT)]
        if len(flat) > 1 and places:
            return values[0], [
                "/" + _pointer(place) for place in places if place.startswith("~") and not place.endswith("[]")
            ]
    return None, []


def _pointer(place: str) -> str:
    return re.sub(r"\[(\d+)\]", r".\1", re.sub(r"<[^<>]*>", "", place[1:])).strip(".").replace(".", "/")


def _plain_place(place: str) -> str:
    """A place without its numbers, cut where a canonical field holds any JSON."""
    words = []
    for word in place.split("."):
        words.append(re.sub(r"\[\d*\]", "[]", word))
        if re.split(r"[\[<]", word)[0] in FREE:
            break
    return ".".join(words).rstrip(".").removeprefix("[]")


def _shortest(places: Iterable[str]) -> tuple[str, ...]:
    """Without the places that lie inside another of them."""
    found = sorted(set(places), key=len)
    return tuple(sorted(p for i, p in enumerate(found) if not any(p != q and p.startswith(q) for q in found[:i])))


# ---------------------------------------------------------------- doors


def request_door(dialect: str, settings: Settings, path: str = "") -> Door:
    spoken = find_dialect(dialect)

    def decode(body: Any) -> Any:
        headers = {key.removeprefix("header:"): body.pop(key) for key in list(body) if key.startswith("header:")}
        return spoken.decode_request(WireRequest(body=body, path=path, headers=headers), Notes())

    def encode(value: Any) -> Any:
        wire = spoken.encode_request(value, Notes())
        return {**wire.body, **{f"header:{key}": text for key, text in wire.headers.items()}}

    return Door(dialect, settings, decode, encode, _says)


def reply_door(dialect: str, settings: Settings) -> Door:
    spoken = find_dialect(dialect)

    def decode(body: Any) -> Any:
        return spoken.decode_reply(WireReply(body=body), Notes())

    def encode(value: Any) -> Any:
        return spoken.encode_reply(value, Notes()).body

    return Door(dialect, settings, decode, encode, _says)


def _says(before: Json, after: Json) -> bool:
    """Whether what came back says all that was said. It may say more: what every body of the dialect says."""
    return _within(before, load_json(dump_json(after)))


def _within(small: Json, large: Json) -> bool:
    if isinstance(small, dict):
        return isinstance(large, dict) and all(key in large and _within(small[key], large[key]) for key in small)
    if isinstance(small, list):
        return isinstance(large, list) and len(small) == len(large) and all(map(_within, small, large))
    return bool(small == large)


def stream_door(dialect: str, settings: Settings, frames: Callable[[Any], bytes]) -> Door:
    """`frames` puts an event where it may stand in a stream."""
    spoken = find_dialect(dialect)

    def decode(body: Any) -> Any:
        decoder = spoken.stream_decoder(Notes())
        return [*decoder.feed(frames(body)), *decoder.close()]

    def encode(events: Any) -> Any:
        encoder = spoken.stream_encoder(Notes())
        return encoder.feed(events) + encoder.close()

    def faithful(before: Any, after: Any) -> bool:
        decoder = spoken.stream_decoder(Notes())
        again = [*decoder.feed(after), *decoder.close()]
        return _told(decode(copy_json(before)), door) == _told(again, door)

    door = Door(dialect, settings, decode, encode, faithful)
    return door


def _told(events: list[Event], door: Door) -> Any:
    """A stream as what it says in the end, and the frames beside it; spelling does not count."""
    asides = [
        {key: value for key, value in event.body.items() if key not in door.settings.anew}
        for event in events
        if isinstance(event, Aside)
    ]
    return dict(_flatten(to_builtins(fold(events)), door.dialect, spelling=False)), asides
