"""Secret: a key that is never shown and goes to one origin only. KeyRing: the keys of one upstream, used in turn.

A key rests when its provider says so. A rate limit rests it for one model, because providers count models apart. A
used-up balance rests it for all.
"""

from collections.abc import Collection, Sequence
from math import inf
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

Auth: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]  # how a key is sent
EVERY = ""  # the name that stands for all models
MOST_RESTS = 1000  # model names come from clients


class Secret:
    """Only `reveal` gives the value, and only to the origin it belongs to."""

    __slots__ = ("_origin", "_value", "hint")

    def __init__(self, value: str, origin: str = "") -> None:
        self._value = value
        self._origin = origin
        self.hint = f"...{value[-4:]}" if len(value) >= 12 else "set"  # to tell two keys apart

    def reveal(self, origin: str) -> str:
        if origin != self._origin:
            raise PermissionError(f"this key belongs to {self._origin or 'no origin'}, not to {origin}")
        return self._value

    def redact(self, data: bytes) -> bytes:
        """`data` without this value, because a provider may repeat a key in its answer."""
        value = self._value.encode()
        return data.replace(value, b"[redacted]") if len(value) >= 4 else data

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._value, self._origin) == (other._value, other._origin)

    def __hash__(self) -> int:
        return hash((self._value, self._origin))


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL: what a key is bound to."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme, 0)
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}"


def show_url(url: str) -> str:
    """A URL for people. The values of its query stay out: some servers take a key there."""
    place, _, query = url.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")] if query else []
    shown = "&".join(f"{name}=..." if sign else "..." for name, sign, _ in pairs)
    return f"{place}?{shown}" if shown else place


class Key:
    __slots__ = ("disabled", "number", "rests", "secret", "why")

    def __init__(self, number: int, secret: Secret | None) -> None:
        self.number = number
        self.secret = secret  # None: the upstream wants no key
        self.rests: dict[str, float] = {}  # model -> until when
        self.disabled = False
        self.why = ""

    def until(self, model: str) -> float:
        """The time until which it may not be used for this model."""
        rests = self.rests
        return max(rests.get(model, 0.0), rests.get(EVERY, 0.0)) if rests else 0.0

    @property
    def rests_until(self) -> float:
        """The latest time until which it may not be used for some model."""
        return max(self.rests.values(), default=0.0)


class KeyRing:
    __slots__ = ("_next", "keys", "only")

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self.keys = [Key(i, secret) for i, secret in enumerate(secrets)] or [Key(0, None)]
        self.only = self.keys[0] if len(self.keys) == 1 else None
        self._next = 0

    def pick(self, now: float, tried: Collection[int] = (), model: str = EVERY) -> Key | None:
        """The next key that may be used now; None when all rest, are disabled or were tried."""
        count = len(self.keys)
        for step in range(count):
            key = self.keys[(self._next + step) % count]
            if not key.disabled and key.until(model) <= now and key.number not in tried:
                self._next = (key.number + 1) % count
                return key
        return None

    def put_back(self, key: Key) -> None:
        """A key that was picked is not used: the next request gets it."""
        self._next = key.number

    def rest(self, key: Key, until: float, why: str, model: str = EVERY, now: float = 0.0) -> None:
        """A cool-down only ever grows: a later, shorter hint does not cancel an earlier, longer one."""
        if until <= key.rests.get(model, 0.0):
            return
        if len(key.rests) >= MOST_RESTS:
            key.rests = {name: end for name, end in key.rests.items() if end > now}
        key.rests[model if len(key.rests) < MOST_RESTS else EVERY] = until
        key.why = why

    def disable(self, key: Key, why: str) -> None:
        key.disabled, key.why = True, why

    def wait_s(self, now: float, model: str = EVERY) -> float:
        """How long until the first key may be used again; infinite when all are disabled."""
        return min((max(key.until(model) - now, 0.0) for key in self.keys if not key.disabled), default=inf)
