"""OpenAI Responses: items, both ways.

Adjacent items of the model are one turn (FIELD-CASES 4). A part has no field for the keys of its item, so its extras
keep them, and the same dialect gets its items back. The first part of an item keeps `id` and `phase`. The last part
keeps `status`, the encrypted reasoning and other keys, which come last in a stream. The spelling `~item` marks borders:
"new" if a part begins an item that would otherwise be joined with the one before, "same" if a thought continues it.
"""

from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects._seals import note_seal_losses, take_seal, write_seal
from dragoman.dialects.openai_responses.parts import (
    decode_content,
    encode_output,
    is_message_block,
    word_of,
)
from dragoman.dialects.openai_responses.results import encode_result
from dragoman.dialects.openai_responses.tools import flatten_name, write_name
from dragoman.dialects.openai_responses.words import CALLS, ID_PREFIXES, NAME
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, leftovers, note_omitted, note_silent, spelled, take_text
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

ENCRYPTED = "encrypted"  # the form of our own seals
MINTED = "_dragoman_"  # part of ids that we made for a client: no upstream knows them
ABSENT = "absent"

Group = list[tuple[int, Part]]  # the parts of one item, with their places in the turn

# ---------------------------------------------------------------- decode


def decode_model_item(item: JsonObject, previous: Part | None, *, in_reply: bool) -> list[Part]:
    """Decode an item of the model into the parts of its turn. `previous` is the part before it."""
    match item.get("type"):
        case "message" | None if item.get("role") == "assistant":
            return _decode_message(item, previous, in_reply=in_reply)
        case "function_call" | "custom_tool_call":
            return [_decode_call(item, in_reply=in_reply)]
        case "reasoning" if _is_reasoning(item):
            return _decode_reasoning(item, in_reply=in_reply)
        case _:
            return [Opaque(dialect=NAME, body=item)]  # built-in tools and new kinds of items


def _decode_message(item: JsonObject, previous: Part | None, *, in_reply: bool) -> list[Part]:
    content = item.get("content")
    parts: tuple[Part, ...]
    if type(content) is str:
        parts = (Text(text=content),)
    elif type(content) is not list:
        raise DecodeError(f"expected string or array, found {kind_of(content)}", "content")
    elif content and all(map(is_message_block, content)):
        parts = decode_content(content, "content", "output_text")
    else:
        return [Opaque(dialect=NAME, body=item)]
    del item["content"], item["role"]
    typed = item.get("type") is not None
    if typed:
        del item["type"]
    head = take_head(item, previous, in_reply=in_reply)
    tail: JsonObject = {}
    _take_status(item, tail, head, in_reply=in_reply)
    if item:
        tail["item"] = item
    listed = type(content) is list
    if not listed:
        head["~content"] = "string"
    if typed != listed:
        head["~typed"] = "message" if typed else ABSENT
    return _attach(list(parts), head, tail)


def take_head(item: JsonObject, previous: Part | None, *, in_reply: bool) -> JsonObject:
    """Take the item's keys that its first part keeps."""
    own: JsonObject = {}
    _take_id(item, own, in_reply=in_reply)
    if "phase" in item:
        own["phase"] = item.pop("phase")
    if "id" not in own and "~id" not in own and isinstance(previous, Text | Refusal):
        own["~item"] = "new"
    return own


def _take_id(item: JsonObject, own: JsonObject, *, in_reply: bool) -> None:
    given = item.get("id")
    if type(given) is str:
        del item["id"]
        own["~id" if MINTED in given else "id"] = given
        note_silent(own, "id")
    elif in_reply and given is None:
        own["~id"] = ""


def _take_status(item: JsonObject, own: JsonObject, head: JsonObject, *, in_reply: bool) -> None:
    """Take the status. `completed` and a status that we made are only spelling."""
    if "status" in item:
        status = item.pop("status")
        own["~status" if status == "completed" or head.get("~id") else "status"] = status
    elif in_reply:
        own["~status"] = ABSENT


