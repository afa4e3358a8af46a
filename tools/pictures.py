"""Makes the pictures of the console for README and documentation: `make pictures`. Needs Chromium and playwright."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.console.conftest import FLAGS, Tab  # noqa: E402
from tests.console.sample_gateway import SampleGateway, open_sample_gateway  # noqa: E402
from tests.gateway.web import post  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
HEIGHT = 860
AGENTS = (("far-model", "claude-cli/2.1.0"), ("cloud-model", "codex_cli_rs/0.58"), ("safe", "python-httpx/0.28"))


def work_for_half_an_hour(scene: SampleGateway) -> None:
    """Requests of the last 30 minutes, by a clock that is put back."""
    gateway, now = scene.house.gateway, time.time()
    for number in range(36):
        at = now - 1700 + number * 46
        gateway.wall = lambda at=at: at
        model, agent = AGENTS[number % 3]
        for _ in range(1 + number % 4):
            scene.send(agent=agent, model=model)
        if number % 11 == 5:
            scene.send(agent="curl/8.5", model="no-such-model")
    gateway.wall = time.time
    scene.send("lossy")
    scene.send("fallback", model="safe")


def verify(scene: SampleGateway) -> None:
    post(scene.url, "/admin/v1/verify", {"providers": ["far", "cloud"]}, {"authorization": f"Bearer {scene.admin}"})
    wait_until(lambda: all(run.done for run in scene.house.gateway.verify_book.runs()))


def choose_note(page: Any) -> None:
    page.get_by_role("button", name="lost").first.click()
    page.locator(".l.aim").first.wait_for()


def send(page: Any) -> None:
    page.get_by_role("button", name="Add a column").click()
    page.get_by_label("Message").fill("Say hello to everybody who reads this.")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("link", name="Show wire").nth(2).wait_for()
    page.get_by_role("button", name="As code").nth(1).click()
    page.get_by_role("button", name="anthropic", exact=True).click()


def example(page: Any) -> None:
    page.get_by_role("button", name="Example").click()
    page.get_by_role("tabpanel", name="openai_chat").wait_for()


def leave(page: Any) -> None: ...


# Name, place, width, colours, what is done before the picture is taken.
PICTURES: tuple[tuple[str, str, int, str, Callable[[Any], None]], ...] = (
    ("console-traffic", "traffic", 1280, "light", leave),
    ("console-xray", "xray/lossy", 1280, "light", choose_note),
    ("console-stream", "xray/fallback?side=answer", 1280, "dark", leave),
    ("console-playground", "playground", 1280, "dark", send),
    ("console-translate", "translate", 1280, "light", example),
    ("console-providers", "providers", 1280, "dark", leave),
    ("console-phone", "traffic", 390, "dark", leave),
)


def main() -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        sys.exit("pictures: there is no Chromium on this machine (apt-get install chromium)")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder, open_sample_gateway(Path(folder)) as scene:
        work_for_half_an_hour(scene)
        verify(scene)
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        for name, place, width, scheme, act in PICTURES:
            context = browser.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme=scheme,
                locale="en-GB",
                reduced_motion="reduce",
            )
            tab = Tab(context.new_page(), scene.url)
            tab.open(place)
            tab.log_in(scene.admin)
            tab.settle()
            act(tab.page)
            tab.settle()
            tab.page.screenshot(path=FOLDER / f"{name}.png")
            context.close()
            print(f"docs/pictures/{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
