"""Sound in files, read back by a reader of our own that knows the formats only from their specifications (a real
ffmpeg read them bit for bit too, 2026-11-16)."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.demo.model import demo_speech
from dragoman.speech import RATE, read_wav, sniff_sound, wrap_wav, write_flac, write_ogg

SPOKEN = demo_speech("one two three four five", RATE, "Kore")
SAMPLES = {
    "words": SPOKEN,
    "silence": bytes(30_000),
    "silence and words": bytes(20_000) + SPOKEN + bytes(9_000),
    "one": b"\x01\x80",
    "a whole frame": SPOKEN[:8192],
    "more than 127 frames": bytes(8192 * 130) + SPOKEN,
}


def crc(data: bytes, width: int, polynomial: int) -> int:
    """Bit by bit, as the specifications describe it."""
    value = 0
    for byte in data:
        value ^= byte << (width - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (width - 1) else 0)
            value &= (1 << width) - 1
    return value


def read_frames(data: bytes, rate: int) -> bytes:
    """The samples of FLAC frames: verbatim and constant ones, which are all we write."""
    samples = b""
    place, number = 0, 0
    while place < len(data):
        start = place
        assert data[place : place + 2] == b"\xff\xf8"
        sizes, form = data[place + 2], data[place + 3]
        assert (sizes & 15, form) == (0, 8)  # the rate of the head, one channel, 16 bit
        place += 4
        coded = len(chr(number).encode())
        assert data[place : place + coded].decode() == chr(number)
        place += coded
        count = 4096
        if sizes >> 4 == 7:
            count = struct.unpack_from(">H", data, place)[0] + 1
            place += 2
        else:
            assert sizes >> 4 == 12
        assert crc(data[start:place], 8, 0x07) == data[place]
        kind = data[place + 1]
        size = 2 if kind == 0 else 2 * count
        assert kind in (0, 2)
        big = data[place + 2 : place + 2 + size] * (count if kind == 0 else 1)
        samples += b"".join(big[i + 1 : i + 2] + big[i : i + 1] for i in range(0, len(big), 2))
        place += 2 + size
        assert crc(data[start:place], 16, 0x8005) == struct.unpack_from(">H", data, place)[0]
        place, number = place + 2, number + 1
    return samples


def check_info(info: bytes, samples: bytes, rate: int) -> None:
    numbers = struct.unpack_from(">Q", info, 10)[0]
    assert (numbers >> 44, numbers >> 41 & 7, numbers >> 36 & 31, numbers & (1 << 36) - 1) == (
        rate,
        0,
        15,
        len(samples) // 2,
    )
    assert info[18:] == hashlib.md5(samples).digest()  # noqa: S324  # FLAC has it so


def read_pages(data: bytes) -> list[tuple[bytes, int, int]]:
    """Packet, samples up to its end, and flags of each page."""
    pages: list[tuple[bytes, int, int]] = []
    place = 0
    while place < len(data):
        magic, version, flags, end, _, number, said, segments = struct.unpack_from("<4sBBQIIIB", data, place)
        assert (magic, version, number) == (b"OggS", 0, len(pages))
        lacing = data[place + 27 : place + 27 + segments]
        size = 27 + segments + sum(lacing)
        page = data[place : place + size]
        assert crc(page[:22] + bytes(4) + page[26:], 32, 0x04C11DB7) == said
        assert lacing[-1] < 255  # the packet ends here
        pages.append((page[27 + segments :], end, flags))
        place += size
    return pages


@pytest.mark.parametrize("name", SAMPLES)
def test_flac_and_ogg_hold_what_was_put_in(name: str) -> None:
    samples = SAMPLES[name]
    flac = write_flac(samples, 16_000)
    assert flac[:8] == b"fLaC\x80\x00\x00\x22"
    check_info(flac[8:42], samples, 16_000)
    assert read_frames(flac[42:], 16_000) == samples
    first, second, *rest = read_pages(write_ogg(samples, 16_000))
    assert first[0][:17] == b"\x7fFLAC\x01\x00\x00\x01fLaC\x00\x00\x00\x22"
    check_info(first[0][17:], samples, 16_000)
    assert second[0][:4] == b"\x84\x00\x00\x10"
    assert read_frames(b"".join(packet for packet, _, _ in rest), 16_000) == samples
    assert (first[2], rest[-1][1], rest[-1][2]) == (2, len(samples) // 2, 4)


@settings(max_examples=20, deadline=None)
@given(
    st.binary(min_size=2, max_size=400).map(lambda data: data[: len(data) // 2 * 2]), st.sampled_from([8000, 48_000])
)
def test_any_samples_come_back(samples: bytes, rate: int) -> None:
    assert read_frames(write_flac(samples, rate)[42:], rate) == samples
    assert read_wav(wrap_wav(samples, rate)) == (samples, rate)


def test_silence_is_small_and_a_minute_is_quick() -> None:
    assert len(write_ogg(bytes(2_000_000))) < 20_000


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (wrap_wav(SPOKEN), "wav"),
        (write_flac(SPOKEN), "flac"),
        (write_ogg(SPOKEN), "ogg"),
        (b"ID3\x04", "mp3"),
        (b"\xff\xfb\x90", "mp3"),
        (b"\xff\xf1\x50", "aac"),
        (SPOKEN, None),
        (b"", None),
    ],
)
def test_the_beginning_tells_the_form(data: bytes, form: str | None) -> None:
    assert sniff_sound(data) == form


@pytest.mark.parametrize(
    ("place", "value"),
    [(20, 3), (22, 2), (34, 24)],
    ids=["floating point", "two channels", "24 bit"],
)
def test_other_wav_is_left_to_ffmpeg(place: int, value: int) -> None:
    sound = bytearray(wrap_wav(SPOKEN))
    struct.pack_into("<H", sound, place, value)
    assert read_wav(bytes(sound)) is None


def test_a_streamed_wav_has_all_that_came() -> None:
    sound = bytearray(wrap_wav(SPOKEN))
    struct.pack_into("<I", sound, 40, 0xFFFFFFFF)
    assert read_wav(bytes(sound)) == (SPOKEN, 24_000)


def test_the_demo_model_s_voice_is_always_the_same_and_each_voice_another() -> None:
    assert demo_speech("hello there", RATE) == demo_speech("hello there", RATE)
    assert demo_speech("hello there", RATE, "Kore") != demo_speech("hello there", RATE, "Puck")
    assert demo_speech("", RATE) == b""
    assert len(demo_speech("word " * 5000, RATE)) < 24_000 * 2 * 120
