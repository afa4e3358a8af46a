"""`dragoman say`: a text spoken by a model, saved as sound (mission D10)."""

import argparse
import http.client
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.cli.local import HOST, PORT, GatewayError, base_url, find_key, list_models, running_gateway, say_refusal
from dragoman.cli.style import colourful, paint
from dragoman.jsontypes import JsonObject, dump_json

NAME = "say"
HELP = "speak a text and save the sound"
EPILOG = """examples:
  dragoman say "Hello there" -o hello.wav --model gpt-4o-mini-tts
  dragoman say "안녕하세요" -o hello.ogg --model gemini-2.5-flash-preview-tts --voice Kore
  echo "a longer text" | dragoman say -o text.pcm
  dragoman say hello -o hello.wav --url http://127.0.0.1:9666/openai/v1      (any OpenAI-compatible server)

The end of the file's name says what it becomes: .wav, .ogg, .mp3, .flac, .aac or .pcm (16 bit, 24 kHz, bare).
.ogg needs an upstream that gives it, or ffmpeg."""
FORMATS = {".wav": "wav", ".pcm": "pcm", ".ogg": "opus", ".opus": "opus", ".mp3": "mp3", ".flac": "flac", ".aac": "aac"}
TIMEOUT_S = 300.0


class SpeechError(GatewayError):
    """No sound, or not in the form that was asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="TEXT", help="what to say (default: standard input)")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="FILE", help="where the sound goes")
    parser.add_argument("--model", "-m", help="who speaks (default: the first speaking model there is)")
    parser.add_argument("--voice", help="with which voice (default: the model's own)")
    parser.add_argument("--instructions", metavar="TEXT", help="how to speak")
    parser.add_argument("--host", default=HOST, help="of the gateway (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="of the gateway (default: %(default)s)")
    parser.add_argument("--url", metavar="URL", help="of another server with OpenAI's /audio/speech")
    parser.add_argument("--key", help="a key for it (default: DRAGOMAN_KEY)")


def run(args: argparse.Namespace) -> int:
    try:
        text = " ".join(args.words) or ("" if sys.stdin.isatty() else sys.stdin.read().strip())
        form = FORMATS.get(args.output.suffix.lower())
        if not text or form is None:
            what = "there is nothing to say" if not text else f"expected a file ending in {', '.join(FORMATS)}"
            print(f"{paint('dragoman say:', 'red', sys.stderr)} {what}", file=sys.stderr)
            return 2
        if args.url:
            sound = speak(args.url.rstrip("/") + "/audio/speech", args, text, form, args.model or "tts-1")
        else:
            base = base_url(args.host, args.port)
            with running_gateway(base, quiet=True):
                model = args.model or find_speaker(base, find_key(args.key))
                sound = speak(base + "/v1/audio/speech", args, text, form, model)
        data = shape(sound, form, args.output.name)
        args.output.write_bytes(data)
    except (GatewayError, OSError) as error:
        print(f"{paint('dragoman say:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1
    print(f"{args.output}: {len(data)} bytes", file=sys.stderr)
    return 0


def find_speaker(url: str, key: str | None) -> str:
    names = list_models(url, key)
    found = next((name for name in names if "tts" in name.lower() or "speech" in name.lower()), None)
    if found is None:
        raise SpeechError(f"no model here speaks by its name; say which: --model (there is {', '.join(names[:8])})")
    return found


def speak(url: str, args: argparse.Namespace, text: str, form: str, model: str) -> bytes:
    body: JsonObject = {"model": model, "input": text, "voice": args.voice or "alloy", "response_format": form}
    if args.instructions:
        body["instructions"] = args.instructions
    headers = {"content-type": "application/json"}
    if key := find_key(args.key):
        headers["authorization"] = f"Bearer {key}"
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or HOST, parts.port, timeout=TIMEOUT_S)
    progress = Progress()
    try:
        progress.show(0)
        connection.request("POST", parts.path, dump_json(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise SpeechError(say_refusal(response.status, response.read(65536)))
        pieces: list[bytes] = []
        while piece := response.read1(65536):
            pieces.append(piece)
            progress.show(sum(map(len, pieces)))
        return b"".join(pieces)
    except (OSError, http.client.HTTPException) as error:
        raise SpeechError(f"{url} does not answer: {error}") from error
    finally:
        progress.end()
        connection.close()


class Progress:
    """One line that changes, on a terminal only."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._on = colourful(sys.stderr)

    def show(self, size: int) -> None:
        if self._on:
            seconds = time.monotonic() - self._begun
            sys.stderr.write(f"\r\x1b[Kspeaking ... {size // 1024} kB, {seconds:.1f} s")
            sys.stderr.flush()

    def end(self) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def shape(sound: bytes, form: str, name: str) -> bytes:
    """The sound in the form that was asked for. A server may give wav whatever one asks."""
    if not sound:
        raise SpeechError("the answer holds no sound")
    given = sniff(sound)
    if given == form or (given is None and form in ("pcm", "mp3", "aac")):
        return sound
    if given == "wav" and form == "pcm":
        return samples(sound)
    if given is None and form == "wav":
        return wrap(sound)
    if shutil.which("ffmpeg") is None:
        what = given or "a form nobody here knows"
        raise SpeechError(f"the server gave {what}, and {name} needs ffmpeg to be made of it; try -o out.wav")
    coder = {"opus": "ogg", "aac": "adts"}.get(form, form)
    command = ["ffmpeg", "-loglevel", "error", "-i", "pipe:0", "-f", coder, "pipe:1"]
    done = subprocess.run(command, input=sound, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise SpeechError(f"ffmpeg could not make {name}: {done.stderr.decode('utf-8', 'replace')[:200]}")
    return done.stdout


def sniff(sound: bytes) -> str | None:
    if sound[:4] == b"RIFF" and sound[8:12] == b"WAVE":
        return "wav"
    if sound[:3] == b"ID3" or sound[:2] in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"):
        return "mp3"
    return {b"OggS": "opus", b"fLaC": "flac"}.get(sound[:4])


def samples(sound: bytes) -> bytes:
    """What a wav file holds, without what it says about it."""
    place = 12
    while place + 8 <= len(sound):
        size = int.from_bytes(sound[place + 4 : place + 8], "little")
        if sound[place : place + 4] == b"data":
            return sound[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
    raise SpeechError("the wav file holds no sound")


def wrap(pcm: bytes, rate: int = 24_000) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(pcm), b"WAVE")
    return head + form + struct.pack("<4sI", b"data", len(pcm)) + pcm
