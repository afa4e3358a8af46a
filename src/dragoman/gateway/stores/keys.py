"""The gateway's keys and teams: their rows, and the rules that each store of them obeys.

A store holds digests, never a key. A change is one transaction and on disk before the call returns, so that parallel
writers lose nothing and a process that is killed loses nothing that it has printed. The same transaction writes the
audit log. `sqlite_keys.py` is the store of one machine, `postgres/key_store.py` that of many.
"""

import hmac
import os
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dragoman.accounts.grants import (
    NO_GRANT,
    Grant,
    GrantChange,
    change_grant,
    check_end,
    check_grace,
    check_grant,
    check_name,
)

_ID_LETTERS = string.ascii_lowercase + string.digits


class KeyRow(Struct, frozen=True, kw_only=True):
    id: str
    digest: str
    name: str = ""
    admin: bool = False
    created: float = 0.0
    revoked: float | None = None
    team: str = ""
    grant: Grant = NO_GRANT
    expires: float | None = None
    old_digest: str = ""  # of the key before it was rotated
    old_until: float | None = None

    def show(self) -> dict[str, object]:
        """For people and the audit log: without digests."""
        return {name: value for name, value in asdict(self).items() if "digest" not in name}


class KeyChange(Struct, frozen=True, kw_only=True):
    """What `edit` changes; None stays as it is. `expires` 0 takes the end away."""

    name: str | None = None
    team: str | None = None
    expires: float | None = None
    grant: GrantChange = GrantChange()


class AuditRow(Struct, frozen=True, kw_only=True):
    """One change: who did what, and how it was before and after."""

    number: int
    at: float
    who: str
    what: str
    subject: str
    before: msgspec.Raw
    after: msgspec.Raw


class KeyTable(Struct, frozen=True, kw_only=True):
    """All keys of an installation, revoked ones too."""

    pepper: str  # makes the digests of two installations differ
    rows: tuple[KeyRow, ...] = ()
    teams: dict[str, Grant] = {}

    def digest(self, key: str) -> str:
        return hmac.digest(self.pepper.encode(), key.encode("utf-8", "surrogatepass"), "sha256").hex()


class KeyStore(Protocol):
    """What the gateway and `dragoman keys` need of a store. A ConfigError says why it cannot be used now."""

    name: str  # for messages

    def read(self) -> KeyTable | None:
        """All keys; None if there is no store yet."""

    def stamp(self) -> object:
        """Changes with every write, and is cheap to get. None: the store may have changed. Each reader keeps
        its own, because several readers use one store."""

    def prepare(self) -> None:
        """Makes the store if there is none yet."""

    def new(
        self,
        name: str,
        *,
        admin: bool = False,
        team: str = "",
        grant: Grant = NO_GRANT,
        expires: float | None = None,
        who: str = "",
    ) -> str:
        """Makes a key. This is the only time it can be read."""

    def edit(self, key_id: str, change: KeyChange, who: str = "") -> KeyRow | None:
        """The key as it is now; None if there is no such key."""

    def rotate(self, key_id: str, grace_s: float = 0.0, who: str = "") -> str | None:
        """A new key with the old one's id and grants. The old one is good for `grace_s` more. None: no such key."""

    def revoke(self, key_id: str, who: str = "") -> bool:
        """Ends a key for ever. False if there is no such key, or it was revoked before."""

    def set_team(self, name: str, change: GrantChange, who: str = "") -> Grant:
        """Makes a team or changes its grant."""

    def drop_team(self, name: str, who: str = "") -> bool:
        """Its keys keep its name, without its limits. False if there is no such team."""

    def note(self, who: str, what: str, subject: str, before: object = None, after: object = None) -> None:
        """Writes an entry that changes no key into the audit log."""

    def read_audit(self, most: int = 100, before: int | None = None) -> list[AuditRow]:
        """The newest entries first; `before` is the number of the last one seen."""


def new_pepper() -> str:
    return secrets.token_hex(32)


def new_key(*, admin: bool, key_id: str = "") -> tuple[str, str]:
    """The id of a new key, and the key."""
    key_id = key_id or "".join(secrets.choice(_ID_LETTERS) for _ in range(8))
    return key_id, f"{'dka' if admin else 'dk'}-{key_id}-{secrets.token_urlsafe(32)}"


