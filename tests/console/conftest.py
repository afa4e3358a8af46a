"""A real browser. Its tests run by `make test-console`, and skip, with the reason, where there is no Chromium."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.waiting import wait_until

ASKED = "DRAGOMAN_TEST_CONSOLE"
PATIENCE_MS = 60_000  # the machine may be busy
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not os.environ.get(ASKED):
        pytest.skip("a browser is started by `make test-console`")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=list(FLAGS))
        yield started
        started.close()


class Tab:
    """One page, and everything that went wrong in it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.wrong: list[str] = []
        self.asked: list[str] = []  # every address that the page has asked for
        self._waiting: set[Any] = set()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._ask)
        page.on("requestfinished", self._end)
        page.on("requestfailed", self._end)

    def _hear(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def _ask(self, request: Any) -> None:
        self.asked.append(request.url)
        if "/live" not in request.url:
            self._waiting.add(request)

    def _end(self, request: Any) -> None:
        self._waiting.discard(request)

    def settle(self) -> None:
        """Until all that the page has asked for is there and drawn."""
        self.page.wait_for_selector("main h2")
        for _ in range(3):  # what is drawn may ask for more
            wait_until(lambda: self.page.evaluate(DRAWN) and not self._waiting)

    def open(self, place: str) -> Any:
        self.page.goto(f"{self.url}/console#/{place}")
        self.page.wait_for_selector("main > *")
        return self.page

    def log_in(self, key: str) -> None:
        self.page.get_by_label("Admin key").fill(key)
        self.page.get_by_role("button", name="Open").click()
        self.page.locator("form.login").wait_for(state="detached")

    def forgive(self, words: str) -> None:
        """The browser names a status that is no success, as it should."""
        self.wrong = [one for one in self.wrong if words not in one]


@pytest.fixture
def tab(browser: Any) -> Callable[..., AbstractContextManager[Tab]]:
    """Opens a tab at a gateway, inside the gateway's own `with`. At its end no script has failed, and no other host was
    asked for anything."""

    @contextmanager
    def make(url: str, width: int = 1280, scheme: str = "light", locale: str = "en-GB") -> Iterator[Tab]:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, locale=locale)
        made = Tab(context.new_page(), url)
        try:
            yield made
        finally:
            context.close()
        assert not made.wrong
        assert [one for one in made.asked if not one.startswith((url, "blob:", "data:"))] == []

    return make
