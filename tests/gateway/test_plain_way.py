"""A request without a task is answered as with one: the same bytes to both sides, the same rows and counters.

The connections are real; their transports are stand-ins. Two requests go first, so that the head is known and a
connection is idle. What follows is done by two gateways, of which one sends nothing without a task.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import asdict, replace

from dragoman.accounts.grants import FileKey, Grant
from dragoman.accounts.prices import ModelPrice, read_price
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway import client_connection, conversation, plain_way
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.client_connection import ClientConnection, OpenConnections
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.config.teams import TeamSettings
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.log import Log
from dragoman.upstream import send
from dragoman.upstream.http.connection import HttpConnection
from dragoman.upstream.transport import Transport
from tests.gateway.house import set_deadline, upstream
from tests.gateway.test_passthrough import REPLIES
from tests.waiting import NEVER_S, until

SECRET = "a-key-for-this-test-only"
REPLY = REPLIES["openai_chat"]
ASK: dict[str, Any] = {"model": "up-model", "messages": [{"role": "user", "content": "hello \u4f60"}]}
HEAD = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n%b"


def whole(body: bytes, more: bytes = b"", status: bytes = b"200 OK") -> bytes:
    kind = b"content-type: application/json\r\n"
    return b"HTTP/1.1 %b\r\n%b%bcontent-length: %d\r\n\r\n%b" % (status, kind, more, len(body), body)


def bent(**changes: Any) -> bytes:
    return json.dumps({**json.loads(REPLY), **changes}).encode()


def saying(**message: Any) -> bytes:
    said = {"role": "assistant", "content": "hi", **message}
    return bent(choices=[{"index": 0, "message": said, "finish_reason": "stop"}])


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FRAME = b"data: " + b'{"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
HANG_UP = None  # what a provider may do instead of writing
# What the provider does with a request: pieces, each in a turn of its own.
ANSWERS: dict[str, list[bytes | None]] = {
    "plain": [whole(REPLY)],
    "in two pieces": [whole(REPLY)[:40], whole(REPLY)[40:]],
    "head and body apart": [whole(REPLY)[: -len(REPLY)], REPLY],
    "with what is left of a limit": [whole(REPLY, b"x-ratelimit-remaining-requests: 7\r\n")],
    "in chunks": [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(REPLY), REPLY)],
    "until the end": [b"HTTP/1.1 200 OK\r\n\r\n" + REPLY, HANG_UP],
    "and no more": [whole(REPLY, b"connection: close\r\n")],
    "and another one": [whole(REPLY) + whole(REPLY)],
    "without a usage": [whole(bent(usage=None))],
    "with an odd usage": [whole(bent(usage={"prompt_tokens": -5}))],
    "with a call": [whole(saying(content=None, tool_calls=[CALL]))],
    "with a thought": [whole(saying(reasoning_content="hm"))],
    "without an id": [whole(bent(id=""))],
    "compressed": [whole(REPLY, b"content-encoding: gzip\r\n")],
    "a page": [whole(b"<html>", b"", b"200 OK").replace(b"application/json", b"text/html")],
    "no JSON": [whole(b"{")],
    "nothing": [whole(b"")],
    "an error as an answer": [whole(b'{"error":{"message":"no"}}')],
    "a stream": [whole(FRAME + b"\n\ndata: [DONE]\n\n")],
    "early hints": [b"HTTP/1.1 103 Early Hints\r\n\r\n" + whole(REPLY)],
    "created": [whole(REPLY, status=b"201 Created")],
    "bad request": [whole(b'{"error":{"message":"no"}}', status=b"400 Bad Request")],
    "wrong key": [whole(b'{"error":{"message":"no"}}', status=b"401 Unauthorized")],
    "too much": [whole(b'{"error":{"message":"no"}}', b"retry-after: 1\r\n", b"429 Too Many Requests")],
    "broken": [whole(b'{"error":{"message":"no"}}', status=b"500 Oops")],
    "redirect": [whole(b"", b"location: /\r\n", b"302 Found")],
    "no HTTP": [b"hello\r\n\r\n"],
    "gone": [HANG_UP],
    "gone in between": [whole(REPLY)[:-5], HANG_UP],
}
TURN = ASK["messages"][0]
SYSTEM = {"role": "system", "content": "Be brief."}
# Requests, and whether they need no task.
REQUESTS: dict[str, tuple[bytes, bool]] = {
    "plain": (json.dumps(ASK).encode(), True),
    "in other words": (json.dumps(ASK, ensure_ascii=False, indent=2).encode(), True),
    "by another name": (json.dumps({**ASK, "model": "other"}).encode(), True),
    "with its upstream": (json.dumps({**ASK, "model": "up/up-model"}).encode(), True),
    "not streamed": (json.dumps({**ASK, "stream": False}).encode(), True),
    "with a system text": (json.dumps({**ASK, "messages": [SYSTEM, TURN]}).encode(), True),
    "with a late system text": (json.dumps({**ASK, "messages": [TURN, SYSTEM]}).encode(), True),
    "of two turns": (json.dumps({**ASK, "messages": [TURN, TURN]}).encode(), True),
    "with a bill": (
        json.dumps({**ASK, "messages": [{**SYSTEM, "content": "x-anthropic-billing-header: 1"}, TURN]}).encode(),
        True,
    ),
    "of three turns": (json.dumps({**ASK, "messages": [SYSTEM, TURN, TURN]}).encode(), True),
    "that goes on": (json.dumps({**ASK, "messages": [TURN, {"role": "assistant", "content": "a"}]}).encode(), True),
    "with a setting": (json.dumps({**ASK, "temperature": 0.5}).encode(), True),
    "with a limit": (json.dumps({**ASK, "max_tokens": 100, "seed": 7, "top_p": 1}).encode(), True),
    "with an odd limit": (json.dumps({**ASK, "max_completion_tokens": -1}).encode(), True),
    "with two limits": (json.dumps({**ASK, "max_tokens": 1, "max_completion_tokens": 2}).encode(), True),
    "with a word for a number": (json.dumps({**ASK, "temperature": "hot"}).encode(), False),
    "with tools": (json.dumps({**ASK, "tools": []}).encode(), True),
    "streamed": (json.dumps({**ASK, "stream": True}).encode(), True),
    "with a side field": (json.dumps(ASK).replace("hello", "dragoman").encode(), True),
    "for no model": (json.dumps({**ASK, "model": ""}).encode(), True),
    "for another server's model": (json.dumps({**ASK, "model": "far/up-model"}).encode(), False),
    "no JSON": (b"{", False),
    "no text": (json.dumps({**ASK, "messages": [{**TURN, "content": ""}]}).encode(), True),
}


class Wire:
    """A transport. What is written to it is kept."""

    def __init__(self, heard: Callable[[bytes], object] = lambda data: None) -> None:
        self.wrote: list[bytes] = []
        self.heard, self.closed = heard, False
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self.wrote.append(data)
        self.heard(data)

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    close = abort


class Street:
    """One gateway, one client of it, one provider. `front` and `behind`: their dialects."""

    def __init__(
        self,
        *,
        plain: bool,
        keys: bool = False,
        grant: Grant | None = None,
        front: str = "/v1/chat/completions",
        behind: str = "openai_chat",
        first: bytes = json.dumps(ASK).encode(),
        **settings: Any,
    ) -> None:
        """`front`: the path that the client asks; `behind`: the provider's dialect; `first`: the first request."""
        self.plain, self.ways = plain, 0
        self.front, self.behind, self.first = front, behind, first
        self.answers: list[list[bytes | None]] = []
        self.providers: list[Wire] = []
        self.silent: list[Wire] = []  # providers that say nothing
        kind = {"openai_chat": "vllm", "openai_responses": "openai"}.get(behind, behind)
        up = upstream("up", behind, "http://127.0.0.1:9", kind=kind, rpm=1000, tpm=100_000)
        far = upstream("far", "anthropic", "http://127.0.0.1:8")
        budget = "1000 USD/month" if "store_path" in settings else None
        grant = grant or Grant(rpm=100, tpm=100_000, at_once=3, budget=budget)
        prices: dict[str, ModelPrice | None] = {"*": read_price({"input": 1, "output": 1})}
        key = FileKey(name="ada", secret=SECRET, grant=grant)
        teams = TeamSettings(keys=(key,), prices=prices if budget else {}) if keys else TeamSettings()
        settings["state_secret"] = b"of-this-test-only" * 2
        config = Settings(upstreams=(up, far), aliases={"other": ("up/up-model",)}, teams=teams, **settings)
        self.gateway = Gateway(config, Access(ClientKeys(None, config.all_keys)), log=Log(verbose=True))
        self.rows: list[Any] = []
        self.gateway.traffic.put = lambda ended: self.rows.append(ended.make_row())  # type: ignore[method-assign]
        self.open = OpenConnections()
        self.key = b"authorization: Bearer %b\r\n" % SECRET.encode() if keys else b""
        self.said = asyncio.Event()
        self.client = self.connect()

    def connect(self) -> Wire:
        wire = Wire(lambda data: self.said.set())
        wire.protocol = ClientConnection(App(self.gateway), self.open)
        wire.protocol.connection_made(wire)
        return wire

    async def dial(self, *_: Any) -> HttpConnection:
        made = HttpConnection(asyncio.get_running_loop())
        wire = Wire(lambda data: self.answer(wire))
        wire.protocol = made
        self.providers.append(wire)
        made.connection_made(wire)  # type: ignore[arg-type]
        return made

    def answer(self, wire: Wire) -> None:
        pieces: list[bytes | None] = list(self.answers.pop(0)) if self.answers else [whole(REPLIES[self.behind])]
        if not pieces:
            self.silent.append(wire)
        self.play(wire, pieces)

    def play(self, wire: Wire, pieces: list[bytes | None]) -> None:
        def go_on() -> None:
            if pieces and not wire.closed:
                piece = pieces.pop(0)
                if piece is None:
                    wire.abort()
                else:
                    wire.protocol.data_received(piece)
                asyncio.get_running_loop().call_later(0, go_on)  # the long way has turns to wake up in between

        asyncio.get_running_loop().call_soon(go_on)

    def ask(self, body: bytes, more: bytes = b"") -> None:
        self.said.clear()
        head = HEAD % (self.front.encode(), self.key + more) + b"content-length: %d\r\n\r\n" % len(body)
        self.client.protocol.data_received(head + body)

    async def warm_up(self) -> None:
        for _ in range(2):
            self.ask(self.first)
            await self.said.wait()
            await self.settle()

    async def settle(self) -> None:
        """Until no request runs."""
        await until(lambda: not self.gateway.metrics.running)
        await self.go_round()

    async def go_round(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    def show(self) -> object:
        """All that can be seen from outside, without ids and times."""
        state, metrics = self.gateway.now.upstream_states["up"], self.gateway.metrics
        metrics.settle()
        rows = [{**asdict(row), "id": "", "time": 0, "ms": 0, "first_ms": 0} for row in self.rows]
        admission = state.admission_waiter.admission
        pools = {pool: len(found._idle) for pool, found in self.gateway.transport._pools.items()}
        key = state.keys.keys[0]
        return {
            "client": [hide_ids(data) for data in self.client.wrote],
            "provider": [wire.wrote for wire in self.providers],
            "closed": [wire.closed for wire in (self.client, *self.providers)],
            "rows": rows,
            "metrics": (metrics.requests, metrics.attempts, metrics.tokens, metrics.left, metrics.running),
            "upstream": (state.sent, state.failed, state.budget.in_flight, state.budget.retrying, state.worst_state()),
            "key": (key.disabled, sorted(key.rests)),
            "limits": (admission.running, admission.rpm and admission.rpm.used(self.gateway.clock())),
            "tokens": admission.tpm and admission.tpm.used(self.gateway.clock()),
            "pools": pools,
            "tasks": len(self.open.tasks),
            "books": self.show_books(),
            "xray": [hide_times(row.written()) for row in self.gateway.xray.rows()],
            "kept": [row.read_request() for row in self.gateway.xray.rows()],
        }

    def show_books(self) -> object:
        """The ledger, and what is spent and reserved of the budget, after the last row is settled."""
        books = self.gateway.books
        if books is None:
            return None
        books._settle()
        books._write()
        ledger, standby = books._ledger, books._standby
        assert ledger is not None
        assert standby is not None
        rows = ledger.page(0.0, 1e12, {}, "", 100).rows
        parts = [(part.left, part.users) for part in standby._parts.values()]
        lines = [line for line, _ in standby._wanted.values()]
        spent = [(one.micros, one.reserved) for one in books._settling.read(lines)]
        untimed = {"id": "", "key_id": "", "at": 0, "total_ms": 0, "first_ms": 0}
        return [{**asdict(row), **untimed} for row in rows], parts, spent


def hide_ids(data: bytes) -> bytes:
    """Also when an answer was made and how long that took, if its provider did not say it."""
    data = re.sub(rb"[0-9a-f]{24,32}", b"ID", data)
    data = re.sub(rb"(ratelimit-[a-z-]*reset[a-z-]*: )[^\r]*", rb"\1LATER", data)
    if b"_duration" in data:  # the numbers have as many digits as they need
        data = re.sub(rb"^[0-9a-f]+\r\n|(content-length: )\d+", rb"\1SIZE", data)
    return re.sub(rb'("(?:created|created_at|completed_at|[a-z_]+_duration)\\?": ?)(?:\d+|"[^"]*")', rb"\1NOW", data)


def hide_times(kept: Any) -> Any:
    if isinstance(kept, dict):
        timed = {"id", "time", "created", "created_at", "completed_at", "seconds", "ms", "retry-after"}
        return {
            name: None if name in timed or name.endswith(("_ms", "_duration")) else hide_times(kept[name])
            for name in kept
        }
    if isinstance(kept, str):
        return hide_ids(kept.encode())
    return [hide_times(one) for one in kept] if isinstance(kept, list) else kept


async def no_wait(seconds: float) -> None:
    """Stands in for the pauses between attempts."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asyncio:
        sleep = staticmethod(no_wait)

    monkeypatch.setattr(send, "asyncio", Asyncio)


def find_store(settings: dict[str, Any], *, plain: bool) -> dict[str, Any]:
    """Each of the two gateways has a folder of its own."""
    return {"store_path": settings["store_path"] / f"{plain}" / "store.db"} if "store_path" in settings else {}


def compare(shown: Any, expected: Any) -> None:
    """Fails with the first thing that differs: the whole is too long to read."""
    for name in shown:
        rows = zip(shown[name], expected[name], strict=False) if isinstance(shown[name], list) else ()
        assert [pair for pair in rows if pair[0] != pair[1]][:1] == [], name
        assert shown[name] == expected[name], name


def play_both(monkeypatch: pytest.MonkeyPatch, play: Callable[[Street], Any], **settings: Any) -> tuple[Street, Street]:
    """The same with and without a plain way; both must look alike."""
    found = []
    for plain in (True, False):

        async def main(plain: bool = plain) -> Street:
            street = Street(plain=plain, **(settings | find_store(settings, plain=plain)))
            begin = plain_way.begin

            def count(*args: Any) -> Any:
                way = begin(*args) if plain else None
                street.ways += way is not None and way.waits
                return way

            with monkeypatch.context() as patch:
                patch.setattr(client_connection, "begin", count)
                patch.setattr(Transport, "_dial", lambda self, *args: street.dial(*args))
                await street.warm_up()
                if street.gateway.books is not None:
                    street.gateway.books._renew_standby()  # as two seconds later
                async with asyncio.timeout(NEVER_S):
                    await play(street)
                    await street.settle()
                shown = street.show()
                await street.gateway.close()
            found.append((street, shown))
            return street

        asyncio.run(main())
    (fast, shown), (slow, expected) = found
    compare(shown, expected)
    return fast, slow


KINDS: dict[str, dict[str, Any]] = {
    "without keys": {},
    "with keys": {"keys": True},
    "with a budget": {"keys": True, "store_path": None},
    "for X-ray": {"xray_keep": 9},
}


def settings_of(kind: str, folder: Path) -> dict[str, Any]:
    return {name: folder if name == "store_path" else value for name, value in KINDS[kind].items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_reaches_its_client_as_with_a_task(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def play(street: Street) -> None:
        street.answers = [[whole(REPLY)], ANSWERS[name], [whole(REPLY)]]
        for _ in range(3):
            street.ask(REQUESTS["plain"][0])
            await street.said.wait()

    fast, _ = play_both(monkeypatch, play, **settings_of(kind, tmp_path))
    assert fast.ways >= (1 if kind == "with a budget" else 2)  # nothing is in hand at first
    assert len(fast.gateway.xray.rows()) == (5 if kind == "for X-ray" else 0)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("kind", ["without keys", "for X-ray"])
def test_a_request_is_sent_as_with_a_task(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, plain = REQUESTS[name]

    async def play(street: Street) -> None:
        street.ask(body)
        await street.said.wait()
        await street.settle()

    fast, _ = play_both(monkeypatch, play, **KINDS[kind])
    assert fast.ways == 1 + plain  # the second one of the warm-up


@pytest.mark.parametrize(
    "more",
    [b"x-dragoman-tags: a\r\n", b"x-request-id: mine\r\n", b"x-dragoman-refuse: lost\r\n", b"openai-beta: b\r\n"],
)
def test_a_head_that_says_more_is_read(more: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        for _ in range(3):
            street.ask(REQUESTS["plain"][0], more)
            await street.said.wait()

    play_both(monkeypatch, play)


def test_a_client_that_leaves_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(REQUESTS["plain"][0])
        await street.go_round()
        street.client.abort()

    fast, _ = play_both(monkeypatch, play, keys=True)
    assert [row.status for row in fast.rows] == [200, 200, 0]


@pytest.mark.parametrize("name", ["plain", "streamed"])
def test_a_client_that_leaves_as_its_answer_begins_leaves_nothing_behind(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has just become a task, which has not run yet. A task that never ran would give nothing back."""

    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(REQUESTS[name][0])
        await street.go_round()
        street.silent[-1].protocol.data_received(whole(REPLY)[:40])
        street.client.closed = True
        while street.plain and street.client.protocol._way is not None:
            await asyncio.sleep(0)
        street.client.protocol.connection_lost(None)

    fast, _ = play_both(monkeypatch, play, keys=True)
    assert fast.ways == 2
    assert [row.status for row in fast.rows] == [200, 200, 0]


def test_a_server_that_shuts_down_waits_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(REQUESTS["plain"][0])
        street.client.protocol.shutdown()
        await street.go_round()
        assert len(street.open.tasks) == 1
        street.play(street.providers[-1], [whole(REPLY)])
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play)
    assert b"connection: close" in fast.client.wrote[-1]


