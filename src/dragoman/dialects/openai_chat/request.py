"""OpenAI Chat Completions: the request, both ways.
https://platform.openai.com/docs/api-reference/chat/create (digest read 2026-11-15)"""

from operator import attrgetter

from msgspec.structs import replace

from dragoman.dialects._fast_turns import encode_turns
from dragoman.dialects._settings import encode_ttl, says_something
from dragoman.dialects._tools import has_names, note_lost_names
from dragoman.dialects.openai_chat.calls import CallIds, pair_by_position
from dragoman.dialects.openai_chat.messages import decode_message, encode_fast, encode_message
from dragoman.dialects.openai_chat.parts import add_outer, keep_inner, note_absent
from dragoman.dialects.openai_chat.tools import (
    encode_tool_choice,
    encode_tools,
    has_tools,
    take_tool_choice,
    take_tools,
)
from dragoman.dialects.openai_chat.usage import write_tier
from dragoman.dialects.openai_chat.words import EFFORTS, LIMITS, NAME, NO_EFFORT, OWN_TTLS, TIERS, TTLS
from dragoman.errors import DecodeError
from dragoman.fields import (
    ValueTypes,
    add_extras,
    checked_leftovers,
    leftovers,
    note_silent,
    note_spelling,
    spelled,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_number_or_none,
    take_text_or_none,
    take_texts_or_none,
    take_word,
)
from dragoman.jsontypes import JsonObject
from dragoman.model.effort import effort_of_budget, lowest_known
from dragoman.model.messages import Cache, Message, ToolCall, ToolResult
from dragoman.model.request import OutputFormat, ReasoningSetting, Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireRequest

PATH = "/v1/chat/completions"

# Two names for one meaning. We read both, and write the first unless the request used the second.
USERS = ("safety_identifier", "user")
# OpenAI has no such keys, but many servers do. We write them only if the client's request had them.
GUESTS = ("top_k", "min_p")
FEW = frozenset({"model", "stream"})  # what most small requests have beside their messages
STREAM_OPTIONS = {"include_usage", "include_obfuscation"}
MODALITIES = {"text", "audio"}
FORMATS = {"text": "text", "json_object": "json"}
FORMAT_WORDS = {"text": "text", "json": "json_object"}

# ---------------------------------------------------------------- decode


# Of keys that stay in the extras, whole or in part.
VALUE_TYPES: ValueTypes = {
    "tool_choice": (str, dict),
    "response_format": (dict,),
    "logit_bias": (dict,),
    "metadata": (dict,),
    "reasoning_effort": (str,),
    "stream_options": (dict,),
    "prediction": (dict,),
    "audio": (dict,),
    "function_call": (str, dict),
    "web_search_options": (dict,),
}


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    note_absent(body, "model", "messages")
    if type(body.get("stream_options")) is dict and body["stream_options"].keys() <= STREAM_OPTIONS:
        note_silent(body, "stream_options")  # other dialects always stream the usage, and never pad their events
    messages = decode_turns(body)
    if body.keys() <= FEW:  # fast path: no settings
        model, stream = take_text_or_none(body, "model"), take_flag_or_none(body, "stream")
        return Request(
            model=model or "",
            messages=messages,
            stream=stream,
            extras=checked_leftovers(body, NAME, VALUE_TYPES),
        )
    guests = [key for key in GUESTS if body.get(key) is not None]
    if guests:
        note_spelling(body, "guests", guests)
    return Request(
        model=take_text_or_none(body, "model") or "",
        messages=messages,
        tools=take_tools(body),
        tool_choice=take_tool_choice(body),
        parallel_calls=take_flag_or_none(body, "parallel_tool_calls"),
        stream=take_flag_or_none(body, "stream"),
        max_output=_take_limit(body),
        stop=_take_stop(body),
        choices=take_integer_or_none(body, "n"),
        output=_take_output(body),
        reasoning=_take_reasoning(body),
        modalities=_take_modalities(body),
        temperature=take_number_or_none(body, "temperature"),
        top_p=take_number_or_none(body, "top_p"),
        top_k=take_integer_or_none(body, "top_k"),
        min_p=take_number_or_none(body, "min_p"),
        frequency_penalty=take_number_or_none(body, "frequency_penalty"),
        presence_penalty=take_number_or_none(body, "presence_penalty"),
        seed=take_integer_or_none(body, "seed"),
        logprobs=take_flag_or_none(body, "logprobs"),
        top_logprobs=take_integer_or_none(body, "top_logprobs"),
        verbosity=take_text_or_none(body, "verbosity"),
        user=_take_user(body),
        metadata=body.pop("metadata") if type(body.get("metadata")) is dict else None,
        service_tier=_take_tier(body),
        store=take_flag_or_none(body, "store"),
        cache=_take_cache(body),
        cache_key=take_text_or_none(body, "prompt_cache_key"),
        extras=checked_leftovers(body, NAME, VALUE_TYPES),
    )


