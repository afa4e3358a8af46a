"""OpenAI Responses: how many tokens a request has, both ways.
https://platform.openai.com/docs/api-reference/responses/input-tokens (digest read 2026-11-15)
"""

from dragoman.dialects.openai_responses.request import decode_request, encode_request
from dragoman.errors import DecodeError
from dragoman.fields import expected
from dragoman.jsontypes import kind_of
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

PATH = "/v1/responses/input_tokens"
OBJECT = "response.input_tokens"

# All that is counted, and all that is taken; how the answer shall be made does not change the number.
FIELDS = frozenset(
    {
        "conversation",
        "input",
        "instructions",
        "model",
        "parallel_tool_calls",
        "personality",
        "previous_response_id",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    }
)


def decode_count_request(wire: WireRequest, notes: Notes) -> Request:
    return decode_request(wire, notes)


def encode_count_request(request: Request, notes: Notes) -> WireRequest:
    body = encode_request(request, notes).body
    return WireRequest(path=PATH, body={key: value for key, value in body.items() if key in FIELDS})


def decode_count_reply(wire: WireReply) -> int:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    count = body.get("input_tokens")
    if type(count) is not int:
        raise expected("whole number", count, "input_tokens")
    return count


def encode_count_reply(count: int) -> WireReply:
    return WireReply(body={"object": OBJECT, "input_tokens": count})
