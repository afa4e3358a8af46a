"""JSON-RPC 2.0 at /generate (mission D2): a door of its own, written as a dialect so that every upstream serves it.
https://www.jsonrpc.org/specification (read 2026-11-15)

    {"jsonrpc": "2.0", "id": 1, "method": "generate_content",
     "params": {"model": ..., "messages": [{"role": ..., "content": ... or "parts": ...}], "temperature": ...,
                "max_output_tokens": ..., "tools": [...], "stream": true}}
 -> {"jsonrpc": "2.0", "id": 1, "result": {"generated_text": ..., "finish_reason": "STOP", ...}}

With `stream` the answer is one JSON object a line: notifications `generate_content.delta`, then the response.
"""

from collections.abc import Iterable
from typing import Any

from dragoman.dialects._base import Dialect, What
from dragoman.errors import DecodeError
from dragoman.failure import Failure, FailureKind
from dragoman.jsontypes import Json, JsonObject, dump_json, dump_text, kind_of
from dragoman.model.events import Event, PartDelta, PartStart, ReplyEnd, ReplyFailed
from dragoman.model.fold import Folder
from dragoman.model.messages import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from dragoman.model.reply import FinishReason, Reply
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

NAME = "jsonrpc"
METHOD = "generate_content"
FINISHES: dict[FinishReason, str] = {
    "stop": "STOP",
    "sequence": "STOP",
    "length": "MAX_TOKENS",
    "context": "MAX_TOKENS",
    "tool_call": "TOOL_CALL",
    "filter": "SAFETY",
    "refusal": "SAFETY",
}
CODES: dict[FailureKind, int] = {
    "invalid_request": -32602,
    "too_long": -32602,
    "refused": -32602,
    "unauthenticated": -32001,
    "forbidden": -32003,
    "not_found": -32004,
    "too_large": -32013,
    "rate_limited": -32029,
    "no_credit": -32030,
    "server_error": -32603,
    "unknown": -32603,
    "cut_off": -32050,
    "overloaded": -32053,
    "timed_out": -32054,
}
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "user",
}


