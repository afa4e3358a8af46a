"""Gemini's cachedContents: kept here, in front of every request that names it, whoever answers (CLIENTS 17)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types

from dragoman.exchange import HOP
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.testing import Provider, serve
from tests.gateway.house import CANARY, House, faultline, open_house, say, upstream
from tests.gateway.web import get, post, send

UPSTREAMS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
DECLARED = {"name": "Read", "description": "Reads", "parametersJsonSchema": {"type": "object", "properties": {}}}
KEPT: dict[str, Any] = {
    "contents": [{"role": "user", "parts": [{"text": "my name is Ada"}]}, {"role": "model", "parts": [{"text": "ok"}]}],
    "systemInstruction": {"parts": [{"text": "be kind"}]},
    "tools": [{"functionDeclarations": [DECLARED]}],
}
ASK = {"contents": [{"role": "user", "parts": [{"text": "what is my name?"}]}]}


@pytest.fixture(params=UPSTREAMS)
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    with serve(request.param, key=CANARY) as provider:
        yield provider


@pytest.fixture
def house(provider: Provider, request: pytest.FixtureRequest) -> Iterator[House]:
    name = request.node.callspec.params["provider"]
    with open_house(upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=("m",))) as house:
        yield house


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("key", ["cachedContent", "cached_content"])
def test_what_is_named_stands_in_front(provider: Provider, house: House, key: str, stream: bool) -> None:
    made = post(house.url, "/v1beta/cachedContents", {"model": "models/m", **KEPT, "ttl": "60s"}).json
    assert made["name"].startswith("cachedContents/")
    assert made["usageMetadata"]["totalTokenCount"] > 0
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    got = post(house.url, f"/v1beta/models/m:{verb}", {**ASK, key: made["name"]})
    assert "Ada" in got.text
    assert provider.refusals == []
    sent = provider.requests[-1].body.decode()
    assert all(words in sent for words in ("be kind", "my name is Ada", "Read"))
    assert "cachedContents/" not in sent


def test_the_official_client_makes_uses_and_ends_one() -> None:
    with open_house() as house:
        client = genai.Client(api_key="x", http_options=types.HttpOptions(base_url=house.url))
        config = types.CreateCachedContentConfig(system_instruction="be kind", contents="my name is Ada", ttl="60s")
        made = client.caches.create(model="demo", config=config)
        assert made.name
        ask = types.GenerateContentConfig(cached_content=made.name)
        assert "Ada" in (
            client.models.generate_content(model="demo", contents="what is my name?", config=ask).text or ""
        )
        later = client.caches.update(name=made.name, config=types.UpdateCachedContentConfig(ttl="7200s"))
        assert later.expire_time is not None
        assert made.expire_time is not None
        assert later.expire_time > made.expire_time
        assert [cache.name for cache in client.caches.list()] == [made.name]
        client.caches.delete(name=made.name)
        assert get(house.url, f"/v1beta/{made.name}").status == 404
        client.close()


def test_places_are_those_of_the_body_that_the_client_sent() -> None:
    reply = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}).encode()
    seen = {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}  # Chat has no videos: a note
    kept = {**KEPT, "contents": [{"role": "user", "parts": [{"text": "look"}, seen]}, KEPT["contents"][1]]}
    asked: dict[str, Any] = {"role": "user", "parts": [{"text": "and this?"}, seen]}
    with faultline(say(200, reply)) as line, open_house(upstream("c", "openai_chat", line.url, models=("m",))) as house:
        name = post(house.url, "/v1beta/cachedContents", {"model": "m", **kept, "ttl": "60s"}).json["name"]
        bodies: list[dict[str, Any]] = [
            {"contents": [asked]},
            {"contents": asked},
            {"contents": [{**asked, "parts": 3}]},
        ]
        path = "/v1beta/models/m:generateContent"
        each = {HOP: "1"}  # not folded
        listed, single, wrong = (post(house.url, path, {**body, "cachedContent": name}, each) for body in bodies)
    assert [note["where"] for note in json.loads(listed.headers["x-dragoman-notes"])] == [
        "/cachedContent",
        "/contents/0/parts/1",
    ]
    assert "/contents/parts/1" in [note["where"] for note in json.loads(single.headers["x-dragoman-notes"])]
    assert wrong.status == 400
    assert "/contents/0/parts" in wrong.text


def test_a_name_that_is_not_ours_goes_to_its_provider() -> None:
    reply = json.dumps({"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}}]}).encode()
    with faultline(say(200, reply)) as line, open_house(upstream("g", "gemini", line.url, models=("m",))) as house:
        post(house.url, "/v1beta/models/m:generateContent", {**ASK, "cachedContent": "cachedContents/theirs"})
        assert json.loads(line.seen[0].body)["cachedContent"] == "cachedContents/theirs"


def test_it_belongs_to_its_key_and_ends_in_time(tmp_path: Path) -> None:
    keys = SqliteKeyStore(tmp_path / "keys.db")
    one, two = ({"x-goog-api-key": keys.new(name, admin=False)} for name in ("one", "two"))
    with open_house(keys=keys) as house:
        name = post(house.url, "/v1beta/cachedContents", {"model": "demo", **KEPT, "ttl": "100s"}, one).json["name"]
        assert get(house.url, f"/v1beta/{name}", one).status == 200
        assert get(house.url, f"/v1beta/{name}", two).status == 404
        assert get(house.url, "/v1beta/cachedContents", two).json == {}
        assert send(house.url, "DELETE", f"/v1beta/{name}", None, two).status == 404
        wall = house.gateway.wall
        house.gateway.wall = lambda: wall() + 101
        assert get(house.url, f"/v1beta/{name}", one).status == 404
        asked = post(house.url, "/v1beta/models/demo:generateContent", {**ASK, "cachedContent": name}, one)
        assert asked.status == 404
        assert "expired" in asked.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": 3},
        {"model": "demo", "ttl": 60},
        {"model": "demo", "ttl": "soon"},
        {"model": "demo", "contents": 3},
        {"model": "demo", "expireTime": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_what_cannot_be_kept_is_400(body: dict[str, Any]) -> None:
    with open_house() as house:
        assert post(house.url, "/v1beta/cachedContents", body).status == 400
