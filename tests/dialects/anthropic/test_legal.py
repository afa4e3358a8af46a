"""Turns of which Messages can say nothing."""

from dragoman.convert import make_sayable
from dragoman.dialects.anthropic import DIALECT
from dragoman.model.messages import Audio, Message, Opaque, Text
from dragoman.model.request import Request
from dragoman.notes import Notes

FOREIGN = Opaque(dialect="openai_responses", body={"type": "additional_tools"})
HI = Message(role="user", parts=(Text(text="hi"),))


def test_a_turn_of_which_nothing_can_be_said_is_left_out() -> None:
    silent = Message(role="developer", parts=(FOREIGN,))
    heard = Message(role="assistant", parts=(Audio(data="AA=="), Text(text="yes")))
    notes = Notes()
    request = make_sayable(Request(model="m", messages=(silent, HI, heard)), DIALECT, notes)
    assert request.messages == (HI, heard)
    assert [(note.kind, note.where) for note in notes] == [("dropped", "/messages/0")]
    assert "system" not in DIALECT.encode_request(request, Notes()).body
