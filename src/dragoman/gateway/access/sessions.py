"""Sessions of the console: a browser that showed an admin key once has a cookie instead of the key.

The cookie names the key and when it ends, with a MAC. So every worker can check it, and a revoked key ends it at once.
"""

import hmac
import re
from collections.abc import Callable
from hashlib import sha256

COOKIE = "dragoman_console"
LAST_S = 12 * 3600
_VALUE = re.compile(rf"(?:^|;\s*){COOKIE}=([\w.-]{{1,200}})(?:;|$)")


class Sessions:
    def __init__(self, secret: bytes, wall: Callable[[], float]) -> None:
        self._secret = hmac.digest(secret, b"console session", sha256)
        self._wall = wall

    def open(self, key_id: str, *, secure: bool) -> str:
        """The value of a Set-Cookie header. Scripts cannot read it, and other sites cannot send it."""
        words = f"{key_id}.{int(self._wall()) + LAST_S}"
        more = "; Secure" if secure else ""
        return f"{COOKIE}={words}.{self._mac(words)}; Path=/; Max-Age={LAST_S}; HttpOnly; SameSite=Strict{more}"

    def close(self) -> str:
        return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"

    def find(self, cookies: str) -> str | None:
        """The id of the key that opened a session; None without a good one."""
        found = _VALUE.search(cookies)
        if found is None:
            return None
        words, _, mac = found[1].rpartition(".")
        key_id, _, until = words.rpartition(".")
        good = hmac.compare_digest(mac.encode(), self._mac(words).encode())
        return key_id if good and until.isdecimal() and self._wall() < int(until) else None

    def _mac(self, words: str) -> str:
        return hmac.digest(self._secret, words.encode(), sha256).hex()
