"""Speech: the sound of an upstream's answer, in the form that the client wants.

Gemini gives bare samples (16 bit, 24 kHz, one channel). They become wav, pcm, flac and ogg here; mp3 and aac need
ffmpeg. Without ffmpeg an ogg file contains flac, not opus. Samples are stored as they are, silent frames as one value.
https://ai.google.dev/gemini-api/docs/speech-generation, https://platform.openai.com/docs/api-reference/audio,
FLAC: https://www.rfc-editor.org/rfc/rfc9639 (its section 10.1 is FLAC in Ogg), Ogg pages:
https://www.rfc-editor.org/rfc/rfc3533 (read 2026-11-16)
"""

import asyncio
import hashlib
import os
import re
import shutil
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator

from msgspec import Struct

from dragoman.dialects._base import Dialect
from dragoman.dialects._services import SpeechCodec, unsupported
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, load_json
from dragoman.upstream.failures import malformed

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
RATE = 24_000  # of the bare samples of Gemini and OpenAI
_BLOCK = 4096  # samples in a frame
_SERIAL = 0x6472_6167
_FIRST, _LAST = 0x02, 0x04  # of an Ogg page
_MAGIC = ((b"OggS", "ogg"), (b"fLaC", "flac"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"\xff\xf3", "mp3"))
_MORE = ((b"\xff\xf2", "mp3"), (b"\xff\xf1", "aac"), (b"\xff\xf9", "aac"))


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
    from dragoman.child_process import keep_standard_files  # few gateways convert sound

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


# ---------------------------------------------------------------- the form of a file


def sniff_sound(data: bytes) -> str | None:
    """The form, from the first bytes. Bare samples have no mark."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    return next((form for magic, form in (*_MAGIC, *_MORE) if data.startswith(magic)), None)


# ---------------------------------------------------------------- wav


def wrap_wav(samples: bytes, rate: int = RATE) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    size = len(samples)
    return struct.pack("<4sI4s", b"RIFF", 36 + size, b"WAVE") + form + struct.pack("<4sI", b"data", size) + samples


def read_wav(sound: bytes) -> tuple[bytes, int] | None:
    """Samples and rate of a wav file; None if it is not 16 bit and one channel. A streamed file does not know its
    length (0xffffffff): then all bytes that follow are samples."""
    place, rate = 12, RATE
    while place + 8 <= len(sound):
        name, size = struct.unpack_from("<4sI", sound, place)
        inside = sound[place + 8 : place + 8 + size]
        if name == b"fmt " and len(inside) >= 16:
            coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", inside)
            if (coding, channels, bits) != (1, 1, 16):
                return None
        elif name == b"data":
            return inside[: len(inside) // 2 * 2], rate
        place += 8 + size + size % 2
    return None


# ---------------------------------------------------------------- flac


def write_flac(samples: bytes, rate: int = RATE) -> bytes:
    head = b"fLaC" + _block(0, _stream_info(samples, rate), last=True)
    return head + b"".join(frame for frame, _ in _frames(samples))


def write_ogg(samples: bytes, rate: int = RATE) -> bytes:
    """Each flac frame is one packet, and each packet is one page."""
    mapping = struct.pack(">B4sBBH", 0x7F, b"FLAC", 1, 0, 1)  # version 1.0, one more header packet
    comment = struct.pack("<I8sI", 8, b"dragoman", 0)
    pages = [
        _page(mapping + b"fLaC" + _block(0, _stream_info(samples, rate)), 0, 0, _FIRST),
        _page(_block(4, comment, last=True), 1, 0),
    ]
    frames = list(_frames(samples))
    for number, (frame, end) in enumerate(frames):
        pages.append(_page(frame, number + 2, end, _LAST if number == len(frames) - 1 else 0))
    return b"".join(pages)


def _block(kind: int, body: bytes, *, last: bool = False) -> bytes:
    return struct.pack(">I", (last << 31) | (kind << 24) | len(body)) + body


def _stream_info(samples: bytes, rate: int) -> bytes:
    """Frame sizes are left open. Rate, channels - 1, bits - 1 and the number of samples share eight bytes."""
    numbers = (rate << 44) | (0 << 41) | (15 << 36) | (len(samples) // 2)
    digest = hashlib.md5(samples, usedforsecurity=False).digest()
    return struct.pack(">HHxxxxxxQ", _BLOCK, _BLOCK, numbers) + digest


def _frames(samples: bytes) -> Iterator[tuple[bytes, int]]:
    """Each frame, with the number of samples up to its end."""
    values = array("h", samples[: len(samples) // 2 * 2])
    for number, start in enumerate(range(0, len(values), _BLOCK)):
        block = values[start : start + _BLOCK]
        head = b"\xff\xf8" + (b"\xc0" if len(block) == _BLOCK else b"\x70") + b"\x08" + _number(number)
        if len(block) != _BLOCK:
            head += struct.pack(">H", len(block) - 1)
        head += bytes([_crc8(head)])
        if block.count(block[0]) == len(block):
            body = b"\x00" + struct.pack(">h", block[0])  # constant
        else:
            if sys.byteorder == "little":
                block.byteswap()
            body = b"\x02" + block.tobytes()  # verbatim
        frame = head + body
        yield frame + struct.pack(">H", _crc16(frame)), min(start + _BLOCK, len(values))


def _number(number: int) -> bytes:
    """A frame number is coded as UTF-8 codes a character."""
    return chr(number).encode("utf-8", "surrogatepass")


def _table(width: int, polynomial: int) -> list[int]:
    top, mask = 1 << (width - 1), (1 << width) - 1
    table = []
    for byte in range(256):
        value = byte << (width - 8)
        for _ in range(8):
            value = ((value << 1) ^ polynomial if value & top else value << 1) & mask
        table.append(value)
    return table


_TABLE8, _TABLE16 = _table(8, 0x07), _table(16, 0x8005)
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _TABLE8[value ^ byte]
    return value


def _crc16(data: bytes) -> int:
    value, table = 0, _TABLE16
    for byte in data:
        value = ((value << 8) & 0xFFFF) ^ table[(value >> 8) ^ byte]
    return value


# ---------------------------------------------------------------- ogg


def _page(packet: bytes, number: int, end: int, flags: int = 0) -> bytes:
    full, rest = divmod(len(packet), 255)
    lacing = b"\xff" * full + bytes([rest])
    head = struct.pack("<4sBBQII", b"OggS", 0, flags, end, _SERIAL, number)
    bare = head + bytes(4) + bytes([len(lacing)]) + lacing + packet
    return bare[:22] + struct.pack("<I", _crc32(bare)) + bare[26:]


def _crc32(data: bytes) -> int:
    """Ogg's CRC takes bits in the reverse order of zlib's, and starts and ends with 0."""
    value = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{value:032b}"[::-1], 2)
