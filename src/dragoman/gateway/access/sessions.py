"""Sessions of the console: a browser that showed an admin key once has a cookie instead of the key.

The cookie names the key and when it ends, with a MAC that needs the key's digest. So every worker can check it, and a
key that is revoked or gets a new secret ends it at once.
"""

import hmac
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import islice

COOKIE = "dragoman_console"
LAST_S = 12 * 3600
MOST_COOKIES = 4
_VALUE = re.compile(rf"(?:^|;\s*){COOKIE}=([\w.-]{{1,200}})(?=;|$)")


class Sessions:
    def __init__(self, secret: bytes, wall: Callable[[], float]) -> None:
        self._secret = hmac.digest(secret, b"console session", sha256)
        self._wall = wall

    def open(self, key_id: str, digest: str, *, secure: bool) -> str:
        """The value of a Set-Cookie header. Scripts cannot read it, and other sites cannot send it."""
        words = f"{key_id}.{int(self._wall()) + LAST_S}"
        more = "; Secure" if secure else ""
        mac = self._mac(words, digest)
        return f"{COOKIE}={words}.{mac}; Path=/; Max-Age={LAST_S}; HttpOnly; SameSite=Strict{more}"

    def close(self) -> str:
        return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"

    def find(self, cookies: str, find_digests: Callable[[str], Iterable[str]]) -> str | None:
        """The id of the key that opened a session; None without a good one. `find_digests`: of the secrets of a key
        that are good now, by its id."""
        # another program of this host can set a second cookie with our name for a longer path
        values = islice(_VALUE.finditer(cookies), MOST_COOKIES)
        return next((key_id for value in values if (key_id := self._check(value[1], find_digests)) is not None), None)

    def _check(self, value: str, find_digests: Callable[[str], Iterable[str]]) -> str | None:
        words, _, mac = value.rpartition(".")
        key_id, _, until = words.rpartition(".")
        good = any(hmac.compare_digest(mac.encode(), self._mac(words, one).encode()) for one in find_digests(key_id))
        return key_id if good and until.isdecimal() and self._wall() < int(until) else None

    def _mac(self, words: str, digest: str) -> str:
        return hmac.digest(self._secret, f"{words}.{digest}".encode(), sha256).hex()
