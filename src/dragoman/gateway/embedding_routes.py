"""Embeddings: the door of any dialect that has them, served by any upstream that has them."""

import struct

from msgspec.structs import replace

from dragoman.demo.model import demo_embedding
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import EmbeddingRequest, Vectors, unsupported
from dragoman.errors import DecodeError, UpstreamError
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.non_chat import ask, read_object
from dragoman.gateway.routes import Match
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import load_json
from dragoman.upstream.failures import malformed
from dragoman.upstream.spec import DEMO
from dragoman.wire import WireRequest


async def serve_embeddings(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    dialect = match.route.dialect
    if dialect.embeddings is None:
        raise unsupported(f"{dialect.name} has no embeddings")
    wire = WireRequest(body=await read_object(gateway, http), path=match.path(http.query))
    asked = dialect.embeddings.decode_request(wire)
    found = await embed(gateway, http, dialect, asked)
    return json_response(dialect.embeddings.encode_reply(found, asked))


async def embed(gateway: Gateway, http: HttpRequest, dialect: Dialect, asked: EmbeddingRequest) -> Vectors:
    targets = gateway.now.targets(asked.model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        rows = [list(demo_embedding(str(text), asked.size or 8)) for text in asked.inputs]
        return Vectors(rows=rows, model=targets[0][1].model, tokens=sum(len(str(t).split()) for t in asked.inputs))

    def form(there: Dialect, model: str) -> WireRequest:
        if there.embeddings is None:
            raise unsupported(f"{there.name} has no embeddings")
        return there.embeddings.encode_request(replace(asked, model=model))

    answer = await ask(gateway, http, "embeddings", dialect, asked.model, form)
    try:
        codec = answer.dialect.embeddings
        if codec is None:
            raise ValueError("no embeddings")
        found = codec.decode_reply(load_json(answer.raw), answer.target.model)
        if len(found.rows) != len(asked.inputs):
            raise ValueError("not one for each")
        return found
    except (DecodeError, KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise UpstreamError(malformed("the upstream's embeddings cannot be read")) from error
    finally:
        if http.scope is not None:
            http.scope.finish()
