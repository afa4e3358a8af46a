"""The console's files and the calls that only it makes."""

import re

import pytest

from dragoman.console import all_files
from dragoman.dialects import NAMES
from dragoman.jsontypes import JsonObject
from tests.gateway.house import open_house
from tests.gateway.web import get, post

MOST_BYTES = 200_000  # of all files together
REQUEST = (
    '{"model": "m", "max_tokens": 5, "top_k": 3, "system": "be brief", '
    '"messages": [{"role": "user", "content": "hello"}]}'
)
REPLY = '{"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": true, "done_reason": "stop"}'
STREAM = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    '"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def test_the_files_are_small_and_ask_no_other_host() -> None:
    files = all_files()
    assert sum(len(data) for data, _ in files.values()) < MOST_BYTES
    for name, (data, _) in files.items():
        text = data.decode()
        assert not re.search(r"(src|href|import|from|url)\W{1,3}https?://(?!www\.w3\.org)", text), name
        assert "innerHTML" not in text, name
        assert "eval(" not in text, name


def test_files_are_served_with_their_types_and_a_strict_policy() -> None:
    with open_house() as house:
        page = get(house.url, "/console")
        assert page.status == 200
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        for name, (data, kind) in all_files().items():
            got = get(house.url, f"/console/{name}")
            assert (got.status, got.body, got.headers["content-type"]) == (200, data, kind)
            again = get(house.url, f"/console/{name}", {"if-none-match": got.headers["etag"]})
            assert (again.status, again.body) == (304, b"")
        assert get(house.url, "/console/none.js").status == 404
        assert get(house.url, "/console/..%2fpyproject.toml").status == 404


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://{host}", 200),
        ("https://{host}", 200),
        ("http://evil.example", 403),
        ("http://{host}.evil.example", 403),
    ],
)
def test_only_a_page_of_the_gateway_itself_may_call(origin: str, status: int) -> None:
    with open_house() as house:
        host = house.url.removeprefix("http://")
        got = post(house.url, "/admin/v1/translate", {"text": REQUEST}, {"origin": origin.format(host=host)})
        assert got.status == status


@pytest.mark.parametrize(
    ("what", "text", "source"),
    [("request", REQUEST, "anthropic"), ("reply", REPLY, "ollama"), ("stream", STREAM, "openai_chat")],
)
def test_a_text_is_written_in_every_other_dialect(what: str, text: str, source: str) -> None:
    with open_house() as house:
        found = post(house.url, "/admin/v1/translate", {"text": text, "what": what}).json
    assert found["source"] == source
    by_dialect = {one["dialect"]: one for one in found["results"]}
    assert by_dialect.keys() == set(NAMES) - {source}
    assert not [one["error"] for one in found["results"] if one["error"]]
    if what == "request":
        lost = [note["where"] for note in by_dialect["openai_chat"]["notes"] if note["kind"] == "dropped"]
        assert lost == ["/top_k"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": "hello"}, "no whole JSON object"),
        ({"text": '{"colour": "red"}'}, "not a request of any dialect"),
        ({"text": REQUEST, "source": "parrot"}, "expected a dialect"),
        ({"what": "request"}, "text"),
        ({"text": REQUEST, "what": "song"}, "song"),
    ],
)
def test_what_cannot_be_translated_is_an_error_in_words(body: JsonObject, words: str) -> None:
    with open_house() as house:
        got = post(house.url, "/admin/v1/translate", body)
    assert got.status == 400
    assert words in got.json["error"]["message"]


def test_the_calls_of_the_console_need_an_admin_key() -> None:
    with open_house(client_keys=("a-key-of-some-length",)) as house:
        assert get(house.url, "/console").status == 200
        assert get(house.url, "/admin/v1/xray").status == 401
        key = {"authorization": "Bearer a-key-of-some-length"}
        assert post(house.url, "/admin/v1/translate", {"text": REQUEST}, key).status == 403
