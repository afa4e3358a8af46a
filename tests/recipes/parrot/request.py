"""Parrot Chat: the request, both ways."""

from dragoman.dialects._losses import add_rest, encode_each
from dragoman.dialects.parrot.parts import decode_part, decode_tool, encode_part, encode_tool
from dragoman.dialects.parrot.words import NAME, PATH, ROLE_WORDS, ROLES
from dragoman.fields import leftovers, take_choice, take_each, take_flag_or_none, take_integer_or_none, take_text
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Message
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireRequest


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    return Request(
        model=take_text(body, "model"),
        messages=take_each(body, "turns", decode_message),
        tools=take_each(body, "tools", decode_tool) if body.get("tools") is not None else None,
        stream=take_flag_or_none(body, "stream"),
        max_output=take_integer_or_none(body, "limit"),
        extras=leftovers(body, NAME),  # every key that was not taken
    )


def decode_message(turn: JsonObject) -> Message:
    role, parts = take_choice(turn, "who", ROLES), take_each(turn, "says", decode_part)
    return Message(role=role, parts=parts, extras=leftovers(turn, NAME))


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {"model": request.model}
    body["turns"] = encode_each(request.messages, (ROOT, "messages"), notes, encode_message)
    if request.tools is not None:
        body["tools"] = encode_each(request.tools, (ROOT, "tools"), notes, encode_tool)
    settings = {"stream": request.stream, "limit": request.max_output}
    body |= {key: value for key, value in settings.items() if value is not None}
    written = ("messages", "tools", "stream", "max_output")  # there is no temperature: the rest becomes notes
    return WireRequest(path=PATH, body=add_rest(body, request, written, NAME, ROOT, notes))


def encode_message(message: Message, at: At, notes: Notes) -> JsonObject:
    says = encode_each(message.parts, (at, "parts"), notes, encode_part)
    return add_rest({"who": ROLE_WORDS[message.role], "says": says}, message, (), NAME, at, notes)
