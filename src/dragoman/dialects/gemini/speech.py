"""Gemini's speaking models. They give bare samples (16 bit, 24 kHz, one channel).
https://ai.google.dev/gemini-api/docs/speech-generation (read 2026-11-16)
"""

import base64

from dragoman.dialects._services import VOICES, SpeechCodec
from dragoman.dialects.gemini.doors import quote_model
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireRequest

_VOICE = "Kore"


def encode_speech_request(model: str, body: JsonObject) -> WireRequest:
    voice = body.get("voice")
    name = voice.get("id") if isinstance(voice, dict) else voice
    name = VOICES.get(name, name) if isinstance(name, str) else _VOICE
    text, instructions = body.get("input"), body.get("instructions")
    said = f"{instructions}\n\n{text}" if isinstance(instructions, str) and instructions else text
    speech = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}
    return WireRequest(
        path=f"/v1beta/models/{quote_model(model)}:generateContent",
        body={
            "contents": [{"role": "user", "parts": [{"text": said}]}],
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
