"""Servers that do everything wrong: rows F60 to F65 of RELIABILITY, and what a child may know (T23)."""

import asyncio
import gzip
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.mcp import connection, http_client, stdio
from dragoman.mcp.spec import CONNECT_S, MAX_MESSAGE_VALUES, TOOL_S
from dragoman.mcp.stdio import MAX_LINE_BYTES
from tests.mcp.servers import House, bad, gone, spec, words
from tests.mcp.web_server import TOOL, Said, Script, Seen, mcp, site
from tests.waiting import until, until_said


async def come_up(house: House, name: str) -> str:
    await until_said(house.servers.make_toolbox().list_tools, lambda _: house.health()[name] == "up")
    return house.health()[name]


def zombies() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(entry.name)
    return found


# ---------------------------------------------------------------- F60


def test_f60_a_server_that_hangs_at_initialize_is_ended_and_the_others_are_fine(tmp_path: Path) -> None:
    assert CONNECT_S == 30.0
    mark = f"hang-{os.getpid()}"

    async def run() -> None:
        specs = (
            bad("hang", mark, connect_s=0.5),
            bad("fine"),
            spec("unreachable", url="http://127.0.0.1:9/mcp"),
            spec("nothing", command="/no/such/program"),
        )
        async with House(tmp_path, *specs) as house:
            tools = await house.servers.make_toolbox().list_tools()
            assert [tool.name for tool in tools] == ["fine__work"]
            await until(lambda: house.health()["hang"] != "connecting", "its end")
            assert house.health() == {"hang": "down", "fine": "up", "unreachable": "down", "nothing": "down"}
            assert "in time: it has 0.5 s to start and to list its tools (connect_s)" in house.row("hang")["last_error"]
            assert "cannot be started: No such file" in house.row("nothing")["last_error"]
            result = await house.call("hang.work")
            assert result.failed
            assert "hang is not running" in words(result)
            assert not await gone(mark)

    asyncio.run(run())


# ---------------------------------------------------------------- F61


def test_f61_a_call_that_hangs_is_cancelled_and_the_server_goes_on(tmp_path: Path) -> None:
    assert TOOL_S == 120.0

    async def run() -> None:
        async with House(tmp_path, bad("hang_politely", timeout_s=1.0), bad("fine")) as house:
            await house.servers.make_toolbox().list_tools()
            slow, quick = await asyncio.gather(house.call("hang_politely.work"), house.call("fine.work"))
            assert slow.failed
            assert "longer than 1 s" in words(slow)
            assert words(quick) == "done"
            first, told, _ = json.loads(words(await house.call("hang_politely.work", '{"tell": true}')))
            assert told == {"cancelled": first}

    asyncio.run(run())


def test_f61_a_server_that_hangs_three_times_is_restarted(tmp_path: Path) -> None:
    mark = f"hangs-{os.getpid()}"

    async def run() -> None:
        async with House(tmp_path, bad("hang_call", mark, timeout_s=0.1)) as house:
            for _ in range(3):
                assert (await house.call("hang_call.work")).failed
            assert not await gone(mark)
            assert await come_up(house, "hang_call") == "up"

    asyncio.run(run())


# ---------------------------------------------------------------- F62


def test_f62_a_crash_in_a_call_shows_the_last_output_and_the_server_restarts(tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, bad("crash")) as house:
            result = await house.call("crash.work")
            assert result.failed
            assert "exit code 3" in words(result)
            assert "the disk is full" in words(result)
            assert await come_up(house, "crash") == "up"
        assert zombies() == []

    asyncio.run(run())


def test_f62_a_server_that_keeps_crashing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_S", 0.0)
    monkeypatch.setattr(connection, "MAX_RETRY_PAUSE_S", 0.0)

    async def run() -> None:
        async with House(tmp_path, spec("gone", command="/bin/false")) as house:
            result = await until_said(lambda: house.call("gone.work"), lambda _: house.health() == {"gone": "off"})
            assert result.failed
            assert len([event for event, _ in house.reports if event == "mcp_server_down"]) in (5, 6)  # or about to
        assert zombies() == []

    asyncio.run(run())


def test_f62_the_tools_of_a_restarted_server_are_compared_with_the_approved_ones(tmp_path: Path) -> None:
    async def run() -> None:
        changed = tmp_path / "changed"
        async with House(tmp_path, bad("rug", str(changed))) as house:
            assert len(await house.servers.make_toolbox().list_tools()) == 1
            changed.touch()
            await house.servers.get_connection("rug").close()
            assert await house.servers.make_toolbox().list_tools() == []
            assert house.row("rug")["withheld"] == ["work"]

    asyncio.run(run())


