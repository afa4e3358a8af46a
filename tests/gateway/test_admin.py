"""The admin API: what the commands do, over HTTP, with an OpenAPI document made of the same Structs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from dragoman import cli
from dragoman.accounts import bookkeeper
from dragoman.accounts.budgets import FILE, Line, SqliteBudgets
from dragoman.accounts.prices import read_price
from dragoman.cli.admin import RemoteLedger
from dragoman.gateway.config.teams import TeamSettings
from dragoman.gateway.routes import admin_keys
from dragoman.gateway.routes.admin import CALLS, openapi
from dragoman.gateway.routes.console import DESCRIBED
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import House, faultline, open_house, upstream
from tests.gateway.test_teams import SAID, chat
from tests.gateway.web import Got, send
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeper, "WRITE_S", 0.01)
    monkeypatch.setattr(bookkeeper, "SETTLE_S", 0.001)


class Admin:
    def __init__(self, house: House, key: str) -> None:
        self.house, self._key = house, key

    def call(self, method: str, path: str, body: Any = None) -> Got:
        return self.send(method, f"/admin/v1{path}", body)

    @property
    def name(self) -> str:
        """As the audit log has it."""
        return f"boss ({self._key.split('-')[1]})"

    def send(self, method: str, path: str, body: Any = None) -> Got:
        return send(self.house.url, method, path, body, {"authorization": f"Bearer {self._key}"})

    def get(self, path: str) -> Any:
        got = self.call("GET", path)
        assert got.status == 200, got.text
        return got.json


@contextmanager
def open_admin(folder: Path) -> Iterator[Admin]:
    store = SqliteKeyStore(folder / "keys.db")
    key = store.new("boss", admin=True)
    rules = TeamSettings(prices={"*": read_price({"input": 1000, "output": 1000})})
    with faultline(*[SAID] * 9) as line:
        up = upstream("up", "openai_chat", f"{line.url}/v1")
        with open_house(up, keys=store, store_path=folder / "responses.db", teams=rules) as house:
            yield Admin(house, key)


def test_a_key_lives_and_ends_by_the_admin_api(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        assert admin.call("PATCH", "/teams/web", {"budget": "5 USD/month"}).json["grant"]["budget"] == "5 USD/month"
        made = admin.call(
            "POST", "/keys", {"name": "ada", "team": "web", "grant": {"rpm": 2, "budget": "1 USD/day"}}
        ).json
        assert chat(admin.house.url, made["key"]).status == 200
        assert admin.call("PATCH", f"/keys/{made['id']}", {"grant": {"rpm": None}}).json["grant"] == {
            "budget": "1 USD/day"
        }
        fresh = admin.call("POST", f"/keys/{made['id']}/rotate").json["key"]
        assert [chat(admin.house.url, key).status for key in (made["key"], fresh)] == [401, 200]
        wait_until(
            lambda: [row["requests"] for row in admin.get("/usage?by=team")["usage"]] == [2],
            "both requests in the ledger",
        )
        (sums,) = admin.get("/usage?by=key,model&since=1h&key_name=ada")["usage"]
        assert (sums["by"], sums["cost"]) == ({"key": "ada", "model": "up-model", "currency": "USD"}, 30_000)
        page = admin.get("/ledger?limit=1")
        assert [row["key"] for row in page["rows"] + admin.get(f"/ledger?cursor={page['cursor']}")["rows"]] == [
            "ada"
        ] * 2
        stands = {row["account"]: row for row in admin.get("/budgets")["budgets"]}
        assert stands["team:web"]["spent"] == "0.03"
        assert stands[f"key:{made['id']}"]["left"] == "0.97"
        assert admin.call("DELETE", f"/keys/{made['id']}").json == {"done": True}
        assert chat(admin.house.url, fresh).status == 401
        told = admin.get("/audit")["audit"]
        assert [row["what"] for row in told] == [
            *("key revoke", "key rotate", "key edit", "key new", "team new", "key new"),
        ]
        assert {row["who"] for row in told[:5]} == {admin.name}
        assert fresh not in json.dumps(told)


def test_what_a_dead_process_had_reserved_is_not_shown_after_its_lease(tmp_path: Path) -> None:
    """It was shown until the next request with a budget came."""
    with open_admin(tmp_path) as admin:
        assert admin.call("PATCH", "/teams/web", {"budget": "5 USD/total"}).status == 200
        budgets = SqliteBudgets(tmp_path / FILE)
        line = Line("team:web", 0, 5_000_000, 80)
        for request, until in (("ended", 1.0), ("runs", 1e12)):
            assert isinstance(budgets.reserve(request, "o", [line], 1000, now=0.0, until=until, cap=True), list)
        (stands,) = admin.get("/budgets")["budgets"]
        assert (stands["account"], stands["reserved"]) == ("team:web", "0.001")


def test_what_is_wrong_is_said_and_changes_nothing(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        for body in ({"grant": {"rpm": 0}}, {"nmae": "x"}, {"grant": {"budget": "x"}}):
            assert admin.call("POST", "/keys", body).status == 400
        assert admin.call("DELETE", "/keys/aaaaaaaa").status == 404
        assert admin.call("GET", "/usage?by=nonsense").status == 400
        assert [key["name"] for key in admin.get("/keys")["keys"]] == ["boss"]
        checked = admin.call("POST", "/config/check", {"text": "[providers.x]\nbase_url = 3\n"}).json
        assert (checked["good"], checked["key"]) == (False, "providers.x.base_url")
        assert admin.call("POST", "/config/check", {"text": "demo = true"}).json["good"]
        assert admin.get("/providers")["providers"]["up"]["dialect"] == "openai_chat"


def test_what_would_leave_a_key_without_its_limits_is_refused(tmp_path: Path) -> None:
    """A spelling mistake in its team left a key without limits; dropping a team took them from its keys."""
    with open_admin(tmp_path) as admin:
        assert admin.call("PATCH", "/teams/group%2Fweb", {"rpm": 5}).status == 200
        wrong = admin.call("POST", "/keys", {"name": "ada", "team": "group/wbe"})
        assert (wrong.status, "there is group/web" in wrong.text) == (400, True)
        made = admin.call("POST", "/keys", {"name": "ada", "team": "group/web"}).json
        assert admin.call("PATCH", f"/keys/{made['id']}", {"team": "nope"}).status == 400
        assert admin.call("PATCH", f"/keys/{made['id']}", {"team": ""}).status == 200
        assert admin.call("PATCH", f"/keys/{made['id']}", {"team": "group/web"}).status == 200
        assert admin.call("DELETE", "/teams/group%2Fweb").status == 409
        assert admin.call("DELETE", "/teams/group%2Fweb?force=true").status == 200


def test_a_key_that_cannot_be_changed_says_why(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        made = admin.call("POST", "/keys", {"name": "ada", "expires": 4e9}).json
        assert "expected a time to come" in admin.call("PATCH", f"/keys/{made['id']}", {"expires": 5.0}).text
        assert "expected a time to come" in admin.call("POST", "/keys", {"expires": 5.0}).text
        assert admin.call("PATCH", f"/keys/{made['id']}", {"expires": 0}).json["expires"] is None
        admin.call("DELETE", f"/keys/{made['id']}")
        for method, path, body in (("PATCH", "", {"name": "x"}), ("POST", "/rotate", {}), ("DELETE", "", None)):
            got = admin.call(method, f"/keys/{made['id']}{path}", body)
            assert (got.status, "is revoked" in got.text) == (409, True)
        assert "there is no key 'nobody'" in admin.call("PATCH", "/keys/nobody", {"name": "x"}).text
        assert "expected the cursor" in admin.call("GET", "/ledger?cursor=zzz").text


def test_mcp_servers_are_added_listed_and_removed_and_that_is_written_down(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        got = admin.call("POST", "/mcp", {"name": "files", "command": "sh"})
        assert (got.status, "command" in got.text) == (400, True), "programs are named in the file only"
        wrong = admin.call("POST", "/mcp", {"name": "files", "url": "ftp://files.test"})
        assert wrong.status == 400
        assert admin.call("POST", "/mcp", {"name": "files", "url": "http://127.0.0.1:1/mcp"}).status == 200
        (row,) = admin.get("/mcp")["servers"]
        assert (row["name"], row["health"]) == ("files", "down")
        assert admin.call("DELETE", "/mcp/files").json == {"done": True}
        assert admin.call("DELETE", "/mcp/files").status == 404
        assert admin.get("/mcp") == {"servers": []}
        log = [(row["who"], row["what"], row["subject"]) for row in admin.get("/audit")["audit"]]
        assert log[:2] == [(admin.name, "mcp remove", "files"), (admin.name, "mcp add", "files")]


def test_the_older_calls_are_written_down_too(tmp_path: Path) -> None:
    server = {"name": "files", "url": "http://127.0.0.1:1/mcp"}
    with open_admin(tmp_path) as admin:
        key = admin.call("POST", "/keys", {"name": "ada"}).json["key"]
        headers = {"authorization": f"Bearer {key}", "x-dragoman-xray": "1", "x-request-id": "kept"}
        ask = {"model": "up-model", "messages": [{"role": "user", "content": "hi"}]}
        assert send(admin.house.url, "POST", "/v1/chat/completions", ask, headers).status == 200
        assert admin.send("POST", "/mcp/add", server).status == 200
        assert admin.call("POST", "/mcp/approve", {"name": "files"}).status == 200
        admin.call("POST", "/mcp/call", {"server": "files", "tool": "read", "arguments": {}})
        assert admin.send("DELETE", "/mcp/remove?name=files").status == 200
        assert admin.call("POST", "/replay", {"id": "kept", "model": "up-model"}).status == 200
        log = [(row["who"], row["what"], row["subject"]) for row in admin.get("/audit")["audit"][:5]]
        acts = [("replay", "kept"), ("mcp remove", "files"), ("mcp call", "files.read"), ("mcp approve", "files")]
        assert log == [(admin.name, what, subject) for what, subject in [*acts, ("mcp add", "files")]]


def test_two_keys_of_one_name_are_told_apart_in_the_audit_log(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        twin = Admin(admin.house, admin.call("POST", "/keys", {"name": "boss", "admin": True}).json["key"])
        for one in (admin, twin):
            assert one.call("PATCH", "/teams/web", {"rpm": 5}).status == 200
        assert [row["who"] for row in admin.get("/audit")["audit"][:2]] == [twin.name, admin.name]
        assert twin.name != admin.name


ODD_WORDS = ("", "-1", "9" * 400, "99999999999d", "nan", "\x00", "'; --", "../..", "²", "é" * 300, "[", "x\ny")
ODD_VALUES: tuple[Any, ...] = (
    None,
    -1,
    1e308,
    10**30,
    "",
    "x" * 10_000,
    "\x00",
    "\ud800",
    [],
    {"a": 1},
    ["*" * 300],
    "NaN USD/day",
)
NEEDED = {"text": "demo = true", "digest": "x", "name": "ok", "url": "http://127.0.0.1:1/"}


def odd_requests(key_id: str) -> Iterator[tuple[str, str, bytes | None]]:
    for call in CALLS:
        path = call.path.replace("{id}", key_id)
        paths = [path.replace("{name}", quote(word)) for word in ODD_WORDS[1:]] if "{name}" in path else [path]
        for one in paths:
            yield call.method, one, b"{}" if call.body is not None else None
        for name in call.query:
            for word in ODD_WORDS:
                yield call.method, f"{path}?{name}={quote(word)}", None
        for name in call.body.__struct_fields__ if call.body is not None else ():
            for value in ODD_VALUES:
                yield call.method, paths[0], json.dumps({**needed(call.body), name: value}).encode()
        if call.body is not None:
            yield from ((call.method, paths[0], body) for body in (b"[", b"null", b"\xff", b"[" * 100_000))


def needed(body: Any) -> dict[str, str]:
    return {name: value for name, value in NEEDED.items() if name in body.__struct_fields__}


def test_no_value_is_an_error_of_ours(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        key_id = admin.call("POST", "/keys", {"name": "ada"}).json["id"]
        for method, path, body in odd_requests(key_id):
            got = admin.call(method, path, body)
            assert got.status < 500, (method, path[:200], body and body[:200], got.text)
        for text in ("a=" + "[" * 50_000, "port=nan", "[a" + ".a" * 20_000 + "]", "[prices.x]\ninput=1e308"):
            assert not admin.call("POST", "/config/check", {"text": text}).json["good"], text[:50]


def test_a_clients_key_opens_nothing_here(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        key = admin.call("POST", "/keys", {"name": "ada"}).json["key"]
        for call in CALLS:
            path = "/admin/v1" + call.path.format(id="aaaaaaaa", name="web")
            got = send(
                admin.house.url, call.method, path, {} if call.body else None, {"authorization": f"Bearer {key}"}
            )
            assert got.status == 403, call


def test_with_a_port_of_their_own_admin_routes_are_only_there(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        key = admin.call("POST", "/keys", {"name": "ada"}).json["key"]
        admin.house.gateway.admin_port = admin.house.port
        assert chat(admin.house.url, key).status == 404
        assert admin.call("GET", "/keys").status == 200
        admin.house.gateway.admin_port = 1
        assert chat(admin.house.url, key).status == 200
        assert admin.call("GET", "/keys").status == 404
        assert send(admin.house.url, "GET", "/metrics", None, {"authorization": f"Bearer {admin._key}"}).status == 404


def test_the_document_describes_every_call_and_its_references_hold(tmp_path: Path) -> None:
    document = openapi()
    assert sum(len(calls) for calls in document["paths"].values()) == len(CALLS) + len(DESCRIBED)
    names = set(document["components"]["schemas"])
    text = json.dumps(document)
    used = {piece.split('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert used == names
    with open_admin(tmp_path) as admin:
        assert admin.get("/openapi.json") == json.loads(text)


def test_the_commands_speak_to_a_gateway_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_admin(tmp_path) as admin:
        monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "elsewhere"))
        monkeypatch.setenv("DRAGOMAN_ADMIN_URL", admin.house.url)
        monkeypatch.setenv("DRAGOMAN_ADMIN_KEY", admin._key)

        def run(*words: str) -> str:
            assert cli.main(list(words)) == 0, capsys.readouterr().err
            return capsys.readouterr().out

        run("teams", "set", "web", "--tpm", "900")
        key = run("keys", "new", "--name", "ada", "--team", "web", "--rpm", "5").strip()
        key_id = key.split("-")[1]
        assert "web  1 key  tpm 900" in run("teams", "list")
        assert chat(admin.house.url, key).status == 200
        assert "rpm 7" in run("keys", "edit", key_id, "--rpm", "7")
        wait_until(
            lambda: "0.015 USD" in run("usage", "--by", "key", "--where", "key=ada"), "the request in the report"
        )
        run("keys", "revoke", key_id)
        assert "revoked" in run("keys", "show", key_id)
        assert f"{admin.name}  key revoke" in run("usage", "--audit")
        assert not (tmp_path / "elsewhere").exists()
        monkeypatch.setenv("DRAGOMAN_ADMIN_KEY", key)
        assert cli.main(["keys", "list"]) == 1


def test_a_gateway_is_asked_until_the_moment_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("dragoman.cli.admin.ask", lambda url, method, path, kind: asked.append(path))
    RemoteLedger("").sum(["team"], 0.0, 86_400.0, {})
    RemoteLedger("").sum(["team"], 0.0, 86_400.3, {})
    assert [parse_qs(path)["until"][0][11:] for path in asked] == ["00:00:00Z", "00:00:01Z"]


def test_a_body_is_read_up_to_its_bound(tmp_path: Path) -> None:
    with open_admin(tmp_path) as admin:
        assert admin.call("POST", "/config/check", {"text": "#" * 100_000}).status == 200
        assert admin.call("POST", "/config/check", {"text": "#" * 2_000_000}).status == 413


@pytest.mark.parametrize("expires", [1e308, -5, 253_402_300_800])
def test_an_end_that_no_calendar_has_is_refused(tmp_path: Path, expires: float) -> None:
    """`dragoman keys list` could not show it, and with it no other key."""
    with open_admin(tmp_path) as admin:
        made = admin.call("POST", "/keys", {"name": "ada", "expires": 253_402_300_799}).json
        assert admin.call("POST", "/keys", {"expires": expires}).status == 400
        assert admin.call("PATCH", f"/keys/{made['id']}", {"expires": expires}).status == 400
        assert admin.call("POST", f"/keys/{made['id']}/rotate", {"grace_s": expires}).status == 400
        assert len(admin.get("/keys")["keys"]) == 2


def test_a_page_of_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_keys, "MOST_ROWS", 2)
    with open_admin(tmp_path) as admin:
        for i in range(4):
            admin.call("POST", "/keys", {"name": f"k{i}"})
        assert len(admin.get("/audit?limit=999999999")["audit"]) == 2