def test_no_answer_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        set_deadline(street.gateway, 0.3)
        street.answers = [[], [], [], []]
        street.ask(REQUESTS["plain"][0])
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play)
    assert fast.client.wrote[-1].startswith(b"HTTP/1.1 504")


def test_requests_that_come_together_are_answered_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        street.ask(REQUESTS["plain"][0])
        street.ask(REQUESTS["with a system text"][0])
        street.ask(REQUESTS["with a setting"][0])
        await street.settle()

    fast, _ = play_both(monkeypatch, play)
    assert len(fast.client.wrote) == 5


def test_a_full_limit_is_met_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        wires = [street.client, *(street.connect() for _ in range(3))]
        for street.client in wires:
            await street.warm_up()
        street.answers = [[], [], []]
        for street.client in wires:
            street.ask(REQUESTS["plain"][0])
        await street.said.wait()  # the fourth one is refused
        for wire in street.silent:
            street.play(wire, [whole(REPLY)])

    fast, _ = play_both(monkeypatch, play, keys=True)
    assert [row.status for row in fast.rows[-4:]] == [429, 200, 200, 200]


def test_a_wrong_key_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        street.gateway.now.access.keys = ClientKeys(None, ("another-key-for-this-test",))
        street.ask(REQUESTS["plain"][0])
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play, keys=True)
    assert [len(times) for times in fast.gateway.now.access._failures.values()] == [1]


