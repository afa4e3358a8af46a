import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.mcp.registry import Registry
from dragoman.mcp.spec import BadServerError, check_name, check_url, read_spec
from tests.waiting import NEVER_S


def test_what_is_added_is_there_for_the_next_process(tmp_path: Path) -> None:
    assert Registry(tmp_path / "mcp.json").add("time", "http://127.0.0.1:1/mcp") is False
    assert Registry(tmp_path / "mcp.json").load()["time"].url == "http://127.0.0.1:1/mcp"
    assert Registry(tmp_path / "mcp.json").remove("time") is True
    assert Registry(tmp_path / "mcp.json").load() == {}
    assert Registry(tmp_path / "mcp.json").remove("time") is False


def test_a_registry_sees_what_another_one_wrote(tmp_path: Path) -> None:
    one, other = Registry(tmp_path / "mcp.json"), Registry(tmp_path / "mcp.json")
    one.add("a", "http://h/1")
    assert list(other.load()) == ["a"]
    other.add("b", "http://h/2")
    assert list(one.load()) == ["a", "b"]


def test_a_file_cut_in_half_is_a_clear_error_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    Registry(path).add("a", "http://h/1")
    half = path.read_bytes()[:20]
    path.write_bytes(half)
    for attempt in (
        lambda: Registry(path).load(),
        lambda: Registry(path).add("b", "http://h/2"),
        lambda: Registry(path).remove("a"),
    ):
        with pytest.raises(ConfigError, match=r"mcp\.json: is not JSON.*does not change it"):
            attempt()
    assert path.read_bytes() == half


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"url": "http://h/1"}}}',
        '{"servers": {"a": {"url": "http://h/1"}}}',
        '{"servers": [{"name": "a", "url": "http://h/1"}]}',
        '[{"name": "a", "url": "http://h/1"}]',
        '{"a": {"url": "http://h/1"}}',
        '{"a": "http://h/1"}',
    ],
)
def test_every_form_in_use_is_read_and_added_to(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    Registry(path).add("b", "http://h/2")
    found = Registry(path).load()
    assert {name: spec.url for name, spec in found.items()} == {"a": "http://h/1", "b": "http://h/2"}


def test_entries_of_other_programs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    theirs = {"command": "npx", "args": ["-y", "x"], "note": "mine"}
    path.write_text(json.dumps({"version": 3, "mcpServers": {"x": theirs, "y": {"url": "http://h/1", "icon": "y"}}}))
    Registry(path).add("z", "http://h/3")
    Registry(path).add("y", "http://h/1")
    document = json.loads(path.read_text())
    assert document["version"] == 3
    assert document["mcpServers"]["x"] == theirs
    assert document["mcpServers"]["y"] == {"url": "http://h/1", "icon": "y"}


def test_another_address_does_not_inherit_the_headers_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"y": {"url": "http://h/1", "headers": {"authorization": "Bearer k"}}}}))
    Registry(path).add("y", "http://evil/1")
    assert json.loads(path.read_text())["mcpServers"]["y"] == {"url": "http://evil/1"}


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    Registry(tmp_path / "mcp.json").add("a", "http://h/1")
    assert (tmp_path / "mcp.json").stat().st_mode & 0o077 == 0


WRITER = """
import sys
from pathlib import Path
from dragoman.mcp.registry import Registry
for i in range(20):
    Registry(Path(sys.argv[1])).add(f"{sys.argv[2]}{i}", "http://h/1")
"""


def test_two_processes_keep_each_other_s_changes_and_a_killed_one_leaves_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    both = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    victim = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "victim"])
    while not path.exists() and victim.poll() is None:
        pass
    victim.kill()
    victim.wait()
    assert [process.wait(NEVER_S) for process in both] == [0, 0]
    found = Registry(path).load()
    assert {f"{name}{i}" for name in "ab" for i in range(20)} <= set(found)


def test_a_disk_that_refuses_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Registry(tmp_path / "file" / "mcp.json").add("a", "http://h/1")


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "a/b", "a__b", "x" * 65, ".hidden", None, 3, "a\nb"])
def test_illegal_names_are_refused(name: object) -> None:
    with pytest.raises(BadServerError):
        check_name(name)


@pytest.mark.parametrize("name", ["time", "my-server.v2", "날씨", "A_1"])
def test_plain_names_of_any_language_are_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://h/x", "file:///etc/passwd", "http://", "http://user:pw@h/", "http://169.254.169.254/latest",
        "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://0.0.0.0/", "http://metadata.google.internal/",
        "http://h:99999/", "http://h/a b", 7, None, "stdio:cat", "http://h/\n",
    ],
)  # fmt: skip
def test_illegal_addresses_are_refused(url: object) -> None:
    with pytest.raises(BadServerError):
        check_url(url)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({}, "url"),
        ({"url": 3}, "url"),
        ({"url": "ftp://h"}, "url"),
        ({"transport": "stdio"}, "command"),
        ({"transport": "pigeon", "url": "http://h"}, "transport"),
        ({"command": "x", "args": "y"}, "args"),
        ({"command": "x", "env": {"A": 1}}, "env"),
        ({"url": "http://h", "timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_bad_entry_names_its_key(row: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec("a", row, "mcp.json", "mcpServers.a")
    assert caught.value.key == f"mcpServers.a.{key}"


def test_secrets_of_an_entry_are_not_shown() -> None:
    spec = read_spec("a", {"url": "http://u:p@h/mcp?token=abc", "headers": {"authorization": "k"}}, "f", "a")
    assert spec.address == "http://h/mcp?…"
    assert os.sep not in spec.name
