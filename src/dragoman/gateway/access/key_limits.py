"""KeyLimits: the limits of keys and teams. A request takes a place under all of them, or it is refused."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from dragoman.accounts.grants import Account, Holder
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.quota import Quota
from dragoman.upstream.admission import AdmissionRow, LimitedQueue, LimitStore, Ticket, put_in_row

Entered: TypeAlias = Sequence[tuple[AdmissionRow | LimitedQueue, Ticket]]
FULL = ("queue_full", "queue_timeout")
_PER = {"rpm": "requests a minute", "tpm": "tokens a minute", "at_once": "requests at once"}


class WayIn(Struct):
    """The limits of one key and of its team."""

    holder: Holder
    queues: list[tuple[Account, LimitedQueue]]
    row: AdmissionRow | None  # all of them, if this process decides alone


class KeyLimits:
    """The limits of keys and teams. A request that does not fit is refused at once; the queue is for upstreams."""

    def __init__(self, limits: LimitStore, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._queues: dict[str, tuple[Account, LimitedQueue]] = {}
        self._ways_in: dict[str, WayIn] = {}  # by the id of the key
        self._quotas: dict[tuple[str, str], tuple[Holder, Quota]] = {}

    async def enter(self, holder: Holder, tokens: int) -> Entered:
        """Takes a place at every limit, or at none: then it is a 429."""
        found = self.enter_at_once(holder, tokens)
        if found is not None:
            return found
        now = self._clock()
        entered: list[tuple[LimitedQueue, Ticket]] = []
        rest: list[tuple[Account, LimitedQueue, Ticket]] = []
        for account, queue in self._find_way(holder).queues:
            ticket = Ticket(holder.id, tokens)
            if queue.enter_now(ticket, now):
                entered.append((queue, ticket))
            else:
                rest.append((account, queue, ticket))
        try:
            if len(rest) > 1:  # so that all of them cost one round trip
                work = [self._enter(*place, entered) for place in rest]
                for failed in await asyncio.gather(*work, return_exceptions=True):
                    if failed is not None:
                        raise failed
            else:
                for place in rest:
                    await self._enter(*place, entered)
        except BaseException:
            self.leave(entered, sent=False)
            raise
        return entered

    def enter_at_once(self, holder: Holder, tokens: int) -> Entered | None:
        """None: a limit has no room, or its server has to be asked."""
        now, way = self._clock(), self._find_way(holder)
        if way.row is not None:  # fast path: limits in a row
            ticket = Ticket(holder.id, tokens)
            return ((way.row, ticket),) if way.row.enter_now(ticket, now) else None
        entered: list[tuple[LimitedQueue, Ticket]] = []
        for _, queue in way.queues:
            ticket = Ticket(holder.id, tokens)
            if not queue.enter_now(ticket, now):
                self.leave(entered, sent=False)
                return None
            entered.append((queue, ticket))
        return entered

    def _find_way(self, holder: Holder) -> WayIn:
        way = self._ways_in.get(holder.id)
        if way is None or way.holder is not holder:
            queues = [(account, self._find(account)) for account in holder.limited]
            way = self._ways_in[holder.id] = WayIn(holder, queues, put_in_row([queue for _, queue in queues]))
        return way

    async def _enter(
        self, account: Account, queue: LimitedQueue, ticket: Ticket, entered: list[tuple[LimitedQueue, Ticket]]
    ) -> None:
        try:
            await queue.enter(ticket, 0.0)
        except UpstreamError as error:
            if error.failure.code not in FULL:
                raise
            raise UpstreamError(_over(account, queue, ticket.tokens, self._clock())) from error
        entered.append((queue, ticket))

    def leave(self, entered: Entered, *, sent: bool, tokens: int | None = None) -> None:
        for queue, ticket in entered:
            queue.leave(ticket, sent=sent, tokens=tokens)

    def find_quota(self, holder: Holder, dialect: Dialect) -> Quota:
        """How much a key has left, for clients of this dialect."""
        at = (holder.id, dialect.name)
        known = self._quotas.get(at)
        if known is None or known[0] is not holder:
            known = (holder, Quota([self._find(account).admission for account in holder.limited], dialect))
            self._quotas[at] = known
        return known[1]

    def _find(self, account: Account) -> LimitedQueue:
        known = self._queues.get(account.name)
        if known is not None and (known[0] is account or known[0] == account):  # keys of a team have equal ones
            return known[1]
        grant = account.grant
        numbers = {"at_once": grant.at_once, "rpm": grant.rpm, "tpm": grant.tpm}
        made = self._limits.open_queue(account.name, account.label, **numbers, queue=0)
        self._queues[account.name] = (account, made)
        return made


def _over(account: Account, queue: LimitedQueue, tokens: int, now: float) -> Failure:
    rpm, tpm = queue.admission.rpm, queue.admission.tpm
    waits = {
        "rpm": 0.0 if rpm is None else rpm.wait_s(now),
        "tpm": 0.0 if tpm is None else tpm.wait_s(now, tokens),
    }
    name = max(waits, key=lambda kind: waits[kind])
    if not waits[name]:
        name = "at_once" if account.grant.at_once is not None else "rpm" if rpm is not None else "tpm"
    limit = getattr(account.grant, name)
    return Failure(
        kind="rate_limited",
        status=429,
        code=f"key_{name}",
        message=f"{account.label} may have {limit} {_PER[name]}",
        retry_after_s=max(1.0, waits.get(name, 0.0)),
    )
