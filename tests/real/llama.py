"""llama.cpp's server with our tiny model: installed, made and started once, in a cache folder outside the tree.

`DRAGOMAN_REAL=1` lets the tests install what is missing (34 MB); without it they run where it is there already.
`DRAGOMAN_CACHE` names the folder.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.ports import free_port
from tests.real.tiny_model import write_model
from tests.waiting import NEVER_S

HERE = Path(__file__).parent
REQUIREMENTS = HERE.parent.parent / "requirements" / "real.txt"
INSTALL_S, START_S = 300.0, 20.0


class UnavailableError(Exception):
    """There is no such server here; the words say why."""


def cache_folder() -> Path:
    said = os.environ.get("DRAGOMAN_CACHE")
    return Path(said) if said else Path(tempfile.gettempdir()) / f"dragoman-real-{os.getuid()}"


def find_environment(requirements: Path, title: str) -> Path:
    """The Python of an environment with these packages in it."""
    pinned = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    home = cache_folder() / f"venv-{sys.version_info[0]}{sys.version_info[1]}-{pinned}"
    python, done = home / "bin" / "python", home / ".done"
    if done.exists():
        return python
    if os.environ.get("DRAGOMAN_REAL") != "1":
        raise UnavailableError(f"{title} cannot be found: set DRAGOMAN_REAL=1 to let the tests install it")
    with _alone(home.with_suffix(".lock")):
        if not done.exists():
            _install(home, requirements, title)
    return python


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Tests run side by side: one of them installs, and the others wait for it."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(home: Path, requirements: Path, title: str) -> None:
    python = home / "bin" / "python"
    venv.create(home, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    try:
        subprocess.run(
            [*command, "--require-hashes", "--no-deps", "-r", str(requirements)],  # the file is complete
            check=True, capture_output=True, text=True, timeout=INSTALL_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        raise UnavailableError(f"{title} cannot be installed: {' '.join(last)}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{title} was not installed in {INSTALL_S:.0f} s") from error
    (home / ".done").touch()


def find_python() -> Path:
    return find_environment(REQUIREMENTS, "llama.cpp's server")


def find_model() -> Path:
    """The model, made anew when what makes it has changed."""
    sources = (HERE / name for name in ("tiny_model.py", "gguf.py", "chat.jinja"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    path = cache_folder() / f"tiny-{digest}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        write_model(fresh)
        fresh.rename(path)  # whole or not at all: tests may run side by side
    return path


@contextmanager
def llama_server(key: str = "") -> Iterator[str]:
    """Its address, while it runs."""
    python, model = find_python(), find_model()
    port = free_port()
    command = [str(python), str(HERE / "server.py"), str(model), str(port), *([key] if key else [])]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(NEVER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(NEVER_S)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise UnavailableError(f"llama.cpp's server ended with {process.returncode}")
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=NEVER_S):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise UnavailableError(f"llama.cpp's server did not answer within {START_S:.0f} s")
