"""What Google's own server accepts for its current models. Rows of upstream/profiles.toml start from it.

Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from dragoman.dialects.gemini.words import NAME
from dragoman.passes.profile import VISIBLE, MediaForms, Profile, SearchTool, Spelling

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
