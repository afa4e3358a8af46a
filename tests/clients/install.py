"""Real agent programs from npm, in a cache outside the tree; the versions stand in versions.txt."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

VERSIONS = Path(__file__).with_name("versions.txt")
INSTALL_S = 300


class UnavailableError(Exception):
    """Why there are no programs to run."""


def cache_folder(versions: Path) -> Path:
    """One folder for each set of versions, so that another set never meets half of this one."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dragoman-clients" / hashlib.sha256(versions.read_bytes()).hexdigest()[:12]


def install(versions: Path = VERSIONS) -> Path:
    """The folder of the programs; installs them the first time."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise UnavailableError("node and npm are not on PATH")
    folder = cache_folder(versions)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _install(npm, folder, versions.read_text().split())
            (folder / "done").touch()
    return folder / "node_modules" / ".bin"


def _install(npm: str, folder: Path, wanted: list[str]) -> None:
    quiet = ["--no-audit", "--no-fund", "--loglevel", "error"]
    patient = ["--fetch-retries", "1", "--fetch-timeout", "60000"]  # its own patience is longer than a CI run
    command = [npm, "install", "--prefix", str(folder), *quiet, *patient, *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"npm install took longer than {INSTALL_S} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"npm install failed: {done.stderr.strip()[-300:]}")
