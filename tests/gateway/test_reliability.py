"""What dragoman promises (RELIABILITY.md, 1), and the fault rows that need the whole gateway to be seen."""

import asyncio
import http.client
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Door
from dragoman.errors import DragomanError
from dragoman.gateway.process.reload import reload
from dragoman.gateway.process.startup import ServeOptions, settle
from dragoman.gateway.routes import admin
from dragoman.gateway.routes.table import Route, RouteTable, all_routes
from dragoman.testing import Provider, faults, serve
from dragoman.upstream.keys import Secret
from dragoman.upstream.spec import Timeouts
from tests.cli.test_serve import environment, serving
from tests.gateway.house import CANARY, FirstWords, House, Seen, faultline, open_house, say, stream, upstream
from tests.gateway.skipped_pauses import held_time
from tests.gateway.test_faults import ASK, DONE, GOOD, ask, chunk, dice, together
from tests.gateway.test_restarts import accepts, port_of
from tests.gateway.web import Got, head_of, post
from tests.waiting import NEVER_S, until, wait_until

UPSTREAMS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
CHAT = "/v1/chat/completions"


def one(url: str, **more: Any) -> Any:
    return upstream("one", "openai_chat", url, models=("m",), **more)


# ---------------------------------------------------------------- P1, P2, P4


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads listening sockets from /proc (Linux)")
def test_p1_a_fresh_install_listens_on_this_machine_only(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()]
        port = f":{port_of(running):04X}"
        assert [row[1] for row in rows if row[1].endswith(port) and row[3] == "0A"] == ["0100007F" + port]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_p1_it_refuses_any_other_address_without_a_key(host: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragoman", "serve", "--host", host, "--port", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(tmp_path), timeout=NEVER_S, check=False
    )
    assert done.returncode == 78
    assert f"refusing to listen on {host} without client keys" in done.stderr


def test_p2_a_key_leaves_only_towards_its_own_host() -> None:
    with faultline(GOOD) as canary, faultline(say(307, b"", location=canary.url)) as line:
        stray = upstream("stray", "openai_chat", canary.url, models=("stray",))
        stray = type(stray)(
            **{f: getattr(stray, f) for f in stray.__struct_fields__} | {"keys": (Secret(CANARY, "http://a.test:80"),)}
        )
        with open_house(one(line.url), stray) as house:
            assert ask(house).status == 502, "a redirect is not followed"
            assert ask(house, model="stray").status >= 500, "a key bound elsewhere is not sent"
            assert not canary.seen
            assert [seen.headers["authorization"] for seen in line.seen] == [f"Bearer {CANARY}"]


def test_p4_every_route_has_a_class_and_one_without_does_not_start() -> None:
    routes = (*all_routes(), *admin.make_routes())
    assert {route.access for route in routes} == {"public", "client", "admin"}
    public = {route.door.path for route in routes if route.access == "public"}
    page = {"/console", r"/console/(?P<file>[\w.-]+)", "/console/session"}  # files of ours, and the form of the login
    assert public == {"/", "/health", "/healthz", "/readyz"} | page
    with pytest.raises(DragomanError):
        RouteTable((Route(method="GET", door=Door(path="/new"), dialect=find_dialect("ollama"), access=""),))  # type: ignore[arg-type]


# ---------------------------------------------------------------- P6: retries


def test_p6_nothing_is_tried_more_than_three_times_over_all_keys_and_upstreams() -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(faultline(say(503, b"{}"))) for _ in range(4)]
        specs = [
            upstream(f"up{n}", "openai_chat", line.url, models=("m",), keys=("key-number-one", "key-number-two"))
            for n, line in enumerate(lines)
        ]
        house = stack.enter_context(open_house(*specs))
        assert ask(house).status == 503
        assert sum(len(line.seen) for line in lines) == 3


def test_p6_nothing_is_tried_again_after_the_first_byte() -> None:
    first_words = FirstWords()
    with (
        faultline(stream(chunk("fi"), first_words, end="reset")) as first,
        faultline(GOOD) as second,
        open_house(one(first.url), upstream("two", "openai_chat", second.url, models=("m",))) as house,
    ):
        first_words.watch(house)
        assert '"error"' in ask(house, streamed=True).text
        assert (len(first.seen), len(second.seen)) == (1, 0)


