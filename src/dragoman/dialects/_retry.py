"""The headers that say how long to wait before a retry."""

from dragoman.failure import Failure


def read_retry_after(headers: dict[str, str]) -> float | None:
    """Read `retry-after-ms`, else `retry-after` in seconds. The gateway reads a date there, because it has a clock."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    return None


def write_retry_after(failure: Failure) -> dict[str, str]:
    if failure.retry_after_s is None:
        return {}
    whole = max(0, -int(-failure.retry_after_s // 1))  # rounded up, because a retry that is too early fails
    return {"retry-after": str(whole)}
