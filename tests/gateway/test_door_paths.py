"""Every door by every spelling of its path that clients use, and what HEAD and OPTIONS say there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.gateway.client_connection import read_target
from dragoman.gateway.routes.table import RouteTable
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.gateway.house import House, open_house
from tests.gateway.web import get, post, send

HI = [{"role": "user", "content": "say hi"}]
CHAT = {"model": "demo", "messages": HI}
CONTENTS = {"contents": [{"parts": [{"text": "say hi"}]}]}

# What stands behind the version -> a body for it.
VERSIONED: dict[str, Any] = {
    "chat/completions": CHAT,
    "responses": {"model": "demo", "input": "say hi"},
    "messages": {**CHAT, "max_tokens": 9},
    "messages/count_tokens": CHAT,
    "embeddings": {"model": "demo", "input": "hi"},
}
SPELLINGS = (
    "/v1/{}",
    "/v1/{}/",
    "//v1//{}",
    "/v1/v1/{}",
    "/v1/v1/v1/{}",
    "/{}",
    "/{}/",
    "/api/v1/{}",
    "/openai/v1/{}",
    "/openai/{}",
    "/v1beta/openai/{}",
    "/anthropic/v1/{}",
    "/anthropic/{}",
    "/v1/{}?api-version=2026-01-01&beta=true",
)
GEMINI = (
    "/v1beta/models/demo:{}",
    "/v1/models/demo:{}",
    "/v1alpha/models/demo:{}",
    "/v1beta1/models/demo:{}",
    "/v1beta/v1beta/models/demo:{}",
    "//v1beta//models/demo:{}",
    "/v1beta/models/demo:{}/",
    "/v1beta/models/demo:latest:{}",
    "/v1beta/models/demo/demo:{}",
    "/v1beta/tunedModels/demo:{}",
    "/v1/projects/p/locations/l/publishers/google/models/demo:{}",
)
OLLAMA: dict[str, Any] = {
    "chat": {**CHAT, "stream": False},
    "generate": {"model": "demo", "prompt": "say hi", "stream": False},
    "show": {"model": "demo"},
    "embed": {"model": "demo", "input": "hi"},
    "embeddings": {"model": "demo", "prompt": "hi"},
}


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with open_house(aliases={"other/name": ("demo",)}) as house:
        yield house


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", VERSIONED)
def test_a_versioned_door_is_found_however_it_is_spelled(path: str, spelling: str, house: House) -> None:
    got = post(house.url, spelling.format(path), VERSIONED[path])
    assert got.status == 200, got.text


@pytest.mark.parametrize("spelling", GEMINI)
def test_a_gemini_door_is_found_however_it_is_spelled(spelling: str, house: House) -> None:
    for verb in ("generateContent", "countTokens", "streamGenerateContent", "embedContent"):
        body = {"content": {"parts": [{"text": "hi"}]}} if verb == "embedContent" else CONTENTS
        got = post(house.url, spelling.format(verb), body)
        assert got.status == 200, (verb, got.text)


@pytest.mark.parametrize("spelling", ["/api/{}", "/api/{}/", "//api//{}"])
@pytest.mark.parametrize("path", OLLAMA)
def test_an_ollama_door_is_found_however_it_is_spelled(path: str, spelling: str, house: House) -> None:
    assert post(house.url, spelling.format(path), OLLAMA[path]).status == 200


def test_azures_clients_name_a_deployment_in_the_path(house: House) -> None:
    path = "/openai/deployments/demo/chat/completions?api-version=2026-01-01"
    assert post(house.url, path, CHAT, {"api-key": "x"}).json["choices"]


LISTS = ("/v1/models", "/models", "/v1/v1/models/", "/openai/v1/models", "/v1beta/models", "/v1beta/openai/models")
READ = (*LISTS, "/", "/api/tags", "/api/version", "/api/ps", "/v1/models/demo", "/v1/models/other/name", "/healthz")


@pytest.mark.parametrize("path", READ)
def test_head_says_what_get_says_without_its_body(path: str, house: House) -> None:
    head, whole = send(house.url, "HEAD", path), get(house.url, path)
    assert (head.status, whole.status, head.body) == (200, 200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/chat/completions", "POST, OPTIONS"),
        ("/chat/completions/", "POST, OPTIONS"),
        ("/v1/responses", "GET, POST, OPTIONS"),
        ("/v1/responses/resp_1", "GET, DELETE, OPTIONS"),
        ("/v1/messages", "POST, OPTIONS"),
        ("/v1beta/models/demo:generateContent", "GET, HEAD, POST, OPTIONS"),
        ("/v1/models", "GET, HEAD, OPTIONS"),
        ("/api/chat", "POST, OPTIONS"),
        ("/api/tags", "GET, HEAD, OPTIONS"),
        ("/generate", "POST, OPTIONS"),
        ("/v1beta/cachedContents/x", "GET, PATCH, DELETE, OPTIONS"),
    ],
)
def test_options_and_a_wrong_method_say_what_may_be_done(path: str, allowed: str, house: House) -> None:
    asked = send(house.url, "OPTIONS", path)
    assert (asked.status, asked.headers["allow"]) == (204, allowed)
    wrong = send(house.url, "PUT", path, b"{}")
    assert (wrong.status, wrong.headers["allow"] + ", OPTIONS") == (405, allowed)


@pytest.mark.parametrize("path", ["/v1/nothing", "/v2/chat/completions", "/openai", "/anthropic", "/v1", "/api"])
def test_what_is_not_there_is_404_in_words(path: str, house: House) -> None:
    got = post(house.url, path, CHAT)
    assert got.status == 404
    assert path in got.text


def test_the_nearest_address_and_the_right_method_are_named(house: House) -> None:
    got = post(house.url, "/v1/message", CHAT)
    assert "there is nothing at /v1/message; did you mean /v1/messages?" in got.text
    error = post(house.url, "/v1/chat/completion", CHAT).json["error"]
    assert (error["code"], "did you mean /v1/chat/completions?" in error["message"]) == ("unknown_url", True)
    assert "this path takes POST, not GET" in get(house.url, "/v1/chat/completions").text


SHAPES: dict[str, tuple[str, dict[str, str]]] = {
    "openai": ("/v1/models", {}),
    "anthropic": ("/v1/models", {"anthropic-version": "2023-06-01"}),
    "gemini": ("/v1beta/models", {}),
    "gemini by its header": ("/v1/models", {"x-goog-api-client": "google-genai-sdk/1"}),
    "ollama": ("/api/tags", {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_aliases_are_in_every_list_of_models(shape: str, house: House) -> None:
    path, headers = SHAPES[shape]
    listed = get(house.url, path, headers).json
    rows = listed.get("data") or listed["models"]
    names = [(row.get("id") or row["name"]).removeprefix("models/") for row in rows]
    assert names == ["demo", "other/name"]


def test_codex_is_told_at_once_that_there_is_no_compaction(house: House) -> None:
    """FIELD-CASES 148: a 404 that names the feature, and Codex compacts by itself."""
    got = post(house.url, "/v1/responses/compact", {"model": "demo", "input": HI})
    assert got.status == 404
    assert "compact" in json.dumps(got.json["error"]["message"])


@pytest.mark.parametrize(
    ("spelled", "model"),
    [
        ("/v1beta/models/fr/basic", "fr/basic"),
        ("/v1beta/models/fr%2Fbasic", "fr/basic"),
        ("/v1beta/models/openrouter/google/gemini-2.5-flash", "openrouter/google/gemini-2.5-flash"),
        ("/v1beta/models/ollama/qwen3:8b", "ollama/qwen3:8b"),
        ("/v1beta/fr/basic", "fr/basic"),  # @ai-sdk/google
        ("/v1beta/openai/gpt-5", "openai/gpt-5"),  # the path of Google's own OpenAI door, and no door
        ("/v1beta/openrouter/google/gemini-2.5-flash", "openrouter/google/gemini-2.5-flash"),
        ("/v1/publishers/google/models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("/v1/projects/p/locations/l/publishers/google/models/fr/basic", "fr/basic"),
        ("/v1beta/tunedModels/mine", "tunedModels/mine"),
    ],
)
@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent", "countTokens", "embedContent"])
def test_a_gemini_path_keeps_the_name_of_the_upstream(spelled: str, model: str, verb: str) -> None:
    path, query = read_target(f"{spelled}:{verb}?alt=sse".encode())
    match = RouteTable().find("POST", path)
    assert match is not None
    dialect = match.route.dialect
    wire = WireRequest(path=match.path(query), body={"contents": [], "content": {"parts": [{"text": "hi"}]}})
    if verb == "embedContent":
        assert dialect.embeddings is not None
        assert dialect.embeddings.decode_request(wire).model == model.removeprefix("tunedModels/")
    else:
        assert dialect.counts is not None
        decode = dialect.counts.decode_request if verb == "countTokens" else dialect.decode_request
        assert decode(wire, Notes()).model == model


@pytest.mark.parametrize("step", ["v1", "v1beta", "a", ""])
def test_a_path_of_very_many_steps_is_nowhere(step: str) -> None:
    """2,600 times `v1/` took 75 ms of the loop, before any key was looked at."""
    path = "/" + f"{step}/" * 2600
    assert RouteTable().plain_path(path) is None
    assert RouteTable().plain_path(path + "../admin/v1/keys") is None
    assert RouteTable().methods(path) == []