# ---------------------------------------------------------------- F63


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("long_line", f"a line of more than {MAX_LINE_BYTES} bytes"),
        ("many", "messages a second"),
        ("noise", "not JSON-RPC"),
        ("values", f"more than {MAX_MESSAGE_VALUES} values"),
    ],
)
def test_f63_a_flood_ends_the_server_and_not_the_gateway(
    mode: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "many":
        monkeypatch.setattr(stdio, "MAX_MESSAGES_PER_S", 300)  # a busy machine does not get to two thousand

    async def run() -> None:
        mark = f"{mode}-{os.getpid()}"
        async with House(tmp_path, bad(mode, mark, timeout_s=30)) as house:
            await house.servers.make_toolbox().list_tools()
            before = resident()
            highest = before

            async def watch() -> None:
                nonlocal highest
                while True:
                    highest = max(highest, resident())
                    await asyncio.sleep(0.001)

            watching = asyncio.ensure_future(watch())
            result = await house.call(f"{mode}.work")
            watching.cancel()
            assert result.failed
            assert why in words(result)
            assert highest - before < 10_000_000
            assert resident() - before < 10_000_000
            assert not await gone(mark)

    asyncio.run(run())


# ---------------------------------------------------------------- F65 (F64 is in test_stdio.py)


def redirect(to: str, status: int = 307) -> Any:
    return lambda seen: Said(status, None, {"location": to}) if seen.path.startswith("/mcp") else None


async def try_once(folder: Path, url: str, **row: Any) -> tuple[str, str]:
    async with House(folder, spec("ours", url=url, **row)) as house:
        said = words(await house.call("ours.work"))
        return said, house.row("ours")["last_error"] or ""


@pytest.mark.parametrize(
    ("status", "transport"), [*((status, "http") for status in (301, 302, 303, 307, 308)), (307, "sse"), (308, "auto")]
)
def test_f65_a_redirect_to_elsewhere_is_not_followed(status: int, transport: str, tmp_path: Path) -> None:
    with site(mcp) as canary, site(redirect(f"{canary.url}/mcp", status)) as server:
        headers = {"authorization": "Bearer canary"}
        said, error = asyncio.run(try_once(tmp_path, f"{server.url}/mcp", transport=transport, headers=headers))
        assert "done" not in said
        assert error
        assert canary.seen == []


@pytest.mark.parametrize("there", ["http://169.254.169.254/latest", "http://metadata.google.internal/", "file:///etc"])
def test_f65_a_redirect_to_the_metadata_service_is_not_followed(there: str, tmp_path: Path) -> None:
    with site(redirect(there)) as server:
        said, error = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert "done" not in said
        assert error


def test_f65_a_redirect_within_the_server_is(tmp_path: Path) -> None:
    """/mcp to /mcp/ is how half of all servers are mounted."""

    def slash(seen: Seen) -> Said | None:
        return Said(307, None, {"location": "/mcp/"}) if seen.path == "/mcp" else None

    with site(slash, mcp) as server:
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp", bearer="k"))
        assert said == "done"


def refusal(status: int, code: int, message: str) -> Said:
    return Said(status, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


def without_id(status: int, code: int, message: str) -> Said:
    """As @modelcontextprotocol/server-everything 2026.8.31 answers: the mcp package does not read an error without an
    id."""
    return Said(status, {"jsonrpc": "2.0", "error": {"code": code, "message": message}})


def with_sessions(refuse: Callable[[], Said], sessions: list[str], lost: list[str], method: str) -> Script:
    """Gives each client a session, and no longer knows the first one when `method` comes."""

    def script(seen: Seen) -> Said | None:
        if seen.method != "POST" or "id" not in json.loads(seen.body):
            return None
        asked = json.loads(seen.body)["method"]
        if asked == "initialize":
            sessions.append(f"s{len(sessions)}")
            said = mcp(seen) or Said()
            said.headers = {"mcp-session-id": sessions[-1]}
            return said
        if lost or asked == method:
            session = seen.headers.get("mcp-session-id", "")
            if session == "s0":
                lost.append(session)
                return refuse()
        return None

    return script


LOST_SESSIONS: dict[str, Callable[[], Said]] = {
    "404 alone": lambda: Said(404),
    "404 of the TypeScript package": lambda: refusal(404, -32001, "Session not found"),
    "404 of the Python package": lambda: refusal(404, -32600, "Session not found"),
    "400 of the reference server": lambda: without_id(400, -32000, "Bad Request: No valid session ID provided"),
    "400 with an id": lambda: refusal(400, -32000, "Bad Request: No valid session ID provided"),
    "400 in plain words": lambda: Said(400, b"Invalid session ID\n", {"content-type": "text/plain; charset=utf-8"}),
    "400 of an older one": lambda: refusal(400, -32000, "Bad Request: Mcp-Session-Id header is unknown"),
    "expired": lambda: refusal(404, -32000, "Your session has expired"),
}


@pytest.mark.parametrize("how", LOST_SESSIONS)
def test_f65_a_lost_session_is_started_again_once(how: str, tmp_path: Path) -> None:
    """What a server says after its restart: the call is made again in a new session, and works."""
    sessions: list[str] = []
    lost: list[str] = []
    with site(with_sessions(LOST_SESSIONS[how], sessions, lost, "tools/call"), mcp) as server:
        said, error = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert (said, error) == ("done", "")
        assert sessions == ["s0", "s1"]
        assert len(lost) == 1


def test_f65_a_session_that_is_lost_each_time_is_given_up_with_the_servers_words(tmp_path: Path) -> None:
    def script(seen: Seen) -> Said | None:
        call = json.loads(seen.body or b"{}")
        if call.get("method") != "tools/call":
            return None
        return refusal(404, -32001, "Session not found")

    with site(script, mcp) as server:
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert "Session not found" in said
        assert "longer than" not in said
        assert len([s for s in server.seen if b"tools/call" in s.body]) == 2


def test_f65_an_error_of_the_tool_about_a_session_is_not_called_again(tmp_path: Path) -> None:
    """A tool that ran must not run twice: its own error comes as a result, or under another code."""

    def script(seen: Seen) -> Said | None:
        call = json.loads(seen.body or b"{}")
        if call.get("method") != "tools/call":
            return None
        error = {"code": -32603, "message": "database session expired"}
        return Said(200, {"jsonrpc": "2.0", "id": call["id"], "error": error})

    with site(script, mcp) as server:
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert "database session expired" in said
        assert len([s for s in server.seen if b"tools/call" in s.body]) == 1


@pytest.mark.parametrize("said", [without_id(400, -32602, "no such tool"), Said(400, b"no such tool\n")])
def test_f65_the_reason_of_a_refused_call_is_in_the_message(said: Said, tmp_path: Path) -> None:
    with site(lambda seen: said if b"tools/call" in seen.body else None, mcp) as server:
        words, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert "no such tool" in words
        assert len([s for s in server.seen if b"tools/call" in s.body]) == 1


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Said(401), "401"),
        (Said(403), "403"),
        (Said(500, b"oops"), "500"),
        (Said(200, b"<html>", {"content-type": "text/html"}), ""),
        (Said(200, b"not json"), ""),
    ],
)
@pytest.mark.parametrize("transport", ["auto", "http"])
def test_f65_an_invalid_answer_is_reported(said: Said, error: str, transport: str, tmp_path: Path) -> None:
    with site(lambda seen: said) as server:
        wait_s = 20 if error else 2
        _, words_said = asyncio.run(try_once(tmp_path, f"{server.url}/mcp", connect_s=wait_s, transport=transport))
        assert error in words_said
        assert words_said


