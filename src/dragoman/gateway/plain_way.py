"""PlainWay: a small request through the gateway without a task, if all about it is usual.

It is for a request of one or two texts to a server that takes the client's own bytes, with a free place and an idle
connection, whose answer can be passed on as it is. Then nothing has to wait but the connection, which calls back.
Anything else goes the long way from the beginning (`begin` returns None), or from where it is (`go_on`).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from dragoman.dialects._base import Dialect
from dragoman.dialects._seals import without_side
from dragoman.exchange import HOP, put_model
from dragoman.gateway.access.charge import bound_output, charge_at_once, uncharge
from dragoman.gateway.client_exchange import ClientExchange
from dragoman.gateway.conversation import answer_with, decode, own_headers, respond_whole
from dragoman.gateway.error_responses import refuse
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.kept_turns import recall_turns
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway, Generation
from dragoman.model.request import Request
from dragoman.passes.prepare import leaves_alone
from dragoman.reasoning_state.envelope import has_mark
from dragoman.upstream.plain_call import PlainCall, send_plain
from dragoman.upstream.render import find_destination
from dragoman.upstream.spec import DEMO

MOST_TURNS = 2  # of a longer conversation the next turn is expected: known_turns/ remembers it


class PlainHead:
    """What is the same for all requests with one head, as long as the configuration stays."""

    __slots__ = ("call_headers", "dialect", "door", "now", "path")

    def __init__(self, now: Generation, http: HttpRequest, dialect: Dialect, path: str, door: str) -> None:
        self.now, self.dialect, self.path, self.door = now, dialect, path, door
        self.call_headers = {**dialect.default_headers, **own_headers(dialect, http), HOP: "1"}


class Answerer(Protocol):
    """What a PlainWay needs of its ClientConnection."""

    loop: asyncio.AbstractEventLoop

    def end_plain(self, exchange: ClientExchange, response: HttpResponse) -> None:
        """Writes the answer and ends the request."""

    def take_over(self, exchange: ClientExchange) -> None:
        """The request goes on as a task: `PlainWay.go_on`."""


class PlainWay:
    __slots__ = ("_answerer", "_body", "_call", "_exchange", "_head", "_left", "_scope")

    def __init__(
        self, answerer: Answerer, exchange: ClientExchange, head: PlainHead, scope: Scope, body: bytes
    ) -> None:
        self._answerer, self._exchange, self._head, self._scope, self._body = answerer, exchange, head, scope, body
        self._call: PlainCall | None = None
        self._left = False

    def wait(self, call: PlainCall, seconds: float) -> None:
        self._call = call
        call.begun.asked.connection.wait(seconds).add_done_callback(self._stop)

    def hear(self) -> bool:
        """Bytes of the answer have arrived, or its end or an error. True: the client has its answer."""
        call, scope = self._call, self._scope
        if call is None or not call.take():
            return False  # the wait ends, and `_stop` is called
        self._call = None
        scope.attempts.append(call.make_attempt(keep_wire=scope.keep))
        scope.answer = call
        try:
            response = respond_whole(scope, call.raw)
        except Exception as error:
            response = refuse(scope.gateway, scope.http, scope.dialect, error)
        headers = response.headers
        headers["x-request-id"] = headers[scope.dialect.request_id_header] = scope.http.id
        self._answerer.end_plain(self._exchange, response)
        return True

    def _stop(self, waiter: "asyncio.Future[None]") -> None:
        """Something unusual has come, or nothing in time."""
        waiter.exception()  # the long way will meet it again
        self.leave()

    def leave(self) -> None:
        """The request goes on as a task."""
        if self._call is not None and not self._left:
            self._left = True
            self._call.begun.asked.connection.stop_waiting()
            self._answerer.take_over(self._exchange)

    async def go_on(self) -> HttpResponse:
        """The rest of the request, the long way."""
        scope, call, self._call = self._scope, self._call, None
        scope.client_request = decode(scope, self._body, self._head.path)
        if scope.keeps_turns:
            scope.client_request = await recall_turns(scope, scope.client_request)
        return await answer_with(scope, None if call is None else call.begun)


def begin(gateway: Gateway, answerer: Answerer, exchange: ClientExchange, new_id: Callable[[], str]) -> PlainWay | None:
    """Sends a request, if nothing about it is unusual. None: nothing was done."""
    http = exchange.http
    head = find_plain_head(gateway, http)
    if head is None or not exchange.keep or gateway.draining:
        return None
    body = exchange.peek()
    request = read_plain(head.dialect, body) if body is not None else None
    if body is None or request is None or not head.now.access.lets_in(http):
        return None
    targets = head.now.targets(request.model, gateway.dice)
    if not targets:
        return None
    state, target = targets[0]
    if state.spec.kind == DEMO or target.effort is not None:
        return None
    to = find_destination(state, head.dialect.name, target.model)
    profile = to.profile
    if to.dialect is not head.dialect or not profile.native or profile.think_tags or not request.model:
        return None
    if not leaves_alone(request, profile):
        return None
    http.id = http.unique_id = new_id()
    scope = Scope(gateway, http, head.dialect, head.door)
    scope.size, scope.model = len(body), request.model
    if scope.keep:
        scope.raw, scope.request = body, request
    tokens, output = len(body) // CHARS_PER_TOKEN, bound_output(request.max_output)
    if not charge_at_once(scope, tokens, output):
        return None
    way = PlainWay(answerer, exchange, head, scope, body)
    deadline = scope.started + head.now.settings.deadline_s
    call = send_plain(
        gateway.transport,
        state,
        target,
        head.dialect,
        head.path,
        head.call_headers,
        without_side(put_model(body, target.model, request.model)),
        request=body,
        client=http.key_id or http.client,
        tokens=tokens + (output or 0),
        deadline=deadline,
        clock=gateway.clock,
        hear=way.hear,
    )
    if call is None:
        uncharge(scope)
        return None
    http.scope = scope
    way.wait(call, deadline - gateway.clock())
    return way


def read_plain(dialect: Dialect, body: bytes) -> Request | None:
    """One or two texts, none of them said by the model, that are to be answered as a whole."""
    read = dialect.read_plain_request
    request = read(body) if read is not None and not has_mark(body) else None
    if request is None or request.stream or len(request.messages) > MOST_TURNS:
        return None
    for message in request.messages:
        if message.role == "assistant":
            return None
    return request


def find_plain_head(gateway: Gateway, http: HttpRequest) -> PlainHead | None:
    """None if a request with this head must go the long way."""
    now, facts = gateway.now, http.facts
    known = facts.plain
    if known is not None and known[0] is now:
        return known[1]
    if facts.judged_by is not now.access:
        return None  # no request with this head has gone the long way yet
    match = facts.match
    head: PlainHead | None = None
    if (
        match is not None
        and match.route.door.serves == "conversation"
        and _is_usual(gateway, http, match.route.dialect)
    ):
        head = PlainHead(now, http, match.route.dialect, match.path(http.query), match.route.name)
    facts.plain = (now, head)
    return head


def _is_usual(gateway: Gateway, http: HttpRequest, dialect: Dialect) -> bool:
    now, settings = gateway.now, gateway.now.settings
    if any(name.startswith("x-dragoman-") or name in UNUSUAL for name in http.headers):
        return False
    if gateway.traces is not None or settings.mcp.default or now.access.tokens is not None:
        return False
    if now.chooses_by_more_than_the_model or settings.limits.entries < MOST_TURNS or dialect.kept_state:
        return False
    if dialect.look_at_reply is None or dialect.put_model is not None or dialect.stores_replies:
        return False
    return dialect.encode_loaded is None


UNUSUAL = frozenset({"x-request-id", "content-encoding", "origin"})