def _attach(parts: list[Part], head: JsonObject, tail: JsonObject) -> list[Part]:
    parts[0] = _with_own(parts[0], head)
    parts[-1] = _with_own(parts[-1], tail)
    return parts


def _with_own(part: Part, keys: JsonObject) -> Part:
    if not keys or isinstance(part, Opaque):
        return part
    return replace(part, extras={**part.extras, NAME: {**part.extras.get(NAME, {}), **keys}})


def _decode_call(item: JsonObject, *, in_reply: bool) -> ToolCall:
    kind = item.pop("type")
    own: JsonObject = {}
    _take_id(item, own, in_reply=in_reply)
    _take_status(item, own, own, in_reply=in_reply)
    flatten_name(item)
    seal = take_seal(item)
    return ToolCall(
        id=take_text(item, "call_id"),
        name=take_text(item, "name"),
        arguments=take_text(item, CALLS[kind]),
        freeform=kind == "custom_tool_call",
        seal=seal,
        extras=leftovers({**item, **own}, NAME),
    )


def _is_reasoning(item: JsonObject) -> bool:
    """Whether summary and content are lists of texts. An item of any other form is carried whole."""
    for key in ("summary", "content"):
        texts = item.get(key)
        if texts is None:
            continue
        if type(texts) is not list:
            return False
        kind = REASONING_TEXTS[key]
        if not all(type(t) is dict and t.get("type") == kind and type(t.get("text")) is str for t in texts):
            return False
    return True


REASONING_TEXTS = {"summary": "summary_text", "content": "reasoning_text"}


def _decode_reasoning(item: JsonObject, *, in_reply: bool) -> list[Part]:
    del item["type"]
    head = take_thought_head(item, in_reply=in_reply)
    tail: JsonObject = {}
    _take_status(item, tail, head, in_reply=in_reply)
    if "summary" not in item:
        note_omitted(tail, item, "summary")
    parts: list[Reasoning] = []
    for key in ("summary", "content"):
        texts = item.get(key)
        if texts is None:
            continue  # a null stays an extra
        del item[key]
        parts.extend(decode_thought(text, key) for text in texts)
        if not texts and key == "content":
            tail["~content"] = "empty"
    if not parts:
        parts = [Reasoning(text="", extras={NAME: {"~place": "none"}})]
    if type(item.get("encrypted_content")) is str and item["encrypted_content"]:
        seal: Seal | None = Seal(origin=NAME, value=item.pop("encrypted_content"), form=ENCRYPTED)
    else:
        seal = take_seal(item)
    tail |= item
    if seal is not None:
        parts[-1] = replace(parts[-1], seal=seal)
    joined = [_with_own(part, {"~item": "same"}) if i else part for i, part in enumerate(parts)]
    return _attach(joined, head, tail)


def take_thought_head(item: JsonObject, *, in_reply: bool) -> JsonObject:
    """Take the keys of a reasoning item that its first part keeps."""
    own: JsonObject = {"~item": "new"}
    _take_id(item, own, in_reply=in_reply)
    return own


def decode_thought(text: JsonObject, place: str) -> Reasoning:
    """Decode one text of a reasoning item, from its summary or its content."""
    words = text.pop("text")
    del text["type"]
    own: JsonObject = {"~place": place}
    if text:
        own["part"] = text
    return Reasoning(text=words, summary=place == "summary", extras={NAME: own})


# ---------------------------------------------------------------- encode


def group_parts(parts: tuple[Part, ...]) -> list[Group]:
    """Group the parts of a turn by item."""
    groups: list[Group] = []
    for i, part in enumerate(parts):
        if groups and joins(groups[-1][-1][1], part):
            groups[-1].append((i, part))
        else:
            groups.append([(i, part)])
    return groups


def joins(last: Part, part: Part) -> bool:
    """Whether a part belongs to the same item as the part before it: texts of one message, or of one thought."""
    if isinstance(part, Text | Refusal):
        own = part.extras.get(NAME, {})
        return isinstance(last, Text | Refusal) and not ("id" in own or "~id" in own or "~item" in own)
    if isinstance(part, Reasoning):
        return isinstance(last, Reasoning) and spelled(part.extras, NAME, "~item") == "same"
    return False


