"""Owners of things that providers keep for us: files, containers, conversations, items of answers.

A provider sees all our keys as one account. So a key could name a thing of another key, and the provider would use it.
The rule: a key may name what was made for it here. What was made for another key is "not found". A thing that this
gateway does not know (made by hand, or too long ago) may be named where there is one key, or if `shared_ids` allows it.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from dragoman.accounts.grants import Holder, matches
from dragoman.dialects import SPOKEN, find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects.canonical import NAME as CANONICAL
from dragoman.dialects.openai_responses.items import MINTED
from dragoman.errors import DecodeError, DragomanError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.routes.table import all_dialects
from dragoman.gateway.stores.responses import StoreUnavailable
from dragoman.jsontypes import Json, dump_json, load_json
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Reply
from dragoman.model.request import AnyTool, Request, ServerTool
from dragoman.notes import Notes
from dragoman.passes.media import PRIVATE_URLS
from dragoman.passes.prepare import REFERENCE
from dragoman.upstream.attempts import is_large, off_loop
from dragoman.wire import WireRequest

if TYPE_CHECKING:
    from dragoman.gateway.state import Gateway

SAID_BY_MODEL = frozenset({"input", "arguments", "args", "code", "metadata"})  # free text: ids in it are not real ids
MOST_NAMES = 1000  # of one answer
_CAPITAL = re.compile(r"[A-Z]")
_PORT = re.compile(r":\d*$")
_FILE = re.compile(r"/?(?:v\w+/)?files/")  # Gemini's, without its address


@cache
def _naming_keys() -> frozenset[str]:
    keys = {key for dialect in all_dialects() for key in dialect.naming_keys}
    keys |= {kept.key for dialect in all_dialects() for kept in dialect.kept_state}
    return frozenset(keys | {_CAPITAL.sub(r"_\g<0>", key).lower() for key in keys})  # Google's servers read both


def _is_kept_by_provider(url: str) -> bool:
    """Whether a URL names a thing that a provider keeps, in any spelling."""
    lower = url.strip().lower()
    if lower.startswith(("http:", "https:")):
        host = re.split(r"[/?#\\]", lower.partition(":")[2].lstrip("/\\"), maxsplit=1)[0].rpartition("@")[2]
        return f"https://{_PORT.sub('', host).rstrip('.')}/" in PRIVATE_URLS
    return lower.startswith(PRIVATE_URLS) or _FILE.match(lower) is not None


# ---------------------------------------------------------------- what a request names


def find_names(request: Request, *, items: bool) -> set[str]:
    """The ids in a request of things that a provider keeps. `items`: it may go to a server that keeps items of
    answers, so that an item without its content is found by its id."""
    names: set[str] = set()
    extras = {id(turn.extras): turn.extras for turn in request.messages if turn.extras}  # by identity: turns share them
    extras[id(request.extras)] = request.extras
    parts = [part for turn in request.messages for part in turn.parts]
    for part in parts:  # a long history has hundreds, and most of them name nothing
        kind = type(part)
        if kind is not Opaque and part.extras:  # type: ignore[union-attr]
            extras[id(part.extras)] = part.extras  # type: ignore[union-attr]  # beside the picture or file that was read
        if kind is ToolResult:
            parts += part.parts  # type: ignore[union-attr]
        elif kind is not Text and kind is not ToolCall:
            names.update(_name_in_part(part, items=items))
    for tool in request.tools or ():
        if type(tool) is ServerTool:
            names.update(_walk(tool.body))
        elif tool.extras:  # type: ignore[union-attr]
            extras[id(tool.extras)] = tool.extras  # type: ignore[union-attr]
    for own in extras.values():
        names.update(_walk(own))
    return names


def _name_in_part(part: Part, *, items: bool) -> Iterator[str]:
    match part:
        case Image() | Document() | Video() | Audio():
            if part.file_id is not None:
                yield part.file_id
            if part.url is not None and _is_kept_by_provider(part.url):
                yield part.url
            if type(part) is Audio and part.id is not None:
                yield part.id
        case Opaque():
            yield from _walk(part.body)
            if items and part.body.get("type", REFERENCE) == REFERENCE:
                yield from _texts(part.body.get("id"))
        case Reasoning() if items and part.seal is None:
            for own in part.extras.values():
                yield from _texts(own.get("id"))
        case _:
            return


def _walk(value: Json, *, skip: frozenset[str] = frozenset()) -> list[str]:
    """The values under keys that name something."""
    found: list[str] = []
    if value:
        _gather(value, _naming_keys(), skip, found)
    return found


def _gather(value: Json, keys: frozenset[str], skip: frozenset[str], found: list[str]) -> None:
    if type(value) is list:
        for one in value:
            if type(one) is dict or type(one) is list:
                _gather(one, keys, skip, found)
    elif type(value) is dict:
        for key, inner in value.items():
            if key in skip:
                continue
            if key in keys:
                found += _texts(inner.get("id") if type(inner) is dict else inner)
            if type(inner) is dict or type(inner) is list:
                _gather(inner, keys, skip, found)


def _texts(value: Json) -> Iterable[str]:
    found = value if type(value) is list else [value]
    return [text for text in found if type(text) is str and text and MINTED not in text]


def find_written_names(request: Request, stored: Collection[str]) -> set[str]:
    """What a request of our own client names once it is written. There its writer may put extras of any dialect beside
    each value, even in the place of what was read. `stored`: dialects whose servers here keep items of answers."""
    names: set[str] = set()
    for name in sorted(_find_dialects(request)):
        dialect = find_dialect(name)
        try:
            wire = dialect.encode_request(request, Notes())
            body = load_json(dump_json(wire.body))
            written = dialect.decode_request(WireRequest(body=body, path=wire.path), Notes())
        except (DragomanError, TypeError, AttributeError, KeyError, ValueError, IndexError, RecursionError) as error:
            raise DecodeError(f"with its extras it is no request of {name}") from error
        names |= find_names(written, items=name in stored)
    return names


def _find_dialects(request: Request) -> set[str]:
    """The dialects that parts, messages and tools of a request have extras of."""
    found: set[str] = set()
    values: list[Message | AnyTool | Part] = [*request.messages, *(request.tools or ())]
    for value in values:
        if isinstance(value, Opaque | ServerTool):
            found.add(value.dialect)
        else:
            found.update(value.extras)
        if isinstance(value, Message | ToolResult):
            values.extend(value.parts)
    return found & {*SPOKEN}


async def check_names(
    gateway: "Gateway", holder: Holder | None, request: Request, dialect: Dialect, *, large: bool = False
) -> None:
    """A 400 if a request names a thing that its key may not use. An unknown name looks the same as another key's."""
    if holder is None:
        return
    items = dialect.stores_replies and gateway.now.speaks(dialect.name)
    names = await off_loop(large, find_names, request, items=items)
    if dialect.name == CANONICAL:
        stored = [one.name for one in all_dialects() if one.stores_replies and gateway.now.speaks(one.name)]
        names |= await asyncio.to_thread(find_written_names, request, stored)
    if names and (name := await find_forbidden(gateway, holder, names)):
        raise UpstreamError(_unknown(name))


