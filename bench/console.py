"""What open consoles cost a gateway, and how fast the page is: `python bench/console.py`. Needs Chromium for the page.

The cost is a ratio of CPU time: rounds with three consoles and rounds with none, in turn, in one process. The demo
model answers, so that nothing but the gateway works; with a provider the same cost is a smaller part.
"""

import asyncio
import shutil
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from dragoman.gateway.access.auth import Access  # noqa: E402
from dragoman.gateway.access.client_keys import ClientKeys  # noqa: E402
from dragoman.gateway.app import App  # noqa: E402
from dragoman.gateway.config.settings import Settings  # noqa: E402
from dragoman.gateway.http import HttpRequest  # noqa: E402
from dragoman.gateway.state import Gateway  # noqa: E402
from dragoman.gateway.telemetry.log import Log  # noqa: E402
from dragoman.upstream.discovery import demo_upstream  # noqa: E402
from tests.console.conftest import FLAGS  # noqa: E402
from tests.gateway.house import open_house  # noqa: E402
from tests.gateway.test_traffic import ROW  # noqa: E402

ROUNDS = 61
REQUESTS = 400  # of a round
CONSOLES = 3
MOST = 1.03
BODY = b'{"model": "demo", "messages": [{"role": "user", "content": "say hello"}], "stream": true}'


async def run_round(app: App, count: int) -> float:
    """CPU seconds of this process for so many requests, one after the other: as fast as one core can."""
    began = time.process_time()
    for _ in range(count):
        headers = {"host": "localhost", "content-type": "application/json"}
        http = HttpRequest("POST", "/v1/chat/completions", headers=headers, body=BODY)
        response = await app.handle(http)
        if response.stream is not None:
            await response.stream(forget)
        if response.close is not None:
            response.close()
    return time.process_time() - began


async def forget(data: bytes) -> None: ...


async def watch(app: App) -> None:
    """A console. What it is sent goes through the kernel, and is read there at once."""
    http = HttpRequest("GET", "/admin/v1/traffic/live", headers={"host": "localhost"})
    response = await app.handle(http)

    near, far = socket.socketpair()

    async def write(data: bytes) -> None:
        for at in range(0, len(data), 1 << 16):
            near.send(data[at : at + (1 << 16)])
            far.recv(1 << 16)

    if response.stream is None or response.close is None:
        raise SystemExit("bench: there is no live traffic")
    try:
        await response.stream(write)
    finally:
        response.close()
        near.close()
        far.close()


async def compare_rounds() -> list[float]:
    settings = Settings(upstreams=(demo_upstream(),), port=0)
    access = Access(ClientKeys(None, ()))
    app = App(Gateway(settings, access, log=Log("json")))
    await run_round(app, REQUESTS)
    ratios = []
    for number in range(ROUNDS):
        pair: dict[bool, float] = {}
        for watched in (False, True) if number % 2 else (True, False):
            consoles = [asyncio.ensure_future(watch(app)) for _ in range(CONSOLES if watched else 0)]
            await asyncio.sleep(0.01)
            pair[watched] = await run_round(app, REQUESTS)
            for console in consoles:
                console.cancel()
            await asyncio.gather(*consoles, return_exceptions=True)
        ratios.append(pair[True] / pair[False])
    await app.gateway.close()
    return ratios


def measure_cost() -> float:
    ratios = asyncio.run(compare_rounds())
    median = statistics.median(ratios)
    print(f"{CONSOLES} consoles: {median:.3f} of the CPU time of none ({min(ratios):.3f} to {max(ratios):.3f})")
    return median


def measure_page(program: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, open_house() as house:
        house.gateway.traffic.store.add([msgspec.structs.replace(ROW, id=f"r{n}") for n in range(100_000)], 0)
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        paints, rows = [], []
        for _ in range(5):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(f"{house.url}/console")
            page.locator(".line.body").first.wait_for()
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            scroll(page, 10_000)
            rows.append(time.perf_counter() - began)
            page.close()
        page = browser.new_page()
        page.goto(f"{house.url}/console")
        page.locator(".line.body").first.wait_for()
        scroll(page, 100_000)
        slow = page.evaluate(FRAMES)
        print(
            f"first paint {statistics.median(paints):.0f} ms; 10,000 rows there after {statistics.median(rows):.2f} s"
        )
        print(
            f"100,000 rows: frames while scrolling {slow['median']:.1f} ms, the slowest of 100 {slow['worst']:.1f} ms"
        )
        browser.close()


def scroll(page: Any, count: int) -> None:
    """Until so many rows are loaded."""
    box = page.locator(".table")
    while int(box.get_attribute("aria-rowcount") or 0) <= count - 1:
        box.evaluate("(box) => { box.scrollTop = box.scrollHeight; }")


FRAMES = """() => new Promise((done) => {
  const box = document.querySelector(".table"), times = [];
  let last = performance.now();
  const step = (now) => {
    times.push(now - last);
    last = now;
    box.scrollTop = Math.random() * box.scrollHeight;
    if (times.length < 101) return void requestAnimationFrame(step);
    times.shift();
    times.sort((a, b) => a - b);
    done({ median: times[50], worst: times[99] });
  };
  requestAnimationFrame(step);
})"""


def main() -> int:
    program = shutil.which("chromium")
    if program is not None:
        measure_page(program)
    return 0 if measure_cost() <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