class ClientKnowledge:
    """Makes the ids and statuses that the items of a reply to a client need."""

    __slots__ = ("reply_id", "status")

    def __init__(self, reply_id: str, status: str = "completed") -> None:
        self.reply_id = reply_id
        self.status = status

    def mint(self, kind: str, index: int) -> str:
        """An id for the item at an index. The same index always gets the same id."""
        return f"{ID_PREFIXES[kind]}{MINTED}{self.reply_id}_{index}"


def encode_item(group: Group, index: int, at: At, notes: Notes, client: ClientKnowledge | None) -> JsonObject | None:
    """Encode one item. None if Responses has no such item. Without a client, the item is history for an upstream."""
    i, part = group[0]
    here: At = (at, i)
    match part:
        case Text() | Refusal():
            return _encode_message(group, index, at, notes, client)
        case ToolCall():
            return encode_call(part, index, here, notes, client)
        case Reasoning():
            return _encode_reasoning(group, index, at, notes, client)
        case ToolResult():
            return encode_result(part, here, notes)
        case Opaque() if part.dialect == NAME:
            return part.body
        case Image() if client is not None and part.data is not None:
            return _encode_image(part, part.data, index, here, notes, client)
        case Opaque():
            notes.dropped(here, f"only {part.dialect} has {word_of(part)}")
            return None
        case Image() | Document() | Audio() | Video():
            notes.dropped(here, f"responses has no {word_of(part)} in a turn of the model")
            return None
        case _:
            assert_never(part)


def identify(item: JsonObject, kind: str, group: Group, index: int, client: ClientKnowledge | None) -> None:
    """Write the item's own id and status. For a client, missing ones are made."""
    own: JsonObject = {}
    for _, part in group:
        if not isinstance(part, Opaque):
            own.update(part.extras.get(NAME, {}))
    if "id" in own:
        item["id"] = own["id"]
    elif client is not None:
        made_up = own.get("~id", client.mint(kind, index))
        if made_up:
            item["id"] = made_up
    if client is None and own.get("~id"):
        return  # we made the id and the status: the upstream does not know them
    if "status" in own:
        item["status"] = own["status"]
    else:
        status = own.get("~status", ABSENT if client is None or kind == "reasoning" else client.status)
        if status != ABSENT:
            item["status"] = status


def _encode_message(group: Group, index: int, at: At, notes: Notes, client: ClientKnowledge | None) -> JsonObject:
    item: JsonObject = {"type": "message"}
    identify(item, "message", group, index, client)
    item["role"] = "assistant"
    texts = [(i, part) for i, part in group if isinstance(part, Text | Refusal)]
    content: str | list[JsonObject] = [
        encode_output(part, (at, i), notes, to_client=client is not None) for i, part in texts
    ]
    first = texts[0][1]
    own = first.extras.get(NAME, {})
    keys = _item_keys(texts)
    # A list of type message: llama.cpp takes an assistant's turn in no other form ("Cannot determine type of 'item'").
    if own.get("~content") == "string" and len(texts) == 1 and isinstance(first, Text):
        content = first.text
    item["content"] = content
    if (own.get("~typed") or ("message" if type(content) is list else ABSENT)) == ABSENT:
        del item["type"]
    return item | keys


def _item_keys(texts: list[tuple[int, Text | Refusal]]) -> JsonObject:
    """The other keys of the item, which its parts keep: all but id and status."""
    keys: JsonObject = {}
    for _, part in texts:
        own = part.extras.get(NAME)
        if own is not None:
            if "phase" in own:
                keys["phase"] = own["phase"]
            keys.update(own.get("item", {}))
    return keys


def encode_call(part: ToolCall, index: int, at: At, notes: Notes, client: ClientKnowledge | None) -> JsonObject:
    kind = "custom_tool_call" if part.freeform else "function_call"
    item: JsonObject = {"type": kind}
    identify(item, kind, [(0, part)], index, client)
    item["call_id"] = part.id
    write_name(item, part)
    item[CALLS[kind]] = part.arguments
    if part.seal is not None:
        write_seal(item, part.seal, at, notes, to_client=client is not None)
    if part.cache is not None:
        notes.dropped((at, "cache"), "responses has no cache marks on calls")
    if part.extras:
        add_extras(item, part.extras, NAME, at, notes)
    return item


