"""Ollama's lists of models and what it tells of one. https://github.com/ollama/ollama docs/api.md (read 2026-11-15)"""

import hashlib
from collections.abc import Sequence

from dragoman.dialects._services import ListedModel, ModelsCodec, read_names
from dragoman.dialects.ollama.times import UNKNOWN, write_time
from dragoman.jsontypes import JsonObject

SERVER_VERSION = "0.12.0"  # its clients compare it with the version a feature came in


def encode_model(model: ListedModel) -> JsonObject:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _date(model.created),
        "size": 0,
        "digest": hashlib.sha256(model.name.encode()).hexdigest(),  # its clients tell models apart by it
        "details": _details(model.name),
    }


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    return {"models": [encode_model(model) for model in models]}


def encode_running(models: Sequence[ListedModel], until: float) -> JsonObject:
    """/api/ps: the models in memory."""
    more = {"expires_at": _date(until), "size_vram": 0}
    return {"models": [{**encode_model(model), **more, "context_length": model.max_input} for model in models]}


def encode_shown(model: ListedModel) -> JsonObject:
    """/api/show, with the capabilities that make its clients offer tools and pictures (CLIENTS 18)."""
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
            f"{family}.context_length": model.max_input,
            f"{family}.embedding_length": 4096,
        },
        "capabilities": ["completion", "tools", "vision", "thinking"],
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
