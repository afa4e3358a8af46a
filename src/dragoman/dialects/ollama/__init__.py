"""Ollama's own API: /api/chat and /api/generate. https://github.com/ollama/ollama docs/api.md (read 2026-11-15)"""

from dragoman.dialects._base import Dialect, KeptState, TimeKeys, What
from dragoman.dialects._streams import is_last
from dragoman.dialects.ollama.failure import decode_failure, encode_failure
from dragoman.dialects.ollama.note_places import locate_reply, locate_request
from dragoman.dialects.ollama.reply import decode_reply, encode_loaded, encode_reply
from dragoman.dialects.ollama.request import decode_request, encode_request
from dragoman.dialects.ollama.services import DOORS, EMBEDDINGS, MODELS
from dragoman.dialects.ollama.stream_decoder import StreamDecoder
from dragoman.dialects.ollama.stream_encoder import StreamEncoder
from dragoman.dialects.ollama.words import NAME
from dragoman.fields import ReplyRules
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import MediaForms, Profile, Thinking

_OWN_KEYS = {"options", "keep_alive", "think", "format", "raw", "suffix", "context", "truncate", "shift"}
_OWN_FIELDS = {"images", "thinking", "tool_name"}


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            return _recognise_request(body)
        case "reply" | "stream":
            answers = "message" in body or "response" in body
            return 95 if answers and "done" in body and "choices" not in body else 0
        case "failure":
            return 60 if type(body.get("error")) is str and len(body) <= 2 else 0


def _recognise_request(body: JsonObject) -> int:
    messages = body.get("messages")
    if type(messages) is not list:
        if "input" in body or "contents" in body:
            return 0
        if type(body.get("prompt")) is str:
            return 80 if _OWN_KEYS & body.keys() else 40
        return 80 if "keep_alive" in body else 0
    if _OWN_KEYS & body.keys():
        return 92
    if any(type(message) is dict and _OWN_FIELDS & message.keys() for message in messages):
        return 85
    calls = [call for message in messages if type(message) is dict for call in message.get("tool_calls") or ()]
    if any(type(call) is dict and _has_object_arguments(call) for call in calls):
        return 90
    return 5


def _has_object_arguments(call: JsonObject) -> bool:
    function = call.get("function")
    return type(function) is dict and type(function.get("arguments")) is dict


# What Ollama accepts for current models. Rows of upstream/profiles.toml start from it.
#
# Sources: protocols digests of November 2026, FIELD-CASES appendix A.
PROFILE = Profile(
    kind=NAME,
    dialect=NAME,
    seal_forms=(),
    results_in_order=True,
    empty_tools=True,
    result_names=True,
    join_calls=True,
    developer=False,
    schema="ollama",
    output_schema="any",
    media=MediaForms(images=("data",), documents=(), audio=("data",), video=()),  # sound goes into `images`
    thinking=Thinking(says="effort", efforts=("low", "medium", "high", "max")),
    lacks=("tool_choice", "parallel_off", "choices", "custom_tools", "server_tools"),
)

DIALECT = Dialect(
    name=NAME,
    title="Ollama",
    profile=PROFILE,
    reply_rules=ReplyRules(required=frozenset({"role", "model", "created_at"}), wrong={"~arguments": ("null",)}),
    decode_request=decode_request,
    encode_request=encode_request,
    decode_reply=decode_reply,
    encode_reply=encode_reply,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    writes_runs=True,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    locate_request=locate_request,
    locate_reply=locate_reply,
    recognise=recognise,
    doors=DOORS,
    tools_keys=("tools",),
    kept_state=(KeptState(key="context", advice="send the conversation to /api/chat"),),
    client_paths=("/api/",),
    models=MODELS,
    embeddings=EMBEDDINGS,
    media_type="application/x-ndjson",
    reply_keys=("message", "response"),
    is_end=is_last("done", True),
    end_words=(b"true",),
    any_content_type=True,  # curl's own is application/x-www-form-urlencoded, and all of Ollama's examples send it
    dated=True,
    reply_ids=False,
    timed=TimeKeys(
        total="total_duration", reading="prompt_eval_duration", writing="eval_duration", loading="load_duration"
    ),
    encode_loaded=encode_loaded,
    repeats_call_ids=False,
)
