"""OpenAI Responses. https://platform.openai.com/docs/api-reference/responses (digest read 2026-11-15)"""

from dragoman.dialects._base import Dialect, KeptState, What
from dragoman.dialects._openai_services import EMBEDDINGS, MODELS, SPEECH
from dragoman.dialects._streams import is_last
from dragoman.dialects.openai_responses.failure import decode_failure, encode_failure, find_failure
from dragoman.dialects.openai_responses.note_places import locate_reply, locate_request
from dragoman.dialects.openai_responses.reply import decode_reply, encode_reply
from dragoman.dialects.openai_responses.request import decode_request, encode_request
from dragoman.dialects.openai_responses.services import COUNTS, DOORS
from dragoman.dialects.openai_responses.stream_decoder import StreamDecoder, StreamEncoder
from dragoman.dialects.openai_responses.tools import has_other_tools
from dragoman.dialects.openai_responses.words import NAME, SEALED
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, SearchTool, Spelling
from dragoman.reasoning_state.carry import StateSlots

# Keys that only Responses has. Requests for embeddings and speech have an `input` too.
_TELLING = frozenset(
    {
        "instructions",
        "include",
        "max_output_tokens",
        "previous_response_id",
        "reasoning",
        "store",
        "stream",
        "text",
        "tools",
        "truncation",
    }
)


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            if "messages" in body or "contents" in body:
                return 0
            given = body.get("input")
            if type(given) is list and any(type(item) is dict for item in given):
                return 95
            if given is None or given == []:
                if type(body.get("prompt")) is dict:  # a template; in other APIs a prompt is a string
                    return 80
                return 60 if "previous_response_id" in body or "conversation" in body else 0
            return 90 if body.keys() & _TELLING else 60
        case "reply":
            return 95 if body.get("object") == "response" else 0
        case "stream":
            kind = body.get("type")
            return 95 if type(kind) is str and kind.startswith("response.") else 0
        case "failure":
            error = body.get("error")
            return 50 if type(error) is dict and "message" in error and "type" in error else 0


# What OpenAI's own server accepts for its current models. Rows of upstream/profiles.toml start from it.
#
# Sources: protocols digests of November 2026, FIELD-CASES appendix A.
PROFILE = Profile(
    kind=NAME,
    dialect=NAME,
    tool_names=Spelling(longest=128),
    call_ids=Spelling(letters=VISIBLE, longest=64),
    schema="openai",
    strict_schema="openai_strict",
    echo="signed",
    seal_forms=("encrypted",),
    thoughts="not_last",
    hides_thoughts=True,
    sealed_option=("include", SEALED),
    stores_unasked=True,
    state_keys=("previous_response_id", "conversation"),
    ranges={"max_output": (16, None), "temperature": (0, 2), "top_p": (0, 1)},
    respelled={"prompt_cache_retention": {"in-memory": "in_memory"}},  # as OpenAI's own SDKs had it
    stream_keys=("stream_options",),
    shared_extras={
        "openai_chat": {
            "moderation": (),
            "prompt_cache_options.mode": (),
            "prompt_cache_options.ttl": (),
            "prompt_cache_retention": (),
            "stream_options.include_obfuscation": (),
            "user": (),
        }
    },
    longest={"user": 64, "cache_key": 64},
    item_ids=64,
    metadata_limits=(16, 64, 512),
    json_word=True,
    empty_tools=True,
    search_tool=SearchTool(head={"type": "web_search"}, filters="filters", size=True),
    media=MediaForms(audio=(), video=()),
    assistant_media=MediaForms(images=(), documents=(), audio=(), video=()),
    lacks=("choices", "stop", "server_tools"),
)

DIALECT = Dialect(
    name=NAME,
    title="OpenAI Responses",
    profile=PROFILE,
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
    messages_key="input",
    tools_keys=("tools",),
    has_other_tools=has_other_tools,
    kept_state=(
        KeptState(key="conversation", advice="send the whole input, or previous_response_id"),
        KeptState(key="prompt", advice="send its text as instructions"),
    ),
    naming_keys=("file_id", "file_ids", "vector_store_ids", "container", "container_id"),
    counts=COUNTS,
    models=MODELS,
    embeddings=EMBEDDINGS,
    speech=SPEECH,
    carried_headers=("openai-beta",),
    media_type="text/event-stream",
    reply_keys=("output",),
    find_failure=find_failure,
    is_end=is_last("type", "response.completed", "response.incomplete", "response.failed"),
    end_words=(b"response.completed", b"response.incomplete", b"response.failed"),
    ping=b": keep-alive\n\n",
    dated=True,
    reply_id_prefix="resp_",
    stores_replies=True,
    searches_web=True,
    connects_mcp=True,
    seal_form="encrypted",
    slots=StateSlots(dialect=NAME, kind="thoughts", form="encrypted"),
)
