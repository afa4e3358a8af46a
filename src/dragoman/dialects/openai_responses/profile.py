"""What OpenAI's own server accepts for its current models. Rows of upstream/profiles.toml start from it.

Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from dragoman.dialects.openai_responses.words import NAME, SEALED
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, SearchTool, Spelling

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
    ranges={"max_output": (16, None)},
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
