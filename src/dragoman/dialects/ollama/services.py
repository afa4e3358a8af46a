"""Ollama's other services: its paths, embeddings, lists of models and details of one model.

https://github.com/ollama/ollama docs/api.md (read 2026-11-15)
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.dialects._base import Door
from dragoman.dialects._services import (
    EmbeddingRequest,
    EmbeddingsCodec,
    ListedModel,
    ModelDetails,
    ModelsCodec,
    Vectors,
    find_number,
    find_text,
    find_word,
    read_inputs,
    read_model,
    read_models,
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


def encode_embedding_request(request: EmbeddingRequest) -> WireRequest:
    refuse_token_numbers(request, NAME)
    body: JsonObject = {"model": request.model, "input": request.inputs}
    return WireRequest(path=EMBED_PATH, body=body | ({"dimensions": request.size} if request.size else {}))


def decode_embedding_reply(body: Json, model: str) -> Vectors:
    return Vectors(rows=list(body["embeddings"]), model=model, tokens=body.get("prompt_eval_count") or 0)


def encode_embedding_reply(found: Vectors, request: EmbeddingRequest) -> JsonObject:
    if request.form == OLD:
        return {"embedding": found.rows[0] if found.rows else []}
    times = {"total_duration": 0, "load_duration": 0}
    return {"model": request.model, "embeddings": found.rows, **times, "prompt_eval_count": found.tokens}


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
        "modified_at": _date(model.created or 0),
        "size": model.size_bytes or 0,
        "digest": model.digest or hashlib.sha256(model.name.encode()).hexdigest(),  # clients identify models by it
        "details": _details(model),
    }


def decode_model(name: str, row: JsonObject) -> ListedModel:
    return ListedModel(
        name=name,
        family=find_text(row, "details.family"),
        parameter_size=find_text(row, "details.parameter_size"),
        quantization=find_text(row, "details.quantization_level"),
        size_bytes=find_number(row, "size"),
        digest=find_text(row, "digest"),
    )


def decode_shown(body: Json, model: ListedModel) -> ListedModel:
    """The context length is what the model was made for. How much of it the server uses is a setting of each request,
    so it is the largest input and no window that a request must fit into."""
    info = body.get("model_info") if type(body) is dict else None
    facts = info if type(info) is dict else {}
    family = facts.get("general.architecture")
    return replace(
        model,
        family=family if type(family) is str else model.family,
        max_input=_number(facts, f"{family}.context_length"),
        embedding_length=_number(facts, f"{family}.embedding_length"),
        parameters=_number(facts, "general.parameter_count"),
        vision=find_word(body, "capabilities", "vision"),
        thinking=find_word(body, "capabilities", "thinking"),
        tools=find_word(body, "capabilities", "tools"),
    )


def _number(facts: JsonObject, key: str) -> int | None:
    found = facts.get(key)
    return found if type(found) is int and found > 0 else None


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    return {"models": [encode_model(model) for model in models]}


def encode_running(models: Sequence[ListedModel], until: float) -> JsonObject:
    """/api/ps: the models in memory."""
    more = {"expires_at": _date(until), "size_vram": 0}
    return {"models": [{**encode_model(model), **more, "context_length": model.reads or 0} for model in models]}


def encode_shown(model: ListedModel) -> JsonObject:
    """/api/show. By the capabilities, clients offer tools and pictures (CLIENTS 18). The numbers are always there, 0 if
    not known: `ollama show` 0.9 panics where one of the three is missing."""
    family = model.family or _family(model.name)
    # A model of which nothing is known is shown as one with tools: clients would otherwise never send any.
    able = {"vision": model.vision, "thinking": model.thinking, "tools": model.tools is not False}
    return {
        "license": "",
        "modelfile": f"# {model.name} behind dragoman\nFROM {model.name}",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(model),
        "model_info": {
            "general.architecture": family,
            "general.basename": model.name,
            "general.parameter_count": model.parameters or 0,
            f"{family}.context_length": model.reads or 0,
            f"{family}.embedding_length": model.embedding_length or 0,
        },
        "capabilities": ["completion", *(name for name in ("tools", "vision", "thinking") if able[name])],
        "modified_at": _date(model.created or 0),
    }


def _details(model: ListedModel) -> JsonObject:
    family = model.family or _family(model.name)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": model.parameter_size,
        "quantization_level": model.quantization,
    }


def _family(name: str) -> str:
    return name.rpartition("/")[2].split("-")[0].split(":")[0] or "llama"


def _date(seconds: float) -> str:
    return write_time(int(seconds)) or UNKNOWN


MODELS = ModelsCodec(
    path="/api/tags",
    decode=lambda body: read_models(body, "models", "name", decode_model),
    encode=encode_models,
    encode_one=encode_model,
    details=ModelDetails(
        path="/api/show", wanted=lambda model: True, encode=lambda name: {"model": name}, decode=decode_shown
    ),
)
