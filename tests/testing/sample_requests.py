"""A small HTTP client, and requests in every dialect."""

import http.client
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from dragoman.dialects import find_dialect
from dragoman.model.fold import fold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.testing import Provider
from dragoman.upstream.http.request import join_url
from dragoman.upstream.profiles import profile_for
from dragoman.wire import WireReply
from tests.waiting import NEVER_S

Scripted: TypeAlias = Callable[..., Provider]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(provider: Provider, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None) -> Answer:
    """POST a body, or GET without one. `path` stands behind the provider's base URL."""
    url = urlsplit(join_url(provider.base_url, path) if path[:1] == "/" else path)
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=NEVER_S)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        usual = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
        said = {name: value for name, value in {**usual, **(headers or {})}.items() if value is not None}
        place = f"{url.path}?{url.query}" if url.query else url.path
        connection.request("GET" if data is None else "POST", place, data, said)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def send(provider: Provider, request: Request, dialect: str | None = None) -> Answer:
    """A canonical request, made legal for the provider's kind as the gateway would."""
    dialect = dialect or provider.dialect
    notes = Notes()
    profile = profile_for(provider.kind, request.model, dialect)
    wire = find_dialect(dialect).encode_request(legalise(request, profile, notes), notes)
    return ask(provider, wire.path, wire.body, wire.headers)


def hear(answer: Answer, dialect: str, streamed: bool | None) -> Reply:
    """The answer as a canonical value."""
    assert answer.status == 200, answer.body
    spoken = find_dialect(dialect)
    if not streamed:
        return spoken.decode_reply(WireReply(body=answer.json), Notes())
    decoder = spoken.stream_decoder(Notes())
    reply = fold([*decoder.feed(answer.body), *decoder.close()])
    assert isinstance(reply, Reply), reply
    return reply
