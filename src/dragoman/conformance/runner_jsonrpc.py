"""JSON-RPC from the client's side. Only the gateway serves it (docs/jsonrpc.md); no provider does."""

from dragoman.dialects._base import Dialect
from dragoman.dialects.jsonrpc import NAME, STREAM_MEDIA_TYPE, decode_failure, decode_reply, dialect_for
from dragoman.dialects.jsonrpc.parts import encode_call, encode_image
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Image, Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import Request, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply, WireRequest

PATH = "/generate"
CALL_ID = 1
_SAME = ("model", "temperature", "top_p", "top_k", "seed", "user")


def encode_request(request: Request, notes: Notes) -> WireRequest:
    params: JsonObject = {key: value for key in _SAME if (value := getattr(request, key)) is not None}
    at: At = (ROOT, "messages")
    params["messages"] = [
        encoded for i, message in enumerate(request.messages) for encoded in _encode_message(message, (at, i), notes)
    ]
    if request.tools:
        params["tools"] = [_encode_tool(tool) for tool in request.tools if isinstance(tool, Tool)]
    if request.tool_choice is not None:
        params["tool_choice"] = _encode_choice(request.tool_choice)
    if request.max_output is not None:
        params["max_output_tokens"] = request.max_output
    if request.stop is not None:
        params["stop"] = list(request.stop)
    if request.output is not None:
        params["response_schema"] = request.output.schema
    if request.reasoning is not None:
        notes.dropped((ROOT, "reasoning"), "a call cannot say how much to think")
    if request.stream:
        params["stream"] = True
    body = {"jsonrpc": "2.0", "id": CALL_ID, "method": "generate_content", "params": params}
    return WireRequest(path=PATH, body=body)


def _encode_choice(choice: ToolChoice) -> str:
    return choice.names[0] if choice.names else choice.mode


def _encode_tool(tool: Tool) -> JsonObject:
    body: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {key: value for key, value in body.items() if value is not None}


def _encode_message(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    """Each result is a message of its own. The other parts follow in one more message."""
    encoded: list[JsonObject] = []
    parts: list[JsonObject] = []
    calls: list[JsonObject] = []
    for i, part in enumerate(message.parts):
        match part:
            case ToolResult():
                encoded.append(_encode_result(part, at, notes))
            case ToolCall():
                calls.append(encode_call(part, ((at, "parts"), i), notes))
            case _:
                parts += _encode_part(part, ((at, "parts"), i), notes)
    if parts or calls:
        turn: JsonObject = {"role": message.role, "content": parts}
        encoded.append(turn | ({"tool_calls": calls} if calls else {}))
    return encoded


def _encode_result(part: ToolResult, at: At, notes: Notes) -> JsonObject:
    content = [block for inner in part.parts for block in _encode_part(inner, at, notes)]
    result: JsonObject = {"role": "tool", "tool_call_id": part.call_id, "content": content}
    return result | ({"failed": True} if part.failed else {})


def _encode_part(part: Part, at: At, notes: Notes) -> list[JsonObject]:
    match part:
        case Text():
            return [{"text": part.text}]
        case Image():
            image = encode_image(part, at, notes)
            return [{"image": image}] if image is not None else []
        case _:  # the door accepts no thoughts in requests
            return []


def read_reply(wire: WireReply, notes: Notes) -> Reply:
    """The result of a response without an error (see `is_error`)."""
    result = wire.body.get("result") if type(wire.body) is dict else None
    if type(result) is not dict:
        raise DecodeError("expected a response with a result")
    return decode_reply(WireReply(body=result), notes)


def is_error(body: object) -> bool:
    """JSON-RPC sends errors with status 200."""
    return type(body) is dict and "error" in body


_SERVED = dialect_for(CALL_ID)
JSONRPC = Dialect(
    name=NAME,
    title=_SERVED.title,
    profile=_SERVED.profile,
    media_type=STREAM_MEDIA_TYPE,
    decode_request=_SERVED.decode_request,
    encode_request=encode_request,
    decode_reply=read_reply,
    encode_reply=_SERVED.encode_reply,
    stream_decoder=_SERVED.stream_decoder,
    stream_encoder=_SERVED.stream_encoder,
    decode_failure=decode_failure,
    encode_failure=_SERVED.encode_failure,
    recognise=_SERVED.recognise,
)
