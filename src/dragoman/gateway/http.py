"""HttpRequest and HttpResponse: independent of the server that carries them."""

from collections.abc import Awaitable, Callable, Sized
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dragoman.accounts.grants import Holder
from dragoman.failure import Failure
from dragoman.jsontypes import Json, dump_json
from dragoman.notes import Refusable

if TYPE_CHECKING:
    from dragoman.gateway.plain_way import PlainHead
    from dragoman.gateway.routes.table import Match

JSON_TYPE = "application/json"
Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Headers: TypeAlias = dict[str, str]
NONE_REPEATED: frozenset[str] = frozenset()


class Ending(Protocol):
    """State that must be released when a request ends."""

    status: int
    failure: Failure | None
    keep: bool  # for X-ray

    @property
    def attempts(self) -> Sized: ...  # at upstreams

    def keep_sent(self, data: bytes) -> None: ...
    def write_quota(self) -> dict[str, str]: ...

    def finish(self) -> None: ...


class DirectWriter(Protocol):
    """Writes to a client without waiting for it."""

    def is_ready(self) -> bool:
        """Whether the client is there and reads."""

    def put(self, data: bytes) -> None: ...


class HeadFacts:
    """Facts that depend only on the head of a request. The next request of a client mostly has the same head, so they
    need not be found out again. Facts of a configuration are kept beside what they were made from."""

    __slots__ = ("carried", "digest", "hops", "judged_by", "key", "match", "plain", "refuse")

    def __init__(self) -> None:
        self.match: Match | None = None
        self.judged_by: object = None  # the Access that has accepted host, origin, type and hops
        self.key: tuple[str | None] | None = None
        self.digest: tuple[object, str] | None = None  # of the key, and the table whose pepper it was made with
        self.hops: int | None = None
        self.refuse: frozenset[Refusable] | None = None
        self.plain: tuple[object, PlainHead | None] | None = None  # the Generation that it was made for
        self.carried: tuple[object, Headers] | None = None  # a dialect, and its headers


class HttpRequest:
    """Header names are in lower case; names that occur twice are in `repeated`. `headers` may be shared with the next
    request of the same connection."""

    __slots__ = (
        "_given",
        "client",
        "direct",
        "facts",
        "headers",
        "holder",
        "id",
        "key_id",
        "large",
        "method",
        "most_bytes",
        "path",
        "port",
        "query",
        "read",
        "repeated",
        "scope",
        "size",
        "unique_id",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Headers | None = None,
        repeated: frozenset[str] = NONE_REPEATED,
        client: str = "",
        port: int = 0,
        *,
        read: Callable[[], Awaitable[bytes]] | None = None,
        body: bytes = b"",
        facts: HeadFacts | None = None,
    ) -> None:
        self.method = method
        self.large = False  # its body is worked on off the loop
        self.size = 0  # bytes of its body, known once it is read
        self.path = path
        self.query = query
        self.headers = headers or {}
        self.repeated = repeated
        self.client = client
        self.port = port  # our port that it came to
        self.id = ""  # in the log; a client may choose it
        self.unique_id = ""
        self.most_bytes: int | None = None  # of its body at this route; None: as many as the configuration allows
        self.scope: Ending | None = None  # released when the request ends
        self.holder: Holder | None = None  # the owner of the client's key
        self.key_id = ""  # the id of the client's key; "" where no key is needed
        self.read = read or self._read_given
        self.direct: DirectWriter | None = None  # for a streamed answer, if this is a client's own connection
        self.facts = facts or HeadFacts()
        self._given = body

    def cap(self, limit: int) -> int:
        """How many bytes its body may have, where `limit` holds for every body."""
        return limit if self.most_bytes is None else min(limit, self.most_bytes)

    async def _read_given(self) -> bytes:
        return self._given


class HttpResponse:
    """A body, or a function that writes one piece by piece. `close` is called once at the end, whatever happened."""

    __slots__ = ("body", "close", "headers", "status", "stream")

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        *,
        headers: Headers | None = None,
        stream: Callable[[Write], Awaitable[None]] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers if headers is not None else {}
        self.stream = stream
        self.close = close


def json_response(value: Json, status: int = 200, headers: Headers | None = None) -> HttpResponse:
    return HttpResponse(status, dump_json(value), headers={"content-type": JSON_TYPE, **(headers or {})})


def text_response(text: str, headers: Headers | None = None) -> HttpResponse:
    kind = {"content-type": "text/plain; charset=utf-8"}
    return HttpResponse(200, text.encode(), headers={**kind, **(headers or {})})
