"""PlainWay: a small request through the gateway in few steps, if all about it is usual.

It is for a request of one or two texts to a server that takes the client's own bytes, with a free place and an idle
connection, whose answer can be passed on as it is. It follows a plan that the request before it made. Any other request
goes the direct way (direct_way.py); if its head is not usual, the long way from the beginning (`begin` returns None).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from dragoman.accounts.prices import ModelPrice
from dragoman.dialects._base import Dialect, PlainRequest
from dragoman.dialects._seals import WORD, without_side
from dragoman.dialects.canonical import NAME as CANONICAL
from dragoman.exchange import HOP, Destination, put_model
from dragoman.gateway.access.charge import bound_output, charge_at_once, uncharge
from dragoman.gateway.client_exchange import ClientExchange
from dragoman.gateway.conversation import Targets, answer_with, rate_headers, respond_whole
from dragoman.gateway.direct_way import Answerer, Way, begin_direct
from dragoman.gateway.error_responses import refuse
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse
from dragoman.gateway.kept_turns import recall_turns
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.take_in import decode, own_headers
from dragoman.model.request import Request
from dragoman.passes.prepare import leaves_alone, leaves_texts_alone
from dragoman.passes.system import BILLING
from dragoman.reasoning_state.envelope import has_mark
from dragoman.upstream.http.request import write_head
from dragoman.upstream.plain_call import CallPlan, PlainCall, send_plain
from dragoman.upstream.render import find_destination
from dragoman.upstream.spec import DEMO

MOST_PLANS = 16
LONGEST_NAME = 200  # of a model that is planned for
ID_HEADER = "x-request-id"
BILL = BILLING.encode()
LookAtRequest: TypeAlias = Callable[[bytes], PlainRequest | None]
MOST_TURNS = 2  # of a longer conversation the next turn is expected: known_turns/ remembers it


class PlainHead:
    """What is the same for all requests with one head, as long as the configuration stays."""

    __slots__ = ("call_headers", "dialect", "door", "look", "now", "path", "plans")

    def __init__(
        self, now: Generation, http: HttpRequest, dialect: Dialect, look: LookAtRequest | None, path: str, door: str
    ) -> None:
        """`look`: None if no request with this head is sent as it is."""
        self.now, self.dialect, self.look, self.path, self.door = now, dialect, look, path, door
        self.call_headers = {**dialect.default_headers, **own_headers(dialect, http), HOP: "1"}
        self.plans: dict[PlainRequest, Plan] = {}


class Plan:
    """What is the same for requests with one head that differ in their texts only. It holds as long as their model
    leads to the same targets, and the profile of the first one has not changed."""

    __slots__ = ("call", "each", "intro", "price", "rated", "targets", "to")

    def __init__(self, call: CallPlan, targets: Targets, to: Destination, price: ModelPrice | None, each: bool) -> None:
        self.call, self.targets, self.to, self.price = call, targets, to, price
        self.each = each  # their texts decide as well
        self.rated: dict[tuple[str, ...], bool] = {}  # by names of headers: whether they say what is left of a limit
        upstream = f"{call.target.upstream.name}/{call.target.model}"
        self.intro = write_head("HTTP/1.1 200 OK", {"x-dragoman-upstream": upstream})[:-2]  # of the answer's head

    def says_rates(self, headers: dict[str, str]) -> bool:
        """Whether an answer has headers that are passed on."""
        names = tuple(headers)
        known = self.rated.get(names)
        if known is None:
            if len(self.rated) >= MOST_PLANS:
                self.rated.clear()
            known = self.rated[names] = bool(rate_headers(headers, self.to.dialect))
        return known


class PlainWay(Way):
    __slots__ = ("_plan",)

    def __init__(
        self, answerer: Answerer, exchange: ClientExchange, head: PlainHead, plan: Plan, scope: Scope, body: bytes
    ) -> None:
        super().__init__(answerer, exchange, head.path, scope, body)
        self._plan, self._targets = plan, plan.targets

    def hear(self) -> bool:
        call, scope = self._sent, self._scope
        if call is None or not call.take():
            return False  # the wait ends, and `_stop` is called
        scope.attempts.append(call.make_attempt(keep_wire=scope.keep))
        scope.answer = call
        try:
            quota = scope.write_quota_lines()
            if self._is_usual(call, quota):  # fast path: written head
                head, self._sent = self._write_head(call, quota), None
                self._answerer.end_written(self._exchange, head, call.raw)
                return True
            response = respond_whole(scope, call.raw)
        except Exception as error:
            response = refuse(scope.gateway, scope.http, scope.dialect, error)
        self.end(response)
        return True

    def _is_usual(self, call: PlainCall, quota: str) -> bool:
        """Whether nothing about the answer asks for another head than that of the plan."""
        scope = self._scope
        if scope.dialect.request_id_header != ID_HEADER:
            return False
        if scope.charge is not None and scope.charge.warning:
            return False
        return bool(quota) or not self._plan.says_rates(call.headers)

    def _write_head(self, call: PlainCall, quota: str) -> bytes:
        """As `respond_whole` does. The last fields of the head are the connection's."""
        scope = self._scope
        scope.status = 200
        scope.take_usage(call.usage, self._plan.price)
        if scope.keep:
            scope.keep_sent(call.raw)
        scope.record()
        cost, words = scope.cost_text, f"{quota}content-type: {JSON_TYPE}\r\n"
        if cost:
            words += f"x-dragoman-cost: {cost}\r\n"
        return b"%b%bx-request-id: %b\r\n" % (self._plan.intro, words.encode(), scope.http.id.encode())

    async def go_on(self) -> HttpResponse:
        scope, call, self._sent = self._scope, self._sent, None
        scope.client_request = decode(scope, self._body, self._path)
        if scope.keeps_turns:
            scope.client_request = await recall_turns(scope, scope.client_request)
        return await answer_with(scope, None if call is None else call.begun, targets=self._targets)


