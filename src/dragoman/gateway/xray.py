"""X-ray: one request from the client's bytes to the provider's and back, for people. Bounded, and without secrets."""

import re
from collections import OrderedDict
from typing import Any

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject, load_json
from dragoman.notes import Note

KEEP_ON_REQUEST = 50
MAX_BYTES = 256 * 1024
LONGEST_TEXT = 4000
_BASE64 = re.compile(r"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/_-]{400,}={0,2}")
_SECRETS = re.compile(r"\b(?:sk|dk|dka|AIza|xai|gsk|pplx|r8)[-_A-Za-z0-9]{12,}")


class Xray(Struct, kw_only=True):
    id: str
    door: str
    path: str
    model: str = ""
    upstream: str = ""
    asked: Json = None  # the client's wire
    canonical: Json = None
    attempts: list[JsonObject] = []  # what each upstream was sent and said
    reply: Json = None  # what the client got
    notes: tuple[Note, ...] = ()
    status: int = 0
    seconds: float = 0.0


class XrayRing:
    def __init__(self, keep: int) -> None:
        self.always = keep > 0
        self._keep = keep or KEEP_ON_REQUEST
        self._rows: OrderedDict[str, Xray] = OrderedDict()

    def put(self, row: Xray) -> None:
        self._rows[row.id] = row
        while len(self._rows) > self._keep:
            self._rows.popitem(last=False)

    def get(self, request_id: str) -> Xray | None:
        return self._rows.get(request_id)

    def rows(self) -> list[Xray]:
        return list(reversed(self._rows.values()))


def show(data: bytes) -> Json:
    """A body for display: parsed if it is JSON, shortened if it is long."""
    if len(data) > MAX_BYTES:
        return f"[{len(data)} bytes]"
    try:
        return mask(load_json(data))
    except DecodeError:
        return mask(data.decode("utf-8", "replace"))


def hide_secrets(text: str) -> str:
    return _SECRETS.sub("[redacted]", text)


def mask(value: Any) -> Json:
    if isinstance(value, str):
        text = _BASE64.sub(lambda found: f"[{len(found[0])} characters of base64]", value)
        text = hide_secrets(text)
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... [{len(text)} characters]"
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    return value