def _encode_reasoning(
    group: Group, index: int, at: At, notes: Notes, client: ClientKnowledge | None
) -> JsonObject | None:
    if client is None and not any(is_own_thought(part) for _, part in group):
        for i, part in group:
            seal = part.seal if isinstance(part, Reasoning) else None
            who = "unsealed" if seal is None else f"sealed by {seal.origin}"
            notes.dropped((at, i), f"openai takes back only its own reasoning; this is {who}")
        return None
    item: JsonObject = {"type": "reasoning"}
    identify(item, "reasoning", group, index, client)
    texts: dict[str, list[JsonObject]] = {"summary": [], "content": []}
    for i, part in group:
        if isinstance(part, Reasoning):
            _add_thought(item, texts, part, (at, i), notes, client)
    last = group[-1][1]
    own = last.extras.get(NAME, {}) if isinstance(last, Reasoning) else {}
    if texts["summary"] or "summary" not in own:
        item["summary"] = texts["summary"]
    if texts["content"] or own.get("~content") == "empty":
        item["content"] = texts["content"]
    for i, part in group:
        if isinstance(part, Reasoning) and part.extras:
            kept = {k: v for k, v in part.extras.get(NAME, {}).items() if k not in ("part", "status", "id")}
            add_extras(item, {**part.extras, NAME: kept}, NAME, (at, i), notes)
    return item


def is_own_thought(part: Part) -> bool:
    """Whether OpenAI accepts this reasoning: OpenAI sealed it, or it came from OpenAI without an id of ours."""
    if not isinstance(part, Reasoning):
        return False
    if part.seal is not None:
        return is_own_seal(part.seal)
    own = part.extras.get(NAME, {})
    return "id" in own or (own.get("~item") == "new" and not own.get("~id"))


def is_own_seal(seal: Seal) -> bool:
    return seal.origin == NAME and seal.form == ENCRYPTED


def place_of(part: Reasoning) -> str:
    """The key of a thought. A thought of another dialect becomes a summary, because clients show summaries."""
    place: str | None = spelled(part.extras, NAME, "~place")
    if place in REASONING_TEXTS:
        return place
    return "summary" if part.text or part.summary else "none"


def _add_thought(
    item: JsonObject,
    texts: dict[str, list[JsonObject]],
    part: Reasoning,
    at: At,
    notes: Notes,
    client: ClientKnowledge | None,
) -> None:
    place = place_of(part)
    if place != "none":
        text: JsonObject = {"type": REASONING_TEXTS[place], "text": part.text}
        text.update(part.extras.get(NAME, {}).get("part", {}))
        texts[place].append(text)
        if part.summary != (place == "summary"):
            notes.altered((at, "summary"), "responses shows summaries: the thought is said as one")
    seal = part.seal
    if seal is None:
        return
    if is_own_seal(seal):
        item["encrypted_content"] = seal.value
        note_seal_losses(seal, (ENCRYPTED,), at, notes)
    else:
        write_seal(item, seal, at, notes, to_client=client is not None)


def _encode_image(part: Image, data: str, index: int, at: At, notes: Notes, client: ClientKnowledge) -> JsonObject:
    """Write a picture as the result of a tool. Responses has no other form for pictures of the model."""
    notes.altered(at, "responses' models draw with a tool: said as an image_generation_call")
    item: JsonObject = {"type": "image_generation_call"}
    identify(item, "image_generation_call", [(0, part)], index, ClientKnowledge(client.reply_id))
    item["result"] = data
    form = (part.media_type or "").removeprefix("image/")
    if form in ("png", "webp", "jpeg", "gif"):
        item["output_format"] = form
    if part.seal is not None:
        write_seal(item, part.seal, at, notes, to_client=True)
    add_extras(item, part.extras, NAME, at, notes)
    return item