def test_a_plan_ends_with_what_it_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lesson changes the profile, a list of models the targets, a new configuration all."""

    async def play(street: Street) -> None:
        async def ask_twice() -> None:
            for name in ("with a setting", "plain"):
                street.ask(REQUESTS[name][0])
                await street.said.wait()

        await ask_twice()
        state = street.gateway.now.upstream_states["up"]
        state.remember("openai_chat", "up-model", {"rejects": ("temperature",)})
        await ask_twice()
        street.gateway.now.take_lists()
        await ask_twice()
        settings = street.gateway.now.settings
        renamed = replace(settings, aliases={"up-model": ("far/far-model",)})
        street.gateway.replace(renamed, street.gateway.now.access)
        street.ask(REQUESTS["plain"][0])
        await street.said.wait()
        assert street.silent or len(street.providers) > 1

    fast, _ = play_both(monkeypatch, play)
    assert fast.ways >= 5


@pytest.mark.parametrize("name", ["plain", "streamed"])
def test_a_model_that_is_gone_while_its_answer_is_on_its_way_is_answered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent is read, and its place and its connection come back."""

    async def play(street: Street) -> None:
        street.answers = [[]]
        street.ask(REQUESTS[name][0])
        await street.go_round()
        now = street.gateway.now
        now.routes = replace(now.routes, upstreams=(), fallback=False)
        now.take_lists()
        street.play(street.silent[-1], [whole(REPLY)[:40], whole(REPLY)[40:]])
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play, keys=True)
    assert fast.ways == 2
    assert [row.status for row in fast.rows] == [200, 200, 200]


