"""KeyRing: several keys of one upstream in turn, each resting when its provider says so.

A rate limit rests a key for one model: providers count models apart. A used-up balance rests it for all.
"""

from collections.abc import Collection, Sequence
from math import inf

from dragoman.upstream.secret import Secret

EVERY = ""  # model
MOST_RESTS = 1000  # model names come from clients


class Key:
    __slots__ = ("disabled", "number", "rests", "secret", "why")

    def __init__(self, number: int, secret: Secret | None) -> None:
        self.number = number
        self.secret = secret  # None: the upstream wants no key
        self.rests: dict[str, float] = {}  # by model, until when
        self.disabled = False
        self.why = ""

    def until(self, model: str) -> float:
        """Until when it is not to be used for this model."""
        rests = self.rests
        return max(rests.get(model, 0.0), rests.get(EVERY, 0.0)) if rests else 0.0

    @property
    def rests_until(self) -> float:
        """Until when it is not to be used for some model."""
        return max(self.rests.values(), default=0.0)


class KeyRing:
    __slots__ = ("_next", "keys")

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self.keys = [Key(i, secret) for i, secret in enumerate(secrets)] or [Key(0, None)]
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
        """Until the first key may be used again; infinite when none ever will."""
        return min((max(key.until(model) - now, 0.0) for key in self.keys if not key.disabled), default=inf)
