"""How long to wait, as providers say it in headers, and some in words only. https://www.rfc-editor.org/rfc/rfc9110#name-retry-after

What is negative, not a number, longer than a day, in the past or a list of several counts as not said.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

DAY_S = 86400.0
_GO = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")

_WORDS = re.compile(r"\b(?:re)?try (?:again )?in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)", re.IGNORECASE)


def read_hint(headers: Mapping[str, str], wall: float) -> float | None:
    """Seconds to wait. `wall` is the time of day, for the forms that are dates. Names are in lower case."""
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if name in headers:
            found = _bounded(_number(headers[name]), 1000.0)
            if found is not None:
                return found
    after = headers.get("retry-after")
    if after is not None:
        found = _bounded(_number(after), 1.0)
        if found is None and _number(after) is None:
            found = _until(_http_date(after), wall)
        if found is not None:
            return found
    return _reset(headers, wall)


def _reset(headers: Mapping[str, str], wall: float) -> float | None:
    """When the window that is used up opens again: the longest of those said to have nothing left."""
    waits = []
    for what in ("requests", "tokens", "input-tokens", "output-tokens"):
        for prefix in ("x-ratelimit-", "anthropic-ratelimit-"):
            left, reset = _names(prefix, what)
            value = headers.get(reset)
            if value is None or headers.get(left, "0").strip() not in ("0", ""):
                continue
            found = read_duration(value)
            if found is None:
                found = _until(_iso_date(value), wall)
            if found is not None:
                waits.append(found)
    return max(waits, default=None)


def _names(prefix: str, what: str) -> tuple[str, str]:
    if prefix == "x-ratelimit-":  # OpenAI: x-ratelimit-reset-tokens
        return f"{prefix}remaining-{what}", f"{prefix}reset-{what}"
    return f"{prefix}{what}-remaining", f"{prefix}{what}-reset"  # Anthropic


def read_duration(text: str) -> float | None:
    """A Go duration: 6m0s, 20ms, 1h2m3.5s."""
    match = _GO.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, millis = (float(group or 0) for group in match.groups())
    return _bounded(hours * 3600 + minutes * 60 + seconds + millis / 1000, 1.0)


def read_words(message: str) -> float | None:
    """Google, where no detail says it: "Please retry in 47.43s."; OpenAI: "Please try again in 6m0s." """
    found = _WORDS.search(message)
    return read_duration(found[1]) if found is not None else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bounded(value: float | None, unit: float) -> float | None:
    if value is None:
        return None
    seconds = value / unit
    return seconds if 0 <= seconds <= DAY_S else None  # a NaN is neither


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None


def _iso_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _until(when: datetime | None, wall: float) -> float | None:
    if when is None:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = when.timestamp() - wall
    return seconds if 0 < seconds <= DAY_S else None
