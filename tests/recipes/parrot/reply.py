"""Parrot Chat: the reply, both ways. A stream says its end in the same words."""

from collections.abc import Sequence

from dragoman.dialects._losses import add_rest, encode_each
from dragoman.dialects.parrot.parts import decode_part, encode_part
from dragoman.dialects.parrot.words import FINISH_WORDS, FINISHES, NAME
from dragoman.fields import leftovers, need_object, take_each, take_integer_or_none, take_one, take_text
from dragoman.jsontypes import JsonObject
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

ANSWER: At = ((ROOT, "choices"), 0)


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = need_object(wire.body)
    answer = Choice(parts=take_each(body, "says", decode_part), finish=take_one(body, "end", decode_finish))
    name, model, usage = take_text(body, "id"), take_text(body, "model"), take_one(body, "crackers", decode_usage)
    return Reply(id=name, model=model, choices=(answer,), usage=usage, extras=leftovers(body, NAME))


def decode_finish(end: JsonObject) -> Finish:
    return Finish(reason=FINISHES.get(take_text(end, "because"), "other"), extras=leftovers(end, NAME))


def decode_usage(crackers: JsonObject) -> Usage:
    read, written = take_integer_or_none(crackers, "eaten"), take_integer_or_none(crackers, "given")
    return Usage(input=read, output=written, extras=leftovers(crackers, NAME))


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    answer = reply.choices[0] if reply.choices else Choice(parts=())
    says = encode_each(answer.parts, (ANSWER, "parts"), notes, encode_part)
    add_rest({}, answer, ("finish",), "", ANSWER, notes)  # a choice is no object of its own here
    end = write_end([choice.finish for choice in reply.choices], reply.usage, notes)
    body: JsonObject = {"id": reply.id, "model": reply.model, "says": says, **end}
    return WireReply(body=add_rest(body, reply, ("usage",), NAME, ROOT, notes))


def write_end(finishes: Sequence[Finish | None], usage: Usage | None, notes: Notes) -> JsonObject:
    body: JsonObject = {}
    for i in range(1, len(finishes)):
        notes.dropped(((ROOT, "choices"), i), f"{NAME} gives one answer")
    if finishes and (finish := finishes[0]) is not None:
        at: At = (ANSWER, "finish")
        word = FINISH_WORDS.get(finish.reason)
        if word is None:
            notes.altered((at, "reason"), f"{NAME} has no word for {finish.reason}")
        body["end"] = add_rest({"because": word or "done"}, finish, (), NAME, at, notes)
    if usage is not None:
        counts = {"eaten": usage.input, "given": usage.output}
        counts = {key: count for key, count in counts.items() if count is not None}
        body["crackers"] = add_rest(counts, usage, ("input", "output"), NAME, (ROOT, "usage"), notes)
    return body
