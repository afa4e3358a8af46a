"""Access: client keys, admin keys, and the checks that keep web pages out.

A key is `dk-<id>-<secret>` (an admin's `dka-...`). Only HMAC-SHA256(pepper, key) is kept, so a stolen table opens
nothing; the id finds the row, the digest is compared in constant time, and unknown, wrong and revoked look the same.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from dragoman.accounts.grants import Holder
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.access.sessions import Sessions
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.routes.table import AccessClass, all_dialects

PEER = "worker"  # the address of a request that another worker of this gateway passes on; clients have IP addresses
COMMAND = "command"  # the address of a request from a command of this machine's user: process/control.py
INSIDE = (PEER, COMMAND)
if TYPE_CHECKING:
    from dragoman.oidc.tokens import TokenChecker

_AZURE_HEADER = "api-key"  # clients of Azure speak OpenAI's dialects
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
SHORTEST_SECRET = 16
# A read-only key may call these. They are no GET, but they change nothing.
ONLY_LOOKS = frozenset({"/admin/v1/translate", "/admin/v1/config/check", "/console/session"})
KNOWN_SECRETS = frozenset({"sk-1234", "changeme", "password", "secret", "dragoman"})


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
    known = http.facts.key
    if known is None:
        known = http.facts.key = (_find_key(http),)
    return known[0]


def _find_key(http: HttpRequest) -> str | None:
    headers = http.headers
    found = [value.strip() for name in _key_headers() if (value := headers.get(name))]
    bearer = headers.get("authorization")
    if bearer:
        found.append(bearer[7:].strip() if bearer[:7].lower() == "bearer " else bearer)
    if "key=" in http.query:
        found += parse_qs(http.query).get("key", ())
    if not found:
        return None
    return found[0] if found.count(found[0]) == len(found) else ""


class Access:
    """Checks every request before anything else is done for it."""

    def __init__(
        self,
        keys: ClientKeys,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        wrong_keys: int = 20,
        clock: Callable[[], float] = time.monotonic,
        *,
        public: bool = False,
    ) -> None:
        """`public`: the socket can be reached from other machines."""
        self.keys = keys
        self.public = public
        self.hosts = LOCAL_HOSTS | {host.lower() for host in hosts}
        self.any_host = "*" in self.hosts
        self.origins = frozenset(origins)
        self.wrong_keys = wrong_keys  # allowed in a minute from one address
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self.sessions: Sessions | None = None  # logins of the console
        self.tokens: TokenChecker | None = None  # of an identity provider

    def count_on(self, before: "Access") -> None:
        """Goes on counting wrong keys where the access of an older configuration stopped."""
        self._failures = before._failures

    def judge_host(self, http: HttpRequest) -> tuple[int, str] | None:
        """A status and a message if the Host or Origin header is not ours. This stops DNS rebinding (T06, T13)."""
        host = http.headers.get("host")
        if host is None or "host" in http.repeated:
            return 400, "exactly one Host header is needed"
        name = host.lower()
        if not self.any_host and name not in self.hosts:
            name = name.rpartition(":")[0] if not name.endswith("]") else name
            if name not in self.hosts:
                return 421, "this gateway does not answer to this host name"
        return None

    def judge_origin(self, http: HttpRequest) -> tuple[int, str] | None:
        origin = http.headers.get("origin")
        if origin is not None and origin not in self.origins and not self._own(origin, http):
            return 403, "requests from web pages of this origin are not allowed"
        if http.headers.get("sec-fetch-site") == "cross-site" and (origin is None or origin not in self.origins):
            return 403, "requests from web pages of other sites are not allowed"
        return None

    def _own(self, origin: str, http: HttpRequest) -> bool:
        """Whether the Origin is a page of this gateway, or a desktop program. `judge_host` has checked the host.
        Where any host may come, an attacker can point a name of theirs to this machine: there a key must protect it."""
        return origin.startswith(("app://", "vscode-webview://", "tauri://")) or self._is_ours(origin, http)

    def _is_ours(self, origin: str, http: HttpRequest) -> bool:
        host = http.headers.get("host", "").lower()
        safe = not self.any_host or self.public or self.keys.needed
        return safe and origin.lower() in (f"http://{host}", f"https://{host}")

    def _is_own_page(self, http: HttpRequest) -> bool:
        """Whether a request comes from a page of ours, or from no page. For a browser, another port of this host is the
        same site: it sends our cookie along, and no Origin with a GET."""
        origin = http.headers.get("origin")
        if origin is None:
            return http.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return self._is_ours(origin, http)

    def admit(self, http: HttpRequest, access: AccessClass) -> tuple[int, str] | None:
        """None if the key is good. Otherwise a status and a message, the same for unknown, wrong and revoked keys;
        the owner of an expired key is told so, and the owner of a token what is wrong with it.

        Pages of `origins` and of desktop programs may ask models. To administer, they need a key of their own: they
        cannot use the console's session, nor that no key is needed here."""
        if access == "public" or http.client in INSIDE:
            return None
        if not self.public and not self.keys.needed:
            allowed = access != "admin" or self._is_own_page(http)
            return None if allowed else (403, "only a page of this gateway may do this without an admin key")
        key = find_key(http)
        if key is None and self._is_own_page(http) and (holder := self._find_session(http)) is not None:
            return self._let_in(http, holder, access)
        found = self.keys.check(key, http.facts) if key else None
        if found is None and key and self.tokens is not None:
            found = self.tokens.check(key)
        if found is not None:
            if found.admin == (access == "admin"):
                return self._let_in(http, found, access)
            if access == "admin":
                return 403, "an admin key is needed here: dragoman keys new --admin"
        if self._too_many(http.client):
            return 429, "too many wrong keys from this address: wait a minute"
        if key is None:
            return 401, f"a key is needed: dragoman keys new{' --admin' if access == 'admin' else ''}"
        if found is not None:
            return 401, "an admin key is for /admin, /metrics and /xray; models need a client key: dragoman keys new"
        why = self.tokens.explain(key) if self.tokens is not None else ""
        return 401, self.keys.say_expired(key) or why or "no valid key"

    def lets_in(self, http: HttpRequest) -> bool:
        """Whether a client may ask models, by its key. A wrong key is not counted: `admit` does that."""
        if not self.public and not self.keys.needed:
            return True
        key = find_key(http)
        found = self.keys.check(key, http.facts) if key else None
        return found is not None and not found.admin and self._let_in(http, found, "client") is None

    def _let_in(self, http: HttpRequest, holder: Holder, access: AccessClass) -> tuple[int, str] | None:
        if holder.read_only:
            looks = access == "admin" and (http.method in ("GET", "HEAD") or http.path in ONLY_LOOKS)
            if not looks:
                return 403, "this key may look and change nothing"
        http.key_id, http.holder = holder.id, holder
        return None

    async def prepare(self, http: HttpRequest) -> None:
        """Fetches the identity provider's keys, if this request's token needs newer ones."""
        key = find_key(http) if self.tokens is not None else None
        if key and self.tokens is not None and self.tokens.is_token(key):
            await self.tokens.prepare(key)

    def find_browser(self, http: HttpRequest) -> bool:
        """Whether a browser may use the console: no key is needed, or it has logged in. Nothing is counted."""
        if not self._is_own_page(http):
            return False
        if not self.public and not self.keys.needed:
            return True
        holder = self._find_session(http)
        if holder is not None:
            http.key_id, http.holder = holder.id, holder
        return holder is not None

    def _find_session(self, http: HttpRequest) -> Holder | None:
        """The admin whose browser this is. The console may ask at every door, for its playground."""
        cookies = http.headers.get("cookie")
        if cookies is None or self.sessions is None:
            return None
        key_id = self.sessions.find(cookies, self.keys.find_digests)
        return None if key_id is None else self.keys.find_admin(key_id)

    def _too_many(self, client: str) -> bool:
        now = self._clock()
        times = [t for t in self._failures.pop(client, []) if t > now - 60]
        times.append(now)
        self._failures[client] = times[-self.wrong_keys - 1 :]
        if len(self._failures) > 10_000:
            self._failures.popitem(last=False)
        return len(times) > self.wrong_keys
