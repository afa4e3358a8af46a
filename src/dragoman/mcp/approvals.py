"""Which tool texts the user has approved.

The first list of a server is approved. So is the current list when the user adds the server again or runs
`dragoman mcp approve`. The description of a tool is a prompt, so a later change is dangerous: it is reported, and the
model gets the tool only if the entry of the server allows it (`changed`, `new`). (T21)
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, convert, to_builtins

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, dump_json, load_object
from dragoman.log_line import LogLine
from dragoman.mcp.registry import lock_file, write_atomically
from dragoman.mcp.spec import ServerSpec
from dragoman.mcp.tool_listing import ListedTool

log = logging.getLogger(__name__)
MAX_APPROVALS = 2048  # of one server: four times as many tools as it may have


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The texts of a tool when it was approved."""

    digest: str
    description: str | None = None
    schema: JsonObject = {}
    new: bool = False  # listed later than the others: recorded to detect changes, but not approved


class Change(Struct, frozen=True):
    tool: str
    kind: str  # "changed", "new", "gone", "hidden characters"
    old: str = ""  # digest
    new: str = ""


class Approvals:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._file_stamp: tuple[int, int] | None = None
        self._approved: dict[str, dict[str, Approval]] = {}
        self._is_broken = False  # the file is there and cannot be read
        self.version = 0  # grows with every approval
        self.refresh()

    def refresh(self) -> int:
        """Reads approvals of other processes from the file, and returns the version."""
        stamp = self._read_stamp()
        if stamp is not None and stamp != self._file_stamp:
            self._file_stamp = stamp
            self._load()
            self.version += 1
        return self.version

    def find(self, spec: ServerSpec, tool: str) -> Approval | None:
        return self._approved.get(_make_key(spec), {}).get(tool)

    def check(self, spec: ServerSpec, tools: Mapping[str, ListedTool]) -> tuple[set[str], list[Change]]:
        """Compares the listed tools with the approved ones: the names to withhold, and the changes to report."""
        self.refresh()
        approved = self._approved.get(_make_key(spec))
        if approved is None and self._is_broken:  # it may have been approved with other texts
            return set(tools), [Change(name, "new", "", tool.digest) for name, tool in tools.items()]
        if approved is None:
            self.approve(spec, tools)
            return set(), []
        changes = [change for tool in tools.values() if (change := _compare(approved.get(tool.name), tool))]
        gone = [
            Change(name, "gone", approval.digest)
            for name, approval in approved.items()
            if name not in tools and not approval.new
        ]
        new_tools = {change.tool: tools[change.tool] for change in changes if change.tool not in approved}
        if new_tools and spec.new == "report":  # recorded, so that a later change is detected
            recorded = {name: _make_approval(tool, new=True) for name, tool in new_tools.items()}
            self._change(spec, lambda approvals: _keep_bounded({**approvals, **recorded}, tools))
        policy = {"changed": spec.changed, "new": spec.new}
        withheld = {change.tool for change in changes if policy[change.kind] == "withhold"}
        return withheld, [*changes, *gone]

    def approve(self, spec: ServerSpec, tools: Mapping[str, ListedTool]) -> None:
        """Approves exactly these texts."""
        self._change(spec, lambda _: {name: _make_approval(tool) for name, tool in tools.items()})

    def forget(self, spec: ServerSpec) -> None:
        """Forgets the approvals of a server, so that its next list is approved."""
        self._change(spec, lambda _: None)

    def _change(self, spec: ServerSpec, change: Callable[[dict[str, Approval]], dict[str, Approval] | None]) -> None:
        """Reads the file again under a lock, so that two processes do not overwrite each other's changes."""
        try:
            if self._path is None:
                self._store(spec, change)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with lock_file(self._path.with_name(self._path.name + ".lock")):
                self.refresh()
                self._store(spec, change)
                if self._is_broken:
                    return  # what else is in it must not be lost: a person has to repair or remove it
                write_atomically(self._path, dump_json(to_builtins(self._approved)))
                self._file_stamp = self._read_stamp()
        except OSError:
            self._store(spec, change)  # the approval lasts as long as this process

    def _store(self, spec: ServerSpec, change: Callable[[dict[str, Approval]], dict[str, Approval] | None]) -> None:
        key = _make_key(spec)
        approvals = change(self._approved.get(key, {}))
        if approvals is None:
            self._approved.pop(key, None)
        else:
            self._approved[key] = approvals
        self.version += 1

    def _read_stamp(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_ino)

    def _load(self) -> None:
        """A file that was cut short is not one without approvals: the last good copy stays."""
        try:
            data = load_object(self._path.read_bytes() if self._path else b"{}")
            self._approved = convert(data, dict[str, dict[str, Approval]])
            self._is_broken = False
        except (OSError, DecodeError, ValueError) as error:
            self._is_broken = True
            why = f"repair or remove it; until then only known tools are approved ({error})"
            log.warning(LogLine("mcp_approvals_not_read", {"file": str(self._path), "why": why}))


def _keep_bounded(approvals: dict[str, Approval], tools: Mapping[str, ListedTool]) -> dict[str, Approval]:
    """Without the new tools that are gone again, if there are too many: a server can make up names without end."""
    if len(approvals) <= MAX_APPROVALS:
        return approvals
    return {name: one for name, one in approvals.items() if not one.new or name in tools}


def _compare(approval: Approval | None, tool: ListedTool) -> Change | None:
    if approval is None:
        return Change(tool.name, "new", "", tool.digest)
    if approval.digest != tool.digest:
        return Change(tool.name, "changed", approval.digest, tool.digest)
    return Change(tool.name, "new", "", tool.digest) if approval.new else None


def _make_approval(tool: ListedTool, *, new: bool = False) -> Approval:
    return Approval(digest=tool.digest, description=tool.description, schema=tool.schema, new=new)


def _make_key(spec: ServerSpec) -> str:
    return f"{spec.name} {hashlib.sha256(spec.identity.encode()).hexdigest()[:16]}"
