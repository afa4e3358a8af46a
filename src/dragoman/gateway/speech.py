"""Speech: /v1/audio/speech, served by OpenAI-compatible upstreams and by Gemini's speaking models.

Gemini gives bare samples (16 bit, 24 kHz, one channel). They become wav or pcm here, and mp3, opus, aac or flac where
ffmpeg is installed; without it, what nobody asked for by name comes as wav.
"""

import asyncio
import base64
import re
import shutil
import struct

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.plain import ask, cannot, read_object
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import Json, JsonObject, load_json
from dragoman.upstream.broken import malformed
from dragoman.upstream.spec import DEMO
from dragoman.upstream.urls import quote_segment

TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
CODERS = {"mp3": "mp3", "opus": "ogg", "ogg": "ogg", "aac": "adts", "flac": "flac"}
VOICE = "Kore"
RATE = 24_000
CONVERT_S = 60.0
# OpenAI's voices and who sounds most like them there
VOICES = {"alloy": "Kore", "echo": "Puck", "fable": "Charon", "onyx": "Fenrir", "nova": "Aoede", "shimmer": "Leda"}


async def serve_speech(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    body = await read_object(gateway, http)
    model, text, wanted = body.get("model"), body.get("input"), body.get("response_format")
    if type(model) is not str or type(text) is not str:
        raise DecodeError("expected `model` and `input` as strings")
    if wanted is not None and wanted not in TYPES:
        raise DecodeError(f"expected one of {', '.join(TYPES)}", "response_format")
    targets = gateway.now.targets(model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        raise cannot("the demo model does not speak")

    def form(dialect: str, name: str) -> tuple[str, JsonObject]:
        if dialect == "openai_chat":
            said = {**body, "model": name}
            if said.get("response_format") == "ogg":
                said["response_format"] = "opus"
            return "/v1/audio/speech", said
        if dialect == "gemini":
            return f"/v1beta/models/{quote_segment(name)}:generateContent", _gemini(body, text)
        raise cannot(f"{dialect} does not speak")

    answer = await ask(gateway, http, "speech", "openai_chat", model, form)
    try:
        if answer.rendered.dialect.name != "gemini":
            kind = answer.headers.get("content-type", TYPES[wanted or "mp3"])
            return HttpResponse(200, answer.raw, headers={"content-type": kind})
        samples, rate = _samples(load_json(answer.raw))
        data, kind = await _shape(samples, rate, wanted)
        return HttpResponse(200, data, headers={"content-type": kind})
    finally:
        if http.scope is not None:
            http.scope.finish()


def _gemini(body: JsonObject, text: str) -> JsonObject:
    voice = body.get("voice")
    name = voice.get("id") if type(voice) is dict else voice
    name = VOICES.get(name, name) if type(name) is str else VOICE
    instructions = body.get("instructions")
    said = f"{instructions}\n\n{text}" if type(instructions) is str and instructions else text
    speech = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}
    return {
        "contents": [{"role": "user", "parts": [{"text": said}]}],
        "generationConfig": {"responseModalities": ["AUDIO"], "speechConfig": speech},
    }


def _samples(body: Json) -> tuple[bytes, int]:
    try:
        parts = body["candidates"][0]["content"]["parts"]
        sound = next(p["inlineData"] for p in parts if "inlineData" in p)
        rate = re.search(r"rate=(\d+)", sound.get("mimeType", ""))
        return base64.b64decode(sound["data"]), int(rate[1]) if rate else RATE
    except (KeyError, IndexError, TypeError, StopIteration, ValueError) as error:
        raise UpstreamError(malformed("the upstream's answer holds no sound")) from error


async def _shape(samples: bytes, rate: int, wanted: str | None) -> tuple[bytes, str]:
    if wanted == "pcm":
        return samples, TYPES["pcm"]
    sound = wav(samples, rate)
    if wanted == "wav" or (wanted is None and shutil.which("ffmpeg") is None):
        return sound, TYPES["wav"]
    return await _convert(sound, wanted or "mp3"), TYPES[wanted or "mp3"]


def wav(samples: bytes, rate: int) -> bytes:
    """16 bit, one channel."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    size = len(samples)
    return struct.pack("<4sI4s", b"RIFF", 36 + size, b"WAVE") + form + struct.pack("<4sI", b"data", size) + samples


async def _convert(sound: bytes, wanted: str) -> bytes:
    program = shutil.which("ffmpeg")
    if program is None:
        words = f"this upstream speaks wav and pcm; {wanted} needs ffmpeg beside the gateway"
        raise UpstreamError(Failure(kind="invalid_request", status=400, param="response_format", message=words))
    command = [program, "-loglevel", "error", "-i", "pipe:0", "-f", CODERS[wanted], "pipe:1"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={}
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(sound), CONVERT_S)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise UpstreamError(malformed("ffmpeg could not convert the sound"))
    return out
