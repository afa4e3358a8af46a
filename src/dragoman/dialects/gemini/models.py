"""Gemini's model list. https://ai.google.dev/api/models (digest read 2026-11-15)"""

from collections.abc import Sequence

from dragoman.dialects._services import ListedModel, ModelsCodec, read_names
from dragoman.jsontypes import JsonObject

METHODS = ["generateContent", "streamGenerateContent", "countTokens", "embedContent"]


def encode_model(model: ListedModel) -> JsonObject:
    return {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "description": f"{model.name} behind dragoman",
        "inputTokenLimit": model.max_input,
        "outputTokenLimit": model.max_output,
        "supportedGenerationMethods": METHODS,
    }


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    return {"models": [encode_model(model) for model in models]}


MODELS = ModelsCodec(
    path="/v1beta/models?pageSize=1000",
    decode=lambda body: read_names(body, "models", "name"),
    encode=encode_models,
    encode_one=encode_model,
)
