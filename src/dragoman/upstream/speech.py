"""Speech, whoever speaks: the request in the words of an OpenAI-compatible server or of Gemini, and the sound of the
answer in the form that was asked for.

Gemini gives bare samples (16 bit, 24 kHz, one channel). They become wav, pcm, flac and ogg here (ogg holds flac where
there is no ffmpeg to make opus of it); mp3 and aac need ffmpeg.
https://ai.google.dev/gemini-api/docs/speech-generation, https://platform.openai.com/docs/api-reference/audio (read
2026-11-16)
"""

import asyncio
import base64
import os
import re
import shutil

from msgspec import Struct

from dragoman.demo.model import demo_speech
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import Json, JsonObject, load_json
from dragoman.upstream.failures import malformed
from dragoman.upstream.sound import RATE, read_wav, sniff_sound, wrap_wav, write_flac, write_ogg
from dragoman.upstream.urls import quote_segment

FORMS = {  # what a sound may be asked as -> its media type
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
_CODERS = {"mp3": "mp3", "opus": "ogg", "ogg": "ogg", "aac": "adts", "flac": "flac", "wav": "wav", "pcm": "s16le"}
_CONVERT_S = 60.0
_VOICE, _VOICE_OPENAI = "Kore", "alloy"
# OpenAI's voices and who sounds most like them at Gemini
_VOICES = {"alloy": "Kore", "echo": "Puck", "fable": "Charon", "onyx": "Fenrir", "nova": "Aoede", "shimmer": "Leda"}
_FRIENDS = {gemini.lower(): openai for openai, gemini in _VOICES.items()}


class Sound(Struct, frozen=True):
    """What was heard. `form` is what it is, "pcm" for bare samples of `rate`."""

    data: bytes
    form: str
    rate: int = RATE

    @property
    def media_type(self) -> str:
        return FORMS[self.form]


def ask_speech(dialect: str, model: str, body: JsonObject) -> tuple[str, JsonObject]:
    """Path and body for an upstream, from the body of OpenAI's /audio/speech."""
    match dialect:
        case "openai_chat" | "openai_responses":
            said = {**body, "model": model}
            if said.get("response_format") == "ogg":
                said["response_format"] = "opus"
            said["voice"] = _openai_voice(body.get("voice"))
            return "/v1/audio/speech", said
        case "gemini":
            return f"/v1beta/models/{quote_segment(model)}:generateContent", _gemini(body)
        case _:
            raise cannot_speak(dialect)


def _openai_voice(voice: Json) -> Json:
    """Gemini's names are understood where there is one that sounds alike; a voice nobody named is the usual one."""
    return _FRIENDS.get(voice.lower(), voice) if isinstance(voice, str) else (voice or _VOICE_OPENAI)


def _gemini(body: JsonObject) -> JsonObject:
    voice = body.get("voice")
    name = voice.get("id") if isinstance(voice, dict) else voice
    name = _VOICES.get(name, name) if isinstance(name, str) else _VOICE
    text, instructions = body.get("input"), body.get("instructions")
    said = f"{instructions}\n\n{text}" if isinstance(instructions, str) and instructions else text
    speech = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}
    return {
        "contents": [{"role": "user", "parts": [{"text": said}]}],
        "generationConfig": {"responseModalities": ["AUDIO"], "speechConfig": speech},
    }


def hear_speech(dialect: str, raw: bytes) -> Sound:
    """The sound of an upstream's answer; UpstreamError when it holds none."""
    if dialect != "gemini":
        return hear(raw)
    try:
        body = load_json(raw)
        parts = body["candidates"][0]["content"]["parts"]
        sound = next(p["inlineData"] for p in parts if "inlineData" in p)
        data, kind = base64.b64decode(sound["data"]), str(sound.get("mimeType", ""))
    except (KeyError, IndexError, TypeError, StopIteration, ValueError, DecodeError) as error:
        raise UpstreamError(malformed("the upstream's answer holds no sound")) from error
    rate = re.search(r"rate=(\d+)", kind)
    heard = hear(data)
    return Sound(data, "pcm", int(rate[1]) if rate else RATE) if heard.form == "pcm" else heard


def hear(data: bytes, *, said: str = "pcm") -> Sound:
    """What bytes are: as their beginning tells, else what they were said to be."""
    if not data:
        raise UpstreamError(malformed("the upstream's answer holds no sound"))
    return Sound(data, sniff_sound(data) or said)


def speak_demo(body: JsonObject) -> Sound:
    voice = body.get("voice")
    return Sound(demo_speech(str(body.get("input")), RATE, voice if isinstance(voice, str) else None), "pcm")


def cannot_speak(who: str) -> UpstreamError:
    words = f"{who} does not speak"
    return UpstreamError(Failure(kind="invalid_request", status=400, code="unsupported", message=words))


# ---------------------------------------------------------------- the form that was asked for


async def shape_sound(sound: Sound, wanted: str | None) -> Sound:
    """The sound as `wanted`; without a wish as it is, bare samples as wav."""
    form = wanted or ("wav" if sound.form == "pcm" else sound.form)
    if sound.form == form or (sound.form == "ogg" and form == "opus"):
        return sound
    bare = _samples(sound)
    if bare is not None and form in ("wav", "pcm", "flac"):
        return _write(*bare, form)
    if bare is not None and form == "ogg" and shutil.which("ffmpeg") is None:
        return _write(*bare, "ogg")
    if shutil.which("ffmpeg") is None:
        given = "bare samples" if sound.form == "pcm" else sound.form
        words = f"{form} needs ffmpeg, which is not there: the upstream gave {given}; wav, pcm, flac and ogg need none"
        raise UpstreamError(Failure(kind="invalid_request", status=400, param="response_format", message=words))
    return await _convert(Sound(wrap_wav(*bare), "wav", bare[1]) if bare is not None else sound, form)


def _samples(sound: Sound) -> tuple[bytes, int] | None:
    match sound.form:
        case "pcm":
            return sound.data, sound.rate
        case "wav":
            return read_wav(sound.data)
        case _:
            return None


def _write(samples: bytes, rate: int, form: str) -> Sound:
    match form:
        case "wav":
            return Sound(wrap_wav(samples, rate), "wav", rate)
        case "flac":
            return Sound(write_flac(samples, rate), "flac", rate)
        case "ogg":
            return Sound(write_ogg(samples, rate), "ogg", rate)
        case _:
            return Sound(samples, "pcm", rate)


async def _convert(sound: Sound, form: str) -> Sound:
    command = ["ffmpeg", "-loglevel", "error", "-i", "pipe:0", "-f", _CODERS[form], "pipe:1"]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", "")},
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(sound.data), _CONVERT_S)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode or not out:
        raise UpstreamError(malformed("ffmpeg could not convert the sound"))
    return Sound(out, form)
