"""What Anthropic's own server accepts for its current models. Rows of upstream/profiles.toml start from it.

Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from dragoman.dialects.anthropic.words import DEFAULT_MAX_TOKENS, NAME
from dragoman.passes.profile import MediaForms, Profile, SearchTool, Spelling, Thinking

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
        most_pixels=8000,
        many_pictures=20,
        most_pixels_of_many=2000,
    ),
    lacks=("choices", "json", "custom_tools", "server_tools"),
)
