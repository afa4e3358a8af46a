"""OpenAI Responses: the reply, both ways.
https://platform.openai.com/docs/api-reference/responses/object (digest read 2026-11-15)

Only the status and the output of a response say why it ended. A response repeats most of its request.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects._losses import NO_REASON
from dragoman.dialects._settings import encode_tier, note_audio
from dragoman.dialects.openai_responses.items import ClientKnowledge, decode_model_item, encode_item, group_parts
from dragoman.dialects.openai_responses.parts import is_omitted
from dragoman.dialects.openai_responses.request import encode_repeated
from dragoman.dialects.openai_responses.tools import find_spaces, put_in_space
from dragoman.dialects.openai_responses.words import FINISH_WORDS, INCOMPLETES, NAME, RUNNING, TIERS
from dragoman.errors import DecodeError
from dragoman.fields import (
    add_extras,
    decode_each,
    drop_constant,
    leftovers,
    note_omitted,
    note_silent,
    note_spelling,
    take_integer_or_none,
    take_list_or_none,
    take_one,
    take_text_or_none,
    take_time_or_none,
)
from dragoman.jsontypes import JsonObject, copy_json, kind_of
from dragoman.model.messages import Extras, Part, Refusal, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# We write these keys in every response.
ALWAYS = ("id", "object", "created_at", "status", "error", "incomplete_details", "model", "usage")
CUT = ("length", "context", "filter")  # reasons that leave the last item unfinished

# ---------------------------------------------------------------- decode


class Head(Struct, frozen=True, kw_only=True):
    """A response without its output."""

    id: str
    model: str
    created: float | None
    service_tier: str | None
    usage: Usage | None
    finish: Finish | None
    extras: Extras


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    output = body.get("output")
    if output is None:
        note_spelling(body, "output", "absent")
    parts = decode_output(take_list_or_none(body, "output") or [])
    head = take_response(body, natural_reason(parts))
    return Reply(
        id=head.id,
        model=head.model,
        created=head.created,
        choices=(Choice(parts=tuple(parts), finish=head.finish),),
        usage=head.usage,
        service_tier=head.service_tier,
        extras=head.extras,
    )


def decode_output(items: list[object]) -> list[Part]:
    parts: list[Part] = []

    def decode(item: JsonObject) -> None:
        parts.extend(decode_model_item(item, parts[-1] if parts else None, in_reply=True))

    decode_each(items, "output", decode)
    return parts


def natural_reason(parts: Sequence[Part]) -> FinishReason:
    """The finish reason of a complete response. Only its output tells the reason."""
    if any(isinstance(part, ToolCall) for part in parts):
        return "tool_call"
    return "refusal" if any(isinstance(part, Refusal) for part in parts) else "stop"


def take_response(body: JsonObject, natural: FinishReason) -> Head:
    """Decode a response object. Its output is already taken."""
    note_omitted(body, body, *ALWAYS)
    note_silent(body, *_REPEATED, *_ECHOED)
    drop_constant(body, "object", "response")
    usage = body.get("usage")
    return Head(
        id=take_text_or_none(body, "id") or "",
        model=take_text_or_none(body, "model") or "",
        created=take_time_or_none(body, "created_at"),
        service_tier=take_text_or_none(body, "service_tier"),
        usage=take_one(body, "usage", decode_usage) if type(usage) is dict else None,
        finish=_take_finish(body, natural),
        extras=leftovers(body, NAME),
    )


def _take_finish(body: JsonObject, natural: FinishReason) -> Finish | None:
    status, details = body.get("status"), body.get("incomplete_details")
    own: JsonObject = {}
    if status is not None:
        del body["status"]
    if status in RUNNING:  # in the background: what is there is not the whole answer
        return Finish(reason="other", extras={NAME: {"status": status}})
    reason: FinishReason = natural
    why = details.get("reason") if type(details) is dict else None
    if status not in ("completed", None):
        reason = INCOMPLETES.get(why, "other") if type(why) is str else "other"
        if status != "incomplete":
            own["status"] = status  # failed, cancelled
    elif type(why) is str:  # some servers say `completed` even at the limit
        reason = INCOMPLETES.get(why, "other")
        own["status"] = status or "completed"
    if type(details) is dict:
        del body["incomplete_details"]
        if why is None or details != {"reason": FINISH_WORDS[reason][1]}:
            own["incomplete_details"] = details
    return Finish(reason=reason, extras=leftovers(own, NAME))


COUNTS = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
COUNTERS = {
    "input": "input_tokens",
    "cache_read": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}
DETAILS = (
    ("input_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


def decode_usage(usage: JsonObject) -> Usage:
    """Decode the counts. The totals include cached input and reasoning."""
    absent = [key for key in COUNTS if usage.get(key) is None]
    read, write, reasoning = (_take_detail(usage, outer, key, absent) for outer, key in DETAILS)
    given = take_integer_or_none(usage, "input_tokens")
    made = take_integer_or_none(usage, "output_tokens")
    total = take_integer_or_none(usage, "total_tokens")
    counts = Usage(
        input=_rest(given, read, write),
        cache_read=read,
        cache_write=write,
        output=_rest(made, reasoning),
        reasoning=reasoning,
    )
    for key, server_sum, summed in (
        ("input_tokens", given, _sum(counts.input, read, write)),
        ("output_tokens", made, _sum(counts.output, reasoning)),
        ("total_tokens", total, (given or 0) + (made or 0)),
    ):
        if server_sum is not None and server_sum != summed:
            usage[key] = server_sum  # the sums do not match: we keep the server's number
    if absent:
        usage["~absent"] = absent
    return replace(counts, extras=leftovers(usage, NAME))


def _take_detail(usage: JsonObject, outer: str, key: str, absent: list[str]) -> int | None:
    details = usage.get(outer)
    if type(details) is not dict or details.get(key) is None:
        absent.append(key)
        return None
    count = take_integer_or_none(details, key)
    if not details:
        del usage[outer]
    return count


def _rest(total: int | None, *shares: int | None) -> int | None:
    return None if total is None else max(0, total - _sum(*shares))


def _sum(*counts: int | None) -> int:
    return sum(count or 0 for count in counts)


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    for i in range(1, len(reply.choices)):
        notes.dropped(((ROOT, "choices"), i), "responses gives one answer")
    if not reply.choices:
        notes.altered((ROOT, "choices"), "no answer at all: said as an empty one")
    choice = reply.choices[0] if reply.choices else Choice(parts=())
    at: At = ((ROOT, "choices"), 0)
    add_extras({}, choice.extras, NAME, at, notes)
    body = encode_response(
        Head(
            id=reply.id,
            model=reply.model,
            created=reply.created,
            service_tier=reply.service_tier,
            usage=reply.usage,
            finish=choice.finish,
            extras=reply.extras,
        ),
        natural_reason(choice.parts),
        notes,
        lambda: repeat_request(request, sends=notes.sends),
    )
    spaces = find_spaces(request)
    parts = tuple(put_in_space(part, spaces) for part in choice.parts) if spaces else choice.parts
    output = _encode_output(reply.id, parts, choice.finish, (at, "parts"), notes)
    if output:
        body["output"] = output
    return WireReply(body=body)


def _encode_output(
    reply_id: str, parts: tuple[Part, ...], finish: Finish | None, at: At, notes: Notes
) -> list[JsonObject]:
    output: list[JsonObject] = []
    groups = group_parts(parts)
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        client = ClientKnowledge(reply_id, item_status(finish) if last else "completed")
        item = encode_item(group, len(output), at, notes, client)
        if item is not None:
            output.append(item)
    return output


def item_status(finish: Finish | None) -> str:
    """The status of the last item. Clients must not run a call that was cut off (FIELD-CASES 24)."""
    return "incomplete" if finish is not None and finish.reason in CUT else "completed"


def encode_response(head: Head, natural: FinishReason, notes: Notes, repeat: Callable[[], JsonObject]) -> JsonObject:
    """Encode a response object with an empty output. `repeat` tells what it repeats of its request."""
    own = head.extras.get(NAME, {})
    body: JsonObject = {"id": head.id, "object": "response", "created_at": head.created or 0}
    if head.created is None and not is_omitted(head.extras, "created_at"):
        notes.invented((ROOT, "created"), "responses demands a time")
    body |= {"status": "completed", "error": None, "incomplete_details": None}
    body |= _encode_finish(head, natural, notes)
    body |= {"model": head.model, "output": [], "usage": None}
    if head.usage is not None:
        body["usage"] = encode_usage(head.usage, (ROOT, "usage"), notes)
    if head.service_tier is not None:
        words = TIERS | {head.service_tier: head.service_tier} if NAME in head.extras else TIERS
        tier = encode_tier(head.service_tier, words, "responses", notes)
        if tier is not None:
            body["service_tier"] = tier
    if NAME not in head.extras:
        # The encoder has no clock: a whole response is made when it is complete.
        body["completed_at"] = body["created_at"] if body["status"] == "completed" else None
        body.setdefault("service_tier", "default")
        body |= repeat()
    for key in [key for key in (*ALWAYS, "output") if key in own and own[key] is None]:
        if not body[key] or key in ("object", "status"):
            del body[key]  # the original body had null here
    if "~output" in own:
        body.pop("output", None)
    add_extras(body, head.extras, NAME, ROOT, notes)
    return body if not head.id or "id" in body else {"id": head.id, **body}  # a server without ids: ours


def _encode_finish(head: Head, natural: FinishReason, notes: Notes) -> JsonObject:
    at: At = (((ROOT, "choices"), 0), "finish")
    finish = head.finish
    if finish is None:
        if natural == "tool_call":
            notes.invented(at, "responses with calls end as completed")
            return {}
        notes.altered(at, f"{NO_REASON}: incomplete")
        return {"status": "incomplete"}
    own = finish.extras.get(NAME, {})
    status, why = FINISH_WORDS[finish.reason]
    if finish.reason == "refusal" and natural == "refusal":
        status, why = "completed", None
    says: FinishReason = natural if status == "completed" else INCOMPLETES.get(why or "", "other")
    if says != finish.reason and not own:
        notes.altered((at, "reason"), f"responses has no {finish.reason}: {status}")
    if finish.sequence is not None:
        notes.dropped((at, "sequence"), "responses has no stop sequences")
    if finish.message is not None:
        notes.dropped((at, "message"), "responses does not explain why it ended")
    body: JsonObject = {"status": status}
    if why is not None:
        body["incomplete_details"] = {"reason": why}
    add_extras(body, finish.extras, NAME, at, notes)
    return body


# The keys that a response repeats from its request, with their values if the request lacks them (docs: defaults).
_REPEATED: JsonObject = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


# Other keys that a response may repeat, and a second time, which no other dialect has.
_ECHOED = ("prompt_cache_retention", "prompt_cache_options", "completed_at")


def repeat_request(request: Request | None, *, sends: bool = False) -> JsonObject:
    """What a response repeats of its request. `sends`: it is written at once, so it may share values."""
    repeated: JsonObject = dict(_REPEATED) if sends else copy_json(_REPEATED)
    if request is None:
        return repeated
    asked = encode_repeated(request, sends=sends)
    for key in _REPEATED:
        if asked.get(key) is not None:
            repeated[key] = asked[key]
    for key in ("frequency_penalty", "presence_penalty"):  # not of a Responses request, but of its response
        if getattr(request, key) is not None:
            repeated[key] = getattr(request, key)
    for key in ("reasoning", "text"):
        repeated[key] = _REPEATED[key] | repeated[key] if type(repeated[key]) is dict else _REPEATED[key]
    return repeated


def encode_usage(usage: Usage, at: At, notes: Notes) -> JsonObject:
    """Responses demands every count. An unknown count is written as 0."""
    own = usage.extras.get(NAME, {})
    absent = own.get("~absent", ())
    given, made = _sum(usage.input, usage.cache_read, usage.cache_write), _sum(usage.output, usage.reasoning)
    counts = {key: getattr(usage, field) for field, key in COUNTERS.items()}
    body: JsonObject = {"input_tokens": given, "input_tokens_details": {}}
    body |= {"output_tokens": made, "output_tokens_details": {}, "total_tokens": given + made}
    for outer, key in DETAILS:
        if key not in absent:
            body[outer][key] = counts[key] or 0
    for field, key in COUNTERS.items():
        if field in ("input", "output") and getattr(usage, field) is None and key not in absent:
            notes.invented((at, field), "responses demands a count")
    note_audio(usage, "responses", at, notes)
    for key in COUNTS:
        if key in absent:
            del body[key]
    details = {key: body[key] for key in ("input_tokens_details", "output_tokens_details") if key in body}
    add_extras(body, usage.extras, NAME, at, notes)
    for key, value in details.items():
        if body[key] is not value and isinstance(body[key], dict):  # keys of the details that only Responses knows
            body[key] = body[key] | value
    return body
