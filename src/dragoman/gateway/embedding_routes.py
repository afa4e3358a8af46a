"""Embeddings: /v1/embeddings, /api/embed, :embedContent, each served by any upstream that has them."""

import base64
import struct
from typing import Any

from msgspec import Struct

from dragoman.demo.model import demo_embedding
from dragoman.errors import DecodeError, UpstreamError
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.non_chat import ask, cannot, read_object
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import Json, JsonObject, kind_of, load_json
from dragoman.upstream.failures import malformed
from dragoman.upstream.spec import DEMO
from dragoman.upstream.urls import quote_segment


class EmbeddingRequest(Struct, kw_only=True):
    model: str
    inputs: list[Any]  # texts, or lists of token numbers
    size: int | None = None


class Vectors(Struct, kw_only=True):
    rows: list[list[float]]
    model: str
    tokens: int = 0


async def serve_embeddings(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    body = await read_object(gateway, http)
    given = body.get("input")
    inputs = given if type(given) is list and not (given and type(given[0]) is int) else [given]
    wish = EmbeddingRequest(model=_model(body), inputs=_check(inputs, "input"), size=_size(body, "dimensions"))
    form = body.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise DecodeError("expected float or base64", "encoding_format")
    found = await embed(gateway, http, "openai_chat", wish)
    packed = form == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _pack(row) if packed else row}
        for i, row in enumerate(found.rows)
    ]
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    return json_response({"object": "list", "data": data, "model": found.model, "usage": usage})


async def serve_embed(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    body = await read_object(gateway, http)
    given = body.get("input")
    wish = EmbeddingRequest(
        model=_model(body),
        inputs=_check(given if type(given) is list else [given], "input"),
        size=_size(body, "dimensions"),
    )
    found = await embed(gateway, http, "ollama", wish)
    return json_response(
        {
            "model": wish.model,
            "embeddings": found.rows,
            "total_duration": 0,
            "load_duration": 0,
            "prompt_eval_count": found.tokens,
        }
    )


async def serve_embed_old(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    body = await read_object(gateway, http)
    wish = EmbeddingRequest(model=_model(body), inputs=_check([body.get("prompt")], "prompt"))
    found = await embed(gateway, http, "ollama", wish)
    return json_response({"embedding": found.rows[0] if found.rows else []})


async def embed_gemini(gateway: Gateway, http: HttpRequest, model: str, *, batch: bool) -> HttpResponse:
    body = await read_object(gateway, http)
    asked = body.get("requests") if batch else [body]
    if type(asked) is not list or not asked:
        raise DecodeError("expected a list of requests", "requests")
    inputs = [_gemini_text(request) for request in asked]
    size = _size(asked[0], "outputDimensionality", "output_dimensionality")
    wish = EmbeddingRequest(model=model, inputs=inputs, size=size)
    found = await embed(gateway, http, "gemini", wish)
    rows = [{"values": row} for row in found.rows]
    return json_response({"embeddings": rows} if batch else {"embedding": rows[0] if rows else {"values": []}})


def _gemini_text(request: Json) -> str:
    content = request.get("content") if type(request) is dict else None
    parts = content.get("parts") if type(content) is dict else content
    parts = parts if type(parts) is list else [parts]
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts]
    said = [text for text in texts if isinstance(text, str)]
    if not said:
        raise DecodeError("expected text to embed", "content")
    return "".join(said)


def _model(body: JsonObject) -> str:
    model = body.get("model")
    if type(model) is not str:
        raise DecodeError(f"expected string, found {kind_of(model)}", "model")
    return model


def _size(body: JsonObject, *names: str) -> int | None:
    found = next((value for name in names if (value := body.get(name)) is not None), None)
    if found is not None and (type(found) is not int or found < 1):
        raise DecodeError("expected a number of at least 1", names[0])
    return found


def _check(inputs: list[Any], key: str) -> list[Any]:
    if not inputs:
        raise DecodeError("expected at least one text", key)
    for i, item in enumerate(inputs):
        numbers = type(item) is list and all(type(n) is int for n in item)
        if type(item) is not str and not numbers:
            raise DecodeError(f"expected text, found {kind_of(item)}", key, i)
    return inputs


async def embed(gateway: Gateway, http: HttpRequest, door: str, wish: EmbeddingRequest) -> Vectors:
    targets = gateway.now.targets(wish.model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        rows = [list(demo_embedding(str(text), wish.size or 8)) for text in wish.inputs]
        return Vectors(rows=rows, model=targets[0][1].model, tokens=sum(len(str(t).split()) for t in wish.inputs))

    def form(dialect: str, model: str) -> tuple[str, JsonObject]:
        return _form(dialect, model, wish)

    answer = await ask(gateway, http, "embeddings", door, wish.model, form)
    try:
        found = _read(answer.dialect.name, load_json(answer.raw), answer.target.model)
        if len(found.rows) != len(wish.inputs):
            raise ValueError("not one for each")
        return found
    except (DecodeError, KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise UpstreamError(malformed("the upstream's embeddings cannot be read")) from error
    finally:
        if http.scope is not None:
            http.scope.finish()


def _form(dialect: str, model: str, wish: EmbeddingRequest) -> tuple[str, JsonObject]:
    size = wish.size
    if dialect in ("gemini", "ollama") and any(type(item) is not str for item in wish.inputs):
        raise cannot(f"{dialect} embeds text, not token numbers")
    match dialect:
        case "openai_chat":
            body: JsonObject = {"model": model, "input": wish.inputs, "encoding_format": "float"}
            return "/v1/embeddings", body | ({"dimensions": size} if size else {})
        case "ollama":
            return "/api/embed", {"model": model, "input": wish.inputs} | ({"dimensions": size} if size else {})
        case "gemini":
            more = {"outputDimensionality": size} if size else {}
            rows = [
                {"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **more} for text in wish.inputs
            ]
            return f"/v1beta/models/{quote_segment(model)}:batchEmbedContents", {"requests": rows}
        case _:
            raise cannot(f"{dialect} has no embeddings")


def _read(dialect: str, body: Json, model: str) -> Vectors:
    match dialect:
        case "ollama":
            return Vectors(rows=list(body["embeddings"]), model=model, tokens=body.get("prompt_eval_count") or 0)
        case "gemini":
            return Vectors(rows=[row["values"] for row in body["embeddings"]], model=model)
        case _:
            rows = [_unpack(row["embedding"]) for row in sorted(body["data"], key=lambda row: row.get("index", 0))]
            tokens = (body.get("usage") or {}).get("prompt_tokens") or 0
            return Vectors(rows=rows, model=body.get("model") or model, tokens=tokens)


def _pack(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()


def _unpack(value: Json) -> list[float]:
    if type(value) is str:  # some servers answer in base64 whatever they were asked
        data = base64.b64decode(value, validate=True)
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    return list(value)
