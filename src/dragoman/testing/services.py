"""What a scripted provider serves besides conversations: model lists, embeddings, speech and stored responses.

https://platform.openai.com/docs/api-reference/audio/createSpeech, https://ai.google.dev/gemini-api/docs/speech-generation
(read 2026-11-16)
"""

import base64
from collections.abc import Iterable
from typing import Any

from dragoman.demo.model import demo_embedding, demo_speech
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import EmbeddingRequest, ListedModel, Vectors, unsupported
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import Profile
from dragoman.speech import wrap_wav, write_flac, write_ogg
from dragoman.wire import WireRequest

CREATED = 1_767_225_600  # a fixed day: scripted providers do not know the time
MAX_NUMBERS = 4096  # in one vector


def describe_model(name: str, profile: Profile) -> ListedModel:
    """The entry of a model in the list: whether it thinks and sees follows from its profile."""
    return ListedModel(
        name=name,
        owner="scripted",
        created=CREATED,
        max_input=1_048_576,
        max_output=65_536,
        thinking=profile.thinking is None or profile.thinking.says != "nothing",
        vision=bool(profile.media.images),
        tools=True,
    )


def list_models(dialect: Dialect, models: Iterable[tuple[str, Profile]]) -> Any:
    if dialect.models is None:
        raise unsupported(f"{dialect.name} has no list of models")
    return dialect.models.encode([describe_model(name, profile) for name, profile in models], "")


def embed(dialect: Dialect, path: str, body: JsonObject) -> Any:
    """A vector for each text. It has eight numbers, unless the request asks for more."""
    if dialect.embeddings is None:
        raise unsupported(f"{dialect.name} has no embeddings")
    asked = dialect.embeddings.decode_request(WireRequest(body=body, path=path))
    return dialect.embeddings.encode_reply(_find_vectors(asked), asked)


def _find_vectors(request: EmbeddingRequest) -> Vectors:
    size = request.size if request.size is not None and request.size <= MAX_NUMBERS else 8
    texts = [str(item) for item in request.inputs]
    rows = [list(demo_embedding(text, size)) for text in texts]
    return Vectors(rows=rows, model=request.model, tokens=sum(len(text.split()) for text in texts))


# ---------------------------------------------------------------- speech

FORMS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
RATE = 24_000
_NO_SOUND = {"mp3": b"ID3\x04\0\0\0\0\0\0", "aac": b"\xff\xf1"}  # only the first bytes of a file: we have no encoder


def complain_openai(body: dict[str, Any]) -> str | None:
    for name in ("model", "input", "voice"):
        if not isinstance(body.get(name), str | dict) or not body[name]:
            return f"Missing required parameter: '{name}'."
    if body.get("response_format", "mp3") not in FORMS:
        return f"Invalid value: '{body['response_format']}'. Supported values are: {', '.join(map(repr, FORMS))}."
    return None


def speak_openai(body: dict[str, Any]) -> tuple[bytes, str]:
    """The sound, and its media type."""
    samples = demo_speech(body["input"], RATE, str(body["voice"]))
    match body.get("response_format", "mp3"):
        case "wav":
            return wrap_wav(samples), "audio/wav"
        case "pcm":
            return samples, "audio/pcm"
        case "flac":
            return write_flac(samples), "audio/flac"
        case "opus":
            return write_ogg(samples), "audio/ogg"
        case form:
            return _NO_SOUND[form] + samples, "audio/mpeg" if form == "mp3" else "audio/aac"


def complain_gemini(model: str, body: dict[str, Any]) -> str | None:
    asked = body.get("generationConfig", {})
    if "systemInstruction" in body:
        return f"Developer instruction is not enabled for models/{model}"
    if "tools" in body:
        return f"Tool use with function calling is unsupported for models/{model}"
    modalities = asked.get("responseModalities") or ["TEXT"]
    if modalities != ["AUDIO"]:
        words = ", ".join(modalities)
        return (
            f"The requested combination of response modalities ({words}) is not supported by the model. models/{model}"
        )
    voice = asked.get("speechConfig", {}).get("voiceConfig", {}).get("prebuiltVoiceConfig", {}).get("voiceName", "Kore")
    if voice.lower() not in VOICES:
        return f"Voice name {voice} is not supported. Allowed voice names are: {', '.join(sorted(VOICES))}"
    return None


def speak_gemini(body: dict[str, Any]) -> dict[str, Any]:
    text = " ".join(part.get("text", "") for content in body["contents"] for part in content.get("parts", ()))
    samples = demo_speech(text, RATE)
    sound = {"mimeType": f"audio/L16;codec=pcm;rate={RATE}", "data": base64.b64encode(samples).decode()}
    spoken = len(samples) // (RATE // 25 * 2)  # 25 tokens a second
    return {
        "candidates": [
            {"content": {"parts": [{"inlineData": sound}], "role": "model"}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": len(text.split()),
            "candidatesTokenCount": spoken,
            "totalTokenCount": len(text.split()) + spoken,
            "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": spoken}],
        },
        "modelVersion": "gemini-2.5-flash-preview-tts",
    }


_NAMES = """zephyr puck charon kore fenrir leda orus aoede callirrhoe autonoe enceladus iapetus umbriel algieba despina
erinome algenib rasalgethi laomedeia achernar alnilam schedar gacrux pulcherrima achird zubenelgenubi vindemiatrix
sadachbia sadaltager sulafat"""
VOICES = frozenset(_NAMES.split())


# ---------------------------------------------------------------- stored responses

MAX_STORED = 1000


class StoredResponses:
    """Earlier answers, which `previous_response_id` continues."""

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}  # the conversation, with the answer at its end
        self._replies: dict[str, dict[str, Any]] = {}

    def resume(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with the earlier conversation in front. An unknown id stays, and the checks refuse it."""
        earlier = self._items.get(str(body.get("previous_response_id")))
        if earlier is None:
            return body
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*earlier, *_items(body)]}

    def keep(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        if body.get("store") is False:
            return
        if len(self._replies) >= MAX_STORED:
            self.forget(next(iter(self._replies)))
        name = str(reply["id"])
        self._items[name] = [*_items(body), *reply["output"]]
        self._replies[name] = reply

    def find(self, name: str) -> dict[str, Any] | None:
        return self._replies.get(name)

    def forget(self, name: str) -> bool:
        self._items.pop(name, None)
        return self._replies.pop(name, None) is not None


def _items(body: dict[str, Any]) -> list[Any]:
    asked = body.get("input")
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked or ())
