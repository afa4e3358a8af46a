"""What each dialect takes when nobody says which server speaks it: its maker's own rules, for a model of today.

Rows of upstream/profiles.toml start from these. Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from typing import Literal

from msgspec.structs import replace

from dragoman.passes.profile import Feature, Media, Policy, Profile, Spelling, Thinking

VISIBLE = "!-~"  # any visible ASCII character

OPENAI_CHAT = Profile(
    kind="openai_chat",
    dialect="openai_chat",
    choice_alone=False,
    join_calls=True,
    result_media=False,
    tool_names=Spelling(longest=64),
    call_ids=Spelling(letters=VISIBLE, longest=64),
    schema="openai",
    strict_schema="openai_strict",
    thoughts="not_alone",
    stops=4,
    media=Media(images=("data", "url"), documents=("data", "file_id"), audio=("data", "id"), video=()),
    lacks=("server_tools",),
)

OPENAI_RESPONSES = Profile(
    kind="openai_responses",
    dialect="openai_responses",
    tool_names=Spelling(longest=128),
    call_ids=Spelling(letters=VISIBLE, longest=64),
    schema="openai",
    strict_schema="openai_strict",
    echo="signed",
    thoughts="not_last",
    ranges={"max_output": (16, None)},
    media=Media(audio=(), video=()),
    lacks=("choices", "stop", "server_tools"),
)

ANTHROPIC = Profile(
    kind="anthropic",
    dialect="anthropic",
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
    thoughts="not_last",
    thinking=Thinking(says="both", efforts=("low", "medium", "high", "xhigh", "max"), least=1024, inside=True),
    thinking_first=True,
    forced_choice="unless_thinking",
    sampling="unless_thinking",
    ranges={"temperature": (0, 1)},
    blank_stops=False,
    cache_marks=4,
    media=Media(
        audio=(),
        video=(),
        image_types=("image/jpeg", "image/png", "image/gif", "image/webp"),
        document_types=("application/pdf", "text/plain"),
    ),
    lacks=("choices", "json", "custom_tools", "server_tools"),
)

GEMINI = Profile(
    kind="gemini",
    dialect="gemini",
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
    stops=5,
    lacks=("parallel_off", "custom_tools", "server_tools"),
)

OLLAMA = Profile(
    kind="ollama",
    dialect="ollama",
    results_in_order=True,
    result_names=True,
    join_calls=True,
    developer=False,
    schema="ollama",
    output_schema="any",
    media=Media(images=("data",), documents=(), audio=("data",), video=()),  # sound goes beside the images
    thinking=Thinking(says="effort", efforts=("low", "medium", "high", "max")),
    lacks=("tool_choice", "parallel_off", "choices", "custom_tools", "server_tools"),
)

DEFAULTS: dict[str, Profile] = {
    profile.dialect: profile for profile in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI, OLLAMA)
} | {"canonical": Profile(kind="canonical", dialect="canonical", pairing="keep")}


def default_profile(dialect: str) -> Profile:
    return DEFAULTS[dialect]


# Their makers' servers search the web; others that speak the dialect mostly do not, and their rows say nothing.
SEARCHERS = frozenset({"openai_responses", "anthropic", "gemini"})


# A conversion has no way back on which we could cut an answer at a stop sequence or gather several answers in one.
def _one_way(profile: Profile, *, native: bool) -> Profile:
    searches: Literal["yes", "no"] = "yes" if profile.dialect in SEARCHERS else "no"
    policy: dict[Feature, Policy] = {**profile.policy, "stop": "drop", "choices": "drop"}
    return replace(profile, native=native, searches=searches, policy=policy)


_ONE_WAY = {
    (name, native): _one_way(profile, native=native) for name, profile in DEFAULTS.items() for native in (False, True)
}


def conversion_profile(dialect: str, *, native: bool = False) -> Profile:
    """The default profile for a request that is only written, not sent by us; native: it came in the same dialect."""
    return _ONE_WAY[dialect, native]
