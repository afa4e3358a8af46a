"""WireRequest, WireReply: what travels, before and after it is bytes."""

from msgspec import Struct

from dragoman.jsontypes import Json, JsonObject


class WireRequest(Struct, kw_only=True):
    """A request as its dialect sends it. Decoders consume the body: they take it apart in place."""

    body: JsonObject
    path: str = ""  # with the query, where the dialect says something in it (Gemini: model, method)
    headers: dict[str, str] = {}  # only those that belong to the dialect, in lower case


class WireReply(Struct, kw_only=True):
    """An unstreamed reply or an error, as its dialect sends it."""

    body: Json
    status: int = 200
    headers: dict[str, str] = {}
