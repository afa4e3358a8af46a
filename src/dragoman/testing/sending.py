"""What a scripted provider received, and how it sends an answer or a fault."""

import asyncio
import struct
import zlib
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.jsontypes import load_json
from dragoman.testing.faults import ScriptedFault
from dragoman.testing.refusals import VENDOR_STYLES, VendorRefusal, error_frame, refuse, refuse_overflow

NO_FAULT = ScriptedFault(name="")


class Recorded:
    """One request as it arrived, and how it ended."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path  # path and query
        self.headers = headers  # names in lower case
        self.body = body
        self.dialect: str | None = None  # None: not one of the conversation's endpoints
        self.fault: str | None = None  # the name of the fault it met
        self.refused: str | None = None  # why it was refused, in the vendor's words
        self.warnings: list[str] = []  # parts of the request that the real server accepts and then drops or misreads
        self.status: int | None = None
        self.frames_sent = 0
        self.left = False  # the client disconnected before the end
        self.done = False

    @property
    def json(self) -> Any:
        return load_json(self.body)

    def __repr__(self) -> str:
        outcome = self.fault or self.refused or self.status
        return f"<{self.method} {self.path} {len(self.body)} bytes: {outcome}>"


def send_refusal(refusal: VendorRefusal) -> web.Response:
    headers = {**refusal.headers, "content-type": "application/json"}
    return web.Response(status=refusal.status, body=refusal.json(), headers=headers)


async def send_instead(http: web.Request, fault: ScriptedFault, kind: str, dialect: str) -> web.StreamResponse | None:
    """The response that replaces the answer; None if the fault does not replace it."""
    if fault.wait_s:
        await asyncio.sleep(fault.wait_s)
    if fault.reset == "before_headers":
        return _abort(http)
    if fault.reset == "after_headers":
        response = web.StreamResponse(headers={"content-type": find_dialect(dialect).media_type})
        await response.prepare(http)
        return _abort(http)
    if fault.raw is not None:
        if http.transport is not None:
            http.transport.write(fault.raw)
            http.transport.close()
        return web.Response()
    if fault.overflow:
        return send_refusal(refuse_overflow(kind, dialect))
    if fault.body is not None:
        headers = {**fault.headers, "content-type": fault.media_type or "application/json"}
        return web.Response(status=fault.status or 200, body=fault.body, headers=headers)
    if fault.status is not None:
        message = fault.message or f"scripted failure {fault.status}"
        refusal = refuse(
            kind, dialect, fault.status, message, code=fault.code, headers=fault.headers, details=fault.details
        )
        return send_refusal(replace(refusal, body=[refusal.body]) if fault.listed else refusal)
    return None


class AnswerSender:
    """Sends one answer, with its fault."""

    def __init__(self, http: web.Request, seen: Recorded, kind: str, fault: ScriptedFault, pace_s: float) -> None:
        self._http, self._seen, self._kind, self._fault, self._pace_s = http, seen, kind, fault, pace_s
        self._dialect = seen.dialect or ""

    async def send_whole(self, body: bytes) -> web.StreamResponse:
        fault = self._fault
        headers = {"content-type": fault.media_type or "application/json", **VENDOR_STYLES[self._dialect].reply_headers}
        if fault.gzip:
            body = zlib.compress(body, wbits=31)
            headers["content-encoding"] = "gzip"
        response = web.StreamResponse(headers=headers)
        response.content_length = len(body)
        await response.prepare(self._http)
        if fault.short_by:
            await response.write(body[: -fault.short_by])
            return self._close(response)
        await self._write(response, body)
        await response.write_eof()
        return response

    async def send_stream(self, frames: list[bytes]) -> web.StreamResponse:
        fault = self._fault
        media_type = find_dialect(self._dialect).media_type
        if frames and frames[0][:1] == b"[":
            media_type = "application/json"  # Google without alt=sse
        headers = {"content-type": fault.media_type or media_type, **VENDOR_STYLES[self._dialect].reply_headers}
        if fault.edit is not None:
            frames = fault.edit(frames)
        if fault.gzip:
            headers["content-encoding"] = "gzip"
            squeeze = zlib.compressobj(wbits=31)
            frames = [*(squeeze.compress(f) + squeeze.flush(zlib.Z_SYNC_FLUSH) for f in frames), squeeze.flush()]
        response = web.StreamResponse(headers=headers)
        await response.prepare(self._http)
        for i, frame in enumerate(frames):
            if i == fault.after:
                ended = await self._fail(response, frame)
                if ended is not None:
                    return ended
            await self._write(response, frame)
            self._seen.frames_sent += 1
            if self._pace_s:
                await asyncio.sleep(self._pace_s)
        await response.write_eof()
        return response

    async def _fail(self, response: web.StreamResponse, frame: bytes) -> web.StreamResponse | None:
        """The fault at its place in the stream. None: the stream continues."""
        fault = self._fault
        if fault.stall_s:
            await asyncio.sleep(fault.stall_s)
        if fault.error is not None:
            await response.write(error_frame(self._kind, self._dialect, fault.error))
        if fault.how == "reset":
            return _abort(self._http)
        if fault.how == "close":
            await response.write(frame[: len(frame) // 2])
            return self._close(response)
        if fault.how == "end" or fault.error is not None:
            await response.write_eof()
            return response
        return None

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        step = self._fault.piece or len(data) or 1
        for start in range(0, len(data), step):
            await response.write(data[start : start + step])
            if self._fault.pause_s:
                await asyncio.sleep(self._fault.pause_s)

    def _close(self, response: web.StreamResponse) -> web.StreamResponse:
        """Closes the connection in the middle of a body."""
        if self._http.transport is not None:
            self._http.transport.close()
        return response


def _abort(http: web.Request) -> web.StreamResponse:
    """A TCP reset."""
    if http.transport is not None:
        peer = http.transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        http.transport.abort()
    return web.Response()