def decode_turns(body: JsonObject) -> tuple[Message, ...]:
    """Takes the turns of a body."""
    ids, usual = CallIds(), type(body.get("messages")) is tuple
    messages = take_each(body, "messages", lambda message: decode_message(message, ids))
    if ids.unpaired:
        messages = pair_by_position(messages, ids.unpaired)
    return messages if usual else _mark_freeform(messages)


def _mark_freeform(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Mark results of freeform calls. On the wire only the call says that it is freeform."""
    freeform = {part.id for turn in messages for part in turn.parts if isinstance(part, ToolCall) and part.freeform}
    if not freeform:
        return messages
    return tuple(
        replace(turn, parts=(replace(turn.parts[0], freeform=True),))
        if len(turn.parts) == 1 and isinstance(turn.parts[0], ToolResult) and turn.parts[0].call_id in freeform
        else turn
        for turn in messages
    )


def _take_limit(body: JsonObject) -> int | None:
    for key in LIMITS:
        limit = take_integer_or_none(body, key)
        if limit is not None:
            if key != LIMITS[0]:
                note_spelling(body, "limit", key)
            return limit
    return None


def _take_user(body: JsonObject) -> str | None:
    for key in USERS:
        user = take_text_or_none(body, key)
        if user is not None:
            note_spelling(body, "user", key)
            return user
    return None


def _take_modalities(body: JsonObject) -> tuple[str, ...] | None:
    modalities = take_texts_or_none(body, "modalities")
    if modalities is not None and not set(modalities) <= MODALITIES:
        note_spelling(body, "modalities", "as is")  # OpenRouter has "image" too
    return modalities


def _take_stop(body: JsonObject) -> tuple[str, ...] | None:
    if type(body.get("stop")) is str:
        note_spelling(body, "stop", "string")
        return (body.pop("stop"),)
    return take_texts_or_none(body, "stop")


def _take_output(body: JsonObject) -> OutputFormat | None:
    given = body.get("response_format")
    if type(given) is not dict:
        return None
    kind = given.get("type")
    if type(kind) is str and kind in FORMATS:
        del body["response_format"], given["type"]
        return OutputFormat(type="text" if kind == "text" else "json", extras=leftovers(given, NAME))
    inner = given.get("json_schema")
    if kind != "json_schema" or type(inner) is not dict:
        return None  # a grammar, or another server's own format
    del body["response_format"], given["type"], given["json_schema"]
    schema = inner.pop("schema") if type(inner.get("schema")) is dict else None
    name, description = take_word(inner, "name"), take_word(inner, "description")
    try:
        strict = take_flag_or_none(inner, "strict")
    except DecodeError as error:
        raise error.under("response_format", "json_schema") from None
    if name is None:
        note_spelling(given, "name", "absent")
    keep_inner(given, "json_schema", inner)
    return OutputFormat(
        type="json_schema",
        schema=schema,
        name=name,
        description=description,
        strict=strict,
        extras=leftovers(given, NAME),
    )


def _take_reasoning(body: JsonObject) -> ReasoningSetting | None:
    """Take OpenAI's own key only. Keys of other vendors (`thinking`, `reasoning`, `enable_thinking`) stay extras."""
    effort = take_word(body, "reasoning_effort")
    if effort is None:
        return None
    return ReasoningSetting(mode="off") if effort == NO_EFFORT else ReasoningSetting(mode="auto", effort=effort)


def _take_cache(body: JsonObject) -> Cache | None:
    given = body.get("prompt_cache_options")
    if type(given) is not dict or given.get("mode") != "implicit" or not given.keys() <= {"mode", "ttl"}:
        return None
    if given.get("ttl") is not None and given["ttl"] not in OWN_TTLS:
        return None
    del body["prompt_cache_options"], given["mode"]
    return Cache(ttl=take_word(given, "ttl"), extras=leftovers(given, NAME))


# ---------------------------------------------------------------- encode


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {"model": request.model}
    at: At = (ROOT, "messages")
    unusual: list[tuple[Message, At]] = []

    def encode_whole(message: Message, at: At, notes: Notes) -> list[JsonObject]:
        unusual.append((message, at))
        return encode_message(message, at, notes)

    turns = encode_turns(request.messages, 0, NAME, encode_fast, encode_whole, at, notes)
    body["messages"] = turns
    if request.messages and not turns:
        notes.dropped(at, "no turn is left that openai_chat has a form for")
    if unusual:  # only these can have named results or freeform calls
        if has_names(message for message, _ in unusual):
            note_lost_names(request.messages, NAME, notes)
        _note_freeform(request.messages, unusual, notes)
    encode_tools(body, request, notes)
    encode_tool_choice(body, request, notes)
    _encode_renamed(body, request, notes)
    for key, value in zip(_PLAIN_KEYS, _read_plain(request), strict=True):
        if value is not None:
            body[key] = value
    write_tier(body, request.service_tier, request.extras, notes)
    if request.parallel_calls is not None and request.tools and not has_tools(body):
        del body["parallel_tool_calls"]
        if not request.parallel_calls:
            notes.dropped((ROOT, "parallel_calls"), "openai_chat refuses it without tools, and none is left")
    _encode_reasoning(body, request, notes)
    _encode_output(body, request, notes)
    _encode_guests(body, request, notes)
    if request.extras:
        add_extras(body, request.extras, NAME, ROOT, notes)
    if request.model and "model" not in body:  # the client said none, and one was chosen for it
        body = {"model": request.model, **body}
    return WireRequest(path=PATH, body=body)


_PLAIN = (
    ("parallel_calls", "parallel_tool_calls"),
    ("stream", "stream"),
    ("choices", "n"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("frequency_penalty", "frequency_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("seed", "seed"),
    ("logprobs", "logprobs"),
    ("top_logprobs", "top_logprobs"),
    ("verbosity", "verbosity"),
    ("metadata", "metadata"),
    ("service_tier", "service_tier"),
    ("store", "store"),
    ("cache_key", "prompt_cache_key"),
)


_PLAIN_KEYS = tuple(key for _, key in _PLAIN)
_read_plain = attrgetter(*[field for field, _ in _PLAIN])


def _note_freeform(messages: tuple[Message, ...], unusual: list[tuple[Message, At]], notes: Notes) -> None:
    """Note a result whose `freeform` differs from its call. On the wire only the call says that it is freeform."""
    calls = {part.id for turn, _ in unusual for part in turn.parts if type(part) is ToolCall and part.freeform}
    turns = [(turn, ((ROOT, "messages"), i)) for i, turn in enumerate(messages)] if calls else unusual
    for turn, at in turns:
        for j, part in enumerate(turn.parts):
            if type(part) is ToolResult and part.freeform != (part.call_id in calls):
                why = "its call is not there to say so" if part.freeform else "it answers a freeform call"
                notes.altered((((at, "parts"), j), "freeform"), why)


def _take_tier(body: JsonObject) -> str | None:
    tier = take_text_or_none(body, "service_tier")
    if tier in TIERS:
        note_spelling(body, "service_tier", tier)
    return tier


def _encode_renamed(body: JsonObject, request: Request, notes: Notes) -> None:
    """Write settings that have several names or several forms."""
    own = request.extras.get(NAME, {})
    if request.max_output is not None:
        # Most servers accept max_tokens (mission C1). A profile renames it for the others.
        body[own.get("~limit", LIMITS[0])] = request.max_output
    if request.stop is not None:
        lone = own.get("~stop") == "string" and len(request.stop) == 1
        body["stop"] = request.stop[0] if lone else list(request.stop)
    if request.user is not None:
        body[own.get("~user", USERS[0])] = request.user
    if request.modalities is not None:
        _encode_modalities(body, request.modalities, own, notes)
    if request.cache is not None:
        at: At = (ROOT, "cache")
        options: JsonObject = {"mode": "implicit"}
        ttl = encode_ttl(request.cache.ttl, TTLS, NAME, at, notes)
        if ttl is not None:
            options["ttl"] = ttl
        add_extras(options, request.cache.extras, NAME, at, notes)
        body["prompt_cache_options"] = options


def _encode_modalities(body: JsonObject, given: tuple[str, ...], own: JsonObject, notes: Notes) -> None:
    known = [word for word in given if word in MODALITIES or "~modalities" in own]
    if len(known) < len(given):
        note = notes.altered if known else notes.dropped
        note((ROOT, "modalities"), "openai_chat answers in text and audio")
    if known or not given:
        body["modalities"] = known


def _encode_reasoning(body: JsonObject, request: Request, notes: Notes) -> None:
    setting = request.reasoning
    if setting is None:
        return
    at: At = (ROOT, "reasoning")
    word = _effort_word(setting, at, notes)
    if word is None:
        notes.dropped(at, "openai_chat has one word for how much to think, and the request has none")
    else:
        body["reasoning_effort"] = word
        if setting.show is not None:
            notes.dropped((at, "show"), "openai_chat has no setting for showing thoughts")
    if setting.extras:
        add_extras(body, setting.extras, NAME, at, notes)


def _effort_word(setting: ReasoningSetting, at: At, notes: Notes) -> str | None:
    if setting.mode == "off":
        for key in ("effort", "budget"):
            if getattr(setting, key) is not None:
                notes.dropped((at, key), "thinking is off")
        return NO_EFFORT
    if setting.effort is not None:
        word = lowest_known(setting.effort, EFFORTS)
        if setting.budget is not None:
            notes.dropped((at, "budget"), "openai_chat has one word for it: the effort")
    elif setting.budget is not None:
        word = effort_of_budget(setting.budget)
        notes.altered((at, "budget"), f"openai_chat has no budget: effort {word}")
        notes.altered((at, "effort"), "read from the budget")
    else:
        return None
    if setting.mode is None:
        notes.invented((at, "mode"), "with an effort the model decides how much it thinks")
    elif setting.mode == "on":
        notes.altered((at, "mode"), "openai_chat cannot force thinking: the model decides")
    return word


def _encode_output(body: JsonObject, request: Request, notes: Notes) -> None:
    output = request.output
    if output is None:
        return
    at: At = (ROOT, "output")
    encoded: JsonObject = {"type": FORMAT_WORDS.get(output.type, "json_schema")}
    fields = {"name": output.name, "description": output.description, "schema": output.schema, "strict": output.strict}
    if output.type == "json_schema":
        inner = {key: value for key, value in fields.items() if value is not None}
        if output.name is None and spelled(output.extras, NAME, "~name") is None:
            inner["name"] = "response"
            notes.invented((at, "name"), "openai_chat demands one: response")
        encoded["json_schema"] = inner
    else:
        for key, value in fields.items():
            if value is not None:
                notes.dropped((at, key), f"openai_chat's {encoded['type']} has no {key}")
    if output.extras:
        add_outer(encoded, output.extras, "json_schema", at, notes)
    body["response_format"] = encoded


def _encode_guests(body: JsonObject, request: Request, notes: Notes) -> None:
    guests = spelled(request.extras, NAME, "~guests") or ()
    for key in GUESTS:
        value = getattr(request, key)
        if value is not None:
            if key in guests:
                body[key] = value
            elif says_something(key, value):
                notes.dropped((ROOT, key), f"openai has no {key}")
