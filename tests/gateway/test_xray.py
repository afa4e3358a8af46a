"""X-ray for people: one request from wire to wire, as JSON for programs and as a page in a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

from dragoman.conformance.scenario import load_scenarios
from dragoman.dialects import find_dialect
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.scope import Scope
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.gateway.telemetry.xray import MAX_BYTES
from dragoman.model.request import Request
from dragoman.testing import serve
from tests.gateway.house import CANARY, faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, get, post
from tests.waiting import wait_until

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TALK = {"model": "far-model", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
EVIL = "</pre><script>alert(1)</script>"


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def look(got: Got) -> _Tags:
    assert got.status == 200
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in got.headers["content-security-policy"]
    return _Tags(got.text)


def test_a_browser_sees_a_page_where_nothing_is_obeyed() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("far", "anthropic", provider.base_url, models=("m",)), xray_keep=5) as house,
    ):
        asked = {"model": "m", "messages": [{"role": "user", "content": f"say {EVIL}"}], "logit_bias": {"1": 2}}
        post(house.url, "/v1/chat/completions", asked, {"x-request-id": "look"})
        listed = look(get(house.url, "/xray", BROWSER))
        assert {"table", "a"} <= listed.tags
        assert "look" in listed.text
        page = look(get(house.url, "/xray/look", BROWSER))
        assert "script" not in page.tags
        for words in (
            "client wire",
            "canonical",
            "provider wire",
            "provider reply",
            "client reply",
            EVIL,
            "logit_bias",
        ):
            assert words in page.text
        assert CANARY not in page.text
        assert get(house.url, "/xray/look").json["id"] == "look", "a program gets JSON"


def test_a_key_in_the_address_goes_along_with_the_links(tmp_path: Path) -> None:
    keys = SqliteKeyStore(tmp_path / "keys.db")
    admin, client = keys.new("a", admin=True), keys.new("c", admin=False)
    with open_house(keys=keys, xray_keep=5) as house:
        body = {"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}
        post(house.url, "/v1/chat/completions", body, {"authorization": f"Bearer {client}"})
        assert get(house.url, "/xray", BROWSER).status == 401
        assert get(house.url, f"/xray?key={client}", BROWSER).status == 403
        found = re.search(r'href="([^"]+)"', get(house.url, f"/xray?key={admin}", BROWSER).text)
        assert found is not None
        assert "client wire" in look(get(house.url, found[1], BROWSER)).text


def test_an_empty_list_says_how_to_fill_it() -> None:
    with open_house() as house:
        assert "x-dragoman-xray: 1" in look(get(house.url, "/xray", BROWSER)).text


def test_a_kept_request_becomes_text_only_when_it_is_shown_and_a_long_one_is_only_counted() -> None:
    with (
        serve("anthropic", key=CANARY) as provider,
        open_house(upstream("far", "anthropic", provider.base_url, models=("m",)), xray_keep=5) as house,
    ):
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"1": 2}}
        post(house.url, "/v1/chat/completions", asked, {"x-request-id": "short"})
        long = {"model": "m", "messages": [{"role": "user", "content": "hi " * 100_000}]}
        post(house.url, "/v1/chat/completions", long, {"x-request-id": "long"})
        kept = house.gateway.xray.get("short")
        assert kept is not None
        assert isinstance(kept.raw, bytes)
        assert isinstance(kept.request, Request)
        short, other = (get(house.url, f"/xray/{name}").json for name in ("short", "long"))
    assert short["asked"] == asked
    assert short["canonical"]["messages"][0]["parts"][0]["text"] == "hi"
    assert [(note["where"], note["target"]) for note in short["notes"]] == [
        ("/max_tokens", "/max_tokens"),
        ("/logit_bias", ""),
    ]
    assert short["attempts"][0]["sent"]["max_tokens"] > 0
    assert short["reply"]["choices"]
    assert re.fullmatch(r"\[30\d{4} bytes\]", other["asked"])
    assert other["canonical"] == other["asked"]
    assert other["attempts"][0]["sent"].endswith("bytes]")


def test_a_long_stream_is_not_kept_while_it_runs() -> None:
    """A client may ask for X-ray with every stream: the memory is the gateway's."""
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"a" * 60_000 + b'"}}]}\n\n'
    script = stream(*[frame] * 20, b"data: [DONE]\n\n")
    with faultline(script) as line, open_house(upstream("up", "openai_chat", line.url)) as house:
        asked = {"model": "up-model", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        post(house.url, "/v1/chat/completions", asked, {"x-dragoman-xray": "1", "x-request-id": "long"})
        wait_until(lambda: house.gateway.xray.get("long") is not None, "the end of the request")
        kept = house.gateway.xray.get("long")
        assert kept is not None
        assert isinstance(kept.sent, str)
        assert kept.sent.startswith("[12"), "1.2 million bytes"


def test_pieces_are_kept_up_to_the_bound() -> None:
    with open_house() as house:
        scope = Scope(house.gateway, HttpRequest("POST", "/"), find_dialect("openai_chat"), "chat")
        scope.keep_sent(b"a" * MAX_BYTES)
        whole = scope.sent
        assert whole == b"a" * MAX_BYTES
        scope.keep_sent(b"b")
        long = scope.sent
        assert long == f"[{MAX_BYTES + 1} bytes]"
        assert not scope._sent


def test_a_stream_is_kept_frame_by_frame_with_times() -> None:
    with (
        serve("openai_chat", key=CANARY) as provider,
        open_house(upstream("far", "openai_chat", provider.base_url), xray_keep=5) as house,
    ):
        post(house.url, "/v1/messages", {**TALK, "stream": True}, {"x-request-id": "streamed"})
        found = get(house.url, "/xray/streamed").json
    frames = found["frames"]
    assert frames["provider"][0]["value"]["object"] == "chat.completion.chunk"
    assert frames["provider"][-1]["value"] == "[DONE]"
    assert frames["canonical"][0]["value"]["kind"] == "reply_start"
    assert frames["client"][0]["event"] == "message_start"
    assert "message_stop" in [frame["event"] for frame in frames["client"][-2:]], "a comment may follow"
    for column in frames.values():
        times = [frame["ms"] for frame in column]
        assert times == sorted(times)
    assert "chat.completion.chunk" in found["attempts"][0]["reply"]
    assert CANARY not in str(found)


def test_a_stream_without_a_frame_is_shown() -> None:
    with (
        faultline(stream(b"\n", b"\n\n\n")) as empty,
        open_house(upstream("far", "openai_chat", empty.url), xray_keep=5) as house,
    ):
        post(house.url, "/v1/messages", {**TALK, "stream": True}, {"x-request-id": "blank"})
        got = get(house.url, "/xray/blank")
    assert got.status == 200
    assert got.json["frames"]["provider"] == []


def test_a_whole_answer_is_shown_in_the_neutral_form_too() -> None:
    with (
        serve("openai_chat", key=CANARY) as provider,
        open_house(upstream("far", "openai_chat", provider.base_url), xray_keep=5) as house,
    ):
        post(house.url, "/v1/messages", TALK, {"x-request-id": "whole"})
        found = get(house.url, "/xray/whole").json
    assert found["frames"] == {"provider": [], "canonical": [], "client": []}
    assert found["reply_canonical"]["choices"][0]["parts"][0]["text"]


def test_a_failed_attempt_and_its_fallback_have_times() -> None:
    with (
        faultline(say(500, b'{"error": {"message": "down"}}')) as broken,
        serve("openai_chat", key=CANARY) as provider,
        open_house(
            upstream("one", "openai_chat", broken.url, models=("m",)),
            upstream("two", "openai_chat", provider.base_url, models=("m",)),
            xray_keep=5,
        ) as house,
    ):
        post(house.url, "/v1/messages", {**TALK, "model": "m"}, {"x-request-id": "twice"})
        found = get(house.url, "/xray/twice").json
    first, second = found["attempts"]
    assert (first["failure"], second["failure"]) == ("server_error", None)
    for attempt in found["attempts"]:
        assert set(attempt["times"]) == {"start_ms", "queue_ms", "connect_ms", "first_ms", "stream_ms"}
        assert min(attempt["times"].values()) >= 0
    assert second["times"]["start_ms"] >= first["times"]["start_ms"]
    assert first["reply"]["error"]["message"] == "down"


def test_what_a_client_sent_and_got_is_kept_when_it_could_not_be_read() -> None:
    with open_house(xray_keep=5) as house:
        assert post(house.url, "/v1/messages", {"model": "demo", "messages": 7}, {"x-request-id": "bad"}).status == 400
        found = get(house.url, "/xray/bad").json
    assert found["asked"] == {"model": "demo", "messages": 7}
    assert "messages" in found["reply"]["error"]["message"]


def test_a_kept_request_is_a_scenario_of_verify(tmp_path: Path) -> None:
    tools = [{"name": "weather", "description": "Says it", "input_schema": {"type": "object", "properties": {}}}]
    history = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}]},
    ]
    with open_house(xray_keep=5) as house:
        body = {**TALK, "model": "demo", "system": 'Say "so"\n', "tools": tools, "messages": history}
        post(house.url, "/v1/messages", body, {"x-request-id": "sk-aaaaaaaaaaaaaaaaaaaa"})
        post(house.url, "/v1/messages", body, {"x-request-id": "mine"})
        text = get(house.url, "/admin/v1/xray/mine/scenario").text
        assert get(house.url, "/admin/v1/xray/none/scenario").status == 404
    path = tmp_path / "mine.toml"
    path.write_text(text)
    scenario = load_scenarios(path)[-1]
    assert (scenario.name, scenario.system, scenario.tools) == ("xray_mine", 'Say "so"\n', ("weather",))
    assert [message.role for message in scenario.turn[0].history] == ["user", "assistant"]


def test_a_kept_request_is_sent_again_in_another_dialect() -> None:
    with open_house(xray_keep=20) as house:
        post(house.url, "/v1/messages", {**TALK, "model": "demo"}, {"x-request-id": "first"})
        for dialect in ("openai_chat", "openai_responses", "gemini", "ollama", "anthropic"):
            said = {"id": "first", "model": "demo", "dialect": dialect}
            again = post(house.url, "/admin/v1/replay", said).json
            assert again["status"] == 200, dialect
            assert get(house.url, f"/xray/{again['id']}").json["dialect"] == dialect
        assert post(house.url, "/admin/v1/replay", {"id": "first", "model": "demo", "dialect": "parrot"}).status == 400
