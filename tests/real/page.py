"""Writes docs/verification-real.md: python -m tests.real.page"""

import asyncio
from pathlib import Path

from dragoman.conformance.runner import VerifyRun
from dragoman.conformance.verification import real_page
from tests.real.llama import llama_server
from tests.real.playing import KEY, play

PAGE = Path(__file__).parent.parent.parent / "docs" / "verification-real.md"
SERVER = "llama.cpp's own server (b11549, from the package `xllamacpp`)"


def make_page(direct: VerifyRun, through: VerifyRun) -> str:
    return real_page(direct, through, SERVER)


if __name__ == "__main__":
    with llama_server(KEY) as url:
        PAGE.write_text(make_page(*asyncio.run(play(url))), "utf-8")
