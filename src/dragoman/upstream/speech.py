"""Speech: the sound of an upstream's answer, in the form that the client wants.

Gemini gives bare samples (16 bit, 24 kHz, one channel). They become wav, pcm, flac and ogg here; mp3 and aac need
ffmpeg. Without ffmpeg an ogg file contains flac, not opus.
https://ai.google.dev/gemini-api/docs/speech-generation, https://platform.openai.com/docs/api-reference/audio (read
2026-11-16)
"""

import asyncio
import os
import re
import shutil

from msgspec import Struct

from dragoman.child_process import keep_standard_files
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import SpeechCodec, unsupported
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, load_json
from dragoman.upstream.failures import malformed
from dragoman.upstream.sound import RATE, read_wav, sniff_sound, wrap_wav, write_flac, write_ogg

FORMS = {  # form -> media type
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


class Sound(Struct, frozen=True):
    """A sound and its form; "pcm" means bare samples at `rate`."""

    data: bytes
    form: str
    rate: int = RATE

    @property
    def media_type(self) -> str:
        return FORMS[self.form]


def find_speech(dialect: Dialect) -> SpeechCodec:
    if dialect.speech is None:
        raise unsupported(f"{dialect.name} does not speak")
    return dialect.speech


def read_sound(dialect: Dialect, raw: bytes, *, form: str) -> Sound:
    """The sound of an upstream's answer; UpstreamError when it holds none. `form`: the form to assume if its bytes do
    not show it."""
    decode = find_speech(dialect).decode_reply
    if decode is None:
        return make_sound(raw, form=form)
    try:
        data, kind = decode(load_json(raw))
    except DecodeError as error:
        raise UpstreamError(malformed("the upstream's answer holds no sound")) from error
    rate = re.search(r"rate=(\d+)", kind)
    sound = make_sound(data)
    return Sound(data, "pcm", int(rate[1]) if rate else RATE) if sound.form == "pcm" else sound


def make_sound(data: bytes, *, form: str = "pcm") -> Sound:
    """A sound from its bytes. Its form is what the first bytes show, else `form`."""
    if not data:
        raise UpstreamError(malformed("the upstream's answer holds no sound"))
    return Sound(data, sniff_sound(data) or form)


def speak_demo(body: JsonObject) -> Sound:
    voice = body.get("voice")
    from dragoman.demo.model import demo_speech  # most gateways have no demo model

    return Sound(demo_speech(str(body.get("input")), RATE, voice if isinstance(voice, str) else None), "pcm")


# ---------------------------------------------------------------- converting


async def shape_sound(sound: Sound, wanted: str | None) -> Sound:
    """The sound in the `wanted` form. None: as it is, but bare samples as wav."""
    form = wanted or ("wav" if sound.form == "pcm" else sound.form)
    if sound.form == form or (sound.form == "ogg" and form == "opus"):
        return sound
    bare = await asyncio.to_thread(_samples, sound)  # in threads: a minute of sound takes a second to write
    if bare is not None and form in ("wav", "pcm", "flac"):
        return await asyncio.to_thread(_write, *bare, form)
    if bare is not None and form == "ogg" and shutil.which("ffmpeg") is None:
        return await asyncio.to_thread(_write, *bare, "ogg")
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
    # a server's sound may be a playlist that names files and addresses: only the pipe is read
    read = ["-protocol_whitelist", "pipe", "-i", "pipe:0"]
    command = ["ffmpeg", "-loglevel", "error", *read, "-f", _CODERS[form], "pipe:1"]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", "")},
        preexec_fn=keep_standard_files if hasattr(os, "fork") else None,
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
