"""OpenAI Responses: how many tokens a request has, both ways.
https://platform.openai.com/docs/api-reference/responses/input-tokens (digest read 2026-11-15)
"""

from dragoman.dialects._services import CountCodec, read_count
from dragoman.dialects.openai_responses.request import decode_request, encode_request
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

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


def encode_count_request(request: Request, notes: Notes) -> WireRequest:
    body = encode_request(request, notes).body
    return WireRequest(path=PATH, body={key: value for key, value in body.items() if key in FIELDS})


COUNTS = CountCodec(
    path=PATH,
    decode_request=decode_request,
    encode_request=encode_count_request,
    decode_reply=lambda body: read_count(body, "input_tokens"),
    encode_reply=lambda count: {"object": OBJECT, "input_tokens": count},
)
