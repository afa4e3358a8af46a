"""A task that needs a real MCP server, through each of the six doors, by native calls and by the text protocol."""

import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.accounts.grants import Grant
from dragoman.agent.steps import Limits
from dragoman.dialects import find_dialect
from dragoman.dialects.jsonrpc import dialect_for
from dragoman.gateway.config.mcp import McpSettings
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.notes import Notes
from dragoman.wire import WireReply
from tests.gateway.house import House, open_house, upstream
from tests.mcp.misbehaving_model import misbehaving_model
from tests.mcp.servers import bad, gone, listening, spec, time_server
from tests.mcp.web_server import mcp, site
from tests.waiting import NEVER_S, wait_until

NATIVE = 'Use convert_time with "UTC" "12:00" "Asia/Tokyo"'
ARGUMENTS = '{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}'
REACT = f'say `{{"tool": "time.convert_time", "arguments": {ARGUMENTS}}}`'
ANSWER = "T21:00:00+09:00"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("mcp")
    large, big = bad("big", "3000000", name="large"), bad("big", "10000000")
    specs = (time_server(), bad("fine"), bad("hang_call", timeout_s=0.3), large, big)
    servers = {spec.name: spec for spec in specs}
    with open_house(mcp=McpSettings(folder=folder, servers=servers)) as house:
        yield house


