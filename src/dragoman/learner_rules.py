"""Refusals that name a rule: words of a server -> the fields of its profile. The passes then write the request anew.

Each row is from one server's own words; docs/provider-rules.md lists the rules. `learner.py` asks these rows before it
looks for the names of parameters.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.effort import EFFORTS
from dragoman.model.request import Request
from dragoman.passes.profile import Profile, Thinking
from dragoman.passes.schemas.targets import LANGUAGES

Fields: TypeAlias = dict[str, Any]
Teach: TypeAlias = Callable[[re.Match[str], Profile, Request], Fields]


class LearnedRule(Struct, frozen=True):
    pattern: re.Pattern[str]  # of the words of a refusal
    what: str  # what is sent instead
    fields: Teach
    once: bool = False  # it is about this request, and not remembered for others


def _rule(pattern: str, what: str, fields: Fields | Teach, *, once: bool = False) -> LearnedRule:
    teach: Teach = fields if callable(fields) else lambda match, profile, request: fields
    return LearnedRule(re.compile(pattern, re.IGNORECASE | re.DOTALL), what, teach, once)


def _thinking(profile: Profile) -> Thinking:
    return profile.thinking or Thinking()


def _learn_most(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    most = int(match.group(1).replace(",", ""))
    return {"most_output": most - 1 if "exclusive" in match.group(0).rpartition(match.group(1))[2] else most}


def _learn_budget(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    usual = profile.thinking or Thinking(says="budget", efforts=())
    return {"thinking": replace(usual, least=int(match.group(1)), most=int(match.group(2)))}


def _learn_level(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    known = _thinking(profile).efforts
    return {"thinking": replace(_thinking(profile), efforts=tuple(e for e in known if e != match.group(1).lower()))}


def _learn_reasoning_word(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    fresh = {"mode": ()} if match.group(1).endswith("mode") else {"context": ("auto", "current_turn")}
    return {"reasoning_words": {**profile.reasoning_words, **fresh}}


def _learn_no_search(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    return {"rejects_extras": (*profile.rejects_extras, "web_search_options")}


def _learn_no_scores(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    return {"rejects": (*profile.rejects, "logprobs", "top_logprobs")}


def _learn_no_minimal(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    return {"thinking": replace(_thinking(profile), efforts=tuple(e for e in EFFORTS if e not in ("minimal", "max")))}


def _learn_no_effort(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    usual = _thinking(profile)
    return {"thinking": replace(usual, says="budget", efforts=(), least=max(usual.least, 1024), inside=True)}


def _learn_adaptive(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    words = tuple(effort for effort in EFFORTS if effort != "minimal")
    return {"thinking": Thinking(says="adaptive", efforts=words), "thinking_first": False}


def _learn_on(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    usual = _thinking(profile)
    return {"thinking": replace(usual, off=False, default="on", least=max(usual.least, 128))}


def _learn_grammar(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    """Strict tools first; an answer's own schema is given up only where no tool is strict."""
    if any(getattr(tool, "strict", None) for tool in request.tools or ()):
        return {"strict_schema": ""}
    return {"lacks": (*profile.lacks, "json_schema")}


