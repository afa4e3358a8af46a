"""Ollama: the messages of a request, both ways.

Here a tool result is a turn of its own (`role: tool`). In the canonical form it is a part of the user's turn. Without
ids, results are paired with calls by name and order, over the whole history (FIELD-CASES 81).
"""

from functools import partial

from dragoman.dialects._fast_turns import encode_turns, fast_calls, fast_result, fast_text
from dragoman.dialects._tools import FAILED, arguments_as_object, is_plain, mark_failed, unmark_failed
from dragoman.dialects.ollama.parts import MessageWriter, add_spelled, take_content, take_media, take_parts
from dragoman.dialects.ollama.words import NAME, ROLE_WORDS, ROLES, TOOL_ROLE
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, expected, leftovers, need_object, note_spelling, spelled, take_text_or_none
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- decode


def take_messages(body: JsonObject) -> tuple[Message, ...]:
    given = body.get("messages")
    if given is None:
        note_spelling(body, "messages", "null" if "messages" in body else "absent")
        return ()
    if type(given) is not list:
        raise expected("array", given, "messages")
    del body["messages"]
    history = _History()
    try:
        for message in given:
            history.read(need_object(message))
    except DecodeError as error:
        raise error.under("messages", len(history.messages)) from None
    return tuple(history.messages)


PLAIN_ROLES = ("user", "assistant", "system")  # roles with the same word in both forms


class _History:
    """The messages read so far, and their calls that have no result yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: list[tuple[str, str]] = []  # id and name
        self._minted: set[str] = set()  # ids of calls that came without one

    def read(self, message: JsonObject) -> None:
        word, content = message.get("role"), message.get("content")
        if len(message) == 2 and type(content) is str and word in PLAIN_ROLES:  # fast path: ollama turn
            self.messages.append(Message(role=ROLES[word], parts=(Text(text=content),)))
            return
        if (
            word == TOOL_ROLE and type(content) is str and self._read_fast_result(message, content)
        ):  # fast path: ollama result
            return
        message.pop("role", None)
        if type(word) is not str:
            raise expected("string", word, "role")
        plain = word.lower()  # the server does the same
        role = ROLES.get(plain)
        if role is None and plain != TOOL_ROLE:
            raise DecodeError(f"expected one of {', '.join((*ROLES, TOOL_ROLE))}, found {word!r}", "role")
        if word != plain or role == "developer":
            note_spelling(message, "role", word)
        if role is None:
            self.messages.append(Message(role="user", parts=(self._read_result(message),)))
            return
        parts = tuple(take_parts(message, self._mint_id, asked=True))
        self._waiting.extend((part.id, part.name) for part in parts if type(part) is ToolCall)
        self.messages.append(Message(role=role, parts=parts, extras=leftovers(message, NAME)))

    def _read_fast_result(self, message: JsonObject, text: str) -> bool:  # fast path: ollama result
        """Read a result with an id, a name and text in few steps. False for any other result."""
        call_id, name = message.get("tool_call_id"), message.get("tool_name")
        if len(message) != 4 or type(call_id) is not str or type(name) is not str:
            return False
        if self._is_strange(call_id) or text.startswith(FAILED):
            return False
        self._answer(call_id)
        result = ToolResult(call_id=call_id, parts=(Text(text=text),), name=name)
        self.messages.append(Message(role="user", parts=(result,)))
        return True

    def _mint_id(self, position: int, name: str) -> str:
        """Make an id. The same history gives the same ids next time."""
        made = f"call_{len(self.messages)}_{position}"
        self._minted.add(made)
        return made

    def _read_result(self, message: JsonObject) -> ToolResult:
        text = take_content(message)
        media = take_media(message)
        parts: list[Part] = []
        failed = None
        if text is not None:
            behind = unmark_failed(text)
            if behind is not None:
                failed, text = True, behind
            if text or not media:
                parts.append(Text(text=text))
        name = self._take_name(message)
        return ToolResult(
            call_id=self._take_call_id(message, name),
            parts=(*parts, *media),
            name=name,
            failed=failed,
            extras=leftovers(message, NAME),
        )

    def _take_name(self, message: JsonObject) -> str | None:
        name = take_text_or_none(message, "tool_name")
        if name is None:
            name = take_text_or_none(message, "name")  # the only key before 2025-05
            note_spelling(message, "tool_name", "absent" if name is None else "name")
        return name

    def _take_call_id(self, message: JsonObject, name: str | None) -> str:
        call_id = take_text_or_none(message, "tool_call_id")
        if call_id is None or self._is_strange(call_id):
            note_spelling(message, "tool_call_id", "absent" if call_id is None else call_id)
            found = next((i for i, called in self._waiting if name is None or called == name), None)
            call_id = found or call_id
        if call_id is None:
            return f"call_{len(self.messages)}"  # it answers no call; the passes handle that
        self._answer(call_id)
        return call_id

    def _answer(self, call_id: str) -> None:
        """Remove a call that now has its result."""
        for place, (waiting, _) in enumerate(self._waiting):
            if waiting == call_id:
                del self._waiting[place]
                break

    def _is_strange(self, call_id: str) -> bool:
        """Whether no call has this id but one has none. Some clients keep only the ids of results (CLIENTS 18)."""
        if not self._minted:
            return False
        known = {waiting for waiting, _ in self._waiting}
        return call_id not in known and bool(known & self._minted)


# ---------------------------------------------------------------- encode


def encode_messages(messages: tuple[Message, ...], at: At, notes: Notes) -> list[JsonObject]:
    names = _CallNames(messages)
    fast, whole = partial(_encode_fast, names), partial(_encode_message, names)
    turns = encode_turns(messages, 0, NAME, fast, whole, at, notes)
    if messages and not turns:
        notes.dropped(at, "ollama has no form for it")
    return turns


class _CallNames:
    """Finds the tool's name for results without a name. The calls are searched only when a name is needed."""

    __slots__ = ("_messages", "_names")

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._messages = messages
        self._names: dict[str, str] | None = None

    def find(self, call_id: str) -> str | None:
        if self._names is None:
            calls = (part for message in self._messages for part in message.parts if isinstance(part, ToolCall))
            self._names = {call.id: call.name for call in calls}
        return self._names.get(call_id)


