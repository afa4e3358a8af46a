"""Providers that speak: OpenAI's /audio/speech and Gemini's TTS models, with the complaints of the real ones.

https://platform.openai.com/docs/api-reference/audio/createSpeech, https://ai.google.dev/gemini-api/docs/speech-generation
(read 2026-11-16)
"""

import base64
from typing import Any

from dragoman.demo.model import demo_speech
from dragoman.upstream.sound import wrap_wav, write_flac, write_ogg

FORMS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
RATE = 24_000
_NO_SOUND = {"mp3": b"ID3\x04\0\0\0\0\0\0", "aac": b"\xff\xf1"}  # heads of what nobody here can write


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
        said = ", ".join(modalities)
        return (
            f"The requested combination of response modalities ({said}) is not supported by the model. models/{model}"
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
