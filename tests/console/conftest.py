"""A real browser. Its tests run by `make test-console`, and skip, with the reason, where there is no Chromium."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

ASKED = "DRAGOMAN_TEST_CONSOLE"
NO_STORE = "status of 501"  # most gateways of these tests keep nothing, and say so
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
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, said: Any) -> None:
        if said.type == "error" and NO_STORE not in said.text:
            self.wrong.append(said.text)

    def open(self, place: str) -> Any:
        self.page.goto(f"{self.url}/console#/{place}")
        self.page.wait_for_selector("main")
        return self.page


@pytest.fixture
def tab(browser: Any) -> Callable[..., AbstractContextManager[Tab]]:
    """Opens a tab at a gateway, inside the gateway's own `with`. At its end no script has failed."""

    @contextmanager
    def make(url: str, width: int = 1280, scheme: str = "light") -> Iterator[Tab]:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, locale="en-GB")
        made = Tab(context.new_page(), url)
        try:
            yield made
        finally:
            context.close()
        assert not made.wrong

    return make
