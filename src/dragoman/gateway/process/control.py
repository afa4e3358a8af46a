"""Control: the commands of this machine's user speak to the running gateway, so that both always mean the same keys.

A gateway may have been started elsewhere, with another configuration file or database than a command would find. So
each process listens on a Unix socket in a folder of its own that only its user can enter, and writes in the state
folder where it is. No key is needed there: this user could write the key store, too.
"""

import asyncio
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from dragoman.accounts.grants import Holder
from dragoman.gateway.access.auth import COMMAND
from dragoman.gateway.process.peers import Handle, PeerAnswer, Question, answer
from dragoman.gateway.stores.keys import find_person

FOLDER = "running"
NAME = "control.sock"
MOST_BYTES = 4 * 1024 * 1024  # of a question
ANSWER_S = 30.0


class Running(Struct, frozen=True):
    """The content of the file in which a running process says where it can be reached."""

    socket: str
    pid: int


class Control:
    def __init__(self, state: Path) -> None:
        self._file = state / FOLDER / f"{os.getpid()}.json"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: asyncio.Server | None = None

    async def start(self, handle: Handle) -> None:
        """Opens the socket. On a system without Unix sockets (Windows), or where nothing can be written, there is none:
        then commands work on the files."""
        if not hasattr(socket, "AF_UNIX"):
            return
        holder = Holder(id="", name=find_person(), admin=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError, msgspec.DecodeError):
                await answer(reader, writer, handle, COMMAND, holder)
            writer.close()

        find_running(self._file.parent.parent)  # deletes what killed processes left
        with suppress(OSError):
            self._folder = tempfile.TemporaryDirectory(prefix="dragoman-")  # only its user can enter it
            path = Path(self._folder.name) / NAME
            self._server = await asyncio.start_unix_server(serve, path, limit=MOST_BYTES)
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._file.with_suffix(".new")
            draft.write_bytes(msgspec.json.encode(Running(str(path), os.getpid())))
            os.replace(draft, self._file)

    async def close(self) -> None:
        self._file.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        if self._folder is not None:
            self._folder.cleanup()


# ---------------------------------------------------------------- for commands


def find_running(state: Path) -> Path | None:
    """The socket of a gateway that runs with this state folder; None if there is none."""
    for file, path in _list_running(state):
        if _is_safe(path, state) and _answers(path):
            return path
        _forget(file, path, state)
    return None


def _forget(file: Path, path: Path, state: Path) -> None:
    """Deletes what a process left that was killed."""
    with suppress(OSError):
        file.unlink()
        if path.name == NAME and _is_safe(path, state):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def _list_running(state: Path) -> Iterator[tuple[Path, Path]]:
    for file in sorted((state / FOLDER).glob("*.json"), reverse=True):
        with suppress(OSError, msgspec.DecodeError):
            yield file, Path(msgspec.json.decode(file.read_bytes(), type=Running).socket)


def _is_safe(path: Path, state: Path) -> bool:
    """Whether only the user whose state this is can have put the socket there. An administrator may ask it, too."""
    try:
        folder, owner = path.parent.stat(), state.stat().st_uid
    except OSError:
        return False
    return folder.st_uid in (os.getuid(), owner) and not stat.S_IMODE(folder.st_mode) & 0o077


def _answers(path: Path) -> bool:
    try:
        return ask_running(path, Question("GET", "/healthz")).status == 200
    except (OSError, msgspec.DecodeError):
        return False


def ask_running(path: Path, question: Question) -> PeerAnswer:
    """An OSError if it does not answer."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode(question) + b"\n")
        with connection.makefile("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=PeerAnswer)
