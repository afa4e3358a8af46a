"""Ollama: the fields of a message, both ways.

A message is not a list of parts. It has four fields: `thinking`, `content` (always one string), `images` (base64, also
sound) and `tool_calls`. We read them in that order. A change of order becomes a note.
"""

from collections.abc import Callable
from typing import Any, assert_never

from msgspec.structs import replace

from dragoman.dialects._seals import SIDE, take_seal, write_seal
from dragoman.dialects._tools import arguments_as_object, opaque_word
from dragoman.dialects.ollama.media import decode_media, encode_media
from dragoman.dialects.ollama.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    add_extras,
    leftovers,
    need_object,
    note_spelling,
    take_list_or_none,
    take_text,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, dump_text, kind_of
from dragoman.model.messages import (
    Audio,
    Document,
    Extras,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.notes import At, Notes

MintId = Callable[[int, str], str]  # position and name of a call without an id -> its id

# ---------------------------------------------------------------- decode


def take_parts(message: JsonObject, mint_id: MintId, *, asked: bool) -> list[Part]:
    """Decode the fields of a message into parts. `asked`: in a request, where an empty text alone is a part."""
    content = message.get("content")
    if len(message) == 1 and type(content) is str and content:  # fast path: ollama text
        del message["content"]
        return [Text(text=content)]
    parts: list[Part] = []
    thought = take_thought(message)
    if thought is not None:
        parts.append(thought)
    text = take_content(message)
    media = take_media(message) if asked else take_answered_media(message)
    calls = take_calls(message, mint_id, asked=asked)
    seal = take_side(message, "content")
    if text or seal is not None or (asked and text is not None and not (parts or media or calls)):
        parts.append(Text(text=text or "", seal=seal))
    parts.extend(media)
    parts.extend(calls)
    return parts


def take_content(message: JsonObject) -> str | None:
    """Take `content`. If it is missing or null, that is kept as spelling, because we always write it."""
    is_there = "content" in message
    text = message.pop("content", None)
    if type(text) is str:
        return text
    if text is not None:
        raise DecodeError(f"expected string, found {kind_of(text)}", "content")
    note_spelling(message, "content", "null" if is_there else "absent")
    return None


def take_thought(message: JsonObject) -> Reasoning | None:
    text, seal = take_text_or_none(message, "thinking"), take_side(message, "thinking")
    if text == "":
        note_spelling(message, "thinking", "empty")
    return Reasoning(text=text or "", seal=seal) if text or seal is not None else None


def take_side(message: JsonObject, field: str) -> Seal | None:
    """Take the seal that a client sent back for a field of a message (see _seals)."""
    side = message.get(SIDE)
    if type(side) is not dict or field not in side:
        return None
    seal = take_seal({SIDE: side[field]})
    if seal is not None:
        del side[field]
        if not side:
            del message[SIDE]
    return seal


def take_media(message: JsonObject) -> list[Image | Audio]:
    images = take_list_or_none(message, "images")
    if images is None:
        return []
    if not images:
        note_spelling(message, "images", "empty")
    for i, value in enumerate(images):
        if type(value) is not str:
            raise DecodeError(f"expected string, found {kind_of(value)}", "images", i)
    return [decode_media(value) for value in images]


def take_answered_media(message: JsonObject) -> list[Part]:
    """Decode the images of a reply, with a mark: only marked images are written to a client (see Turn)."""
    own: Extras = {NAME: {"~images": "reply"}}
    return [replace(part, extras=own) for part in take_media(message)]


def take_calls(message: JsonObject, mint_id: MintId, *, asked: bool) -> list[Part]:
    calls = take_list_or_none(message, "tool_calls")
    if calls is None:
        return []
    if not calls:
        note_spelling(message, "tool_calls", "empty")
    parts: list[Part] = []
    try:
        for call in calls:
            parts.append(_decode_call(need_object(call), len(parts), mint_id, asked=asked))
    except DecodeError as error:
        raise error.under("tool_calls", len(parts)) from None
    return parts


def _decode_call(call: JsonObject, position: int, mint_id: MintId, *, asked: bool) -> Part:
    function, call_id = call.get("function"), call.get("id")
    if (
        asked and len(call) == 2 and type(function) is dict and len(function) == 2 and type(call_id) is str and call_id
    ):  # fast path: ollama call
        name, given = function.get("name"), function.get("arguments")
        if type(name) is str and type(given) is dict:
            return ToolCall(id=call_id, name=name, arguments=dump_text(given))
    if type(function) is not dict:
        return Opaque(dialect=NAME, body=call)
    del call["function"]
    try:
        name = take_text(function, "name")
        arguments = _take_arguments(function, call)
    except DecodeError as error:
        raise error.under("function") from None
    call_id = take_text_or_none(call, "id")
    if not call_id:
        if call_id is None:
            note_spelling(call, "id", "absent")
        else:
            note_spelling(call, "id", "empty")
        call_id = mint_id(position, name)
    if not asked or "index" in function:  # calls of a reply have an index, except from old servers
        note_spelling(call, "index", function.pop("index", None))
    if call.get("type") == "function":  # Ollama has no such key, but many clients send it
        note_spelling(call, "type", call.pop("type"))
    seal = take_seal(call)
    if function:
        call["function"] = function
    return ToolCall(id=call_id, name=name, arguments=arguments, seal=seal, extras=leftovers(call, NAME))


def _take_arguments(function: JsonObject, call: JsonObject) -> str:
    """Take the arguments, an object. Some clients send a string, which Ollama refuses; we read it (FIELD-CASES 81)."""
    is_there = "arguments" in function
    given = function.pop("arguments", None)
    if type(given) is dict:
        return dump_text(given)
    if type(given) is str:
        note_spelling(call, "arguments", "text")
        return given
    if given is not None:
        raise DecodeError(f"expected object, found {kind_of(given)}", "arguments")
    note_spelling(call, "arguments", "null" if is_there else "absent")
    return "{}"


def take_logprobs(holder: JsonObject) -> tuple[TokenLogprob, ...] | None:
    """Take `logprobs` if it is a list of tokens. Any other value stays an extra."""
    found = holder.get("logprobs")
    if type(found) is not list or not all(_is_logprob(item) for item in found):
        return None
    del holder["logprobs"]
    return tuple(_decode_logprob(item) for item in found)


def _is_logprob(item: Any) -> bool:
    return type(item) is dict and type(item.get("token")) is str and type(item.get("logprob")) in (float, int)


def _decode_logprob(item: JsonObject) -> TokenLogprob:
    raw, top = item.get("bytes"), item.get("top_logprobs")
    if type(raw) is list:
        del item["bytes"]
    if type(top) is list and all(_is_logprob(other) for other in top):
        del item["top_logprobs"]
    else:
        top = None
    return TokenLogprob(
        token=item.pop("token"),
        logprob=item.pop("logprob"),
        bytes=tuple(raw) if type(raw) is list else None,
        top=None if top is None else tuple(_decode_logprob(other) for other in top),
        extras=leftovers(item, NAME),
    )


# ---------------------------------------------------------------- encode

RANKS: dict[type[Part], int] = {Reasoning: 0, Text: 1, Refusal: 1, Document: 1, Image: 2, Audio: 2, ToolCall: 3}


class MessageWriter:
    """Builds one Ollama message from parts. `to_client`: for a reply, where seals go into the side field and calls have
    numbers."""

    __slots__ = (
        "_at",
        "_empty",
        "_notes",
        "_rank",
        "_sealed",
        "_side",
        "_thought_count",
        "calls",
        "logprobs",
        "media",
        "texts",
        "thoughts",
    )

    def __init__(self, at: At, notes: Notes, *, to_client: bool = False) -> None:
        self._at = at  # of the parts
        self._notes = notes
        self._rank = -1
        self._empty: list[At] = []
        self._sealed = 0
        self._thought_count = 0
        self._side: JsonObject | None = {} if to_client else None
        self.thoughts: list[str] = []
        self.texts: list[str] = []
        self.media: list[str] = []
        self.calls: list[JsonObject] = []
        self.logprobs: list[JsonObject] | None = None

    def add(self, part: Part, i: int) -> None:
        at: At = (self._at, i)
        match part:
            case Text():
                self._add_text(part, at)
            case ToolCall():
                self._place(part)
                to_client = self._side is not None
                self.calls.append(encode_call(part, len(self.calls), at, self._notes, to_client=to_client))
            case Reasoning():
                self._add_thought(part, at)
            case Image() | Audio() if self._side is not None and NAME not in part.extras:
                # The official client cannot read it: "Input should be a valid dictionary or instance of Image".
                self._notes.dropped(at, "an ollama answer has no images that its clients could read")
            case Image() | Audio():
                data = encode_media(part, at, self._notes)
                if data is not None:
                    self._place(part)
                    self.media.append(data)
            case Refusal():
                self._notes.altered(at, "ollama has no refusal part: said as text")
                self._say(part, part.text, at)
                if part.text or self._side is None:
                    self._keep_logprobs(part.logprobs, at)
                self._note_extras(part.extras, at)
            case Document(text=str() as text):
                self._notes.altered(at, "ollama takes no documents: said as text")
                self._say(part, text, at)
            case Opaque() if part.dialect == NAME:
                self._rank = 3
                self.calls.append(part.body)
            case Document() | Video():
                self._notes.dropped(at, f"ollama takes no {type(part).__name__.lower()}")
            case ToolResult():
                self._notes.dropped(at, "ollama's tool results stand in turns of their own, after the call")
            case Opaque():
                self._notes.dropped(at, f"only {part.dialect} has {opaque_word(part)}")
            case _:
                assert_never(part)

    def body(self) -> JsonObject | None:
        """The message without its role. None if it would be empty."""
        alone = not (self.texts or self.thoughts or self.media or self.calls or self._side)
        if alone and not self._empty:
            return None
        # An empty text differs from no text only in a request, and only if the message has nothing else.
        for at in self._empty[1 if alone and self._side is None else 0 :]:
            self._notes.dropped(at, "ollama does not distinguish an empty text from none")
        if len(self.texts) + self._sealed > 1 or self._thought_count > 1:
            self._notes.altered(self._at, "an ollama message has one text: joined by line breaks")
        message: JsonObject = {"content": self.texts[0] if len(self.texts) == 1 else "\n".join(self.texts)}
        if self.thoughts:
            message["thinking"] = "\n".join(self.thoughts)
        if self.media:
            message["images"] = self.media
        if self.calls:
            message["tool_calls"] = self.calls
        if self._side:
            message[SIDE] = self._side
        return message

    def _place(self, part: Part) -> None:
        rank = RANKS[type(part)]
        if rank < self._rank:
            self._notes.altered(self._at, "ollama's order is thinking, text, images, calls")
        else:
            self._rank = rank

    def _say(self, part: Part, text: str, at: At) -> None:
        if text:
            self._place(part)
            self.texts.append(text)
        else:
            self._empty.append(at)

    def _add_text(self, part: Text, at: At) -> None:
        if part.text or part.seal is None or self._side is None:
            self._say(part, part.text, at)
        else:
            self._place(part)
            self._sealed += 1  # Gemini signs an empty text at the end
        if part.citations:
            self._notes.dropped((at, "citations"), "ollama has no citations")
        if part.text or self._side is None:
            self._keep_logprobs(part.logprobs, at)
        if part.seal is not None:
            self._keep_seal(part.seal, "content", at)
        if part.cache is not None:
            self._notes.dropped((at, "cache"), "ollama has no cache marks")
        if part.extras:
            self._note_extras(part.extras, at)

    def _add_thought(self, part: Reasoning, at: At) -> None:
        if not part.text and (self._side is None or part.seal is None):
            self._notes.dropped(at, "ollama's thinking is its text, and this has none")
            return
        self._place(part)
        self._thought_count += 1
        if part.text:
            self.thoughts.append(part.text)
        if part.seal is not None:
            self._keep_seal(part.seal, "thinking", at)
        if part.summary:
            self._notes.altered((at, "summary"), "ollama does not distinguish a summary from the thought")
        self._note_extras(part.extras, at)

    def _keep_seal(self, seal: Seal, field: str, at: At) -> None:
        holder: JsonObject = {}
        if self._side is not None and field in self._side:
            self._notes.dropped((at, "seal"), f"the side field has one place for {field}, and it is taken")
            return
        write_seal(holder, seal, at, self._notes, to_client=self._side is not None)
        if self._side is not None:
            self._side[field] = holder[SIDE]

    def _keep_logprobs(self, logprobs: tuple[TokenLogprob, ...] | None, at: At) -> None:
        if logprobs is None:
            return
        if self._side is None:
            self._notes.dropped((at, "logprobs"), "ollama's messages have no logprobs")
            return
        encoded = encode_logprobs(logprobs, (at, "logprobs"), self._notes)
        self.logprobs = encoded if self.logprobs is None else self.logprobs + encoded

    def _note_extras(self, extras: Extras, at: At) -> None:
        if extras:
            add_extras({}, extras, NAME, at, self._notes)


def add_spelled(message: JsonObject, extras: Extras) -> None:
    """Write a message's empty fields in their original form."""
    own = extras.get(NAME)
    if own is None:
        return
    if "~content" in own and not message["content"]:
        if own["~content"] == "null":
            message["content"] = None
        else:
            del message["content"]
    if "~thinking" in own:
        message.setdefault("thinking", "")
    if "~images" in own:
        message.setdefault("images", [])
    if "~tool_calls" in own:
        message.setdefault("tool_calls", [])


def encode_call(part: ToolCall, position: int, at: At, notes: Notes, *, to_client: bool) -> JsonObject:
    own = part.extras.get(NAME, {})
    function: JsonObject = {}
    if own.get("~index") is not None:
        function["index"] = own["~index"]
    elif to_client and "~index" not in own:
        function["index"] = position
    function["name"] = part.name
    arguments = own.get("~arguments")
    if arguments == "text":
        function["arguments"] = part.arguments
    elif arguments is None or part.arguments != "{}":
        function["arguments"] = arguments_as_object(part, NAME, at, notes)
    elif arguments == "null":
        function["arguments"] = None
    call: JsonObject = {}
    if "~id" not in own:
        call["id"] = part.id
    elif own["~id"] == "empty":
        call["id"] = ""
    if "~type" in own:
        call["type"] = "function"
    call["function"] = function
    if part.seal is not None:
        write_seal(call, part.seal, at, notes, to_client=to_client)
    if part.cache is not None:
        notes.dropped((at, "cache"), "ollama has no cache marks")
    if part.extras:
        add_extras(call, part.extras, NAME, at, notes)
        if call["function"] is not function:  # keys of the function that only Ollama knows
            call["function"] = function | call["function"]
    return call


def encode_logprobs(logprobs: tuple[TokenLogprob, ...], at: At, notes: Notes) -> list[JsonObject]:
    return [_encode_logprob(item, (at, i), notes) for i, item in enumerate(logprobs)]


def _encode_logprob(item: TokenLogprob, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"token": item.token, "logprob": item.logprob}
    if item.bytes is not None:
        body["bytes"] = list(item.bytes)
    if item.top is not None:
        body["top_logprobs"] = encode_logprobs(item.top, (at, "top"), notes)
    if item.extras:
        add_extras(body, item.extras, NAME, at, notes)
    return body
