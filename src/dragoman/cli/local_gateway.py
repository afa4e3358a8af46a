"""Finds a running gateway, or starts one and stops it after use."""

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
from typing import IO
from urllib.parse import quote, urlsplit

from dragoman.errors import DragomanError
from dragoman.gateway import DEFAULT_MODEL, HOST, PORT
from dragoman.jsontypes import Json, dump_json, load_json

START_S = 10.0
DEMO = "demo"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GatewayError(DragomanError):
    """There is no gateway, or it refused a request."""


def base_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_answering(url: str) -> bool:
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or HOST, parts.port, timeout=0.5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def running_gateway(url: str) -> Iterator[str]:
    """Yields the address of a gateway. A gateway that was started here ends with the block."""
    if is_answering(url):
        yield url
        return
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        raise GatewayError(f"no gateway answers at {url}")
    port = parts.port or PORT
    log = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe without a reader would fill up
    process = start(port, log)
    try:
        wait_for(url, process, log)
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


def start(port: int, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Its standard input is a pipe from us. When we end, the pipe closes, and the gateway stops."""
    command = [
        sys.executable,
        "-c",
        f"from {__name__} import serve_with_parent; serve_with_parent()",
        "--port",
        str(port),
    ]
    return subprocess.Popen(  # noqa: S603  # ourselves
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
    )


def serve_with_parent() -> None:
    """`dragoman serve` until the parent process ends."""
    from dragoman.cli import main

    parent_pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def wait_for_parent() -> None:
        os.read(parent_pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_parent, daemon=True).start()
    sys.exit(main(["serve", *sys.argv[1:]]))


def wait_for(url: str, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
            raise GatewayError(f"the gateway did not start: {lines[-1] if lines else process.returncode}")
        if is_answering(url):
            return
        time.sleep(0.05)
    raise GatewayError("the gateway did not start in time")


def find_key(key: str | None) -> str | None:
    return key or os.environ.get("DRAGOMAN_KEY")


def fetch(url: str, path: str, key: str | None, body: Json = None, method: str | None = None) -> Json:
    """Fetches JSON from a gateway. Raises GatewayError with the gateway's message if it refuses."""
    with open_url(url, path, key, body, method) as response:
        return load_json(response.read())


@contextmanager
def open_url(
    url: str, path: str, key: str | None, body: Json = None, method: str | None = None
) -> Iterator[http.client.HTTPResponse]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else dump_json(body)
    request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310  # http by construction
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            yield response
    except urllib.error.HTTPError as error:
        raise GatewayError(read_error(error.code, error.read())) from error
    except (OSError, http.client.HTTPException) as error:
        raise GatewayError(f"{url} does not answer: {error}") from error


def read_error(status: int, data: bytes) -> str:
    """The message of an error body in any dialect."""
    try:
        found = load_json(data)
    except DragomanError:
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    if not message:
        return f"it answered {status}"
    return f"{message} (--key KEY or DRAGOMAN_KEY gives it)" if status == 401 else str(message)


def find_model(url: str, key: str | None) -> str:
    """The model for a command without --model. All commands use one rule: DRAGOMAN_MODEL, else what the gateway
    says (its `default_model`, a model of its first real upstream, or the demo model), else what the user says."""
    named = os.environ.get("DRAGOMAN_MODEL")
    if named:
        return tell_model(named)
    with open_url(url, "/v1/models", key) as response:
        default = response.headers.get(DEFAULT_MODEL)
        names = [str(row["id"]) for row in load_json(response.read())["data"]]
    found = default or next((name for name in names if name != DEMO), None)
    if found is None and sys.stdin is not None and sys.stdin.isatty():
        found = input("Which model? ").strip() or None
    if found is None:
        raise GatewayError("choose a model: --model NAME (the gateway does not know the models of its upstreams)")
    return tell_model(found)


def default_without_gateway() -> str:
    """The same rule where no gateway runs: by the configuration or the keys of this machine."""
    from dragoman.gateway.process.startup import ServeOptions, settle
    from dragoman.upstream.routing import find_default

    named = os.environ.get("DRAGOMAN_MODEL")
    if named:
        return tell_model(named)
    settings = settle(ServeOptions(), os.environ)
    found = find_default(settings.routes(), settings.default_model)
    if found is None:
        raise GatewayError("choose a model: --model NAME")
    return tell_model(found)


def tell_model(name: str) -> str:
    """Says which model was chosen, to a person."""
    if name == DEMO:
        print("no provider is set up: the built-in demo model answers", file=sys.stderr)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(f"model {name}", file=sys.stderr)
    return name


def find_limits(url: str, key: str | None, model: str) -> tuple[int | None, int | None]:
    """How many tokens a model reads and writes, as far as the gateway knows."""
    try:
        card = fetch(url, f"/v1beta/models/{quote(model)}", key)
    except GatewayError:  # a model that is not listed
        return None, None
    return card.get("inputTokenLimit"), card.get("outputTokenLimit")


def list_models(url: str, key: str | None) -> list[str]:
    return [str(row["id"]) for row in fetch(url, "/v1/models", key)["data"]]
