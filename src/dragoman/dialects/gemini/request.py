"""Gemini generateContent: the request, both ways. https://ai.google.dev/api/generate-content (digest read 2026-11-15)

The path names the model, and its method says whether to stream:
`/v1beta/models/{model}:streamGenerateContent?alt=sse`. On Vertex the prefix before `models/` is longer.
"""

from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from dragoman.dialects._fast_turns import encode_turns, fast_calls, fast_result, fast_text
from dragoman.dialects._settings import encode_tier, note_missing
from dragoman.dialects._tools import arguments_as_object
from dragoman.dialects.gemini.calls import CallHistory
from dragoman.dialects.gemini.generation import CONFIG, encode_generation, take_generation
from dragoman.dialects.gemini.parts import decode_parts, encode_part
from dragoman.dialects.gemini.results import write_name
from dragoman.dialects.gemini.spelling import to_camel, write_extras
from dragoman.dialects.gemini.tools import encode_choice, encode_tools, take_choice, take_tools
from dragoman.dialects.gemini.words import NAME, RESULT_ROLES, ROLE_WORDS, ROLES, SSE, TIERS
from dragoman.errors import DecodeError
from dragoman.fields import ValueTypes, checked_leftovers, leftovers, note_spelling, spelled
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireRequest

PREFIX = "/v1beta/models/"
METHODS = {"generateContent": False, "streamGenerateContent": True}
SECRETS = ("key=", "access_token=")  # a client's own credentials: they never go to an upstream

# ---------------------------------------------------------------- decode


# Of keys that stay in the extras, whole or in part.
VALUE_TYPES: ValueTypes = {
    "toolConfig": (dict,),
    "safetySettings": (list,),
    "cachedContent": (str,),
    "labels": (dict,),
}


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    to_camel(body)
    model, stream = _read_path(wire.path, body)
    history = CallHistory()
    messages = _take_contents(body, history)
    system = _take_system(body)
    if system is not None:
        messages = (system, *messages)
    elif messages and messages[0].role == "system":
        note_spelling(body, "system", "contents")
    return Request(
        model=_take_model(body, model),
        messages=messages,
        tools=take_tools(body),
        tool_choice=take_choice(body),
        stream=stream,
        service_tier=_take_tier(body),
        store=body.pop("store") if type(body.get("store")) is bool else None,
        **take_generation(body),
        extras=checked_leftovers(body, NAME, VALUE_TYPES),
    )


def _read_path(path: str, body: JsonObject) -> tuple[str, bool | None]:
    """Read model and streaming. Where the path differs from ours, the difference is kept as spelling."""
    if not path:
        note_spelling(body, "path", "unknown")
        return "", None
    place, _, query = path.partition("?")
    place, _, method = place.rpartition(":")
    prefix, model = _split_model(place)
    if prefix.endswith("/tunedModels/"):
        prefix, model = prefix.removesuffix("tunedModels/"), f"tunedModels/{model}"
    elif prefix != PREFIX:
        note_spelling(body, "path", prefix)
    stream = METHODS.get(method)
    if stream is None:
        note_spelling(body, "method", method)
    query = "&".join(pair for pair in query.split("&") if not pair.startswith(SECRETS))
    if query != (SSE if stream else ""):
        note_spelling(body, "query", query)
    return unquote(model), stream


def _split_model(place: str) -> tuple[str, str]:
    """What stands before the model, and the model. A gateway's names have slashes: `models/UPSTREAM/MODEL`."""
    for room in ("/models/", "/tunedModels/"):
        prefix, found, model = place.partition(room)
        if found:
            return prefix + room, model
    prefix, slash, model = place.rpartition("/")
    return prefix + slash, model


def wants_array(request: Request | None) -> bool:
    """Whether the client wants its stream as one JSON array, that is, without `alt=sse` (CLIENTS 17)."""
    if request is None or not request.extras:
        return False
    query = spelled(request.extras, NAME, "~query")
    return (
        request.stream is True and query is not None and not any(pair.lstrip("$") == SSE for pair in query.split("&"))
    )


