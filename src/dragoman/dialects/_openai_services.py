"""Model lists, embeddings and speech of OpenAI's API. Chat Completions and Responses share them.
https://platform.openai.com/docs/api-reference (digest read 2026-11-15)
"""

import base64
import struct
from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.dialects._base import Door
from dragoman.dialects._services import (
    VOICES,
    EmbeddingRequest,
    EmbeddingsCodec,
    ListedModel,
    ModelDetails,
    ModelsCodec,
    SpeechCodec,
    Vectors,
    find_flag,
    find_number,
    find_text,
    find_word,
    read_inputs,
    read_model,
    read_models,
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


# Servers of this dialect add what they know under names of their own:
#   vLLM, SGLang           max_model_len
#   llama.cpp              meta.n_ctx, n_params, size; /props has the window of a slot, and whether it sees
#   OpenRouter             context_length, top_provider.max_completion_tokens, architecture.input_modalities
#   Groq                   context_window, max_completion_tokens
#   Mistral                max_context_length, capabilities.vision
#   Moonshot, Fireworks    context_length, supports_image_in, supports_image_input, supports_reasoning
#   LM Studio (/api/v0)    loaded_context_length, max_context_length, type vlm, capabilities with tool_use
# We write the names most clients read: OpenRouter's, and Mistral's for abilities.


def encode_model(model: ListedModel) -> JsonObject:
    row: JsonObject = {"id": model.name, "object": "model", "created": int(model.created or 0), "owned_by": model.owner}
    limits = {"context_length": model.window or model.max_input, "max_completion_tokens": model.max_output}
    abilities = {"vision": model.vision, "reasoning": model.thinking, "function_calling": model.tools}
    known = {name: able for name, able in abilities.items() if able is not None}
    row |= {name: limit for name, limit in limits.items() if limit is not None}
    return row | ({"capabilities": known} if known else {})


def decode_model(name: str, row: JsonObject) -> ListedModel:
    kind = find_text(row, "type")  # of LM Studio
    vision = find_flag(row, "capabilities.vision", "supports_image_in", "supports_image_input")
    created = row.get("created")
    tools = find_word(row, "capabilities", "tool_use")
    thinking = find_flag(row, "capabilities.reasoning", "supports_reasoning")
    return ListedModel(
        name=name,
        owner=find_text(row, "owned_by"),
        created=created if type(created) is int and created > 0 else None,
        window=find_number(
            row,
            "max_model_len",
            "loaded_context_length",
            "context_window",
            "context_length",
            "max_context_length",
            "meta.n_ctx",
        ),
        max_output=find_number(row, "max_completion_tokens", "top_provider.max_completion_tokens"),
        vision=kind == "vlm" if kind in ("vlm", "llm") else _either(vision, _sees(row)),
        thinking=_either(thinking, find_word(row, "supported_parameters", "reasoning")),
        tools=_either(
            tools,
            find_flag(row, "capabilities.function_calling", "supports_tools"),
            find_word(row, "supported_parameters", "tools"),
        ),
        family=find_text(row, "arch"),
        quantization=find_text(row, "quantization"),
        parameters=find_number(row, "meta.n_params"),
        embedding_length=find_number(row, "meta.n_embd"),
        size_bytes=find_number(row, "meta.size"),
    )


def _either(*flags: bool | None) -> bool | None:
    return next((one for one in flags if one is not None), None)


def _sees(row: JsonObject) -> bool | None:
    return find_word(row, "architecture.input_modalities", "image")


def decode_props(body: Json, model: ListedModel) -> ListedModel:
    """llama.cpp: each slot has its own part of the window, and prompts must fit into that."""
    window = find_number(body, "default_generation_settings.n_ctx")
    vision = find_flag(body, "modalities.vision")
    return replace(model, window=window or model.window, vision=_either(vision, model.vision))


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    more: JsonObject = {"models": []} if "client_version=" in query else {}  # Codex wants its own table here
    return {"object": "list", "data": [encode_model(model) for model in models], **more}


MODELS = ModelsCodec(
    path="/v1/models",
    decode=lambda body: read_models(body, "data", "id", decode_model),
    encode=encode_models,
    encode_one=encode_model,
    details=ModelDetails(
        path="/props", wanted=lambda model: model.owner == "llamacpp", encode=None, decode=decode_props
    ),
)


# ---------------------------------------------------------------- embeddings


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    body = wire.body
    given = body.get("input")
    inputs = given if type(given) is list and not (given and type(given[0]) is int) else [given]
    form = body.get("encoding_format")
    request = EmbeddingRequest(
        model=read_model(body),
        inputs=read_inputs(inputs, "input"),
        size=read_size(body, "dimensions"),
        form=BASE64 if form == BASE64 else "",
    )
    if form not in (None, "float", BASE64):
        raise DecodeError("expected float or base64", "encoding_format")
    return request


def encode_embedding_request(request: EmbeddingRequest) -> WireRequest:
    body: JsonObject = {"model": request.model, "input": request.inputs, "encoding_format": "float"}
    if request.size:
        body["dimensions"] = request.size
    return WireRequest(path=EMBEDDINGS_PATH, body=body)


def decode_embedding_reply(body: Json, model: str) -> Vectors:
    rows = [_unpack(row["embedding"]) for row in sorted(body["data"], key=lambda row: row.get("index", 0))]
    tokens = (body.get("usage") or {}).get("prompt_tokens") or 0
    return Vectors(rows=rows, model=body.get("model") or model, tokens=tokens)


def encode_embedding_reply(found: Vectors, request: EmbeddingRequest) -> JsonObject:
    data = [
        {"object": "embedding", "index": i, "embedding": _pack(row) if request.form == BASE64 else row}
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
    sent = {**body, "model": model}
    if sent.get("response_format") == "ogg":
        sent["response_format"] = "opus"
    sent["voice"] = _find_voice(body.get("voice"))
    return WireRequest(path=SPEECH_PATH, body=sent)


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
