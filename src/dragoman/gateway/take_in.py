"""Takes a request in: its body is read, checked and decoded, charged to its key, and what it only refers to is added.

`take_in` does all of it. `read_now` and `admit_now` are the same steps for a request that need not wait for anything.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.accounts.grants import Holder
from dragoman.dialects._base import Dialect
from dragoman.dialects.canonical import NAME as CANONICAL
from dragoman.errors import DecodeError, DragomanError, LossError, UpstreamError
from dragoman.exchange import HOP, ClientRequest, read_request
from dragoman.gateway.access.charge import (
    begin_charge,
    bound_output,
    charge_at_once,
    charge_stored,
    check_other_models,
)
from dragoman.gateway.access.owners import check_names, find_names, makes_names
from dragoman.gateway.bodies import LoadedBody, check_cost, check_size, load_apart, load_body, read_body
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.kept_turns import has_none_kept, recall_turns
from dragoman.gateway.own_door import check_extras
from dragoman.gateway.routes.responses import fetch_items, resolve, stands_alone
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.jsontypes import MOST_VALUES, find_surrogates, mend_surrogates
from dragoman.known_turns.history import History, Hit, find_later
from dragoman.known_turns.read import count_parts, count_values, find_cuts, join, make_history, make_later, read_new
from dragoman.known_turns.settings import read_others
from dragoman.known_turns.write import know
from dragoman.model.request import Request
from dragoman.note_places import Place
from dragoman.notes import MOST_PLACES, Locate, Note, Notes
from dragoman.passes.prepare import KeptSettings
from dragoman.passes.turns import join_pieces
from dragoman.reasoning_state.envelope import has_mark
from dragoman.reasoning_state.take_back import take_back_state
from dragoman.upstream.attempts import MANY_BRACES, is_large, off_loop
from dragoman.wire import WireRequest

ToSent: TypeAlias = Callable[[Place], Place]
HALF = "half of a surrogate pair became U+FFFD"
LEAST_TURNS = 3  # turns of a shorter request are not remembered


async def take_in(scope: Scope, path: str, raw: bytes | None = None, to_sent: ToSent | None = None) -> None:
    """Reads, checks and decodes a client's request."""
    if raw is None:
        raw = await read_body(scope.http, scope.now.settings)
    client_request = read_now(scope, raw, path) if to_sent is None else None
    if client_request is not None:
        scope.client_request = client_request
    elif to_sent is None and remembers_turns(scope):
        scope.client_request = await take_in_turns(scope, path, raw)
    else:
        scope.size, scope.large = len(raw), is_large(raw)
        if scope.keep:
            scope.raw = raw  # set first: X-ray also shows bodies that cannot be read
        scope.client_request = await off_loop(scope.large, decode, scope, raw, path, to_sent)
    await admit(scope, scope.client_request)


def read_now(scope: Scope, raw: bytes, path: str) -> ClientRequest | None:
    """Reads a request. None: that takes so long that others must not wait for it."""
    scope.size = len(raw)
    if scope.keep:
        scope.raw = raw  # set first: X-ray also shows bodies that cannot be read
    if is_large(raw):
        return None
    return read_turns_now(scope, raw, path) if remembers_turns(scope) else decode(scope, raw, path)


