"""OpenAI Responses: the request, both ways.
https://platform.openai.com/docs/api-reference/responses/create (digest read 2026-11-15)
"""

from typing import Literal

from msgspec.structs import replace

from dragoman.dialects._settings import encode_tier, note_missing
from dragoman.dialects._tools import is_plain
from dragoman.dialects.openai_responses.messages import decode_items, encode_items
from dragoman.dialects.openai_responses.note_places import is_instructions
from dragoman.dialects.openai_responses.parts import encode_cache, is_omitted
from dragoman.dialects.openai_responses.tools import (
    decode_tool,
    encode_tool_choice,
    encode_tools,
    lift_tools,
    take_tool_choice,
)
from dragoman.dialects.openai_responses.words import (
    EFFORT_OFF,
    FORMAT_WORDS,
    FORMATS,
    LOGPROBS,
    MIN_OUTPUT,
    NAME,
    SEALED,
    SUMMARIES,
    TIERS,
)
from dragoman.errors import DecodeError
from dragoman.fields import (
    NUMBER,
    ValueTypes,
    add_extras,
    checked_leftovers,
    expected,
    leftovers,
    note_omitted,
    note_silent,
    note_spelling,
    spelled,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_number_or_none,
    take_object_or_none,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.effort import effort_of_budget
from dragoman.model.messages import Cache, Message, Text
from dragoman.model.request import AnyTool, OutputFormat, ReasoningSetting, Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireRequest

PATH = "/v1/responses"

# ---------------------------------------------------------------- decode


# Of keys that stay in the extras, whole or in part.
VALUE_TYPES: ValueTypes = {
    "instructions": (str, list),
    "tool_choice": (str, dict),
    "text": (dict,),
    "reasoning": (dict,),
    "include": (list,),
    "previous_response_id": (str,),
    "truncation": (str,),
    "max_tool_calls": NUMBER,
    "prompt": (dict,),
    "background": (bool,),
    "conversation": (str, dict),
}


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    messages = _take_messages(body)
    if body.get("model") is None:
        note_spelling(body, "model", "absent")  # a prompt template may name it
    limit = take_integer_or_none(body, "max_output_tokens")
    if limit is not None and limit < MIN_OUTPUT:
        note_spelling(body, "max_output_tokens", "low")  # other servers may lack OpenAI's minimum
    _note_sealed(body)
    return Request(
        model=take_text_or_none(body, "model") or "",
        messages=messages,
        tools=_take_tools(body, messages),
        tool_choice=take_tool_choice(body),
        parallel_calls=take_flag_or_none(body, "parallel_tool_calls"),
        stream=take_flag_or_none(body, "stream"),
        max_output=limit,
        output=_take_output(body),
        verbosity=_take_verbosity(body),
        reasoning=_take_reasoning(body),
        temperature=take_number_or_none(body, "temperature"),
        top_p=take_number_or_none(body, "top_p"),
        logprobs=_take_logprobs(body),
        top_logprobs=take_integer_or_none(body, "top_logprobs"),
        user=_take_user(body),
        metadata=take_object_or_none(body, "metadata"),
        service_tier=take_text_or_none(body, "service_tier"),
        store=take_flag_or_none(body, "store"),
        cache=_take_cache(body),
        cache_key=take_text_or_none(body, "prompt_cache_key"),
        extras=checked_leftovers(body, NAME, VALUE_TYPES),
    )


def _note_sealed(body: JsonObject) -> None:
    """Other dialects always send sealed reasoning, so dropping this `include` needs no note. So it is with options of
    streams."""
    include = body.get("include")
    if type(include) is list and [entry for entry in include if entry != LOGPROBS] == [SEALED]:
        note_silent(body, "include")
    options = body.get("stream_options")
    if type(options) is dict and options.keys() <= {"include_obfuscation"}:
        note_silent(body, "stream_options")  # other dialects never pad their events


def _take_messages(body: JsonObject) -> tuple[Message, ...]:
    given = body.get("input")
    messages: tuple[Message, ...]
    if type(given) is str:
        messages = (Message(role="user", parts=(Text(text=given),)),)
        note_spelling(body, "input", "string")
    elif type(given) is list:
        messages = decode_items(given)
    elif given is None:
        # The input may be in a prompt, a conversation or an earlier response.
        messages = ()
        note_spelling(body, "input", "absent")
    else:
        raise DecodeError(f"expected string or array, found {kind_of(given)}", "input")
    if given is not None:
        del body["input"]
    if type(body.get("instructions")) is str:
        return (Message(role="system", parts=(Text(text=body.pop("instructions")),)), *messages)
    if messages and is_instructions(messages[0]):
        note_spelling(body, "instructions", "item")
    return messages


def _take_tools(body: JsonObject, messages: tuple[Message, ...]) -> tuple[AnyTool, ...] | None:
    given = body.get("tools")
    if given is not None and type(given) not in (list, tuple):
        raise expected("array", given, "tools")
    if given is None:
        return lift_tools((), messages) or None  # a null stays in the extras
    tools = take_each(body, "tools", decode_tool)
    lifted = lift_tools(tools, messages)
    if not given and lifted:
        note_spelling(body, "tools", "empty")
    return tools + lifted if lifted else tools


def _take_output(body: JsonObject) -> OutputFormat | None:
    """Take `text.format`. The rest of `text` stays in the extras."""
    text = body.get("text")
    given = text.get("format") if type(text) is dict else None
    if type(given) is not dict or type(given.get("type")) is not str or given["type"] not in FORMATS:
        return None
    _drop(body, "text", "format")
    try:
        return _decode_output(given)
    except DecodeError as error:
        raise error.under("text", "format") from None


def _decode_output(given: JsonObject) -> OutputFormat:
    kind = FORMATS[given.pop("type")]
    if kind == "json_schema":
        note_omitted(given, given, "name")
    schema = given.pop("schema") if type(given.get("schema")) is dict else None
    return OutputFormat(
        type=kind,
        schema=schema,
        name=take_text_or_none(given, "name"),
        description=take_text_or_none(given, "description"),
        strict=take_flag_or_none(given, "strict"),
        extras=leftovers(given, NAME),
    )


def _take_verbosity(body: JsonObject) -> str | None:
    text = body.get("text")
    verbosity = text.get("verbosity") if type(text) is dict else None
    if type(verbosity) is not str:
        return None
    _drop(body, "text", "verbosity")
    return verbosity


def _drop(body: JsonObject, key: str, inner: str) -> None:
    """Remove a key of an inner object. Remove the object too if that was its last key."""
    del body[key][inner]
    if not body[key]:
        del body[key]


def _take_reasoning(body: JsonObject) -> ReasoningSetting | None:
    given = body.get("reasoning")
    if type(given) is not dict:
        return None
    effort = given.get("effort") if type(given.get("effort")) is str else None
    show = True if given.get("summary") in SUMMARIES else None
    if effort is None and show is None:
        return None  # no other dialect has these keys
    del body["reasoning"]
    if effort is not None:
        del given["effort"]
    if given.get("summary") == "auto":
        del given["summary"]  # other values are more exact than our `show`, so they stay extras
    if effort == EFFORT_OFF:
        return ReasoningSetting(mode="off", show=show, extras=leftovers(given, NAME))
    mode: Literal["auto"] | None = None if effort is None else "auto"
    return ReasoningSetting(mode=mode, effort=effort, show=show, extras=leftovers(given, NAME))


def _take_logprobs(body: JsonObject) -> bool | None:
    """Take the logprobs entry of `include`. The other entries stay in the extras."""
    include = body.get("include")
    if type(include) is not list or LOGPROBS not in include:
        return None
    place = include.index(LOGPROBS)
    del include[place]
    note_spelling(body, "logprobs", place)
    if not include:
        del body["include"]
    return True


def _take_user(body: JsonObject) -> str | None:
    for key in ("safety_identifier", "user"):  # the second is its older name
        user = take_text_or_none(body, key)
        if user is not None:
            if key == "user":
                note_spelling(body, "user", key)
            return user
    return None


def _take_cache(body: JsonObject) -> Cache | None:
    """Take implicit caching, which other dialects have too. Any other mode is OpenAI's own and stays an extra."""
    options = body.get("prompt_cache_options")
    if type(options) is not dict or options.get("mode") != "implicit":
        return None
    del body["prompt_cache_options"]
    del options["mode"]
    return Cache(ttl=take_text_or_none(options, "ttl"), extras=leftovers(options, NAME))


# ---------------------------------------------------------------- encode


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {}
    if request.model or spelled(request.extras, NAME, "~model") is None:
        body["model"] = request.model
    _encode_messages(body, request, notes)
    body.update(_encode_settings(request, notes))
    note_missing(request, _NO_SUCH, "responses", notes)
    _add_extras(body, request, notes)
    return WireRequest(path=PATH, body=body)


def encode_repeated(request: Request, *, sends: bool) -> JsonObject:
    """What a response repeats of its request. `sends`: see Notes."""
    body: JsonObject = {}
    notes = Notes()
    notes.sends = sends
    first = replace(request, messages=request.messages[:1])
    _encode_instructions(body, first, notes)
    body.update(_encode_settings(first, notes, repeated=True))
    _add_extras(body, first, notes)
    return body


def _encode_settings(request: Request, notes: Notes, *, repeated: bool = False) -> JsonObject:
    """All settings but model and input."""
    body: JsonObject = {}
    tools = encode_tools(request, notes, repeated=repeated)
    if tools is not None:
        body["tools"] = tools
    choice = encode_tool_choice(request, notes)
    if choice is not None:
        body["tool_choice"] = choice
    _encode_parameters(body, request, notes)
    _encode_user(body, request)
    _encode_reasoning(body, request, notes)
    _encode_text(body, request, notes)
    return body


def _encode_instructions(body: JsonObject, request: Request, notes: Notes) -> int:
    """The number of turns that are said as instructions: one or none."""
    messages = request.messages
    if not messages or "~instructions" in request.extras.get(NAME, {}) or not is_instructions(messages[0]):
        return 0
    first = messages[0].parts[0]
    body["instructions"] = first.text if isinstance(first, Text) else ""
    add_extras({}, messages[0].extras, NAME, ((ROOT, "messages"), 0), notes)
    return 1


def _encode_messages(body: JsonObject, request: Request, notes: Notes) -> None:
    messages, at = request.messages, (ROOT, "messages")
    lead = _encode_instructions(body, request, notes)
    shape = request.extras.get(NAME, {}).get("~input")
    if shape == "absent" and len(messages) == lead:
        return
    if shape == "string" and len(messages) == lead + 1:
        only = messages[lead]
        if only.role == "user" and not only.extras and len(only.parts) == 1 and is_plain(only.parts[0]):
            part = only.parts[0]
            body["input"] = part.text if isinstance(part, Text) else ""
            return
    body["input"] = encode_items(messages, lead, at, notes)
    if messages and not lead and not body["input"]:
        notes.dropped(at, "responses has no form for any part of it")


def _encode_parameters(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.parallel_calls is not None:
        body["parallel_tool_calls"] = request.parallel_calls
    if request.stream is not None:
        body["stream"] = request.stream
    if request.max_output is not None:
        body["max_output_tokens"] = request.max_output
        if request.max_output < MIN_OUTPUT and spelled(request.extras, NAME, "~max_output_tokens") is None:
            body["max_output_tokens"] = MIN_OUTPUT
            notes.altered((ROOT, "max_output"), f"responses' least is {MIN_OUTPUT}")
    for key in ("temperature", "top_p", "top_logprobs", "metadata", "store"):
        value = getattr(request, key)
        if value is not None:
            body[key] = value
    if request.cache_key is not None:
        body["prompt_cache_key"] = request.cache_key
    if request.cache is not None:
        body["prompt_cache_options"] = encode_cache(request.cache, (ROOT, "cache"), notes, mode="implicit")
    if request.service_tier is not None:
        # A word from a Responses request is one that its server knows.
        words = TIERS | {request.service_tier: request.service_tier} if NAME in request.extras else TIERS
        tier = encode_tier(request.service_tier, words, "responses", notes)
        if tier is not None:
            body["service_tier"] = tier
    if request.logprobs is True:
        body["include"] = [LOGPROBS]


def _encode_user(body: JsonObject, request: Request) -> None:
    user = request.user
    if user is None:
        return
    body[spelled(request.extras, NAME, "~user") or "safety_identifier"] = user


def _encode_reasoning(body: JsonObject, request: Request, notes: Notes) -> None:
    setting = request.reasoning
    if setting is None:
        return
    at: At = (ROOT, "reasoning")
    encoded: JsonObject = {}
    effort = _effort(setting, at, notes)
    if effort is not None:
        encoded["effort"] = effort
    if setting.show:
        encoded["summary"] = "auto"
    elif setting.show is not None:
        notes.dropped((at, "show"), "responses shows no reasoning unless asked")
    add_extras(encoded, setting.extras, NAME, at, notes)
    if encoded:
        body["reasoning"] = encoded
    else:
        notes.dropped(at, "responses has no switch for thinking, only an effort")


def _effort(setting: ReasoningSetting, at: At, notes: Notes) -> str | None:
    """Responses has one word for mode, effort and budget."""
    mode, effort, budget = setting.mode, setting.effort, setting.budget
    if mode == "off":
        for key in ("effort", "budget"):
            if getattr(setting, key) is not None:
                notes.dropped((at, key), "responses says off with the effort none")
        return EFFORT_OFF
    if budget is not None:
        if effort is None:
            effort = effort_of_budget(budget)
            notes.altered((at, "budget"), f"responses has no budget: said as effort {effort}")
            notes.invented((at, "effort"), f"the nearest to {budget} tokens")
        else:
            notes.dropped((at, "budget"), "responses has no budget beside the effort")
    if effort is None:
        if mode is not None:
            notes.dropped((at, "mode"), "responses has no switch for thinking, only an effort")
    elif mode != "auto":
        notes.altered((at, "mode"), "responses' effort leaves the rest to the model")
    return effort


def _encode_text(body: JsonObject, request: Request, notes: Notes) -> None:
    text: JsonObject = {}
    output, at = request.output, (ROOT, "output")
    if output is not None:
        given: JsonObject = {"type": FORMAT_WORDS[output.type]}
        for key in ("name", "description", "schema", "strict"):
            value = getattr(output, key)
            if value is not None:
                given[key] = value
        if output.type == "json_schema" and output.name is None and not is_omitted(output.extras, "name"):
            given["name"] = "output"
            notes.invented((at, "name"), "responses demands one: output")
        add_extras(given, output.extras, NAME, at, notes)
        text["format"] = given
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    if text:
        body["text"] = text


_NO_SUCH: tuple[str, ...] = (
    "stop",
    "choices",
    "modalities",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
)


def _add_extras(body: JsonObject, request: Request, notes: Notes) -> None:
    """Add the request's extras. Objects that we also write are merged."""
    if not request.extras:
        return
    text, asked = body.get("text"), "include" in body
    add_extras(body, request.extras, NAME, ROOT, notes)
    if text is not None and body["text"] is not text:
        body["text"] = body["text"] | text
    if asked and body["include"] != [LOGPROBS]:
        include = list(body["include"])
        include.insert(spelled(request.extras, NAME, "~logprobs") or 0, LOGPROBS)
        body["include"] = include
