"""mcp.json on disk: the servers that were added at run time.

Each change takes a lock, reads the file again, writes a new file and renames it. So a crash leaves the old or the new
file, and two processes do not overwrite each other's changes. An unreadable file is never overwritten.

The format is the one of other programs, {"mcpServers": {name: {"url": ...}}}. Older formats can be read: {"servers":
...}, a plain {name: url}, a list of {"name", "url"}. Unknown keys and entries are kept.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.errors import ConfigError, DecodeError
from dragoman.jsontypes import JsonObject, format_json, kind_of, load_json
from dragoman.mcp.spec import ServerSpec, fill_variables, read_spec

SERVERS_KEY = "mcpServers"


class Registry:
    def __init__(self, path: Path, env: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._env = os.environ if env is None else env
        self._file_stamp: tuple[int, int, int] | None = None
        self._specs: dict[str, ServerSpec] = {}

    def load(self) -> dict[str, ServerSpec]:
        """All entries. ConfigError says what to do if the file is not valid."""
        stamp = self._read_stamp()
        if stamp is None:
            self._file_stamp, self._specs = None, {}
        elif stamp != self._file_stamp:
            document = self._read()
            self._specs = {name: self._read_entry(name, entry) for name, entry in find_entries(document).items()}
            self._file_stamp = stamp
        return dict(self._specs)

    def _read_entry(self, name: str, entry: Any) -> ServerSpec:
        """Reads one entry. A variable that is not set disables this server only."""
        filled, problem = fill_variables(entry, self._env)
        return read_spec(name, filled, str(self.path), f"{SERVERS_KEY}.{name}", problem)

    def add(self, name: str, url: str, more: JsonObject | None = None) -> bool:
        """Adds a server by its address, or updates it; True if the name existed. Other keys of its entry stay."""

        def change(entries: JsonObject) -> bool:
            old = entries.get(name)
            kept = {k: v for k, v in old.items() if k not in ("command", "args")} if isinstance(old, dict) else {}
            if kept.get("url") not in (None, url):
                kept = {}  # another address: the old headers are not for it
            entries[name] = {**kept, "url": url, **(more or {})}
            return old is not None

        return self._change(change)

    def put(self, name: str, entry: JsonObject) -> bool:
        """Stores a whole entry; True if the name existed. It may start a program, so clients must not call it. (T03)"""
        read_spec(name, entry, str(self.path), f"{SERVERS_KEY}.{name}")

        def change(entries: JsonObject) -> bool:
            found = name in entries
            entries[name] = entry
            return found

        return self._change(change)

    def remove(self, name: str) -> bool:
        """Removes a server; False if there was none."""
        return self._change(lambda entries: entries.pop(name, None) is not None)

    def _change(self, change: Callable[[JsonObject], bool]) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with lock_file(self.path.with_name(self.path.name + ".lock")):
                document = self._read() if self.path.exists() else {}
                entries = find_entries(document)
                found = change(entries)
                write_atomically(self.path, format_json(_replace_entries(document, entries)) + b"\n")
        except OSError as error:
            raise ConfigError(str(self.path), "", f"cannot be written: {error.strerror}") from error
        self._file_stamp = None
        return found

    def _read_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> JsonObject:
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(str(self.path), "", f"cannot be read: {error.strerror}") from error
        try:
            document = load_json(data)
        except DecodeError as error:
            message = f"is {error}. Repair or move the file; dragoman does not change it until then"
            raise ConfigError(str(self.path), "", message) from error
        if isinstance(document, list):
            document = {"servers": document}
        if not isinstance(document, dict):
            raise ConfigError(str(self.path), "", f"expected an object, found {kind_of(document)}")
        return document


def find_entries(document: JsonObject) -> dict[str, Any]:
    """The entries by name, for every format of the file."""
    entries: Any = document
    for key in (SERVERS_KEY, "servers", "mcp_servers"):
        if key in document:
            entries = document[key]
            break
    if isinstance(entries, list):
        entries = {str(entry.get("name")): {k: v for k, v in entry.items() if k != "name"} for entry in entries}
    return dict(entries) if isinstance(entries, dict) else {}


def _replace_entries(document: JsonObject, entries: JsonObject) -> JsonObject:
    for key in ("servers", "mcp_servers"):
        if key in document and SERVERS_KEY not in document:
            return {(SERVERS_KEY if k == key else k): (entries if k == key else v) for k, v in document.items()}
    if SERVERS_KEY in document:
        return {**document, SERVERS_KEY: entries}
    return {SERVERS_KEY: entries}


def write_atomically(path: Path, data: bytes) -> None:
    """Writes the file completely or not at all. Only the owner can read it, because headers may contain keys."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: the rename still keeps the file complete
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
