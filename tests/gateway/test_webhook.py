"""Messages about budgets: what a receiver answers, and what an address says, holds nothing up and shows no secret."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.accounts.budgets import Line, Passed
from dragoman.errors import ConfigError
from dragoman.gateway.access import webhook
from dragoman.gateway.config.load import load_settings
from dragoman.jsontypes import dump_text
from tests.raw_server import RawServer, raw_server
from tests.waiting import wait_until

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(webhook, "PAUSES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(webhook, "WEBHOOK_S", 0.2)
    yield
    wait_until(lambda: webhook._free._value == webhook.MOST_AT_ONCE, "the end of all threads")


def passed(account: str = "key:ada") -> Passed:
    return Passed(Line(account=account, period=0, limit=10), micros=10, percent=100)


def tell(server: RawServer, path: str = "/hook") -> None:
    webhook.tell_webhook(server.url + path, [passed()], lambda name: None)


HOSTILE = {
    "a redirect inside": b"HTTP/1.1 302 x\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n",
    "a redirect with its method": b"HTTP/1.1 307 x\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n",
    "no HTTP": b"\x00 what\r\n\r\n",
    "a line without an end": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000,
    "an error": b"HTTP/1.1 500 x\r\n\r\n",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=list(HOSTILE))
def test_a_message_is_sent_four_times_and_to_its_address_only(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with raw_server(OK) as inside, raw_server(answer.replace(b"%s", inside.url.encode())) as server:
        tell(server, "/services/SECRET")
        wait_until(lambda: caplog.text.count("webhook_failed") == 4)
        assert [seen.partition(b" ")[0] for seen in server.seen] == [b"POST"] * 4
        assert inside.seen == []
    assert "SECRET" not in caplog.text


def test_a_receiver_that_drips_is_left_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nx: ", drips=True) as server:
        tell(server)
        wait_until(lambda: caplog.text.count("webhook_failed") == 4)


def test_an_answer_is_not_read() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 100_000, drips=True) as server:
        tell(server)
        wait_until(lambda: server.seen)
        wait_until(lambda: webhook._free._value == webhook.MOST_AT_ONCE)
        assert len(server.seen) == 1


def test_messages_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(webhook, "WEBHOOK_S", 0.5)
    with raw_server(b"HTTP/1.1 200 OK\r\nx: ", drips=True) as server:
        many = [passed(f"key:{number}") for number in range(webhook.MOST_AT_ONCE + 9)]
        webhook.tell_webhook(server.url, many, lambda name: None)
        dropped = [record for record in caplog.records if "messages wait already" in record.getMessage()]
        assert len(dropped) == 9
        monkeypatch.setattr(webhook, "WEBHOOK_S", 0.01)


@pytest.mark.parametrize(
    "url", ["http://me:SECRET@h/", "ftp://h/SECRET", "http://h/SECRET x", "http:///SECRET", "http://h/SECRET\r\nx: y"]
)
def test_an_address_that_is_none_is_refused_at_the_start_and_not_shown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(f'{{"demo": true, "budgets": {{"webhook": {dump_text(url)}}}}}')
    with pytest.raises(ConfigError) as raised:
        load_settings(file, {})
    assert raised.value.key == "budgets.webhook"
    assert "SECRET" not in str(raised.value)


def test_names_stay_inside_their_text(caplog: pytest.LogCaptureFixture) -> None:
    """A name from an identity provider or another program may hold line ends."""
    caplog.set_level(logging.WARNING)
    with raw_server(OK) as server:
        webhook.tell_webhook(server.url, [passed("team:a\r\nx-evil: 1")], lambda name: None)
        wait_until(lambda: server.seen)
        head, _, body = server.seen[0].partition(b"\r\n\r\n")
    assert b"evil" not in head
    assert b"\r" not in body
    assert b"\n" not in body
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_a_name_gives_no_orders_to_a_chat_program() -> None:
    """Slack reads `<!channel>` in a text as "tell everybody here"."""
    message = webhook.make_message(passed("team:<!channel> & co"), None)
    assert message["account"] == "team:<!channel> & co"
    assert str(message["text"]).startswith("team:&lt;!channel&gt; &amp; co has spent")
