"""Two gateways and one Valkey: their limits hold together, and neither stops when Valkey does."""

import json
import subprocess
import threading
from pathlib import Path

import pytest

from tests.cli.test_serve import COMMAND, Running, environment, serving
from tests.engines.servers import Engine
from tests.gateway.house import faultline
from tests.gateway.test_faults import GOOD
from tests.gateway.web import post
from tests.waiting import NEVER_S, wait_until

RPM = 12  # a busy machine may count a few of them twice
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def write_config(folder: Path, url: str, state: str, **limits: int) -> None:
    folder.mkdir()
    config = {"deadline_s": 1, "state": state, "providers": {"far": {"base_url": url, "models": ["m"], **limits}}}
    (folder / "config.json").write_text(json.dumps(config))


def ask(*gateways: Running, times: int) -> list[int]:
    statuses: list[int] = []

    def one(url: str) -> None:
        statuses.append(post(url, "/v1/chat/completions", BODY).status)

    threads = [threading.Thread(target=one, args=(running.url,)) for running in gateways for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(NEVER_S)
    return sorted(statuses)


def test_two_gateways_keep_one_limit_and_go_on_without_valkey(valkey: Engine, tmp_path: Path) -> None:
    with faultline(GOOD) as line:
        for name in ("one", "two"):
            write_config(tmp_path / name, line.url, valkey.url, rpm=RPM)
        with serving(tmp_path / "one") as one, serving(tmp_path / "two") as two:
            gateways = (one, two)
            wait_until(lambda: all(state_of(running)["share"] == "1/2" for running in gateways), "all to meet")
            assert state_of(one) == {"kept": "valkey", "status": "ok", "share": "1/2"}
            wait_until(lambda: ask(one, times=1) == [200], "Valkey is new: it grants after two seconds")
            assert ask(one, two, times=1) == [200, 200]
            wait_until(lambda: all(used_of(running) >= 3 for running in gateways), "both to see all three")
            valkey.stop()
            wait_until(lambda: all(state_of(running)["status"] == "away" for running in gateways), "them to see it")
            assert "dragoman_state_away 1" in one.get("/metrics")
            assert 200 in ask(one, times=3)
            assert len(line.seen) < RPM
            valkey.start()
            wait_until(lambda: all(state_of(running)["status"] == "ok" for running in gateways), "them to see it")
            wait_until(lambda: ask(one, two, times=2) and len(line.seen) >= RPM, "the rest to be granted")
            ask(one, two, times=2)
            times = [seen.at for seen in line.seen]
            full = max(sum(begin <= at < begin + 59.0 for at in times) for begin in times)
            assert full <= RPM, "Valkey lost its memory and was told what was sent"
            assert "dragoman_state_losses 0\n" not in one.get("/metrics")


def run_command(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    env = env or environment(folder)
    return subprocess.run([*COMMAND, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=NEVER_S)


def state_of(running: Running) -> dict[str, str]:
    found: dict[str, str] = json.loads(running.get("/health"))["state"]
    return found


def used_of(running: Running) -> int:
    return int(json.loads(running.get("/health"))["rate_limits"]["far"]["rpm"]["used"])


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_command_says_whether_valkey_answers(command: str, valkey: Engine, tmp_path: Path) -> None:
    env = {**environment(tmp_path), "DRAGOMAN_STATE": valkey.url}
    (tmp_path / "config.json").write_text('{"demo": true, "port": 0}')
    done = run_command(tmp_path, command, env=env)
    assert (done.returncode, f"{valkey.url}: answers" in done.stdout) == (0, True), done.stdout + done.stderr
    env = {**environment(tmp_path), "DRAGOMAN_STATE": "valkey://:hush-hush@127.0.0.1:1/0"}
    done = run_command(tmp_path, command, env=env)
    assert done.returncode == 1
    assert "valkey://127.0.0.1:1/0: does not answer" in done.stdout
    assert "hush" not in done.stdout + done.stderr


def test_doctor_says_what_is_wrong_with_the_database(tmp_path: Path) -> None:
    """It said that the configuration is wrong, or nothing at all."""
    (tmp_path / "config.json").write_text('{"demo": true, "port": 0}')
    env = {**environment(tmp_path), "DRAGOMAN_DATABASE": "postgresql://dragoman:hush-hush@127.0.0.1:1/dragoman"}
    done = run_command(tmp_path, "doctor", env=env)
    assert done.returncode == 1
    assert "ok     configuration" in done.stdout
    assert "wrong  postgresql://127.0.0.1:1/dragoman: does not answer" in done.stdout
    assert "hush" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("state", "postgresql://x/y", "expected valkey://host:port"),
        ("on_state_loss", "panic", "expected local_share or refuse"),
        ("state_prefix", "{a}", "expected letters"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, key: str, value: str, why: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"demo": True, key: value}))
    done = run_command(tmp_path, "check")
    assert done.returncode == 78
    assert why in done.stderr
