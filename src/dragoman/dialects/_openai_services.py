"""Model lists, embeddings and speech of OpenAI's API. Chat Completions and Responses share them.
https://platform.openai.com/docs/api-reference (digest read 2026-11-15)
"""

import base64
import struct
from collections.abc import Sequence

from dragoman.dialects._base import Door
from dragoman.dialects._services import (
    VOICES,
    EmbeddingRequest,
    EmbeddingsCodec,
    ListedModel,
    ModelsCodec,
    SpeechCodec,
    Vectors,
    read_inputs,
    read_model,
    read_names,
    read_size,
)
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireRequest

EMBEDDINGS_PATH = "/v1/embeddings"
SPEECH_PATH = "/v1/audio/speech"
BASE64 = "base64"
_VOICE = "alloy"
_LIKE_OURS = {theirs.lower(): ours for ours, theirs in VOICES.items()}


# ---------------------------------------------------------------- models


def encode_model(model: ListedModel) -> JsonObject:
    return {"id": model.name, "object": "model", "created": int(model.created), "owned_by": model.owner}


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    more: JsonObject = {"models": []} if "client_version=" in query else {}  # Codex wants its own table here
    return {"object": "list", "data": [encode_model(model) for model in models], **more}


MODELS = ModelsCodec(
    path="/v1/models",
    decode=lambda body: read_names(body, "data", "id"),
    encode=encode_models,
    encode_one=encode_model,
)


# ---------------------------------------------------------------- embeddings


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    body = wire.body
    given = body.get("input")
    inputs = given if type(given) is list and not (given and type(given[0]) is int) else [given]
    form = body.get("encoding_format")
    asked = EmbeddingRequest(
        model=read_model(body),
        inputs=read_inputs(inputs, "input"),
        size=read_size(body, "dimensions"),
        form=BASE64 if form == BASE64 else "",
    )
    if form not in (None, "float", BASE64):
        raise DecodeError("expected float or base64", "encoding_format")
    return asked


def encode_embedding_request(asked: EmbeddingRequest) -> WireRequest:
    body: JsonObject = {"model": asked.model, "input": asked.inputs, "encoding_format": "float"}
    if asked.size:
        body["dimensions"] = asked.size
    return WireRequest(path=EMBEDDINGS_PATH, body=body)


def decode_embedding_reply(body: Json, model: str) -> Vectors:
    rows = [_unpack(row["embedding"]) for row in sorted(body["data"], key=lambda row: row.get("index", 0))]
    tokens = (body.get("usage") or {}).get("prompt_tokens") or 0
    return Vectors(rows=rows, model=body.get("model") or model, tokens=tokens)


def encode_embedding_reply(found: Vectors, asked: EmbeddingRequest) -> JsonObject:
    data = [
        {"object": "embedding", "index": i, "embedding": _pack(row) if asked.form == BASE64 else row}
        for i, row in enumerate(found.rows)
    ]
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    return {"object": "list", "data": data, "model": found.model, "usage": usage}


def _pack(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()


def _unpack(value: Json) -> list[float]:
    if type(value) is str:  # some servers always answer in base64
        data = base64.b64decode(value, validate=True)
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    return list(value)


EMBEDDINGS = EmbeddingsCodec(
    decode_request=decode_embedding_request,
    encode_request=encode_embedding_request,
    decode_reply=decode_embedding_reply,
    encode_reply=encode_embedding_reply,
)


# ---------------------------------------------------------------- speech


def encode_speech_request(model: str, body: JsonObject) -> WireRequest:
    said = {**body, "model": model}
    if said.get("response_format") == "ogg":
        said["response_format"] = "opus"
    said["voice"] = _find_voice(body.get("voice"))
    return WireRequest(path=SPEECH_PATH, body=said)


def _find_voice(voice: Json) -> Json:
    """Replace a Gemini voice by the OpenAI voice that sounds like it. Without a name, use the default voice."""
    return _LIKE_OURS.get(voice.lower(), voice) if isinstance(voice, str) else (voice or _VOICE)


SPEECH = SpeechCodec(encode_request=encode_speech_request)

DOORS = (
    Door(path="/v1/models", methods=("GET", "HEAD"), serves="models"),
    Door(path=r"/v1/models/(?P<model>[^?#]+)", methods=("GET", "HEAD"), serves="model"),
    Door(path=EMBEDDINGS_PATH, serves="embeddings"),
    Door(path=SPEECH_PATH, serves="speech"),
)
