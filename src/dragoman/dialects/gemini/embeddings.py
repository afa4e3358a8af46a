"""Gemini `:embedContent` and `:batchEmbedContents`. https://ai.google.dev/api/embeddings (digest read 2026-11-15)"""

from dragoman.dialects._services import EmbeddingRequest, EmbeddingsCodec, Vectors, read_size, refuse_token_numbers
from dragoman.dialects.gemini.doors import quote_model
from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireRequest

BATCH = "batchEmbedContents"


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    place, _, method = wire.path.rpartition(":")
    asked = wire.body.get("requests") if method == BATCH else [wire.body]
    if type(asked) is not list or not asked:
        raise DecodeError("expected a list of requests", "requests")
    return EmbeddingRequest(
        model=place.removeprefix("/v1beta/").partition("/")[2],
        inputs=[_read_text(request) for request in asked],
        size=read_size(asked[0], "outputDimensionality", "output_dimensionality"),
        form=BATCH if method == BATCH else "",
    )


def _read_text(request: Json) -> str:
    content = request.get("content") if type(request) is dict else None
    parts = content.get("parts") if type(content) is dict else content
    parts = parts if type(parts) is list else [parts]
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts]
    said = [text for text in texts if isinstance(text, str)]
    if not said:
        raise DecodeError("expected text to embed", "content")
    return "".join(said)


def encode_embedding_request(asked: EmbeddingRequest) -> WireRequest:
    refuse_token_numbers(asked, NAME)
    more = {"outputDimensionality": asked.size} if asked.size else {}
    rows = [{"model": f"models/{asked.model}", "content": {"parts": [{"text": text}]}, **more} for text in asked.inputs]
    return WireRequest(path=f"/v1beta/models/{quote_model(asked.model)}:{BATCH}", body={"requests": rows})


def decode_embedding_reply(body: Json, model: str) -> Vectors:
    return Vectors(rows=[row["values"] for row in body["embeddings"]], model=model)


def encode_embedding_reply(found: Vectors, asked: EmbeddingRequest) -> JsonObject:
    rows = [{"values": row} for row in found.rows]
    return {"embeddings": rows} if asked.form == BATCH else {"embedding": rows[0] if rows else {"values": []}}


EMBEDDINGS = EmbeddingsCodec(
    decode_request=decode_embedding_request,
    encode_request=encode_embedding_request,
    decode_reply=decode_embedding_reply,
    encode_reply=encode_embedding_reply,
)
