"""What open consoles cost a gateway, and how fast the page is: `python bench/console.py`. Needs Chromium for the page.

The cost is a ratio of CPU time: rounds with three consoles and rounds with none, in turn, in one process. The demo
model answers, so that nothing but the gateway works; with a provider the same cost is a smaller part.
"""

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from tests.console.conftest import FLAGS  # noqa: E402
from tests.gateway.house import House, open_house  # noqa: E402
from tests.gateway.test_traffic import ROW  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

ROUNDS = 12
REQUESTS = 1500  # of a round
CONSOLES = 3
MOST = 1.03
LOAD = """
import http.client, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
link = http.client.HTTPConnection("127.0.0.1", port)
body = b'{"model": "demo", "messages": [{"role": "user", "content": "say hello"}], "stream": true}'
for _ in range(count):
    link.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    link.getresponse().read()
"""
READ = """
import http.client, sys
link = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
link.request("GET", "/admin/v1/traffic/live")
answer = link.getresponse()
while answer.readline():
    pass
"""


def run_round(house: House, count: int) -> float:
    """CPU seconds of the gateway's process for so many requests. The clients are processes of their own."""
    began = time.process_time()
    each = [subprocess.Popen([sys.executable, "-c", LOAD, str(house.port), str(count // 2)]) for _ in range(2)]
    for process in each:
        process.wait()
    return time.process_time() - began


def open_consoles(house: House) -> list[subprocess.Popen[bytes]]:
    readers = [subprocess.Popen([sys.executable, "-c", READ, str(house.port)]) for _ in range(CONSOLES)]
    wait_until(lambda: len(house.gateway.traffic._readers) == CONSOLES)
    return readers


def close_consoles(house: House, readers: list[subprocess.Popen[bytes]]) -> None:
    for reader in readers:
        reader.kill()
        reader.wait()
    wait_until(lambda: not house.gateway.traffic._readers)


def measure_cost() -> float:
    ratios = []
    with open_house() as house:
        run_round(house, REQUESTS)
        for number in range(ROUNDS):
            pair: dict[bool, float] = {}
            for watched in (False, True) if number % 2 else (True, False):
                readers = open_consoles(house) if watched else []
                pair[watched] = run_round(house, REQUESTS)
                close_consoles(house, readers)
            ratios.append(pair[True] / pair[False])
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
