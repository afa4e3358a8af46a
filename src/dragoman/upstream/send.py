"""Sender: asks upstreams until one begins to answer. `retry.decide` and the upstreams' states decide; this waits."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from dragoman.errors import UpstreamError
from dragoman.exchange import UpstreamCall, send_corrected
from dragoman.failure import Failure
from dragoman.model.reply import Reply
from dragoman.notes import MOST_PLACES
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import Attempts, Job, off_loop
from dragoman.upstream.failures import left_alone
from dragoman.upstream.keys import Key
from dragoman.upstream.retry import LONGEST_HINT_S, Again, GiveUp, decide
from dragoman.upstream.spec import Target
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.way_back import InvalidAnswer


class Sender:
    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.wall = wall
        self.dice = dice

    async def ask(self, job: Job) -> UpstreamAnswer:
        """The first answer that begins; an UpstreamError when none does."""
        attempts = Attempts(job.targets)
        try:
            while True:
                begun = job.begun
                if begun is not None:
                    state, target, key = begun.state, begun.target, begun.key
                else:
                    state, target, key = await self._choose(job, attempts)
                attempts.made += 1
                try:
                    return await self._try(job, attempts, state, target, key)
                except UpstreamError as error:
                    failure = error.failure
                attempts.end_retry()
                await self._after_failure(job, attempts, state, target, key, failure)
        finally:
            attempts.end_retry()
            if job.begun is not None:  # it could not be written anew, and its answer will not be read
                job.begun.give_back()

    async def _after_failure(
        self, job: Job, attempts: Attempts, state: UpstreamState, target: Target, key: Key, failure: Failure
    ) -> None:
        """Prepares the next attempt, or raises."""
        now = self.clock()
        others = attempts.others(target)
        if failure.code in ("queue_full", "queue_timeout"):
            state.breaker(key, target.model).abandoned()
            if not others:  # it has waited already, or the queue is full
                raise UpstreamError(failure)
        else:
            first = attempts.fails_first(state, target, key)
            failure = state.take_failure(
                key, target.model, failure, now, self.dice(), job.client, job.request_hash, first=first
            )
        failure = _soonest(failure, job, now)
        reported, name = attempts.to_report(target, failure, state.spec.name)
        decision = decide(
            failure,
            attempts=attempts.made,
            other=bool(others),
            other_key=attempts.has_other_key(state, target, key),
            left_s=job.deadline - now,
            dice=self.dice(),
            budget=state.budget.allows(),
            most=job.most,
        )
        match decision:
            case GiveUp():
                raise UpstreamError(job.report(reported, name))
            case Again() if failure.kind == "rate_limited":
                attempts.start_again(state.budget)  # `_choose` waits for the first target that may be asked
            case Again(wait_s=wait):
                attempts.count_retry(state.budget)  # this also limits how many requests wait here
                await asyncio.sleep(wait)
            case _:
                attempts.go_elsewhere(state, target, key, now)

    async def _choose(self, job: Job, attempts: Attempts) -> tuple[UpstreamState, Target, Key]:
        """The first target that has a usable key; waits when one will have one soon."""
        while True:
            now = self.clock()
            left = attempts.left
            for state, target in left:
                key = state.pick(target.model, now, attempts.tried(state, target))
                if key is not None:
                    return state, target, key
            for state, target in left:
                key = state.probe(target.model, now) if state.keys.wait_s(now, target.model) == 0 else None
                if key is not None:
                    return state, target, key
            for state, target in left:
                key = state.probe_balance(target.model, now)
                if key is not None:
                    return state, target, key
            resting = all(state.keys.wait_s(now, target.model) > 0 for state, target in left)
            if resting:
                attempts.add_limited(now)
                left = attempts.left
            wait, first = min(((s.wait_s(t.model, now), s) for s, t in left), key=lambda found: found[0])
            wait = max(wait, 0.01)
            failure = left_alone([s.spec.name for s, _ in left], wait, resting=resting)
            if not resting or wait > min(LONGEST_HINT_S, job.deadline - now):
                raise UpstreamError(failure)
            await self._wait_for_cooldown(first, wait * (1 + 0.1 * self.dice()), failure)

    async def _wait_for_cooldown(self, state: UpstreamState, wait_s: float, failure: Failure) -> None:
        """Waits for a cool-down to end. No more requests may wait so than the upstream's queue takes (F14)."""
        if state.waiting_for_cooldown >= state.spec.queue:
            raise UpstreamError(failure)
        state.waiting_for_cooldown += 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            state.waiting_for_cooldown -= 1

    async def _try(
        self, job: Job, attempts: Attempts, state: UpstreamState, target: Target, key: Key
    ) -> UpstreamAnswer:
        call, job.call = job.call, None
        if call is None or target is not job.targets[0][1]:
            call = await off_loop(True, _render, job, state, target) if job.large else job.render(state, target)
        answer = job.begun.stream if job.begun is not None else None
        if answer is None:
            answer = UpstreamAnswer(job.client, job.raw, state, target, key, call, clock=self.clock, dice=self.dice)
        try:
            await answer.begin(job, attempts, self.transport, self.wall)
            return answer
        except UpstreamError as error:
            corrected = await off_loop(job.large, call.correct, error)
            first = (call, error.reply) if isinstance(error, InvalidAnswer) else None
            if corrected is None and first is None:
                raise
        return await self._try_corrected(job, attempts, state, target, key, corrected, first)

    async def _try_corrected(
        self,
        job: Job,
        attempts: Attempts,
        state: UpstreamState,
        target: Target,
        key: Key,
        corrected: UpstreamCall | None,
        first: tuple[UpstreamCall, Reply] | None,
    ) -> UpstreamAnswer:
        """The call was refused, and the error told what to send instead. Or it was answered in another way than it was
        asked (`first`)."""

        async def begin(call: UpstreamCall) -> UpstreamAnswer:
            answer = UpstreamAnswer(job.client, job.raw, state, target, key, call, clock=self.clock, dice=self.dice)
            await answer.begin(job, attempts, self.transport, self.wall)
            if call.learned:  # it was right: the call is answered
                state.remember(call.dialect.name, target.model, call.learned)
            return answer

        def keep(call: UpstreamCall, reply: Reply) -> UpstreamAnswer:
            answer = UpstreamAnswer(job.client, job.raw, state, target, key, call, clock=self.clock, dice=self.dice)
            answer.keep(reply)
            return answer

        async def correct(call: UpstreamCall, error: UpstreamError) -> UpstreamCall | None:
            return await off_loop(job.large, call.correct, error)

        if corrected is None and first is not None:
            return keep(*first)
        return await send_corrected(cast(UpstreamCall, corrected), begin, keep, correct, first)


def _render(job: Job, state: UpstreamState, target: Target) -> UpstreamCall:
    call = job.render(state, target)
    call.notes.read(MOST_PLACES)  # here, and not on the loop
    return call


def _soonest(failure: Failure, job: Job, now: float) -> Failure:
    """A rate limit ends for the client when the first of its targets may be asked again (F14)."""
    if failure.kind != "rate_limited":
        return failure
    wait = min(state.wait_s(target.model, now) for state, target in job.targets)
    return replace(failure, retry_after_s=wait) if wait > 0 else failure