class KeyWrite(Struct, frozen=True, kw_only=True):
    """One change to write: a key, or a team, and its entry in the audit log."""

    what: str
    subject: str
    before: object = None
    after: object = None
    key: KeyRow | None = None
    team: str | None = None
    grant: Grant | None = None  # of the team; None deletes it


Decide = Callable[[KeyTable], KeyWrite | None]


class KeyRules(ABC):
    """What every key store does. A store only has to make itself and to write a change in one transaction."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    @abstractmethod
    def prepare(self) -> None:
        """Makes the store, if it is not there."""

    @abstractmethod
    def _transact(self, who: str, decide: Decide) -> bool:
        """Reads all keys, lets `decide` choose and writes that; no other writer comes between. False: nothing was
        written."""

    def new(
        self,
        name: str,
        *,
        admin: bool = False,
        team: str = "",
        grant: Grant = NO_GRANT,
        expires: float | None = None,
        who: str = "",
    ) -> str:
        row = KeyRow(id="", digest="", name=check_name(name), admin=admin, team=check_name(team))
        row = replace(row, grant=check_grant(grant), expires=check_end(expires))
        self.prepare()
        key_id, key = new_key(admin=admin)

        def decide(table: KeyTable) -> KeyWrite:
            made = replace(row, id=key_id, digest=table.digest(key), created=self._clock())
            return KeyWrite(what="key new", subject=key_id, after=made.show(), key=made)

        self._transact(who, decide)
        return key

    def edit(self, key_id: str, change: KeyChange, who: str = "") -> KeyRow | None:
        def apply(row: KeyRow, table: KeyTable) -> KeyRow:
            name = row.name if change.name is None else check_name(change.name)
            team = row.team if change.team is None else check_name(change.team)
            expires = row.expires if change.expires is None else check_end(change.expires) or None
            return replace(row, name=name, team=team, expires=expires, grant=change_grant(row.grant, change.grant))

        return self._change(key_id, who, "key edit", apply)

    def rotate(self, key_id: str, grace_s: float = 0.0, who: str = "") -> str | None:
        made: list[str] = []

        def apply(row: KeyRow, table: KeyTable) -> KeyRow:
            made.append(new_key(admin=row.admin, key_id=key_id)[1])
            digest = table.digest(made[-1])
            return replace(row, digest=digest, old_digest=row.digest, old_until=self._clock() + check_grace(grace_s))

        return made[-1] if self._change(key_id, who, "key rotate", apply) else None

    def revoke(self, key_id: str, who: str = "") -> bool:
        def apply(row: KeyRow, table: KeyTable) -> KeyRow:
            return replace(row, revoked=self._clock())

        return self._change(key_id, who, "key revoke", apply) is not None

    def set_team(self, name: str, change: GrantChange, who: str = "") -> Grant:
        if not check_name(name).strip():
            raise ValueError("name: a team needs one")
        self.prepare()
        made: list[Grant] = []

        def decide(table: KeyTable) -> KeyWrite:
            old = table.teams.get(name)
            made.append(change_grant(old or NO_GRANT, change))
            what = "team edit" if old is not None else "team new"
            return KeyWrite(what=what, subject=name, before=old, after=made[-1], team=name, grant=made[-1])

        self._transact(who, decide)
        return made[-1]

    def drop_team(self, name: str, who: str = "") -> bool:
        def decide(table: KeyTable) -> KeyWrite | None:
            old = table.teams.get(name)
            return None if old is None else KeyWrite(what="team drop", subject=name, before=old, team=name)

        return self._transact(who, decide)

    def note(self, who: str, what: str, subject: str, before: object = None, after: object = None) -> None:
        self.prepare()
        self._transact(who, lambda table: KeyWrite(what=what, subject=subject, before=before, after=after))

    def _change(self, key_id: str, who: str, what: str, apply: Callable[[KeyRow, KeyTable], KeyRow]) -> KeyRow | None:
        """Changes a key that is not revoked."""
        changed: list[KeyRow] = []

        def decide(table: KeyTable) -> KeyWrite | None:
            old = next((row for row in table.rows if row.id == key_id and row.revoked is None), None)
            if old is None:
                return None
            changed.append(apply(old, table))
            return KeyWrite(what=what, subject=key_id, before=old.show(), after=changed[-1].show(), key=changed[-1])

        return changed[-1] if self._transact(who, decide) else None


def find_person() -> str:
    """The user whose process this is, for the audit log: as the system knows them, not as a variable says."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows; a user of a container that no file names
        return os.environ.get("USERNAME") or (f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown")