def _take_model(body: JsonObject, model: str) -> str:
    """Some clients also name the model in the body, with or without `models/`."""
    in_body = body.get("model")
    if type(in_body) is not str or (model and not (in_body == model or in_body.endswith(f"/{model}"))):
        return model
    del body["model"]
    bare = model or in_body.removeprefix("models/")
    note_spelling(body, "model", in_body.removesuffix(bare))
    return bare


def _take_contents(body: JsonObject, history: CallHistory) -> tuple[Message, ...]:
    given = body.pop("contents", None)
    if given is None:
        note_spelling(body, "contents", "absent")
        return ()
    if type(given) is str:
        note_spelling(body, "contents", "string")
        return (Message(role="user", parts=(Text(text=given),)),)
    if type(given) is dict:
        note_spelling(body, "contents", "object")
        given = [given]
    if type(given) is not list:
        raise DecodeError(f"expected array, found {kind_of(given)}", "contents")
    messages: list[Message] = []
    for i, content in enumerate(given):
        if type(content) is not dict:
            raise DecodeError(f"expected object, found {kind_of(content)}", "contents", i)
        try:
            messages.append(_decode_content(content, history))
        except DecodeError as error:
            raise error.under("contents", i) from None
    return tuple(messages)


def _decode_content(content: JsonObject, history: CallHistory) -> Message:
    word, given = content.get("role"), content.get("parts")
    if (
        len(content) == 2
        and type(given) is list
        and given
        and (word == "model" or (word == "user" and len(given) == 1))
    ):  # fast path: gemini turn
        history.begin(model=word == "model")  # no spelling to keep, and no results mixed with other parts
        return Message(role=ROLES[word], parts=decode_parts(given, history))
    content.pop("role", None)
    role = ROLES.get(word, "user") if type(word) is str else "user"
    if word and (type(word) is not str or (word not in ROLES and word not in RESULT_ROLES)):
        raise DecodeError(f"expected one of {', '.join(ROLES)}, found {str(word)[:50]!r}", "role")
    if word != ROLE_WORDS[role] or role == "system":
        note_spelling(content, "role", "absent" if word is None else word)
    history.begin(model=role == "assistant")
    parts = _take_parts(content, history)
    if len(parts) > 1:
        results = sum(type(part) is ToolResult for part in parts)
        if 0 < results < len(parts):
            note_spelling(content, "mixed", True)
    return Message(role=role, parts=parts, extras=leftovers(content, NAME))


def _take_parts(content: JsonObject, history: CallHistory) -> tuple[Part, ...]:
    given = content.pop("parts", None)
    if given is None:
        note_spelling(content, "parts", "absent")
        return ()
    if type(given) is dict:  # protobuf's JSON accepts one part without a list
        note_spelling(content, "parts", "object")
        given = [given]
    if type(given) is not list:
        raise DecodeError(f"expected array, found {kind_of(given)}", "parts")
    if not given:
        note_spelling(content, "parts", "empty")
    return decode_parts(given, history)


def _take_system(body: JsonObject) -> Message | None:
    """Take `systemInstruction`: a content (its role has no meaning), a string, or a list of parts."""
    given = body.get("systemInstruction")
    if given is None:
        return None
    del body["systemInstruction"]
    if type(given) is str:
        note_spelling(body, "systemInstruction", "string")
        return Message(role="system", parts=(Text(text=given),))
    if type(given) is list:
        note_spelling(body, "systemInstruction", "list")
        given = {"parts": given}
    if type(given) is not dict:
        raise DecodeError(f"expected object, found {kind_of(given)}", "systemInstruction")
    role = given.pop("role", None)
    if role is not None:
        note_spelling(given, "role", role)
    try:
        parts = _take_parts(given, CallHistory())
    except DecodeError as error:
        raise error.under("systemInstruction") from None
    return Message(role="system", parts=parts, extras=leftovers(given, NAME))


def _take_tier(body: JsonObject) -> str | None:
    tier = body.get("serviceTier")
    if type(tier) is not str:
        return None
    del body["serviceTier"]
    if TIERS.get(tier) != tier:
        note_spelling(body, "serviceTier", tier)
    return tier


