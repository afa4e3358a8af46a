"""OpenAI Responses: the input, both ways. The wire has a list of items, we have turns."""

from collections.abc import Iterable

from dragoman.dialects._fast_turns import encode_turns, fast_calls, fast_result, fast_text
from dragoman.dialects._tools import FAILED, is_plain
from dragoman.dialects.openai_responses.items import decode_model_item, encode_item, group_parts
from dragoman.dialects.openai_responses.parts import decode_content, encode_input, is_content
from dragoman.dialects.openai_responses.results import decode_result, encode_result, is_result
from dragoman.dialects.openai_responses.words import (
    CALLS,
    DEVELOPER_ITEMS,
    MODEL_OUTPUTS,
    NAME,
    ROLES,
    USER_ITEMS,
)
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, decode_each, leftovers, note_spelling, spelled, take_choice
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Extras, Message, Opaque, Part, Reasoning, Refusal, Role, Text, ToolCall, ToolResult
from dragoman.notes import At, Notes

# ---------------------------------------------------------------- decode


def decode_items(items: list[object]) -> tuple[Message, ...]:
    """Decode the items into turns. Adjacent items of the model are one turn, adjacent results too."""
    turns = _Turns()
    decode_each(items, "input", turns.add)
    return turns.end()


STRING: Extras = {NAME: {"~content": "string"}}  # an assistant's text that came without a list around it
NEW: Extras = {NAME: {"~item": "new"}}  # a text that is not part of the message before it
NEW_STRING: Extras = {NAME: {"~item": "new", "~content": "string"}}  # and that is not part of the message before it


class _Turns:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.role: Role = "assistant"  # of the open turn
        self.parts: list[Part] = []

    def add(self, item: JsonObject) -> None:
        kind = item.get("type")
        if self._add_fast(item, kind):  # fast path: responses item
            return
        if kind == "message" or (kind is None and "role" in item):
            self._add_message(item)
        elif kind == "reasoning" or (type(kind) is str and kind in CALLS):
            self._extend("assistant", decode_model_item(item, self._last("assistant"), in_reply=False))
        elif is_result(item):
            self._extend("user", [decode_result(item)])
        else:
            self._extend(owner_of(item), [Opaque(dialect=NAME, body=item)])

    def _add_fast(self, item: JsonObject, kind: object) -> bool:  # fast path: responses item
        """Decode the most frequent items (a text, a call, a result) in few steps. False for any other item."""
        count = len(item)
        if kind is None and count == 2:
            return self._add_words(item.get("role"), item.get("content"))
        if kind == "message" and count == 3 and item.get("role") == "assistant":
            return self._add_answer(item.get("content"))
        if kind == "function_call" and count == 4:
            call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
            if type(call_id) is str and type(name) is str and type(arguments) is str:
                self._extend("assistant", (ToolCall(id=call_id, name=name, arguments=arguments),))
                return True
        elif kind == "function_call_output" and count == 3:
            call_id, output = item.get("call_id"), item.get("output")
            if type(call_id) is str and type(output) is str and output and not output.startswith(FAILED):
                self._extend("user", (ToolResult(call_id=call_id, parts=(Text(text=output),)),))
                return True
        return False

    def _add_words(self, role: object, content: object) -> bool:  # fast path: responses item
        if type(content) is not str or type(role) is not str or role not in ROLES:
            return False
        if role == "assistant":
            new = isinstance(self._last("assistant"), Text | Refusal)
            self._extend("assistant", (Text(text=content, extras=NEW_STRING if new else STRING),))
        else:
            self._close()
            self.messages.append(Message(role=ROLES[role], parts=(Text(text=content),)))
        return True

    def _add_answer(self, content: object) -> bool:  # fast path: responses item
        if type(content) is not list or len(content) != 1 or type(content[0]) is not dict or len(content[0]) != 3:
            return False
        block = content[0]
        text = block.get("text")
        if block.get("type") != "output_text" or type(text) is not str or block.get("annotations") != []:
            return False
        new = isinstance(self._last("assistant"), Text | Refusal)
        self._extend("assistant", (Text(text=text, extras=NEW) if new else Text(text=text),))
        return True

    def _add_message(self, item: JsonObject) -> None:
        if item.get("role") == "assistant":
            self._extend("assistant", decode_model_item(item, self._last("assistant"), in_reply=False))
            return
        content = item.get("content")
        if type(content) is list and not all(map(is_content, content)):
            self._extend(owner_of(item), [Opaque(dialect=NAME, body=item)])
        else:
            self._close()
            self.messages.append(_decode_plain_message(item))

    def _last(self, role: Role) -> Part | None:
        return self.parts[-1] if self.parts and self.role == role else None

    def _extend(self, role: Role, parts: Iterable[Part]) -> None:
        if role != self.role:
            self._close()
            self.role = role
        self.parts.extend(parts)

    def _close(self) -> None:
        if self.parts:
            self.messages.append(Message(role=self.role, parts=tuple(self.parts)))
            self.parts = []

    def end(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self.messages)