@pytest.mark.parametrize("kind", ["large", "compressed"])
def test_f65_an_answer_that_is_too_large_or_compressed_is_refused(kind: str, tmp_path: Path) -> None:
    bomb = gzip.compress(b"[" * 100_000_000, 1)
    answer = Said(200, b" " * 12_000_000) if kind == "large" else Said(200, bomb, {"content-encoding": "gzip"})
    with site(lambda seen: answer if b"tools/call" in seen.body else None, mcp) as server:
        before = resident()
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp", timeout_s=30))
        assert "done" not in said
        assert resident() - before < 40_000_000
        assert all(seen.headers.get("accept-encoding") == "identity" for seen in server.seen)


def in_call(seen: Seen, method: str, result: Any, form: str = "json") -> Said | None:
    """The answer to a call of a method."""
    if method.encode() not in seen.body:
        return None
    body = json.dumps({"jsonrpc": "2.0", "id": json.loads(seen.body)["id"], "result": result}).encode()
    if form == "json":
        return Said(200, body)
    end, charset = ENDS.get(form, b"\n\n"), "utf-16-le" if form == "events in UTF-16" else "utf-8"
    events = b": hello\n\nevent: message\ndata: %b%b" % (body, end)
    kind = f"text/event-stream; charset={charset}"
    return Said(200, events.decode().encode(charset), {"content-type": kind})


