"""KeyRing: several keys of one upstream in turn, each resting when its provider says so."""

from collections.abc import Sequence
from math import inf

from dragoman.upstream.secret import Secret


class Key:
    __slots__ = ("disabled", "number", "rests_until", "secret", "why")

    def __init__(self, number: int, secret: Secret | None) -> None:
        self.number = number
        self.secret = secret  # None: the upstream wants no key
        self.rests_until = 0.0
        self.disabled = False
        self.why = ""


class KeyRing:
    __slots__ = ("_next", "keys")

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self.keys = [Key(i, secret) for i, secret in enumerate(secrets)] or [Key(0, None)]
        self._next = 0

    def pick(self, now: float, tried: Sequence[int] = ()) -> Key | None:
        """The next key that may be used now; None when all rest, are disabled or were tried."""
        count = len(self.keys)
        for step in range(count):
            key = self.keys[(self._next + step) % count]
            if not key.disabled and key.rests_until <= now and key.number not in tried:
                self._next = (key.number + 1) % count
                return key
        return None

    def rest(self, key: Key, until: float, why: str) -> None:
        """A cool-down only ever grows: a later, shorter hint does not cancel an earlier, longer one."""
        if until > key.rests_until:
            key.rests_until, key.why = until, why

    def disable(self, key: Key, why: str) -> None:
        key.disabled, key.why = True, why

    def wait_s(self, now: float) -> float:
        """Until the first key may be used again; infinite when none ever will."""
        return min((max(key.rests_until - now, 0.0) for key in self.keys if not key.disabled), default=inf)
