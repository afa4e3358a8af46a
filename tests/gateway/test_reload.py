"""A changed configuration in a running process: a good one is taken, a bad one refused, nobody notices (F51, F52)."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.gateway.process import reload
from dragoman.gateway.process.startup import ServeOptions, settle
from tests.cli.test_serve import Running, environment, serving
from tests.gateway.house import faultline, stream
from tests.gateway.test_faults import DONE, chunk
from tests.gateway.web import get, post
from tests.waiting import NEVER_S, wait_until

GOOD = '[providers.a]\nkind = "demo"\nmodels = ["{}"]\n'
CHAT = "/v1/chat/completions"
needs_posix = pytest.mark.skipif(os.name == "nt", reason="this system has no pipes with names, and one time of a file")
HI = [{"role": "user", "content": "say hi"}]

BAD: dict[str, tuple[bytes, str]] = {
    "syntax": (b'[providers.a]\nkind = "demo"\nmodels = ["x"\n', "dragoman.toml:3: is not TOML"),
    "cut in a table": (b'[providers.a]\nkind = "demo"\n[provid', "dragoman.toml:3: is not TOML"),
    "empty": (b"", "dragoman.toml: is empty"),
    "blanks": (b" \n\n\t\n", "dragoman.toml: is empty"),
    "unknown key": (b'[providers.a]\nkind = "demo"\nmodles = []\n', "dragoman.toml:3: providers.a.modles: no such key"),
    "no providers": (b"demo = false\n", "dragoman.toml: providers: there is none"),
    "no environment": (b'[providers.openai]\napi_key = "${NOT_THERE}"\n', "dragoman.toml:2: providers.openai.api_key"),
    "blank key": (b'[providers.openai]\napi_key = ""\n', "dragoman.toml:2: providers.openai.api_key: is empty"),
    "wrong type": (b'[providers.a]\nkind = "demo"\n[aliases]\nx = 3\n', "dragoman.toml:4: aliases.x"),
    "not text": (b'[providers.a]\nkind = "\xff\xfe"\n', "dragoman.toml:2: is not UTF-8"),
    "too large": (b'[providers.a]\nkind = "demo"\n' + b"#" * 2_000_000, "dragoman.toml: is larger than"),
    "itself": (b'[providers.me]\nbase_url = "http://127.0.0.1:0/v1"\n', "this gateway's own address"),
    "exposed": (b'host = "0.0.0.0"\n[providers.a]\nkind = "demo"\n', "without client keys"),
    "weak key": (b'client_keys = ["short"]\n[providers.a]\nkind = "demo"\n', "dragoman.toml:1: client_keys"),
}


class Process:
    """A gateway with a file, and the lines of its log as they come."""

    def __init__(self, running: Running, file: Path) -> None:
        self.running, self.file, self.url = running, file, running.url
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.running.process.stderr is not None
        for line in self.running.process.stderr:
            self.lines.append(json.loads(line))

    def models(self) -> list[str]:
        return [row["id"] for row in get(self.url, "/v1/models").json["data"]]

    def hang_up(self) -> None:
        self.running.process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        self.running.process.send_signal(signal.SIGTERM)
        self.running.process.wait(NEVER_S)
        self._reader.join(NEVER_S)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [row for row in list(self.lines) if row["event"] == name]

    def generation(self) -> int:
        return int(get(self.url, "/health").json["configuration"]["generation"])


@contextmanager
def gateway(folder: Path, *words: str, text: str = GOOD.format("one")) -> Iterator[Process]:
    file = folder / "dragoman.toml"
    file.write_text(text)
    file.chmod(0o600)
    with serving(folder, "--log", "json", *words, env=environment(folder)) as running:
        process = Process(running, file)
        try:
            yield process
        finally:
            process.close()


PAUSE_S = 0.01  # between two of its requests


class Load:
    """Requests all the while; not one may fail."""

    def __init__(self, url: str) -> None:
        self._url, self._over = url, threading.Event()
        self.statuses: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            self.statuses.append(post(self._url, CHAT, {"model": "a/one", "messages": HI}).status)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(NEVER_S)


def replace_by_rename(file: Path, text: str) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


WAYS: dict[str, Callable[[Path, str], object]] = {
    "written": lambda file, text: file.write_text(text),
    "renamed": replace_by_rename,
}


def test_watch_takes_a_good_file_however_it_comes(tmp_path: Path) -> None:
    with gateway(tmp_path, "--watch") as process, Load(process.url) as load:
        for number, (way, change) in enumerate(WAYS.items(), 2):
            name = way.replace(" ", "-")
            change(process.file, GOOD.format(name) + '[providers.b]\nkind = "demo"\nmodels = ["more"]\n')
            wait_until(lambda name=name: process.models() == [name, "more"])  # type: ignore[misc]
            assert process.generation() == number, f"{way}: read once, and never half"
    assert set(load.statuses) == {200}
    assert len(process.events("config_loaded")) == len(WAYS)
    assert process.events("config_rejected") == []


HALF, FULL = GOOD.format("half"), GOOD.format("half") + GOOD.format("full").replace("providers.a", "providers.b")
# what is in the file at each look; None: there is no file
LOOKS: dict[str, tuple[list[str | None], list[list[str]]]] = {
    "slowly": (
        ["", HALF, FULL, FULL],
        [["half", "full"]],
    ),  # an editor on a slow disk; half of it is a good file too
    "deleted and made": ([None, None, FULL, FULL], [["half", "full"]]),
    "deleted while it is read": ([HALF, None, FULL, FULL], [["half", "full"]]),
    "twice": ([HALF, HALF, FULL, FULL], [["half"], ["half", "full"]]),
    "before the first look": ([FULL, FULL], [["half", "full"]]),
    "not at all": ([GOOD.format("one")] * 3, []),
}


@pytest.mark.parametrize("way", LOOKS)
def test_watch_reads_a_file_once_and_never_half(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, loads = LOOKS[way]
    file = tmp_path / "dragoman.toml"
    file.write_text(GOOD.format("one"))
    options, env = ServeOptions(config=file), {"DRAGOMAN_HOME": str(tmp_path), "DRAGOMAN_NO_PROBE": "1"}
    settings = settle(options, env)
    if way == "before the first look":
        file.write_text(FULL)
        os.utime(file, ns=(0, 0))
    seen: list[list[str]] = []
    steps = iter(enumerate(looks))

    async def pause(seconds: float) -> None:
        """Instead of waiting: what is in the file next. The times differ, however fast the test is."""
        step = next(steps, None)
        if step is None:
            raise asyncio.CancelledError
        number, text = step
        if text is None:
            file.unlink(missing_ok=True)
        elif not file.exists() or file.read_text() != text:
            file.write_text(text)
            os.utime(file, ns=(0, number * 10**9))

    def load() -> None:
        seen.append([name for upstream in settle(options, env).upstreams for name in upstream.models])

    monkeypatch.setattr(reload, "asyncio", SimpleNamespace(sleep=pause))
    gateway: Any = SimpleNamespace(now=SimpleNamespace(settings=settings))
    with suppress(asyncio.CancelledError):
        asyncio.run(reload.watch(gateway, load))
    assert seen == loads


def test_a_file_of_the_same_size_and_time_is_another_one_when_it_was_renamed(tmp_path: Path) -> None:
    with gateway(tmp_path, "--watch") as process:
        old = process.file.stat()
        draft = tmp_path / "draft"
        draft.write_text(GOOD.format("two"))
        os.utime(draft, ns=(old.st_atime_ns, old.st_mtime_ns))
        draft.replace(process.file)
        wait_until(lambda: process.models() == ["two"])


@needs_posix
def test_a_file_of_the_same_size_and_time_is_another_one_when_it_was_written_in_place(tmp_path: Path) -> None:
    with gateway(tmp_path, "--watch") as process:
        old = process.file.stat()
        process.file.write_text(GOOD.format("two"))
        os.utime(process.file, ns=(old.st_atime_ns, old.st_mtime_ns))
        wait_until(lambda: process.models() == ["two"])


@needs_posix
@pytest.mark.parametrize("way", ["--watch", "SIGHUP"])
def test_a_pipe_in_the_place_of_the_file_stops_nothing(way: str, tmp_path: Path) -> None:
    """To open a pipe is to wait for a writer: so it was with `--config <(...)` and a SIGHUP."""
    with gateway(tmp_path, *(("--watch",) if way == "--watch" else ())) as process:
        process.file.unlink()
        os.mkfifo(process.file)
        if way == "SIGHUP":
            process.hang_up()
        wait_until(lambda: process.events("config_rejected"))
        assert "is not a file" in process.events("config_rejected")[0]["why"]
        assert process.models() == ["one"]


@pytest.mark.parametrize("way", ["--watch", "SIGHUP"])
def test_f51_a_bad_file_is_refused_and_named_and_no_client_notices(way: str, tmp_path: Path) -> None:
    words = ("--watch",) if way == "--watch" else ()
    kinds = list(BAD.items()) if way == "SIGHUP" else list(BAD.items())[:2]
    with gateway(tmp_path, *words) as process, Load(process.url) as load:
        for number, (name, (text, why)) in enumerate(kinds, 1):
            process.file.write_bytes(text)
            if way == "SIGHUP":
                process.hang_up()
            wait_until(lambda number=number: len(process.events("config_rejected")) >= number)  # type: ignore[misc]
            said = process.events("config_rejected")[-1]
            assert why in said["why"], name
            assert (said["generation"], said["level"]) == (1, "warning")
        assert process.generation() == 1
        assert process.models() == ["one"]
        assert f"dragoman_config_rejected {len(kinds)}" in get(process.url, "/metrics").text
        process.file.write_text(GOOD.format("two"))
        if way == "SIGHUP":
            process.hang_up()
        wait_until(lambda: process.models() == ["two"])
    assert set(load.statuses) == {200}


def test_f52_a_stream_ends_on_the_configuration_it_began_with(tmp_path: Path) -> None:
    release = threading.Event()
    with faultline(stream(chunk("fi"), release, chunk("ne"), chunk(finish="stop"), DONE)) as line:
        text = f'[providers.far]\nbase_url = "{line.url}"\nmodels = ["m"]\n'
        with gateway(tmp_path, text=text) as process:
            got: list[str] = []
            body = {"model": "m", "messages": HI, "stream": True}
            thread = threading.Thread(target=lambda: got.append(post(process.url, CHAT, body).text))
            thread.start()
            wait_until(lambda: len(line.seen) == 1)
            process.file.write_text(GOOD.format("one"))
            process.hang_up()
            wait_until(lambda: process.models() == ["one"])
            assert not got, "it still runs"
            release.set()
            thread.join(NEVER_S)
            assert "fi" in got[0]
            assert "ne" in got[0]
            assert got[0].endswith("data: [DONE]\n\n")
            assert post(process.url, CHAT, {"model": "m", "messages": HI}).headers["x-dragoman-upstream"] == "a/one"


def test_what_only_a_start_can_change_is_said(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        process.file.write_text("grace_s = 5\nxray = 3\n" + GOOD.format("two"))
        process.hang_up()
        wait_until(lambda: process.models() == ["two"])
        wait_until(lambda: bool(process.events("config_needs_a_restart")))
        assert process.events("config_needs_a_restart")[0]["keys"] == "grace_s, xray_keep"


def test_every_worker_reads_the_file_again_and_so_does_one_in_anothers_place(tmp_path: Path) -> None:
    with gateway(tmp_path, "--workers", "2") as process:
        process.file.write_text(GOOD.format("two"))
        process.hang_up()
        wait_until(lambda: len(process.events("config_loaded")) == 2)
        assert {tuple(process.models()) for _ in range(10)} == {("two",)}
        children = Path(f"/proc/{process.running.process.pid}/task/{process.running.process.pid}/children")
        for victim in children.read_text().split():  # the one, and when it is replaced the other
            os.kill(int(victim), signal.SIGKILL)
            wait_until(lambda: len(now := children.read_text().split()) == 2 and victim not in now)  # noqa: B023
        assert {tuple(process.models()) for _ in range(20)} == {("two",)}