def ask(
    house: House, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = "POST"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def chat(words: str, stream: bool) -> Any:
    return {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": words}]}


def rpc(words: str, stream: bool, **more: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": chat(words, stream) | more}


def gemini(words: str, stream: bool) -> tuple[str, Any]:
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/demo:{verb}", {"contents": [{"role": "user", "parts": [{"text": words}]}]}


DOORS: dict[str, Any] = {
    "openai_chat": lambda w, s: ("/v1/chat/completions", chat(w, s)),
    "openai_responses": lambda w, s: ("/v1/responses", {"model": "demo", "stream": s, "input": w}),
    "anthropic": lambda w, s: ("/v1/messages", chat(w, s) | {"max_tokens": 1000}),
    "gemini": gemini,
    "ollama": lambda w, s: ("/api/chat", chat(w, s)),
    "jsonrpc": lambda w, s: ("/generate", rpc(w, s)),
}


def read(door: str, data: bytes, *, stream: bool) -> Reply:
    """As a client of that dialect reads it: a stream that is not whole fails here."""
    dialect = dialect_for(1) if door == "jsonrpc" else find_dialect(door)
    if stream:
        decoder = dialect.stream_decoder(Notes())
        reply = fold([*decoder.feed(data), *decoder.close()])
    else:
        body = json.loads(data)
        reply = dialect.decode_reply(WireReply(body=body.get("result", body)), Notes())
    assert isinstance(reply, Reply), reply
    return reply


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("mode", ["native", "react"])
@pytest.mark.parametrize("door", list(DOORS))
def test_the_gateway_runs_the_loop_and_the_client_gets_one_answer(
    house: House, door: str, mode: str, stream: bool
) -> None:
    path, body = DOORS[door](NATIVE if mode == "native" else REACT, stream)
    status, headers, data = ask(house, path, body, {"x-dragoman-mcp": "time", "x-dragoman-mcp-mode": mode})
    assert status == 200, data
    choice = read(door, data, stream=stream).choices[0]
    assert ANSWER in "".join(part.text for part in choice.parts if isinstance(part, Text))
    told = "".join(part.text for part in choice.parts if isinstance(part, Reasoning))
    assert "[time.convert_time {" in told
    assert "[time.convert_time answered:" in told
    assert not [part for part in choice.parts if isinstance(part, ToolCall)]
    assert choice.finish is not None
    assert choice.finish.reason == "stop"
    if not stream:
        assert headers["x-dragoman-stop"] == "done"


@pytest.mark.parametrize(("show", "kind"), [("text", Text), ("nothing", None)])
def test_a_client_chooses_how_calls_are_shown(house: House, show: str, kind: type | None) -> None:
    headers = {"x-dragoman-mcp": "time", "x-dragoman-mcp-show": show}
    _, _, data = ask(house, "/v1/messages", chat(NATIVE, False) | {"max_tokens": 1000}, headers)
    parts = read("anthropic", data, stream=False).choices[0].parts
    told = [type(part) for part in parts if "[time.convert_time" in getattr(part, "text", "")]
    assert told == ([] if kind is None else [kind])


def test_tools_of_the_client_are_the_client_s_to_run(house: House) -> None:
    own = {"type": "function", "function": {"name": "my_own_tool", "parameters": {"type": "object"}}}
    body = chat("call my_own_tool please", False) | {"tools": [own]}
    status, _, data = ask(house, "/v1/chat/completions", body, {"x-dragoman-mcp": "time"})
    assert status == 200
    message = json.loads(data)["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["my_own_tool"]


def test_a_default_of_the_configuration_holds_for_every_door_and_can_be_declined(tmp_path: Path) -> None:
    settings = McpSettings(folder=tmp_path, servers={"time": time_server()}, default=("time",), limits=Limits(turns=3))
    with open_house(mcp=settings) as house:
        _, _, data = ask(house, "/v1/chat/completions", chat(NATIVE, False))
        assert ANSWER in json.loads(data)["choices"][0]["message"]["content"]
        _, _, data = ask(house, "/v1/chat/completions", chat(NATIVE, False), {"x-dragoman-mcp": ""})
        assert ANSWER not in data.decode()


@pytest.mark.parametrize(
    ("headers", "status", "word"),
    [
        ({"x-dragoman-mcp": "unknown"}, 404, "there is no MCP server"),
        ({"x-dragoman-mcp": "time", "x-dragoman-mcp-mode": "magic"}, 400, "native or react"),
        ({"x-dragoman-mcp": "time", "x-dragoman-mcp-show": "loudly"}, 400, "reasoning"),
    ],
)
def test_an_impossible_request_is_an_ordinary_error(
    house: House, headers: dict[str, str], status: int, word: str
) -> None:
    got, _, data = ask(house, "/v1/chat/completions", chat("hi", True), headers)
    assert got == status
    assert word in json.loads(data)["error"]["message"]


def test_a_model_that_refuses_tools_gets_them_in_words(tmp_path: Path) -> None:
    asked: list[Any] = []

    class Old(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(body)
            call = f'{{"tool": "time.convert_time", "arguments": {ARGUMENTS}}}'
            said = body["messages"][-1]["content"]
            status, data = 200, {"model": "old", "message": {"role": "assistant", "content": call}, "done": True}
            if body.get("tools"):
                status, data = 400, {"error": "old:latest does not support tools"}
            elif "Result of" in said:
                data["message"] = {"role": "assistant", "content": said}
            self.send_response(status)
            self.send_header("content-type", "application/x-ndjson")
            self.end_headers()
            self.wfile.write(json.dumps(data).encode() + b"\n")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Old)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        old = upstream("old", "ollama", f"http://127.0.0.1:{server.server_port}", models=("old",), keys=(), auth="none")
        with open_house(old, mcp=McpSettings(folder=tmp_path, servers={"time": time_server()})) as house:
            body = chat("what time is it?", False) | {"model": "old"}
            status, _, data = ask(house, "/v1/chat/completions", body, {"x-dragoman-mcp": "time"})
            assert status == 200, data
            assert ANSWER in json.loads(data)["choices"][0]["message"]["content"]
            assert ["tools" in body for body in asked] == [True, False, False]
            status, _, data = ask(
                house, "/v1/chat/completions", body, {"x-dragoman-mcp": "time", "x-dragoman-mcp-mode": "native"}
            )
            assert status == 400
    finally:
        server.shutdown()
        server.server_close()


def test_a_model_that_repeats_itself_is_stopped(house: House) -> None:
    again = 'say `{"tool": "fine.work", "arguments": {}}` and say it again'
    body = chat(again, False)
    headers = {"x-dragoman-mcp": "fine", "x-dragoman-mcp-mode": "react"}
    status, got, data = ask(house, "/v1/chat/completions", body, headers)
    assert status == 200
    assert got["x-dragoman-stop"] in ("done", "tool_repeat", "turns")
    assert json.loads(data)["choices"][0]["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(("server", "failed"), [("large", False), ("big", True)])
def test_a_result_of_megabytes_is_cut_or_refused_and_the_answer_comes(house: House, server: str, failed: bool) -> None:
    body = rpc("use work now", False, mcp_servers=[server])
    status, _, data = ask(house, "/generate_with_mcp", body)
    result = json.loads(data)["result"]
    assert status == 200
    assert len(data) < 10_000
    assert [(call["tool"], call["failed"]) for call in result["mcp_calls"]] == [(f"{server}.work", failed)]


def test_a_client_that_leaves_ends_the_loop(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    servers = {"slow": bad("hang_call", mark, name="slow", timeout_s=30)}
    with open_house(mcp=McpSettings(folder=tmp_path, servers=servers)) as house:
        connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
        body = json.dumps(chat("use work now", True))
        headers = {"content-type": "application/json", "x-dragoman-mcp": "slow"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        assert b"slow.work" in response.read1(10_000)
        connection.close()
        response.close()
        wait_until(lambda: house.gateway.metrics.running == 0)
    assert not house.loop.loop.is_running()
    import asyncio

    assert not asyncio.run(gone(mark))


# ---------------------------------------------------------------- generate_with_mcp (mission D9)


@pytest.mark.parametrize("mode", ["native", "react", "auto"])
def test_generate_with_mcp(house: House, mode: str) -> None:
    words = REACT if mode == "react" else NATIVE
    body = rpc(words, False, mcp_servers=["time"], max_iterations=5, mode=mode)
    status, _, data = ask(house, "/generate_with_mcp", body)
    answer = json.loads(data)
    assert status == 200
    assert answer["id"] == 1
    assert ANSWER in answer["result"]["generated_text"]
    assert answer["result"]["finish_reason"] == "STOP"
    assert answer["result"]["iterations"] == 2
    assert [call["tool"] for call in answer["result"]["mcp_calls"]] == ["time.convert_time"]


def test_generate_with_mcp_may_stream(house: House) -> None:
    _, headers, data = ask(house, "/generate_with_mcp", rpc(NATIVE, True, mcp_servers=["time"]))
    assert "ndjson" in headers["content-type"]
    result = json.loads(data.splitlines()[-1])["result"]  # as much as an answer in one piece tells
    assert result["iterations"] == 2
    assert [call["tool"] for call in result["mcp_calls"]] == ["time.convert_time"]
    assert ANSWER in "".join(p.text for p in read("jsonrpc", data, stream=True).choices[0].parts if isinstance(p, Text))


@pytest.mark.parametrize("path", ["/generate_with_mcp", "/generate"])
def test_a_batch_is_answered_call_by_call(house: House, path: str) -> None:
    """Ids come back as they were said, a notification gets no answer, and a bad call does not lose the others."""
    mine = {"mcp_servers": ["time"]} if path == "/generate_with_mcp" else {}
    ids = [7, "seven", None, 1.5]
    calls = [rpc(NATIVE, number == 0, **mine) | {"id": own} for number, own in enumerate(ids)]
    silent = rpc("say hello", False, **mine)
    del silent["id"]
    unknown = rpc("hi", False) | {"id": "u", "method": "sing"}
    refused = rpc("hi", False, temperature="hot") | {"id": "r"}
    headers = {"x-dragoman-mcp": "time"} if path == "/generate" else {}
    status, got, data = ask(house, path, [*calls, silent, unknown, refused, 3], headers)
    answers = json.loads(data)
    assert (status, got["content-type"]) == (200, "application/json")
    assert [answer["id"] for answer in answers] == [*ids, "u", "r", None]
    for answer in answers[:4]:
        assert ANSWER in answer["result"]["generated_text"]
    assert [answer["error"]["code"] for answer in answers[4:]] == [-32601, -32602, -32600]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"jsonrpc": "2.0", "method": "generate_content", "params": {"model": "demo", "messages": []}}, 204, None),
        ([{"jsonrpc": "2.0", "method": "sing"}], 204, None),
        ([], 200, -32600),
        ("not an object", 200, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "sing"}, 200, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "generate_with_mcp", "params": 3}, 200, -32602),
    ],
)
def test_what_is_no_call_is_answered_as_json_rpc_says(house: House, body: Any, status: int, code: int | None) -> None:
    got, _, data = ask(house, "/generate_with_mcp", body)
    assert got == status
    assert (json.loads(data)["error"]["code"] if data else None) == code


def test_without_servers_it_is_plain_generation(house: House) -> None:
    wishes: list[dict[str, Any]] = [{}, {"mcp_servers": []}]
    for more in wishes:
        _, _, data = ask(house, "/generate_with_mcp", rpc("say hello", False, **more))
        result = json.loads(data)["result"]
        assert result["generated_text"] == "hello"
        assert "mcp_calls" not in result


def test_an_error_of_a_tool_reaches_the_model_as_one(house: House) -> None:
    broken = 'say `{"tool": "time.convert_time", "arguments": {"time": "never"}}`'
    _, _, data = ask(house, "/generate_with_mcp", rpc(broken, False, mcp_servers=["time"], mode="react"))
    result = json.loads(data)["result"]
    assert "[ERROR] " in result["generated_text"]
    assert result["mcp_calls"][0]["failed"] is True


def test_a_tool_that_hangs_is_an_error_in_the_conversation(house: House) -> None:
    body = rpc('say `{"tool": "hang_call.work", "arguments": {}}`', False, mcp_servers=["hang_call"], mode="react")
    _, _, data = ask(house, "/generate_with_mcp", body)
    assert "[ERROR] " in json.loads(data)["result"]["generated_text"]


def test_the_iterations_are_counted(house: House) -> None:
    body = rpc(REACT, False, mcp_servers=["time"], mode="react", max_iterations=1)
    _, _, data = ask(house, "/generate_with_mcp", body)
    result = json.loads(data)["result"]
    assert result["generated_text"].startswith("[ERROR] no answer after 1 iteration")
    assert result["finish_reason"] == "MAX_TOKENS"
    assert result["mcp_calls"] == []


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        ({"mcp_servers": ["unknown"]}, -32004, "no MCP server"),
        ({"mcp_servers": 3}, -32602, "mcp_servers"),
        ({"mcp_servers": ["time"], "max_iterations": 0}, -32602, "max_iterations"),
        ({"mcp_servers": ["time"], "max_iterations": "5"}, -32602, "max_iterations"),
        ({"mcp_servers": ["time"], "mode": "x"}, -32602, "mode"),
    ],
)
def test_bad_parameters_are_explained(house: House, more: Any, code: int, word: str) -> None:
    _, _, data = ask(house, "/generate_with_mcp", rpc("hi", False, **more))
    error = json.loads(data)["error"]
    assert error["code"] == code
    assert word in error["message"]


