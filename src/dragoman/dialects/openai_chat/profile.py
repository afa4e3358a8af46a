"""What OpenAI's own server accepts for its current models. Rows of upstream/profiles.toml start from it.

Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from dragoman.dialects.openai_chat.words import LIMITS, NAME
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, Spelling

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
    stops=4,
    longest={"user": 64, "cache_key": 64},
    metadata_limits=(16, 64, 512),
    json_word=True,
    empty_tools=True,
    media=MediaForms(images=("data", "url"), documents=("data", "file_id"), audio=("data",), video=()),
    assistant_media=MediaForms(images=(), documents=(), audio=("id",), video=()),
    lacks=("server_tools",),
)