async def admit(scope: Scope, client_request: ClientRequest) -> None:
    """Charges a request to its key, and adds what it only refers to."""
    http, request = scope.http, client_request.request
    scope.model = request.model
    await begin_charge(scope, scope.size // CHARS_PER_TOKEN, request.max_output, request.choices or 1)
    client_request.counted = scope.charge is not None and scope.charge.books is not None
    if http.holder is not None:
        check_other_models(scope.now, http.holder, request)
        await check_names(scope.gateway, http.holder, request, scope.dialect, large=scope.large)
        scope.makes_names = makes_names(request, scope.dialect)
    sent, size = request, scope.size
    stored = scope.dialect.stores_replies and not stands_alone(request)
    if stored:
        client_request = await take_in_items(scope, client_request)
    if scope.keeps_turns:
        client_request = await recall_turns(scope, client_request)
    if stored:
        kept = scope.gateway, http, client_request, scope.now
        scope.resolved = await resolve(*kept, large=scope.large)
        client_request, scope.size = scope.resolved.client_request, scope.size + scope.resolved.added
    scope.client_request = client_request
    if scope.size > size:
        await take_in_stored(scope, client_request.request, sent, size)


def admit_now(scope: Scope, client_request: ClientRequest) -> bool:
    """The same, if nothing of it has to wait or is refused. False: nothing was taken."""
    holder, request = scope.http.holder, client_request.request
    scope.model = request.model
    if (request.choices or 1) > 1 or (scope.dialect.stores_replies and not stands_alone(request)):
        return False
    if holder is not None and not admits_names(scope, holder, request):
        return False
    if scope.keeps_turns and not has_none_kept(scope, request):
        return False
    if not charge_at_once(scope, scope.size // CHARS_PER_TOKEN, bound_output(request.max_output)):
        return False
    client_request.counted = scope.charge is not None and scope.charge.books is not None
    return True


def admits_names(scope: Scope, holder: Holder, request: Request) -> bool:
    """Whether a key may ask for all that a request names. False: perhaps not."""
    try:
        check_other_models(scope.now, holder, request)
    except UpstreamError:
        return False
    scope.makes_names = makes_names(request, scope.dialect)
    return not find_names(request, items=scope.dialect.stores_replies)


async def take_in_stored(scope: Scope, request: Request, sent: Request, size: int) -> None:
    """What a request names by id counts as if the client had sent it. `sent`, `size`: what it did send."""
    limits = scope.now.settings.limits
    if len(request.messages) > limits.entries:
        raise DecodeError(f"more than {limits.entries} messages, with those of stored responses")
    check_size(request, limits)
    scope.large = scope.large or sum([len(message.parts) for message in request.messages]) > MANY_BRACES
    added = (scope.size - size) // CHARS_PER_TOKEN
    await charge_stored(scope, scope.size // CHARS_PER_TOKEN, added, sent.max_output)


async def take_in_items(scope: Scope, client_request: ClientRequest) -> ClientRequest:
    """With the items of stored responses that it only refers to, and the reasoning state in them."""
    found, size = await fetch_items(scope.gateway, scope.http.key_id, client_request)
    scope.size += size
    if found is client_request or scope.dialect.slots is None:
        return found
    restored = take_back_state(found.request, scope.dialect.slots, scope.state_key, Notes())
    return replace(found, request=restored)


def remembers_turns(scope: Scope) -> bool:
    return scope.dialect.decode_turns is not None and scope.gateway.known_turns.most_bytes > 0


def read_turns_now(scope: Scope, raw: bytes, path: str) -> ClientRequest | None:
    """The same as `take_in_turns` for a request that is not large. None: an earlier one, which must be read, is."""
    gateway, owner = scope.gateway, (scope.http.key_id, scope.dialect.name)
    alike = gateway.known_turns.find_alike(owner, raw)
    later = find_later(alike, raw)
    if later is not None:
        if is_large(later.raw):
            return None
        find_cuts(later)
    hit = gateway.known_turns.find(alike, raw, gateway.clock())
    found = None if hit is None else decode_turns(scope, raw, path, hit)
    client_request, history = found or decode_all_turns(scope, raw, path)
    if history is not None:
        gateway.known_turns.keep(owner, history, gateway.clock(), instead=None if hit is None else hit.history)
    return client_request


async def take_in_turns(scope: Scope, path: str, raw: bytes) -> ClientRequest:
    """Reads a request, but not the turns that came in an earlier one of the same client."""
    gateway, owner = scope.gateway, (scope.http.key_id, scope.dialect.name)
    alike = gateway.known_turns.find_alike(owner, raw)
    later = find_later(alike, raw)
    if later is not None:
        await off_loop(is_large(later.raw), find_cuts, later)
    hit = gateway.known_turns.find(alike, raw, gateway.clock())
    found: tuple[ClientRequest, History | None] | None = None
    if hit is not None:
        found = await off_loop(is_large(hit.new or hit.short), decode_turns, scope, raw, path, hit)
    if found is None or found[0].known is None or not found[0].known.history.chunks:
        scope.large = is_large(raw)  # reading and writing it takes long
    if found is None and scope.large:
        found = await off_loop(True, decode_all_turns, scope, raw, path)
    client_request, history = found or decode_all_turns(scope, raw, path)
    if history is not None:
        gateway.known_turns.keep(owner, history, gateway.clock(), instead=None if hit is None else hit.history)
    return client_request


def decode_turns(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest, History | None] | None:
    """Reads a request without its known turns. Also returns the turns that the next request may begin with. None: the
    whole body must be read."""
    client_request, ends = decode_known(scope, raw, path, hit)
    return None if client_request is None else remember_turns(client_request, hit, ends)


def decode_all_turns(scope: Scope, raw: bytes, path: str) -> tuple[ClientRequest, History | None]:
    return remember_turns(decode(scope, raw, path))


def remember_turns(
    client_request: ClientRequest, hit: Hit | None = None, ends: list[int] | None = None
) -> tuple[ClientRequest, History | None]:
    """The request, and the turns that the next request may begin with."""
    request = client_request.request
    if not client_request.same_wire or client_request.notes or len(request.messages) < LEAST_TURNS:
        return client_request, None
    raw, dialect = client_request.raw, client_request.dialect
    history = make_later(raw, request, dialect) if hit is None else None
    if history is None:
        history = make_history(raw, request, dialect, hit, ends)
    if history is not None:
        history.headers = client_request.headers
    client_request.known = know(hit, history, request)
    return client_request, history


def decode_known(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest | None, list[int] | None]:
    """Reads a request without its known turns and puts these back. None: the whole body must be read. Also returns
    where the new turns end in the body, if nothing else was read."""
    limits = scope.now.settings.limits
    if count_values(raw, hit) > MOST_VALUES:
        return None, None
    found, ends = decode_new(scope, raw, path, hit)
    if found is None:
        try:
            found = decode(scope, hit.short, path)
        except DragomanError:  # the slow path raises it again, with the place in the whole body
            return None, None
        joined = join(hit, found.request, scope.dialect) if found.same_wire and not found.notes else None
        if joined is None:
            return None, None
        found = replace(found, request=joined, decoded=joined, raw=raw)
    if len(found.request.messages) > limits.entries:
        return None, None
    if count_parts(found.request, hit) > limits.entries:  # seldom: to count them all takes time
        check_size(found.request, limits)
    return found, ends


def decode_new(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest | None, list[int] | None]:
    """Reads a request of which only turns are new. Also returns where they end in the body."""
    headers = own_headers(scope.dialect, scope.http)
    if hit.new is None or headers != hit.history.headers or has_mark(hit.new):
        return None, None
    request, ends = read_new(hit, scope.dialect) or (None, None)
    if request is None:
        return None, None
    return ClientRequest(
        dialect=scope.dialect,
        request=request,
        decoded=request,
        raw=raw,
        headers=headers,
        path=path,
        hops=read_hops(scope.http),
        id=scope.http.unique_id,
    ), ends


def decode(scope: Scope, raw: bytes, path: str, to_sent: ToSent | None = None) -> ClientRequest:
    headers = own_headers(scope.dialect, scope.http)
    notes = Notes(scope.refuse)
    find = scope.dialect.locate_request
    locate: Locate | None = None if to_sent is None else lambda value, place: to_sent(find(value, place))
    plain = scope.dialect.read_plain_request(raw) if scope.dialect.read_plain_request is not None else None
    settings: KeptSettings | None = None
    if plain is not None and len(plain.messages) <= scope.now.settings.limits.entries:  # fast path: plain request
        notes.begin("request", locate or find)
        request = notes.stage(plain)
    else:
        raw, request, settings = _decode_each(scope, raw, path, headers, notes, locate)
    restored = notes.stage(join_pieces(request, notes)) if scope.dialect.keeps_pieces else request
    if scope.dialect.slots is not None and has_mark(raw):
        restored = take_back_state(restored, scope.dialect.slots, scope.state_key, notes)
    return ClientRequest(
        dialect=scope.dialect,
        request=restored,
        decoded=request,
        kept=None if settings is None else (request, settings),
        same_wire=restored is request,
        raw=raw,
        headers=headers,
        notes=tuple(notes.read(MOST_PLACES)) if len(notes) else (),
        path=path,
        locate=locate,
        hops=read_hops(scope.http),
        id=scope.http.unique_id,
    )


def _decode_each(
    scope: Scope, raw: bytes, path: str, headers: dict[str, str], notes: Notes, locate: Locate | None
) -> tuple[bytes, Request, KeptSettings | None]:
    """Reads a request key by key. Also returns its bytes, which may have been repaired, and its settings if they came
    before."""
    dialect, limits = scope.dialect, scope.now.settings.limits
    owner = scope.http.key_id, dialect.name
    found = scope.gateway.known_settings.find(owner, raw, headers, dialect)
    if found is not None:
        check_cost(raw)
        request = read_others(found, dialect)
        if request is not None and len(request.messages) <= limits.entries:  # fast path: settings known
            check_size(request, limits)
            notes.begin("request", locate or dialect.locate_request)
            return raw, notes.stage(request), found.settings
    raw, body = _load(raw, scope, notes, usual=found is None)
    usual = type(body.values.get(dialect.messages_key)) is tuple
    try:
        request = read_request(dialect, WireRequest(body=body.values, path=path, headers=headers), notes, locate)
    except RecursionError as error:
        raise DecodeError("nested too deeply") from error
    if body.tools_text and request.tools and not len(notes) and not dialect.has_other_tools(request):
        scope.gateway.known_tools.keep(owner, body.tools_text, request.tools)
    if dialect.name == CANONICAL and request.extras:
        check_extras(request)
    need_messages(request, dialect)
    check_size(request, limits)
    if usual and body.spans is not None and not len(notes):
        scope.gateway.known_settings.keep(owner, raw, body.spans, headers, request, dialect)
    return raw, request, None


def _load(raw: bytes, scope: Scope, notes: Notes, *, usual: bool) -> tuple[bytes, LoadedBody]:
    """The body as bytes and as JSON. Half a surrogate pair is JSON, but no text that servers take: it is replaced.
    `usual`: its turns may be usual."""
    limits = scope.now.settings.limits
    owner = scope.http.key_id, scope.dialect.name
    try:
        if not scope.dialect.tools_keys:
            return raw, LoadedBody(load_body(raw, limits))
        return raw, load_apart(raw, limits, scope.dialect, scope.gateway.known_tools, owner, usual=usual)
    except DecodeError:
        mended = mend_surrogates(raw)
        if mended is None:
            raise
    for where in find_surrogates(raw):
        if "repaired" in scope.refuse:
            raise LossError(where, HALF)
        notes.extend([Note("repaired", where, HALF)])
    return mended, LoadedBody(load_body(mended, limits))


def need_messages(request: Request, dialect: Dialect) -> None:
    """Refuses a request without messages, as every provider does. But Ollama loads a model then, and others may go on
    with a conversation that a server keeps."""
    if request.messages or dialect.encode_loaded is not None:
        return
    own = request.extras.get(dialect.name, {})
    state_keys = {*dialect.profile.state_keys, *(kept.key for kept in dialect.kept_state)}
    if not any(own.get(key) is not None for key in state_keys):
        raise DecodeError("expected at least one message", dialect.messages_key)


def own_headers(dialect: Dialect, http: HttpRequest) -> dict[str, str]:
    """The headers of a request that belong to its dialect."""
    known = http.facts.carried
    if known is None or known[0] is not dialect:
        found = {name: http.headers[name] for name in dialect.carried_headers if name in http.headers}
        known = http.facts.carried = (dialect, found)
    return known[1]


def read_hops(http: HttpRequest) -> int:
    hops = http.facts.hops
    if hops is None:
        header = http.headers.get(HOP, "")
        hops = http.facts.hops = int(header) if header.isdigit() and len(header) < 5 else 0
    return hops