# ---------------------------------------------------------------- the registry (mission D8)


def test_servers_are_added_listed_used_and_removed(tmp_path: Path) -> None:
    with listening("streamableHttp") as url, open_house(mcp=McpSettings(folder=tmp_path)) as house:
        assert json.loads(ask(house, "/mcp/list", method="GET")[2]) == {"servers": []}
        status, _, data = ask(house, "/mcp/add", {"name": "every", "url": url})
        assert (status, json.loads(data)["replaced"]) == (200, False)
        rows = json.loads(ask(house, "/mcp/list", method="GET")[2])["servers"]
        assert [(row["name"], row["url"], row["health"]) for row in rows] == [("every", url, "up")]
        assert rows[0]["tools"] >= 10
        assert rows[0]["last_error"] is None
        words = 'say `{"tool": "every.echo", "arguments": {"message": "hello you"}}`'
        body = rpc(words, False, mcp_servers=["every"], mode="react")
        assert "Echo: hello you" in json.loads(ask(house, "/generate_with_mcp", body)[2])["result"]["generated_text"]
        assert json.loads((tmp_path / "mcp.json").read_text()) == {"mcpServers": {"every": {"url": url}}}
        assert json.loads(ask(house, "/mcp/add", {"name": "every", "url": url})[2])["replaced"] is True
    with open_house(mcp=McpSettings(folder=tmp_path)) as house:  # after a restart
        rows = json.loads(ask(house, "/mcp/list", method="GET")[2])["servers"]
        assert [(row["name"], row["health"]) for row in rows] == [("every", "down")]
        assert rows[0]["last_error"]
        assert ask(house, "/mcp/remove", {"name": "every"}, method="DELETE")[0] == 200
        assert ask(house, "/mcp/remove", {"name": "every"}, method="DELETE")[0] == 404
        assert json.loads(ask(house, "/mcp/list", method="GET")[2]) == {"servers": []}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (
            {"name": "x", "transport": "stdio", "command": "touch", "args": ["PWN"]},
            403,
            "stdio_servers_are_config_only",
        ),
        ({"name": "x", "url": "http://127.0.0.1:1/", "command": "touch"}, 403, "stdio_servers_are_config_only"),
        ({"name": "x", "url": "http://127.0.0.1:1/", "env": {"A": "b"}}, 403, "stdio_servers_are_config_only"),
        ({"name": "x", "url": "file:///etc/passwd"}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://169.254.169.254/"}, 400, "invalid_mcp_server"),
        ({"name": "../x", "url": "http://127.0.0.1:1/"}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://127.0.0.1:1/", "headers": {"a": "b"}}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://127.0.0.1:1/", "bearer": "${HOME}"}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://127.0.0.1:1/${HOME}"}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://127.0.0.1:1/", "transport": "pigeon"}, 400, "invalid_mcp_server"),
        ({"name": "x", "url": "http://127.0.0.1:1/", "transport": []}, 400, "invalid_mcp_server"),
        ({"url": "http://127.0.0.1:1/"}, 400, "invalid_mcp_server"),
        ({"name": "time", "url": "http://127.0.0.1:1/"}, 400, "invalid_mcp_server"),
    ],
)
def test_no_request_can_start_a_program(house: House, body: Any, status: int, code: str) -> None:
    got, _, data = ask(house, "/mcp/add", body)
    assert (got, json.loads(data)["error"]["code"]) == (status, code)


