"""Anthropic's token counts and model list. https://docs.anthropic.com/en/api/messages-count-tokens and
https://docs.anthropic.com/en/api/models-list (digest read 2026-11-15)
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from dragoman.dialects._services import (
    CountCodec,
    ListedModel,
    ModelsCodec,
    find_flag,
    find_number,
    find_text,
    read_count,
    read_models,
)
from dragoman.dialects.anthropic.request import decode_request, encode_request
from dragoman.jsontypes import JsonObject
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

COUNT_PATH = "/v1/messages/count_tokens"
# The count endpoint refuses these keys.
_NOT_COUNTED = ("max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier")


def encode_count_request(request: Request, notes: Notes) -> WireRequest:
    wire = encode_request(request, notes)
    body = {key: value for key, value in wire.body.items() if key not in _NOT_COUNTED}
    return WireRequest(path=COUNT_PATH, body=body, headers=wire.headers)


COUNTS = CountCodec(
    path=COUNT_PATH,
    decode_request=decode_request,
    encode_request=encode_count_request,
    decode_reply=lambda body: read_count(body, "input_tokens"),
    encode_reply=lambda count: {"input_tokens": count},
)


def encode_model(model: ListedModel) -> JsonObject:
    """`capabilities` would have to name every ability: it is null, which says that they are not known."""
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(model.created or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.reads,
        "max_tokens": model.max_output,
        "capabilities": None,
    }


def decode_model(name: str, row: JsonObject) -> ListedModel:
    """The largest input it names is the window."""
    return ListedModel(
        name=name,
        created=_read_time(find_text(row, "created_at")),
        max_input=find_number(row, "max_input_tokens"),
        max_output=find_number(row, "max_tokens"),
        vision=find_flag(row, "capabilities.image_input.supported"),
        thinking=find_flag(row, "capabilities.thinking.supported"),
    )


def _read_time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() or None
    except ValueError:
        return None


def encode_models(models: Sequence[ListedModel], query: str) -> JsonObject:
    first, last = (models[0].name, models[-1].name) if models else (None, None)
    return {"data": [encode_model(m) for m in models], "has_more": False, "first_id": first, "last_id": last}


MODELS = ModelsCodec(
    path="/v1/models?limit=1000",
    decode=lambda body: read_models(body, "data", "id", decode_model),
    encode=encode_models,
    encode_one=encode_model,
)
