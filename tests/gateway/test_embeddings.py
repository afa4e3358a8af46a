"""Embeddings: each door to each upstream that has them, with sizes, base64 and several texts at once."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import ollama
import openai
import pytest
from google import genai
from google.genai import types

from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.strict_providers import StrictProviders, serve_strict_providers
from tests.gateway.web import Got, post

UPSTREAMS = ("openai_chat", "gemini", "ollama")
TEXTS = ["안녕하세요", "hello there", "שלום 👋"]


def numbers(data: str) -> list[float]:
    raw = base64.b64decode(data)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def by_openai(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    got = post(url, "/v1/embeddings", {"model": more.pop("model"), "input": texts, **more})
    return got, [row["embedding"] for row in got.json["data"]]


def by_base64(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    body = {"model": more.pop("model"), "input": texts, "encoding_format": "base64", **more}
    got = post(url, "/v1/embeddings", body)
    return got, [numbers(row["embedding"]) for row in got.json["data"]]


def by_ollama(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    got = post(url, "/api/embed", {"input": texts, **more})
    return got, got.json["embeddings"]


def by_old_ollama(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    found = [post(url, "/api/embeddings", {"prompt": text, **more}) for text in texts]
    return found[0], [got.json["embedding"] for got in found]


def _gemini(text: str, more: dict[str, Any]) -> dict[str, Any]:
    size = {"outputDimensionality": more["dimensions"]} if "dimensions" in more else {}
    return {"model": f"models/{more['model']}", "content": {"parts": [{"text": text}]}, **size}


def by_gemini(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    path = f"/v1beta/models/{more['model']}:embedContent"
    found = [post(url, path, _gemini(text, more)) for text in texts]
    return found[0], [got.json["embedding"]["values"] for got in found]


def by_gemini_batch(url: str, texts: list[str], **more: Any) -> tuple[Got, list[list[float]]]:
    path = f"/v1beta/models/{more['model']}:batchEmbedContents"
    got = post(url, path, {"requests": [_gemini(text, more) for text in texts]})
    return got, [row["values"] for row in got.json["embeddings"]]


DOORS: dict[str, Callable[..., tuple[Got, list[list[float]]]]] = {
    "/v1/embeddings": by_openai,
    "/v1/embeddings base64": by_base64,
    "/api/embed": by_ollama,
    "/api/embeddings": by_old_ollama,
    ":embedContent": by_gemini,
    ":batchEmbedContents": by_gemini_batch,
}


@pytest.fixture(scope="module")
def providers() -> Iterator[StrictProviders]:
    with serve_strict_providers(*UPSTREAMS) as providers:
        yield providers


SIZES = [
    (door, size) for door in DOORS for size in (None, 4) if not (door == "/api/embeddings" and size)
]  # it has none


@pytest.mark.parametrize("behind", UPSTREAMS)
@pytest.mark.parametrize(("door", "size"), SIZES)
def test_texts_are_embedded(door: str, behind: str, size: int | None, providers: StrictProviders) -> None:
    more = {"dimensions": size} if size else {}
    providers.providers[behind].reset()
    _, rows = DOORS[door](providers.house.url, TEXTS, model=f"{behind}-model", **more)
    _, again = by_openai(providers.house.url, TEXTS, model=f"{behind}-model", **more)
    assert len(rows) == len(TEXTS)
    assert len({tuple(row) for row in rows}) == len(TEXTS), "each text has its own"
    assert [pytest.approx(row, rel=1e-5) for row in rows] == again, "the same numbers at every door"
    assert size is None or all(len(row) == size for row in rows)
    assert providers.providers[behind].refusals == []


@pytest.mark.parametrize("behind", UPSTREAMS)
def test_the_official_clients_read_what_they_get(behind: str, providers: StrictProviders) -> None:
    url, model = providers.house.url, f"{behind}-model"
    one = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)  # asks for base64 by itself
    rows = one.embeddings.create(model=model, input=TEXTS).data
    other = ollama.Client(host=url)
    two = other.embed(model=model, input=TEXTS)
    other._client.close()
    three = genai.Client(api_key="x", http_options=types.HttpOptions(base_url=url))
    found = three.models.embed_content(model=model, contents=TEXTS)
    assert [row.index for row in rows] == [0, 1, 2]
    for row, vector, content in zip(rows, two.embeddings, found.embeddings or (), strict=True):
        assert pytest.approx(row.embedding, rel=1e-5) == list(vector)
        assert pytest.approx(row.embedding, rel=1e-5) == content.values
    one.close()
    three.close()


@pytest.mark.parametrize("given", ["hello", ["hello"], [[1, 2, 3]], [1, 2, 3]])
def test_openai_takes_a_text_a_list_and_numbers_of_tokens(given: Any, providers: StrictProviders) -> None:
    got = post(providers.house.url, "/v1/embeddings", {"model": "openai_chat-model", "input": given})
    assert len(got.json["data"]) == 1
    assert got.json["usage"]["prompt_tokens"] >= 0


@pytest.mark.parametrize("behind", ["gemini", "ollama"])
def test_numbers_of_tokens_mean_nothing_elsewhere(behind: str, providers: StrictProviders) -> None:
    got = post(providers.house.url, "/v1/embeddings", {"model": f"{behind}-model", "input": [[1, 2]]})
    assert got.status == 400
    assert "token numbers" in got.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "openai_chat-model"}),
        ("/v1/embeddings", {"model": "openai_chat-model", "input": []}),
        ("/v1/embeddings", {"model": "openai_chat-model", "input": [{"a": 1}]}),
        ("/v1/embeddings", {"model": "openai_chat-model", "input": "a", "dimensions": "many"}),
        ("/v1/embeddings", {"model": "openai_chat-model", "input": "a", "encoding_format": "hex"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/api/embed", {"model": "openai_chat-model", "input": 3}),
        ("/api/embeddings", {"model": "openai_chat-model"}),
        ("/v1beta/models/openai_chat-model:embedContent", {}),
        ("/v1beta/models/openai_chat-model:batchEmbedContents", {"requests": []}),
    ],
)
def test_what_cannot_be_embedded_is_the_clients_error(path: str, body: Any, providers: StrictProviders) -> None:
    assert post(providers.house.url, path, body).status == 400


def test_the_demo_model_makes_no_gigantic_vectors() -> None:
    with open_house() as house:
        asked = {"model": "demo", "input": "a", "dimensions": 10**9}
        assert post(house.url, "/v1/embeddings", asked).status == 400


@pytest.mark.parametrize("dialect", ["anthropic"])
def test_who_has_none_says_so(dialect: str) -> None:
    with faultline(say(200, b"{}")) as line, open_house(upstream("one", dialect, line.url)) as house:
        got = post(house.url, "/v1/embeddings", {"model": "one-model", "input": "a"})
        assert (got.status, len(line.seen)) == (400, 0)
        assert "no embeddings" in got.text


def test_rows_that_come_out_of_order_or_packed_are_put_right() -> None:
    packed = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()
    rows = [{"index": 1, "embedding": packed}, {"index": 0, "embedding": [1.0, 2.0]}]
    answer = say(200, json.dumps({"data": rows, "model": "m", "usage": None}).encode())
    with faultline(answer) as line, open_house(upstream("one", "openai_chat", line.url)) as house:
        got = post(house.url, "/api/embed", {"model": "one-model", "input": ["a", "b"]})
        assert got.json["embeddings"] == [[1.0, 2.0], [3.0, 4.0]]
        assert json.loads(line.seen[0].body)["encoding_format"] == "float"


@pytest.mark.parametrize("answer", [b"{}", b'{"data": 3}', b'{"data": [{"embedding": "!"}]}', b"[]", b'{"data": []}'])
def test_an_answer_that_is_none_is_the_upstreams_fault(answer: bytes) -> None:
    with faultline(say(200, answer)) as line, open_house(upstream("one", "openai_chat", line.url)) as house:
        got = post(house.url, "/v1/embeddings", {"model": "one-model", "input": "a"})
        assert got.status == 502, got.text
        assert "cannot be read" in got.text
