"""Every exception that dragoman raises on purpose, as one tree."""

from dragoman.failure import Failure


class DragomanError(Exception):
    """The base of all exceptions that we raise on purpose."""


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
    """An upstream refused, failed or did not answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


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
    where = ""
    for step in path:
        if type(step) is str and ("~" in step or "/" in step):
            step = step.replace("~", "~0").replace("/", "~1")
        where += f"/{step}"
    return where