def begin(gateway: Gateway, answerer: Answerer, exchange: ClientExchange, new_id: Callable[[], str]) -> Way | None:
    """Sends a request, or reads it at least, if its head is usual. None: nothing was done."""
    http = exchange.http
    head = find_plain_head(gateway, http)
    if head is None or not exchange.keep or gateway.draining:
        return None
    body = exchange.peek()
    if body is None or not head.now.access.lets_in(http):
        return None
    look = head.look(body) if head.look is not None else None
    if look is not None and not has_mark(body) and BILL not in body:
        way = begin_plain(gateway, answerer, exchange, new_id, head, look, body)
        if way is not None:
            return way
    return begin_direct(gateway, answerer, exchange, new_id, head.dialect, head.path, head.door, body)


def begin_plain(
    gateway: Gateway,
    answerer: Answerer,
    exchange: ClientExchange,
    new_id: Callable[[], str],
    head: PlainHead,
    look: PlainRequest,
    body: bytes,
) -> PlainWay | None:
    """Sends the client's own bytes. None: nothing was done."""
    http = exchange.http
    targets = head.now.targets(look.model, gateway.dice)
    plan = head.plans.get(look)
    if plan is None or plan.targets is not targets or find_call(plan.call) is not plan.to:
        plan = make_plan(head, look, targets, body)
        if plan is None:
            return None
    if plan.each and not leaves_alone(read_plain(head.dialect, body), plan.to.profile):
        return None
    http.id = http.unique_id = new_id()
    scope = Scope(gateway, http, head.dialect, head.door)
    scope.size, scope.model = len(body), look.model
    if scope.keep:
        scope.raw, scope.request = body, partial(read_plain, head.dialect, body)
    tokens, output = len(body) // CHARS_PER_TOKEN, bound_output(look.max_output)
    if not charge_at_once(scope, tokens, output):
        return None
    way = PlainWay(answerer, exchange, head, plan, scope, body)
    deadline = scope.started + head.now.settings.deadline_s
    call = send_plain(
        plan.call,
        gateway.transport,
        write_body(body, plan.call.target.model, look.model),
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


def make_plan(head: PlainHead, look: PlainRequest, targets: Targets, body: bytes) -> Plan | None:
    """None if such a request must go the long way."""
    if look.streamed or len(look.roles) > MOST_TURNS or "assistant" in look.roles or not look.model or not targets:
        return None
    state, target = targets[0]
    if state.spec.kind == DEMO or target.effort is not None:
        return None
    call = CallPlan(state, target, head.dialect, head.path, head.call_headers)
    to = find_call(call)
    profile = to.profile
    if to.dialect is not head.dialect or not profile.native or profile.think_tags:
        return None
    alone = leaves_texts_alone(read_plain(head.dialect, body), profile)
    if alone is False:
        return None
    upstream = target.upstream
    price = head.now.prices.find(upstream.name, upstream.kind, target.model)
    plan = Plan(call, targets, to, price, alone is None)
    if len(look.model) <= LONGEST_NAME:  # clients choose it
        if len(head.plans) >= MOST_PLANS:
            head.plans.clear()
        head.plans[look] = plan
    return plan


def write_body(body: bytes, model: str, asked: str) -> bytes:
    """A body without a mark of ours, for a model of a server."""
    sent = body if model == asked else put_model(body, model, asked)
    return without_side(sent) if WORD in body else sent


def find_call(call: CallPlan) -> Destination:
    return find_destination(call.state, call.dialect.name, call.target.model)


def read_plain(dialect: Dialect, body: bytes) -> Request:
    """A request that `look_at_request` has found plain."""
    request = dialect.read_plain_request(body) if dialect.read_plain_request is not None else None
    if request is None:
        raise ValueError("a plain request is not read")
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
    if match is not None and match.route.door.serves == "conversation":
        dialect = match.route.dialect
        if _is_usual(gateway, http, dialect):
            look = dialect.look_at_request if _goes_as_is(now, dialect) else None
            head = PlainHead(now, http, dialect, look, match.path(http.query), match.route.name)
    facts.plain = (now, head)
    return head


def _is_usual(gateway: Gateway, http: HttpRequest, dialect: Dialect) -> bool:
    now = gateway.now
    if any(name.startswith("x-dragoman-") or name in UNUSUAL for name in http.headers):
        return False
    if gateway.traces is not None or now.settings.mcp.default or now.access.tokens is not None:
        return False
    return dialect.name != CANONICAL


def _goes_as_is(now: Generation, dialect: Dialect) -> bool:
    if now.chooses_by_more_than_the_model or now.settings.limits.entries < MOST_TURNS or dialect.kept_state:
        return False
    return dialect.look_at_reply is not None and dialect.put_model is None and dialect.encode_loaded is None


UNUSUAL = frozenset({"x-request-id", "content-encoding", "origin"})