def test_t22_nothing_of_a_client_s_headers_reaches_a_server(tmp_path: Path) -> None:
    with site(mcp) as server:
        servers = {"ours": spec("ours", url=f"{server.url}/mcp", headers={"x-own": "yes"})}
        with open_house(mcp=McpSettings(folder=tmp_path, servers=servers)) as house:
            secrets = {
                "authorization": "Bearer dk-canary", "x-api-key": "dk-canary", "x-goog-api-key": "dk-canary",
                "cookie": "a=canary", "x-forwarded-for": "canary", "traceparent": "canary", "user-agent": "canary",
            }  # fmt: skip
            headers = {**secrets, "x-dragoman-mcp": "ours"}
            _, _, data = ask(house, "/v1/chat/completions", chat("use work now", False), headers)
        assert b"ours.work answered: done" in data
        assert any(b"tools/call" in seen.body for seen in server.seen)
        assert all(seen.headers["x-own"] == "yes" for seen in server.seen)
        assert "canary" not in str(server.seen)


def test_a_token_in_an_address_is_in_no_log_and_no_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with site(mcp) as server, open_house(mcp=McpSettings(folder=tmp_path)) as house:
        status, _, _ = ask(house, "/mcp/add", {"name": "ours", "url": f"{server.url}/mcp?token=canary"})
        assert status == 200
        _, _, data = ask(house, "/mcp/list", method="GET")
        assert json.loads(data)["servers"][0]["health"] == "up"
        assert b"canary" not in data
        assert "mcp_added" in caplog.text
        heard = [r.getMessage() for r in caplog.records if not r.name.startswith("mcp.")]  # which no other handler sees
        assert any("HTTP Request: POST" in line for line in heard)
        assert "canary" not in str(heard)
        assert any("canary" in seen.path for seen in server.seen)