# ---------------------------------------------------------------- encode


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {}
    own = request.extras.get(NAME, {})
    if "~model" in own:
        body["model"] = own["~model"] + request.model
    _encode_messages(body, request, notes)
    encode_tools(body, request, notes)
    encode_choice(body, request, notes)
    encode_generation(body, request, notes)
    if request.service_tier is not None:
        # A Gemini request may have a word that our table lacks. It is written back unchanged.
        words = TIERS | {request.service_tier: request.service_tier} if "~serviceTier" in own else TIERS
        tier = encode_tier(request.service_tier, words, NAME, notes)
        if tier is not None:
            body["serviceTier"] = tier
    if request.store is not None:
        body["store"] = request.store
    note_missing(request, _NO_SUCH, NAME, notes)
    if request.extras:
        write_extras(body, request.extras, ROOT, notes, CONFIG, "toolConfig")
    return WireRequest(path=_write_path(request, own, notes), body=body)


def _write_path(request: Request, own: JsonObject, notes: Notes) -> str:
    prefix: str = own.get("~path", PREFIX)
    model = request.model
    if prefix == "unknown":
        prefix = PREFIX
    if model.startswith("tunedModels/"):
        prefix = prefix.removesuffix("models/")
    elif model.startswith("models/"):
        model = model.removeprefix("models/")
        notes.altered((ROOT, "model"), "gemini's path says models/ itself")
    method = own.get("~method")
    if method is None:
        method = "streamGenerateContent" if request.stream else "generateContent"
    query = own.get("~query", SSE if request.stream else "")
    safe = "/@" if model.startswith("tunedModels/") else "@"
    return f"{prefix}{quote(model, safe=safe)}:{method}" + (f"?{query}" if query else "")


def _encode_messages(body: JsonObject, request: Request, notes: Notes) -> None:
    """System turns at the start become `systemInstruction`. Later ones become user turns."""
    messages = request.messages
    at: At = (ROOT, "messages")
    lead = 0
    if spelled(request.extras, NAME, "~system") != "contents":
        while lead < len(messages) and messages[lead].role in ("system", "developer"):
            lead += 1
    if lead:
        system = _encode_system(messages[:lead], request, at, notes)
        if system is not None:
            body["systemInstruction"] = system
    names, silent = _look_at_calls(messages)
    if silent:
        messages = tuple(_leave_out_ids(message, silent) for message in messages)
    fast, whole = partial(_encode_fast, names), partial(_encode_content, names)
    contents = encode_turns(messages, lead, NAME, fast, whole, at, notes)
    form = spelled(request.extras, NAME, "~contents")
    text = _lone_text(contents[0]["parts"]) if form == "string" and len(contents) == 1 else None
    if text is not None:
        body["contents"] = text
    elif form == "object" and len(contents) == 1:
        body["contents"] = contents[0]
    elif contents or form != "absent":
        body["contents"] = contents


def _lone_text(parts: list[JsonObject]) -> str | None:
    """The text, if the parts are one plain text that a string can replace."""
    return parts[0]["text"] if len(parts) == 1 and list(parts[0]) == ["text"] else None


def _look_at_calls(messages: tuple[Message, ...]) -> tuple[dict[str, str], set[str]]:
    """The names of all calls by id, and the ids that we made. Those calls are sent back to Gemini without an id."""
    names: dict[str, str] = {}
    silent: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    names[part.id] = part.name
                    if part.extras and "~id" in part.extras.get(NAME, ()):
                        silent.add(part.id)
    return names, silent


def _leave_out_ids(message: Message, silent: set[str]) -> Message:
    """Mark results whose call is sent without an id: with an id they would answer no call. Results from clients of
    other dialects lack this mark."""
    if not any(type(part) is ToolResult and part.call_id in silent for part in message.parts):
        return message
    return replace(message, parts=tuple(_without_id(part, silent) for part in message.parts))


def _without_id(part: Part, silent: set[str]) -> Part:
    if type(part) is not ToolResult or part.call_id not in silent:
        return part
    own = {"~id": "absent", **part.extras.get(NAME, {})}
    return replace(part, extras={**part.extras, NAME: own})


