"""One place that joins an upstream's base URL and a dialect's path (FIELD-CASES 85)."""

import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

_VERSION = re.compile(r"v\d+(?:alpha\d*|beta\d*)?")


@lru_cache(4096)
def join_url(base: str, path: str) -> str:
    """`path` under `base`, whether `base` ends in nothing, a version, or the whole endpoint; a query is kept."""
    parts = urlsplit(base)
    bare, _, query = path.partition("?")
    ours = [step for step in bare.split("/") if step]
    theirs = [step for step in parts.path.split("/") if step]
    if not _ends_with(theirs, ours):
        if any(_VERSION.fullmatch(step) for step in theirs) and ours and _VERSION.fullmatch(ours[0]):
            ours = ours[1:]
        theirs = theirs + ours
    queries = "&".join(part for part in (parts.query, query) if part)
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(theirs)}" + (f"?{queries}" if queries else "")


def _ends_with(theirs: list[str], ours: list[str]) -> bool:
    """Whether the base is the endpoint itself, with or without our version in front."""
    short = ours[1:] if ours and _VERSION.fullmatch(ours[0]) else ours
    return bool(short) and theirs[-len(short) :] == short


def quote_segment(text: str) -> str:
    """One path segment: nothing in it ends the segment, the path or the query."""
    return quote(text, safe="-._~@:")
