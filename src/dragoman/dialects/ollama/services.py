"""Ollama's other services: its paths, embeddings, lists of models and details of one model.

https://github.com/ollama/ollama docs/api.md (read 2026-11-15)
"""

import hashlib
from collections.abc import Sequence

from dragoman.dialects._base import Door
from dragoman.dialects._services import (
    EmbeddingRequest,
    EmbeddingsCodec,
    ListedModel,
    ModelsCodec,
    Vectors,
    read_inputs,
    read_model,
    read_names,
    read_size,
    refuse_token_numbers,
)
from dragoman.dialects.ollama.reply import UNKNOWN, write_time
from dragoman.dialects.ollama.words import CHAT_PATH, GENERATE_PATH, NAME
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireRequest

_READ = ("GET", "HEAD")
EMBED_PATH, OLD_EMBED_PATH = "/api/embed", "/api/embeddings"

DOORS = (
    Door(path=CHAT_PATH),
    Door(path=GENERATE_PATH),
    Door(path=EMBED_PATH, serves="embeddings"),
    Door(path=OLD_EMBED_PATH, serves="embeddings"),
    Door(path="/", methods=_READ, serves="root", public=True),
    Door(path="/api/version", methods=_READ, serves="version"),
    Door(path="/api/tags", methods=_READ, serves="models"),
    Door(path="/api/ps", methods=_READ, serves="running"),
    Door(path="/api/show", serves="show"),
)


# ---------------------------------------------------------------- embeddings

OLD = "old"


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    body = wire.body
    if wire.path == OLD_EMBED_PATH:
        return EmbeddingRequest(model=read_model(body), inputs=read_inputs([body.get("prompt")], "prompt"), form=OLD)
    given = body.get("input")
    inputs = read_inputs(given if type(given) is list else [given], "input")
    return EmbeddingRequest(model=read_model(body), inputs=inputs, size=read_size(body, "dimensions"))


def encode_embedding_request(asked: EmbeddingRequest) -> WireRequest:
    refuse_token_numbers(asked, NAME)
    body: JsonObject = {"model": asked.model, "input": asked.inputs}
    return WireRequest(path=EMBED_PATH, body=body | ({"dimensions": asked.size} if asked.size else {}))


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


# ---------------------------------------------------------------- models

SERVER_VERSION = "0.12.0"  # clients check it to see which features the server has


def encode_model(model: ListedModel) -> JsonObject:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _date(model.created),
        "size": 0,
        "digest": hashlib.sha256(model.name.encode()).hexdigest(),  # clients identify models by it
        "details": _details(model.name),
    }


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    return {"models": [encode_model(model) for model in models]}


def encode_running(models: Sequence[ListedModel], until: float) -> JsonObject:
    """/api/ps: the models in memory."""
    more = {"expires_at": _date(until), "size_vram": 0}
    return {"models": [{**encode_model(model), **more, "context_length": model.max_input or 0} for model in models]}


def encode_shown(model: ListedModel) -> JsonObject:
    """/api/show. By the capabilities, clients offer tools and pictures (CLIENTS 18). The numbers are always there, 0 if
    not known: `ollama show` 0.9 panics where one of the three is missing."""
    family = _family(model.name)
    return {
        "license": "",
        "modelfile": f"# {model.name} behind dragoman\nFROM {model.name}",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(model.name),
        "model_info": {
            "general.architecture": family,
            "general.basename": model.name,
            "general.parameter_count": 0,
            f"{family}.context_length": model.max_input or 0,
            f"{family}.embedding_length": 0,
        },
        "capabilities": ["completion", "tools", *model.abilities],
        "modified_at": _date(model.created),
    }


def _details(name: str) -> JsonObject:
    family = _family(name)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _family(name: str) -> str:
    return name.rpartition("/")[2].split("-")[0].split(":")[0] or "llama"


def _date(seconds: float) -> str:
    return write_time(int(seconds)) or UNKNOWN


MODELS = ModelsCodec(
    path="/api/tags",
    decode=lambda body: read_names(body, "models", "name"),
    encode=encode_models,
    encode_one=encode_model,
)
