"""`dragoman say`: through a gateway, straight to a provider, and by the demo model; in every form of file."""

import contextlib
import http.server
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.demo.model import demo_speech
from dragoman.speech import RATE, read_wav, wrap_wav, write_flac, write_ogg
from dragoman.testing import serve
from tests.cli.terminal import Terminal
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("at_home")

PCM = b"\x01\x00\x02\x00" * 100
TTS = "gemini-2.5-flash-preview-tts"
HELLO = demo_speech("hello there", RATE)
# The forms that can be made of bare samples without any program, and what they then are.
MADE = {"a.wav": wrap_wav(HELLO), "a.pcm": HELLO, "a.flac": write_flac(HELLO), "a.ogg": write_ogg(HELLO)}


@pytest.fixture(autouse=True)
def _no_gateway_and_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.say.PORT", free_port())
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


class Speaker(http.server.BaseHTTPRequestHandler):
    """OpenAI's /audio/speech; what it gives is its server's to say."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server: Any = self.server
        server.asked.append((self.path, body))
        data = server.gives
        self.send_response(200 if data else 400)
        self.send_header("content-length", str(len(data) or 39))
        self.end_headers()
        self.wfile.write(data or b'{"error": {"message": "no such voice"}}')

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def speaker(gives: bytes) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Speaker)
    server.gives, server.asked = gives, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("name", "gives", "asks", "gets"),
    [
        ("a.wav", wrap_wav(PCM), "wav", wrap_wav(PCM)),
        ("a.pcm", PCM, "pcm", PCM),
        ("a.pcm", wrap_wav(PCM), "pcm", PCM),  # some servers give wav whatever one asks
        ("a.ogg", wrap_wav(PCM), "opus", write_ogg(PCM)),
        ("a.ogg", b"OggS...", "opus", b"OggS..."),
        ("a.opus", b"OggS...", "opus", b"OggS..."),
        ("a.mp3", b"ID3...", "mp3", b"ID3..."),
        ("A.MP3", b"\x00\x00", "mp3", b"\x00\x00"),  # what nobody knows is what was asked for
    ],
)
def test_speech_is_saved_as_the_name_says(
    name: str, gives: bytes, asks: str, gets: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with speaker(gives) as server:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        assert main(["say", "hello", "there", "-o", name, "--url", url, "--voice", "nova"]) == 0
    assert (tmp_path / name).read_bytes() == gets
    path, body = server.asked[0]
    assert path == "/v1/audio/speech"
    assert body == {"model": "tts-1", "input": "hello there", "voice": "nova", "response_format": asks}
    assert f"{name}: {len(gets)} bytes, tts-1" in capsys.readouterr().err


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("way", ["demo", "gateway demo", "gemini", "gateway gemini", "openai", "gateway openai"])
def test_every_way_gives_every_form(
    way: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: House
) -> None:
    """Gemini gives bare samples only, so what is made of them is made by us, here or in the gateway."""
    kind = way.rpartition(" ")[2]
    model = {"demo": "demo", "gemini": TTS, "openai": "gpt-4o-mini-tts"}[kind]
    words = ["say", "hello", "there", "-o", name, *(["--model", model] if "gateway" in way else [])]
    with contextlib.ExitStack() as stack:
        if kind != "demo":
            provider = stack.enter_context(serve(kind, key=CANARY))
            dialect = "gemini" if kind == "gemini" else "openai_chat"
            if "gateway" in way:
                spec = upstream("far", dialect, provider.base_url, models=(model,), kind=kind)
                words += ["--port", str(stack.enter_context(open_house(spec)).port)]
            else:
                monkeypatch.setenv(f"{kind.upper()}_API_KEY", CANARY)
                monkeypatch.setenv(f"{kind.upper()}_BASE_URL", provider.base_url)
        elif "gateway" in way:
            words += ["--port", str(house.port)]
        assert main(words) == 0
    heard = (tmp_path / name).read_bytes()
    assert heard[:4] == MADE[name][:4] or name == "a.pcm"
    if kind != "openai":  # whose voice is another one
        assert heard == MADE[name]


@pytest.mark.parametrize("name", ["a.mp3", "a.aac", "a.opus"])
@pytest.mark.parametrize("through", [False, True], ids=["here", "gateway"])
def test_without_a_converter_the_rest_is_a_clear_no(
    name: str, through: bool, house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = ["--port", str(house.port)] if through else []
    assert main(["say", "hi", "-o", name, "--model", "demo", *port]) == 1
    form = name.removeprefix("a.")
    assert f"{form} needs ffmpeg, which is not there: the upstream gave bare samples" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_ffmpeg_makes_the_others_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "sys.stdout.buffer.write(b'ID3' + sys.argv[-2].encode() + sys.stdin.buffer.read())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["say", "hello", "there", "-o", "a.mp3"]) == 0
    assert (tmp_path / "a.mp3").read_bytes() == b"ID3mp3" + wrap_wav(HELLO)
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")
    assert main(["say", "hello", "there", "-o", "a.mp3"]) == 1
    assert "ffmpeg could not convert" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["hi", "-o", "a.txt"], 2, "expected a file ending in"),
        (["-o", "a.wav"], 2, "no text"),
        (["hi", "-o", "a.wav", "--url", "http://127.0.0.1:9"], 1, "accepts no connection"),
        (["hi", "-o", "a.wav", "--url", "ftp://x"], 2, "base_url"),
        (["hi", "-o", "a.wav", "--port", "9"], 1, "no gateway answers at http://127.0.0.1:9"),
        (["hi", "-o", "a.wav", "--model", "gpt-4o-mini-tts"], 1, "set OPENAI_API_KEY"),
        (["hi", "-o", "a.wav", "--model", "nobody"], 1, "put the upstream's name in front"),
        (["hi", "-o", "nowhere/a.wav"], 1, "cannot be written: No such file or directory"),
        (["hi", "-o", "a.wav", "--model", "claude-sonnet-4-6"], 1, "needs a key for Anthropic"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else None,
)
def test_what_cannot_be_said_is_explained(
    words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["say", *words]) == code
    err = capsys.readouterr().err
    assert why in err
    assert "Traceback" not in err


def test_who_does_not_speak_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    assert main(["say", "hi", "-o", "a.wav", "--model", "claude-sonnet-4-6"]) == 1
    assert "anthropic does not speak" in capsys.readouterr().err


def test_a_refusal_of_the_server_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with speaker(b"") as server:
        assert main(["say", "hi", "-o", "a.wav", "--url", f"http://127.0.0.1:{server.server_port}"]) == 1
    assert "no such voice" in capsys.readouterr().err
    with serve("gemini", key=CANARY) as provider:
        monkeypatch.setenv("GEMINI_API_KEY", CANARY)
        monkeypatch.setenv("GEMINI_BASE_URL", provider.base_url)
        assert main(["say", "hi", "-o", "a.wav", "--voice", "Nobody"]) == 1
        assert "Voice name Nobody is not supported" in capsys.readouterr().err
        assert main(["say", "hi", "-o", "a.wav", "--voice", "nova", "--instructions", "Whisper:"]) == 0
        asked = provider.requests[-1].json
    assert asked["contents"][0]["parts"] == [{"text": "Whisper:\n\nhi"}]
    voice = asked["generationConfig"]["speechConfig"]["voiceConfig"]["prebuiltVoiceConfig"]["voiceName"]
    assert voice == "Aoede"  # who sounds most like OpenAI's nova


def test_what_is_piped_in_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello there\n"))
    assert main(["say", "-o", "a.pcm"]) == 0
    assert (tmp_path / "a.pcm").read_bytes() == HELLO


def test_a_progress_line_on_a_terminal() -> None:
    with speaker(wrap_wav(PCM)) as server:
        terminal = Terminal("say", "hi", "-o", "a.wav", "--url", f"http://127.0.0.1:{server.server_port}/v1")
        terminal.wait("speaking ...")
        terminal.wait("\r\x1b[K")
        terminal.wait("a.wav: ")
        assert terminal.end() == 0


def test_wav_is_read_whatever_stands_before_its_sound() -> None:
    odd = b"RIFF\0\0\0\0WAVE" + b"LIST\x03\0\0\0abc\0" + wrap_wav(b"\x07\x08")[12:]
    assert read_wav(odd) == (b"\x07\x08", 24_000)