def _learn_plain(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    """Schemas without limits and patterns."""
    language = "plain" if LANGUAGES[profile.schema].refs else "gemini_plain"
    return {"schema": language, "output_schema": language, "strict_schema": ""}


def _learn_many_states(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    """Google's "Request contains an invalid argument." names nothing. What it most often is about: the limits in many
    schemas together."""
    return {} if LANGUAGES[profile.schema].refs else _learn_plain(match, profile, request)


def _learn_size(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    """The limit of a picture: Anthropic counts its base64, OpenAI names megabytes of the file."""
    characters = int(match.group(1)) if match.group(1) else int(match.group(2)) * 1_048_576 * 4 // 3
    return {"media": replace(profile.media, most_characters=characters)}


def _learn_longest(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    field = {"prompt_cache_key": "cache_key"}.get(match.group(1), "user")
    return {"longest": {**profile.longest, field: int(match.group(2))}}


def _learn_json_alone(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    forced = request.tool_choice is not None and request.tool_choice.mode == "required"
    return {"json_not_with": (*profile.json_not_with, "forced" if forced and "required" in match.group(0) else "tools")}


def _learn_no_stream(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    return {"json_not_with": (*profile.json_not_with, "stream")}


def _learn_tools_effort(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    return {"effort_with_tools": "none" if "to 'none'" in match.group(0) else "unsaid"}


# What servers say to a picture that their model cannot see; some of them with status 500 or 404.
BLIND = (
    r"(image|audio|video) input is not (?:supported|enabled)|images? (?:inputs? )?(?:is|are) not supported"
    r"|is not a multimodal model|at most 0 (?:image|audio|video)|missing data required for image input"
    r"|does not support (?:image|vision|audio|video)|no endpoints found that support (?:image|audio|video) input"
    r"|unknown variant `image_url`|image_url is only supported by certain models|vision is not (?:supported|enabled)"
)
# The same request fails again, and others do not, whatever the status says (llama.cpp without mmproj or --jinja: 500).
REQUESTS_OWN = re.compile(rf"{BLIND}|requires? --jinja", re.IGNORECASE)


def _learn_blind(match: re.Match[str], profile: Profile, request: Request) -> Fields:
    words = match.group(0).lower()
    lost: Fields = {"audio": ()} if "audio" in words else {"video": ()} if "video" in words else {"images": ()}
    return {"media": replace(profile.media, **lost)}


_NO_CHOICE: Fields = {"empty_tools": False, "choice_alone": False}

RULES: tuple[LearnedRule, ...] = (
    _rule(BLIND, "a line of text for media that it cannot see", _learn_blind),
    _rule(r"temperature\W+ and \W*top_p\W+ cannot both", "temperature without top_p", {"one_sampler": True}),
    _rule(
        r"(?:unknown|unrecognized|unsupported|extra).{0,60}?prompt_cache_(?:breakpoint|options)",
        "without cache marks",
        {"cache_marks": 0, "rejects_extras": ("prompt_cache_options",)},
    ),
    _rule(r"max_tokens: \d+ > (\d+), which is the maximum", "a smaller limit", _learn_most),
    _rule(r"supports at most (\d+) completion tokens", "a smaller limit", _learn_most),
    _rule(r"max(?:_completion)?_tokens`? must be less than or equal to `?(\d+)", "a smaller limit", _learn_most),
    _rule(r"valid range of max_tokens is \[1, ?(\d+)\]", "a smaller limit", _learn_most),
    _rule(r"maxOutputTokens value .{0,80} to (\d+) \((?:ex|in)clusive", "a smaller limit", _learn_most),
    _rule(r"thinking budget \(\d+\) is invalid.{0,80}between (\d+) and (\d+)", "a budget in its range", _learn_budget),
    _rule(r"Budget 0 is invalid|only works in thinking mode", "as little thinking as there is", _learn_on),
    _rule(r"thinking\.type\.disabled\W+ is not supported", "as little thinking as there is", _learn_on),
    _rule(r"thinking\.type\.enabled\W+ is not supported", "adaptive thinking", _learn_adaptive),
    _rule(r"adaptive thinking is not supported", "a budget instead of an effort", _learn_no_effort),
    _rule(r"does not support the effort parameter", "a budget instead of an effort", _learn_no_effort),
    _rule(
        r"Thinking level (?:is unsupported: )?(?:THINKING_LEVEL_)?(MINIMAL|LOW|MEDIUM)", "another level", _learn_level
    ),
    _rule(r"cannot be used with reasoning\.effort 'minimal'", "a higher effort", _learn_no_minimal),
    _rule(
        r"Function tools with reasoning_effort are not supported.*",
        "without an effort beside tools",
        _learn_tools_effort,
    ),
    _rule(r"must be verified to generate reasoning summaries", "without a summary", {"summaries": False}),
    _rule(r"web search options not supported with this model", "without web_search_options", _learn_no_search),
    _rule(r"unsupported (?:parameter|value): '(reasoning\.mode|all_turns)'", "without it", _learn_reasoning_word),
    _rule(r"image exceeds .{0,40}bytes > (\d+) bytes|image is below (\d+) MB", "words for large pictures", _learn_size),
    _rule(r"must be verified to stream", "without a stream", {"streams": "never"}),
    _rule(r"must have stream ?= ?true|Streaming is required for", "in a stream", {"streams": "always"}),
    _rule(
        r"Found system messages at indexes.{0,80}audio",
        "system text said by the user",
        {"lead_system": "user", "mid_system": "user"},
        once=True,
    ),
    _rule(
        r"function\.description': string too long.{0,80}maximum length (\d+)",
        "the rest of long descriptions as system text",
        lambda match, profile, request: {"longest_description": int(match.group(1))},
    ),
    _rule(
        r"Multiple candidates is not enabled",
        "one answer",
        lambda match, profile, request: {"rejects": (*profile.rejects, "choices")},
    ),
    _rule(r"enable tool_config\.include_server_side_tool_invocations", "without searches", {"searches": "alone"}),
    _rule(r"too many states for serving|Unsupported JSON schema fields", "schemas without limits", _learn_plain),
    _rule(r"moonshot flavored json schema", "schemas as Moonshot writes them", {"schema": "mfjs"}),
    _rule(r"\ARequest contains an invalid argument\.?\s*$", "schemas without limits", _learn_many_states, once=True),
    _rule(r"compiled grammar is too large", "schemas that are not enforced", _learn_grammar),
    _rule(r"logprobs is not supported with tools \+ stream", "without logprobs", _learn_no_scores, once=True),
    _rule(r"logprobs are not supported with", "without logprobs", _learn_no_scores),
    _rule(r"must have either content or tool_calls, but not both", "no text beside", {"text_beside_calls": False}),
    _rule(r"Unexpected role 'user' after role 'tool'", "an assistant's turn between", {"user_after_results": False}),
    _rule(r"content cannot be empty if `?is_error", "words for a failed result", {"failed_needs_text": True}),
    _rule(r"ttl='1h' cache_control block must not come after", "marks of five minutes", {"marks_in_order": True}),
    _rule(r"cache_control may not be specified within", "marks on results", {"marks_in_results": False}),
    _rule(
        r"tools`? must not be an empty array|\[\] is too short - 'tools'",
        "without an empty list of tools",
        _NO_CHOICE,
    ),
    _rule(
        r"tool_choice\W+(?: is only allowed when \W*tools|may only be specified while providing)",
        "without a choice of no tools",
        _NO_CHOICE,
    ),
    _rule(
        r"'tools': array too long[^.]*\. Expected an array with maximum length (\d+)",
        "fewer tools",
        lambda match, profile, request: {"most_tools": int(match.group(1))},
    ),
    _rule(
        r"'(prompt_cache_key|user|safety_identifier)': string too long.{0,80}maximum length (\d+)",
        "a hash of the identifier",
        _learn_longest,
    ),
    _rule(r"must contain the word 'json'", "the word JSON", {"json_word": True}),
    _rule(
        r"response mime type: 'application/json' is unsupported|json mode cannot be combined with tool"
        r"|structured outputs or tools, not both|'required' or a named tool cannot be combined with response_format",
        "JSON asked for in words",
        _learn_json_alone,
    ),
    _rule(r"response_format`? does not support streaming", "JSON asked for in words", _learn_no_stream),
    _rule(
        r"cannot unmarshal string into Go struct field \S*think\S* of type bool|think must be a boolean",
        "thinking as a switch",
        {"thinking": Thinking(says="switch", efforts=())},
    ),
    _rule(
        r"messages[.\[\d\]\w]*\.(?:annotations|refusal|audio|name|function_call)\b[^;]{0,40}"
        r"(?:Extra inputs|extra_forbidden)"
        r"|property '(?:annotations|refusal|audio|name)' is unsupported",
        "turns without what the server does not know",
        {"takes_turn_extras": ()},
    ),
)