def _decode_plain_message(item: JsonObject) -> Message:
    """Decode a message of any role but the assistant."""
    role, content = take_choice(item, "role", ROLES), item.pop("content", None)
    if item.get("type") is not None:
        del item["type"]
        note_spelling(item, "type", "message")
    parts: tuple[Part, ...]
    if type(content) is str:
        parts = (Text(text=content),)
    elif type(content) is list:
        parts = decode_content(content, "content", "input_text")
        if len(parts) == 1 and is_plain(parts[0]):
            note_spelling(item, "content", "list")
    else:
        raise DecodeError(f"expected string or array, found {kind_of(content)}", "content")
    return Message(role=role, parts=parts, extras=leftovers(item, NAME))


def owner_of(item: JsonObject) -> Role:
    """The role of the turn for an item that only Responses knows: from its own role, or else from its kind."""
    kind, role = item.get("type"), item.get("role")
    if type(role) is str and role in ROLES:
        return ROLES[role]
    if type(kind) is not str:
        return "assistant"
    if kind in DEVELOPER_ITEMS:
        return "developer"
    if kind == "tool_search_output":
        return "user" if item.get("execution") == "client" else "assistant"
    if kind in USER_ITEMS or (kind.endswith("_output") and kind not in MODEL_OUTPUTS):
        return "user"
    return "assistant"


# ---------------------------------------------------------------- encode


def encode_items(messages: tuple[Message, ...], first: int, at: At, notes: Notes) -> list[JsonObject]:
    """Encode the turns from index `first` on as items. `at` is the place of the list of turns."""
    return encode_turns(messages, first, NAME, _encode_fast, _encode_message, at, notes)


def _encode_fast(message: Message, at: At, notes: Notes) -> list[JsonObject] | None:  # fast path: frequent turn
    parts = message.parts
    if not parts:
        return None
    text = fast_text(parts[0])
    items: list[JsonObject] = [] if text is None else [_words(message.role, text)]
    if len(parts) == 1 and text is not None:
        return items
    if message.role == "assistant":
        calls = fast_calls(parts, len(items), NAME)
        if calls is None:
            return None
        for call in calls:
            item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
            items.append(item)
        return items
    result = parts[0]
    if len(parts) == 1 and type(result) is ToolResult:
        text = fast_result(result, NAME)
        if text is not None:
            answer: JsonObject = {"type": "function_call_output", "call_id": result.call_id, "output": text}
            if result.name is not None:
                answer["name"] = result.name
            return [answer]
    return None


def _words(role: Role, text: str) -> JsonObject:
    if role != "assistant":
        return {"role": role, "content": text}
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text, "annotations": []}]}


def _encode_message(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    items = (_encode_turn if message.role == "assistant" else _encode_plain_turn)(message, at, notes)
    if message.parts and not items:
        notes.dropped(at, "responses has no form for any part of this turn")
    return items


def _encode_turn(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    if message.extras:
        add_extras({}, message.extras, NAME, at, notes)
    items = []
    for group in group_parts(message.parts):
        item = encode_item(group, 0, (at, "parts"), notes, None)
        if item is not None:
            items.append(item)
    return items


def _encode_plain_turn(message: Message, at: At, notes: Notes) -> list[JsonObject]:
    """Encode a turn of any role but the assistant. Results and whole items keep their place between the messages."""
    own: JsonObject = {}
    if message.extras:
        add_extras(own, message.extras, NAME, at, notes)
    if not message.parts:
        return [_message(message, [], own)]
    items: list[JsonObject] = []
    run: list[tuple[int, Part]] = []

    def end_run() -> None:
        if run:
            content = _encode_run(message, run, at, notes)
            if content != []:
                items.append(_message(message, content, own))
                own.clear()  # only the first message gets the extras of the turn
            run.clear()

    for i, part in enumerate(message.parts):
        match part:
            case ToolResult():
                end_run()
                items.append(encode_result(part, ((at, "parts"), i), notes))
            case Opaque() if part.dialect == NAME and not is_content(part.body):
                end_run()
                items.append(part.body)
            case ToolCall() | Reasoning():
                notes.dropped(((at, "parts"), i), f"only the model {_DOES[type(part)]}")
            case _:
                run.append((i, part))
    end_run()
    return items


_DOES: dict[type[Part], str] = {ToolCall: "calls tools", Reasoning: "thinks"}


def _encode_run(message: Message, run: list[tuple[int, Part]], at: At, notes: Notes) -> str | list[JsonObject]:
    if len(run) == 1 and spelled(message.extras, NAME, "~content") != "list":
        only = run[0][1]
        if isinstance(only, Text) and is_plain(only):
            return only.text
    return encode_input(run, (at, "parts"), notes)


def _message(message: Message, content: str | list[JsonObject], own: JsonObject) -> JsonObject:
    item: JsonObject = {"role": message.role, "content": content}
    if spelled(message.extras, NAME, "~type") is not None:
        item = {"type": "message", **item}
    return item | own
