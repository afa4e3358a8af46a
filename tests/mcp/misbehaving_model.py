"""A model of our own that never has enough: an OpenAI Chat upstream whose model names say how it misbehaves."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dragoman.upstream.spec import Upstream
from tests.gateway.house import upstream
from tests.waiting import NEVER_S

MODELS = ("same", "many", "heap", "slow", "once")
USAGE = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}


def calls_of(model: str, turn: int) -> list[dict[str, Any]]:
    """What it calls in this turn; `once` calls once and is content."""
    if model == "once" and turn:
        return []
    count = 20 if model == "heap" else 1
    said = [{} if model in ("same", "once") else {"turn": turn, "number": i} for i in range(count)]
    return [{"arguments": json.dumps(arguments)} for arguments in said]


class MisbehavingModel:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        puppet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                puppet.asked.append(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b"".join(puppet.play(body)))

            def log_message(self, *_: object) -> None:
                pass

        self._over = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def play(self, body: dict[str, Any]) -> Iterator[bytes]:
        model, messages = body["model"], body["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        if model == "slow" and turn:
            self._over.wait(NEVER_S)  # until the time of the whole loop is up
        name = body["tools"][0]["function"]["name"] if body.get("tools") else ""
        calls = [
            {"index": i, "id": f"c{turn}_{i}", "type": "function", "function": {"name": name, **call}}
            for i, call in enumerate(calls_of(model, turn))
        ]
        words = f"Turn {turn + 1}." if calls else "That is all."
        yield self._chunk(model, {"role": "assistant", "content": words})
        if calls:
            yield self._chunk(model, {"tool_calls": calls})
        yield self._chunk(model, {}, "tool_calls" if calls else "stop")
        yield b"data: [DONE]\n\n"

    def _chunk(self, model: str, delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {"id": "p", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
        return b"data: " + json.dumps(body | ({"usage": USAGE} if finish else {})).encode() + b"\n\n"

    def upstream(self) -> Upstream:
        return upstream("puppet", "openai_chat", self.url, models=MODELS)

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def misbehaving_model() -> Iterator[MisbehavingModel]:
    made = MisbehavingModel()
    try:
        yield made
    finally:
        made.close()
