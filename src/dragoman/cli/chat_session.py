"""A conversation with a gateway, in one of its protocols."""

import http.client
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from dragoman.cli.local_gateway import GatewayError, read_error
from dragoman.convert import make_legal
from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects.jsonrpc import dialect_for
from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.model.events import Event
from dragoman.model.fold import ReplyBuilder
from dragoman.model.messages import Message, Reasoning, Text
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes

Via: TypeAlias = Literal["ollama", "jsonrpc", "mcp", "openai", "anthropic", "gemini"]
VIAS: tuple[Via, ...] = get_args(Via)
DIALECTS = {"openai": USUAL}  # the other names are names of dialects
TIMEOUT_S = 600.0
ITERATIONS = 5


class ChatSession:
    def __init__(self, url: str, via: Via, model: str, *, key: str | None = None, mcp: str | None = None) -> None:
        self.url, self.via, self.model, self.key = url, via, model, key
        self.mcp = mcp  # the names of MCP servers, sent in a header
        self.iterations = ITERATIONS
        self.messages: list[Message] = []
        self.servers: list[str] = []  # the names of MCP servers, sent to /generate_with_mcp
        self.request_id = ""
        self.usage: Usage | None = None

    def use_server(self, server: str) -> None:
        """Offers the tools of an MCP server from now on."""
        named = [name for name in (self.mcp or "").split(",") if name]
        if "*" not in named and server not in named:
            self.mcp = ",".join([*named, server])

    def drop_server(self, server: str) -> None:
        self.mcp = ",".join(name for name in (self.mcp or "").split(",") if name and name != server) or None

    def send(self, text: str) -> Iterator[Event]:
        """Yields the answer's events. The question is remembered only if the answer is complete."""
        question = Message(role="user", parts=(Text(text=text),))
        path, body, dialect = self._encode([*self.messages, question])
        builder = ReplyBuilder()
        complete = False
        try:
            for event in self._send(path, body, dialect):
                builder.feed(event)
                yield event
            complete = True
        finally:
            self._remember(question, builder, complete=complete)

    def _remember(self, question: Message, builder: ReplyBuilder, *, complete: bool) -> None:
        try:
            reply = builder.reply()
        except ValueError:
            return
        if isinstance(reply, Reply) and reply.choices and complete:
            self.usage = reply.usage
            parts = tuple(part for part in reply.choices[0].parts if not isinstance(part, Reasoning))
            self.messages += [question, Message(role="assistant", parts=parts or (Text(text=""),))]

    def _encode(self, messages: list[Message]) -> tuple[str, JsonObject, Dialect]:
        if self.via in ("jsonrpc", "mcp"):
            return self._encode_call(messages)
        dialect = find_dialect(DIALECTS.get(self.via, self.via))
        request = Request(model=self.model, messages=tuple(messages), stream=True)
        wire = dialect.encode_request(make_legal(request, dialect, Notes()), Notes())
        return wire.path, wire.body, dialect

    def _encode_call(self, messages: list[Message]) -> tuple[str, JsonObject, Dialect]:
        turns = [{"role": m.role, "content": "".join(getattr(p, "text", "") for p in m.parts)} for m in messages]
        params: JsonObject = {"model": self.model, "messages": turns, "stream": True}
        if self.via == "mcp":
            params |= {"mcp_servers": self.servers, "max_iterations": self.iterations}
        body = {"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params}
        return "/generate_with_mcp" if self.via == "mcp" else "/generate", body, dialect_for(1)

    def _send(self, path: str, body: JsonObject, dialect: Dialect) -> Iterator[Event]:
        parts = urlsplit(self.url)
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = make(parts.hostname or "127.0.0.1", parts.port, timeout=TIMEOUT_S)
        headers = {"content-type": "application/json", "x-dragoman-xray": "1", **dialect.default_headers}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        if self.mcp is not None and self.via != "mcp":
            headers["x-dragoman-mcp"] = self.mcp
        try:
            connection.request("POST", path, dump_json(body), headers)
            response = connection.getresponse()
            self.request_id = response.headers.get("x-request-id", "")
            if response.status != 200:
                raise GatewayError(read_error(response.status, response.read(65536)))
            decoder = dialect.stream_decoder(Notes())
            while data := response.read1(65536):
                yield from decoder.feed(data)
            yield from decoder.close()
        except (OSError, http.client.HTTPException) as error:
            raise GatewayError(f"{self.url} does not answer: {error}") from error
        except DragomanError as error:
            raise GatewayError(str(error)) from error
        finally:
            connection.close()
