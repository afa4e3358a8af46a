"""Anthropic Messages. https://docs.anthropic.com/en/api/messages (digest read 2026-11-15)"""

from dragoman.dialects._base import Dialect, Door, KeptState, What
from dragoman.dialects._streams import is_last
from dragoman.dialects.anthropic.failure import decode_failure, encode_failure
from dragoman.dialects.anthropic.note_places import locate_reply, locate_request
from dragoman.dialects.anthropic.reply import decode_reply, encode_reply
from dragoman.dialects.anthropic.request import PATH, decode_request, decode_turns, encode_request
from dragoman.dialects.anthropic.services import COUNT_PATH, COUNTS, MODELS
from dragoman.dialects.anthropic.stream_decoder import StreamDecoder
from dragoman.dialects.anthropic.stream_encoder import StreamEncoder
from dragoman.dialects.anthropic.usual_turns import read_turns
from dragoman.dialects.anthropic.words import BETA_HEADER, DEFAULT_MAX_TOKENS, NAME, VERSION, VERSION_HEADER
from dragoman.fields import ReplyRules
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import MediaForms, Profile, SearchTool, Spelling, Thinking
from dragoman.reasoning_state.carry import StateSlots


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            messages = body.get("messages")
            if type(messages) is not list:
                return 0
            if "max_tokens" in body and any(key in body for key in ("system", "stop_sequences", "thinking")):
                return 90
            kinds = {b.get("type") for m in messages if type(m) is dict for b in _blocks(m)}
            if kinds & {"tool_use", "tool_result", "thinking", "image", "document"}:
                return 90
            if any(type(t) is dict and ("input_schema" in t or "name" in t) for t in body.get("tools") or ()):
                return 90
            return 50 if "max_tokens" in body else 10
        case "reply":
            return 95 if body.get("type") == "message" and "content" in body else 0
        case "stream":
            return 95 if body.get("type") in ("message_start", "ping", "content_block_start") else 0
        case "failure":
            return 95 if body.get("type") == "error" and type(body.get("error")) is dict else 0


def _blocks(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [b for b in content if type(b) is dict] if type(content) is list else []


QUOTA = (
    *("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"),
    *("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-tokens-limit"),
    *("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
# The SDK's tool runner sends the whole conversation when it is told so (lib/threads/_thread_state.py, anthropic 2.8).
KEPT_STATE = (
    KeptState(
        key="thread",
        advice="send the whole conversation without it",
        extras={NAME: {"details": {"error_code": "thread_unsupported_request"}}},
    ),
    KeptState(
        key="container",
        advice="leave it out",
        is_name=lambda value: type(value) is str or (type(value) is dict and bool(value.get("id"))),
    ),
)

# What Anthropic's own server accepts for its current models. Rows of upstream/profiles.toml start from it.
#
# Sources: protocols digests of November 2026, FIELD-CASES appendix A.
PROFILE = Profile(
    kind=NAME,
    dialect=NAME,
    choice_alone=False,
    results_first=True,
    join_turns=True,
    first_user=True,
    prefill=False,
    empty_text=False,
    mid_system="placed",
    developer=False,
    billing=True,
    tool_names=Spelling(longest=128),
    call_ids=Spelling(longest=1024),
    schema="anthropic",
    strict_schema="anthropic_strict",
    output_schema="anthropic_strict",
    echo="signed",
    seal_forms=("signature", "redacted"),
    thoughts="not_last",
    show_needs_mode=True,
    effort_thinks=False,
    thinking=Thinking(says="both", efforts=("low", "medium", "high", "xhigh", "max"), least=1024, inside=True),
    thinking_first=True,
    forced_choice="unless_thinking",
    sampling="unless_thinking",
    tolerated={"top_p": (0.95, 1)},
    state_keys=("thread",),
    ranges={"temperature": (0, 1)},
    blank_stops=False,
    cache_marks=4,
    marks_in_results=False,
    marks_in_order=True,
    longest={"user": 256},
    opaque_user=True,
    needs_output=DEFAULT_MAX_TOKENS,
    empty_tools=True,
    failed_needs_text=True,
    search_tool=SearchTool(head={"type": "web_search_20250305", "name": "web_search"}, blocks=True),
    media=MediaForms(
        audio=(),
        video=(),
        image_types=("image/jpeg", "image/png", "image/gif", "image/webp"),
        document_types=("application/pdf", "text/plain"),
        most_characters=10 * 1_048_576,
        most_pixels=8000,
        many_pictures=20,
        most_pixels_of_many=2000,
    ),
    lacks=("choices", "json", "custom_tools", "server_tools"),
)

DIALECT = Dialect(
    name=NAME,
    title="Anthropic Messages",
    profile=PROFILE,
    reply_rules=ReplyRules(
        required=frozenset({"type", "role", "usage", "stop_sequence", "input_tokens", "output_tokens"}),
        wrong={"~id": (), "~signature": ()},
        ends_calls=True,
    ),
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
    instructions_key="system",
    decode_turns=decode_turns,
    tools_keys=("tools",),
    read_turns=read_turns,
    locate_reply=locate_reply,
    recognise=recognise,
    kept_state=KEPT_STATE,
    naming_keys=("file_id",),
    doors=(Door(path=PATH, name="messages"), Door(path=COUNT_PATH, serves="count")),
    other_bases=("/anthropic",),
    client_headers=(VERSION_HEADER,),
    client_paths=("/messages",),
    key_style="x-api-key",
    counts=COUNTS,
    models=MODELS,
    carried_headers=(VERSION_HEADER, BETA_HEADER),
    default_headers={VERSION_HEADER: VERSION},
    rate_headers=("x-ratelimit-", "anthropic-ratelimit-"),
    quota_headers=QUOTA,
    dates_quota=True,
    request_id_header="request-id",
    media_type="text/event-stream",
    reply_keys=("content",),
    start_mark=b"message_start",
    is_end=is_last("type", "message_stop"),
    end_words=(b"message_stop",),
    end_frame=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ping=b'event: ping\ndata: {"type": "ping"}\n\n',
    counts_first=True,  # Claude Code's context meter believes the first number it sees (FIELD-CASES 27)
    reply_id_prefix="msg_",
    call_id_prefix="toolu_",
    searches_web=True,
    connects_mcp=True,
    seal_form="signature",
    slots=StateSlots(dialect=NAME, kind="thoughts", form="signature", wordless_form="redacted"),
)
