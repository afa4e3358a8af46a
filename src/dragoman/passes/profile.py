"""Profile: what one target takes, as data. The passes read it; rows of upstream/profiles.toml fill it in.

Each field is something in which targets differ (FIELD-CASES appendix A). The default means that no pass has to change
anything. In the comments "it" is the target, and "may" and "must" say what it accepts.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dragoman.model.messages import Extras

Policy: TypeAlias = Literal["emulate", "drop", "refuse"]
Feature: TypeAlias = Literal[
    "choices",  # more than one answer
    "json",  # any JSON as the answer
    "json_schema",  # JSON held to a schema
    "tool_choice",  # saying which tool, or none
    "named_choice",  # saying which tool by name
    "forced_choice",  # a call the model must make
    "parallel_off",  # at most one call at a time
    "stop",  # stop sequences
    "custom_tools",  # tools that take free text
    "prefill",  # a conversation that ends with the assistant
    "media",  # pictures, documents, sound
    "server_tools",  # tools another provider runs itself
]


VISIBLE = "!-~"  # letters of a Spelling: any visible ASCII character


class Spelling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for names or ids: the letters (as in a character class of a regular expression), and how many."""

    letters: str = "a-zA-Z0-9_-"
    first: str = ""  # other letters for the first place
    shortest: int = 1
    longest: int = 64


class Thinking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a model for how much it thinks."""

    says: Literal["effort", "budget", "adaptive", "both", "level", "switch", "nothing"] = "effort"
    efforts: tuple[str, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")  # the words it knows
    least: int = 0  # tokens of a budget
    most: int | None = None
    inside: bool = False  # a budget must be smaller than the output limit
    on: str | None = None  # the effort that means just "think", if there is no switch for it
    off: bool = True  # whether it can be switched off
    efforts_off: tuple[str, ...] | None = None  # the words it takes while it is switched off; None: all of its words
    default: Literal["on", "off"] = "off"  # what it does when the request does not say


class MediaForms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The forms in which the target takes each kind of media: data (base64), url, file_id, text."""

    images: tuple[str, ...] = ("data", "url", "file_id")
    documents: tuple[str, ...] = ("data", "url", "file_id", "text")
    audio: tuple[str, ...] = ("data", "url", "file_id", "id")
    video: tuple[str, ...] = ("data", "url", "file_id")
    own_urls: tuple[str, ...] = ()  # beginnings of addresses that only this server can read (PRIVATE_URLS)
    image_types: tuple[str, ...] = ()  # () is any
    document_types: tuple[str, ...] = ()
    most_characters: int | None = None  # of a picture's base64
    most_pixels: int | None = None  # of a picture's longer side
    many_pictures: int | None = None  # more than these are many
    most_pixels_of_many: int | None = None
    loose_base64: bool = False  # reads the URL-safe alphabet and missing padding too


class SearchTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a web search that the server runs is written as a tool, and which settings it has."""

    head: dict[str, Any]  # the tool without settings
    most_domains: int | None = None
    filters: str | None = ""  # the key that holds the domains; "": the tool itself; None: it has no such setting
    blocks: bool = False  # domains may be excluded, if the search is not limited to some domains
    place: bool = True
    size: bool = False


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str = ""  # the row it comes from
    dialect: str = ""
    upstream: str | None = None  # the configured server, where seals are bound to it
    takes_all: bool = False  # a gateway of ours, in our own form: no pass changes anything

    # calls and results
    pairing: Literal["remove", "mend", "keep"] = "remove"
    results_in_order: bool = False  # results must come in the order of their calls
    result_names: bool = False  # results must bear the name of their function
    results_first: bool = False  # results must open their turn
    results_alone: bool = False  # a turn with results holds nothing else
    result_media: bool = True  # results may hold pictures and files; else these stand behind them
    tools_for_history: bool = False  # calls in the history need tools in the request
    tool_names: Spelling | None = None
    call_ids: Spelling | None = None
    arguments: Literal["any", "object"] = "any"  # of calls in the history; object: any other text is refused

    # turns
    join_turns: bool = False  # neighbours of one role are refused, or badly read
    join_calls: bool = False  # calls of one turn must stand in one message
    first_user: bool = False
    prefill: bool = True  # the last turn may be the assistant's
    empty_text: bool = True  # empty and blank text is taken
    empty_content: Literal["any", "null", "blank"] = "any"  # the content of a turn that has only calls
    lead_system: Literal["keep", "one", "user"] = "keep"
    mid_system: Literal["keep", "placed", "user", "lead"] = "keep"
    developer: bool = True  # knows the role
    refusals: bool = True  # a refusal is a part of its own
    text_beside_calls: bool = True  # a turn of the assistant may have both
    user_after_results: bool = True  # the user may speak right after tool results; else the assistant comes between
    takes_turn_extras: tuple[str, ...] | None = None  # the only keys that a turn may bear; result.name: of a result
    empty_calls: bool = False  # an empty list of calls on a turn is taken
    result_ids: bool = False  # a result must say the id of its call, which its dialect may leave out
    failed_needs_text: bool = False  # a result marked as failed needs a text
    billing: bool = False  # reads Claude Code's billing line

    # schemas
    native: bool = False  # the client speaks this dialect too: its schemas are the target's own
    schema: str = "any"  # the language of tool parameters, see schemas.py
    strict_schema: str | None = None  # the schema language of strict tools; None: no tool may be strict
    strict_alike: bool = False  # all tools must be strict, or none
    output_schema: str | None = None  # the language of answers; None: as the tools'
    json_not_with: tuple[Literal["tools", "forced", "stream"], ...] = ()  # where an answer held to JSON is refused
    json_word: bool = False  # asked for JSON without a schema, the conversation must contain the word

    # reasoning
    echo: Literal["accepted", "required", "forbidden", "signed", "own"] = "accepted"  # signed, own: by the target
    echo_field: str | None = None
    echo_of: Literal["turns", "calls"] = "turns"  # whose thoughts are required: of every turn, or of those with calls
    seals_bound_to: Literal["dialect", "upstream", "model"] = "dialect"
    seal_forms: tuple[str, ...] | None = None  # of the target's own seals; None is any, () is none
    hides_thoughts: bool = False  # an answer has them only if the request asks to see them
    sealed_option: tuple[str, str] | None = None  # a list of the dialect's own, and the entry that asks for its seals
    stores_unasked: bool = False  # it keeps conversations unless it is told not to
    think_tags: tuple[str, ...] = ()  # thoughts come in the text, between these; () is: what looks so is text
    think_opened: bool = False  # the prompt has opened the first of them
    sentinel: str | None = None  # what a call without its seal may carry instead
    sentinel_format: str | None = None  # it stands in a sealed thought of this format in front, not on the call
    summaries: bool = True  # its thoughts may be asked for, at least as a summary
    show_needs_mode: bool = False  # whether the reasoning is shown can be said only together with a mode
    open_budget: bool = False  # a budget of -1 leaves it to the model
    effort_thinks: bool = True  # an effort without a mode asks for thinking
    thinking: Thinking | None = None  # None: whatever was asked is passed on
    thoughts: Literal["alone", "not_alone", "not_last"] = "alone"  # where in a turn a thought may stand
    thinking_first: bool = False  # with thinking on, a tool loop must begin with the thought
    forced_choice: Literal["yes", "no", "unless_thinking"] = "yes"
    sampling: Literal["yes", "no", "unless_thinking"] = "yes"
    samplers: tuple[str, ...] = ("temperature", "top_p", "top_k")
    tolerated: dict[str, tuple[float, float]] = {}  # values taken even while it thinks, besides a temperature of 1
    one_sampler: bool = False  # temperature or top_p, not both
    effort_with_tools: Literal["any", "unsaid", "none"] = "any"  # which effort a request with tools may have

    # parameters
    state_keys: tuple[str, ...] = ()  # keys of the dialect's own that name a conversation the target itself keeps
    allowed_tools: bool = True  # some of the tools may be named as the only ones; else the others are left out
    choice_alone: bool = True  # tool_choice is accepted without tools
    rejects: tuple[str, ...] = ()  # fields of Request that are refused
    rejects_extras: tuple[str, ...] = ()  # keys of the dialect's own that are refused
    # Keys of other dialects that this one takes too, by dialect, with the accepted values; () is any. a.b: key b in a.
    shared_extras: dict[str, dict[str, tuple[str, ...]]] = {}
    older_forms: dict[str, tuple[str, ...]] = {}  # spellings that few servers take, () is any
    wrong_forms: tuple[str, ...] = ()  # spellings of another dialect's form that its clients send now and then
    takes_older: bool = False  # these too
    maker: bool = False  # of the dialect: takes the keys that its dialects share
    early_usage: str = ""  # the stream option that puts the usage into every chunk
    streams: Literal["any", "always", "never"] = "any"  # always: a request without a stream is refused; never: one with
    stream_keys: tuple[str, ...] = ()  # keys of the dialect's own that are refused without a stream
    takes_extras: tuple[str, ...] | None = None  # the only keys of the dialect's own that are taken
    takes_tool_extras: tuple[str, ...] | None = None
    respelled: dict[str, dict[str, str]] = {}  # words of keys of the dialect's own: the wrong one -> the right one
    takes_betas: tuple[str, ...] | None = None
    ranges: dict[str, tuple[float | None, float | None]] = {}
    longest: dict[str, int] = {}  # characters of an identifier; a longer one is sent as its hash
    opaque_user: bool = False  # an e-mail address or a telephone number is no identifier
    item_ids: int | None = None  # characters of the ids that items of the dialect bear
    metadata_limits: tuple[int, int, int] | None = None  # pairs, characters of a key, characters of a value
    most_output: int | None = None  # tokens of one answer
    window: int | None = None  # tokens of prompt and answer together; a larger limit is refused
    needs_output: int | None = None  # the limit to send if the request has none, for servers that demand one
    most_tools: int | None = None
    longest_description: int | None = None  # characters of what a tool is for
    empty_tools: bool = False  # an empty list of tools is taken
    limit_keys: tuple[str, ...] = ()  # the two wire names of max_output, the usual one first
    words: dict[str, tuple[str, ...]] = {}  # the only values a word may have
    forced_word: str | None = None  # its word for "a call must be made"
    off: dict[str, Any] = {}  # keys of the dialect's own that switch thinking off, where no common word does
    on: dict[str, Any] = {}  # the same for on, if a request asks for thinking and nothing else about it
    reasoning_words: dict[str, tuple[str, ...]] = {}  # keys of the dialect's own, in `reasoning`: the only values taken
    spelling: dict[str, Any] = {}  # `~` keys of the dialect: which of two wire names is meant
    omit_neutral: bool = False  # values that say nothing are refused too
    nulls: bool = True  # null is taken where there may be nothing
    stops: int | None = None  # how many stop sequences
    blank_stops: bool = True
    cache_marks: int | None = None  # how many, None: any number
    marks_in_results: bool = True  # a mark may stand inside a tool result
    marks_in_order: bool = False  # a mark may not live longer than one before it
    context: int | None = None  # tokens it reads unless asked for more, and drops the rest in silence (Ollama)

    searches: Literal["no", "yes", "alone"] = "no"  # the web, by itself; alone: only where there are no functions
    search_tool: SearchTool | None = None  # how that is asked for
    mcp: bool = False  # connects to MCP servers that a request names
    media: MediaForms = MediaForms()
    assistant_media: MediaForms | None = None  # of turns of the assistant; None: as in all others
    lacks: tuple[Feature, ...] = ()
    policy: dict[Feature, Policy] = {}  # what to do about each lacking feature; default: emulate
    keep_thinking: bool = False  # a forced call gives way to thinking, not the other way round

    def is_off(self, extras: Extras) -> bool:
        """Whether keys of the dialect's own already say not to think."""
        own = extras.get(self.dialect, {})
        return bool(self.off) and all(own.get(key) == value for key, value in self.off.items())

    def is_continued(self, extras: Extras) -> bool:
        """Whether the target itself keeps the beginning of the conversation. Then a result may belong to a call that is
        not in the request."""
        own = extras.get(self.dialect)
        return own is not None and any(own.get(key) is not None for key in self.state_keys)

    def policy_of(self, feature: Feature) -> Policy:
        return self.policy.get(feature, "emulate")
