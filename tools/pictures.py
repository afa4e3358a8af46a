"""Makes the pictures of the console for README and documentation: `make pictures`. Needs Chromium and playwright."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from dragoman.testing import serve  # noqa: E402
from tests.console.conftest import FLAGS  # noqa: E402
from tests.gateway.house import CANARY, open_house, upstream  # noqa: E402
from tests.gateway.web import post  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
# Name, place, width, colours, what is done before the picture is taken.
PICTURES = (
    ("console-traffic", "traffic", 1280, "light", ""),
    ("console-xray", "xray/lossy", 1280, "light", "note"),
    ("console-playground", "playground", 1280, "dark", "send"),
    ("console-translate", "translate", 1280, "light", "example"),
    ("console-providers", "providers", 1280, "dark", ""),
    ("console-phone", "xray/lossy", 390, "dark", ""),
)
WEATHER = {"name": "weather", "description": "The weather in a city.", "input_schema": {"type": "object"}}
ASKED: dict[str, Any] = {
    "model": "far-model",
    "max_tokens": 200,
    "top_k": 7,
    "stream": True,
    "system": [{"type": "text", "text": "Answer in one sentence.", "cache_control": {"type": "ephemeral"}}],
    "tools": [WEATHER],
    "messages": [{"role": "user", "content": "What is the weather in Seoul?"}],
}


@contextmanager
def busy_gateway() -> Iterator[str]:
    """A gateway with two providers and some traffic."""
    with (
        serve("openai_chat", key=CANARY) as chat,
        serve("gemini", key=CANARY) as gemini,
        open_house(
            upstream("far", "openai_chat", chat.base_url, rpm=60),
            upstream("cloud", "gemini", gemini.base_url, at_once=8),
            xray_keep=100,
        ) as house,
    ):
        for number in range(24):
            model, agent = (("far-model", "claude-cli/2.1.0"), ("cloud-model", "codex/0.166"))[number % 2]
            post(house.url, "/v1/messages", {**ASKED, "model": model}, {"user-agent": agent})
        post(house.url, "/v1/messages", ASKED, {"x-request-id": "lossy", "user-agent": "claude-cli/2.1.0"})
        yield house.url


def take(page: Any, url: str, place: str, act: str) -> None:
    page.goto(f"{url}/console#/{place}")
    page.wait_for_selector("main .card")
    if act == "note":
        page.get_by_role("button", name="lost").first.click()
    elif act == "example":
        page.get_by_role("button", name="Example").click()
        page.get_by_role("region", name="openai_chat").wait_for()
    elif act == "send":
        page.wait_for_function("[...document.querySelectorAll('[list=all-models]')].every((field) => field.value)")
        page.get_by_role("button", name="Send").click()
        page.wait_for_function("document.querySelectorAll('main a[href*=xray]').length == 2")
    page.wait_for_timeout(300)  # charts and colours settle


def main() -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        sys.exit("pictures: there is no Chromium on this machine (apt-get install chromium)")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as play, busy_gateway() as url:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        for name, place, width, scheme, act in PICTURES:
            size = {"width": width, "height": 800}
            page = browser.new_page(viewport=size, color_scheme=scheme, locale="en-GB")
            take(page, url, place, act)
            page.screenshot(path=FOLDER / f"{name}.png")
            page.close()
            print(f"docs/pictures/{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
