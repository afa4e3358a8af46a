"""Which tool texts were approved: the first list of a server is, and whoever adds or approves it again approves anew
(T21). A description is a prompt: one that changes behind the user's back is reported, and offered only if its entry
says so (`changed`, `new`).
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, convert, to_builtins

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, dump_json, load_object
from dragoman.mcp.registry import locked, write_whole
from dragoman.mcp.spec import ServerSpec
from dragoman.mcp.tool_listing import ListedTool


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as it was when it was approved."""

    digest: str
    description: str | None = None
    schema: JsonObject = {}
    new: bool = False  # seen later than the others and offered, but approved by nobody


class Change(Struct, frozen=True):
    tool: str
    what: str  # "changed", "new", "gone", "hidden characters"
    old: str = ""  # digests
    new: str = ""


class Approvals:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._known: dict[str, dict[str, Approval]] = {}
        self.version = 0  # another number when somebody has approved something
        self.refresh()

    def refresh(self) -> int:
        """Reads what another process has approved meanwhile; the version."""
        stamp = self._look()
        if stamp is not None and stamp != self._stamp:
            self._stamp, self._known = stamp, self._load()
            self.version += 1
        return self.version

    def find(self, spec: ServerSpec, tool: str) -> Approval | None:
        return self._known.get(_key(spec), {}).get(tool)

    def judge(self, spec: ServerSpec, offers: Mapping[str, ListedTool]) -> tuple[set[str], list[Change]]:
        """Which of what a server offers now are withheld, and what is to be told."""
        self.refresh()
        known = self._known.get(_key(spec))
        if known is None:
            self.approve(spec, offers)
            return set(), []
        changes = [change for offer in offers.values() if (change := _compare(known.get(offer.name), offer))]
        gone = [Change(name, "gone", pin.digest) for name, pin in known.items() if name not in offers and not pin.new]
        unseen = {change.tool: offers[change.tool] for change in changes if change.tool not in known}
        if unseen and spec.new == "report":  # from now on a change of it is one
            self._change(spec, lambda pins: {**pins, **{n: _pin(offer, new=True) for n, offer in unseen.items()}})
        policy = {"changed": spec.changed, "new": spec.new}
        withheld = {change.tool for change in changes if policy[change.what] == "withhold"}
        return withheld, [*changes, *gone]

    def approve(self, spec: ServerSpec, offers: Mapping[str, ListedTool]) -> None:
        """Exactly these texts."""
        self._change(spec, lambda _: {name: _pin(offer) for name, offer in offers.items()})

    def forget(self, spec: ServerSpec) -> None:
        """The next list is approved as it is."""
        self._change(spec, lambda _: None)

    def _change(self, spec: ServerSpec, change: Callable[[dict[str, Approval]], dict[str, Approval] | None]) -> None:
        """Read afresh under a lock: two processes lose nothing of each other."""
        try:
            if self._path is None:
                self._put(spec, change)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path.with_name(self._path.name + ".lock")):
                self.refresh()
                self._put(spec, change)
                write_whole(self._path, dump_json(to_builtins(self._known)))
                self._stamp = self._look()
        except OSError:
            self._put(spec, change)  # approved for as long as this process lives

    def _put(self, spec: ServerSpec, change: Callable[[dict[str, Approval]], dict[str, Approval] | None]) -> None:
        key = _key(spec)
        pins = change(self._known.get(key, {}))
        if pins is None:
            self._known.pop(key, None)
        else:
            self._known[key] = pins
        self.version += 1

    def _look(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_ino)

    def _load(self) -> dict[str, dict[str, Approval]]:
        try:
            return convert(
                load_object(self._path.read_bytes() if self._path else b"{}"), dict[str, dict[str, Approval]]
            )
        except (OSError, DecodeError, ValueError):
            return {}  # nothing approved yet


def _compare(pin: Approval | None, offer: ListedTool) -> Change | None:
    if pin is None:
        return Change(offer.name, "new", "", offer.digest)
    if pin.digest != offer.digest:
        return Change(offer.name, "changed", pin.digest, offer.digest)
    return Change(offer.name, "new", "", offer.digest) if pin.new else None


def _pin(offer: ListedTool, *, new: bool = False) -> Approval:
    return Approval(digest=offer.digest, description=offer.description, schema=offer.schema, new=new)


def _key(spec: ServerSpec) -> str:
    return f"{spec.name} {hashlib.sha256(spec.identity.encode()).hexdigest()[:16]}"
