"""`dragoman say`: a model speaks a text, and the sound is saved (mission D10)."""

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.arguments import read_port
from dragoman.cli.local_gateway import base_url, find_key, is_answering
from dragoman.cli.style import paint, shows_colour
from dragoman.errors import ConfigError, DragomanError, UpstreamError
from dragoman.gateway import HOST, PORT

if TYPE_CHECKING:
    from dragoman.client import Client

NAME = "say"
HELP = "speak a text and save the sound"
EPILOG = """examples:
  dragoman say "Hello there" -o hello.wav
  dragoman say "Hello there" -o hello.mp3 --model gpt-4o-mini-tts
  dragoman say "안녕하세요" -o hello.ogg --voice Kore \\
      --model gemini-2.5-flash-preview-tts
  echo "a longer text" | dragoman say -o text.pcm
  dragoman say hello -o hello.wav --url http://127.0.0.1:9666/openai/v1

The end of the file's name selects the format: .wav, .ogg, .flac, .mp3, .aac or
.pcm (bare samples, 16 bit, 24 kHz). If a provider makes only bare samples, as
Gemini does, .mp3 and .aac need ffmpeg.

If a gateway runs at --host and --port, it is used. Otherwise the provider is
asked, with a key from the environment (GEMINI_API_KEY, OPENAI_API_KEY, ...).
Without any key, the demo model makes tones.

exit codes: 0 saved, 1 no sound, 2 bad input or usage"""
FORMS = {".wav": "wav", ".pcm": "pcm", ".ogg": "ogg", ".opus": "opus", ".mp3": "mp3", ".flac": "flac", ".aac": "aac"}
# The default model: the one of the first provider that has a key.
SPEECH_MODELS = {"gemini": "gemini-2.5-flash-preview-tts", "openai": "gpt-4o-mini-tts", "groq": "playai-tts"}
NO_SOUND, MISUSED = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="TEXT", help="the text to speak (default: standard input)")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="FILE", help="where the sound goes")
    parser.add_argument("--model", "-m", help="the model (default: the first that speaks)")
    parser.add_argument("--voice", help="the voice (default: the model's own)")
    parser.add_argument("--instructions", metavar="TEXT", help="how to speak")
    parser.add_argument("--host", help=f"of the gateway (default: {HOST})")
    parser.add_argument("--port", type=read_port, help=f"of the gateway (default: {PORT})")
    parser.add_argument("--url", metavar="URL", help="of another server with OpenAI's /audio/speech")
    parser.add_argument("--key", help="for the gateway or --url (default: DRAGOMAN_KEY)")


def run(args: argparse.Namespace) -> int:
    from dragoman.client import Client

    form = FORMS.get(args.output.suffix.lower())
    if form is None:
        return complain(f"{args.output}: expected a file ending in {', '.join(FORMS)}", MISUSED)
    text = " ".join(args.words) or ("" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip())
    if not text:
        return complain("no text: write it after `say`, or pipe it in", MISUSED)
    try:
        with connect(Client, args) as client, progress():
            model = args.model or choose_model(client, args.url)
            sound = client.speak(model, text, voice=args.voice, instructions=args.instructions, form=form)
        args.output.write_bytes(sound.data)
    except ConfigError as error:
        return complain(str(error), MISUSED)
    except UpstreamError as error:
        return complain(str(error), NO_SOUND)
    except OSError as error:
        return complain(f"{args.output} cannot be written: {error.strerror}", NO_SOUND)
    except DragomanError as error:
        return complain(str(error), NO_SOUND)
    print(f"{args.output}: {len(sound.data)} bytes, {model}", file=sys.stderr)
    return 0


def connect(make: "type[Client]", args: argparse.Namespace) -> "Client":
    """Connects to the named server, to a running gateway, or directly to the providers."""
    if args.url:
        return make("compatible", base_url=args.url, api_key=find_key(args.key))
    url = base_url(args.host or HOST, args.port or PORT)
    if is_answering(url):
        return make(base_url=url, api_key=find_key(args.key))
    if args.host or args.port:
        raise DragomanError(f"no gateway answers at {url}")
    return make()


def choose_model(client: "Client", url: str | None) -> str:
    if url:
        return "tts-1"
    if client.upstreams.only is None:
        return next((SPEECH_MODELS[u.name] for u in client.upstreams.all if u.keys and u.name in SPEECH_MODELS), "demo")
    names = [row.name for row in client.models()]
    found = next((name for name in names if "tts" in name.lower() or "speech" in name.lower()), None)
    if found is None and "demo" not in names:
        shown = ", ".join(names[:8])
        raise DragomanError(f"no model's name says that it can speak; choose one with --model (there is {shown})")
    return found or "demo"


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """Shows the elapsed seconds, on a terminal only."""
    if not shows_colour(sys.stderr):
        yield
        return
    started, over = time.monotonic(), threading.Event()

    def tick() -> None:
        while True:
            sys.stderr.write(f"\r\x1b[Kspeaking ... {time.monotonic() - started:.1f} s")
            sys.stderr.flush()
            if over.wait(0.1):
                return

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def complain(text: str, code: int) -> int:
    print(f"{paint('dragoman say:', 'red', sys.stderr)} {text}", file=sys.stderr)
    return code
