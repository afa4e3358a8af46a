"""Gemini beside conversations: its paths, token counts, embeddings, model list and speech.

https://ai.google.dev/api/tokens, /embeddings, /models (digest read 2026-11-15)
https://ai.google.dev/gemini-api/docs/speech-generation (read 2026-11-16)
"""

import base64
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, unquote

from msgspec.structs import replace

from dragoman.dialects._base import Door
from dragoman.dialects._services import (
    VOICES,
    CountCodec,
    EmbeddingRequest,
    EmbeddingsCodec,
    ListedModel,
    ModelsCodec,
    SpeechCodec,
    Vectors,
    find_flag,
    find_number,
    read_count,
    read_models,
    read_size,
    refuse_token_numbers,
)
from dragoman.dialects.gemini.request import decode_request, encode_request
from dragoman.dialects.gemini.spelling import to_camel
from dragoman.dialects.gemini.words import NAME, SSE
from dragoman.errors import DecodeError
from dragoman.fields import need_object
from dragoman.jsontypes import Json, JsonObject
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

_VERSION = r"/v1(?:beta|alpha|beta1|alpha1)?"
_OWN_VERSION = r"/v1(?:beta|alpha|beta1|alpha1)"  # under plain /v1 the list of models is OpenAI's
_PLACE = r"(?:projects/.+?/|publishers/[^/]+/)?"  # of Vertex
_MODEL = rf"{_VERSION}/(?:{_PLACE}(?P<kind>models|tunedModels)/)?(?P<model>[^?#]+)"
_CACHES = rf"{_VERSION}/cachedContents"
_CACHE = rf"{_CACHES}/(?P<id>[\w.-]+)"
_READ = ("GET", "HEAD")


def write_path(groups: dict[str, str], query: str) -> str:
    """`@ai-sdk/google` leaves `models/` out when a name has a slash: `/v1beta/UPSTREAM/MODEL:generateContent`."""
    alt = f"?{SSE}" if groups["verb"][0] == "s" and parse_qs(query).get("alt") == ["sse"] else ""
    return f"/v1beta/{groups.get('kind', 'models')}/{quote_model(groups['model'])}:{groups['verb']}{alt}"


def _verbs(*verbs: str) -> str:
    return rf"{_MODEL}:(?P<verb>{'|'.join(verbs)})"


DOORS = (
    Door(path=_verbs("generateContent", "streamGenerateContent"), serves="cached_conversation", write_path=write_path),
    Door(path=_verbs("countTokens"), serves="count", write_path=write_path),
    Door(path=_verbs("embedContent", "batchEmbedContents"), serves="embeddings", write_path=write_path),
    Door(path=_verbs(r"\w+"), serves="unknown_verb"),
    Door(path=_CACHES, serves="cache_new"),
    Door(path=_CACHES, methods=("GET",), serves="caches"),
    Door(path=_CACHE, methods=("GET",), serves="cache"),
    Door(path=_CACHE, methods=("PATCH",), serves="cache_change"),
    Door(path=_CACHE, methods=("DELETE",), serves="cache_end"),
    Door(path=rf"{_OWN_VERSION}/models", methods=_READ, serves="models"),
    Door(path=rf"{_OWN_VERSION}/models/(?P<model>[^?#]+)", methods=_READ, serves="model"),
)


def put_model(path: str, model: str) -> str:
    return f"/v1beta/models/{quote_model(model)}:{path.rpartition(':')[2]}"


def quote_model(name: str) -> str:
    """Quote a model's name as one step of a path, so that no character in it ends the step or the path."""
    return quote(name, safe="-._~@:")


# ---------------------------------------------------------------- counts
#
# The request is under `generateContentRequest`, or flat (Vertex). Only the first form counts system text and tools.

METHOD = "countTokens"
WRAPPER = "generateContentRequest"
FLAT = "~flat"  # spelling: the request had no wrapper


def decode_count_request(wire: WireRequest, notes: Notes) -> Request:
    """Decode the request whose tokens are to be counted."""
    to_camel(wire.body)
    wire.body.pop("~snake", None)
    wrapped = wire.body.get(WRAPPER)
    body = wire.body if wrapped is None else need_object(wrapped)
    request = decode_request(WireRequest(body=body, path=wire.path, headers=wire.headers), notes)
    if wrapped is not None:
        return request
    own = request.extras.get(NAME, {}) | {FLAT: True}
    return replace(request, extras=request.extras | {NAME: own})


