"""Speech at its door: what was asked for comes, from whoever speaks, or it is said what can come."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.house import Faultline, Script, faultline, open_house, say, upstream
from tests.gateway.web import Got, post

SAMPLES = struct.pack("<200h", *(i * 100 - 9_000 for i in range(200)))
SOUND = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": base64.b64encode(SAMPLES).decode()}}
GEMINI = say(200, json.dumps({"candidates": [{"content": {"parts": [SOUND]}, "finishReason": "STOP"}]}).encode())
MP3 = b"ID3\x04" + bytes(200)
WAV = (
    struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 436, b"WAVE", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16, b"data", 400)
    + SAMPLES
)
MAGIC = {"wav": b"RIFF", "flac": b"fLaC", "ogg": b"OggS", "opus": b"OggS", "mp3": b"ID3", "aac": b"\xff\xf1"}
TYPES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "mp3": "audio/mpeg",
    "aac": "audio/aac",
    "pcm": "audio/pcm",
}
# who speaks -> its dialect, and what it gives whatever it is asked for
SPEAKERS: dict[str, tuple[str, Script]] = {
    "gemini": ("gemini", GEMINI),
    "an OpenAI-compatible server that only has wav": ("openai_chat", say(200, WAV, "audio/wav")),
}


def speak(speaker: str, **more: Any) -> tuple[Got, Faultline]:
    dialect, script = SPEAKERS[speaker]
    with faultline(script) as line, open_house(upstream("one", dialect, line.url, models=("tts",))) as house:
        return post(house.url, "/v1/audio/speech", {"model": "tts", "input": "안녕", "voice": "alloy", **more}), line


@pytest.fixture
def no_ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that only looks at its words: which form was asked of it, and that a wav came in."""
    program = tmp_path / "ffmpeg"
    magic = {"mp3": "ID3", "ogg": "OggS", "adts": "\\377\\361", "flac": "fLaC"}
    cases = "".join(f"*\" -f {form} \"*) printf '{said}' ;;\n" for form, said in magic.items())
    program.write_text(f'#!/bin/sh\n[ "$(head -c 4)" = RIFF ] || exit 1\ncase " $* " in\n{cases}esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("no_ffmpeg")
@pytest.mark.parametrize("form", ["wav", "pcm", "flac", "ogg"])
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_without_ffmpeg_there_is_wav_pcm_flac_and_ogg(speaker: str, form: str) -> None:
    got, _ = speak(speaker, response_format=form)
    assert (got.status, got.headers["content-type"]) == (200, TYPES[form])
    assert got.body == SAMPLES if form == "pcm" else got.body.startswith(MAGIC[form])
    if form == "wav":
        assert struct.unpack("<I", got.body[24:28]) == (24_000,)
        assert got.body[44:] == SAMPLES


@pytest.mark.usefixtures("no_ffmpeg")
@pytest.mark.parametrize("form", ["mp3", "aac"])
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_without_ffmpeg_it_is_said_what_can_come_instead(speaker: str, form: str) -> None:
    got, _ = speak(speaker, response_format=form)
    assert got.status == 400
    assert got.json["error"]["param"] == "response_format"
    assert all(word in got.json["error"]["message"] for word in (form, "ffmpeg", "wav", "pcm"))


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("form", ["mp3", "aac", "opus"])
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_with_ffmpeg_there_is_the_rest(speaker: str, form: str) -> None:
    got, _ = speak(speaker, response_format=form)
    assert (got.status, got.headers["content-type"]) == (200, TYPES[form])
    assert got.body.startswith(MAGIC[form])


@pytest.mark.usefixtures("no_ffmpeg")
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_who_asks_for_no_form_gets_one_that_can_be_played(speaker: str) -> None:
    got, _ = speak(speaker)
    assert got.headers["content-type"] == "audio/wav"
    assert got.body.startswith(b"RIFF")


def test_what_a_server_gives_as_it_was_asked_passes_as_it_is() -> None:
    with faultline(say(200, MP3, "audio/mpeg")) as line, open_house(upstream("one", "openai_chat", line.url)) as house:
        client = openai.OpenAI(base_url=f"{house.url}/v1", api_key="x", max_retries=0)
        sound = client.audio.speech.create(model="one-model", input="hello", voice="alloy", response_format="mp3")
        assert sound.read() == MP3
        assert json.loads(line.seen[0].body)["response_format"] == "mp3"
        client.close()


def test_gemini_is_asked_in_its_own_words() -> None:
    got, line = speak("gemini", response_format="pcm", instructions="whisper")
    assert got.status == 200
    assert line.seen[0].path == "/v1beta/models/tts:generateContent"
    sent = json.loads(line.seen[0].body)
    assert sent["generationConfig"]["responseModalities"] == ["AUDIO"]
    assert sent["generationConfig"]["speechConfig"]["voiceConfig"]["prebuiltVoiceConfig"]["voiceName"] == "Kore"
    assert sent["contents"][0]["parts"][0]["text"] == "whisper\n\n안녕"


@pytest.mark.parametrize(
    "more",
    [{"response_format": "midi"}, {"input": 3}, {"stream_format": "sse"}],
    ids=["no such form", "no text", "events"],
)
def test_what_cannot_be_spoken_is_400(more: dict[str, Any]) -> None:
    got, _ = speak("gemini", **more)
    assert got.status == 400


@pytest.mark.parametrize("dialect", ["anthropic", "ollama"])
def test_who_does_not_speak_says_so(dialect: str) -> None:
    with faultline(GEMINI) as line, open_house(upstream("one", dialect, line.url)) as house:
        got = post(house.url, "/v1/audio/speech", {"model": "one-model", "input": "hello"})
        assert got.status == 400
        assert "does not speak" in got.text
        assert not line.seen


def test_an_answer_without_a_sound_is_the_upstreams_fault() -> None:
    silent = say(200, b'{"candidates": [{"content": {"parts": [{"text": "I would rather write"}]}}]}')
    with faultline(silent) as line, open_house(upstream("one", "gemini", line.url)) as house:
        got = post(house.url, "/v1/audio/speech", {"model": "one-model", "input": "hello"})
        assert got.status == 502
        assert "no sound" in got.text


@pytest.mark.parametrize("kind", ["image/svg+xml", "audio/mpeg; charset=x", "application/octet-stream"])
def test_an_upstreams_content_type_does_not_reach_a_client(kind: str) -> None:
    """A browser would run what it is told is a picture with scripts."""
    with faultline(say(200, b"<svg onload='alert(1)'/>", kind)) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1", models=("tts-1",))
        with open_house(up) as house:
            got = post(house.url, "/v1/audio/speech", {"model": "tts-1", "input": "x", "voice": "a"})
    assert (got.status, got.headers["content-type"]) == (200, "audio/mpeg")
