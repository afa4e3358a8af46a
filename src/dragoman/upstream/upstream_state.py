"""UpstreamState: what a running process knows about one upstream. Admission, keys, breakers, retries, lessons."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from math import inf

from dragoman.dialects._services import ListedModel
from dragoman.exchange import Destination
from dragoman.failure import Failure
from dragoman.log_line import LogLine
from dragoman.upstream.admission import LimitedQueue, LimitStore, ProcessLimits
from dragoman.upstream.breaker import Breaker, how_failed
from dragoman.upstream.failures import requests_own
from dragoman.upstream.http.request import RequestHead, build_headers, join_url
from dragoman.upstream.kept_files import LearnedFile
from dragoman.upstream.keys import EVERY, Key, KeyRing, origin_of
from dragoman.upstream.retry import BROKEN, RetryBudget
from dragoman.upstream.spec import Upstream
from dragoman.upstream.transport import make_head

log = logging.getLogger(__name__)
MAX_BREAKERS = 1000
MAX_HEADS = 1000  # heads of requests that are kept: a client chooses a part of what they are found by
MAX_SUSPECTS = 1000  # requests that the upstream has answered with an error of its own
SUSPECT_S = 600.0
PROBE_EVERY_S = 1.0
EXHAUSTED_S = 300.0
SHORT_REST_S = 1.0
BALANCE_PROBE_EVERY_S = 10.0
NO_CREDIT = "no credit"


def open_queue(spec: Upstream, limits: LimitStore) -> LimitedQueue:
    """The queue of an upstream, with the limits of the configuration."""
    numbers = {"at_once": spec.at_once, "rpm": spec.rpm, "tpm": spec.tpm}
    return limits.open_queue(spec.name, spec.name, **numbers, queue=spec.queue)


class UpstreamState:
    def __init__(
        self,
        spec: Upstream,
        clock: Callable[[], float],
        limited_queue: LimitedQueue | None = None,
        learned_file: LearnedFile | None = None,
    ) -> None:
        """`limited_queue`: the way in, if others know its limits too. `learned_file`: keeps what was learned over a
        restart."""
        self.spec = spec
        self.origin = origin_of(spec.base_url) if spec.base_url else ""
        self.admission_waiter = limited_queue or open_queue(spec, ProcessLimits(clock))
        self.admission = self.admission_waiter.admission
        self.keys = KeyRing(spec.keys)
        self.budget = RetryBudget()
        self.learned: dict[tuple[str, str], dict[str, object]] = {}  # fields of a profile by dialect and model
        self._learned_file = learned_file
        if learned_file is not None:
            self.learned.update(learned_file.read(spec))
        self.listed: dict[str, ListedModel] = {}  # the upstream's own list of models, by name
        self.cards: dict[str, ListedModel] = {}  # by model: describe
        self.listed_at = -inf  # when it was asked for the list
        self.list_due = -inf  # when it is to be asked again
        self.list_failure = ""  # why the list could not be read
        self.no_counters: set[str] = set()  # addresses at which it counts no tokens
        self.destinations: dict[tuple[str, str], Destination] = {}  # by client's dialect and model: find_destination
        # By path, key and the dialect's own headers: find_head.
        self._heads: dict[tuple[str, int, tuple[tuple[str, str], ...]], RequestHead] = {}
        self.sent = 0
        self.failed = 0
        self.waiting_for_cooldown = 0  # requests that wait for a cool-down to end
        self._breakers: OrderedDict[tuple[int, str], Breaker] = OrderedDict()
        # Requests that met an error of the upstream's own, and were not served since: when, and the error.
        self.suspects: OrderedDict[int, tuple[float, tuple[int | None, str]]] = OrderedDict()
        self._last_probe = -PROBE_EVERY_S
        self._last_balance_probe = -inf

    def find_head(self, key: Key, path: str, own: dict[str, str], traced: dict[str, str] | None = None) -> RequestHead:
        """The head of a call. Most calls of a client have one of a few heads. `own`: the headers of the call itself."""
        at = (path, key.number, tuple(own.items()))
        known = self._heads.get(at) if traced is None else None
        if known is not None:
            return known
        spec = self.spec
        headers = build_headers(own, spec.headers, spec.auth, key, self.origin)
        if traced is not None:
            headers.update(traced)
        head = make_head(join_url(spec.base_url, path), headers, spec.network)
        if traced is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[at] = head
        return head

    def breaker(self, key: Key, model: str) -> Breaker:
        at = (key.number, model)
        found = self._breakers.get(at)
        if found is None:
            found = self._breakers[at] = Breaker()
            if len(self._breakers) > MAX_BREAKERS:
                self._breakers.popitem(last=False)
        return found

    def pick(self, model: str, now: float, tried: AbstractSet[int]) -> Key | None:
        """A key that may be used for this model now."""
        only = self.keys.only
        if only is not None:  # fast path: only key
            usable = not only.disabled and only.until(model) <= now and only.number not in tried
            return only if usable and self.breaker(only, model).allows(now) else None
        key = self.keys.pick(now, tried, model)
        if key is not None and self.breaker(key, model).allows(now):
            return key
        for other in self.keys.keys:
            usable = not other.disabled and other.until(model) <= now and other.number not in tried
            if usable and self.breaker(other, model).allows(now):
                return other
        return None

    def probe(self, model: str, now: float) -> Key | None:
        """When every breaker is open, one request a second may still go: a process must not lock itself out."""
        if now - self._last_probe < PROBE_EVERY_S:
            return None
        key = self.keys.pick(now, model=model)
        if key is not None:
            self._last_probe = now
        return key

    def probe_balance(self, model: str, now: float) -> Key | None:
        """When all keys have used up their balance, a request tries one now and then: it may have been paid meanwhile,
        or be used up for another model only."""
        poor = [key for key in self.keys.keys if not key.disabled and key.rests.get(EVERY, 0.0) > now]
        if len(poor) < len(self.keys.keys) or now - self._last_balance_probe < BALANCE_PROBE_EVERY_S:
            return None
        self._last_balance_probe = now
        return min(poor, key=lambda key: key.rests[EVERY])

    def take_success(self, key: Key, model: str, now: float, client: str) -> None:
        self.breaker(key, model).succeeded(now, client)
        if EVERY in key.rests:
            del key.rests[EVERY]

    def wait_s(self, model: str, now: float) -> float:
        """How long until a request for this model may go. A breaker that is open lets one through each second, if there
        is no other way."""
        probe_s = max(self._last_probe + PROBE_EVERY_S - now, 0.0)
        waits = [
            max(key.until(model) - now, min(self.breaker(key, model).wait_s(now), probe_s), 0.0)
            for key in self.keys.keys
            if not key.disabled
        ]
        return min(waits, default=EXHAUSTED_S)

    def take_failure(
        self,
        key: Key,
        model: str,
        failure: Failure,
        now: float,
        dice: float,
        client: str = "",
        request_hash: int | None = None,
        *,
        first: bool = True,
    ) -> Failure:
        """Rests or disables the key, or tells its breaker. `request_hash` tells one request from another; `first`: this
        request has not failed there before. Returns the failure as the client should hear it."""
        self.failed += 1
        breaker = self.breaker(key, model)
        if self._is_requests_own(breaker, failure, request_hash, now):
            breaker.abandoned()
            return requests_own(failure)
        if failure.kind in ("rate_limited", "no_credit", "unauthenticated"):
            self._stop_using(key, model, failure, now)
            breaker.abandoned()
        elif failure.kind in BROKEN and not first:
            breaker.abandoned()
        elif failure.kind in BROKEN:
            was = breaker.state
            breaker.failed(now, dice, how_failed(failure), client, request_hash)
            if breaker.state == "open" and was != "open":
                self._warn("upstream_left_alone", key, model, failure, breaker.wait_s(now))
        else:
            breaker.succeeded(now, client)  # the upstream answered, so it is healthy: the request was at fault
        return failure

    def _stop_using(self, key: Key, model: str, failure: Failure, now: float) -> None:
        """Rests a key that reached a limit or has no balance left. Disables a refused one, if there are others."""
        if failure.kind == "unauthenticated":
            self._warn("key_refused", key, model, failure, 0.0)
            if len(self.keys.keys) > 1:
                self.keys.disable(key, "refused")
            return
        if failure.kind == "rate_limited":
            rest_s = failure.retry_after_s or SHORT_REST_S
            self.keys.rest(key, now + rest_s, "rate limited", model, now)
        else:
            rest_s = failure.retry_after_s or EXHAUSTED_S
            self.keys.rest(key, now + rest_s, NO_CREDIT)
            self._last_balance_probe = now
        self._warn("key_rests", key, model, failure, rest_s)

    def _is_requests_own(self, breaker: Breaker, failure: Failure, request_hash: int | None, now: float) -> bool:
        """Whether the same request meets the same error again while others are served: then it is at fault itself."""
        if request_hash is None or failure.kind not in BROKEN or how_failed(failure) != "wrong":
            return False
        words = (failure.status, failure.message)
        known = self.suspects.get(request_hash)
        if known is not None and known[1] == words and now - known[0] < SUSPECT_S:
            return breaker.served_at > known[0]
        self.suspects[request_hash] = (now, words)
        if len(self.suspects) > MAX_SUSPECTS:
            self.suspects.popitem(last=False)
        return False

    def _warn(self, event: str, key: Key, model: str, failure: Failure, rest_s: float) -> None:
        where = {"upstream": self.spec.name, "model": model, "key": key.secret.hint if key.secret else ""}
        log.warning(LogLine(event, {**where, "for_s": round(rest_s, 1), "why": failure.code or failure.kind}))

    def remember(self, dialect: str, model: str, fields: dict[str, object]) -> None:
        """Keeps what a refusal has taught about a model, so that later requests are written right at once."""
        if fields and (len(self.learned) < MAX_BREAKERS or (dialect, model) in self.learned):
            log.info(LogLine("learned", {"upstream": self.spec.name, "model": model, "fields": ", ".join(fields)}))
            self._forget_profiles()
            known = self.learned.get((dialect, model), {})
            from dragoman.learner import add_lesson  # it is needed after a refusal only

            self.learned[dialect, model] = add_lesson(known, fields)
            if self._learned_file is not None:
                self._learned_file.write(self.spec, dialect, model, self.learned[dialect, model])

    def take_list(self, listed: dict[str, ListedModel]) -> None:
        """The upstream has told its models. What is known about them changes how requests are written."""
        self.listed = listed
        self._forget_profiles()

    def _forget_profiles(self) -> None:
        self.destinations.clear()
        self.cards.clear()

    def worst_state(self) -> str:
        states = {breaker.state for breaker in self._breakers.values()}
        return "open" if "open" in states else "half_open" if "half_open" in states else "closed"
