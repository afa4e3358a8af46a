"""Every exception that dragoman raises on purpose, as one tree."""

from typing import Any

from dragoman.failure import Failure


class DragomanError(Exception):
    """The base of all exceptions that we raise on purpose."""


class ArgumentError(DragomanError, TypeError):
    """An argument of a call is wrong. Nothing was sent."""


class DecodeError(DragomanError):
    """A body does not have the form of its dialect. Each caller adds its step to the path with `under`."""

    def __init__(self, what: str, *path: str | int) -> None:
        super().__init__(what)
        self.what = what
        self.path: tuple[str | int, ...] = path

    def under(self, *path: str | int) -> "DecodeError":
        """The same error with the steps of the outer object put before its path."""
        self.path = path + self.path
        return self

    @property
    def where(self) -> str:
        return pointer(self.path)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.path else self.what


class LossError(DragomanError):
    """A strict conversion would have lost something. `where` points into the caller's own body."""

    def __init__(self, where: str, why: str, canonical: str = "") -> None:
        super().__init__(f"{where or '/'}: {why}")
        self.where = where
        self.why = why
        self.canonical = canonical  # the same place in the canonical value


class UpstreamError(DragomanError):
    """An upstream refused, failed or did not answer. `UpstreamError(failure)` makes the subclass for its kind."""

    def __new__(cls, *args: Any) -> "UpstreamError":
        return super().__new__(_class_for(args[0]) if cls is UpstreamError else cls)

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        return type(self), (self.failure,)

    @property
    def status(self) -> int | None:
        """The HTTP status, if there was one."""
        return self.failure.status

    @property
    def code(self) -> str | None:
        return self.failure.code

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks us to wait."""
        return self.failure.retry_after_s


class AuthenticationError(UpstreamError):
    """The key is missing, wrong or not allowed to do this."""


class RateLimitError(UpstreamError):
    """Too many requests or tokens. `retry_after_s` says when to try again, if the server told."""


class NoCreditError(UpstreamError):
    """The quota or the balance is used up. Waiting does not help."""


class RequestTimeoutError(UpstreamError):
    """No answer in time."""


class ConnectionFailedError(UpstreamError):
    """The server was not reached, or the connection broke."""


class ContextTooLongError(UpstreamError):
    """The conversation does not fit the model's context window."""


class ContentFilterError(UpstreamError):
    """The provider's policy refuses the request."""


class ModelNotFoundError(UpstreamError):
    """There is no such model, or no such thing, at this server."""


class BadRequestError(UpstreamError):
    """The request is wrong: it would fail again."""


class ServerFailedError(UpstreamError):
    """The server failed or is overloaded."""


_CLASSES: dict[str, type[UpstreamError]] = {
    "invalid_request": BadRequestError,
    "too_large": BadRequestError,
    "conflict": BadRequestError,
    "too_long": ContextTooLongError,
    "unauthenticated": AuthenticationError,
    "forbidden": AuthenticationError,
    "no_credit": NoCreditError,
    "not_found": ModelNotFoundError,
    "rate_limited": RateLimitError,
    "refused": ContentFilterError,
    "timed_out": RequestTimeoutError,
    "cut_off": ConnectionFailedError,
    "server_error": ServerFailedError,
    "overloaded": ServerFailedError,
}
# Codes of our own for a server that we did not get through to (upstream/transport.py).
_NOT_REACHED = frozenset(("upstream_unreachable", "upstream_disconnected", "upstream_tls", "upstream_proxy"))


def _class_for(failure: Failure) -> type[UpstreamError]:
    if failure.code in _NOT_REACHED:
        return ConnectionFailedError
    return _CLASSES.get(failure.kind, UpstreamError)


class ToolError(DragomanError):
    """A tool raised, timed out or returned an invalid value."""

    def __init__(self, call_id: str, why: str) -> None:
        super().__init__(f"{call_id}: {why}")
        self.call_id = call_id


class ConfigError(DragomanError):
    """The configuration is wrong. Names the file, the line if it is known, and the key to change."""

    def __init__(self, file: str, key: str, why: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key}: {why}" if key else f"{place}: {why}")
        self.file = file
        self.key = key
        self.why = why
        self.line = line


def pointer(path: tuple[str | int, ...]) -> str:
    """A JSON pointer (RFC 6901) for a path."""
    if not path:
        return ""
    where = "/" + "/".join(map(str, path))
    if "~" in where or where.count("/") > len(path):
        steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
        where = "/" + "/".join(steps)
    return where