def _encode_system(messages: tuple[Message, ...], request: Request, at: At, notes: Notes) -> Any:
    texts = [fast_text(part) for message in messages for part in message.parts]
    unusual = [message for message in messages if message.extras or message.role == "developer"]
    if texts and None not in texts and not unusual and not request.extras:  # fast path: frequent turn
        return {"parts": [{"text": text} for text in texts]}
    parts: list[JsonObject] = []
    for i, message in enumerate(messages):
        _note_developer(message, (at, i), notes)
        parts.extend(_encode_parts(message, (at, i), notes, {}))
    content: JsonObject = {"parts": parts}
    own = messages[0].extras.get(NAME, {})
    if "~role" in own:
        content["role"] = own["~role"]
    _respell_parts(content, own)
    for i, message in enumerate(messages):
        if message.extras:
            write_extras(content, message.extras, (at, i), notes)
    form = spelled(request.extras, NAME, "~systemInstruction")
    if form == "string" and _lone_text(parts) is not None:
        return _lone_text(parts)
    if form == "list":
        return parts
    return content if parts or own else None


def _note_developer(message: Message, at: At, notes: Notes) -> None:
    if message.role == "developer":
        notes.altered((at, "role"), "gemini does not distinguish developer and system")


def _encode_fast(
    names: dict[str, str], message: Message, at: At, notes: Notes
) -> JsonObject | None:  # fast path: frequent turn
    parts, role = message.parts, message.role
    if not parts or (role != "assistant" and role != "user"):
        return None
    text = fast_text(parts[0])
    blocks: list[JsonObject] = [] if text is None else [{"text": text}]
    if len(parts) == 1 and text is not None:
        return {"role": ROLE_WORDS[role], "parts": blocks}
    if role == "assistant":
        calls = fast_calls(parts, len(blocks), NAME)
        if calls is None:
            return None
        for i, call in enumerate(calls, len(blocks)):
            arguments = arguments_as_object(call, NAME, ((at, "parts"), i), notes)
            blocks.append({"functionCall": {"id": call.id, "name": call.name, "args": arguments}})
        return {"role": "model", "parts": blocks}
    result = parts[0]
    if len(parts) == 1 and type(result) is ToolResult:
        text = fast_result(result, NAME)
        if text is not None:
            answer: JsonObject = {"id": result.call_id}
            write_name(answer, result, ((at, "parts"), 0), notes, names)
            answer["response"] = {"output": text}
            return {"role": "user", "parts": [{"functionResponse": answer}]}
    return None


def _encode_content(names: dict[str, str], message: Message, at: At, notes: Notes) -> list[JsonObject]:
    """One content, or two: results need their own ("the function-response turn should hold only function responses").
    A content without parts is left out, because Gemini refuses it."""
    own = message.extras.get(NAME, {}) if message.extras else {}
    parts = _encode_parts(message, at, notes, names)
    role = _encode_role(message, own, at, notes)
    groups = [parts]
    if message.role == "user" and "~mixed" not in own:
        results = [part for part in parts if "functionResponse" in part]
        if 0 < len(results) < len(parts):
            groups = [results, [part for part in parts if "functionResponse" not in part]]
    contents = [role | {"parts": group} for group in groups if group or "~parts" in own]
    for content in contents:
        _respell_parts(content, own)
    if message.extras:
        write_extras(contents[0] if contents else {}, message.extras, at, notes)
    return contents


def _encode_role(message: Message, own: JsonObject, at: At, notes: Notes) -> JsonObject:
    word = own.get("~role")
    if word is not None and ROLES.get(str(word), "user") == message.role:
        return {} if word == "absent" else {"role": word}
    if message.role in ("system", "developer"):
        notes.altered((at, "role"), "gemini has one place for system text, at the front: said by the user")
    return {"role": ROLE_WORDS[message.role]}


def _respell_parts(content: JsonObject, own: JsonObject) -> None:
    form = own.get("~parts")
    if form == "absent" and not content["parts"]:
        del content["parts"]
    elif form == "object" and len(content["parts"]) == 1:
        content["parts"] = content["parts"][0]


def _encode_parts(message: Message, at: At, notes: Notes, names: dict[str, str]) -> list[JsonObject]:
    encoded: list[JsonObject] = []
    inside: At = (at, "parts")
    for i, part in enumerate(message.parts):
        block = encode_part(part, (inside, i), notes, names=names)
        if block is not None:
            encoded.append(block)
    return encoded


_NO_SUCH: tuple[str, ...] = ("min_p", "verbosity", "user", "metadata", "cache", "cache_key")
