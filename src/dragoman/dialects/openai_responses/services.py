"""OpenAI Responses beside conversations: its paths and its token count.

https://platform.openai.com/docs/api-reference/responses/input-tokens (digest read 2026-11-15)
"""

from dragoman.dialects._base import Door
from dragoman.dialects._services import CountCodec, read_count
from dragoman.dialects.openai_responses.request import PATH, decode_request, encode_request
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

COUNT_PATH = f"{PATH}/input_tokens"
_STORED = rf"{PATH}/(?P<id>[\w.-]+)"

DOORS = (
    Door(path=PATH, name="responses"),
    Door(path=PATH, methods=("GET",), serves="websocket"),
    Door(path=f"{PATH}/compact", serves="compact"),
    Door(path=COUNT_PATH, serves="count"),
    Door(path=rf"{_STORED}/input_items", methods=("GET",), serves="stored_input"),
    Door(path=rf"{_STORED}/cancel", serves="stored_cancel"),
    Door(path=_STORED, methods=("GET",), serves="stored"),
    Door(path=_STORED, methods=("DELETE",), serves="forget"),
)


# ---------------------------------------------------------------- count

OBJECT = "response.input_tokens"

# The count endpoint accepts only these keys. Settings of the answer do not change the count.
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
    return WireRequest(path=COUNT_PATH, body={key: value for key, value in body.items() if key in FIELDS})


COUNTS = CountCodec(
    path=COUNT_PATH,
    decode_request=decode_request,
    encode_request=encode_count_request,
    decode_reply=lambda body: read_count(body, "input_tokens"),
    encode_reply=lambda count: {"object": OBJECT, "input_tokens": count},
)
