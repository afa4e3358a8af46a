"""`dragoman serve`, `check`, `keys` and `xray` as processes: start, signals, exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman import cli
from tests.waiting import NEVER_S, wait_until

COMMAND = [sys.executable, "-m", "dragoman"]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_KEY")}
    return {**kept, "DRAGOMAN_HOME": str(folder), "DRAGOMAN_NO_PROBE": "1"}


class Running:
    def __init__(self, process: subprocess.Popen[str], url: str, banner: str) -> None:
        self.process, self.url, self.banner = process, url, banner

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=NEVER_S) as response:  # noqa: S310
            return str(response.read().decode())


@contextmanager
def serving(
    folder: Path, *words: str, env: dict[str, str] | None = None, pass_fds: tuple[int, ...] = ()
) -> Iterator[Running]:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=env or environment(folder),
        pass_fds=pass_fds,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("      -d '"):
                break
        found = re.search(r"listens on (\S+)", "".join(lines))
        assert found is not None, process.stderr.read() if process.stderr else ""
        running = Running(process, found[1], "".join(lines))
        wait_until_ready(running)
        yield running
    finally:
        process.kill()
        process.communicate()


def wait_until_ready(running: Running) -> None:
    """It listens before it serves: an answer says that it watches its file and hears its signals."""

    def ready() -> bool:
        try:
            return bool(running.get("/healthz"))
        except OSError:
            return False

    wait_until(ready, "an answer of the server")


def test_it_starts_with_nothing_and_answers_the_line_it_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        assert "demo" in running.banner
        line = running.banner.partition("curl ")[2].replace("\\\n", "")
        body = re.search(r"-d '(.*)'", line)
        assert body is not None
        url = line.split()[0]
        request = urllib.request.Request(url, body[1].encode(), {"content-type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=NEVER_S) as response:  # noqa: S310
            assert json.load(response)["choices"][0]["message"]["content"]
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(NEVER_S) == 0


def test_a_changed_file_is_read_on_sighup_and_a_bad_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[providers.a]\nkind = "demo"\nmodels = ["one"]\n')
    with serving(tmp_path) as running:
        assert json.loads(running.get("/v1/models"))["data"][0]["id"] == "one"
        file.write_text('[providers.a]\nkind = "demo"\nmodels = ["two"]\n')
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: json.loads(running.get("/v1/models"))["data"][0]["id"] == "two")
        file.write_text("[providers.a\n")
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "dragoman_config_rejected 1" in running.get("/metrics"))
        assert json.loads(running.get("/v1/models"))["data"][0]["id"] == "two"


# Seed 003, word for word.
SEED = {
    "legacy": """{
  "api_key": "YOUR_GEMINI_API_KEY",
  "models": ["gemini-2.5-flash", "gemma-3-27b-it"],
  "rpm": 15,
  "http_port": 20006
}""",
    "providers": """{
  "providers": {
    "gemini": {
      "api_key": "YOUR_GEMINI_API_KEY",
      "models": ["gemini-2.5-flash", "gemma-3-27b-it"],
      "rpm": 15
    },
    "openai": {
      "api_key": "YOUR_OPENAI_API_KEY",
      "models": ["gpt-4o", "gpt-4o-mini"],
      "rpm": 60
    }
  },
  "http_port": 20006
}""",
}


@pytest.mark.parametrize("form", SEED)
def test_d4_both_forms_of_the_seed_run_unchanged(form: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(SEED[form])
    with serving(tmp_path) as running:  # on another port, so that two tests may run at once
        health = json.loads(running.get("/health"))
        assert health["rate_limits"]["gemini"]["rpm"]["limit"] == 15
        assert health["queue_sizes"]["gemini"] == 0
        names = [row["name"] for row in json.loads(running.get("/api/tags"))["models"]]
        assert names[:2] == ["gemini-2.5-flash", "gemma-3-27b-it"]
        assert len(names) == (2 if form == "legacy" else 4)
        assert "YOUR_" not in running.banner + json.dumps(health)


def test_two_workers_serve_and_end_together(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as running:
        assert all(json.loads(running.get("/health"))["status"] == "ok" for _ in range(10))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(NEVER_S) == 0


def test_it_refuses_to_be_exposed_without_a_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--host", "0.0.0.0", "--port", "0"],  # noqa: S104
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
        timeout=NEVER_S,
    )
    assert done.returncode == 78
    assert "refusing to listen on 0.0.0.0 without client keys" in done.stderr


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_NO_PROBE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_says_what_is_wrong_where(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "dragoman.toml").write_text('[providers.openai]\napi_kye = "x"\n')
    assert cli.main(["check"]) == 78
    assert "providers.openai.api_kye" in capsys.readouterr().err
    (home / "dragoman.toml").write_text('[providers.openai]\napi_key = "sk-secret-secret"\nrpm = 5\n')
    assert cli.main(["check", "--config", str(home / "dragoman.toml")]) == 0
    assert "good" in capsys.readouterr().out
    assert cli.main(["check"]) == 0
    out = capsys.readouterr().out
    assert "openai: openai" in out
    assert "5 requests a minute" in out
    (home / "dragoman.toml").write_text('[providers.openai]\nmodels = ["m"]\n')
    assert cli.main(["check"]) == 0
    assert "no key: set OPENAI_API_KEY or api_key" in capsys.readouterr().out
    assert "secret-secret" not in out


def test_keys_are_made_listed_and_revoked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "list"]) == 0
    assert "dragoman keys new" in capsys.readouterr().err
    assert cli.main(["keys", "new", "--name", "laptop"]) == 0
    key = capsys.readouterr().out.strip()
    assert cli.main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert "laptop" in listed
    assert key not in listed
    key_id = key.split("-")[1]
    assert cli.main(["keys", "revoke", key_id]) == 0
    assert "no key is left; keys stay needed" in capsys.readouterr().err
    assert cli.main(["keys", "revoke", key_id]) == 1
    capsys.readouterr()
    cli.main(["keys", "list"])
    assert "revoked" in capsys.readouterr().out


def test_xray_shows_a_request_wire_by_wire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, "--xray", "5") as running:
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}).encode()
        headers = {"content-type": "application/json", "x-request-id": "look"}
        request = urllib.request.Request(running.url + "/v1/chat/completions", body, headers)  # noqa: S310
        urllib.request.urlopen(request, timeout=NEVER_S).close()  # noqa: S310
        assert cli.main(["xray", "--url", running.url]) == 0
        assert "look" in capsys.readouterr().out
        assert cli.main(["xray", "look", "--url", running.url]) == 0
        shown = capsys.readouterr().out
        for words in ("client wire", "canonical", "provider wire", "client reply", "say hi"):
            assert words in shown
        assert cli.main(["xray", "nobody", "--url", running.url]) == 1
