"""Access: client keys, admin keys, and the checks that keep web pages out.

A key is `dk-<id>-<secret>` (an admin's `dka-...`). Only HMAC-SHA256(pepper, key) is kept, so a stolen table opens
nothing; the id finds the row, the digest is compared in constant time, and unknown, wrong and revoked look the same.
"""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigError
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.routes import AccessClass, all_dialects

_SHAPE = re.compile(r"dka?-[a-z0-9]{8}-[A-Za-z0-9_-]{43}")
_AZURE_HEADER = "api-key"  # clients of Azure speak OpenAI's dialects
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
SHORTEST_SECRET = 16
KNOWN_SECRETS = frozenset({"sk-1234", "changeme", "password", "secret", "dragoman"})


class KeyRow(Struct, kw_only=True):
    id: str
    digest: str
    name: str = ""
    admin: bool = False
    created: float = 0.0
    revoked: float | None = None


class KeyFile(Struct, kw_only=True):
    pepper: str
    keys: list[KeyRow] = []


class KeyStore:
    """Keys in one file, readable by its owner only. A change on disk takes effect within a second."""

    def __init__(self, path: Path | None, literal: Iterable[str] = (), clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._looked = 0.0
        self._stamp: tuple[int, int] | None = None
        self._file = KeyFile(pepper=secrets.token_hex(32))
        self._rows: dict[str, KeyRow] = {}
        self._literal = {self._digest_with("literal", key): f"config-{i}" for i, key in enumerate(literal)}
        self._load()

    @property
    def configured(self) -> bool:
        """Whether requests need a key."""
        self._refresh()
        return bool(self._literal) or any(not row.revoked for row in self._rows.values())

    def rows(self) -> list[KeyRow]:
        return list(self._rows.values())

    def check(self, key: str) -> tuple[str, bool] | None:
        """The id of a key and whether it is an admin key; None for an unknown one."""
        self._refresh()
        name = self._literal.get(self._digest_with("literal", key)) if self._literal else None
        if name is not None:
            return name, False
        if not _SHAPE.fullmatch(key):
            return None
        row = self._rows.get(key.split("-", 2)[1])
        digest = self._digest(key)
        same = hmac.compare_digest(digest, row.digest if row else digest[::-1])
        return (row.id, row.admin) if row and same and not row.revoked else None

    def new(self, name: str, *, admin: bool) -> str:
        """Makes a key. This is the only time it can be read."""
        key_id = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(8))
        key = f"{'dka' if admin else 'dk'}-{key_id}-{secrets.token_urlsafe(32)}"
        self._rows[key_id] = KeyRow(id=key_id, digest=self._digest(key), name=name, admin=admin, created=self._clock())
        self._save()
        return key

    def revoke(self, key_id: str) -> bool:
        row = self._rows.get(key_id)
        if row is None or row.revoked:
            return False
        row.revoked = self._clock()
        self._save()
        return True

    def _digest(self, key: str) -> str:
        return self._digest_with(self._file.pepper, key)

    def _digest_with(self, pepper: str, key: str) -> str:
        return hmac.new(pepper.encode(), key.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _refresh(self) -> None:
        now = self._clock()
        if self.path is not None and abs(now - self._looked) >= 1.0:
            self._looked = now
            self._load()

    def _load(self) -> None:
        if self.path is None:
            return
        try:
            stat = self.path.stat()
            if (stat.st_mtime_ns, stat.st_size) == self._stamp:
                return
            self._file = msgspec.json.decode(self.path.read_bytes(), type=KeyFile)
        except FileNotFoundError:
            self._rows = {}
            return
        except (msgspec.DecodeError, OSError) as error:
            raise ConfigError(str(self.path), "", f"is no key file: {error}") from error
        self._stamp = (stat.st_mtime_ns, stat.st_size)
        self._rows = {row.id: row for row in self._file.keys}

    def _save(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file.keys = list(self._rows.values())
        draft = self.path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(self._file))
        draft.replace(self.path)
        self._stamp = None
        self._load()


def weak_secret(key: str) -> str | None:
    """Why a hand-written key is too weak, or None (T36)."""
    if not key.strip():
        return "is empty"
    if key in KNOWN_SECRETS:
        return "is a well-known default"
    return f"is shorter than {SHORTEST_SECRET} characters" if len(key) < SHORTEST_SECRET else None


@cache
def _key_headers() -> tuple[str, ...]:
    own = {dialect.key_style for dialect in all_dialects()}
    return (*sorted(own - {"bearer"}), _AZURE_HEADER)


def find_key(http: HttpRequest) -> str | None:
    """The key a client sent in its dialect's own way; "" when two differ."""
    found: set[str] = set()
    bearer = http.headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        found.add(bearer[7:].strip())
    elif bearer:
        found.add(bearer)
    found.update(value.strip() for name in _key_headers() if (value := http.headers.get(name)))
    if "key=" in http.query:
        found.update(parse_qs(http.query).get("key", ()))
    if not found:
        return None
    return found.pop() if len(found) == 1 else ""


class Access:
    """Checks every request before anything else is done for it."""

    def __init__(
        self,
        keys: KeyStore,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        wrong_keys: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self.hosts = LOCAL_HOSTS | {host.lower() for host in hosts}
        self.any_host = "*" in self.hosts
        self.origins = frozenset(origins)
        self.wrong_keys = wrong_keys  # a minute and an address
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def judge_host(self, http: HttpRequest) -> tuple[int, str] | None:
        """A status and a message if the Host or Origin header is not ours. This stops DNS rebinding (T06, T13)."""
        host = http.headers.get("host")
        if host is None or "host" in http.repeated:
            return 400, "exactly one Host header is needed"
        name = host.lower()
        if not self.any_host and name not in self.hosts:
            name = name.rpartition(":")[0] if not name.endswith("]") else name
            if name not in self.hosts:
                return 421, "this host name is not one of this gateway's"
        return None

    def judge_origin(self, http: HttpRequest) -> tuple[int, str] | None:
        origin = http.headers.get("origin")
        if origin is not None and origin not in self.origins and not self._own(origin):
            return 403, "requests of web pages from this origin are not allowed"
        if http.headers.get("sec-fetch-site") == "cross-site" and (origin is None or origin not in self.origins):
            return 403, "requests of web pages from other sites are not allowed"
        return None

    def _own(self, origin: str) -> bool:
        """Whether the Origin is a page of this gateway, or a desktop program."""
        return origin.startswith(("app://", "vscode-webview://", "tauri://"))

    def admit(self, http: HttpRequest, access: AccessClass) -> tuple[int, str] | None:
        """None if the key is good; else a status and a message, the same for every kind of wrong key."""
        if access == "public":
            return None
        if not self.keys.configured:
            return None  # the server listens on loopback only, else it would not have started
        key = find_key(http)
        found = self.keys.check(key) if key else None
        if found is not None:
            key_id, admin = found
            if admin == (access == "admin"):
                http.key_id = key_id
                return None
            if access == "admin":
                return 403, "an admin key is needed here"
        if self._too_many(http.client):
            return 429, "too many wrong keys from this address"
        return 401, "no valid key" if key is not None else "a key is needed: dragoman keys new"

    def _too_many(self, client: str) -> bool:
        now = self._clock()
        times = [t for t in self._failures.pop(client, []) if t > now - 60]
        times.append(now)
        self._failures[client] = times[-self.wrong_keys - 1 :]
        if len(self._failures) > 10_000:
            self._failures.popitem(last=False)
        return len(times) > self.wrong_keys