def test_what_was_sent_is_given_back_if_its_answer_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long way writes a plain request once more, to know how its answer is read. By then that may be refused."""

    async def play() -> None:
        street = Street(plain=True, keys=True)
        monkeypatch.setattr(Transport, "_dial", lambda self, *args: street.dial(*args))
        await street.warm_up()
        street.answers = [[]]
        street.ask(REQUESTS["plain"][0])
        await street.go_round()
        refused = UpstreamError(Failure(kind="too_long", message="too long", status=400))
        monkeypatch.setattr(conversation, "render", Mock(side_effect=refused))
        street.play(street.silent[-1], [whole(REPLY)[:40]])
        await street.said.wait()
        await street.settle()
        assert street.client.wrote[-1].startswith(b"HTTP/1.1 400")
        state = street.gateway.now.upstream_states["up"]
        assert (state.budget.in_flight, state.admission_waiter.admission.running) == (0, 0)
        assert street.silent[-1].closed
        await street.gateway.close()

    asyncio.run(play())


def test_a_window_looks_at_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of the answer, the length of the texts decides."""

    async def play(street: Street) -> None:
        state = street.gateway.now.upstream_states["up"]
        state.remember("openai_chat", "up-model", {"window": 1000})
        for words in ("hello", "hello " * 300, "hello"):
            street.ask(json.dumps({**ASK, "max_tokens": 500, "messages": [{**TURN, "content": words}]}).encode())
            await street.said.wait()

    fast, _ = play_both(monkeypatch, play)
    assert fast.ways == 4
    assert b'"max_tokens":500' not in fast.providers[0].wrote[-2].replace(b" ", b"")


def test_a_key_without_limits_by_the_minute_hears_of_those_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(street: Street) -> None:
        street.answers = [ANSWERS["with what is left of a limit"]]
        street.ask(REQUESTS["plain"][0])
        await street.said.wait()

    fast, _ = play_both(monkeypatch, play, keys=True, grant=Grant(at_once=3))
    assert b"x-ratelimit-remaining-requests: 7" in fast.client.wrote[-1]
