"""PlainCall: a call without a task, on an idle connection. Its whole answer is taken when all of it is there.

It is the first attempt of a request. Whatever is not usual leaves it to the long way: before it is sent there is no
PlainCall, and afterwards `begun` and `call` are what `Sender.ask` goes on with (an error, a late answer, a stream).
"""

from collections.abc import Callable

from dragoman.dialects._base import Dialect
from dragoman.exchange import UpstreamCall
from dragoman.failure import Failure
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.admission import Ticket
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import NO_KEYS, Attempt, Begun, WireTimes, is_large, log_attempt
from dragoman.upstream.http.connection import HttpConnection, Pool
from dragoman.upstream.http.request import RequestHead
from dragoman.upstream.keys import Key
from dragoman.upstream.open_answer import Piece
from dragoman.upstream.read_reply import count_all, decode_whole, is_array, is_document, is_page, take_whole
from dragoman.upstream.spec import Target
from dragoman.upstream.transport import Opened, SentRequest, Transport
from dragoman.upstream.upstream_state import UpstreamState

NO_NOTES = Notes()  # ever


def is_stream(connection: HttpConnection, call: UpstreamCall) -> bool:
    """Whether a stream begins, in the form that was asked for, as far as it can be told."""
    headers, head = connection.headers, connection.peek()
    if headers.get("content-encoding", "identity") != "identity" or is_page(headers):
        return False
    if not head:
        return not connection.ended
    document = is_document(head, call.dialect)
    return document is False and is_array(head) != call.path.endswith(call.dialect.sse_query)