def _encode_fast(
    names: _CallNames, message: Message, at: At, notes: Notes
) -> JsonObject | None:  # fast path: frequent turn
    parts, role = message.parts, message.role
    if not parts or role == "developer":
        return None
    text = fast_text(parts[0])
    if len(parts) == 1 and text is not None:
        return {"role": role, "content": text}
    if role == "assistant":
        first = 0 if text is None else 1
        made = fast_calls(parts, first, NAME)
        if made is None:
            return None
        calls: list[JsonObject] = []
        for i, call in enumerate(made, first):
            arguments = arguments_as_object(call, NAME, ((at, "parts"), i), notes)
            calls.append({"id": call.id, "function": {"name": call.name, "arguments": arguments}})
        return {"role": role, "content": text or "", "tool_calls": calls}
    result = parts[0]
    if len(parts) == 1 and role == "user" and type(result) is ToolResult:
        text = fast_result(result, NAME)
        if text is not None:
            turn: JsonObject = {"role": TOOL_ROLE, "content": text}
            _encode_names(turn, result, names, ((at, "parts"), 0), notes)
            return turn
    return None


def _encode_message(names: _CallNames, message: Message, at: At, notes: Notes) -> list[JsonObject]:
    """Encode a turn as one message, or as several if it has tool results."""
    role = spelled(message.extras, NAME, "~role")
    if role is None:
        role = ROLE_WORDS[message.role]
        if message.role == "developer":
            notes.altered((at, "role"), "ollama does not distinguish developer and system")
    turns: list[JsonObject] = []
    turn: MessageWriter | None = None
    for i, part in enumerate(message.parts):
        if isinstance(part, ToolResult) and message.role == "user":
            if turn is not None:
                _close(turns, role, turn)
                turn = None
            turns.append(_encode_result(part, names, ((at, "parts"), i), notes))
        else:
            if turn is None:
                turn = MessageWriter((at, "parts"), notes)
            turn.add(part, i)
    if turn is not None:
        _close(turns, role, turn)
    own = NAME in message.extras
    if not turns:
        if own:
            turns.append({"role": role, "content": ""})  # the Ollama request had this empty message
        else:
            notes.dropped(at, "ollama has no form for it")
    if own:
        add_spelled(turns[0], message.extras)
    if message.extras:
        add_extras(turns[0] if turns else {}, message.extras, NAME, at, notes)
    return turns


def _close(turns: list[JsonObject], role: str, turn: MessageWriter) -> None:
    body = turn.body()
    if body is not None:
        turns.append({"role": role, **body})


def _encode_result(part: ToolResult, names: _CallNames, at: At, notes: Notes) -> JsonObject:
    body = _encode_inside(part, at, notes)
    own = part.extras.get(NAME, {})
    if body is None:
        body = {"content": ""}
        if "~content" not in own:
            notes.altered((at, "parts"), "ollama's results always have a text: an empty one")
    message: JsonObject = {"role": own.get("~role", TOOL_ROLE), **body}
    if part.failed:
        message["content"] = mark_failed(message["content"])
    _encode_names(message, part, names, at, notes)
    if part.freeform:
        notes.altered((at, "freeform"), "ollama has no freeform calls: said as a function's result")
    if part.cache is not None:
        notes.dropped((at, "cache"), "ollama has no cache marks")
    if part.extras:
        add_spelled(message, part.extras)
        add_extras(message, part.extras, NAME, at, notes)
    return message


def _encode_inside(part: ToolResult, at: At, notes: Notes) -> JsonObject | None:
    parts = part.parts
    if len(parts) == 1 and is_plain(parts[0]):  # fast path: ollama result, written
        return {"content": parts[0].text}  # type: ignore[union-attr]  # it is a Text
    inner = MessageWriter((at, "parts"), notes)
    for i, piece in enumerate(parts):
        inner.add(piece, i)
    return inner.body()


def _encode_names(message: JsonObject, part: ToolResult, names: _CallNames, at: At, notes: Notes) -> None:
    own = part.extras.get(NAME, {})
    spelling = own.get("~tool_name")
    name = part.name
    if name is None and spelling is None:
        name = names.find(part.call_id)  # model templates use it (gpt-oss: `functions.<name> to=assistant`)
    if name is not None:
        message["name" if spelling == "name" else "tool_name"] = name
    wire = own.get("~tool_call_id", part.call_id)
    if wire != "absent":
        message["tool_call_id"] = wire