@pytest.mark.parametrize(
    ("host", "private", "allowed", "name"),
    [
        ("127.0.0.1", None, True, "localhost"),  # mission D8: servers of this machine, on a gateway for this machine
        ("localhost", None, True, "127.0.0.1"),
        ("127.0.0.1", False, False, "127.0.0.1"),
        ("::", None, False, "127.0.0.1"),
        ("::", None, False, "localhost"),
        ("::", None, False, "127.1"),
        ("192.168.1.5", None, False, "127.0.0.1"),
        ("::", True, True, "127.0.0.1"),
    ],
)
def test_t12_a_public_gateway_adds_no_server_of_this_machine(
    host: str, private: bool | None, allowed: bool, name: str, tmp_path: Path
) -> None:
    keys = SqliteKeyStore(tmp_path / "keys.db")
    admin = {"x-api-key": keys.new("a", admin=True)}
    settings = McpSettings(folder=tmp_path, private=private)
    with site(mcp) as server, open_house(mcp=settings, host=host, keys=keys) as house:
        url = f"{server.url}/mcp".replace("127.0.0.1", name)
        status, _, data = ask(house, "/mcp/add", {"name": "ours", "url": url}, admin)
        assert status == (200 if allowed else 400)
        if not allowed:
            assert (
                json.loads(data)["error"]["message"]
                == "url: this address is private, and private addresses are not allowed here"
            )
            assert server.seen == []
            assert not (tmp_path / "mcp.json").exists()


