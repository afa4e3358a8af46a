"""python provider.py PORT FILE: a provider that writes down when each request came.

The model says what it does. `moody` refuses every third request with a 429. A request with tools gets a call of the
first one; its second turn gets text. Every answer has used 100 tokens of input and 50 of output.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from aiohttp import web

EVENTS = 10
PAUSE_S = 0.05
USAGE = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}


class Provider:
    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._moods = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        came = time.monotonic()
        body = await request.json()
        model = body["model"]
        self._log.write(f"{came} {model}\n")
        self._log.flush()
        if model == "moody":
            self._moods += 1
            if self._moods % 3 == 0:
                error = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
                return web.json_response(error, status=429, headers={"retry-after": "1"})
        if body.get("stream"):
            return await stream(request, body)
        reason, message = "stop", dict[str, Any](role="assistant", content="one two three")
        if calls := call_of(body):
            reason, message = "tool_calls", {"role": "assistant", "content": None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = {"id": "x", "object": "chat.completion", "created": 1, "model": model}
        return web.json_response({**head, "choices": [choice], "usage": USAGE})


def call_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    if not body.get("tools") or body["messages"][-1]["role"] == "tool":
        return []
    name = body["tools"][0]["function"]["name"]
    return [{"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"n":1}'}}]


async def stream(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    try:
        for delta, reason in deltas(body):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            await send(response, {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
                                  "choices": [choice]})  # fmt: skip
            await asyncio.sleep(PAUSE_S)
        await send(response, {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
                              "choices": [], "usage": USAGE})  # fmt: skip
        await response.write(b"data: [DONE]\n\n")
    except ConnectionError:
        pass  # the gateway left: its client did, or it was killed
    return response


def deltas(body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    if calls := call_of(body):
        yield {"role": "assistant", "tool_calls": calls}, None
        yield {}, "tool_calls"
        return
    yield {"role": "assistant", "content": ""}, None
    for number in range(EVENTS):
        yield {"content": f"word {number} "}, None
    yield {}, "stop"


async def send(response: web.StreamResponse, body: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(body).encode() + b"\n\n")


async def main(port: int, file: str) -> None:
    with Path(file).open("a") as log:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", Provider(log).answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
