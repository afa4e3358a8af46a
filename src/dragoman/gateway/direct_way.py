"""DirectWay: a request through the gateway without a task, if nothing has to wait but the connection to its server.

The request is read, checked, written and sent in the callback that brought it, and its whole answer is written in the
callback that brought that: the same steps as the long way has (conversation.py), without waiting. Where one of them
would have to wait, or meets an error, the request goes on as a task from where it is (`go_on`). So does a stream, once
its first words have been read.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from dragoman.dialects._base import Dialect
from dragoman.exchange import ClientRequest, UpstreamCall
from dragoman.gateway.access.charge import bound_output
from dragoman.gateway.client_exchange import ClientExchange
from dragoman.gateway.conversation import (
    Targets,
    answer_with,
    keep_state,
    respond,
    respond_whole,
    whole_now,
)
from dragoman.gateway.error_responses import refuse
from dragoman.gateway.http import HttpResponse
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway
from dragoman.gateway.take_in import admit, admit_now, read_now, take_in
from dragoman.upstream.plain_call import CallPlan, PlainCall, send_plain
from dragoman.upstream.render import render
from dragoman.upstream.spec import DEMO


class Answerer(Protocol):
    """What a way needs of its ClientConnection."""

    loop: asyncio.AbstractEventLoop

    def end_plain(self, exchange: ClientExchange, response: HttpResponse) -> None:
        """Writes the answer and ends the request."""

    def end_written(self, exchange: ClientExchange, head: bytes, body: bytes) -> None:
        """The same with a head that is written already, but for its last fields."""

    def take_over(self, exchange: ClientExchange) -> None:
        """The request goes on as a task: `go_on`."""


class Way(ABC):
    """A request that was sent without a task."""

    __slots__ = ("_answerer", "_body", "_exchange", "_left", "_path", "_scope", "_sent", "_targets")

    def __init__(self, answerer: Answerer, exchange: ClientExchange, path: str, scope: Scope, body: bytes) -> None:
        self._answerer, self._exchange, self._path, self._scope = answerer, exchange, path, scope
        self._body = body
        self._sent: PlainCall | None = None
        self._targets: Targets | None = None  # that the request was written for
        self._left = False

    @property
    def waits(self) -> bool:
        """Whether the request was sent. Otherwise it is to go on as a task."""
        return self._sent is not None

    def wait(self, sent: PlainCall, seconds: float) -> None:
        self._sent = sent
        sent.begun.asked.connection.wait(seconds).add_done_callback(self._stop)

    @abstractmethod
    def hear(self) -> bool:
        """Bytes of the answer have arrived, or its end or an error. True: they were dealt with."""

    @abstractmethod
    async def go_on(self) -> HttpResponse:
        """The rest of the request, the long way."""

    def end(self, response: HttpResponse) -> None:
        """Writes the answer and ends the request."""
        self._sent, scope, headers = None, self._scope, response.headers
        headers["x-request-id"] = headers[scope.dialect.request_id_header] = scope.http.id
        self._answerer.end_plain(self._exchange, response)

    def _stop(self, waiter: "asyncio.Future[None]") -> None:
        """Something unusual has come, or nothing in time."""
        if isinstance(waiter.exception(), TimeoutError) and self._sent is not None:
            self._sent.end_waiting()
        self.leave()  # the long way will meet it again

    def leave(self) -> bool:
        """The request goes on as a task."""
        if self._sent is not None and not self._left:
            self._left = True
            self._sent.begun.asked.connection.stop_waiting()
            self._answerer.take_over(self._exchange)
        return True


class DirectWay(Way):
    __slots__ = ("_admitted", "_error", "_written")

    def __init__(self, answerer: Answerer, exchange: ClientExchange, path: str, scope: Scope, body: bytes) -> None:
        super().__init__(answerer, exchange, path, scope, body)
        self._admitted = False
        self._error: Exception | None = None
        self._written: UpstreamCall | None = None  # not sent yet

    def send(self) -> None:
        """Takes as many steps as need no waiting. The last one sends the request."""
        scope = self._scope
        try:
            scope.client_request = read_now(scope, self._body, self._path)
            if scope.client_request is not None:
                self._body = b""  # a stream may be long: its request is not kept for so long
                self._admitted = admit_now(scope, scope.client_request)
            if scope.client_request is not None and self._admitted:
                self._write(scope, scope.client_request)
        except Exception as error:
            self._error = error

    def _write(self, scope: Scope, client_request: ClientRequest) -> None:
        request, gateway = client_request.request, scope.gateway
        if not request.messages and scope.dialect.encode_loaded is not None:
            return
        client = scope.http.key_id or scope.http.client
        targets = keep_state(request, scope.dialect, scope.now.route(request, client, gateway.dice))
        if not targets:
            return
        state, target = targets[0]
        if state.spec.kind == DEMO:
            return
        self._targets = targets
        stream = bool(request.stream)
        call = self._written = render(client_request, state, target, stream=stream, refuse=scope.refuse)
        timeouts, deadline = state.spec.timeouts, scope.started + scope.now.settings.deadline_s
        sent = send_plain(
            CallPlan(state, target, call.dialect, call.path, call.headers),
            gateway.transport,
            call.body,
            call,
            request=client_request.raw,
            client=client,
            tokens=scope.size // CHARS_PER_TOKEN + (bound_output(request.max_output) or 0),
            deadline=deadline,
            clock=gateway.clock,
            hear=self.hear if not stream else self.leave if scope.in_xray else self.hear_stream,
        )
        if sent is not None:
            self._written = None
            left = deadline - gateway.clock()
            self.wait(sent, min(left, timeouts.headers_s) if stream else left)

    def hear(self) -> bool:
        sent, scope = self._sent, self._scope
        if sent is None or not sent.take():
            return False  # the wait ends, and `_stop` is called
        scope.attempts.append(sent.make_attempt(keep_wire=scope.keep))
        scope.answer = sent
        try:
            body = whole_now(scope, sent)
            if body is None:
                return self.leave()
            upstream = sent.target.upstream
            scope.take_usage(sent.usage, scope.now.prices.find(upstream.name, upstream.kind, sent.target.model))
            response = respond_whole(scope, body)
        except Exception as error:
            response = refuse(scope.gateway, scope.http, scope.dialect, error)
        self.end(response)
        return True

    def hear_stream(self) -> bool:
        """The same for a stream, up to its first words."""
        sent, scope = self._sent, self._scope
        found = None if sent is None else sent.hear_stream(scope.gateway.dice)
        if sent is not None and found:
            scope.attempts.append(sent.make_attempt(keep_wire=False))
            scope.answer = sent.begun.stream
        return found is False or self.leave()

    async def go_on(self) -> HttpResponse:
        scope, sent, self._sent = self._scope, self._sent, None
        if self._error is not None:
            raise self._error
        call, self._written = self._written, None
        if scope.client_request is None:  # it takes long to read
            body, self._body = self._body, b""
            await take_in(scope, self._path, body)
        elif not self._admitted:
            await admit(scope, scope.client_request)
        if sent is None:
            return await answer_with(scope, call=call, targets=self._targets)
        if scope.answer is not None:  # a stream, or something of the answer is to be kept
            return await respond(scope, stream=scope.answer is not sent)
        return await answer_with(scope, sent.begun, sent.call, self._targets)


def begin_direct(
    gateway: Gateway,
    answerer: Answerer,
    exchange: ClientExchange,
    new_id: Callable[[], str],
    dialect: Dialect,
    path: str,
    door: str,
    body: bytes,
) -> DirectWay:
    """Sends a request whose head is usual, or reads it at least."""
    http = exchange.http
    http.id = http.unique_id = new_id()
    scope = http.scope = Scope(gateway, http, dialect, door)
    way = DirectWay(answerer, exchange, path, scope, body)
    way.send()
    exchange.take()
    return way
