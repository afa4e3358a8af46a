"""What Ollama accepts for current models. Rows of upstream/profiles.toml start from it.

Sources: protocols digests of November 2026, FIELD-CASES appendix A.
"""

from dragoman.dialects.ollama.words import NAME
from dragoman.passes.profile import MediaForms, Profile, Thinking

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
