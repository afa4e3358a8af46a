"""mcp.json on disk: what was added stays added.

Written to a draft and renamed, under a lock, read afresh before each change: a crash leaves the old file or the new
one, two processes lose nothing of each other. A file that cannot be read is never written over.

The form is the one other programs use, {"mcpServers": {name: {"url": ...}}}; older ones ({"servers": ...}, a bare
{name: url}, a list of {"name", "url"}) are read. Keys and entries we do not know are kept.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.errors import ConfigError, DecodeError
from dragoman.jsontypes import JsonObject, format_json, kind_of, load_json
from dragoman.mcp.spec import ServerSpec, fill_in, read_spec

TABLE = "mcpServers"


class Registry:
    def __init__(self, path: Path, env: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._env = os.environ if env is None else env
        self._stamp: tuple[int, int, int] | None = None
        self._specs: dict[str, ServerSpec] = {}

    def load(self) -> dict[str, ServerSpec]:
        """All entries. ConfigError, with the way out, when the file is not what it should be."""
        stamp = self._look()
        if stamp is None:
            self._stamp, self._specs = None, {}
        elif stamp != self._stamp:
            document = self._read()
            self._specs = {name: self._spec(name, row) for name, row in rows_of(document).items()}
            self._stamp = stamp
        return dict(self._specs)

    def _spec(self, name: str, row: Any) -> ServerSpec:
        """A variable that is not set is the trouble of one server, not of all."""
        filled, problem = fill_in(row, self._env)
        return read_spec(name, filled, str(self.path), f"{TABLE}.{name}", problem)

    def add(self, name: str, url: str, more: JsonObject | None = None) -> bool:
        """True when there was one of that name. What its entry says beside the address stays."""

        def change(table: JsonObject) -> bool:
            old = table.get(name)
            kept = {k: v for k, v in old.items() if k not in ("command", "args")} if isinstance(old, dict) else {}
            if kept.get("url") not in (None, url):
                kept = {}  # another server: its headers are not for this one
            table[name] = {**kept, "url": url, **(more or {})}
            return old is not None

        return self._change(change)

    def put(self, name: str, row: JsonObject) -> bool:
        """A whole entry, programs included: for people at this machine, never for a client (T03)."""
        read_spec(name, row, str(self.path), f"{TABLE}.{name}")

        def change(table: JsonObject) -> bool:
            found = name in table
            table[name] = row
            return found

        return self._change(change)

    def remove(self, name: str) -> bool:
        """False when there was none."""
        return self._change(lambda table: table.pop(name, None) is not None)

    def _change(self, change: Callable[[JsonObject], bool]) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path.with_name(self.path.name + ".lock")):
                document = self._read() if self.path.exists() else {}
                table = rows_of(document)
                found = change(table)
                write_whole(self.path, format_json(_with_table(document, table)) + b"\n")
        except OSError as error:
            raise ConfigError(str(self.path), "", f"cannot be written: {error.strerror}") from error
        self._stamp = None
        return found

    def _look(self) -> tuple[int, int, int] | None:
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
            words = f"is {error}. Mend or move it; it is left as it is until then"
            raise ConfigError(str(self.path), "", words) from error
        if isinstance(document, list):
            document = {"servers": document}
        if not isinstance(document, dict):
            raise ConfigError(str(self.path), "", f"expected an object, found {kind_of(document)}")
        return document


def rows_of(document: JsonObject) -> dict[str, Any]:
    """Name -> entry, whichever form the file has."""
    rows: Any = document
    for key in (TABLE, "servers", "mcp_servers"):
        if key in document:
            rows = document[key]
            break
    if isinstance(rows, list):
        rows = {str(row.get("name")): {k: v for k, v in row.items() if k != "name"} for row in rows}
    return dict(rows) if isinstance(rows, dict) else {}


def _with_table(document: JsonObject, table: JsonObject) -> JsonObject:
    for key in ("servers", "mcp_servers"):
        if key in document and TABLE not in document:
            return {(TABLE if k == key else k): (table if k == key else v) for k, v in document.items()}
    if TABLE in document:
        return {**document, TABLE: table}
    return {TABLE: table}


def write_whole(path: Path, data: bytes) -> None:
    """All of it or nothing, whenever the power goes; only the owner reads it, as headers may hold keys."""
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
def locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: the rename alone still keeps the file whole
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