async def find_forbidden(gateway: "Gateway", holder: Holder, names: Collection[str]) -> str:
    """The first name that a key may not use; "" if it may use all."""
    now = gateway.now
    shared = now.settings.shared_ids
    unshared = sorted(name for name in names if not shared or not matches(shared, name))
    if not unshared:
        return ""
    owners = await asyncio.to_thread(gateway.store.find_owners, unshared)
    alone = not now.access.keys.several and now.access.tokens is None
    usual = holder.id if alone else ""  # the owner of a thing that is not known here
    return next((name for name in unshared if owners.get(name, usual) != holder.id), "")


def _unknown(name: str) -> Failure:
    words = (
        f"'{name[:100]}' not found: this gateway does not know it as a thing of this key. "
        "Send its content itself, or ask the operator to allow it with `shared_ids`."
    )
    return Failure(kind="invalid_request", status=400, code="unknown_id", message=words)


# ---------------------------------------------------------------- what an answer makes


def makes_names(request: Request, dialect: Dialect) -> bool:
    """Whether the answer to a request may make something that later requests can name."""
    if dialect.stores_replies and request.store is not False:
        return True
    if request.modalities is not None and "audio" in request.modalities:
        return True
    return ServerTool in [type(tool) for tool in request.tools or ()]


async def keep_names(gateway: "Gateway", owner: str, reply: Reply, body: bytes) -> None:
    """Remembers the owner of the things that an answer made. `body`: the answer as it is stored; b"" if it is not."""
    names = await off_loop(is_large(body), lambda: {*_made(reply), *_items(body)})
    if names:
        with suppress(StoreUnavailable):  # the answer is there and paid for; the store has logged why
            await asyncio.to_thread(gateway.store.own, owner, sorted(names)[:MOST_NAMES])


def _made(reply: Reply) -> Iterator[str]:
    for own in reply.extras.values():
        container = own.get("container")
        yield from _texts(container.get("id") if type(container) is dict else None)
    for choice in reply.choices:
        for part in choice.parts:
            match part:
                case Audio() if part.id is not None:
                    yield part.id
                case Opaque():
                    yield from _walk(part.body, skip=SAID_BY_MODEL)
                case Text():
                    for citation in part.citations:
                        for own in citation.extras.values():
                            yield from _walk(own)
                case _:
                    pass


def _items(body: bytes) -> Iterator[str]:
    """The ids of a stored response and of its items."""
    stored = load_json(body) if body else {}
    yield from _texts(stored.get("id"))
    output = stored.get("output")
    for item in output if type(output) is list else ():
        if type(item) is dict:
            yield from _texts(item.get("id"))
