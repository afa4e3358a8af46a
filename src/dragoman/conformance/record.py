"""Record and replay: keeps the traffic of scenarios on disk, without secrets, and plays scenarios from it.

The folder is a corpus as `dragoman pairs` reads it (`cases/<dialect>/<case>/` with meta.json, request.json, reply.json
or stream.*), and `targets.json` beside it. No key, address or header that names a person is written.
"""

import re
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.conformance.runner_wire import KEPT_HEADERS, WRONG_KEY, WireExchange, WireLine, WireRequestToSend
from dragoman.errors import ConfigError, DecodeError
from dragoman.failure import Failure
from dragoman.jsontypes import format_json, load_json
from dragoman.upstream.keys import Secret

TARGETS = "targets.json"
NOT_RECORDED = "not_recorded"
ENDPOINTS = {
    "/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "enerateContent": "generate",
    "/api/chat": "chat",
}
STREAMS = {"text/event-stream": "stream.sse", "application/x-ndjson": "stream.ndjson"}
REPLIES = ("reply.json", "stream.sse", "stream.ndjson", "reply.txt")

_GONE = "scrubbed"
_WORDS: tuple[tuple[re.Pattern[bytes], bytes], ...] = (
    (re.compile(rb"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), b"someone@example.com"),
    (re.compile(rb"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+"), b"scrubbed-token"),
    (re.compile(rb"\b(?:sk|rk|pk|dk|dka|AIza|ya29|xai|gsk|pplx|r8|fw|csk|hf)[-_.][-\w]{12,}"), b"scrubbed-key"),
    (re.compile(rb"\bAIza[-\w]{20,}"), b"scrubbed-key"),
    (re.compile(rb"\b(org|proj|acct|team|user|cus)([-_])[A-Za-z0-9]{10,}"), rb"\1\2scrubbed"),
    (re.compile(rb"\bprojects/[\w-]+"), b"projects/scrubbed"),
    (re.compile(rb"\b(?!127\.)(?:\d{1,3}\.){3}\d{1,3}\b"), b"192.0.2.1"),
    (
        re.compile(
            rb'("(?:organization|organisation|account|project|workspace|team|tenant|user|owner|customer)(?:_?[iI]d|_uuid)"'
            rb'\s*:\s*)"[^"]*"'
        ),
        rb'\1"scrubbed"',
    ),
)


def scrub(data: bytes, key: Secret | None = None) -> bytes:
    """Removes keys, accounts, mail addresses and network addresses."""
    if key is not None:
        data = key.redact(data)
    data = data.replace(WRONG_KEY.encode(), _GONE.encode())
    for pattern, instead in _WORDS:
        data = pattern.sub(instead, data)
    return data


class Recorder:
    """Passes requests to another sender, and records the traffic."""

    def __init__(self, line: WireLine, folder: Path) -> None:
        self.offline = line.offline
        self._line = line
        self._folder = folder
        self._targets: dict[str, VerifyTarget] = {}

    async def send(self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float) -> WireExchange:
        exchange = await self._line.send(target, ask, timeout_s)
        if ask.place != "probe" and (exchange.failure is None or exchange.status):
            self._targets[target.name] = target
            self._write(target, ask, exchange)
        return exchange

    async def close(self) -> None:
        await self._line.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = [_target_row(target) for target in self._targets.values()]
        (self._folder / TARGETS).write_bytes(format_json(rows) + b"\n")

    def _write(self, target: VerifyTarget, ask: WireRequestToSend, exchange: WireExchange) -> None:
        case = self._folder / "cases" / target.dialect / case_name(target, ask)
        case.mkdir(parents=True, exist_ok=True)
        meta = {
            "target": target.name,
            "place": ask.place,
            "endpoint": _endpoint(ask.path),
            "method": ask.method,
            "path": scrub(ask.path.encode()).decode(),
            "status": exchange.status,
            "headers": {name: exchange.headers[name] for name in KEPT_HEADERS if name in exchange.headers},
            "left": exchange.left,
            "failure": to_builtins(exchange.failure) if exchange.failure is not None else None,
        }
        (case / "meta.json").write_bytes(format_json(meta) + b"\n")
        if ask.body:
            (case / "request.json").write_bytes(scrub(ask.body, target.key))
        for name in REPLIES:
            (case / name).unlink(missing_ok=True)
        (case / _reply_file(exchange)).write_bytes(scrub(exchange.reply, target.key))


def _target_row(target: VerifyTarget) -> dict[str, Any]:
    row = to_builtins({name: getattr(target, name) for name in _KEPT})
    return {**row, "keyed": target.key is not None}


_KEPT = ("name", "dialect", "model", "kind", "overrides", "stream_usage", "gateway")


def case_name(target: VerifyTarget, ask: WireRequestToSend) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{target.name}-{ask.place}").strip("-").lower()


def _endpoint(path: str) -> str:
    return next((word for part, word in ENDPOINTS.items() if path.partition("?")[0].endswith(part)), "other")


def _reply_file(exchange: WireExchange) -> str:
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in STREAMS:
        return STREAMS[kind]
    try:
        load_json(exchange.reply)
    except DecodeError:
        return "reply.txt"
    return "reply.json"


# ---------------------------------------------------------------- replay


def recorded_targets(folder: Path) -> list[VerifyTarget]:
    """The targets of a recording. They can be asked again without a network."""
    path = folder / TARGETS
    try:
        rows = load_json(path.read_bytes())
        return [_read_target(row) for row in rows]
    except (OSError, DecodeError, ValidationError, TypeError, KeyError) as error:
        raise ConfigError(str(path), "", f"is no recording of `dragoman verify --record`: {error}") from error


def _read_target(row: dict[str, Any]) -> VerifyTarget:
    fields = {name: row[name] for name in _KEPT if name in row}
    target = convert(fields, VerifyTarget)
    return replace(target, key=Secret(WRONG_KEY)) if row.get("keyed") else target


class RecordedSender:
    """Answers from a recording."""

    offline = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def send(self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float) -> WireExchange:
        case = self._folder / "cases" / target.dialect / case_name(target, ask)
        exchange = WireExchange(method=ask.method, path=ask.path, request=ask.body)
        if not (case / "meta.json").is_file():
            exchange.failure = Failure(kind="unknown", code=NOT_RECORDED, message="this was not recorded")
            return exchange
        meta = load_json((case / "meta.json").read_bytes())
        exchange.status, exchange.headers, exchange.left = meta["status"], meta["headers"], meta["left"]
        if meta["failure"] is not None:
            exchange.failure = convert(meta["failure"], Failure)
        reply = next((case / name for name in REPLIES if (case / name).is_file()), None)
        exchange.reply = reply.read_bytes() if reply is not None else b""
        exchange.remark = self._drift(case, ask, target)
        return exchange

    async def close(self) -> None:
        pass

    def _drift(self, case: Path, ask: WireRequestToSend, target: VerifyTarget) -> str:
        """A sentence if the request has changed since the recording, else nothing."""
        then = case / "request.json"
        if not ask.body or not then.is_file():
            return ""
        same = load_json(then.read_bytes()) == load_json(scrub(ask.body, target.key))
        return "" if same else "the request is no longer the one that was recorded"
