"""What the laws let pass, as data with reasons. No law makes an exception for a field anywhere else."""

import re
from typing import Any, Literal, NamedTuple, TypeAlias

What: TypeAlias = Literal["request", "reply", "stream", "event", "fold", "failure", "sum"]


class Quiet(NamedTuple):
    """Values that say no more than their absence would: nothing is lost with them, so nothing need be noted."""

    path: str  # `*` is any place in a list
    values: tuple[Any, ...]
    why: str


class Unsaid(NamedTuple):
    """A field that some dialects neither carry nor note."""

    field: str
    what: What
    dialects: tuple[str, ...]
    why: str


class Granted(NamedTuple):
    """Keys of a wire that its decoder does not miss."""

    dialect: str  # `*` is any
    keys: str  # a pattern of `request:` or `reply:` and a path
    why: str


QUIET = (
    Quiet("/choices", (1,), "one answer is what is given unasked"),
    Quiet("/modalities", (["text"],), "text is what is answered unasked"),
    Quiet("/stop", ([],), "nothing to stop at"),
    Quiet("/metadata", ({},), "nothing is filed"),
    Quiet("/stream", (False,), "a whole answer is what is given unasked; test_unnoted_values.py holds Ollama to it"),
    Quiet("/store", (False,), "a server that cannot store keeps the wish"),
    Quiet("/parallel_calls", (True,), "several calls are allowed unasked"),
    Quiet("/tool_choice", ({"mode": "auto"},), "the model chooses unasked"),
    Quiet("/output/strict", (False,), "nothing is held to the schema unasked"),
    Quiet("/output", ({"type": "text"},), "text is what is answered unasked"),
    Quiet("/reasoning", ({},), "nothing is set"),
    Quiet("/logprobs", (False,), "no probabilities are given unasked"),
    Quiet("/top_logprobs", (0,), "no alternatives are given unasked"),
    Quiet("/frequency_penalty", (0,), "no penalty"),
    Quiet("/presence_penalty", (0,), "no penalty"),
    Quiet("/min_p", (0,), "no token is too unlikely"),
    Quiet("/verbosity", ("medium",), "the middle is what is answered unasked"),
    Quiet("/service_tier", ("auto", "default", "standard"), "the tier one gets unasked"),
    Quiet("/tools/*/strict", (False,), "nothing is held to the schema unasked"),
    Quiet("/messages/*/parts/*/failed", (False,), "a result is a success unless it says otherwise"),
    Quiet("/messages/*/parts/*/detail", ("auto",), "the model chooses unasked"),
    Quiet("/choices/*/parts/*/detail", ("auto",), "the model chooses unasked"),
    Quiet("/messages/*/parts/*/parts/*/detail", ("auto",), "the model chooses unasked"),
    Quiet("/usage/cache_read", (0,), "none was counted"),
    Quiet("/usage/cache_write", (0,), "none was counted"),
    Quiet("/usage/reasoning", (0,), "none was counted"),
    Quiet("/usage/input_audio", (0,), "none was counted"),
    Quiet("/usage/output_audio", (0,), "none was counted"),
)

SPOKEN = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama", "jsonrpc")
ERRORS = "its errors have no place for it"
NAMES = ("canonical", *(name for name in SPOKEN if name != "jsonrpc"))
# Ollama has no place for a seal, and says so. The neutral form keeps the address.
SEALED = tuple(name for name in NAMES if name not in ("ollama", "canonical"))
ADDRESS = "the address on a seal: the pass that delivers the seal reads it and takes it off"
UNSAID = (
    Unsaid("ReplyStart.usage", "fold", ("fold",), "ReplyEnd has all of it"),
    Unsaid("Aside.dialect", "fold", ("fold",), "a frame of one dialect is no part of the answer"),
    Unsaid("Aside.body", "fold", ("fold",), "a frame of one dialect is no part of the answer"),
    Unsaid("Usage.extras", "sum", ("add_usage",), "what one dialect counts need not add up"),
    Unsaid("Request.extras", "request", ("openai_responses",), "it is asked for its seals, beside what stands there"),
    Unsaid("Seal.model", "request", SEALED, ADDRESS),
    Unsaid("Seal.upstream", "request", SEALED, ADDRESS),
    Unsaid("Failure.code", "failure", ("anthropic", "gemini", "ollama"), ERRORS),
    Unsaid("Failure.param", "failure", ("anthropic", "ollama"), ERRORS),
    Unsaid("Failure.extras", "failure", SPOKEN, "what another dialect's error says beside our fields"),
    Unsaid("Failure.request_id", "failure", ("ollama",), ERRORS),
)

GRANTED = (
    Granted("*", r"/(type|role|object|status)$", "the one word it could be, or one the decoder puts back by itself"),
    Granted(
        "openai_chat",
        r"/(created|index|total_tokens|refusal|logprobs|finish_reason)$",
        "a constant, a sum or implied",
    ),
    Granted("openai_chat", r"/choices/0/message/content$", "null is what absent means"),
    Granted("openai_chat", r"/tool_call_id$", "a result without an id answers the first call that waits"),
    Granted("openai_responses", r"/detail$", "auto is what absent means"),
    Granted("openai_responses", r"^reply:/[a-z_]+$|^reply:/(reasoning|text)/", "replies repeat the request"),
    Granted(
        "openai_responses",
        r"/(id|annotations|logprobs|cache_write_tokens|total_tokens)$",
        "made up, empty or a sum",
    ),
    Granted("gemini", r"/(role|index|totalTokenCount|responseMimeType|finishReason)$", "implied by its neighbours"),
    Granted("gemini", r"/functionResponse/(id|name)$", "found from the call it answers"),
    Granted("ollama", r"/(done|created_at|done_reason|type|index)$", "implied by its neighbours"),
    Granted("ollama", r"/(tool_name|tool_call_id)$", "found from the call it answers"),
    Granted("ollama", r"/(prompt_eval_count|eval_count)$", "an unknown count is written as 0, with a note"),
    Granted("ollama", r"/stream$", "streaming is what absent means"),
    Granted("anthropic", r"/(stop_sequence|signature)$", "null, or empty"),
)


def is_granted(dialect: str, key: str) -> bool:
    return any(re.search(found.keys, key) and found.dialect in ("*", dialect) for found in GRANTED)


def unsaid(field: str, what: What) -> set[str]:
    """The dialects that may keep silent about a field."""
    return {name for found in UNSAID if (found.field, found.what) == (field, what) for name in found.dialects}