class RpcError(DecodeError):
    """A request JSON-RPC itself refuses, with the code for it."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


def check_call(body: JsonObject) -> JsonObject:
    """The params of a call of our method."""
    if body.get("jsonrpc") != "2.0" or type(body.get("method")) is not str:
        raise RpcError(-32600, 'expected {"jsonrpc": "2.0", "method": ..., "params": ...}')
    if body["method"] != METHOD:
        raise RpcError(-32601, f"no method {body['method'][:100]!r}: expected {METHOD}")
    params = body.get("params")
    if type(params) is not dict:
        raise RpcError(-32602, f"params: expected object, found {kind_of(params)}")
    return params


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    params = check_call(wire.body)
    try:
        return _decode_params(params, wire.body.get("id"))
    except RpcError:
        raise
    except DecodeError as error:
        raise RpcError(-32602, str(error.under("params"))) from error


def _decode_params(params: JsonObject, call: Json) -> Request:
    messages = params.get("messages")
    if type(messages) is not list or not messages:
        raise DecodeError(f"expected a list of messages, found {kind_of(messages)}", "messages")
    limit = params.get("max_output_tokens", params.get("max_tokens"))
    return Request(
        model=_text(params.get("model") or "", "model"),
        messages=tuple(_decode_message(m, i) for i, m in enumerate(messages)),
        tools=tuple(_decode_tool(t, i) for i, t in enumerate(params["tools"])) if params.get("tools") else None,
        temperature=_number(params.get("temperature"), "temperature"),
        top_p=_number(params.get("top_p"), "top_p"),
        max_output=None if limit is None else int(_number(limit, "max_output_tokens") or 0),
        stream=params.get("stream") is True,
        extras={NAME: {"~id": call}},
    )


def _decode_message(message: Json, at: int) -> Message:
    if type(message) is not dict:
        raise DecodeError(f"expected object, found {kind_of(message)}", "messages", at)
    role = ROLES.get(message.get("role", "user"))
    if role is None:
        raise DecodeError(f"expected one of {', '.join(ROLES)}", "messages", at, "role")
    content = message.get("parts") if "parts" in message else message.get("content")
    parts: list[Part] = [_decode_part(p, at) for p in (content if type(content) is list else [content or ""])]
    if message.get("role") == "tool":
        call_id = str(message.get("tool_call_id") or message.get("id") or "")
        name = message.get("name")
        return Message(
            role="user",
            parts=(ToolResult(call_id=call_id, parts=tuple(parts), name=name if type(name) is str else None),),
        )
    for call in message.get("tool_calls") or ():
        arguments = call.get("arguments", {})
        text = arguments if type(arguments) is str else dump_text(arguments)
        parts.append(ToolCall(id=str(call.get("id", "")), name=str(call.get("name", "")), arguments=text))
    kept = tuple(p for p in parts if not (isinstance(p, Text) and not p.text and len(parts) > 1))
    return Message(role=role, parts=kept)


def _decode_part(part: Json, at: int) -> Part:
    if type(part) is str:
        return Text(text=part)
    if type(part) is dict and type(part.get("text")) is str:
        return Text(text=part["text"])
    data = part.get("inline_data") or part.get("inlineData") if type(part) is dict else None
    if type(data) is dict and type(data.get("data")) is str:
        return Image(data=data["data"], media_type=data.get("mime_type") or data.get("mimeType"))
    raise DecodeError("expected text", "messages", at)


def _decode_tool(tool: Json, at: int) -> Tool:
    inner: Any = tool.get("function", tool) if type(tool) is dict else None
    if type(inner) is not dict or type(inner.get("name")) is not str:
        raise DecodeError("expected a tool with a name", "tools", at)
    return Tool(name=inner["name"], description=inner.get("description"), parameters=inner.get("parameters"))


def _text(value: Json, key: str) -> str:
    if type(value) is not str:
        raise DecodeError(f"expected string, found {kind_of(value)}", key)
    return value


def _number(value: Json, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DecodeError(f"expected number, found {kind_of(value)}", key)
    return value


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    choice = reply.choices[0] if reply.choices else None
    parts = choice.parts if choice else ()
    finish = choice.finish.reason if choice and choice.finish else "stop"
    result: JsonObject = {
        "generated_text": "".join(p.text for p in parts if isinstance(p, Text)),
        "finish_reason": FINISHES.get(finish, "OTHER"),
        "model": reply.model,
    }
    if thought := "".join(p.text for p in parts if isinstance(p, Reasoning)):
        result["reasoning"] = thought
    if calls := [p for p in parts if isinstance(p, ToolCall)]:
        result["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
    if reply.usage is not None:
        counts = {"input_tokens": reply.usage.input, "output_tokens": reply.usage.output}
        result["usage"] = {key: value for key, value in counts.items() if value is not None}
    return WireReply(body={"jsonrpc": "2.0", "result": result, "id": call_id(request)})


def call_id(request: Request | None) -> Json:
    return request.extras.get(NAME, {}).get("~id") if request is not None else None


def encode_failure(failure: Failure) -> WireReply:
    code = CODES.get(failure.kind, -32603)
    error: JsonObject = {"code": code, "message": failure.message, "data": {"kind": failure.kind}}
    if failure.code:
        error["data"]["code"] = failure.code
    if failure.retry_after_s is not None:
        error["data"]["retryAfterMs"] = round(failure.retry_after_s * 1000)
    status = failure.status if failure.status in (401, 403, 413, 415, 421, 429, 503) else 200
    return WireReply(body={"jsonrpc": "2.0", "error": error, "id": None}, status=status)


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._folder = Folder()
        self._notes = notes
        self._request = request
        self._texts: set[int] = set()
        self._ended = False

    def feed(self, events: Iterable[Event]) -> bytes:
        lines = []
        for event in events:
            self._folder.feed(event)
            match event:
                case PartStart(part=Text(text=text)):
                    self._texts.add(event.index)
                    lines.append(self._delta(text))
                case PartDelta(text=text) if event.index in self._texts:
                    lines.append(self._delta(text))
                case ReplyEnd():
                    lines.append(self._end(self._folder.reply()))
                case ReplyFailed(failure=failure):
                    lines.append(self._end(failure))
                case _:
                    pass
        return b"".join(lines)

    def close(self) -> bytes:
        return b"" if self._ended else self._end(Failure(kind="cut_off", message="the answer ended before its end"))

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        params = {"id": call_id(self._request), "text": text}
        return dump_json({"jsonrpc": "2.0", "method": f"{METHOD}.delta", "params": params}) + b"\n"

    def _end(self, said: Reply | Failure) -> bytes:
        self._ended = True
        if isinstance(said, Failure):
            body = encode_failure(said).body
            body["id"] = call_id(self._request)
        else:
            body = encode_reply(said, self._notes, self._request).body
        return dump_json(body) + b"\n"


def _never(*_: object, **__: object) -> Any:
    raise DecodeError("no upstream speaks JSON-RPC")


def _recognise(body: JsonObject, what: What) -> int:
    return 0


DIALECT = Dialect(
    name=NAME,
    title="JSON-RPC",
    media_type="application/x-ndjson",
    legal=(),
    decode_request=decode_request,
    encode_request=_never,
    decode_reply=_never,
    encode_reply=encode_reply,
    stream_decoder=_never,
    stream_encoder=StreamEncoder,
    decode_failure=_never,
    encode_failure=encode_failure,
    recognise=_recognise,
)
