"""A gateway to talk to: the one that runs, or one started for as long as it is needed."""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from dragoman.errors import DragomanError
from dragoman.jsontypes import Json, dump_json, load_json

HOST, PORT = "127.0.0.1", 20006
START_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GatewayError(DragomanError):
    """There is no gateway, or it said no."""


def base_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def answers(url: str, timeout: float = 0.5) -> bool:
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or HOST, parts.port, timeout=timeout)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def running_gateway(url: str, *, config: Path | None = None, quiet: bool = False) -> Iterator[str]:
    """The address of a gateway; one that had to be started ends with the block."""
    if answers(url):
        yield url
        return
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        raise GatewayError(f"no gateway answers at {url}")
    port = parts.port or PORT
    log = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe nobody reads would fill up
    process = start(port, config, log)
    try:
        wait_for(url, process, log)
        if not quiet:
            print(f"started a gateway at {url}", file=sys.stderr)
        yield url
    finally:
        process.terminate()
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def start(port: int, config: Path | None, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """It holds on to us by its standard input: however we end, that ends, and the gateway with it."""
    command = [sys.executable, "-c", f"from {__name__} import serve_held; serve_held()", "--port", str(port)]
    if config is not None:
        command += ["--config", str(config)]
    return subprocess.Popen(  # noqa: S603  # ourselves
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
    )


def serve_held() -> None:
    """`dragoman serve`, until whoever started it is gone."""
    from dragoman.cli import main

    held = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def watch() -> None:
        os.read(held, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    sys.exit(main(["serve", *sys.argv[1:]]))


def wait_for(url: str, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip()
            raise GatewayError(f"the gateway did not start: {said.splitlines()[-1] if said else process.returncode}")
        if answers(url):
            return
        time.sleep(0.05)
    raise GatewayError("the gateway did not start in time")


def find_key(said: str | None) -> str | None:
    return said or os.environ.get("DRAGOMAN_KEY")


def fetch(url: str, path: str, key: str | None, body: Json = None, method: str | None = None) -> Json:
    """JSON of a gateway; GatewayError with its own words when it refuses."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else dump_json(body)
    request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310  # http by construction
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return load_json(response.read())
    except urllib.error.HTTPError as error:
        raise GatewayError(say_refusal(error.code, error.read())) from error
    except (OSError, http.client.HTTPException) as error:
        raise GatewayError(f"{url} does not answer: {error}") from error


def say_refusal(status: int, data: bytes) -> str:
    """The words of an error, whichever dialect it is in."""
    try:
        found = load_json(data)
    except DragomanError:
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    words = error.get("message") if isinstance(error, dict) else error
    return str(words) if words else f"it answered {status}"


def find_model(url: str, key: str | None) -> str:
    """The first model there is: a provider's before the demo's."""
    names = list_models(url, key)
    return next((name for name in names if name != "demo"), names[0] if names else "demo")


def list_models(url: str, key: str | None) -> list[str]:
    return [str(row["id"]) for row in fetch(url, "/v1/models", key)["data"]]
