"""A request whose settings are known is read as one whose settings are not: the same values, the same errors."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.exchange import ClientRequest
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.scope import Scope
from dragoman.gateway.take_in import decode
from dragoman.jsontypes import dump_json
from dragoman.known_turns.settings import KnownSettings
from dragoman.known_turns.tools import KnownTools
from dragoman.model.request import Request
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import usual_request
from tests.laws.snapshot.ways import DOORS
from tests.recorded import cases, needs_corpus

DIALECTS = ("anthropic", "openai_chat")
SYSTEM = {"system": [{"type": "text", "text": 'say "tools":[] and }', "cache_control": {"type": "ephemeral"}}]}
HEADERS = {"anthropic": {"anthropic-beta": "one"}, "openai_chat": {}}


class Door:
    """Reads requests of one client with what it knows, and without."""

    def __init__(self, name: str, most_bytes: int = 1 << 30) -> None:
        self.dialect, self.path = find_dialect(name), DOORS[name]
        self.known, self.hits = KnownSettings(most_bytes), 0

    def read(self, raw: bytes, headers: dict[str, str] | None = None, key: str = "key") -> object:
        headers = HEADERS[self.dialect.name] if headers is None else headers
        owner = (key, self.dialect.name)
        self.hits += self.known.find(owner, raw, headers, self.dialect) is not None
        found = attempt(self._scope(self.known, headers, key), raw, self.path)
        assert found == attempt(self._scope(KnownSettings(0), headers, key), raw, self.path), raw
        return found

    def _scope(self, known: KnownSettings, headers: dict[str, str], key: str) -> Scope:
        http = HttpRequest("POST", self.path, headers=headers)
        http.unique_id, http.key_id = "u", key
        now = SimpleNamespace(settings=SimpleNamespace(limits=RequestLimits()))
        gateway = SimpleNamespace(known_tools=KnownTools(), known_settings=known)
        scope = SimpleNamespace(dialect=self.dialect, http=http, refuse=frozenset(), now=now, gateway=gateway)
        scope.state_key = None
        return cast("Scope", scope)


def attempt(scope: Scope, raw: bytes, path: str) -> object:
    try:
        return shown(decode(scope, raw, path))
    except DragomanError as error:
        return f"{type(error).__name__}: {error}"


def shown(asked: ClientRequest) -> tuple[Request, object]:
    return asked.request, (asked.notes, asked.raw, asked.headers, asked.same_wire)


def bodies(name: str) -> list[dict[str, Any]]:
    """One request with its members in several orders."""
    body: dict[str, Any] = {"model": "m", **usual_request(name), "max_tokens": 5, "temperature": 0.5}
    body |= SYSTEM if name == "anthropic" else {}
    turns, rest = {"messages": body.pop("messages")}, body
    return [{**rest, **turns}, {**turns, **rest}, {"stream": False, **turns, **rest}]


@pytest.mark.parametrize("name", DIALECTS)
def test_settings_are_known_from_the_third_time_on_with_other_turns(name: str) -> None:
    for body in bodies(name):
        door = Door(name)
        for text in ("one", "two", "three", 'fo,"tools":[]ur'):
            body["messages"] = [*body["messages"], {"role": "user", "content": text}]
            found = door.read(dump_json(body))
            assert not isinstance(found, str)
        assert door.hits == 2


@pytest.mark.parametrize("name", DIALECTS)
def test_near_misses_are_read_alike(name: str) -> None:
    door = Door(name)
    for base in bodies(name):
        for _ in range(3):
            door.read(dump_json(base))
        for body, path, odd in every_bend([base]):
            door.read(dump_json(bend_at(body, path, odd)))
    assert door.hits > 100


@pytest.mark.parametrize("name", DIALECTS)
def test_texts_that_only_begin_and_end_alike_are_read_alike(name: str) -> None:
    dice = Random(name)  # noqa: S311  # the same examples in every run
    for base in bodies(name):
        door, raw = Door(name), dump_json(base)
        for _ in range(3):
            door.read(raw)
        before = door.hits
        for _ in range(400):
            start, end, other = sorted(dice.randrange(len(raw)) for _ in range(3))
            door.read(raw[:start] + dice.choice((b"", raw[start:end], raw[end:other], raw[other:])) + raw[end:])
        for inside in (b',"messages":[]', b',"model":"other"', b',"system":"s"', b"]", b"[]", b'"', b"\\ud83d", b" "):
            for at in range(len(raw)):
                if raw[at : at + 1] in b'],"':
                    door.read(raw[:at] + inside + raw[at:])
        assert door.hits > before + 100


def test_with_other_headers_or_another_key_nothing_is_known() -> None:
    door, raw = Door("anthropic"), dump_json(bodies("anthropic")[0])
    for _ in range(3):
        door.read(raw)
    assert door.hits == 1
    door.read(raw, {"anthropic-beta": "two", "anthropic-version": "2023-06-01"})
    door.read(raw, key="another")
    assert door.hits == 1


@needs_corpus
@pytest.mark.parametrize("name", DIALECTS)
def test_recorded_requests_are_read_alike(name: str) -> None:
    door = Door(name)
    for raw in [data for case in cases(name) if (data := case.read("request.json")) is not None]:
        for _ in range(3):
            door.read(raw)
    assert door.hits > 20


def test_too_many_settings_are_forgotten() -> None:
    door = Door("openai_chat", 3_000)
    raws = [dump_json({**bodies("openai_chat")[0], "user": str(i) * 500}) for i in range(8)]
    for raw in raws:
        for _ in range(3):
            door.read(raw)
        assert door.known.bytes <= 3_000
    assert door.hits == len(raws)
    before = door.hits
    door.read(raws[0])
    assert door.hits == before
