"""`keys`, `teams` and `usage` speak to the gateway that runs with this state folder, whatever file it has."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from dragoman.gateway.process.control import FOLDER, find_running
from tests.cli.test_serve import COMMAND, environment, serving
from tests.gateway.web import get, post
from tests.waiting import NEVER_S, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no Unix sockets: commands work on the files")
FILE = """
demo = true
[team.web]
rpm = 600
[key.from-the-file]
secret = "a-secret-of-the-file"
team = "web"
budget = "5 USD/month"
"""


def say(folder: Path, *words: str) -> str:
    """Runs a command in a folder that has no configuration file."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        [*COMMAND, *words], cwd=elsewhere, env=environment(folder), capture_output=True, text=True, timeout=NEVER_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(folder: Path) -> Path:
    file = folder / "dragoman.toml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize("words", [(), ("--workers", "2")], ids=["one process", "two workers"])
def test_commands_and_the_running_gateway_mean_the_same_keys(words: tuple[str, ...], tmp_path: Path) -> None:
    file = start(tmp_path)
    with serving(tmp_path, "--config", str(file), *words) as running:
        key = say(tmp_path, "keys", "new", "--name", "ada", "--team", "web").strip()
        assert get(running.url, "/v1/models", {"authorization": f"Bearer {key}"}).status == 200
        listed = say(tmp_path, "keys", "list")
        assert "ada" in listed
        assert "in file" in listed
        assert "from-the-file" in listed, "the gateway knows its file, the command does not"
        assert "a-secret" not in listed
        assert "web  2 keys  rpm 600" in say(tmp_path, "teams", "list")
        say(tmp_path, "keys", "edit", key.split("-")[1], "--budget", "1 USD/day")
        assert "0 of 1 USD/day spent" in say(tmp_path, "keys", "show", key.split("-")[1])
        ask = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
        assert post(running.url, "/v1/chat/completions", ask, {"authorization": f"Bearer {key}"}).status == 200
        wait_until(lambda: "ada" in say(tmp_path, "usage", "--by", "key"), "the row of the request")
        say(tmp_path, "keys", "revoke", key.split("-")[1])
        assert "key revoke" in say(tmp_path, "usage", "--audit")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(NEVER_S) == 0
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert "from-the-file" not in say(tmp_path, "keys", "list"), "now the files are read"


def test_a_gateway_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path, "--config", str(start(tmp_path))) as running:
        path = find_running(tmp_path)
        assert path is not None
        running.process.kill()
        running.process.wait(NEVER_S)
    assert path.exists()
    assert "dk-" in say(tmp_path, "keys", "new", "--name", "ada")
    assert not path.parent.exists()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_socket_that_others_can_reach_is_not_used(tmp_path: Path) -> None:
    with serving(tmp_path, "--config", str(start(tmp_path))):
        path = find_running(tmp_path)
        assert path is not None
        assert path.parent.stat().st_mode & 0o077 == 0
        path.parent.chmod(0o755)
        assert find_running(tmp_path) is None


def test_the_socket_of_a_stranger_is_not_used(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for name, text in {
        "1": "{}",
        "2": json.dumps({"socket": "/nowhere/control.sock", "pid": 1}),
        "3": "nonsense",
    }.items():
        (tmp_path / FOLDER / f"{name}.json").write_text(text)
    assert find_running(tmp_path) is None