ENDS = {
    "events with LF and CRLF": b"\n\r\n",
    "events with CRLF and LF": b"\r\n\n",
    "events with CRLF and CR": b"\r\n\r",
    "an event that ends with its stream": b"\r",
}
PART = {"type": "text", "text": "x"}
COSTLY: dict[str, tuple[str, Any]] = {
    "values": ("tools/call", {"content": [], "structuredContent": {"rows": [[i] for i in range(100_000)]}}),
    "parts": ("tools/call", {"content": [PART] * 20_000}),
    "tools": ("tools/list", {"tools": [{**TOOL, "name": f"t{i}"} for i in range(10_000)]}),
}


@pytest.mark.parametrize("form", ["json", "events", *ENDS, "events in UTF-16"])
@pytest.mark.parametrize("kind", list(COSTLY))
def test_f63_an_answer_of_too_many_values_is_not_decoded(
    kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To decode it is one step, which keeps the loop from all others: a second for 300,000 values."""
    monkeypatch.setattr(connection, "MARGIN_S", 0.05)
    method, result = COSTLY[kind]
    with site(lambda seen: in_call(seen, method, result, form), mcp) as server:
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp", connect_s=20, timeout_s=20))
        assert "done" not in said
        assert len(said) < 1000


def test_f63_a_flood_of_events_ends_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a step of the event loop. A program that floods its output is ended, and so is a stream."""
    monkeypatch.setattr(http_client, "MAX_MESSAGES_PER_S", 10)  # a busy machine does not get to two thousand
    note = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'

    def flood(seen: Seen) -> Said | None:
        said = in_call(seen, "tools/call", {"content": [PART]}, "events")
        return said and Said(200, note * 1000 + said.body, said.headers)

    with site(flood, mcp) as server:
        said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
        assert "stream ended" in said


def test_an_answer_of_many_values_in_its_texts_is_read(tmp_path: Path) -> None:
    answer = {"content": [{"type": "text", "text": '"a":1,' * 50_000}, *[PART] * 1000]}
    for form in ("json", "events"):
        with site(lambda seen, form=form: in_call(seen, "tools/call", answer, form), mcp) as server:  # type: ignore[misc]
            said, _ = asyncio.run(try_once(tmp_path, f"{server.url}/mcp"))
            assert len(said) == 300_000 + 2 * 1000


def test_f63_a_list_of_tools_is_bounded_over_all_its_pages(tmp_path: Path) -> None:
    """A hundred pages of 7 MB took 1.6 GB, and one step of ten seconds."""
    asked = []

    def endless(seen: Seen) -> Said | None:
        if b"tools/list" in seen.body:
            asked.append(seen)
        tool = {**TOOL, "name": f"tool{len(asked)}", "description": "d" * 300_000}
        return in_call(seen, "tools/list", {"tools": [tool], "nextCursor": str(len(asked))})

    async def run(url: str) -> None:
        async with House(tmp_path, spec("ours", url=url)) as house:
            assert len(await house.servers.make_toolbox().list_tools()) == 6
            assert ("mcp_tools_left_out", {"server": "ours", "kept": 6}) in house.reports

    with site(endless, mcp) as server:
        asyncio.run(run(f"{server.url}/mcp"))
    assert len(asked) == 7


def test_f65_a_name_that_leads_to_this_machine_is_refused_where_that_is_not_allowed(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with House(tmp_path) as house:
            house.servers.allow_private = False
            house.servers.add("ours", url)
            assert (await house.call("ours.work")).failed
            assert "private" in house.row("ours")["last_error"]

    with site(mcp) as server:
        asyncio.run(run(f"{server.url}/mcp".replace("127.0.0.1", "localhost")))
        assert server.seen == []


# ---------------------------------------------------------------- T22, T23


def test_t23_a_child_gets_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")

    async def run() -> None:
        async with House(tmp_path, bad("environment", env={"WANTED": "yes"})) as house:
            found = json.loads(words(await house.call("environment.work")))
            assert set(found["env"]) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "WANTED"}
            assert found["cwd"] == found["env"]["HOME"] == str(tmp_path / "mcp" / "environment")
            assert not [fd for fd in found["fds"] if "socket" in fd or "db" in fd]
            assert "NoNewPrivs:\t1" in found["status"]

    asyncio.run(run())


# ---------------------------------------------------------------- servers that ask us


@pytest.mark.parametrize("question", ["sampling/createMessage", "elicitation/create", "roots/list", "something/else"])
def test_a_server_that_asks_us_is_refused_at_once(question: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, bad("ask", question, timeout_s=30)) as house:
            told = json.loads(words(await house.call("ask.work")))
            assert told["error"]["code"] in (-32600, -32601)
            assert "result" not in told

    asyncio.run(run())


def test_a_ping_of_a_server_is_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with House(tmp_path, bad("ask", "ping", timeout_s=30)) as house:
            assert json.loads(words(await house.call("ask.work")))["result"] == {}

    asyncio.run(run())
