"""The demo model's voice: it hums, a tone for each word, as high as its letters say. Equal texts sound equal."""

import math
from array import array
from sys import byteorder

from dragoman.upstream.sound import RATE

_TONE_S = 0.14
_PAUSE_S = 0.04
_MOST_WORDS = 400  # about a minute and a quarter
_LOUD = 9000
_LOWEST_HZ = 220.0
_NOTES = (0, 2, 4, 7, 9, 12, 14, 16)  # of a pentatonic scale: whatever follows, it does not hurt


def demo_speech(text: str, voice: str | None = None) -> bytes:
    """Samples: 16 bit, one channel, RATE a second. Each voice has a pitch of its own."""
    samples = array("h")
    pause = array("h", bytes(2 * int(RATE * _PAUSE_S)))
    shift = sum((voice or "").lower().encode()) % 12
    for word in text.split()[:_MOST_WORDS]:
        note = _NOTES[sum(word.lower().encode()) % len(_NOTES)] + shift
        samples.extend(_tone(_LOWEST_HZ * 2 ** (note / 12)))
        samples.extend(pause)
    if byteorder == "big":
        samples.byteswap()
    return samples.tobytes()


def _tone(hertz: float) -> "array[int]":
    """Whole waves only: it begins and ends in silence, and does not click."""
    period = round(RATE / hertz)
    wave = [round(_LOUD * math.sin(2 * math.pi * place / period)) for place in range(period)]
    return array("h", wave) * round(RATE * _TONE_S / period)
