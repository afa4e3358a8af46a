"""Gemini generateContent, on the developer API and on Vertex.
https://ai.google.dev/api/generate-content (digest read 2026-11-15)
"""

from dragoman.dialects._base import Dialect, KeptState, What
from dragoman.dialects.gemini.failure import decode_failure, encode_failure
from dragoman.dialects.gemini.note_places import locate_reply, locate_request
from dragoman.dialects.gemini.reply import decode_reply, encode_reply
from dragoman.dialects.gemini.request import decode_request, encode_request
from dragoman.dialects.gemini.services import COUNTS, DOORS, EMBEDDINGS, MODELS, SPEECH, put_model
from dragoman.dialects.gemini.stream_decoder import StreamDecoder
from dragoman.dialects.gemini.stream_encoder import StreamEncoder
from dragoman.dialects.gemini.tools import has_other_tools
from dragoman.dialects.gemini.usual_reply import read_usual_reply
from dragoman.dialects.gemini.words import FAILURES, NAME, SIGNATURE, SSE
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, SearchTool, Spelling
from dragoman.reasoning_state.carry import StateSlots


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            if "contents" in body:
                return 95
            return 60 if "generationConfig" in body or "systemInstruction" in body else 0
        case "reply" | "stream":
            if type(body.get("candidates")) is list:
                return 95
            return 90 if "promptFeedback" in body or "usageMetadata" in body else 0
        case "failure":
            error = body.get("error")
            return 90 if type(error) is dict and error.get("status") in FAILURES else 0


# What Google's own server accepts for its current models. Rows of upstream/profiles.toml start from it.
#
# Sources: protocols digests of November 2026, FIELD-CASES appendix A.
PROFILE = Profile(
    kind=NAME,
    dialect=NAME,
    choice_alone=False,
    results_in_order=True,
    result_names=True,
    results_alone=True,
    first_user=True,
    prefill=False,
    empty_text=False,
    mid_system="user",
    developer=False,
    tool_names=Spelling(letters="a-zA-Z0-9_.:-", first="a-zA-Z_", longest=64),
    call_ids=Spelling(letters=VISIBLE, longest=128),
    schema="gemini_json",
    output_schema="gemini_json",
    open_budget=True,
    state_keys=("cachedContent",),
    echo="own",
    hides_thoughts=True,
    stops=5,
    search_tool=SearchTool(head={"googleSearch": {}}, filters=None, place=False),
    media=MediaForms(
        images=("data", "url"),
        image_types=(
            "image/png",
            "image/jpeg",
            "image/webp",
            "image/heic",
            "image/heif",
        ),  # ai.google.dev, vision guide
        documents=("data", "url", "text"),
        audio=("data", "url"),
        video=("data", "url"),
        own_urls=("https://generativelanguage.googleapis.com/", "gs://"),
        loose_base64=True,  # proto3's JSON: "either standard or URL-safe base64 encoding with/without paddings"
    ),
    lacks=("parallel_off", "custom_tools", "server_tools"),
)

DIALECT = Dialect(
    name=NAME,
    title="Gemini generateContent",
    profile=PROFILE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_reply=decode_reply,
    read_usual_reply=read_usual_reply,
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
    messages_key="contents",
    tools_keys=("tools",),
    has_other_tools=has_other_tools,
    kept_state=(
        KeptState(key="cachedContent", advice="make it here, with POST /v1beta/cachedContents"),
        KeptState(key="previousInteractionId", advice="send the whole conversation as contents"),
        KeptState(key="previous_interaction_id", advice="send the whole conversation as contents"),
    ),
    naming_keys=("fileUri", "fileSearchStoreNames", "ragCorpus", "datastore"),
    client_headers=("x-goog-api-key", "x-goog-api-client"),
    client_paths=("/v1beta",),
    key_style="x-goog-api-key",
    put_model=put_model,
    counts=COUNTS,
    models=MODELS,
    embeddings=EMBEDDINGS,
    speech=SPEECH,
    media_type="text/event-stream",
    reply_keys=("candidates", "promptFeedback", "usageMetadata"),
    sse_query=SSE,
    explains_finish=True,
    searches_web=True,
    connects_mcp=True,
    seal_form=SIGNATURE,
    keeps_pieces=True,
    slots=StateSlots(dialect=NAME, kind="parts", form=SIGNATURE),
    seals_calls=True,
)
