"""Secret: a key that does not show itself, bound to the one origin it may travel to."""

from urllib.parse import urlsplit


class Secret:
    """Only `reveal` gives the value, and only to the origin it belongs to."""

    __slots__ = ("_origin", "_value")

    def __init__(self, value: str, origin: str = "") -> None:
        self._value = value
        self._origin = origin

    def reveal(self, origin: str) -> str:
        if origin != self._origin:
            raise PermissionError(f"this key belongs to {self._origin or 'nobody'}, not to {origin}")
        return self._value

    def redact(self, data: bytes) -> bytes:
        """`data` without this value, for bodies a provider may have echoed it in."""
        value = self._value.encode()
        return data.replace(value, b"[redacted]") if len(value) >= 4 else data

    @property
    def hint(self) -> str:
        """Enough to tell two keys apart, and no more."""
        return f"...{self._value[-4:]}" if len(self._value) >= 12 else "set"

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._value, self._origin) == (other._value, other._origin)

    def __hash__(self) -> int:
        return hash((self._value, self._origin))


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL: what a key is bound to."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme, 0)
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}"
