"""What holds for every section: no script of others runs, nothing scrolls sideways, all can be read and reached."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.upstream.discovery import demo_upstream
from tests.console.sample_gateway import AGENT, SampleGateway, open_sample_gateway
from tests.gateway.house import CANARY, open_house, upstream
from tests.gateway.web import post
from tests.waiting import wait_until

CHECKS = (Path(__file__).parent / "checks.js").read_text()
IMAGE = "<img src=x onerror=document.title=666>"
EVIL = f"{IMAGE}<script>document.title=666</script>"
SECTIONS = {
    "t": "traffic",
    "p": "playground",
    "r": "translate",
    "v": "providers",
    "k": "keys",
    "m": "mcp",
    "c": "config",
}
PLACES = (
    "traffic",
    "xray",
    "xray/lossy",
    "xray/lossy?side=answer",
    "xray/fallback",
    "playground",
    "translate",
    "providers",
    "keys",
    "mcp",
    "config",
)


def fill(scene: SampleGateway) -> None:
    scene.send("lossy", system="x" * 3000)
    scene.send("fallback", model="safe")
    scene.send(model="no-such-model-with-a-very-long-name-" + "y" * 60)


def fill_page(page: Any, place: str) -> None:
    """The states of a section that are shown after a click."""
    if place == "translate":
        page.get_by_role("button", name="Example").click()
        page.get_by_role("tabpanel", name="openai_chat").wait_for()
    elif place == "playground":
        page.locator("summary").first.click()
        page.get_by_role("button", name="As code").first.click()
        page.get_by_role("button", name="Send").click()
        page.get_by_role("link", name="Show wire").nth(1).wait_for()
    elif place == "keys":
        page.locator("summary").first.click()


# ---------------------------------------------------------------- injection


def test_scripts_in_names_answers_headers_and_errors_are_only_text(tab: Any) -> None:
    far = upstream("far", "openai_chat", "http://127.0.0.1:9", models=("far-model", EVIL), keys=(CANARY,))
    with open_house(demo_upstream(), far, xray_keep=20) as house:
        ask = {**AGENT, "model": "demo", "tools": [], "messages": [{"role": "user", "content": f"say {IMAGE}"}]}
        post(house.url, "/v1/messages", ask, {"x-request-id": "evil", "user-agent": EVIL})
        post(house.url, "/v1/messages", {**AGENT, "model": EVIL, "metadata": {"user_id": EVIL}}, {"user-agent": EVIL})
        post(house.url, "/v1/messages", {"model": EVIL, "messages": EVIL}, {"x-request-id": "wrong"})
        with tab(house.url) as one:
            for place in (
                "traffic",
                "xray",
                "xray/evil",
                "xray/evil?side=answer",
                "xray/wrong",
                f"traffic?q={EVIL}",
                "providers",
            ):
                page = one.open(place)
                one.settle()
                assert page.locator("main img, main script").count() == 0, place
            assert one.page.get_by_text("<img src=x").count(), "it is shown as it is"
            page = one.open("playground?columns=demo@anthropic")
            page.get_by_label("Message").fill(f"say {IMAGE}")
            page.get_by_role("button", name="Send").click()
            page.get_by_role("link", name="Show wire").wait_for()
            assert IMAGE in page.locator(".said").inner_text()
            page = one.open("translate")
            text = json.dumps({"model": EVIL, "messages": [{"role": "user", "content": EVIL}]})
            page.get_by_role("textbox", name="Paste").fill(text)
            page.get_by_role("tabpanel").first.wait_for()
            page = one.open("config")
            page.get_by_label("dragoman.toml").fill(f"['{EVIL}']\na=1")
            page.get_by_role("status").get_by_text("img").wait_for()
            assert page.locator("main img, main script").count() == 0
            assert "666" not in page.title()
            assert page.evaluate("[...document.scripts].map((one) => one.src)") == [f"{house.url}/console/app.js"]


# ---------------------------------------------------------------- layout, names, contrast


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "dark")])
def test_all_has_a_name_can_be_read_and_fits(tab: Any, tmp_path: Path, width: int, scheme: str) -> None:
    with open_sample_gateway(tmp_path) as scene:
        fill(scene)
        with tab(scene.url, width, scheme) as one:
            page = one.open("traffic")
            assert not (found := page.evaluate(f"{CHECKS}; findFlaws()")), ("login", found)
            one.log_in(scene.admin)
            for place in PLACES:
                page = one.open(place)
                one.settle()
                fill_page(page, place)
                assert not (found := page.evaluate(f"{CHECKS}; findFlaws()")), (place, found)
                assert not (found := page.evaluate(f"{CHECKS}; findWide()")), (place, found)


def test_the_checks_find_what_is_wrong(tab: Any) -> None:
    """They would be worth nothing if they could not fail."""
    with open_house() as house, tab(house.url) as one:
        page = one.open("traffic")
        one.settle()
        page.evaluate("""() => {
            const main = document.querySelector("main");
            main.append(document.createElement("button"));
            const pale = Object.assign(document.createElement("p"), { textContent: "pale" });
            pale.style.color = "#bbb";
            const wide = Object.assign(document.createElement("h3"), { textContent: "wide" });
            wide.style.width = "3000px";
            main.append(pale, wide);
        }""")
        found = " ".join(page.evaluate(f"{CHECKS}; findFlaws()"))
        assert "no name" in found
        assert "pale" in found
        assert page.evaluate(f"{CHECKS}; findWide()")


# ---------------------------------------------------------------- keyboard and language


def test_the_keyboard_is_enough(tab: Any, tmp_path: Path) -> None:
    with open_sample_gateway(tmp_path) as scene:
        for number in range(3):
            scene.send(f"row{number}")
        with tab(scene.url) as one:
            page = one.open("traffic")
            page.keyboard.press("Tab")  # the link that skips to the content
            while page.evaluate("document.activeElement.name") != "key":
                page.keyboard.press("Tab")
            page.keyboard.type(scene.admin)
            page.keyboard.press("Enter")
            page.wait_for_selector(".line.body")
            page.keyboard.press("j")
            page.keyboard.press("j")
            page.keyboard.press("Enter")
            page.wait_for_url("**#/xray/row1**")
            page.get_by_role("button", name="Replay").wait_for()
            reach(page, "Answer")
            page.keyboard.press("Enter")
            reach(page, "Position in the stream")
            page.keyboard.press("Home")
            page.get_by_text("Step 1 of").wait_for()
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus is seen"
            page.keyboard.press("Shift+Tab")
            for key, place in SECTIONS.items():
                page.keyboard.press("g")
                page.keyboard.press(key)
                page.wait_for_url(f"**#/{place}**")
                page.evaluate("document.activeElement.blur()")
            page.keyboard.press("g")
            page.keyboard.press("t")
            page.wait_for_selector(".line.body")
            page.keyboard.press("/")
            page.keyboard.type("row2")
            wait_until(lambda: page.locator(".line.body").count() == 1)
            assert "q=row2" in page.url
            page.keyboard.press("Escape")
            page.keyboard.press("?")
            page.get_by_role("dialog").wait_for()
            page.keyboard.press("Escape")
            page.get_by_role("dialog").wait_for(state="detached")


def reach(page: Any, name: str) -> None:
    """Goes on with Tab until the focus is on a control of this name."""
    said = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    for _ in range(100):
        if (page.evaluate(said) or "").strip() == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} cannot be reached")


def test_a_korean_browser_reads_korean_and_can_change_it(tab: Any, tmp_path: Path) -> None:
    with open_sample_gateway(tmp_path) as scene:
        fill(scene)
        with tab(scene.url, locale="ko-KR") as one:
            page = one.open("traffic")
            page.get_by_label("관리자 키").fill(scene.admin)
            page.get_by_role("button", name="열기").click()
            page.get_by_role("heading", name="트래픽").wait_for()
            english = re.compile(r"\b(the|and|of|is|are|this|no|with|to)\b")
            for place in PLACES:
                page = one.open(place)
                one.settle()
                left = [
                    words
                    for words in page.locator(
                        "main :is(h2, h3, button, label, dt, th, .lead, summary)"
                    ).all_inner_texts()
                    if english.search(words) and not re.search(r"[가-힣]", words) and "model" not in words
                ]
                # Notes, scenarios and the words of tools come from the gateway, which speaks English.
                assert [words for words in left if "\n" not in words and "/" not in words] == [], place
            page.get_by_role("button", name="English").click()
            page.get_by_role("heading", name="Configuration").wait_for()
            assert page.evaluate("document.documentElement.lang") == "en"


def test_the_theme_is_remembered(tab: Any) -> None:
    with open_house() as house, tab(house.url, scheme="dark") as one:
        page = one.open("traffic")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.get_by_role("button", name="Light or dark").click()
        page.reload()
        page.wait_for_selector("main h2")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
