"""OpenAI Chat Completions, and every server compatible with it.
https://platform.openai.com/docs/api-reference/chat (digest read 2026-11-15)"""

from dragoman.dialects._base import Dialect, Door, What
from dragoman.dialects._openai_services import DOORS, EMBEDDINGS, MODELS, SPEECH
from dragoman.dialects.openai_chat.calls import MADE_IDS
from dragoman.dialects.openai_chat.failure import decode_failure, encode_failure
from dragoman.dialects.openai_chat.note_places import locate_reply, locate_request
from dragoman.dialects.openai_chat.plain_reply import look_at_reply, read_usual_reply
from dragoman.dialects.openai_chat.plain_request import look_at_request, read_plain_request
from dragoman.dialects.openai_chat.reply import decode_reply, encode_reply
from dragoman.dialects.openai_chat.request import PATH, decode_request, decode_turns, encode_request
from dragoman.dialects.openai_chat.stream_decoder import StreamDecoder
from dragoman.dialects.openai_chat.stream_encoder import StreamEncoder
from dragoman.dialects.openai_chat.usage import USAGE_MARK, is_usage
from dragoman.dialects.openai_chat.usual_turns import read_turns
from dragoman.dialects.openai_chat.words import CALL_SEAL, LIMITS, NAME
from dragoman.fields import ReplyRules
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, Spelling
from dragoman.reasoning_state.carry import StateSlots

_SURE = ("max_completion_tokens", "response_format", "stream_options", "functions", "parallel_tool_calls", "logit_bias")


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            return _recognise_request(body)
        case "reply":
            return 95 if _first_has(body, "message") else 0
        case "stream":
            if body.get("object") == "chat.completion.chunk":
                return 95
            return 80 if _first_has(body, "delta") or body.get("choices") == [] else 0
        case "failure":
            error = body.get("error")
            if type(error) is dict:
                return 20 if body.get("type") == "error" else 60 + 30 * ("param" in error)
            return 20 if type(error) is str or body.get("object") == "error" else 0


def _recognise_request(body: JsonObject) -> int:
    messages = body.get("messages")
    if type(messages) is not list:
        return 0
    if any(type(tool) is dict and "function" in tool for tool in body.get("tools") or ()):
        return 80  # Ollama's look the same
    if any(key in body for key in _SURE):
        return 90
    roles = {message.get("role") for message in messages if type(message) is dict}
    if roles & {"developer", "function"} or any(_is_ours(message) for message in messages):
        return 90
    return 60 if "system" in roles else 50


def _is_ours(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    blocks = content if type(content) is list else []
    kinds = {block.get("type") for block in blocks if type(block) is dict}
    return bool(kinds & {"image_url", "input_audio", "file"}) or type(message.get("tool_call_id")) is str


def _first_has(body: JsonObject, key: str) -> bool:
    choices = body.get("choices")
    first = choices[0] if type(choices) is list and choices else None
    return type(first) is dict and key in first


# What OpenAI's own server accepts for its current models. Rows of upstream/profiles.toml start from it.
#
# Sources: protocols digests of November 2026, FIELD-CASES appendix A.
PROFILE = Profile(
    kind=NAME,
    dialect=NAME,
    choice_alone=False,
    join_calls=True,
    result_media=False,
    tool_names=Spelling(longest=64),
    call_ids=Spelling(letters=VISIBLE, longest=64),
    schema="openai",
    seals_bound_to="upstream",  # many servers speak this dialect, and each reads only its own
    strict_schema="openai_strict",
    thoughts="not_alone",
    limit_keys=LIMITS,
    respelled={"prompt_cache_retention": {"in-memory": "in_memory"}},  # as OpenAI's own SDKs had it
    stream_keys=("stream_options",),
    shared_extras={
        "openai_responses": {
            "moderation": (),
            "prompt_cache_options.mode": (),
            "prompt_cache_options.ttl": ("30m",),
            "prompt_cache_retention": (),
            "stream_options.include_obfuscation": (),
            "user": (),
        }
    },
    older_forms={
        "~tools": ("functions",),
        "~tool_choice": ("function_call",),
        "~flat": (),
        "~form": ("function_call",),
        "~role": ("function",),
    },
    wrong_forms=("~typed",),
    result_ids=True,
    ranges={"top_p": (0, 1), "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2)},
    stops=4,
    longest={"user": 64, "cache_key": 64},
    metadata_limits=(16, 64, 512),
    json_word=True,
    empty_tools=True,
    media=MediaForms(images=("data", "url"), documents=("data", "file_id"), audio=("data",), video=()),
    assistant_media=MediaForms(images=(), documents=(), audio=("id",), video=()),
    lacks=("server_tools",),
)

DIALECT = Dialect(
    name=NAME,
    title="OpenAI Chat Completions",
    profile=PROFILE,
    reply_rules=ReplyRules(
        required=frozenset({"id", "object", "created", "model", "choices", "role", "type", "finish_reason"}),
        wrong={
            "~id": (),
            "~arguments": (),
            "~no_message": (),  # Azure, where its filter has cut the answer
            "~finish_reason": ("function_call",),
        },
        wrong_values={
            "~content": ("list",),  # Mistral's
            "~name": ("content",),
            "~index": ("absent", "null"),  # of a choice; that of a reasoning detail is a number
        },
        one_text=True,
        old_form="~form",
    ),
    decode_request=decode_request,
    read_plain_request=read_plain_request,
    look_at_request=look_at_request,
    encode_request=encode_request,
    decode_reply=decode_reply,
    look_at_reply=look_at_reply,
    read_usual_reply=read_usual_reply,
    encode_reply=encode_reply,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    writes_runs=True,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    locate_request=locate_request,
    decode_turns=decode_turns,
    tools_keys=("tools", "functions"),
    read_turns=read_turns,
    made_ids=MADE_IDS,
    locate_reply=locate_reply,
    recognise=recognise,
    doors=(Door(path=PATH, name="chat"), *DOORS),
    other_bases=("/api/v1", "/v1beta/openai", "/openai/v1", "/openai"),  # OpenRouter, Google, Groq and others
    models=MODELS,
    embeddings=EMBEDDINGS,
    speech=SPEECH,
    carried_headers=("openai-beta",),
    media_type="text/event-stream",
    reply_keys=("choices",),
    is_end=lambda data: data.strip() == b"[DONE]",
    end_words=(b"[DONE]",),
    end_frame=b"data: [DONE]\n\n",
    ping=b": keep-alive\n\n",
    usage_option=("stream_options", "include_usage"),
    is_usage=is_usage,
    usage_mark=USAGE_MARK,
    dated=True,
    reply_id_prefix="chatcmpl-",
    seal_form="signature",
    slots=StateSlots(dialect=NAME, kind="details", form="encrypted", call_form=CALL_SEAL),
)
