"""ClientKeys: decides for each request whether its key is good.

It works on a copy of the key store. When the store vanishes, is cut short or is locked, the last good copy holds.
Once a process needs keys, it needs them until it ends: neither a revoked last key nor a lost file opens the gateway
to everyone.
"""

import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from mmap import mmap

from dragoman.accounts.grants import NO_GRANT, Account, FileKey, Grant, Holder, make_holder
from dragoman.accounts.money import write_time
from dragoman.errors import ConfigError
from dragoman.gateway.http import HeadFacts
from dragoman.gateway.stores.keys import KeyRow, KeyStore, KeyTable, new_pepper
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
REFRESH_S = 1.0
OWNER_CHARS = 16  # 64 bits of a digest
_SHAPE = re.compile(r"dka?-[a-z0-9]{8}-[A-Za-z0-9_-]{43}")


class Latch:
    """A switch that can only be closed. All processes see it, whether they were forked before or after."""

    def __init__(self) -> None:
        self._shared = mmap(-1, 1)

    def close(self) -> None:
        self._shared[0] = 1

    @property
    def closed(self) -> bool:
        return self._shared[0] == 1


class ClientKeys:
    def __init__(
        self,
        store: KeyStore | None = None,
        literal: Iterable[str | FileKey] = (),
        *,
        teams: Mapping[str, Grant] | None = None,
        needed: bool = False,
        latch: Latch | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`literal` and `teams` are those of the configuration; a team of the store with the same name counts less.
        `needed`: no request goes without a key, even if there is none."""
        self.store = store
        self.away = ""  # why the store cannot be read; "" if it can
        self._literal = tuple(FileKey(secret=key) if isinstance(key, str) else key for key in literal)
        self._file_teams = dict(teams or {})
        self._latch = latch or Latch()
        self._clock, self._wall = clock, wall
        self._looked = -inf
        self._seen: object = None  # the store's stamp when it was read here
        self._revoked: frozenset[str] = frozenset()  # digests that never become good again
        self.has_read = False  # the store, at least once
        self._take(KeyTable(pepper=new_pepper()))
        if needed:
            self._latch.close()
        self._read()

    def renew(
        self, literal: Iterable[str | FileKey], *, teams: Mapping[str, Grant] | None = None, forget: bool = False
    ) -> "ClientKeys":
        """For a new configuration of this process. With `forget`, for a new process: it asks the store only.

        A new process does not know what was revoked since its parent read the store, so it cannot use the old copy.
        """
        other = ClientKeys(None, literal, teams=teams, latch=self._latch, clock=self._clock, wall=self._wall)
        other.store, other.away, other.has_read = self.store, self.away, self.has_read
        other._revoked = self._revoked
        other._take(KeyTable(pepper=self._table.pepper) if forget else self._table)
        other._read()
        return other

    @property
    def needed(self) -> bool:
        """Whether requests need a key."""
        if not self._latch.closed:
            self._refresh()
        return self._latch.closed

    @property
    def any_good(self) -> bool:
        """Whether there is a key that opens something."""
        self._refresh()
        return bool(self._literal) or any(not self._has_ended(row) for row in self._rows.values())

    @property
    def several(self) -> bool:
        """Whether more than one key of clients is good."""
        self._refresh()
        rows = sum(not row.admin and not self._has_ended(row) for row in self._rows.values())
        return len(self._literal) + rows > 1

    @property
    def file_keys(self) -> list[tuple[Holder, FileKey]]:
        """The keys of the configuration, with their owners."""
        self._refresh()
        return [(self._owners[self._table.digest(key.secret)][0], key) for key in self._literal]

    @property
    def table(self) -> KeyTable:
        """The copy that is in use."""
        self._refresh()
        return self._table

    def look_again(self) -> None:
        """The store has changed: the next request reads it again, even if the last read was less than a second ago."""
        self._looked = -inf

    def check(self, key: str, facts: HeadFacts | None = None) -> Holder | None:
        """The owner of a key; None for an unknown key. `facts`: of the head in which it came.

        An owner is made of the key itself: another key never gets it, wherever the two stand in a file.
        """
        facts = facts or HeadFacts()
        self._refresh()
        found = self._find(key, facts)
        if found is None and self._may_be_old():
            self._read()  # a key that was made a moment ago
            found = self._find(key, facts)
        return found

    def _find(self, key: str, facts: HeadFacts) -> Holder | None:
        """The digest is made once for each connection of a client. What it opens is looked up each time."""
        known = facts.digest
        if known is None or known[0] is not self._table:
            known = facts.digest = (self._table, self._table.digest(key))
        digest = known[1]
        written = self._owners.get(digest)
        if written is not None:
            holder, expires = written
            return holder if expires is None or self._wall() < expires else None
        if not _SHAPE.fullmatch(key):
            return None
        row = self._rows.get(key.split("-", 2)[1])
        same = hmac.compare_digest(digest.encode(), row.digest.encode() if row else digest[::-1].encode())
        if row is None or not (same or self._is_good_old(row, digest)) or self._has_ended(row):
            return None
        return self._holder(row)

    def say_expired(self, key: str) -> str:
        """For the owner of a key that was good until its end; "" for any other key."""
        digest = self._table.digest(key)
        written = self._owners.get(digest)
        row = self._rows.get(key.split("-", 2)[1]) if written is None and _SHAPE.fullmatch(key) else None
        ends = written[1] if written is not None else row.expires if row is not None else None
        if row is not None and (self._is_revoked(row) or not hmac.compare_digest(digest.encode(), row.digest.encode())):
            return ""
        if ends is None or self._wall() < ends:
            return ""
        return f"this key expired at {write_time(ends)}: an admin of this gateway can prolong it, or make another one"

    def find_admin(self, key_id: str) -> Holder | None:
        """The owner of an admin key that is still good, by its id."""
        self._refresh()
        row = self._rows.get(key_id)
        return self._holder(row) if row is not None and row.admin and not self._has_ended(row) else None

    def find_digests(self, key_id: str) -> tuple[str, ...]:
        """The digests of the secrets of a key that are good now: its own, and in the days of grace the one before."""
        self._refresh()
        row = self._rows.get(key_id)
        if row is None or self._has_ended(row):
            return ()
        return (row.digest, row.old_digest) if self._is_good_old(row, row.old_digest) else (row.digest,)

    def digest(self, key: str) -> str:
        return self._table.digest(key)

    def _is_good_old(self, row: KeyRow, digest: str) -> bool:
        """Whether it is the key before the last rotation, in its days of grace."""
        if row.old_until is None or self._wall() >= row.old_until:
            return False
        return hmac.compare_digest(digest.encode(), row.old_digest.encode())

    def _has_ended(self, row: KeyRow) -> bool:
        return self._is_revoked(row) or (row.expires is not None and self._wall() >= row.expires)

    def _holder(self, row: KeyRow) -> Holder:
        found = self._holders.get(row.id)
        if found is None:
            team = self.find_team(row.team)
            found = make_holder(row.id, row.name, row.grant, team=row.team, team_grant=team, admin=row.admin)
            self._holders[row.id] = found
        return found

    def find_account(self, name: str) -> Account | None:
        """A key (`key:ID`) or a team (`team:NAME`) with its budget; None if there is none."""
        kind, _, own = name.partition(":")
        if kind == "team":
            return make_holder("", "", NO_GRANT, team=own, team_grant=self.find_team(own)).accounts[1]
        row = self._rows.get(own)
        holders = [self._holder(row)] if row is not None else [holder for holder, _ in self._owners.values()]
        return next((account for holder in holders for account in holder.accounts if account.name == name), None)

    def find_team(self, name: str) -> Grant:
        return self.find_known_team(name) or NO_GRANT

    def find_known_team(self, name: str) -> Grant | None:
        """None if there is no such team."""
        return self._file_teams.get(name) or self._table.teams.get(name)

    def _is_revoked(self, row: KeyRow) -> bool:
        return row.revoked is not None or row.digest in self._revoked

    def _refresh(self) -> None:
        if self.store is None or (now := self._clock()) - self._looked < REFRESH_S:
            return
        self._looked = now
        if self.away or self._may_be_old():
            self._read()

    def look(self) -> str:
        """Why the store cannot be read now; "" if it can."""
        self._refresh()
        return self.away

    def _may_be_old(self) -> bool:
        """Whether the store may have changed since it was read here."""
        return self.store is not None and (self._seen is None or self.store.stamp() != self._seen)

    def _read(self) -> None:
        if self.store is None:
            return
        self._looked = self._clock()
        self._seen = self.store.stamp()
        try:
            table = self.store.read()
        except ConfigError as error:
            self._be_without(self.store, error.why)
        else:
            if table is None and self._rows:
                self._be_without(self.store, "it has vanished")
            else:
                self._be_with(self.store, table)

    def _be_without(self, store: KeyStore, why: str) -> None:
        """Called when the store cannot be read: the last good copy stays in use."""
        if why != self.away:
            log.warning(LogLine("keys_not_read", {"store": store.name, "why": why, "kept": len(self._rows)}))
        self.away = why

    def _be_with(self, store: KeyStore, table: KeyTable | None) -> None:
        if table is not None:
            self._take(table)
            self.has_read = True
        if self.away:
            log.info(LogLine("keys_read_again", {"store": store.name, "keys": len(self._rows)}))
        self.away = ""

    def _take(self, table: KeyTable) -> None:
        self._table = table
        self._rows = {row.id: row for row in table.rows}
        self._revoked |= {row.digest for row in table.rows if row.revoked is not None}
        self._holders: dict[str, Holder] = {}  # made when first asked for
        self._owners: dict[str, tuple[Holder, float | None]] = {}
        for key in self._literal:
            digest = table.digest(key.secret)
            owner = f"config-{digest[:OWNER_CHARS]}"
            holder = make_holder(owner, key.name, key.grant, team=key.team, team_grant=self.find_team(key.team))
            self._owners[digest] = (holder, key.expires)
        if self._rows or self._literal:
            self._latch.close()
