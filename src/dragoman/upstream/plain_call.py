"""PlainCall: a call without a task, on an idle connection. Its answer is taken as it is, or not at all.

It is the first attempt of a request. Whatever is not usual leaves it to the long way: before it is sent there is no
PlainCall, and afterwards `begun` is what `Sender.ask` goes on with (an error, a late answer, one that must be read).
"""

from collections.abc import Callable

from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.admission import Ticket
from dragoman.upstream.answer import Piece, find_head, log_attempt
from dragoman.upstream.attempts import NO_KEYS, Attempt, Begun, WireTimes, is_large
from dragoman.upstream.http.connection import Pool
from dragoman.upstream.read_reply import count_all, decode_whole, is_document, is_page
from dragoman.upstream.spec import Target
from dragoman.upstream.transport import Asked, Transport
from dragoman.upstream.upstream_state import UpstreamState


class PlainCall:
    """An OpenAnswer, once `take` has returned True. `close` is for that case only."""

    __slots__ = (
        *("_client", "_clock", "_closed", "_deadline", "_pool", "_reply", "_request", "_sent", "_times"),
        *("begun", "complete", "dialect", "failure", "headers", "raw", "target", "usage"),
    )
    as_is = plain = True
    notes = Notes()  # none, ever

    def __init__(
        self, begun: Begun, pool: Pool, dialect: Dialect, request: bytes, sent: bytes, client: str, deadline: float,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.begun = begun
        self.target = begun.target
        self.dialect = dialect
        self.complete = False
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self._reply: Reply | None = None
        self._times: WireTimes | None = None
        self._pool, self._request, self._sent, self._client = pool, request, sent, client
        self._deadline, self._clock = deadline, clock
        self._closed = False

    def take(self) -> bool:
        """Whether all of a plain answer has arrived. Otherwise nothing has changed."""
        connection = self.begun.asked.connection
        if not connection.ended or connection.status != 200 or connection.error is not None:
            return False
        headers, caps = connection.headers, self.begun.state.spec.caps
        if headers.get("content-encoding", "identity") != "identity" or is_page(headers):
            return False
        if connection.waiting > min(caps.reply_bytes, caps.stream_bytes) or self._clock() > self._deadline:
            return False
        raw, look = connection.peek(), self.dialect.look_at_reply
        if look is None or is_large(raw) or is_document(raw, self.dialect) is False:
            return False
        found = look(raw)
        if found is None or found.usage is None or (found.usage.input is None and found.usage.output is None):
            return False  # where a provider counts nothing, we estimate
        self.headers, self.raw, self.usage, self.complete = headers, raw, found.usage, True
        self.begun.state.sent += 1
        return True

    def make_attempt(self, *, keep_wire: bool) -> Attempt:
        """For logs and X-ray."""
        begun = self.begun
        secret = begun.key.secret
        attempt = Attempt(
            upstream=begun.state.spec.name,
            model=self.target.model,
            key=secret.hint if secret is not None else "",
            status=200,
        )
        if keep_wire:
            sent = begun.began
            times = WireTimes(began=sent, dialect=self.dialect.name, sent=sent, heard=self._clock())
            attempt.times = self._times = times
            attempt.body, attempt.reply = self._sent, self.raw if secret is None else secret.redact(self.raw)
        log_attempt(attempt)
        return attempt

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        begun = self.begun
        state, connection, now = begun.state, begun.asked.connection, self._clock()
        if self._times is not None:
            self._times.ended = now
        connection.take()
        connection.stop_waiting()
        if connection.reusable:
            self._pool.give_back(connection)
        else:
            connection.close()
        state.take_success(begun.key, self.target.model, now, self._client)
        if state.suspects:
            state.suspects.pop(hash(self._request), None)
        state.admission_waiter.leave(begun.ticket, sent=True, tokens=count_all(self.usage))
        state.budget.in_flight -= 1

    # ---- the rest of an OpenAnswer

    @property
    def reply(self) -> Reply | None:
        if self._reply is None:
            self._reply = decode_whole(self.headers, self.raw, self.dialect, Notes())[0]
        return self._reply

    async def next(self) -> Piece | None:
        return None

    def release_request(self) -> None: ...


def send_plain(
    transport: Transport,
    state: UpstreamState,
    target: Target,
    dialect: Dialect,
    path: str,
    headers: dict[str, str],
    body: bytes,
    *,
    request: bytes,
    client: str,
    tokens: int,
    deadline: float,
    clock: Callable[[], float],
    hear: Callable[[], bool],
) -> PlainCall | None:
    """Sends a call now; None if it would have to wait for a key, a place or a connection. `request`: the client's own
    body. `hear`: see `HttpConnection.listener`."""
    now = clock()
    key = state.pick(target.model, now, NO_KEYS)
    if key is None:
        return None
    waiter, ticket = state.admission_waiter, Ticket(client, tokens)
    if not waiter.enter_now(ticket, now):
        return None
    head = find_head(state, key, path, headers)
    pool = transport.find_pool(head.place, state.spec.network)
    connection = pool.take()
    if connection is None:
        waiter.leave(ticket, sent=False)
        return None
    state.budget.in_flight += 1
    state.breaker(key, target.model).begin(now)
    waiter.stamp(ticket)
    asked = Asked(connection, connection.now())
    connection.ask(head.write(len(body)), body)
    connection.listener = hear
    return PlainCall(
        Begun(state, target, key, ticket, asked, now), pool, dialect, request, body, client, deadline, clock
    )
