"""Ollama /api/embed, and /api/embeddings before it. https://github.com/ollama/ollama docs/api.md (read 2026-11-15)"""

from dragoman.dialects._services import (
    EmbeddingRequest,
    EmbeddingsCodec,
    Vectors,
    read_inputs,
    read_model,
    read_size,
    refuse_token_numbers,
)
from dragoman.dialects.ollama.words import NAME
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireRequest

PATH, OLD_PATH = "/api/embed", "/api/embeddings"
OLD = "old"


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    body = wire.body
    if wire.path == OLD_PATH:
        return EmbeddingRequest(model=read_model(body), inputs=read_inputs([body.get("prompt")], "prompt"), form=OLD)
    given = body.get("input")
    inputs = read_inputs(given if type(given) is list else [given], "input")
    return EmbeddingRequest(model=read_model(body), inputs=inputs, size=read_size(body, "dimensions"))


def encode_embedding_request(asked: EmbeddingRequest) -> WireRequest:
    refuse_token_numbers(asked, NAME)
    body: JsonObject = {"model": asked.model, "input": asked.inputs}
    return WireRequest(path=PATH, body=body | ({"dimensions": asked.size} if asked.size else {}))


def decode_embedding_reply(body: Json, model: str) -> Vectors:
    return Vectors(rows=list(body["embeddings"]), model=model, tokens=body.get("prompt_eval_count") or 0)


def encode_embedding_reply(found: Vectors, asked: EmbeddingRequest) -> JsonObject:
    if asked.form == OLD:
        return {"embedding": found.rows[0] if found.rows else []}
    times = {"total_duration": 0, "load_duration": 0}
    return {"model": asked.model, "embeddings": found.rows, **times, "prompt_eval_count": found.tokens}


EMBEDDINGS = EmbeddingsCodec(
    decode_request=decode_embedding_request,
    encode_request=encode_embedding_request,
    decode_reply=decode_embedding_reply,
    encode_reply=encode_embedding_reply,
)
