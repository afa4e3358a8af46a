"""Ollama: `created_at`, RFC 3339 with up to nine decimals, as seconds since 1970. Pure arithmetic, no clock."""

from datetime import UTC, datetime

UNKNOWN = "1970-01-01T00:00:00Z"  # what we write when nobody said a time
_LAST = 253_402_300_799  # the end of the year 9999


def read_time(text: str) -> float | None:
    """Seconds since 1970, or None where the text is no time. The fraction is kept as exactly as a float can."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    whole = int(moment.replace(microsecond=0).timestamp())
    _, dot, rest = text.partition(".")
    if not dot or whole < 0:
        return float(whole)
    digits = rest[: next((i for i, char in enumerate(rest) if not char.isdigit()), len(rest))]
    return float(f"{whole}.{digits}")


def write_time(seconds: float) -> str | None:
    """The same the other way; None for what is no time of ours."""
    if not 0 <= seconds <= _LAST:
        return None
    spelled = repr(float(seconds))
    if "e" in spelled:  # closer to 1970 than a tenth of a millisecond
        spelled = "0.0"
    whole, _, fraction = spelled.partition(".")
    moment = datetime.fromtimestamp(int(whole), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}Z" if fraction in ("", "0") else f"{moment}.{fraction}Z"