def encode_count_request(request: Request, notes: Notes) -> WireRequest:
    own = request.extras.get(NAME, {})
    kept = {key: value for key, value in own.items() if key not in (FLAT, "~query")} | {"~method": METHOD}
    wire = encode_request(replace(request, stream=None, extras=request.extras | {NAME: kept}), notes)
    if FLAT in own:
        return wire
    body = {"model": f"models/{request.model}"} | wire.body
    return WireRequest(path=wire.path, body={WRAPPER: body})


COUNTS = CountCodec(
    path=f"/v1beta/models/{{model}}:{METHOD}",
    decode_request=decode_count_request,
    encode_request=encode_count_request,
    decode_reply=lambda body: read_count(body, "totalTokens"),
    encode_reply=lambda count: {"totalTokens": count},
)


# ---------------------------------------------------------------- embeddings

BATCH = "batchEmbedContents"


def decode_embedding_request(wire: WireRequest) -> EmbeddingRequest:
    place, _, method = wire.path.rpartition(":")
    asked = wire.body.get("requests") if method == BATCH else [wire.body]
    if type(asked) is not list or not asked:
        raise DecodeError("expected a list of requests", "requests")
    return EmbeddingRequest(
        model=unquote(place.removeprefix("/v1beta/").partition("/")[2]),
        inputs=[_read_text(request) for request in asked],
        size=read_size(asked[0], "outputDimensionality", "output_dimensionality"),
        form=BATCH if method == BATCH else "",
    )


def _read_text(request: Json) -> str:
    content = request.get("content") if type(request) is dict else None
    parts = content.get("parts") if type(content) is dict else content
    parts = parts if type(parts) is list else [parts]
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts]
    found = [text for text in texts if isinstance(text, str)]
    if not found:
        raise DecodeError("expected text to embed", "content")
    return "".join(found)


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


# ---------------------------------------------------------------- models

METHODS = ["generateContent", "streamGenerateContent", "countTokens", "embedContent"]


def encode_model(model: ListedModel) -> JsonObject:
    known = {"inputTokenLimit": model.reads, "outputTokenLimit": model.max_output, "thinking": model.thinking}
    return {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "description": f"{model.name} behind dragoman",
        **{key: value for key, value in known.items() if value is not None},
        "supportedGenerationMethods": METHODS,
    }


def decode_model(name: str, row: JsonObject) -> ListedModel:
    return ListedModel(
        name=name,
        max_input=find_number(row, "inputTokenLimit"),
        max_output=find_number(row, "outputTokenLimit"),
        thinking=find_flag(row, "thinking"),
    )


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    return {"models": [encode_model(model) for model in models]}


MODELS = ModelsCodec(
    path="/v1beta/models?pageSize=1000",
    decode=lambda body: read_models(body, "models", "name", decode_model),
    encode=encode_models,
    encode_one=encode_model,
)


# ---------------------------------------------------------------- speech: bare samples, 16 bit, 24 kHz, one channel

_VOICE = "Kore"


def encode_speech_request(model: str, body: JsonObject) -> WireRequest:
    voice = body.get("voice")
    name = voice.get("id") if isinstance(voice, dict) else voice
    name = VOICES.get(name, name) if isinstance(name, str) else _VOICE
    text, instructions = body.get("input"), body.get("instructions")
    prompt = f"{instructions}\n\n{text}" if isinstance(instructions, str) and instructions else text
    speech = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}
    return WireRequest(
        path=f"/v1beta/models/{quote_model(model)}:generateContent",
        body={
            "contents": [{"role": "user", "parts": [{"text": prompt}]}],
            "generationConfig": {"responseModalities": ["AUDIO"], "speechConfig": speech},
        },
    )


def decode_speech_reply(body: Json) -> tuple[bytes, str]:
    try:
        parts = body["candidates"][0]["content"]["parts"]
        sound = next(p["inlineData"] for p in parts if "inlineData" in p)
        return base64.b64decode(sound["data"]), str(sound.get("mimeType", ""))
    except (KeyError, IndexError, TypeError, StopIteration, ValueError) as error:
        raise DecodeError("expected an answer with sound") from error


SPEECH = SpeechCodec(encode_request=encode_speech_request, decode_reply=decode_speech_reply)