def test_t12_an_old_entry_is_checked_when_it_is_used(tmp_path: Path) -> None:
    keys = SqliteKeyStore(tmp_path / "keys.db")
    admin = {"x-api-key": keys.new("a", admin=True)}
    with site(mcp) as server:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"ours": {"url": f"{server.url}/mcp"}}}))
        with open_house(mcp=McpSettings(folder=tmp_path), host="::", keys=keys) as house:
            (row,) = json.loads(ask(house, "/mcp/list", None, admin, "GET")[2])["servers"]
            assert (row["health"], "private" in row["last_error"]) == ("down", True)
        assert server.seen == []
        fixed = {"ours": spec("ours", url=f"{server.url}/mcp")}
        settings = McpSettings(folder=tmp_path, servers=fixed)
        with open_house(mcp=settings, host="::", keys=keys) as house:
            (row,) = json.loads(ask(house, "/mcp/list", None, admin, "GET")[2])["servers"]
            assert row["health"] == "up"  # what the configuration names may be anywhere


def test_a_broken_registry_is_reported_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"ur')
    with open_house(mcp=McpSettings(folder=tmp_path)) as house:
        for got in (
            ask(house, "/mcp/list", method="GET"),
            ask(house, "/mcp/add", {"name": "b", "url": "http://127.0.0.1:1/"}),
            ask(house, "/v1/chat/completions", chat("hi", False), {"x-dragoman-mcp": "a"}),
        ):
            assert got[0] == 500
            assert "is not JSON" in json.loads(got[2])["error"]["message"]
        assert ask(house, "/v1/chat/completions", chat("hi", False))[0] == 200
    assert path.read_text() == '{"mcpServers": {"a": {"ur'


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("show", ["reasoning", "text"])
def test_an_answer_that_has_to_be_json_is_json(show: str, stream: bool, tmp_path: Path) -> None:
    """What the model says before its call would make it none."""
    servers = {"fine": bad("fine")}
    with (
        misbehaving_model() as model,
        open_house(model.upstream(), mcp=McpSettings(folder=tmp_path, servers=servers)) as house,
    ):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}}}
        body = chat("go", stream) | {"model": "once", "response_format": form}
        headers = {"x-dragoman-mcp": "fine", "x-dragoman-mcp-show": show}
        status, _, data = ask(house, "/v1/chat/completions", body, headers)
        assert status == 200, data
        parts = read("openai_chat", data, stream=stream).choices[0].parts
        assert [part.text for part in parts if isinstance(part, Text)] == ["That is all."]


@pytest.mark.parametrize(
    "headers", [{}, {"x-dragoman-mcp": "fine"}, {"x-dragoman-mcp": "fine", "x-dragoman-mcp-mode": "react"}]
)
def test_a_loss_that_is_refused_is_the_client_s_fault_in_a_loop_too(headers: dict[str, str], tmp_path: Path) -> None:
    servers = {"fine": bad("fine")}
    with (
        misbehaving_model() as model,
        open_house(model.upstream(), mcp=McpSettings(folder=tmp_path, servers=servers)) as house,
    ):
        body = chat("go", False) | {"model": "once", "max_tokens": 100, "top_k": 5}
        status, _, data = ask(house, "/v1/messages", body, {**headers, "x-dragoman-refuse": "dropped"})
        assert (status, json.loads(data)["error"]["type"]) == (400, "invalid_request_error")
        assert "refused rather than lost: /top_k" in json.loads(data)["error"]["message"]
        assert model.asked == []


KEYS = {"all": None, "one": ("time/convert_*",), "another": ("time/get_*",), "none": ("files/*",)}


@pytest.mark.parametrize("mode", ["native", "react"])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_lists_and_calls_only_the_tools_it_may_use(key: str, mode: str, tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    secret = store.new(key, grant=Grant(tools=KEYS[key]))
    settings = McpSettings(folder=tmp_path / "mcp", servers={"time": time_server()})
    with open_house(keys=store, mcp=settings) as house:
        path, body = DOORS["openai_chat"](NATIVE if mode == "native" else REACT, False)
        headers = {"x-dragoman-mcp": "time", "x-dragoman-mcp-mode": mode, "authorization": f"Bearer {secret}"}
        status, _, data = ask(house, path, body, headers)
    assert status == 200, data
    assert (ANSWER in data.decode()) == (key in ("all", "one")), "it ran only if the key may call it"
