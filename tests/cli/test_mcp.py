"""`dragoman mcp`: servers on the command line."""

import json
from pathlib import Path

import pytest

from dragoman.cli import main
from tests.mcp.servers import bad

pytestmark = pytest.mark.usefixtures("at_home")


def test_servers_are_added_tried_and_removed_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = bad("fine")
    assert main(["mcp", "list"]) == 0
    assert "no MCP server" in capsys.readouterr().out
    assert main(["mcp", "add", "fine", "--", str(fine.command), *fine.args]) == 0
    assert main(["mcp", "add", "dead", "http://127.0.0.1:9/mcp"]) == 0
    capsys.readouterr()
    assert main(["mcp", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["fine"]["health"], rows["fine"]["tools"], rows["dead"]["health"]) == ("up", 1, "down")
    assert main(["mcp", "tools", "fine"]) == 0
    assert "fine.work()" in capsys.readouterr().out
    assert main(["mcp", "call", "fine.work", "{}"]) == 0
    assert capsys.readouterr().out == "done\n"
    assert main(["mcp", "call", "fine.wrok"]) == 1
    assert main(["mcp", "call", "dead.work"]) == 1
    assert "dead is not running" in capsys.readouterr().err
    assert main(["mcp", "remove", "fine"]) == 0
    assert main(["mcp", "remove", "fine"]) == 1
    assert main(["mcp", "add", "x", "ftp://example.org"]) == 2
    assert main(["mcp", "add", "x", "example.org/mcp"]) == 2
    assert "an address begins with https://" in capsys.readouterr().err
    assert main(["mcp", "add"]) == 2
    (tmp_path / "home" / "mcp.json").write_text('{"mcpServers": {')
    assert main(["mcp", "list"]) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_servers_of_the_configuration_are_known_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = bad("fine")
    (tmp_path / "dragoman.toml").write_text(
        f"demo = true\n[mcp.servers.fine]\ncommand = {json.dumps(fine.command)}\nargs = {json.dumps(list(fine.args))}\n"
    )
    assert main(["mcp", "call", "fine.work"]) == 0
    assert capsys.readouterr().out == "done\n"
    (tmp_path / "dragoman.toml").write_text('demo = true\n[mcp]\nshow = "loud"\n')
    assert main(["mcp", "list"]) == 2
    assert "mcp.show" in capsys.readouterr().err