def test_p6_f15_when_everything_fails_retries_add_a_fifth_and_no_more() -> None:
    async def slowly_failing(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await until(lambda: len(line.seen) >= 40, "all forty on their way when the first fails")
        await say(500, b"{}")(seen, writer)

    counter = itertools.count()
    with faultline(slowly_failing) as line, open_house(one(line.url)) as house:
        got = together(40, lambda: ask(house, user=str(next(counter))))
        assert {g.status for g in got} <= {500, 503}
        assert len(line.seen) <= 40 + 8 + 6, "a fifth of forty, and the three that are always allowed, twice"
        wait_until(lambda: house.gateway.now.upstream_states["one"].budget.retrying == 0)


# ---------------------------------------------------------------- P7: every stream ends as its dialect ends

DOORS: dict[str, tuple[str, Any]] = {
    "chat": (CHAT, lambda model: {"model": model, "messages": ASK["messages"], "stream": True}),
    "messages": ("/v1/messages", lambda model: {**ASK, "model": model, "stream": True, "max_tokens": 99}),
    "responses": ("/v1/responses", lambda model: {"model": model, "input": "hi", "stream": True}),
    "gemini": (
        "/v1beta/models/MODEL:streamGenerateContent?alt=sse",
        lambda model: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
    "ollama": ("/api/chat", lambda model: {"model": model, "messages": ASK["messages"]}),
}
SPOILS = {
    "cut by a reset": lambda: faults.cut(3, "reset"),
    "cut by a close": lambda: faults.cut(3, "close"),
    "cut, well-formed": lambda: faults.cut(3, "end"),
    "an error in it": lambda: faults.error_in_stream(3),
    "an error first": faults.error_first,
    "no terminator": faults.no_terminator,
    "nothing at all": faults.empty_stream,
    "bytes that are no text": faults.invalid_utf8,
    "an event of four MiB": lambda: faults.giant_event(4 * 1024 * 1024 + 100),
    "chatter": faults.chatter,
    "a byte at a time": lambda: faults.slow(7, 0.0),
    "silence": lambda: faults.stalled(after=3),
}


@pytest.fixture(scope="module")
def court() -> Iterator[tuple[House, dict[str, Provider]]]:
    with ExitStack() as stack:
        providers = {name: stack.enter_context(serve(name, key=CANARY)) for name in UPSTREAMS}
        short = Timeouts(connect_s=100, headers_s=100, first_s=0.3, idle_s=0.3)
        specs = [
            upstream(n, n, p.base_url, kind=KINDS.get(n, n), models=(f"{n}-model",), timeouts=short)
            for n, p in providers.items()
        ]
        house = stack.enter_context(open_house(*specs))
        stack.enter_context(dice(house, 0.0))
        yield house, providers


@pytest.mark.parametrize("spoil", SPOILS)
def test_p7_a_stream_ends_with_its_dialects_end_or_its_error(
    spoil: str, court: tuple[House, dict[str, Provider]], caplog: pytest.LogCaptureFixture
) -> None:
    house, providers = court
    doors = itertools.cycle(DOORS.items())
    for behind, provider in providers.items():
        for _ in range(2):  # every door meets every spoil, and every dialect does
            name, (path, body) = next(doors)
            provider.reset()
            provider.always(SPOILS[spoil]())  # type: ignore[no-untyped-call]
            state = house.gateway.now.upstream_states[behind]
            state._breakers.clear()
            model = f"{behind}-model"
            got = post(house.url, path.replace("MODEL", model), body(model))
            assert got.status in (200, 500, 502, 503, 529, 504), (behind, name, got.text)
            if got.status == 200:
                check_end(name, got)
            else:
                assert got.json["error"], (behind, name)
    assert "internal_error" not in caplog.text
    assert "encode_failed" not in caplog.text


def check_end(door: str, got: Got) -> None:
    """The last frame of a stream, as a client of that door takes it: complete, or an error; never neither."""
    last = got.frames.rpartition("\n")[2]
    if door == "chat":
        assert last in ("data: [DONE]", "data:[DONE]") or '"error"' in last, last
        return
    frame = json.loads(last.removeprefix("data:"))
    match door:
        case "messages":
            assert frame["type"] in ("message_stop", "error"), last
        case "responses":
            assert frame["type"] in ("response.completed", "response.incomplete", "response.failed", "error"), last
        case "gemini":
            assert "error" in frame or frame["candidates"][0]["finishReason"], last
        case _:
            assert frame.get("done") is True or frame["error"], last


# ---------------------------------------------------------------- P9: overload is said at once


def test_p9_overload_is_said_within_50_ms_and_with_a_time_to_come_again() -> None:
    release = threading.Event()
    with (
        faultline(stream(chunk("fi"), release, DONE)) as line,
        open_house(one(line.url, at_once=2, queue=2)) as house,
        ThreadPoolExecutor(4) as pool,
    ):
        held = [pool.submit(ask, house, streamed=True) for _ in range(4)]
        admission = house.gateway.now.upstream_states["one"].admission
        wait_until(lambda: admission.running == 2 and len(admission.queue) == 2)
        began = time.process_time()  # work, not time on the wall: nothing is waited for, and the machine may be busy
        for _ in range(50):
            got = ask(house)
            assert got.status == 503
            assert int(got.headers["retry-after"]) >= 1
        assert (time.process_time() - began) / 50 < 0.05
        assert len(admission.queue) == 2, "nobody queues without bound"
        release.set()
        for future in held:
            future.result()


# ---------------------------------------------------------------- P10: configuration


@pytest.mark.parametrize(
    "bad",
    ["", "[providers.a\n", "nonsense = 1\n", '[providers.a]\nkind = "no such"\n', '[providers.a]\napi_key = "${NO}"\n'],
)
def test_p10_a_bad_configuration_never_replaces_a_good_one(bad: str, tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[providers.a]\nkind = "demo"\nmodels = ["one"]\n')
    options, env = ServeOptions(config=file), {"DRAGOMAN_HOME": str(tmp_path), "DRAGOMAN_NO_PROBE": "1"}
    settings = settle(options, env)
    changes = {name: getattr(settings, name) for name in ("source", "aliases")}
    with open_house(*settings.upstreams, **changes) as house:
        before = house.gateway.now
        file.write_text(bad)
        assert reload(house.gateway, options, env) is False
        assert house.gateway.now is before


# ---------------------------------------------------------------- F12: every way to say when

QUICK = ("fraction", "ms", "azure_ms", "reset_requests", "reset_tokens")
WAITS = {
    **dict.fromkeys((*QUICK, "google_delay", "google_text", "google_list"), 6.5),
    "seconds": 7.0,
    **dict.fromkeys(("date", "anthropic_reset"), 9.0),  # times of day: some of it is over when it is read
}
AT = {"google_delay": "gemini", "google_text": "gemini", "google_list": "gemini", "anthropic_reset": "anthropic"}


def test_f12_every_form_of_a_hint_is_waited_for_and_nothing_is_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        providers = {form: stack.enter_context(serve(AT.get(form, "openai_chat"), key=CANARY)) for form in WAITS}
        specs = [
            upstream(form, AT.get(form, "openai_chat"), p.base_url, models=(form,), kind=p.kind)
            for form, p in providers.items()
        ]
        house = stack.enter_context(open_house(*specs))
        pool = stack.enter_context(ThreadPoolExecutor(len(WAITS) * 2))
        held = stack.enter_context(held_time(house, monkeypatch))
        held.hold()
        asked, told = [], {}
        for form, provider in providers.items():
            provider.next(faults.rate_limited(WAITS[form], form))
            asked.append(pool.submit(ask, house, model=form))
            told[form] = wait_until(lambda: held.waits[len(asked) - 1 :])[0]
        asked += [pool.submit(ask, house, model=form) for form in WAITS]
        wait_until(lambda: len(held.waits) == 2 * len(WAITS), "the pause of those who came later")
        assert {form: len(p.requests) for form, p in providers.items()} == dict.fromkeys(WAITS, 1)
        assert all(WAITS[form] - 5 < told[form] <= (WAITS[form] + 1) * 1.1 for form in WAITS), told  # a date has no ms
        held.go()
        assert [future.result().status for future in asked] == [200] * 2 * len(WAITS)
        assert {form: len(p.requests) for form, p in providers.items()} == dict.fromkeys(WAITS, 3)


def test_f12_a_hint_that_is_none_counts_as_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = faults.BAD_RETRY_FORMS
    with ExitStack() as stack:
        providers = [stack.enter_context(serve("openai_chat", key=CANARY)) for _ in forms]
        specs = [upstream(f, "openai_chat", p.base_url, models=(f,)) for f, p in zip(forms, providers, strict=True)]
        house = stack.enter_context(open_house(*specs))
        held = stack.enter_context(held_time(house, monkeypatch))
        for form, provider in zip(forms, providers, strict=True):
            provider.next(faults.rate_limited(1.0, form))
            assert ask(house, model=form).status == 200
        assert len(held.waits) == len(forms)
        assert all(0 < wait <= 1.1 for wait in held.waits), "a second, as when nothing is said"


@pytest.mark.parametrize("form", faults.QUOTA_FORMS)
def test_f13_a_quota_that_is_used_up_is_not_tried_again(form: str) -> None:
    dialect = {"anthropic_spend": "anthropic", "google_daily": "gemini"}.get(form, "openai_chat")
    with serve(dialect, key=CANARY) as provider:
        spec = upstream("one", dialect, provider.base_url, models=("m",), kind=provider.kind)
        with open_house(spec) as house:
            provider.always(faults.rate_limited(1.0, form))
            first = ask(house)
            assert first.status == 429
            assert len(provider.requests) == 1
            assert ask(house).status == 429
            assert len(provider.requests) == 1, "its key rests"


# ---------------------------------------------------------------- F33, F39


def test_f33_clients_that_leave_at_any_moment_leave_nothing_behind() -> None:
    pieces: list[bytes | float] = [part for n in range(40) for part in (chunk(f"{n} "), 0.02)]
    dice_ = random.Random(33)  # noqa: S311
    with faultline(stream(*pieces)) as line, open_house(one(line.url, at_once=30, tpm=10**6)) as house:
        body = json.dumps({**ASK, "stream": True}).encode()

        def leave(number: int) -> None:
            with socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S) as client:
                client.sendall(head_of(CHAT, body) + body)
                for _ in range(dice_.randrange(6)):
                    client.recv(300)

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(leave, range(40)))
        state = house.gateway.now.upstream_states["one"]
        wait_until(lambda: house.gateway.metrics.running == 0)
        wait_until(lambda: (state.admission.running, state.budget.in_flight, len(house.gateway.live)) == (0, 0, 0))
        wait_until(lambda: all(seen.left.is_set() for seen in line.seen))
        wait_until(lambda: house.loop.run(count_tasks()) <= 4, "the end of every task")
        assert state.worst_state() == "closed"


async def count_tasks() -> int:
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


def test_f39_streams_that_end_within_the_grace_time_end_whole(tmp_path: Path) -> None:
    release = threading.Event()
    with faultline(stream(chunk("x"), release, chunk("x"), chunk(finish="stop"), DONE)) as line:
        file = tmp_path / "dragoman.toml"
        file.write_text(f'grace_s = 60\n[providers.a]\nbase_url = "{line.url}/v1"\nmodels = ["m"]\n')
        with serving(tmp_path) as running, ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(post, running.url, CHAT, {**ASK, "stream": True}) for _ in range(10)]
            wait_until(lambda: len(line.seen) == 10)
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not accepts(port_of(running)), "the server's leave")
            release.set()
            assert [future.result().body.endswith(DONE) for future in asked] == [True] * 10
            assert running.process.wait(NEVER_S) == 0


def test_f39_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    with faultline(stream(chunk("x"), threading.Event())) as line:
        file = tmp_path / "dragoman.toml"
        file.write_text(f'grace_s = 3600\n[providers.a]\nbase_url = "{line.url}/v1"\nmodels = ["m"]\n')
        with (
            serving(tmp_path) as running,
            closing(http.client.HTTPConnection("127.0.0.1", port_of(running), timeout=NEVER_S)) as client,
        ):
            client.request("POST", CHAT, json.dumps({**ASK, "stream": True}), {"content-type": "application/json"})
            response = client.getresponse()
            assert b'"x"' in response.read1(), "the stream runs"
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not accepts(port_of(running)), "the first one's leave")
            assert running.process.poll() is None
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(NEVER_S) == 0
            assert b"shutting down" in response.read()