class PlainCall:
    """An OpenAnswer, once `take` has returned True. `close` is for that case only.

    `call`: None for the client's own bytes. Their answer is taken as it is, or not at all."""

    __slots__ = (
        *("_client", "_clock", "_closed", "_deadline", "_opened", "_pool", "_reply", "_request", "_sent", "_times"),
        *("as_is", "begun", "call", "complete", "dialect", "failure", "headers", "notes", "plain", "raw", "target"),
        "usage",
    )

    def __init__(
        self, begun: Begun, pool: Pool, dialect: Dialect, call: UpstreamCall | None, request: bytes, sent: bytes,
        client: str, deadline: float, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.begun = begun
        self.target = begun.target
        self.dialect = dialect
        self.call = call
        self.notes = NO_NOTES if call is None else call.notes
        self.as_is = self.plain = call is None
        self.complete = False
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self._opened: Opened | None = None  # of a stream
        self._reply: Reply | None = None
        self._times: WireTimes | None = None
        self._pool, self._request, self._sent, self._client = pool, request, sent, client
        self._deadline, self._clock = deadline, clock
        self._closed = False

    def take(self) -> bool:
        """Whether all of a usual answer has arrived. Otherwise nothing has changed, but `call` may be gone: then it
        must be written again."""
        connection = self.begun.asked.connection
        if not connection.ended or connection.status != 200 or connection.error is not None:
            return False
        headers, caps = connection.headers, self.begun.state.spec.caps
        if headers.get("content-encoding", "identity") != "identity" or is_page(headers):
            return False
        if connection.waiting > caps.reply_bytes or connection.waiting > caps.stream_bytes:
            return False
        raw = connection.peek()
        if self._clock() > self._deadline or is_large(raw) or is_document(raw, self.dialect) is False:
            return False
        if not self._look(raw) and (self.call is None or not self._read(self.call, headers, raw)):
            return False
        self.headers, self.raw, self.complete = headers, raw, True
        self.begun.state.sent += 1
        return True

    def hear_stream(self, dice: Callable[[], float]) -> bool | None:
        """Something of a stream has arrived. True: its first words, and `begun.stream` has begun. False: not yet. None:
        the long way must go on, with `begun.stream` if there is one."""
        begun, call = self.begun, self.call
        connection, spec = begun.asked.connection, begun.state.spec
        if connection.error is not None or connection.closed or call is None:
            return None
        if begun.stream is not None:
            return begun.stream.hear_first_words(self._deadline)
        if connection.status != 200 or not is_stream(connection, call):
            return None
        first_s = min(self._deadline - begun.began, spec.timeouts.first_s)
        opened = self._opened = self._opened or Opened(connection, spec.timeouts, first_s, self._pool, spec.caps)
        if not connection.waiting:
            opened.says_nothing_yet()
            return False
        state, target, key = begun.state, begun.target, begun.key
        begun.stream = UpstreamAnswer(
            self._client, self._request, state, target, key, call, clock=self._clock, dice=dice
        )
        begun.stream.open_stream(begun, opened)
        return begun.stream.hear_first_words(self._deadline)

    def end_waiting(self) -> None:
        """Nothing has come in time. If a stream has opened and says nothing, that is an error for the long way."""
        begun = self.begun
        if self._opened is not None and (begun.stream is None or begun.stream.says_nothing):
            connection = begun.asked.connection
            connection.error = connection.error or TimeoutError()

    def _look(self, raw: bytes) -> bool:
        """Whether the answer can stay as it is, from a quick look."""
        look, call = self.dialect.look_at_reply, self.call
        found = look(raw) if look is not None and (call is None or call.as_is) else None
        if found is None:
            return False
        if call is None and (found.usage is None or (found.usage.input is None and found.usage.output is None)):
            return False  # where a provider counts nothing, we estimate
        self.usage, self.as_is, self.plain = found.usage, True, True
        return True

    def _read(self, call: UpstreamCall, headers: dict[str, str], raw: bytes) -> bool:
        """Reads the answer. False: it is not what was asked for, or it is an error. The long way meets that again."""
        try:
            reply, whole = decode_whole(headers, raw, self.dialect, call.notes, call.spelling is not None)
            self.usage = reply.usage
            self._reply, self.as_is = take_whole(call, reply, whole=whole)
        except Exception:
            self.call = None  # what it knows of the answer is half an answer
            return False
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
        connection.end_answer()
        if connection.reusable:
            self._pool.give_back(connection)
        else:
            connection.close()
        state.take_success(begun.key, self.target.model, now, self._client)
        if state.suspects:
            state.suspects.pop(hash(self._request), None)
        tokens = None if state.admission.tpm is None else count_all(self.usage)
        state.admission_waiter.leave(begun.ticket, sent=True, tokens=tokens)
        state.budget.in_flight -= 1

    # ---- the rest of an OpenAnswer

    @property
    def reply(self) -> Reply | None:
        if self._reply is None:
            reply = decode_whole(self.headers, self.raw, self.dialect, self.notes)[0]
            self._reply = reply if self.call is None else self.call.take_reply(reply)
        return self._reply

    async def next(self) -> Piece | None:
        return None


class CallPlan:
    """What is the same for all calls of one model with the same path and headers."""

    __slots__ = ("_known", "dialect", "headers", "path", "state", "target")

    def __init__(
        self, state: UpstreamState, target: Target, dialect: Dialect, path: str, headers: dict[str, str]
    ) -> None:
        self.state, self.target, self.dialect, self.path, self.headers = state, target, dialect, path, headers
        self._known: dict[int, tuple[RequestHead, Pool]] = {}  # by the number of the key

    def find_place(self, transport: Transport, key: Key) -> tuple[RequestHead, Pool]:
        """The head of the call, and the idle connections to its server."""
        known = self._known.get(key.number)
        if known is None:
            head = self.state.find_head(key, self.path, self.headers)
            known = self._known[key.number] = (head, transport.find_pool(head.place, self.state.spec.network))
        return known


def send_plain(
    plan: CallPlan,
    transport: Transport,
    body: bytes,
    call: UpstreamCall | None = None,
    *,
    request: bytes,
    client: str,
    tokens: int,
    deadline: float,
    clock: Callable[[], float],
    hear: Callable[[], bool],
) -> PlainCall | None:
    """Sends a call now; None if it would have to wait for a key, a place or a connection. `call`: what `body` is from,
    if it was written. `request`: the client's own body. `hear`: see `HttpConnection.listener`."""
    now, state, target = clock(), plan.state, plan.target
    key = state.pick(target.model, now, NO_KEYS)
    if key is None:
        return None
    waiter, ticket = state.admission_waiter, Ticket(client, tokens)
    if not waiter.enter_now(ticket, now):
        state.keys.put_back(key)
        return None
    head, pool = plan.find_place(transport, key)
    connection = pool.take()
    if connection is None:
        waiter.leave(ticket, sent=False)
        state.keys.put_back(key)
        return None
    state.budget.in_flight += 1
    state.breaker(key, target.model).begin(now)
    waiter.stamp(ticket)
    asked = SentRequest(connection, connection.now())
    connection.ask(head.write(len(body)), body)
    connection.listener = hear
    begun = Begun(state, target, key, ticket, asked, now)
    return PlainCall(begun, pool, plan.dialect, call, request, body, client, deadline, clock)
