"""A canonical value written in a dialect and read back: what differs, and no note says so."""

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect, jsonrpc
from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event
from dragoman.model.fold import fold, unfold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.laws.compare import differences

ASKED = {name: find_dialect(name) for name in NAMES}
# A dialect of clients: no request is written in it, and what it reads of an answer is the result alone.
JSONRPC = replace(jsonrpc.dialect_for(1), encode_reply=jsonrpc.encode_reply)
ANSWERED = {**ASKED, "jsonrpc": JSONRPC}


def request_differences(request: Request, there: Dialect) -> list[str]:
    """After the passes: what they change is theirs to note."""
    return legal_differences(make_legal(request, there, Notes()), there)


def legal_differences(legal: Request, there: Dialect) -> list[str]:
    notes = Notes()
    wire = there.encode_request(legal, notes)
    again = WireRequest(body=load_json(dump_json(wire.body)), path=wire.path, headers=wire.headers)
    return differences(legal, there.decode_request(again, Notes()), notes)


def reply_differences(reply: Reply, there: Dialect) -> list[str]:
    notes = Notes()
    wire = WireReply(body=load_json(dump_json(there.encode_reply(reply, notes).body)))
    return differences(reply, there.decode_reply(wire, Notes()), notes)


def stream_differences(reply: Reply, there: Dialect) -> list[str]:
    return _compare(reply, unfold(reply), there)


def event_differences(events: tuple[Event, ...], there: Dialect) -> list[str]:
    return _compare(fold(events), events, there)


def _compare(said: Reply | Failure, events: Iterable[Event], there: Dialect) -> list[str]:
    notes = Notes()
    heard = fold(through(there, events, notes))
    if isinstance(said, Failure) or isinstance(heard, Failure):
        return [] if type(said) is type(heard) else [f"{said} became {heard}"]
    return differences(said, heard, notes)


def through(there: Dialect, events: Iterable[Event], notes: Notes) -> list[Event]:
    """The events as a stream of a dialect brings them."""
    encoder, decoder = there.stream_encoder(notes), there.stream_decoder(Notes())
    data = encoder.feed(events) + encoder.close()
    return [*decoder.feed(data), *decoder.close()]
